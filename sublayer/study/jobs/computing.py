"""Placement of a study's runs, by --jobs, --on and --device, and its capacity."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sublayer.config.load import absolute_paths
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import expected_model
from sublayer.data.prepare import Data
from sublayer.data.shards import MOST_PROCESSES, PROCESS_BYTES, SHARD_BYTES
from sublayer.errors import ConfigError
from sublayer.files.cache_folder import cache_folder
from sublayer.model.estimates import FLOAT32_BYTES, count_parameters
from sublayer.numbers import count
from sublayer.study.arms import Arm
from sublayer.study.budget import PROGRAM_BYTES, Resources, find_resources, shared_threads
from sublayer.study.jobs.backends import (
    CLUSTERS,
    Cluster,
    LocalProcesses,
    Needs,
    parse_place,
)
from sublayer.study.jobs.loop import InTurn, JobLoop
from sublayer.study.jobs.run import Job, RunAll
from sublayer.system.machine import check_device, choose_device, cores, format_bytes, total_memory
from sublayer.system.terminal import note
from sublayer.training.warm_start import StartModel

_HEADROOM = 1.25
"""Safety factor over the estimate of a step: a scheduler ends jobs that exceed their request."""


class Computing:
    """Placement of a study's runs: in turn here, in parallel, or on a cluster."""

    def __init__(self, study: Path, *, jobs: int, on: str | None, device: str | None) -> None:
        """Connect to the cluster, if any.

        Raises ConfigError if it is missing, and DataError without its library.
        """
        self._study = study.absolute()
        self.jobs = jobs
        self._option = device
        self._backend: Cluster | None = None
        self.cluster: str | None = None
        """The kind of cluster; None: runs on this machine."""
        self.where = f", {jobs} at a time" if jobs > 1 else ""
        """Words of a header after the number of runs; "" for one at a time."""
        self._loop: JobLoop | None = None
        if on is not None:
            self.cluster, target = parse_place(on)
            self._backend = CLUSTERS[self.cluster](target)
            self.where = f", on {self._backend.name}"

    @property
    def runs_device(self) -> str:
        """The device of the runs."""
        is_named = self._backend is not None and self._option is not None
        return str(self._option if is_named else choose_device(self._option))

    @property
    def device(self) -> str | None:
        """The device of this process, as on the command line."""
        if self._backend is None:
            return self._option
        try:
            return str(check_device(self.runs_device))
        except ConfigError:
            return "cpu"

    def check_precision(self, arms: Sequence[Arm]) -> None:
        """Raise ConfigError if a precision is to be measured on an absent device."""
        if self._backend is None or self.device == self.runs_device:
            return
        for arm in arms:
            if arm.loaded.recipe.train.precision == "auto":
                raise ConfigError(
                    f"{arm.name}: train.precision = auto is measured on the machine of compare, "
                    f"which has no {self.runs_device}: give train.precision = bfloat16 or float32"
                )

    def threads(self, n_runs: int) -> int | None:
        """Return the default threads of each of ``n_runs`` runs in parallel; None: all here."""
        if self._backend is not None:
            return usual_threads(self._backend.nodes(), n_runs)
        return shared_threads(min(self.jobs, n_runs)) if self.jobs > 1 else None

    def check(
        self,
        arms: Sequence[Arm],
        data: Mapping[str, Data],
        n_runs: int,
    ) -> None:
        """Print the resources of all arms' runs, with ``data`` of each arm.

        Raises ConfigError if they do not suffice.
        """
        recipes = [(arm.loaded.recipe, data[arm.name].tokenizer.vocab_size) for arm in arms]
        if self._backend is not None:
            self.check_recipes(recipes, n_runs, [data[arm.name] for arm in arms])
        elif self.jobs > 1:
            text = describe_share(
                recipes, n_runs=n_runs, jobs=self.jobs, device=self._option, folder=self._study
            )
            note(text)

    def check_recipes(
        self, recipes: Sequence[tuple[Recipe, int]], n_runs: int, data: Sequence[Data] = ()
    ) -> None:
        """Print the cluster resources of recipes' runs, each with its vocabulary size.

        ``data`` are the recipes', if prepared. Raises as ``check`` does; without a cluster nothing
        is checked.
        """
        if self._backend is None:
            return
        texts: Sequence[Data | None] = data or [None] * len(recipes)
        needs = [self._needs(*sized, text) for sized, text in zip(recipes, texts, strict=True)]
        on, nodes = self._backend.name, self._backend.nodes()
        most = check_needs(needs, nodes, on)
        at_once = min(n_runs, sum(node.n_jobs(most) for node in nodes))
        note(
            f"{count(n_runs, 'run')} on {on}, {count(len(nodes), 'node')} with "
            f"{count(sum(node.cores for node in nodes), 'core')}: each takes {_describe(most)} "
            f"at most; {at_once} at a time if nothing else runs"
        )

    def _needs(
        self, recipe: Recipe, vocab_size: int, data: Data | None, n_models: int = 1
    ) -> Needs:
        preparing = preparation_bytes(recipe, data, self._study)
        return needs_of(
            recipe, vocab_size, self.runs_device, n_models=n_models, preparing_bytes=preparing
        )

    def _needs_of_job(self, job: Job) -> Needs:
        data = job.data if isinstance(job.data, Data) else None
        tokenizer = None
        if data is None:
            tokenizer = StartModel(absolute_paths(job.recipe).init).tokenizer
        tokenizer = tokenizer or job.find_data().tokenizer
        return self._needs(job.recipe, tokenizer.vocab_size, data, max(1, len(job.members)))

    def run_all(self, total: int, command: str) -> RunAll:
        """Return a function that makes runs, ``total`` in all; ``command`` resumes the study."""
        if self._backend is None and self.jobs == 1:
            return InTurn(total, self._option)
        is_cluster = self._backend is not None
        self._loop = JobLoop(
            total,
            self._backend or LocalProcesses(self.jobs),
            self._study,
            self.runs_device if is_cluster else self._option,
            needs_of=self._needs_of_job if is_cluster else None,
            command=command,
        )
        return self._loop

    def close(self) -> None:
        """End the processes of runs."""
        if self._loop is not None:
            self._loop.close()


