"""Whether a run fits into a machine's memory and disk, and the smallest change that would make it fit."""

import math
from collections.abc import Callable, Iterator
from functools import partial

from sublayer.config.layers import LoadedRecipe, vary
from sublayer.config.length import resolve_train
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import resolve_model
from sublayer.config.train import TrainConfig
from sublayer.errors import ConfigError
from sublayer.model.cost import count_parameters
from sublayer.model.memory import Memory, optimizer_states, training_memory
from sublayer.model.passes import FLOAT32_BYTES, Pass
from sublayer.study.resources import PROGRAM_BYTES, Resources

_PASSED_OVER = 8
"""Neighbouring widths of which one, at least, is what the other settings take."""
_BESIDES_NEWEST = 3
"""Checkpoints beside the newest ones: the best, the one being written, and the final model (less, but whole here)."""


def batches(recipe: Recipe, resources: Resources) -> TrainConfig:
    """Fill what ``[train]`` leaves open about batches; lengths are not looked at."""
    # Only the batches are wanted, so any length and any split will do.
    return resolve_train(recipe, steps=1, valid_tokens=1, is_gpu=resources.device == "cuda", threads=resources.cores)


def step_memory(recipe: Recipe, vocab_size: int, resources: Resources) -> Memory:
    """Estimate the peak memory of an optimizer step of a recipe on this machine."""
    context = recipe.data.context
    train = batches(recipe, resources)
    assert train.batch_sequences is not None and train.micro_batch_sequences is not None, "a filled table has batches"
    step = Pass(
        resolve_model(recipe.model, vocab_size=vocab_size, context=context),
        sequences=train.micro_batch_sequences,
        context=context,
        precision=resources.precision(recipe),
        device=resources.device,
        objective=recipe.objective,
        recomputes=recipe.train.recompute == "blocks",
    )
    n_passes = math.ceil(train.batch_sequences / train.micro_batch_sequences)
    return training_memory(step, recipe.optimizer, n_passes=n_passes)


def fits_memory(recipe: Recipe, vocab_size: int, resources: Resources) -> bool | None:
    """Tell whether a step and the program around it fit into the memory that is free; None where that is unknown."""
    if resources.memory_bytes is None:
        return None
    program = PROGRAM_BYTES if resources.device == "cpu" else 0
    return step_memory(recipe, vocab_size, resources).total + program <= resources.memory_bytes


def fits_disk(recipe: Recipe, vocab_size: int, resources: Resources) -> bool | None:
    """Tell whether a run fits on the disk that is free; None where that is unknown."""
    return None if resources.disk_bytes is None else run_disk(recipe, vocab_size) <= resources.disk_bytes


def run_disk(recipe: Recipe, vocab_size: int) -> int:
    """Estimate the bytes that a run's folder has at most: checkpoints with optimizer states, and the model."""
    model = resolve_model(recipe.model, vocab_size=vocab_size, context=recipe.data.context)
    n_saved = count_parameters(model, recipe.objective).training * (1 + optimizer_states(recipe.optimizer))
    return FLOAT32_BYTES * n_saved * (recipe.train.keep_checkpoints + _BESIDES_NEWEST)


def smallest_change(
    loaded: LoadedRecipe, sequences: int, fits: Callable[[Recipe], bool | None]
) -> tuple[str, ...] | None:
    """Find the settings that change least and make a recipe fit; None where none of these does.

    Tried in order: micro-batches smaller than ``sequences``, and then activations computed again, which change nothing
    that is learned; fewer blocks; a narrower model; each with the largest value that fits.
    """

    def is_enough(change: tuple[str, ...]) -> bool | None:
        try:
            return bool(fits(vary(loaded, change).recipe))
        except ConfigError:  # a width that the recipe's other settings do not take
            return None

    for values, change in _changes(loaded.recipe, sequences):
        value = _first(values, partial(_tried, change, is_enough))
        if value is None:
            continue
        alone = tuple(setting for setting in change(value) if setting.startswith("model."))
        # What saves memory alone may not be what is needed.
        return alone if alone and is_enough(alone) else change(value)
    return None


def _tried(
    change: Callable[[int], tuple[str, ...]], is_enough: Callable[[tuple[str, ...]], bool | None], value: int
) -> bool | None:
    return is_enough(change(value))


def _first(values: range, is_enough: Callable[[int], bool | None]) -> int | None:
    """Return the first of falling values that is enough, by halving: of what is enough, so is all that is less.

    Values that other settings do not take (None) are passed over.
    """
    low, high = 0, len(values)  # the first is at low or behind it, and before high if anywhere
    while low < high:
        middle = (low + high) // 2
        tried = middle
        while (answer := is_enough(values[tried])) is None and tried < min(high, middle + _PASSED_OVER) - 1:
            tried += 1
        if answer:
            high = middle
        else:
            low = tried + 1
    found = next((at for at in range(low, min(low + _PASSED_OVER, len(values))) if is_enough(values[at])), None)
    return None if found is None else values[found]


def _changes(recipe: Recipe, sequences: int) -> Iterator[tuple[range, Callable[[int], tuple[str, ...]]]]:
    """List falling values, and the settings that each stands for."""

    def smaller(n: int) -> tuple[str, ...]:
        return (f"train.micro_batch_sequences={n}",) if n < sequences else ()

    yield range(sequences - 1, 0, -1), smaller
    recompute = ("train.recompute=blocks",) if recipe.train.recompute == "none" else ()
    if recompute:
        yield range(sequences, 0, -1), lambda n: (*recompute, *smaller(n))
    model = recipe.model
    one = (*recompute, *smaller(1))
    fewest = model.share_inner * model.share_groups
    n_layers = range(model.n_layers - model.share_inner, fewest - 1, -model.share_inner)
    yield n_layers, lambda n: (*one, f"model.n_layers={n}")
    widths = range(model.d_model - model.n_heads, 0, -model.n_heads)
    yield widths, lambda n: (*one, f"model.d_model={n}")
