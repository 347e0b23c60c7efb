"""How often verdicts err, cell by cell of a grid of simulated studies, and what they find.

    python benchmarks/verdict_errors.py draw --out errors.jsonl --processes 2 --studies 2000
    python benchmarks/verdict_errors.py draw --out errors.jsonl --cells "8 arms" --minutes 30
    python benchmarks/verdict_errors.py draw --out again.jsonl --draws 1 --suspects-of errors.jsonl
    python benchmarks/verdict_errors.py draw --out before.jsonl --package ../before
    python benchmarks/verdict_errors.py table errors.jsonl --before before.jsonl --again again.jsonl
    python benchmarks/verdict_errors.py cells

Of each study three things are asked. All arms are alike: any decision is false. All differ from the
baseline by the margin, up and down in turn: "no difference that matters" is false, as is a wrong
sign. One arm differs by 1 to 4 standard deviations of a run: it is found, or not, or with the wrong
sign. A study is false where any of its verdicts is, at any of its looks.

Studies are drawn in batches of twenty, in turn over all cells, and each batch is a line of the
file, so that it can be stopped and goes on where it was. Seeds follow from the cell's name, the
batch and ``--draws``.
"""

import argparse
import json
import multiprocessing
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import betaincinv, stdtrit
from verdict_cells import Cell, Draw, Numbers, all_cells, draw, uncovered

BATCH = 20
POWER_EVERY = 2
"""Of every so many studies power is asked, too."""
DIFFERENCES = (1.0, 2.0, 3.0, 4.0)
"""In standard deviations of a run."""
MARGIN = 20.0
"""In standard errors of the widest difference: wide enough that intervals lie inside of it."""
ALLOWED = 0.05
SUSPICIOUS = 0.06

JudgeLook = Callable[[Numbers, Sequence[int], float | None], list[str]]
"""Judge ``[A, S]`` values, NaN where no run was made, at the last of the looks that are given, by a
margin; return the verdict on each arm but the first."""


def package_judge(cell: Cell, drawn: Draw) -> JudgeLook:
    """Return the judge of the package, told what a study would tell it of such runs."""
    from sublayer.objective.metric import Metric
    from sublayer.statistics.judge import Evidence, judge
    from sublayer.statistics.looks import fixed, until_decided
    from sublayer.statistics.tuning import Tuned

    loss = Metric("loss", "loss", is_lower_better=True, from_items=None)
    effects = unit_effects(drawn, few_documents=20)
    arms = [str(arm) for arm in range(cell.n_arms)]

    def judge_look(values: Numbers, looks: Sequence[int], margin: float | None) -> list[str]:
        look = looks[-1]
        n_seeds = [int(np.isfinite(own[:look]).sum()) for own in values]
        known: dict[str, Any] = {"margin": margin, "resolution": 1e-6}
        if effects is not None:
            known["effects"] = {
                arm: dict(enumerate(effects[index, : n_seeds[index]]))
                for index, arm in enumerate(arms)
            }
        if drawn.trials is not None and drawn.validation is not None:
            known["tuned"] = {
                arm: Tuned(
                    tuple(drawn.trials[index].mean(1).tolist()),
                    cell.n_tuning,
                    dict(enumerate(drawn.validation[index, : n_seeds[index]].tolist())),
                )
                for index, arm in enumerate(arms)
            }
        if cell.looks == "until decided":
            level = until_decided(cell.n_seeds).levels((), cell.n_arms - 1)[look]
        else:
            level = fixed(look).levels(looks[:-1], cell.n_arms - 1)[look]
        judged = judge(
            arms[0],
            {
                arm: dict(enumerate(values[index, : n_seeds[index]].tolist()))
                for index, arm in enumerate(arms)
            },
            loss,
            planned_seeds=look,
            evidence=Evidence(**known),
            level=level,
        )
        return [each.verdict for each in judged.differences]

    return judge_look


def unit_effects(drawn: Draw, few_documents: int) -> Numbers | None:
    """Return by how much each unit of the test moves a run's score, ``[A, S, U]``, around 0.

    Units are documents from ``few_documents`` on; of fewer, stretches of neighbouring items.
    """
    if drawn.atoms is None:
        return None
    n_items = int(drawn.counts.sum())
    effects: Numbers = drawn.atoms - drawn.atoms.sum(2, keepdims=True) * (drawn.counts / n_items)
    if not len(drawn.documents):
        return effects
    firsts = np.searchsorted(drawn.documents, np.arange(drawn.documents[-1] + 2)).tolist()
    if len(firsts) > few_documents:
        starts = firsts[:-1]
    else:
        length = max(1, round(n_items ** (1 / 3) / float(drawn.counts.max())))
        starts = [start for first, end in pairwise(firsts) for start in range(first, end, length)]
    units: Numbers = np.add.reduceat(effects, starts, axis=2)
    return units


