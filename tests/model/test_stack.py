"""Which blocks share weights, and that sharing is nothing but sharing."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sublayer.config.architecture.stacks import slot, stacks
from sublayer.config.model import ModelConfig
from sublayer.model.transformer import Transformer


@pytest.mark.parametrize(
    ("share", "groups", "inner", "attention", "ffn"),
    [
        ("none", 1, 1, [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]),
        ("all", 1, 1, [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]),
        ("attention", 1, 1, [0, 0, 0, 0, 0, 0], [0, 1, 2, 3, 4, 5]),
        ("ffn", 2, 1, [0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 1, 1]),
        ("all", 4, 1, [0, 0, 1, 2, 2, 3], [0, 0, 1, 2, 2, 3]),
        ("all", 1, 2, [0, 1, 0, 1, 0, 1], [0, 1, 0, 1, 0, 1]),
        ("all", 2, 3, [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]),
        ("all", 2, 2, [0, 1, 0, 1, 2, 3], [0, 1, 0, 1, 2, 3]),
    ],
)
def test_slots_by_hand(
    small_config: Callable[..., ModelConfig],
    share: str,
    groups: int,
    inner: int,
    attention: list[int],
    ffn: list[int],
) -> None:
    config = small_config(n_layers=6, share=share, share_groups=groups, share_inner=inner)
    (shape,) = stacks(config)
    for entry, expected in zip(shape.block, (attention, ffn), strict=True):
        assert [slot(config, shape, layer, entry) for layer in range(6)] == expected


def test_two_halves_of_a_macaron_block_have_weights_of_their_own(
    random_model: Callable[..., Transformer],
) -> None:
    stack = random_model(block="macaron", share="all").decoder
    assert [len(slots) for slots in stack.sublayers] == [1, 1, 1]
    assert stack.sublayers[0][0] is not stack.sublayers[2][0]
    assert [sublayer.step_size for sublayer in stack.block(1)] == [0.5, 1.0, 0.5]


def unshared_copy(
    shared: Transformer, random_model: Callable[..., Transformer], **fields: object
) -> Transformer:
    """Copy each slot's weights into every block that uses it."""
    copy = random_model(**fields)
    weights: dict[str, Tensor] = {}
    for name, value in shared.state_dict().items():
        if not name.startswith("decoder."):
            weights[name] = value
            continue
        _, _, place, index, rest = name.split(".", 4)
        for layer, slots in enumerate(shared.decoder.slots):
            if slots[int(place)] == int(index):
                weights[f"decoder.sublayers.{place}.{layer}.{rest}"] = value
    copy.load_state_dict(weights)
    return copy


@pytest.mark.parametrize("share", ["all", "attention", "ffn"])
@pytest.mark.parametrize("block", ["transformer", "macaron"])
def test_shared_gradients_are_the_sum_over_unshared_copies(
    random_model: Callable[..., Transformer], share: str, block: str
) -> None:
    fields = {"n_layers": 4, "block": block, "positions": "learned-per-layer"}
    shared = random_model(share=share, share_groups=2, **fields)
    copy = unshared_copy(shared, random_model, **fields)
    tokens = torch.arange(10).view(2, 5)
    torch.testing.assert_close(shared(tokens).logits, copy(tokens).logits, rtol=0, atol=1e-12)
    for model in (shared, copy):
        model(tokens).logits.square().sum().backward()
    for place, slots in enumerate(shared.decoder.sublayers):
        for index, sublayer in enumerate(slots):
            layers = [layer for layer in range(4) if shared.decoder.slots[layer][place] == index]
            for name, parameter in sublayer.named_parameters():
                copies = [
                    copy.decoder.block(layer)[place].get_parameter(name).grad for layer in layers
                ]
                torch.testing.assert_close(parameter.grad, sum(copies), rtol=1e-10, atol=1e-12)


def test_a_slot_exists_once(random_model: Callable[..., Transformer]) -> None:
    shared = random_model(n_layers=6, share="all", share_groups=2)
    pointers = [value.data_ptr() for value in shared.state_dict().values()]
    assert len(set(pointers)) == len(pointers)
    assert len([name for name in shared.state_dict() if name.endswith("projection.weight")]) == 2


def test_position_tables_of_layers_are_never_shared(
    random_model: Callable[..., Transformer],
) -> None:
    model = random_model(n_layers=4, share="all", positions="learned-per-layer")
    assert len(model.positions.tables) == 4
