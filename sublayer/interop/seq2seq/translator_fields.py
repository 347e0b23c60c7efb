"""What a config.json may say to M2M100's and Marian's classes of transformers."""

from sublayer.config.limits import (
    LARGEST_FACTOR,
    LARGEST_VOCABULARY,
    LONGEST_WINDOW,
    MOST_HEADS,
    MOST_LAYERS,
    WIDEST,
    WIDEST_FFN,
)
from sublayer.interop import activations
from sublayer.interop.huggingface.class_fields import (
    ALWAYS_IGNORED,
    NEVER,
    ClassFields,
    Field,
    harmless,
    names,
    training_only,
)
from sublayer.interop.values import (
    flag,
    one_of,
    optional,
    positive,
    share,
    token_id,
    whole,
)

_TRANSLATOR: dict[str, Field] = {
    "max_position_embeddings": Field(1024, whole(LONGEST_WINDOW)),
    "encoder_layers": Field(12, whole(MOST_LAYERS)),
    "encoder_ffn_dim": Field(4096, whole(WIDEST_FFN)),
    "encoder_attention_heads": Field(16, whole(MOST_HEADS)),
    "decoder_layers": Field(12, whole(MOST_LAYERS)),
    "decoder_ffn_dim": Field(4096, whole(WIDEST_FFN)),
    "decoder_attention_heads": Field(16, whole(MOST_HEADS)),
    "d_model": Field(1024, whole(WIDEST)),
    "tie_word_embeddings": Field(True, flag),
    "dropout": training_only(0.1, share),
    "activation_dropout": training_only(0.0, share),
    "init_std": training_only(0.02, positive(LARGEST_FACTOR)),
    "is_encoder_decoder": harmless(True),
    **NEVER,
}
_TRANSLATOR_ALIASES = {
    "num_attention_heads": "encoder_attention_heads",
    "hidden_size": "d_model",
    "num_hidden_layers": "encoder_layers",
}
# Layers that training drops are not dropped here; what Marian's class once took for other models it
# takes no more.
_TRANSLATOR_IGNORED = ALWAYS_IGNORED | names(
    """
    add_bias_logits add_final_layer_norm classif_dropout decoder_layerdrop encoder_layerdrop
    extra_pos_embeddings normalize_before normalize_embedding save_step static_position_embeddings
    """
)
_TRANSLATOR_IDS = ("pad_token_id", "decoder_start_token_id", "eos_token_id")
M2M100_FIELDS = ClassFields(
    title="M2M100Config",
    fields={
        **_TRANSLATOR,
        "vocab_size": Field(128112, whole(LARGEST_VOCABULARY)),
        "activation_function": Field("relu", one_of(activations.NAMES)),
        "attention_dropout": training_only(0.1, share),
        "scale_embedding": Field(True, flag),
        "pad_token_id": Field(1, token_id),
        "decoder_start_token_id": training_only(2, token_id),
        "eos_token_id": training_only(2, token_id),
    },
    aliases=_TRANSLATOR_ALIASES,
    ids=_TRANSLATOR_IDS,
    ignored=_TRANSLATOR_IGNORED,
)
MARIAN_FIELDS = ClassFields(
    title="MarianConfig",
    fields={
        **_TRANSLATOR,
        "vocab_size": Field(58101, whole(LARGEST_VOCABULARY)),
        "decoder_vocab_size": Field(None, optional(whole(LARGEST_VOCABULARY))),
        "activation_function": Field("gelu", one_of(activations.NAMES)),
        "attention_dropout": training_only(0.0, share),
        "scale_embedding": Field(False, flag),
        "pad_token_id": Field(58100, token_id),
        "decoder_start_token_id": training_only(58100, token_id),
        "eos_token_id": training_only(0, token_id),
        "share_encoder_decoder_embeddings": harmless(True),
    },
    aliases=_TRANSLATOR_ALIASES,
    ids=_TRANSLATOR_IDS,
    ignored=_TRANSLATOR_IGNORED,
)
