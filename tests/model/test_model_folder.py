"""Initial weights by scheme, role, seed and name; renamed modules; folders of models."""

import json
import logging
import math
import os
import shutil
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from sublayer.api.run import load
from sublayer.config.model import ModelConfig
from sublayer.config.objective import TranslationObjective
from sublayer.config.resolve import resolve_model
from sublayer.data.batches import pairs_in_rows
from sublayer.errors import CheckpointError, ConfigError
from sublayer.model import model_folder, parameters
from sublayer.model.blocks import FeedForward
from sublayer.model.layers import Linear
from sublayer.model.model_folder import CONFIG_NAME, WEIGHTS_NAME, load_weights, save_model
from sublayer.model.parameters import initial_values, initialise, parameter_generator, zero_padding
from sublayer.model.transformer import build, compose
from sublayer.objective.translation import Translation
from sublayer.runs.run import train_run
from sublayer.training.log import SilentProgress
from tests.breadth import examples
from tests.files.test_checkpoints import TALL, WIDE, write_part

from .conftest import make_config, random_model

TABLE = "embedding.weight"
LEARNED = {"init": "t5", "ffn": "swish", "swish_beta": "learned"}
D_MODEL, D_HEAD, N_HEADS, D_FF = 64, 9, 5, 150
TRUNCATED = 0.8796256610342398
"""Standard deviation of a standard normal variable that is cut at two."""
TOKENS = torch.arange(10).view(2, 5)
SIZES = st.sampled_from([2, 999, 10**12, 2**63, 10**30, -1, 0, 1e30, True, None, "x", [1]])
FIELDS = [
    *("n_layers", "d_model", "n_heads", "d_head", "d_ff", "d_embed", "vocab_size", "max_len"),
    *("first_position", "share_groups", "share_inner", "norm_eps", "dropout"),
]


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


@pytest.mark.parametrize("fields", [{"norm": "rms"}, {"init": "kaiming"}, LEARNED], ids=str)
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


def test_every_parameter_is_drawn_by_its_seed_and_name_alone():
    # b2sum -l 64 of "initial values 7 embedding.weight" is 8 bytes, read from the lowest; the last
    # bit is dropped, for PyTorch takes no more than 63.
    seed = int.from_bytes(bytes.fromhex("a9952f96baf68609"), "little") // 2
    assert parameter_generator(7, "embedding.weight").initial_seed() == seed
    assert parameter_generator(7 + 2**32, "embedding.weight").initial_seed() != seed
    state = torch.get_rng_state()
    model = build(config_of(init="normal", init_std=0.05), seed=7)
    for name in ("embedding.weight", "decoder.sublayers.0.1.function.output.weight"):
        value = model.get_parameter(name)
        alone = torch.empty(value.shape).normal_(0.0, 0.05, generator=parameter_generator(7, name))
        assert torch.equal(value, alone)
    assert torch.equal(torch.get_rng_state(), state)


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


@pytest.mark.parametrize("ffn", ["geglu", "relu"])
def test_maps_of_t5_replace_the_scale_of_attention_and_are_cut_in_networks(ffn):
    projection = maps_of("function.projection.weight")  # of both attentions
    assert projection.shape == (9, 3, N_HEADS * D_HEAD, D_MODEL)
    assert_normal(projection[:, 0], (D_MODEL * D_HEAD) ** -0.5)
    assert_normal(projection[:, 1:], D_MODEL**-0.5)
    assert_normal(maps_of("0.0.function.output.weight"), (N_HEADS * D_HEAD) ** -0.5)
    scaled = maps_of("function.projection.weight", attention_scale="sqrt")
    assert_normal(scaled[:, 0], D_MODEL**-0.5)
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


@pytest.fixture
def rename(monkeypatch):
    """Rename the last map of feed-forward networks, with a row of the table that says so."""
    build_network = FeedForward.__init__

    def __init__(self, *sizes, **settings):
        build_network(self, *sizes, **settings)
        modules = {"w2" if name == "output" else name: each for name, each in self._modules.items()}
        self._modules = modules

    def call():
        monkeypatch.setitem(parameters.RENAMED, "function.w2", "function.output")
        monkeypatch.setattr(FeedForward, "__init__", __init__)
        monkeypatch.setattr(FeedForward, "output", property(lambda self: self.w2), raising=False)

    return call


