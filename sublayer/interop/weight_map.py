"""Tensors by another system's names and ours: paired, read, written, expanded, checked."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from sublayer.config.model import BiasedMap
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import StackShape, embedding_width, has_bias, n_copies, slot, stacks
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.foreign_config import QUANTISED
from sublayer.model.model_folder import check_float, computed_dtype, usable
from sublayer.model.positions import sinusoids
from sublayer.model.transformer import shapes_of
from sublayer.numbers import count
from sublayer.objective.supervised.heads import BIAS, WEIGHT

_WRAPPER = re.compile(
    r"^(?:module\.)+"
    r"|(?<![^.])(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|_forward_module)\."
)
"""Name parts added by wrappers: by distributed training in front, by the others at any place."""


@dataclass(frozen=True)
class Pair:
    """One of our tensors, and the tensors of theirs that form it."""

    theirs: tuple[str, ...]
    """Several are stacked along our first axis; a single one holds stacked maps one after another.
    Without any, ours is zeros."""
    ours: str
    is_transposed: bool = False
    """True where theirs is ``[d_in, d_out]``, and ours ``[d_out, d_in]``."""
    is_row: bool = False
    """True where our vector is a one-row matrix in theirs."""
    added: float = 0.0
    """Number that their class adds to the tensor's."""

    def read(self, parts: list[Tensor], ours: torch.Size) -> Tensor:
        """Convert their tensors, in the order of ``theirs``, to ours of shape ``ours``."""
        if not parts:
            return torch.zeros(ours)
        parts = [part.T if self.is_transposed else part for part in parts]
        joined = parts[0] if len(parts) == 1 else torch.stack(parts)
        joined = joined.reshape(ours).contiguous()
        return joined + self.added if self.added else joined

    def write(self, tensor: Tensor) -> dict[str, Tensor]:
        """Convert our tensor to theirs, by name; each is a contiguous copy, without a gradient."""
        assert self.theirs or tensor.is_meta or not tensor.any(), f"{self.ours} is zeros"
        parts = [tensor] if len(self.theirs) == 1 else list(tensor.unbind())
        written = {}
        for name, part in zip(self.theirs, parts, strict=bool(self.theirs)):
            if self.ours.endswith(".bias"):
                part = part.flatten()[None] if self.is_row else part.flatten()
            elif self.is_transposed:
                part = part.reshape(-1, part.shape[-1]).T
            elif part.dim() == 3:
                part = part.flatten(0, 1)
            part = part.detach().clone(memory_format=torch.contiguous_format)
            written[name] = part - self.added if self.added else part
        return written


def pair_linear(
    theirs: str | tuple[str, ...], ours: str, *, is_transposed: bool = False
) -> Iterator[Pair]:
    """Pair the weight and bias of a linear map or norm; several of theirs may form one of ours."""
    theirs = (theirs,) if isinstance(theirs, str) else theirs
    for part in ("weight", "bias"):
        yield Pair(
            tuple(f"{name}.{part}" for name in theirs),
            f"{ours}.{part}",
            is_transposed=is_transposed and part == "weight",
        )


BlockNames = tuple[str, str | tuple[str, ...], str]
"""Names, within a sub-layer, of its norm, its first map or maps, and its last map."""


def pair_blocks(
    config: ResolvedModel, unit: str, names: Mapping[str, BlockNames]
) -> Iterator[Pair]:
    """Pair the tensors of all stacks' blocks; shared ones once.

    ``unit`` is a sub-layer's prefix, with the fields ``stack``, ``layer``, ``index`` (in the
    block), ``group`` and ``inner``. Keys of ``names`` are kinds, or kind and index: ``ffn 0``.
    """
    for stack in stacks(config):
        layers = range(n_copies(config, stack, stack.block[0]))
        for layer, (index, entry) in product(layers, enumerate(stack.block)):
            group, inner = divmod(layer, config.share_inner)
            theirs = unit.format(
                stack=stack.name, layer=layer, index=index, group=group, inner=inner
            )
            norm, into, out = names.get(f"{entry.name} {index}") or names[entry.name]
            first = "function.projection" if entry.ffn is None else "function.input"
            for path, each in (("norm", norm), (first, into), ("function.output", out)):
                modules = (each,) if isinstance(each, str) else each
                ours = f"{_prefix(stack)}.sublayers.{index}.{layer}.{path}"
                yield from pair_linear(tuple(theirs + name for name in modules), ours)


def _prefix(stack: StackShape) -> str:
    # Ours is a decoder that contains the encoder as its source.
    return f"source.{stack.name}" if stack.feeds_memory else stack.name


