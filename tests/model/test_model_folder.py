"""A model folder: what goes in comes out, and what does not fit is refused by name."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from sublayer.errors import CheckpointError
from sublayer.model.build import compose
from sublayer.model.model_folder import CONFIG_NAME, WEIGHTS_NAME, load_weights, save_model
from sublayer.model.transformer import Transformer

TOKENS = torch.arange(10).view(2, 5)


@pytest.fixture
def saved(tmp_path: Path, random_model: Callable[..., Transformer]) -> tuple[Path, Transformer]:
    model, folder = random_model(share="all", d_embed=5), tmp_path / "deep" / "model"
    save_model(folder, model, {"tokenizer.json": b"{}"})
    return folder, model


def test_a_saved_model_gives_the_same_logits_bit_for_bit(saved: tuple[Path, Transformer]) -> None:
    folder, model = saved
    config, tensors = load_weights(folder)
    assert config == model.config
    loaded = compose(config).double().eval()
    loaded.load_state_dict(tensors)
    assert torch.equal(loaded(TOKENS).logits, model(TOKENS).logits)
    assert (folder / "tokenizer.json").read_bytes() == b"{}"


def test_equal_models_give_equal_files(saved: tuple[Path, Transformer], tmp_path: Path) -> None:
    folder, model = saved
    save_model(tmp_path / "again", model, {})
    for name in (WEIGHTS_NAME, CONFIG_NAME):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_nothing_is_overwritten(saved: tuple[Path, Transformer]) -> None:
    folder, model = saved
    with pytest.raises(CheckpointError, match="exists"):
        save_model(folder, model, {})
    assert load_weights(folder)[0] == model.config


def test_a_failed_save_leaves_nothing_behind(
    tmp_path: Path, random_model: Callable[..., Transformer]
) -> None:
    # A name that no file can have stands for a full disk: it fails after the weights have been
    # written.
    with pytest.raises(CheckpointError, match="cannot write"):
        save_model(tmp_path / "model", random_model(), {"x" * 300: b""})
    assert list(tmp_path.iterdir()) == []


def test_what_stands_beside_a_model_is_left_alone(
    tmp_path: Path, random_model: Callable[..., Transformer]
) -> None:
    stale = tmp_path / ".model.partial"
    stale.mkdir()
    (stale / WEIGHTS_NAME).write_bytes(b"half")
    save_model(tmp_path / "model", random_model(), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == [".model.partial", "model"]
    assert (stale / WEIGHTS_NAME).read_bytes() == b"half"
    assert load_weights(tmp_path / "model")[0].n_layers == 2


def test_a_truncated_file_is_refused_by_name(saved: tuple[Path, Transformer]) -> None:
    path = saved[0] / WEIGHTS_NAME
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=re.escape(str(path))) as caught:
        load_weights(saved[0])
    assert "\n" not in str(caught.value)


def test_a_wrong_shape_is_refused_with_both_values(saved: tuple[Path, Transformer]) -> None:
    path = saved[0] / WEIGHTS_NAME
    tensors = load_file(path)
    tensors["embedding.weight"] = tensors["embedding.weight"][:7].clone()
    save_file(tensors, path)
    with pytest.raises(
        CheckpointError, match=r"embedding.weight of shape \[7, 5\].*asks for \[17, 5\]"
    ):
        load_weights(saved[0])


def test_a_missing_and_a_strange_tensor_are_refused_by_name(
    saved: tuple[Path, Transformer],
) -> None:
    path = saved[0] / WEIGHTS_NAME
    tensors = load_file(path)
    save_file({**tensors, "stray": torch.zeros(1)}, path)
    with pytest.raises(CheckpointError, match="stray"):
        load_weights(saved[0])
    del tensors["final_norm.weight"]
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=r"final_norm\.weight"):
        load_weights(saved[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "holds no JSON object"),
        ('{"format": "other"}', "does not describe"),
        ('{"format": "sublayer", "version": 2}', "version 2"),
        ('{"format": "sublayer", "version": 1, "model": {"n_layers": "two"}}', r"model\.n_layers"),
        (
            '{"format": "sublayer", "version": 1, "model": {"n_heads": 4}}',
            r"does not say what model\.d_head is",
        ),
        (
            '{"format": "sublayer", "version": 1, "model": {"n_heads": 7}}',
            r"model\.n_heads = 7 must divide",
        ),
    ],
)
def test_a_config_that_describes_no_model_is_refused(
    saved: tuple[Path, Transformer], content: str, message: str
) -> None:
    (saved[0] / CONFIG_NAME).write_text(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_weights(saved[0])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [CONFIG_NAME, WEIGHTS_NAME])
def test_a_folder_without_a_model_is_refused_by_name(
    saved: tuple[Path, Transformer], name: str
) -> None:
    (saved[0] / name).unlink()
    with pytest.raises(CheckpointError, match=f"no {name}"):
        load_weights(saved[0])


def test_the_config_is_plain_json(saved: tuple[Path, Transformer]) -> None:
    described = json.loads((saved[0] / CONFIG_NAME).read_text())
    assert (described["format"], described["version"]) == ("sublayer", 1)
    assert described["model"]["share"] == "all"


SIZES = st.sampled_from(
    [2, 7, 999, 10**6, 10**12, 2**62, 2**63, 10**30, -1, 0, 1e30, True, None, "x", [1]]
)
FIELDS = [
    *("n_layers", "d_model", "n_heads", "d_head", "d_ff", "d_embed", "vocab_size", "max_len"),
    *("first_position", "share_groups", "share_inner", "norm_eps", "dropout"),
]


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(changes=st.dictionaries(st.sampled_from(FIELDS), SIZES, min_size=1, max_size=3))
def test_a_config_of_other_sizes_than_its_weights_is_refused_before_anything_is_made(
    saved: tuple[Path, Transformer], changes: dict[str, Any]
) -> None:
    path = saved[0] / CONFIG_NAME
    described = json.loads(whole := path.read_text())
    described["model"].update(changes)
    path.write_text(json.dumps(described))
    try:
        config, tensors = load_weights(saved[0])
        assert {name: value.shape for name, value in compose(config).state_dict().items()} == {
            name: value.shape for name, value in tensors.items()
        }
    except CheckpointError as refused:
        said = str(refused)
        assert "\n" not in said
    finally:
        path.write_text(whole)


def test_a_config_of_more_blocks_than_the_file_has_tensors_builds_nothing(
    tmp_path: Path, random_model: Callable[..., Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(tmp_path / "model", random_model(), {})
    path = tmp_path / "model" / CONFIG_NAME
    described = json.loads(path.read_text())
    described["model"]["n_layers"] = 1000
    path.write_text(json.dumps(described))
    monkeypatch.delattr("sublayer.model.model_folder.compose")
    with pytest.raises(
        CheckpointError, match=r"tensors, its config asks for 2,000 at least; name another model"
    ):
        load_weights(tmp_path / "model")
