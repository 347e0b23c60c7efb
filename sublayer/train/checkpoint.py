"""Checkpoints on disk: written atomically, verified when read, never replaced by something worse.

A checkpoint is a folder ``checkpoints/step-<n>``: ``model/`` (config, weights, tokenizer), ``training.safetensors``
(optimizer state, training-only heads), ``state.json`` and, written last, ``manifest.json`` with every file's size and
SHA-256. It is filled under another name and renamed once it is complete and on disk.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from sublayer.errors import CheckpointError

MANIFEST = "manifest.json"
_PREFIX = "step-"
_PARTIAL = ".partial-"
_CHUNK_BYTES = 1 << 20


def checkpoint_path(root: Path, step: int) -> Path:
    """Name the folder of the checkpoint taken after ``step`` optimizer steps."""
    return root / f"{_PREFIX}{step:08d}"


def write_checkpoint(root: Path, step: int, fill: Callable[[Path], None]) -> Path:
    """Write the checkpoint of ``step`` by letting ``fill`` put files into an empty folder.

    A kill at any moment leaves either no checkpoint of that step or a complete one.
    """
    root.mkdir(parents=True, exist_ok=True)
    partial = root / f"{_PARTIAL}{step:08d}"
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir()
    fill(partial)
    files = sorted(path for path in partial.rglob("*") if path.is_file())
    manifest = {
        path.relative_to(partial).as_posix(): {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in files
    }
    (partial / MANIFEST).write_text(json.dumps(manifest, indent=1))
    for path in (*files, partial / MANIFEST, partial):
        _sync(path)
    target = checkpoint_path(root, step)
    if target.exists():
        # Only a refused checkpoint can stand here: its step is being computed again.
        set_aside(target)
    os.replace(partial, target)
    _sync(root)
    return target


def verify_checkpoint(path: Path) -> None:
    """Raise CheckpointError, naming the file, unless every file is there as it was written."""
    try:
        manifest = json.loads((path / MANIFEST).read_text())
    except FileNotFoundError:
        raise CheckpointError(f"{path} is not a complete checkpoint: it has no {MANIFEST}") from None
    except ValueError:
        raise CheckpointError(f"{path / MANIFEST} is damaged") from None
    for name, expected in manifest.items():
        file = path / name
        if not file.is_file():
            raise CheckpointError(f"{file} is missing")
        size = file.stat().st_size
        if size != expected["bytes"]:
            raise CheckpointError(f"{file} has {size} bytes where {expected['bytes']} were written")
        if _sha256(file) != expected["sha256"]:
            raise CheckpointError(f"{file} is not what was written: its checksum differs")


def saved_steps(root: Path) -> list[int]:
    """List the steps that have a checkpoint under ``root``, oldest first, verified or not."""
    names = (path.name for path in root.glob(f"{_PREFIX}*") if path.is_dir()) if root.is_dir() else ()
    return sorted(int(name[len(_PREFIX) :]) for name in names if name[len(_PREFIX) :].isdigit())


def read_state(path: Path) -> dict[str, object]:
    """Read a checkpoint's ``state.json``."""
    try:
        state = json.loads((path / "state.json").read_text())
    except (FileNotFoundError, ValueError):
        raise CheckpointError(f"{path / 'state.json'} is missing or damaged") from None
    if not isinstance(state, dict):
        raise CheckpointError(f"{path / 'state.json'} is damaged")
    return state


def newest_checkpoint(root: Path, report: Callable[[str], None]) -> Path | None:
    """Find the newest checkpoint that can be gone on from, or None.

    It is complete and unaltered, and so is the best checkpoint that it refers to (the run's result would otherwise
    differ from an unbroken run's). Those refused on the way are named through ``report``.
    """
    for step in reversed(saved_steps(root)):
        path = checkpoint_path(root, step)
        try:
            verify_checkpoint(path)
            best = read_state(path).get("best")
            if isinstance(best, dict) and best["step"] != step:
                verify_checkpoint(checkpoint_path(root, int(best["step"])))
        except CheckpointError as error:
            report(f"checkpoint {path.name} is refused: {error}")
            continue
        return path
    return None


def set_aside(path: Path) -> None:
    """Rename a refused checkpoint so that its step can be written again; nothing is deleted."""
    number = 1
    while (target := path.with_name(f"refused-{path.name}-{number}")).exists():
        number += 1
    os.replace(path, target)


def prune_checkpoints(root: Path, keep: Iterable[int]) -> None:
    """Delete the checkpoints whose step is not in ``keep``, and what an interrupted write left."""
    kept = set(keep)
    for step in saved_steps(root):
        if step not in kept:
            path = checkpoint_path(root, step)
            discarded = root / f"{_PARTIAL}{step:08d}"
            if discarded.exists():
                shutil.rmtree(discarded)
            os.replace(path, discarded)
    for path in root.glob(f"{_PARTIAL}*"):
        shutil.rmtree(path)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
