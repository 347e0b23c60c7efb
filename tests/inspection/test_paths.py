"""Tokens are where the model's own sub-layers put them, step by step."""

import math
from dataclasses import astuple
from typing import Any

import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import ConfigError
from sublayer.inspection.paths import check_steps, follow_tokens, measure_motions, measure_spread
from sublayer.inspection.plane import fit_plane
from sublayer.inspection.sample import Sample
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.transformer import Transformer
from tests.inspection.models import model_of

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])
WRITTEN = torch.tensor([[2, 7, 1, 8, 2]])


def by_hand(**fields: Any) -> Transformer:
    """Make a model whose attention adds the mean of all tokens, and whose network adds itself."""
    plain = {"norm": "none", "positions": "none", "bias": False, "ffn": "relu"}
    size = {"n_layers": 1, "d_model": 4, "n_heads": 1, "d_ff": 8}
    model = model_of(kind="encoder", **plain, **size, **fields)
    eye = torch.eye(4, dtype=torch.float64)
    with torch.no_grad():
        for sublayer in model.stack.block(0):
            for name, weight in sublayer.function.named_parameters():
                if name == "projection.weight":
                    weight.zero_()  # equal scores
                    weight[2] = eye
                elif tuple(weight.shape) == (8, 4):
                    weight.copy_(torch.cat([eye, -eye]))  # relu(x) - relu(-x) is x
                elif tuple(weight.shape) == (4, 8):
                    weight.copy_(torch.cat([eye, -eye], dim=1))
                else:
                    weight.copy_(eye)
        model.embedding.weight[:2] = torch.tensor([[2.0, 1.0, 0.0, 0.0], [0.0, -1.0, 0.0, 0.0]])
    return model


def test_a_path_is_what_one_computes_by_hand() -> None:
    model = by_hand(block=["attention", "ffn*0.5"])
    (paths,) = follow_tokens(model, [Sample(torch.tensor([[0, 1]]))], n_tokens=2)
    assert paths.stack == "encoder"
    steps = [(1, "attention", "attention"), (1, "ffn", "ffn:relu*0.5")]
    assert [astuple(step) for step in paths.steps] == steps
    # The mean of both, (1, 0), is added to each; then half of each to itself.
    expected = [[[2.0, 1.0], [0.0, -1.0]], [[3.0, 1.0], [1.0, -1.0]], [[4.5, 1.5], [1.5, -1.5]]]
    torch.testing.assert_close(paths.states[..., :2], torch.tensor(expected).double())
    plane = fit_plane(paths.states.reshape(-1, 4))
    assert sum(plane.shares) == pytest.approx(1.0)
    attention, network = measure_motions(paths.states, plane)
    assert measure_spread(paths.states[0]) == pytest.approx(math.sqrt(2))
    # What is the same for all tokens leaves them as far apart as they were.
    assert astuple(attention) == pytest.approx((1.0, 1.0, math.sqrt(2)))
    length = (math.sqrt(10) / 2 + math.sqrt(2) / 2) / 2
    assert astuple(network) == pytest.approx((length, 1.0, 1.5 * math.sqrt(2)))


@pytest.mark.parametrize(
    "fields",
    [
        {"share": "all", "n_layers": 4, "positions": "learned-per-layer", "norm": "rms"},
        {"kind": "encoder", "norm_order": "post", "share": "all", "d_embed": 4, "segments": "both"},
    ],
)
def test_the_states_are_those_of_the_model(fields: dict[str, Any]) -> None:
    model = model_of(**fields)
    (paths,) = follow_tokens(model, [Sample(TOKENS)], n_tokens=7)
    layout = Sample(TOKENS).layout(model.shape)
    with torch.no_grad():
        hidden = model.hidden(TOKENS, layout, capture=range(model.config.n_layers + 1))
        torch.testing.assert_close(model.final_norm(paths.states[-1]), hidden.final[0])
    # By the block that a state is behind, its last one: 0 is before all.
    last = {0: 0} | {step.layer: index for index, step in enumerate(paths.steps, start=1)}
    assert list(last) == list(hidden.captured)
    for layer, index in last.items():
        torch.testing.assert_close(paths.states[index], hidden.captured[layer][0])


def test_both_stacks_of_a_translator_are_followed() -> None:
    model = model_of(kind="encoder-decoder", norm_order="post", n_decoder_layers=2)
    assert isinstance(model, EncoderDecoder)
    samples = [Sample(TOKENS), Sample(WRITTEN)]
    encoder, decoder = follow_tokens(model, samples, n_tokens=7)
    found = [(each.stack, each.states.shape[1]) for each in (encoder, decoder)]
    assert found == [("encoder", 7), ("decoder", 5)]
    with torch.no_grad():
        memory = model.encode(TOKENS)
        final = model.hidden(WRITTEN, Sample(WRITTEN).layout(model.shape), memory=memory).final
        torch.testing.assert_close(model.source.final_norm(encoder.states[-1]), memory.states[0])
        torch.testing.assert_close(model.final_norm(decoder.states[-1]), final[0])
    kinds = [step.kind for step in decoder.steps if step.kind != "norm"]
    assert kinds == ["attention", "cross", "ffn"] * 2
    (alone,) = follow_tokens(model, samples[:1], n_tokens=7)
    assert torch.equal(alone.states, encoder.states)


