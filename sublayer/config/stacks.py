"""Stacks and heads of a model, the sub-layers of its blocks, and sizes that follow from fields."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from sublayer.config.model import (
    FFNS,
    NORMS,
    POSITIONS,
    BiasedMap,
    Entry,
    ModelConfig,
    PositionScheme,
    parallel_entries,
    parse_block,
    with_cross,
)
from sublayer.config.recipe import ResolvedModel
from sublayer.errors import ConfigError
from sublayer.numbers import count


def is_factorised(model: ModelConfig) -> bool:
    """Return whether a projection leads from the width of the embedding matrix to the model's.

    Source: Lan et al. 2020, factorized embedding parameterization.
    """
    if model.project_embeddings == "always":
        return True
    d_embed = model.d_embed or model.d_model
    return d_embed != model.d_model


def embedding_width(model: ModelConfig) -> int:
    """Return the width of the sum of token, position and segment vectors.

    It is ``d_embed`` if the sum is projected, and ``d_model`` if only tokens are.
    """
    if model.embedding_projection == "sum":
        return model.d_embed or model.d_model
    return model.d_model


def position_scheme(model: ModelConfig) -> PositionScheme:
    """Return the row of a model's position scheme; an LSTM has none, since its state is ordered."""
    return POSITIONS["none" if model.kind == "lstm" else model.positions]


def head_activation(model: ModelConfig) -> str:
    """Return the activation of a transform head.

    If it follows the networks of the blocks, it is gelu for gated networks.
    """
    if model.head_activation != "ffn":
        return model.head_activation
    row = FFNS.get(model.ffn)
    if row is None:
        # An unknown network is returned unchanged, so that the error can name it.
        return model.ffn
    return "gelu" if row.is_gated else row.activation


def key_heads(model: ModelConfig) -> int:
    """Return the number of heads of keys and values: that of queries unless set."""
    return model.n_kv_heads or model.n_heads


def n_gates(model: ResolvedModel) -> int:
    """Count the gates of a self-attention's output."""
    n_of_head = {"none": 0, "head": 1, "element": model.d_head}[model.attention_gate]
    return model.n_heads * n_of_head


def n_rotated(model: ModelConfig, d_head: int) -> int:
    """Count the features of a head that rotary positions rotate, rounded down (GPT-NeoX)."""
    # The product of a fraction such as 26 / 50 may fall below the whole number.
    return int(model.rotary_fraction * d_head + 1e-6)


def has_rotary_kernel(model: ModelConfig) -> bool:
    """Return whether rotary positions have a compiled kernel: for all features, in halves."""
    is_in_halves = model.rotary_layout.startswith("halves")
    return model.positions == "rotary" and model.rotary_fraction == 1.0 and is_in_halves


def learns_beta(model: ModelConfig, activation: str) -> bool:
    """Return whether an activation has a parameter, the learned slope of a swish."""
    return activation == "swish" and model.swish_beta == "learned"


def has_bias(model: ModelConfig, name: BiasedMap) -> bool:
    """Return whether a linear map has a bias."""
    return model.bias if isinstance(model.bias, bool) else model.bias.get(name, False)


def activation_parameters(model: ModelConfig, activation: str) -> int:
    """Count the parameters of an activation, in one network or head."""
    row = FFNS.get(activation)
    return learns_beta(model, activation) + (row.n_parameters if row else 0)


def linear_parameters(model: ModelConfig, d_in: int, d_out: int) -> int:
    """Count the parameters of a map between ``d_model`` and ``d_embed``, with its bias if any."""
    n_biases = d_out if has_bias(model, "projection") else 0
    return d_in * d_out + n_biases


def norm_parameters(model: ModelConfig, width: int) -> int:
    """Count the parameters of an affine norm: gains, and for a layer norm also biases."""
    row = NORMS[model.norm]
    if row is not None:
        return row.n_parameters(width)
    with_bias = 1 + model.norm_bias
    per_feature = {"layer": with_bias, "rms": 1, "dyt": with_bias, "none": 0}[model.norm]
    return per_feature * width + (model.norm == "dyt")  # the slope of a dynamic tanh


def has_input_norm(model: ModelConfig) -> bool:
    """Return whether sub-layers normalise their input."""
    return model.norm != "none" and model.norm_order in ("pre", "around")


