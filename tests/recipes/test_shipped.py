import re

import pytest

from sublayer.config.architecture.block import BLOCKS
from sublayer.config.fields.applicability import is_idle
from sublayer.config.fields.catalog import declaration
from sublayer.config.fields.messages import choices_of
from sublayer.config.layering.groups import OTHERS, grouped_recipes
from sublayer.config.layering.layers import load_recipe
from sublayer.config.layering.sources import find_source, layer_of, read_toml, shipped_recipes
from sublayer.config.optimizers.kinds import OPTIMIZERS
from sublayer.config.resolve_model import resolve_model
from tests.breadth import rows

CHOICES = (
    "model.ffn",
    "model.norm",
    "model.norm_order",
    "model.positions",
    "model.share",
    "model.softmax",
    "optimizer.schedule",
)

AXES = {
    **{key: choices_of(declaration(key).annotation) for key in CHOICES},
    "model.block": list(BLOCKS),
    "optimizer.kind": list(OPTIMIZERS),
    "data.tokenizer": ["bytes", "characters", "bpe"],
    "data.corpus": ["python", "enwik8"],
    "data.context": ["16", "1000"],
    "train.steps": ["1", "100000"],
    "model.d_model": ["4", "64", "1024"],
}


@pytest.mark.parametrize("name", shipped_recipes())
def test_a_shipped_recipe_loads_sets_only_effective_fields_and_costs_what_it_says(name: str):
    source = find_source(name)
    content = read_toml(source.path)
    assert {"title", "source", "cost"} <= set(content)
    recipe = load_recipe(name).recipe
    base = load_recipe(content["extends"]).recipe if "extends" in content else None
    for key, value in layer_of(content, source.origin).values.items():
        if "." in key:
            table, _, field = key.partition(".")
            assert not is_idle(key, recipe), key
            assert base is None or getattr(getattr(base, table), field) != value, key
    said = re.search(r"([\d.]+) M parameters", recipe.cost)
    assert said is None or float(said[1]) == round(parameters(name) / 1e6, 1)


def test_every_recipe_belongs_to_a_group():
    groups = grouped_recipes()
    assert OTHERS not in groups
    assert sorted(each.name for group in groups.values() for each in group) == list(
        shipped_recipes()
    )


@pytest.mark.parametrize(
    ("key", "value"), rows([(key, value) for key in AXES for value in AXES[key]], 14)
)
def test_every_axis_of_gpt_can_be_varied(key: str, value: str):
    load_recipe("gpt", [f"{key}={value}"])


def test_gpt_leaves_the_rest_to_the_runs_length():
    recipe = load_recipe("gpt").recipe
    assert recipe.model.d_head is None
    assert recipe.optimizer.warmup_steps is None
    assert recipe.train.evaluate_steps is None
    assert recipe.data.corpus == "python"


def parameters(name: str) -> int:
    from sublayer.estimate.cost import count_parameters
    from sublayer.study.budget.vocabulary import expected_vocabulary

    recipe = load_recipe(name).recipe
    vocab_size = expected_vocabulary(recipe).size
    return count_parameters(
        resolve_model(recipe.model, vocab_size=vocab_size, context=recipe.data.context)
    ).total


@pytest.mark.parametrize("name", ["modern", "macaron"])
def test_a_variant_has_as_many_parameters_as_gpt(name: str):
    assert parameters(name) == pytest.approx(parameters("gpt"), rel=0.025)
