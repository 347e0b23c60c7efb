"""``[model]``: the architecture, a field for each paper's idea."""

from functools import partial
from typing import TYPE_CHECKING, Literal

from sublayer.config.architecture import FFNS, POSITIONS
from sublayer.config.table import (
    LARGEST_VOCABULARY,
    LONGEST_WINDOW,
    MOST_BUCKETS,
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
    Scale,
    Table,
    Tokens,
    WindowTokens,
    field,
)

if TYPE_CHECKING:
    FfnName = str
    PositionName = str
else:
    FfnName = Literal[tuple(FFNS)]
    PositionName = Literal[tuple(POSITIONS)]


of_blocks = partial(field, when=("blocks",))
"""Declare a field of blocks, which an LSTM has not."""


class ModelConfig(Table):
    """The architecture. Every paper's idea is a field, and the fields are orthogonal."""

    kind: Literal["decoder", "encoder", "encoder-decoder", "lstm"] = "decoder"
    """Kind of stacks: a decoder sees the tokens before each, an encoder those on both sides of
    it; of both, the decoder's cross entries read what the encoder made of another text. An LSTM
    sees the tokens before each by its state, and has no blocks."""
    n_layers: Blocks[int] = 6
    """Executed blocks of a stack, or layers of an LSTM; blocks that share weights count each
    time."""
    n_decoder_layers: Blocks[int | None] = field(
        None, derived="n_layers", needs={"kind": ("encoder-decoder",)}
    )
    """Executed blocks of the decoder beside an encoder."""
    d_model: Features[int] = 256
    """Width of the residual stream; units of each layer of an LSTM."""
    n_heads: int = field(4, unit="heads", ge=1, le=MOST_HEADS, when=("blocks", "attention"))
    """Attention heads."""
    d_head: Features[int | None] = field(
        None, derived="d_model / n_heads, which must be whole", when=("blocks", "attention")
    )
    """Width of one head."""
    d_ff: int | None = field(
        None, unit="features", derived="4 * d_model", ge=1, le=WIDEST_FFN, when=("blocks", "ffn")
    )
    """Width of each ffn entry of a block, as built: never rescaled for gates or halves."""
    d_embed: Features[int | None] = field(None, derived="d_model")
    """Width of the embedding matrix; below d_model it is factorised (a projection follows the
    table)."""
    embedding_projection: Literal["tokens", "sum"] = field("tokens", when=("factorised",))
    """Input that a factorised embedding projects to d_model: token vectors, or their sum with
    positions and segments, which are then d_embed wide, after its norm and dropout (ALBERT)."""
    project_embeddings: Literal["as-needed", "always"] = "as-needed"
    """Projections of the embedding and of a linear head even where d_embed equals d_model."""
    embedding_norm: bool = of_blocks(False, needs={"norm": ("layer", "rms")})
    """Norm with parameters after the sum of embeddings."""
    segments: Literal["none", "both", "second"] = field("none", needs={"kind": ("encoder",)})
    """Segments of a pair with a learned vector, added to the embeddings; second: the first's is
    zero."""
    block: str | List = of_blocks("transformer")
    """The residual sub-layers of a block in order: transformer, macaron, or a list of
    name[:variant][*step] over attention and ffn."""
    decoder_block: str | List | None = field(
        None,
        derived="block, with cross*s after each attention*s",
        needs={"kind": ("encoder-decoder",)},
    )
    """The residual sub-layers of a block of the decoder beside an encoder: a name or a list, as
    block, which may have cross entries."""
    decoder_start: Literal["end", "pad"] = field("end", needs={"kind": ("encoder-decoder",)})
    """First token of a decoder beside an encoder: the end of a text (fairseq) or padding
    (Marian)."""
    ffn: FfnName = field("gelu", when=("networks", "named-ffn"))
    """Feed-forward network of the ffn entries that name no variant."""
    gelu: Literal["exact", "tanh"] = field("tanh", when=("networks", "gelu"))
    """Exact (erf) or tanh-approximated GELU, in the gelu and geglu networks."""
    swish_beta: Factor | Literal["learned"] = field(1.0, when=("networks", "swish"))
    """Slope b of swish, x / (1 + exp(-b x)): 1 is SiLU; learned: one number of each network, 1
    at first."""
    norm: Literal["layer", "rms", "none"] = of_blocks("layer")
    """Normalisation of each sub-layer."""
    norm_order: Literal["pre", "post"] = of_blocks("pre", needs={"norm": ("layer", "rms")})
    """Normalise a sub-layer's input (pre) or its sum with the residual (post)."""
    norm_affine: bool = of_blocks(True, needs={"norm": ("layer", "rms")})
    """Learned gain (and offset) of the norms of the sub-layers."""
    norm_eps: Fraction[float | None] = of_blocks(
        None, derived="1e-5 for layer, 1e-6 for rms", needs={"norm": ("layer", "rms")}
    )
    """Added to the variance under the root."""
    final_norm: Literal["affine", "plain", "none"] | None = of_blocks(
        None, derived="affine after pre-norm blocks, none otherwise"
    )
    """Norm after the last block: with parameters, without, or none."""
    positions: PositionName = field("learned", when=("blocks", "scored-positions"))
    """Position scheme."""
    sinusoids: Literal["tensor2tensor", "fairseq", "marian", "interleaved"] = of_blocks(
        "tensor2tensor", needs={"positions": ("sinusoidal",)}
    )
    """Sines and cosines in halves, with frequencies that fall to 1/10000; fairseq: computed in
    float32; marian: they stop a step before it, and are rounded to float32; interleaved: they
    stop there too, each sine beside its cosine."""
    first_position: int = of_blocks(
        0, needs={"positions": ("sinusoidal",)}, ge=0, le=LONGEST_WINDOW
    )
    """Number of the first position (fairseq: 2)."""
    rotary_base: float = of_blocks(10000.0, needs={"positions": ("rotary",)}, gt=1.0, le=1e12)
    """Base of the rotary frequencies."""
    relative_buckets: int = of_blocks(
        32, unit="buckets", needs={"positions": ("relative",)}, ge=4, le=MOST_BUCKETS
    )
    """Numbers that a head adds to scores by distance; of a stack that sees both sides, half of
    them for each."""
    relative_distance: WindowTokens[int] = of_blocks(128, needs={"positions": ("relative",)})
    """Distance from which on all keys share the last bucket; those between it and the exact half
    of the buckets share some, by logarithm."""
    share: Literal["none", "all", "attention", "ffn"] = of_blocks("none")
    """Sub-layers (with their norms) that use one set of weights in every block of a group."""
    share_groups: int = of_blocks(
        1, unit="groups", needs={"share": ("all", "attention", "ffn")}, ge=1, le=MOST_LAYERS
    )
    """Groups of consecutive blocks; each group has its own shared weights."""
    share_inner: Blocks[int] = of_blocks(1, needs={"share": ("all", "attention", "ffn")})
    """Distinct blocks run one after another as one shared unit."""
    head: Literal["linear", "transform", "none"] = "linear"
    """From hidden states to logits: a matrix, or first a linear map to d_embed with activation
    and norm (BERT); none: no logits of tokens, for a model that only answers a task."""
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
    matrix, those of learned positions behind those of tokens, which are never right (GPT-1, as
    released)."""
    head_activation: Literal["ffn", "relu", "gelu", "swish"] = field(
        "ffn", needs={"head": ("transform",)}
    )
    """Activation of a transform head; ffn: that of model.ffn, gelu where it is gated."""
    pooler: Literal["none", "tanh"] = field("none", needs={"kind": ("encoder",)})
    """Vector of a text: its first hidden state, or a tanh layer on it."""
    sentence_classes: Literal[0, 1, 2] = field(0, needs={"kind": ("encoder",)})
    """Outputs of the head that judges whether a pair's second text follows its first: none, one
    (logistic), two."""
    label_outputs: int = field(0, unit="outputs", ge=0, le=MOST_LABELS)
    """Outputs of the head that answers a task about a text: one for each label, one for a choice
    or a number; 0: no such head."""
    span_head: Literal["none", "independent", "joint"] = "none"
    """The head that finds an answer in a text: where it starts and ends, apart (BERT), or the
    end given the start, and whether there is one (ALBERT's for SQuAD 2.0)."""
    tie_embeddings: bool = True
    """Embedding matrix as the output matrix too (weight tying)."""
    embedding_scale: Literal["none", "sqrt"] = "none"
    """Multiply token embeddings by nothing or by the square root of their width."""
    output_scale: Literal["none", "sqrt"] = "none"
    """Divide what the output matrix reads by nothing or by the square root of d_model (T5 v1.0)."""
    attention_scale: Literal["sqrt", "none"] = field("sqrt", when=("blocks", "attention"))
    """Divide attention scores by the square root of d_head, or by nothing."""
    bias: bool = True
    """Biases of the linear maps of blocks, or of an LSTM's gates, and of the factorised
    embedding."""
    head_bias: bool = False
    """Bias of the output logits."""
    dropout: Dropout[float] = 0.0
    """Dropout of each sub-layer's output, or of each LSTM layer's."""
    dropout_attention: Dropout[float | None] = field(
        None, derived="dropout", when=("blocks", "attention")
    )
    """Dropout of the attention weights."""
    dropout_ffn: Dropout[float | None] = field(None, derived="0", when=("blocks", "ffn"))
    """Dropout of the feed-forward networks' hidden units."""
    dropout_embedding: Dropout[float | None] = field(None, derived="dropout")
    """Dropout of the sum of token and position embeddings, or of the matrix that they are rows
    of."""
    dropout_embedding_of: Literal["sum", "matrix"] = field(
        "sum", needs={"kind": ("decoder",), "positions": ("learned",)}, when=("embedding-dropout",)
    )
    """Elements that dropout_embedding drops: of the sum of embeddings, or of the matrix of tokens
    and positions, once in a pass, as it is looked up and as a tied output matrix (GPT-1, as
    released)."""
    dropout_final: Dropout[float] = of_blocks(0.0)
    """Dropout of the hidden states after a stack's final norm."""
    init: Literal["normal", "scaled", "truncated", "xavier", "kaiming", "t5"] = "scaled"
    """Initial weights: normal with init_std (GPT-1); scaled: the same with residual outputs
    divided by the root of the number of sub-layers (GPT-2); truncated: normal, cut at two
    init_std (BERT); Xavier uniform with N(0, 1/d_embed) embeddings (fairseq); kaiming: normal,
    feed-forward networks by their fan-in (Macaron BERT); t5: each map by what it reads and does,
    N(0, 1) embeddings."""
    init_std: Scale[float] = field(0.02, needs={"init": ("normal", "scaled", "truncated")})
    """Standard deviation of the initial weights, before any cut."""
    zero_padding: bool = field(False, needs={"kind": ("encoder", "encoder-decoder")})
    """Initial padding row of the embedding matrix at zero, as fairseq's."""
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
    """Longest input; the rows of learned position tables."""
