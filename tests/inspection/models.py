"""Tiny models in float64, whose weights are large enough that every layer moves tokens far."""

from typing import Any

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.config.resolved import ResolvedModel
from sublayer.model.build import build
from sublayer.model.transformer import Transformer


def config_of(**fields: Any) -> ResolvedModel:
    settings = {"n_layers": 3, "d_model": 6, "n_heads": 3, "d_ff": 11, "init_std": 0.4, **fields}
    return resolve_model(ModelConfig.model_validate(settings), vocab_size=17, context=13)


def model_of(**fields: Any) -> Transformer:
    return build(config_of(**fields), seed=3).double().eval()
