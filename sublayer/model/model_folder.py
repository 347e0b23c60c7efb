"""A model as a folder: ``config.json``, ``model.safetensors``, files of its tokenizer and task."""

import filecmp
import json
import logging
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from sublayer.config.contradictions import check_model
from sublayer.config.load import MODEL_FORMAT
from sublayer.config.model import POSITIONS, ModelConfig
from sublayer.config.plugins import LISTED, check_listed, listed, used_plugins
from sublayer.config.recipe import ResolvedModel, with_added, with_current_names
from sublayer.config.resolve import DECODER_FIELDS
from sublayer.config.stacks import n_copies, stacks
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.checkpoints import verify_parts
from sublayer.files.parsing import read_json_object
from sublayer.files.storage import check_name, new_folder
from sublayer.files.tensors import (
    PART_PATTERN,
    StoredTensors,
)
from sublayer.model.transformer import Transformer, shapes_of
from sublayer.system.machine import allocating
from sublayer.tasks.registry import FILE_NAME, TaskSpec
from sublayer.values import show

_log = logging.getLogger(__name__)

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Types of weights that can be read."""


def computed_dtype(tensors: Iterable[Tensor]) -> torch.dtype:
    """Choose the dtype of the computation: float64 if all weights are, else float32.

    16-bit weights are widened without loss.
    """
    are_double = all(tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if are_double else torch.float32


def usable(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a tensor to ``dtype``, without a copy if it has that type.

    Raises CheckpointError, with ``name``, for values other than finite floats, and for overflow in
    ``dtype``.
    """
    check_float(name, tensor)
    converted = tensor.to(dtype)
    check_finite(name, converted)
    return converted


def check_float(name: str, tensor: Tensor) -> None:
    """Raise CheckpointError unless a tensor has a floating-point type of ``FLOATS``."""
    if tensor.dtype not in FLOATS:
        raise CheckpointError(
            f"{name} holds {_short(tensor.dtype)}, not floating-point numbers of 16, 32 or 64 bits"
        )


def check_finite(name: str, tensor: Tensor) -> None:
    """Raise CheckpointError, with ``name``, where a tensor holds infinity or NaN.

    An empty tensor passes.
    """
    if not tensor.numel():
        return
    # One pass without a mask tensor; with a NaN, both minimum and maximum are NaN.
    extremes = torch.stack(torch.aminmax(tensor.detach()))
    if not extremes.isfinite().all():
        raise CheckpointError(
            f"{name} holds numbers that are not finite: its run failed, or the file is damaged"
        )


def describe_conversion(tensors: Mapping[str, Tensor], dtype: torch.dtype) -> str | None:
    """Describe the counts and dtypes of tensors converted to ``dtype``; None if there are none.

    An example: ``3 of bfloat16 and 2 of float16 became float32``.
    """
    counts: Counter[str] = Counter()
    for tensor in tensors.values():
        if tensor.dtype != dtype:
            counts[_short(tensor.dtype)] += 1
    if not counts:
        return None
    parts = [f"{n} of {name}" for name, n in sorted(counts.items())]
    return f"{' and '.join(parts)} became {_short(dtype)}"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


VERSION = 1
CONFIG_NAME, WEIGHTS_NAME = "config.json", "model.safetensors"


def save_model(folder: Path, model: Transformer, tokenizer_files: Mapping[str, bytes]) -> None:
    """Write a model folder atomically; equal models give equal folders.

    ``tokenizer_files`` maps file names to contents, and is empty without a tokenizer.

    Raises CheckpointError where the folder exists or cannot be written.
    """
    check_name(folder, CheckpointError)
    try:
        with new_folder(folder) as partial:
            weights = {name: value.contiguous() for name, value in model.state_dict().items()}
            save_file(weights, partial / WEIGHTS_NAME)
            describe_model(partial, model.config, tokenizer_files)
    except FileExistsError:
        raise CheckpointError(f"{folder} exists already: name another folder") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot write the model folder {folder}: {error}") from error


