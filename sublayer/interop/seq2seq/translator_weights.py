"""The tensors of translators, as fairseq, M2M100 and Marian name them, to and from ours."""

from collections.abc import Iterator, Mapping
from itertools import product

import torch
from torch import Tensor

from sublayer.config.architecture.block import Entry
from sublayer.config.architecture.stacks import stacks
from sublayer.config.resolved import ResolvedModel
from sublayer.errors import CheckpointError
from sublayer.interop.config_reader import Content
from sublayer.interop.weight_map import Pair, check_tied, pair_linear
from sublayer.model.positions.sinusoidal import sinusoids
from sublayer.model.weights import check_float

HEADS = ("lm_head.", "final_logits_bias")
_TABLE, _OUTPUT, _BIAS = "shared.weight", "lm_head.weight", "final_logits_bias"
_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_POSITIONS = ("encoder.embed_positions.weight", "decoder.embed_positions.weight")
# Of a table in half precision, and of the float32 in which positions past a thousand were
# multiplied.
_ROUNDING = 2e-3
_FIRST_HALF = "macaron_"
_NORMS = {
    "attention": "self_attn_layer_norm",
    "cross": "encoder_attn_layer_norm",
    "ffn": "final_layer_norm",
}
_ATTENTIONS = {"attention": "self_attn", "cross": "encoder_attn"}


def is_sinusoids(name: str) -> bool:
    """Return whether M2M100's class computes a tensor anew, whatever a file has."""
    return "embed_positions" in name


def prepare_marian(content: Content, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Leave out what ``prepare`` does, and tables of sinusoids.

    Raises CheckpointError where such a table holds other numbers, and as ``prepare`` does.
    """
    others = dict(tensors)
    for name in _POSITIONS:
        table = others.pop(name, None)
        if table is not None:
            _check_sinusoids(name, table)
    return prepare(content, others)


def _check_sinusoids(name: str, table: Tensor) -> None:
    check_float(name, table)
    if table.dim() != 2 or not table.numel() or table.shape[1] % 2:
        raise CheckpointError(
            f"{name} has shape {list(table.shape)}, which is no table of sinusoids"
        )
    positions = torch.arange(len(table))
    d_model = table.shape[1]
    expected = sinusoids(positions, d_model=d_model, dtype=torch.float32, form="marian")
    if not torch.allclose(table.float(), expected, rtol=0, atol=_ROUNDING):
        raise CheckpointError(
            f"{name} holds other numbers than Marian's sinusoids, which alone are read"
        )


def prepare(content: Content, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Leave out copies of the embedding matrix, which stands under ``shared.weight`` afterwards.

    The output matrix is a copy where config.json ties it. Raises CheckpointError where a copy
    differs.
    """
    weights = dict(tensors)
    copies = list(_COPIES)
    if content.flag("tie_word_embeddings"):
        copies.append(_OUTPUT)
    if _TABLE not in weights:
        # Files keep one of the tensors that are one.
        kept = [name for name in copies if name in weights]
        if kept:
            weights[_TABLE] = weights[kept[0]]
    for name in copies:
        is_table = name in weights and name != _OUTPUT
        if is_table and not torch.equal(weights[name], weights[_TABLE]):
            raise CheckpointError(
                f"the weights hold {name} that differs from {_TABLE}: several tables cannot be one"
            )
        check_tied(weights, name, _TABLE)
        weights.pop(name, None)
    return weights


def pairs(config: ResolvedModel, *, table: str = _TABLE, output: str = _OUTPUT) -> Iterator[Pair]:
    """Pair their tensors, named without the prefix ``model.``, with an expanded model's.

    ``table`` and ``output`` are what they call the embedding matrix and, where it is another, the
    output matrix. The feed-forward network that stands first in a block is Macaron Net's first
    half.
    """
    yield Pair((table,), "embedding.weight")
    for stack in stacks(config):
        # Ours is a decoder that contains the encoder as its source.
        prefix = "source." if stack.feeds_memory else ""
        for layer, (index, entry) in product(range(stack.n_layers), enumerate(stack.block)):
            theirs = f"{stack.name}.layers.{layer}"
            ours = f"{prefix}{stack.name}.sublayers.{index}.{layer}"
            if entry.ffn is None:
                norm = _NORMS[entry.name]
                yield from _pair_attention(entry, theirs, ours)
            else:
                half = _FIRST_HALF if index == 0 else ""
                norm = f"{half}layer_norm" if half else _NORMS[entry.name]
                yield from pair_linear(f"{theirs}.{half}fc1", f"{ours}.function.input")
                yield from pair_linear(f"{theirs}.{half}fc2", f"{ours}.function.output")
            if config.norm_affine:
                yield from pair_linear(f"{theirs}.{norm}", f"{ours}.norm")
        if config.final_norm == "affine":
            yield from pair_linear(f"{stack.name}.layer_norm", f"{prefix}final_norm")
    if not config.tie_embeddings:
        yield Pair((output,), "head.weight")
    if config.head_bias:
        yield Pair((_BIAS,), "head.bias", is_row=True)


def _pair_attention(entry: Entry, theirs: str, ours: str) -> Iterator[Pair]:
    attention = f"{theirs}.{_ATTENTIONS[entry.name]}"
    for part in ("weight", "bias"):
        names = tuple(f"{attention}.{letter}_proj.{part}" for letter in "qkv")
        yield Pair(names, f"{ours}.function.projection.{part}")
    yield from pair_linear(f"{attention}.out_proj", f"{ours}.function.output")


def copies(config: ResolvedModel) -> dict[str, str]:
    """Return what a file must hold beside ``pairs``, and of what each is a copy.

    Where the output matrix is not the embedding matrix, each stack has a table of its own.
    """
    if config.tie_embeddings:
        return {}
    return dict.fromkeys(_COPIES, _TABLE)
