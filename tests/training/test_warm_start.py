"""Starting from another model: part by part, weights read once, what starts fresh said."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sublayer import loading
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.config.train import InitConfig
from sublayer.errors import CheckpointError
from sublayer.model.build import build
from sublayer.model.model_folder import save_model
from sublayer.model.transformer import Transformer
from sublayer.runs.run import from_recipe
from sublayer.training.warm_start import Pretrained, start_from
from tests.training.conftest import TINY, Notes

KINDS = ("decoder", "encoder", "encoder-decoder")
SENTENCE = {"pooler": "tanh", "sentence_classes": 2}
HEADS = ("pooler.", "sentence_head.")

each_kind = pytest.mark.parametrize("kind", KINDS)


def make_model(seed: int, **fields: Any) -> Transformer:
    config = ModelConfig(**{"n_layers": 3, "d_model": 8, "n_heads": 2, "head_bias": True, **fields})
    return build(resolve_model(config, vocab_size=9, context=7), seed=seed)


def start(
    model: Transformer, source: Transformer, folder: Path, layers: int | None = None
) -> list[str]:
    """Start a model from another one's folder."""
    save_model(folder, source, {})
    return start_from(model, Pretrained(InitConfig(run=str(folder), layers=layers)))


def parts(model: Transformer, *prefixes: str) -> dict[str, torch.Tensor]:
    found = model.state_dict().items()
    return {name: value for name, value in found if name.startswith(prefixes)}


def others(model: Transformer, *prefixes: str) -> dict[str, torch.Tensor]:
    found = model.state_dict().items()
    return {name: value for name, value in found if not name.startswith(prefixes)}


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


@each_kind
def test_all_parts_of_a_model_are_taken(kind: str, tmp_path: Path) -> None:
    model, source = (make_model(seed, kind=kind, **SENTENCE) for seed in (1, 2))
    assert start(model, source, tmp_path / "run") == []
    assert_equal(model.state_dict(), source.state_dict())


@each_kind
def test_heads_that_the_run_lacks_start_fresh(kind: str, tmp_path: Path) -> None:
    model, fresh = (make_model(1, kind=kind, **SENTENCE) for _ in range(2))
    source = make_model(2, kind=kind)
    run = tmp_path / "run"
    assert start(model, source, run) == [
        f"starts fresh: pooler ({run} has none), sentence head ({run} has none)"
    ]
    assert len(parts(model, *HEADS)) == 4
    assert_equal(parts(model, *HEADS), parts(fresh, *HEADS))
    assert_equal(others(model, *HEADS), source.state_dict())


@each_kind
def test_heads_that_the_recipe_does_not_ask_for_are_left_out(kind: str, tmp_path: Path) -> None:
    model, source = make_model(1, kind=kind, pooler="tanh"), make_model(2, kind=kind, **SENTENCE)
    run = tmp_path / "run"
    assert start(model, source, run) == [
        f"left out of {run}: sentence head (the recipe asks for none)"
    ]
    assert_equal(model.state_dict(), others(source, "sentence_head."))


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_the_first_blocks_come_with_the_heads_that_both_have(kind: str, tmp_path: Path) -> None:
    model, fresh = (make_model(1, kind=kind, **SENTENCE) for _ in range(2))
    source = make_model(2, kind=kind, pooler="tanh")
    run = tmp_path / "run"
    assert start(model, source, run, layers=1) == [
        f"starts fresh: sentence head ({run} has none), 2 of 3 blocks (init.layers = 1)"
    ]
    kept = tuple(f"{kind}.sublayers.{place}.{layer}." for place in (0, 1) for layer in (1, 2))
    kept = (*kept, "sentence_head.")
    assert_equal(parts(model, *kept), parts(fresh, *kept))
    assert_equal(others(model, *kept), others(source, *kept))


def test_blocks_that_share_the_weights_of_the_first_do_not_start_fresh(tmp_path: Path) -> None:
    model, source = (make_model(seed, kind="encoder", share="all") for seed in (1, 2))
    assert start(model, source, tmp_path / "run", layers=1) == []
    assert_equal(model.state_dict(), source.state_dict())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sentence_classes": 1}, r"sentence_head.weight is \[1, 8\] there, \[2, 8\] here"),
        ({"d_ff": 12}, r"input.weight is \[12, 8\] there, \[32, 8\] here"),
        ({"head": "transform"}, "this one has no head.norm.bias"),
        ({"n_layers": 2}, r"it has no encoder.sublayers.0.2.function.output.bias"),
    ],
    ids=str,
)
def test_a_part_of_another_shape_is_refused(
    fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = make_model(1, kind="encoder", **SENTENCE)
    source = make_model(2, **{"kind": "encoder", **SENTENCE, **fields})
    with pytest.raises(CheckpointError, match=message):
        start(model, source, tmp_path / "run")


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders whose weights are read, one entry a time."""
    read, folders = loading.load_weights, []

    def load_weights(folder: Path, **options: Any) -> Any:
        folders.append(folder)
        return read(folder, **options)

    monkeypatch.setattr(loading, "load_weights", load_weights)
    return folders


@pytest.mark.slow
def test_a_run_reads_the_weights_once_and_says_what_starts_fresh_at_its_start_alone(
    run: Callable[..., Any], tmp_path: Path, readings: list[Path]
) -> None:
    run("first")
    settings = {
        "init.run": str(tmp_path / "first"),
        "init.layers": 1,
        "objective.auxiliary": "layers",
        "train.steps": 6,
    }
    notes = Notes()
    run("second", settings, progress=notes)
    assert readings == [tmp_path / "first" / "model"]
    blocks, heads = [text for text in notes.texts if text.startswith("starts fresh")]
    assert blocks == "starts fresh: 1 of 2 blocks (init.layers = 1)"
    assert heads.endswith("parameters that training alone needs (no saved model has them)")
    (tmp_path / "second" / "record.json").unlink()
    notes = Notes()
    run("second", settings, progress=notes, resume=True)
    assert not any(text.startswith("starts fresh") for text in notes.texts)


@pytest.mark.slow
def test_a_model_of_a_recipe_reads_the_weights_once_and_logs_what_starts_fresh(
    run: Callable[..., Any],
    tiny: Callable[..., Any],
    tmp_path: Path,
    readings: list[Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    run("first")
    settings = {**TINY, "init.run": str(tmp_path / "first"), "init.layers": 1}
    from_recipe("gpt", {**settings, "data.path": tiny().recipe.data.path})
    assert readings == [tmp_path / "first" / "model"]
    assert "starts fresh: 1 of 2 blocks (init.layers = 1)" in caplog.text
