"""One tokenizer for arms that differ in their text, where each would train its own."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from sublayer.config.load import vary
from sublayer.config.recipe import Recipe
from sublayer.config.texts import TOKENIZERS
from sublayer.data.prepare import Data
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.files.storage import write_file
from sublayer.study.arms import Arm
from sublayer.study.budget.match import ORIGIN

_TOKENIZER = ".tokenizer"


def share_tokenizer(
    arms: Sequence[Arm], data: Callable[[Recipe], Data], folder: Path
) -> tuple[Arm, ...]:
    """Share the baseline's tokenizer with arms of the same kind and size on another text.

    It is kept in the study's folder. Arms that ask for another tokenizer, or start from a run, keep
    theirs.
    """
    baseline = arms[0].loaded.recipe
    tokenizer = data(baseline).tokenizer
    asked = _asked(baseline)
    shared = []
    for arm in arms:
        recipe = arm.loaded.recipe
        arms_tokenizer = data(recipe).tokenizer
        is_another = arms_tokenizer.fingerprint != tokenizer.fingerprint
        if is_another and asked is not None and _asked(recipe) == asked:
            path = keep_tokenizer(folder.absolute(), *kept_forms(tokenizer))
            loaded = vary(arm.loaded, {"data.tokenizer": str(path)}, origin=ORIGIN)
            arm = replace(arm, loaded=loaded)
        shared.append(arm)
    return tuple(shared)


def kept_forms(tokenizer: Tokenizer) -> tuple[bytes, bytes]:
    """Return the content of a tokenizer's file as it is kept now, and as it was."""
    return tokenizer.serialize(is_kept=True), tokenizer.serialize()


def _asked(recipe: Recipe) -> tuple[str | int | None, ...] | None:
    """Return what a recipe asks of the tokenizer that it trains; None where it trains none."""
    is_trained = recipe.init.run is None and recipe.data.tokenizer in TOKENIZERS
    if not is_trained:
        return None
    data = recipe.data
    return (
        data.tokenizer,
        data.vocab_size,
        data.merges,
        data.normalization,
        data.sentinels,
        data.special_tokens,
    )


def kept_tokenizers(folder: Path) -> set[Path]:
    """Return the files of the tokenizers that a study's folder keeps."""
    return set(folder.glob(f"{_TOKENIZER}*.json"))


def keep_tokenizer(folder: Path, content: bytes, former: bytes = b"") -> Path:
    """Save a tokenizer in a folder, under the first name that is free or already holds it.

    ``former`` is its content as earlier versions kept it.
    """
    known = (content, former or content)
    number = 1
    while True:
        name = f"{_TOKENIZER}.json" if number == 1 else f"{_TOKENIZER}-{number}.json"
        path = folder / name
        if path.is_file() and path.read_bytes() in known:
            return path
        if not os.path.lexists(path):
            write_file(path, content)
            return path
        number += 1
