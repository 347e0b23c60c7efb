"""Tokens are where the model's own sub-layers put them, step by step."""

import math
from dataclasses import astuple
from typing import Any

import pytest
import torch
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import ConfigError
from sublayer.inspection.paths import (
    check_steps,
    follow_tokens,
    measure_motions,
    measure_spread,
)
from sublayer.inspection.plane import fit_plane
from sublayer.inspection.sample import Sample
from sublayer.model.build import build
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.transformer import Transformer

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])
WRITTEN = torch.tensor([[2, 7, 1, 8, 2]])


def model_of(**fields: Any) -> Transformer:
    settings = {"n_layers": 3, "d_model": 6, "n_heads": 3, "d_ff": 11, "init_std": 0.4, **fields}
    config = resolve_model(ModelConfig.model_validate(settings), vocab_size=17, context=13)
    return build(config, seed=3).double().eval()


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
    assert [astuple(step) for step in paths.steps] == [
        (1, "attention", "attention"),
        (1, "ffn", "ffn:relu*0.5"),
    ]
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


def test_a_step_back_by_the_mean_leaves_tokens_around_0() -> None:
    model = by_hand(block=["attention*-1.0"])
    (paths,) = follow_tokens(model, [Sample(torch.tensor([[0, 1, 1, 0, 1]]))], n_tokens=5)
    assert paths.steps[0].name == "attention*-1.0"
    assert float(paths.states[1].mean(0).abs().max()) < 1e-15


def test_steps_of_nothing_leave_tokens_where_they_are() -> None:
    model = model_of(block="macaron")
    for layer in range(3):
        for sublayer in model.stack.block(layer):
            sublayer.step_size = 0.0
    (paths,) = follow_tokens(model, [Sample(TOKENS)], n_tokens=7)
    plane = fit_plane(paths.states.reshape(-1, 6))
    spread = measure_spread(paths.states[0])
    for motion in measure_motions(paths.states, plane):
        assert (motion.length, motion.spread) == (0.0, spread)
        assert math.isnan(motion.in_plane)


SETTINGS: list[dict[str, Any]] = [
    {"block": "macaron", "positions": "rotary", "norm": "rms"},
    {"norm_order": "post", "block": "macaron", "positions": "learned-per-layer"},
    {"share": "all", "n_layers": 4, "positions": "learned-per-layer"},
    {"kind": "encoder", "norm_order": "post", "share": "all", "d_embed": 4, "segments": "both"},
]


@pytest.mark.parametrize("fields", SETTINGS)
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
    # What each step adds leads from the first state to the last.
    steps = paths.states[1:] - paths.states[:-1]
    torch.testing.assert_close(paths.states[0] + steps.sum(0), paths.states[-1])


def test_both_stacks_of_a_translator_are_followed() -> None:
    model = model_of(kind="encoder-decoder", norm_order="post", n_decoder_layers=2)
    assert isinstance(model, EncoderDecoder)
    samples = [Sample(TOKENS), Sample(WRITTEN)]
    encoder, decoder = follow_tokens(model, samples, n_tokens=7)
    assert [(each.stack, each.states.shape[1]) for each in (encoder, decoder)] == [
        ("encoder", 7),
        ("decoder", 5),
    ]
    with torch.no_grad():
        memory = model.encode(TOKENS)
        final = model.hidden(WRITTEN, Sample(WRITTEN).layout(model.shape), memory=memory).final
        torch.testing.assert_close(model.source.final_norm(encoder.states[-1]), memory.states[0])
        torch.testing.assert_close(model.final_norm(decoder.states[-1]), final[0])
    kinds = [step.kind for step in decoder.steps if step.kind != "norm"]
    assert kinds == ["attention", "cross", "ffn"] * 2
    alone = follow_tokens(model, samples[:1], n_tokens=7)
    assert len(alone) == 1
    assert torch.equal(alone[0].states, encoder.states)


def test_steps_are_named_in_their_order_with_norms_behind_and_positions_before() -> None:
    model = model_of(
        n_layers=2, norm_order="post", block="macaron", positions="learned-per-layer", ffn="gelu"
    )
    (paths,) = follow_tokens(model, [Sample(TOKENS)], n_tokens=2)
    block = ["ffn:gelu*0.5", "norm", "attention", "norm", "ffn:gelu*0.5", "norm"]
    assert [step.name for step in paths.steps] == [*block, "positions", *block]
    assert [step.layer for step in paths.steps] == [1] * 6 + [2] * 7
    # Behind a norm, tokens are as long as its gains make them: of these, 1.
    assert paths.states[-1].square().mean(1).tolist() == pytest.approx([1.0, 1.0], rel=1e-3)


