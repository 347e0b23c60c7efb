"""Arms of a study: their recipes, stages and tuning trials, with the names of their folders."""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from sublayer.config.data import OwnColumns
from sublayer.config.finetune import DEFAULT
from sublayer.config.layers import EXCLUSIVE, override_layer
from sublayer.config.load import LoadedRecipe
from sublayer.config.recipe import HEADINGS, ResolvedModel, ResolvedRecipe
from sublayer.config.resolve import resolve_model
from sublayer.config.table import MOST_ARMS, MOST_FINETUNINGS
from sublayer.errors import ConfigError, check_rules
from sublayer.estimate.memory import training_flops
from sublayer.files.parsing import Count, Number, Typed, check_typed, parse_json
from sublayer.model.estimates import count_parameters
from sublayer.numbers import count
from sublayer.statistics.contrasts import FEWEST_SEEDS

PRETRAINING = "pretraining"
"""The first stage of every chain: an arm's recipe."""
FINETUNE = "finetune"
"""The prefix of settings of all stages of tasks."""
TUNING_NUMBER = MOST_FINETUNINGS - 1
"""The fine-tuning number of a tuning trial under the first pre-training; no comparison uses it."""
Nested = Literal["mean", "median"]
Member = str | tuple[str, ...]
"""The name of a column or of a column's metric, or several that count as one by their mean."""


def names_of(member: Member | None) -> tuple[str, ...]:
    """Return the names of a member; empty for None."""
    return (member,) if isinstance(member, str) else member or ()


@dataclass(frozen=True)
class Stage:
    """A training that starts from an earlier stage's model, or an ensemble of such trainings."""

    name: str
    after: str
    """The start stage; "" for an ensemble."""
    tasks: tuple[str, ...] = ()
    """The tasks of its fine-tuning, several as a mixture; empty: it trains on a text."""
    table: str | None = None
    """A custom table for fine-tuning instead."""
    columns: OwnColumns | None = None
    """The meaning of the table's columns."""
    preset: str = DEFAULT
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of all arms, ``table.field`` to its value."""
    n_seeds: int | None = None
    """Fine-tunings under each pre-training, if fewer than in other stages."""
    from_step: int | None = None
    """The step of its start checkpoint; None: the final model."""
    ensemble: tuple[str, ...] = ()
    """Members of an ensemble, which averages the answers of their runs: stages of its tasks.

    A stage of another arm is written ``ARM: STAGE``.
    """

    @property
    def start(self) -> str:
        """The start of its runs, or the averaged stages, in words."""
        if self.ensemble:
            return ", ".join(self.ensemble)
        return self.after if self.from_step is None else f"{self.after} at step {self.from_step:,}"

    @property
    def finetunes(self) -> bool:
        """True for a stage of tasks, false for one that predicts a text."""
        return bool(self.tasks) or self.table is not None

    @property
    def before(self) -> tuple[str, ...]:
        """The stages that must run before it."""
        return tuple(member_of("", name)[1] for name in self.ensemble) or (self.after,)

    def members(self, arm: str) -> list[tuple[str, str]]:
        """Return the arm and the stage of each member of an arm's ensemble."""
        return [member_of(arm, name) for name in self.ensemble]


def member_of(arm: str, name: str) -> tuple[str, str]:
    """Return the arm and the stage of a member's name; the arm is by default ``arm``."""
    of, colon, stage = name.rpartition(": ")
    return (of if colon else arm), stage


