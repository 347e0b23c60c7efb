"""A recipe and the run that it starts from or fine-tunes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sublayer.config.layering.finetune import load_finetune
from sublayer.config.layering.layers import load_recipe, vary
from sublayer.config.layering.run_recipe import dump_recipe
from sublayer.config.layering.sources import shipped_recipes
from sublayer.config.layering.start_folder import read_start
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import ConfigError
from tests.breadth import rows

SMALL = {
    "model.n_layers": 2,
    "model.d_model": 32,
    "model.ffn": "swiglu",
    "model.d_ff": 48,
    "data.context": 64,
    "data.path": "book.txt",
    "data.split": "80/10/10",
}

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Write the folder of a run, as far as a recipe that starts from it reads one."""

    def write(settings: dict[str, Any] = SMALL, source: str = "gpt") -> str:
        recipe = load_recipe(source, settings).recipe
        model = resolve_model(recipe.model, vocab_size=256, context=recipe.data.context)
        open_fields = model.model_fields_set - recipe.model.model_fields_set
        folder = tmp_path / "book"
        (folder / "model").mkdir(parents=True)
        whole = recipe.model_copy(update={"model": model})
        text = dump_recipe(whole, [f"model.{name}" for name in open_fields])
        (folder / "recipe.toml").write_text(text)
        described = {"format": "sublayer", "version": 1, "model": model.model_dump(mode="json")}
        (folder / "model" / "config.json").write_text(json.dumps(described))
        return str(folder)

    return write


def test_a_start_gives_its_model_and_its_text(run: Run) -> None:
    folder = run()
    loaded = load_recipe("modern", {"init.run": folder})
    model, data = loaded.recipe.model, loaded.recipe.data
    assert (model.n_layers, model.d_model, model.ffn, model.d_ff) == (2, 32, "swiglu", 48)
    assert (model.norm, model.positions) == ("layer", "learned")  # gpt's defaults, not modern's
    assert (data.path, data.corpus, data.split, data.context) == ("book.txt", None, "80/10/10", 64)
    assert loaded.origins["model.d_model"] == f"run {folder}"
    assert "data.path = 'book.txt' instead of data.corpus = 'python'" in loaded.notes[1]
    arm = vary(loaded, {"model.norm_eps": 1e-3}).recipe.model
    assert (arm.norm_eps, arm.d_model) == (1e-3, 32)


def test_settings_of_the_command_line_stand(run: Run) -> None:
    folder = run()
    given = {"init.run": folder, "data.path": "notes.txt", "model.dropout": 0.1}
    loaded = load_recipe("gpt", given)
    model, data = loaded.recipe.model, loaded.recipe.data
    # Of the other text only what the model was trained to see is kept.
    assert (data.path, data.split, data.context) == ("notes.txt", None, 64)
    assert (model.dropout, model.dropout_attention) == (0.1, None)  # follows dropout, as there
    kept, others = loaded.notes
    assert kept == (
        f"starts from {folder}, whose model and tokenizer it keeps, but for model.dropout = 0.1 "
        "(there 0.0), data.path = 'notes.txt' (there 'book.txt'), no data.split (there '80/10/10')"
    )
    assert "model.d_model = 32 instead of 192" in others


def test_the_data_of_a_recipe_of_tasks_counts_for_any_model(run: Run, tmp_path: Path) -> None:
    recipe = tmp_path / "tasks.toml"
    recipe.write_text(
        '[objective]\nkind = "supervised"\nformat = "traversal"\n[model]\nn_layers = 9\n'
        '[data]\ntasks = "rte"\npath = "glue"\ncontext = 48\n'
    )
    loaded = load_recipe(str(recipe), {"init.run": run()})
    model, data = loaded.recipe.model, loaded.recipe.data
    assert (data.tasks, data.path, data.context, data.split) == ("rte", "glue", 48, None)
    assert (model.n_layers, model.max_len) == (2, 64)


def test_the_recipe_of_a_run_that_had_a_start_is_whole_without_it(run: Run, tmp_path: Path) -> None:
    first = run()
    second = load_recipe("gpt", {"init.run": first, "model.init_std": 0.02}).recipe
    later = tmp_path / "later"
    later.mkdir()
    (later / "recipe.toml").write_text(dump_recipe(second))
    (Path(first) / "recipe.toml").unlink()
    assert load_recipe(str(later)).recipe.model == second.model


@pytest.mark.parametrize("part", ["model", "checkpoints/step-3/model"])
def test_a_checkpoint_and_a_model_of_a_run_are_that_run(run: Run, part: str) -> None:
    folder = Path(run()) / part
    folder.mkdir(parents=True, exist_ok=True)
    start = read_start(str(folder))
    assert start is not None and start.data is not None
    assert (start.model.d_ff, start.data.path) == (48, "book.txt")


def test_an_imported_model_gives_its_model_and_a_context_that_it_has(run: Run) -> None:
    folder = Path(run())
    (folder / "recipe.toml").unlink()
    loaded = load_recipe("gpt", {"init.run": str(folder / "model")})
    assert (loaded.recipe.model.d_ff, loaded.recipe.data.context) == (48, 64)
    assert loaded.recipe.data.corpus == "python"  # the recipe's: the model brings no text


@pytest.mark.parametrize("name", rows(shipped_recipes(), 2))
def test_every_shipped_model_is_kept_as_it_is(run: Run, name: str) -> None:
    folder = run({}, name)
    before, after = load_recipe(name).recipe, load_recipe(name, {"init.run": folder}).recipe
    sizes = {"vocab_size": 256, "context": before.data.context}
    kept, given = (resolve_model(each.model, **sizes) for each in (after, before))
    assert kept.model_dump() == given.model_dump()


@pytest.mark.parametrize("damage", ["not toml [", "[model]\nno = 1"])
def test_a_start_that_cannot_be_read_is_left_to_the_loading_of_its_weights(run: Run, damage: str):
    folder = Path(run())
    (folder / "recipe.toml").write_text(damage)
    assert read_start(str(folder)) is None
    assert read_start(str(folder / "nothing")) is None


def test_a_start_or_an_objective_of_another_kind_is_refused_by_name(run: Run) -> None:
    with pytest.raises(ConfigError, match=r"is a model of another kind \(decoder\) than .*encoder"):
        load_recipe("albert-small", {"init.run": run()})
    with pytest.raises(ConfigError, match="objective.kind = masked answers no task: leave it out"):
        load_finetune("albert-small", ["rte"], ".", ["objective.kind=masked"])


@pytest.mark.parametrize(("source", "dropout_attention"), [("gpt1-lstm", None), ("gpt", 0.1)])
def test_a_preset_sets_only_fields_that_the_model_has(source: str, dropout_attention):
    found = load_finetune(source, ["rte"], ".", preset="gpt1").loaded.recipe
    assert (found.model.dropout, found.model.dropout_attention) == (0.1, dropout_attention)
    assert found.objective.format == "traversal"
