"""Cells of the grid of simulated studies: a covering design, cells that once failed, their draws.

A cell fixes what a study looks like: arms, seeds, correlation by seed, spreads, the distribution
of a run, test items and documents, looks, tuning. Each pair of levels that can occur together
stands in at least one cell of the design. The unit of all numbers is the standard deviation of a
run over seeds, of an arm that spreads as most do and is scored on endless items.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

Numbers = NDArray[np.float64]

TASTE, NOISE = 20.0, 10.0
"""Variances of one item: of an arm's taste for it, and of a run's own score on it. 500 items add
0.04 and 0.02 to the variance of a run's mean, 1."""
SMALL_SHARE = 0.2
JITTER = 0.02
LONG = 0.8
"""Correlation of neighbouring items, where they are alike."""
GAPS = (0.0, 0.5, 1.0)
"""The means of the trials of an arm that is tuned, the lower the better."""
CANDIDATES = 40
_OUTLIER_SHARE, _OUTLIER_SCALE = 0.1, 5.0
_SHARED_OTHERS = 0.36


@dataclass(frozen=True)
class Cell:
    """Design of a study; the fields up to ``n_tuning`` are the factors of the design."""

    n_arms: int = 2
    n_seeds: int = 5
    correlation: float = 0.0
    """Of the baseline and any other arm, by seed."""
    spread: tuple[Literal["none", "baseline", "other"], int] = ("none", 1)
    noise: Literal["normal", "heavy tails", "outliers", "two-valued"] = "normal"
    n_items: int = 0
    n_documents: int = 0
    """0: items belong to none."""
    icc: float = 0.0
    """The share of an arm's taste for an item that it has for its whole document."""
    looks: Literal["fixed", "until decided", "going on"] = "fixed"
    n_tuning: int = 0
    """Runs of each of three trials; 0: not tuned."""
    twist: str = ""
    """Departures from the design, by name; see ``TWISTS``."""

    @property
    def name(self) -> str:
        """The settings in words, which are the seed of its draws, too."""
        words = [f"{self.n_arms} arms", f"{self.n_seeds} seeds"]
        if self.correlation:
            words.append(f"correlation {self.correlation:g}")
        if self.spread[1] > 1:
            words.append(f"{self.spread[0]} ×{self.spread[1]}")
        if self.noise != "normal":
            words.append(self.noise)
        if self.n_items:
            words.append(f"{self.n_items} items")
        if self.n_documents:
            words.append(f"{self.n_documents} documents, ICC {self.icc:g}")
        if self.looks != "fixed":
            words.append(self.looks)
        if self.n_tuning:
            words.append(f"tuned by {self.n_tuning}")
        return ", ".join([*words, self.twist] if self.twist else words)

    @property
    def is_plain(self) -> bool:
        """True where runs are normal, spread alike, and are judged once, over seeds alone."""
        usual = Cell(self.n_arms, self.n_seeds, self.correlation)
        return self == usual

    @property
    def planned(self) -> tuple[int, ...]:
        """The numbers of seeds at which it is looked at."""
        if self.looks == "fixed":
            return (self.n_seeds,)
        if self.looks == "going on":
            return {5: (3, 5), 8: (5, 8), 20: (8, 12, 20)}[self.n_seeds]
        return tuple(n for n in (3, 5, 8, 12, 20) if n <= self.n_seeds)


TWISTS = {
    "long": "neighbouring items correlate at 0.8 in tastes and noise",
    "unequal documents": "each document is half as long again as the next shorter one",
    "rare": "one run of five takes the worse of two values",
    "jitter": "two values, about which runs spread by 0.02 of a deviation",
    "others 0.36": "arms beside the baseline correlate at 0.36 with each other, not at 0.6",
    "no matter": "all trials are alike",
    "far": "the trials' means are 0, 0.8 and 2",
    "wide trial": "the worst trial spreads three times as far as the others",
    "no skill": "items are right or wrong, by an arm's taste and a run's accident",
}

