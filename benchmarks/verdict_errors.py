"""Error rates and power of verdicts, cell by cell of a grid of simulated studies.

    python benchmarks/verdict_errors.py draw --out errors.jsonl --processes 2 --studies 2000
    python benchmarks/verdict_errors.py draw --out errors.jsonl --cells "8 arms" --minutes 30
    python benchmarks/verdict_errors.py draw --out again.jsonl --draws 1 --suspects-of errors.jsonl
    python benchmarks/verdict_errors.py draw --out before.jsonl --package ../before
    python benchmarks/verdict_errors.py table errors.jsonl --before before.jsonl --again again.jsonl
    python benchmarks/verdict_errors.py levels errors.jsonl --before before.jsonl
    python benchmarks/verdict_errors.py cells

Of each study three things are asked. All arms are alike: any decision is false. All differ from the
baseline by the margin, up and down in turn: "no difference that matters" is false, as is a wrong
sign. One arm differs by 1 to 4 standard deviations of a run: it is found, or not, or with the wrong
sign. A study is false where any of its verdicts is, at any of its looks.

Studies are drawn in batches of twenty, the cells in turn, and each batch is a line of the file, so
that it can be stopped and goes on where it was; ``add`` prints one line for each cell, from which
it goes on, too. Seeds follow from the cell's name, the batch and ``--draws``.
"""

import argparse
import json
import multiprocessing
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, stdtrit
from verdict_cells import LEVELS, Cell, Draw, Numbers, all_cells, draw, uncovered

BATCH = 20
POWER_EVERY, ROUGH_POWER_EVERY = 2, 10
"""Of every so many studies power is asked, too: where each amount is judged anew, of fewer."""
DIFFERENCES = (1.0, 2.0, 3.0, 4.0)
"""In standard deviations of a run."""
MARGIN = 20.0
"""In standard errors of the widest difference: wide enough that intervals lie inside of it."""
RESOLUTION = 1e-6
"""The smallest step of the metric: far below its spread."""
ALLOWED = 0.05
SUSPICIOUS = 0.06

JudgeLook = Callable[[Numbers, Sequence[int], float | None], Sequence[Any]]
"""Judge ``[A, S]`` values, NaN where no run was made, at the last of the looks that are given, by a
margin; return the difference of each arm but the first."""


def package_judge(cell: Cell, drawn: Draw) -> JudgeLook:
    """Return the judge of the package, with the facts that a study has of such runs."""
    from sublayer.statistics.contrasts import RunScores, Tuned, against_baseline
    from sublayer.statistics.judge import ContrastFamily
    from sublayer.statistics.looks import fixed, until_decided

    effects, shares = unit_effects(drawn)
    arms = tuple(str(arm) for arm in range(cell.n_arms))
    contrasts = against_baseline(arms, arms[0])

    def judge_look(values: Numbers, looks: Sequence[int], margin: float | None) -> Sequence[Any]:
        look = looks[-1]
        is_missing = np.isnan(values[:, :look])
        known = None
        if effects is not None:
            known = np.where(is_missing[:, :, None], np.nan, effects[:, :look])
        scores = RunScores(
            arms,
            tuple(range(look)),
            values[:, :look],
            np.zeros_like(is_missing),
            known,
            cell.n_items or None,
            cell.n_documents or None,
            shares,
        )
        tuned = {}
        if drawn.trials is not None and drawn.validation is not None:
            for arm, trials, own, missing in zip(
                arms, drawn.trials, drawn.validation, is_missing, strict=True
            ):
                compared = {seed: float(own[seed]) for seed in np.flatnonzero(~missing).tolist()}
                means = tuple(trials.mean(1).tolist())
                tuned[arm] = Tuned(means, cell.n_tuning, compared, tuple(trials))
        looking = fixed(look)
        if cell.looks == "until decided":
            looking = until_decided(cell.n_seeds)
        family = ContrastFamily(
            scores,
            contrasts,
            is_lower_better=True,
            n_seeds=look,
            level=looking.levels(looks[:-1], len(contrasts))[look],
            margin=margin,
            tuned=tuned,
            resolution=RESOLUTION,
        )
        return family.judge().differences

    return judge_look


