"""Options of a judgement, and its runs.

Runs are assembled from one long table of arm, seed, item, document, step and value.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.errors import ConfigError, DataError
from sublayer.judging.tables import Coded
from sublayer.numbers import count
from sublayer.statistics.contrasts import ERROR
from sublayer.statistics.covariance import shares_of, units_of

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]
COLUMNS, ROWS, FILES = "columns", "rows", "files"
"""Keywords of an option in place of a column's name."""
ROLES = {
    "arm": (COLUMNS, ROWS, FILES),
    "seed": (COLUMNS, ROWS),
    "item": (COLUMNS, ROWS),
    "document": (),
    "step": (),
}
"""The roles of columns, each with its keywords."""
LAST = "last"
_SHOWN = 5
_MOST_DECIMALS = 12
_COMMON = "give --common to judge only common seeds and items"


@dataclass(frozen=True)
class JudgingOptions:
    """Options by the names of the command's; empty texts and None: not given."""

    arm: str = ""
    seed: str = ""
    item: str = ""
    document: str = ""
    value: str = ""
    step: str = ""
    at: str = ""
    """The step of the values to judge, or ``last``; empty: the last, if all runs have it."""
    names: str = ""
    """The pattern of run names, such as ``{arm}-{seed}``."""
    task: str = ""
    filter: str = ""
    nan_is_failed: bool = False
    common: bool = False
    """True: leave out seeds and items that some run lacks."""
    baseline: str = ""
    new: str = ""
    lower_is_better: bool | None = None
    margin: float | None = None
    """Smaller differences do not matter, in the metric's unit."""
    look: int | None = None
    looks: int | None = None
    ledger: Path | None = None
    """The ledger file of a loop; ``looks`` are the loop's total."""

    @property
    def level(self) -> float:
        """The probability of a false verdict at this look: an equal share of 5 %."""
        return ERROR / self.looks if self.look and self.looks else ERROR

    def check(self) -> None:
        """Raise ConfigError for options without meaning, by themselves or combined."""
        words = {role: word for role in ROLES if (word := getattr(self, role))}
        for role, word in words.items():
            if word in (COLUMNS, ROWS, FILES) and word not in ROLES[role]:
                remedy = "name a column"
                if word == FILES and role in ("seed", "item"):
                    remedy = "give the pattern of file names with --names"
                raise ConfigError(f"--{role} {word} has no meaning: {remedy}")
        for one, other in combinations([role for role in words if role != "document"], 2):
            if words[one] == words[other]:
                raise ConfigError(
                    f"--{one} {words[one]} and --{other} {words[one]} exclude each other: change "
                    "one of them"
                )
        if self.ledger is not None:
            if self.look is not None:
                raise ConfigError(f"--look {self.look} has no effect: --ledger counts the looks")
        elif (self.look is None) != (self.looks is None):
            named, other = ("--look", "--looks") if self.looks is None else ("--looks", "--look")
            raise ConfigError(f"{named} requires {other}: give both, or neither")
        elif self.look is not None and self.looks is not None and self.look > self.looks:
            raise ConfigError(
                f"--look {self.look} exceeds {count(self.looks, 'planned look')}: verdicts hold "
                "only for looks planned before the first"
            )

    def choose(self, option: str, names: Iterable[str], where: object, usual: str = "") -> str:
        """Return the chosen name, else the usual or the only one.

        Raises ConfigError if a source lacks the name, or has several, none of them usual.
        """
        choices = list(dict.fromkeys(names))
        name = getattr(self, option) or usual or (choices[0] if len(choices) == 1 else "")
        if not choices:
            raise ConfigError(f"{where} has nothing to choose with --{option}: give another source")
        if name not in choices:
            raise ConfigError(
                f"{where} has {', '.join(choices)}: give --{option} NAME, one of them"
            )
        return str(name)

    def refuse(self, *names: str, why: str) -> None:
        """Raise ConfigError for the first given option among some."""
        for name in names:
            if getattr(self, name):
                raise ConfigError(f"--{name} {getattr(self, name)} {why}: leave it out")


@dataclass(frozen=True)
class Records:
    """The rows of one source: a value each, with its arm, seed, item and document."""

    source: str
    arm: Coded
    seed: Coded
    value: Numbers
    """``[R]``."""
    place: Callable[[int], str]
    """The position of a row for an error: file, line and column."""
    item: Coded | None = None
    """None: each row is the value of a run."""
    document: Coded | None = None
    weight: Numbers | None = None
    """``[R]``: denominators; a run's score is sum of values over sum of these; None: 1 each."""
    step: Numbers | None = None
    """``[R]``: the training step of the value."""
    failed: NDArray[np.bool_] | None = None
    """``[R]``: rows of failed runs; None: no known failures."""

    @classmethod
    def of_run(
        cls,
        source: str,
        arm: str,
        seed: str,
        value: Numbers,
        locate: Callable[[int], str],
        **further: Any,
    ) -> "Records":
        """Build the records of one run, with its arm and seed in all rows."""
        codes = np.zeros(len(value), dtype=np.int64)
        return cls(source, Coded(codes, (arm,)), Coded(codes, (seed,)), value, locate, **further)


