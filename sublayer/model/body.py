"""Model body: positions, segments, norms and blocks, from embeddings to hidden states."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import StackShape, embedding_width
from sublayer.model.cache import Cache
from sublayer.model.context import Context, Keys, Layout, Memory, Queries
from sublayer.model.kernels.attention import hide
from sublayer.model.kernels.choice import is_eager_cpu
from sublayer.model.kernels.dropout import dropout
from sublayer.model.layers.embedding import Matrix, SegmentTable, TokenEmbedding
from sublayer.model.layers.norm import build_norm
from sublayer.model.layers.stack import Stack, add_losses
from sublayer.model.positions import build_positions


@dataclass(frozen=True)
class Hidden:
    """Hidden states: after the final norm (with dropout in training), and after captured blocks."""

    final: Float[Tensor, "B Q D"]
    captured: dict[int, Tensor]
    """``[B, T, D]`` each, by the number of blocks that were executed before."""
    matrix: Matrix | None = None
    """The embedding matrix of this pass, of which heads that are tied to it read the same."""
    auxiliary: Float[Tensor, ""] | None = None
    """The auxiliary losses of sub-layers, summed over sequences, those of the memory included."""


class Body(nn.Module):
    """The body: from token vectors to hidden states.

    These are positions, segments, a norm, the stack and the final norm. The stack is named after
    its shape, ``decoder`` or ``encoder``.
    """

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__()
        self.shape = shape
        self.segment_table = None if config.segments == "none" else SegmentTable(config)
        self.positions = build_positions(config, shape)
        self.embedding_norm = build_norm(
            config.norm if config.embedding_norm else "none",
            embedding_width(config),
            eps=config.norm_eps,
            affine=True,
        )
        # Saved weights are named after the shape: a decoder's begin with ``decoder.``.
        self.add_module(shape.name, Stack(config, shape))
        self.final_norm = build_norm(
            "none" if config.final_norm == "none" else config.norm,
            config.d_model,
            eps=config.norm_eps,
            affine=config.final_norm == "affine",
        )
        drops_sum = config.dropout_embedding_of == "sum"
        self.p_embedding = config.dropout_embedding if drops_sum else 0.0
        self.p_final = config.dropout_final

    @property
    def stack(self) -> Stack:
        """The blocks."""
        stack = getattr(self, self.shape.name)
        assert isinstance(stack, Stack), "every body has its stack"
        return stack

    def enter(
        self,
        embedding: TokenEmbedding,
        tokens: Int[Tensor, "B T"],
        positions: Int[Tensor, "*B T"],
        segments: Int[Tensor, "B T"] | None = None,
        matrix: Matrix | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Compute the first block's input.

        The sum of token, position and segment embeddings, with norm, dropout and projection as
        configured. One axis of ``positions`` serves all rows. Without ``segments``, 0 and 1, all
        tokens belong to a pair's first text. ``matrix`` replaces the tables of tokens and
        positions.
        """
        if matrix is None:
            x = self.positions.add(embedding(tokens), 0, positions)
        else:
            x = embedding(tokens, matrix.tokens) + F.embedding(positions, matrix.positions)
        if self.segment_table is not None:
            if segments is None:
                segments = tokens.new_zeros(tokens.shape)
            x = x + self.segment_table(segments)
        x = self.embedding_norm(x)
        x = dropout(x, self.p_embedding, self.training)
        return embedding.project_sum(x)

    def context(self, layout: Layout, dtype: torch.dtype, memory: Memory | None = None) -> Context:
        """Compute the contribution of a batch's positions to the attentions of all blocks.

        ``dtype`` is the residual stream's. ``memory`` is passed on. For fused kernels the attention
        bias contains the layout's mask, which is then removed from the layout.
        """
        rotations = self.positions.rotations(layout.positions, dtype)
        if not self.positions.biases_scores:
            return Context(layout, rotations, memory=memory)
        bias = self.positions.score_bias(layout.positions, layout.key_positions, dtype)
        assert bias is not None, "a scheme biases scores where its row says so"
        if bias.shape[2] > 1 and is_eager_cpu(bias):
            return Context(layout, rotations, bias, memory=memory)
        # Fused kernels save the bias they read: masked and in their dtype, it is one tensor for all
        # blocks.
        device = bias.device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        bias = hide(bias, layout.keys).to(dtype)
        layout = replace(layout, keys=Keys(False, None))
        return Context(layout, rotations, bias, memory=memory)

    def states(
        self,
        embedding: TokenEmbedding,
        tokens: Int[Tensor, "B T"],
        layout: Layout,
        *,
        segments: Int[Tensor, "B T"] | None = None,
        memory: Memory | None = None,
        cache: Cache | None = None,
        capture: Sequence[int] = (),
        queries: Queries | None = None,
        matrix: Matrix | None = None,
    ) -> Hidden:
        """Compute hidden states; with ``queries`` the final ones only at these positions.

        ``capture`` requests the residual stream after so many blocks (0: before all).
        Cross-attention reads ``memory``; keys and values are appended to ``cache``, whose length
        the caller advances. ``matrix`` as in ``enter``.

        Raises ConfigError where the input exceeds the positions.
        """
        self.positions.check(layout)
        x = self.enter(embedding, tokens, layout.positions, segments, matrix)
        context = self.context(layout, x.dtype, memory)
        passed, captured = self.stack(x, context, self.positions, cache, capture, queries)
        x, auxiliary = passed
        if memory is not None:
            auxiliary = add_losses(memory.auxiliary, auxiliary)
        final = dropout(self.final_norm(x), self.p_final, self.training)
        return Hidden(final, captured, matrix, auxiliary)
