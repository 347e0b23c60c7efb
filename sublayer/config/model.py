"""``[model]``: the architecture, a field for each paper's idea, and rows of the parts it composes.

The parts are feed-forward networks, kinds of sub-layer and position schemes, read by errors,
schema, counts and models. A block is a list of residual sub-layers, each ``name[:variant][*step]``,
or several of these joined by ``+`` in parallel.
The cost of a sub-layer is a row of ``sublayer.model.estimates``, its module a row of
``sublayer.model.blocks``.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator

from sublayer.config.table import (
    LARGEST_FACTOR,
    LARGEST_VOCABULARY,
    LONGEST_WINDOW,
    MOST_BUCKETS,
    MOST_ENTRIES,
    MOST_HEADS,
    MOST_LABELS,
    MOST_LAYERS,
    WIDEST_FFN,
    Blocks,
    Dropout,
    Factor,
    Features,
    Fraction,
    List,
    RotaryBase,
    Scale,
    Table,
    Tokens,
    WindowTokens,
    field,
    name_in,
)
from sublayer.errors import ConfigError

Role = Literal["matrix", "stacked", "head", "embedding", "positions", "gain", "bias"]
"""Kind of a parameter, declared by its module in ``roles``, by the parameter's name.

matrix: one linear map ``[d_out, d_in]``; stacked: several stored together ``[n, d_out, d_in]``;
head: a map to predictions; embedding: a lookup table; positions: a lookup table of positions, or of
a scheme's indices; gain: factors of features, and the slope of an activation; bias: an added
vector.
"""
VECTORS: frozenset[Role] = frozenset({"gain", "bias"})
"""Roles that weight decay spares unless asked, and that have no trust ratio in LAMB."""


def variable_axes(role: Role) -> int:
    """Count the last axes of one variable, for updates per variable; earlier axes enumerate
    variables."""
    return 1 if role in VECTORS else 2


Saved = Literal["nothing", "output", "input"]
"""Tensor that an activation saves for its backward pass."""

ACTIVATIONS: dict[str, Saved] = {
    "relu": "output",
    "relu2": "input",
    "gelu": "input",
    "swish": "input",
    "sigmoid": "output",
    "identity": "nothing",
}


@dataclass(frozen=True)
class Ffn:
    """Function between a network's matrix products: an activation, times a product if gated."""

    activation: str
    """A key of ``ACTIVATIONS``."""
    is_gated: bool
    n_parameters: int = 0
    """Parameters of the activation in each network, besides the learned slope of a swish."""

    @property
    def saves(self) -> Saved:
        """Return the tensor that the activation saves for its backward pass."""
        return ACTIVATIONS[self.activation]

    @property
    def n_inputs(self) -> int:
        """Count the matrix products before the activation."""
        return 2 if self.is_gated else 1


# Shazeer 2020 (2002.05202), eqs. 1-3 and 5-6; squared ReLU: So et al. 2021 (2109.08668), sec. 4.1.
FFNS: dict[str, Ffn] = {
    "relu": Ffn("relu", is_gated=False),
    "relu2": Ffn("relu2", is_gated=False),
    "gelu": Ffn("gelu", is_gated=False),
    "swish": Ffn("swish", is_gated=False),
    "glu": Ffn("sigmoid", is_gated=True),
    "bilinear": Ffn("identity", is_gated=True),
    "reglu": Ffn("relu", is_gated=True),
    "reglu2": Ffn("relu2", is_gated=True),
    "geglu": Ffn("gelu", is_gated=True),
    "swiglu": Ffn("swish", is_gated=True),
}


Attended = Literal["nothing", "itself", "memory"]
"""States that queries attend to; memory is an encoder's states."""


@dataclass(frozen=True)
class SublayerKind:
    """Kind of sub-layer that an entry names."""

    attends_to: Attended
    """States that its queries attend to; nothing: each token is transformed by itself."""
    shared_as: Literal["attention", "ffn"] | None
    """Its name in ``model.share``; None: only ``all`` shares it."""
    title: str
    """Name in diagrams."""
    has_variants: bool = False
    """True where a feed-forward network may follow the name, as in ``ffn:swiglu``."""
    is_recurrent: bool = False
    """True for a layer of an LSTM, which never appears in a block and has no residual
    connection."""