LEVELS: dict[str, tuple[Any, ...]] = {
    "n_arms": (2, 4, 8),
    "n_seeds": (3, 5, 8, 20),
    "correlation": (-0.6, 0.0, 0.5, 0.9),
    "spread": (("none", 1), ("baseline", 2), ("baseline", 4), ("other", 2), ("other", 4)),
    "noise": ("normal", "heavy tails", "outliers", "two-valued"),
    "n_items": (0, 50, 500, 5000),
    "n_documents": (0, 1, 2, 3, 4, 5, 10, 19, 25, 100),
    "icc": (0.0, 0.05, 0.2),
    "looks": ("fixed", "until decided", "going on"),
    "n_tuning": (0, 1, 3),
}
Setting = tuple[str, Any]


def can_meet(one: Setting, other: Setting) -> bool:
    """Return whether two levels can occur together.

    Documents are of items, at least one each, and a share of tastes is of documents. Three seeds
    are one look. Runs of two values spread by their share: another spread is another pair of them.
    """
    settings = dict((one, other))

    def both(*expected: tuple[str, Any]) -> bool:
        return all(name in settings and settings[name] == level for name, level in expected)

    if both(("n_items", 0)) and (settings.get("n_documents") or settings.get("icc")):
        return False
    if both(("n_documents", 0)) and settings.get("icc"):
        return False
    if both(("n_items", 50), ("n_documents", 100)):
        return False
    if both(("n_seeds", 3)) and settings.get("looks", "fixed") != "fixed":
        return False
    return not (both(("noise", "two-valued")) and settings.get("spread", ("none", 1))[1] > 1)


def covering_design() -> list[Cell]:
    """Return cells that hold each pair of levels that can occur together (greedily; Cohen 1997)."""
    generator = random.Random(48)
    settings = [(name, level) for name, levels in LEVELS.items() for level in levels]
    missing = {
        pair for pair in combinations(settings, 2) if pair[0][0] != pair[1][0] and can_meet(*pair)
    }
    cells = []
    while missing:
        candidates = [_candidate(generator, missing) for _ in range(CANDIDATES)]
        best = max(candidates, key=lambda row: len(missing & row[1]))
        missing -= best[1]
        cells.append(Cell(**dict(best[0])))
    return cells


def _candidate(
    generator: random.Random, missing: set[tuple[Setting, Setting]]
) -> tuple[list[Setting], set[tuple[Setting, Setting]]]:
    """Fill a row around a pair that is missing, by the level that adds most pairs."""
    order = {name: index for index, name in enumerate(LEVELS)}
    while True:
        row = list(generator.choice(sorted(missing, key=repr)))
        rest = [name for name in LEVELS if name not in dict(row)]
        generator.shuffle(rest)
        for name in rest:
            possible = [
                (name, level)
                for level in LEVELS[name]
                if all(can_meet((name, level), other) for other in row)
            ]
            if not possible:
                break
            generator.shuffle(possible)
            row.append(
                max(
                    possible,
                    key=lambda one: sum(
                        tuple(sorted((one, other), key=lambda each: order[each[0]])) in missing
                        for other in row
                    ),
                )
            )
        else:
            row.sort(key=lambda each: order[each[0]])
            return row, set(combinations(row, 2))


