"""Initial weights: their statistics by scheme and role, and their seeds."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from sublayer.config.model import ModelConfig
from sublayer.config.objectives.translation import TranslationObjective
from sublayer.config.resolve_model import resolve_model
from sublayer.data.packing import pairs_in_rows
from sublayer.errors import ConfigError
from sublayer.model.build import build, compose
from sublayer.model.init import initial_values, initialise, parameter_generator, zero_padding
from sublayer.model.layers.linear import Linear
from sublayer.objective.translation.loss import Translation

TABLE = "embedding.weight"


def config_of(**fields):
    sizes = {"n_layers": 3, "d_model": 64, "n_heads": 2, "d_ff": 160, "d_embed": 48}
    return resolve_model(ModelConfig(**{**sizes, **fields}), vocab_size=211, context=101)


def weights_of(model, ending):
    weights = model.state_dict()
    return torch.cat([weights[name].flatten() for name in weights if name.endswith(ending)])


def assert_std(values, std):
    # The standard error of a standard deviation is at most std / sqrt(2 n) for these distributions.
    assert values.std().item() == pytest.approx(std, abs=5 * std / math.sqrt(2 * values.numel()))
    assert abs(values.mean().item()) < 5 * std / math.sqrt(values.numel())


LEARNED = {"init": "t5", "ffn": "swish", "swish_beta": "learned"}


@pytest.mark.parametrize(
    "fields", [{"init": "scaled", "norm": "rms"}, {"init": "kaiming"}, LEARNED], ids=str
)
def test_every_parameter_is_set_gains_at_one_and_offsets_at_zero(fields):
    config = config_of(**{"tie_embeddings": False, "head_bias": True, "ffn": "swiglu", **fields})
    model = compose(config)
    for parameter in model.parameters():
        parameter.data.fill_(float("nan"))
    initialise(model, config, seed=0)
    for name, value in model.named_parameters():
        assert not value.isnan().any(), name
        if name.endswith(("norm.weight", "beta")):
            assert (value == 1).all(), name
        if name.endswith("bias"):
            assert (value == 0).all(), name


@pytest.mark.parametrize("init", ["truncated", "xavier", "t5"])
def test_values_of_bare_modules_are_those_of_built_ones(init):
    config = config_of(init=init, tie_embeddings=False, head_bias=True, ffn="swiglu")
    built = build(config, seed=3)
    with torch.device("meta"):
        bare = compose(config)
        initialise(bare, config, seed=3)
    names = {id(parameter): name for name, parameter in bare.named_parameters()}
    expected = dict(built.named_parameters())
    for parameter, value in initial_values(bare, config, seed=3):
        assert torch.equal(value, expected.pop(names[id(parameter)]))
    assert not expected


def test_normal_has_one_standard_deviation_everywhere():
    model = build(config_of(init="normal", init_std=0.05, tie_embeddings=False), seed=0)
    for ending in ("projection", "input", "output", "embedding", "head", "tables.0"):
        assert_std(weights_of(model, f"{ending}.weight"), 0.05)


def test_scaled_divides_branch_outputs_by_the_root_of_the_executed_sublayers():
    # Macaron: 3 sub-layers in each of 3 blocks, also where blocks share weights.
    model = build(config_of(init="scaled", block="macaron", share="all"), seed=0)
    assert_std(weights_of(model, "output.weight"), 0.02 / 3)
    assert_std(weights_of(model, "input.weight"), 0.02)
    assert_std(weights_of(model, "embedding.projection.weight"), 0.02)


def test_xavier_is_uniform_with_queries_keys_and_values_as_one_matrix():
    model = build(config_of(init="xavier", ffn="swiglu", tie_embeddings=False), seed=0)
    bounds = {
        "function.projection.weight": math.sqrt(6 / (64 + 3 * 64)),
        "input.weight": math.sqrt(6 / (64 + 160)),  # a gate and its value are two matrices
        "1.0.function.output.weight": math.sqrt(6 / (160 + 64)),
        "embedding.projection.weight": math.sqrt(6 / (48 + 64)),
    }
    for ending, bound in bounds.items():
        values = weights_of(model, ending)
        assert 0.99 * bound < values.abs().max() <= bound
        assert_std(values, bound / math.sqrt(3))
    assert_std(weights_of(model, "embedding.weight"), 48**-0.5)
    assert_std(weights_of(model, "head.weight"), 48**-0.5)
    assert_std(weights_of(model, "tables.0.weight"), 64**-0.5)


def test_weights_depend_on_the_seed_alone():
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    first, other, far = (build(config_of(), seed=seed).state_dict() for seed in (7, 8, 7 + 2**32))
    torch.set_num_threads(2)
    again = build(config_of(), seed=7).state_dict()
    torch.set_num_threads(threads)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[TABLE], each[TABLE]) for each in (other, far))


def test_every_parameter_is_drawn_by_its_seed_and_name_alone():
    # b2sum -l 64 of "initial values 7 embedding.weight" is 8 bytes, read from the lowest; the last
    # bit is dropped, for PyTorch takes no more than 63.
    seed = int.from_bytes(bytes.fromhex("a9952f96baf68609"), "little") // 2
    assert parameter_generator(7, "embedding.weight").initial_seed() == seed
    model = build(config_of(init="normal", init_std=0.05), seed=7)
    for name in ("embedding.weight", "decoder.sublayers.0.1.function.output.weight"):
        value = model.get_parameter(name)
        alone = torch.empty(value.shape).normal_(0.0, 0.05, generator=parameter_generator(7, name))
        assert torch.equal(value, alone)


def test_a_shared_parameter_is_drawn_by_its_first_name_whichever_module_comes_first():
    config, alone = config_of(), nn.ModuleDict({"a": Linear(7, 5, bias=False)})
    initialise(alone, config, seed=3)
    for names in (("a", "b"), ("b", "a")):
        pair = nn.ModuleDict({name: Linear(7, 5, bias=False) for name in names})
        pair["b"].weight = pair["a"].weight
        initialise(pair, config, seed=3)
        assert torch.equal(pair["b"].weight, alone["a"].weight)


@pytest.mark.parametrize("tied", [True, False])
def test_the_row_of_padding_begins_at_zero_and_learns_from_the_softmax_alone(tied):
    pad_id, end_id = 1, 2
    config = config_of(kind="encoder-decoder", tie_embeddings=tied, zero_padding=True)
    model = build(resolve_model(config, vocab_size=20, context=8), seed=0)
    table = model.embedding.weight
    before = table.detach().clone()
    zero_padding(model.embedding.weight, pad_id)
    before[pad_id] = 0.0
    assert torch.equal(table, before)
    sources = [np.array([5, 6, 7, end_id]), np.array([8, end_id])]
    targets = [np.array([9, 4, end_id]), np.array([end_id])]
    batch = pairs_in_rows(sources, targets, pad_id=pad_id, first_id=end_id)
    Translation(model, TranslationObjective())(batch)["nll"].backward()
    assert table.grad[5].any() and bool(table.grad[pad_id].any()) == tied
    with pytest.raises(ConfigError, match="the tokenizer has no padding"):
        zero_padding(model.embedding.weight, None)


D_MODEL, D_HEAD, N_HEADS, D_FF = 64, 9, 5, 150
TRUNCATED = 0.8796256610342398
"""Standard deviation of a standard normal variable that is cut at two."""


def maps_of(ending, **fields):
    """Collect the weights of a name in a model as T5 begins, each map on a row."""
    sizes = {"d_head": D_HEAD, "n_heads": N_HEADS, "d_ff": D_FF, "d_embed": None}
    form = {"kind": "encoder-decoder", "norm": "rms", "attention_scale": "none", "ffn": "geglu"}
    config = config_of(**{**sizes, **form, "positions": "relative", "init": "t5", **fields})
    weights = build(config, seed=0).state_dict()
    return torch.stack([weights[name] for name in weights if name.endswith(ending)])


def assert_normal(values, std):
    assert_std(values, std)
    assert values.abs().max() > 3 * std


def assert_truncated(values, std):
    assert_std(values, TRUNCATED * std)
    assert 1.9 * std < values.abs().max() <= 2 * std


def test_queries_of_t5_replace_the_scale_of_attention():
    projection = maps_of("function.projection.weight")  # of both attentions
    assert projection.shape == (9, 3, N_HEADS * D_HEAD, D_MODEL)
    assert_normal(projection[:, 0], (D_MODEL * D_HEAD) ** -0.5)
    assert_normal(projection[:, 1:], D_MODEL**-0.5)
    assert_normal(maps_of("0.0.function.output.weight"), (N_HEADS * D_HEAD) ** -0.5)
    scaled = maps_of("function.projection.weight", attention_scale="sqrt")
    assert_normal(scaled[:, 0], D_MODEL**-0.5)


@pytest.mark.parametrize("ffn", ["geglu", "relu"])
def test_networks_of_t5_are_cut_at_two_deviations_of_their_fan_in(ffn):
    assert_truncated(maps_of("function.input.weight", ffn=ffn), D_MODEL**-0.5)
    # Not the attention's, whose width differs: an encoder's block has it at 1, a decoder's at 2.
    output = maps_of("1.0.function.output.weight", ffn=ffn, kind="encoder")
    assert_truncated(output, D_FF**-0.5)


def test_tables_of_t5_and_maps_that_it_lacks():
    assert_normal(maps_of("embedding.weight"), 1.0)
    assert_normal(maps_of("tables.0.weight", positions="learned"), 1.0)
    relative = maps_of("table.weight", relative_buckets=512, relative_distance=999)
    bound = math.sqrt(6 / (512 + N_HEADS))
    assert 0.99 * bound < relative.abs().max() <= bound
    assert relative.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    fields = {"tie_embeddings": False, "d_embed": 48, "head": "transform", "head_bias": True}
    assert_truncated(maps_of("head.weight", **fields), 48**-0.5)
    assert_truncated(maps_of("embedding.projection.weight", **fields), 48**-0.5)
    assert_truncated(maps_of("head.projection.weight", **fields), D_MODEL**-0.5)
