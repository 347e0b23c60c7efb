"""The ids of shards that were joined so far, in a folder whose journal says which these are."""

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from sublayer.data.arrays import Ints
from sublayer.data.shards.figures import Figures, blocks_of, finish
from sublayer.data.shards.parts import EncodedPart
from sublayer.files.storage import sync, write_file
from sublayer.system.stages import note

_JOURNAL = "journal.json"
_JOURNAL_VERSION = 2
_COLUMNS = ("ids", "documents", "sentences")
_START_BYTES = 8


class Edges(NamedTuple):
    """Which of a shard's documents go on from the one before, or into the next."""

    begins: bool
    """Whether its first piece begins a document."""
    ends: bool
    """Whether its last piece ends one."""
    is_one: bool
    """Whether it has a single piece."""


class JoinedIds:
    """Ids, starts of documents and of sentences, appended to files shard by shard.

    What ``keep`` has noted outlasts the process: a later one goes on behind it. Where that is
    damaged or of another version, it begins anew, which a note says.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.n_shards = 0
        self.sha256 = ""
        """Of the text up to the end of the last shard."""
        self._figures: Figures | None = None
        self._crc32 = dict.fromkeys(_COLUMNS, 0)
        """Of each file so far."""
        self._is_begun = False
        """Whether the document that the last shard does not end has tokens."""
        if (folder / _JOURNAL).exists() and not self._resume():
            note(f"{folder} is damaged, or of another version: the text is prepared from its start")
        self._files = {name: self._opened(name) for name in _COLUMNS}

    def append(self, part: EncodedPart, edges: Edges, sha256: str) -> None:
        """Append the next shard, up to whose end the text has the hash ``sha256``."""
        meta = part.meta
        figures = self._figures or Figures(meta["dtype"], "n_sentences" in meta)
        self._figures = figures
        documents = part.document_starts
        if not edges.begins and self._is_begun and figures.has_sentences and meta["edges"][0]:
            documents = documents[1:]  # it began in an earlier shard
        for number, start in meta["source_starts"].items():
            figures.source_starts.setdefault(number, figures.n_tokens + start)
        self._write("ids", part.ids)
        for name, starts in (("documents", documents), ("sentences", part.sentence_starts)):
            self._write(name, _shifted(starts, figures.n_tokens))
        figures.crc32 = self._crc32["ids"]
        figures.n_documents += len(documents)
        figures.n_sentences += len(part.sentence_starts)
        figures.is_lossless &= meta["is_lossless"]
        figures.count_marks(meta.get("marks", {}))
        added = ("n_tokens", "n_bytes", "n_characters")
        dropped = ("n_dropped_sentences", "n_dropped_documents") if figures.has_sentences else ()
        for name in (*added, *dropped):
            setattr(figures, name, getattr(figures, name) + meta[name])
        if figures.has_sentences:
            self._count_dropped(figures, edges, *meta["edges"])
        self.n_shards += 1
        self.sha256 = sha256

    def keep(self) -> None:
        """Note what was appended, once it is on disk."""
        assert self._figures is not None, "a shard was appended"
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        journal = {
            "version": _JOURNAL_VERSION,
            "n_shards": self.n_shards,
            "sha256": self.sha256,
            "is_begun": self._is_begun,
            "crc32": self._crc32,
            "figures": asdict(self._figures),
        }
        write_file(self._folder / _JOURNAL, json.dumps(journal))

    @property
    def figures(self) -> Figures:
        """The figures of all shards so far."""
        assert self._figures is not None, "a shard was appended"
        return self._figures

    def finish(self, path: Path) -> None:
        """End the file of ids with all starts and its description, and put it at ``path``."""
        ids = self._files["ids"]
        source_starts = np.array(list(self.figures.source_starts.values()), dtype="<i8")
        columns = (self._blocks("documents"), [source_starts.tobytes()], self._blocks("sentences"))
        finish(ids, self.figures, columns, self.sha256)
        ids.flush()
        os.fsync(ids.fileno())
        self.close()
        os.replace(self._folder / "ids", path)
        sync(path.parent)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def _write(self, name: str, data: bytes) -> None:
        self._files[name].write(data)
        self._crc32[name] = zlib.crc32(data, self._crc32[name])

    def _count_dropped(
        self, figures: Figures, edges: Edges, first_gave: bool, last_gave: bool
    ) -> None:
        """Count documents that several shards share and that gave no token in any."""
        if not edges.begins:
            self._is_begun |= first_gave
            if edges.is_one and not edges.ends:
                return
            figures.n_dropped_documents += not self._is_begun
        # A document that begins here and goes on, unless it is the one that has just ended.
        self._is_begun = last_gave and not edges.ends

    def _resume(self) -> bool:
        """Take over what an earlier process noted, all or nothing; return whether that is there."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            journal = json.loads((self._folder / _JOURNAL).read_bytes())
            if journal["version"] != _JOURNAL_VERSION:
                return False
            figures = Figures(**journal["figures"])
            sizes = self._sizes(figures)
            found = {name: _crc32(self._folder / name, sizes[name]) for name in _COLUMNS}
            if found != journal["crc32"]:
                return False
            n_shards, sha256, is_begun = (
                journal[name] for name in ("n_shards", "sha256", "is_begun")
            )
            self._figures = figures
            self._crc32 = found
            self.n_shards = n_shards
            self.sha256 = sha256
            self._is_begun = is_begun
            return True
        return False

    def _opened(self, name: str) -> BinaryIO:
        path = self._folder / name
        path.touch()
        size = self._sizes(self._figures)[name] if self._figures else 0
        file = path.open("r+b")
        file.truncate(size)
        file.seek(size)
        return file

    def _sizes(self, figures: Figures) -> dict[str, int]:
        itemsize = np.dtype(figures.dtype).itemsize
        return {
            "ids": figures.n_tokens * itemsize,
            "documents": figures.n_documents * _START_BYTES,
            "sentences": figures.n_sentences * _START_BYTES,
        }

    def _blocks(self, name: str) -> Iterator[bytes]:
        file = self._files[name]
        file.flush()
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        return blocks_of(file, size)


def _crc32(path: Path, n_bytes: int) -> int:
    """Return the CRC-32 of a file's first bytes; raise ValueError where it has fewer."""
    crc = 0
    with path.open("rb") as file:
        for block in blocks_of(file, n_bytes):
            crc = zlib.crc32(block, crc)
        if file.tell() != n_bytes:
            raise ValueError("it is cut short")
    return crc


def _shifted(starts: Ints, offset: int) -> bytes:
    return (starts + offset).astype("<i8").tobytes()