def named_cells() -> list[Cell]:
    """Return the cells in which verdicts once erred, and their neighbours."""
    texts = Cell(n_items=2000)
    cells = [
        replace(texts, n_documents=n, icc=icc) for icc in (0.05, 0.2) for n in (3, 4, 5, 10, 19, 25)
    ]
    cells += [
        replace(texts, n_arms=4, n_seeds=8, n_documents=5, icc=0.2),
        replace(texts, n_arms=8, n_seeds=20, n_documents=3, icc=0.2),
        replace(texts, n_documents=5, icc=0.2, looks="until decided", n_seeds=20),
        replace(texts, n_documents=5, icc=0.2, twist="unequal documents"),
        replace(texts, n_documents=10, icc=0.2, twist="unequal documents"),
    ]
    one = Cell(n_seeds=3, n_items=500, n_documents=1, twist="long")
    cells += [one, replace(one, n_seeds=8), replace(one, n_items=5000, n_seeds=20)]
    cells += [replace(one, n_documents=2, n_arms=4), replace(one, n_documents=0, twist="no skill")]
    cells += [Cell(n_arms=4, n_seeds=8, n_items=470, twist="no skill")]
    tuned = Cell(n_seeds=8, n_tuning=1)
    cells += [tuned, replace(tuned, n_tuning=3), replace(tuned, n_arms=4)]
    cells += [
        replace(tuned, n_seeds=n_seeds, twist=twist)
        for twist in ("no matter", "far", "wide trial")
        for n_seeds in (3, 8, 20)
    ]
    two = Cell(noise="two-valued", n_seeds=20, looks="until decided")
    for n_arms in (2, 4, 8):
        cells += [replace(two, n_arms=n_arms), replace(two, n_arms=n_arms, twist="jitter")]
        cells += [replace(two, n_arms=n_arms, n_seeds=3, looks="fixed")]
    cells += [
        replace(two, n_arms=4, n_seeds=8),
        replace(two, n_arms=8, twist="rare"),
        replace(two, n_arms=8, n_seeds=3, looks="fixed", twist="rare"),
        replace(two, n_arms=8, n_seeds=3, looks="fixed", twist="jitter"),
        replace(two, n_arms=4, n_seeds=5, looks="fixed"),
        replace(two, n_arms=8, n_seeds=5, looks="fixed", twist="jitter"),
    ]
    wide = Cell(n_arms=4, n_seeds=3, spread=("baseline", 4))
    cells += [wide, replace(wide, n_arms=8), replace(wide, n_seeds=5), replace(wide, n_arms=2)]
    cells += [replace(wide, n_arms=8, n_seeds=8), replace(wide, n_arms=8, spread=("other", 4))]
    against = Cell(correlation=-0.6)
    cells += [
        replace(against, n_arms=n_arms, n_seeds=n_seeds)
        for n_arms in (2, 4, 8)
        for n_seeds in (3, 8, 20)
    ]
    cells += [
        replace(against, n_arms=n_arms, n_seeds=n_seeds, twist="others 0.36")
        for n_arms, n_seeds in ((4, 5), (8, 8))
    ]
    cells += [
        Cell(n_arms=n_arms, n_seeds=3, n_items=n_items)
        for n_arms in (2, 4, 8)
        for n_items in (50, 500)
    ]
    cells += [
        Cell(n_seeds=n_seeds, correlation=correlation)
        for n_seeds in (3, 5, 8, 20)
        for correlation in (0.0, 0.5, 0.9)
    ]
    cells += [
        Cell(n_arms=n_arms, n_seeds=n_seeds, correlation=correlation)
        for n_arms in (4, 8)
        for n_seeds, correlation in ((3, 0.0), (3, 0.9), (5, 0.5), (20, 0.0))
    ]
    cells += [
        Cell(n_arms=n_arms, n_seeds=20, looks=looks)
        for n_arms in (2, 8)
        for looks in ("until decided", "going on")
    ]
    many = Cell(n_arms=30, n_seeds=5)
    cells += [many, replace(many, spread=("other", 40)), replace(many, spread=("baseline", 4))]
    several = Cell(n_arms=12, n_seeds=5, correlation=0.5)
    cells += [several, replace(several, n_seeds=3), replace(several, n_tuning=1)]
    cells += [replace(several, n_items=2000, n_documents=25, icc=0.05)]
    return cells


def all_cells() -> list[Cell]:
    """Return the cells of the design and those by name, each once."""
    return list(dict.fromkeys([*named_cells(), *covering_design()]))


@dataclass(frozen=True)
class Draw:
    """A simulated study in which all arms are alike."""

    values: Numbers
    """``[A, S]``, the score of each run, lower is better."""
    atoms: Numbers | None
    """``[A, S, P]``: contribution of each test piece to a run's score; None without items."""
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """``[P]``, the items of each piece."""
    documents: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """``[P]``, the document of each piece, in order; empty where there are none."""
    trials: Numbers | None = None
    """``[A, 3, runs]``, what the trials of each arm scored on validation."""
    validation: Numbers | None = None
    """``[A, S]``, what the runs that are compared scored there."""
    unit: float = 1.0
    """The standard deviation of a run over seeds."""
    error: float = 1.0
    """The standard error of the widest difference at the first look, about."""


