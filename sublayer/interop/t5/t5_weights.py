"""The tensors of T5, as transformers names them, to and from ours."""

from collections.abc import Iterator, Mapping
from itertools import product

import torch
from torch import Tensor

from sublayer.config.architecture.block import Entry
from sublayer.config.architecture.stacks import stacks
from sublayer.config.resolved import ResolvedModel
from sublayer.errors import CheckpointError
from sublayer.interop.config_reader import Content
from sublayer.interop.weight_map import Pair

TABLE, OUTPUT = "shared.weight", "lm_head.weight"
_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_CROSS_TABLE = "EncDecAttention.relative_attention_bias.weight"
_ATTENTIONS = {"attention": "SelfAttention", "cross": "EncDecAttention"}
_FFN = "DenseReluDense"


def is_unused(name: str) -> bool:
    """Return whether the class has no use for a tensor: former files have biases across stacks."""
    return name.endswith(_CROSS_TABLE)


def prepare(content: Content, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Leave out copies of the embedding matrix, which stands under ``shared.weight`` afterwards.

    The output matrix is one where it is equal to the table and config.json does not say that they
    are apart. What config.json ties, and differs, is not tied, as in the class.

    Raises CheckpointError where a stack's table differs.
    """
    weights = dict(tensors)
    if TABLE not in weights:
        # Files keep one of the tensors that are one.
        kept = [name for name in (*_COPIES, OUTPUT) if name in weights]
        if kept:
            weights[TABLE] = weights[kept[0]]
    for name in _COPIES:
        if name in weights and not torch.equal(weights[name], weights[TABLE]):
            raise CheckpointError(
                f"the weights hold {name} that differs from {TABLE}: several tables cannot be one"
            )
        weights.pop(name, None)
    is_tied = content.flag("tie_word_embeddings")
    if is_tied and OUTPUT in weights and torch.equal(weights[OUTPUT], weights[TABLE]):
        del weights[OUTPUT]
    return weights


def pairs(config: ResolvedModel) -> Iterator[Pair]:
    """Pair their tensors with an expanded model's."""
    yield Pair((TABLE,), "embedding.weight")
    if not config.tie_embeddings:
        yield Pair((OUTPUT,), "head.weight")
    for stack in stacks(config):
        # Ours is a decoder that contains the encoder as its source.
        prefix = "source." if stack.feeds_memory else ""
        # The first block's, which all blocks of a stack use.
        table = f"{stack.name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        yield Pair((table,), f"{prefix}positions.table.weight")
        yield Pair((f"{stack.name}.final_layer_norm.weight",), f"{prefix}final_norm.weight")
        for layer, (index, entry) in product(range(stack.n_layers), enumerate(stack.block)):
            theirs = f"{stack.name}.block.{layer}.layer.{index}"
            ours = f"{prefix}{stack.name}.sublayers.{index}.{layer}"
            yield Pair((f"{theirs}.layer_norm.weight",), f"{ours}.norm.weight")
            if entry.ffn is None:
                yield from _pair_attention(entry, theirs, f"{ours}.function")
            else:
                yield from _pair_ffn(entry, theirs, f"{ours}.function")


def _pair_attention(entry: Entry, theirs: str, ours: str) -> Iterator[Pair]:
    attention = f"{theirs}.{_ATTENTIONS[entry.name]}"
    maps = tuple(f"{attention}.{letter}.weight" for letter in "qkv")
    yield Pair(maps, f"{ours}.projection.weight")
    yield Pair((f"{attention}.o.weight",), f"{ours}.output.weight")


def _pair_ffn(entry: Entry, theirs: str, ours: str) -> Iterator[Pair]:
    assert entry.ffn is not None, "an ffn entry has a variant"
    names = ("wi_0", "wi_1") if entry.ffn.is_gated else ("wi",)
    into = tuple(f"{theirs}.{_FFN}.{name}.weight" for name in names)
    yield Pair(into, f"{ours}.input.weight")
    yield Pair((f"{theirs}.{_FFN}.wo.weight",), f"{ours}.output.weight")
