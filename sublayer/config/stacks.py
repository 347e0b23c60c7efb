"""Stacks of a model, the sub-layers of their blocks, and sizes that follow from its fields."""

import re
from dataclasses import dataclass
from typing import Literal

from sublayer.config.architecture import (
    FFNS,
    POSITIONS,
    Entry,
    PositionScheme,
    parse_block,
    with_cross,
)
from sublayer.config.model import ModelConfig
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.nearest import LONGEST_WORD


def is_factorised(model: ModelConfig) -> bool:
    """Return whether projections stand between the embedding matrix's width and the model's.

    Source: Lan et al. 2020, of the embedding matrix.
    """
    if model.project_embeddings == "always":
        return True
    d_embed = model.d_embed or model.d_model
    return d_embed != model.d_model


def embedding_width(model: ModelConfig) -> int:
    """Return the width of the sum of token, position and segment vectors.

    That is ``d_embed`` where the sum is projected, and ``d_model`` where tokens alone are.
    """
    if model.embedding_projection == "sum":
        return model.d_embed or model.d_model
    return model.d_model


def position_scheme(model: ModelConfig) -> PositionScheme:
    """Return the row of a model's positions; an LSTM, whose state tells the order, has none."""
    return POSITIONS["none" if model.kind == "lstm" else model.positions]


def head_activation(model: ModelConfig) -> str:
    """Return the activation of a transform head: relu, gelu or swish.

    One that follows the networks of the blocks is gelu where those are gated.
    """
    if model.head_activation != "ffn":
        return model.head_activation
    row = FFNS.get(model.ffn)
    if row is not None and row.is_gated:
        return "gelu"
    # A network that has no row stands for itself, so that what refuses it can name it.
    return model.ffn


def learns_beta(model: ModelConfig, activation: str) -> bool:
    """Return whether an activation has a parameter: the slope of a swish that learns it."""
    return activation == "swish" and model.swish_beta == "learned"


def linear_parameters(model: ModelConfig, d_in: int, d_out: int) -> int:
    """Count the parameters of a linear map, its bias included where the model has biases."""
    n_biases = d_out if model.bias else 0
    return d_in * d_out + n_biases


def norm_parameters(model: ModelConfig, width: int) -> int:
    """Count the parameters of a norm that has gains: a layer norm has biases beside them."""
    per_feature = {"layer": 2, "rms": 1, "none": 0}[model.norm]
    return per_feature * width


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
        """Return whether a token sees only itself and tokens before it."""
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
    sublayers: list[Entry] = []
    for stack in stacks(model):
        sublayers += stack.block
    return tuple(sublayers)


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


def check_first_blocks(n_blocks: int, model: ModelConfig, name: str) -> None:
    """Raise ConfigError where a stack of a model has fewer blocks than are to be taken.

    ``name`` is the model's in messages.
    """
    shapes = stacks(model)
    for shape in shapes:
        if n_blocks > shape.n_layers:
            of = name if len(shapes) == 1 else f"the {shape.name} of {name}"
            raise ConfigError(
                f"init.layers = {n_blocks} is more than the {count(shape.n_layers, 'block')} of "
                f"{of}"
            )


EMBEDDINGS = "embeddings"
_PART = re.compile(rf"{EMBEDDINGS}|layers:(0*[1-9][0-9]*)")


@dataclass(frozen=True)
class Frozen:
    """Parts of a model."""

    embeddings: bool = False
    """All that stands before the first block."""
    n_layers: int = 0
    """Number of first blocks."""

    def __bool__(self) -> bool:
        """Return whether anything is named."""
        return self.embeddings or self.n_layers > 0

    def __str__(self) -> str:
        """Return the parts in words."""
        parts = [EMBEDDINGS] if self.embeddings else []
        if self.n_layers:
            blocks = "first block" if self.n_layers == 1 else f"first {self.n_layers} blocks"
            parts.append(f"the {blocks}")
        return " and ".join(parts)


NOTHING = Frozen()


def parse_freeze(words: str | tuple[str, ...]) -> Frozen:
    """Read ``embeddings``, ``layers:k``, or both. Raises ConfigError for anything else."""
    parts: dict[str, int] = {}
    for word in (words,) if isinstance(words, str) else words:
        match = _PART.fullmatch(word)
        if match is None:
            raise ConfigError(
                f"init.freeze = {word[:LONGEST_WORD]!r} is neither embeddings nor layers:K, the "
                "first K blocks, such as layers:2"
            )
        part = word.partition(":")[0]
        if part in parts:
            raise ConfigError(f"init.freeze names {part} twice: give it once")
        parts[part] = int(match[1] or 0)
    return Frozen(EMBEDDINGS in parts, parts.get("layers", 0))


def last_of_same_weights(model: ModelConfig, n_frozen: int) -> int:
    """Return how many first blocks have weights of their own, if they are at least ``n_frozen``."""
    (stack,) = stacks(model)
    last = n_frozen
    # A further block may bring others that share with it.
    for _ in range(stack.n_layers):
        for entry in stack.block:
            slots = [slot(model, stack, layer, entry) for layer in range(stack.n_layers)]
            taken = set(slots[:last])
            last = max(layer + 1 for layer, used in enumerate(slots) if used in taken)
    return last


def n_frozen_sets(model: ModelConfig, n_frozen: int) -> list[int]:
    """Count for each sub-layer of a block the sets of weights that the first blocks use."""
    (stack,) = stacks(model)
    return [
        len({slot(model, stack, layer, entry) for layer in range(n_frozen)})
        for entry in stack.block
    ]