def draw(cell: Cell, rng: np.random.Generator) -> Draw:
    """Draw a study whose arms are alike."""
    if cell.twist == "no skill":
        return _without_skill(cell, rng)
    scales = np.ones((cell.n_arms, 1))
    if cell.spread[0] != "none":
        scales[0 if cell.spread[0] == "baseline" else 1] = cell.spread[1]
    runs = scales * _runs(cell, rng, cell.n_seeds)
    trials = None
    if cell.n_tuning:
        chosen, trials, factors = _tuned(cell, rng, scales)
        runs = runs * factors[:, None] + chosen[:, None]
    first = cell.planned[0]
    variance = 2 * (cell.spread[1] ** 2) / first + (2.0 if cell.n_tuning else 0.0)
    if not cell.n_items:
        return Draw(runs, None, trials=trials, validation=runs, error=math.sqrt(variance))
    counts, documents = _pieces(cell)
    atoms, taste, own = _items(cell, rng, counts, documents)
    variance += 2 * (taste + own / first)
    return Draw(
        runs + atoms.sum(2),
        atoms,
        counts,
        documents,
        trials,
        runs if trials is None else runs + math.sqrt(own) * rng.standard_normal(runs.shape),
        math.sqrt(1.0 + own),
        math.sqrt(variance),
    )


def _runs(cell: Cell, rng: np.random.Generator, n_seeds: int) -> Numbers:
    """Draw the scores of runs around 0, with variance 1, ``[A, S]``."""
    rho = abs(cell.correlation)
    shared = _noise(cell, rng, (1, n_seeds))
    own = _noise(cell, rng, (cell.n_arms, n_seeds))
    signs = np.ones((cell.n_arms, 1))
    table = math.sqrt(rho) * signs * shared + math.sqrt(1.0 - rho) * own
    if cell.correlation < 0.0 and cell.twist == "others 0.36":
        table = np.concatenate([own[:1], -rho * own[:1] + math.sqrt(1.0 - rho**2) * own[1:]])
    elif cell.correlation < 0.0:
        table[0] = -math.sqrt(rho) * shared[0] + math.sqrt(1.0 - rho) * own[0]
    if cell.noise != "two-valued":
        return table
    share = SMALL_SHARE if cell.twist == "rare" else 0.5
    is_worse = table > (0.0 if share == 0.5 else 0.8416212335729143)
    values = (is_worse - share) / math.sqrt(share * (1.0 - share))
    if cell.twist == "jitter":
        values = values + JITTER * rng.standard_normal(values.shape)
    return np.asarray(values, dtype=np.float64)


def _noise(cell: Cell, rng: np.random.Generator, shape: tuple[int, int]) -> Numbers:
    if cell.noise == "heavy tails":
        return rng.standard_t(3, shape) / math.sqrt(3.0)
    normal = rng.standard_normal(shape)
    if cell.noise == "outliers":
        is_out = rng.random(shape) < _OUTLIER_SHARE
        variance = 1.0 + _OUTLIER_SHARE * (_OUTLIER_SCALE**2 - 1.0)
        normal = normal * np.where(is_out, _OUTLIER_SCALE, 1.0) / math.sqrt(variance)
    return normal


