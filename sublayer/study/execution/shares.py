"""What runs side by side take together, and whether the machine holds them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sublayer.config.recipe import Recipe
from sublayer.counts import count
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError
from sublayer.study.budget.capacity import PROGRAM_BYTES, Resources, find_resources, step_memory
from sublayer.study.budget.match import MatchedArm
from sublayer.system.cores import cores
from sublayer.system.machine import choose_device
from sublayer.system.memory import format_bytes, total_memory


def describe_share(
    arms: Sequence[MatchedArm],
    data: Mapping[str, Data],
    *,
    n_runs: int,
    jobs: int,
    device: str | None,
    folder: Path,
) -> str:
    """Format what runs take that are made ``jobs`` at a time, before they are.

    Their memory is that of their processes and of this one.

    ``data`` is each arm's, ``device`` as on the command line; ``folder`` is where they are kept.
    Raises ConfigError where the memory of the machine does not hold so many of the largest.
    """
    at_once = min(jobs, n_runs)
    # What Apple's GPU has is the memory of the machine.
    chosen = choose_device(device)
    resources = find_resources(str(chosen) if chosen.type == "cuda" else "cpu", folder)
    largest = 0
    threads = 1
    for arm in arms:
        recipe = arm.loaded.recipe
        vocab_size = data[arm.arm.name].tokenizer.vocab_size
        largest = max(largest, _run_memory(recipe, vocab_size, resources))
        threads = max(threads, recipe.train.threads or 1)
    # The process that starts them is one more.
    own = _program_bytes(resources)
    needed = at_once * largest + own
    _check_memory(at_once, largest, own, resources)
    words = [f"{count(n_runs, 'run')}, {at_once} at a time with {count(threads, 'thread')} each"]
    free = resources.memory_bytes
    if free is None:
        words.append(f"about {format_bytes(needed)} of memory together")
    else:
        words.append(f"about {format_bytes(needed)} of memory together, {format_bytes(free)} free")
    if at_once * threads > cores():
        words.append(
            f"{at_once} x {count(threads, 'thread')} are more than {count(cores(), 'core')} and "
            "wait for each other"
        )
    return "; ".join(words)


def _run_memory(recipe: Recipe, vocab_size: int, resources: Resources) -> int:
    """Estimate the peak memory of the process of a run, in bytes, as ``fits_memory`` counts it."""
    return step_memory(recipe, vocab_size, resources).total + _program_bytes(resources)


def _program_bytes(resources: Resources) -> int:
    return PROGRAM_BYTES if resources.device == "cpu" else 0


def _check_memory(at_once: int, each: int, own: int, resources: Resources) -> None:
    here = total_memory() if resources.device == "cpu" else resources.memory_bytes
    needed = at_once * each + own
    if here is None or needed <= here or at_once == 1:
        return
    n_fitting = (here - own) // each
    remedy = f"give --jobs {n_fitting}" if n_fitting > 1 else "leave it out"
    raise ConfigError(
        f"--jobs {at_once} needs {format_bytes(needed)} of memory, {format_bytes(here)} here: "
        f"{remedy}"
    )