_ALTERED = {
    "lora_": "an unmerged adapter (LoRA): save it merged with peft (merge_and_unload)",
    "qweight": QUANTISED,
    ".absmax": QUANTISED,
    "parametrizations.": "parametrizations of weights: save it without them",
}
"""Parts of tensor names that show why other tensors are missing, and the remedy."""


def read_pairs(
    tensors: Mapping[str, Tensor],
    pairs: Iterable[Pair],
    config: ResolvedModel,
    *,
    title: str,
    file: str = "config.json",
) -> dict[str, Tensor]:
    """Convert another system's tensors to ours; ``title`` and ``file`` describe them in errors.

    Pairs of parts that the model lacks are skipped. Raises CheckpointError, naming the tensor,
    where one is missing, has another shape, is unknown, or holds anything but finite numbers.
    """
    # Checked before any block is built.
    n_blocks = sum(max(n_copies(config, stack, e) for e in stack.block) for stack in stacks(config))
    if n_blocks > len(tensors):
        held = count(len(tensors), "tensor")
        raise CheckpointError(f"{file} asks for {n_blocks:,} blocks of weights, which hold {held}")
    shapes = shapes_of(config)
    pairs = [pair for pair in pairs if pair.ours in shapes]
    names = [name for pair in pairs for name in pair.theirs]
    missing = [name for name in names if name not in tensors]
    if missing:
        found = [what for part, what in _ALTERED.items() if part in " ".join(tensors)]
        altered = f"; they hold {found[0]}" if found else ""
        raise CheckpointError(f"the weights lack {_first_of(missing)}{altered}")
    if unknown := sorted(tensors.keys() - set(names)):
        raise CheckpointError(f"the weights hold {_first_of(unknown)}, unknown to {title}")
    # All shapes are checked before the first tensor is copied.
    for pair in pairs:
        for name, part in pair.write(torch.empty(shapes[pair.ours], device="meta")).items():
            shape, expected = list(tensors[name].shape), list(part.shape)
            if shape != expected:
                raise CheckpointError(f"{name} has shape {shape}, but {file} gives {expected}")
            check_float(name, tensors[name])
    dtype = computed_dtype(tensors.values())
    weights = {}
    for pair in pairs:
        parts = [usable(name, tensors[name], dtype) for name in pair.theirs]
        weights[pair.ours] = pair.read(parts, shapes[pair.ours]).to(dtype)
    return weights


