"""Hunt seeded faults: which tests reach each, and does one of them fail while it is applied?

    python -m tests.faults draw --seed 46 --count 140
    python -m tests.faults record NAME         # which tests reach what: one run of all of them
    python -m tests.faults hunt NAME           # apply each, run what reaches it, quickest first
    python -m tests.faults show NAME           # found and missed, by kind

Work goes on in copies of a commit below ``--work``. The recorded coverage
(``NAME-tests.json.xz``) and the results (``NAME.jsonl``) are kept beside this file; a command
that is run again continues with what is missing.
"""

import argparse
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import asdict
from pathlib import Path

from tests.faults import draw
from tests.faults.draw import Fault

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
FAULTS = HERE / "faults.json"
CHUNK_S = 30.0
"""Seconds of tests in the first chunk that is run for a fault; the next has three times as many."""


def read_faults() -> list[Fault]:
    return [Fault(**row) for row in json.loads(FAULTS.read_text())["faults"]]


def read_unchanging() -> dict[int, str]:
    """Faults that change nothing, with the reason."""
    return {int(n): why for n, why in json.loads(FAULTS.read_text())["unchanging"].items()}


def recorded(name: str) -> Path:
    """Name the file of the tests that reach each fault, with the seconds of each test."""
    return HERE / f"{name}-tests.json.xz"


def chosen_faults(n_faults: int) -> list[Fault]:
    """The first faults that change something."""
    unchanging = read_unchanging()
    return [fault for fault in read_faults() if fault.number not in unchanging][:n_faults]


def draw_all(seed: int, n_faults: int) -> None:
    faults = draw.draw(PROJECT / "sublayer", seed, n_faults)
    rows = {"seed": seed, "faults": [asdict(fault) for fault in faults], "unchanging": {}}
    FAULTS.write_text(json.dumps(rows, indent=1) + "\n")


