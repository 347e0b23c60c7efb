"""The recipe that fine-tuning puts together, and what cannot be said to it."""

import pytest

from sublayer.config.layering.finetune import load_finetune
from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError


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
