"""What a config.json may say to T5's class of transformers."""

from sublayer.config.limits import (
    LARGEST_FACTOR,
    LARGEST_VOCABULARY,
    LONGEST_WINDOW,
    MOST_BUCKETS,
    MOST_HEADS,
    MOST_LAYERS,
    WIDEST,
    WIDEST_FFN,
)
from sublayer.interop.huggingface.class_fields import (
    ALWAYS_IGNORED,
    NEVER,
    ClassFields,
    Field,
    harmless,
    training_only,
)
from sublayer.interop.t5.t5_networks import ACTIVATIONS, NETWORKS
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

T5_FIELDS = ClassFields(
    title="T5Config",
    fields={
        "vocab_size": Field(32128, whole(LARGEST_VOCABULARY)),
        "d_model": Field(512, whole(WIDEST)),
        "d_kv": Field(64, whole(WIDEST)),
        "d_ff": Field(2048, whole(WIDEST_FFN)),
        "num_layers": Field(6, whole(MOST_LAYERS)),
        "num_decoder_layers": Field(None, optional(whole(MOST_LAYERS))),
        "num_heads": Field(8, whole(MOST_HEADS)),
        "relative_attention_num_buckets": Field(32, whole(MOST_BUCKETS)),
        "relative_attention_max_distance": Field(128, whole(LONGEST_WINDOW)),
        "layer_norm_epsilon": Field(1e-6, positive(LARGEST_EPS)),
        "feed_forward_proj": Field("relu", one_of(NETWORKS)),
        # What follows from that: a file may say it too, but nothing else.
        "dense_act_fn": Field(None, one_of(ACTIVATIONS)),
        "is_gated_act": Field(None, flag),
        "tie_word_embeddings": Field(True, flag),
        # Without it the output is scaled, unless a file says that its table is not tied.
        "scale_decoder_outputs": Field(None, flag),
        "dropout_rate": training_only(0.1, share),
        "initializer_factor": training_only(1.0, positive(LARGEST_FACTOR)),
        "pad_token_id": training_only(0, token_id),
        "eos_token_id": training_only(1, token_id),
        "decoder_start_token_id": training_only(None, optional(token_id)),
        # Of files of former versions: the length that a model was trained at.
        "n_positions": training_only(512, whole(LONGEST_WINDOW)),
        "is_encoder_decoder": harmless(True),
        **NEVER,
    },
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    },
    ids=("pad_token_id", "decoder_start_token_id", "eos_token_id"),
    ignored=ALWAYS_IGNORED,
)