def copy_commit(commit: str, folder: Path) -> None:
    """Lay the files of a commit into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "archive", commit], cwd=PROJECT, check=True, capture_output=True
    )
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    # Tests that call the project's own environment by its path find it.
    (folder / ".venv").symlink_to(PROJECT / ".venv")


def environment(tree: Path, notes: Path | None = None) -> dict[str, str]:
    data = os.environ.get("SUBLAYER_TEST_DATA", str(PROJECT.parent / "shared" / "data"))
    own = {"PYTHONPATH": str(tree), "SUBLAYER_TEST_DATA": data, "PYTHONDONTWRITEBYTECODE": "1"}
    return {**os.environ, **own, **({"SUBLAYER_FAULTS": str(notes)} if notes else {})}


def instrument(tree: Path, faults: list[Fault]) -> None:
    """Call ``reach`` before the statement of each fault in a function."""
    insertions = defaultdict(list)
    for fault in faults:
        found = draw.locate(fault, tree)
        if found is not None and draw.is_in_function(found[1]):
            statement = draw.statement_of(found[1])
            insertions[found[0]].append((statement.lineno, statement.col_offset, fault.number))
    for path, calls in insertions.items():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        for line, column, number in sorted(calls, reverse=True):
            call = f'__import__("sublayer._reached", fromlist=["reach"]).reach({number})'
            # A process that runs apart from the package reads its own file alone.
            guarded = (f"try: {call}", "except ImportError: pass")
            lines[line - 1 : line - 1] = [" " * column + each + "\n" for each in guarded]
        path.write_text("".join(lines), encoding="utf-8")
    shutil.copy(HERE / "reached.py", tree / "sublayer" / "_reached.py")


def record(name: str, commit: str, work: Path, marks: str, processes: int) -> None:
    """Run all tests once, and keep for each fault the tests that reach it, the quickest first."""
    tree, notes = work / "record", work / f"notes-{name}"
    copy_commit(commit, tree)
    instrument(tree, read_faults())
    notes.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(processes), "-p"]
    command += ["tests.faults.recorder", "--dist", "worksteal", *(["-m", marks] if marks else [])]
    subprocess.run(command, cwd=tree, env=environment(tree, notes), check=False)
    summarize(name, notes)


def summarize(name: str, notes: Path) -> None:
    def rows(kind: str) -> list[list]:
        paths = sorted(notes.glob(f"{kind}-*"))
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]

    seconds: Counter[str] = Counter()
    failed = set()
    passed = set()
    for test, when, outcome, duration in rows("reports"):
        seconds[test] += duration
        if outcome == "failed":
            failed.add(test)
        if when == "call" and outcome == "passed":
            passed.add(test)
    users = defaultdict(set)
    for test, fixtures in rows("fixtures"):
        for fixture in fixtures:
            users[fixture].add(test)
    reached = defaultdict(set)
    for path in sorted(notes.glob("reached-*")):
        for line in path.read_text().splitlines():
            number, _, test = line.partition("\t")
            test = re.sub(r" \((setup|call|teardown)\)$", "", test)
            reached[int(number)] |= users[test] if test.startswith("fixture ") else {test}
    good = passed - failed
    result = {
        "seconds": {test: round(seconds[test], 2) for test in sorted(good)},
        "failed": sorted(failed),
        "reached": {
            number: sorted(tests & good, key=lambda test: seconds[test])
            for number, tests in sorted(reached.items())
        },
    }
    recorded(name).write_bytes(lzma.compress(json.dumps(result).encode()))
    print(f"{len(good)} tests passed, {len(failed)} failed; {len(reached)} faults are reached")


def chunks(tests: list[str], seconds: dict[str, float]) -> list[list[str]]:
    """Cut tests into ever longer chunks, each started once."""
    cut: list[list[str]] = [[]]
    left = CHUNK_S
    for test in tests:
        cut[-1].append(test)
        left -= seconds[test] + 0.02
        if left < 0:
            cut.append([])
            left = CHUNK_S * 3 ** (len(cut) - 1)
    return [chunk for chunk in cut if chunk]


def within(tests: list[str], seconds: dict[str, float], limit_s: float) -> list[str]:
    """Return the first tests, as many as take so long together."""
    total, kept = 0.0, 0
    while kept < len(tests) and total < limit_s:
        total += seconds[tests[kept]]
        kept += 1
    return tests[:kept]


def collect(tree: Path) -> set[str]:
    """Return the ids of all tests of a tree; raise SystemExit where a file has an error."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q"]
    ended = subprocess.run(
        command, cwd=tree, env=environment(tree), capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise SystemExit(f"tests cannot be collected: {ended.stdout.strip()[-1000:]}")
    return {line for line in ended.stdout.splitlines() if "::" in line}


def keep_tests(
    known: dict[str, dict], existing: set[str]
) -> tuple[dict[str, float], dict[str, list[str]]]:
    """Return the seconds of recorded tests, and those that reach each fault, without stale ones."""
    seconds = {test: taken for test, taken in known["seconds"].items() if test in existing}
    reached = {
        number: [test for test in tests if test in existing]
        for number, tests in known["reached"].items()
    }
    return seconds, reached


def run_tests(tree: Path, tests: list[str], work: Path) -> tuple[int, str]:
    """Run tests in order until one fails; return pytest's exit code and the test that failed."""
    (work / "arguments").write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--timeout=600", "-rfE", "--tb=no"]
    ended = subprocess.run(
        [*command, f"@{work / 'arguments'}"],
        cwd=tree,
        env=environment(tree),
        capture_output=True,
        text=True,
        check=False,
    )
    named = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", ended.stdout, re.MULTILINE)
    if ended.returncode == 4 and (lost := re.search("ERROR: not found: .*", ended.stderr)):
        return 4, lost[0]
    return ended.returncode, named[1] if named else ended.stdout.strip()[-200:]


def hunt(
    name: str, commit: str, work: Path, part: int, of: int, only: list[int], limit_s: float
) -> None:
    """Apply one fault after the other to a copy, and run the tests that reach it.

    What stays undetected by tests of ``limit_s`` recorded seconds counts as missed.
    """
    results = HERE / f"{name}.jsonl"
    known = json.loads(lzma.decompress(recorded(name).read_bytes()))
    mine = work / f"{name}-{part}"
    copy_commit(commit, mine)
    seconds, reached = keep_tests(known, collect(mine))
    n_recorded = len(known["seconds"])
    print(f"{n_recorded - len(seconds)} of {n_recorded} recorded tests no longer exist: left out")
    for fault in read_faults():
        done = results.read_text().splitlines() if results.exists() else []
        if fault.number in {json.loads(line)["fault"] for line in done}:
            continue
        if fault.number % of != part or (only and fault.number not in only):
            continue
        copy_commit(commit, mine)
        began = time.monotonic()
        row: dict[str, object] = {"fault": fault.number, "found": False, "by": ""}
        tests = reached.get(str(fault.number), [])
        try:
            place = draw.locate(fault, mine)
            path = draw.apply(fault, mine)
            if place is not None and not draw.is_in_function(place[1]):
                tests = _by_package(path, mine, seconds)
            elif not tests:  # in a process that runs apart, or nowhere
                tests = [each for each in seconds if each.startswith(_package(path, mine))]
        except (LookupError, SyntaxError) as error:
            row["by"] = str(error)
            tests = []
        tests = within(tests, seconds, limit_s)
        for chunk in chunks(tests, seconds):
            code, by = run_tests(mine, chunk, mine)
            if code == 4 and "::" in by:
                raise SystemExit(f"fault {fault.number}: {by}")
            if code not in (0, 5):
                row |= {"found": True, "by": by}
                break
        row |= {"tests": len(tests), "seconds": round(time.monotonic() - began)}
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)