def test_parts_of_paths_are_whole(monkeypatch):
    monkeypatch.setitem(parameters.RENAMED, "a.b", "c")
    names = ("a.b", "a.b.a.b", "x.a.b.y", "aa.b", "a.bb", "b.a")
    found = [parameters.persistent_name(name) for name in names]
    assert found == ["c", "c.c", "x.c.y", "aa.b", "a.bb", "b.a"]


def test_a_renamed_module_has_the_weights_of_before_under_their_names(rename):
    config = make_config(init="scaled")
    before = build(config, seed=3).state_dict()
    rename()
    model = build(config, seed=3)
    now = model.state_dict()
    assert any(".w2." in name for name, _ in model.named_parameters())
    assert list(now) == list(before)
    assert all(torch.equal(now[name], before[name]) for name in before)
    other = build(config, seed=4)
    other.load_state_dict(before)
    pairs = zip(other.parameters(), model.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


def test_a_run_of_before_resumes_and_ends_with_the_files_that_it_would_have_had(
    rename, workshop, own_cache, tmp_path
):
    settings = {"optimizer.kind": "lamb", "train.steps": 4, "train.checkpoint_steps": 2}
    recipe, run = workshop.recipe(settings), tmp_path / "run"
    train_run(recipe, run, progress=SilentProgress())
    ended = run / "checkpoints" / "step-00000004"
    shutil.copytree(run, tmp_path / "known")
    shutil.rmtree(ended)
    shutil.rmtree(run / "model")
    (run / "record.json").unlink()
    rename()
    train_run(recipe, run, progress=SilentProgress(), resume=True)
    files = [path.relative_to(run) for path in ended.rglob("*.safetensors")]
    assert len(files) == 2
    for file in files:
        assert (run / file).read_bytes() == (tmp_path / "known" / file).read_bytes()


@pytest.fixture
def saved(tmp_path):
    model, folder = random_model(share="all", d_embed=5), tmp_path / "deep" / "model"
    save_model(folder, model, {"tokenizer.json": b"{}"})
    return folder, model


def test_files_are_saved_beside_a_model_and_no_folder_is_overwritten(saved):
    folder, model = saved
    assert (folder / "tokenizer.json").read_bytes() == b"{}"
    with pytest.raises(CheckpointError, match="exists"):
        save_model(folder, model, {})


def test_a_failed_save_leaves_nothing_behind(tmp_path):
    # A name that no file can have stands for a full disk: it fails behind the weights.
    stale = tmp_path / ".model.partial"
    stale.mkdir()
    with pytest.raises(CheckpointError, match="cannot write"):
        save_model(tmp_path / "model", random_model(), {"x" * 300: b""})
    assert list(tmp_path.iterdir()) == [stale]


def weights(change):
    def damage(folder):
        tensors = load_file(folder / WEIGHTS_NAME)
        change(tensors)
        save_file(tensors, folder / WEIGHTS_NAME)

    return damage


def config(content):
    return lambda folder: (folder / CONFIG_NAME).write_text(content)


def described(model):
    return config(json.dumps({"format": "sublayer", "version": 1, "model": model}))


@pytest.mark.parametrize("damage, message", [
    (weights(lambda held: held.update({TABLE: held[TABLE][:7].clone()})),
     r"embedding.weight of shape \[7, 5\].*needs \[17, 5\]"),
    (weights(lambda held: held.update(stray=torch.zeros(1))), "stray"),
    (weights(lambda held: held.pop("final_norm.weight")), r"final_norm\.weight"),
    (weights(lambda held: held["final_norm.bias"].fill_(torch.inf)), "norm.bias .* not finite"),
    (lambda folder: os.truncate(folder / WEIGHTS_NAME, 999), "model.safetensors"),
    (lambda folder: (folder / WEIGHTS_NAME).unlink(), "no model.safetensors"),
    (lambda folder: (folder / CONFIG_NAME).unlink(), "no config.json"),
    (config("{"), "is not JSON"), (config('{"format": "other"}'), "does not describe"),
    (config('{"format": "sublayer", "version": 2}'), "version 2"),
    (described({"n_layers": "two"}), r"model\.n_layers"),
    (described({"n_heads": 4}), r"lacks model\.d_head"),
    (described({"n_heads": 7}), r"model\.n_heads = 7 must divide"),
])  # fmt: skip
def test_a_folder_that_describes_no_model_or_another_is_refused(saved, damage, message):
    damage(saved[0])
    with pytest.raises(CheckpointError, match=message) as caught:
        load_weights(saved[0])
    assert "\n" not in str(caught.value)


@settings(examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from(FIELDS), SIZES, min_size=1, max_size=3))
def test_a_config_of_other_sizes_than_its_weights_is_refused(saved, changes):
    path = saved[0] / CONFIG_NAME
    described = json.loads(whole := path.read_text())
    described["model"].update(changes)
    path.write_text(json.dumps(described))
    try:
        config, tensors = load_weights(saved[0])
    except CheckpointError:
        assert described["model"] != json.loads(whole)["model"]
    else:
        expected = {name: value.shape for name, value in compose(config).state_dict().items()}
        assert {name: value.shape for name, value in tensors.items()} == expected
    finally:
        path.write_text(whole)


