"""States of texts that the last block computes alone are those that it computes among all."""

from typing import Any

import numpy as np
import pytest
import torch

from sublayer.config.architecture.positions import POSITIONS
from sublayer.model.context.layout import Layout
from sublayer.model.context.queries import Queries
from sublayer.model.transformer import Transformer
from sublayer.objective.supervised.readout import packed_hidden, picked_states, text_states
from tests.answerers import assembler_of, draw_examples, model_of, split_of

N = 9
BLOCKS: dict[str, dict[str, Any]] = {
    "post": {"norm_order": "post"},
    "macaron": {"block": "macaron"},
    "attention last": {"block": ["ffn", "attention"]},
    "two attentions": {"block": ["attention", "ffn*0.5", "attention", "ffn"]},
    "no attention": {"block": ["ffn"]},
    "shared": {"share": "all", "n_layers": 3},
    "one block": {"n_layers": 1},
    "factorised": {"d_embed": 6},
    "unscaled": {"attention_scale": "none", "bias": False, "norm": "rms"},
    "gated": {"ffn": "swiglu", "dropout": 0.0},
}


def gradients(model: Transformer) -> dict[str, torch.Tensor]:
    found = {
        name: parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    model.zero_grad(set_to_none=True)
    return found


def check(task: str, format_: Any, context: int = 48, **fields: Any) -> None:
    split = split_of({task: draw_examples(task, N)}, format_)
    model = model_of(split, context, **fields)
    batch = assembler_of(split, context).pack(np.arange(N))
    weights = torch.randn(len(batch.readouts), model.config.d_model, dtype=torch.float64)
    results = []
    for states in (
        picked_states(batch, packed_hidden(model, batch).final),
        text_states(model, batch),
    ):
        (states * weights).sum().backward()
        results.append((states.detach(), gradients(model)))
    (every, of_every), (alone, of_alone) = results
    torch.testing.assert_close(alone, every, rtol=0, atol=1e-12)
    assert of_alone.keys() == of_every.keys()
    for name, gradient in of_every.items():
        scale = float(gradient.abs().max())
        torch.testing.assert_close(of_alone[name], gradient, rtol=0, atol=1e-12 * max(1.0, scale))


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize(
    ("task", "format_"),
    [("sst2", "pair"), ("copa", "pair"), ("rte", "traversal"), ("copa", "traversal")],
)
def test_of_every_scheme_of_positions(task: str, format_: Any, positions: str) -> None:
    check(task, format_, positions=positions)


@pytest.mark.parametrize("fields", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize(("task", "format_"), [("rte", "pair"), ("rte", "traversal")])
def test_of_every_order_of_sublayers(task: str, format_: Any, fields: dict[str, Any]) -> None:
    check(task, format_, **fields)


@pytest.mark.parametrize("task", ["rte", "copa"])
def test_of_an_lstm(task: str) -> None:
    check(task, "traversal", kind="lstm")


@pytest.mark.parametrize("positions", ["rotary", "relative", "learned"])
@pytest.mark.parametrize("format_", ["pair", "traversal"])
def test_of_rows_that_hold_one_text_each(format_: Any, positions: str) -> None:
    examples = draw_examples("sst2", 3)
    split = split_of({"sst2": examples}, format_)
    model = model_of(split, positions=positions)
    for number in range(3):
        batch = assembler_of(split).pack(np.array([number]))
        assert batch.read.document_ids is None
        every = picked_states(batch, packed_hidden(model, batch).final)
        torch.testing.assert_close(text_states(model, batch), every, rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", ["rotary", "relative", "alibi", "learned"])
@pytest.mark.parametrize("format_", ["pair", "traversal"])
def test_of_padded_rows_that_hold_one_text_each(format_: Any, positions: str) -> None:
    split = split_of({"sst2": draw_examples("sst2", 40)}, format_)
    model = model_of(split, 14, positions=positions)
    assembler = assembler_of(split, 14)
    numbers = np.flatnonzero(assembler.tokens(np.arange(40)) > 8)
    batch = assembler.pack(numbers)
    assert batch.read.document_ids is None and batch.read.mask is not None and len(batch.read) > 3
    every = picked_states(batch, packed_hidden(model, batch).final)
    torch.testing.assert_close(text_states(model, batch), every, rtol=0, atol=1e-12)


def test_of_what_is_kept_for_later_calls_there_are_no_few() -> None:
    split = split_of({"sst2": draw_examples("sst2", N)}, "traversal")
    model = model_of(split)
    tokens = torch.zeros(2, 5, dtype=torch.long)
    queries = Queries(torch.zeros(2, 1, dtype=torch.long))
    with pytest.raises(AssertionError, match="all states are kept"):
        model.hidden(tokens, Layout.causal(tokens), queries=queries, capture=[1])


def test_of_blocks_that_are_computed_again() -> None:
    split = split_of({"rte": draw_examples("rte", N)}, "pair")
    model = model_of(split)
    batch = assembler_of(split).pack(np.arange(N))
    results = []
    for model.stack.recomputes in (False, True):
        text_states(model, batch).square().sum().backward()
        results.append(gradients(model))
    for name, gradient in results[0].items():
        torch.testing.assert_close(results[1][name], gradient, rtol=0, atol=1e-12)
