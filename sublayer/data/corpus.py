"""Named corpora, and the sources that a recipe's paths and corpora stand for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sublayer.config.data import Sources
from sublayer.data.divide import SplitName
from sublayer.data.prose import python_prose
from sublayer.data.text import Document, read_path
from sublayer.errors import ConfigError


@dataclass(frozen=True)
class Source:
    """A text of its own: documents to be divided, or those that its publishers put into each split."""

    name: str
    documents: tuple[Document, ...] = ()
    published: Mapping[SplitName, tuple[Document, ...]] = field(default_factory=dict)
    weight: float | None = None


def _python(cache: Path) -> Source:
    return Source("python", python_prose(cache))


CORPORA: dict[str, Callable[[Path], Source]] = {"python": _python}


def find_sources(path: Sources | None, corpus: Sources | None, cache: Path) -> tuple[Source, ...]:
    """Find every text that ``data.path`` and ``data.corpus`` name."""
    found = [_path_source(name, weight, cache) for name, weight in _entries(path)]
    found += [_corpus_source(name, weight, cache) for name, weight in _entries(corpus)]
    if not found:
        raise ConfigError(f"no text: give data.path, or data.corpus as one of {', '.join(CORPORA)}")
    return tuple(found)


def _entries(sources: Sources | None) -> list[tuple[str, float | None]]:
    if sources is None:
        return []
    if isinstance(sources, str):
        return [(sources, None)]
    if isinstance(sources, tuple):
        return [(name, None) for name in sources]
    return list(sources.items())


def _path_source(name: str, weight: float | None, cache: Path) -> Source:
    return Source(name, read_path(name, cache), weight=weight)


def _corpus_source(name: str, weight: float | None, cache: Path) -> Source:
    source = CORPORA[name](cache)
    return Source(source.name, source.documents, source.published, weight)
