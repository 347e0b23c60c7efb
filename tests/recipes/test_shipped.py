"""Shipped recipes load, set only what has an effect, and cost what they say."""

import re

import pytest

from sublayer.config.fields.applicability import is_idle
from sublayer.config.layering.groups import OTHERS, grouped_recipes
from sublayer.config.layering.layers import load_recipe
from sublayer.config.layering.sources import find_source, layer_of, read_toml, shipped_recipes
from sublayer.config.resolve_model import resolve_model
from sublayer.estimate.cost import count_parameters
from sublayer.study.budget.vocabulary import expected_vocabulary


def parameters(name: str) -> int:
    recipe = load_recipe(name).recipe
    size, context = expected_vocabulary(recipe).size, recipe.data.context
    return count_parameters(resolve_model(recipe.model, vocab_size=size, context=context)).total


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
    listed = sorted(each.name for group in groups.values() for each in group)
    assert listed == list(shipped_recipes())


@pytest.mark.parametrize("name", ["modern", "macaron"])
def test_a_variant_has_as_many_parameters_as_gpt(name: str):
    assert parameters(name) == pytest.approx(parameters("gpt"), rel=0.025)
