"""The encoders' recipes are trained as their papers and released code say."""

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.config.layering.sources import shipped_recipes
from tests.breadth import rows

OF_ALBERT = [
    name
    for name in shipped_recipes()
    if name.startswith(("bert-", "albert-")) and name != "albert-small"
]


@pytest.mark.parametrize("name", rows(OF_ALBERT, 4))
def test_it_learns_from_all_text_and_is_watched_on_squad_and_race(name: str) -> None:
    recipe = load_recipe(name).recipe
    assert recipe.data.split == "100/0/0"
    assert recipe.data.watch == ("squad-dev", "race-dev")
    assert recipe.train.best_by == "last"
    optimizer = recipe.optimizer
    assert (optimizer.warmup, optimizer.warmup_steps, optimizer.lr) == ("albert", 3125, 0.00176)


@pytest.mark.parametrize(
    ("name", "steps", "dropout"),
    [
        ("albert-xxlarge", 1_500_000, 0.0),
        ("albert-xxlarge-125k", 125_000, 0.1),
        ("albert-xxlarge-v2", 3_000_000, 0.0),
        ("albert-base-v2", 10_000_000, 0.0),
    ],
)
def test_the_largest_has_the_lengths_of_table_and_releases(
    name: str, steps: int, dropout: float
) -> None:
    recipe = load_recipe(name).recipe
    assert (recipe.train.steps, recipe.model.dropout) == (steps, dropout)


def test_macaron_bert_follows_bert() -> None:
    recipe = load_recipe("macaron-bert-base").recipe
    optimizer = recipe.optimizer
    assert (optimizer.warmup, optimizer.warmup_steps, optimizer.lr) == ("albert", 10_000, 1e-4)
    # 199 to 1, of which the one chooses nothing.
    assert (recipe.data.split, recipe.train.best_by) == ("99.5/0.5/0", "last")
    assert "900,000 steps at 128 tokens" in recipe.source


def test_macaron_bert_as_released_has_its_batches_and_positions() -> None:
    recipe = load_recipe("macaron-bert-base-released").recipe
    data, model, train = recipe.data, recipe.model, recipe.train
    # 6,400 tokens on each of 4 GPUs, 5 times.
    assert train.batch_tokens == 6400 * 4 * 5
    assert (data.batch_parts, data.batch_multiple) == (20, 8)
    assert (model.sinusoids, model.first_position, model.zero_padding) == ("fairseq", 2, True)
    assert (data.split, train.best_by) == ("99.5/0.5/0", "last")
    assert (recipe.optimizer.warmup, recipe.optimizer.warmup_steps) == ("ordinary", 0)
