"""The learning rate as a function of the step."""

import math

from sublayer.config.optimizer import OptimizerConfig
from sublayer.errors import ConfigError


def learning_rate(optimizer: OptimizerConfig, step: int, steps: int) -> float:
    """Give the learning rate of update ``step`` (0-based) of a run of ``steps`` updates.

    Warm-up is linear: update 0 has peak / warmup, update warmup - 1 the peak. Linear, polynomial and cosine then fall
    from the peak, at update ``warmup``, towards ``final_lr_share * lr``, which update ``steps`` would have;
    inverse-sqrt is ``lr * sqrt(warmup / (step + 1))`` (Vaswani et al. 2017, sec. 5.3, with an explicit peak).

    With ``warmup_init_lr``, fairseq's count: update 0 has that rate, update ``warmup`` the peak, and inverse-sqrt is
    ``lr * sqrt(warmup / step)``. Source: zhuohan123/macaron-net, ``inverse_square_root_schedule.py``.

    ALBERT's warm-up, as released, begins at rate 0, and the fall counts from update 0: at update ``warmup`` the rate
    drops from the line towards the peak to what the fall has come to.
    """
    warmup = optimizer.warmup_steps
    if warmup is None:
        raise ConfigError("optimizer.warmup_steps is not resolved")
    if optimizer.warmup == "albert":
        return optimizer.lr * step / warmup if step < warmup else _fallen(optimizer, step / steps)
    first = optimizer.warmup_init_lr
    if first is not None:
        is_rising = step < warmup
        return first + step * (optimizer.lr - first) / warmup if is_rising else optimizer.lr * math.sqrt(warmup / step)
    if step < warmup:
        return optimizer.lr * (step + 1) / warmup
    if optimizer.schedule == "constant":
        return optimizer.lr
    if optimizer.schedule == "inverse-sqrt":
        return optimizer.lr * math.sqrt(warmup / (step + 1))
    return _fallen(optimizer, (step - warmup) / max(1, steps - warmup))


def _fallen(optimizer: OptimizerConfig, progress: float) -> float:
    match optimizer.schedule:
        case "polynomial":
            remaining = math.pow(1.0 - progress, optimizer.power)
        case "linear":
            remaining = 1.0 - progress
        case _:
            remaining = 0.5 * (1.0 + math.cos(math.pi * progress))
    floor = optimizer.final_lr_share
    return optimizer.lr * (floor + (1.0 - floor) * remaining)
