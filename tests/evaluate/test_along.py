"""A run is scored on its way by its objective's measures, each time on the same part of the text."""

from typing import Any

import pytest

from sublayer.config.layers import load_recipe
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import resolve_model
from sublayer.data.split import Split
from sublayer.evaluate.along import METRICS, evaluate_along
from sublayer.evaluate.likelihood import score
from sublayer.evaluate.masked import Scoring, encoder_scores
from sublayer.model.build import build
from sublayer.model.transformer import Transformer
from sublayer.study.metrics import METRICS as STUDIED
from tests.stories import numbered

SPLIT = numbered([[3, 5, 2, 6, 4, 4] * 9, [5, 2, 7] * 12, [4, 4, 1] * 10])


def recipe_of(name: str, **settings: Any) -> Recipe:
    tiny = {"model.n_layers": 1, "model.d_model": 8, "model.n_heads": 2, "data.context": 16}
    return load_recipe(name, {**tiny, "train.steps": 3, "train.evaluate_tokens": 160, **settings}).recipe


def model_of(recipe: Recipe, split: Split) -> Transformer:
    config = resolve_model(recipe.model, vocab_size=split.tokenizer.vocab_size, context=recipe.data.context)
    return build(config, seed=0)


def test_an_encoder_is_scored_on_as_many_examples_as_the_tokens_make() -> None:
    recipe = recipe_of("albert-small", **{"model.d_embed": 4})
    model = model_of(recipe, SPLIT)
    found = evaluate_along(model, SPLIT, recipe)
    # 160 tokens are ten contexts of 16.
    assert found == encoder_scores(model, SPLIT, recipe.objective, Scoring(16, 256, 10))  # type: ignore[arg-type]
    assert found == evaluate_along(model, SPLIT, recipe)
    assert found["sop_pairs"] <= 10


def test_a_decoder_is_scored_as_before() -> None:
    recipe = recipe_of("gpt")
    model = model_of(recipe, SPLIT)
    likelihood = score(model, SPLIT, context=16, stride=16, batch_sequences=256, max_tokens=160)
    found = evaluate_along(model, SPLIT, recipe)
    assert found == {"loss": likelihood.loss, "bits_per_byte": likelihood.bits_per_byte}


def test_less_than_a_context_of_tokens_is_an_example() -> None:
    recipe = recipe_of("albert-small", **{"model.d_embed": 4, "train.evaluate_tokens": 3})
    model = model_of(recipe, SPLIT)
    assert evaluate_along(model, SPLIT, recipe)["mlm_tokens"] in (1, 2)


@pytest.mark.parametrize("name", ["gpt", "albert-small"])
def test_every_measure_is_given_and_the_loss_comes_first(name: str) -> None:
    recipe = recipe_of(name, **({"model.d_embed": 4} if name == "albert-small" else {}))
    measures = METRICS[recipe.objective.kind]
    assert measures[0] == "loss"
    assert set(measures) <= evaluate_along(model_of(recipe, SPLIT), SPLIT, recipe).keys()


def test_what_a_study_compares_is_what_a_run_is_scored_by() -> None:
    assert METRICS.keys() == STUDIED.keys()
    for kind, metrics in STUDIED.items():
        if kind == "translation":  # a study translates the test split, which is too long a work to do on the way
            continue
        assert {metric.name for metric in metrics} <= set(METRICS[kind])
