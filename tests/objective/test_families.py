"""A run is scored by its objective's measures, each time on the same part of the text."""

from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sublayer.config.data import DataConfig
from sublayer.config.layering.layers import load_recipe
from sublayer.config.objectives.kinds import OBJECTIVES
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_model import resolve_model
from sublayer.model.build import build, compose
from sublayer.model.model_folder import save_model
from sublayer.model.transformer import Transformer
from sublayer.objective.families import FAMILIES
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec
from tests.stories import numbered

SPLIT = numbered([[3, 5, 2, 6, 4, 4] * 9, [5, 2, 7] * 12, [4, 4, 1] * 10])


def recipe_of(name: str, **settings: Any) -> Recipe:
    tiny = {"model.n_layers": 2, "model.d_model": 8, "model.n_heads": 2, "data.context": 16}
    tiny |= {"train.steps": 3, "train.evaluate_tokens": 160}
    return load_recipe(name, {**tiny, **settings}).recipe


def model_of(recipe: Recipe) -> Transformer:
    vocab_size = SPLIT.tokenizer.vocab_size
    return build(resolve_model(recipe.model, vocab_size=vocab_size, context=16), seed=0)


def test_what_a_study_compares_is_what_a_run_is_scored_by():
    for kind, family in FAMILIES.items():
        if kind == "translation":  # a study translates the test split, too long on the way
            continue
        data = DataConfig(tasks="sst2" if kind == "supervised" else None)
        given = OBJECTIVES[kind]().evaluations(data)  # type: ignore[call-arg]
        assert {metric.name for metric in family.metrics} <= set(given)


TRAINED = {
    "causal": ("gpt", {"objective.auxiliary": "layers", "objective.targets": 2}),
    "masked": ("albert-small", {"model.d_embed": 4, "objective.sentence": "none"}),
    "translation": ("multi30k-tiny", {"optimizer.warmup_steps": 1}),
    "span": ("t5-mini", {}),
    "supervised": (
        "albert-small",
        {
            "model.d_embed": 4,
            "objective.kind": "supervised",
            "data.tasks": "sst2",
            "model.head": "none",
            "model.label_outputs": 2,
            "model.sentence_classes": 0,
        },
    ),
}
"""A recipe of each kind of objective, with all that training alone may need."""


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_saved_model_holds_what_its_config_asks_for_and_nothing_that_training_alone_needs(
    kind, tmp_path
):
    name, settings = TRAINED[kind]
    recipe = recipe_of(name, **settings)
    model = model_of(recipe)
    if kind == "supervised":
        model.task = TaskSpec((TASKS["sst2"],), "pair", 16)
    objective = FAMILIES[kind].build(model, recipe.objective, 0)
    save_model(tmp_path / "model", objective.model, {})
    saved = load_file(tmp_path / "model" / "model.safetensors")
    with torch.device("meta"):
        asked = compose(objective.model.config).state_dict()
    shapes = [{name: value.shape for name, value in each.items()} for each in (saved, asked)]
    assert shapes[0] == shapes[1]
    owned = {f"model.{name}" for name in saved}
    alone = objective.training_only()
    assert owned | alone.keys() == dict(objective.named_parameters()).keys()
    assert (len(alone) > 0) == (kind == "causal")
