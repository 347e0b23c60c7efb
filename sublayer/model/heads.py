"""Heads on final hidden states: vocabulary, sentence pairs, labels, spans."""

from collections.abc import Mapping
from typing import ClassVar, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sublayer.config.model import Role, cap_of, factor_of
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import has_bias, has_head_projection, head_activation
from sublayer.model.kernels.elementwise import Activation, dropout, soft_cap
from sublayer.model.kernels.products import linear
from sublayer.model.layers import Linear, build_activation, build_norm

HIDDEN = -1e30
"""Logit of a position where no answer may begin or end."""


class JointSpanHead(nn.Module):
    """Score an answer's start, its end given the start, and the absence of an answer."""

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__()
        width = config.d_model
        self.start = Linear(width, 1, bias=True)
        self.end_hidden = Linear(2 * width, width, bias=True)
        self.end_norm = build_norm(
            config.norm, width, eps=config.norm_eps, affine=True, bias=config.norm_bias
        )
        self.end = Linear(width, 1, bias=True)
        self.answer_hidden = Linear(2 * width, width, bias=True)
        self.answer = Linear(width, 1, bias=False)

    def forward(
        self, states: Float[Tensor, "*rows D"], table: Float[Tensor, "V E"] | None = None
    ) -> Float[Tensor, "*rows 1"]:
        """Compute the start logits alone; the embedding matrix is ignored."""
        logits: Tensor = self.start(states)
        return logits

    def starts(
        self, states: Float[Tensor, "N T D"], may_answer: Bool[Tensor, "N T"]
    ) -> Float[Tensor, "N T"]:
        """Compute start logits; ``may_answer`` is True at the first token and in the passage."""
        return _widened(self.start(states)[..., 0]).masked_fill(~may_answer, HIDDEN)

    def ends(
        self,
        states: Float[Tensor, "N T D"],
        may_answer: Bool[Tensor, "N T"],
        starts: Int[Tensor, "N K"],
    ) -> Float[Tensor, "N K T"]:
        """Compute the end logits given each start, by its column."""
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
        """Compute the logit of no answer, from the expected start state and the first token.

        ``p`` is the dropout probability of the last map's input in training.
        """
        shares = start_logits.softmax(-1).to(states.dtype)
        expected = torch.einsum("nt,ntd->nd", shares, states)
        hidden = torch.tanh(self.answer_hidden(torch.cat([expected, states[:, 0]], dim=-1)))
        return _widened(self.answer(dropout(hidden, p, self.training))[..., 0])


def _widened(logits: Tensor) -> Tensor:
    # Narrow dtypes cannot represent the logit of a hidden position.
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


@runtime_checkable
class Head(Protocol):
    """Protocol of a head on final hidden states, which has a row in ``HEADS`` of the config."""

    def __call__(self, states: Tensor, table: Tensor) -> Tensor:
        """Compute the output from hidden states and the embedding matrix."""