def _package(path: Path, tree: Path) -> str:
    return f"tests/{path.relative_to(tree / 'sublayer').parts[0]}/"


def _by_package(path: Path, tree: Path, seconds: dict[str, float]) -> list[str]:
    """Order all tests: first those of the same package, then the others, the quickest first."""
    package = _package(path, tree)
    return sorted(seconds, key=lambda test: (not test.startswith(package), seconds[test]))


def show(names: list[str], n_faults: int) -> None:
    """Print found and missed by kind, and what was missed."""
    faults = {fault.number: fault for fault in chosen_faults(n_faults)}
    for name in names:
        lines = (HERE / f"{name}.jsonl").read_text().splitlines()
        rows = {row["fault"]: row for row in map(json.loads, lines) if row["fault"] in faults}
        found = {number for number, row in rows.items() if row["found"]}
        print(f"{name}: {len(found)} of {len(rows)} found")
        for kind in draw.KINDS:
            of_kind = [number for number in rows if faults[number].kind == kind]
            print(f"  {kind}: {sum(n in found for n in of_kind)} of {len(of_kind)}")
        for number in sorted(set(rows) - found):
            fault = faults[number]
            print(f"  missed {number}: {fault.module} {fault.function}: {fault.before}"[:150])
            print(
                f"      -> {fault.after[:120]} ({rows[number]['tests']} tests) {rows[number]['by']}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("do", choices=["draw", "record", "summarize", "hunt", "show"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seed", type=int, default=46)
    parser.add_argument("--count", type=int, default=100, help="faults to draw, or to show")
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--work", type=Path, default=PROJECT / "build" / "faults")
    parser.add_argument("--marks", default="", help="pytest's -m")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--part", type=int, default=0, help="the part of this process, of --of")
    parser.add_argument("--of", type=int, default=1)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of tests for a fault")
    parser.add_argument("--only", type=int, nargs="*", default=[])
    told = parser.parse_args()
    if told.do == "draw":
        draw_all(told.seed, told.count)
    elif told.do == "record":
        record(told.names[0], told.commit, told.work, told.marks, told.processes)
    elif told.do == "summarize":
        summarize(told.names[0], told.work / f"notes-{told.names[0]}")
    elif told.do == "hunt":
        hunt(told.names[0], told.commit, told.work, told.part, told.of, told.only, told.limit)
    else:
        show(told.names, told.count)
