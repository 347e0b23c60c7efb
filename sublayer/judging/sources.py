"""Sources of runs to judge: tables, folders of runs, arrays."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.errors import ConfigError, DataError
from sublayer.judging.layout import (
    KNOWN,
    ROLES,
    Asked,
    RunName,
    Understood,
    understand_tables,
)
from sublayer.judging.runs import Records
from sublayer.judging.tables import Coded, Table, read_table, table_of_rows
from sublayer.values import is_frame, plain


def read_paths(paths: Sequence[Path], asked: Asked) -> Understood:
    """Read files and folders as records, and say how they were understood.

    Raises DataError for unreadable sources, ConfigError for doubtful ones.
    """
    namer = RunName.of(asked.names)
    twice = next((path for path, n in Counter(map(os.path.abspath, paths)).items() if n > 1), None)
    if twice is not None:
        raise ConfigError(f"{os.path.relpath(twice)} is given twice: name each source once")
    parts: list[Understood] = []
    tables: list[Table] = []
    for path in paths:
        if not path.exists():
            raise ConfigError(f"there is no {path}: name a table or a folder of runs")
        if path.is_dir() or path.name.startswith("samples_"):
            # Which takes longer to import than what tables need.
            from sublayer.judging.folders import read_folder, runs_below

            parts += [read_folder(each, asked, namer) for each in runs_below(path)]
        else:
            tables.append(read_table(path))
    if tables:
        found = understand_tables(tables, asked, n_sources=len(paths))
        parts.append(found)
        unused = next((each for each in _OF_SAMPLES if getattr(asked, each)), "")
        if unused and len(tables) == len(paths):
            raise ConfigError(f"--{unused} is of samples, and none are given: leave it out")
    elif unused := next((each for each in _OF_TABLES if getattr(asked, each)), ""):
        raise ConfigError(f"--{unused} is of tables, and none is given: leave it out")
    return _together(parts, [str(path) for path in paths])


_OF_SAMPLES = ("task", "filter")
_OF_TABLES = ("arm", "seed", "item", "step")


def _together(parts: Sequence[Understood], paths: Sequence[str]) -> Understood:
    """Put what sources hold together, in their order; without items where some have none."""
    splits = dict.fromkeys(part.split for part in parts if part.split)
    if len(splits) > 1:
        raise ConfigError(
            f"runs were scored on different splits, {' and '.join(splits)}: score all on one, as "
            "sublayer compare RUN RUN does"
        )
    metrics = dict.fromkeys(part.metric for part in parts)
    if len(metrics) > 1:
        raise ConfigError(
            f"the sources have different metrics, {' and '.join(metrics)}: give --value NAME, one "
            "that all have"
        )
    said = [line for part in parts for line in part.said]
    has_items = {record.item is not None for part in parts for record in part.records}
    records = [record for part in parts for record in part.records]
    if len(has_items) > 1 and any(part.without_items for part in parts):
        records = [each for part in parts for each in part.without_items or part.records]
        said.append("items are not used, as some sources have none")
    order = {path: place for place, path in enumerate(paths)}
    records.sort(key=lambda each: _place(each.source, order))
    directed = next((part for part in parts if part.is_lower_better is not None), parts[0])
    return Understood(
        tuple(records), next(iter(metrics)), tuple(said), directed.is_lower_better, directed.why
    )


def _place(source: str, order: Mapping[str, int]) -> int:
    """Return the place of the path that a source is, or is below."""
    parents = [source, *map(str, Path(source).parents)]
    return next((order[parent] for parent in parents if parent in order), 0)


def read_objects(given: Sequence[Any], asked: Asked) -> Understood:
    """Read what Python holds: paths, DataFrames, arrays ``[seed]`` or ``[seed, item]``, mappings.

    A mapping is of arms to such arrays, where it is alone, or of seeds to numbers or items; with
    a column that is known or asked for it is a table. The index of a Series is its seeds. Several
    are arms, the first ``base``, the next ``new``. Raises as ``read_paths`` does.
    """
    if not given:
        raise ConfigError("nothing is given: give scores of two arms or more")
    kinds = [_kind(each, asked) for each in given]
    if len(set(kinds)) > 1:
        raise ConfigError(
            f"{' and '.join(dict.fromkeys(kinds))} are given together: give all scores as one kind"
        )
    if kinds[0] == "paths":
        return read_paths([Path(each) for each in given], asked)
    names = ["base", "new", *(f"new {place}" for place in range(2, len(given)))]
    if kinds[0] == "tables":
        tables = [table_of_rows(name, each) for name, each in zip(names, given, strict=False)]
        return understand_tables([table for table in tables if table is not None], asked)
    arms = dict(zip(names, given, strict=False))
    if len(given) == 1:
        if not isinstance(given[0], Mapping) or not given[0]:
            raise ConfigError(
                f"{type(given[0]).__name__} is given alone: give scores of two arms or more, or a "
                "mapping of arms to scores"
            )
        arms = {str(name): scores for name, scores in given[0].items()}
    for role in (*ROLES, "value", "names", *_OF_SAMPLES):
        if getattr(asked, role):
            raise ConfigError(f"{role} = {getattr(asked, role)!r} has no effect on arrays")
    records = [_of_array(name, scores) for name, scores in arms.items()]
    what = "one value per seed and item" if records[0].item else "one value per seed"
    return Understood(tuple(records), asked.value or "value", (f"arrays: {what}",))


def _kind(given: Any, asked: Asked) -> str:
    if isinstance(given, str | Path):
        return "paths"
    return "tables" if _is_table(given, asked) else "arrays"


def _is_table(given: Any, asked: Asked) -> bool:
    if is_frame(given):
        return True
    if isinstance(given, Mapping):
        named = {getattr(asked, role) for role in (*ROLES, "value")} - {""}
        known = {name for names in KNOWN.values() for name in names}
        return any(key in named or (isinstance(key, str) and key.lower() in known) for key in given)
    return isinstance(given, list | tuple) and bool(given) and isinstance(given[0], Mapping)


def _of_array(name: str, scores: Any) -> Records:
    """Read the scores of an arm; raise DataError, with the place, for a value that is no number."""
    seeds = None
    if hasattr(scores, "to_dict") and hasattr(scores, "index"):  # a Series of pandas
        if not scores.index.is_unique:
            raise DataError(f"{name}: the index names a seed twice: give one value for each")
        scores = scores.to_dict()
    if isinstance(scores, Mapping):
        seeds = [str(seed) for seed in scores]
        scores = list(scores.values())
    listed = plain(scores)
    if not isinstance(listed, list | tuple) or not listed:
        raise DataError(f"{name} holds no scores: give an array [seed], or [seed, item]")
    rows = [list(row) if isinstance(row, list | tuple) else [row] for row in map(plain, listed)]
    is_of_items = isinstance(plain(listed[0]), list | tuple)
    value = np.empty(sum(map(len, rows)))
    seed = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    item = np.concatenate([np.arange(len(row)) for row in rows])

    def place(row: int) -> str:
        where = f"{name}, seed {names[seed[row]]}"
        return f"{where}, item {item[row]}" if is_of_items else where

    names = tuple(seeds or map(str, range(len(rows))))
    for row, number in enumerate(number for own in rows for number in own):
        try:
            value[row] = float(number if isinstance(number, int | float) else "")
        except (OverflowError, ValueError):
            raise DataError(
                f"{place(row)}: {number!r:.40} is no number: give numbers, and nan for a run that "
                "failed"
            ) from None
    items = tuple(map(str, range(int(item.max(initial=0)) + 1)))
    arm = Coded(np.zeros(len(value), dtype=np.int64), (name,))
    coded_items = Coded(item, items) if is_of_items else None
    return Records(name, arm, Coded(seed, names), value, place, item=coded_items)
