"""The model that a config asks for: without weights, or with initial ones."""

import torch

from sublayer.config.model import ModelConfig
from sublayer.model.capacity import allocating, check_memory
from sublayer.model.cost import count_parameters
from sublayer.model.decoder import Decoder
from sublayer.model.encoder import Encoder
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.init import initialise
from sublayer.model.passes import FLOAT32_BYTES
from sublayer.model.transformer import Transformer

_REMEDY = "make model.d_model, model.n_layers or the vocabulary smaller"
KINDS: dict[str, type[Transformer]] = {
    "decoder": Decoder,
    "encoder": Encoder,
    "encoder-decoder": EncoderDecoder,
}


def compose(config: ModelConfig) -> Transformer:
    """Make the kind of model that a resolved config asks for; its weights are unset."""
    return KINDS[config.kind](config)


def build(config: ModelConfig, *, seed: int) -> Transformer:
    """Build a model with initial weights that depend on the resolved config and the seed only.

    Raises ConfigError where this machine cannot hold it.
    """
    check_memory(FLOAT32_BYTES * count_parameters(config).total, "the model", _REMEDY)
    with allocating("the model", _REMEDY):
        model = compose(config)
        initialise(model, config, torch.Generator().manual_seed(seed))
    return model
