"""The estimate of each kind of sub-layer, by its name in a block."""

from sublayer.config.architecture.block import Entry
from sublayer.config.resolved import ResolvedModel
from sublayer.estimate.sublayers.attention import AttentionEstimate, CrossAttentionEstimate
from sublayer.estimate.sublayers.base import SublayerEstimate
from sublayer.estimate.sublayers.feedforward import FeedForwardEstimate
from sublayer.estimate.sublayers.lstm import LstmEstimate

ESTIMATES: dict[str, type[SublayerEstimate]] = {
    "attention": AttentionEstimate,
    "cross": CrossAttentionEstimate,
    "ffn": FeedForwardEstimate,
    "lstm": LstmEstimate,
}
"""The estimate of each kind of sub-layer."""


def estimate_of(config: ResolvedModel, entry: Entry) -> SublayerEstimate:
    """Return the estimate of an entry of a resolved config."""
    return ESTIMATES[entry.name](config, entry)
