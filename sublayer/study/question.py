"""The question of a study: hypothesis, margin, expected spread, seeds, and the scored text."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from sublayer.config.messages import check_choice
from sublayer.config.recipe import Recipe
from sublayer.config.table import (
    LARGEST_FACTOR,
    LARGEST_SEED,
    LONGEST_WINDOW,
    MOST_BATCH_TOKENS,
    MOST_SEEDS,
    Table,
)
from sublayer.errors import ConfigError, check_rules
from sublayer.evaluation.items import Metric
from sublayer.numbers import count
from sublayer.statistics.contrasts import FEWEST_SEEDS, Contrast, arm_less

if TYPE_CHECKING:
    from sublayer.data.prepare import Data
    from sublayer.data.store import Split


Amount = Annotated[float, Field(ge=-LARGEST_FACTOR, le=LARGEST_FACTOR)] | str
"""A number in the display unit of a metric's differences, or with the unit after it."""


class Hypothesis(Table):
    """``[hypothesis]``: a statement, written before the study ran, and the arms that decide it.

    ``contrast`` are weights of arms that add up to 0: ``{ "24 layers" = 1, "12 layers" = -1 }``. It
    holds where the weighted sum is better than 0.
    """

    says: Annotated[str, Field(min_length=1)]
    contrast: dict[str, float] = Field(min_length=2)

    @property
    def as_contrast(self) -> Contrast:
        """Return the deciding contrast: one arm less another, or of several."""
        ordered = sorted(self.contrast, key=lambda arm: -self.contrast[arm])
        if len(ordered) == 2 and self.contrast[ordered[0]] > 0 > self.contrast[ordered[1]]:
            return arm_less(*ordered)
        written = ""  # as a sum, ``a - b - c + d``
        for arm, weight in self.contrast.items():
            sign = "\N{MINUS SIGN}" if weight < 0 else "+"
            size = "" if abs(weight) == 1 else f"{abs(weight):g} × "
            written += f" {sign} {size}[{arm}]"
        return Contrast(written.removeprefix(" ").removeprefix("+ "), "", dict(self.contrast))

    @property
    def names(self) -> tuple[str, str]:
        """The names of the deciding difference."""
        contrast = self.as_contrast
        return contrast.arm, contrast.baseline


_PLAIN = ("margin", "margin_reason", "spread")


@dataclass(frozen=True)
class Question:
    """The question of a study, besides its arms; an empty field was not stated."""

    margin: Amount = ""
    """The smallest difference that matters, either way."""
    margin_reason: str = ""
    spread: Amount = ""
    """The expected standard deviation over seeds of one arm."""
    hypothesis: Hypothesis | None = None
    also: tuple[str, ...] = field(default=())
    """Further metrics with verdicts, one family with the first."""
    is_stored: bool = field(default=False, compare=False)
    """True if read from a study's folder, where older versions wrote plain points."""

    def as_dict(self) -> dict[str, Any]:
        """Return the stated parts as plain values."""
        written = {name: getattr(self, name) for name in _PLAIN} | {"also": list(self.also)}
        written |= self.hypothesis.model_dump() if self.hypothesis else {}
        return {name: value for name, value in written.items() if value not in ("", [])}

    @classmethod
    def of_dict(cls, written: Mapping[str, Any]) -> "Question":
        """Return the question from ``as_dict``; parts missing in older folders are empty."""
        plain = {name: written[name] for name in _PLAIN if name in written}
        hypothesis = None
        if "contrast" in written:
            hypothesis = Hypothesis(says=written["says"], contrast=written["contrast"])
        also = tuple(written.get("also", ()))
        return cls(**plain, hypothesis=hypothesis, also=also, is_stored=True)

    def amount(self, name: Literal["margin", "spread"], study: str, metric: Metric) -> float | None:
        """Return the margin or spread in the metric's unit; raise ConfigError if it is invalid."""
        written = self.margin if name == "margin" else self.spread
        if written == "":
            return None
        number, _, unit = str(written).strip().partition(" ")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        is_share = metric.factor == 100.0
        units = dict.fromkeys((metric.difference, metric.label))
        if is_share:  # points are ambiguous: they name their metric
            named = metric.difference
            if " of " not in named:
                named = f"{named} of {metric.label}"
            units = dict.fromkeys((named.replace("points of", "point of", 1), named))
        # Several metrics use points: only older versions omitted the name.
        plain: tuple[str, ...] = () if is_share else ("",)
        if is_share and self.is_stored:
            plain = ("", "point", "points")
        is_known = unit.strip().casefold() in (*plain, *map(str.casefold, units))
        where, example = f"{study}: {name} = {written}", f'such as "0.1 {[*units][-1]}"'
        check_rules(
            where,
            (
                not 0 < value < (100 if is_share else math.inf),
                f"it is not a number above 0{' and below 100' if is_share else ''}: give {example}",
            ),
            (
                not is_known,
                f"differences in {metric.label} are measured in {metric.difference}: give "
                f"{example}",
            ),
        )
        return value / metric.factor

    def check_arms(self, study: str, arms: Collection[str]) -> None:
        """Raise ConfigError for a hypothesis about unknown arms, or without a contrast of arms."""
        weights = self.hypothesis.contrast if self.hypothesis else {}
        where, total = f"{study}: the hypothesis", math.fsum(weights.values())
        for arm in weights:
            check_choice(f"{where}: ", "arm", arm, arms)
        check_rules(
            where,
            (
                abs(total) > 1e-9 or not all(weights.values()),
                f"the weights of its contrast add up to {total:g}: give arms weights that add up "
                "to 0, such as 1 and -1",
            ),
        )