SUBLAYERS: dict[str, SublayerKind] = {
    "attention": SublayerKind(attends_to="itself", shared_as="attention", title="Self-attention"),
    "cross": SublayerKind(attends_to="memory", shared_as="attention", title="Cross-attention"),
    "ffn": SublayerKind(
        attends_to="nothing", shared_as="ffn", title="Feed-forward network", has_variants=True
    ),
    "lstm": SublayerKind(attends_to="nothing", shared_as=None, title="LSTM", is_recurrent=True),
}


Count = Callable[[Any, int, int], int]
"""Count parameters from a resolved model, the blocks of a stack and its embeddings' width."""


def n_exact_buckets(n_buckets: int) -> int:
    """Count the buckets of one side that hold a single distance each: the first half."""
    return n_buckets // 2


@dataclass(frozen=True)
class PositionScheme:
    """Properties of a position scheme known from the settings alone."""

    implementation: str
    """The class that computes it, as ``module:class``."""
    adds_before: Literal["none", "first", "every"] = "none"
    """The blocks before which vectors are added to the residual stream."""
    in_attention: Literal["nothing", "rotation", "bias"] = "nothing"
    """Rotation of queries and keys, or bias of scores."""
    has_end: bool = False
    """True where there is no position from ``max_len`` on."""
    has_rows: bool = False
    """True where each position up to ``max_len`` has its own learned weights."""
    even_width: Literal["embedding", "head"] | None = None
    """The width that must be even."""
    n_parameters: Count = lambda model, n_layers, width: 0
    """Counts the parameters of one stack."""


POSITIONS: dict[str, PositionScheme] = {
    "sinusoidal": PositionScheme(
        "sublayer.model.positions:SinusoidalPositions",
        adds_before="first",
        has_end=True,
        even_width="embedding",
    ),
    "learned": PositionScheme(
        "sublayer.model.positions:LearnedPositions",
        adds_before="first",
        has_end=True,
        has_rows=True,
        n_parameters=lambda model, n_layers, width: model.max_len * width,
    ),
    "learned-per-layer": PositionScheme(
        "sublayer.model.positions:LayerwiseLearnedPositions",
        adds_before="every",
        has_end=True,
        has_rows=True,
        # The first one is added to the embeddings, which may be narrower than the residual stream.
        n_parameters=lambda model, n_layers, width: (
            model.max_len * (width + (n_layers - 1) * model.d_model)
        ),
    ),
    "rotary": PositionScheme(
        "sublayer.model.positions:RotaryPositions",
        in_attention="rotation",
        even_width="head",
    ),
    "alibi": PositionScheme(
        "sublayer.model.positions:AlibiPositions",
        in_attention="bias",
    ),
    "relative": PositionScheme(
        "sublayer.model.positions:RelativePositions",
        in_attention="bias",
        n_parameters=lambda model, n_layers, width: model.relative_buckets * model.n_heads,
    ),
    "none": PositionScheme("sublayer.model.positions:NoPositions"),
}


@dataclass(frozen=True)
class NormScheme:
    """Norm of a plugin: its class, as ``module:class``, and its parameters by its width."""

    implementation: str
    n_parameters: Callable[[int], int]


NORMS: dict[str, NormScheme | None] = dict.fromkeys(("layer", "rms", "dyt", "none"))
"""Kinds of norms; None for our own."""


BLOCKS: dict[str, tuple[str, ...]] = {
    "transformer": ("attention", "ffn"),
    "macaron": ("ffn*0.5", "attention", "ffn*0.5"),
    "parallel": ("attention+ffn",),
}


@dataclass(frozen=True)
class Entry:
    """One residual sub-layer of a block: ``x = x + step * f(x)``."""

    name: str
    variant: str | None
    """The name of its feed-forward network; None for attention."""
    step: float
    """Finite and not 0; below 0 it subtracts."""
    is_joined: bool = False
    """True where it reads the input of the entry before it, in parallel."""

    @property
    def kind(self) -> SublayerKind:
        """Return the kind of sub-layer by its name."""
        return SUBLAYERS[self.name]

    @property
    def ffn(self) -> Ffn | None:
        """Return the feed-forward network; None for attention."""
        return None if self.variant is None else FFNS[self.variant]

    def __str__(self) -> str:
        variant = "" if self.variant is None else f":{self.variant}"
        step = "" if self.step == 1.0 else f"*{self.step!r}"
        return f"{self.name}{variant}{step}"


