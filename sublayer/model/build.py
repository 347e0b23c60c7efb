"""The model of a config, without weights or with initial ones."""

from sublayer.config.resolved import ResolvedModel
from sublayer.estimate.cost import count_parameters
from sublayer.estimate.micro_batch import FLOAT32_BYTES
from sublayer.model.decoder import Decoder
from sublayer.model.encoder import Encoder
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.init import initialise
from sublayer.model.lstm import Lstm
from sublayer.model.transformer import Transformer
from sublayer.system.memory import allocating, check_memory

_REMEDY = "make model.d_model, model.n_layers or the vocabulary smaller"
KINDS: dict[str, type[Transformer]] = {
    "decoder": Decoder,
    "encoder": Encoder,
    "encoder-decoder": EncoderDecoder,
    "lstm": Lstm,
}
"""The class of each kind of model, by the name that ``model.kind`` has in a recipe."""


def compose(config: ResolvedModel) -> Transformer:
    """Build the kind of model that a resolved config asks for; its weights are unset.

    They are on PyTorch's default device: on ``meta`` they have shapes and take no memory.
    """
    return KINDS[config.kind](config)


def build(config: ResolvedModel, *, seed: int) -> Transformer:
    """Build a model with initial weights that depend on the resolved config and the seed only.

    PyTorch's global generator is neither read nor changed. The model is in training mode.

    Raises ConfigError where this machine cannot hold it.
    """
    n_parameters = count_parameters(config).total
    check_memory(FLOAT32_BYTES * n_parameters, "the model", _REMEDY)
    with allocating("the model", _REMEDY):
        model = compose(config)
        initialise(model, config, seed=seed)
    return model
