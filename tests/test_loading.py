"""A model is found in a run, a checkpoint or a model folder, or the line says why not."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from sublayer.config.layering.layers import load_recipe
from sublayer.config.layering.run_recipe import dump_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.checkpoints import checkpoint_path, new_checkpoint
from sublayer.loading import find_recipe, load
from sublayer.model.build import build
from sublayer.model.model_folder import save_model
from sublayer.model.transformer import Transformer
from tests.checkpoints import state

TOKENIZER = {"tokenizer.json": train_tokenizer("bytes", ()).serialize()}


def model_of(seed: int) -> Transformer:
    config = ModelConfig.model_validate({"n_layers": 1, "d_model": 6, "n_heads": 2, "dropout": 0.5})
    return build(resolve_model(config, vocab_size=256, context=7), seed=seed)


def write_run(folder: Path, *steps: int, best: int | None) -> Path:
    """A run whose checkpoints hold the model of the seed that is their step."""
    folder.mkdir()
    (folder / "recipe.toml").write_text(dump_recipe(load_recipe("gpt").recipe, ()))
    for step in steps:
        with new_checkpoint(folder / "checkpoints", step) as partial:
            save_model(partial / "model", model_of(step), TOKENIZER)
            (partial / "state.json").write_text(state(step, best))
    return folder


def is_model_of(seed: int, model: Transformer) -> bool:
    expected = model_of(seed).state_dict()
    found = model.state_dict()
    return found.keys() == expected.keys() and all(
        torch.equal(found[name], expected[name]) for name in found
    )


def one_line(caught: pytest.ExceptionInfo[Any]) -> str:
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_run_that_ended_gives_its_model(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 3, best=3)
    save_model(run / "model", model_of(11), TOKENIZER)
    assert is_model_of(11, load(run))
    assert is_model_of(11, load(str(run / "model")))


def test_a_run_that_was_evaluated_gives_its_best_checkpoint(tmp_path: Path) -> None:
    assert is_model_of(3, load(write_run(tmp_path / "run", 3, 5, best=3)))


def test_a_run_that_was_not_evaluated_gives_its_last_checkpoint(tmp_path: Path) -> None:
    assert is_model_of(5, load(write_run(tmp_path / "run", 3, 5, best=None)))


def test_a_checkpoint_gives_its_own_model(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 3, 5, best=5)
    assert is_model_of(3, load(checkpoint_path(run / "checkpoints", 3)))


def test_a_damaged_checkpoint_is_passed_over_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = write_run(tmp_path / "run", 3, 5, best=None)
    weights = checkpoint_path(run / "checkpoints", 5) / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING):
        assert is_model_of(3, load(run))
    assert "step-00000005 is refused" in caplog.text
    with pytest.raises(
        CheckpointError, match=r"model.safetensors has \d+ bytes where \d+ were written"
    ):
        load(checkpoint_path(run / "checkpoints", 5))


def test_a_model_is_in_evaluation_mode_with_config_and_tokenizer(tmp_path: Path) -> None:
    save_model(tmp_path / "model", model_of(2), TOKENIZER)
    model = load(tmp_path / "model")
    assert not model.training
    assert model.config == model_of(2).config
    assert model.tokenizer.encode(b"ab").tolist() == [97, 98]
    assert all(
        parameter.requires_grad and not parameter.is_meta for parameter in model.parameters()
    )
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(model(tokens).logits, model_of(2).eval()(tokens).logits)


def test_a_folder_without_a_tokenizer_gives_none(tmp_path: Path) -> None:
    save_model(tmp_path / "model", model_of(2), {})
    assert load(tmp_path / "model").tokenizer is None


def test_a_tokenizer_of_more_ids_than_the_model_is_refused(tmp_path: Path) -> None:
    words = train_tokenizer("bpe", [b"a text"], vocab_size=300)
    save_model(tmp_path / "model", model_of(0), {"tokenizer.json": words.serialize()})
    with pytest.raises(CheckpointError) as caught:
        load(tmp_path / "model")
    assert (
        "model has 261 ids, the model's vocab_size is 256: they do not belong together"
        in one_line(caught)
    )


def test_an_id_that_only_the_model_has_is_seen_in_a_text(tmp_path: Path) -> None:
    letters = train_tokenizer("characters", [b"ab"])
    save_model(tmp_path / "model", model_of(0), {"tokenizer.json": letters.serialize()})
    tokenizer = load(tmp_path / "model").tokenizer
    assert tokenizer is not None
    assert tokenizer.decode([1, 255, 2, 2, 7, 8]).decode() == "a\ufffdbb\ufffd\ufffd"


def test_a_type_converts_the_weights(tmp_path: Path) -> None:
    save_model(tmp_path / "model", model_of(2).double(), {})
    assert load(tmp_path / "model").embedding.weight.dtype == torch.float64
    assert load(tmp_path / "model", dtype=torch.bfloat16).embedding.weight.dtype == torch.bfloat16


def test_the_recipe_of_a_run_is_found_from_its_parts(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 3, best=3)
    save_model(run / "model", model_of(3), TOKENIZER)
    checkpoint = checkpoint_path(run / "checkpoints", 3)
    for part in (run, run / "model", checkpoint, checkpoint / "model"):
        assert find_recipe(part) == run / "recipe.toml"
    save_model(tmp_path / "elsewhere", model_of(3), TOKENIZER)
    assert find_recipe(tmp_path / "elsewhere") is None


def test_what_is_no_model_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nothing does not exist") as caught:
        load(tmp_path / "nothing")
    one_line(caught)
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="file is a file, not a folder"):
        load(tmp_path / "file")
    with pytest.raises(CheckpointError, match="is not a run, a checkpoint or a model folder"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match="has no model and no whole checkpoint"):
        load(write_run(tmp_path / "empty", best=None))


def test_a_huggingface_folder_is_told_how_to_be_imported(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(CheckpointError, match="sublayer import huggingface") as caught:
        load(tmp_path)
    one_line(caught)


def test_damaged_model_folders_are_refused_in_a_line(tmp_path: Path) -> None:
    save_model(tmp_path / "model", model_of(2), TOKENIZER)
    weights = tmp_path / "model" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match="damaged or cut short") as caught:
        load(tmp_path / "model")
    one_line(caught)
    save_model(tmp_path / "other", model_of(2), {})
    config = tmp_path / "other" / "config.json"
    described = json.loads(config.read_text())
    described["model"]["d_ff"] = 5
    config.write_text(json.dumps(described))
    with pytest.raises(
        CheckpointError, match=r"shape \[24, 6\], its config asks for \[5, 6\]"
    ) as caught:
        load(tmp_path / "other")
    one_line(caught)
    config.write_text("{")
    with pytest.raises(CheckpointError, match="is not JSON") as caught:
        load(tmp_path / "other")
    one_line(caught)


@pytest.mark.parametrize("name", ["nosuch", "cuda:97"])
def test_a_device_that_is_not_there_is_refused(tmp_path: Path, name: str) -> None:
    save_model(tmp_path / "model", model_of(2), {})
    with pytest.raises(ConfigError, match=f"device '{name}' is not there"):
        load(tmp_path / "model", device=name)
