"""Changes by blocks, paths of tokens, labels, and splittings of known flows and of layers."""

import math
from contextlib import nullcontext
from itertools import combinations, product

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from sublayer.config.model import SUBLAYERS, ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.config.stacks import is_one_block
from sublayer.errors import ConfigError, DataError
from sublayer.inspection.layer_change import QUANTITIES, LayerChange, Spread, mean_changes
from sublayer.inspection.splitting import (
    check_flows,
    leading_term,
    linear_problem,
    local_errors,
    measure_splitting,
    nonlinear_problem,
    predicted_term,
)
from sublayer.inspection.states import (
    Box,
    Panel,
    Sample,
    compare_states,
    draw_paths,
    follow_tokens,
    measure_layers,
    project,
    raise_labels,
    spread_rows,
    spread_windows,
)
from sublayer.model.blocks import FUNCTIONS, Sublayer
from sublayer.model.transformer import build
from tests.breadth import examples
from tests.evaluation.test_likelihood import split_of


def config_of(**fields):
    settings = {"n_layers": 3, "d_model": 6, "n_heads": 3, "d_ff": 11, "init_std": 0.4, **fields}
    return resolve_model(ModelConfig.model_validate(settings), vocab_size=17, context=13)


def model_of(**fields):
    return build(config_of(**fields), seed=3).double().eval()


def padded(tokens, side):
    fill = torch.full((len(tokens), 3), 16)
    parts = ((tokens, tokens >= 0), (fill, fill < 0))[:: 1 if side == "right" else -1]
    return Sample(*(torch.cat(both, dim=1) for both in zip(*parts, strict=True)))


MODELS = [
    {"share": "all", "n_layers": 4, "positions": "learned-per-layer", "block": "macaron"},
    {"kind": "encoder", "norm_order": "post", "share": "all", "d_embed": 4, "segments": "both"},
    {"block": ["attention+ffn"], "norm_order": "around"},
]

TOKENS = torch.arange(35).view(5, 7) % 17


def numbers(changes):
    spreads = [[getattr(change, name) for name in QUANTITIES] for change in changes]
    return np.array([[[spread.mean, *spread.quartiles] for spread in row] for row in spreads])


def by_hooks(model, tokens):
    calls, blocks = [], map(model.stack.block, range(model.config.n_layers))
    # A sub-layer in parallel to another is called by it.
    for sublayer in {each for block in blocks for each in block if type(each) is Sublayer}:
        sublayer.register_forward_hook(lambda _, given, result: calls.append((given[0], result[0])))
    with torch.no_grad():
        model(tokens)
    n = len(model.stack.groups)
    return [(calls[first][0], calls[first + n - 1][1]) for first in range(0, len(calls), n)]


@pytest.mark.parametrize("before, after, distance, angle", [
    ((3.0, 4.0), (6.0, 8.0), 5.0, 0.0), ((1.0, 0.0), (0.0, 2.0), math.sqrt(5.0), 90.0),
    ((2.0, 0.0), (-1.0, 0.0), 3.0, 180.0),
    ((1.0, 0.0), (math.cos(1e-9), math.sin(1e-9)), 1e-9, math.degrees(1e-9)),
])  # fmt: skip
def test_distances_and_angles_by_hand(before, after, distance, angle):
    pair = (torch.tensor([state], dtype=torch.float64) for state in (before, after))
    norms = (math.hypot(*before), math.hypot(*after))
    expected = (distance, math.cos(math.radians(angle)), angle, *norms)
    assert compare_states(*pair)[:, 0].tolist() == pytest.approx(expected, rel=1e-14, abs=1e-15)


@pytest.mark.parametrize("fields", MODELS)
def test_the_numbers_are_those_of_hooks_on_every_executed_block(fields):
    model = model_of(**fields)
    found = numbers(measure_layers(model, Sample(TOKENS), batch_sequences=2))
    watched = by_hooks(model, TOKENS)
    assert len(found) == len(watched) == model.config.n_layers
    for row, (before, after) in zip(found, watched, strict=True):
        distance, cosine = (after - before).norm(dim=2), torch.cosine_similarity(before, after, 2)
        norms = before.norm(dim=2), after.norm(dim=2)
        values = (distance, cosine, cosine.arccos().rad2deg(), *norms)
        expected = [[value.mean(), *np.quantile(value, [0.25, 0.5, 0.75])] for value in values]
        np.testing.assert_allclose(row, expected, rtol=1e-9)