def strip_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Strip a prefix off the names that have it; raise CheckpointError where two become equal."""
    if not prefix:
        return dict(tensors)
    short = {name: name.removeprefix(prefix) for name in sorted(tensors)}
    if twice := [name for name in short if short[name] != name and short[name] in tensors]:
        name = twice[0]
        raise CheckpointError(f"the weights hold {name} and {short[name]}: leave one of them out")
    return {short[name]: tensor for name, tensor in tensors.items()}


def unwrap(
    tensors: Mapping[str, Tensor], prefixes: Collection[str]
) -> tuple[dict[str, Tensor], str | None]:
    """Strip the prefixes of wrappers off names; return the tensors, and a note on the prefixes.

    Any other prefix common to all names is stripped too, unless it begins one of ``prefixes``,
    those of known classes. Raises CheckpointError where two names become equal.
    """
    stripped: dict[str, Tensor] = {}
    removed: dict[str, None] = {}
    for name, tensor in tensors.items():
        removed |= dict.fromkeys(re.findall(r"\w+\.", "".join(_WRAPPER.findall(name))))
        short = _WRAPPER.sub("", name)
        if short in stripped:
            raise CheckpointError(f"the weights hold {short} twice, once as {name}: leave one out")
        stripped[short] = tensor
    while len(outer := {name[: name.find(".") + 1] for name in stripped}) == 1:
        (prefix,) = outer
        if not prefix or any(known.startswith(prefix) for known in prefixes):
            break
        removed[prefix] = None
        stripped = strip_prefix(stripped, prefix)
    if not removed:
        return stripped, None
    listed = ", ".join(removed)
    return stripped, f"{listed} was stripped from the names of tensors: a wrapper's prefix"


def _first_of(names: list[str]) -> str:
    return names[0] + (f" and {count(len(names) - 1, 'other')}" if len(names) > 1 else "")


_MAPS: tuple[BiasedMap, ...] = ("query", "key", "value")


def expand(
    weights: Mapping[str, Tensor], config: ResolvedModel, required: Mapping[str, Any]
) -> tuple[ResolvedModel, dict[str, Tensor]]:
    """Return the config with the fields that a class requires, and equivalent weights.

    Parts that the model lacks become parts without effect: biases of zeros, gain 1 and offset 0 for
    norms without parameters, an identity projection, segments of zeros. Shared weights are repeated
    in each block; fixed or absent positions become a table; scaled embeddings become a scaled table
    and a separate, unscaled output matrix. Repeated tensors share memory.
    """
    full = config.model_copy(update=dict(required))
    # Prefixes of each sub-layer in the full model, and of the sub-layer that they are read from.
    own_prefixes = {}
    for stack in stacks(config):
        for layer, (index, entry) in product(range(stack.n_layers), enumerate(stack.block)):
            sublayers = f"{_prefix(stack)}.sublayers.{index}"
            source_prefix = f"{sublayers}.{slot(config, stack, layer, entry)}."
            own_prefixes[f"{sublayers}.{slot(full, stack, layer, entry)}."] = source_prefix
    weights = dict(weights)
    table = weights["embedding.weight"]
    weights.setdefault("head.weight", table)
    if config.embedding_scale == "sqrt" and full.embedding_scale == "none":
        # Scaled as the model does at run time: the product is rounded once.
        weights["embedding.weight"] = table * table.shape[1] ** 0.5
    expanded = {}
    for name, shape in shapes_of(full).items():
        source = name
        if in_block := re.match(r".*\.sublayers\.\d+\.\d+\.", name):
            source = own_prefixes[in_block[0]] + name.removeprefix(in_block[0])
        tensor = weights.get(source)
        if name == "segment_table.weight" and config.segments == "second":
            tensor = torch.cat([torch.zeros_like(weights[name]), weights[name]])
        elif name.endswith("positions.tables.0.weight") and config.positions == "sinusoidal":
            positions = torch.arange(shape[0]) + config.first_position
            width, form = embedding_width(config), config.sinusoids
            tensor = sinusoids(positions, d_model=width, dtype=table.dtype, form=form)
        elif tensor is None and name == "embedding.projection.weight":
            tensor = torch.eye(*shape, dtype=table.dtype)
        elif tensor is None:
            fillable = (".bias", "norm.weight", "positions.tables.0.weight", "segment_table.weight")
            assert name.endswith(fillable), source
            fill = torch.ones if name.endswith("norm.weight") else torch.zeros
            tensor = fill(shape, dtype=table.dtype)
        elif name.endswith("function.projection.bias") and tensor.shape != shape:
            # Some of the stacked maps have a bias.
            biases = tensor.new_zeros(shape)
            biases[[has_bias(config, each) for each in _MAPS[-shape[0] :]]] = tensor
            tensor = biases
        expanded[name] = tensor
    return full, expanded


_LEAST_SHARE = 1e-2
"""The least sum, over the root of the width: a smaller one is lost in the features' rounding."""


def fold_bias(weights: Mapping[str, Tensor], norm: str) -> dict[str, Tensor]:
    """Fold the label head's bias into its weights, by the offsets of the norm that it reads.

    A layer norm's features, before gains and offsets, sum to zero. So its outputs, each divided by
    its gain, sum to a constant for every text: the sum of the offsets, each divided by its gain. A
    multiple of that constant acts as a bias. Only where it is too small do the offsets change: each
    grows by its gain, and the head's weights compensate; no other head reads this norm.

    Raises ConfigError for a bias where the norm has no offsets, or a gain of zero.
    """
    if not weights[BIAS].any():
        return dict(weights)
    gain, offset = f"{norm}.weight", f"{norm}.bias"
    gains = weights[gain].double()
    if offset not in weights or not gains.all():
        raise ConfigError(
            f"transformers' classifier has no bias, and {norm} no offsets or a gain of zero, so "
            f"that {BIAS} cannot be folded into it: the model cannot be exported"
        )
    offsets, matrix, bias = (weights[name].double() for name in (offset, WEIGHT, BIAS))
    shares = 1.0 / gains
    total, width = (offsets * shares).sum(), len(gains)
    if total.abs() < _LEAST_SHARE * width**0.5:
        offsets, bias, total = offsets + gains, bias - matrix @ gains, total + width
    dtype = weights[WEIGHT].dtype
    return {
        **weights,
        offset: offsets.to(dtype),
        WEIGHT: (matrix + torch.outer(bias, shares) / total).to(dtype),
        BIAS: torch.zeros_like(weights[BIAS]),
    }