@dataclass(frozen=True)
class ScoredRuns:
    """Scores of arms and seeds, and the effect of each test unit on them."""

    arms: tuple[str, ...]
    seeds: tuple[str, ...]
    values: Numbers
    """``[arm, seed]``; NaN for a failed run."""
    failed: NDArray[np.bool_]
    """``[arm, seed]``."""
    effects: Numbers | None = None
    """``[arm, seed, unit]`` in the metric's unit: its change when a unit counts once more. Units
    are documents if there are three or more, else items or stretches of them. None: unknown
    items."""
    n_items: int = 0
    n_documents: int | None = None
    shares: Numbers | None = None
    """``[unit]``, the share of the test in each; None: units are of equal size."""
    said: tuple[str, ...] = field(default=(), compare=False)
    """Rows left out and choices made, a line each."""

    @property
    def resolution(self) -> float:
        """Return the last decimal of the values as written: the rest is rounding."""
        finite = self.values[np.isfinite(self.values)]
        if self.effects is not None or not finite.size:
            return 0.0
        for decimals in range(_MOST_DECIMALS):
            if np.allclose(finite, np.round(finite, decimals), rtol=0.0, atol=1e-13):
                return float(10.0**-decimals)
        return 0.0


def assemble(sources: Sequence[Records], options: JudgingOptions) -> ScoredRuns:
    """Put the rows of all sources in order, by arm, seed and item.

    Raises DataError, with file, line and column, for a value that is not finite, a duplicate row,
    and seeds or items that some run lacks.
    """
    rows = _Rows(sources)
    log: list[str] = []
    if sources[0].step is not None:
        log.append(rows.take_step(options.at))
    elif options.at:
        raise DataError(
            f"--at {options.at} needs a column of steps: name it by --step, or leave it"
        )
    rows.check_names()
    rows.check_twice()
    rows.check_finite(options.nan_is_failed)
    if options.common:
        log += rows.keep_common()
    rows.check_complete()
    return rows.runs(log)