def test_a_block_run_beyond_is_that_of_a_model_with_more_layers():
    fields = {"share": "all", "norm_order": "post", "positions": "alibi", "block": "macaron"}
    fields |= {"value_residual": "learned"}
    model, deeper = (model_of(**fields, n_layers=n) for n in (3, 7))
    deeper.load_state_dict(model.state_dict())
    found = measure_layers(model, Sample(TOKENS), batch_sequences=2, beyond=4)
    expected = measure_layers(deeper, Sample(TOKENS), batch_sequences=2)
    np.testing.assert_allclose(numbers(found), numbers(expected), rtol=1e-12)
    assert [change.is_beyond for change in found] == [False] * 3 + [True] * 4
    assert found[:3] == measure_layers(model, Sample(TOKENS), batch_sequences=2)


def test_different_blocks_cannot_be_run_beyond():
    assert is_one_block(config_of(share="attention", block=["attention"]))
    assert not is_one_block(config_of(share="ffn"))
    apart = [{"n_layers": 4, "share_groups": 2}, {"n_layers": 4, "share_inner": 2}]
    apart += [{"positions": "learned-per-layer"}, {"kind": "encoder-decoder"}]
    assert [fields for fields in apart if is_one_block(config_of(share="all", **fields))] == []


def test_neither_batches_nor_dropout_change_what_is_measured():
    model, done = model_of(dropout=0.5), []
    whole = numbers(measure_layers(model, Sample(TOKENS), batch_sequences=5))
    model.train()
    progress = lambda *counts: done.append(counts)  # noqa: E731
    parts = measure_layers(model, Sample(TOKENS), batch_sequences=1, progress=progress)
    np.testing.assert_allclose(numbers(parts), whole, rtol=1e-12)
    assert model.training and done == [(7, 35), (14, 35), (21, 35), (28, 35), (35, 35)]


@pytest.mark.parametrize(("kind", "side"), [("decoder", "left"), ("encoder", "right")])
def test_padding_is_not_counted_and_changes_nothing(kind, side):
    model, short = model_of(kind=kind, share="all"), TOKENS[:, :4]
    samples = (padded(short, side), Sample(short))
    found = [measure_layers(model, each, batch_sequences=2, beyond=2) for each in samples]
    np.testing.assert_allclose(*map(numbers, found), rtol=1e-10)


def test_the_mean_of_models_is_that_of_each_number_of_each_block():
    def change(value, is_beyond):
        spread = Spread(value, (value - 1.0, value, value + 2.0))
        angle = Spread(10.0 * value, (0.0, 1.0, value))
        return LayerChange(1, spread, spread, angle, spread, spread, is_beyond=is_beyond)

    found = mean_changes([[change(1.0, False), change(4.0, True)], [change(2.0, False)] * 2])
    assert found == [change(1.5, False), change(3.0, True)]
    values = found[0].flat()
    assert (values["angle_degrees"], values["angle_degrees_quartiles"]) == (15.0, [0.0, 1.0, 1.5])


@pytest.mark.parametrize("max_tokens, firsts", [
    (1, [0]), (11, [0, 8]), (12, [0, 4, 12]), (99, [0, 4, 8, 12, 16]),
])  # fmt: skip
def test_windows_are_spread_and_keep_to_the_limit(max_tokens, firsts):
    sample = spread_windows(split_of(range(23)), context=4, max_tokens=max_tokens)
    assert sample.tokens.tolist() == [[*range(first, first + 4)] for first in firsts]
    assert (sample.n_tokens, sample.document_ids) == (4 * len(firsts), None)


def test_documents_are_numbered_where_they_are_kept_apart():
    split = split_of(range(12), document_starts=(0, 5, 7))
    sample = spread_windows(split, context=4, max_tokens=12, respect_boundaries=True)
    assert sample.document_ids.tolist() == [[1, 1, 1, 1], [1, 2, 2, 3], [3, 3, 3, 3]]
    assert sample[1:2].document_ids.tolist() == [[1, 2, 2, 3]]
    with pytest.raises(DataError, match="12 tokens, fewer than a window of 13"):
        spread_windows(split, context=13, max_tokens=100)


