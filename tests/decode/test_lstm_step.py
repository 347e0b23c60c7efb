"""An LSTM one token at a time: each step's logits are the whole's, and there is no end."""

from typing import Any

import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.decode.lstm_step import LstmStepper
from sublayer.decode.sample import GREEDY, Sampling, generate
from sublayer.model.build import build
from sublayer.model.context.cache import Cache, cache_bytes
from sublayer.model.lstm import Lstm

VOCAB_SIZE, CONTEXT = 13, 6


def model_of(dtype: torch.dtype = torch.float64, **fields: Any) -> Lstm:
    config = resolve_model(
        ModelConfig(kind="lstm", n_layers=2, d_model=8, **fields),
        vocab_size=VOCAB_SIZE,
        context=CONTEXT,
    )
    model = build(config, seed=0).to(dtype).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.5, generator=generator)
    assert isinstance(model, Lstm)
    return model


def tokens_of(n_rows: int, n_tokens: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(VOCAB_SIZE, (n_rows, n_tokens), generator=generator)


@pytest.mark.parametrize("n_rows", [1, 3])
@pytest.mark.parametrize(
    "fields",
    [{}, {"d_embed": 5, "head_bias": True}, {"head": "transform", "tie_embeddings": False}],
    ids=str,
)
def test_steps_equal_the_whole(n_rows: int, fields: dict[str, Any]) -> None:
    model, tokens = model_of(**fields), tokens_of(n_rows, 15)
    cache, step = Cache(model.config, n_rows, CONTEXT, torch.float64), LstmStepper(model, n_rows)
    with torch.inference_mode():
        whole = model(tokens).logits
        first = model.last_logits(tokens[:, :4], cache)
        found = [first, *(step(tokens[:, place], cache) for place in range(4, 15))]
    torch.testing.assert_close(torch.stack(found, dim=1), whole[:, 3:], rtol=0, atol=1e-9)


def test_text_beyond_the_context_is_read_whole() -> None:
    model, prompt = model_of(), tokens_of(2, 2 * CONTEXT)
    drawn = torch.stack(list(generate(model, prompt, 3 * CONTEXT, GREEDY, context=CONTEXT)), dim=1)
    tokens = prompt
    for place in range(3 * CONTEXT):
        chosen = model(tokens).logits[:, -1].argmax(-1)
        assert torch.equal(chosen, drawn[:, place])
        tokens = torch.cat([tokens, chosen[:, None]], dim=1)


def test_weights_of_bfloat16_write_too() -> None:
    model = model_of(torch.bfloat16)
    steps = list(generate(model, tokens_of(2, 3), 4, Sampling(top_k=3), seed=0))
    assert len(steps) == 4


def test_a_state_takes_the_same_room_whatever_was_read() -> None:
    config = model_of().config
    of_state = 3 * 2 * 2 * 8 * 4  # rows, layers, output and cell, units, bytes
    assert cache_bytes(config, 3, 10, torch.float32) == of_state
    assert cache_bytes(config, 3, 10_000_000, torch.float32) == of_state
    Cache(config, 3, 10**12)
