"""What of a text a user would not expect: a vocabulary that it cannot fill, documents and pairs that are left out."""

from collections.abc import Iterator

import numpy as np

from sublayer.config.recipe import Recipe
from sublayer.data.batches import Batches
from sublayer.data.prepare import Data
from sublayer.data.translation_batches import TranslationBatches, side_lengths

_UNKNOWN_SHARE, _CHUNK = 1e-3, 1 << 24


def text_notes(recipe: Recipe, data: Data, batches: Batches) -> list[str]:
    """Say it, a line each."""
    return [
        *_unfilled(recipe, data.tokenizer.vocab_size),
        *_left_out(recipe, data),
        *_unknown(recipe, data),
        *_too_long(recipe, data, batches),
    ]


def _unfilled(recipe: Recipe, n_ids: int) -> Iterator[str]:
    asked = recipe.data.vocab_size
    if recipe.init.run is None and asked is not None and n_ids < asked:
        yield f"data.vocab_size = {asked}, of which the training text fills {n_ids:,}: the model has those"


def _left_out(recipe: Recipe, data: Data) -> Iterator[str]:
    for name, sizes in data.sizes().items():
        n = sizes.get("empty_documents")
        if n and recipe.data.is_parallel:
            yield f"the {name} split has {n:,} pair(s) with an empty side, which its loss leaves out"
        elif n:
            yield f"the {name} split leaves out {n:,} document{'s' if n > 1 else ''} without text"


def _unknown(recipe: Recipe, data: Data) -> Iterator[str]:
    """Say where a vocabulary from elsewhere lacks more of a text to translate than rare characters."""
    if not recipe.data.is_parallel or data.tokenizer.unk_id is None:
        return
    ids = data.train.ids
    chunks = (ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK))
    n_unknown = sum(int(np.count_nonzero(chunk == data.tokenizer.unk_id)) for chunk in chunks)
    if n_unknown > _UNKNOWN_SHARE * len(ids):
        yield f"{n_unknown:,} of {len(ids):,} tokens of the train split are unknown to data.tokenizer"


def _too_long(recipe: Recipe, data: Data, batches: Batches) -> Iterator[str]:
    if not isinstance(batches, TranslationBatches):
        return
    if batches.n_left_out:
        yield f"{batches.n_left_out:,} pair(s) of the train split are longer than data.context and are left out"
    for split in (data.valid, data.test):
        if n := int((side_lengths(split).max(1) > recipe.data.context).sum()):
            yield f"{n:,} pair(s) of the {split.name} split are longer than data.context: its loss leaves them out"
