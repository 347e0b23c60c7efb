"""A run as expected before its text is read: vocabulary, model, length, memory, disk."""

import math
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from sublayer.model.micro_batch import FLOAT32_BYTES, DeviceKind, MicroBatch, Precision
from sublayer.study.arms import Arm
from sublayer.system.memory import cores, free_memory

_BYTES = 256
_BESIDE_MERGES = {GPT1: 478}
"""Ids of GPT-1's vocabulary as released, 40,478, that are none of its 40,000 merges."""
_BESIDE_OTHER_MERGES = 128
"""The same of Macaron BERT's dictionary as released, which has 32,768, and 32,640 merges."""


@dataclass(frozen=True)
class Vocabulary:
    """The size that a tokenizer has or will probably have."""

    size: int
    note: str = ""
    """The assumption that it rests on; empty where there is none."""


def expected_vocabulary(recipe: Recipe) -> Vocabulary:
    """Return the size of a recipe's vocabulary; untrained, it counts as ``data.vocab_size``.

    Raises ConfigError where ``init.run`` has no tokenizer, DataError for a file that is none.
    """
    data, unknown = recipe.data, "how many characters the text has is not known"
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
    known = data.vocab_size or DEFAULT_SIZES.get(data.tokenizer)
    if known is not None:
        return Vocabulary(known)
    size = recipe.model.vocab_size or _BYTES
    return Vocabulary(size, f"{unknown}: counted as {size}")


@dataclass(frozen=True)
class Sized:
    """An arm as it would run, with its matched recipe, and its model."""

    arm: Arm
    model: ResolvedModel
    vocab_size: int
    """Expected, where the tokenizer is not trained yet."""

    @property
    def recipe(self) -> Recipe:
        """The recipe, without where its values come from."""
        return self.arm.loaded.recipe


@dataclass(frozen=True)
class StepTime:
    """Seconds of an optimizer step: taken, or extrapolated from a smaller one."""

    seconds: float
    is_measured: bool


Clock = Callable[[Sequence[Sized]], Sequence[StepTime]]
"""Returns the time of each arm's optimizer step, in the arms' order."""


def size_arm(arm: Arm, vocab_size: int) -> Sized:
    """Resolve the model of an arm's recipe, whose text may not have been read yet.

    Raises ConfigError as ``resolve_model`` does.
    """
    return Sized(arm, expected_model(arm.loaded.recipe, vocab_size), vocab_size)


def expected_length(recipe: Recipe, time: StepTime | None) -> Length | None:
    """Return the length of a run; None where it is unknown.

    Epochs are unknown until the text is read, minutes where ``time``, of a step, is. Raises
    ConfigError where the minutes hold no step.
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
    # Scoring takes a forward pass, a third of what training on the same tokens does.
    computed = train.evaluate_tokens * evaluation_effort(recipe)
    return time.seconds * computed / (3 * tokens_per_step(recipe))


def arm_length(
    sized: Sized,
    matched: Sequence[str],
    time: StepTime | None,
    *,
    baseline: Recipe,
    length: Length | None,
) -> Length | None:
    """Return the length of an arm's run beside that of the baseline; None where it is unknown.

    It is that of the ``matched`` settings, else as many tokens as the baseline's where the two have
    the same minutes, else the arm's own. Raises ConfigError as ``expected_length`` does.
    """
    for setting in matched:
        if setting.startswith("train.steps="):
            return replace(length or Length(1), steps=int(setting.removeprefix("train.steps=")))
    minutes = sized.recipe.train.minutes
    if minutes is not None and minutes == baseline.train.minutes and length is not None:
        # Minutes are turned into steps once, for the baseline; an arm with other batches gets as
        # many tokens.
        tokens = length.steps * tokens_per_step(baseline)
        return replace(length, steps=max(1, round(tokens / tokens_per_step(sized.recipe))))
    return expected_length(sized.recipe, time)


def expected_hours(
    recipe: Recipe, length: Length | None, time: StepTime | None, minutes: float | None
) -> float | None:
    """Return the expected hours of a run, ``minutes`` where they decide; None where unknown."""
    if length is None or time is None:
        # Minutes are no estimate of a run where one step is known to take longer than they are.
        return None if minutes is None or time is not None else minutes / 60
    train = _with_length(recipe, length)
    n_evaluations = math.ceil(length.steps / train.evaluate_steps)
    evaluation_s = _evaluation_s(recipe, train, time)
    return (length.steps * time.seconds + n_evaluations * evaluation_s) / 3600


def tokens_per_step(recipe: Recipe) -> int:
    """Return the tokens that an optimizer step of a recipe trains on."""
    return batch_sequences(recipe) * recipe.data.context


PROGRAM_BYTES = 400 << 20
"""Resident memory of a process that has loaded torch and nothing else."""

_CPUINFO = Path("/proc/cpuinfo")
_QUERY = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]

_BFLOAT16_UNITS = ("BF16", "FP16", "AMX", "AVX10", "ALL", "DEFAULT")
"""In the values of oneDNN's limit: instruction sets that multiply bfloat16, and no limit."""