def n_norms(model: ModelConfig, entry: Entry) -> tuple[int, int]:
    """Count the norms of an entry's input, and of its output or its sum with the residual.

    The model's ``norm`` is not none.
    """
    has_own = not entry.is_joined or model.parallel_norm == "separate"
    is_of_output = model.norm_order in ("around", "after")
    is_of_sum = model.norm_order == "post" and not entry.is_joined
    return int(has_own and model.norm_order in ("pre", "around")), int(is_of_output or is_of_sum)


@dataclass(frozen=True)
class StackShape:
    """Stack of a model: the number of executed blocks, and the sub-layers of a block in order.

    ``feeds_memory`` marks the encoder of an encoder-decoder, to whose states cross entries attend,
    and ``is_fed`` its decoder.
    """

    name: Literal["encoder", "decoder", "lstm"]
    n_layers: int
    block: tuple[Entry, ...]
    feeds_memory: bool = False
    is_fed: bool = False

    @property
    def n_attentions(self) -> int:
        """Count the self-attentions of a block."""
        return sum(entry.kind.attends_to == "itself" for entry in self.block)

    @property
    def attends_to_itself(self) -> bool:
        """Return whether a sub-layer is self-attention."""
        return self.n_attentions > 0

    @property
    def last_attention(self) -> range:
        """Return the indices in the block of its last self-attention and the entries parallel to
        it; empty if there is none, or a plugin's sub-layer among them reads other tokens."""
        found = range(0)
        for group in parallel_entries(self.block):
            kinds = [self.block[index] for index in group]
            if readers := {entry.name for entry in kinds if entry.kind.attends_to == "itself"}:
                found = group if readers == {"attention"} else range(0)
        return found

    @property
    def is_causal(self) -> bool:
        """Return whether a token sees only itself and earlier tokens."""
        return self.name != "encoder"


@dataclass(frozen=True)
class AttentionForm:
    """Properties of an executed self-attention that differ within a stack."""

    window: int | None = None
    """Window of a local attention in tokens; None: global."""
    has_positions: bool = True
    """Whether it has the rotation or the score bias of the position scheme."""

    def reach(self, *, is_causal: bool) -> int | None:
        """Return the largest distance in tokens between a query and a key it sees; None: any."""
        if self.window is None:
            return None
        return self.window - 1 if is_causal else self.window // 2


GLOBAL = AttentionForm()


def attention_forms(
    model: ModelConfig, stack: StackShape
) -> list[tuple[AttentionForm | None, ...]]:
    """Return the form of each entry of each executed block of a stack; None: no self-attention.

    ``model.window_pattern`` and ``model.position_pattern`` count executed self-attentions from the
    first one on, in blocks that share weights as well.
    """
    attends = [entry.kind.attends_to == "itself" for entry in stack.block]
    window = None if isinstance(model.attention_window, str) else model.attention_window
    windows, positions = model.window_pattern, model.position_pattern
    if window is None and positions == "P":
        return [tuple(GLOBAL if each else None for each in attends)] * stack.n_layers
    forms = []
    number = 0
    for _ in range(stack.n_layers):
        of_block: list[AttentionForm | None] = []
        for is_attention in attends:
            if not is_attention:
                of_block.append(None)
                continue
            is_local = windows[number % len(windows)] == "L"
            has_positions = positions[number % len(positions)] == "P"
            of_block.append(AttentionForm(window if is_local else None, has_positions))
            number += 1
        forms.append(tuple(of_block))
    return forms