def spec_files(spec: TaskSpec | None) -> dict[str, bytes]:
    """Return the model folder's file with the model's task; none without a task."""
    if spec is None:
        return {}
    return {FILE_NAME: json.dumps(spec.to_json(), indent=1, ensure_ascii=False).encode() + b"\n"}


def describe_model(
    folder: Path, config: ResolvedModel, tokenizer_files: Mapping[str, bytes]
) -> None:
    """Write a model folder's files except the weights: config, tokenizer files, plugins.

    Raises OSError.
    """
    plugins = used_plugins(config)
    described = {
        "format": MODEL_FORMAT,
        "version": VERSION,
        "model": config.model_dump(mode="json"),
        **({LISTED: listed(plugins)} if plugins else {}),
    }
    text = json.dumps(described, indent=2) + "\n"
    (folder / CONFIG_NAME).write_text(text, encoding="utf-8")
    for name, content in tokenizer_files.items():
        (folder / name).write_bytes(content)
    for plugin in plugins:
        (folder / plugin.filename).write_bytes(plugin.content)


def load_weights(folder: Path, *, device: str = "cpu") -> tuple[ResolvedModel, dict[str, Tensor]]:
    """Read a model folder's resolved config and weights, and check that they match.

    Weights are float64 if all weights in the file are, else float32.

    Raises CheckpointError where a file is missing, damaged or of another model, or where weights
    are not finite floats; ConfigError where they do not fit into memory.
    """
    config = read_config(folder)
    path = folder / WEIGHTS_NAME
    with _reading(path), allocating(f"the weights of {path}", "load it on a larger machine"):
        stored = stored_weights(folder)
        if not stored.is_whole:
            verify_parts(stored.files())
        tensors = stored.read(device=device)
        dtype = computed_dtype(tensors.values())
        weights = {name: usable(f"{path}: {name}", tensors[name], dtype) for name in tensors}
        note = describe_conversion(tensors, dtype)
        if note is not None:
            _log.warning("weights of %s: %s", path, note)
        return config, weights


def stored_weights(folder: Path) -> StoredTensors:
    """Return the location of a model folder's weights, in one file or in parts."""
    return StoredTensors(folder / WEIGHTS_NAME, folder)


def read_config(folder: Path) -> ResolvedModel:
    """Read a model folder's resolved config; check names and shapes of its weights.

    Only the header of the weights is read. Fields of older versions are read under their current
    names, and later ones are filled in.

    Raises CheckpointError where a file is missing, damaged or of another model.
    """
    path = folder / CONFIG_NAME
    with _reading(path):
        described = read_json_object(path, CheckpointError)
    config = parse_config(described, path)
    with _reading(folder / WEIGHTS_NAME):
        stored = stored_weights(folder)
        headers = stored.headers()
        shapes = {name: header.shape for name, header in headers.items()}
        check_shapes(config, shapes, source=stored.described)
    return config


def parse_config(described: Mapping[str, Any], path: Path) -> ResolvedModel:
    """Parse the resolved config in the content of a file; raise CheckpointError, with ``path``."""
    if described.get("format") != MODEL_FORMAT:
        raise CheckpointError(
            f"{path} does not describe a {MODEL_FORMAT} model: name another folder, or import it"
        )
    version = described.get("version")
    if version != VERSION:
        raise CheckpointError(
            f"{path} has the format version {show(version)}, but this program reads {VERSION}"
        )
    fields: object = described.get("model")
    check_listed(described.get(LISTED), str(path))
    try:
        if isinstance(fields, dict):
            fields = with_current_names(fields, table="model")
        settings = with_added("model", ModelConfig.model_validate_json(json.dumps(fields)))
        check_model(settings)
    except ValidationError as error:
        where = error.errors()[0]
        field = ".".join(map(str, where["loc"]))
        raise CheckpointError(
            f"{path}: model.{field}: {where['msg']}; name another model"
        ) from None
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from None
    for name, value in settings:
        is_needed = settings.kind == "encoder-decoder" or name not in DECODER_FIELDS
        if value is None and is_needed:
            raise CheckpointError(f"{path} lacks model.{name}: name another model")
    return ResolvedModel.model_validate(dict(settings))


