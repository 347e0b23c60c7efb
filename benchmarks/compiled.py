"""Contestants under ``torch.compile`` on a CPU: who is one, and from which length of a run it pays.

Each has a row of its own: steady tokens a second, in turn with all others, and the seconds that
its first steps take beyond steady ones, with an empty cache of compiled code.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from contestants import OURS, Setup

S = TypeVar("S", bound=Setup)

MINUTES = 40.0
"""For all cases, where half of the contestants are compiled first."""


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add the choice to leave compiled contestants out."""
    parser.add_argument(
        "--compiled",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="on a CPU, each contestant under torch.compile as well: half a minute and more each; "
        "skipped, with the reason, where there is no C++ compiler",
    )


def why_not(device: str, *, is_asked: bool) -> str | None:
    """Return why no contestant is compiled apart, or None where all are."""
    if not is_asked:
        return "it was not asked for"
    if device != "cpu":
        return "on a GPU every contestant is"
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return "there is no C++ compiler: install g++, or name one by CXX"
    return None


def with_compiled(setups: Iterable[S], why_not: str | None) -> list[S]:
    """List setups, and behind them the same compiled, unless there is a reason against it."""
    plain = list(setups)
    apart = plain if why_not is None else []
    return [*plain, *(replace(setup, compiles=True) for setup in apart)]


def pays_from_s(*, plain: float, compiled: float, starting_s: float) -> float | None:
    """Return the seconds of an uncompiled run from which it would take less time compiled.

    ``plain`` and ``compiled`` are tokens a second; compiled, a run begins ``starting_s`` later.
    None where compiling is not faster.
    """
    return starting_s / (1 - plain / compiled) if compiled > plain else None


def compare(
    contestants: Sequence[dict[str, Any]], why_left_out: Mapping[str, str]
) -> dict[str, Any]:
    """Say in each compiled contestant's row from when it pays; compare with compiled peers.

    ``contestants`` are rows as ``report.compare`` makes them, fastest first. The faster of our rows
    counts, since a run compiles its activations where that shortens it.
    """
    rows = {row["name"]: row for row in contestants}
    compiled = {name: row for name, row in rows.items() if row["starting_s"] is not None}
    for row in compiled.values():
        if row["contestant"] == OURS:
            row["pays_from_s"] = None
            continue
        plain = rows[row["contestant"]]["tokens_per_s"]
        row["pays_from_s"] = pays_from_s(
            plain=plain, compiled=row["tokens_per_s"], starting_s=row["starting_s"]
        )
    ours = max(row["tokens_per_s"] for row in rows.values() if row["contestant"] == OURS)
    peers = [row["tokens_per_s"] for row in compiled.values() if row["contestant"] != OURS]
    return {
        "speed_over_fastest_compiled_peer": ours / max(peers) if peers else None,
        "not_compiled": dict(why_left_out),
    }


def cells(row: Mapping[str, Any]) -> list[str]:
    """Write the two columns of compilation of a row."""
    if row["starting_s"] is None:
        return ["", ""]
    if row["contestant"] == OURS:  # compiles while it is set up, which is not timed
        return ["in set-up", ""]
    pays = row["pays_from_s"]
    return [f"{row['starting_s']:.0f} s", "never" if pays is None else f"{pays / 60:.1f} min"]


def lines(case: Mapping[str, Any]) -> list[str]:
    """Write our speed, compiled or not, over that of compiled peers, and what is not compiled."""
    over, aim = case["speed_over_fastest_compiled_peer"], "aim 1.15 without dropout"
    said = [] if over is None else [f"{over:.2f} times the fastest compiled peer ({aim})."]
    said += [f"Not compiled: {name}: {reason}." for name, reason in case["not_compiled"].items()]
    return [text for sentence in said for text in ("", sentence)]
