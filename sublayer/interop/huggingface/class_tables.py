"""What each class of transformers can represent: a row for every field of a model."""

from collections.abc import Mapping

from sublayer.interop.huggingface.family import Answers
from sublayer.interop.huggingface.representable import (
    ANY,
    HEAD_ACTIVATION_OF_BLOCKS,
    HEADS_FILL_D_MODEL,
    NETWORK_OF_FOUR_WIDTHS,
    PADDING_BEFORE_FIRST,
    POOLER_FOR_SENTENCES,
    SUM_WHERE_FACTORISED,
    T5_NETWORK,
    TABLE_AS_WIDE_AS_MODEL,
    TANH_GELU,
    TOKENS_WHERE_SENTENCES,
    TWO_FREQUENCIES,
    USUAL_BLOCK,
    USUAL_DECODER_BLOCK,
    USUAL_NETWORK,
    Table,
    final_norms,
)

_EITHER = (True, False)
_NO_MATTER: Table = {
    "dropout": ANY,
    "dropout_attention": ANY,
    "dropout_ffn": ANY,
    "dropout_embedding": ANY,
    "dropout_embedding_of": ("sum", "matrix"),
    "dropout_final": ANY,
    "init": ("normal", "scaled", "truncated", "xavier", "kaiming", "t5"),
    "init_std": ANY,
    "zero_padding": _EITHER,
    "vocab_multiple": ANY,
}
"""What changes no number of a trained model."""

# What a class always has, or never, may be written otherwise (see ``expand``): biases as zeros,
# shared weights once for each block, sinusoids as a table.
_ALL: Table = {
    "swish_beta": (1.0,),
    "block": USUAL_BLOCK,
    "ffn": USUAL_NETWORK,
    "gelu": ("exact", "tanh"),
    "norm": ("layer",),
    "norm_affine": _EITHER,
    "norm_eps": ANY,
    "positions": ("learned", "sinusoidal", "none"),
    "sinusoids": ("tensor2tensor", "fairseq", "marian", "interleaved"),
    "first_position": ANY,
    "rotary_base": ANY,
    "relative_buckets": ANY,
    "relative_distance": ANY,
    "n_layers": ANY,
    "d_model": ANY,
    "n_heads": ANY,
    "d_head": HEADS_FILL_D_MODEL,
    "d_ff": ANY,
    "share": ("none", "all", "attention", "ffn"),
    "share_groups": ANY,
    "share_inner": ANY,
    "softmax": ("tokens",),
    "tie_embeddings": _EITHER,
    "embedding_scale": ("none", "sqrt"),
    "output_scale": ("none",),
    "attention_scale": ("sqrt",),
    "bias": _EITHER,
    "vocab_size": ANY,
    "max_len": ANY,
    "label_outputs": (0,),
    "span_head": ("none",),
    **_NO_MATTER,
}
_NO_TRANSLATOR: Table = {
    "n_decoder_layers": ANY,
    "decoder_block": ANY,
    "decoder_start": ("end", "pad"),
}
"""What only a decoder beside an encoder has."""
_NO_ENCODER: Table = {
    "embedding_norm": (False,),
    "d_embed": TABLE_AS_WIDE_AS_MODEL,
    "embedding_projection": ("tokens", "sum"),
    "project_embeddings": ("as-needed",),
    # Every token is of the first segment, which has no vector, or one of zeros.
    "segments": ("none", "second"),
    "head": ("linear",),
    "head_activation": ("ffn", "relu", "gelu", "swish"),
    "pooler": ("none", "tanh"),
    "sentence_classes": (0, 1, 2),
}
"""What encoders alone are exported with."""

