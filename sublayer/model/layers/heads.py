"""Heads on the last hidden states: logits over the vocabulary, the judgement of a pair of texts."""

from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar, Protocol, cast, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sublayer.config.recipe import ResolvedModel
from sublayer.config.roles import Role
from sublayer.config.stacks import HeadRow, has_head_projection, head_activation
from sublayer.model.kernels.dropout import dropout
from sublayer.model.layers.feedforward import build_activation
from sublayer.model.layers.linear import Linear
from sublayer.model.layers.norm import NormKind, build_norm

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

        ``p`` is the dropout, in training, of the last map's input.
        """
        shares = start_logits.softmax(-1).to(states.dtype)
        expected = torch.einsum("nt,ntd->nd", shares, states)
        hidden = torch.tanh(self.answer_hidden(torch.cat([expected, states[:, 0]], dim=-1)))
        return _widened(self.answer(dropout(hidden, p, self.training))[..., 0])


def _widened(logits: Tensor) -> Tensor:
    # Narrow types do not hold the logit of a hidden answer.
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


@runtime_checkable
class Head(Protocol):
    """A module on the final hidden states of a model. Its row is in ``HEADS`` of the config."""

    def __call__(self, states: Tensor, table: Tensor) -> Tensor:
        """Compute the output from the states that its row reads, and the table of tokens."""


def build_head(row: HeadRow, config: ResolvedModel) -> nn.Module:
    """Build the head of a row; its weights are unset.

    The row names the class as ``module:class``, so that the table of the config needs no PyTorch.
    """
    module, _, name = row.implementation.partition(":")
    head_class = getattr(import_module(module), name)
    return cast(nn.Module, head_class(config))


class VocabularyHead(nn.Module):
    """Map hidden states to logits over the vocabulary.

    A factorised model goes through ``d_embed`` first, a transform head through a linear map to that
    width, an activation and a norm with parameters (Devlin et al. 2019, as released). A tied head
    has no matrix: it is given the embedding matrix. ``output_scale`` is that of Raffel et al. 2020
    (1910.10683), as released: the input of the output matrix is divided by the root of ``d_model``.

    With ``softmax = "all"`` there is a logit for each position too, behind those of tokens (Radford
    et al. 2018, as released): the table that a call is given has their rows, and they have no bias.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "head", "bias": "bias"}

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__()
        d_embed = config.d_embed
        vocab_size = config.vocab_size
        self.projection = None
        if has_head_projection(config):
            self.projection = Linear(config.d_model, d_embed, bias=config.bias)
        self.activation = None
        norm_kind: NormKind = "none"
        if config.head == "transform":
            name = head_activation(config)
            self.activation = build_activation(name, config.gelu, config.swish_beta)
            norm_kind = config.norm
        self.norm = build_norm(norm_kind, d_embed, eps=config.norm_eps, affine=True)
        self.weight = None
        if not config.tie_embeddings:
            self.weight = nn.Parameter(torch.empty(vocab_size, d_embed))
        self.bias = nn.Parameter(torch.empty(vocab_size)) if config.head_bias else None
        self.scale = config.d_model**-0.5 if config.output_scale == "sqrt" else 1.0

    def to_embedding(self, hidden: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows E"]:
        """Map hidden states to the input of the output matrix; D and E are one without a map."""
        if self.projection is not None:
            hidden = self.projection(hidden)
        return self.finish(hidden)

    def finish(self, projected: Float[Tensor, "*rows E"]) -> Float[Tensor, "*rows E"]:
        """Do what stands between the linear map, if there is one, and the output matrix.

        That is the transform head after its map, and the scale of what the output matrix
        reads. Apart from the map, so that a decoding step can do that by packed weights.
        """
        if self.activation is not None:
            projected = self.norm(self.activation(projected))
        if self.scale != 1.0:
            projected = projected * self.scale
        return projected

    def output(
        self, table: Float[Tensor, "V E"]
    ) -> tuple[Float[Tensor, "V E"], Float[Tensor, " V"] | None]:
        """Return the output matrix, the head's own or ``table`` where they are tied, and its bias.

        Rows of ``table`` behind those of tokens have a bias of 0.
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
        return F.linear(self.to_embedding(hidden), matrix, bias)


class Pooler(nn.Module):
    """Compute a vector of a text from one of its states: ``tanh(W h + b)``.

    Source: Devlin et al. 2019, as released.
    """

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__()
        self.linear = Linear(config.d_model, config.d_model, bias=True)

    def forward(
        self, text: Float[Tensor, "*rows D"], table: Float[Tensor, "V E"] | None = None
    ) -> Float[Tensor, "*rows D"]:
        """Pool texts by the states that stand for them; the embedding matrix is not read."""
        return torch.tanh(self.linear(text))


class SentenceHead(Linear):
    """Judge pairs of texts: class 1, or one positive logit, says that B does not follow A.

    It has one or two classes, ``config.sentence_classes``.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "head", "bias": "bias"}

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__(config.d_model, config.sentence_classes, bias=True)

    def forward(
        self, x: Float[Tensor, "*rows D"], table: Float[Tensor, "V E"] | None = None
    ) -> Float[Tensor, "*rows C"]:
        """Compute the logits of texts from their vectors; the embedding matrix is not read."""
        return super().forward(x)


class LabelHead(Linear):
    """Answer a task about a text from the vector that stands for it: ``config.label_outputs``."""

    roles: ClassVar[Mapping[str, Role]] = {"weight": "head", "bias": "bias"}

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__(config.d_model, config.label_outputs, bias=True)

    def forward(
        self, x: Float[Tensor, "*rows D"], table: Float[Tensor, "V E"] | None = None
    ) -> Float[Tensor, "*rows L"]:
        """Compute the outputs of texts from their vectors; the embedding matrix is not read."""
        return super().forward(x)


class SpanHead(Linear):
    """Score each position as the start and as the end of an answer (Devlin et al. 2019, sec. 4.2).

    The two are independent of each other.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "head", "bias": "bias"}

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__(config.d_model, 2, bias=True)

    def forward(
        self, x: Float[Tensor, "*rows D"], table: Float[Tensor, "V E"] | None = None
    ) -> Float[Tensor, "*rows 2"]:
        """Compute two logits for each position; the embedding matrix is not read."""
        return super().forward(x)


class Classifier(nn.Module):
    """An untied map from hidden states to the vocabulary, with a bias.

    It predicts beside the model's own head.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "head", "bias": "bias"}

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        self.bias = nn.Parameter(torch.empty(config.vocab_size))
