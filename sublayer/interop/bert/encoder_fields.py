"""What a config.json may say to BERT's and ALBERT's classes of transformers."""

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
    token_id,
    whole,
)

_ENCODER: dict[str, Field] = {
    "hidden_size": Field(768, whole(WIDEST)),
    "num_hidden_layers": Field(12, whole(MOST_LAYERS)),
    "max_position_embeddings": Field(512, whole(LONGEST_WINDOW)),
    "layer_norm_eps": Field(1e-12, positive(LARGEST_EPS)),
    "tie_word_embeddings": Field(True, flag),
    "pad_token_id": Field(0, optional(token_id)),
    "initializer_range": training_only(0.02, positive(LARGEST_FACTOR)),
    "type_vocab_size": harmless(2),
    "is_encoder_decoder": harmless(False),
    **NEVER,
}
BERT_FIELDS = ClassFields(
    title="BertConfig",
    fields={
        **_ENCODER,
        "vocab_size": Field(30522, whole(LARGEST_VOCABULARY)),
        "num_attention_heads": Field(12, whole(MOST_HEADS)),
        "intermediate_size": Field(3072, whole(WIDEST_FFN)),
        "hidden_act": Field("gelu", one_of(activations.NAMES)),
        "hidden_dropout_prob": training_only(0.1, share),
        "attention_probs_dropout_prob": training_only(0.1, share),
    },
    aliases={},
    ids=("pad_token_id",),
    ignored=ALWAYS_IGNORED
    | names(
        """
    directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
    pooler_size_per_head pooler_type
    """
    ),
)
ALBERT_FIELDS = ClassFields(
    title="AlbertConfig",
    fields={
        **_ENCODER,
        "vocab_size": Field(30000, whole(LARGEST_VOCABULARY)),
        "embedding_size": Field(128, whole(WIDEST)),
        "hidden_size": Field(4096, whole(WIDEST)),
        "num_hidden_groups": Field(1, whole(MOST_LAYERS)),
        "inner_group_num": Field(1, whole(MOST_LAYERS)),
        "num_attention_heads": Field(64, whole(MOST_HEADS)),
        "intermediate_size": Field(16384, whole(WIDEST_FFN)),
        "hidden_act": Field("gelu_new", one_of(activations.NAMES)),
        "hidden_dropout_prob": training_only(0.0, share),
        "attention_probs_dropout_prob": training_only(0.0, share),
    },
    aliases={},
    ids=("pad_token_id",),
    ignored=ALWAYS_IGNORED
    | names(
        """
    down_scale_factor gap_size ln_type net_structure_type num_memory_blocks
    """
    ),
)
