"""What follows from a model's fields for its parts: widths, activations, numbers of parameters."""

from sublayer.config.architecture.feedforward import FFNS
from sublayer.config.architecture.positions import POSITIONS, PositionScheme
from sublayer.config.model import ModelConfig


def is_factorised(model: ModelConfig) -> bool:
    """Return whether projections stand between the embedding matrix's width and the model's.

    Source: Lan et al. 2020, of the embedding matrix.
    """
    if model.project_embeddings == "always":
        return True
    d_embed = model.d_embed or model.d_model
    return d_embed != model.d_model


def embedding_width(model: ModelConfig) -> int:
    """Return the width of the sum of token, position and segment vectors.

    That is ``d_embed`` where the sum is projected, and ``d_model`` where tokens alone are.
    """
    if model.embedding_projection == "sum":
        return model.d_embed or model.d_model
    return model.d_model


def position_scheme(model: ModelConfig) -> PositionScheme:
    """Return the row of a model's positions; an LSTM, whose state tells the order, has none."""
    return POSITIONS["none" if model.kind == "lstm" else model.positions]


def head_activation(model: ModelConfig) -> str:
    """Return the activation of a transform head: relu, gelu or swish.

    One that follows the networks of the blocks is gelu where those are gated.
    """
    if model.head_activation != "ffn":
        return model.head_activation
    row = FFNS.get(model.ffn)
    if row is not None and row.is_gated:
        return "gelu"
    # A network that has no row stands for itself, so that what refuses it can name it.
    return model.ffn


def learns_beta(model: ModelConfig, activation: str) -> bool:
    """Return whether an activation has a parameter: the slope of a swish that learns it."""
    return activation == "swish" and model.swish_beta == "learned"


def linear_parameters(model: ModelConfig, d_in: int, d_out: int) -> int:
    """Count the parameters of a linear map, its bias included where the model has biases."""
    n_biases = d_out if model.bias else 0
    return d_in * d_out + n_biases


def norm_parameters(model: ModelConfig, width: int) -> int:
    """Count the parameters of a norm that has gains: a layer norm has biases beside them."""
    per_feature = {"layer": 2, "rms": 1, "none": 0}[model.norm]
    return per_feature * width
