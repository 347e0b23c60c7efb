"""A model is found in a run, a checkpoint or a model folder, or the line says why not."""

import json
import logging
from itertools import product

import pytest
import torch

from sublayer.api.run import load
from sublayer.config.load import dump_recipe, find_recipe, load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.decode.sample import Sampling
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.checkpoints import checkpoint_path, new_checkpoint
from sublayer.model.model_folder import save_model
from sublayer.model.transformer import build
from tests.alterations import state

TOKENIZER = {"tokenizer.json": train_tokenizer("bytes", ()).serialize()}


def model_of(seed):
    config = ModelConfig(n_layers=1, d_model=6, n_heads=2, dropout=0.5)
    return build(resolve_model(config, vocab_size=256, context=7), seed=seed)


def write_run(folder, *steps, best):
    """A run whose checkpoints hold the model of the seed that is their step."""
    folder.mkdir()
    (folder / "recipe.toml").write_text(dump_recipe(load_recipe("gpt").recipe, ()))
    for step in steps:
        with new_checkpoint(folder / "checkpoints", step) as partial:
            save_model(partial / "model", model_of(step), TOKENIZER)
            (partial / "state.json").write_text(state(step, best))
    return folder


def save(folder, tokenizer="", *, seed=2):
    save_model(folder, model_of(seed), {"tokenizer.json": tokenizer} if tokenizer else {})
    return folder


def is_model_of(seed, model):
    expected, found = model_of(seed).state_dict(), model.state_dict()
    same = map(torch.equal, found.values(), expected.values())
    return found.keys() == expected.keys() and all(same)


def refusal(folder):
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("best", "seed"), [(3, 3), (None, 5)])
def test_a_run_gives_its_model_or_its_best_or_last_checkpoint(tmp_path, best, seed):
    run = write_run(tmp_path / "run", 3, 5, best=best)
    assert is_model_of(seed, load(run))
    checkpoint = checkpoint_path(run / "checkpoints", 3)
    assert is_model_of(3, load(checkpoint))
    save(run / "model", seed=11)
    assert is_model_of(11, load(run)) and is_model_of(11, load(str(run / "model")))
    for part in (run, run / "model", checkpoint, checkpoint / "model"):
        assert find_recipe(part) == run / "recipe.toml"
    assert find_recipe(save(tmp_path / "elsewhere")) is None


def test_a_damaged_checkpoint_is_passed_over_and_named(tmp_path, caplog):
    run = write_run(tmp_path / "run", 3, 5, best=None)
    damaged = checkpoint_path(run / "checkpoints", 5)
    weights = damaged / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING):
        assert is_model_of(3, load(run))
    assert "step-00000005 is refused" in caplog.text
    with pytest.raises(CheckpointError, match=r"has \d+ of \d+ bytes"):
        load(damaged)


def test_a_model_is_in_evaluation_mode_with_config_and_tokenizer(tmp_path):
    model = load(save(tmp_path / "model", TOKENIZER["tokenizer.json"]))
    assert (model.training, model.config) == (False, model_of(2).config)
    assert model.tokenizer.encode(b"ab").tolist() == [97, 98]
    assert all(each.requires_grad and not each.is_meta for each in model.parameters())
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(model(tokens).logits, model_of(2).eval()(tokens).logits)
    save_model(tmp_path / "bare", model_of(2).double(), {})
    for asked, dtype in ((None, torch.float64), (torch.bfloat16, torch.bfloat16)):
        model = load(tmp_path / "bare", dtype=asked)
        assert (model.embedding.weight.dtype, model.tokenizer) == (dtype, None)
    with pytest.raises(ConfigError, match="device 'cuda:97' is missing"):
        load(tmp_path / "bare", device="cuda:97")


def test_ids_that_only_the_tokenizer_has_are_refused_and_others_seen(tmp_path):
    words = train_tokenizer("bpe", [b"a text"], vocab_size=300).serialize()
    message = "model has 261 ids, but the model's vocab_size is 256: they do not belong together"
    assert message in refusal(save(tmp_path / "model", words))
    letters = train_tokenizer("characters", [b"ab"]).serialize()
    tokenizer = load(save(tmp_path / "few", letters)).tokenizer
    assert tokenizer.decode([1, 255, 2, 2, 7, 8]).decode() == "a\ufffdbb\ufffd\ufffd"


def test_a_folder_without_a_model_or_with_a_damaged_one_is_refused(tmp_path):
    (tmp_path / "file").touch()
    assert "file is a file: name a run" in refusal(tmp_path / "file")
    run = write_run(tmp_path / "empty", best=None)
    assert "has no model and no whole checkpoint" in refusal(run)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    assert "sublayer import huggingface" in refusal(tmp_path)
    weights = save(tmp_path / "model") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:200])
    assert "damaged or truncated" in refusal(tmp_path / "model")
    config = save(tmp_path / "other") / "config.json"
    described = json.loads(config.read_text())
    config.write_text(json.dumps({**described, "model": {**described["model"], "d_ff": 5}}))
    assert "shape [24, 6], but its config needs [5, 6]" in refusal(tmp_path / "other")
    config.write_text("{")
    assert "is not JSON" in refusal(tmp_path / "other")


@pytest.mark.parametrize("factor", [1e20, 3e38])
def test_a_model_whose_outputs_overflow_is_refused(tmp_path, factor):
    model = model_of(2)
    for parameter in model.parameters():
        parameter.data = (parameter.data * factor).clamp(-3e38, 3e38)
    save_model(tmp_path / "model", model, TOKENIZER)
    message = "the model's outputs are not finite, with weights up to"
    assert message in refusal(tmp_path / "model")
    logits = torch.tensor([[1.0, torch.nan], [torch.inf, 0.0]])
    for row, temperature in product(logits[:, None], (0.0, 1.0)):
        with pytest.raises(CheckpointError, match="not finite"):
            Sampling(temperature).choose(row, torch.Generator())