class VocabularyHead(nn.Module):
    """Map hidden states to logits over the vocabulary.

    A factorized model first maps to ``d_embed``; a transform head has a linear map to that width,
    an activation and a norm with parameters (Devlin et al. 2019, as released). A tied head has no
    output matrix, but uses the embedding matrix. ``output_scale`` divides the output matrix's input
    by a number, or the root of ``d_model`` (Raffel et al. 2020, 1910.10683, as released).
    ``logit_cap`` bounds the logits, biases included (``soft_cap``).

    With ``softmax = "all"`` logits of positions follow those of tokens (Radford et al. 2018, as
    released): the table of a call contains their rows, which have no bias.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "head", "bias": "bias"}

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__()
        d_embed = config.d_embed
        vocab_size = config.vocab_size
        self.projection = None
        if has_head_projection(config):
            self.projection = Linear(config.d_model, d_embed, bias=has_bias(config, "projection"))
        self.activation = None
        norm_kind = "none"
        if config.head == "transform":
            name = head_activation(config)
            self.activation = build_activation(name, config.gelu, config.swish_beta)
            norm_kind = config.norm
        self.norm = build_norm(
            norm_kind, d_embed, eps=config.norm_eps, affine=True, bias=config.norm_bias
        )
        self.weight = None
        if not config.tie_embeddings:
            self.weight = nn.Parameter(torch.empty(vocab_size, d_embed))
        self.bias = nn.Parameter(torch.empty(vocab_size)) if config.head_bias else None
        self.scale = factor_of(config.output_scale, config.d_model)
        self.cap = cap_of(config.logit_cap)

    def to_embedding(self, hidden: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows E"]:
        """Map hidden states to the output matrix's input; without a map, D equals E."""
        if self.projection is not None:
            hidden = self.projection(hidden)
        return self.finish(hidden)

    def finish(self, projected: Float[Tensor, "*rows E"]) -> Float[Tensor, "*rows E"]:
        """Apply the steps between the linear map, if any, and the output matrix.

        These are the rest of the transform head, and the output scale. They are separate from the
        map, so that a decoding step can use packed weights for the map.
        """
        if self.activation is not None:
            projected = self.norm(self.activation(projected))
        if self.scale != 1.0:
            projected = projected * self.scale
        return projected

    def output(
        self, table: Float[Tensor, "V E"]
    ) -> tuple[Float[Tensor, "V E"], Float[Tensor, " V"] | None]:
        """Return the output matrix, which is ``table`` if tied, and its bias.

        Rows of ``table`` after the tokens' rows have bias 0.
        """
        matrix = table if self.weight is None else self.weight
        if self.bias is None:
            return matrix, None
        n_others = len(matrix) - len(self.bias)
        return matrix, F.pad(self.bias, (0, n_others)) if n_others else self.bias

    def forward(
        self, hidden: Float[Tensor, "*rows D"], table: Float[Tensor, "V E"]
    ) -> Float[Tensor, "*rows V"]:
        """Compute logits; ``table`` is the embedding matrix, which an untied head ignores."""
        matrix, bias = self.output(table)
        return soft_cap(linear(self.to_embedding(hidden), matrix, bias), self.cap)


class Pooler(nn.Module):
    """Compute a text's vector from one of its states: ``tanh(W h + b)``, or by another activation.

    Source: Devlin et al. 2019, as released. ``transform`` is a transform head's layer with a GELU
    (Warner et al. 2024, 2412.13663, as released).
    """

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__()
        width, has_norm = config.d_model, config.pooler == "transform"
        has_own_bias = has_bias(config, "projection") if has_norm else True
        self.linear = Linear(width, width, bias=has_own_bias)
        self.activation: Activation = torch.tanh
        if config.pooler != "tanh":
            name = "gelu" if has_norm else config.pooler
            self.activation = build_activation(name, config.gelu, config.swish_beta)
        self.norm = build_norm(
            config.norm if has_norm else "none",
            width,
            eps=config.norm_eps,
            affine=True,
            bias=config.norm_bias,
        )

    def forward(
        self, text: Float[Tensor, "*rows D"], table: Float[Tensor, "V E"] | None = None
    ) -> Float[Tensor, "*rows D"]:
        """Compute the vectors of texts; the embedding matrix is ignored."""
        pooled: Tensor = self.norm(self.activation(self.linear(text)))
        return pooled


class LinearHead(Linear):
    """Linear map of states, with a bias, which ignores the embedding matrix."""

    roles: ClassVar[Mapping[str, Role]] = {"weight": "head", "bias": "bias"}

    def forward(
        self, x: Float[Tensor, "*rows D"], table: Float[Tensor, "V E"] | None = None
    ) -> Float[Tensor, "*rows C"]:
        """Compute the outputs of each state."""
        return super().forward(x)


class SentenceHead(LinearHead):
    """Classify text pairs by their vectors: class 1, or a positive single logit, denies that B
    follows A.

    There are one or two classes, ``config.sentence_classes``.
    """

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__(config.d_model, config.sentence_classes, bias=True)


class LabelHead(LinearHead):
    """Predict the label of a task from a text's vector, by ``config.label_outputs`` outputs."""

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__(config.d_model, config.label_outputs, bias=True)


class SpanHead(LinearHead):
    """Score each position as the start and, independently, as the end of an answer.

    Source: Devlin et al. 2019, sec. 4.2.
    """

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__(config.d_model, 2, bias=True)


class Classifier(nn.Module):
    """Untied map from hidden states to the vocabulary, with a bias, besides the model's head."""

    roles: ClassVar[Mapping[str, Role]] = {"weight": "head", "bias": "bias"}

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        self.bias = nn.Parameter(torch.empty(config.vocab_size))
