"""Lay out how often verdicts err and what they find, as ``benchmarks/verdicts.py`` drew it."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


def verdict_tables(folder: Path) -> list[str]:
    """Return the tables of a folder that ``verdicts.py`` has written into."""
    record = _read(folder / "simulate.json")
    lines = [*_alike(record["alike"]), *_items(record["items"])]
    if (folder / "runs.json").exists():
        lines += _drawn(_read(folder / "runs.json")["runs"])
    lines += _power(record["power"])
    if (folder / "looks.json").exists():
        lines += _looks(_read(folder / "looks.json")["looks"])
    if (folder / "peeking.json").exists():
        lines += _peeking(_read(folder / "peeking.json")["peeking"])
    return lines


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _table(title: str, headings: Sequence[str], rows: Iterator[Sequence[str]]) -> list[str]:
    lines = [title, "", f"| {' | '.join(headings)} |", f"|{' ---: |' * len(headings)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return [*lines, ""]


def _interval(share: dict[str, float]) -> list[str]:
    return [f"{share['share']:.1%}", f"{share['low']:.1%} to {share['high']:.1%}"]


def _alike(rows: Sequence[dict[str, Any]]) -> list[str]:
    def cells() -> Iterator[list[str]]:
        for row in rows:
            spreads = "alike" if row["spreads"] is None else " : ".join(map(str, row["spreads"]))
            shown = [str(row["arms"]), str(row["seeds"]), f"{row['correlation']:g}", spreads]
            yield [*shown, *_interval(row["now"]), f"{row['before']['share']:.1%}"]

    headings = ("arms", "seeds", "correlation by seed", "spreads", "today", "95 % CI", "before")
    n_studies = f"{rows[0]['studies']:,}"
    title = f"Arms that are alike: the share of {n_studies} comparisons with a false verdict."
    return _table(title, headings, cells())


def _items(rows: Sequence[dict[str, Any]]) -> list[str]:
    def cells() -> Iterator[list[str]]:
        for row in rows:
            shown = [str(row["arms"]), str(row["seeds"])]
            yield [*shown, *_interval(row["now"]), f"{row['before']['share']:.1%}"]

    title = "Models without skill, each arm with a taste of its own for 470 test items: the same."
    return _table(title, ("arms", "seeds", "today", "95 % CI", "before"), cells())


def _drawn(rows: Sequence[dict[str, Any]]) -> list[str]:
    def cells() -> Iterator[list[str]]:
        for row in rows:
            shown = [row["metric"], str(row["runs"]), row["how"], str(row["arms"])]
            yield [*shown, str(row["seeds"]), *_interval(row["now"])]

    headings = ("metric", "runs", "how", "arms", "seeds", "today", "95 % CI")
    return _table(
        "Arms that are alike, drawn from runs that were made: the same.", headings, cells()
    )


def _power(rows: Sequence[dict[str, Any]]) -> list[str]:
    def cells() -> Iterator[list[str]]:
        for row in rows:
            numbers = (row["arms"], row["seeds"], row["correlation"], row["effect"])
            shown = [f"{number:g}" for number in numbers]
            yield [*shown, f"{row['now']:.0%}", f"{row['before']:.0%}"]

    title = "Arms that differ, by so many standard deviations over seeds: the share that is found."
    headings = ("arms", "seeds", "correlation by seed", "difference", "today", "before")
    return _table(title, headings, cells())


def _looks(rows: Sequence[dict[str, Any]]) -> list[str]:
    def cells() -> Iterator[list[str]]:
        for row in rows:
            fixed = row["fixed_runs"]
            shown = [str(row["arms"]), f"{row['effect']:g}", f"{row['margin']:g}"]
            shown += [f"{row['decided']:.0%}", f"{row['wrong']:.1%}", f"{row['runs']:.1f}"]
            saved = "–" if fixed is None else f"{1 - row['runs'] / fixed:.0%}"
            yield [*shown, "–" if fixed is None else str(fixed), saved]

    planned = ", ".join(map(str, rows[0]["looks"]))
    title = (
        f"Stopping where it is decided, with looks at {planned} seeds, beside the fixed number of "
        "seeds that decides as many arms."
    )
    headings = (
        "arms", "difference", "margin", "decided", "wrong", "runs", "runs, fixed", "saved",
    )  # fmt: skip
    return _table(title, headings, cells())


def _peeking(rows: Sequence[dict[str, Any]]) -> list[str]:
    def cells() -> Iterator[list[str]]:
        for row in rows:
            yield [str(row["arms"]), *_interval(row["every_look"]), *_interval(row["last_look"])]

    planned = ", ".join(map(str, rows[0]["looks"]))
    title = (
        f"Arms that are alike, looked at with {planned} seeds by the rule before, up to the first "
        f"verdict: the share of {rows[0]['studies']:,} comparisons with one, and of those with one "
        "at the last look."
    )
    return _table(title, ("arms", "any look", "95 % CI", "last look", "95 % CI"), cells())