def check_shapes(
    config: ResolvedModel, shapes: Mapping[str, Sequence[int]], *, source: str
) -> None:
    """Check names and shapes of a file's tensors against the config's model.

    ``shapes`` are the file's shapes, by name; ``source`` names the file in errors. The size of the
    file bounds the work: a config of more sub-layers than the file has tensors is an error before
    the model is built.

    Raises CheckpointError where a name is missing on one side, or, with both shapes, where shapes
    differ.
    """
    # At least the position tables, and a tensor for each set of weights of the blocks.
    has_table_per_block = POSITIONS[config.positions].adds_before == "every"
    n_needed = config.n_layers if has_table_per_block else 0
    for stack in stacks(config):
        n_needed += sum(n_copies(config, stack, entry) for entry in stack.block)
    if n_needed > len(shapes):
        raise CheckpointError(
            f"{source} has {len(shapes):,} tensors, but its config needs at least {n_needed:,}: "
            "name another model"
        )
    expected = {name: list(shape) for name, shape in shapes_of(config).items()}
    for name in expected.keys() - shapes.keys():
        raise CheckpointError(f"{source} lacks the tensor {name} of its config: name another model")
    for name in shapes.keys() - expected.keys():
        raise CheckpointError(
            f"{source} has the tensor {name}, which its config lacks: name another model"
        )
    for name, shape in expected.items():
        in_file = list(shapes[name])
        if in_file != shape:
            raise CheckpointError(
                f"{source} has {name} of shape {in_file}, but its config needs {shape}: "
                "name another model"
            )


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise CheckpointError(
            f"{path.parent} is not a model folder, since it has no {path.name}"
        ) from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} is damaged or truncated ({error}): name another model"
        ) from None


def copy_model(original: Path, folder: Path) -> None:
    """Copy a model folder's files into an empty folder.

    Raises OSError, and CheckpointError where parts cannot be joined.
    """
    for name in _described(original):
        shutil.copyfile(original / name, folder / name)
    stored = stored_weights(original)
    if stored.is_whole:
        shutil.copyfile(stored.whole, folder / WEIGHTS_NAME)
        return
    try:
        save_file(stored.read(), folder / WEIGHTS_NAME)
    except SafetensorError as error:
        raise CheckpointError(f"cannot write {folder / WEIGHTS_NAME}: {error}") from None


def is_copy(folder: Path, original: Path) -> bool:
    """Check whether a folder is exactly the copy of another that ``copy_model`` makes.

    Raises OSError, SafetensorError and CheckpointError where parts cannot be read.
    """
    if folder.is_symlink() or not folder.is_dir():
        return False
    stored = stored_weights(original)
    names = _described(original)
    if stored.is_whole:
        names = sorted([*names, WEIGHTS_NAME])
    filenames = sorted(path.name for path in folder.iterdir())
    if filenames != sorted({*names, WEIGHTS_NAME}):
        return False
    equal, _, _ = filecmp.cmpfiles(folder, original, names, shallow=False)
    if equal != names:
        return False
    if stored.is_whole:
        return True
    ours, theirs = stored_weights(folder).read(), stored.read()
    if ours.keys() != theirs.keys():
        return False
    return all(torch.equal(value, theirs[name]) for name, value in ours.items())


def _described(folder: Path) -> list[str]:
    """List the files of a model folder, except the weights."""
    weights = {path.name for path in folder.glob(PART_PATTERN)} | {WEIGHTS_NAME}
    return sorted(path.name for path in folder.iterdir() if path.name not in weights)
