"""Budgets of arms before their texts are read: expected, matched, and compared.

Expected are a run's vocabulary, model, length, memory and disk; arms are matched in parameters,
operations or time.
"""

import math
import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from sublayer.config.data import GPT1
from sublayer.config.layers import override_layer
from sublayer.config.load import LoadedRecipe, absolute_paths
from sublayer.config.recipe import Recipe, ResolvedModel, ResolvedRecipe, ResolvedTrain
from sublayer.config.resolve import (
    EVALUATIONS,
    Length,
    batch_sequences,
    evaluation_effort,
    expected_model,
    length_in,
    resolve_train,
    rows_of_example,
    run_steps,
)
from sublayer.config.stacks import entries
from sublayer.config.train import LENGTHS
from sublayer.data.tokenizers.named import DEFAULT_MERGES, DEFAULT_SIZES, load_tokenizer
from sublayer.errors import ConfigError
from sublayer.estimate.memory import (
    TrainingMemory,
    n_states,
    training_flops,
    training_memory,
)
from sublayer.model.estimates import (
    FLOAT32_BYTES,
    DeviceKind,
    Precision,
    Workload,
    count_parameters,
)
from sublayer.study.arms import Arm
from sublayer.system.machine import cores, free_memory

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
        step = replace(step, replicas=train.replicas)
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


Rule = Literal["parameters", "flops", "time", "none"]
RULES: tuple[Rule, ...] = ("parameters", "flops", "time", "none")
TOLERANCE = 0.005
"""The largest unmarked mismatch, as a share."""


@dataclass(frozen=True)
class Match:
    """The settings that matching changes in an arm, and the remaining mismatch.

    ``overrides`` are settings as on the command line. ``mismatch`` is the arm's excess over its
    partner, as a share of the partner's costs, in the matched quantity (in parameters without a
    rule).
    """

    overrides: tuple[str, ...]
    mismatch: float


def match_arms(
    arms: Sequence[Arm],
    models: Sequence[ResolvedModel],
    rule: Rule,
    *,
    multiple: int = 1,
    steps: int | None = None,
    step_seconds: Sequence[float] | None = None,
) -> list[Match | None]:
    """Match every arm to the first, which keeps its settings; without a rule, only compare.

    By operations or time, ``train.steps`` of an arm is solved so that its run, of at least one
    step, costs as much as the baseline's. The mismatch is relative to an arm's comparison partner;
    a control has none. ``models`` are the arms' resolved configs, and ``multiple`` is that of
    ``match_parameters``. ``steps`` is the length of the
    baseline's run, ``step_seconds`` the measured time of each arm's step; a match is None if the
    rule needs an unknown quantity. Raises ConfigError for an arm that cannot be matched, or sets a
    field that the rule would solve.
    """
    by_name = {arm.name: model for arm, model in zip(arms, models, strict=True)}
    solved = {"model.d_ff"} if rule == "parameters" else {f"train.{name}" for name in LENGTHS}
    costs = step_seconds
    if rule == "flops":
        costs = []
        for arm in arms:
            recipe = arm.loaded.recipe
            per_token = training_flops(recipe, by_name[arm.name])
            costs.append(float(per_token * tokens_per_step(recipe)))
    matches: list[Match | None] = []
    for number, (arm, model) in enumerate(zip(arms, models, strict=True)):
        match: Match | None = Match((), 0.0)
        if rule == "none":
            partner = by_name[arm.against or arms[0].name]
            excess = count_parameters(model).total / count_parameters(partner).total - 1.0
            match = Match((), excess)
        elif rule == "parameters":
            match = match_parameters(arm.name, model, models[0], multiple)
        elif steps is None or costs is None:
            match = None
        elif number:
            n_matched = max(1, round(steps * costs[0] / costs[number]))
            excess = n_matched * costs[number] / (steps * costs[0]) - 1.0
            match = Match((f"train.steps={n_matched}",), excess)
        both = solved & arm.settings.keys()
        if match and match.overrides and both:
            raise ConfigError(
                f"arm {arm.name} sets {min(both)}, which --match {rule} solves "
                f"({match.overrides[0]}): leave it out, or use --match none"
            )
        matches.append(match)
    return matches