def stacks(model: ModelConfig) -> tuple[StackShape, ...]:
    """Return the stacks of a model, with the output's stack last.

    The decoder of an encoder-decoder has its own block and number of blocks, or else those of the
    encoder, with a cross entry after each attention. A layer of an LSTM is a block of one entry.
    Raises ConfigError as ``parse_block`` does.
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
    """Return the sub-layers of the block of every stack, concatenated.

    Raises ConfigError as ``parse_block`` does.
    """
    sublayers: list[Entry] = []
    for stack in stacks(model):
        sublayers += stack.block
    return tuple(sublayers)


def shares(model: ModelConfig, entry: Entry) -> bool:
    """Return whether the blocks of a stack share the weights of an entry.

    Sharing of ``attention`` includes cross entries.
    """
    return model.share in ("all", entry.kind.shared_as)


def n_copies(model: ModelConfig, stack: StackShape, entry: Entry) -> int:
    """Count the sets of weights of one entry among the executed blocks of a stack.

    With sharing there is one for each block of each group, else one for each executed block.
    """
    if shares(model, entry):
        return model.share_groups * model.share_inner
    return stack.n_layers


def is_one_block(model: ModelConfig) -> bool:
    """Return whether a model is a single block, executed repeatedly.

    Then all blocks share the weights of all sub-layers, no block has its own positions, and the
    model could be executed deeper.
    """
    shape, *others = stacks(model)
    if others or POSITIONS[model.positions].adds_before == "every":
        return False
    is_single = model.share_groups == model.share_inner == 1
    return is_single and all(shares(model, entry) for entry in shape.block)


def slot(model: ModelConfig, shape: StackShape, layer: int, entry: Entry) -> int:
    """Compute the index of the set of weights that an entry of an executed block uses.

    Layers and sets count from 0.

    Shared entries: of ``n_units`` units of ``share_inner`` blocks, unit u belongs to group
    ``floor(u * share_groups / n_units)``; the blocks of a unit have separate sets. Other entries
    have one set per block. Source: ALBERT's group and inner-group indices, as released.
    """
    if not shares(model, entry):
        return layer
    unit, inner = divmod(layer, model.share_inner)
    n_units = shape.n_layers // model.share_inner
    group = unit * model.share_groups // n_units
    return group * model.share_inner + inner


def learned_shares(
    model: ModelConfig, shape: StackShape, n_blocks: int | None = None
) -> list[tuple[int, int]]:
    """Return the entry and set of weights of each executed self-attention with a learned share.

    With ``value_residual = learned`` all but a stack's first and those of plugins have one.
    ``n_blocks`` limits the count to the first blocks.
    """
    if model.value_residual != "learned":
        return []
    executed = [
        (index, slot(model, shape, layer, entry))
        for layer in range(shape.n_layers if n_blocks is None else n_blocks)
        for index, entry in enumerate(shape.block)
        if entry.name == "attention"
    ]
    return executed[1:]


def check_first_blocks(n_blocks: int, model: ModelConfig, name: str) -> None:
    """Raise ConfigError where a stack of a model has fewer than ``n_blocks`` blocks.

    ``name`` names the model in messages.
    """
    shapes = stacks(model)
    for shape in shapes:
        if n_blocks > shape.n_layers:
            of = name if len(shapes) == 1 else f"the {shape.name} of {name}"
            raise ConfigError(
                f"init.layers = {n_blocks} is more than the {count(shape.n_layers, 'block')} of "
                f"{of}"
            )


def last_of_same_weights(model: ModelConfig, n_frozen: int) -> int:
    """Return the least number of first blocks, from ``n_frozen`` on, that share no weights with
    later blocks."""
    (stack,) = stacks(model)
    last = n_frozen
    # A further block may share weights with yet further ones.
    for _ in range(stack.n_layers):
        for entry in stack.block:
            slots = [slot(model, stack, layer, entry) for layer in range(stack.n_layers)]
            taken = set(slots[:last])
            last = max(layer + 1 for layer, used in enumerate(slots) if used in taken)
    return last


def n_frozen_sets(model: ModelConfig, n_frozen: int) -> list[int]:
    """Count the sets of weights that the first blocks use, for each sub-layer of a block."""
    (stack,) = stacks(model)
    return [
        len({slot(model, stack, layer, entry) for layer in range(n_frozen)})
        for entry in stack.block
    ]


Reads = Literal["positions", "text", "pooled"]
"""Input of a head: the final hidden states, the one that represents the text, or that one pooled.
"""


def has_head_projection(config: ResolvedModel) -> bool:
    """Return whether a linear map to its width precedes the output matrix."""
    return config.head == "transform" or is_factorised(config)


def n_classes(config: ResolvedModel) -> int:
    """Count the classes of the softmax: the tokens, and the positions if it is over all."""
    return config.vocab_size + (config.max_len if config.softmax == "all" else 0)


class HeadRow(ABC):
    """Properties of a head that follow from the settings alone."""

    implementation: str
    """Class that computes the head, as ``module:class``."""
    attribute: str
    """Prefix of the names of its saved tensors, and attribute of the model."""
    title: str
    """Name of the head in messages."""
    reads: Reads
    predicts_tokens = False
    """Whether training computes the head only at predicted tokens."""

    @abstractmethod
    def is_asked(self, config: ResolvedModel) -> bool:
        """Return whether a model has the head."""

    @abstractmethod
    def n_parameters(self, config: ResolvedModel) -> int:
        """Count the parameters of the head in a model that has it."""

    @abstractmethod
    def n_products(self, config: ResolvedModel) -> int:
        """Count the multiply-adds of the head's matrix products for one input state."""