def test_rows_are_the_shortest_first_and_keep_no_padding_that_all_of_them_have():
    rows = [np.arange(length) for length in (5, 2, 7, 3)]
    sample = spread_rows(rows, pad_id=99, max_tokens=100)
    assert sample.mask.sum(1).tolist() == [2, 3, 5, 7]
    assert sample[:2].tokens.tolist() == [[0, 1, 99], [0, 1, 2]]
    assert sample[2:].tokens.shape == (2, 7) and sample[2:].n_tokens == 12
    few = spread_rows(rows, pad_id=99, max_tokens=9)  # of two rows, by their mean length
    assert few.mask.sum(1).tolist() == [5, 7]


ROW = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])
WRITTEN = torch.tensor([[2, 7, 1, 8, 2]])


def by_hand(**fields):
    """Make a model whose attention adds the mean of all tokens, and whose network adds itself."""
    plain = {"norm": "none", "positions": "none", "bias": False, "ffn": "relu"}
    size = {"n_layers": 1, "d_model": 4, "n_heads": 1, "d_ff": 8}
    model = model_of(kind="encoder", **plain, **size, **fields)
    eye = torch.eye(4, dtype=torch.float64)
    with torch.no_grad():
        for sublayer in model.stack.block(0):
            for name, weight in sublayer.function.named_parameters():
                if name == "projection.weight":
                    weight.copy_(torch.stack([0 * eye, 0 * eye, eye]))  # equal scores
                else:  # relu(x) - relu(-x) is x
                    both = torch.cat([eye, -eye], dim=int(weight.shape == (4, 8)))
                    weight.copy_(both if max(weight.shape) == 8 else eye)
        model.embedding.weight[:2] = torch.tensor([[2.0, 1.0, 0.0, 0.0], [0.0, -1.0, 0.0, 0.0]])
    return model


def test_a_path_is_what_one_computes_by_hand():
    model = by_hand(block=["attention", "ffn*0.5"])
    (paths,) = follow_tokens(model, [Sample(torch.tensor([[0, 1]]))], n_tokens=2)
    assert (paths.stack, paths.steps) == ("encoder", ("attention", "ffn"))
    # The mean of both, (1, 0), is added to each; then half of each to itself.
    expected = [[[2.0, 1.0], [0.0, -1.0]], [[3.0, 1.0], [1.0, -1.0]], [[4.5, 1.5], [1.5, -1.5]]]
    torch.testing.assert_close(paths.states[..., :2], torch.tensor(expected).double())
    coordinates, shares = project(paths.states)
    assert (coordinates.shape, sum(shares)) == ((3, 2, 2), pytest.approx(1.0))
    # On a plane nothing is lost: all distances are those of the states.
    distances = [torch.cdist(*[each.flatten(0, 1)] * 2) for each in (coordinates, paths.states)]
    torch.testing.assert_close(*distances)


@pytest.mark.parametrize("fields", MODELS)
def test_the_states_are_those_of_the_model(fields):
    model = model_of(**fields)
    (paths,) = follow_tokens(model, [Sample(ROW)], n_tokens=7)
    layout = Sample(ROW).layout(model.shape)
    with torch.no_grad():
        hidden = model.hidden(ROW, layout, capture=range(model.config.n_layers + 1))
        torch.testing.assert_close(model.final_norm(paths.states[-1]), hidden.final[0])
    # Before each block but the first, positions may be added.
    n_added = int("positions" in paths.steps)
    n_steps = (len(paths.steps) + n_added) // model.config.n_layers
    torch.testing.assert_close(paths.states[0], hidden.captured[0][0])
    for layer in range(1, model.config.n_layers + 1):
        behind = paths.states[layer * n_steps - n_added]
        torch.testing.assert_close(behind, hidden.captured[layer][0])


