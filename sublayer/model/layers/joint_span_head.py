"""The span head of questions that may have no answer: start, end given the start, and whether.

Source: Lan et al. 2020 (1909.11942), as released for SQuAD 2.0, which is XLNet's.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sublayer.config.resolved import ResolvedModel
from sublayer.model.kernels.dropout import dropout
from sublayer.model.layers.linear import Linear
from sublayer.model.layers.norm import build_norm

HIDDEN = -1e30
"""The logit of a position where no answer may begin or end."""


class JointSpanHead(nn.Module):
    """Score where an answer starts, where it ends given its start, and whether there is none."""

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__()
        width = config.d_model
        self.start = Linear(width, 1, bias=True)
        self.end_hidden = Linear(2 * width, width, bias=True)
        self.end_norm = build_norm(config.norm, width, eps=config.norm_eps, affine=True)
        self.end = Linear(width, 1, bias=True)
        self.answer_hidden = Linear(2 * width, width, bias=True)
        self.answer = Linear(width, 1, bias=False)

    def forward(
        self, states: Float[Tensor, "*rows D"], table: Float[Tensor, "V E"] | None = None
    ) -> Float[Tensor, "*rows 1"]:
        """Compute the start's logits alone, which need no start; the embeddings are not read."""
        logits: Tensor = self.start(states)
        return logits

    def starts(
        self, states: Float[Tensor, "N T D"], may_answer: Bool[Tensor, "N T"]
    ) -> Float[Tensor, "N T"]:
        """Compute the start's logits; ``may_answer`` is True at the first token and the text."""
        return _widened(self.start(states)[..., 0]).masked_fill(~may_answer, HIDDEN)

    def ends(
        self,
        states: Float[Tensor, "N T D"],
        may_answer: Bool[Tensor, "N T"],
        starts: Int[Tensor, "N K"],
    ) -> Float[Tensor, "N K T"]:
        """Compute the logits of the end given each start, by its column."""
        n_texts, n_tokens, width = states.shape
        n_starts = starts.shape[1]
        index = starts[..., None].expand(n_texts, n_starts, width)
        at_start = states.gather(1, index)  # [N, K, D]
        shape = n_texts, n_starts, n_tokens, width
        both = torch.cat(
            [states[:, None].expand(shape), at_start[:, :, None].expand(shape)], dim=-1
        )
        hidden = self.end_norm(torch.tanh(self.end_hidden(both)))
        return _widened(self.end(hidden)[..., 0]).masked_fill(~may_answer[:, None], HIDDEN)

    def no_answer(
        self,
        states: Float[Tensor, "N T D"],
        start_logits: Float[Tensor, "N T"],
        p: float = 0.0,
    ) -> Float[Tensor, " N"]:
        """Compute the logit of no answer, from the expected start and the first token.

        ``p`` is the dropout, in training, of what the last map reads.
        """
        shares = start_logits.softmax(-1).to(states.dtype)
        expected = torch.einsum("nt,ntd->nd", shares, states)
        hidden = torch.tanh(self.answer_hidden(torch.cat([expected, states[:, 0]], dim=-1)))
        return _widened(self.answer(dropout(hidden, p, self.training))[..., 0])


def _widened(logits: Tensor) -> Tensor:
    # Narrow types do not hold the logit of what is hidden.
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
