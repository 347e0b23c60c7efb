"""Small random models of every kind for engines, by whether CTranslate2 represents them."""

import torch

from sublayer.text_model import TextModel
from tests.encoders import random_model

VOCAB_SIZE, CONTEXT = 23, 24
_SIZES = {"n_layers": 2, "d_model": 16, "n_heads": 4, "d_ff": 24}
_ROTARY = {"positions": "rotary", "rotary_base": 50.0}
_LLAMA = {**_ROTARY, "norm": "rms", "ffn": "swiglu", "bias": False, "tie_embeddings": False}
_GROUPED = {**_LLAMA, "n_kv_heads": 2}
_PARALLEL = {**_ROTARY, "block": "parallel"}
_GEMMA = {**_ROTARY, "norm": "rms", "norm_order": "around", "d_head": 6, "residual_scale": 0.4}
_GEMMA |= {"logit_cap": 2.0, "ffn": "geglu", "embedding_scale": "sqrt"}
_TRANSLATOR = {"kind": "encoder-decoder", "ffn": "relu", "n_decoder_layers": 1}
_T5 = {**_TRANSLATOR, "norm": "rms", "positions": "relative", "attention_scale": "none"}
_T5 |= {"bias": False, "decoder_start": "pad", "relative_buckets": 8, "relative_distance": 6}
_SINUSOIDAL = {**_TRANSLATOR, "positions": "sinusoidal"}
_ENCODER = {"kind": "encoder", "head": "none", "embedding_norm": "affine", "norm_order": "post"}
_LABELS = {"head": "none", "label_outputs": 3}
MODELS = {
    "GPT-2": {},
    "GPT-1": {"norm_order": "post", "gelu": "exact", "softmax": "all"},
    "Llama, grouped": _GROUPED,
    "Llama, multi-query, wide heads": {**_LLAMA, "n_kv_heads": 1, "d_head": 6},
    "GPT-NeoX": {**_PARALLEL, "parallel_norm": "separate", "rotary_fraction": 0.5},
    "GPT-J": {**_PARALLEL, "rotary_layout": "interleaved", "head_bias": True},
    "Cohere": {**_PARALLEL, "norm_bias": False, "output_scale": 3.0, "ffn": "glu"},
    "parallel, norms of squares": {**_PARALLEL, "block": ["ffn*0.5+attention"], "norm": "rms"},
    "Gemma 2": _GEMMA,
    "Qwen 3": {**_GROUPED, "qk_norm": "rms"},
    "norms of queries, without gains": {**_ROTARY, "qk_norm": "layer", "embedding_norm": "plain",
                                        "norm_affine": False, "rotary_fraction": 0.5},
    "Granite": {**_LLAMA, "residual_scale": 0.3, "embedding_scale": 5.0, "attention_scale": 3.0},
    "SmolLM3": {**_LLAMA, "n_layers": 4, "position_pattern": "PPPN"},
    "ALiBi, six heads": {"positions": "alibi", "n_heads": 6, "d_model": 12},
    "shared": {"share": "all", "positions": "sinusoidal", "n_layers": 4, "share_groups": 2},
    "factorised": {"d_embed": 8, "positions": "none", "embedding_norm": "affine"},
    "steps": {"block": ["attention*0.5", "ffn:reglu*-2"], "norm_order": "post",
              "final_norm": "affine"},
    "without a final norm": {"final_norm": "none", "bias": {"query": True, "ffn": True}},
    "fairseq": {**_SINUSOIDAL, "sinusoids": "fairseq", "first_position": 2,
                "embedding_scale": "sqrt"},
    "Marian": {**_SINUSOIDAL, "sinusoids": "marian", "norm_order": "post", "head_bias": True,
               "decoder_start": "pad"},
    "T5": {**_T5, "output_scale": "sqrt"},
    "T5 v1.1": {**_T5, "ffn": "geglu", "tie_embeddings": False, "d_head": 6},
    "BART": {**_TRANSLATOR, "norm_order": "post", "embedding_norm": "affine"},
    "rotary, grouped": {**_TRANSLATOR, **_GROUPED, "d_embed": 8},
    "BERT": {**_ENCODER, "segments": "both", "pooler": "tanh", "embedding_scale": 3.0},
    "BERT for spans": {**_ENCODER, "segments": "both", "span_head": "independent"},
    "Macaron's segments": {**_ENCODER, "segments": "second", "embedding_norm": "none"},
    "pairs and masked tokens": {**_ENCODER, "head": "transform", "pooler": "tanh",
                                "sentence_classes": 2, "share": "all"},
    "an encoder of labels": {**_ENCODER, **_GROUPED, **_LABELS, "norm_order": "pre",
                             "qk_norm": "rms"},
    "T5's encoder": {**_ENCODER, "norm_order": "pre", "positions": "relative", "d_embed": 8},
}  # fmt: skip
"""Models that all engines represent."""
REFUSED = {
    "macaron, alibi": ({"block": "macaron", "positions": "alibi", "share": "all"}, "block"),
    "a parallel encoder": ({**_ENCODER, "norm_order": "pre", "block": "parallel"}, "block"),
    "lstm": ({"kind": "lstm", "n_layers": 2, "d_model": 16}, "kind"),
    "lstm of labels": ({"kind": "lstm", "n_layers": 2, "d_model": 16, **_LABELS}, "kind"),
    "gemma": ({**_GEMMA, "attention_window": 5, "window_pattern": "LG", "score_cap": 3.0,
               "rotary_local_base": 50.0}, "attention_window score_cap"),
    "sinks, gates, values of the first attention": (
        {**_GROUPED, "sinks": True, "attention_gate": "head", "value_residual": "learned",
         "rotary_layout": "interleaved-clockwise", "position_pattern": "NP"},
        "sinks attention_gate value_residual rotary_layout position_pattern",
    ),
    "without norms": ({"norm": "none"}, "norm"),
    "dyt": ({"positions": "sinusoidal", "d_embed": 8, "norm": "dyt", "ffn": "relu2"}, "norm ffn"),
    "norms of outputs": ({"norm_order": "after"}, "norm_order"),
    "a translator's norms around": ({**_TRANSLATOR, "norm_order": "around"}, "norm_order"),
    "relative": ({"positions": "relative", "attention_window": 6}, "positions attention_window"),
    "a translator's alibi": ({**_TRANSLATOR, "positions": "alibi"}, "positions"),
    "positions in every layer": ({"positions": "learned-per-layer"}, "positions"),
    "lengths of queries": ({"qk_norm": "l2", "swish_beta": 2.0, "ffn": "swish"},
                           "qk_norm swish_beta"),
    "norms over all heads": ({"qk_norm": "rms", "qk_norm_over": "all"}, "qk_norm_over"),
    "another head": ({"head": "transform"}, "head"),
    "sums projected": ({"d_embed": 8, "embedding_projection": "sum"}, "embedding_projection"),
    "a decoder of labels": ({**_LABELS, "positions": "none"}, "label_outputs"),
    "a macaron translator": ({**_TRANSLATOR, "block": "macaron", "positions": "relative"}, "block"),
}  # fmt: skip
"""Models that CTranslate2 lacks, and the fields that it refuses."""


def built(name, tokenizer=None, **changes):
    """Build a model of a table, every weight drawn."""
    fields = MODELS[name] if name in MODELS else REFUSED[name][0]
    sizes = {} if fields.get("kind") == "lstm" else _SIZES
    model = random_model({**sizes, **fields, **changes}, VOCAB_SIZE, CONTEXT, dtype=torch.float32)
    return TextModel(model, tokenizer)