GPT2: Table = {
    "kind": ("decoder",),
    **_ALL,
    **_NO_TRANSLATOR,
    **_NO_ENCODER,
    "norm_order": ("pre",),
    "final_norm": final_norms("affine", "plain"),
    "attention_scale": ("sqrt", "none"),
    "head_bias": (False,),
}
GPT1: Table = {
    **GPT2,
    "norm_order": ("post",),
    "final_norm": final_norms("none"),
    "attention_scale": ("sqrt",),
    "gelu": TANH_GELU,
    "d_ff": NETWORK_OF_FOUR_WIDTHS,
    # Positions as classes are left out, and the certificate says it.
    "softmax": ("tokens", "all"),
}
ALBERT: Table = {
    "kind": ("encoder",),
    **_ALL,
    **_NO_TRANSLATOR,
    "norm_order": ("post",),
    "final_norm": final_norms("none"),
    "embedding_norm": (True,),
    "d_embed": ANY,
    "embedding_projection": SUM_WHERE_FACTORISED,
    "project_embeddings": ("as-needed", "always"),
    "segments": ("none", "both", "second"),
    "head": TOKENS_WHERE_SENTENCES,
    "head_activation": HEAD_ACTIVATION_OF_BLOCKS,
    "head_bias": _EITHER,
    "sentence_classes": (0, 2),
    "pooler": POOLER_FOR_SENTENCES,
}
BERT: Table = {
    **ALBERT,
    "d_embed": TABLE_AS_WIDE_AS_MODEL,
    "project_embeddings": ("as-needed",),
    "share": ("none", "attention", "ffn"),
    "head": ("transform", "none"),
}
_NO_OTHER_HEAD: Table = {
    "head": ("none", "linear", "transform"),
    "softmax": ("tokens", "all"),
    "head_activation": ("ffn", "relu", "gelu", "swish"),
    "head_bias": _EITHER,
    "output_scale": ("none", "sqrt"),
    "sentence_classes": (0, 1, 2),
}
"""Heads that a model may have beside the one that answers, and that are left out."""

_LABELS: Table = {**_NO_OTHER_HEAD, "pooler": ("tanh",), "label_outputs": ANY}
_SPANS: Table = {**_NO_OTHER_HEAD, "pooler": ("none", "tanh"), "span_head": ("independent",)}
BERT_ANSWERS: Mapping[Answers, Table] = {
    "labels": {**BERT, **_LABELS},
    "choices": {**BERT, **_LABELS, "label_outputs": (1,)},
    "spans": {**BERT, **_SPANS},
}
ALBERT_ANSWERS: Mapping[Answers, Table] = {
    "labels": {**ALBERT, **_LABELS},
    "choices": {**ALBERT, **_LABELS, "label_outputs": (1,)},
    "spans": {**ALBERT, **_SPANS},
}
GPT2_LABELS: Table = {**GPT2, **_LABELS, "pooler": ("none",)}
GPT1_LABELS: Table = {**GPT1, **_LABELS, "pooler": ("none",)}
GPT1_CHOICES: Table = {**GPT1, "pooler": ("none",), "label_outputs": (1,)}
"""Beside the head that predicts tokens, which the class always has."""
_TRANSLATORS: Table = {
    "kind": ("encoder-decoder",),
    **_ALL,
    **_NO_ENCODER,
    "n_decoder_layers": ANY,
    "decoder_block": USUAL_DECODER_BLOCK,
    # No config of theirs says another.
    "norm_eps": (1e-5,),
    "positions": ("sinusoidal",),
}
M2M100: Table = {
    **_TRANSLATORS,
    "d_model": TWO_FREQUENCIES,
    "norm_order": ("pre",),
    "final_norm": final_norms("affine"),
    "sinusoids": ("fairseq",),
    "first_position": PADDING_BEFORE_FIRST,
    # Padding has no position there, wherever it stands.
    "decoder_start": ("end",),
    "head_bias": (False,),
}
MARIAN: Table = {
    **_TRANSLATORS,
    "norm_order": ("post",),
    "final_norm": final_norms("none"),
    "sinusoids": ("marian",),
    "first_position": (0,),
    "decoder_start": ("end", "pad"),
    "head_bias": _EITHER,
}
T5: Table = {
    "kind": ("encoder-decoder",),
    **_ALL,
    **_NO_ENCODER,
    "n_decoder_layers": ANY,
    "decoder_block": USUAL_DECODER_BLOCK,
    "decoder_start": ("end", "pad"),
    "ffn": T5_NETWORK,
    "norm": ("rms",),
    "norm_order": ("pre",),
    "final_norm": final_norms("affine", "plain", norm="rms"),
    "positions": ("relative",),
    "d_head": ANY,
    "attention_scale": ("none",),
    "output_scale": ("none", "sqrt"),
    "bias": (False,),
    "head_bias": (False,),
}
