"""A model as a folder: ``config.json``, ``model.safetensors`` and its tokenizer's files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import DECODER_FIELDS, check_model, stacks
from sublayer.config.wording import show
from sublayer.errors import CheckpointError, ConfigError
from sublayer.model.build import compose
from sublayer.model.capacity import allocating
from sublayer.model.cost import n_copies
from sublayer.model.transformer import Transformer
from sublayer.model.weights import usable_weights
from sublayer.parsing import read_json_object
from sublayer.storage import check_file, check_name, new_folder

FORMAT, VERSION = "sublayer", 1
CONFIG_NAME, WEIGHTS_NAME = "config.json", "model.safetensors"


def save_model(folder: Path, model: Transformer, tokenizer_files: Mapping[str, bytes]) -> None:
    """Write a model folder, which appears whole or not at all and holds nothing that differs between equal models.

    Raises CheckpointError where the folder exists or cannot be written.
    """
    check_name(folder, CheckpointError)
    described = {"format": FORMAT, "version": VERSION, "model": model.config.model_dump(mode="json")}
    try:
        with new_folder(folder) as partial:
            save_file({name: value.contiguous() for name, value in model.state_dict().items()}, partial / WEIGHTS_NAME)
            (partial / CONFIG_NAME).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
            for name, content in tokenizer_files.items():
                (partial / name).write_bytes(content)
    except FileExistsError:
        raise CheckpointError(f"{folder} exists; name another folder") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot write the model folder {folder}: {error}") from error


def load_weights(folder: Path, *, device: str = "cpu") -> tuple[ModelConfig, dict[str, Tensor]]:
    """Read a model folder's resolved config and its weights, checked to fit each other.

    Raises CheckpointError where a file is missing, damaged or of another model.
    """
    config = _read_config(folder / CONFIG_NAME)
    path = folder / WEIGHTS_NAME
    try:
        check_shapes(config, _read_shapes(path), source=str(path))
        with allocating(f"the weights of {path}", "load it on a larger machine"):
            tensors = usable_weights(load_file(path, device=device), str(path))
    except FileNotFoundError:
        raise CheckpointError(f"{folder} is not a model folder: it has no {WEIGHTS_NAME}") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} is damaged or cut short ({error}); name another model") from None
    return config, tensors


def check_shapes(config: ModelConfig, shapes: Mapping[str, Sequence[int]], *, source: str) -> None:
    """Raise CheckpointError where a file's tensors are not those of the config's model: names, or shapes with both.

    The file's size bounds the work: a config of more sub-layers than the file has tensors is refused unbuilt.
    """
    n_needed = _fewest_tensors(config)
    if n_needed > len(shapes):
        raise CheckpointError(
            f"{source} has {len(shapes):,} tensors, its config asks for {n_needed:,} at least; name another model"
        )
    with torch.device("meta"):
        expected = {name: list(value.shape) for name, value in compose(config).state_dict().items()}
    for name in expected.keys() - shapes.keys():
        raise CheckpointError(f"{source} has no {name}, which its config asks for; name another model")
    for name in shapes.keys() - expected.keys():
        raise CheckpointError(f"{source} has {name}, which its config has no place for; name another model")
    for name, shape in expected.items():
        if list(shapes[name]) != shape:
            raise CheckpointError(
                f"{source} has {name} of shape {list(shapes[name])}, its config asks for {shape}; name another model"
            )


def _read_shapes(path: Path) -> dict[str, list[int]]:
    """Read the shapes of a file's tensors from its header alone."""
    check_file(path)
    with safe_open(path, framework="pt") as file:
        return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118, it is no mapping


def _fewest_tensors(config: ModelConfig) -> int:
    """Count the sets of weights of blocks, each of which has a tensor or more, and the tables of positions."""
    n_tables = config.n_layers if config.positions == "learned-per-layer" else 0
    sets = (n_copies(config, stack, entry) for stack in stacks(config) for entry in stack.block)
    return n_tables + sum(sets)


def _read_config(path: Path) -> ModelConfig:
    try:
        described = read_json_object(path, CheckpointError)
        if described.get("format") != FORMAT:
            raise CheckpointError(f"{path} does not describe a {FORMAT} model; name another folder, or import it")
        if described.get("version") != VERSION:
            raise CheckpointError(
                f"{path} is of format version {show(described.get('version'))}, this program reads {VERSION}"
            )
        config = ModelConfig.model_validate_json(json.dumps(described.get("model")))
        check_model(config)
    except FileNotFoundError:
        raise CheckpointError(f"{path.parent} is not a model folder: it has no {CONFIG_NAME}") from None
    except ValidationError as error:
        where = error.errors()[0]
        field = ".".join(str(part) for part in where["loc"])
        raise CheckpointError(f"{path}: model.{field}: {where['msg']}; name another model") from None
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from None
    is_two = config.kind == "encoder-decoder"
    unset = [name for name, value in config if value is None and (is_two or name not in DECODER_FIELDS)]
    if unset:
        raise CheckpointError(f"{path} does not say what model.{unset[0]} is; name another model")
    return config
