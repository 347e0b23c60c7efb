"""Which choices of a model the classes of transformers can represent: what is not in a table is refused.

A table has every field of a model that is a choice. Fields that depend on each other, and numbers, are
checked beside it.
"""

from collections.abc import Mapping
from typing import Any

from sublayer.config.model import ModelConfig

Table = Mapping[str, tuple[Any, ...]]

_EITHER = (True, False)
_OF_LAYER_NORMS = ("norm_order", "final_norm")
# What is written out (see ``written_out``), and what means nothing to a kind of model, may be anything that is known.
_ALL: Table = {
    "embedding_projection": ("tokens", "sum"),
    "project_embeddings": ("as-needed",),
    "segments": ("none", "both", "second"),
    "decoder_start": ("end", "pad"),
    "ffn": ("relu", "gelu", "swish", "glu", "bilinear", "reglu", "geglu", "swiglu"),
    "gelu": ("exact", "tanh"),
    "norm": ("layer",),
    "norm_affine": _EITHER,
    "sinusoids": ("tensor2tensor", "fairseq", "marian"),
    "share": ("none", "all", "attention", "ffn"),
    "head_activation": ("ffn", "relu", "gelu", "swish"),
    "pooler": ("none", "tanh"),
    "sentence_classes": (0, 1, 2),
    "tie_embeddings": _EITHER,
    "embedding_scale": ("none", "sqrt"),
    "attention_scale": ("sqrt",),
    "bias": _EITHER,
    "init": ("normal", "scaled", "truncated", "xavier", "kaiming"),
}
GPT2: Table = {
    **_ALL,
    "kind": ("decoder",),
    "norm_order": ("pre",),
    "final_norm": ("affine", "plain"),
    "embedding_norm": (False,),
    "positions": ("learned", "sinusoidal", "none"),
    "attention_scale": ("sqrt", "none"),
    "head": ("linear",),
    "head_bias": (False,),
}
ENCODERS: Table = {
    **_ALL,
    "kind": ("encoder",),
    "norm_order": ("post",),
    "final_norm": ("none",),
    "embedding_norm": (True,),
    "project_embeddings": ("as-needed", "always"),
    "positions": ("learned", "sinusoidal", "none"),
    "sentence_classes": (0, 2),
    "head": ("transform",),
    "head_bias": _EITHER,
}
TRANSLATORS: Table = {
    **_ALL,
    "kind": ("encoder-decoder",),
    "norm_order": ("pre", "post"),
    "final_norm": ("affine", "none"),
    "embedding_norm": (False,),
    "positions": ("sinusoidal",),
    "sinusoids": ("fairseq", "marian"),
    "head": ("linear",),
    "head_bias": _EITHER,
}


def refused(config: ModelConfig, table: Table, others: Mapping[str, bool]) -> list[str]:
    """Name the fields of a resolved config that a table has no value for, or that ``others`` refuses."""
    found = dict(others)
    for name, allowed in table.items():
        if name in _OF_LAYER_NORMS and config.norm not in table["norm"]:
            continue  # the norm itself is named
        value = getattr(config, name)
        key = f"model.{name} = {str(value).lower() if isinstance(value, bool) else value}"
        found[key] = found.get(key, False) or value not in allowed
    return [name for name, is_refused in found.items() if is_refused]
