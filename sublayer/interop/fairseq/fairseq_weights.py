"""The tensors of fairseq's models, of any version, under its newest version's names."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sublayer.errors import CheckpointError
from sublayer.interop.config_reader import Content
from sublayer.model.weights import check_finite, check_float

TakeCopies = Callable[[Content, dict[str, Tensor]], list[str]]
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


def prepare(
    content: Content, tensors: Mapping[str, Tensor], take_copies: TakeCopies
) -> FairseqWeights:
    """Rename and split a checkpoint's tensors, so that each is accounted for.

    Norms that had numbers get names, queries, keys and values that were one matrix three. Of tables
    that are one, ``take_copies`` leaves one in what it is given, and returns the others' names.

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
    if TABLE not in weights:
        raise CheckpointError(f"the weights lack {TABLE}")
    copies = take_copies(content, weights)
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


def take_translator_copies(content: Content, weights: dict[str, Tensor]) -> list[str]:
    """Remove what equals the encoder's embedding matrix, which is then the only one.

    Raises CheckpointError where there is no decoder's, or one that is said to be a copy differs.
    """
    if _TARGET_TABLE not in weights:
        raise CheckpointError(
            f"the weights lack {_TARGET_TABLE}: of fairseq's models only translators and Macaron "
            "Net's BERT can be imported"
        )
    table = weights[TABLE]
    share_all = content.flag("share_all_embeddings", False)
    share_decoder = content.flag("share_decoder_input_output_embed", False)
    if not torch.equal(weights[_TARGET_TABLE], table):
        raise CheckpointError(
            f"{_TARGET_TABLE} differs from {TABLE} "
            f"({content.file}: share_all_embeddings = {share_all}): "
            "source and target have one embedding matrix"
        )
    del weights[_TARGET_TABLE]
    copies = [_TARGET_TABLE]
    if share_all or share_decoder:
        copies += drop_copy(content, weights, OUTPUT, is_tied=True)
    return copies


def drop_copy(
    content: Content, weights: dict[str, Tensor], name: str, *, is_tied: bool
) -> list[str]:
    """Remove an output matrix that is the embedding matrix, and return its name in a list.

    One that is absent, or that no setting ties, stays away or stays, and the list is empty. Raises
    CheckpointError where one that is tied differs.
    """
    if not is_tied or name not in weights:
        return []
    if not torch.equal(weights[name], weights[TABLE]):
        raise CheckpointError(
            f"{name} differs from {TABLE}, "
            f"though {content.file} says that the output is the embedding matrix"
        )
    del weights[name]
    return [name]