def parallel_entries(block: tuple[Entry, ...]) -> tuple[range, ...]:
    """Return the indices of the entries that read one input, of each such group in order."""
    starts = [index for index, entry in enumerate(block) if not entry.is_joined]
    return tuple(map(range, starts, [*starts[1:], len(block)]))


def write_block(block: tuple[Entry, ...]) -> tuple[str, ...]:
    """Return the texts that ``parse_block`` reads as these entries."""
    return tuple("+".join(str(block[i]) for i in group) for group in parallel_entries(block))


_JOINT = re.compile(r"\+(?=[a-z])")
"""The sign between parallel entries, which is none of a step such as ``1e+3``."""


def parse_block(
    block: str | tuple[str, ...], *, default_ffn: str, field: str = "model.block"
) -> tuple[Entry, ...]:
    """Read a block's name or its list of entries.

    ``ffn`` entries without a variant get ``default_ffn``. Raises ConfigError, naming ``field``, for
    an unknown name, variant or step, for an empty list, and for one of too many entries.
    """
    if isinstance(block, str):
        if block not in BLOCKS:
            raise ConfigError(
                f"{field} = {block[:80]!r} is not one of {', '.join(BLOCKS)}, nor a list such as "
                "['ffn*0.5', 'attention', 'ffn*0.5']"
            )
        block = BLOCKS[block]
    if not block:
        raise ConfigError(f"{field} is an empty list: give at least one of attention, ffn")
    parts = [(text, n > 0) for whole in block for n, text in enumerate(_JOINT.split(whole))]
    if len(parts) > MOST_ENTRIES:
        raise ConfigError(f"{field} has {len(parts):,} entries: give at most {MOST_ENTRIES}")
    written = {name: kind for name, kind in SUBLAYERS.items() if not kind.is_recurrent}
    entries = []
    for text, is_joined in parts:
        head, star, step_text = text.partition("*")
        name, colon, variant = head.partition(":")
        takes_variant = name in written and written[name].has_variants
        try:
            step = float(step_text) if star else 1.0
        except ValueError:
            step = 0.0
        is_step = 0.0 < abs(step) <= LARGEST_FACTOR
        is_variant = not colon or (takes_variant and variant in FFNS)
        if name not in written or not is_variant or not is_step:
            able = [candidate for candidate, kind in written.items() if kind.has_variants]
            raise ConfigError(
                f"{field} entry {text[:80]!r} is not name[:variant][*step]: the name must be one "
                f"of {', '.join(written)}; only {' or '.join(able)} takes a variant, one of "
                f"{', '.join(FFNS)}; the step, a number, must be finite and not 0, at most "
                f"{LARGEST_FACTOR:,.0f}"
            )
        ffn = (variant or default_ffn) if takes_variant else None
        entries.append(Entry(name, ffn, step, is_joined))
    return tuple(entries)


