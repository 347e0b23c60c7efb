"""Expected properties of a run before its text is read: vocabulary, model, length, memory, disk."""

import math
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sublayer.config.data import GPT1
from sublayer.config.recipe import Recipe, ResolvedModel, ResolvedTrain
from sublayer.config.resolve import (
    Length,
    batch_sequences,
    evaluation_effort,
    expected_model,
    length_in,
    resolve_train,
    rows_of_example,
    run_steps,
)
from sublayer.config.train import LENGTHS
from sublayer.data.tokenizers.named import DEFAULT_MERGES, DEFAULT_SIZES, load_tokenizer
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters
from sublayer.estimate.memory import TrainingMemory, n_states, training_memory
from sublayer.model.estimates import FLOAT32_BYTES, DeviceKind, Precision, Workload
from sublayer.study.arms import Arm
from sublayer.system.memory import cores, free_memory

_BYTES = 256
_BESIDE_MERGES = {GPT1: 478}
"""Ids in GPT-1's released vocabulary, 40,478, besides its 40,000 merges."""
_BESIDE_OTHER_MERGES = 128
"""Ids in Macaron BERT's released dictionary of 32,768, besides its 32,640 merges."""


@dataclass(frozen=True)
class Vocabulary:
    """The actual or probable size of a tokenizer's vocabulary."""

    size: int
    note: str = ""
    """Its assumption; empty without one."""


def expected_vocabulary(recipe: Recipe) -> Vocabulary:
    """Return the size of a recipe's vocabulary; untrained, it counts as ``data.vocab_size``.

    Raises ConfigError if ``init.run`` has no tokenizer, DataError for a file that is not a
    tokenizer.
    """
    data, unknown = recipe.data, "the number of characters of the text is unknown"
    if recipe.init.run is not None:
        run = Path(recipe.init.run)
        checkpoints = sorted((run / "checkpoints").glob("step-*/model"), reverse=True)
        for folder in (run / "model", *checkpoints, run):
            if (folder / "tokenizer.json").is_file():
                return Vocabulary(load_tokenizer(folder / "tokenizer.json").vocab_size)
        raise ConfigError(
            f"init.run = {run} has no tokenizer.json: name a run, a checkpoint or an imported "
            "folder"
        )
    if data.tokenizer == "bytes":
        return Vocabulary(_BYTES)
    n_merges = data.merges
    if n_merges is None and not data.vocab_size:
        n_merges = DEFAULT_MERGES.get(data.tokenizer)
    if n_merges is not None:
        size = n_merges + _BESIDE_MERGES.get(data.tokenizer, _BESIDE_OTHER_MERGES)
        return Vocabulary(size, f"{unknown}: {n_merges} merges are counted as {size}")
    if data.tokenizer not in {*DEFAULT_SIZES, *DEFAULT_MERGES, "characters"}:  # a file's path
        path = Path(data.tokenizer)
        tokenizer = load_tokenizer(path, sentinels=data.sentinels, special_tokens="file")
        return Vocabulary(tokenizer.vocab_size)
    settled_size = data.vocab_size or DEFAULT_SIZES.get(data.tokenizer)
    if settled_size is not None:
        return Vocabulary(settled_size)
    size = recipe.model.vocab_size or _BYTES
    return Vocabulary(size, f"{unknown}: counted as {size}")


@dataclass(frozen=True)
class Sized:
    """An arm with its matched recipe, and its model."""

    arm: Arm
    model: ResolvedModel
    vocab_size: int
    """Size of the vocabulary; the expected one before the tokenizer is trained."""

    @property
    def recipe(self) -> Recipe:
        """The recipe, without origins of values."""
        return self.arm.loaded.recipe


@dataclass(frozen=True)
class StepTime:
    """Seconds of an optimizer step: measured, or extrapolated from a smaller one."""

    seconds: float
    is_measured: bool


Clock = Callable[[Sequence[Sized]], Sequence[StepTime]]
"""Timer of each arm's optimizer step, in the arms' order."""


def size_arm(arm: Arm, vocab_size: int) -> Sized:
    """Resolve the model of an arm's recipe, possibly before its text is read.

    Raises ConfigError as ``resolve_model`` does.
    """
    return Sized(arm, expected_model(arm.loaded.recipe, vocab_size), vocab_size)