@dataclass(frozen=True)
class ArmStages:
    """The deviations of an arm from the chain."""

    pretrains: bool = True
    """False: no pre-training, so that later stages start from random weights."""
    start: str = ""
    """The start of its pre-training: another arm's pre-training of the same seed, by arm; "":
    random weights.
    """
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings of its stages by name, over the common ones."""


@dataclass(frozen=True)
class Chain:
    """The stages of all arms of a study after their pre-training."""

    stages: tuple[Stage, ...]
    """Sorted: a stage comes after its start."""
    arms: Mapping[str, ArmStages] = field(default_factory=dict)
    """By arm; arms without deviations may be missing."""
    n_seeds: int = 1
    """Fine-tunings of each stage of tasks under each pre-training."""
    nested: Nested = "mean"
    """The summary of the fine-tunings of a pre-training."""
    metrics: Mapping[str, Member] = field(default_factory=dict)
    """By column: the metric in place of its score, or several metrics that become columns too."""
    averages: Mapping[str, tuple[Member, ...]] = field(default_factory=dict)
    """Averages over columns, by name."""
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Published scores, by arm or any other name and by column, as printed."""
    data: str | None = None
    """The folder of the tasks' files; None: the cache."""
    tune: tuple[str, ...] = ()
    """The tuning grid of every stage of tasks: ``field=a,b`` texts."""

    def of(self, arm: str) -> ArmStages:
        """Return the deviations of an arm."""
        return self.arms.get(arm, ArmStages())

    @property
    def all_stages(self) -> tuple[Stage, ...]:
        """The pre-training, and the stages after it."""
        return (Stage(PRETRAINING, ""), *self.stages)

    def stage(self, name: str) -> Stage:
        """Return a stage by name; the pre-training is one without a start."""
        return next(stage for stage in self.all_stages if stage.name == name)

    def starts(self, arm: str, stage: Stage) -> list[tuple[str, str]]:
        """Return the arm and stage of each run that a run starts from; empty: random weights."""
        if stage.name == PRETRAINING:
            start = self.of(arm).start
            return [(start, PRETRAINING)] if start else []
        is_first = stage.after == PRETRAINING and not self.of(arm).pretrains
        return stage.members(arm) or ([] if is_first else [(arm, stage.after)])

    def settings_of(self, arm: str, stage: Stage) -> dict[str, Any]:
        """Return the settings of an arm's stage."""
        return laid_over(stage.settings, self.of(arm).settings.get(stage.name, {}))

    @property
    def finetunes(self) -> bool:
        """True if any stage learns tasks."""
        return any(stage.finetunes for stage in self.stages)

    def n_starts(self, arm: str) -> int:
        """Count the chained pre-trainings before an arm's."""
        start = self.of(arm).start
        return 1 + self.n_starts(start) if start else 0

    def n_runs(self, stage: Stage) -> int:
        """Count the runs of a stage under one pre-training."""
        if stage.ensemble:
            return self.n_runs(self.stage(stage.before[0]))
        if not stage.finetunes:
            return 1
        return self.n_seeds if stage.n_seeds is None else min(stage.n_seeds, self.n_seeds)

    def depth(self, stage: Stage) -> int:
        """Count the stages before this one in a row, the pre-training included."""
        before = [name for name in stage.before if name != PRETRAINING]
        return 1 + max((self.depth(self.stage(name)) for name in before), default=0)

    def describe_stages(self) -> str:
        """Write as JSON the identity of a chain besides its arms' recipes.

        Left out: the number of fine-tunings, which may grow; columns; and file paths, as runs are
        identified by content.
        """
        arms = {name: asdict(arm) for name, arm in self.arms.items()}
        stages = [asdict(stage) for stage in self.stages]
        for described in (*stages, *arms.values()):
            described.pop("n_seeds", None)
            # Studies begun before these fields existed are equal without them.
            for name in ("start", "from_step", "ensemble"):
                if described.get(name) in (None, "", ()):
                    described.pop(name, None)
        return json.dumps({"stages": stages, "arms": arms, "tune": list(self.tune)}, sort_keys=True)

    def is_within(self, n_seeds: int) -> bool:
        """Return whether fine-tunings of one pre-training are compared, not pre-trainings."""
        return n_seeds == 1 and self.n_seeds > 1 and self.finetunes

    def n_compared(self, n_seeds: int) -> int:
        """Count the compared units: pre-trainings, or fine-tunings of the only one."""
        return self.n_seeds if self.is_within(n_seeds) else n_seeds

    def explain_nesting(self, n_seeds: int) -> str:
        """Word the population that a verdict of a chain generalizes to."""
        if not self.finetunes:
            return (
                "All stages of a chain share the seed of its pre-training. Verdicts are over "
                f"{count(n_seeds, 'chain')} of each arm."
            )
        finetunings = count(self.n_seeds, "fine-tuning")
        if self.is_within(n_seeds):
            return (
                f"Verdicts are over {finetunings} of one pre-training of each arm: they hold for "
                "these weights alone, not for architectures or objectives, since another "
                "pre-training may give another verdict. --seeds 3 pre-trains three times."
            )
        if self.n_seeds == 1:
            nested = "each with one fine-tuning on each task"
        else:
            nested = f"each scored by the {self.nested} of its {finetunings} on each task"
        verdicts = "Verdicts are over pre-trainings."
        if n_seeds < FEWEST_SEEDS:
            verdicts = f"Fewer than {FEWEST_SEEDS} pre-trainings give no verdict."
        return (
            f"Seeds are nested: {count(n_seeds, 'pre-training')} of each arm, {nested}. {verdicts}"
        )


