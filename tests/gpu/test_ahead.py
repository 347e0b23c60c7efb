"""Steps prepared ahead by a thread: the same numbers, and no copy that the host waits for."""

import pytest
import torch

from tests.gpu.kinds import KINDS, open_session
from tests.in_time import some_in_time

N_STEPS = 4


def train(texts, settings, device):
    train_step = open_session(texts, settings, device).train_step
    results = [train_step(step) for step in range(N_STEPS)]
    weights = {name: value.detach().cpu() for name, value in train_step.parameters.items()}
    return [(float(each.loss), each.n_tokens) for each in results], weights


@pytest.mark.parametrize("kind", some_in_time(KINDS, 4))
def test_steps_prepared_ahead_are_the_same_to_the_bit(kind, texts, device, monkeypatch):
    settings = {**KINDS[kind], "model.dropout": 0.1, "train.micro_batch_sequences": 2}
    found = []
    for is_ahead in (False, True):
        monkeypatch.setattr("sublayer.training.step.pays", lambda _, it=is_ahead: it)
        found.append(train(texts, settings, device))
    (losses, weights), (losses_ahead, weights_ahead) = found
    if device.type == "cuda":
        # Sums of a GPU's gradients may differ in their order.
        assert losses_ahead == [(pytest.approx(loss, rel=1e-4), n) for loss, n in losses]
        return
    assert losses_ahead == losses
    assert all(torch.equal(weights_ahead[name], value) for name, value in weights.items())
