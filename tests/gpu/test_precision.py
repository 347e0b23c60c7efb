"""Hundreds of steps in bfloat16 stay finite, and learn what float32 learns."""

import math
from statistics import fmean

import pytest

from tests.gpu.kinds import open_session

STEPS = {"cpu": 40, "cuda": 500}
N_LAST = {"cpu": 8, "cuda": 50}
CLOSE = 0.02
"""Greatest relative difference of the mean loss of the last steps."""


@pytest.mark.parametrize("kind", ["adamw", "lamb"])
def test_training_in_bfloat16_learns_as_in_float32(kind, device, texts):
    steps = STEPS[device.type]
    ends = {}
    for precision in ("float32", "bfloat16"):
        settings = {
            "train.precision": precision,
            "train.steps": steps,
            "optimizer.kind": kind,
            "optimizer.warmup_steps": 4,
            "model.dropout": 0.0,
        }
        train_step = open_session(texts, settings, device).train_step
        losses = [float(train_step(step).loss) for step in range(steps)]
        assert all(map(math.isfinite, losses))
        ends[precision] = fmean(losses[-N_LAST[device.type] :])
        assert ends[precision] < 0.9 * losses[0]
    assert ends["bfloat16"] == pytest.approx(ends["float32"], rel=CLOSE)
