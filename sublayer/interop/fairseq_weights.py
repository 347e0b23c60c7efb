"""The tensors of fairseq's translation models, of any version, under the names that its newest version gives them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sublayer.errors import CheckpointError
from sublayer.interop.content import Content
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
    """A checkpoint's weights by their newest names, and the names of what is none: buffers, and equal copies."""

    found: dict[str, Tensor]
    no_weights: list[str]
    copies: list[str]


def prepare(content: Content, tensors: Mapping[str, Tensor]) -> FairseqWeights:
    """Rename, split and part a checkpoint's tensors, so that each is accounted for.

    Norms that had numbers get names, queries, keys and values that were one matrix three. Of tables that are one, the
    encoder's stays. Raises CheckpointError where a tensor stands under an old and a new name, copies differ, or numbers
    are not finite.
    """
    no_weights = sorted(f"{side}.{name}" for side in SIDES for name in _NO_WEIGHTS if f"{side}.{name}" in tensors)
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name in no_weights:
            continue
        for new, part in _upgrade(name, tensor).items():
            if new in found or (new != name and new in tensors):
                raise CheckpointError(f"the weights hold {new} twice, once as {name}: leave one of them out")
            found[new] = part
    for name, tensor in found.items():
        check_float(name, tensor)
        check_finite(name, tensor)
    return FairseqWeights(found, no_weights, _take_copies(content, found))


def has_final_norm(weights: FairseqWeights, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a norm follows each stack, as it does behind pre-norm blocks but in checkpoints older than version 2."""
    version = tensors.get("encoder.version")
    is_new = version is not None and version.numel() == 1 and float(version) >= 2
    return is_new or any(f"{side}.layer_norm.weight" in weights.found for side in SIDES)


def _upgrade(name: str, tensor: Tensor) -> dict[str, Tensor]:
    if name == _OLD_OUTPUT:
        return {OUTPUT: tensor}
    if match := _NORM.fullmatch(name):
        side, layer, number, kind = match.groups()
        return {f"{side}{layer}{_NUMBERED[side][int(number)]}.{kind}": tensor}
    if match := _FUSED.fullmatch(name):
        if tensor.dim() == 0 or tensor.shape[0] % 3:
            raise CheckpointError(f"{name} has shape {list(tensor.shape)}: queries, keys and values are not its thirds")
        parts = zip("qkv", tensor.chunk(3), strict=True)
        return {f"{match[1]}{letter}_proj.{match[2]}": part for letter, part in parts}
    return {name: tensor}


def _take_copies(content: Content, found: dict[str, Tensor]) -> list[str]:
    """Take out what equals the encoder's token table, which is then the only one."""
    for name in (TABLE, _TARGET_TABLE):
        if name not in found:
            raise CheckpointError(f"the weights lack {name}")
    share_all, share_decoder = (
        content.flag(name, False) for name in ("share_all_embeddings", "share_decoder_input_output_embed")
    )
    if not torch.equal(found[_TARGET_TABLE], found[TABLE]):
        raise CheckpointError(
            f"{_TARGET_TABLE} differs from {TABLE} ({content.file}: share_all_embeddings = {share_all}): "
            "source and target have one token table"
        )
    copies = [_TARGET_TABLE]
    if OUTPUT in found and (share_all or share_decoder):
        if not torch.equal(found[OUTPUT], found[TABLE]):
            raise CheckpointError(
                f"{OUTPUT} differs from {TABLE}, though {content.file} says that the output is the token table"
            )
        copies.append(OUTPUT)
    for name in copies:
        del found[name]
    return copies
