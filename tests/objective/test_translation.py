"""The loss of translations: smoothed as published, equal however cut, reported unsmoothed."""

from typing import Any

import numpy as np
import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.objectives.translation import TranslationObjective
from sublayer.config.resolve_model import resolve_model
from sublayer.data.parallel.batches import TranslationBatches
from sublayer.model.build import build
from sublayer.objective.translation.loss import Translation, smoothing_of
from tests.data.parallel.test_batches import VOCAB_SIZE, random_split


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


@pytest.mark.parametrize("form", ["uniform", "others"])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.7])
def test_the_loss_and_its_gradient_are_the_published_ones(form: str, share: float) -> None:
    objective, batch = make_objective(label_smoothing=share, smoothing=form), a_batch()
    expected = by_hand(objective, batch, share, form)
    wanted = torch.autograd.grad(expected, list(objective.model.parameters()))
    totals = objective(batch)
    loss = sum(objective.weights[term] * total for term, total in totals.items())
    assert loss.item() == pytest.approx(expected.item(), rel=1e-10)
    found = torch.autograd.grad(loss, list(objective.model.parameters()))
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_z_loss_is_trained_and_not_reported(share: float) -> None:
    objective, batch = make_objective(label_smoothing=share, z_loss=0.2), a_batch()
    logits = objective.model(batch.read.tokens, batch.read.mask, target=batch.written.tokens).logits
    log_z = logits.logsumexp(-1)[batch.targets >= 0]
    expected = by_hand(objective, batch, share, "uniform") + 0.2 * log_z.square().sum()
    assert objective.weights == {"trained": 1.0, "nll": 0.0}
    assert objective(batch)["trained"].item() == pytest.approx(expected.item(), rel=1e-10)
    nats = by_hand(objective, batch, 0.0, "uniform").item()
    assert objective(batch)["nll"].item() == pytest.approx(nats, rel=1e-10)


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_what_is_reported_is_the_plain_loss(share: float) -> None:
    objective, batch = make_objective(label_smoothing=share), a_batch()
    expected = by_hand(objective, batch, 0.0, "uniform").item()
    assert objective(batch)["nll"].item() == pytest.approx(expected, rel=1e-10)


def test_parts_of_a_batch_add_up_to_it() -> None:
    objective, batch = make_objective(label_smoothing=0.1), a_batch()
    parts = [batch[start : start + 3] for start in range(0, len(batch), 3)]
    for term in ("trained", "nll"):
        assert sum(objective(part)[term].item() for part in parts) == pytest.approx(
            objective(batch)[term].item()
        )
    assert (
        sum(objective.counts(part)["nll"] for part in parts)
        == objective.counts(batch)["nll"]
        == batch.n_predicted
    )


def test_the_weights_of_smoothing_sum_to_one() -> None:
    for form in ("uniform", "others"):
        smoothing = smoothing_of(TranslationObjective(label_smoothing=0.1, smoothing=form), 50)
        assert smoothing is not None
        assert smoothing.target + 50 * smoothing.each == pytest.approx(1.0)
    assert smoothing_of(TranslationObjective(), 50) is None