def needs_of(
    recipe: Recipe, vocab_size: int, device: str, *, n_models: int = 1, preparing_bytes: int = 0
) -> Needs:
    """Return the needs of a run; ``n_models`` is the number of models in memory.

    ``preparing_bytes`` is the memory for its text before the model is built. Its threads are
    settled. A job with a GPU requests no node memory: sites set its share.
    """
    threads = recipe.train.threads
    assert threads is not None, "a study settles the threads of its runs"
    if device.startswith("cuda"):
        return Needs(threads, 0, gpus=1)
    weights = FLOAT32_BYTES * count_parameters(expected_model(recipe, vocab_size)).total
    resources = Resources("cpu", None, None, has_fast_bfloat16=False, cores=threads)
    step = resources.step_memory(recipe, vocab_size).total
    beside = max(step, n_models * weights, preparing_bytes)
    return Needs(threads, int(_HEADROOM * (PROGRAM_BYTES + beside)))


def preparation_bytes(recipe: Recipe, data: Data | None, study: Path) -> int:
    """Return the node memory to prepare a run's text; 0 with a shared cache.

    The text is prepared here before the first run. ``data`` are the recipe's; None: not prepared. A
    cache is shared if a variable names it and it lies on the study's file system.
    """
    cache = cache_folder()
    is_shared = bool(os.environ.get("SUBLAYER_CACHE")) and cache.is_dir()
    if recipe.data.tasks is not None or (is_shared and cache.stat().st_dev == study.stat().st_dev):
        return 0
    n_processes = 1
    if data is None or any(split["bytes"] > SHARD_BYTES for split in data.sizes().values()):
        assert recipe.train.threads is not None, "a study settles the threads of its runs"
        n_processes = min(recipe.train.threads, MOST_PROCESSES)
    return n_processes * PROCESS_BYTES