def unit_effects(drawn: Draw) -> tuple[Numbers | None, Numbers | None]:
    """Return by how much each unit of the test moves a run's score, ``[A, S, U]``, around 0, and
    its share of the test, ``[U]``.

    Pieces of three documents or more are no longer than these, and of fewer they are items.
    """
    from sublayer.statistics.covariance import shares_of, units_of

    if drawn.atoms is None:
        return None, None
    n_items = int(drawn.counts.sum())
    effects: Numbers = drawn.atoms - drawn.atoms.sum(2, keepdims=True) * (drawn.counts / n_items)
    if not len(drawn.documents):
        return effects, None
    labels, _ = units_of(len(drawn.documents), drawn.documents)
    units: Numbers = np.add.reduceat(effects, np.flatnonzero(np.diff(labels, prepend=-1)), axis=2)
    return units, shares_of(labels, drawn.documents, drawn.counts)


class Moved:
    """A study whose arms are moved by known amounts: its intervals move with them.

    So each look is judged once for all amounts. Where ranks may decide (``is_rough``: always) it is
    judged anew, and so is the first study of every tenth batch (``is_checked``), which must come to
    the same.
    """

    def __init__(
        self, judge: JudgeLook, values: Numbers, *, is_rough: bool, is_checked: bool
    ) -> None:
        self._judge = judge
        self._values = values
        self._is_rough = is_rough
        self._is_checked = is_checked
        self._judged: dict[tuple[int, bytes], Sequence[Any]] = {}

    def verdicts(
        self, made: NDArray[np.bool_], looks: Sequence[int], moves: Numbers, margin: float | None
    ) -> list[str]:
        """Judge the runs that were made, ``[A, S]``, by a margin, the arms moved, ``[A]``."""
        from sublayer.statistics.judge import is_two_valued, separation_p

        moved = np.where(made, self._values + moves[:, None], np.nan)
        if self._is_rough:
            return [each.verdict for each in self._judge(moved, looks, margin)]
        key = looks[-1], made.tobytes()
        if key not in self._judged:
            values = np.where(made, self._values, np.nan)
            self._judged[key] = self._judge(values, looks, None)
        judged = self._judged[key]
        baseline, *arms = (own[~np.isnan(own)] for own in moved)
        by_ranks = any(each.by_ranks for each in judged) or is_two_valued(moved)
        if by_ranks or any(separation_p(own, baseline) for own in arms):
            return [each.verdict for each in self._judge(moved, looks, margin)]
        found = [
            _verdict(each, move - moves[0], margin)
            for each, move in zip(judged, moves[1:], strict=True)
        ]
        if self._is_checked:
            anew = [each.verdict for each in self._judge(moved, looks, margin)]
            assert anew == found, f"an interval did not move with its arm: {anew}, {found}"
        return found


def _verdict(judged: Any, move: float, margin: float | None) -> str:
    """Return the verdict on a difference whose interval is moved."""
    if judged.low is None:
        return str(judged.verdict)
    equivalent = abs(judged.mean + move) + judged.equivalent - abs(judged.mean)
    if margin is not None and equivalent < margin:
        return "no difference that matters"
    if judged.low + move <= 0.0 <= judged.high + move:
        return "cannot tell"
    return "better" if judged.high + move < 0.0 else "worse"


def verdicts(cell: Cell, study: Moved, moves: Numbers, margin: float | None) -> list[set[str]]:
    """Return all verdicts that a study gives on each arm but the baseline, at all of its looks.

    ``moves`` are the differences of arms, ``[A]``. Until decided, an arm that is decided makes no
    more runs, and its verdict stands; a study that goes on does so whatever it has said.
    """
    said: list[set[str]] = [set() for _ in range(cell.n_arms - 1)]
    made = np.zeros((cell.n_arms, cell.n_seeds), dtype=np.bool_)
    going_on = [True] * (cell.n_arms - 1)
    before = 0
    for n_looks, look in enumerate(cell.planned, 1):
        made[[True, *going_on], before:look] = True
        before = look
        found = study.verdicts(made, cell.planned[:n_looks], moves, margin)
        for index, verdict in enumerate(found):
            if going_on[index]:
                said[index].add(verdict)
        if cell.looks == "until decided":
            going_on = [
                is_on and verdict in ("cannot tell", "no verdict")
                for is_on, verdict in zip(going_on, found, strict=True)
            ]
            if not any(going_on):
                break
    return said


