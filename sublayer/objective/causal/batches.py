"""Windows of a text, whose tokens are predicted from those before."""

import numpy as np

from sublayer.config.objectives.causal import CausalObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import batch_sequences
from sublayer.data.batches import Windows
from sublayer.data.split import Split
from sublayer.data.store import TokenStore
from sublayer.data.tokenizers.characters import ByteTokenizer

_SYNTHETIC_WINDOWS = 64


def causal_batches(recipe: Recipe, split: Split) -> Windows:
    """Build the windows that a recipe asks for.

    Raises DataError where the split, or a weighted source of it, has none.
    """
    objective, data = recipe.objective, recipe.data
    assert isinstance(objective, CausalObjective), "the row is of causal objectives"
    return Windows(
        split,
        context=data.context,
        batch_sequences=batch_sequences(recipe),
        seed=recipe.train.seed,
        mode=data.windows,
        boundaries=data.boundaries,
        n_ahead=objective.targets,
    )


def check_windows(recipe: Recipe, split: Split) -> None:
    """Raise DataError where the split, or a weighted source of it, has no window."""
    objective = recipe.objective
    assert isinstance(objective, CausalObjective), "the row is of causal objectives"
    split.check_windows(recipe.data.context, objective.targets)


def synthetic_windows(recipe: Recipe, vocab_size: int) -> Windows:
    """Build windows of random tokens, whatever the recipe's text is."""
    return causal_batches(recipe, synthetic_split(recipe, vocab_size))


def synthetic_split(recipe: Recipe, vocab_size: int) -> Split:
    """Build a split of random tokens, 64 windows long, always the same.

    Its tokenizer of bytes stands in for one of ``vocab_size`` ids: nothing decodes the tokens.
    """
    n_tokens = _SYNTHETIC_WINDOWS * (recipe.data.context + 1)
    generator = np.random.Generator(np.random.Philox(0))
    ids = generator.integers(vocab_size, size=n_tokens)
    starts = np.zeros(1, dtype=np.int64)
    store = TokenStore(ids, starts, starts, len(ids), "", is_lossless=True)
    return Split("train", store, ByteTokenizer(), ("",))
