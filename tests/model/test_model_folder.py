"""A model folder: what goes in comes out, and what does not fit is refused by name."""

import json
import logging
import os
import shutil

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from sublayer.errors import CheckpointError
from sublayer.loading import load
from sublayer.model.build import compose
from sublayer.model.model_copy import copy_model, is_copy
from sublayer.model.model_folder import CONFIG_NAME, WEIGHTS_NAME, load_weights, save_model
from tests.breadth import examples
from tests.files.test_checkpoints import TALL, WIDE, write_part

from .conftest import random_model

TOKENS = torch.arange(10).view(2, 5)


@pytest.fixture
def saved(tmp_path):
    model, folder = random_model(share="all", d_embed=5), tmp_path / "deep" / "model"
    save_model(folder, model, {"tokenizer.json": b"{}"})
    return folder, model


def test_a_saved_model_gives_the_same_logits_bit_for_bit(saved):
    folder, model = saved
    config, tensors = load_weights(folder)
    assert config == model.config
    loaded = compose(config).double().eval()
    loaded.load_state_dict(tensors)
    assert torch.equal(loaded(TOKENS).logits, model(TOKENS).logits)
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


def change_tensors(path, change):
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def narrow(held):
    held["embedding.weight"] = held["embedding.weight"][:7].clone()


def described(model):
    return json.dumps({"format": "sublayer", "version": 1, "model": model})


def config(content):
    return lambda folder: (folder / CONFIG_NAME).write_text(content)


def weights(change):
    return lambda folder: change_tensors(folder / WEIGHTS_NAME, change)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (weights(narrow), r"embedding.weight of shape \[7, 5\].*asks for \[17, 5\]"),
        (weights(lambda held: held.update(stray=torch.zeros(1))), "stray"),
        (weights(lambda held: held.pop("final_norm.weight")), r"final_norm\.weight"),
        (weights(lambda held: held["final_norm.bias"].fill_(torch.inf)), "norm.bias .* not finite"),
        (lambda folder: os.truncate(folder / WEIGHTS_NAME, 999), "model.safetensors"),
        (lambda folder: (folder / WEIGHTS_NAME).unlink(), "no model.safetensors"),
        (lambda folder: (folder / CONFIG_NAME).unlink(), "no config.json"),
        (config("{"), "is not JSON"),
        (config('{"format": "other"}'), "does not describe"),
        (config('{"format": "sublayer", "version": 2}'), "version 2"),
        (config(described({"n_layers": "two"})), r"model\.n_layers"),
        (config(described({"n_heads": 4})), r"does not say what model\.d_head is"),
        (config(described({"n_heads": 7})), r"model\.n_heads = 7 must divide"),
    ],
)
def test_a_folder_that_describes_no_model_or_another_is_refused(saved, damage, message):
    damage(saved[0])
    with pytest.raises(CheckpointError, match=message) as caught:
        load_weights(saved[0])
    assert "\n" not in str(caught.value)


SIZES = st.sampled_from([2, 999, 10**12, 2**63, 10**30, -1, 0, 1e30, True, None, "x", [1]])
FIELDS = [
    *("n_layers", "d_model", "n_heads", "d_head", "d_ff", "d_embed", "vocab_size", "max_len"),
    *("first_position", "share_groups", "share_inner", "norm_eps", "dropout"),
]


@settings(examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from(FIELDS), SIZES, min_size=1, max_size=3))
def test_a_config_of_other_sizes_than_its_weights_is_refused_before_anything_is_made(
    saved, changes
):
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
    monkeypatch.delattr("sublayer.model.model_folder.compose")
    with pytest.raises(CheckpointError, match=r"tensors, its config asks for 2,000 at least; name"):
        load_weights(saved[0])


@pytest.mark.parametrize(
    ("dtype", "is_read"), [(torch.bfloat16, True), (torch.float8_e5m2, False)], ids=str
)
def test_weights_of_another_format_are_converted_with_a_note_or_refused_by_name(
    tmp_path, caplog, dtype, is_read
):
    model, name = random_model().float(), "final_norm.weight"
    save_model(tmp_path / "model", model, {})
    path = tmp_path / "model" / WEIGHTS_NAME
    change_tensors(path, lambda held: held.update({name: held[name].to(dtype)}))
    if not is_read:
        with pytest.raises(CheckpointError, match=rf"has {name} as \w+: weights are floating"):
            load(tmp_path / "model")
        return
    with caplog.at_level(logging.WARNING):
        loaded = load(tmp_path / "model")
    assert f"1 of {str(dtype).removeprefix('torch.')} became float32" in caplog.text
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
    torch.testing.assert_close(loaded(TOKENS).logits, model(TOKENS).logits, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("is_in_parts", [False, True])
def test_a_copy_has_all_weights_in_one_file(tmp_path, is_in_parts):
    original, copied = tmp_path / "original", tmp_path / "copied"
    original.mkdir()
    copied.mkdir()
    (original / "config.json").write_text("{}")
    if is_in_parts:
        write_part(original, 1, wide=(WIDE[:1], [0, 0]), tall=(TALL, [0, 0]))
        write_part(original, 2, wide=(WIDE[1:], [1, 0]))
    else:
        save_file({"wide": WIDE, "tall": TALL}, original / WEIGHTS_NAME)
    copy_model(original, copied)
    assert sorted(path.name for path in copied.iterdir()) == ["config.json", WEIGHTS_NAME]
    found = load_file(copied / WEIGHTS_NAME)
    assert torch.equal(found["wide"], WIDE) and torch.equal(found["tall"], TALL)
    assert is_copy(copied, original)
    other = shutil.copytree(copied, tmp_path / "other")
    save_file({"wide": -WIDE, "tall": TALL}, other / WEIGHTS_NAME)
    assert not is_copy(other, original)
    (copied / "notes.txt").write_text("more")
    assert not is_copy(copied, original)
    shutil.rmtree(copied)
    assert not is_copy(copied, original)