def verdicts(cell: Cell, values: Numbers, judge: JudgeLook, margin: float | None) -> list[set[str]]:
    """Return all verdicts that a study gives on each arm but the baseline, at all of its looks.

    Until decided, an arm that is decided makes no more runs, and its verdict stands; a study that
    goes on does so whatever it has said.
    """
    said: list[set[str]] = [set() for _ in range(cell.n_arms - 1)]
    made = np.full_like(values, np.nan)
    going_on = [True] * (cell.n_arms - 1)
    before = 0
    for n_looks, look in enumerate(cell.planned, 1):
        for arm in range(cell.n_arms):
            if arm == 0 or going_on[arm - 1]:
                made[arm, before:look] = values[arm, before:look]
        before = look
        found = judge(made, cell.planned[:n_looks], margin)
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
    """Draw and judge the studies of one batch of a cell, and count what was said."""
    cell, batch, draws = task
    begun = time.process_time()
    rng = np.random.default_rng([zlib.crc32(cell.name.encode()), batch, draws])
    counts = {"alike": 0, "edge": 0, "sign": 0, "power": 0, "refused": 0, "t_alike": 0}
    found, found_t = [0] * len(DIFFERENCES), [0] * len(DIFFERENCES)
    is_two = cell.n_arms == 2
    signs = np.array([0.0] + [(-1.0) ** arm for arm in range(cell.n_arms - 1)])[:, None]
    for study in range(BATCH):
        drawn = draw(cell, rng)
        judge = package_judge(cell, drawn)
        said = verdicts(cell, drawn.values, judge, None)
        counts["alike"] += any(each & {"better", "worse"} for each in said)
        counts["refused"] += any("no verdict" in each for each in said)
        counts["t_alike"] += is_two and paired_t(drawn.values)
        margin = MARGIN * drawn.error
        said = verdicts(cell, drawn.values + signs * margin, judge, margin)
        wrong = [
            {"no difference that matters", "better" if sign > 0 else "worse"}
            for sign in signs[1:, 0]
        ]
        counts["edge"] += any(each & false for each, false in zip(said, wrong, strict=True))
        if study % POWER_EVERY:
            continue
        counts["power"] += 1
        for index, difference in enumerate(DIFFERENCES):
            moved = drawn.values.copy()
            moved[-1] += difference * drawn.unit
            last = verdicts(cell, moved, judge, None)[-1]
            found[index] += "worse" in last
            counts["sign"] += "better" in last
            found_t[index] += is_two and paired_t(moved)
    line = {"cell": cell.name, "batch": batch, "studies": BATCH, **counts, "found": found}
    if is_two:
        line["found_t"] = found_t
    return {**line, "seconds": round(time.process_time() - begun, 3)}


def paired_t(values: Numbers) -> bool:
    """Return whether a paired t test of two arms' runs, all of them, calls them different."""
    pairs = values[1] - values[0]
    error = pairs.std(ddof=1) / np.sqrt(len(pairs))
    return bool(abs(pairs.mean()) > -stdtrit(len(pairs) - 1, 0.025) * error)


def run_grid(
    cells: Sequence[Cell], path: Path, *, studies: int, processes: int, draws: int, until: float
) -> None:
    """Draw batches in turn over the cells, those that the file lacks, and add a line for each."""
    done = {(line["cell"], line["batch"]) for line in read_lines(path)}

    def tasks() -> Iterator[tuple[Cell, int, int]]:
        for batch in range(-(-studies // BATCH)):
            for cell in cells:
                if time.time() > until:
                    return
                if (cell.name, batch) not in done:
                    yield cell, batch, draws

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for line in _mapped(tasks(), processes):
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
    """Add up the lines of each cell."""
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        own = found.setdefault(line["cell"], {})
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

    def power(own: Mapping[str, Any] | None, name: str = "found") -> str:
        if own is None or not own["power"] or name not in own:
            return "–"
        return " ".join(f"{count / own['power']:.0%}"[:-1] for count in own[name])

    yield (
        "| cell | alike, before | alike | 95 % CI | at the margin | 95 % CI | studies | again "
        "| power, before | power | paired t |"
    )
    yield "| --- | ---: | ---: | --- | ---: | --- | ---: | --- | --- | --- | --- |"
    for name, own in sorted(found.items(), key=lambda row: -worst(row[1])[0]):
        row = [name, share(before.get(name), "alike")]
        for what in ("alike", "edge"):
            low, high = exact_interval(own[what], own["studies"])
            row += [share(own, what), f"{low:.1%} to {high:.1%}"]
        row.append(f"{own['studies']:,}")
        drawn_again = again.get(name)
        if drawn_again is None:
            row.append("")
        else:
            rate, low, high = worst(drawn_again)
            row.append(f"{rate:.1%}, {low:.1%} to {high:.1%}, of {drawn_again['studies']:,}")
        row += [power(before.get(name)), power(own), power(own, "found_t")]
        yield f"| {' | '.join(row)} |"


def summary(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield what is said of all cells together."""
    rates = [worst(own) for own in found.values()]
    n_studies = sum(own["studies"] for own in found.values())
    hours = sum(own["seconds"] for own in found.values()) / 3600
    yield (
        f"{n_studies:,} studies of {len(found)} cells in {hours:.1f} hours of a processor: "
        f"{sum(rate > ALLOWED for rate, _, _ in rates)} cells above 5 %, of which "
        f"{sum(low > ALLOWED for _, low, _ in rates)} by their interval; "
        f"the worst {max(rates)[0]:.1%}."
    )


def main() -> None:
    """Draw cells, or lay out what was drawn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=["draw", "table", "cells", "add"])
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
        case "table":
            found = sums(read_lines(options.file))
            before, again = (
                {} if path is None else sums(read_lines(path))
                for path in (options.before, options.again)
            )
            print("\n".join(summary(found)), end="\n\n")
            print("\n".join(table(found, before, again)))


if __name__ == "__main__":
    main()
