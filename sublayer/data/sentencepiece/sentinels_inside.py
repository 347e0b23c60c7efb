"""Sentinels of a published SentencePiece model: its own pieces, or counted by a file beside it."""

from collections.abc import Sequence
from pathlib import Path

from sublayer.config.limits import MOST_SENTINELS
from sublayer.data.sentencepiece.model_file import parse_model
from sublayer.data.tokenizers.normalization import CONFIG_NAME, read_settings
from sublayer.data.tokenizers.sentinels import find_sentinels, sentinel_name
from sublayer.errors import DataError

_T5_CLASSES = ("T5Tokenizer", "T5TokenizerFast")
_T5_SENTINELS = 100
"""Of transformers' class, where its settings do not say how many."""


def mute_sentinels(model: bytes, names: Sequence[str]) -> tuple[bytes, tuple[int, ...]]:
    """Return a model that never reads its own sentinels from a text, and their ids.

    ``names`` are all of its pieces. What the model marks as a piece of text, even by such a name,
    is no sentinel. Without any the model is returned as it is.
    """
    if sentinel_name(0) not in names:
        return model, ()
    content = parse_model(model)
    kinds = content.SentencePiece
    marked = {}
    for id_, piece in enumerate(content.pieces):
        if piece.type in (kinds.CONTROL, kinds.USER_DEFINED, kinds.UNUSED):
            marked[piece.piece] = id_
    ids = find_sentinels(marked)
    if not ids:
        return model, ()
    for id_ in ids:
        # It is in no text that is encoded, and decoded by its name.
        content.pieces[id_].type = kinds.UNUSED
    return content.SerializeToString(deterministic=True), ids


def sentinels_beside(folder: Path) -> int:
    """Return how many sentinels a folder's ``tokenizer_config.json`` adds to T5's model.

    0 where it is not of T5's class, or there is none. Raises DataError where it is damaged.
    """
    settings = read_settings(folder)
    if settings.get("tokenizer_class") not in _T5_CLASSES:
        return 0
    n_sentinels = settings.get("extra_ids", _T5_SENTINELS)
    # A truth is an int in Python, and no number.
    is_number = type(n_sentinels) is int
    if not is_number or not 0 <= n_sentinels <= MOST_SENTINELS:
        raise DataError(
            f"{folder / CONFIG_NAME}: extra_ids = {str(n_sentinels)[:60]} must be a number from 0 "
            f"to {MOST_SENTINELS}"
        )
    return int(n_sentinels)