def _tuned(
    cell: Cell, rng: np.random.Generator, scales: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """Tune each arm: the mean of what is chosen, the trials' scores, how far the choice spreads.

    Trials of one seed vary together as arms do; those of two values are alike in their means.
    """
    gaps = {"no matter": (0.0, 0.0, 0.0), "far": (0.0, 0.8, 2.0)}.get(cell.twist, GAPS)
    means = np.array(gaps if cell.noise != "two-valued" else (0.0, 0.0, 0.0))
    widths = np.array([1.0, 1.0, 3.0 if cell.twist == "wide trial" else 1.0])
    shared = math.sqrt(max(cell.correlation, 0.0)) * _noise(cell, rng, (1, cell.n_tuning))
    rest = math.sqrt(1.0 - max(cell.correlation, 0.0))
    scores = np.empty((cell.n_arms, 3, cell.n_tuning))
    for arm in range(cell.n_arms):
        if cell.noise == "two-valued":
            noise = _runs(replace(cell, n_arms=3, correlation=0.0), rng, cell.n_tuning)
        else:
            noise = shared + rest * _noise(cell, rng, (3, cell.n_tuning))
        scores[arm] = means[:, None] + scales[arm] * widths[:, None] * noise
    chosen = scores.mean(2).argmin(1)
    return means[chosen], scores, widths[chosen]


def _pieces(cell: Cell) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of items of each piece that is drawn, and its document.

    Pieces are as long as all units of a judge allow: documents, the stretches of few documents, or
    items.
    """
    n = cell.n_items
    if not cell.n_documents:
        return np.ones(n, dtype=np.int64), np.zeros(0, dtype=np.int64)
    weights: Numbers = np.ones(cell.n_documents)
    if cell.twist == "unequal documents":
        weights = np.array([1.5**n for n in range(cell.n_documents)])
    ends = np.rint(np.cumsum(weights) / weights.sum() * n).astype(np.int64)
    sizes = np.diff(ends, prepend=0)
    if cell.n_documents >= 20:
        return sizes, np.arange(cell.n_documents)
    length = max(1, round(n ** (1 / 3))) if cell.n_documents > 2 else 1
    counts, documents = [], []
    for document, size in enumerate(sizes):
        stretches = [min(length, size - start) for start in range(0, size, length)]
        counts += stretches
        documents += [document] * len(stretches)
    return np.array(counts, dtype=np.int64), np.array(documents, dtype=np.int64)


def _items(
    cell: Cell,
    rng: np.random.Generator,
    counts: NDArray[np.int64],
    documents: NDArray[np.int64],
) -> tuple[Numbers, float, float]:
    """Draw what pieces add to scores, ``[A, S, P]``, and the variances of a mean: taste and noise.

    Tastes are an arm's for an item and for its document, and how hard a piece is all arms share. Of
    fewer than three documents the verdict is on this text: tastes for them are part of what is
    asked, and differ by 0 on the whole.
    """
    n_pieces, roots = len(counts), np.sqrt(counts) / cell.n_items

    def of_pieces(*shape: int) -> Numbers:
        drawn: Numbers = rng.standard_normal((*shape, n_pieces))
        if cell.twist == "long":
            drawn[..., 1:] *= math.sqrt(1.0 - LONG**2)
            drawn = lfilter([1.0], [1.0, -LONG], drawn)
        return drawn * roots

    tastes = math.sqrt(TASTE * (1.0 - cell.icc)) * of_pieces(cell.n_arms)  # [A, P]
    own = math.sqrt(NOISE) * of_pieces(cell.n_arms, cell.n_seeds)
    variance = TASTE * (1.0 - cell.icc) / cell.n_items
    if cell.icc:
        whole = rng.standard_normal((cell.n_arms, cell.n_documents))[:, documents]
        if cell.n_documents < 3:
            whole -= (whole @ counts / cell.n_items)[:, None]
        else:
            variance += TASTE * cell.icc / cell.n_documents
        tastes += math.sqrt(TASTE * cell.icc) * whole * counts / cell.n_items
    hard = math.sqrt(TASTE) * of_pieces()
    times = (1.0 + LONG) / (1.0 - LONG) if cell.twist == "long" else 1.0
    atoms = own + (tastes + hard)[:, None]
    return atoms, times * variance, times * NOISE / cell.n_items


def _without_skill(cell: Cell, rng: np.random.Generator) -> Draw:
    """Draw models without skill, that are right by an arm's taste; the score is their errors."""
    tastes = rng.random((cell.n_arms, 1, cell.n_items))
    noise = 0.3 * rng.standard_normal((cell.n_arms, cell.n_seeds, cell.n_items))
    atoms = (tastes + noise < 0.5) / cell.n_items
    unit = 0.3 / math.sqrt(cell.n_items)
    counts = np.ones(cell.n_items, dtype=np.int64)
    error = math.sqrt(2 * 0.25 / cell.n_items)
    return Draw(atoms.sum(2), atoms, counts, unit=unit, error=error)


def factors(cell: Cell) -> Iterator[Setting]:
    """Yield the settings of a cell that are factors of the design."""
    for each in fields(cell):
        if each.name != "twist":
            yield each.name, getattr(cell, each.name)


def uncovered(cells: Sequence[Cell]) -> set[tuple[Setting, Setting]]:
    """Return the pairs of levels that can occur together, and do in none of the cells."""
    settings = [(name, level) for name, levels in LEVELS.items() for level in levels]
    missing = {
        pair for pair in combinations(settings, 2) if pair[0][0] != pair[1][0] and can_meet(*pair)
    }
    for cell in cells:
        missing -= set(combinations(tuple(factors(cell)), 2))
    return missing