NO_QUESTION = Question()


FIRST_TUNING_SEED = MOST_SEEDS
"""First tuning seed by default: beyond the seeds of any comparison."""


@dataclass(frozen=True)
class Seeds:
    """Seeds of the runs of each arm, and of each tuning trial.

    Trials are selected by other runs than the compared ones, so that a lucky selection is not
    scored.
    """

    first: int = 0
    n_tuning: int = 1
    first_tuning: int = FIRST_TUNING_SEED

    def compared(self, n_seeds: int) -> range:
        """Return the seeds of the compared runs."""
        return range(self.first, self.first + n_seeds)

    @property
    def tuning(self) -> range:
        """The seeds of the runs of each trial."""
        return range(self.first_tuning, self.first_tuning + self.n_tuning)

    def check(self, n_seeds: int, *, is_tuned: bool, options: tuple[str, ...]) -> None:
        """Raise ConfigError for tuning seeds that are compared, too, or have no effect.

        ``n_seeds`` is the largest number of compared seeds, ``options`` the given options.
        """
        compared, tuning = self.compared(n_seeds), self.tuning
        shared = {*compared} & {*tuning} if is_tuned else ()
        check_rules(
            "",
            (
                max(compared[-1], tuning[-1]) > LARGEST_SEED,
                f"the largest possible seed is {LARGEST_SEED}: give smaller ones",
            ),
            (
                options and not is_tuned,
                f"{', '.join(options)} has no effect without tuning: leave it out, or give --tune",
            ),
            (
                shared,
                f"seed {min(shared, default=0)} is both a tuning seed and a compared seed, which "
                "would score a lucky selection as skill: change --first-tuning-seed or "
                "--first-seed",
            ),
        )


def check_seeds(n_seeds: int) -> None:
    """Raise ConfigError for a number of seeds that allows no comparison."""
    if n_seeds != 1 and n_seeds < FEWEST_SEEDS:
        raise ConfigError(
            f"--seeds {n_seeds} is too few to estimate the spread over seeds: give at least "
            f"{FEWEST_SEEDS}, or 1 for values without a verdict"
        )


_NAMES = {"valid": "validation", "test": "test"}


class Scoring(Table):
    """``score`` of a study or of its scale: the split, windows and tokens of scoring.

    ``stride`` and ``tokens`` are for decoders, whose text is scored in windows: the tokens between
    window starts (1 gives each token the full context; with ``context`` windows do not overlap),
    and the most scored tokens, spread evenly, the same for all arms. By default, every token is
    scored, after at least half a context.
    """

    split: Literal["valid", "test"] = "test"
    stride: Annotated[int, Field(ge=1, le=LONGEST_WINDOW)] | Literal["context"] | None = None
    tokens: int | None = Field(None, ge=1, le=MOST_BATCH_TOKENS)

    @property
    def is_whole_test(self) -> bool:
        """Return whether all of the test split is scored, the default of a study."""
        return self == WHOLE_TEST

    @property
    def split_name(self) -> str:
        """Name the split in words."""
        return _NAMES[self.split]

    def check(self, study: str, arms: Iterable[tuple[str, Recipe]]) -> None:
        """Raise ConfigError if an arm, by its name, cannot be scored with this stride."""
        if self.stride is None and self.tokens is None:
            return
        for arm, recipe in arms:
            if not recipe.objective.is_scored_in_windows:
                raise ConfigError(
                    f"{study}: score.stride and score.tokens apply only to decoders, and {arm} "
                    f"has objective.kind = {recipe.objective.kind}: give score.split alone"
                )
            if isinstance(self.stride, int) and self.stride > recipe.data.context:
                raise ConfigError(
                    f"{study}: score.stride = {self.stride} exceeds data.context = "
                    f"{recipe.data.context} of {arm}, which would skip tokens: give a smaller "
                    'one, or "context"'
                )

    def stride_of(self, recipe: Recipe) -> int:
        """Return the tokens between one window and the next."""
        match self.stride:
            case None:
                return max(1, recipe.data.context // 2)
            case "context":
                return recipe.data.context
            case stride:
                return stride

    def find(self, data: "Data") -> "Split | None":
        """Return the scored split, if the text has one."""
        return data.valid if self.split == "valid" else data.test

    def split_of(self, data: "Data") -> "Split":
        """Return the scored split of a text that has one."""
        split = self.find(data)
        assert split is not None, "a comparison without a held-out split is refused"
        return split

    def describe(self, recipe: Recipe) -> str:
        """Name the scored text, as it follows "scored on"; ``recipe`` is the first arm's."""
        text = f"the {self.split_name} split"
        if not recipe.objective.is_scored_in_windows:
            return text
        if self.tokens is not None:
            text = f"{count(self.tokens, 'token')} spread over {text}"
        match self.stride:
            case None:
                return f"{text}, each token with at least half a context before it"
            case 1:
                return f"{text}, each token behind the full context"
            case "context":
                return f"{text}, in windows that do not overlap"
            case stride:
                return f"{text}, in windows {stride:,} tokens apart"


WHOLE_TEST = Scoring()
"""All of the test split, the default of a study."""
