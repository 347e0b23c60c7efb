"""The files of a HuggingFace folder: read with safetensors and JSON alone, written whole or not at all."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.content import Content

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises CheckpointError where the file is missing or is something else."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(f"{path.parent} is not a HuggingFace folder: it has no {path.name}") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds no JSON object")
    return content


def read_content(path: Path) -> Content:
    """Read a model's config. Raises CheckpointError where the file is missing or is no JSON object."""
    return Content(path.name, read_json(path))


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Read all tensors of a folder, from ``model.safetensors`` or its shards.

    Raises CheckpointError where a file is missing or damaged, and where there are only pickles, which are never read.
    """
    if (folder / WEIGHTS).is_file():
        return _load(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        return _read_shards(folder)
    if pickles := sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern)):
        raise CheckpointError(
            f"{folder / pickles[0]} is a pickle, which can run code and is never read: save the model again with "
            f"transformers' save_pretrained(..., safe_serialization=True), which writes {WEIGHTS}"
        )
    raise CheckpointError(f"{folder} has no {WEIGHTS}")


def check_new(folder: Path) -> None:
    """Raise ConfigError if there is anything at ``folder``: nothing is overwritten."""
    if folder.exists():
        raise ConfigError(f"{folder} exists, and nothing is overwritten: name another folder")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Give an empty folder to fill, which becomes ``folder`` at the end, or is removed where filling it fails."""
    check_new(folder)
    partial = folder.with_name(f".{folder.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        yield partial
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_folder(folder: Path, config: Mapping[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write the config and the tensors into a folder that exists."""
    write_json(folder / CONFIG, config)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object to a new file."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _read_shards(folder: Path) -> dict[str, Tensor]:
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise CheckpointError(f"{folder / INDEX} has no weight_map from tensors to files")
    tensors: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        if name != Path(name).name or not name.endswith(".safetensors"):
            raise CheckpointError(f"{folder / INDEX} names {name!r}, which is not a .safetensors file of its folder")
        tensors |= _load(folder / name)
    if missing := sorted(places.keys() - tensors.keys()):
        raise CheckpointError(f"{folder / str(places[missing[0]])} lacks {missing[0]}, which {INDEX} promises")
    return tensors


def _load(path: Path) -> dict[str, Tensor]:
    try:
        return dict(load_file(path))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} is damaged or cut short: {error}") from None
