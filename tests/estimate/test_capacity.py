"""Refusals, before anything is allocated, of what memory cannot hold."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from sublayer.config.layering.layers import load_recipe
from sublayer.config.limits import WIDEST_FFN
from sublayer.config.resolve_model import resolve_model
from sublayer.config.resolve_train import resolve_optimizer, resolve_train
from sublayer.config.resolved import ResolvedRecipe, resolved_recipe
from sublayer.errors import ConfigError
from sublayer.estimate import capacity
from sublayer.estimate.capacity import allocating, check_memory, format_bytes
from sublayer.estimate.training_capacity import check_training
from sublayer.model.build import build
from sublayer.model.context.cache import Cache


@pytest.fixture
def has_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Give the machine another size."""
    return lambda size: monkeypatch.setattr(capacity, "total_memory", lambda: size)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1.02e+03 B"),
        (1536, "1.5 KiB"),
        ((1 << 70) - 1, "1.02e+03 EiB"),
        (1 << 70, "1,024 EiB"),
    ],
)
def test_a_size_has_three_figures_and_the_unit_that_suits_it(size: int, text: str) -> None:
    assert format_bytes(size) == text


def test_more_than_the_machine_has_is_refused_with_both_sizes(
    has_memory: Callable[..., None],
) -> None:
    has_memory(23 << 30)
    check_memory(23 << 30, "a batch", "make it smaller")
    with pytest.raises(ConfigError, match="^a batch needs 14.6 TiB, 23 GiB here: make it smaller$"):
        check_memory(16_052_870_000_000, "a batch", "make it smaller")
    has_memory(None)
    check_memory(1 << 80, "a batch", "make it smaller")


@pytest.mark.parametrize(
    "fails",
    [
        lambda: torch.empty(1 << 50),
        lambda: torch.empty(1 << 62, 32),
        lambda: torch.zeros(1).expand(1 << 40, -1).contiguous(),
        lambda: bytearray(1 << 60),
    ],
    ids=["too many bytes", "more than a size can say", "a copy", "Python's"],
)
def test_a_failure_to_allocate_is_a_line_and_others_stay(fails: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError, match="^there is not enough memory for the model: take a"):
        with allocating("the model", "take a smaller one"):
            fails()
    for text in ("shapes", "could not create a primitive descriptor for the product"):
        with pytest.raises(RuntimeError, match=text), allocating("the model", "take a smaller one"):
            raise RuntimeError(text)


def test_a_model_and_a_cache_are_measured_before_they_are_made(
    has_memory: Callable[..., None],
) -> None:
    model = load_recipe("gpt", {"model.n_layers": 2, "model.d_model": 64}).recipe.model
    config = resolve_model(model, vocab_size=256, context=256)
    n_bytes = sum(parameter.nbytes for parameter in build(config, seed=0).parameters())
    has_memory(n_bytes)
    build(config, seed=0)
    Cache(config, 2, 16)
    with pytest.raises(ConfigError, match="^the cache of 9 rows of 999,999 tokens needs"):
        Cache(config, 9, 999_999)
    has_memory(n_bytes - 1)
    with pytest.raises(ConfigError, match="^the model needs .* here: make model.d_model"):
        build(config, seed=0)


def resolved(**settings: Any) -> ResolvedRecipe:
    given = {name.replace("__", "."): value for name, value in settings.items()}
    recipe = load_recipe("gpt", given | {"train.precision": "float32"}).recipe
    model = resolve_model(recipe.model, vocab_size=256, context=recipe.data.context)
    train = resolve_train(recipe, steps=1, valid_tokens=1, is_gpu=False, threads=1)
    return resolved_recipe(recipe, model, train, resolve_optimizer(recipe.optimizer, steps=1))


@pytest.mark.parametrize(
    ("settings", "subject"),
    [
        ({"model__d_ff": WIDEST_FFN}, "the model with its gradients and the optimizer's states"),
        ({"train__batch_sequences": 10**9}, "a batch"),
        (
            {"train__batch_sequences": 100_000, "train__micro_batch_sequences": 100_000},
            "a training step of 100,000 windows of 128 tokens at a time",
        ),
    ],
)
def test_a_training_that_cannot_fit_is_refused_by_what_is_too_large(
    has_memory: Callable[..., None], settings: dict[str, int], subject: str
) -> None:
    has_memory(8 << 30)
    check_training(resolved(train__batch_sequences=16, train__micro_batch_sequences=4))
    with pytest.raises(ConfigError, match=f"^{subject} needs"):
        check_training(resolved(**settings))
    has_memory(None)
    check_training(resolved(**settings))


def test_processes_that_divide_a_model_need_less_memory(has_memory: Callable[..., None]) -> None:
    has_memory(8 << 30)
    # 1.2 billion parameters: 19 GB of weights, gradients and moments.
    large = {"model__d_model": 2048, "model__n_layers": 24, "train__batch_sequences": 8}
    with pytest.raises(ConfigError, match="^the model with its gradients"):
        check_training(resolved(**large), n_processes=8)
    check_training(resolved(**large, train__shard="full"), n_processes=8)
    with pytest.raises(ConfigError, match="^the model with this process's part"):
        check_training(resolved(**large, train__shard="full"), n_processes=2)