@dataclass(frozen=True)
class Resources:
    """A machine's device, its free memory and disk, and the cores that this process may use."""

    device: DeviceKind
    memory_bytes: int | None
    """Free memory of the device; None where the system does not say."""
    disk_bytes: int | None
    """Free on the disk that runs are written to; None where the system does not say."""
    has_fast_bfloat16: bool
    """True where the device has units that multiply bfloat16."""
    cores: int
    """Those of the processor that this process may use."""

    def precision(self, recipe: Recipe) -> Precision:
        """Return the precision that a run will probably have: ``auto`` is measured at its start."""
        if recipe.train.precision != "auto":
            return recipe.train.precision
        return "bfloat16" if self.has_fast_bfloat16 else "float32"

    @property
    def program_bytes(self) -> int:
        """The program's bytes in the memory of the device: none of a GPU's."""
        return PROGRAM_BYTES if self.device == "cpu" else 0

    def holds(self, memory_bytes: int) -> bool | None:
        """Return whether so many bytes fit into the free memory; None where that is unknown."""
        return None if self.memory_bytes is None else memory_bytes <= self.memory_bytes

    def stores(self, disk_bytes: int) -> bool | None:
        """Return whether so many bytes fit on the free disk; None where that is unknown."""
        return None if self.disk_bytes is None else disk_bytes <= self.disk_bytes


def find_resources(device: str | None = None, folder: Path = Path()) -> Resources:
    """Detect this machine: its GPU, unless ``device`` says otherwise, and ``folder``'s disk.

    Raises ConfigError for a name of no device. A GPU that is not here may be planned for; its
    memory is then unknown.
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
    return Resources(
        device="cuda" if is_gpu else "cpu",
        memory_bytes=gpu_bytes if is_gpu else free_memory(),
        disk_bytes=shutil.disk_usage(folder).free,
        has_fast_bfloat16=is_gpu or _has_fast_bfloat16(),
        cores=cores(),
    )


def _has_fast_bfloat16() -> bool:
    """Return whether the processor has units for bfloat16, and oneDNN may use them."""
    named = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or "ALL"
    if not any(units in named.upper() for units in _BFLOAT16_UNITS):
        return False
    try:
        text = _CPUINFO.read_text()
    except OSError:
        return False
    # All processors are taken to be as the first.
    flags = re.search("^(flags|Features).*", text, re.MULTILINE)
    return bool(flags and {"avx512_bf16", "amx_bf16", "bf16"} & {*flags[0].split()})


_BESIDES_NEWEST = 3
"""Checkpoints beside the newest: the best, one being written, and the model, counted whole."""


def batches(recipe: Recipe, resources: Resources) -> ResolvedTrain:
    """Fill in the fields of batches that ``[train]`` leaves open.

    Only fields of batches count in the returned table: its length and evaluations are made up.
    """
    is_gpu = resources.device == "cuda"
    # Only the batches are wanted, so any length and any split will do.
    return resolve_train(recipe, steps=1, valid_tokens=1, is_gpu=is_gpu, threads=resources.cores)


def step_memory(recipe: Recipe, vocab_size: int, resources: Resources) -> TrainingMemory:
    """Estimate the peak memory of an optimizer step of a recipe on this machine, in bytes by part.

    The program itself is not counted: see ``fits_memory``.
    """
    train = batches(recipe, resources)
    step = micro_batch(recipe, vocab_size, resources, train.micro_batch_sequences)
    n_passes = math.ceil(train.batch_sequences * rows_of_example(recipe) / step.sequences)
    memory = training_memory(step, recipe.optimizer, n_passes=n_passes)
    return memory.beside_saving() if copies_in_memory(recipe, resources) else memory


def copies_in_memory(recipe: Recipe, resources: Resources) -> bool:
    """Return whether the memory in which a recipe trains has copies that checkpoints are made of.

    Those of a GPU are in the machine's.
    """
    return recipe.train.save_in_background and resources.device == "cpu"


def micro_batch(
    recipe: Recipe, vocab_size: int, resources: Resources, sequences: int
) -> MicroBatch:
    """Describe a micro-batch of ``sequences`` windows, of whole examples."""
    n_rows = rows_of_example(recipe)
    return MicroBatch(
        expected_model(recipe, vocab_size),
        sequences=max(1, sequences // n_rows) * n_rows,
        context=recipe.data.context,
        precision=resources.precision(recipe),
        device=resources.device,
        objective=recipe.objective,
        recomputes=recipe.train.recompute == "blocks",
        keeps_documents_apart=recipe.data.boundaries == "respect" or recipe.data.tasks is not None,
        frozen=recipe.init.frozen,
    )


def fits_memory(recipe: Recipe, vocab_size: int, resources: Resources) -> bool | None:
    """Return whether a step and the program fit into free memory; None where that is unknown."""
    return resources.holds(
        step_memory(recipe, vocab_size, resources).total + resources.program_bytes
    )


def run_disk(recipe: Recipe, vocab_size: int) -> int:
    """Estimate the peak bytes of a run's folder: checkpoints, optimizer states, and the model."""
    train = recipe.train
    n_checkpoints = train.keep_checkpoints + len(train.keep_steps) + _BESIDES_NEWEST
    return _checkpoint_disk(recipe, vocab_size) * n_checkpoints


def scored_disk(recipe: Recipe, vocab_size: int) -> int:
    """Estimate the bytes that a run's folder keeps once it is scored.

    That is its model, and the checkpoints of ``train.keep_steps``.
    """
    model = FLOAT32_BYTES * count_parameters(expected_model(recipe, vocab_size)).total
    return model + _checkpoint_disk(recipe, vocab_size) * len(recipe.train.keep_steps)


def _checkpoint_disk(recipe: Recipe, vocab_size: int) -> int:
    model, objective = expected_model(recipe, vocab_size), recipe.objective
    n_parameters = count_parameters(model, objective).training
    return FLOAT32_BYTES * (
        n_parameters + n_states(model, objective, recipe.optimizer, recipe.init.frozen)
    )
