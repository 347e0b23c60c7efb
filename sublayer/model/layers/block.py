"""A residual sub-layer with a step size: the unit of which blocks are lists."""

from jaxtyping import Float
from torch import Tensor, nn

from sublayer.config.architecture.block import Entry
from sublayer.config.resolved import ResolvedModel
from sublayer.model.context.context import Context
from sublayer.model.kernels.dropout import add_branch
from sublayer.model.layers.attention import Attention, CrossAttention
from sublayer.model.layers.feedforward import FeedForward
from sublayer.model.layers.lstm import LstmLayer
from sublayer.model.layers.norm import build_norm

Function = Attention | CrossAttention | FeedForward
FUNCTIONS: dict[str, type[Function]] = {
    "attention": Attention,
    "cross": CrossAttention,
    "ffn": FeedForward,
}
"""The class of each kind of sub-layer, by its name in a block."""


class Sublayer(nn.Module):
    """Compute ``x + step * f(norm(x))`` (pre-norm) or ``norm(x + step * f(x))`` (post-norm).

    Dropout acts on the output of f, before the step (Macaron Net, as released). Its step size is
    the entry's: a half for each of Macaron's two feed-forward networks.
    """

    def __init__(self, config: ResolvedModel, entry: Entry) -> None:
        super().__init__()
        self.norm = build_norm(
            config.norm, config.d_model, eps=config.norm_eps, affine=config.norm_affine
        )
        self.function = FUNCTIONS[entry.name].from_config(config, entry)
        self.step_size = entry.step
        self.p_output = config.dropout
        self.is_pre_norm = config.norm_order == "pre"

    def forward(self, x: Float[Tensor, "B T D"], context: Context) -> Float[Tensor, "B Q D"]:
        """Add the function of the input to it, with the norm before or behind.

        Q is T, or counts the queries of an attention where the context has few.
        """
        total = self.add(x, context)
        if self.is_pre_norm:
            return total
        normed: Tensor = self.norm(total)
        return normed

    def add(self, x: Float[Tensor, "B T D"], context: Context) -> Float[Tensor, "B Q D"]:
        """Add the function of the input to it; a norm behind is not applied."""
        stream = x if context.queries is None else context.queries.pick(x)
        branch = self.function(self.norm(x) if self.is_pre_norm else x, context)
        return add_branch(
            stream, branch, step=self.step_size, p=self.p_output, training=self.training
        )


AnySublayer = Sublayer | LstmLayer


def build_sublayer(config: ResolvedModel, entry: Entry) -> AnySublayer:
    """Build what an entry of a block asks for: a residual sub-layer, or a layer of an LSTM."""
    return LstmLayer(config) if entry.kind.is_recurrent else Sublayer(config, entry)
