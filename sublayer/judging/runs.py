"""Runs put together from what sources say: values by arm and seed, items in one order, checks."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.counts import count
from sublayer.errors import ConfigError, DataError
from sublayer.judging.tables import Coded
from sublayer.statistics.items import shares_of, units_of

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]
LAST = "last"
_SHOWN = 5
_MOST_DECIMALS = 12


@dataclass(frozen=True)
class Records:
    """The rows of one source: a value each, with its arm, seed, item and document."""

    source: str
    arm: Coded
    seed: Coded
    value: Numbers
    """``[R]``."""
    place: Callable[[int], str]
    """Says where a row stands: file, line and column."""
    item: Coded | None = None
    """None: each row is the value of a whole run."""
    document: Coded | None = None
    weight: Numbers | None = None
    """``[R]``: what the values of a run are divided by, both added up; None: 1 each."""
    step: Numbers | None = None
    """``[R]``: the step of training at which the value was logged."""
    failed: NDArray[np.bool_] | None = None
    """``[R]``: rows of runs that are known to have failed; None: none is."""


@dataclass(frozen=True)
class Rules:
    """Rules for rows that do not fit together."""

    at: str = ""
    """The step whose values count, or ``last``; empty: the last, where all runs have it."""
    nan_is_failed: bool = False
    common: bool = False
    """Whether seeds and items that some run lacks are left out."""


@dataclass(frozen=True)
class Runs:
    """Scores of arms and seeds, and how each unit of the test moves them."""

    arms: tuple[str, ...]
    seeds: tuple[str, ...]
    values: Numbers
    """``[arm, seed]``; NaN where a run failed."""
    failed: NDArray[np.bool_]
    """``[arm, seed]``."""
    effects: Numbers | None = None
    """``[arm, seed, unit]`` in the metric's unit: how it moves when a unit counts once more. Units
    are documents where items belong to three or more, else items or stretches of them. None: no
    items are known."""
    n_items: int = 0
    n_documents: int | None = None
    shares: Numbers | None = None
    """``[unit]``, the share of the test in each; None: units are of equal size."""
    said: tuple[str, ...] = field(default=(), compare=False)
    """Rows left out and choices made, a line each."""

    @property
    def resolution(self) -> float:
        """Return the last decimal of the values as written: the rest is rounding."""
        known = self.values[np.isfinite(self.values)]
        if self.effects is not None or not known.size:
            return 0.0
        for decimals in range(_MOST_DECIMALS):
            if np.allclose(known, np.round(known, decimals), rtol=0.0, atol=1e-13):
                return float(10.0**-decimals)
        return 0.0


def assemble(sources: Sequence[Records], rules: Rules) -> Runs:
    """Put the rows of all sources in order, by arm, seed and item.

    Raises DataError, with file, line and column, for a value that is not finite, a row that is
    there twice, and seeds or items that some run lacks.
    """
    rows = _Rows(sources)
    said: list[str] = []
    if rows.step is not None:
        said += rows.take_step(rules.at)
    elif rules.at:
        raise DataError(f"--at {rules.at} needs a column of steps: name it by --step, or leave it")
    rows.check_names()
    rows.check_twice()
    rows.check_finite(rules.nan_is_failed)
    if rules.common:
        said += rows.keep_common()
    rows.check_complete()
    return rows.runs(said)


class _Rows:
    """The rows of all sources, one behind the other, with one code for each name."""

    def __init__(self, sources: Sequence[Records]) -> None:
        with_items = [each.item is not None for each in sources]
        if len(set(with_items)) > 1:
            own = sources[with_items.index(True)].source
            other = sources[with_items.index(False)].source
            raise DataError(
                f"{own} has a value for each item, and {other} has none: judge sources that all "
                "have items, or means that all have none"
            )
        self.has_items = with_items[0]
        self.arms, self.arm = _joined([each.arm for each in sources])
        self.seeds, self.seed = _joined([each.seed for each in sources])
        self.items: tuple[str, ...] = ("",)
        self.item: Codes = np.zeros(len(self.arm), dtype=np.int64)
        if self.has_items:
            self.items, self.item = _joined([each.item for each in sources if each.item])
        order = sorted(range(len(self.seeds)), key=lambda place: _natural(self.seeds[place]))
        self.seeds = tuple(self.seeds[place] for place in order)
        self.seed = np.argsort(order)[self.seed]
        self.value = np.concatenate([each.value for each in sources])
        self.weight: Numbers | None = None
        if any(each.weight is not None for each in sources):
            weights = [np.ones_like(e.value) if e.weight is None else e.weight for e in sources]
            self.weight = np.concatenate(weights)
        self.document: Coded | None = None
        documents = [each.document for each in sources if each.document is not None]
        if documents and len(documents) < len(sources):
            other = next(each.source for each in sources if each.document is None)
            raise DataError(f"{other} has no documents, and others have: give it such a column")
        if documents:
            names, codes = _joined(documents)
            self.document = Coded(codes, names)
        self.step: Numbers | None = None
        if any(each.step is not None for each in sources):
            if any(each.step is None for each in sources):
                raise DataError("some sources have steps, and some have none: give both alike")
            self.step = np.concatenate([each.step for each in sources if each.step is not None])
        self.is_failed = np.concatenate(
            [np.zeros(len(e.value), bool) if e.failed is None else e.failed for e in sources]
        )
        self._index = np.arange(len(self.value))
        self._sources = sources
        self._starts = np.cumsum([0, *(len(each.value) for each in sources)])

    def place(self, row: int) -> str:
        """Return where a row of those that are left stands."""
        source, own_row = self._source(row)
        return source.place(own_row)

    def _source(self, row: int) -> tuple[Records, int]:
        old = int(self._index[row])
        place = int(np.searchsorted(self._starts, old, side="right")) - 1
        return self._sources[place], old - int(self._starts[place])

    def run(self, row: int) -> str:
        """Return the name of a row's run."""
        return f"{self.arms[self.arm[row]]}, seed {self.seeds[self.seed[row]]}"

    def _keep(self, rows: NDArray[Any]) -> None:
        self.arm, self.seed, self.item = self.arm[rows], self.seed[rows], self.item[rows]
        self.value, self._index = self.value[rows], self._index[rows]
        self.is_failed = self.is_failed[rows]
        if self.weight is not None:
            self.weight = self.weight[rows]
        if self.step is not None:
            self.step = self.step[rows]
        if self.document is not None:
            self.document = Coded(self.document.codes[rows], self.document.names)

    @property
    def _run(self) -> Codes:
        return self.arm * len(self.seeds) + self.seed

    def take_step(self, at: str) -> list[str]:
        """Keep the rows of one step of each run, and say which."""
        assert self.step is not None
        run = self._run
        runs, places = np.unique(run, return_inverse=True)
        last = np.full(len(runs), -np.inf)
        np.maximum.at(last, places, self.step)
        if at and at != LAST:
            if not re.fullmatch(r"\d+(\.\d+)?", at):
                raise ConfigError(f"--at {at} is no step: give a number, or last")
            chosen = np.full(len(runs), float(at))
            missing = np.setdiff1d(runs, run[self.step == chosen[places]])
            if missing.size:
                row = int(np.flatnonzero(run == missing[0])[0])
                raise DataError(
                    f"{self.run(row)} has no value at step {at}: name one that all have"
                )
        elif not at and len(set(last)) > 1:
            ends = []
            for place in (int(last.argmin()), int(last.argmax())):
                row = int(np.flatnonzero(places == place)[0])
                ends.append(f"{self.run(row)} at step {last[place]:g}")
            raise DataError(
                f"runs end at different steps, {ends[0]} and {ends[1]}: name the step that counts, "
                "as in --at 1000, or --at last for the last of each"
            )
        else:
            chosen = last
        self._keep(self.step == chosen[places])
        found = sorted(set(chosen))
        if len(found) > 1:
            return [f"values: of each run's last step, {found[0]:g} to {found[-1]:g}"]
        return [f"values: of step {found[0]:g}{', the last' if found[0] == last.max() else ''}"]

    def check_names(self) -> None:
        """Raise DataError where a row names no arm, seed, item or document."""
        coded = [("arm", self.arms, self.arm), ("seed", self.seeds, self.seed)]
        coded.append(("item", self.items if self.has_items else (), self.item))
        if self.document is not None:
            coded.append(("document", self.document.names, self.document.codes))
        for what, names, codes in coded:
            if "" in names and (rows := np.flatnonzero(codes == names.index(""))).size:
                raise DataError(f"{self.place(int(rows[0]))}: the row names no {what}: fill it in")

    def check_twice(self) -> None:
        """Raise DataError where two rows are of one item of a run, or of one run."""
        key = self._run * len(self.items) + self.item
        order = np.argsort(key, kind="stable")
        twice = np.flatnonzero(key[order][1:] == key[order][:-1])
        if not twice.size:
            return
        first, second = int(order[twice[0]]), int(order[twice[0] + 1])
        what = self.run(first)
        if self.has_items:
            what += f", item {self.items[self.item[first]]}"
        options = "--arm, --seed, --item, --step"
        remedy = f"leave one out, or name the column that tells them apart ({options})"
        files = [Path(self._source(row)[0].source) for row in (first, second)]
        name = files[0].name
        if files[0] != files[1] and name == files[1].name and not name.startswith("samples_"):
            remedy = f"say how arms and seeds are told apart, as by --names '{{arm}}/{name}'"
        raise DataError(
            f"{self.place(second)}: {what} is there already, at {self.place(first)}: {remedy}"
        )

    def check_finite(self, nan_is_failed: bool) -> None:
        """Mark the rows of runs that failed; raise DataError for a NaN that may not say so."""
        broken = np.flatnonzero(~np.isfinite(self.value))
        unknown = broken[~self.is_failed[broken]]
        if unknown.size and not nan_is_failed:
            row = int(unknown[0])
            raise DataError(
                f"{self.place(row)}: {self.value[row]} is no score ({self.run(row)}). A failed run "
                "is a result: give --nan-is-failed to count it as worse than all others, or mend "
                "the value"
            )
        self.is_failed = np.isin(self._run, self._run[broken])

    def keep_common(self) -> list[str]:
        """Leave out the seeds that some arm lacks, then items that some run lacks; say which."""
        said = []
        is_common = np.asarray(self._there().all(0))
        lacking = [self.seeds[place] for place in np.flatnonzero(~is_common)]
        if lacking:
            self._leave(is_common[self.seed])
            said.append(f"left out: {_listed('seed', lacking)}, which some arm lacks")
        if self.has_items and len(self.value):
            is_whole = ~self.is_failed
            n_runs = len(np.unique(self._run[is_whole]))
            times = np.bincount(self.item[is_whole], minlength=len(self.items))
            lacking = [
                self.items[place] for place in np.flatnonzero((times > 0) & (times < n_runs))
            ]
            if lacking:
                self._leave((times[self.item] == n_runs) | self.is_failed)
                said.append(f"left out: {_listed('item', lacking)}, which some run lacks")
        if not len(self.value):
            raise DataError("no seed and item is in all arms: nothing can be judged")
        return said

    def _leave(self, rows: NDArray[np.bool_]) -> None:
        self._keep(rows)
        for names, codes in (("seeds", "seed"), ("items", "item")):
            used, again = np.unique(getattr(self, codes), return_inverse=True)
            kept = getattr(self, names)
            setattr(self, names, tuple(kept[place] for place in used))
            setattr(self, codes, again.astype(np.int64))

    def _there(self) -> NDArray[np.bool_]:
        there = np.zeros((len(self.arms), len(self.seeds)), dtype=np.bool_)
        there[self.arm, self.seed] = True
        return there

    def check_complete(self) -> None:
        """Raise DataError where an arm lacks a seed of another, or a run an item."""
        there = self._there()
        if not there.any(0).all():
            without = [self.seeds[place] for place in np.flatnonzero(~there.any(0))]
            raise DataError(f"{_listed('seed', without)}: no arm has a value: leave the rows out")
        if not there.all():
            arm, seed = (int(place) for place in np.argwhere(~there)[0])
            lacking = [self.seeds[place] for place in np.flatnonzero(~there[arm])]
            other = int(np.flatnonzero(there[:, seed])[0])
            raise DataError(
                f"seeds do not meet: {self.arms[arm]} lacks {_listed('seed', lacking)}, and "
                f"{self.arms[other]} has seed {self.seeds[seed]}: add the runs, or give --common "
                "to judge the seeds and items that all have"
            )
        n_each = np.bincount(self._run, minlength=there.size)
        n_each[self._run[self.is_failed]] = len(self.items)  # of what failed none count
        if int(n_each.min()) == len(self.items):
            return
        run = int(n_each.argmin())
        lacking_items = np.setdiff1d(np.arange(len(self.items)), self.item[self._run == run])
        arm, seed = divmod(run, len(self.seeds))
        item = int(lacking_items[0])
        row = int(np.flatnonzero(self.item == item)[0])
        raise DataError(
            f"items do not meet: {self.arms[arm]}, seed {self.seeds[seed]} has "
            f"{count(int(n_each[run]), 'item')} of {len(self.items):,} and lacks item "
            f"{self.items[item]}, which {self.run(row)} has ({self.place(row)}): add it, or give "
            "--common to judge the seeds and items that all have"
        )

    def runs(self, said: Sequence[str]) -> Runs:
        """Return the scores of runs that are complete, and the effects of their items."""
        n_arms, n_seeds, n_items = len(self.arms), len(self.seeds), len(self.items)
        failed = np.zeros((n_arms, n_seeds), dtype=np.bool_)
        failed[self.arm[self.is_failed], self.seed[self.is_failed]] = True
        shape = (n_arms, n_seeds, n_items)
        flat = self._run * n_items + self.item
        scores = np.full(n_arms * n_seeds * n_items, np.nan)
        scores[flat] = self.value
        scores = scores.reshape(shape)  # [A, S, N]
        scores[failed] = np.nan
        if not self.has_items:
            return Runs(self.arms, self.seeds, scores[:, :, 0], failed, said=tuple(said))
        weights = np.ones(shape)
        if self.weight is not None:
            weights.reshape(-1)[flat] = self.weight
        totals = weights.sum(2)
        values = scores.sum(2) / totals
        effects = (scores - values[:, :, None] * weights) / totals[:, :, None]
        documents, shares = None, None
        if self.document is not None:
            documents = self._documents()
            units, n_units = units_of(n_items, documents)
            shares = shares_of(units, documents, weights.mean((0, 1)))
            order = np.argsort(units, kind="stable")
            starts = np.searchsorted(units[order], np.arange(n_units))
            effects = np.add.reduceat(effects[:, :, order], starts, axis=2)
        n_documents = None if documents is None else len(np.unique(documents))
        return Runs(
            self.arms,
            self.seeds,
            values,
            failed,
            effects,
            n_items,
            n_documents,
            shares,
            tuple(said),
        )

    def _documents(self) -> NDArray[np.int64]:
        """Return the document of each item.

        Raises DataError where an item is in two.
        """
        assert self.document is not None
        of_item = np.full(len(self.items), -1, dtype=np.int64)
        of_item[self.item] = self.document.codes
        wrong = np.flatnonzero(of_item[self.item] != self.document.codes)
        if wrong.size:
            row = int(wrong[0])
            names = self.document.names
            raise DataError(
                f"{self.place(row)}: item {self.items[self.item[row]]} is of document "
                f"{names[self.document.codes[row]]} here, and of {names[of_item[self.item[row]]]} "
                "elsewhere: name items so that each is of one document"
            )
        return of_item


def _joined(parts: Sequence[Coded]) -> tuple[tuple[str, ...], Codes]:
    """Return the names of all parts, in the order in which they come, and each row's place."""
    names = tuple(dict.fromkeys(name for part in parts for name in part.names))
    places = {name: place for place, name in enumerate(names)}
    codes = []
    for part in parts:
        own = np.array([places[name] for name in part.names], dtype=np.int64)
        codes.append(own[part.codes])
    return names, np.concatenate(codes)


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    parts = re.split(r"(\d+)", name)
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts)


def _listed(what: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f"{what}{'s' if len(names) > 1 else ''} {shown}{more}"