def run_batch(task: tuple[Cell, int, int]) -> dict[str, Any]:
    """Draw and judge the studies of one batch of a cell, and count the verdicts."""
    cell, batch, draws = task
    begun = time.process_time()
    rng = np.random.default_rng([zlib.crc32(cell.name.encode()), batch, draws])
    counts = {"alike": 0, "edge": 0, "sign": 0, "power": 0, "refused": 0, "t_alike": 0}
    found, found_t = [0] * len(DIFFERENCES), [0] * len(DIFFERENCES)
    is_two = cell.n_arms == 2
    signs = np.array([0.0] + [(-1.0) ** arm for arm in range(cell.n_arms - 1)])
    for number in range(BATCH):
        drawn = draw(cell, rng)
        study = Moved(
            package_judge(cell, drawn),
            drawn.values,
            is_rough=cell.noise == "two-valued",
            is_checked=not (number or batch % 10),
        )
        said = verdicts(cell, study, 0.0 * signs, None)
        counts["alike"] += any(each & {"better", "worse"} for each in said)
        counts["refused"] += any("no verdict" in each for each in said)
        counts["t_alike"] += is_two and paired_t(drawn.values, 0.0)
        margin = MARGIN * drawn.error
        said = verdicts(cell, study, signs * margin, margin)
        wrong = [
            {"no difference that matters", "better" if sign > 0 else "worse"} for sign in signs[1:]
        ]
        counts["edge"] += any(each & false for each, false in zip(said, wrong, strict=True))
        if number % (ROUGH_POWER_EVERY if cell.noise == "two-valued" else POWER_EVERY):
            continue
        counts["power"] += 1
        for index, difference in enumerate(DIFFERENCES):
            moves = np.zeros(cell.n_arms)
            moves[-1] = difference * drawn.unit
            last = verdicts(cell, study, moves, None)[-1]
            found[index] += "worse" in last
            counts["sign"] += "better" in last
            found_t[index] += is_two and paired_t(drawn.values, moves[-1])
    line = {"cell": cell.name, "batch": batch, "studies": BATCH, **counts, "found": found}
    if is_two:
        line["found_t"] = found_t
    return {**line, "seconds": round(time.process_time() - begun, 3)}


def paired_t(values: Numbers, move: float) -> bool:
    """Return whether a paired t test of all runs calls two arms different, the second moved."""
    pairs = values[1] - values[0] + move
    error = pairs.std(ddof=1) / np.sqrt(len(pairs))
    return bool(abs(pairs.mean()) > -stdtrit(len(pairs) - 1, 0.025) * error)