def apply_match(arm: Arm, match: Match | None) -> LoadedRecipe:
    """Apply the changes of matching to an arm's recipe; None, before matching, changes nothing."""
    if match and match.overrides:
        return arm.loaded.vary(match.overrides, origin="match")
    return arm.loaded


def match_parameters(
    name: str, arm: ResolvedModel, baseline: ResolvedModel, multiple: int = 1
) -> Match:
    """Solve ``model.d_ff`` of an arm so that its parameters come nearest to the baseline's.

    Parameters are the unique ones of the inference model, embeddings included. The width is the
    nearest multiple of ``multiple``, at least that; an arm with as many parameters keeps its own.
    Both configs are resolved; ``name`` names the arm in errors.

    Raises ConfigError if no width can match: no ffn entry, too many parameters elsewhere, or shared
    block weights.
    """
    target = count_parameters(baseline).total
    if count_parameters(arm).total == target:
        return Match((), 0.0)

    def total(d_ff: int) -> int:
        return count_parameters(arm.model_copy(update={"d_ff": d_ff})).total

    if not any(entry.ffn is not None for entry in entries(arm)):
        raise ConfigError(
            f"{name}: model.block has no ffn entry with a width to match to the baseline's "
            "parameters: use --match flops, time or none"
        )
    # The count is linear in the width.
    width = 1 + round((target - total(1)) / (total(2) - total(1)))
    if width < 1:
        raise ConfigError(
            f"{name}: it has {total(1):,} parameters even at model.d_ff = 1, the baseline only "
            f"{target:,}: make the arm smaller, or use --match flops, time or none"
        )
    for config in (arm, baseline):
        if config.share != "none":
            raise ConfigError(
                f"{name}: parameters cannot be matched with model.share = {config.share}, as "
                f"this would set model.d_ff = {width} instead of {arm.d_ff}: use --match flops "
                "or --match time"
            )
    width = multiple * max(1, round(width / multiple))
    overrides = () if width == arm.d_ff else (f"model.d_ff={width}",)
    return Match(overrides, total(width) / target - 1.0)


ORIGIN = "study"


class Measures(ABC):
    """Measurements of recipes with absolute paths, which read texts and time steps when asked."""

    @abstractmethod
    def vocab_size(self, recipe: Recipe) -> int:
        """Return the vocabulary size of a recipe's tokenizer."""

    @abstractmethod
    def train_tokens(self, recipe: Recipe) -> int:
        """Count the tokens per epoch of a recipe's train split."""

    @abstractmethod
    def resolve(self, recipe: Recipe, *, is_new: bool = False) -> ResolvedRecipe:
        """Fill in the fields that a run on this machine would fill in; minutes are measured.

        A study that ``is_new`` reuses no old measurement.
        """

    @abstractmethod
    def step_s(self, loaded: LoadedRecipe, n_arms: int) -> float:
        """Measure the seconds of an optimizer step, twice for each of ``n_arms`` in all."""

    def model(self, arm: Arm) -> ResolvedModel:
        """Resolve the model of an arm's recipe, with the vocabulary of its tokenizer."""
        recipe = absolute_paths(arm.loaded.recipe)
        return expected_model(recipe, self.vocab_size(recipe))

    def steps(self, arm: Arm) -> int:
        """Return the optimizer steps of an arm, measured if it has minutes."""
        recipe = absolute_paths(arm.loaded.recipe)
        steps = run_steps(recipe, train_tokens=self.train_tokens(recipe))
        return steps or self.resolve(recipe).train.steps


def settle(arm: Arm, settings: Mapping[str, Any], matched: Sequence[str], mismatch: float) -> Arm:
    """Return an arm with its settled settings; ``settings`` are laid over its recipe.

    ``matched`` are the settings solved by matching, ``mismatch`` is the remainder.
    """
    loaded = arm.loaded.vary(settings, origin=ORIGIN) if settings else arm.loaded
    return replace(arm, loaded=loaded, settled=settings, matched=tuple(matched), mismatch=mismatch)


