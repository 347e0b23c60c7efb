"""How long a run is and what happens when, derived from the few settings that a recipe gives."""

import math
from dataclasses import dataclass

from sublayer.config.optimizer import OptimizerConfig
from sublayer.config.recipe import Recipe
from sublayer.config.train import LENGTHS, TrainConfig
from sublayer.errors import ConfigError

EVALUATIONS = 10
"""Evaluations of a run that says nothing of them, and has the time."""
_EVALUATION_SHARE = 0.2
"""Of a run in minutes, at most."""
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


@dataclass(frozen=True)
class Length:
    """Optimizer steps, evaluations on the way, and the tokens that each scores (None: as many as by default)."""

    steps: int
    n_evaluations: int = EVALUATIONS
    evaluate_tokens: int | None = None


def length_in(
    minutes: float, step_s: float, evaluation_s: float, *, evaluate_steps: int | None, scored_tokens: int | None
) -> Length:
    """Return what fits into ``minutes`` of wall clock, of which evaluations take at most a fifth.

    There are fewer evaluations where ten would take more, and where one would, it scores fewer than the
    ``scored_tokens`` that ``evaluation_s`` was measured with, unless that is None: what a recipe gives is kept, like
    its ``evaluate_steps``. Raises ConfigError if not one step fits.
    """
    seconds, n, tokens = 60.0 * minutes * (1.0 - _CHECKPOINTS_AND_LOGS), EVALUATIONS, None
    if evaluate_steps is not None:
        steps = seconds / (step_s + evaluation_s / evaluate_steps)
    else:
        limit = _EVALUATION_SHARE * seconds
        n = max(1, min(EVALUATIONS, int(limit / max(evaluation_s, 1e-9))))
        if evaluation_s > limit and scored_tokens is not None:
            tokens = max(1, int(scored_tokens * limit / evaluation_s))
        each_s = evaluation_s if tokens is None or scored_tokens is None else evaluation_s * tokens / scored_tokens
        steps = (seconds - n * each_s) / step_s
    if steps < 1:
        raise ConfigError(
            f"train.minutes = {minutes:g} is too short: a step takes {format_step(step_s)} "
            f"and an evaluation {format_step(evaluation_s)} here"
        )
    return Length(int(steps), n, tokens)


def format_step(seconds: float) -> str:
    """Format the seconds of a step or an evaluation."""
    return f"{seconds:,.0f} s" if seconds >= 100 else f"{seconds:.2g} s"


def resolve_train(
    recipe: Recipe,
    *,
    steps: int,
    valid_tokens: int | None,
    is_gpu: bool,
    threads: int,
    n_evaluations: int = EVALUATIONS,
    evaluate_tokens: int | None = None,
) -> TrainConfig:
    """Fill the derived fields of ``[train]`` of a run of ``steps`` optimizer steps, all but the precision.

    ``valid_tokens`` is the size of the validation split, None while unknown.
    """
    train = recipe.train
    sequences = batch_sequences(recipe)
    threads = train.threads or threads
    cached = threads * (_CACHE_TOKENS_NARROW if recipe.model.d_model <= _NARROW else _CACHE_TOKENS)
    micro = train.micro_batch_sequences or (sequences if is_gpu else max(1, cached // recipe.data.context))
    evaluate_steps = train.evaluate_steps or max(1, math.ceil(steps / n_evaluations))
    most_tokens = evaluate_tokens or _EVALUATE_TOKENS
    return train.model_copy(
        update={
            "steps": steps,
            "batch_sequences": sequences,
            "micro_batch_sequences": min(micro, sequences),
            "evaluate_steps": evaluate_steps,
            "evaluate_tokens": train.evaluate_tokens or min(most_tokens, valid_tokens or most_tokens),
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