def check_needs(needs: Iterable[Needs], nodes: Sequence[Needs], on: str) -> Needs:
    """Return the largest needs of any job; raise ConfigError if no node meets them."""
    if not nodes:
        raise ConfigError(f"--on {on}: it has no node that accepts jobs")
    most = Needs(0, 0)
    for job in needs:
        if not any(node.n_jobs(job) for node in nodes):
            largest = max(nodes, key=lambda node: (node.gpus, node.cores, node.memory_bytes))
            lacks_memory = 0 < largest.memory_bytes < job.memory_bytes
            remedies = ["give fewer train.threads"] if largest.cores < job.cores else []
            remedies += ["give a smaller model or batch"] if lacks_memory else []
            remedies += ["give --device cpu"] if largest.gpus < job.gpus else []
            raise ConfigError(
                f"--on {on}: a run takes {_describe(job)}, and the largest of "
                f"{count(len(nodes), 'node')} has {_describe(largest)}: {', and '.join(remedies)}"
            )
        most = Needs(
            max(job.cores, most.cores),
            max(job.memory_bytes, most.memory_bytes),
            max(job.gpus, most.gpus),
        )
    return most


def _describe(has: Needs) -> str:
    memory = f"{format_bytes(has.memory_bytes)} of memory" if has.memory_bytes else ""
    gpus = count(has.gpus, "GPU") if has.gpus else ""
    return " and ".join(filter(None, [count(has.cores, "core"), memory, gpus]))


def usual_threads(nodes: Sequence[Needs], n_runs: int) -> int:
    """Return the default threads of a run, at least one.

    Its share of the cluster's cores if all run in parallel, up to the smallest node's.
    """
    share = sum(node.cores for node in nodes) // max(1, n_runs)
    return max(1, min([share, *(node.cores for node in nodes)]))


def describe_share(
    recipes: Sequence[tuple[Recipe, int]],
    *,
    n_runs: int,
    jobs: int,
    device: str | None,
    folder: Path,
) -> str:
    """Describe the use of this machine by recipes, ``jobs`` at a time, ``n_runs`` in all.

    Each recipe has its vocabulary size, ``device`` is as on the command line; ``folder`` holds the
    runs. Raises ConfigError if the machine's memory does not hold ``jobs`` of the largest.
    """
    at_once = min(jobs, n_runs)
    # Apple's GPU shares the machine's memory.
    chosen = choose_device(device)
    resources = find_resources(str(chosen) if chosen.type == "cuda" else "cpu", folder)
    is_cpu = resources.device == "cpu"
    program = PROGRAM_BYTES if is_cpu else 0
    largest = max(resources.step_memory(*recipe).total for recipe in recipes) + program
    most_threads = max(recipe.train.threads or 1 for recipe, _ in recipes)
    # The parent process is one more.
    needed = at_once * largest + program
    total = total_memory() if is_cpu else resources.memory_bytes
    if total is not None and needed > total and at_once > 1:
        n_fitting = (total - program) // largest
        remedy = f"give --jobs {n_fitting}" if n_fitting > 1 else "leave it out"
        raise ConfigError(
            f"--jobs {at_once} needs {format_bytes(needed)} of memory, and this machine has "
            f"{format_bytes(total)}: {remedy}"
        )
    threads, free = count(most_threads, "thread"), resources.memory_bytes
    words = f"{count(n_runs, 'run')}, {at_once} at a time with {threads} each; about "
    words += f"{format_bytes(needed)} of memory together"
    if free is not None:
        words += f", {format_bytes(free)} free"
    if at_once * most_threads > cores():
        words += f"; {at_once} x {threads} are more than {count(cores(), 'core')} and wait for each"
        words += " other"
    return words