def expected_length(recipe: Recipe, time: StepTime | None) -> Length | None:
    """Return the length of a run; None if unknown.

    Epochs are unknown until the text is read, minutes without ``time``, of a step. Raises
    ConfigError if the minutes hold no step.
    """
    train = recipe.train
    if all(getattr(train, name) is None for name in LENGTHS):
        return None
    if train.minutes is None:
        steps = run_steps(recipe, train_tokens=None)
        return None if steps is None else Length(steps)
    if time is None:
        return None
    is_fixed = train.evaluate_tokens is not None or recipe.objective.scores_whole_split
    resolved = _with_length(recipe, Length(1))
    return length_in(
        train.minutes,
        time.seconds,
        _evaluation_s(recipe, resolved, time),
        evaluate_steps=train.evaluate_steps,
        scored_tokens=None if is_fixed else resolved.evaluate_tokens,
    )


def _with_length(recipe: Recipe, length: Length) -> ResolvedTrain:
    return resolve_train(
        recipe,
        steps=length.steps,
        valid_tokens=None,
        is_gpu=False,
        threads=1,
        n_evaluations=length.n_evaluations,
        evaluate_tokens=length.evaluate_tokens,
    )


def _evaluation_s(recipe: Recipe, train: ResolvedTrain, time: StepTime) -> float:
    # Scoring takes a forward pass, a third of training on the same tokens.
    computed = train.evaluate_tokens * evaluation_effort(recipe)
    return time.seconds * computed / (3 * tokens_per_step(recipe))


def expected_hours(
    recipe: Recipe, length: Length | None, time: StepTime | None, minutes: float | None
) -> float | None:
    """Return the expected hours of a run, from ``minutes`` if they decide; None if unknown."""
    if length is None or time is None:
        # Minutes are no estimate if a single step takes longer.
        return None if minutes is None or time is not None else minutes / 60
    train = _with_length(recipe, length)
    n_evaluations = math.ceil(length.steps / train.evaluate_steps)
    evaluation_s = _evaluation_s(recipe, train, time)
    return (length.steps * time.seconds + n_evaluations * evaluation_s) / 3600


def tokens_per_step(recipe: Recipe) -> int:
    """Return the tokens that an optimizer step of a recipe trains on."""
    return batch_sequences(recipe) * recipe.data.context


PROGRAM_BYTES = 400 << 20
"""Resident memory of a process that has only loaded torch."""

_CPUINFO = Path("/proc/cpuinfo")
_QUERY = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]

_BFLOAT16_UNITS = ("BF16", "FP16", "AMX", "AVX10", "ALL", "DEFAULT")
"""Values of oneDNN's limit with bfloat16 products: instruction sets, and no limit."""


