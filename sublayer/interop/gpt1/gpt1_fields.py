"""What a config.json may say to GPT-1's class of transformers, OpenAIGPT."""

from sublayer.config.limits import (
    LARGEST_FACTOR,
    LARGEST_VOCABULARY,
    LONGEST_WINDOW,
    MOST_HEADS,
    MOST_LAYERS,
    WIDEST,
)
from sublayer.interop.huggingface.class_fields import (
    ALWAYS_IGNORED,
    NEVER,
    ClassFields,
    Field,
    harmless,
    names,
    training_only,
)
from sublayer.interop.values import LARGEST_EPS, flag, one_of, positive, share, whole

ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "silu": "silu", "swish": "silu"}
"""The class's names of activations, by those that transformers has elsewhere: its GELU is that by
tanh."""

GPT1_FIELDS = ClassFields(
    title="OpenAIGPTConfig",
    fields={
        "vocab_size": Field(40478, whole(LARGEST_VOCABULARY)),
        "n_positions": Field(512, whole(LONGEST_WINDOW)),
        "n_embd": Field(768, whole(WIDEST)),
        "n_layer": Field(12, whole(MOST_LAYERS)),
        "n_head": Field(12, whole(MOST_HEADS)),
        "afn": Field("gelu", one_of(ACTIVATIONS)),
        "layer_norm_epsilon": Field(1e-5, positive(LARGEST_EPS)),
        "tie_word_embeddings": Field(True, flag),
        "resid_pdrop": training_only(0.1, share),
        "embd_pdrop": training_only(0.1, share),
        "attn_pdrop": training_only(0.1, share),
        "initializer_range": training_only(0.02, positive(LARGEST_FACTOR)),
        "is_encoder_decoder": harmless(False),
        **NEVER,
    },
    aliases={
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    ignored=ALWAYS_IGNORED
    | names(
        """
    n_ctx n_special predict_special_tokens summary_activation summary_first_dropout
    summary_proj_to_labels summary_type summary_use_proj
    """
    ),
)
