"""Names in ``[data]``: corpora, tokenizers, shares of a split, watched texts, tasks, own tables."""

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from pathlib import PurePath
from typing import Literal

from sublayer.config.limits import LARGEST_FACTOR
from sublayer.config.table import List
from sublayer.errors import ConfigError
from sublayer.nearest import LONGEST_WORD, nearest_hint
from sublayer.tasks.own_table import METRICS, NAME, OwnTable, table_of
from sublayer.tasks.registry import TASKS
from sublayer.tasks.task import Kind

Sources = str | List | dict[str, float]
"""One text, several, or several with their weights."""

INTRINSIC = "albert-intrinsic"


@dataclass(frozen=True)
class CorpusSpec:
    """Properties of a corpus that are known before it is read.

    ``has_split``: its publisher, or the papers that use it, fix the split. ``has_records``: it is
    read as ``data.documents`` says.
    """

    has_split: bool = False
    has_records: bool = False


CORPORA = {
    "python": CorpusSpec(),
    "enwik8": CorpusSpec(has_split=True),
    "text8": CorpusSpec(has_split=True),
    "lm1b": CorpusSpec(has_split=True),
    "wikipedia": CorpusSpec(has_records=True),
    "bookcorpus": CorpusSpec(has_records=True),
    "c4": CorpusSpec(has_split=True, has_records=True),
    INTRINSIC: CorpusSpec(),
}
"""By name; how each is read is in ``CORPORA`` of ``sublayer/data/corpora/named.py``."""
PARALLEL_CORPORA = ("iwslt14", "wmt14")
"""Corpora of translations, with published splits."""
VOCABULARY_CORPORA = ("wikipedia", "bookcorpus", "c4")
"""English corpora that ALBERT's, BERT's, Macaron BERT's and T5's vocabularies were trained on."""
PUBLISHED_SPLITS = tuple(name for name, corpus in CORPORA.items() if corpus.has_split)
RECORD_CORPORA = tuple(name for name, corpus in CORPORA.items() if corpus.has_records)
HUB = "hub:"
"""Prefix of a data set of the Hugging Face hub, where a path could stand."""


def source_names(sources: Sources | None) -> tuple[str, ...]:
    """Return the names in ``data.path`` or ``data.corpus``, whichever way they are written."""
    if sources is None:
        return ()
    if isinstance(sources, str):
        return (sources,)
    return tuple(sources)


def check_weights(sources: Sources | None, field: str = "data.path or data.corpus") -> None:
    """Raise ConfigError for an empty list of sources or a wrong weight; ``field`` has them."""
    if sources is not None and not sources:
        raise ConfigError(f"{field}: a list of texts or tasks is empty; name one")
    for name, weight in sources.items() if isinstance(sources, dict) else ():
        if not (math.isfinite(weight) and 0 < weight <= LARGEST_FACTOR):
            raise ConfigError(
                f"{field}: the weight {weight:g} of {name[:LONGEST_WORD]!r} must be more than 0 "
                f"and at most {LARGEST_FACTOR:,.0f}"
            )


def _check_known(key: str, name: str, known: Collection[str], more: str = "") -> None:
    if name not in known:
        raise ConfigError(
            f"{key} = {name[:LONGEST_WORD]!r} is not one of {', '.join(known)}{more}"
            f"{nearest_hint(name, known)}"
        )


def check_corpora(corpus: Sources | None) -> None:
    """Raise ConfigError for the first name in ``data.corpus`` that no corpus has."""
    for name in source_names(corpus):
        _check_known("data.corpus", name, (*CORPORA, *PARALLEL_CORPORA))


DEFAULT_SPLIT = "90/5/5"
_N_SHARES = 3
_SHARE = re.compile(r"[0-9]{1,3}(\.[0-9]{0,12})?|\.[0-9]{1,12}")
"""Plain decimals: the power of ten of a share such as 1e999999999 would be written out."""


def parse_split(split: str) -> tuple[Fraction, Fraction, Fraction]:
    """Read ``train/valid/test`` in percent as exact shares that sum to 1.

    The shares of validation and test may be 0: nothing is held out for them. Raises ConfigError
    where they do not sum to 1, where training has none, and where a share is no plain decimal.
    """
    parts = [part.strip() for part in split.split("/")]
    shares = [Fraction(part) / 100 for part in parts if _SHARE.fullmatch(part)]
    if len(shares) != _N_SHARES or len(parts) != _N_SHARES or sum(shares) != 1 or not shares[0]:
        raise ConfigError(
            f"data.split = {split[:80]!r} must be three shares that add up to 100, the first above "
            f"0, such as {DEFAULT_SPLIT}; 100/0/0 holds nothing out"
        )
    train, valid, test = shares
    return train, valid, test


def check_split(split: str | None) -> None:
    """Raise ConfigError where ``data.split`` is no split."""
    if split is not None:
        parse_split(split)


Watched = List | dict[str, str]
"""Corpora by name, or the path of each name."""

WATCHED = {"squad-dev": "squad", "race-dev": "race", INTRINSIC: "intrinsic"}
"""Corpora that can be watched, and what their scores are called by; the last is the first two."""
_SPLITS = ("train", "valid", "test")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


