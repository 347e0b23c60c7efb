"""Tokens as people read them: what each stands for, with its blanks and its special names."""

from sublayer.data.arrays import AnyInts
from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tasks.word_tokens import WordTokens
from sublayer.data.tokenizers.base import SPECIAL_NAMES, Tokenizer
from sublayer.data.tokenizers.bilingual import BilingualTokenizer
from sublayer.data.tokenizers.extended import ExtendedTokenizer
from sublayer.data.tokenizers.words import SPACE

END = "</s>"
"""The usual name of what ends a document."""


def show_tokens(ids: AnyInts, tokenizer: Tokenizer) -> list[str]:
    """Return a text for each id: a blank is ``▁``, and what has no shape is escaped.

    Ids that stand for no text have their names, such as ``[SEP]``.
    """
    names = special_names(tokenizer)
    return [names[id_] if id_ in names else _piece(tokenizer, id_) for id_ in ids.tolist()]


def special_names(tokenizer: Tokenizer) -> dict[int, str]:
    """Return the names of ids that stand for no text: the vocabulary's own, else the usual."""
    names = {id_: name for name, id_ in tokenizer.added_ids.items()}
    ids = {key: usual[0] for key, usual in SPECIAL_NAMES.items()} | {"end_id": END}
    for key, usual in ids.items():
        id_ = getattr(tokenizer, key)
        if id_ is not None:
            names.setdefault(id_, _named(tokenizer, id_) or usual)
    return names


def _named(tokenizer: Tokenizer, id_: int) -> str:
    if isinstance(tokenizer, ExtendedTokenizer | BilingualTokenizer):
        return _named(tokenizer.vocabulary, id_)
    if isinstance(tokenizer, SubwordTokenizer | UnigramTokenizer | WordTokens):
        return tokenizer.names[id_]
    return ""


def _piece(tokenizer: Tokenizer, id_: int) -> str:
    name = "" if tokenizer.is_lossless else _named(tokenizer, id_)
    piece = name or tokenizer.decode([id_]).decode("utf-8", "backslashreplace")
    spaced = piece.replace(" ", SPACE)
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in spaced)