@dataclass(frozen=True)
class Resources:
    """A machine's device, its free memory and disk, and the cores available to this process."""

    device: DeviceKind
    memory_bytes: int | None
    """Free memory of the device; None if the system does not report it."""
    disk_bytes: int | None
    """Free disk space for runs; None if the system does not report it."""
    has_fast_bfloat16: bool
    """True if the device has bfloat16 units."""
    cores: int
    """Processor cores available to this process."""

    def precision(self, recipe: Recipe) -> Precision:
        """Return the probable precision of a run: ``auto`` is measured at its start."""
        if recipe.train.precision != "auto":
            return recipe.train.precision
        return "bfloat16" if self.has_fast_bfloat16 else "float32"

    @property
    def program_bytes(self) -> int:
        """The program's bytes in device memory: 0 on a GPU."""
        return PROGRAM_BYTES if self.device == "cpu" else 0

    def holds(self, memory_bytes: int) -> bool | None:
        """Return whether bytes fit into the free memory; None if unknown."""
        return None if self.memory_bytes is None else memory_bytes <= self.memory_bytes

    def stores(self, disk_bytes: int) -> bool | None:
        """Return whether bytes fit on the free disk; None if unknown."""
        return None if self.disk_bytes is None else disk_bytes <= self.disk_bytes

    def batches(self, recipe: Recipe) -> ResolvedTrain:
        """Fill in the batch fields that ``[train]`` leaves open.

        Only batch fields count in the returned table: its length and evaluations are placeholders.
        """
        is_gpu = self.device == "cuda"
        # Only batches matter, so any length and any split will do.
        return resolve_train(recipe, steps=1, valid_tokens=1, is_gpu=is_gpu, threads=self.cores)

    def step_memory(self, recipe: Recipe, vocab_size: int) -> TrainingMemory:
        """Estimate the peak memory of an optimizer step on this machine, in bytes by part.

        Without the program: see ``fits_memory``.
        """
        train = self.batches(recipe)
        step = self.micro_batch(recipe, vocab_size, train.micro_batch_sequences)
        n_passes = math.ceil(train.batch_sequences * rows_of_example(recipe) / step.sequences)
        memory = training_memory(step, recipe.optimizer, n_passes=n_passes)
        return memory.beside_saving() if self.copies_in_memory(recipe) else memory

    def copies_in_memory(self, recipe: Recipe) -> bool:
        """Return whether training memory also holds copies for checkpoints.

        A GPU's copies are in the machine's memory.
        """
        return recipe.train.save_in_background and self.device == "cpu"

    def micro_batch(self, recipe: Recipe, vocab_size: int, sequences: int) -> Workload:
        """Describe a micro-batch of ``sequences`` windows, of complete examples."""
        n_rows = rows_of_example(recipe)
        return Workload(
            expected_model(recipe, vocab_size),
            sequences=max(1, sequences // n_rows) * n_rows,
            context=recipe.data.context,
            precision=self.precision(recipe),
            device=self.device,
            objective=recipe.objective,
            recomputes=recipe.train.recompute == "blocks",
            keeps_documents_apart=recipe.data.boundaries == "respect"
            or recipe.data.tasks is not None,
            frozen=recipe.init.frozen,
        )

    def fits_memory(self, recipe: Recipe, vocab_size: int) -> bool | None:
        """Return whether a step and the program fit into free memory; None if unknown."""
        return self.holds(self.step_memory(recipe, vocab_size).total + self.program_bytes)


def find_resources(device: str | None = None, folder: Path = Path()) -> Resources:
    """Detect this machine: its GPU, or ``device``, and ``folder``'s disk.

    Raises ConfigError for an unknown device. An absent GPU may be planned for; its memory is
    unknown.
    """
    match = re.fullmatch(r"(cpu|cuda)(?::(\d+))?", device or "cuda")
    if match is None:
        raise ConfigError(f"device {device!r} is not one of cpu, cuda, cuda:1 and so on")
    named, index = match.groups()
    gpu_bytes = None
    if named == "cuda":
        try:
            done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=3, check=True)
            # A line for each GPU, in MiB.
            gpu_bytes = int(done.stdout.split()[int(index or 0)]) << 20
        except (OSError, subprocess.SubprocessError, ValueError, IndexError):
            pass
    is_gpu = named == "cuda" and (device is not None or gpu_bytes is not None)
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or "ALL"
    has_units = False
    if any(units in limit.upper() for units in _BFLOAT16_UNITS):  # oneDNN may use them
        with suppress(OSError):
            # All processors are assumed to equal the first.
            flags = re.search("^(flags|Features).*", _CPUINFO.read_text(), re.MULTILINE)
            units = {*flags[0].split()} if flags else set()
            has_units = not units.isdisjoint({"avx512_bf16", "amx_bf16", "bf16"})
    return Resources(
        device="cuda" if is_gpu else "cpu",
        memory_bytes=gpu_bytes if is_gpu else free_memory(),
        disk_bytes=shutil.disk_usage(folder).free,
        has_fast_bfloat16=is_gpu or has_units,
        cores=cores(),
    )


_BESIDES_NEWEST = 3
"""Checkpoints besides the newest: the best, one being written, and the model, counted in full."""


def run_disk(recipe: Recipe, vocab_size: int) -> tuple[int, int]:
    """Estimate the peak bytes of a run's folder, and the bytes kept after scoring.

    At the peak it has checkpoints with optimizer states, and the model; a study keeps the model,
    and the checkpoints of ``train.keep_steps``.
    """
    train, objective = recipe.train, recipe.objective
    model = expected_model(recipe, vocab_size)
    n_parameters = count_parameters(model, objective).training
    checkpoint = FLOAT32_BYTES * (
        n_parameters + n_states(model, objective, recipe.optimizer, recipe.init.frozen)
    )
    n_checkpoints = train.keep_checkpoints + len(train.keep_steps) + _BESIDES_NEWEST
    weights = FLOAT32_BYTES * count_parameters(model).total
    return checkpoint * n_checkpoints, weights + checkpoint * len(train.keep_steps)
