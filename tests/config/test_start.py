"""A recipe and the run that it starts from or fine-tunes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sublayer.config.data import DataConfig
from sublayer.config.layering import start
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
        derived = [
            f"model.{name}" for name in model.model_fields_set - recipe.model.model_fields_set
        ]
        folder = tmp_path / "book"
        (folder / "model").mkdir(parents=True)
        text = dump_recipe(recipe.model_copy(update={"model": model}), derived)
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


def test_what_the_command_line_tells_stands(run: Run) -> None:
    folder = run()
    loaded = load_recipe(
        "gpt", {"init.run": folder, "data.path": "notes.txt", "model.dropout": 0.1}
    )
    data = loaded.recipe.data
    # Of the other text only what the model was trained to see is kept.
    assert (data.path, data.split, data.context) == ("notes.txt", None, 64)
    assert loaded.recipe.model.dropout == 0.1
    assert loaded.recipe.model.dropout_attention is None  # follows dropout, as it did there
    kept, others = loaded.notes
    assert kept == (
        f"starts from {folder}, whose model and tokenizer it keeps, but for model.dropout = 0.1 "
        "(there 0.0), data.path = 'notes.txt' (there 'book.txt'), no data.split (there '80/10/10')"
    )
    assert "model.d_model = 32 instead of 192" in others


def test_what_stands_for_a_text_of_the_recipe_is_named(run: Run) -> None:
    _, others = load_recipe("gpt", {"init.run": run()}).notes
    assert "data.path = 'book.txt' instead of data.corpus = 'python'" in others
    assert "unset" not in others


def test_what_a_recipe_of_tasks_says_of_its_data_counts_for_any_model(
    run: Run, tmp_path: Path
) -> None:
    recipe = tmp_path / "tasks.toml"
    recipe.write_text(
        '[objective]\nkind = "supervised"\nformat = "traversal"\n[model]\nn_layers = 9\n'
        '[data]\ntasks = "rte"\npath = "glue"\ncontext = 48\n'
    )
    loaded = load_recipe(str(recipe), {"init.run": run()})
    model, data = loaded.recipe.model, loaded.recipe.data
    assert (data.tasks, data.path, data.context, data.split) == ("rte", "glue", 48, None)
    assert (model.n_layers, model.max_len) == (2, 64)


def test_an_arm_over_a_start_stands_too(run: Run) -> None:
    loaded = vary(load_recipe("gpt", {"init.run": run()}), {"model.norm_eps": 1e-3})
    assert (loaded.recipe.model.norm_eps, loaded.recipe.model.d_model) == (1e-3, 32)


def test_the_recipe_of_a_run_that_had_a_start_is_whole_without_it(run: Run, tmp_path: Path) -> None:
    first = run()
    second = load_recipe("gpt", {"init.run": first, "model.init_std": 0.02}).recipe
    later = tmp_path / "later"
    later.mkdir()
    (later / "recipe.toml").write_text(dump_recipe(second))
    (Path(first) / "recipe.toml").unlink()
    assert load_recipe(str(later)).recipe.model == second.model


@pytest.mark.parametrize("part", ["", "model", "checkpoints/step-3/model"])
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


@pytest.mark.parametrize("recipe_name", rows(shipped_recipes(), 3))
def test_every_shipped_model_is_kept_as_it_is(run: Run, recipe_name: str) -> None:
    folder = run({}, recipe_name)
    before = load_recipe(recipe_name).recipe
    after = load_recipe(recipe_name, {"init.run": folder}).recipe
    size, context = 256, before.data.context
    assert (
        resolve_model(after.model, vocab_size=size, context=context).model_dump()
        == resolve_model(before.model, vocab_size=size, context=context).model_dump()
    )


@pytest.mark.parametrize("damage", ["", "not toml [", "[model]\nno = 1"])
def test_what_cannot_be_read_is_left_to_the_loading_of_its_weights(run: Run, damage: str) -> None:
    folder = Path(run())
    (folder / "recipe.toml").write_text(damage)
    start = read_start(str(folder))
    assert start is None or damage == ""
    assert read_start(str(folder / "nothing")) is None


def test_a_start_of_another_kind_than_the_recipe_trains_is_refused_by_name(run: Run) -> None:
    folder = run()
    with pytest.raises(ConfigError, match=r"is a model of another kind \(decoder\) than .*encoder"):
        load_recipe("albert-small", {"init.run": folder})


def test_every_field_of_the_text_is_the_starts_or_the_recipes() -> None:
    # One that comes later is put where it belongs: a text, how it is read, or what is seen of it.
    of_training = {
        "tokenizer",
        "vocab_size",
        "merges",
        "normalization",
        "sentinels",
        "max_words",
        "max_words_ratio",
        "windows",
        "boundaries",
        "watch",
        "batch_multiple",
        "batch_order",
        "batch_parts",
    }
    groups = {*start.SOURCES, *start._READ_AS, *start.SEEN_AS}
    assert groups | of_training == set(DataConfig.model_fields)
    assert not groups & of_training


def test_an_objective_that_answers_no_task_is_refused():
    with pytest.raises(ConfigError, match="objective.kind = masked answers no task: leave it out"):
        load_finetune("albert-small", ["rte"], ".", ["objective.kind=masked"])


@pytest.mark.parametrize("is_lstm", [True, False])
def test_a_preset_sets_nothing_that_the_model_has_not(is_lstm: bool):
    source = "gpt1-lstm" if is_lstm else "gpt"
    found = load_finetune(source, ["rte"], ".", preset="gpt1")
    model = found.loaded.recipe.model
    assert model.dropout == 0.1
    assert model.dropout_attention == (None if is_lstm else 0.1)
    assert found.loaded.recipe.objective.format == "traversal"


def test_what_a_recipe_dropped_is_not_taken_from_it():
    given = load_recipe("gpt1", {"model.kind": "lstm", "model.n_layers": 1})
    found = load_finetune(given, ["rte"], ".", preset="gpt1").loaded.recipe
    assert found.model.kind == "lstm"
    assert (found.model.norm_order, found.model.softmax) == ("pre", "tokens")
