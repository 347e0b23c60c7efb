"""Tokens that are generated are those that whole forward passes would give, drawn as is said."""

from itertools import product
from typing import Any

import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.decode.sample import GREEDY, Sampling, Window, generate
from sublayer.errors import ConfigError
from sublayer.model.build import build
from sublayer.model.transformer import Transformer
from tests.in_time import some_in_time

VOCAB_SIZE, CONTEXT = 13, 10
MODELS: list[dict[str, Any]] = [
    {},
    {"positions": "rotary", "norm": "rms", "ffn": "swiglu", "bias": False},
    {
        "positions": "learned-per-layer",
        "tie_embeddings": False,
        "head_bias": True,
        "final_norm": "plain",
    },
    {
        "positions": "sinusoidal",
        "norm_order": "post",
        "share": "all",
        "d_embed": 5,
        "block": "macaron",
    },
    {"positions": "none", "norm": "none"},
    {"positions": "alibi", "n_heads": 3},
    {"positions": "relative", "relative_buckets": 4, "relative_distance": 5},
]


def make_model(**fields: Any) -> Transformer:
    config = ModelConfig(**{"n_layers": 2, "d_model": 12, "n_heads": 2, "init_std": 0.5, **fields})
    return (
        build(resolve_model(config, vocab_size=VOCAB_SIZE, context=CONTEXT), seed=4).double().eval()
    )


def generated(
    model: Transformer, prompt: torch.Tensor, n: int, sampling: Sampling = GREEDY, **more: Any
) -> list[list[int]]:
    return torch.stack(list(generate(model, prompt, n, sampling, **more)), dim=1).tolist()


def recomputed(model: Transformer, prompt: torch.Tensor, n: int, window: Window) -> list[list[int]]:
    tokens, seen = prompt, prompt.shape[1]
    for _ in range(n):
        with torch.no_grad():
            chosen = model(tokens[:, -seen:]).logits[:, -1].argmax(-1)
        tokens = torch.cat([tokens, chosen[:, None]], dim=1)
        seen += 1
        if seen > CONTEXT:
            seen = CONTEXT if window == "exact" else CONTEXT // 2 + 1
    return tokens[:, prompt.shape[1] :].tolist()


@pytest.mark.parametrize(
    ("n_prompt", "fields", "window"),
    some_in_time(product([1, 4, CONTEXT], MODELS, ["exact", "rolling"]), 5),
    ids=str,
)
def test_cached_tokens_are_those_of_whole_forward_passes(
    fields: dict[str, Any], window: Window, n_prompt: int
) -> None:
    model = make_model(**fields)
    prompt = torch.randint(VOCAB_SIZE, (3, n_prompt), generator=torch.Generator().manual_seed(1))
    assert generated(model, prompt, 17, window=window) == recomputed(model, prompt, 17, window)


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    model, prompt = make_model(), torch.tensor([[1, 2], [3, 4]])
    assert generated(model, prompt, 20)[1] == generated(model, prompt[1:], 20)[0]


def test_what_is_drawn_is_a_function_of_the_seed() -> None:
    model, prompt = make_model(init_std=0.05), torch.tensor([[1, 2]])
    first, again, other = (
        generated(model, prompt, 30, Sampling(), seed=seed) for seed in (5, 5, 6)
    )
    assert first == again != other


def draws(sampling: Sampling, shares: list[float], n: int = 40_000) -> torch.Tensor:
    logits = torch.tensor(shares, dtype=torch.float64).log().expand(n, -1)
    chosen = sampling.choose(logits, torch.Generator().manual_seed(0))
    return torch.bincount(chosen, minlength=len(shares)) / n


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), [0.4, 0.1, 0.3, 0.2]),
        (GREEDY, [1.0, 0.0, 0.0, 0.0]),
        (Sampling(temperature=0.5), [16 / 30, 1 / 30, 9 / 30, 4 / 30]),
        (Sampling(top_k=2), [4 / 7, 0.0, 3 / 7, 0.0]),
        (Sampling(top_k=9), [0.4, 0.1, 0.3, 0.2]),
        (Sampling(top_p=0.65), [4 / 7, 0.0, 3 / 7, 0.0]),
        (Sampling(top_p=0.75), [4 / 9, 0.0, 3 / 9, 2 / 9]),
        (Sampling(top_p=0.01), [1.0, 0.0, 0.0, 0.0]),
        (Sampling(top_p=1.0), [0.4, 0.1, 0.3, 0.2]),
        (Sampling(temperature=0.5, top_k=3, top_p=0.8), [16 / 25, 0.0, 9 / 25, 0.0]),
    ],
    ids=str,
)
def test_tokens_are_drawn_with_the_probabilities_that_are_said(
    sampling: Sampling, expected: list[float]
) -> None:
    found = draws(sampling, [0.4, 0.1, 0.3, 0.2])
    # Five standard deviations of 40,000 draws at a probability of one half.
    assert found.tolist() == pytest.approx(expected, abs=5 * 0.5 / 200)
    assert [share > 0 for share in found] == [share > 0 for share in expected]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": -0.1}, "--temperature -0.1 is not 0"),
        ({"temperature": float("nan")}, "--temperature nan"),
        ({"top_k": 0}, "--top-k 0 keeps nothing"),
        ({"top_p": 0.0}, "--top-p 0 is not a share"),
        ({"top_p": 1.5}, "--top-p 1.5 is not a share"),
        ({"temperature": 0.0, "top_k": 3}, "no effect on greedy"),
    ],
    ids=str,
)
def test_a_sampling_without_meaning_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Sampling(**values)


@pytest.mark.parametrize(
    ("n_prompt", "message"),
    [(0, "the prompt is empty"), (11, "has 11 tokens, more than the context of 10")],
)
def test_a_prompt_that_cannot_be_read_is_refused(n_prompt: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        next(generate(make_model(), torch.zeros(1, n_prompt, dtype=torch.long), 1, GREEDY))


def test_a_model_in_training_mode_is_refused() -> None:
    model = make_model().train()
    with pytest.raises(ConfigError, match="training mode"):
        next(generate(model, torch.zeros(1, 1, dtype=torch.long), 1, GREEDY))