def run_grid(
    cells: Sequence[Cell], path: Path, *, studies: int, processes: int, draws: int, until: float
) -> None:
    """Draw batches of all cells, those that the file lacks, and add a line for each.

    Cells take turns; one whose batches take four times as long has half as many turns.
    """
    lines = read_lines(path)
    done = {(line["cell"], line["batch"]) for line in lines if "batch" in line}
    done |= {(line["cell"], n) for line in lines for n in range(line.get("batches", 0))}
    seconds = {cell.name: 1.0 for cell in cells}
    seconds.update((line["cell"], line["seconds"] / line.get("batches", 1)) for line in lines)
    waiting = {
        cell: [n for n in range(-(-studies // BATCH)) if (cell.name, n) not in done]
        for cell in cells
    }

    def tasks() -> Iterator[tuple[Cell, int, int]]:
        while any(waiting.values()) and time.time() < until:
            cell = min(
                (cell for cell in cells if waiting[cell]),
                key=lambda cell: (1 + waiting[cell][0]) * seconds[cell.name] ** 0.5,
            )
            yield cell, waiting[cell].pop(0), draws

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for line in _mapped(tasks(), processes):
            seconds[line["cell"]] = line["seconds"]
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()


def _mapped(tasks: Iterator[tuple[Cell, int, int]], processes: int) -> Iterator[dict[str, Any]]:
    """Run tasks in processes, as few of them ahead as keep all busy."""
    if processes == 1:
        yield from map(run_batch, tasks)
        return
    with multiprocessing.Pool(processes) as pool:
        waiting: list[Any] = []
        for task in tasks:
            waiting.append(pool.apply_async(run_batch, (task,)))
            while len(waiting) > processes:
                yield waiting.pop(0).get()
        for each in waiting:
            yield each.get()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a file; none where there is no file, and not one that was cut off."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            print(f"{path}: a line was cut off", file=sys.stderr)
    return lines


def sums(lines: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Add up the lines of each cell, and count its batches."""
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        own = found.setdefault(line["cell"], {})
        own["batches"] = own.get("batches", 0) + ("batch" in line)
        for name, value in line.items():
            if name in ("cell", "batch"):
                continue
            if isinstance(value, list):
                earlier = own.get(name, [0] * len(value))
                own[name] = [a + b for a, b in zip(earlier, value, strict=True)]
            else:
                own[name] = round(own.get(name, 0) + value, 3)
    return found


def exact_interval(count: int, n: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a share (Clopper and Pearson 1934)."""
    low = float(betaincinv(count, n - count + 1, 0.025)) if count else 0.0
    high = float(betaincinv(count + 1, n - count, 0.975)) if count < n else 1.0
    return low, high


def worst(own: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return the larger share of false studies of both kinds, with its interval."""
    count = max(own["alike"], own["edge"])
    return count / own["studies"], *exact_interval(count, own["studies"])


def suspicious(found: Mapping[str, Mapping[str, Any]], fewest: int = 300) -> list[str]:
    """Return the cells, the worst first, whose share of false studies may be above 5 %."""
    rates = {name: worst(own) for name, own in found.items() if own["studies"] >= fewest}
    names = [name for name, (rate, low, _) in rates.items() if low > ALLOWED or rate > SUSPICIOUS]
    return sorted(names, key=lambda name: -rates[name][0])


def table(
    found: Mapping[str, Mapping[str, Any]],
    before: Mapping[str, Mapping[str, Any]],
    again: Mapping[str, Mapping[str, Any]],
) -> Iterator[str]:
    """Yield a Markdown table of all cells, those of most false verdicts first."""

    def share(own: Mapping[str, Any] | None, name: str) -> str:
        return "–" if own is None else f"{own[name] / own['studies']:.1%}"

    yield (
        "| cell | alike, before | alike | 95 % CI | margin, before | margin | 95 % CI | studies "
        "| drawn again | power, before | power | paired t |"
    )
    yield "| --- | ---: | ---: | --- | ---: | ---: | --- | ---: | --- | --- | --- | --- |"
    for name, own in sorted(found.items(), key=lambda row: -worst(row[1])[0]):
        row = [name]
        for what in ("alike", "edge"):
            low, high = exact_interval(own[what], own["studies"])
            row += [share(before.get(name), what), share(own, what), f"{low:.1%} to {high:.1%}"]
        row.append(f"{own['studies']:,}")
        drawn_again = again.get(name)
        if drawn_again is None:
            row.append("")
        else:
            rate, low, high = worst(drawn_again)
            row.append(f"{rate:.1%}, {low:.1%} to {high:.1%}, of {drawn_again['studies']:,}")
        row += [power(before.get(name)), power(own), power(own, "found_t")]
        yield f"| {' | '.join(row)} |"


def power(own: Mapping[str, Any] | None, name: str = "found") -> str:
    """Return in how many of a hundred studies each of ``DIFFERENCES`` is found."""
    if own is None or not own["power"] or name not in own:
        return "–"
    return " ".join(f"{100 * count / own['power']:.0f}" for count in own[name])


def power_table(
    found: Mapping[str, Mapping[str, Any]], before: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Yield a Markdown table of the power of some cells."""
    sizes = ", ".join(f"{size:g}" for size in DIFFERENCES)
    yield f"| cell | found of 100 at {sizes} standard deviations, before | today | paired t |"
    yield "| --- | --- | --- | --- |"
    for name, own in found.items():
        row = [name, power(before.get(name)), power(own), power(own, "found_t")]
        yield f"| {' | '.join(row)} |"


def by_level(
    found: Mapping[str, Mapping[str, Any]], before: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Yield a Markdown table of the levels of all factors: false studies of the cells that have it.

    Of each cell the larger share counts, of arms that are alike or differ by the margin.
    """
    yield "| factor | level | cells | mean, before | worst, before | mean | worst |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    cells = [cell for cell in all_cells() if cell.name in found]
    for factor, levels in LEVELS.items():
        for level in levels:
            names = [cell.name for cell in cells if getattr(cell, factor) == level]
            row = []
            for rows in (before, found):
                rates = [worst(rows[name])[0] for name in names if name in rows]
                row += [f"{np.mean(rates):.1%}", f"{max(rates):.1%}"] if rates else ["–", "–"]
            shown = " ×".join(map(str, level)) if isinstance(level, tuple) else str(level)
            heading = factor.removeprefix("n_").replace("_", " ").replace("tuning", "tuning runs")
            yield f"| {heading} | {shown} | {len(names)} | {' | '.join(row)} |"


def weaker(
    found: Mapping[str, Mapping[str, Any]], before: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, float, float, int]]:
    """Yield cells whose power has fallen by two points, and in which the judge before erred not.

    That is the mean over the differences: name, before, now, studies of which it was asked before.
    """
    errs = set(suspicious(before, fewest=1))
    for name in found.keys() & before.keys():
        rates = [
            sum(own["found"]) / (own["power"] * len(DIFFERENCES))
            for own in (before[name], found[name])
        ]
        if name not in errs and rates[1] < rates[0] - 0.02:
            yield name, *rates, before[name]["power"]


def summary(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the summary of all cells."""
    rates = [worst(own) for own in found.values()]
    n_studies = sum(own["studies"] for own in found.values())
    hours = sum(own["seconds"] for own in found.values()) / 3600
    yield (
        f"{n_studies:,} studies of {len(found)} cells in {hours:.2f} hours of a processor: "
        f"{sum(rate > ALLOWED for rate, _, _ in rates)} cells above 5 %, of which "
        f"{sum(low > ALLOWED for _, low, _ in rates)} by their interval; "
        f"the worst {max(rates)[0]:.1%}."
    )


def main() -> None:
    """Draw cells, or lay out those drawn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=["draw", "table", "levels", "cells", "add"])
    parser.add_argument("file", nargs="?", type=Path, help="of lines, for table and add")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--studies", type=int, default=2000, help="of each cell")
    parser.add_argument("--minutes", type=float, default=1e6, help="after which no batch begins")
    parser.add_argument("--cells", default="", help="part of their names")
    parser.add_argument("--suspects-of", type=Path, help="lines whose suspicious cells are drawn")
    parser.add_argument("--package", type=Path, help="a checkout whose judge is asked")
    parser.add_argument("--draws", type=int, default=0, help="another number draws anew")
    parser.add_argument("--before", type=Path, help="lines of an earlier judge")
    parser.add_argument("--again", type=Path, help="lines of suspicious cells, drawn anew")
    options = parser.parse_args()
    cells = all_cells()
    if options.package is not None:
        sys.path.insert(0, str(options.package))
    if options.suspects_of is not None:
        names = suspicious(sums(read_lines(options.suspects_of)))
        cells = [cell for cell in cells if cell.name in names]
    cells = [cell for cell in cells if options.cells in cell.name]
    match options.what:
        case "cells":
            for cell in cells:
                print(cell.name)
            print(f"{len(cells)} cells; {len(uncovered(cells))} pairs of levels are missing")
        case "draw":
            if options.out is None:
                parser.error("draw: give --out")
            run_grid(
                cells,
                options.out,
                studies=options.studies,
                processes=options.processes,
                draws=options.draws,
                until=time.time() + 60 * options.minutes,
            )
        case "add":
            for name, own in sums(read_lines(options.file)).items():
                print(json.dumps({"cell": name, **own}, ensure_ascii=False))
        case _:
            lines, before, again = (
                [] if path is None else read_lines(path)
                for path in (options.file, options.before, options.again)
            )
            found = sums(lines)
            print("\n".join(summary(found)), end="\n\n")
            if options.what == "levels":
                print("\n".join(by_level(found, sums(before))), end="\n\n")
                plain = {cell.name for cell in cells if cell.is_plain}
                found = {name: own for name, own in found.items() if name in plain}
                print("\n".join(power_table(found, sums(before))))
                return
            print("\n".join(table(found, sums(before), sums(again))), end="\n\n")
            for name, then, now, n_studies in sorted(weaker(found, sums(before))):
                print(f"- less power: {name}: {then:.0%}, now {now:.0%}, of {n_studies} studies")


if __name__ == "__main__":
    main()
