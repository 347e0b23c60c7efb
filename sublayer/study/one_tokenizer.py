"""One tokenizer for arms that differ in their text, where each would train its own."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from sublayer.config.data import TOKENIZERS
from sublayer.config.layers import vary
from sublayer.config.paths import anchored
from sublayer.config.recipe import Recipe
from sublayer.data.prepare import Data
from sublayer.storage import write_file
from sublayer.study.arms import Arm
from sublayer.study.budget import ORIGIN

TOKENIZER = ".tokenizer.json"


def with_one_tokenizer(arms: Sequence[Arm], data: Callable[[Recipe], Data], folder: Path) -> tuple[Arm, ...]:
    """Give the baseline's tokenizer to arms that ask for one of the same kind and size, and have another text.

    It is kept in the study's folder. Arms that ask for another tokenizer, or start from a run, keep theirs.
    """
    baseline = arms[0].loaded.recipe
    tokenizer = data(anchored(baseline)).tokenizer
    settled = []
    for arm in arms:
        own = data(anchored(arm.loaded.recipe)).tokenizer
        if own.fingerprint != tokenizer.fingerprint and _asked(arm.loaded.recipe) == _asked(baseline) is not None:
            path = _kept(folder.absolute(), tokenizer.serialize())
            arm = replace(arm, loaded=vary(arm.loaded, {"data.tokenizer": str(path)}, origin=ORIGIN))
        settled.append(arm)
    return tuple(settled)


def _asked(recipe: Recipe) -> tuple[str, int | None] | None:
    is_trained = recipe.init.run is None and recipe.data.tokenizer in TOKENIZERS
    return (recipe.data.tokenizer, recipe.data.vocab_size) if is_trained else None


def _kept(folder: Path, content: bytes) -> Path:
    """Keep a tokenizer in a folder, under the first name that holds it or nothing."""
    number = 1
    while True:
        path = folder / (TOKENIZER if number == 1 else f".tokenizer-{number}.json")
        if path.is_file() and path.read_bytes() == content:
            return path
        if not os.path.lexists(path):
            write_file(path, content)
            return path
        number += 1
