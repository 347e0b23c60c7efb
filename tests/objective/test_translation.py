"""The loss of translations, smoothed as published and reported unsmoothed, and beam settings."""

from typing import Any

import numpy as np
import pytest
import torch

from sublayer.config.layering.layers import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.objectives.translation import TranslationObjective
from sublayer.config.resolve_model import resolve_model
from sublayer.data.parallel.batches import TranslationBatches
from sublayer.decode.beam_settings import BeamSettings
from sublayer.errors import ConfigError
from sublayer.model.build import build
from sublayer.objective.translation.evaluation import beam_settings
from sublayer.objective.translation.loss import Translation
from tests.data.test_parallel import VOCAB_SIZE, random_split


def make_objective(**fields: Any) -> Translation:
    config = ModelConfig(
        kind="encoder-decoder", n_layers=2, d_model=16, n_heads=2, init_std=0.4, head_bias=True
    )
    model = build(resolve_model(config, vocab_size=VOCAB_SIZE, context=32), seed=1).double()
    torch.nn.init.normal_(model.head.bias)
    return Translation(model, TranslationObjective(**fields))


def a_batch() -> Any:
    return TranslationBatches(random_split(30), context=32, batch_tokens=200, seed=1).batch(0)


def by_hand(objective: Translation, batch: Any, share: float, form: str) -> torch.Tensor:
    logits = objective.model(batch.read.tokens, batch.read.mask, target=batch.written.tokens).logits
    log_p = logits.log_softmax(-1)[batch.targets >= 0]
    labels = batch.targets[batch.targets >= 0]
    spread = torch.full_like(log_p, share / (VOCAB_SIZE if form == "uniform" else VOCAB_SIZE - 1))
    chosen = labels[:, None]
    if form == "uniform":
        spread.scatter_add_(1, chosen, torch.full_like(chosen, 1 - share, dtype=log_p.dtype))
    else:
        spread.scatter_(1, chosen, 1 - share)
    assert spread.sum(1) == pytest.approx(np.ones(len(labels)))
    return -(spread * log_p).sum()


@pytest.mark.parametrize(("form", "share"), [("uniform", 0.0), ("uniform", 0.1), ("others", 0.7)])
def test_the_loss_and_its_gradient_are_the_published_ones(form, share):
    objective, batch = make_objective(label_smoothing=share, smoothing=form), a_batch()
    expected = by_hand(objective, batch, share, form)
    wanted = torch.autograd.grad(expected, list(objective.model.parameters()))
    totals = objective(batch)
    loss = sum(objective.weights[term] * total for term, total in totals.items())
    assert loss.item() == pytest.approx(expected.item(), rel=1e-10)
    found = torch.autograd.grad(loss, list(objective.model.parameters()))
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-8, atol=1e-10)
    # The reported loss is not smoothed.
    plain = by_hand(objective, batch, 0.0, "uniform").item()
    assert totals["nll"].item() == pytest.approx(plain, rel=1e-10)


def test_beam_settings_are_those_of_the_recipe_but_for_options_of_the_command():
    recipe = load_recipe("wmt14-base-transformer").recipe
    assert beam_settings(recipe, {}) == BeamSettings(beam=4, penalty=0.6)
    assert beam_settings(None, {}) == BeamSettings() == BeamSettings(5, "fairseq", 1.0, 0.0, 200.0)
    options = {"beam": 1, "length_penalty": 0.0, "length_rule": "gnmt"}
    given = {**options, "max_length_ratio": 0.0, "max_length_offset": 0.0}
    assert beam_settings(recipe, given) == BeamSettings(1, "gnmt", 0.0, 0.0, 0.0)
    with pytest.raises(ConfigError, match="a length penalty of inf is not a number"):
        beam_settings(None, {"length_penalty": float("inf")})


@pytest.mark.parametrize("setting", ["objective.length_penalty=nan", "objective.length_rule=none"])
def test_values_without_meaning_are_refused_before_a_run(setting):
    with pytest.raises(ConfigError, match=setting.partition("=")[0]):
        load_recipe("multi30k-tiny", [setting])