def laid_over(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge settings: later ones replace earlier ones, and remove settings that they exclude."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for group in EXCLUSIVE:
            if any(key in layer for key in group):
                merged = {key: value for key, value in merged.items() if key not in group}
        merged |= layer
    return merged


class _Named(Typed, extra="allow"):
    name: str = ""


class _Identity(Typed):
    """The content of ``describe_stages``; older versions added the folder of the tasks' files."""

    stages: list[_Named]
    arms: dict[str, Any]
    tune: list[str]


def differing_stages(before: str | None, now: str | None) -> str:
    """Name the difference between two texts of ``describe_stages``; "" without any.

    Raises ConfigError if one is damaged.
    """
    if before is None or now is None:
        return "" if before == now else "stages"
    source = "the stages in the study's folder"
    old, new = (
        check_typed(parse_json(text, source, ConfigError), _Identity, source, ConfigError)
        for text in (before, now)
    )
    before_by_kind, now_by_kind = (
        {"stage": {x.name: x for x in chain.stages}, "arm": chain.arms} for chain in (old, new)
    )
    for kind, contents in now_by_kind.items():
        if list(before_by_kind[kind]) != list(contents):
            return f"{kind}s"
        for name, content in contents.items():
            if content != before_by_kind[kind][name]:
                return f"settings of its {kind} {name}"
    return "" if old.tune == new.tune else "values to tune"


def finetuning_seed(pretraining: int, number: int) -> int:
    """Return the seed of a fine-tuning, different under every pre-training.

    Otherwise a seed's draws, such as the order of the examples, would be common to all
    pre-trainings, and averaging would not remove their effect.
    """
    return MOST_FINETUNINGS * pretraining + number


LONGEST_PART = 60
"""Characters of a name used for a folder."""
_LONGEST = 40


def name_folder(recipe: str, varied: Iterable[str]) -> str:
    """Name the folder of a recipe with varied fields: ``gpt-ffn``; without any, the recipe.

    Fields that make it too long are left out, the last first.
    """
    return name_arms([recipe, *(field.rpartition(".")[2] for field in varied)])


def name_arms(names: Iterable[str]) -> str:
    """Name a comparison of named arms: ``gpt-macaron-llama-2023``."""
    first, *others = names
    name = first[:_LONGEST]
    for part in others:
        if len(name) + 1 + len(part) > _LONGEST:
            return f"{name}-and-more"
        name = f"{name}-{part}"
    return name


def in_path(name: str) -> str:
    """Return a name as a portable folder name, with dashes for all other characters.

    It may be empty, and equal for two names.
    """
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", name).strip("-.")


_NOT_VARIED = {
    "train.seed": "every arm is trained with the same seeds; give their number with --seeds",
    **dict.fromkeys(
        HEADINGS, "it changes nothing that is computed; vary a field such as model.ffn"
    ),
}
_FIRST = {"--vary": "the baseline's first", "--tune": "to choose from"}
_EXAMPLES = {"--vary": "model.ffn=gelu,swiglu", "--tune": "optimizer.lr=1e-3,2e-3"}


@dataclass(frozen=True)
class Arm:
    """A named recipe of a comparison."""

    name: str
    loaded: LoadedRecipe
    """The full recipe, ``settings`` included."""
    settings: Mapping[str, Any]
    """The settings that distinguish it: ``table.field`` to its value."""
    against: str | None = None
    """Its comparison partner, if not the first arm; itself: none, it is a control."""
    is_varied: bool = False
    """True for a name made of settings, as with ``--vary``."""
    settled: Mapping[str, Any] = field(default_factory=dict)
    """The settings settled by its study: length, threads, precision, matched widths."""
    matched: tuple[str, ...] = ()
    """Settled settings solved by matching, as on the command line."""
    mismatch: float = 0.0
    """The remaining excess over the arm that it is matched to, as a share (see ``Match``)."""

    def facts(self, model: ResolvedModel | None = None, steps: int | None = None) -> "ArmFacts":
        """Count the parameters and operations of an arm, by default of the recipe of a run."""
        recipe = self.loaded.recipe
        if model is None or steps is None:
            assert isinstance(recipe, ResolvedRecipe), "the recipe of a run is resolved"
            model, steps = recipe.model, recipe.train.steps
        return ArmFacts(
            name=self.name,
            parameters=asdict(count_parameters(model, recipe.objective)),
            flops_per_token=training_flops(recipe, model),
            steps=steps,
            mismatch=self.mismatch,
            matched=self.matched,
        )


@dataclass(frozen=True)
class Trial:
    """Named settings to try; the single trial of an untuned study has neither name nor settings."""

    name: str
    settings: Mapping[str, Any]

    @property
    def folder(self) -> str:
        """The name of the folder of its runs: a long one is cut, and ends with its digest."""
        part = in_path(self.name)
        if len(part) <= LONGEST_PART:
            return part
        digest = hashlib.sha256(self.name.encode()).hexdigest()[:8]
        return f"{part[: LONGEST_PART - 9]}-{digest}"

    def of(self, loaded: LoadedRecipe) -> LoadedRecipe:
        """Apply the settings to an arm's recipe; raise ConfigError if they do not fit it."""
        if not self.settings:
            return loaded
        return loaded.vary(self.settings, origin="tune")


NO_TRIAL = Trial("", {})
"""The trial of an untuned study."""


def expand(loaded: LoadedRecipe, vary_texts: Sequence[str], *, option: str = "--vary") -> list[Arm]:
    """Build the arms of ``--vary field=a,b`` texts: every combination of their values.

    The first values are the baseline's. ``option`` names the texts in messages. Without any, the
    recipe is the only arm. Values are split at commas outside brackets and quotes, so that lists
    are values too. Raises ConfigError for a text without two values, a field varied twice, a field
    that the command line also sets, and arms that are equal.
    """
    if not vary_texts:
        return [Arm(loaded.name, loaded, {})]
    grid = value_grid(vary_texts, option)
    for key in grid[0].settings:
        if loaded.origins.get(key) == "command line":
            raise ConfigError(
                f"{key} is both set and given to {option}: "
                f"leave out one of {key}=... and {option} {key}=..."
            )
    called = "arm" if option == "--vary" else f"{option}, trial"
    arms = [make_arm(point.name, loaded, point.settings, called=called) for point in grid]
    check_distinct(arms)
    return [replace(arm, is_varied=True) for arm in arms]


def value_grid(texts: Sequence[str], option: str) -> list[Trial]:
    """Combine the values of ``field=a,b`` texts, each combination under its name.

    A field's short name is used if unique. Raises ConfigError as ``expand`` does.
    """
    fields: dict[str, list[str]] = {}
    for text in texts:
        key, _, values = text.partition("=")
        key, choices = key.strip(), split_values(values)
        check_rules(
            f"{option} {text!r}",
            (
                not key or "" in choices or len(choices) < 2,
                f"write field=a,b with two values or more, {_FIRST[option]}, such as {option} "
                f"{_EXAMPLES[option]}",
            ),
            (key in fields, f"{key} is given twice: list all its values in one"),
            (key in _NOT_VARIED, _NOT_VARIED.get(key, "")),
        )
        fields[key] = choices
    n_points = math.prod(map(len, fields.values()))
    check_rules(
        option,
        (n_points > MOST_ARMS, f"{n_points:,} combinations of values: give at most {MOST_ARMS}"),
    )
    short = [key.rpartition(".")[2] for key in fields]
    labels = [
        name if short.count(name) == 1 else key for key, name in zip(fields, short, strict=True)
    ]
    grid = []
    for point in itertools.product(*fields.values()):
        name = " ".join(map("=".join, zip(labels, point, strict=True)))
        layer = override_layer([*map("=".join, zip(fields, point, strict=True))], "vary")
        grid.append(Trial(name, layer.values))
    return grid


def planned_trials(tune: Sequence[str], extended: Sequence[float] = ()) -> list[Trial]:
    """Return the trials of ``field=a,b`` texts and of further values beyond their edge.

    Without texts, the empty trial.
    """
    if not tune:
        return [NO_TRIAL]
    trials = value_grid(tune, "--tune")
    return [*trials, *(trial_at(trials, value) for value in extended)]


def make_arm(
    name: str, loaded: LoadedRecipe, settings: Mapping[str, Any], *, called: str = "arm"
) -> Arm:
    """Apply an arm's settings to a recipe; raise ConfigError, with its name, on failure.

    ``called`` precedes the name in messages.
    """
    try:
        return Arm(name, loaded.vary(settings) if settings else loaded, settings)
    except ConfigError as error:
        raise ConfigError(f"{called} {name}: {error}") from None


def arm_notes(arms: Sequence[Arm]) -> list[str]:
    """Return the notes of the layers of settings; those not shared by all arms name theirs."""
    by_note: dict[str, list[str]] = {}
    for arm in arms:
        for note in arm.loaded.notes:
            by_note.setdefault(note, []).append(arm.name)
    return [
        note if len(names) == len(arms) else f"arm {', '.join(names)}: {note}"
        for note, names in by_note.items()
    ]


def check_distinct(arms: Sequence[Arm], beside: Mapping[str, str] | None = None) -> None:
    """Raise ConfigError for two arms, the first included, with the same name or equal settings.

    Settings are equal if the fully derived recipes are: ``model.d_ff`` set to its derived value
    distinguishes no arm. ``beside`` has further distinctions by name.
    """
    meanings: dict[str, str] = {}
    for arm in arms:
        recipe = arm.loaded.recipe
        # Any vocabulary will do: all arms share it, and only derived settings matter.
        model = resolve_model(
            recipe.model, vocab_size=recipe.model.vocab_size or 2, context=recipe.data.context
        )
        others = recipe.model_dump(mode="json", exclude={"model", *HEADINGS})
        meaning = json.dumps([others, model.model_dump(mode="json")])
        meaning += (beside or {}).get(arm.name, "")
        is_twice = arm.name in meanings.values()
        other = meanings.setdefault(meaning, arm.name)
        what = "the baseline" if other == arms[0].name else "arm"
        check_rules(
            "",
            (
                is_twice,
                f"two arms are named {arm.name}: give each value or recipe once, or rename a file",
            ),
            (
                other != arm.name,
                f"arm {arm.name} is equal to {what} {other}: there is nothing to compare",
            ),
        )


def split_values(text: str) -> list[str]:
    """Split at commas outside brackets and quotes; raise ConfigError for an open one."""
    values: list[str] = []
    pieces: list[str] = []
    for piece in text.split(","):
        pieces.append(piece)
        value = ",".join(pieces)
        plain = re.sub(r"\"[^\"]*\"|'[^']*'", "", value)
        is_open = any(plain.count(one) > plain.count(other) for one, other in ("[]", "{}", "()"))
        if not is_open and not {*"\"'"} & {*plain}:
            values.append(value.strip())
            pieces = []
    if pieces:
        raise ConfigError(f"{text!r}: a bracket or quote is not closed")
    return values


TuneBy = Literal["metric", "loss"]
"""The tuning criterion on the validation split: the study's metric, or the loss."""
_TUNABLE = ("optimizer.", "model.dropout", "model.init", "model.embedding_scale")
_TUNABLE_ON_TASKS = (
    "optimizer.",
    "model.dropout",
    "objective.dropout",
    "objective.language_weight",
    "train.batch_",
    "train.epochs",
    "train.steps",
    "init.layers",
)
"""The number of passes may vary: more passes over the same examples are no advantage."""


def make_trials(arms: Sequence[Arm], tune: Sequence[str], *, stage: str = "") -> list[Trial]:
    """Build a trial of every combination of ``field=a,b,c`` texts; an empty one without any.

    For a stage of tasks ``arms`` have their recipes and settings of the stage. Raises ConfigError
    for a field that would change an arm's budget, is not of fine-tuning, is missing in an arm, or
    differs between arms, and as ``expand`` does.
    """
    if not tune:
        return [NO_TRIAL]
    # Combinations do not depend on the arm: the first will do.
    expand(arms[0].loaded, tune, option="--tune")
    trials = value_grid(tune, "--tune")
    prefix, tunable = (f"{FINETUNE}.", _TUNABLE_ON_TASKS) if stage else ("", _TUNABLE)
    what = "fine-tuning" if stage else "training"
    for key in trials[0].settings:
        compared = [arm.name for arm in arms if key in arm.settings]
        check_rules(
            f"--tune {prefix}{key}",
            (
                not key.startswith(tunable),
                f"it is not a setting of {what}: tune such as {prefix}optimizer.lr or "
                f"{prefix}model.dropout",
            ),
            (compared, f"arm {', '.join(compared)} also sets it: leave out one of them"),
        )
    for arm, trial in itertools.product(arms, trials) if stage else ():
        try:
            trial.of(arm.loaded)
        except ConfigError as error:
            raise ConfigError(f"--tune, arm {arm.name}, stage {stage}: {error}") from None
    return trials


def beyond_edges(chosen: Sequence[Trial], trials: Sequence[Trial]) -> Iterator[Trial]:
    """Yield the next trial beyond each edge of the grid that an arm selected.

    The grid is over one positive number, extended by the ratio of the two values at that edge.
    """
    (field,) = trials[0].settings
    values = [trial.settings[field] for trial in trials]
    is_whole = all(isinstance(value, int) for value in values)
    tried = sorted(set(map(float, values)))
    beside = {tried[0]: tried[1], tried[-1]: tried[-2]}
    for value in dict.fromkeys(float(trial.settings[field]) for trial in chosen):
        if value not in beside:
            continue
        beyond = float(f"{value * value / beside[value]:.3g}")
        if is_whole:
            beyond = round(beyond)
        if beyond > 0 and beyond not in tried:
            yield trial_at(trials, beyond)


def trial_at(trials: Sequence[Trial], value: float) -> Trial:
    """Return the trial of a further value of the single tuned field."""
    (field,) = trials[0].settings
    label, _, _ = trials[0].name.partition("=")
    return Trial(f"{label}={value:g}", {field: value})


def choose_trial(
    trials: Sequence[Trial],
    losses: Mapping[str, float | None],
    *,
    ties: Mapping[str, float | None] | None = None,
    compared: Collection[str] = (),
) -> Trial:
    """Select the trial with the lowest validation loss; the first if none finished.

    ``losses`` are by trial's name, None for a failed one, or other scores, lower is better. Ties
    are broken by existing runs, ``compared`` by name, then the lowest of ``ties``, then the
    earliest.
    """

    def rank(trial: Trial) -> tuple[object, bool, float]:
        tie = (ties or {}).get(trial.name)
        is_new = trial.name not in compared
        return losses.get(trial.name), is_new, math.inf if tie is None else tie

    finished = [trial for trial in trials if losses.get(trial.name) is not None]
    return min(finished or trials[:1], key=rank)


class ArmFacts(Typed):
    """Size and settled settings of an arm."""

    name: str
    parameters: dict[str, Count | None]
    flops_per_token: Count
    steps: Count
    """Optimizer steps of its recipe; 0 if that is not trained."""
    mismatch: Number
    matched: tuple[str, ...]
