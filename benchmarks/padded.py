"""The examples of our batches as peers take them, each padded to the longest of its batch."""

from collections.abc import Sequence

import torch
from stand_in import stand_in
from torch import Tensor

from sublayer.config.objective import MaskedObjective
from sublayer.config.recipe import ResolvedRecipe
from sublayer.data.masked import Example, ExampleSource
from sublayer.objective.base import family
from sublayer.objective.masked import pair_settings

N_BATCHES = 64
"""Batches that peers have in memory: the first ones of ours, again and again."""
_IGNORED = -100


def first_examples(recipe: ResolvedRecipe) -> list[list[Example]]:
    """Give the examples of the first global batches that a recipe trains on."""
    split = stand_in(recipe.model.vocab_size)
    assert isinstance(recipe.objective, MaskedObjective), "only masked objectives have examples"
    settings = pair_settings(recipe.objective, split.tokenizer, context=recipe.data.context)
    source = ExampleSource(split, 0, len(split.ids), settings, seed=recipe.train.seed)
    size = recipe.train.batch_sequences
    return [
        [source.example(position) for position in range(start, start + size)]
        for start in range(0, N_BATCHES * size, size)
    ]


def padded(examples: Sequence[Example], label: str) -> dict[str, Tensor]:
    """Put each example into a row as wide as the longest.

    ``label`` is what the peer calls that of a pair.
    """
    shape = len(examples), max(len(example.ids) for example in examples)
    ids, segments, mask = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    labels = torch.full(shape, _IGNORED)
    for row, example in enumerate(examples):
        stop = len(example.ids)
        ids[row, :stop], segments[row, :stop], mask[row, :stop] = (
            torch.from_numpy(example.ids),
            torch.from_numpy(example.segments),
            1,
        )
        labels[row, torch.from_numpy(example.positions)] = torch.from_numpy(example.targets)
    pairs = torch.tensor(
        [example.label if example.label >= 0 else _IGNORED for example in examples]
    )
    return {
        "input_ids": ids,
        "token_type_ids": segments,
        "attention_mask": mask,
        "labels": labels,
        label: pairs,
    }


def padding_shares(recipe: ResolvedRecipe) -> tuple[float, float]:
    """Return the share of padding in the computation: in our micro-batches, in peers' batches."""
    ours, theirs, real = 0, 0, 0
    batches = family("masked").batches(recipe, stand_in(recipe.model.vocab_size))
    micro = recipe.train.micro_batch_sequences
    for step, examples in enumerate(first_examples(recipe)):
        batch = batches.batch(step)
        parts = [batch[start : start + micro] for start in range(0, len(batch), micro)]
        ours += sum(part.read.tokens.numel() for part in parts)
        theirs += len(examples) * max(len(example.ids) for example in examples)
        real += batches.n_tokens(step)
    return 1 - real / ours, 1 - real / theirs