class _Vocabulary(HeadRow):
    implementation = "sublayer.model.heads:VocabularyHead"
    attribute = "head"
    title = "vocabulary head"
    reads: Reads = "positions"
    predicts_tokens = True

    def is_asked(self, config: ResolvedModel) -> bool:
        return config.head != "none"

    def n_parameters(self, config: ResolvedModel) -> int:
        width = config.d_embed
        n_parameters = config.vocab_size if config.head_bias else 0
        if has_head_projection(config):
            n_parameters += linear_parameters(config, config.d_model, width)
        if config.head == "transform":
            n_parameters += norm_parameters(config, width)
            n_parameters += activation_parameters(config, head_activation(config))
        if not config.tie_embeddings:
            n_parameters += config.vocab_size * width
        return n_parameters

    def n_products(self, config: ResolvedModel) -> int:
        to_embedding = config.d_model * config.d_embed if has_head_projection(config) else 0
        return to_embedding + n_classes(config) * config.d_embed


class _Pooler(HeadRow):
    implementation = "sublayer.model.heads:Pooler"
    attribute = title = "pooler"
    reads: Reads = "text"

    def is_asked(self, config: ResolvedModel) -> bool:
        return config.pooler != "none"

    def n_parameters(self, config: ResolvedModel) -> int:
        width = config.d_model
        if config.pooler == "transform":
            return linear_parameters(config, width, width) + norm_parameters(config, width)
        return width * (width + 1)

    def n_products(self, config: ResolvedModel) -> int:
        return config.d_model**2


class _Pooled(HeadRow):
    """A linear head of the pooled vector, whose outputs are counted by a field of the config."""

    reads: Reads = "pooled"

    def __init__(self, implementation: str, attribute: str, n_outputs: str) -> None:
        self.implementation = implementation
        self.attribute = attribute
        self.title = attribute.replace("_", " ")
        self._n_outputs = n_outputs

    def is_asked(self, config: ResolvedModel) -> bool:
        return self._outputs(config) > 0

    def n_parameters(self, config: ResolvedModel) -> int:
        return self._outputs(config) * (config.d_model + 1)

    def n_products(self, config: ResolvedModel) -> int:
        return config.d_model * self._outputs(config)

    def _outputs(self, config: ResolvedModel) -> int:
        n_outputs: int = getattr(config, self._n_outputs)
        return n_outputs


class _Span(HeadRow):
    implementation = "sublayer.model.heads:SpanHead"
    attribute = "span_head"
    title = "span head"
    reads: Reads = "positions"

    def is_asked(self, config: ResolvedModel) -> bool:
        return config.span_head == "independent"

    def n_parameters(self, config: ResolvedModel) -> int:
        return 2 * (config.d_model + 1)

    def n_products(self, config: ResolvedModel) -> int:
        return 2 * config.d_model


class _JointSpan(HeadRow):
    implementation = "sublayer.model.heads:JointSpanHead"
    attribute = "joint_span_head"
    title = "joint span head"
    reads: Reads = "positions"

    def is_asked(self, config: ResolvedModel) -> bool:
        return config.span_head == "joint"

    def n_parameters(self, config: ResolvedModel) -> int:
        width = config.d_model
        start = width + 1
        end = 2 * width * width + width + norm_parameters(config, width) + width + 1
        answerable = 2 * width * width + width + width
        return start + end + answerable

    def n_products(self, config: ResolvedModel) -> int:
        # Per position: the start, and the end given a start; the absence of an answer is per text.
        width = config.d_model
        return width + 2 * width * width + width


HEADS: dict[str, HeadRow] = {
    "vocabulary": _Vocabulary(),
    "pooler": _Pooler(),
    "sentence": _Pooled("sublayer.model.heads:SentenceHead", "sentence_head", "sentence_classes"),
    "label": _Pooled("sublayer.model.heads:LabelHead", "label_head", "label_outputs"),
    "span": _Span(),
    "joint_span": _JointSpan(),
}
"""Heads by name, in the order of computation: those that read the pooler's output follow it."""


def asked_heads(config: ResolvedModel) -> dict[str, HeadRow]:
    """Return the rows of the heads of a config, by name."""
    return {name: row for name, row in HEADS.items() if row.is_asked(config)}