def test_both_stacks_of_a_translator_are_followed():
    model = model_of(kind="encoder-decoder", norm_order="post", n_decoder_layers=2)
    samples = [Sample(ROW), Sample(WRITTEN)]
    encoder, decoder = follow_tokens(model, samples, n_tokens=7)
    found = [(each.stack, each.states.shape[1]) for each in (encoder, decoder)]
    assert found == [("encoder", 7), ("decoder", 5)]
    with torch.no_grad():
        memory = model.encode(ROW)
        final = model.hidden(WRITTEN, Sample(WRITTEN).layout(model.shape), memory=memory).final
        torch.testing.assert_close(model.source.final_norm(encoder.states[-1]), memory.states[0])
        torch.testing.assert_close(model.final_norm(decoder.states[-1]), final[0])
    kinds = [kind for kind in decoder.steps if kind != "norm"]
    assert kinds == ["attention", "cross", "ffn"] * 2
    (alone,) = follow_tokens(model, samples[:1], n_tokens=7)
    assert torch.equal(alone.states, encoder.states)


def test_steps_are_named_in_their_order_with_norms_behind_and_positions_before():
    fields = {"norm_order": "post", "block": "macaron", "positions": "learned-per-layer"}
    (paths,) = follow_tokens(model_of(n_layers=2, **fields), [Sample(ROW)], n_tokens=2)
    block = ["ffn", "norm", "attention", "norm", "ffn", "norm"]
    assert paths.steps == (*block, "positions", *block)
    # Behind a norm, tokens are as long as its gains make them: of these, 1.
    assert paths.states[-1].square().mean(1).tolist() == pytest.approx([1.0, 1.0], rel=1e-3)


@pytest.mark.parametrize(("kind", "side"), [("decoder", "left"), ("encoder-decoder", "right")])
def test_padding_changes_nothing_and_is_not_followed(kind, side):
    model = model_of(kind=kind)
    rows = [ROW, WRITTEN][: len(model.stacks)]
    expected = follow_tokens(model, list(map(Sample, rows)), n_tokens=13)
    found = follow_tokens(model, [padded(row, side) for row in rows], n_tokens=13)
    for one, other in zip(found, expected, strict=True):
        assert one.steps == other.steps
        torch.testing.assert_close(one.states, other.states, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kind", "is_causal"), [("decoder", True), ("encoder", False)])
def test_tokens_that_are_not_followed_are_read(kind, is_causal):
    model = model_of(kind=kind, dropout=0.5)
    (whole,) = follow_tokens(model, [Sample(ROW)], n_tokens=7)
    model.train()
    (few,) = follow_tokens(model, [Sample(ROW)], n_tokens=3)
    torch.testing.assert_close(few.states, whole.states[:, :3])
    (cut,) = follow_tokens(model, [Sample(ROW[:, :3])], n_tokens=3)
    # What is behind moves an encoder's tokens, and none of a decoder's.
    assert torch.allclose(cut.states, whole.states[:, :3]) == is_causal


def test_states_on_a_known_plane_are_found_there():
    # Along the first axis they vary by 3 squared, along the second by 1.
    places = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    axes = torch.linalg.qr(torch.arange(25, dtype=torch.float64).view(5, 5).sin()).Q[:2]
    centre = torch.arange(5, dtype=torch.float64)
    coordinates, shares = project((centre + places @ axes).view(2, 2, 5))
    assert shares == pytest.approx((0.9, 0.1))
    # Of an axis and its opposite the one is taken whose largest part is positive.
    signs = torch.stack([axis[axis.abs().argmax()].sign() for axis in axes])
    torch.testing.assert_close(coordinates, (places * signs).view(2, 2, 2))
    # States on a line have no second component, and those on a point none.
    assert project(places[:, :1])[1] == pytest.approx((1.0, 0.0))
    assert all(map(math.isnan, project(torch.ones(4, 3))[1]))


def test_free_labels_stay_and_covered_ones_stand_above_all_in_their_way():
    low, same, right, high = Box(0, 0, 4, 2), Box(1, 1, 5, 3), Box(6, 0, 9, 2), Box(0, 9, 4, 11)
    assert raise_labels([high, same, right, low], gap=0.5) == [0.0, 1.5, 0.0, 0.0]
    assert sorted(raise_labels([low] * 3, gap=1.0)) == [0.0, 3.0, 6.0]


PLACES = st.tuples(*[st.integers(0, 30)] * 2, *[st.integers(1, 9)] * 2)


@examples(100)
@given(st.lists(PLACES, max_size=12))
def test_no_label_covers_another_or_sinks(drawn):
    boxes = [Box(x, y, x + width, y + height) for x, y, width, height in drawn]
    heights = raise_labels(boxes, gap=1.0)
    assert all(height >= 0.0 for height in heights)
    raised = [box.raised(height) for box, height in zip(boxes, heights, strict=True)]
    assert not any(one.covers(other) for one, other in combinations(raised, 2))


POST = {"norm_order": "post", "norm_affine": False}


def model_of_splitting(**fields):
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": None, "init": "normal", "init_std": 0.2}
    return model_of(**{**sizes, **POST, **fields})


def sample(seed, *lengths):
    n, generator = max(lengths), torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 17, (3, n), generator=generator)
    return Sample(tokens, torch.arange(n) < torch.tensor(lengths)[:, None])


