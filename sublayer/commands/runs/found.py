"""Runs, comparisons and imported models below a folder, found by their files."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sublayer.commands.runs.comparison_row import RUNS, STUDY, comparison_row
from sublayer.commands.runs.row import Kind, Row
from sublayer.commands.runs.run_row import is_imported, model_row, run_row
from sublayer.config.layering.sources import RUN_RECIPE
from sublayer.errors import ConfigError, SublayerError

_READERS: dict[Kind, Callable[[Path], Row]] = {
    "run": run_row,
    "comparison": comparison_row,
    "model": model_row,
}
_DEEPEST = 6
"""Folders within each other that are looked into."""


def find_rows(folders: Sequence[Path], *, with_arms: bool) -> list[Row]:
    """Return a row for each run, comparison and imported model, the newest first.

    ``with_arms`` adds the single runs of comparisons. What cannot be read has a row that says why.
    Raises ConfigError for a folder that is not there.
    """
    rows: dict[Path, Row] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder} is not a folder: give one that holds runs, such as runs")
        for path, kind in find_folders(folder, with_arms=with_arms):
            rows.setdefault(path, _row(path, kind))
    return sorted(rows.values(), key=lambda row: row.when, reverse=True)


def find_folders(folder: Path, *, with_arms: bool) -> Iterator[tuple[Path, Kind]]:
    """Find what a folder holds and what each is, by the names of files alone."""
    for path in _holding(folder, _DEEPEST, with_arms=with_arms):
        kind: Kind = "model"
        if _is_comparison(path):
            kind = "comparison"
        elif os.path.lexists(path / RUN_RECIPE):
            kind = "run"
        yield path, kind


def _is_comparison(path: Path) -> bool:
    return os.path.lexists(path / STUDY) or os.path.lexists(path / RUNS)


def _holding(folder: Path, deepest: int, *, with_arms: bool) -> Iterator[Path]:
    is_study = _is_comparison(folder)
    if is_study or os.path.lexists(folder / RUN_RECIPE) or is_imported(folder):
        yield folder
        if not (is_study and with_arms):
            return
    if not deepest:
        return
    try:
        inside = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    except OSError:
        return  # what may not be looked into holds nothing for this user
    for each in inside:
        if each.is_dir() and not each.is_symlink():
            yield from _holding(each, deepest - 1, with_arms=with_arms)


def _row(path: Path, kind: Kind) -> Row:
    try:
        return _READERS[kind](path)
    except (SublayerError, OSError) as error:
        return Row(str(path), kind, "damaged", path.lstat().st_mtime, problem=str(error))
