"""Readable tokens, and an example in each format, as in the papers' figures."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np

from sublayer.config.objective import Format
from sublayer.data.tasks.batches import build_row
from sublayer.data.tasks.encoded import TRAVERSAL_NAMES, encode_examples, find_marks
from sublayer.data.tokenizers.base import (
    SPACE,
    SPECIAL_NAMES,
    Tokenizer,
    WrappedTokenizer,
    after_newline,
    decode_utf8,
)
from sublayer.data.tokenizers.sentencepiece import UnigramTokenizer
from sublayer.data.tokenizers.subword import SubwordTokenizer
from sublayer.errors import ConfigError
from sublayer.files.arrays import AnyInts, Ints, TokenIds
from sublayer.tasks.registry import wording_of
from sublayer.tasks.task import Example, Task

END = "</s>"
"""Usual name of the token that ends a document."""


class WordTokens(Tokenizer):
    """Vocabulary of the formats' special tokens and of the space-separated words of some texts."""

    kind = "words"
    is_lossless = False

    def __init__(self, texts: Iterable[str], *, first: str = "[CLS]", last: str = "[SEP]") -> None:
        words = (word for text in texts for word in text.split())
        marks = (first, last, *TRAVERSAL_NAMES)
        self.names = [*marks, *dict.fromkeys(words)]
        self.vocab_size = len(self.names)
        self.special_ids = tuple(range(len(marks)))
        self.cls_id, self.sep_id, *added = self.special_ids
        self.added_ids = dict(zip(TRAVERSAL_NAMES, added, strict=True))
        # A word that is written like a special token gets no id of its own.
        self._ids = {name: id_ for id_, name in enumerate(self.names) if id_ >= len(marks)}
        self._set_pieces([name.encode() for name in self.names])

    def encode(self, text: bytes) -> TokenIds:
        """Encode words, all of which are in the vocabulary."""
        words = decode_utf8(text).split()
        return np.array([self._ids[word] for word in words], dtype=np.int32)

    def _decode(self, ids: Ints) -> bytes:
        return " ".join(self.names[id_] for id_ in ids.tolist()).encode()

    def cut(self, text: bytes, near: int) -> int:
        """Cut after a newline."""
        return after_newline(text, near)

    def content(self) -> dict[str, Any]:
        """Return the words."""
        return self._described(names=self.names)


def show_tokens(ids: AnyInts, tokenizer: Tokenizer) -> list[str]:
    """Return a text for each id: a blank is ``▁``, and invisible characters are escaped.

    Ids without text are shown by name, such as ``[SEP]``.
    """
    names = special_names(tokenizer)
    texts = []
    for id_ in ids.tolist():
        if id_ in names:
            texts.append(names[id_])
            continue
        name = "" if tokenizer.is_lossless else _named(tokenizer, id_)
        piece = name or tokenizer.decode([id_]).decode("utf-8", "backslashreplace")
        texts.append(
            "".join(
                character if character.isprintable() else repr(character)[1:-1]
                for character in piece.replace(" ", SPACE)
            )
        )
    return texts


def special_names(tokenizer: Tokenizer) -> dict[int, str]:
    """Return the names of ids without text: the vocabulary's names, else the usual ones."""
    names = {id_: name for name, id_ in tokenizer.added_ids.items()}
    ids = {key: usual[0] for key, usual in SPECIAL_NAMES.items()} | {"end_id": END}
    for key, usual in ids.items():
        id_ = getattr(tokenizer, key)
        if id_ is not None:
            names.setdefault(id_, _named(tokenizer, id_) or usual)
    return names


def _named(tokenizer: Tokenizer, id_: int) -> str:
    if isinstance(tokenizer, WrappedTokenizer):
        return _named(tokenizer.vocabulary, id_)
    if isinstance(tokenizer, SubwordTokenizer | UnigramTokenizer | WordTokens):
        return tokenizer.names[id_]
    return ""


FORMATS: tuple[Format, ...] = ("pair", "traversal", "text")
_UNCUT = 1 << 20


def draw_figures(
    task: Task, example: Example, tokenizer: Tokenizer | None
) -> dict[Format, dict[str, Any]]:
    """Show an example in each format, without truncation; without a tokenizer, as words.

    ``rows`` are the tokens that a model reads, one row per choice, in order; ``marks`` are the
    special tokens of the format. ``target`` tokens are empty if the target is not known, or if the
    format has none. ``problem`` is the reason why there are no rows.
    """
    return {name: _draw(task, example, name, tokenizer) for name in FORMATS}


def _draw(
    task: Task, example: Example, format_: Format, tokenizer: Tokenizer | None
) -> dict[str, Any]:
    wording = wording_of(task)
    if tokenizer is None:
        last = "[SEP]"
        if format_ == "traversal":
            texts = list(chain.from_iterable(wording.traversal_rows(example)))
        elif format_ == "text":
            texts, last = [wording.text_input(example), wording.text_target(example) or ""], END
        else:
            pairs = wording.pair_rows(example)
            texts = [text for row in pairs for text in (row.first, row.second or "")]
        tokenizer = WordTokens(texts, last=last)
    tokenizer = tokenizer.with_names(TRAVERSAL_NAMES)
    try:
        marks = find_marks(tokenizer, format_)
    except ConfigError as error:
        return {"rows": [], "marks": [], "target": [], "problem": str(error)}
    target: list[str] = []
    rows: list[AnyInts]
    if task.kind == "span" and format_ == "pair":
        # A single window, as if the passage fitted into it.
        (pair,) = wording.pair_rows(example)
        assert pair.second is not None and marks.first is not None, "a question has a passage"
        question = tokenizer.encode(pair.first.encode())[: pair.first_tokens]
        passage = tokenizer.encode(pair.second.encode())
        between = [marks.between] * marks.n_between
        ids: list[Any] = [[marks.first], question, between, passage, [marks.last]]
        rows = [np.concatenate(ids)]
    else:
        encoded = encode_examples(task, [example], tokenizer, format_, trains=False)
        if format_ == "text":
            read, *written = (np.append(text, marks.last) for text in encoded.texts_of(0))
            rows = [read]
            if written:
                target = show_tokens(written[0], tokenizer)
        else:
            rows = [build_row(encoded, row, marks, _UNCUT)[0] for row in range(encoded.n_rows)]
    named = special_names(tokenizer).keys()
    shown = [show_tokens(row, tokenizer) for row in rows]
    of_format = (
        text
        for row, texts in zip(rows, shown, strict=True)
        for id_, text in zip(row.tolist(), texts, strict=True)
        if id_ in named
    )
    return {
        "rows": shown,
        "marks": list(dict.fromkeys(of_format)),
        "target": target,
        "problem": "",
    }