def measured(model):
    samples = (sample(0, 12, 7, 12), sample(1, 4, 9, 8))[: len(model.stacks)]
    return measure_splitting(model, *samples, batch_sequences=3)


@pytest.mark.parametrize("kind, fields, first", [
    ("decoder", {"norm_order": "pre", "positions": "rotary", "value_residual": "learned"}, 1),
    ("encoder-decoder", {"norm_order": "pre", "positions": "learned-per-layer"}, 1),
    # What enters the first layer of a stack is on no sphere.
    ("encoder", {"norm": "layer"}, 2), ("encoder-decoder", {"norm": "rms"}, 2),
])  # fmt: skip
def test_a_layer_takes_lies_step(kind, fields, first):
    found = measured(model_of_splitting(kind=kind, **fields))
    expected = list(product(kind.split("-"), range(first, 4)))
    assert [(each.stack, each.layer) for each in found] == expected
    for each in found:
        assert each.own == pytest.approx(each.lie, rel=1e-9)
        assert each.way > 0 and min(each.lie, each.strang) > 0


@pytest.mark.parametrize("order", ["pre", "post"])
def test_equal_halves_are_strangs_step(order):
    model = model_of_splitting(kind="encoder-decoder", block="macaron", norm_order=order)
    for stack in model.stacks:
        for layer in range(3):
            first, *_, second = stack.block(layer)
            second.load_state_dict(first.state_dict())
    for each in measured(model):
        assert each.own == pytest.approx(each.strang, rel=1e-9)
        assert each.own != pytest.approx(each.lie, rel=1e-3)


def test_a_rotation_errs_by_the_angle_that_one_computes_by_hand():
    """In a circle ``x + a J x``, normed, is turned by atan a, where the flow turns it by a."""
    angle = 0.75
    plain = {"positions": "none", "bias": False, "ffn": "relu", "block": ["ffn"], "norm": "rms"}
    sizes = {"d_model": 2, "n_heads": 1, "d_ff": 4, "n_layers": 2, "norm_eps": 1e-300}
    model = model_of_splitting(kind="encoder", **sizes, **plain)
    eye = torch.eye(2, dtype=torch.float64)
    turn = angle * torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    with torch.no_grad():
        for layer in range(2):
            (network,) = model.stack.block(layer)
            for weight in network.function.parameters():
                is_input = tuple(weight.shape) == (4, 2)  # relu(x) - relu(-x) is x
                weight.copy_(torch.cat([eye, -eye]) if is_input else torch.cat([turn, -turn], 1))
    (second,) = measured(model)
    chord = math.sin(angle / 2)
    lie = math.sin((angle - math.atan(angle)) / 2) / chord
    strang = math.sin((angle - 2 * math.atan(angle / 2)) / 2) / chord
    assert second.layer == 2
    assert second.way == pytest.approx(2 * math.sqrt(2) * chord, rel=1e-6)
    assert (second.lie, second.strang) == pytest.approx((lie, strang), rel=1e-4)
    assert second.own == pytest.approx(second.lie, rel=1e-9)


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
def test_a_new_kind_of_sublayer_is_measured_and_drawn_as_those_that_attend_alike(kind, monkeypatch):
    added = {"attention": "mixing", "ffn": "network"}
    for old, new in added.items():
        monkeypatch.setitem(SUBLAYERS, new, SUBLAYERS[old])
        monkeypatch.setitem(FUNCTIONS, new, FUNCTIONS[old])
    known = ["ffn*0.5", "attention", "ffn*0.5"]
    found = []
    for block in (known, ["ffn*0.5", "mixing", "network*0.5"]):
        model = model_of_splitting(kind=kind, norm_order="pre", block=block)
        panels = []
        for paths in follow_tokens(
            model, [Sample(ROW), Sample(WRITTEN)][: len(model.stacks)], n_tokens=5
        ):
            places, shares = project(paths.states)
            panels.append(Panel(paths.stack, list("abcde"), paths.steps, shares, places.tolist()))
        found.append((measured(model), draw_paths(panels, [""] * len(panels))))
        steps = panels[-1].steps
    assert found[0] == found[1]
    assert set(steps) - {"cross"} == {"ffn", "mixing", "network"}


