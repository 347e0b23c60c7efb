"""Arms of a comparison and their tuning trials, with the names of their folders."""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from sublayer.config.layers import override_layer
from sublayer.config.load import LoadedRecipe, vary
from sublayer.config.recipe import HEADINGS, ResolvedModel, ResolvedRecipe
from sublayer.config.resolve import resolve_model
from sublayer.config.table import MOST_ARMS
from sublayer.errors import ConfigError, check_rules
from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.files.parsing import Count, Number, Typed
from sublayer.study.stages import FINETUNE

LONGEST_PART = 60
"""Characters of a name used for a folder."""
_LONGEST = 40


def name_folder(recipe: str, varied: Iterable[str]) -> str:
    """Name the folder of a recipe with varied fields: ``gpt-ffn``; without any, the recipe.

    Fields that make it too long are left out, the last first.
    """
    return name_arms([recipe, *(field.rpartition(".")[2] for field in varied)])


def name_arms(names: Iterable[str]) -> str:
    """Name a comparison of named arms: ``gpt-macaron-modern``."""
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
        return vary(loaded, self.settings, origin="tune")


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
        return Arm(name, vary(loaded, settings) if settings else loaded, settings)
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
    """Raise ConfigError for two arms, the first included, with one name or equal settings.

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
        raise ConfigError(f"{text!r}: a bracket or quote is open, and what closes it is missing")
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
"""A free number of passes is no advantage on the same examples."""


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
            (compared, f"arm {', '.join(compared)} has its own of it: leave out one of them"),
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


def describe_arm(
    arm: Arm, model: ResolvedModel | None = None, steps: int | None = None
) -> ArmFacts:
    """Count parameters and operations of an arm, whose recipe is by default a run's."""
    recipe = arm.loaded.recipe
    if model is None or steps is None:
        assert isinstance(recipe, ResolvedRecipe), "the recipe of a run is resolved"
        model, steps = recipe.model, recipe.train.steps
    return ArmFacts(
        name=arm.name,
        parameters=asdict(count_parameters(model, recipe.objective)),
        flops_per_token=flops_per_token(model, recipe.data.context, recipe.objective),
        steps=steps,
        mismatch=arm.mismatch,
        matched=arm.matched,
    )
