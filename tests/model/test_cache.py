"""Decoding piece by piece equals reading at once."""

import gc
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from sublayer.errors import ConfigError
from sublayer.model.context.cache import Cache
from sublayer.model.transformer import Transformer

MODELS: list[dict[str, Any]] = [
    {"positions": "learned"},
    {"positions": "learned-per-layer", "block": "macaron"},
    {"positions": "sinusoidal", "embedding_scale": "sqrt"},
    {"positions": "rotary", "norm": "rms", "ffn": "swiglu"},
    {"positions": "none", "norm_order": "post"},
    {"positions": "rotary", "n_layers": 4, "share": "all", "share_groups": 2, "d_embed": 5},
    {
        "positions": "learned",
        "n_layers": 4,
        "share": "attention",
        "share_inner": 2,
        "block": "macaron",
    },
    {"positions": "rotary", "block": ["attention", "attention*0.5", "ffn:glu"]},
]


def name_of(fields: dict[str, Any]) -> str:
    return "-".join(str(value) for value in fields.values())


@pytest.mark.parametrize("fields", MODELS, ids=name_of)
@pytest.mark.parametrize(
    "pieces", [[1] * 11, [5, 1, 4, 1], [11]], ids=["one-by-one", "ragged", "at-once"]
)
def test_cached_logits_equal_uncached_ones(
    random_model: Callable[..., Transformer], fields: dict[str, Any], pieces: list[int]
) -> None:
    model = random_model(**fields)
    tokens = torch.randint(0, 17, (3, 11), generator=torch.Generator().manual_seed(0))
    cache = Cache(model.config, 3, 11, torch.float64)
    cached = [model(piece, cache=cache).logits for piece in tokens.split(pieces, dim=1)]
    torch.testing.assert_close(torch.cat(cached, dim=1), model(tokens).logits, rtol=0, atol=1e-9)


def test_a_cache_goes_with_its_last_user_and_waits_for_no_garbage_collector(
    random_model: Callable[..., Transformer],
) -> None:
    tokens = torch.zeros(2, 3, dtype=torch.long)
    gc.disable()
    try:
        for fields in (*MODELS, {"kind": "lstm", "n_layers": 1}):
            model = random_model(**fields)
            cache = Cache(model.config, 2, 6, torch.float64)
            model(tokens, cache=cache)
            cache.take_rows(torch.tensor([0, 0, 1]))
            held = [weakref.ref(cache)]
            held += [weakref.ref(each) for i in range(3) if (each := cache.key_values(0, i))]
            del cache
            assert len(held) > 1
            assert all(each() is None for each in held), fields
    finally:
        gc.enable()


@pytest.mark.parametrize("fields", MODELS, ids=name_of)
def test_left_padded_rows_decode_as_they_would_alone(
    random_model: Callable[..., Transformer], fields: dict[str, Any]
) -> None:
    model = random_model(**fields)
    tokens = torch.randint(0, 17, (3, 11), generator=torch.Generator().manual_seed(1))
    lengths = [5, 2, 4]  # real tokens among the first five columns
    mask = torch.arange(5) >= 5 - torch.tensor(lengths)[:, None]
    cache = Cache(model.config, 3, 11, torch.float64)
    first = model(tokens[:, :5], mask, cache=cache).logits
    rest = [model(tokens[:, t : t + 1], cache=cache).logits for t in range(5, 11)]
    cached = torch.cat([first, *rest], dim=1)
    for row, length in enumerate(lengths):
        alone = model(tokens[row : row + 1, 5 - length :]).logits[0]
        torch.testing.assert_close(cached[row, 5 - length :], alone, rtol=0, atol=1e-9)


def test_shared_layers_keep_keys_of_their_own(random_model: Callable[..., Transformer]) -> None:
    model = random_model(n_layers=3, share="all")
    cache = Cache(model.config, 1, 5, torch.float64)
    model(torch.tensor([[1, 2, 3]]), cache=cache)
    found = [cache.key_values(layer, 0) for layer in range(3)]
    assert all(one is not other for one, other in itertools.pairwise(found))
    assert cache.key_values(0, 1) is None  # a feed-forward network keeps nothing


def test_a_full_cache_is_refused_and_left_as_it_was(
    random_model: Callable[..., Transformer],
) -> None:
    model = random_model(positions="rotary")
    cache = Cache(model.config, 1, 4, torch.float64)
    model(torch.tensor([[1, 2, 3]]), cache=cache)
    with pytest.raises(ConfigError, match=r"3 \+ 2 tokens do not fit a cache of max_len = 4"):
        model(torch.tensor([[4, 5]]), cache=cache)
    assert cache.length == 3


def test_decoding_beyond_the_table_of_positions_is_refused(
    random_model: Callable[..., Transformer],
) -> None:
    model = random_model()
    cache = Cache(model.config, 1, 20, torch.float64)
    model(torch.zeros(1, 13, dtype=torch.long), cache=cache)
    with pytest.raises(ConfigError, match=r"14 tokens is longer than model.max_len = 13"):
        model(torch.zeros(1, 1, dtype=torch.long), cache=cache)


def test_rotary_positions_decode_beyond_the_training_window(
    random_model: Callable[..., Transformer],
) -> None:
    model = random_model(positions="rotary")
    tokens = torch.randint(0, 17, (1, 20), generator=torch.Generator().manual_seed(2))
    cache = Cache(model.config, 1, 20, torch.float64)
    cached = [model(piece, cache=cache).logits for piece in tokens.split([15, 5], dim=1)]
    torch.testing.assert_close(torch.cat(cached, dim=1), model(tokens).logits, rtol=0, atol=1e-9)
