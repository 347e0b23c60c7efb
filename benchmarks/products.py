"""How fast this processor multiplies matrices of a case's own shapes, and which precisions are worth timing here.

A training step is at best as fast as its products: the share that it reaches of their speed says how much is left.
"""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from sublayer.config.objective import CausalObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import stacks
from sublayer.machine import wait_for
from sublayer.model.cost import flops_per_token, n_predicting, need
from sublayer.model.passes import Precision
from sublayer.train.precision import bfloat16_gain, own_clocks
from sublayer.train.step import resolved

_WORTH = 0.5
"""What bfloat16 must gain in a layer to be timed: whose best setup float32 is by twice needs no rounds to tell."""
_TURN_S = 1.0


def precisions(width: int) -> tuple[Precision, ...]:
    """List the precisions that are worth timing at a width: bfloat16 not where products in it are hopeless."""
    is_worth_it = bfloat16_gain(width, own_clocks()) >= _WORTH
    return ("float32", "bfloat16") if is_worth_it else ("float32",)


class Products:
    """The matrix products of a training step, forward and backward, for one micro-batch and one block of a model.

    The output matrix has its share of a block. A causal attention multiplies the half of the keys that counts.
    """

    def __init__(self, recipe: Recipe, precision: Precision, device: str = "cpu") -> None:
        config, context = recipe.model, recipe.data.context
        n_sequences = resolved(recipe.train.micro_batch_sequences)
        n_rows, d_model = n_sequences * context, config.d_model
        d_heads, d_ff = config.n_heads * need(config.d_head), need(config.d_ff)
        self._dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        self._device = torch.device(device)
        self._generator = torch.Generator().manual_seed(0)
        self.flops = 0
        self._calls: list[Callable[[], Tensor]] = []
        (stack,) = stacks(config)
        for entry in stack.block:
            if entry.name == "ffn":
                self._add_map(n_rows, d_model, d_ff)
                self._add_map(n_rows, d_ff, d_model)
            else:
                self._add_map(n_rows, d_model, 3 * d_heads)
                self._add_map(n_rows, d_heads, d_model)
                n_keys = context // 2 if isinstance(recipe.objective, CausalObjective) else context
                self._add_attention(n_sequences * config.n_heads, context, n_keys, need(config.d_head))
        n_predicted = n_sequences * n_predicting(recipe.objective, context)
        self._add_map(max(1, n_predicted // config.n_layers), need(config.d_embed), need(config.vocab_size))
        self._run()  # what is made once is made

    def speed(self) -> float:
        """Measure operations a second, over a turn of a second or one run through all, whichever is longer."""
        begun, n_runs = time.perf_counter(), 0
        while n_runs == 0 or time.perf_counter() - begun < _TURN_S:
            self._run()
            wait_for(self._device)
            n_runs += 1
        return n_runs * self.flops / (time.perf_counter() - begun)

    def _run(self) -> None:
        for call in self._calls:
            call()

    def _add_map(self, n_rows: int, d_in: int, d_out: int) -> None:
        x, grad, weight = self._draw(n_rows, d_in), self._draw(n_rows, d_out), self._draw(d_out, d_in)
        self._calls += [lambda: x @ weight.t(), lambda: grad @ weight, lambda: grad.t() @ x]
        self.flops += 3 * 2 * n_rows * d_in * d_out

    def _add_attention(self, n: int, n_queries: int, n_keys: int, width: int) -> None:
        q, k = self._draw(n, n_queries, width), self._draw(n, n_keys, width)
        weights = self._draw(n, n_queries, n_keys)
        # Scores and weighted values; the gradients of weights, values, queries and keys.
        for _ in range(2):
            self._calls += [lambda: q @ k.mT, lambda: weights @ k, lambda: weights.mT @ q]
        self.flops += 6 * 2 * n * n_queries * n_keys * width

    def _draw(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator).to(self._device, self._dtype)


def share_of_products(recipe: Recipe, tokens_per_s: float, product_speed: float) -> float:
    """Return the operations a second of training, those of matrix products, as a share of the products' own speed."""
    return tokens_per_s * flops_per_token(recipe.model, recipe.data.context, recipe.objective) / product_speed
