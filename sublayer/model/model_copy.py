"""Copies of model folders, which have weights in one file where the original has parts."""

import filecmp
import shutil
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from sublayer.errors import CheckpointError
from sublayer.files.tensor_parts import PART_PATTERN, read_stored
from sublayer.model.model_folder import WEIGHTS_NAME, stored_weights


def copy_model(original: Path, folder: Path) -> None:
    """Copy a model folder's files into an empty folder.

    Raises OSError, and CheckpointError where parts cannot be put together.
    """
    for name in _described(original):
        shutil.copyfile(original / name, folder / name)
    stored = stored_weights(original)
    if stored.is_whole:
        shutil.copyfile(stored.whole, folder / WEIGHTS_NAME)
        return
    try:
        save_file(read_stored(stored), folder / WEIGHTS_NAME)
    except SafetensorError as error:
        raise CheckpointError(f"cannot write {folder / WEIGHTS_NAME}: {error}") from None


def is_copy(folder: Path, original: Path) -> bool:
    """Return whether a folder holds what ``copy_model`` makes of another, and nothing else.

    Raises OSError, SafetensorError and CheckpointError where parts cannot be read.
    """
    if folder.is_symlink() or not folder.is_dir():
        return False
    stored = stored_weights(original)
    names = _described(original)
    if stored.is_whole:
        names = sorted([*names, WEIGHTS_NAME])
    found = sorted(path.name for path in folder.iterdir())
    if found != sorted({*names, WEIGHTS_NAME}):
        return False
    equal, _, _ = filecmp.cmpfiles(folder, original, names, shallow=False)
    if equal != names:
        return False
    return stored.is_whole or _has_same_weights(folder, original)


def _described(folder: Path) -> list[str]:
    """List what a model folder has beside weights."""
    weights = {path.name for path in folder.glob(PART_PATTERN)} | {WEIGHTS_NAME}
    return sorted(path.name for path in folder.iterdir() if path.name not in weights)


def _has_same_weights(folder: Path, original: Path) -> bool:
    ours, theirs = read_stored(stored_weights(folder)), read_stored(stored_weights(original))
    if ours.keys() != theirs.keys():
        return False
    return all(torch.equal(value, theirs[name]) for name, value in ours.items())
