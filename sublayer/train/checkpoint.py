"""Checkpoints on disk: written atomically, verified when read, never replaced by something worse.

A checkpoint is a folder ``checkpoints/step-<n>``: ``model/`` (config, weights, tokenizer), ``training.safetensors``
(optimizer state, training-only heads), ``state.json`` and, written last, ``manifest.json`` with every file's size and
SHA-256. It is filled under another name and renamed once it is complete and on disk.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import Field

from sublayer.errors import CheckpointError
from sublayer.saved_record import Evaluation
from sublayer.storage import new_folder, open_file, remove_abandoned, temporary_path
from sublayer.typed import Count, Number, Typed, read_typed

MANIFEST = "manifest.json"
STATE = "state.json"
_NAME = re.compile(r"step-([0-9]{8,18})")
_CHUNK_BYTES = 1 << 20


class _File(Typed):
    bytes: Count
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class SavedState(Typed):
    """What ``state.json`` says of the loop at a checkpoint."""

    step: Count
    tokens: Count
    seconds: Annotated[Number, Field(ge=0)]
    step_seconds: Annotated[Number, Field(gt=0)]
    best: Evaluation | None
    pending_losses: list[Number]


def checkpoint_path(root: Path, step: int) -> Path:
    """Name the folder of the checkpoint taken after ``step`` optimizer steps."""
    return root / f"step-{step:08d}"


def write_checkpoint(root: Path, step: int, fill: Callable[[Path], None]) -> Path:
    """Write the checkpoint of ``step`` by letting ``fill`` put files into an empty folder.

    A kill at any moment leaves either no checkpoint of that step or a complete one.
    """
    root.mkdir(parents=True, exist_ok=True)
    remove_abandoned(root)
    target = checkpoint_path(root, step)
    if os.path.lexists(target):
        # Only a refused checkpoint can stand here: its step is being computed again.
        set_aside(target)
    with new_folder(target) as partial:
        fill(partial)
        manifest = {name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for name, path in _files(partial)}
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=1))
    return target


def verify_checkpoint(path: Path) -> None:
    """Raise CheckpointError, naming the file, unless every file is there as it was written."""
    try:
        manifest = read_typed(path / MANIFEST, dict[str, _File], CheckpointError)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is not a complete checkpoint: it has no {MANIFEST}") from None
    for name, _ in _files(path):
        # Without its line nothing could be said of the file.
        if name not in manifest and name.endswith((".json", ".safetensors")):
            raise CheckpointError(f"{path / MANIFEST} is damaged: it does not list {name}")
    for name, expected in manifest.items():
        if name != PurePosixPath(name).as_posix() or PurePosixPath(name).is_absolute() or ".." in name.split("/"):
            raise CheckpointError(f"{path / MANIFEST} is damaged: {name[:60]!r} is no file of the checkpoint")
        _verify_file(path / name, expected)


def _verify_file(file: Path, expected: _File) -> None:
    if file.is_symlink() or not file.is_file():
        raise CheckpointError(f"{file} is missing")
    size = file.stat().st_size
    if size != expected.bytes:
        raise CheckpointError(f"{file} has {size} bytes where {expected.bytes} were written")
    if _sha256(file) != expected.sha256:
        raise CheckpointError(f"{file} is not what was written: its checksum differs")


def saved_steps(root: Path) -> list[int]:
    """List the steps that have a checkpoint under ``root``, oldest first, verified or not."""
    names = (path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else ()
    steps = (int(match[1]) for match in map(_NAME.fullmatch, names) if match)
    return sorted(step for step in steps if checkpoint_path(root, step).is_dir())


def read_state(path: Path) -> SavedState:
    """Read a checkpoint's ``state.json``. Raises CheckpointError where it is not as it was written."""
    try:
        return read_typed(path / STATE, SavedState, CheckpointError)
    except FileNotFoundError:
        raise CheckpointError(f"{path / STATE} is missing") from None


def newest_checkpoint(
    root: Path, report: Callable[[str], None], check: Callable[[Path, SavedState], None] = lambda path, state: None
) -> Path | None:
    """Find the newest checkpoint that can be gone on from, or None.

    It is complete and unaltered, and so is the best checkpoint that it refers to (the run's result would otherwise
    differ from an unbroken run's); and ``check`` raises no CheckpointError for it. Those refused on the way are named
    through ``report``.
    """
    for step in reversed(saved_steps(root)):
        path = checkpoint_path(root, step)
        try:
            verify_checkpoint(path)
            state = read_state(path)
            if state.step != step:
                raise CheckpointError(f"{path / STATE} is of step {state.step}")
            if state.best is not None and state.best.step != step:
                verify_checkpoint(checkpoint_path(root, state.best.step))
            check(path, state)
        except (CheckpointError, OSError) as error:
            report(f"checkpoint {path.name} is refused: {error}")
            continue
        return path
    return None


def set_aside(path: Path) -> None:
    """Rename what was refused so that its like can be written again; nothing is deleted."""
    os.replace(path, aside(path))


def aside(path: Path) -> Path:
    """Name where what is refused at ``path`` is kept: beside it, where there is nothing yet."""
    number = 1
    while os.path.lexists(target := path.with_name(f"refused-{path.name}-{number}")):
        number += 1
    return target


def prune_checkpoints(root: Path, keep: Iterable[int]) -> None:
    """Delete the checkpoints whose step is not in ``keep``; what has no manifest is none."""
    for step in set(saved_steps(root)) - set(keep):
        path = checkpoint_path(root, step)
        if (path / MANIFEST).is_file() and not path.is_symlink():
            # Under its own name, what a kill leaves of it would be taken for a damaged checkpoint.
            discarded = temporary_path(path)
            path.rename(discarded)
            shutil.rmtree(discarded)


def _files(folder: Path) -> list[tuple[str, Path]]:
    """List the files below a folder, the manifest not, with their names in it."""
    files = ((path.relative_to(folder).as_posix(), path) for path in sorted(folder.rglob("*")) if path.is_file())
    return [(name, path) for name, path in files if name != MANIFEST]


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open_file(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
