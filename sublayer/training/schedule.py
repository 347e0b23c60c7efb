"""The learning rate as a function of the step."""

import math
from collections.abc import Callable

from sublayer.config.optimizers import OptimizerConfig
from sublayer.errors import ConfigError


def learning_rate(optimizer: OptimizerConfig, step: int, steps: int) -> float:
    """Compute the learning rate of update ``step`` (0-based) of a run of ``steps`` updates.

    Warm-up is linear: update 0 has peak / warmup, update warmup - 1 the peak. Linear, polynomial
    and cosine then fall from the peak, at update ``warmup``, towards ``final_lr_share * lr``, which
    update ``steps`` would have; inverse-sqrt is ``lr * sqrt(warmup / (step + 1))`` (Vaswani et al.
    2017, sec. 5.3, with an explicit peak).

    With ``warmup_init_lr``, fairseq's count: update 0 has that rate, update ``warmup`` the peak,
    and inverse-sqrt is ``lr * sqrt(warmup / step)``. Source: zhuohan123/macaron-net,
    ``inverse_square_root_schedule.py``.

    ALBERT's warm-up, as released, begins at rate 0, and the fall counts from update 0: at update
    ``warmup`` the rate drops from the line towards the peak to the rate that the fall has reached.

    GPT-1's warm-up, as released, begins at rate 0 and comes to the peak at update ``warmup``, after
    which the fall, too, counts from update 0; a linear fall acts from update 0 on, so that the rate
    never comes to the peak. Source: openai/finetune-transformer-lm, ``opt.py``.

    A constant warm-up has the peak from update 0 on, and inverse-sqrt is ``lr * sqrt(warmup /
    max(step, warmup))``: with a peak of 0.01 and 10,000 updates of warm-up ``1 / sqrt(max(step,
    10000))``. Source: Raffel et al. 2020, sec. 3.1.2.

    In addition, the last ``cooldown_share`` of the run multiplies the rate by the remaining share
    of the cooldown: ``(steps - step) / (cooldown_share * steps)``. Source: tensorflow/mesh,
    ``learning_rate_schedules.py``, as T5 was released.

    Raises ConfigError where the recipe's warm-up is not resolved.
    """
    rate = _before_cooldown(optimizer, step, steps)
    return rate * _left_of_cooldown(optimizer.cooldown_share, step, steps)


def _before_cooldown(optimizer: OptimizerConfig, step: int, steps: int) -> float:
    warmup = optimizer.warmup_steps
    if warmup is None:
        raise ConfigError("optimizer.warmup_steps is not resolved")
    if optimizer.warmup == "constant":
        return optimizer.lr * math.sqrt(warmup / max(step, warmup))
    if optimizer.warmup == "albert":
        if step < warmup:
            return optimizer.lr * step / warmup
        return _fallen(optimizer, step / steps)
    if optimizer.warmup == "gpt1":
        return _as_gpt1(optimizer, step, steps, warmup)
    first = optimizer.warmup_init_lr
    if first is not None:
        if step < warmup:
            return first + step * (optimizer.lr - first) / warmup
        return optimizer.lr * math.sqrt(warmup / step)
    if step < warmup:
        return optimizer.lr * (step + 1) / warmup
    if optimizer.schedule == "constant":
        return optimizer.lr
    if optimizer.schedule == "inverse-sqrt":
        return optimizer.lr * math.sqrt(warmup / (step + 1))
    n_falling = max(1, steps - warmup)
    progress = (step - warmup) / n_falling
    return _fallen(optimizer, progress)


def _as_gpt1(optimizer: OptimizerConfig, step: int, steps: int, warmup: int) -> float:
    risen = min(1.0, step / warmup)
    has_fallen = optimizer.schedule == "linear" or step > warmup
    if optimizer.schedule == "constant" or not has_fallen:
        return optimizer.lr * risen
    return _fallen(optimizer, step / steps) * risen


FALLS: dict[str, Callable[[OptimizerConfig, float], float]] = {
    "linear": lambda optimizer, progress: 1.0 - progress,
    "polynomial": lambda optimizer, progress: math.pow(1.0 - progress, optimizer.power),
    "cosine": lambda optimizer, progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
}
"""Share left of the way from the peak to the floor, where a share of the fall is over."""


def _left_of_cooldown(share: float, step: int, steps: int) -> float:
    if share == 0.0:
        return 1.0
    return min(1.0, (steps - step) / (share * steps))


def _fallen(optimizer: OptimizerConfig, progress: float) -> float:
    remaining = FALLS[optimizer.schedule](optimizer, progress)
    floor = optimizer.final_lr_share
    return optimizer.lr * (floor + (1.0 - floor) * remaining)
