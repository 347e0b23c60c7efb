"""The stacks of a model: encoder, decoder or both, or an LSTM; the sub-layers of their blocks."""

from dataclasses import dataclass
from typing import Literal

from sublayer.config.architecture.block import Entry, parse_block, with_cross
from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.model import ModelConfig


@dataclass(frozen=True)
class StackShape:
    """A stack of a model: executed blocks, and the sub-layers of each in order.

    ``feeds_memory`` tells the encoder beside a decoder, whose cross entries attend to its states,
    ``is_fed`` that decoder.
    """

    name: Literal["encoder", "decoder", "lstm"]
    n_layers: int
    block: tuple[Entry, ...]
    feeds_memory: bool = False
    is_fed: bool = False

    @property
    def attends_to_itself(self) -> bool:
        """Return whether its tokens attend to each other in some sub-layer."""
        return any(entry.kind.attends_to == "itself" for entry in self.block)

    @property
    def last_attention(self) -> int | None:
        """Return the place in the block of its last attention to itself; None where it has none."""
        places = [i for i, entry in enumerate(self.block) if entry.kind.attends_to == "itself"]
        return places[-1] if places else None

    @property
    def is_causal(self) -> bool:
        """Return whether a token sees only itself and what is before it."""
        return self.name != "encoder"


def stacks(model: ModelConfig) -> tuple[StackShape, ...]:
    """Return the stacks of a model, the one that computes its output last.

    A decoder beside an encoder has its own blocks and their number, or else the encoder's, with a
    cross entry after each attention. A layer of an LSTM is a block of one entry. Raises ConfigError
    as ``parse_block`` does.
    """
    if model.kind == "lstm":
        return (StackShape("lstm", model.n_layers, (Entry("lstm", None, 1.0),)),)
    block = parse_block(model.block, default_ffn=model.ffn)
    if model.kind != "encoder-decoder":
        return (StackShape(model.kind, model.n_layers, block),)
    if model.decoder_block is None:
        decoder_block = with_cross(block)
    else:
        field = "model.decoder_block"
        decoder_block = parse_block(model.decoder_block, default_ffn=model.ffn, field=field)
    encoder = StackShape("encoder", model.n_layers, block, feeds_memory=True)
    n_decoder_layers = model.n_decoder_layers or model.n_layers
    return encoder, StackShape("decoder", n_decoder_layers, decoder_block, is_fed=True)


def entries(model: ModelConfig) -> tuple[Entry, ...]:
    """Return the sub-layers of a model's blocks, stack by stack, each stack's block once.

    Raises ConfigError as ``parse_block`` does.
    """
    found: list[Entry] = []
    for stack in stacks(model):
        found += stack.block
    return tuple(found)


def shares(model: ModelConfig, entry: Entry) -> bool:
    """Return whether the blocks of a stack share the weights of an entry.

    ``attention`` stands for cross entries too.
    """
    return model.share in ("all", entry.kind.shared_as)


def is_one_block(model: ModelConfig) -> bool:
    """Return whether a model is one block, executed again and again: it could be so further.

    All sub-layers of all blocks share their weights, and no block has positions of its own.
    """
    shape, *others = stacks(model)
    if others or POSITIONS[model.positions].adds_before == "every":
        return False
    is_single = model.share_groups == model.share_inner == 1
    return is_single and all(shares(model, entry) for entry in shape.block)


def slot(model: ModelConfig, shape: StackShape, layer: int, entry: Entry) -> int:
    """Compute which set of weights an entry of an executed block of a stack uses.

    Layers and sets count from 0.

    Shared entries: of ``n_units`` units of ``share_inner`` blocks, unit u belongs to group
    ``floor(u * share_groups / n_units)``; within a unit blocks are distinct. Others have one set
    per block. Source: ALBERT's group and inner-group indices, as released.
    """
    if not shares(model, entry):
        return layer
    unit, inner = divmod(layer, model.share_inner)
    n_units = shape.n_layers // model.share_inner
    group = unit * model.share_groups // n_units
    return group * model.share_inner + inner
