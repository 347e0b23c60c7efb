"""A bias of labels is written into weights that have none, with the same logits."""

import pytest
import torch
from torch.nn.functional import layer_norm, linear

from sublayer.errors import ConfigError
from sublayer.interop.gpt2.score_bias import without_bias


def weights_of(seed: int, *, offset_scale: float, width: int = 24) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return {
        "final_norm.weight": 1.0 + 0.3 * draw(width),
        "final_norm.bias": offset_scale * draw(width),
        "label_head.weight": draw(3, width),
        "label_head.bias": draw(3),
        "embedding.weight": draw(5, width),
    }


def logits_of(weights: dict[str, torch.Tensor], states: torch.Tensor) -> torch.Tensor:
    gain, offset = weights["final_norm.weight"], weights["final_norm.bias"]
    normed = layer_norm(states, gain.shape, gain, offset)
    return linear(normed, weights["label_head.weight"], weights["label_head.bias"])


@pytest.mark.parametrize("offset_scale", [0.0, 1e-9, 0.1, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_logits_are_the_same_without_a_bias(seed: int, offset_scale: float) -> None:
    weights = weights_of(seed, offset_scale=offset_scale)
    states = torch.randn(50, 24, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    written = without_bias(weights)
    assert not written["label_head.bias"].any()
    expected = logits_of(weights, states)
    torch.testing.assert_close(logits_of(written, states), expected, rtol=0, atol=1e-12)


def test_offsets_that_add_up_stay_as_they_are() -> None:
    weights = weights_of(0, offset_scale=1.0)
    written = without_bias(weights)
    changed = {name for name in weights if not torch.equal(weights[name], written[name])}
    assert changed == {"label_head.weight", "label_head.bias"}


def test_a_bias_of_zeros_changes_nothing() -> None:
    weights = weights_of(0, offset_scale=0.0)
    weights["label_head.bias"].zero_()
    written = without_bias(weights)
    assert all(written[name] is weights[name] for name in weights)


def test_a_gain_of_zero_is_refused() -> None:
    weights = weights_of(0, offset_scale=1.0)
    weights["final_norm.weight"][3] = 0.0
    with pytest.raises(ConfigError, match="final_norm has a gain of zero"):
        without_bias(weights)
