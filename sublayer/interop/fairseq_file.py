"""A checkpoint file of fairseq as tensors and plain values: nothing in it is imported or run."""

import argparse
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor
from torch.serialization import safe_globals

from sublayer.errors import CheckpointError
from sublayer.interop.foreign_config import Content

_MOST_VALUES, _MOST_BITS = 10_000, 128
"""Values in a setting, and bits of a number."""
_NESTED = ("encoder", "decoder", "quant_noise")
# Files up to 0.8 contain training meters, of fairseq classes.
_METERS = tuple(
    f"fairseq.meters.{name}" for name in ("AverageMeter", "TimeMeter", "StopwatchMeter")
)
# Errors of reading a truncated or changed file.
_DAMAGES = (
    RuntimeError,
    EOFError,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    OverflowError,
    MemoryError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
)


class _Meter:
    """Stand-in for a meter of training: it keeps the file's values and does nothing."""


@dataclass(frozen=True)
class FairseqFile:
    """A checkpoint's description of a model."""

    settings: Content
    """Those with which it was built, nested ones by ``encoder_`` and the like before their name."""
    tensors: dict[str, Tensor]
    n_optimizer: int
    """Tensors of an optimizer, which are not kept."""


def find_checkpoint(path: Path) -> Path:
    """Find the checkpoint: a file, or a folder's only one.

    Raises CheckpointError where there is none, or several.
    """
    if path.is_file():
        return path
    checkpoints = sorted(path.glob("*.pt"))
    if not checkpoints:
        raise CheckpointError(
            f"{path} is not a checkpoint of fairseq, nor a folder that holds one (*.pt)"
        )
    if len(checkpoints) > 1:
        n_others = len(checkpoints) - 1
        raise CheckpointError(
            f"{path} has {checkpoints[0].name} and {n_others} more: name one of them"
        )
    return checkpoints[0]


def read_checkpoint(path: Path) -> FairseqFile:
    """Read a checkpoint of fairseq 0.6 or later; its tensors are on the CPU.

    Only tensors, plain values and ``argparse.Namespace`` are made of the file's content; of the
    meters of training an empty shell is. Raises CheckpointError where the file is damaged, names
    any other class or function, or holds no settings and tensors of a model.
    """
    content = _load(path)
    if not isinstance(content, Mapping) or not isinstance(content.get("model"), Mapping):
        raise CheckpointError(f"{path} holds no model: it is not a checkpoint of fairseq")
    for name, tensor in content["model"].items():
        if not isinstance(name, str) or not _is_plain(tensor):
            raise CheckpointError(
                f"{path}: model holds {name!r}, which is not a name of a plain tensor"
            )
    tensors = {name: tensor.detach() for name, tensor in content["model"].items()}
    settings = Content(path.name, _settings(content, path))
    return FairseqFile(settings, tensors, _count_tensors(content.get("last_optimizer_state")))


def _load(path: Path) -> Any:
    known: list[Any] = [argparse.Namespace]
    for name in _METERS:
        known.append((_Meter, name))
    try:
        with safe_globals(known), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _check_sums(path)
            return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        if named := re.search(r"GLOBAL (\S+)", str(error)):
            raise CheckpointError(
                f"{path} names {named[1]}, and what a file names is never run: "
                "open it where fairseq is installed and save its 'model', "
                "and its 'args' or 'cfg' as plain values, with torch.save"
            ) from None
        raise CheckpointError(
            f"{path} is damaged, or no checkpoint of fairseq: it does not hold tensors"
        ) from None
    except _DAMAGES as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise CheckpointError(
            f"{path} is damaged or cut short, or not a file that torch.save wrote: {reason}"
        ) from None


def _check_sums(path: Path) -> None:
    # What torch writes since 1.6 is an archive, whose check sums it does not compare.
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                # torch writes nothing compressed, of which a small file could hold very much.
                if (
                    member.compress_type != zipfile.ZIP_STORED
                    or member.file_size != member.compress_size
                ):
                    raise zipfile.BadZipFile(
                        f"{member.filename!r} is compressed, which torch does not do"
                    )
            if (name := archive.testzip()) is not None:
                raise zipfile.BadZipFile(f"the check sum of {name!r} is not that of its bytes")


def _settings(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    config = content.get("cfg")
    fields = content.get("args")
    if fields is None and isinstance(config, Mapping):
        fields = config.get("model")
    if isinstance(fields, argparse.Namespace):
        fields = vars(fields)
    if not isinstance(fields, Mapping):
        raise CheckpointError(
            f"{path} does not say how its model is built: it has neither args nor cfg with model"
        )
    flat = {}
    for name, value in fields.items():
        if not isinstance(value, Mapping):
            flat[name] = value
    for side in _NESTED:
        inner = fields.get(side)
        if not isinstance(inner, Mapping):
            continue
        for name, value in inner.items():
            flat[f"{side}_{name}"] = value
    for name, value in flat.items():
        if not isinstance(name, str) or not _is_setting(value):
            kind = type(value).__name__
            raise CheckpointError(
                f"{path}: the setting {name!s:.60} holds a {kind}, not a plain value"
            )
    return flat


def _is_setting(value: Any) -> bool:
    """Check whether a value fits a command line: no tensor, no huge number or list."""
    waiting = [value]
    n_seen = 0
    while waiting:
        node = waiting.pop()
        n_seen += 1
        if isinstance(node, list | tuple | Mapping):
            if n_seen + len(waiting) + len(node) > _MOST_VALUES:
                return False
            waiting += node
            if isinstance(node, Mapping):
                waiting += node.values()
        elif type(node) is int:
            if node.bit_length() > _MOST_BITS:
                return False
        elif node is not None and type(node) not in (bool, float, str):
            return False
    return True


def _is_plain(value: Any) -> bool:
    if (
        not isinstance(value, Tensor)
        or value.layout != torch.strided
        or value.is_meta
        or value.is_quantized
    ):
        return False
    # What repeats its elements needs more memory than the file has bytes.
    n_bytes = value.numel() * value.element_size()
    return n_bytes <= value.untyped_storage().nbytes()


def _count_tensors(value: Any) -> int:
    # A pickle may hold a list in itself, or one list very often.
    waiting = [value]
    seen = set()
    n_tensors = 0
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Mapping):
            waiting += node.values()
        elif isinstance(node, list | tuple):
            waiting += node
        n_tensors += isinstance(node, Tensor)
    return n_tensors