def match_budgets(
    arms: Sequence[Arm],
    rule: Rule,
    measures: Measures,
    *,
    multiple: int = 1,
    threads: int | None = None,
) -> list[Arm]:
    """Assign every arm the baseline's length, precision, threads and, by ``rule``, budget.

    ``multiple`` is that of ``match_parameters``. ``threads`` is the default of a run; None: the
    machine's.

    The baseline is the first arm. Minutes become the baseline's steps, once; an arm with other
    batches gets as many tokens. Raises ConfigError if an arm cannot be matched.
    """
    resolved = measures.resolve(absolute_paths(arms[0].loaded.recipe), is_new=True)
    if threads is not None:
        train = resolved.train.model_copy(update={"threads": threads})
        resolved = resolved.model_copy(update={"train": train})
    # Equal lengths come first: matching starts from them.
    shared = [_shared(arm.loaded.recipe, arms[0].loaded.recipe, resolved) for arm in arms]
    even = [
        replace(arm, loaded=arm.loaded.vary(settings, origin=ORIGIN))
        for arm, settings in zip(arms, shared, strict=True)
    ]
    models = list(map(measures.model, even))
    seconds = None
    if rule == "time":
        # Each arm in turn, then in reverse order: a steady drift of the machine's speed affects all
        # arms equally.
        there = [measures.step_s(arm.loaded, len(even)) for arm in even]
        back = [measures.step_s(arm.loaded, len(even)) for arm in reversed(even)]
        seconds = [(one + other) / 2 for one, other in zip(there, reversed(back), strict=True)]
    steps = measures.steps(even[0])
    matches = match_arms(even, models, rule, multiple=multiple, steps=steps, step_seconds=seconds)
    matched_arms = []
    for arm, settings, match in zip(arms, shared, matches, strict=True):
        assert match is not None, "with steps and seconds every rule can match"
        settings |= override_layer(match.overrides, ORIGIN).values
        matched_arms.append(settle(arm, settings, match.overrides, match.mismatch))
    return matched_arms


def _shared(recipe: Recipe, baseline: Recipe, resolved: ResolvedRecipe) -> dict[str, Any]:
    """Return the settings that an arm leaves to the machine, as the baseline resolved them.

    With minutes, the arm's evaluations are as few and short as the baseline's.
    """
    train, settled = recipe.train, resolved.train
    settings: dict[str, Any] = {}
    if train.precision == "auto":
        settings["train.precision"] = settled.precision
    if train.threads is None:
        settings["train.threads"] = settled.threads
    if train.minutes is None or _length(recipe) != _length(baseline):
        return settings
    steps = max(1, round(settled.steps * tokens_per_step(resolved) / tokens_per_step(recipe)))
    settings["train.steps"] = steps
    usual_steps = math.ceil(settled.steps / EVALUATIONS)
    if train.evaluate_steps is None and settled.evaluate_steps > usual_steps:
        n_evaluations = math.ceil(settled.steps / settled.evaluate_steps)
        settings["train.evaluate_steps"] = math.ceil(steps / n_evaluations)
        if train.evaluate_tokens is None:
            settings["train.evaluate_tokens"] = settled.evaluate_tokens
    return settings


def _length(recipe: Recipe) -> list[Any]:
    return [getattr(recipe.train, name) for name in LENGTHS]


