"""What cannot fit is refused in a line before anything is allocated; what can is let through."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sublayer.config.layering.layers import load_recipe
from sublayer.config.limits import (
    LARGEST_VOCABULARY,
    LONGEST_WINDOW,
    MOST_LAYERS,
    WIDEST,
    WIDEST_FFN,
)
from sublayer.config.resolve_model import resolve_model
from sublayer.config.resolve_train import resolve_optimizer, resolve_train
from sublayer.config.resolved import resolved_recipe
from sublayer.errors import ConfigError
from sublayer.estimate import capacity
from sublayer.estimate.capacity import allocating, check_memory, format_bytes, lacks_memory
from sublayer.estimate.cost import count_parameters
from sublayer.estimate.training_capacity import check_training
from sublayer.model.build import build
from sublayer.model.context.cache import Cache
from sublayer.system.memory import total_memory


@pytest.fixture
def has_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Say what the machine has."""
    return lambda size: monkeypatch.setattr(capacity, "total_memory", lambda: size)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1.02e+03 B"),
        (1536, "1.5 KiB"),
        (23 << 30, "23 GiB"),
        (16_052_870_000_000, "14.6 TiB"),
    ],
)
def test_a_size_has_three_figures_and_the_unit_that_suits_it(size: int, text: str) -> None:
    assert format_bytes(size) == text


@given(size=st.integers(0, 10**40))
def test_any_size_is_said_shortly(size: int) -> None:
    assert len(format_bytes(size)) < 40


def test_what_is_more_than_the_machine_has_is_refused_with_both_sizes(
    has_memory: Callable[..., None],
) -> None:
    has_memory(23 << 30)
    check_memory(23 << 30, "a batch", "make it smaller")
    with pytest.raises(ConfigError, match="^a batch needs 14.6 TiB, 23 GiB here: make it smaller$"):
        check_memory(16_052_870_000_000, "a batch", "make it smaller")
    has_memory(None)
    check_memory(1 << 80, "a batch", "make it smaller")


def test_the_memory_of_this_machine_is_known_or_unknown() -> None:
    here = total_memory()
    assert here is None or here > 1 << 28


@pytest.mark.parametrize(
    "fails",
    [
        lambda: torch.empty(1 << 50),
        lambda: torch.empty(1 << 62, 32),
        lambda: torch.zeros(1).expand(1 << 40, -1).contiguous(),
        lambda: bytearray(1 << 60),
    ],
    ids=["too many bytes", "more than a size can say", "a copy", "Python's own"],
)
def test_a_failure_to_allocate_is_said_in_a_line(fails: Callable[[], Any]) -> None:
    with pytest.raises(
        ConfigError, match="^there is not enough memory for the model: take a smaller one$"
    ):
        with allocating("the model", "take a smaller one"):
            fails()


def test_other_failures_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes"), allocating("the model", "take a smaller one"):
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert not lacks_memory(RuntimeError("could not create a primitive descriptor for the product"))
    assert not lacks_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.fixed_dictionaries(
        {
            "model.n_layers": st.sampled_from([1, 100, MOST_LAYERS]),
            "model.d_model": st.sampled_from([8, 10_000, WIDEST]),
            "model.d_ff": st.sampled_from([1, WIDEST_FFN]),
            "model.vocab_size": st.sampled_from([256, LARGEST_VOCABULARY]),
            "model.max_len": st.sampled_from([256, LONGEST_WINDOW]),
            "model.positions": st.sampled_from(["learned", "rotary", "learned-per-layer"]),
        }
    )
)
def test_no_model_is_begun_that_the_machine_cannot_hold(sizes: dict[str, Any]) -> None:
    limit = 1 << 24
    model = load_recipe("gpt", sizes | {"model.n_heads": 2}).recipe.model
    config = resolve_model(model, vocab_size=256, context=256)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capacity, "total_memory", lambda: limit)
        if 4 * count_parameters(config).total <= limit:
            assert sum(each.numel() for each in build(config, seed=0).parameters()) <= limit // 4
        else:
            with pytest.raises(
                ConfigError, match="^the model needs .* 16 MiB here: make model.d_model"
            ):
                build(config, seed=0)


def test_a_cache_is_measured_before_it_is_made(has_memory: Callable[..., None]) -> None:
    config = resolve_model(load_recipe("gpt").recipe.model, vocab_size=256, context=256)
    has_memory(1 << 30)
    Cache(config, 2, 16)
    with pytest.raises(
        ConfigError, match="the cache of 1,000,000 rows of 100,000,000 tokens needs .* 1 GiB here"
    ):
        Cache(config, 1_000_000, 100_000_000)


def resolved(**settings: Any) -> Any:
    given = {name.replace("__", "."): value for name, value in settings.items()}
    recipe = load_recipe("gpt", given | {"train.precision": "float32"}).recipe
    model = resolve_model(recipe.model, vocab_size=256, context=recipe.data.context)
    train = resolve_train(recipe, steps=1, valid_tokens=1, is_gpu=False, threads=1)
    optimizer = resolve_optimizer(recipe.optimizer, steps=1)
    return resolved_recipe(recipe, model, train, optimizer)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"model__d_ff": WIDEST_FFN},
            "the model with its gradients and the optimizer's states needs",
        ),
        ({"train__batch_sequences": 10**9}, "a batch needs .* make train.batch_sequences smaller"),
        (
            {"train__batch_sequences": 100_000, "train__micro_batch_sequences": 100_000},
            "a training step of 100,000 windows of 128 tokens at a time needs",
        ),
    ],
)
def test_a_training_that_cannot_fit_is_refused_by_what_is_too_large(
    has_memory: Callable[..., None], settings: dict[str, int], message: str
) -> None:
    has_memory(8 << 30)
    check_training(resolved(train__batch_sequences=16, train__micro_batch_sequences=4))
    with pytest.raises(ConfigError, match=f"^{message}"):
        check_training(resolved(**settings))
    has_memory(None)
    check_training(resolved(**settings))


def test_processes_that_divide_a_model_need_less_of_it_each(
    has_memory: Callable[..., None],
) -> None:
    has_memory(8 << 30)
    # 1.2 billion parameters: 19 GB of weights, gradients and moments.
    large = {"model__d_model": 2048, "model__n_layers": 24, "train__batch_sequences": 8}
    with pytest.raises(ConfigError, match="^the model with its gradients"):
        check_training(resolved(**large), n_processes=8)
    check_training(resolved(**large, train__shard="full"), n_processes=8)
    with pytest.raises(ConfigError, match="^the model with this process's part"):
        check_training(resolved(**large, train__shard="full"), n_processes=2)
