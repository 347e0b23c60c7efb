"""Read the settings of fairseq's translation models, as its checkpoints hold them."""

from sublayer.config.limits import LONGEST_WINDOW, MOST_LAYERS
from sublayer.config.resolved import ResolvedModel
from sublayer.errors import CheckpointError
from sublayer.interop.config_reader import Content
from sublayer.interop.seq2seq.translator_config import read_widths
from sublayer.interop.values import format_value

PAD_ID = 1
"""The padding of every dictionary of fairseq.

Its entries are <s> (once <Lua heritage>), <pad>, </s>, <unk>, then what a text has.
"""
_ACTIVATIONS = {
    "relu": ("relu", "tanh"),
    "gelu": ("gelu", "exact"),
    "gelu_accurate": ("gelu", "tanh"),
    "gelu_fast": ("gelu", "tanh"),
    "swish": ("swish", "tanh"),
}
_REFUSED = (
    "encoder_learned_pos",
    "decoder_learned_pos",
    "no_token_positional_embeddings",
    "layernorm_embedding",
    "no_normalize_affine",
    "no_decoder_final_norm",
    "adaptive_input",
    "adaptive_softmax_cutoff",
    "no_cross_attention",
    "cross_self_attention",
    "encoder_layers_to_keep",
    "decoder_layers_to_keep",
    "encoder_layerdrop",
    "decoder_layerdrop",
    "quant_noise_pq",
    "quant_noise_scalar",
    "base_layers",
    "char_inputs",
    "scale_attn",
    "scale_fc",
    "scale_heads",
    "scale_resids",
    "use_factorized_embedding",
    "encoder_recurrent_stacking",
    "decoder_recurrent_stacking",
)
_MACARON = (None, False, True, "new")


def read_fairseq_config(
    content: Content, *, vocab_size: int, has_final_norm: bool
) -> ResolvedModel:
    """Convert the settings of fairseq's Transformer, or of Macaron Net's, to a resolved config.

    What no setting says comes from the weights: ``vocab_size``, and whether a norm follows each
    stack. The source's and the target's longest input are one here, the shorter of both.

    Raises CheckpointError, naming the setting, where it is malformed, or asks for what a recipe
    cannot say.
    """
    content.refuse(_REFUSED)
    _check_activation(content)
    widths = read_widths(content, ("embed_dim", "ffn_embed_dim", "attention_heads"))
    d_model = widths["embed_dim"]
    _check_widths(content, d_model)
    is_tied = content.flag("share_all_embeddings", False)
    if not is_tied:
        is_tied = content.flag("share_decoder_input_output_embed", False)
    # Older versions call it by the one activation that they had.
    has_new_name = content.fields.get("activation_dropout")
    hidden_dropout = "activation_dropout" if has_new_name else "relu_dropout"
    longest = []
    for side in ("source", "target"):
        most = content.whole(f"max_{side}_positions", 1024, most=LONGEST_WINDOW)
        longest.append(most)
    return content.resolve(
        {
            "kind": "encoder-decoder",
            "block": "macaron" if is_macaron(content) else "transformer",
            "n_layers": content.whole("encoder_layers", most=MOST_LAYERS),
            "n_decoder_layers": content.whole("decoder_layers", most=MOST_LAYERS),
            "d_model": d_model,
            "n_heads": content.heads("encoder_attention_heads", "encoder_embed_dim", d_model),
            "d_ff": widths["ffn_embed_dim"],
            **content.activation("activation_fn", "relu", _ACTIVATIONS),
            "norm_order": (norm_order := _norm_order(content)),
            "norm_eps": 1e-5,
            "final_norm": "affine" if has_final_norm and norm_order == "pre" else "none",
            "positions": "sinusoidal",
            "sinusoids": "fairseq",
            "first_position": PAD_ID + 1,
            "decoder_start": "end",
            "embedding_scale": "none" if content.flag("no_scale_embedding", False) else "sqrt",
            "tie_embeddings": is_tied,
            "dropout": content.share("dropout", 0.1),
            "dropout_attention": content.share("attention_dropout", 0.0),
            "dropout_ffn": content.share(hidden_dropout, 0.0),
            "init": "xavier",
            "vocab_size": vocab_size,
            "max_len": min(longest),
        }
    )


def _check_widths(content: Content, d_model: int) -> None:
    if d_model % 2:
        raise CheckpointError(
            f"{content.file}: encoder_embed_dim = {d_model} is odd: sinusoids come in pairs"
        )
    for name in ("decoder_input_dim", "decoder_output_dim"):
        if content.whole(name, d_model) != d_model:
            raise CheckpointError(
                f"{content.file}: {name} = {content.fields[name]} is not decoder_embed_dim = "
                f"{d_model}: the embedding matrix is as wide as the model"
            )


def is_macaron(content: Content) -> bool:
    """Return whether blocks are Macaron Net's. Raises CheckpointError where the setting is odd."""
    value = content.fields.get("macaron")
    if not any(type(value) is type(known) and value == known for known in _MACARON):
        raise CheckpointError(
            f"{content.file}: macaron = {format_value(value)} is not true, false or 'new'"
        )
    return bool(value)


def _check_activation(content: Content) -> None:
    # Macaron Net's code for translation has one activation: another, found beside it, would be
    # another code's.
    value = is_macaron(content)
    for name in ("activation_fn", "act_fn"):
        if (other := content.fields.get(name) or "relu") != "relu" and (value or name == "act_fn"):
            raise CheckpointError(
                f"{content.file}: {name} = {format_value(other)}: "
                "Macaron Net's translation models have relu"
            )


def _norm_order(content: Content) -> str:
    before = {
        side: content.flag(f"{side}_normalize_before", False) for side in ("encoder", "decoder")
    }
    if before["encoder"] != before["decoder"]:
        raise CheckpointError(
            f"{content.file}: encoder_normalize_before = {before['encoder']} and "
            f"decoder_normalize_before = {before['decoder']}: both stacks have one order"
        )
    return "pre" if before["encoder"] else "post"
