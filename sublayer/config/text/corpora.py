"""The texts that ``data.path`` and ``data.corpus`` name, one or several, weighted or not."""

import math
from dataclasses import dataclass

from sublayer.config.limits import LARGEST_FACTOR
from sublayer.config.table import List
from sublayer.errors import ConfigError
from sublayer.nearest import LONGEST_WORD, nearest_hint

Sources = str | List | dict[str, float]
"""One text, several, or several with their weights."""

INTRINSIC = "albert-intrinsic"


@dataclass(frozen=True)
class Corpus:
    """What of a corpus is known before it is read.

    ``has_split``: its publisher, or the papers that use it, fix the split. ``has_records``: it is
    read as ``data.documents`` says.
    """

    has_split: bool = False
    has_records: bool = False


CORPORA = {
    "python": Corpus(),
    "enwik8": Corpus(has_split=True),
    "text8": Corpus(has_split=True),
    "lm1b": Corpus(has_split=True),
    "wikipedia": Corpus(has_records=True),
    "bookcorpus": Corpus(has_records=True),
    "c4": Corpus(has_split=True, has_records=True),
    INTRINSIC: Corpus(),
}
"""By name; how each is read is in ``CORPORA`` of ``sublayer/data/corpora/named.py``."""
PARALLEL_CORPORA = ("iwslt14", "wmt14")
"""Corpora of translations, with published splits."""
VOCABULARY_CORPORA = ("wikipedia", "bookcorpus", "c4")
"""English corpora that ALBERT's, BERT's, Macaron BERT's and T5's vocabularies were trained on."""
PUBLISHED_SPLITS = tuple(name for name, corpus in CORPORA.items() if corpus.has_split)
RECORD_CORPORA = tuple(name for name, corpus in CORPORA.items() if corpus.has_records)
HUB = "hub:"
"""What a data set of the Hugging Face hub begins with, where a path could stand."""


def source_names(sources: Sources | None) -> tuple[str, ...]:
    """Return the names in ``data.path`` or ``data.corpus``, whichever way they are written."""
    if sources is None:
        return ()
    if isinstance(sources, str):
        return (sources,)
    return tuple(sources)


def check_weights(sources: Sources | None) -> None:
    """Raise ConfigError for an empty ``data.path`` or ``data.corpus``, and for a wrong weight."""
    if sources is not None and not sources:
        raise ConfigError("data.path or data.corpus is empty; name a text")
    weights = sources if isinstance(sources, dict) else {}
    for name, weight in weights.items():
        given = f"data: the weight {weight:g} of {name[:LONGEST_WORD]!r}"
        if not (math.isfinite(weight) and weight > 0):
            raise ConfigError(f"{given} must be more than 0")
        if weight > LARGEST_FACTOR:
            raise ConfigError(f"{given} must be at most {LARGEST_FACTOR:,.0f}")


def check_corpora(corpus: Sources | None) -> None:
    """Raise ConfigError for the first name in ``data.corpus`` that no corpus has."""
    known = (*CORPORA, *PARALLEL_CORPORA)
    for name in source_names(corpus):
        if name not in known:
            raise ConfigError(
                f"data.corpus = {name[:LONGEST_WORD]!r} is not one of {', '.join(known)}"
                f"{nearest_hint(name, known)}"
            )
