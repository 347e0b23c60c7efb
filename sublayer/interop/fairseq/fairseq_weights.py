"""The tensors of fairseq's translation models, of any version, under its newest version's names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sublayer.errors import CheckpointError
from sublayer.interop.config_reader import Content
from sublayer.model.weights import check_finite, check_float

SIDES = ("encoder", "decoder")
TABLE, OUTPUT = "encoder.embed_tokens.weight", "decoder.output_projection.weight"
_TARGET_TABLE, _OLD_OUTPUT = "decoder.embed_tokens.weight", "decoder.embed_out"
_NO_WEIGHTS = ("version", "embed_positions._float_tensor", "embed_positions.weights")
# Norms by number, which is the order of fairseq's code, not that of the computation.
_NUMBERED = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm", "macaron_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
_NORM = re.compile(r"(encoder|decoder)(\.layers\.\d+\.)layer_norms\.([012])\.(weight|bias)")
_FUSED = re.compile(r"(.+_attn\.)in_proj_(weight|bias)")


@dataclass(frozen=True)
class FairseqWeights:
    """A checkpoint's weights by their newest names, and what was left out of it."""

    tensors: dict[str, Tensor]
    no_weights: list[str]
    """The names of buffers."""
    copies: list[str]
    """The newest names of tensors that equal the encoder's embedding matrix."""


def prepare(content: Content, tensors: Mapping[str, Tensor]) -> FairseqWeights:
    """Rename and split a checkpoint's tensors, so that each is accounted for.

    Norms that had numbers get names, queries, keys and values that were one matrix three. Of tables
    that are one, the encoder's stays.

    Raises CheckpointError where a tensor stands under an old and a new name, an embedding matrix is
    missing, copies differ, or numbers are not finite floats.
    """
    buffers = [f"{side}.{name}" for side in SIDES for name in _NO_WEIGHTS]
    no_weights = sorted(name for name in buffers if name in tensors)
    weights: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name in no_weights:
            continue
        for new, part in _upgrade(name, tensor).items():
            if new in weights or (new != name and new in tensors):
                raise CheckpointError(
                    f"the weights hold {new} twice, once as {name}: leave one of them out"
                )
            weights[new] = part
    for name, tensor in weights.items():
        check_float(name, tensor)
        check_finite(name, tensor)
    copies = _take_copies(content, weights)
    return FairseqWeights(weights, no_weights, copies)


def has_final_norm(weights: FairseqWeights, tensors: Mapping[str, Tensor]) -> bool:
    """Return whether a norm follows each stack.

    It does behind pre-norm blocks, but in checkpoints older than version 2.
    """
    version = tensors.get("encoder.version")
    if version is not None and version.numel() == 1 and float(version) >= 2:
        return True
    norms = [f"{side}.layer_norm.weight" for side in SIDES]
    return any(norm in weights.tensors for norm in norms)


def _upgrade(name: str, tensor: Tensor) -> dict[str, Tensor]:
    if name == _OLD_OUTPUT:
        return {OUTPUT: tensor}
    if match := _NORM.fullmatch(name):
        side, layer, number, kind = match.groups()
        norm = _NUMBERED[side][int(number)]
        return {f"{side}{layer}{norm}.{kind}": tensor}
    if match := _FUSED.fullmatch(name):
        if tensor.dim() == 0 or tensor.shape[0] % 3:
            shape = list(tensor.shape)
            raise CheckpointError(
                f"{name} has shape {shape}: queries, keys and values are not its thirds"
            )
        attention, kind = match.groups()
        thirds = {}
        for letter, part in zip("qkv", tensor.chunk(3), strict=True):
            thirds[f"{attention}{letter}_proj.{kind}"] = part
        return thirds
    return {name: tensor}


def _take_copies(content: Content, weights: dict[str, Tensor]) -> list[str]:
    """Remove what equals the encoder's embedding matrix, which is then the only one."""
    for name in (TABLE, _TARGET_TABLE):
        if name not in weights:
            raise CheckpointError(f"the weights lack {name}")
    table = weights[TABLE]
    share_all = content.flag("share_all_embeddings", False)
    share_decoder = content.flag("share_decoder_input_output_embed", False)
    if not torch.equal(weights[_TARGET_TABLE], table):
        raise CheckpointError(
            f"{_TARGET_TABLE} differs from {TABLE} "
            f"({content.file}: share_all_embeddings = {share_all}): "
            "source and target have one embedding matrix"
        )
    copies = [_TARGET_TABLE]
    if OUTPUT in weights and (share_all or share_decoder):
        if not torch.equal(weights[OUTPUT], table):
            raise CheckpointError(
                f"{OUTPUT} differs from {TABLE}, "
                f"though {content.file} says that the output is the embedding matrix"
            )
        copies.append(OUTPUT)
    for name in copies:
        del weights[name]
    return copies
