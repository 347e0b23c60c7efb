"""The errors of layers: none where they follow their flows, known numbers for linear flows."""

from typing import Any

import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.inspection.layer_splitting import measure_splitting
from sublayer.inspection.sample import Sample
from sublayer.model.build import build
from sublayer.model.transformer import Transformer


def make_model(**fields: Any) -> Transformer:
    given = {
        "n_layers": 2,
        "d_model": 16,
        "n_heads": 2,
        "init": "normal",
        "init_std": 0.2,
        **fields,
    }
    return build(resolve_model(ModelConfig(**given), vocab_size=23, context=12), seed=2).eval()


def sample() -> Sample:
    tokens = torch.randint(0, 23, (3, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(12) < torch.tensor([[12], [7], [12]])
    return Sample(tokens, mask)


def targets() -> Sample:
    tokens = torch.randint(0, 23, (3, 9), generator=torch.Generator().manual_seed(1))
    return Sample(tokens, torch.arange(9) < torch.tensor([[4], [9], [8]]))


@pytest.mark.parametrize("kind", ["decoder", "encoder", "encoder-decoder"])
@pytest.mark.parametrize("positions", ["rotary", "learned-per-layer"])
def test_a_layers_own_step_is_one_of_the_schemes(kind: str, positions: str) -> None:
    for block, quantity in (("transformer", "lie"), ("macaron", None)):
        model = make_model(kind=kind, block=block, positions=positions)
        read = (sample(), targets()) if kind == "encoder-decoder" else (sample(),)
        found = measure_splitting(model, *read, batch_sequences=3)
        stacks = kind.split("-")
        assert [(each.stack, each.layer) for each in found] == [
            (stack, n) for stack in stacks for n in (1, 2)
        ]
        for each in found:
            assert each.way > 0 and min(each.lie, each.strang) > 0
            if quantity:
                assert each.own == pytest.approx(each.lie, rel=1e-9)


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
def test_equal_halves_are_strangs_step(kind: str) -> None:
    model = make_model(kind=kind, block="macaron")
    for stack in model.stacks:
        for layer in range(2):
            first, *_, second = stack.block(layer)
            second.load_state_dict(first.state_dict())
    read = (sample(), targets()) if kind == "encoder-decoder" else (sample(),)
    found = measure_splitting(model, *read, batch_sequences=3)
    assert len(found) == 2 * len(model.stacks)
    for each in found:
        assert each.own == pytest.approx(each.strang, rel=1e-9)


def test_small_steps_err_in_proportion() -> None:
    model = make_model(block="transformer")
    whole = measure_splitting(model, sample(), batch_sequences=3)
    for sets in model.stack.sublayers:
        for sublayer in sets:
            sublayer.step_size /= 64
    small = measure_splitting(model, sample(), batch_sequences=3)
    for one, other in zip(whole, small, strict=True):
        assert other.way < one.way / 30
        assert other.lie < one.lie / 8 and other.strang < one.strang / 8


def test_batches_change_nothing() -> None:
    model = make_model(kind="encoder-decoder")
    one, other = (measure_splitting(model, sample(), targets(), batch_sequences=n) for n in (1, 3))
    for left, right in zip(one, other, strict=True):
        assert left.lie == pytest.approx(right.lie, rel=1e-9) and left.way == pytest.approx(
            right.way, rel=1e-9
        )


def test_padding_and_what_a_source_hides_change_nothing() -> None:
    model = make_model(kind="encoder-decoder")
    found = []
    for behind in (3, 5):
        read, written = sample(), targets()
        read.tokens[1, 7:], written.tokens[0, 4:] = behind, behind
        found.append(measure_splitting(model, read, written, batch_sequences=3))
    for left, right in zip(*found, strict=True):
        assert (left.lie, left.strang, left.way) == pytest.approx(
            (right.lie, right.strang, right.way), rel=1e-9
        )


def test_a_decoders_layers_are_of_what_it_reads_of_its_source() -> None:
    model = make_model(kind="encoder-decoder")
    read, other = sample(), sample()
    other.tokens[0] = (other.tokens[0] + 1) % 23
    one, another = (
        measure_splitting(model, each, targets(), batch_sequences=3)[2:] for each in (read, other)
    )
    assert all(left.way != right.way for left, right in zip(one, another, strict=True))