@pytest.mark.parametrize(("kind", "side"), [("decoder", "left"), ("encoder-decoder", "right")])
def test_padding_changes_nothing_and_is_not_followed(kind: str, side: str) -> None:
    model = model_of(kind=kind)
    padded = []
    plain = [Sample(TOKENS)]
    if kind == "encoder-decoder":
        plain.append(Sample(WRITTEN))
    for sample in plain:
        padding = torch.full((1, 3), 16)
        real = torch.ones_like(sample.tokens, dtype=torch.bool)
        parts = [(sample.tokens, real), (padding, torch.zeros(1, 3, dtype=torch.bool))]
        if side == "left":
            parts.reverse()
        tokens, masks = zip(*parts, strict=True)
        padded.append(Sample(torch.cat(tokens, dim=1), torch.cat(masks, dim=1)))
    for one, other in zip(
        follow_tokens(model, plain, n_tokens=13),
        follow_tokens(model, padded, n_tokens=13),
        strict=True,
    ):
        assert one.steps == other.steps
        torch.testing.assert_close(one.states, other.states, rtol=1e-12, atol=1e-12)


def test_tokens_that_are_not_followed_are_read() -> None:
    for kind, is_causal in (("decoder", True), ("encoder", False)):
        model = model_of(kind=kind)
        (whole,) = follow_tokens(model, [Sample(TOKENS)], n_tokens=7)
        (few,) = follow_tokens(model, [Sample(TOKENS)], n_tokens=3)
        torch.testing.assert_close(few.states, whole.states[:, :3])
        (cut,) = follow_tokens(model, [Sample(TOKENS[:, :3])], n_tokens=3)
        # What is behind moves an encoder's tokens, and none of a decoder's.
        assert torch.allclose(cut.states, whole.states[:, :3]) == is_causal


def test_documents_are_kept_apart() -> None:
    model = model_of(kind="encoder")
    ids = torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    (apart,) = follow_tokens(model, [Sample(TOKENS, document_ids=ids)], n_tokens=3)
    (alone,) = follow_tokens(model, [Sample(TOKENS[:, :3])], n_tokens=3)
    torch.testing.assert_close(apart.states, alone.states)


def test_a_model_in_training_is_followed_without_dropout_and_stays_in_training() -> None:
    model = model_of(dropout=0.5)
    (quiet,) = follow_tokens(model, [Sample(TOKENS)], n_tokens=7)
    model.train()
    (found,) = follow_tokens(model, [Sample(TOKENS)], n_tokens=7)
    assert torch.equal(found.states, quiet.states)
    assert model.training


def test_layers_that_add_no_step_are_refused() -> None:
    lstm = resolve_model(ModelConfig(kind="lstm"), vocab_size=17, context=13)
    with pytest.raises(ConfigError, match="run is an LSTM"):
        check_steps(lstm, "run")
    check_steps(model_of().config, "run")


def basis(size: int) -> Tensor:
    drawn = torch.randn(size, size, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return torch.linalg.qr(drawn).Q


def test_states_on_a_known_plane_are_found_there() -> None:
    # Along the first axis they vary by 3 squared, along the second by 1.
    places = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    axes = basis(5)[:2]
    centre = torch.arange(5, dtype=torch.float64)
    plane = fit_plane(centre + places @ axes)
    assert plane.shares == pytest.approx((0.9, 0.1))
    torch.testing.assert_close(plane.centre, centre)
    signs = (plane.axes * axes).sum(1)
    torch.testing.assert_close(signs.abs(), torch.ones(2, dtype=torch.float64))
    found = plane.coordinates(centre + places @ axes)
    torch.testing.assert_close(found, places * signs)
    # Of an axis and its opposite the one is taken whose largest part is positive.
    assert bool((plane.axes.max(1).values == plane.axes.abs().max(1).values).all())


def test_moves_out_of_the_plane_are_not_within_it() -> None:
    places = torch.tensor([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 0.0]])
    plane = fit_plane(places.double())
    moves = torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.0, 4.0]], dtype=torch.float64)
    assert plane.share_within(moves) == pytest.approx(9 / 25)
    assert plane.share_within(moves[:1]) == pytest.approx(1.0)
    assert math.isnan(plane.share_within(0.0 * moves))


def test_states_on_a_line_have_no_second_component() -> None:
    width = 1
    direction = torch.ones(width, dtype=torch.float64)
    states = torch.tensor([[1.0], [2.0], [6.0]], dtype=torch.float64) * direction
    plane = fit_plane(states)
    assert plane.shares == pytest.approx((1.0, 0.0))
    expected = torch.tensor([[-2.0], [-1.0], [3.0]], dtype=torch.float64) * math.sqrt(width)
    torch.testing.assert_close(plane.coordinates(states)[:, :1], expected)
    assert plane.coordinates(states)[:, 1].tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-14)


def test_equal_states_have_no_shares_and_stand_in_the_centre() -> None:
    states = torch.ones(4, 3, dtype=torch.float64)
    plane = fit_plane(states)
    assert all(map(math.isnan, plane.shares))
    assert plane.coordinates(states).tolist() == [[0.0, 0.0]] * 4


def test_no_other_plane_has_a_larger_share() -> None:
    generator = torch.Generator().manual_seed(2)
    states = torch.randn(11, 7, generator=generator, dtype=torch.float64)
    plane = fit_plane(states)
    centred = states - states.mean(0)
    assert sum(plane.shares) == pytest.approx(plane.share_within(centred))
    other = basis(7)[:2]
    along = (centred @ other.T).square().sum() / centred.square().sum()
    assert float(along) < sum(plane.shares)
