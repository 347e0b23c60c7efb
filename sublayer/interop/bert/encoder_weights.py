"""The tensors of BERT and ALBERT, by whatever names a system has for them, to and from ours."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from sublayer.config.architecture.derived import is_factorised
from sublayer.config.resolved import ResolvedModel
from sublayer.errors import CheckpointError
from sublayer.interop.bert.encoder_names import Names
from sublayer.interop.config_reader import Content
from sublayer.interop.weight_map import Pair, check_tied

# Constants that older versions of transformers saved with the weights.
_IGNORED = ("embeddings.position_ids", "embeddings.token_type_ids")
_OLD_ENDINGS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def is_constant(name: str) -> bool:
    """Return whether a tensor holds no weights."""
    return name in _IGNORED


def prepare(content: Content, tensors: Mapping[str, Tensor], names: Names) -> dict[str, Tensor]:
    """Leave out tied copies, and give norms the names that transformers has today.

    An untied output matrix has a bias of its own: the file's, or that of the head.

    Raises CheckpointError where config.json ties tensors that differ, and where a norm has both
    names.
    """
    weights = {}
    for name in sorted(tensors):
        modern = _modern(name)
        if name != modern and modern in tensors:
            raise CheckpointError(f"the weights hold {name} and {modern}: leave one of them out")
        weights[modern] = tensors[name]
    matrix = f"{names.decoder}.weight"
    bias = f"{names.decoder}.bias"
    if content.flag("tie_word_embeddings"):
        check_tied(weights, matrix, names.words)
        check_tied(weights, bias, names.output_bias)
        weights.pop(matrix, None)
        if bias in weights:
            weights[names.output_bias] = weights.pop(bias)
    elif bias in weights or names.output_bias in weights:
        # Where the two differ, the one beside the matrix is what is computed with.
        used = weights[bias if bias in weights else names.output_bias]
        weights[bias] = used
        weights[names.output_bias] = used
    return weights


def find_heads(weights: Mapping[str, Tensor], names: Names) -> dict[str, Any]:
    """Return the fields of a model config that say which heads there are.

    A head of which one tensor is there is asked for whole: what it lacks is reported by its name.
    """
    has_sentence = names.sentence[0] in weights
    # A sentence head is never without a pooler.
    has_pooler = has_sentence or names.pooler + names.linear[0] in weights
    fields = {
        "sentence_classes": 2 if has_sentence else 0,
        "pooler": "tanh" if has_pooler else "none",
    }
    of_tokens = names.output_bias.removesuffix("output_bias").removesuffix("bias")
    if not any(name.startswith(of_tokens) for name in weights):
        fields |= {"head": "none", "head_bias": False}
    return fields


def leave_out_identity(weights: dict[str, Tensor], names: Names) -> None:
    """Leave out a projection that changes nothing, which an export writes where there is none.

    ``weights`` change in place.
    """
    weight_ending, bias_ending = names.linear
    weight_name = names.projection + weight_ending
    bias_name = names.projection + bias_ending
    weight = weights.get(weight_name)
    bias = weights.get(bias_name)
    if weight is None or bias is None:
        return
    if _is_identity(weight) and not bias.any():
        del weights[weight_name]
        del weights[bias_name]


def pairs(config: ResolvedModel, names: Names) -> Iterator[Pair]:
    """Pair a system's tensors with an expanded model's, those of its heads included.

    With weights that are shared in groups, each stands once.
    """
    tables = {
        "embedding.weight": names.words,
        "positions.tables.0.weight": names.positions,
        "segment_table.weight": names.segments,
    }
    for ours, theirs in tables.items():
        yield Pair((theirs,), ours)
    yield from _norm(names, names.embedding_norm, "embedding_norm")
    if is_factorised(config):
        yield from _linear(names, [names.projection], "embedding.projection")
    n_inner = 1
    n_slots = config.n_layers
    if config.share == "all":
        n_inner = config.share_inner
        n_slots = config.share_groups * n_inner
    for slot in range(n_slots):
        group, inner = divmod(slot, n_inner)
        unit = names.unit.format(group=group, inner=inner)
        yield from _block(names, unit, slot)
    if config.head != "none":
        yield from _linear(names, [names.transform], "head.projection")
        yield from _norm(names, names.transform_norm, "head.norm")
        yield Pair((names.output_bias,), "head.bias")
        if not config.tie_embeddings:
            yield Pair((f"{names.decoder}.weight",), "head.weight")
            yield Pair((f"{names.decoder}.bias",), "head.bias")
    if config.pooler == "tanh":
        yield from _linear(names, [names.pooler], "pooler.linear")
    if config.sentence_classes:
        weight, bias = names.sentence
        yield Pair((weight,), "sentence_head.weight")
        yield Pair((bias,), "sentence_head.bias")
    if config.label_outputs:
        yield from _linear(names, [names.labels], "label_head")
    if config.span_head == "independent":
        yield from _linear(names, [names.spans], "span_head")


def _block(names: Names, unit: str, slot: int) -> Iterator[Pair]:
    attention = f"encoder.sublayers.0.{slot}"
    own = unit + names.attention
    queries_keys_values = [f"{own}query", f"{own}key", f"{own}value"]
    output = unit + names.attention_output
    norm = unit + names.attention_norm
    yield from _linear(names, queries_keys_values, f"{attention}.function.projection")
    yield from _linear(names, [output], f"{attention}.function.output")
    yield from _norm(names, norm, f"{attention}.norm")
    ffn = f"encoder.sublayers.1.{slot}"
    ffn_input = unit + names.ffn_input
    ffn_output = unit + names.ffn_output
    ffn_norm = unit + names.ffn_norm
    yield from _linear(names, [ffn_input], f"{ffn}.function.input")
    yield from _linear(names, [ffn_output], f"{ffn}.function.output")
    yield from _norm(names, ffn_norm, f"{ffn}.norm")


def _norm(names: Names, theirs: str, ours: str) -> Iterator[Pair]:
    weight, bias = names.norm
    yield Pair((theirs + weight,), f"{ours}.weight")
    yield Pair((theirs + bias,), f"{ours}.bias")


def _linear(names: Names, theirs: list[str], ours: str) -> Iterator[Pair]:
    weight, bias = names.linear
    weights = tuple(name + weight for name in theirs)
    biases = tuple(name + bias for name in theirs)
    yield Pair(weights, f"{ours}.weight", is_transposed=names.is_transposed)
    yield Pair(biases, f"{ours}.bias")


def _modern(name: str) -> str:
    for old, new in _OLD_ENDINGS.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _is_identity(matrix: Tensor) -> bool:
    if matrix.dim() != 2:
        return False
    identity = torch.eye(len(matrix), dtype=matrix.dtype)
    return torch.equal(matrix, identity)
