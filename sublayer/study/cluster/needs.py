"""What a run takes of a node, by its recipe, and whether any node has it."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from sublayer.config.layering.paths import absolute_paths
from sublayer.config.recipe import Recipe
from sublayer.config.task_heads import expected_model
from sublayer.counts import count
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters
from sublayer.estimate.micro_batch import FLOAT32_BYTES
from sublayer.study.budget.capacity import PROGRAM_BYTES, Resources, step_memory
from sublayer.study.cluster.cluster import Needs, Node
from sublayer.study.cluster.cold_cache import preparation_bytes
from sublayer.study.execution.one_run import Task
from sublayer.system.memory import format_bytes
from sublayer.training.warm_start import Pretrained

_HEADROOM = 1.25
"""Over what is estimated of a step: a scheduler ends what takes more than it asked for."""


def needs_of(
    recipe: Recipe, vocab_size: int, device: str, *, n_models: int = 1, preparing_bytes: int = 0
) -> Needs:
    """Return what a run takes; ``n_models`` is how many are held at a time.

    ``preparing_bytes`` are what its text may take before the model is built. Its threads are
    settled. With a GPU no memory of the node is asked for: what the scheduler
    gives beside one is what sites set.
    """
    threads = recipe.train.threads
    assert threads is not None, "a study settles the threads of its runs"
    if device.startswith("cuda"):
        return Needs(threads, 0, gpus=1)
    weights = FLOAT32_BYTES * count_parameters(expected_model(recipe, vocab_size)).total
    resources = Resources("cpu", None, None, has_fast_bfloat16=False, cores=threads)
    step = step_memory(recipe, vocab_size, resources).total
    beside = max(step, n_models * weights, preparing_bytes)
    return Needs(threads, int(_HEADROOM * (PROGRAM_BYTES + beside)))


def needs_of_task(task: Task, device: str, study: Path) -> Needs:
    """Return what a run of a study in the folder ``study`` takes."""
    recipe = task.loaded.recipe
    data = task.data if isinstance(task.data, Data) else None
    return needs_of(
        recipe,
        _vocab_size(task),
        device,
        n_models=max(1, len(task.members)),
        preparing_bytes=preparation_bytes(recipe, data, study),
    )


def check_needs(needs: Iterable[Needs], nodes: Sequence[Node], on: str) -> Needs:
    """Return the most that any task takes; raise ConfigError where no node has it."""
    each = list(needs)
    most = Needs(
        max(one.cores for one in each),
        max(one.memory_bytes for one in each),
        max(one.gpus for one in each),
    )
    if not nodes:
        raise ConfigError(f"--on {on}: it has no node that takes tasks")
    for one in each:
        if not any(node.n_tasks(one) for node in nodes):
            raise ConfigError(
                f"--on {on}: a run takes {_describe(one)}, and the largest of "
                f"{count(len(nodes), 'node')} has {_largest(nodes)}: {_remedy(one, nodes)}"
            )
    return most


def describe_needs(most: Needs, nodes: Sequence[Node], n_runs: int, on: str) -> str:
    """Format what runs take of a cluster, before they are made."""
    at_once = min(n_runs, sum(node.n_tasks(most) for node in nodes))
    return (
        f"{count(n_runs, 'run')} on {on}, {count(len(nodes), 'node')} with "
        f"{count(sum(node.cores for node in nodes), 'core')}: each takes {_describe(most)} at "
        f"most; {at_once} at a time where nothing else runs"
    )


def usual_threads(nodes: Sequence[Node], n_runs: int) -> int:
    """Return the threads of a run that says nothing of them, one at least.

    Its share of the cluster's cores where all go at a time; not more than the smallest node has.
    """
    if not nodes:
        return 1
    smallest = min(node.cores for node in nodes)
    share = sum(node.cores for node in nodes) // max(1, n_runs)
    return max(1, min(smallest, share))


def _vocab_size(task: Task) -> int:
    if isinstance(task.data, Data):
        return task.data.tokenizer.vocab_size
    tokenizer = Pretrained(absolute_paths(task.loaded.recipe).init).tokenizer
    return (tokenizer or task.find_data().tokenizer).vocab_size


def _describe(needs: Needs) -> str:
    other = f"{format_bytes(needs.memory_bytes)} of memory"
    return f"{count(needs.cores, 'core')} and {count(needs.gpus, 'GPU') if needs.gpus else other}"


def _largest(nodes: Sequence[Node]) -> str:
    largest = max(nodes, key=lambda node: (node.gpus, node.cores, node.memory_bytes or 0))
    parts = [count(largest.cores, "core")]
    if largest.memory_bytes is not None:
        parts.append(f"{format_bytes(largest.memory_bytes)} of memory")
    parts.append(count(largest.gpus, "GPU") if largest.gpus else "no GPU")
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _remedy(needs: Needs, nodes: Sequence[Node]) -> str:
    if needs.gpus and not any(node.gpus for node in nodes):
        return "give --device cpu"
    if not any(node.cores >= needs.cores for node in nodes):
        return "give fewer train.threads"
    return "make the model or the batch smaller"
