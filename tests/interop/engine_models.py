"""Small random models of every kind for engines, by whether CTranslate2 represents them."""

import torch

from sublayer.text_model import TextModel
from tests.encoders import random_model
from tests.interop.classes import EXPORTED, VOCAB_SIZE

CONTEXT = 24
_SIZES = {"n_layers": 2, "d_model": 16, "n_heads": 4, "d_ff": 24}
_ROTARY = {"positions": "rotary", "rotary_base": 50.0}
_LLAMA = {**_ROTARY, "norm": "rms", "ffn": "swiglu", "bias": False, "tie_embeddings": False}
_GROUPED = {**_LLAMA, "n_kv_heads": 2}
_GEMMA = {**_ROTARY, "norm": "rms", "norm_order": "around", "d_head": 6, "residual_scale": 0.4}
_GEMMA |= {"logit_cap": 2.0, "ffn": "geglu", "embedding_scale": "sqrt"}
_TRANSLATOR = {"kind": "encoder-decoder", "ffn": "relu", "n_decoder_layers": 1}
_ENCODER = {"kind": "encoder", "head": "none", "embedding_norm": "affine", "norm_order": "post"}
_LABELS = {"head": "none", "label_outputs": 3}
_LSTM = {"kind": "lstm", "n_layers": 2, "d_model": 16}
_OF_CLASSES = ("gpt2", "openai-gpt with positions as classes", "gpt_neox", "gptj", "cohere")
_OF_CLASSES += ("qwen3", "granite", "smollm3", "m2m_100", "marian", "t5", "bart", "bert for spans")
_OF_CLASSES += ("bert that judges pairs", "distilbert for labels")
MODELS = {name: EXPORTED[name][1] for name in _OF_CLASSES} | {
    "Llama, grouped": _GROUPED,
    "Llama, multi-query, wide heads": {**_LLAMA, "n_kv_heads": 1, "d_head": 6},
    "parallel, norms of squares": {**_ROTARY, "block": ["ffn*0.5+attention"], "norm": "rms"},
    "Gemma": _GEMMA,
    "norms of queries, without gains": {**_ROTARY, "qk_norm": "layer", "embedding_norm": "plain",
                                        "norm_affine": False, "rotary_fraction": 0.5},
    "scales, exact": {**_LLAMA, "attention_scale": 3.0, "ffn": "geglu", "gelu": "exact"},
    "ALiBi, six heads": {"positions": "alibi", "n_heads": 6, "d_model": 12},
    "shared": {"share": "all", "positions": "sinusoidal", "n_layers": 4, "share_groups": 2},
    "factorised": {"d_embed": 8, "positions": "none", "embedding_norm": "affine"},
    "steps": {"block": ["attention*0.5", "ffn:reglu*-2"], "norm_order": "post",
              "final_norm": "affine"},
    "without a final norm": {"final_norm": "none", "bias": {"query": True, "ffn": True}},
    "T5 v1.1": {**EXPORTED["t5"][1], "ffn": "geglu", "tie_embeddings": False, "d_head": 6},
    "rotary translator": {**_TRANSLATOR, **_GROUPED, "d_embed": 8},
    "segments": {**_ENCODER, "segments": "both", "pooler": "tanh", "embedding_scale": 3.0},
    "Macaron's segments": {**_ENCODER, "segments": "second", "embedding_norm": "none"},
    "pre-norm encoder": {**_ENCODER, **_GROUPED, "norm_order": "pre", "qk_norm": "rms"},
    "T5's encoder": {**_ENCODER, "norm_order": "pre", "positions": "relative", "d_embed": 8},
}  # fmt: skip
"""Models that all engines represent."""
_REFUSED_CLASSES = {
    "mistral": "attention_window", "gemma2": "attention_window score_cap",
    "olmo2": "norm_order qk_norm_over", "nanochat": "ffn rotary_layout",
    "modernbert": "attention_window first_norm", "albert for labels": "embedding_projection",
    "llama for labels": "head label_outputs",
}  # fmt: skip
REFUSED = {name: (EXPORTED[name][1], fields) for name, fields in _REFUSED_CLASSES.items()} | {
    "macaron, alibi": ({"block": "macaron", "positions": "alibi", "share": "all"}, "block"),
    "a parallel encoder": ({**_ENCODER, "norm_order": "pre", "block": "parallel"}, "block"),
    "lstm": (_LSTM, "kind"), "lstm of labels": ({**_LSTM, **_LABELS}, "kind"),
    "gemma": ({**_GEMMA, "attention_window": 5, "window_pattern": "LG", "score_cap": 3.0,
               "rotary_local_base": 50.0}, "attention_window score_cap"),
    "sinks, gates, values of the first attention": (
        {**_GROUPED, "sinks": True, "attention_gate": "head", "value_residual": "learned",
         "rotary_layout": "interleaved-clockwise", "position_pattern": "NP"},
        "sinks attention_gate value_residual rotary_layout position_pattern",
    ),
    "without norms": ({"norm": "none"}, "norm"),
    "dyt": ({"positions": "sinusoidal", "d_embed": 8, "norm": "dyt"}, "norm"),
    "a translator's norms around": ({**_TRANSLATOR, "norm_order": "around"}, "norm_order"),
    "relative": ({"positions": "relative", "attention_window": 6}, "positions attention_window"),
    "a translator's alibi": ({**_TRANSLATOR, "positions": "alibi"}, "positions"),
    "positions in every layer": ({"positions": "learned-per-layer"}, "positions"),
    "lengths of queries": ({"qk_norm": "l2", "swish_beta": 2.0, "ffn": "swish"},
                           "qk_norm swish_beta"),
    "another head": ({"head": "transform"}, "head"),
    "a macaron translator": ({**_TRANSLATOR, "block": "macaron", "positions": "relative"}, "block"),
}  # fmt: skip
"""Models that CTranslate2 lacks, and the fields that it refuses."""


def built(name, tokenizer=None, **changes):
    """Build a model of a table, every weight drawn."""
    fields = MODELS[name] if name in MODELS else REFUSED[name][0]
    sizes = {} if fields.get("kind") == "lstm" else _SIZES
    model = random_model({**sizes, **fields, **changes}, VOCAB_SIZE, CONTEXT, dtype=torch.float32)
    return TextModel(model, tokenizer)


def check_exported(model, folder, export, allowed):
    """Export a model to an engine; its outputs and greedy tokens must be the model's."""
    certificate = export(model, folder).certificate
    assert certificate["checked"]
    largest = max(1.0, certificate["largest_logit"])
    assert certificate["largest_difference"]["float32"] < allowed * largest
    if "greedy" in certificate:
        assert certificate["greedy"]["equal"] == certificate["greedy"]["prompts"]
    return certificate