def test_steps_are_named_in_their_order_with_norms_behind_and_positions_before() -> None:
    fields = {"norm_order": "post", "block": "macaron", "positions": "learned-per-layer"}
    model = model_of(n_layers=2, ffn="gelu", **fields)
    (paths,) = follow_tokens(model, [Sample(TOKENS)], n_tokens=2)
    block = ["ffn:gelu*0.5", "norm", "attention", "norm", "ffn:gelu*0.5", "norm"]
    assert [step.name for step in paths.steps] == [*block, "positions", *block]
    assert [step.layer for step in paths.steps] == [1] * 6 + [2] * 7
    # Behind a norm, tokens are as long as its gains make them: of these, 1.
    assert paths.states[-1].square().mean(1).tolist() == pytest.approx([1.0, 1.0], rel=1e-3)


@pytest.mark.parametrize(("kind", "side"), [("decoder", "left"), ("encoder-decoder", "right")])
def test_padding_changes_nothing_and_is_not_followed(kind: str, side: str) -> None:
    model = model_of(kind=kind)
    plain = [Sample(TOKENS), Sample(WRITTEN)][: len(model.stacks)]
    order = slice(None) if side == "right" else slice(None, None, -1)
    padded = []
    for sample in plain:
        tokens = [sample.tokens, torch.full((1, 3), 16)][order]
        real = [torch.ones_like(sample.tokens), torch.zeros(1, 3)][order]
        padded.append(Sample(torch.cat(tokens, dim=1), torch.cat(real, dim=1).bool()))
    expected = follow_tokens(model, plain, n_tokens=13)
    for one, other in zip(follow_tokens(model, padded, n_tokens=13), expected, strict=True):
        assert one.steps == other.steps
        torch.testing.assert_close(one.states, other.states, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kind", "is_causal"), [("decoder", True), ("encoder", False)])
def test_tokens_that_are_not_followed_are_read(kind: str, is_causal: bool) -> None:
    model = model_of(kind=kind, dropout=0.5)
    (whole,) = follow_tokens(model, [Sample(TOKENS)], n_tokens=7)
    model.train()
    (few,) = follow_tokens(model, [Sample(TOKENS)], n_tokens=3)
    assert model.training
    torch.testing.assert_close(few.states, whole.states[:, :3])
    (cut,) = follow_tokens(model, [Sample(TOKENS[:, :3])], n_tokens=3)
    # What is behind moves an encoder's tokens, and none of a decoder's.
    assert torch.allclose(cut.states, whole.states[:, :3]) == is_causal


def test_layers_that_add_no_step_are_refused() -> None:
    lstm = resolve_model(ModelConfig(kind="lstm"), vocab_size=17, context=13)
    with pytest.raises(ConfigError, match="run is an LSTM"):
        check_steps(lstm, "run")


def test_states_on_a_known_plane_are_found_there() -> None:
    # Along the first axis they vary by 3 squared, along the second by 1.
    places = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    axes = torch.linalg.qr(torch.arange(25, dtype=torch.float64).view(5, 5).sin()).Q[:2]
    centre = torch.arange(5, dtype=torch.float64)
    plane = fit_plane(centre + places @ axes)
    assert plane.shares == pytest.approx((0.9, 0.1))
    torch.testing.assert_close(plane.centre, centre)
    signs = (plane.axes * axes).sum(1)
    torch.testing.assert_close(plane.coordinates(centre + places @ axes), places * signs)
    # Of an axis and its opposite the one is taken whose largest part is positive.
    assert bool((plane.axes.max(1).values == plane.axes.abs().max(1).values).all())


def test_moves_out_of_the_plane_are_not_within_it() -> None:
    places = torch.tensor([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 0.0]])
    plane = fit_plane(places.double())
    moves = torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.0, 4.0]], dtype=torch.float64)
    assert plane.share_within(moves) == pytest.approx(9 / 25)
    assert math.isnan(plane.share_within(0.0 * moves))


def test_states_on_a_line_or_a_point_have_no_second_component() -> None:
    states = torch.tensor([[1.0], [2.0], [6.0]], dtype=torch.float64)
    plane = fit_plane(states)
    assert plane.shares == pytest.approx((1.0, 0.0))
    expected = torch.tensor([[-2.0, 0.0], [-1.0, 0.0], [3.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(plane.coordinates(states), expected, rtol=0, atol=1e-14)
    point = torch.ones(4, 3, dtype=torch.float64)
    assert all(map(math.isnan, fit_plane(point).shares))
    assert fit_plane(point).coordinates(point).tolist() == [[0.0, 0.0]] * 4