def test_a_config_of_more_blocks_than_the_file_has_tensors_builds_nothing(saved, monkeypatch):
    path = saved[0] / CONFIG_NAME
    described = json.loads(path.read_text())
    described["model"] |= {"n_layers": 1000, "share": "none"}
    path.write_text(json.dumps(described))
    monkeypatch.delattr("sublayer.model.transformer.compose")
    with pytest.raises(
        CheckpointError, match=r"tensors, but its config needs at least 2,000: name"
    ):
        load_weights(saved[0])


def test_weights_of_another_format_are_converted_or_refused(tmp_path, caplog):
    model, name = random_model().float(), "final_norm.weight"
    save_model(tmp_path / "model", model, {})
    weights(lambda held: held.update({name: held[name].bfloat16()}))(tmp_path / "model")
    with caplog.at_level(logging.WARNING):
        loaded = load(tmp_path / "model")
    assert "1 of bfloat16 became float32" in caplog.text
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
    torch.testing.assert_close(loaded(TOKENS).logits, model(TOKENS).logits, rtol=0.02, atol=0.02)
    weights(lambda held: held.update({name: held[name].to(torch.float8_e5m2)}))(tmp_path / "model")
    with pytest.raises(CheckpointError, match=rf"has {name} as \w+: weights must be floating"):
        load(tmp_path / "model")


@pytest.mark.parametrize("is_in_parts", [False, True])
def test_a_copy_has_all_weights_in_one_file(tmp_path, is_in_parts, monkeypatch):
    original, copied = tmp_path / "original", tmp_path / "copied"
    for each in (original, copied):
        each.mkdir()
    (original / "config.json").write_text("{}")
    if is_in_parts:
        write_part(original, 1, wide=(WIDE[:1], [0, 0]), tall=(TALL, [0, 0]))
        write_part(original, 2, wide=(WIDE[1:], [1, 0]))
    else:
        save_file({"wide": WIDE, "tall": TALL}, original / WEIGHTS_NAME)
    model_folder.copy_model(original, copied)
    assert sorted(path.name for path in copied.iterdir()) == ["config.json", WEIGHTS_NAME]
    found = load_file(copied / WEIGHTS_NAME)
    assert torch.equal(found["wide"], WIDE) and torch.equal(found["tall"], TALL)
    assert model_folder.is_copy(copied, original)
    other = shutil.copytree(copied, tmp_path / "other")
    save_file({"wide": -WIDE, "tall": TALL}, other / WEIGHTS_NAME)
    assert not model_folder.is_copy(other, original)
    (copied / "notes.txt").write_text("more")
    assert not model_folder.is_copy(copied, original)
    shutil.rmtree(copied)
    assert not model_folder.is_copy(copied, original)
    if is_in_parts:
        copied.mkdir()
        full = Mock(side_effect=SafetensorError("No space left on device"))
        monkeypatch.setattr("sublayer.model.model_folder.save_file", full)
        with pytest.raises(CheckpointError, match="cannot write .*: No space left on device"):
            model_folder.copy_model(original, copied)
