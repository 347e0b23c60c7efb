"""Tokens are shown as what they stand for, or by their names."""

import numpy as np

from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.data.tokenizers.extended import with_names
from sublayer.data.tokenizers.shown import show_tokens, special_names


def test_blanks_are_seen_and_what_has_no_shape_is_escaped() -> None:
    tokenizer = with_names(ByteTokenizer(), ["[START]"])
    text = b"a b\n\xc3"
    ids = np.append(tokenizer.encode(text), tokenizer.added_ids["[START]"])
    assert show_tokens(ids, tokenizer) == ["a", "▁", "b", "\\n", "\\xc3", "[START]"]


def test_tokens_of_text_and_names_of_marks_are_told_apart(
    words: Tokenizer, stories: list[list[str]]
) -> None:
    text = stories[0][0]
    ids = words.encode(text.encode())
    shown = "".join(show_tokens(ids, words)).replace("##", "")
    assert shown.replace("▁", "").lower() == text.replace(" ", "").lower()
    assert words.sep_id is not None
    name = special_names(words)[words.sep_id]
    assert show_tokens(np.array([words.sep_id]), words) == [name]
    assert name in ("[SEP]", "</s>")
