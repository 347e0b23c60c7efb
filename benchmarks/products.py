"""The speed of matrix products of a case's own shapes, and the precisions worth timing here.

A training step is at best as fast as its products: the share that it reaches of their speed says
how much is left.
"""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from sublayer.config.recipe import ResolvedModel, ResolvedRecipe
from sublayer.config.stacks import stacks
from sublayer.model.estimates import Precision, flops_per_token, stack_length
from sublayer.model.kernels.products import product, product_over_rows
from sublayer.system.machine import wait_for
from sublayer.training.speed import bfloat16_gain, own_clocks

_WORTH = 0.5
"""Least gain of bfloat16 in a layer to be timed: twice as slow needs no rounds to tell."""
_TURN_S = 1.0


def precisions(width: int) -> tuple[Precision, ...]:
    """List the precisions worth timing at a width: not bfloat16 where its products are hopeless."""
    is_worth_it = bfloat16_gain(width, own_clocks()) >= _WORTH
    return ("float32", "bfloat16") if is_worth_it else ("float32",)


class Products:
    """The matrix products of a training step, for one micro-batch and one block of each stack.

    Forward and backward. The output matrix has its share of a block. A causal attention multiplies
    the half of the keys that counts.
    """

    def __init__(self, recipe: ResolvedRecipe, precision: Precision, device: str = "cpu") -> None:
        config = recipe.model
        n_sequences = recipe.train.micro_batch_sequences
        lengths = recipe.objective.lengths(recipe.data.context)
        self._dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        self._device = torch.device(device)
        self._generator = torch.Generator().manual_seed(0)
        self.flops = 0
        self._calls: list[Callable[[], Tensor]] = []
        for stack in stacks(config):
            length = stack_length(stack, lengths)
            for entry in stack.block:
                match entry.kind.attends_to:
                    case "nothing":
                        assert entry.ffn is not None, "all other entries attend"
                        self._add_feed_forward(config, n_sequences * length, entry.ffn.n_inputs)
                    case "itself":
                        n_keys = length // 2 if stack.is_causal else length
                        self._add_attention(config, n_sequences, length, n_keys)
                    case "memory":
                        self._add_cross(config, n_sequences, length, lengths.read)
        n_predicted = n_sequences * recipe.objective.n_predictions(lengths.written)
        self._add_map(max(1, n_predicted // config.n_layers), config.d_embed, config.vocab_size)
        self._run()  # one-time work is done

    def speed(self) -> float:
        """Measure operations a second, over a second or one run of all, whichever is longer."""
        begun, n_runs = time.perf_counter(), 0
        while n_runs == 0 or time.perf_counter() - begun < _TURN_S:
            self._run()
            wait_for(self._device)
            n_runs += 1
        return n_runs * self.flops / (time.perf_counter() - begun)

    def _run(self) -> None:
        for call in self._calls:
            call()

    def _add_feed_forward(self, config: ResolvedModel, n_rows: int, n_inputs: int) -> None:
        for _ in range(n_inputs):
            self._add_map(n_rows, config.d_model, config.d_ff)
        self._add_map(n_rows, config.d_ff, config.d_model)

    def _add_attention(
        self, config: ResolvedModel, n_sequences: int, length: int, n_keys: int
    ) -> None:
        d_heads = config.n_heads * config.d_head
        self._add_map(n_sequences * length, config.d_model, 3 * d_heads)
        self._add_map(n_sequences * length, d_heads, config.d_model)
        self._add_weighting(n_sequences * config.n_heads, length, n_keys, config.d_head)

    def _add_cross(self, config: ResolvedModel, n_sequences: int, length: int, n_keys: int) -> None:
        d_heads = config.n_heads * config.d_head
        self._add_map(n_sequences * length, config.d_model, d_heads)
        self._add_map(n_sequences * n_keys, config.d_model, 2 * d_heads)
        self._add_map(n_sequences * length, d_heads, config.d_model)
        self._add_weighting(n_sequences * config.n_heads, length, n_keys, config.d_head)

    def _add_map(self, n_rows: int, d_in: int, d_out: int) -> None:
        x, grad, weight = (
            self._draw(n_rows, d_in),
            self._draw(n_rows, d_out),
            self._draw(d_out, d_in),
        )
        self._calls += [
            lambda: product(x, weight),
            lambda: product(grad, weight.t()),
            lambda: product_over_rows(grad, x),
        ]
        self.flops += 3 * 2 * n_rows * d_in * d_out

    def _add_weighting(self, n: int, n_queries: int, n_keys: int, width: int) -> None:
        q, k = self._draw(n, n_queries, width), self._draw(n, n_keys, width)
        weights = self._draw(n, n_queries, n_keys)
        # Scores and weighted values; the gradients of weights, values, queries and keys.
        for _ in range(2):
            self._calls += [lambda: q @ k.mT, lambda: weights @ k, lambda: weights.mT @ q]
        self.flops += 6 * 2 * n * n_queries * n_keys * width

    def _draw(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator).to(self._device, self._dtype)


def share_of_products(recipe: ResolvedRecipe, tokens_per_s: float, product_speed: float) -> float:
    """Return the matrix products a second of training as a share of the products' own speed."""
    flops = flops_per_token(recipe.model, recipe.data.context, recipe.objective)
    return float(tokens_per_s * flops / product_speed)
