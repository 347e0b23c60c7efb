"""A GPU computes what a CPU does: losses, gradients and updates of every kind of model."""

import pytest
import torch

from tests.gpu.kinds import KINDS, OPTIMIZERS, gradients, open_session

LOSS, GRADIENT, MOVED = 1e-5, 1e-3, 0.05
"""Greatest relative difference: of a loss; of a parameter's gradient, and of all changes, in L2."""


def without_dropout(settings):
    has_own = settings.get("objective.kind") == "supervised"
    if has_own and settings.get("objective.format") != "text":
        settings = {**settings, "objective.dropout": 0.0}
    return {**settings, "model.dropout": 0.0}


def differs_by(found, expected):
    return float((found - expected).norm() / expected.norm().clamp_min(1e-6))


@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_gradients_are_those_of_the_cpus_kernels(kind, device, texts, monkeypatch):
    settings = without_dropout(KINDS[kind])
    loss, found = gradients(open_session(texts, settings, device))
    monkeypatch.undo()
    expected_loss, expected = gradients(open_session(texts, settings, "cpu"))
    assert loss == pytest.approx(expected_loss, rel=LOSS)
    assert found.keys() == expected.keys()
    largest = max(float(each.norm()) for each in expected.values())
    for name, gradient in expected.items():
        # What is nearly 0 in the one sum is so in the other.
        if float(gradient.norm()) > 1e-5 * largest:
            assert differs_by(found[name], gradient) < GRADIENT, name


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_moves_weights_as_on_the_cpu(name, device, texts, monkeypatch):
    settings = without_dropout(OPTIMIZERS[name])
    moved = []
    for place in (device, "cpu"):
        session = open_session(texts, settings, place)
        before = {n: p.detach().cpu().clone() for n, p in session.train_step.parameters.items()}
        for step in range(3):
            session.train_step(step)
        parameters = session.train_step.parameters.items()
        moved.append({n: p.detach().cpu() - before[n] for n, p in parameters})
        monkeypatch.undo()
    whole = [torch.cat([each.flatten() for each in changes.values()]) for changes in moved]
    # A change of Adam's first steps has the gradient's sign alone, however small it is: a few of
    # those that are nearly 0 may differ in it.
    assert differs_by(*whole) < MOVED
    assert float(whole[1].norm()) > 0


def test_the_same_step_gives_the_same_bits_again(device, texts):
    sessions = [open_session(texts, {}, device) for _ in range(2)]
    losses = [[float(each.train_step(step).loss) for step in range(3)] for each in sessions]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