def shared_threads(jobs: int) -> int:
    """Return the threads of a run when ``jobs`` runs share the cores: at least one."""
    return max(1, cores() // jobs)


def share_threads(arms: Sequence[Arm], jobs: int) -> tuple[Arm, ...]:
    """Set the shared threads in arms that leave them open."""
    shared = []
    for arm in arms:
        train = arm.loaded.recipe.train
        if train.threads is None and not train.exact:
            settings = {"train.threads": shared_threads(jobs)}
            arm = replace(arm, loaded=arm.loaded.vary(settings, origin=ORIGIN))
        shared.append(arm)
    return tuple(shared)


Currency = Literal["parameters", "operations", "time"]

TIME_TOLERANCE = 0.03
"""The largest unreported excess of measured time, as a share.

Successive runs of one recipe on a quiet machine have a standard deviation of 0.8 to 1.6 % (five
seeds per arm, records/t5-optimizer), hence the difference between two medians of five 0.6 to 1.3 %:
an excess of two to five times as much is hardly timing noise.
"""
TOLERANCES: dict[Currency, float] = {
    "parameters": TOLERANCE,
    "operations": TOLERANCE,
    "time": TIME_TOLERANCE,
}


@dataclass(frozen=True)
class Budget:
    """The cost of a run of an arm, realised or planned; None if unknown."""

    parameters: int
    """The unique parameters of the inference model."""
    operations: float | None = None
    """Floating-point operations of training."""
    time: float | None = None
    """Seconds of training; None unless time was matched."""

    def excess_over(self, other: "Budget") -> "Excess":
        """Compute the excess of a budget over another."""
        shares: dict[str, float | None] = {}
        for currency in TOLERANCES:
            value, base = getattr(self, currency), getattr(other, currency)
            shares[currency] = None if value is None or not base else value / base - 1.0
        return Excess(**shares)


@dataclass(frozen=True)
class Excess:
    """The excess cost of an arm over its comparison partner, as shares of the partner's costs.

    Negative if the arm takes less, None if unknown for one of the two.
    """

    parameters: float | None
    operations: float | None
    time: float | None = None

    @property
    def shares(self) -> dict[Currency, float]:
        """The known shares, by currency."""
        shares = {currency: getattr(self, currency) for currency in TOLERANCES}
        return {currency: share for currency, share in shares.items() if share is not None}

    @property
    def beyond(self) -> dict[Currency, float]:
        """Shares beyond their tolerance: 0.5 %, and 3 % of time, which is measured."""
        return {name: share for name, share in self.shares.items() if abs(share) > TOLERANCES[name]}


NOTHING = Excess(None, None)
"""The excess of an arm with unknown costs."""


@dataclass(frozen=True)
class ArmBudget:
    """An arm's excess over its comparison partner, planned and realised."""

    arm: str
    against: str | None
    """The comparison partner; None without one."""
    planned: Excess = NOTHING
    """Planned: from the settings, before training."""
    realised: Excess = NOTHING
    """Realised: from the trained runs."""

    def to_json(self) -> dict[str, Any]:
        """Write an arm's excess as plain values, without the arm's name."""
        content = asdict(self)
        del content["arm"]
        return content


def read_budget(arm: str, content: Mapping[str, Any]) -> ArmBudget:
    """Read what ``ArmBudget.to_json`` wrote."""
    planned, realised = Excess(**content["planned"]), Excess(**content["realised"])
    return ArmBudget(arm, content["against"], planned, realised)


def plan_budgets(
    arms: Sequence[Arm],
    models: Sequence[ResolvedModel],
    steps: Sequence[int | None],
    rule: Rule,
    *,
    seconds: Sequence[float | None] = (),
) -> list[ArmBudget]:
    """Compute the planned excess of each arm over its comparison partner, in order.

    ``arms`` are matched, ``models`` are their models; ``steps`` are per run of each, ``seconds``
    its time if time is matched: None if unknown. Unknown lengths that will be the same for all
    count as equal.
    """
    first = arms[0].loaded.recipe
    recipes = [arm.loaded.recipe for arm in arms]
    # Minutes become the baseline's tokens. The tokens of an epoch depend on the text and on the
    # context that divides it.
    has_one_length = rule not in ("flops", "time") and all(
        _length(recipe) == _length(first)
        and (first.train.epochs is None or recipe.data == first.data)
        for recipe in recipes
    )
    is_known, budgets = set(steps) != {None}, {}
    for number, (arm, recipe) in enumerate(zip(arms, recipes, strict=True)):
        n_steps, model, tokens = steps[number], models[number], None
        if n_steps is not None:
            tokens = n_steps * tokens_per_step(recipe)
        elif has_one_length and not is_known:
            tokens = 1
        per_token = training_flops(recipe, model)
        budgets[arm.name] = Budget(
            count_parameters(model).total,
            None if tokens is None else tokens * per_token,
            seconds[number] if seconds else None,
        )
    planned = []
    for arm in arms:
        other = arm.against or arms[0].name
        is_alone = other == arm.name
        excess = NOTHING if is_alone else budgets[arm.name].excess_over(budgets[other])
        planned.append(ArmBudget(arm.name, None if is_alone else other, excess))
    return planned
