"""The question of a study: hypothesis, smallest difference that matters, spread expected, seeds."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from sublayer.config.limits import LARGEST_FACTOR, LARGEST_SEED, MOST_SEEDS
from sublayer.config.table import Table
from sublayer.errors import ConfigError
from sublayer.objective.metric import Metric
from sublayer.statistics.difference import FEWEST_SEEDS
from sublayer.statistics.scores import Contrast, arm_less

Amount = Annotated[float, Field(ge=-LARGEST_FACTOR, le=LARGEST_FACTOR)] | str
"""A number in the unit that a metric's differences are shown in, or with the unit behind it."""


class Hypothesis(Table):
    """``[hypothesis]``: a statement, written before the study ran, and the arms that decide it.

    ``contrast`` are weights of arms that add up to 0: ``{ "24 layers" = 1, "12 layers" = -1 }``. It
    holds where the weighted sum is better than 0.
    """

    says: Annotated[str, Field(min_length=1)]
    contrast: dict[str, float] = Field(min_length=2)

    @property
    def as_contrast(self) -> Contrast:
        """Return the contrast that decides: one arm less another, or of several."""
        positive = [arm for arm, weight in self.contrast.items() if weight > 0]
        negative = [arm for arm, weight in self.contrast.items() if weight < 0]
        if len(positive) == len(negative) == 1:
            return arm_less(positive[0], negative[0])
        written = ""  # as a sum, ``a - b - c + d``
        for arm, weight in self.contrast.items():
            sign = "\N{MINUS SIGN}" if weight < 0 else "+"
            size = "" if abs(weight) == 1 else f"{abs(weight):g} × "
            written += f" {sign} {size}[{arm}]"
        return Contrast(written.removeprefix(" ").removeprefix("+ "), "", dict(self.contrast))

    @property
    def names(self) -> tuple[str, str]:
        """The names of the difference that decides."""
        contrast = self.as_contrast
        return contrast.arm, contrast.baseline


_PLAIN = ("margin", "margin_reason", "spread")


@dataclass(frozen=True)
class Question:
    """The question of a study beside its arms; empty: none was stated."""

    margin: Amount = ""
    """The smallest difference that matters, either way."""
    margin_reason: str = ""
    spread: Amount = ""
    """The standard deviation over seeds that is expected of one arm."""
    hypothesis: Hypothesis | None = None
    also: tuple[str, ...] = field(default=())
    """Further metrics that verdicts are given on, all of them one family with the first."""
    is_stored: bool = field(default=False, compare=False)
    """True where it is of a study's folder, into which older versions wrote plain points."""

    def as_dict(self) -> dict[str, Any]:
        """Return the stated parts as plain values."""
        written: dict[str, Any] = {name: getattr(self, name) for name in _PLAIN}
        written["also"] = list(self.also)
        if self.hypothesis is not None:
            written |= self.hypothesis.model_dump()
        return {name: value for name, value in written.items() if value not in ("", [])}

    @classmethod
    def of_dict(cls, written: Mapping[str, Any]) -> "Question":
        """Return the question that ``as_dict`` wrote; parts that older folders lack are empty."""
        plain = {name: written[name] for name in _PLAIN if name in written}
        hypothesis = None
        if "contrast" in written:
            hypothesis = Hypothesis(says=written["says"], contrast=written["contrast"])
        also = tuple(written.get("also", ()))
        return cls(**plain, hypothesis=hypothesis, also=also, is_stored=True)

    def margin_of(self, study: str, metric: Metric) -> float | None:
        """Return the margin in the metric's own unit; raise ConfigError for a wrong one."""
        return _amount(study, "margin", self.margin, metric, self.is_stored)

    def spread_of(self, study: str, metric: Metric) -> float | None:
        """Return the spread in the metric's own unit; raise ConfigError for a wrong one."""
        return _amount(study, "spread", self.spread, metric, self.is_stored)

    @property
    def states_amounts(self) -> bool:
        """True with a margin or a spread, in the unit of the study's metric."""
        return self.margin != "" or self.spread != ""

    def check_arms(self, study: str, arms: Collection[str]) -> None:
        """Raise ConfigError for a hypothesis about unknown arms, or that is no contrast of arms."""
        if self.hypothesis is None:
            return
        weights = self.hypothesis.contrast
        for arm in weights:
            if arm not in arms:
                raise ConfigError(
                    f"{study}: the hypothesis is about {arm}, which is not an arm: there are "
                    f"{', '.join(arms)}"
                )
        total = math.fsum(weights.values())
        if len(weights) < 2 or abs(total) > 1e-9 or not all(weights.values()):
            raise ConfigError(
                f"{study}: the weights of the hypothesis's contrast add up to {total:g}: give arms "
                "weights that add up to 0, such as 1 and -1"
            )


