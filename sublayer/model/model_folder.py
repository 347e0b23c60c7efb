"""A model as a folder: ``config.json``, ``model.safetensors`` and its tokenizer's files."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.architecture.stacks import stacks
from sublayer.config.fields.messages import show
from sublayer.config.fields.renames import with_current_names
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import DECODER_FIELDS, check_model
from sublayer.config.resolved import ResolvedModel
from sublayer.errors import CheckpointError, ConfigError
from sublayer.estimate.cost import n_copies
from sublayer.files.checkpoints import verify_parts
from sublayer.files.parsing import read_json_object
from sublayer.files.storage import check_name, new_folder
from sublayer.files.tensor_parts import StoredTensors, read_stored, read_stored_headers
from sublayer.model.build import compose
from sublayer.model.transformer import Transformer
from sublayer.model.weights import usable_weights
from sublayer.system.memory import allocating

FORMAT, VERSION = "sublayer", 1
CONFIG_NAME, WEIGHTS_NAME = "config.json", "model.safetensors"


def save_model(folder: Path, model: Transformer, tokenizer_files: Mapping[str, bytes]) -> None:
    """Write a model folder, which appears whole or not at all.

    It holds nothing that differs between equal models. ``tokenizer_files`` are contents by file
    name, none where the model has no tokenizer.

    Raises CheckpointError where the folder exists or cannot be written.
    """
    check_name(folder, CheckpointError)
    try:
        with new_folder(folder) as partial:
            weights = {name: value.contiguous() for name, value in model.state_dict().items()}
            save_file(weights, partial / WEIGHTS_NAME)
            describe_model(partial, model.config, tokenizer_files)
    except FileExistsError:
        raise CheckpointError(f"{folder} exists; name another folder") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot write the model folder {folder}: {error}") from error


def describe_model(
    folder: Path, config: ResolvedModel, tokenizer_files: Mapping[str, bytes]
) -> None:
    """Write what a model folder has beside weights: the config and the tokenizer's files.

    Raises OSError.
    """
    (folder / CONFIG_NAME).write_text(_format_config(config), encoding="utf-8")
    for name, content in tokenizer_files.items():
        (folder / name).write_bytes(content)


def _format_config(config: ResolvedModel) -> str:
    described = {
        "format": FORMAT,
        "version": VERSION,
        "model": config.model_dump(mode="json"),
    }
    return json.dumps(described, indent=2) + "\n"


def load_weights(folder: Path, *, device: str = "cpu") -> tuple[ResolvedModel, dict[str, Tensor]]:
    """Read a model folder's resolved config and its weights, checked to fit each other.

    Weights are in one type: float64 where all in the file are, else float32.

    Raises CheckpointError where a file is missing, damaged or of another model, or holds weights
    that are not finite floats; ConfigError where there is not enough memory for them.
    """
    config = read_config(folder)
    path = folder / WEIGHTS_NAME
    with _reading(path), allocating(f"the weights of {path}", "load it on a larger machine"):
        stored = stored_weights(folder)
        if not stored.is_whole:
            verify_parts(stored.files())
        tensors = read_stored(stored, device=device)
        return config, usable_weights(tensors, str(path))


def stored_weights(folder: Path) -> StoredTensors:
    """Return where a model folder has its weights, in one file or in parts."""
    return StoredTensors(folder / WEIGHTS_NAME, folder)


def read_config(folder: Path) -> ResolvedModel:
    """Read a model folder's resolved config, checked against the names and shapes of its weights.

    The weights themselves are not read, but for their file's header. Fields that older versions
    named otherwise are read under their names of today.

    Raises CheckpointError where a file is missing, damaged or of another model.
    """
    config = _read_config(folder / CONFIG_NAME)
    path = folder / WEIGHTS_NAME
    with _reading(path):
        stored = stored_weights(folder)
        headers = read_stored_headers(stored)
        shapes = {name: header.shape for name, header in headers.items()}
        check_shapes(config, shapes, source=stored.described)
    return config


def check_shapes(
    config: ResolvedModel, shapes: Mapping[str, Sequence[int]], *, source: str
) -> None:
    """Check that a file's tensors are those of the config's model, by names and shapes.

    ``shapes`` are the file's, by name; ``source`` is what errors call it. The file's size bounds
    the work: a config of more sub-layers than the file has tensors is refused unbuilt.

    Raises CheckpointError where a name is on one side alone, or, with both, where shapes differ.
    """
    n_needed = _fewest_tensors(config)
    if n_needed > len(shapes):
        raise CheckpointError(
            f"{source} has {len(shapes):,} tensors, its config asks for {n_needed:,} at least; "
            "name another model"
        )
    # On the meta device tensors have shapes and take no memory.
    with torch.device("meta"):
        model = compose(config)
    expected = {}
    for name, value in model.state_dict().items():
        expected[name] = list(value.shape)
    for name in expected.keys() - shapes.keys():
        raise CheckpointError(
            f"{source} has no {name}, which its config asks for; name another model"
        )
    for name in shapes.keys() - expected.keys():
        raise CheckpointError(
            f"{source} has {name}, which its config has no place for; name another model"
        )
    for name, shape in expected.items():
        in_file = list(shapes[name])
        if in_file != shape:
            raise CheckpointError(
                f"{source} has {name} of shape {in_file}, its config asks for {shape}; "
                "name another model"
            )


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise CheckpointError(
            f"{path.parent} is not a model folder: it has no {path.name}"
        ) from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} is damaged or cut short ({error}); name another model"
        ) from None


def _fewest_tensors(config: ResolvedModel) -> int:
    """Count the tensors that a model has at least.

    These are the tables of positions, and one for each set of weights of its blocks.
    """
    has_table_per_layer = POSITIONS[config.positions].adds_before == "every"
    total = config.n_layers if has_table_per_layer else 0
    for stack in stacks(config):
        for entry in stack.block:
            total += n_copies(config, stack, entry)
    return total


def _read_config(path: Path) -> ResolvedModel:
    try:
        described = read_json_object(path, CheckpointError)
    except FileNotFoundError:
        raise CheckpointError(
            f"{path.parent} is not a model folder: it has no {CONFIG_NAME}"
        ) from None
    _check_format(described, path)
    config = _validate_config(described.get("model"), path)
    _check_complete(config, path)
    return ResolvedModel.model_validate(dict(config))


def _check_format(described: Mapping[str, object], path: Path) -> None:
    if described.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} does not describe a {FORMAT} model; name another folder, or import it"
        )
    version = described.get("version")
    if version != VERSION:
        raise CheckpointError(
            f"{path} is of format version {show(version)}, this program reads {VERSION}"
        )


def _validate_config(fields: object, path: Path) -> ModelConfig:
    """Check the fields of a config as a recipe's are, under the names that they have today."""
    try:
        if isinstance(fields, dict):
            fields = with_current_names(fields, table="model")
        config = ModelConfig.model_validate_json(json.dumps(fields))
        check_model(config)
    except ValidationError as error:
        where = error.errors()[0]
        parts = [str(part) for part in where["loc"]]
        field = ".".join(parts)
        raise CheckpointError(
            f"{path}: model.{field}: {where['msg']}; name another model"
        ) from None
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from None
    return config


def _check_complete(config: ModelConfig, path: Path) -> None:
    """Raise CheckpointError where a field is unset that a model of its kind needs."""
    has_decoder_fields = config.kind == "encoder-decoder"
    for name, value in config:
        is_needed = has_decoder_fields or name not in DECODER_FIELDS
        if value is None and is_needed:
            raise CheckpointError(f"{path} does not say what model.{name} is; name another model")
