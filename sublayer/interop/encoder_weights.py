"""The tensors of BERT and of ALBERT, by whatever names a system has for them, to and from a model's."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import is_factorised
from sublayer.errors import CheckpointError
from sublayer.interop.content import Content
from sublayer.interop.encoder_names import Names
from sublayer.interop.pairs import Pair, check_tied

# Constants that older versions of transformers saved with the weights.
_IGNORED = ("embeddings.position_ids", "embeddings.token_type_ids")
_OLD_ENDINGS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def is_constant(name: str) -> bool:
    """Tell the tensors that hold no weights."""
    return name in _IGNORED


def prepare(content: Content, tensors: Mapping[str, Tensor], names: Names) -> dict[str, Tensor]:
    """Leave out tied copies, and give norms the names that transformers has today.

    Raises CheckpointError where config.json ties tensors that differ, and where a norm has both names.
    """
    if twice := sorted(name for name in tensors if name != _modern(name) and _modern(name) in tensors):
        raise CheckpointError(f"the weights hold {twice[0]} and {_modern(twice[0])}: leave one of them out")
    found = {_modern(name): tensor for name, tensor in tensors.items()}
    matrix, bias = f"{names.decoder}.weight", f"{names.decoder}.bias"
    if content.flag("tie_word_embeddings"):
        check_tied(found, matrix, names.words)
        check_tied(found, bias, names.output_bias)
        found.pop(matrix, None)
        if bias in found:
            found[names.output_bias] = found.pop(bias)
    elif bias in found or names.output_bias in found:
        # Where the two differ, the one beside the matrix is what is computed with.
        found[bias] = found[names.output_bias] = found.get(bias, found.get(names.output_bias))  # type: ignore[assignment]
    return found


def find_heads(found: Mapping[str, Tensor], names: Names) -> dict[str, Any]:
    """Tell which of the heads there are as fields of a model config.

    Raises CheckpointError where none predicts tokens.
    """
    needed = names.transform + names.linear[0]
    if needed not in found:
        raise CheckpointError(
            f"the weights hold no {needed}: only a model that predicts masked tokens can be imported, with or without "
            "a pooler and a sentence head"
        )
    has_sentence = names.sentence[0] in found
    has_pooler = has_sentence or names.pooler + names.linear[0] in found
    return {"sentence_classes": 2 if has_sentence else 0, "pooler": "tanh" if has_pooler else "none"}


def leave_out_identity(found: dict[str, Tensor], names: Names) -> None:
    """Leave out a projection that changes nothing: what an export writes for a model without one."""
    weight, bias = names.projection + names.linear[0], names.projection + names.linear[1]
    if weight in found and bias in found and _is_identity(found[weight]) and not found[bias].any():
        del found[weight], found[bias]


def pairs(config: ModelConfig, names: Names) -> Iterator[Pair]:
    """Pair a system's tensors with a written-out model's."""
    yield Pair((names.words,), "embedding.weight")
    yield Pair((names.positions,), "positions.tables.0.weight")
    yield Pair((names.segments,), "segment_table.weight")
    yield from _norm(names, names.embedding_norm, "embedding_norm")
    if is_factorised(config):
        yield from _linear(names, [names.projection], "embedding.projection")
    is_shared = config.share == "all"
    n_slots = config.share_groups * config.share_inner if is_shared else config.n_layers
    for slot in range(n_slots):
        group, inner = divmod(slot, config.share_inner if is_shared else 1)
        yield from _block(names, names.unit.format(group=group, inner=inner), slot)
    yield from _linear(names, [names.transform], "head.projection")
    yield from _norm(names, names.transform_norm, "head.norm")
    yield Pair((names.output_bias,), "head.bias")
    if not config.tie_embeddings:
        yield Pair((f"{names.decoder}.weight",), "head.weight")
        yield Pair((f"{names.decoder}.bias",), "head.bias")
    if config.pooler == "tanh":
        yield from _linear(names, [names.pooler], "pooler.linear")
    if config.sentence_classes:
        yield Pair((names.sentence[0],), "sentence_head.weight")
        yield Pair((names.sentence[1],), "sentence_head.bias")


def _block(names: Names, unit: str, slot: int) -> Iterator[Pair]:
    attention, ffn = f"encoder.sublayers.0.{slot}", f"encoder.sublayers.1.{slot}"
    queries_keys_values = [f"{unit}{names.attention}{name}" for name in ("query", "key", "value")]
    yield from _linear(names, queries_keys_values, f"{attention}.function.projection")
    yield from _linear(names, [unit + names.attention_output], f"{attention}.function.output")
    yield from _norm(names, unit + names.attention_norm, f"{attention}.norm")
    yield from _linear(names, [unit + names.ffn_input], f"{ffn}.function.input")
    yield from _linear(names, [unit + names.ffn_output], f"{ffn}.function.output")
    yield from _norm(names, unit + names.ffn_norm, f"{ffn}.norm")


def _norm(names: Names, theirs: str, ours: str) -> Iterator[Pair]:
    yield Pair((theirs + names.norm[0],), f"{ours}.weight")
    yield Pair((theirs + names.norm[1],), f"{ours}.bias")


def _linear(names: Names, theirs: list[str], ours: str) -> Iterator[Pair]:
    weight, bias = names.linear
    yield Pair(tuple(name + weight for name in theirs), f"{ours}.weight", is_transposed=names.is_transposed)
    yield Pair(tuple(name + bias for name in theirs), f"{ours}.bias")


def _modern(name: str) -> str:
    for old, new in _OLD_ENDINGS.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _is_identity(matrix: Tensor) -> bool:
    is_square = matrix.dim() == 2 and matrix.shape[0] == matrix.shape[1]
    return is_square and torch.equal(matrix, torch.eye(len(matrix), dtype=matrix.dtype))