NO_QUESTION = Question()


def further_contrasts(
    question: Question, arms: Collection[str], baseline: str, against: Mapping[str, str]
) -> list[Contrast]:
    """Return the contrasts of arms that are not compared anyway, either way round.

    ``arms`` are those that have runs, each of which is compared with ``baseline``, or its arm in
    ``against``.
    """
    if question.hypothesis is None:
        return []
    contrast = question.hypothesis.as_contrast
    pair = contrast.arm, contrast.baseline
    is_compared = any(
        against.get(arm, baseline) == other for arm, other in (pair, (pair[1], pair[0]))
    )
    if is_compared or not set(contrast.weights) <= set(arms):
        return []
    return [contrast]


def units_of(metric: Metric) -> tuple[str, ...]:
    """List the spellings of the unit of a metric's differences.

    Points are of many metrics: they name theirs.
    """
    if metric.factor != 100.0:
        return tuple(dict.fromkeys((metric.difference, metric.label)))
    named = metric.difference
    if " of " not in named:
        named = f"{named} of {metric.label}"
    return named.replace("points of", "point of", 1), named


def _amount(
    study: str, name: str, written: Amount, metric: Metric, is_stored: bool
) -> float | None:
    if written == "":
        return None
    number, unit = written, ""
    if isinstance(written, str):
        number, _, unit = written.strip().partition(" ")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    shown = f"{study}: {name} = {written}"
    example = f'such as "0.1 {units_of(metric)[-1]}"'
    if not math.isfinite(value):
        raise ConfigError(f"{shown} is no number: give {example}")
    if value <= 0:
        raise ConfigError(f"{shown} is not above 0: it is a size, either way; give {example}")
    unit = unit.strip()
    is_plain = metric.factor == 100.0 and unit in ("", "point", "points")
    if is_plain and not is_stored:
        raise ConfigError(
            f"{shown} does not say of which metric, and several are told in points: give "
            f'"{value:g} {units_of(metric)[-1]}"'
        )
    known = [name.casefold() for name in units_of(metric)]
    if unit and not is_plain and unit.casefold() not in known:
        raise ConfigError(
            f"{shown}: differences in {metric.label} are told in {metric.difference}, not in "
            f"{unit}: give {example}"
        )
    if metric.factor == 100.0 and value >= 100:
        raise ConfigError(f"{shown} is more than there are points: give less than 100")
    return value / metric.factor


FIRST_TUNING_SEED = MOST_SEEDS
"""No comparison has as many seeds, so that those from here on are compared in none."""


@dataclass(frozen=True)
class Seeds:
    """Seeds of the runs of each arm, and of each tuning trial.

    Trials are chosen by other runs than those that are compared, so that a lucky choice is not
    scored.
    """

    first: int = 0
    n_tuning: int = 1
    first_tuning: int = FIRST_TUNING_SEED

    def compared(self, n_seeds: int) -> range:
        """Return the seeds of the runs that are compared."""
        return range(self.first, self.first + n_seeds)

    @property
    def tuning(self) -> range:
        """The seeds of the runs of each trial."""
        return range(self.first_tuning, self.first_tuning + self.n_tuning)

    def check(self, n_seeds: int, *, is_tuned: bool, options: tuple[str, ...]) -> None:
        """Raise ConfigError where tuning seeds are compared too, or were asked for in vain.

        ``n_seeds`` are the most that are compared, ``options`` the options that were given.
        """
        if max(self.compared(n_seeds)[-1], self.tuning[-1]) > LARGEST_SEED:
            raise ConfigError(f"there is no seed above {LARGEST_SEED}: give smaller ones")
        if not is_tuned:
            for option in options:
                raise ConfigError(f"{option} is of --tune, and nothing is tuned: leave it out")
            return
        shared = set(self.compared(n_seeds)) & set(self.tuning)
        if shared:
            raise ConfigError(
                f"seed {min(shared)} would tune and be compared, so that what was lucky in the "
                "choice is scored as skill: give other --first-tuning-seed or --first-seed"
            )


USUAL_SEEDS = Seeds()


def check_seeds(n_seeds: int) -> None:
    """Raise ConfigError for a number of seeds that is nothing to compare by."""
    if n_seeds < 1:
        raise ConfigError(f"--seeds {n_seeds} is too few to compare: give at least 1")
    if 1 < n_seeds < FEWEST_SEEDS:
        raise ConfigError(
            f"--seeds {n_seeds} says too little of how far seeds spread: give at least "
            f"{FEWEST_SEEDS}, or 1 for values without a verdict"
        )
