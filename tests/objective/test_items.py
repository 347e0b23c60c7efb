"""Causal, span and translation losses by hand; scores, and what every item scored."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from sublayer.config.data import DataConfig
from sublayer.config.load import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.objective import CausalObjective, SpanObjective, TranslationObjective
from sublayer.config.recipe import OBJECTIVES
from sublayer.config.resolve import resolve_model
from sublayer.data.batches import Batch
from sublayer.data.span import ScoredPieces
from sublayer.data.tokenizers.base import ByteTokenizer
from sublayer.data.translation_batches import TranslationBatches, side_lengths
from sublayer.decode.beam import BeamSettings
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.items import ALONE
from sublayer.model.context import Layout
from sublayer.model.estimates import count_parameters, flops_per_token
from sublayer.model.model_folder import save_model
from sublayer.model.transformer import build, compose
from sublayer.objective.base import KINDS, family, family_of
from sublayer.objective.causal import Causal, _spread, score, window_items
from sublayer.objective.masked import HIDDEN, Scoring, encoder_scores
from sublayer.objective.span import SpanCorruption, corruption_rule, frequency_loss
from sublayer.objective.translation import (
    Translation,
    beam_settings,
    nats_of_pairs,
    translation_nats,
)
from sublayer.runs.session import prepare_data
from sublayer.text_model import TextModel
from tests.data.test_parallel import VOCAB_SIZE as PAIR_IDS
from tests.data.test_parallel import random_split
from tests.evaluation.test_likelihood import model_of, split_of
from tests.made import KINDS as MADE
from tests.objective.test_masked import CONTEXT as MASKED_CONTEXT
from tests.objective.test_masked import SPLIT, encoder_for, objective_of
from tests.training.runs import open_session

VOCAB_SIZE, CONTEXT, N_LAYERS = 19, 7, 4
DEEP, N_IDS = {"auxiliary": "layers", "targets": 2}, 60
TINY = {"model.n_layers": 1, "model.d_model": 8, "model.n_heads": 2, "model.d_ff": 16}
TINY |= {"data.context": 32, "data.sentinels": 20, "data.vocab_size": 400, "train.steps": 3}
OF_KIND = {"causal": "character", "supervised": "pair"}
"""The row of ``tests/made.py`` for an objective whose kind is not its name."""


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
    parts = ("weight", "bias")
    assert given == {f"classifiers.{term}.{part}" for term in going_on for part in parts}
    assert all(objective.classifiers[term].weight.grad.abs().sum() > 0 for term in going_on)
    assert set(objective.counts(batch)) == going_on | {"lm"}
    mean = make_objective({**DEEP, "auxiliary_reduction": "mean"})
    mean.begin(5, 16)
    halves = {"layer3_ahead1": 0.5, "lm": 0.5}
    assert mean.weights == {**halves, "layer3_ahead2": 0.25, "layer4_ahead2": 0.25}


def test_parameters_and_flops_of_classifiers_are_counted_for_as_long_as_they_last():
    objective = make_objective(DEEP)
    config = objective.model.config
    counted, plain = count_parameters(config, objective.config), count_parameters(config)
    models = (objective, objective.model)
    every, own = (sum(p.numel() for p in each.parameters()) for each in models)
    assert (counted.training, counted.total, plain.total) == (every, own, own)
    # Blocks 1 to 3 have two classifiers each for 1/8, 2/8 and 3/8 of the run, the last block one
    # throughout.
    classifiers = 2 * (1 + 2 + 3) / 8 + 1
    extra = flops_per_token(config, CONTEXT, objective.config) - flops_per_token(config, CONTEXT)
    assert extra == 6 * classifiers * VOCAB_SIZE * config.d_model


class Numbers(ByteTokenizer):
    """Ids up to 59, of which the last twenty are sentinels; nothing is encoded."""

    vocab_size, pad_id = N_IDS, 0
    sep_id, sentinel_ids = 1, tuple(range(59, 39, -1))


def a_split(n_tokens=900):
    ids = np.random.default_rng(3).integers(3, 40, size=n_tokens)
    return split_of(ids, Numbers(), document_starts=(0, 400, 410))


def a_recipe(**settings):
    return load_recipe("t5-mini", {**TINY, **settings}).recipe


def a_model(recipe):
    return build(resolve_model(recipe.model, vocab_size=N_IDS, context=32), seed=1)


@pytest.mark.parametrize("z, noise", [(0.3, "spans"), (0.0, "iid")])
def test_the_loss_is_that_of_the_targets_and_z_loss_is_not_reported(z, noise):
    batch = family("span").batches(a_recipe(**{"objective.noise": noise}), a_split()).batch(0)
    config = ModelConfig(kind="encoder-decoder", n_layers=2, d_model=16, n_heads=2, init_std=0.4)
    model = build(resolve_model(config, vocab_size=N_IDS, context=32), seed=1).double()
    objective = SpanCorruption(model, SpanObjective(z_loss=z))
    logits = model(batch.read.tokens, batch.read.mask, target=batch.written.tokens).logits
    counted = batch.targets >= 0
    nats = -logits.log_softmax(-1)[counted].gather(1, batch.targets[counted][:, None]).sum()
    totals = objective(batch)
    assert totals["nll"].item() == pytest.approx(nats.item(), rel=1e-10)
    assert objective.counts(batch) == dict.fromkeys(totals, int(counted.sum()))
    if z:
        expected = nats + z * logits.logsumexp(-1)[counted].square().sum()
        assert totals["trained"].item() == pytest.approx(expected.item(), rel=1e-10)
        assert objective.weights == {"trained": 1.0, "nll": 0.0}


def test_a_metric_has_the_direction_and_the_items_that_the_table_of_its_objective_says():
    for kind, table in OBJECTIVES.items():
        for metric in family(kind).metrics:
            measure = table.evaluated.get(metric.name)
            assert measure is None or measure.is_lower_better == metric.is_lower_better
            assert not (measure and measure.table) or measure.table == metric.from_items.table


def test_every_arm_seed_and_step_is_scored_on_one_corruption():
    split, model = a_split(), TextModel(a_model(a_recipe()))

    def found(**settings):
        score = family("span").score(model, split, a_recipe(**settings), "test", ALONE)
        return score.scores, score.items.tables["pieces"].digest

    same, seed = found(), {"train.seed": 5, "train.batch_sequences": 3, "train.steps": 7}
    arm = {"model.ffn": "geglu", "objective.z_loss": 0.5, "optimizer.lr": 0.1}
    assert found(**seed) == found(**arm) == same
    assert found(**{"objective.noise_density": 0.3})[1] != same[1]


def test_a_test_scores_every_token_that_was_cut_out_of_the_whole_text():
    recipe = a_recipe()
    found = family("span").score(TextModel(a_model(recipe)), a_split(), recipe, "test", ALONE)
    table = found.items.tables["pieces"]
    # 900 tokens are 26 pieces of 34, of which 5 are noise in 2 spans, and one of 16 (2 in 1).
    n_tokens = 26 * (5 + 2 + 1) + 2 + 1 + 1
    assert (found.scores["tokens"], table.n_items) == (n_tokens, 27)
    nats, tokens = table.columns["nats"], table.columns["tokens"]
    assert found.scores["loss"] == pytest.approx(nats.sum() / n_tokens, rel=1e-12)
    along = a_recipe(**{"train.evaluate_tokens": 3 * 34 + 5})
    sample = family("span").score(TextModel(a_model(along)), a_split(), along, "training", ALONE)
    pieces = nats[[0, 13, 26]].sum() / tokens[[0, 13, 26]].sum()
    assert sample.scores["loss"] == pytest.approx(pieces, rel=1e-6)


def test_a_constant_prediction_costs_the_entropy_of_the_targets():
    rule = corruption_rule(SpanObjective(), Numbers(), context=32, starts_with_pad=True)
    pieces = ScoredPieces(a_split(), rule, batch_sequences=4, boundaries="ignore")
    targets = torch.cat([pieces.batch(n).targets.flatten() for n in range(pieces.n_batches)])
    shares = targets[targets >= 0].bincount().double() / (targets >= 0).sum()
    expected = torch.special.entr(shares).sum().item()
    assert frequency_loss(pieces) == pytest.approx(expected, rel=1e-12)
    # Of 8 tokens one is the first sentinel, one the second, one the end.
    assert shares[[59, 58, 1]].tolist() == pytest.approx([27 / 212, 26 / 212, 27 / 212])


def test_an_epoch_is_counted_by_its_pieces_and_random_batches_are_as_long_as_real_ones():
    recipe = a_recipe()
    assert family("span").epoch_tokens(recipe, a_split()) == 26 * 32
    both = family("span").synthetic(recipe, N_IDS), family("span").batches(recipe, a_split())
    shapes = [(each.batch(0).read.tokens.shape, each.batch(0).targets.shape) for each in both]
    assert shapes[0] == shapes[1]


def test_a_tokenizer_with_too_few_sentinels_is_refused_by_how_many_it_takes():
    split = a_split()
    split.tokenizer.sentinel_ids = (59,)
    with pytest.raises(ConfigError, match="up to 2 sentinels in pieces of 34 tokens, .* has 1"):
        family("span").batches(a_recipe(), split)


@pytest.mark.parametrize("noise, length", [("spans", 568), ("prefix", 512)])
def test_a_text_shorter_than_a_piece_is_refused_before_a_run(noise, length, tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    text = "".join(f"the {i % 7} cats sat on {i % 5} mats.\n" for i in range(22))
    (tmp_path / "text.txt").write_text(text)
    given = {"data.path": str(tmp_path / "text.txt"), "data.context": 512, "data.vocab_size": 140}
    given |= {"train.steps": 1, "objective.noise": noise}
    recipe = load_recipe("t5-mini", given).recipe
    with pytest.raises(DataError, match=f"fewer than objective.raw_length = {length}"):
        prepare_data(recipe)


def make_translation(**fields):
    size = {"n_layers": 2, "d_model": 16, "n_heads": 2}
    config = ModelConfig(kind="encoder-decoder", **size, init_std=0.4, head_bias=True)
    model = build(resolve_model(config, vocab_size=PAIR_IDS, context=32), seed=1).double()
    torch.nn.init.normal_(model.head.bias)
    return Translation(model, TranslationObjective(**fields))


def by_hand(objective, batch, share, form):
    logits = objective.model(batch.read.tokens, batch.read.mask, target=batch.written.tokens).logits
    log_p, labels = (each[batch.targets >= 0] for each in (logits.log_softmax(-1), batch.targets))
    spread = torch.full_like(log_p, share / (PAIR_IDS if form == "uniform" else PAIR_IDS - 1))
    chosen = labels[:, None]
    if form == "uniform":
        spread.scatter_add_(1, chosen, torch.full_like(chosen, 1 - share, dtype=log_p.dtype))
    else:
        spread.scatter_(1, chosen, 1 - share)
    assert spread.sum(1) == pytest.approx(np.ones(len(labels)))
    return -(spread * log_p).sum()


@pytest.mark.parametrize("form, share", [("uniform", 0.0), ("uniform", 0.1), ("others", 0.7)])
def test_the_loss_and_its_gradient_are_the_published_ones(form, share):
    batch = TranslationBatches(random_split(30), context=32, batch_tokens=200, seed=1).batch(0)
    objective = make_translation(label_smoothing=share, smoothing=form)
    expected, totals = by_hand(objective, batch, share, form), objective(batch)
    loss = sum(objective.weights[term] * total for term, total in totals.items())
    assert loss.item() == pytest.approx(expected.item(), rel=1e-10)
    parameters = list(objective.model.parameters())
    found, wanted = (torch.autograd.grad(each, parameters) for each in (loss, expected))
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-8, atol=1e-10)
    plain = by_hand(objective, batch, 0.0, "uniform").item()
    assert totals["nll"].item() == pytest.approx(plain, rel=1e-10)


def test_beam_settings_are_those_of_the_recipe_but_for_options_of_the_command():
    recipe = load_recipe("wmt14-base-transformer").recipe
    assert beam_settings(recipe, {}) == BeamSettings(beam=4, penalty=0.6)
    assert beam_settings(None, {}) == BeamSettings() == BeamSettings(5, "fairseq", 1.0, 0.0, 200.0)
    options = {"beam": 1, "length_penalty": 0.0, "length_rule": "gnmt"}
    given = {**options, "max_length_ratio": 0.0, "max_length_offset": 0.0}
    assert beam_settings(recipe, given) == BeamSettings(1, "gnmt", 0.0, 0.0, 0.0)
    with pytest.raises(ConfigError, match="a length penalty of inf is out of range"):
        beam_settings(None, {"length_penalty": float("inf")})


def test_what_a_study_compares_is_what_a_run_is_scored_by():
    for kind in KINDS:
        if kind == "translation":  # a study translates the test split, too long on the way
            continue
        data = DataConfig(tasks="sst2" if kind == "supervised" else None)
        given = OBJECTIVES[kind]().evaluations(data)
        assert {metric.name for metric in family(kind).metrics} <= set(given)


@pytest.fixture
def session_of(workshop, own_cache):
    def open_one(kind, **more):
        return open_session(workshop.recipe(MADE[OF_KIND.get(kind, kind)], **more))

    return open_one


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_holds_what_its_config_asks_for_and_no_more(session_of, kind, tmp_path):
    objective = session_of(kind).train_step.objective
    save_model(tmp_path / "model", objective.model, {})
    saved = load_file(tmp_path / "model" / "model.safetensors")
    with torch.device("meta"):
        asked = compose(objective.model.config).state_dict()
    shapes = [{name: value.shape for name, value in each.items()} for each in (saved, asked)]
    assert shapes[0] == shapes[1]
    owned, alone = {f"model.{name}" for name in saved}, objective.training_only()
    assert owned | alone.keys() == dict(objective.named_parameters()).keys()
    assert (len(alone) > 0) == (kind == "causal")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if family(kind).tables()])
def test_the_metrics_of_a_test_follow_from_its_items(session_of, kind):
    hyphens = {"data.moses": "tokenize", "data.moses_hyphens": True}
    session = session_of(kind, **(hyphens if kind == "translation" else {}))
    session.text_model.model.eval()
    test, row = session.data.test, family_of(session.recipe.objective)
    found = row.score(session.text_model, test, session.recipe, "test", ALONE)
    for metric in row.metrics:
        assert metric.from_items is not None, f"{metric.name} follows from no items"
        value = metric.from_items.of(found.items)
        assert value == pytest.approx(found.scores[metric.name], rel=1e-9), metric.name
    for table in found.items.tables.values():
        assert table.n_items > 4 and len(table.digest) == 64


def test_windows_have_the_nats_the_text_and_the_document_of_what_they_score():
    split, uniform = split_of(np.arange(40) % 251, document_starts=(0, 7, 29)), model_of()
    with torch.no_grad():
        uniform.embedding.weight.zero_()
    likelihood = score(uniform, split, context=8, stride=4, batch_sequences=3)
    table = window_items(split, likelihood, context=8, stride=4).tables["windows"]
    # The first window scores 8 tokens, 1 to 8, each later one 4, the last the 3 that are left.
    tokens = [8, *[4] * 7, 3]
    assert "half the context" in table.unit and table.columns["tokens"].tolist() == tokens
    assert table.columns["nats"] == pytest.approx(np.array(tokens) * math.log(256), rel=1e-12)
    # They score from 1, 9, 13, 17, ... on; documents begin at 7 and 29.
    assert table.documents.tolist() == [0, *[1] * 5, 2, 2, 2]
    for name in ("bytes", "characters", "words", "tokens"):
        assert int(table.columns[name].sum()) == getattr(likelihood, name)


def test_bytes_that_a_lossy_tokenizer_read_are_spread_over_the_windows():
    given = (([4, 0, 4], 8, [1, 1, 1]), ([4, 0, 4], 12, [1, 1, 1]), ([0, 0], 9, [2, 1]))
    found = [_spread(np.array(read), n, np.array(tokens)).tolist() for read, n, tokens in given]
    assert found == [[4, 0, 4], [6, 0, 6], [6, 3]]
    assert _spread(np.array([3, 3, 3]), 10, np.array([1, 1, 1])).sum() == 10


def test_an_example_scores_the_same_alone_and_among_others():
    encoder, found = encoder_for(), []
    for size in (1, 7, 500):
        tables, scoring = {}, Scoring(MASKED_CONTEXT, size)
        scores = encoder_scores(encoder, SPLIT, objective_of(), scoring, tables=tables)
        found.append(tables)
    alone, *others = found
    for tables in others:
        nats = tables[HIDDEN].columns["nats"]
        assert nats == pytest.approx(alone[HIDDEN].columns["nats"], rel=1e-9)
        for name, table in tables.items():
            assert table.digest == alone[name].digest
            assert np.array_equal(table.documents, alone[name].documents)
            for column in set(table.columns) - {"nats"}:
                assert np.array_equal(table.columns[column], alone[name].columns[column])
    hidden = alone[HIDDEN].columns
    assert int(hidden["tokens"].sum()) == scores["mlm_tokens"]
    assert hidden["correct"].sum() / hidden["tokens"].sum() == scores["mlm_accuracy"]
    for task in ("nsp", "sop"):
        judged = alone[f"{task}_pairs"].columns
        assert int(judged["pairs"].sum()) == scores[f"{task}_pairs"]
        assert judged["correct"].sum() / judged["pairs"].sum() == scores[f"{task}_accuracy"]
        assert set(judged["correct"].tolist()) == {0, 1}


def test_a_pair_costs_what_its_target_costs_alone():
    objective, split = make_translation(), random_split(30)
    batches = TranslationBatches(split, context=24, batch_tokens=120, seed=1)
    found = nats_of_pairs(objective.model, batches)
    mean = translation_nats(objective.model, batches)
    assert found.nats.sum() / found.tokens.sum() == pytest.approx(mean, rel=1e-12)
    lengths = side_lengths(split)
    is_kept = lengths.max(1) <= 24
    assert found.tokens.tolist() == np.where(is_kept, lengths[:, 1], 0).tolist()
    for number, pair in enumerate(np.flatnonzero(is_kept)):
        alone = batches.pairs(np.array([number]))
        with torch.no_grad():
            nats = float(objective(alone)["nll"])
        assert found.nats[pair] == pytest.approx(nats, rel=1e-9)
        assert found.tokens[pair] == alone.n_predicted
    assert not found.nats[~is_kept].any() and is_kept.sum() == 30 - batches.n_left_out < 30
    others = TranslationBatches(split, context=24, batch_tokens=60, seed=2)
    assert nats_of_pairs(objective.model, others).nats == pytest.approx(found.nats, rel=1e-9)