def test_layers_that_are_no_steps_are_refused():
    for fields, message in (
        ({"kind": "lstm"}, "is an LSTM"),
        ({"norm_order": "post"}, "norms with gains"),
        (POST | {"positions": "learned-per-layer"}, "model.positions = learned-per-layer"),
        (POST | {"n_layers": 1}, "one layer"),
        ({"norm_order": "pre", "n_layers": 1, "positions": "learned-per-layer"}, None),
        (POST | {"kind": "encoder-decoder", "n_layers": 1, "n_decoder_layers": 2}, None),
        ({"norm": "none", "n_layers": 1}, None),
    ):
        config = resolve_model(ModelConfig.model_validate(fields), vocab_size=23, context=12)
        with pytest.raises(ConfigError, match=message) if message else nullcontext():
            check_flows(config, "run")


def test_batches_and_padding_change_nothing_and_sources_are_read():
    model = model_of_splitting(kind="encoder-decoder", norm_order="pre")

    def measure(n_rows, behind, first):
        read, written, done = sample(0, 12, 7, 12), sample(1, 4, 9, 8), []
        read.tokens[1, 7:], written.tokens[0, 4:], read.tokens[0, 0] = behind, behind, first
        progress = lambda *counts: done.append(counts)  # noqa: E731
        found = measure_splitting(model, read, written, batch_sequences=n_rows, progress=progress)
        assert done[-1] == (31 + 21, 31 + 21)
        return np.array([[each.lie, each.strang, each.own, each.way] for each in found])

    expected = measure(3, 3, first=1)
    np.testing.assert_allclose(measure(1, 5, first=1), expected, rtol=1e-9)
    other = measure(3, 3, first=2)
    assert (other[3:, 3] != expected[3:, 3]).all()


ORDERS = {"Lie (Transformer)": 2, "Strang (Macaron)": 3, "Strang, attention outside": 3}
ORDERS |= {"two half layers": 2, "Yoshida": 5}


@pytest.mark.parametrize(("splitting", "order"), ORDERS.items())
def test_exact_flows_have_the_order_of_the_theorem(splitting, order):
    problem = linear_problem(seed=3) if order == 5 else nonlinear_problem(seed=3)
    steps = [2.0**-k for k in ((2, 3, 4) if order == 5 else (4, 5, 6, 7))]
    errors = local_errors(problem, splitting, "exact", steps)
    assert errors.slopes[-1] == pytest.approx(order, abs=0.2)


def test_the_leading_terms_are_those_worked_out_by_hand():
    rng = np.random.Generator(np.random.PCG64(7))
    a, b = (rng.standard_normal((6, 6)) / np.sqrt(6) for _ in range(2))
    x = rng.standard_normal(6)
    problem = linear_problem(seed=7)
    assert problem.fields["F"](x) == pytest.approx(a @ x)
    assert problem.fields["G"](x) == pytest.approx(b @ x)
    # Scheme less exact, over h^2; F = A x first in Lie's, G = B x outside in Strang's.
    lie = -(a @ a / 2 + b @ b / 2 + a @ b / 2 - b @ a / 2) @ problem.start
    strang = -(a @ a / 2 + b @ b / 4) @ problem.start
    for name, term in (("Lie (Transformer)", lie), ("Strang (Macaron)", strang)):
        assert leading_term(problem, name) == pytest.approx(term, abs=1e-5)
        assert predicted_term(problem, name) == pytest.approx(term)
