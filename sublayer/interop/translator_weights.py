"""The tensors of translators, as fairseq and, after it, transformers' M2M100 and Marian name them, to and from ours."""

from collections.abc import Iterator, Mapping
from itertools import product

import torch
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import stacks
from sublayer.errors import CheckpointError
from sublayer.interop.content import Content
from sublayer.interop.pairs import Pair, check_tied
from sublayer.model.positions import sinusoids
from sublayer.model.weights import check_float

HEADS = ("lm_head.", "final_logits_bias")
_TABLE, _OUTPUT, _BIAS = "shared.weight", "lm_head.weight", "final_logits_bias"
_COPIES = tuple(f"{side}.embed_tokens.weight" for side in ("encoder", "decoder"))
_POSITIONS = tuple(f"{side}.embed_positions.weight" for side in ("encoder", "decoder"))
# Of a table in half precision, and of the float32 in which positions past a thousand were multiplied.
_ROUNDING = 2e-3
_FIRST_HALF = "macaron_"
_NORMS = {"attention": "self_attn_layer_norm", "cross": "encoder_attn_layer_norm", "ffn": "final_layer_norm"}
_ATTENTIONS = {"attention": "self_attn", "cross": "encoder_attn"}


def is_sinusoids(name: str) -> bool:
    """Tell the tensors that M2M100's class computes anew, whatever a file has."""
    return "embed_positions" in name


def prepare_marian(content: Content, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Leave out what ``prepare`` does, and sinusoids. Raises CheckpointError where they are no sinusoids."""
    for name in _POSITIONS:
        if name in tensors:
            _check_sinusoids(name, tensors[name])
    return prepare(content, {name: tensor for name, tensor in tensors.items() if name not in _POSITIONS})


def _check_sinusoids(name: str, table: Tensor) -> None:
    check_float(name, table)
    if table.dim() != 2 or not table.numel() or table.shape[1] % 2:
        raise CheckpointError(f"{name} has shape {list(table.shape)}, which is no table of sinusoids")
    places = torch.arange(len(table))
    expected = sinusoids(places, d_model=table.shape[1], dtype=torch.float32, form="marian")
    if not torch.allclose(table.float(), expected, rtol=0, atol=_ROUNDING):
        raise CheckpointError(f"{name} holds other numbers than Marian's sinusoids, which alone are read")


def prepare(content: Content, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Leave out copies of the token table. Raises CheckpointError where a copy differs."""
    found = dict(tensors)
    copies = [*_COPIES, *([_OUTPUT] if content.flag("tie_word_embeddings") else [])]
    if _TABLE not in found:
        # Files keep one of the tensors that are one.
        present = next((name for name in copies if name in found), None)
        if present is not None:
            found[_TABLE] = found[present]
    for name in copies:
        if name != _OUTPUT and name in found and not torch.equal(found[name], found[_TABLE]):
            raise CheckpointError(f"the weights hold {name} that differs from {_TABLE}: several tables cannot be one")
        check_tied(found, name, _TABLE)
        found.pop(name, None)
    return found


def pairs(config: ModelConfig, *, table: str = _TABLE, output: str = _OUTPUT) -> Iterator[Pair]:
    """Pair their tensors, named without the prefix ``model.``, with a written-out model's.

    ``table`` and ``output`` are what they call the token table and, where it is not the table, the output matrix. The
    feed-forward network that stands first in a block is Macaron Net's first half.
    """
    yield Pair((table,), "embedding.weight")
    for stack in stacks(config):
        side, ours = stack.name, "source.encoder" if stack.name == "encoder" else "decoder"
        for layer, (place, entry) in product(range(stack.n_layers), enumerate(stack.block)):
            theirs, mine = f"{side}.layers.{layer}", f"{ours}.sublayers.{place}.{layer}"
            half = _FIRST_HALF if entry.name == "ffn" and place == 0 else ""
            yield from _both(f"{theirs}.{half + 'layer_norm' if half else _NORMS[entry.name]}", f"{mine}.norm")
            if entry.name == "ffn":
                yield from _both(f"{theirs}.{half}fc1", f"{mine}.function.input")
                yield from _both(f"{theirs}.{half}fc2", f"{mine}.function.output")
                continue
            attention = f"{theirs}.{_ATTENTIONS[entry.name]}"
            for kind in ("weight", "bias"):
                names = tuple(f"{attention}.{name}_proj.{kind}" for name in "qkv")
                yield Pair(names, f"{mine}.function.projection.{kind}")
            yield from _both(f"{attention}.out_proj", f"{mine}.function.output")
        if config.final_norm == "affine":
            yield from _both(f"{side}.layer_norm", "source.final_norm" if side == "encoder" else "final_norm")
    if not config.tie_embeddings:
        yield Pair((output,), "head.weight")
    if config.head_bias:
        yield Pair((_BIAS,), "head.bias", is_row=True)


def copies(config: ModelConfig) -> dict[str, str]:
    """Name what a file must hold beside ``pairs``, and of what it is a copy: without ties the table of each stack."""
    return {} if config.tie_embeddings else dict.fromkeys(_COPIES, _TABLE)


def _both(theirs: str, ours: str) -> Iterator[Pair]:
    for kind in ("weight", "bias"):
        yield Pair((f"{theirs}.{kind}",), f"{ours}.{kind}")
