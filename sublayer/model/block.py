"""A residual sub-layer with a step size: the unit of which blocks are lists."""

from jaxtyping import Float
from torch import Tensor, nn

from sublayer.config.block import Entry
from sublayer.config.model import ModelConfig
from sublayer.model.attention import Attention, CrossAttention
from sublayer.model.context import Context
from sublayer.model.dropout import add_branch
from sublayer.model.feedforward import FeedForward
from sublayer.model.norm import build_norm

UNRESOLVED = "the config is not resolved: call resolve_model first"


class Sublayer(nn.Module):
    """Compute ``x + step * f(norm(x))`` (pre-norm) or ``norm(x + step * f(x))`` (post-norm).

    Dropout acts on the output of f, before the step (Macaron Net, as released).
    """

    def __init__(self, config: ModelConfig, entry: Entry) -> None:
        super().__init__()
        assert config.norm_eps is not None, UNRESOLVED
        self.norm = build_norm(config.norm, config.d_model, eps=config.norm_eps, affine=config.norm_affine)
        self.function = _build_function(config, entry)
        self.step, self.p_output = entry.step, config.dropout
        self.is_pre_norm = config.norm_order == "pre"

    def forward(self, x: Float[Tensor, "B T D"], context: Context) -> Float[Tensor, "B T D"]:
        """Take one step along the sub-layer's function."""
        if self.is_pre_norm:
            return self._add(x, self.function(self.norm(x), context))
        normed: Tensor = self.norm(self._add(x, self.function(x, context)))
        return normed

    def _add(self, x: Tensor, branch: Tensor) -> Tensor:
        return add_branch(x, branch, step=self.step, p=self.p_output, training=self.training)


def _build_function(config: ModelConfig, entry: Entry) -> Attention | CrossAttention | FeedForward:
    assert config.d_head is not None, UNRESOLVED
    assert config.d_ff is not None, UNRESOLVED
    assert config.dropout_attention is not None, UNRESOLVED
    assert config.dropout_ffn is not None, UNRESOLVED
    if entry.name in ("attention", "cross"):
        return (Attention if entry.name == "attention" else CrossAttention)(
            config.d_model,
            config.n_heads,
            config.d_head,
            bias=config.bias,
            is_scaled=config.attention_scale == "sqrt",
            p_weights=config.dropout_attention,
        )
    assert entry.variant is not None, f"{entry} has no function"
    return FeedForward(
        config.d_model,
        config.d_ff,
        entry.variant,
        gelu=config.gelu,
        bias=config.bias,
        p_hidden=config.dropout_ffn,
    )
