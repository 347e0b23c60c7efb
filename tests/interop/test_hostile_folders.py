"""HuggingFace folders with something wrong, or by name: one line of error, or their logits."""

import dataclasses
import io
import json
import shutil
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from itertools import chain, cycle
from pathlib import Path
from unittest.mock import Mock

import huggingface_hub
import pytest
import torch
from huggingface_hub import errors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from sublayer import cli
from sublayer.errors import CheckpointError
from sublayer.interop.huggingface.classes import FAMILIES
from sublayer.interop.huggingface.exchange import import_huggingface
from sublayer.interop.huggingface.hub_models import is_hub_name
from sublayer.loading import load
from tests.breadth import TRIES_ALL, examples
from tests.interop.folders import change_weights, check_refused, read_json
from tests.interop.tiny import CLASSES, tiny


def test_a_model_is_fetched_by_name_without_its_pickles(tmp_path, monkeypatch):
    served = tiny("gpt2").save(tmp_path / "served")
    (served / "pytorch_model.bin").write_bytes(b"a pickle")

    def download(name, *, allow_patterns):
        assert name == "team/tiny"
        (tmp_path / "cache").mkdir()
        for path in chain(*map(served.glob, allow_patterns)):
            shutil.copy(path, tmp_path / "cache")
        return str(tmp_path / "cache")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.chdir(tmp_path)
    import_huggingface(Path("team/tiny"), tmp_path / "imported")
    assert load(tmp_path / "imported").config.d_model == 12
    fetched = sorted(path.name for path in (tmp_path / "cache").iterdir())
    assert fetched == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("problem, message", [
    (errors.RepositoryNotFoundError("none", response=Mock()), "has no model of that name"),
    (OSError("no route\nto host"), r"\(no route to host\): .*`hf download team/none"),
    (ValueError(""), r"\(ValueError\)"),
], ids=str)  # fmt: skip
def test_a_model_that_cannot_be_fetched_is_refused(tmp_path, monkeypatch, problem, message):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Mock(side_effect=problem))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=f"there is no folder team/none, and .*{message}"):
        import_huggingface(Path("team/none"), tmp_path / "imported")
    assert not (tmp_path / "imported").exists()
    assert list(filter(is_hub_name, ("gpt2", "a/b", "a/b/c", "../gpt2"))) == ["gpt2", "a/b"]


NUMBERS = [*(-1, 0, 1, 2, 3, 12, 23, 1000, 2**31, 2**63, 10**30), *(0.5, 1.0, -0.1, 1e-5, 1e300)]
TEXTS = ["", "x", "0", "relu", "gelu", "mish", "float16", "../../x", "a\0b"]
LITERALS = [
    *("null", "true", "false", "[]", "{}", "[1]", '{"": null}', '{"0": [1]}', '{"0": "a"}'),
    *("NaN", "-Infinity", "1" * 5000, "1e999", '"\\ud800"', "[" * 3000 + "]" * 3000, "01", "tru"),
    *('{"a":' * 200 + "1" + "}" * 200, '{"a": 1, "a": 2}', "[1,]", ""),
]

literals = st.one_of(
    st.sampled_from([*NUMBERS, *TEXTS]).map(json.dumps),
    st.sampled_from(LITERALS),
    (st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)).map(json.dumps),
)

SHARED = [HealthCheck.function_scoped_fixture]
model_of = cache(tiny)


def names_of(name):
    """Name every field that transformers' class knows, and some that it does not."""
    table = FAMILIES[name].fields
    known = {each.name for each in dataclasses.fields(model_of(name).kind.config_class)}
    junk = {"sub_configs", "rotary", "layer_types", "rope_scaling", "__class__", ""}
    return sorted(known | table.fields.keys() | table.aliases.keys() | table.ignored | junk)


def run_import(folder, out):
    """Import a folder; return the exit code and what was written to standard error."""
    err = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(err):
        code = cli.main(["import", "huggingface", str(folder), "--out", str(out)])
    return code, err.getvalue()


@st.composite
def altered(draw):
    """Draw a class, and a config.json with up to three fields altered, or some left out."""
    name = draw(st.sampled_from(list(CLASSES)))
    fields = {key: json.dumps(value) for key, value in model_of(name).fields.items()}
    for key in draw(st.lists(st.sampled_from(names_of(name)), min_size=1, max_size=3)):
        if draw(st.integers(0, 9)):
            fields[key] = draw(literals)
        else:
            fields.pop(key, None)
    return name, f"{{{', '.join(f'{json.dumps(key)}: {fields[key]}' for key in fields)}}}"


@settings(examples(400 if TRIES_ALL else 50), suppress_health_check=SHARED)
@given(altered())
def test_an_altered_config_is_refused_in_a_line_or_read(tmp_path, drawn):
    name, text = drawn
    place = tmp_path / "case"
    shutil.rmtree(place, ignore_errors=True)
    folder = model_of(name).save(place / "theirs")
    (folder / "config.json").write_text(text)
    code, err = run_import(folder, place / "new" / "ours")
    if code:
        line = err.strip().splitlines()[-1]
        assert code == 2 and line.startswith("error: ") and len(line) < 1000, err
        assert [*place.iterdir()] == [folder]
    else:
        certificate = read_json(place / "new" / "ours" / "certificate.json")
        assert certificate["largest_difference"]["float64"] < 1e-12


def shard(folder):
    """Part a folder's weights into two files; return the map of an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    places = dict(zip(tensors, cycle(("a.safetensors", "b.safetensors")), strict=False))
    for file in ("a.safetensors", "b.safetensors"):
        save_file({k: tensors[k] for k in tensors if places[k] == file}, folder / file)
    return places


def test_a_tensor_that_two_shards_hold_is_refused(tmp_path):
    folder = model_of("gpt2").save(tmp_path / "theirs")
    places = shard(folder)
    shutil.copy(folder / "a.safetensors", folder / "c.safetensors")
    places["transformer.extra"] = "c.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    check_refused(folder, "which another file of model.safetensors.index.json holds too")


def test_weights_of_a_format_are_converted_with_a_note_or_refused_by_name(tmp_path):
    folder, name = model_of("gpt2").save(tmp_path / "theirs"), "transformer.h.1.ln_2.bias"
    change_weights(folder, lambda held: held | {name: held[name].to(torch.bfloat16)})
    code, err = run_import(folder, tmp_path / "ours")
    assert code == 0, err
    said = read_json(tmp_path / "ours" / "certificate.json")["weights"]
    assert said.endswith("became float32")
    assert {each.dtype for each in load(tmp_path / "ours").parameters()} == {torch.float32}
    change_weights(folder, lambda held: held | {name: held[name].to(torch.int32)})
    check_refused(folder, "h.1.ln_2.bias")


def test_a_refused_or_interrupted_import_leaves_nothing_behind(tmp_path, monkeypatch):
    folder = model_of("gpt2").save(tmp_path / "theirs")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("sublayer.model.model_folder.save_file", interrupt)
    code, _ = run_import(folder, tmp_path / "new" / "ours")
    assert code == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["theirs"]


def test_paths_that_are_no_text_or_exist_are_refused_before_anything_is_made(tmp_path):
    folder = model_of("gpt2").save(tmp_path / "theirs")
    bad, link = tmp_path / "\udcff", tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    before = sorted(tmp_path.iterdir())
    for place, out in ((folder, bad), (bad, tmp_path / "ours"), (folder, link)):
        code, err = run_import(place, out)
        assert code == 2 and err.splitlines()[-1].startswith("error: ")
    assert sorted(tmp_path.iterdir()) == before
