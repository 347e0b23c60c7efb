"""What layers of models err by: nothing where they follow their flows, and known numbers where those are linear."""

from typing import Any

import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.errors import ConfigError
from sublayer.inspect.layer_splitting import check_flows, measure_splitting
from sublayer.inspect.sample import Sample
from sublayer.model.build import build
from sublayer.model.transformer import Transformer


def make_model(**fields: Any) -> Transformer:
    given = {"n_layers": 3, "d_model": 16, "n_heads": 2, "init": "normal", "init_std": 0.2, **fields}
    return build(resolve_model(ModelConfig(**given), vocab_size=23, context=12), seed=2).eval()


def sample() -> Sample:
    tokens = torch.randint(0, 23, (3, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(12) < torch.tensor([[12], [7], [12]])
    return Sample(tokens, mask)


@pytest.mark.parametrize("kind", ["decoder", "encoder", "encoder-decoder"])
@pytest.mark.parametrize("positions", ["rotary", "learned-per-layer"])
def test_a_layers_own_step_is_one_of_the_schemes(kind: str, positions: str) -> None:
    for block, quantity in (("transformer", "lie"), ("macaron", None)):
        found = measure_splitting(make_model(kind=kind, block=block, positions=positions), sample(), batch_sequences=2)
        assert [each.layer for each in found] == [1, 2, 3]
        for each in found:
            assert each.way > 0 and min(each.lie, each.strang) > 0
            if quantity:
                assert each.own == pytest.approx(each.lie, rel=1e-9)


def test_equal_halves_are_strangs_step() -> None:
    model = make_model(block="macaron")
    for layer in range(3):
        first, _, second = model.stack.block(layer)
        second.load_state_dict(first.state_dict())
    for each in measure_splitting(model, sample(), batch_sequences=3):
        assert each.own == pytest.approx(each.strang, rel=1e-9)


def test_small_steps_err_in_proportion() -> None:
    model = make_model(block="transformer")
    whole = measure_splitting(model, sample(), batch_sequences=3)
    for sets in model.stack.sublayers:
        for sublayer in sets:
            sublayer.step /= 64
    small = measure_splitting(model, sample(), batch_sequences=3)
    for one, other in zip(whole, small, strict=True):
        assert other.way < one.way / 30
        assert other.lie < one.lie / 8 and other.strang < one.strang / 8


def test_batches_change_nothing() -> None:
    model = make_model()
    one, other = (measure_splitting(model, sample(), batch_sequences=n) for n in (1, 3))
    for left, right in zip(one, other, strict=True):
        assert left.lie == pytest.approx(right.lie, rel=1e-9) and left.way == pytest.approx(right.way, rel=1e-9)


def test_layers_that_end_in_a_norm_are_refused() -> None:
    with pytest.raises(ConfigError, match="model.norm_order = post: a layer that ends in a norm"):
        check_flows(make_model(norm_order="post"), "run")
    check_flows(make_model(norm="none", norm_order="pre"), "run")
