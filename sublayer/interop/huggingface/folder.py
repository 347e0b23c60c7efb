"""The files of a HuggingFace folder: read with safetensors and JSON alone."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from sublayer.errors import CheckpointError, ConfigError
from sublayer.estimate.capacity import check_memory
from sublayer.files.parsing import read_json_object
from sublayer.files.storage import check_file, check_name
from sublayer.interop.config_reader import Content
from sublayer.interop.values import format_value

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_SHARD = re.compile(r"[^/\\\0]+\.safetensors")
# What a checkpoint may hold: weights, and masks and numbers of positions that older versions saved
# with them.
_FORMATS = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises CheckpointError where the file is missing or is something else.
    """
    try:
        return read_json_object(path, CheckpointError)
    except FileNotFoundError:
        raise CheckpointError(
            f"{path.parent} is not a HuggingFace folder: it has no {path.name}"
        ) from None


def read_content(path: Path) -> Content:
    """Read a model's config.

    Raises CheckpointError where the file is missing or is no JSON object.
    """
    return Content(path.name, read_json(path))


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Read all tensors of a folder, from ``model.safetensors`` or its shards, onto the CPU.

    They are of the types that they have there. Raises CheckpointError where a file is missing or
    damaged, and where there are only pickles, which are never read; ConfigError where they are
    larger than the memory.
    """
    if (folder / WEIGHTS).is_file():
        _check_sizes([folder / WEIGHTS])
        return _load(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        return _read_shards(folder)
    pickles: list[str] = []
    for pattern in _PICKLES:
        pickles.extend(path.name for path in folder.glob(pattern))
    pickles.sort()
    if pickles:
        raise CheckpointError(
            f"{folder / pickles[0]} is a pickle, which can run code and is never read: "
            "save the model again with transformers' "
            f"save_pretrained(..., safe_serialization=True), which writes {WEIGHTS}"
        )
    raise CheckpointError(f"{folder} has no {WEIGHTS}")


def check_new(folder: Path) -> None:
    """Raise ConfigError if there is anything at ``folder``, a link included."""
    check_path(folder)
    if folder.exists() or folder.is_symlink():
        raise ConfigError(f"{folder} exists, and nothing is overwritten: name another folder")


def check_path(path: Path) -> None:
    """Raise ConfigError where a path is not Unicode text, which safetensors cannot open."""
    check_name(path, ConfigError)


def write_folder(folder: Path, config: Mapping[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write the config and the tensors into a folder that exists, as transformers names them.

    Tensors must share no memory: safetensors refuses those that do.
    """
    write_json(folder / CONFIG, config)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object to a new file."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _read_shards(folder: Path) -> dict[str, Tensor]:
    """Read the tensors of the files that the index names, of which nothing else is needed."""
    index = folder / INDEX
    weight_map = read_json(index).get("weight_map")
    if (
        not isinstance(weight_map, dict)
        or not weight_map
        or not all(isinstance(name, str) for name in weight_map.values())
    ):
        raise CheckpointError(f"{index} has no weight_map from tensors to files")
    shards = sorted(set(weight_map.values()))
    for shard in shards:
        if not _SHARD.fullmatch(shard):
            raise CheckpointError(
                f"{index} names {format_value(shard)}, which is not a .safetensors file of its "
                "folder"
            )
    _check_sizes([folder / shard for shard in shards])
    tensors: dict[str, Tensor] = {}
    for shard in shards:
        of_shard = _load(folder / shard)
        if twice := sorted(of_shard.keys() & tensors.keys()):
            raise CheckpointError(
                f"{folder / shard} holds {twice[0]}, which another file of {INDEX} holds too"
            )
        tensors |= of_shard
    if missing := sorted(weight_map.keys() - tensors.keys()):
        name = missing[0]
        shard = str(weight_map[name])
        raise CheckpointError(f"{folder / shard} lacks {name}, which {INDEX} promises")
    return tensors


def _check_sizes(paths: Sequence[Path]) -> None:
    """Raise ConfigError where the files, whose size bounds their content, exceed the memory."""
    n_bytes = sum(path.stat().st_size for path in paths if path.is_file())
    check_memory(n_bytes, f"to read {paths[0].parent}", "import it on a larger machine")


def _load(path: Path) -> dict[str, Tensor]:
    try:
        check_file(path)
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            for name in names:
                number_format = file.get_slice(name).get_dtype()
                if number_format not in _FORMATS:
                    raise CheckpointError(
                        f"{path} holds {name} as {number_format}, "
                        "not as floating-point numbers of 16 bits or more"
                    )
            return {name: file.get_tensor(name) for name in names}
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} is damaged or cut short: {error}") from None
