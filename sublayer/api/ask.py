"""Arguments of public functions: paths, tables and settings as the functions below take them."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from sublayer.counts import count
from sublayer.errors import ConfigError, DataError
from sublayer.files.cache_folder import cache_folder, replacing
from sublayer.options import PathText
from sublayer.system.stages import note
from sublayer.values import as_cell, is_missing, plain, surrogate_problem, table_rows

if TYPE_CHECKING:
    import torch

    from sublayer.model.transformer import Transformer

Overrides = Sequence[str] | Mapping[str, Any]
"""``key=value`` texts, or values by field."""


def as_text(target: Any, what: str = "a path") -> str:
    """Return a path or a name as text; raise ConfigError for anything else."""
    if isinstance(target, str | PathLike):
        return str(fspath(target))
    raise ConfigError(f"{type(target).__name__} is given for {what}: name a file or a folder")


def as_source(target: Any) -> str:
    """Return the path of a table: a file's, or where a DataFrame's rows are kept.

    They are kept as lines of JSON in the cache, by their content, so that a training on them can be
    resumed. Raises as ``as_text`` does.
    """
    if isinstance(target, str | PathLike):
        return as_text(target)
    rows = table_rows(target)
    if rows is None:
        raise ConfigError(
            f"{type(target).__name__} is given for a table: give the path of a file or a folder, a "
            "DataFrame, a dict of columns, or a list of mappings"
        )
    if not rows:
        raise DataError("the table has no rows")
    data = "".join(f"{_line(row, number)}\n" for number, row in enumerate(rows)).encode()
    path = cache_folder() / "tables" / f"{hashlib.sha256(data).hexdigest()[:16]}.jsonl"
    if not path.is_file():
        with replacing(path) as file:
            file.write(data)
    note(f"the table of {count(len(rows), 'row')} is kept as {path}")
    return str(path)


def _line(row: Mapping[str, Any], number: int) -> str:
    """Write a row as JSON; raise DataError, with row and column, for what no table holds."""
    cells = []
    for name, value in row.items():
        value = None if is_missing(value) else value
        if isinstance(value, PathLike | bytes):
            raise DataError(_no_cell(name, number, type(value).__name__))
        value = plain(value)
        if isinstance(value, float) and math.isinf(value):
            value = str(value)
        try:
            cell = json.dumps(value, ensure_ascii=False, default=as_cell)
        except TypeError as error:
            raise DataError(_no_cell(name, number, str(error))) from None
        if problem := surrogate_problem(cell):
            raise DataError(f"row {number} of the table: {name!r} {problem}")
        cells.append(f"{json.dumps(str(name), ensure_ascii=False)}: {cell}")
    return f"{{{', '.join(cells)}}}"


def _no_cell(name: str, number: int, kind: str) -> str:
    return (
        f"row {number} of the table: {name!r} is {kind}: make texts or numbers of the column "
        "(bytes by str.decode), or leave it out"
    )


def as_path(target: PathText) -> Path:
    """Return the path of a run, checkpoint or folder; raise as ``as_text`` does."""
    return Path(as_text(target, "a run, a checkpoint or a folder"))


def as_paths(targets: PathText | Sequence[PathText]) -> list[Path]:
    """Return the paths of one run, checkpoint or folder, or of several."""
    if isinstance(targets, list | tuple):
        if not targets:
            raise ConfigError("no run is named: give one, or several in a list")
        return [as_path(target) for target in targets]
    return [as_path(targets)]  # type: ignore[arg-type]


def as_words(overrides: Sequence[str] | Mapping[str, Any] | None) -> list[str]:
    """Return settings as the ``field=value`` texts of a command line."""
    from sublayer.config.sources import Unset, as_setting, override_layer

    override_layer(overrides or (), "")  # raises ConfigError for anything but settings
    if not isinstance(overrides, Mapping):
        return list(overrides or ())
    return [
        Unset(f"{key}=unset") if plain(value) is None else f"{key}={as_setting(value)}"
        for key, value in overrides.items()
    ]


@runtime_checkable
class Loaded(Protocol):
    """A loaded model, given in place of the path of its run."""

    model: "Transformer"

    def __fspath__(self) -> str:
        """Return the path that it was loaded from."""


def loaded(
    run: PathText,
    device: str | None,
    dtype: "torch.dtype | None" = None,
    average: int | None = None,
) -> "Transformer":
    """Load the model of a path, on the best device by default; a loaded model is returned.

    Raises ConfigError for a device or an average of a loaded model, and as loading does.
    """
    from sublayer.loading import load
    from sublayer.system.machine import choose_device

    if not isinstance(run, Loaded):
        return load(Path(run), device=choose_device(device), dtype=dtype, average=average)
    if device is not None or average is not None:
        raise ConfigError(
            "the model is loaded, by which device and average are chosen: leave them out"
        )
    return run.model