def check_watched(watch: Watched) -> None:
    """Raise ConfigError for entries that are no corpus and no path, or cannot name metrics."""
    for name in watch:
        if not isinstance(watch, dict):
            hint = "; a text of your own is {name = path}"
            _check_known("data.watch", name, WATCHED, hint)
        elif not _NAME.fullmatch(name) or name in _SPLITS or not watch[name]:
            raise ConfigError(
                f"data.watch: {name[:LONGEST_WORD]!r} = {watch[name][:LONGEST_WORD]!r} must be a "
                "path, under a name of letters, digits, '.', '_' and '-', at most 40, that is not "
                f"a split's ({', '.join(_SPLITS)})"
            )
    if len(set(watch)) != len(watch):
        raise ConfigError("data.watch names a corpus twice: leave one out")


def watched_texts(watch: Watched) -> dict[str, str]:
    """Return watched corpora or paths, by the names that their scores have."""
    if isinstance(watch, dict):
        return dict(watch)
    return {WATCHED[name]: name for name in watch}


GPT1 = "gpt1-bpe"
TOKENIZERS = (
    "bytes",
    "characters",
    "bpe",
    "unigram",
    "wordpiece",
    "moses-bpe",
    "word-bpe",
    GPT1,
)
CODES_SUFFIXES, CODES_NAMES = (".codes", ".code", ".bpe"), ("codes", "code", "bpecodes")
"""Of a file of subword-nmt's or fastBPE's merges, which often has no suffix."""
TOKENIZER_SUFFIXES = (".json", ".model", ".txt")
"""Of a tokenizer's file: the tokenizers library's or ours, SentencePiece's, BERT's vocabulary."""
TRAINED_TOKENIZERS = tuple(name for name in TOKENIZERS if name != "bytes")
"""Those that learn their vocabulary from the training split."""

LETTERED_TOKENIZERS = ("unigram", "wordpiece", "moses-bpe")
"""Those that are trained with or without marks and capitals."""

Normalization = Literal["published", "transformers"]
"""The text rules of GPT-1's tokenizer."""
MARKED_TOKENIZERS = ("bpe", "unigram", "wordpiece")
"""Those that are trained with special tokens that a text may name."""
SpecialTokens = Literal["tokens", "text"]
"""Meaning of the marks of special tokens in a text."""
GPT1_SUFFIXES = (".json", ".bpe")
"""Of files of tokenizers that may be GPT-1's."""

SENTINEL_SUFFIXES = (".json", ".model")
"""Of files of tokenizers that may have sentinels."""
_N_SPECIAL = 3
"""Ids of T5's vocabulary beside its pieces and its sentinels: padding, end and unknown."""


def is_tokenizer_file(name: str) -> bool:
    """Return whether ``data.tokenizer`` is a file, by its name."""
    return name.endswith(TOKENIZER_SUFFIXES) or is_codes_file(name)


def is_codes_file(name: str) -> bool:
    """Return whether a file holds merges of subword-nmt or fastBPE, by its name."""
    return name.endswith(CODES_SUFFIXES) or PurePath(name).name in CODES_NAMES


def check_sentinels(vocab_size: int, sentinels: int) -> None:
    """Raise ConfigError where sentinels leave a vocabulary no room for a piece of text."""
    least = sentinels + _N_SPECIAL + 1
    if sentinels and vocab_size < least:
        raise ConfigError(
            f"data.vocab_size = {vocab_size} is filled by data.sentinels = {sentinels} and "
            f"{_N_SPECIAL} special ids: give at least {least}, and room for the text's characters"
        )


def check_tokenizer(tokenizer: str) -> None:
    """Raise ConfigError where ``data.tokenizer`` is neither a tokenizer's name nor its file."""
    if not is_tokenizer_file(tokenizer):
        files = ", nor a file (tokenizer.json, .model, vocab.txt, .codes)"
        _check_known("data.tokenizer", tokenizer, TOKENIZERS, files)


OwnColumns = dict[str, str | List]
"""Names of the columns, by their roles."""


def check_columns(columns: OwnColumns | None) -> None:
    """Raise ConfigError for columns of a table of one's own that contradict each other."""
    if columns is not None:
        table_of("", columns)


def own_table(path: object, columns: OwnColumns | None) -> OwnTable:
    """Return the table that ``data.path`` and ``data.columns`` name.

    Raises ConfigError where they do not say which it is, or which column has the answers.
    """
    if not isinstance(path, str):
        raise ConfigError(
            f"data.tasks = {NAME} needs data.path: the file of the table, or a folder of them"
        )
    if columns is None:
        raise ConfigError(
            f"data.tasks = {NAME} needs data.columns, such as "
            '{ text = "review", label = "stars" }: which columns of the table are what'
        )
    return table_of(path, columns)


def check_tasks(tasks: Sources | None) -> None:
    """Raise ConfigError for an empty ``data.tasks``, an unknown name or a wrong weight."""
    check_weights(tasks, "data.tasks")
    names = source_names(tasks)
    if NAME in names and len(names) > 1:
        raise ConfigError(f"data.tasks = {NAME}, a table of your own, stands in no mixture: alone")
    for name in names:
        _check_known("data.tasks", name, (*TASKS, NAME))


def metrics_of(name: str, columns: OwnColumns | None) -> tuple[str, ...]:
    """Return the metrics of a task; of a table's spans none, whose metrics its rows decide."""
    if name != NAME:
        return TASKS[name].metrics
    kind = kind_of(name, columns)
    return () if kind is None or kind == "span" else METRICS[kind]


def kind_of(name: str, columns: OwnColumns | None) -> Kind | None:
    """Return the kind of a task; None of a table without columns."""
    if name != NAME:
        return TASKS[name].kind
    return None if columns is None else table_of("", columns).kind