class _Rows:
    """The rows of all sources, concatenated: columns of codes and of numbers."""

    def __init__(self, sources: Sequence[Records]) -> None:
        for role in ("item", "document", "step"):
            by_role = {getattr(source, role) is None: source.source for source in sources}
            if len(by_role) > 1:
                raise DataError(
                    f"{by_role[False]} has a column of {role}s, and {by_role[True]} has none: give "
                    "all sources one, or none"
                )
        self._sources = sources
        self.has_items = sources[0].item is not None
        sizes = [len(source.value) for source in sources]
        self._starts = np.cumsum([0, *sizes])
        self.names: dict[str, tuple[str, ...]] = {}
        self.columns: dict[str, NDArray[Any]] = {"index": np.arange(sum(sizes))}
        for role in ("arm", "seed", "item", "document"):
            parts = [getattr(source, role) for source in sources]
            if parts[0] is None:
                parts = [Coded(np.zeros(size, dtype=np.int64), ("",)) for size in sizes]
            names = dict.fromkeys(name for part in parts for name in part.names)
            self.names[role] = tuple(sorted(names, key=_natural) if role == "seed" else names)
            places = {name: code for code, name in enumerate(self.names[role])}
            recodings = [
                np.array([places[name] for name in part.names], dtype=np.int64) for part in parts
            ]
            codes = [recoding[part.codes] for recoding, part in zip(recodings, parts, strict=True)]
            self.columns[role] = np.concatenate(codes)
        for name, usual in (("value", 0.0), ("step", 0.0), ("weight", 1.0), ("failed", False)):
            arrays = [getattr(source, name) for source in sources]
            pairs = zip(arrays, sizes, strict=True)
            filled = [np.full(n, usual) if array is None else array for array, n in pairs]
            self.columns[name] = np.concatenate(filled)

    def _source(self, row: int) -> tuple[Records, int]:
        old = int(self.columns["index"][row])
        number = int(np.searchsorted(self._starts, old, side="right")) - 1
        return self._sources[number], old - int(self._starts[number])

    def place(self, row: int) -> str:
        """Return the position of one of the remaining rows."""
        source, own_row = self._source(row)
        return source.place(own_row)

    def _name(self, role: str, row: int) -> str:
        return self.names[role][int(self.columns[role][row])]

    def run(self, row: int) -> str:
        """Return the name of a row's run."""
        return f"{self._name('arm', row)}, seed {self._name('seed', row)}"

    def _keep(self, rows: NDArray[Any]) -> None:
        self.columns = {name: column[rows] for name, column in self.columns.items()}

    @property
    def _run(self) -> Codes:
        run: Codes = self.columns["arm"] * len(self.names["seed"]) + self.columns["seed"]
        return run

    def take_step(self, at: str) -> str:
        """Keep the rows of one step of each run, and note the step."""
        run, step = self._run, self.columns["step"]
        runs, first, places = np.unique(run, return_index=True, return_inverse=True)
        last = np.full(len(runs), -np.inf)
        with np.errstate(invalid="ignore"):  # NaN, of a blank step, sorts last in its run
            np.maximum.at(last, places, step)
        chosen = last
        if at not in ("", LAST):
            try:
                chosen = np.full(len(runs), float(at))
            except ValueError:
                raise ConfigError(f"--at {at} is not a step: give a number, or last") from None
            missing = ~np.isin(runs, run[step == chosen[places]])
            if missing.any():
                raise DataError(
                    f"{self.run(int(first[missing.argmax()]))} has no value at step {at}: give a "
                    "step of all runs"
                )
        elif not at and last.min() != last.max():  # or one is NaN
            ordered = np.where(np.isnan(last), np.inf, last)
            ends = ordered.argmin(), ordered.argmax()
            one, other = (f"{self.run(int(first[n]))} at step {last[n]:g}" for n in ends)
            raise DataError(
                f"runs end at different steps, {one} and {other}: name the step that counts, as in "
                "--at 1000, or --at last for the last of each"
            )
        self._keep(step == chosen[places])
        low, high = chosen.min(), chosen.max()
        if low < high:
            return f"values: of each run's last step, {low:g} to {high:g}"
        return f"values: of step {low:g}{', the last' if low == last.max() else ''}"

    def check_names(self) -> None:
        """Raise DataError for a row without arm, seed, item or document."""
        for role, names in self.names.items():
            if "" in names and getattr(self._sources[0], role) is not None:
                rows = np.flatnonzero(self.columns[role] == names.index(""))
                if rows.size:
                    where = self.place(int(rows[0]))
                    raise DataError(f"{where}: the row names no {role}: fill it in")

    def check_twice(self) -> None:
        """Raise DataError for two rows of one item of a run, or of one run."""
        key = self._run * len(self.names["item"]) + self.columns["item"]
        order = np.argsort(key, kind="stable")
        twice = np.flatnonzero(key[order][1:] == key[order][:-1])
        if not twice.size:
            return
        first, second = int(order[twice[0]]), int(order[twice[0] + 1])
        what = self.run(first)
        if self.has_items:
            what += f", item {self._name('item', first)}"
        columns = "--arm, --seed, --item, --step"
        remedy = f"leave one out, or name the column that distinguishes them ({columns})"
        one, other = (Path(self._source(row)[0].source) for row in (first, second))
        if one != other and one.name == other.name and not one.name.startswith("samples_"):
            remedy = (
                f"distinguish arms and seeds by their paths, as in --names '{{arm}}/{one.name}'"
            )
        raise DataError(f"{self.place(second)}: {what} duplicates {self.place(first)}: {remedy}")

    def check_finite(self, nan_is_failed: bool) -> None:
        """Mark rows of failed runs; raise DataError for other values that are not finite."""
        value, run = self.columns["value"], self._run
        is_broken = ~np.isfinite(value)
        unknown = np.flatnonzero(is_broken & ~self.columns["failed"])
        if unknown.size and not nan_is_failed:
            row = int(unknown[0])
            raise DataError(
                f"{self.place(row)}: {value[row]} is not a score ({self.run(row)}). A failed run "
                "is a result: give --nan-is-failed to rank it below all others, or correct the "
                "value"
            )
        self.columns["failed"] = np.isin(run, run[is_broken])

    def keep_common(self) -> list[str]:
        """Leave out seeds that some arm lacks, then items that some run lacks; note which."""
        log = [self._leave_out("seed", np.asarray(self._there().all(0)), "some arm")]
        if self.has_items:
            is_failed = self.columns["failed"]
            n_runs = len(np.unique(self._run[~is_failed]))
            items = self.columns["item"]
            times = np.bincount(items[~is_failed], minlength=len(self.names["item"]))
            log.append(self._leave_out("item", (times == 0) | (times == n_runs), "some run"))
        if not len(self.columns["value"]):
            raise DataError("no seed and item is common to all arms, so nothing can be judged")
        return [line for line in log if line]

    def _leave_out(self, role: str, is_common: NDArray[np.bool_], who: str) -> str:
        """Leave out the rows of names that are not common, and note which."""
        if is_common.all():
            return ""
        lacking = _named(role, self.names[role], ~is_common)
        is_kept = is_common[self.columns[role]]
        if role == "item":
            is_kept |= self.columns["failed"]
        self._keep(is_kept)
        for column in ("seed", "item"):
            used, self.columns[column] = np.unique(self.columns[column], return_inverse=True)
            self.names[column] = tuple(self.names[column][code] for code in used)
        return f"left out: {lacking}, which {who} lacks"

    def _there(self) -> NDArray[np.bool_]:
        there = np.zeros((len(self.names["arm"]), len(self.names["seed"])), dtype=np.bool_)
        there[self.columns["arm"], self.columns["seed"]] = True
        return there

    def check_complete(self) -> None:
        """Raise DataError if an arm lacks a seed of another, or a run an item."""
        there = self._there()
        arms, seeds, items = (self.names[name] for name in ("arm", "seed", "item"))
        if not there.all():
            arm = int(there.all(1).argmin())
            lacking = _named("seed", seeds, ~there[arm])
            raise DataError(
                f"seeds differ between arms: {arms[arm]} lacks {lacking}: add the runs, or "
                f"{_COMMON}"
            )
        n_each = np.bincount(self._run, minlength=there.size)
        n_each[self._run[self.columns["failed"]]] = len(items)  # failed runs do not count
        run = int(n_each.argmin())
        if n_each[run] == len(items):
            return
        arm, seed = divmod(run, len(seeds))
        item = int(np.setdiff1d(np.arange(len(items)), self.columns["item"][self._run == run])[0])
        row = int((self.columns["item"] == item).argmax())
        raise DataError(
            f"items differ between runs: {arms[arm]}, seed {seeds[seed]} has "
            f"{count(int(n_each[run]), 'item')} of {len(items):,} and lacks item {items[item]}, "
            f"which {self.run(row)} has ({self.place(row)}): add it, or {_COMMON}"
        )

    def runs(self, log: Sequence[str]) -> ScoredRuns:
        """Return the scores of complete runs, and the effects of their items."""
        arms, seeds = self.names["arm"], self.names["seed"]
        shape = len(arms), len(seeds), len(self.names["item"])
        at = self.columns["arm"], self.columns["seed"], self.columns["item"]
        failed = np.zeros(shape[:2], dtype=np.bool_)
        failed[at[:2]] = self.columns["failed"]
        scores = np.full(shape, np.nan)  # [A, S, N]
        scores[at] = self.columns["value"]
        scores[failed] = np.nan
        if not self.has_items:
            return ScoredRuns(arms, seeds, scores[:, :, 0], failed, said=tuple(log))
        weights = np.ones(shape)
        weights[at] = self.columns["weight"]
        totals = weights.sum(2)
        values = scores.sum(2) / totals
        effects = (scores - values[:, :, None] * weights) / totals[:, :, None]
        n_items, n_documents, shares = shape[2], None, None
        if self._sources[0].document is not None:
            documents = self._documents()
            units, n_units = units_of(n_items, documents)
            shares = shares_of(units, documents, weights.mean((0, 1)))
            order = np.argsort(units, kind="stable")
            starts = np.searchsorted(units[order], np.arange(n_units))
            effects = np.add.reduceat(effects[:, :, order], starts, axis=2)
            n_documents = len(np.unique(documents))
        return ScoredRuns(
            arms, seeds, values, failed, effects, n_items, n_documents, shares, tuple(log)
        )

    def _documents(self) -> Codes:
        """Return the document of each item; raise DataError for an item in two."""
        item, document = self.columns["item"], self.columns["document"]
        of_item = np.full(len(self.names["item"]), -1, dtype=np.int64)
        of_item[item] = document
        wrong = np.flatnonzero(of_item[item] != document)
        if wrong.size:
            row = int(wrong[0])
            other = self.names["document"][int(of_item[int(item[row])])]
            raise DataError(
                f"{self.place(row)}: item {self._name('item', row)} belongs to document "
                f"{self._name('document', row)} here, and to {other} elsewhere: rename items so "
                "that each belongs to one document"
            )
        return of_item


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    parts = re.split(r"(\d+)", name)
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts)


def _named(role: str, names: Sequence[str], are_meant: NDArray[np.bool_]) -> str:
    """List names, the first few of many."""
    meant = [names[index] for index in np.flatnonzero(are_meant).tolist()]
    shown = ", ".join(meant[:_SHOWN])
    more = f" and {len(meant) - _SHOWN:,} more" if len(meant) > _SHOWN else ""
    return f"{role}{'s' if len(meant) > 1 else ''} {shown}{more}"
