"""How rows are printed: a line of columns, and below it what it was and how it is resumed."""

import os
import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from sublayer.commands.runs.row import Row, Score
from sublayer.config.fields.messages import LONGEST_VALUE, show
from sublayer.counts import count
from sublayer.system.terminal import page_width, paragraph

_HEADINGS = ("folder", "when", "how good", "steps", "time")
_UNITS = {
    "bits_per_byte": ("", " bits/byte", 1.0, 3),
    "bleu": ("BLEU ", "", 1.0, 2),
    "mlm_accuracy": ("MLM ", " %", 100.0, 1),
    "loss": ("loss ", " nats", 1.0, 3),
}
"""What stands before and after each figure, its factor, and its decimals."""
_LONGEST_FOLDER = 22
"""Characters of a folder beside the other columns; a longer one has a line of its own."""
_DETAIL = "    "
_THEN = "&&"
_MINUTE_S, _HOUR_S = 60.0, 3600.0


def render(rows: Sequence[Row]) -> str:
    """Format rows, the first at the top."""
    cells = [_cells(row) for row in rows]
    widths = []
    for column in zip(_HEADINGS, *cells, strict=True):
        fitting = [len(cell) for cell in column if column[0] != "folder" or not _is_long(cell)]
        widths.append(max(fitting))
    lines = [_line(_HEADINGS, widths)]
    for row, line in zip(rows, cells, strict=True):
        folder, *others = line
        if _is_long(folder):
            lines.append(folder)
            folder = ""
        lines.append(_line((folder, *others), widths))
        lines += _details(row)
    return "\n".join(lines)


def _is_long(folder: str) -> bool:
    return len(folder) > _LONGEST_FOLDER


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(padded).rstrip()


def _cells(row: Row) -> tuple[str, ...]:
    return (row.folder, _when(row.when), _how_good(row), _steps(row), _time(row.seconds))


def _when(seconds: float) -> str:
    if not seconds:
        return "?"
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def _how_good(row: Row) -> str:
    if row.state == "damaged":
        return "damaged"
    if row.state == "failed":
        return "failed"
    if row.kind == "comparison":
        return "" if row.state == "finished" else row.state
    return "" if row.score is None else format_score(row.score)


def format_score(score: Score) -> str:
    """Format a figure with its unit, and the split where it is not the validation split."""
    before, after, factor, decimals = _UNITS[score.name]
    split = " (test)" if score.split == "test" else ""
    return f"{before}{score.value * factor:.{decimals}f}{after}{split}"


def _steps(row: Row) -> str:
    if row.kind == "comparison":
        if row.planned is None:
            return count(row.finished or 0, "run")
        return f"{row.finished} of {count(row.planned, 'run')}"
    if row.step is None:
        return ""
    if row.state == "finished" or row.steps is None:
        return f"{row.step:,}"
    return f"{row.step:,} of {row.steps:,}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    return f"{seconds / _HOUR_S:.1f} h"


def _details(row: Row) -> list[str]:
    texts = [_what(row), row.headline, row.problem]
    lines = [paragraph(text, indent=_DETAIL) for text in texts if text]
    if row.state == "running":
        lines.append(f"{_DETAIL}running now")
    if row.resume:
        lines.append(_command(row.resume))
    return lines


def _what(row: Row) -> str:
    if row.kind == "comparison":
        seeds = f", {count(row.seeds, 'seed')}" if row.seeds else ""
        return f"comparison of {', '.join(row.arms)}{seeds}"
    if row.state == "damaged":
        return ""
    parts = [row.recipe or row.title or "a recipe without a title"]
    if row.model:
        parts.append(f"({row.model})")
    parts += [f"{key}={_value(value)}" for key, value in row.changed.items()]
    return " ".join(parts)


def _value(value: Any) -> str:
    if not isinstance(value, str):
        return show(value)
    here = f"{Path.cwd()}{os.sep}"
    return value.removeprefix(here)[-LONGEST_VALUE:]


def _command(command: str) -> str:
    """Format a command that can be copied: on a line, or on several that the shell joins."""
    lines = []
    line = _DETAIL.removesuffix(" ")
    for word in shlex.split(command):
        quoted = word if word == _THEN else shlex.quote(word)
        if len(line) + 1 + len(quoted) > page_width() - 2 and line.strip():
            lines.append(f"{line} \\")
            line = f"{_DETAIL} "
        line = f"{line} {quoted}"
    return "\n".join([*lines, line])
