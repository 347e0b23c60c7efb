"""How long a run is and what happens when, derived from the few settings that a recipe gives."""

import math

from sublayer.config.optimizer import OptimizerConfig
from sublayer.config.recipe import Recipe
from sublayer.config.train import LENGTHS, TrainConfig
from sublayer.errors import ConfigError

_EVALUATIONS = 10
_LOG_LINES = 200
_CHECKPOINTS_AND_LOGS = 0.01
"""Share of a run in minutes that is neither steps nor evaluation."""
_WARMUP_SHARE = 0.05
_EVALUATE_TOKENS = 32768
_CACHE_TOKENS, _CACHE_TOKENS_NARROW = 1024, 4096
"""Tokens of a micro-batch for each thread: fewer leave threads waiting for each other, more leave the cache.

Measured at a d_model of 256 and 512, and of 128, where what surrounds the small products costs most.
"""
_NARROW = 128


def batch_sequences(recipe: Recipe) -> int:
    """Give the windows per optimizer step: ``batch_sequences``, or ``batch_tokens`` in whole windows, or 16."""
    train = recipe.train
    if train.batch_tokens is not None:
        return max(1, round(train.batch_tokens / recipe.data.context))
    return train.batch_sequences or 16


def run_steps(recipe: Recipe, *, train_tokens: int | None) -> int | None:
    """Give the optimizer steps of a run, or None where only a measurement (minutes) or the data (epochs) can tell.

    ``train_tokens`` is the size of the training split, None while unknown. Raises ConfigError where no length is set.
    """
    train = recipe.train
    if train.steps is not None:
        return train.steps
    tokens_per_step = batch_sequences(recipe) * recipe.data.context
    if train.tokens is not None:
        return max(1, math.ceil(train.tokens / tokens_per_step))
    if train.epochs is not None:
        return None if train_tokens is None else max(1, math.ceil(train.epochs * train_tokens / tokens_per_step))
    if train.minutes is not None:
        return None
    raise ConfigError(f"the run has no length: give one of {', '.join(f'train.{name}' for name in LENGTHS)}")


def steps_in(minutes: float, step_s: float, evaluation_s: float, *, evaluate_steps: int | None) -> int:
    """Give the optimizer steps that fit into ``minutes`` of wall clock, evaluation included.

    Raises ConfigError if not even one does.
    """
    seconds = 60.0 * minutes * (1.0 - _CHECKPOINTS_AND_LOGS)
    if evaluate_steps is None:
        steps = int((seconds - _EVALUATIONS * evaluation_s) / step_s)
    else:
        steps = int(seconds / (step_s + evaluation_s / evaluate_steps))
    if steps < 1:
        raise ConfigError(
            f"train.minutes = {minutes:g} is too short: a step takes {step_s:.2g} s "
            f"and an evaluation {evaluation_s:.2g} s here"
        )
    return steps


def resolve_train(recipe: Recipe, *, steps: int, valid_tokens: int | None, is_gpu: bool, threads: int) -> TrainConfig:
    """Fill the derived fields of ``[train]`` of a run of ``steps`` optimizer steps, all but the precision.

    ``valid_tokens`` is the size of the validation split, None while unknown.
    """
    train = recipe.train
    sequences = batch_sequences(recipe)
    threads = train.threads or threads
    cached = threads * (_CACHE_TOKENS_NARROW if recipe.model.d_model <= _NARROW else _CACHE_TOKENS)
    micro = train.micro_batch_sequences or (sequences if is_gpu else max(1, cached // recipe.data.context))
    evaluate_steps = train.evaluate_steps or max(1, math.ceil(steps / _EVALUATIONS))
    return train.model_copy(
        update={
            "steps": steps,
            "batch_sequences": sequences,
            "micro_batch_sequences": min(micro, sequences),
            "evaluate_steps": evaluate_steps,
            "evaluate_tokens": train.evaluate_tokens or min(_EVALUATE_TOKENS, valid_tokens or _EVALUATE_TOKENS),
            "checkpoint_steps": train.checkpoint_steps or evaluate_steps,
            "log_steps": train.log_steps or max(1, steps // _LOG_LINES),
            "threads": threads,
        }
    )


def resolve_optimizer(optimizer: OptimizerConfig, *, steps: int) -> OptimizerConfig:
    """Fill the warm-up of a run of ``steps`` optimizer steps.

    Raises ConfigError for inverse-sqrt and ALBERT's warm-up without one, and for a warm-up longer than the run.
    """
    needing = _needs_warmup(optimizer)
    warmup = optimizer.warmup_steps
    if warmup is None:
        share = _WARMUP_SHARE if optimizer.warmup_share is None else optimizer.warmup_share
        warmup = max(round(share * steps), 1 if needing and share > 0 else 0)
    if needing and warmup < 1:
        raise ConfigError(f"{needing} needs optimizer.warmup_steps of at least 1")
    if warmup > steps:
        raise ConfigError(f"optimizer.warmup_steps = {warmup} is longer than the run of {steps} steps")
    return optimizer.model_copy(update={"warmup_steps": warmup})


def _needs_warmup(optimizer: OptimizerConfig) -> str:
    if optimizer.schedule == "inverse-sqrt":
        return "optimizer.schedule = inverse-sqrt"
    return "optimizer.warmup = albert" if optimizer.warmup == "albert" else ""


def derived_fields(given: Recipe, resolved: Recipe) -> list[str]:
    """Name the fields whose value ``resolved`` derived, unset or ``auto`` in ``given``, as ``table.field``."""
    before, after = given.model_dump(), resolved.model_dump()
    return [
        f"{table}.{name}"
        for table, values in after.items()
        if isinstance(values, dict)
        for name, value in values.items()
        if value != before[table].get(name)
    ]
