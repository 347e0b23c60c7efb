"""The terms of the causal objective are the paper's losses, for as long as it keeps them."""

import pytest
import torch
import torch.nn.functional as F

from sublayer.config.layering.layers import load_recipe
from sublayer.config.objectives.causal import CausalObjective
from sublayer.config.resolve_model import resolve_model
from sublayer.data.batches import Batch
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.model.build import build
from sublayer.model.context.layout import Layout
from sublayer.objective.causal.loss import Causal

VOCAB_SIZE, CONTEXT, N_LAYERS = 19, 7, 4
DEEP = {"auxiliary": "layers", "targets": 2}


def make_objective(settings, **fields):
    given = {"n_layers": N_LAYERS, "d_model": 8, "n_heads": 2, "init_std": 0.3, **fields}
    recipe = load_recipe("gpt", {f"model.{name}": value for name, value in given.items()}).recipe
    config = resolve_model(recipe.model, vocab_size=VOCAB_SIZE, context=CONTEXT)
    return Causal(build(config, seed=1), CausalObjective(**settings), seed=1).double()


def make_batch(n_ahead=2):
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(VOCAB_SIZE, (3, CONTEXT + n_ahead), generator=generator)
    ahead = [ids[:, n : n + CONTEXT].clone() for n in range(1, n_ahead + 1)]
    ahead[0][1, 3] = -1
    return Batch(ids[:, :CONTEXT], ahead[0], None, torch.stack(ahead[1:]) if n_ahead > 1 else None)


def weighted_sum(objective, batch):
    counts, totals, weights = objective.counts(batch), objective(batch), objective.weights
    assert set(counts) == set(totals) == set(weights)
    return sum((weights[term] * totals[term] / counts[term] for term in totals), torch.zeros(()))


@pytest.mark.parametrize("final_norm", ["affine", "none"])
def test_the_terms_are_the_cross_entropies_of_every_block_and_target(final_norm):
    objective = make_objective({**DEEP, "target_weight": 0.25}, final_norm=final_norm)
    batch = make_batch()
    layout = Layout.causal(batch.tokens)
    hidden = objective.model.hidden(batch.tokens, layout, capture=range(1, N_LAYERS))
    assert batch.further is not None
    expected = torch.zeros((), dtype=torch.float64)
    for layer in range(1, N_LAYERS + 1):
        states = hidden.final if layer == N_LAYERS else hidden.captured[layer]
        if layer < N_LAYERS and final_norm != "none":
            variance = states.var(-1, unbiased=False, keepdim=True)
            states = (states - states.mean(-1, keepdim=True)) / (variance + 1e-5).sqrt()
        for ahead, targets, weight in ((1, batch.targets, 1.0), (2, batch.further[0], 0.25)):
            if (layer, ahead) == (N_LAYERS, 1):
                logits = objective.model.logits(states)
            else:
                head = objective.classifiers[f"layer{layer}_ahead{ahead}"]
                logits = states @ head.weight.t() + head.bias
            nats = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
            expected = expected + weight * nats
    torch.testing.assert_close(weighted_sum(objective, batch), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("settings", [DEEP, {"positions": "last"}], ids=str)
def test_z_loss_is_that_of_the_model_s_own_head_trained_and_not_reported(settings):
    batch, plain = make_batch(settings.get("targets", 1)), make_objective(settings)
    objective = make_objective({**settings, "z_loss": 0.2})
    counts, totals, without = objective.counts(batch), objective(batch), plain(batch)
    others = {name: total.item() for name, total in totals.items() if name != "trained"}
    assert others == {name: total.item() for name, total in without.items()}
    assert {**plain.weights, "trained": plain.weights["lm"], "lm": 0.0} == objective.weights
    assert counts["trained"] == counts["lm"]
    logits, targets = objective.model(batch.tokens).logits, batch.targets
    if "positions" in settings:
        logits, targets = logits[:, -1:], targets[:, -1:]
    expected = without["lm"] + 0.2 * logits.logsumexp(-1)[targets >= 0].square().sum()
    torch.testing.assert_close(totals["trained"], expected, rtol=1e-12, atol=0)


def test_summed_positions_are_the_sum_of_each_window_averaged_over_windows():
    batch, settings = make_batch(), {**DEEP, "z_loss": 0.2}
    mean = make_objective(settings)
    summed = make_objective({**settings, "position_reduction": "sum"})
    counts, totals = mean.counts(batch), mean(batch)
    # One target of the first 21 is ignored, and none of the further ones.
    assert counts == {term: 21 if term.endswith("ahead2") else 20 for term in mean.weights}
    expected = sum(weight * totals[term] for term, weight in mean.weights.items()) / 3
    torch.testing.assert_close(weighted_sum(summed, batch), expected, rtol=1e-12, atol=0)
    # What is logged stays nats per token.
    assert summed.counts(batch)["lm"] == 20
    torch.testing.assert_close(summed(batch)["lm"], totals["lm"], rtol=1e-12, atol=0)


def test_a_block_s_losses_stop_after_its_share_of_half_the_run():
    objective = make_objective(DEEP)
    for step in range(16):  # block l of 4 has its losses for l/8 of the run: 2 l steps
        objective.begin(step, 16)
        predicting = {term.partition("_")[0] for term in objective.weights if term != "lm"}
        assert predicting == {"layer4", *(f"layer{n}" for n in (1, 2, 3) if step < 2 * n)}


def test_what_has_stopped_has_no_gradient_and_costs_nothing():
    objective, batch = make_objective(DEEP), make_batch()
    objective.begin(5, 16)
    weighted_sum(objective, batch).backward()
    going_on = {"layer3_ahead1", "layer3_ahead2", "layer4_ahead2"}
    given = {name for name, value in objective.training_only().items() if value.grad is not None}
    assert given == {
        f"classifiers.{term}.{part}" for term in going_on for part in ("weight", "bias")
    }
    assert all(objective.classifiers[term].weight.grad.abs().sum() > 0 for term in going_on)
    assert set(objective.counts(batch)) == going_on | {"lm"}
    # The mean over blocks divides by those that still predict.
    mean = make_objective({**DEEP, "auxiliary_reduction": "mean"})
    mean.begin(5, 16)
    halves = {"layer3_ahead1": 0.5, "lm": 0.5}
    assert mean.weights == {**halves, "layer3_ahead2": 0.25, "layer4_ahead2": 0.25}


def test_parameters_and_flops_of_classifiers_are_counted_for_as_long_as_they_last():
    objective = make_objective(DEEP)
    config = objective.model.config
    counted, plain = count_parameters(config, objective.config), count_parameters(config)
    every, own = (
        sum(p.numel() for p in each.parameters()) for each in (objective, objective.model)
    )
    assert (counted.training, counted.total, plain.total) == (every, own, own)
    # Blocks 1 to 3 have two classifiers each for 1/8, 2/8 and 3/8 of the run, the last block one
    # throughout.
    classifiers = 2 * (1 + 2 + 3) / 8 + 1
    extra = flops_per_token(config, CONTEXT, objective.config) - flops_per_token(config, CONTEXT)
    assert extra == 6 * classifiers * VOCAB_SIZE * config.d_model


@pytest.mark.parametrize("settings, message", [
    (["objective.target_weight=0.1"], "objective.targets is more than 1"),
    (["objective.auxiliary_stop=0.2"], "objective.auxiliary is layers"),
    (["objective.auxiliary=layers", "model.n_layers=1"], "there are blocks below the last"),
], ids=str)  # fmt: skip
def test_a_loss_without_meaning_or_effect_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        load_recipe("gpt", settings)
