"""What a config.json may say to GPT-2's class of transformers."""

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
    LARGEST_EPS,
    flag,
    one_of,
    optional,
    positive,
    share,
    whole,
)

SHARED = {
    "n_embd": Field(768, whole(WIDEST)),
    "n_layer": Field(12, whole(MOST_LAYERS)),
    "n_head": Field(12, whole(MOST_HEADS)),
    "layer_norm_epsilon": Field(1e-5, positive(LARGEST_EPS)),
    "tie_word_embeddings": Field(True, flag),
    "resid_pdrop": training_only(0.1, share),
    "embd_pdrop": training_only(0.1, share),
    "attn_pdrop": training_only(0.1, share),
    "initializer_range": training_only(0.02, positive(LARGEST_FACTOR)),
    "is_encoder_decoder": harmless(False),
    **NEVER,
}
"""The fields that GPT-1's class has too, with the same defaults."""
ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
IGNORED = ALWAYS_IGNORED | names(
    """
    n_ctx summary_activation summary_first_dropout summary_proj_to_labels summary_type
    summary_use_proj
    """
)

GPT2_FIELDS = ClassFields(
    title="GPT2Config",
    fields={
        **SHARED,
        "vocab_size": Field(50257, whole(LARGEST_VOCABULARY)),
        "n_positions": Field(1024, whole(LONGEST_WINDOW)),
        "n_inner": Field(None, optional(whole(WIDEST_FFN))),
        "activation_function": Field("gelu_new", one_of(activations.NAMES)),
        "scale_attn_weights": Field(True, flag),
        "scale_attn_by_inverse_layer_idx": harmless(False),
        "reorder_and_upcast_attn": harmless(False),
    },
    aliases=ALIASES,
    ignored=IGNORED,
)