def with_cross(block: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Build the block of an encoder-decoder's decoder: a ``cross`` after each ``attention``.

    It copies the step of the entry that it follows, and comes after the entries parallel to it.
    """
    entries: list[Entry] = []
    for group in parallel_entries(block):
        members = block[group.start : group.stop]
        steps = [entry.step for entry in members if entry.kind.attends_to == "itself"]
        entries += [*members, *(Entry("cross", None, step) for step in steps)]
    return tuple(entries)


def factor_of(divisor: float | str, width: int) -> float:
    """Return the factor of a scale by its divisor: a number, none, or sqrt, a width's root."""
    if isinstance(divisor, str):
        return 1.0 if divisor == "none" else float(width**-0.5)
    return 1.0 / divisor


def cap_of(setting: float | str) -> float | None:
    """Return a soft cap; None for none."""
    return None if isinstance(setting, str) else setting


if TYPE_CHECKING:
    FfnName = str
    NormName = str
    PositionName = str
    HeadActivation = str
else:
    FfnName = name_in(FFNS)
    NormName = name_in(NORMS)
    PositionName = name_in(POSITIONS)
    # A head has a single product, so that it takes the activations of networks without a gate.
    _UNGATED = tuple(ffn.activation for ffn in FFNS.values() if not ffn.is_gated)
    HeadActivation = Literal[("ffn", *dict.fromkeys(_UNGATED))]


_IN_ATTENTION = tuple(name for name, row in POSITIONS.items() if row.in_attention != "nothing")
BiasedMap = Literal["query", "key", "value", "gate", "output", "ffn", "projection"]
"""Linear maps with biases of their own: of an attention, of a feed-forward network, and between
d_model and d_embed."""
QK_NORMS = ("rms", "layer", "l2")


of_blocks = partial(field, when=("blocks",))
"""Declare a field of blocks, without effect in an LSTM."""
_NORMS = ("layer", "rms", "dyt")
_Parts = Literal["affine", "plain", "none"]


def as_norm_parts(value: Any) -> Any:
    """Return the value of ``embedding_norm`` that earlier files give as true or false."""
    return ("none", "affine")[value] if isinstance(value, bool) else value


class ModelConfig(Table):
    """The architecture. Every paper's idea is a field, and the fields are orthogonal."""

    kind: Literal["decoder", "encoder", "encoder-decoder", "lstm"] = "decoder"
    """Kind of stacks: a decoder is causal, an encoder bidirectional; in an encoder-decoder, the
    decoder's cross entries attend to the encoder's states of another text. An LSTM is causal
    through its state, and has no blocks."""
    n_layers: Blocks[int] = 6
    """Executed blocks of a stack, or layers of an LSTM; blocks that share weights count each
    time."""
    n_decoder_layers: Blocks[int | None] = field(
        None, derived="n_layers", needs={"kind": ("encoder-decoder",)}
    )
    """Executed blocks of an encoder-decoder's decoder."""
    d_model: Features[int] = 256
    """Width of the residual stream; units of each layer of an LSTM."""
    n_heads: int = field(4, unit="heads", ge=1, le=MOST_HEADS, when=("blocks", "attention"))
    """Attention heads."""
    d_head: Features[int | None] = field(
        None, derived="d_model / n_heads, which must be whole", when=("blocks", "attention")
    )
    """Width of one head."""
    n_kv_heads: int | None = field(
        None, unit="heads", derived="n_heads", ge=1, le=MOST_HEADS, when=("blocks", "attention")
    )
    """Heads of keys and values, each of which serves as many consecutive heads of queries: fewer
    than n_heads are grouped-query attention, one is multi-query attention."""
    attention_window: Tokens[int] | Literal["none"] = field(
        "none", unit="tokens", when=("blocks", "self-attention")
    )
    """Window w of local self-attentions: a query sees itself and the w - 1 tokens before it, in an
    encoder the tokens up to w / 2 away; none: every self-attention is global."""
    window_pattern: str = field("L", when=("blocks", "local"), min_length=1)
    """Local (L) and global (G) self-attentions of a stack in the order of execution, repeated: LG
    (Gemma 2), LLLLLG (Gemma 3)."""
    d_ff: int | None = field(
        None, unit="features", derived="4 * d_model", ge=1, le=WIDEST_FFN, when=("blocks", "ffn")
    )
    """Width of each ffn entry of a block, as built: never rescaled for gates or halves."""
    d_embed: Features[int | None] = field(None, derived="d_model")
    """Width of the embedding matrix; below d_model it is factorised, with a projection to
    d_model."""
    embedding_projection: Literal["tokens", "sum"] = field("tokens", when=("factorised",))
    """Input that a factorised embedding projects to d_model: token vectors, or their sum with
    positions and segments, which are then d_embed wide, after its norm and dropout (ALBERT)."""
    project_embeddings: Literal["as-needed", "always"] = "as-needed"
    """Projections of the embedding and of a linear head even if d_embed equals d_model."""
    embedding_norm: Annotated[_Parts, BeforeValidator(as_norm_parts)] = of_blocks(
        "none", needs={"norm": _NORMS}
    )
    """Norm after the sum of embeddings: with parameters (affine), without (plain), or none."""
    segments: Literal["none", "both", "second"] = field("none", needs={"kind": ("encoder",)})
    """Learned vectors of a pair's segments, added to the embeddings; second: zero for the first
    segment."""
    block: str | List = of_blocks("transformer")
    """Residual sub-layers of a block in order: transformer, macaron, parallel, or a list of
    name[:variant][*step] over attention and ffn; joined by +, as in attention+ffn, they are
    computed in parallel from one input."""
    decoder_block: str | List | None = field(
        None,
        derived="block, with cross*s after each attention*s",
        needs={"kind": ("encoder-decoder",)},
    )
    """Residual sub-layers of a block of an encoder-decoder's decoder: a name or a list, as for
    block, which may have cross entries."""
    decoder_start: Literal["end", "pad"] = field("end", needs={"kind": ("encoder-decoder",)})
    """First token of an encoder-decoder's decoder: the end of a text (fairseq) or padding
    (Marian)."""
    ffn: FfnName = field("gelu", when=("networks", "named-ffn"))
    """Feed-forward network of the ffn entries that name no variant."""
    gelu: Literal["exact", "tanh"] = field("tanh", when=("networks", "gelu"))
    """Exact (erf) or tanh-approximated GELU, in the gelu and geglu networks."""
    swish_beta: Factor | Literal["learned"] = field(1.0, when=("networks", "swish"))
    """Slope b of swish, x / (1 + exp(-b x)): 1 is SiLU; learned: one number of each network, 1
    at first."""
    norm: NormName = of_blocks("layer")
    """Normalisation of each sub-layer; dyt: a dynamic tanh in its place."""
    norm_order: Literal["pre", "post", "around", "after"] = of_blocks("pre", needs={"norm": _NORMS})
    """Normalisation of a sub-layer's input (pre), of its sum with the residual (post), of its
    output before that sum (after: Olmo2), or of input and output (around: Gemma2)."""
    parallel_norm: Literal["shared", "separate"] = field(
        "shared",
        needs={"norm": _NORMS, "norm_order": ("pre", "around")},
        when=("blocks", "parallel"),
    )
    """Norm of the input of parallel sub-layers: one for all (GPT-J, Cohere), or one for each
    (GPT-NeoX)."""
    first_norm: bool = of_blocks(
        True, needs={"norm": _NORMS, "norm_order": ("pre", "around"), "share": ("none",)}
    )
    """Norm of the input of a stack's first sub-layer (none: ModernBERT, where embeddings have a
    norm)."""
    norm_affine: bool = of_blocks(True, needs={"norm": ("layer", "rms")})
    """Learned gain (and offset) of the norms of the sub-layers."""
    norm_bias: bool = field(True, needs={"norm": ("layer", "dyt")}, when=("blocks", "affine-norms"))
    """Learned offset of norms with parameters, those of embeddings, head and end included (none:
    Cohere)."""
    norm_eps: Fraction[float | None] = of_blocks(
        None, derived="1e-5 for layer, 1e-6 for rms", needs={"norm": ("layer", "rms")}
    )
    """Constant added to the variance under the root."""
    final_norm: _Parts | None = of_blocks(
        None, derived="affine, but none where norm_order is post or norm is none"
    )
    """Norm after the last block: with parameters, without, or none."""
    positions: PositionName = field("learned", when=("blocks", "scored-positions"))
    """Position scheme."""
    sinusoids: Literal["tensor2tensor", "fairseq", "marian", "interleaved"] = of_blocks(
        "tensor2tensor", needs={"positions": ("sinusoidal",)}
    )
    """Sines and cosines in two halves, with frequencies down to 1/10000; fairseq: computed in
    float32; marian: ending one step before 1/10000, rounded to float32; interleaved: ending there
    too, with each sine next to its cosine."""
    first_position: int = of_blocks(
        0, needs={"positions": ("sinusoidal",)}, ge=0, le=LONGEST_WINDOW
    )
    """Number of the first position (fairseq: 2)."""
    rotary_base: RotaryBase[float] = of_blocks(10000.0, needs={"positions": ("rotary",)})
    """Base of the rotary frequencies."""
    rotary_local_base: RotaryBase[float] | Literal["same"] = field(
        "same", when=("blocks", "local-and-global")
    )
    """Base of the rotary frequencies of local self-attentions; same: rotary_base."""
    rotary_fraction: Fraction[float] = of_blocks(1.0, needs={"positions": ("rotary",)})
    """Share of a head's features that are rotated, the first ones (GPT-NeoX: 0.25)."""
    rotary_layout: Literal["halves", "halves-clockwise", "interleaved", "interleaved-clockwise"] = (
        of_blocks("halves", needs={"positions": ("rotary",)})
    )
    """Pairs of features that are rotated: of the first half with the second (LLaMA), or
    interleaved, each with the next (GPT-J); clockwise: by negative angles (NanoChat)."""
    relative_buckets: int = of_blocks(
        32, unit="buckets", needs={"positions": ("relative",)}, ge=4, le=MOST_BUCKETS
    )
    """Learned biases of a head's scores by distance; a bidirectional stack has half of them for
    each side."""
    relative_distance: WindowTokens[int] = of_blocks(128, needs={"positions": ("relative",)})
    """Distance from which all keys share the last bucket; between the exact half of the buckets and
    it, bucket widths grow logarithmically."""
    position_pattern: str = of_blocks("P", needs={"positions": _IN_ATTENTION}, min_length=1)
    """Self-attentions of a stack with positions (P) and without (N) in the order of execution,
    repeated: PPPN (SmolLM3)."""
    share: Literal["none", "all", "attention", "ffn"] = of_blocks("none")
    """Sub-layers (with their norms) that share one set of weights across the blocks of a group."""
    share_groups: int = of_blocks(
        1, unit="groups", needs={"share": ("all", "attention", "ffn")}, ge=1, le=MOST_LAYERS
    )
    """Groups of consecutive blocks, each with its own shared weights."""
    share_inner: Blocks[int] = of_blocks(1, needs={"share": ("all", "attention", "ffn")})
    """Distinct blocks run one after another as one shared unit."""
    head: Literal["linear", "transform", "none"] = "linear"
    """Output head from hidden states to logits: linear, a matrix; transform, first a linear map to
    d_embed with activation and norm (BERT); none, no token logits, for a model that only answers a
    task."""
    softmax: Literal["tokens", "all"] = field(
        "tokens",
        needs={
            "kind": ("decoder",),
            "head": ("linear", "transform"),
            "positions": ("learned",),
            "tie_embeddings": (True,),
        },
    )
    """Support of the distribution of the next token: the tokens, or all rows of the embedding
    matrix, including the learned positions after the tokens, which are never correct (GPT-1, as
    released)."""
    head_activation: HeadActivation = field("ffn", needs={"head": ("transform",)})
    """Activation of a transform head; ffn: the activation of model.ffn, or gelu if that is
    gated."""
    pooler: Literal["none", "tanh", "relu", "gelu", "transform"] = field(
        "none", needs={"kind": ("encoder",)}
    )
    """Vector of a text: its first hidden state, or a layer on it with tanh (BERT), relu
    (DistilBERT), gelu (ELECTRA), or gelu and a norm (transform: ModernBERT)."""
    sentence_classes: Literal[0, 1, 2] = field(0, needs={"kind": ("encoder",)})
    """Outputs of the sentence head, which judges whether a pair's second text follows its first:
    none, one (logistic), two."""
    label_outputs: int = field(0, unit="outputs", ge=0, le=MOST_LABELS)
    """Outputs of the head that answers a task about a text: one per label, or one for a choice or a
    number; 0: no such head."""
    span_head: Literal["none", "independent", "joint"] = "none"
    """Head that finds an answer span in a text: independent start and end (BERT), or jointly the
    end given the start, and whether there is an answer (ALBERT for SQuAD 2.0)."""
    tie_embeddings: bool = True
    """Weight tying: the embedding matrix is also the output matrix."""
    embedding_scale: Literal["none", "sqrt"] | Scale[float] = "none"
    """Factor of token embeddings: none, the square root of their width, or a number (Granite)."""
    residual_scale: Scale[float] = of_blocks(1.0)
    """Factor of the step of every entry of a block (Granite)."""
    output_scale: Literal["none", "sqrt"] | Scale[float] = "none"
    """Divisor of the output matrix's input, and so of logits without bias: none, the square root
    of d_model (T5 v1.0), or a number (Granite; Cohere: 1 / logit_scale)."""
    logit_cap: Literal["none"] | Scale[float] = field(
        "none", needs={"head": ("linear", "transform")}
    )
    """Soft cap c of logits, c tanh(x / c): none, or a number (Gemma 2: 30)."""
    attention_scale: Literal["none", "sqrt"] | Scale[float] = field(
        "sqrt", when=("blocks", "attention")
    )
    """Divisor of attention scores: the square root of d_head, none, or a number (Granite: 1 /
    attention_multiplier)."""
    score_cap: Literal["none"] | Scale[float] = field("none", when=("blocks", "attention"))
    """Soft cap c of attention scores, c tanh(x / c), before biases of positions: none, or a number
    (Gemma 2: 50)."""
    sinks: bool = field(False, when=("blocks", "attention"))
    """A learned logit of each head in the softmax of its attention scores, without a value
    (GPT-OSS)."""
    attention_gate: Literal["none", "head", "element"] = field(
        "none", when=("blocks", "self-attention")
    )
    """Sigmoid gates of a self-attention's output, a linear map of its input: none, one of each
    head, or one of each feature of a head (Qwen3-Next)."""
    value_residual: Literal["none", "fixed", "learned"] = field(
        "none", when=("blocks", "several-attentions")
    )
    """Share of the values of a stack's first self-attention in those of each later one: none, half
    (fixed), or a learned number of each set of weights, half at first."""
    qk_norm: Literal["none", "rms", "layer", "l2"] = field("none", when=("blocks", "attention"))
    """Normalisation of the queries and keys of each token: as the norms of that name, or to length
    1 (l2)."""
    qk_norm_over: Literal["head", "all"] = of_blocks("head", needs={"qk_norm": QK_NORMS})
    """Features that qk_norm reads together: each head's (Qwen 3), or those of all heads (OLMo
    2)."""
    qk_norm_place: Literal["before", "after"] = field(
        "before",
        needs={"positions": ("rotary",), "qk_norm": QK_NORMS},
        when=("blocks", "turned-norms"),
    )
    """Place of qk_norm, before or after the rotation."""
    qk_norm_gain: bool = of_blocks(True, needs={"qk_norm": QK_NORMS})
    """Learned gain (and offset) of qk_norm."""
    bias: bool | dict[BiasedMap, bool] = True
    """Biases of the linear maps of blocks, or of an LSTM's gates, and of the factorised embedding;
    or by map, {query = true, ffn = false}: of query, key, value, gate, output, ffn and projection,
    those not named have none."""
    head_bias: bool = False
    """Bias of the output logits."""
    dropout: Dropout[float] = 0.0
    """Dropout of the output of each sub-layer, or of each LSTM layer."""
    dropout_attention: Dropout[float | None] = field(
        None, derived="dropout", when=("blocks", "attention")
    )
    """Dropout of the attention weights."""
    dropout_ffn: Dropout[float | None] = field(None, derived="0", when=("blocks", "ffn"))
    """Dropout of the feed-forward networks' hidden units."""
    dropout_embedding: Dropout[float | None] = field(None, derived="dropout")
    """Dropout of the sum of token and position embeddings, or of their matrix."""
    dropout_embedding_of: Literal["sum", "matrix"] = field(
        "sum", needs={"kind": ("decoder",), "positions": ("learned",)}, when=("embedding-dropout",)
    )
    """Target of dropout_embedding: the sum of embeddings, or the matrix of tokens and positions,
    dropped once per pass for both lookup and tied output (GPT-1, as released)."""
    dropout_final: Dropout[float] = of_blocks(0.0)
    """Dropout of the hidden states after a stack's final norm."""
    init: Literal["normal", "scaled", "truncated", "xavier", "kaiming", "t5"] = "scaled"
    """Initial weights: normal with init_std (GPT-1); scaled: the same with residual outputs divided
    by the root of the number of sub-layers (GPT-2); truncated: normal, cut at two init_std (BERT);
    Xavier uniform with N(0, 1/d_embed) embeddings (fairseq); kaiming: normal, feed-forward networks
    by their fan-in (Macaron BERT); t5: each map by its input and function, N(0, 1) embeddings."""
    init_std: Scale[float] = field(0.02, needs={"init": ("normal", "scaled", "truncated")})
    """Standard deviation of the initial weights, before any cut."""
    zero_padding: bool = field(False, needs={"kind": ("encoder", "encoder-decoder")})
    """Zero initialization of the embedding matrix's padding row (fairseq)."""
    vocab_size: int | None = field(
        None,
        unit="tokens",
        derived="the tokenizer's vocabulary, rounded up to a multiple of vocab_multiple",
        ge=1,
        le=LARGEST_VOCABULARY,
    )
    """Rows of the embedding matrix."""
    vocab_multiple: int = field(1, unit="tokens", ge=1, le=LARGEST_VOCABULARY)
    """Divisor of the number of rows of the embedding matrix (T5: 128)."""
    max_len: Tokens[int | None] = of_blocks(None, derived="data.context")
    """Longest input, and the rows of learned position tables."""
