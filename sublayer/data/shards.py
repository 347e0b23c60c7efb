"""The text of a split encoded in shards, by several processes, to the file that one would write.

A text of more than one shard is encoded by processes that run this module, each shard into a file
of its own, by which a preparation that was stopped goes on; then the files are joined.
"""

import hashlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import zlib
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import chain, islice
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from sublayer.counts import count
from sublayer.data.arrays import AnyInts, Ints, TokenIds
from sublayer.data.text.ranges import Cut, DocumentRange, check_unchanged, chunk_stops, count_bytes
from sublayer.data.text.sentences import TextUnit, sentence_stops, sentences_of
from sublayer.data.tokenizers.base import NotUtf8, Tokenizer, count_characters
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.data.tokenizers.settings import marks_pattern
from sublayer.errors import ConfigError, DataError, SublayerError
from sublayer.files.arrays import aligned, read_description, write_description
from sublayer.files.cache_folder import replacing, writing_to
from sublayer.files.file_text import FileText
from sublayer.files.lines import changed
from sublayer.files.storage import write_file
from sublayer.system.launch import python_command
from sublayer.system.lock import is_held
from sublayer.system.memory import cores
from sublayer.system.stages import display, format_seconds, note

VERSION = 1
"""Changes whenever equal content would be stored as other bytes."""
SHARD_BYTES = 32 << 20
"""Bytes of text after which a shard ends, at the next place where it may."""
MOST_PROCESSES = 8
"""So many stay within 2 GiB beside the one that asks them."""
PROCESS_BYTES = 180 << 20
"""Memory allowed for each; 120 MiB were measured, and more where a text cannot be cut."""

_MOST_PIECES = 1 << 15
"""Documents, or parts of them, after which a shard ends as well."""
_BLOCK_BYTES = 1 << 20
_BATCH_SENTENCES = 1024
"""Sentences or pairs that are encoded at a time."""
_BATCH_BYTES = 256 << 10
"""Bytes of sentences after which a batch ends: libraries take a hundred times as much for them."""
_DAY_S = 24 * 3600
_MOST_NAMED = 5
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_limit = ContextVar("limit", default=MOST_PROCESSES)

Sources = Sequence[Sequence[DocumentRange]]
"""The ranges of the documents of each source."""


@dataclass
class TextSum:
    """The number and the CRC-32 of bytes that were read, in their order.

    Text is read twice, to cut it and to encode it: equal sums say that both read the same, whatever
    happened to the file in between.
    """

    n_bytes: int = 0
    crc32: int = 0

    def add(self, data: bytes) -> None:
        """Count the bytes that follow."""
        self.n_bytes += len(data)
        self.crc32 = zlib.crc32(data, self.crc32)


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a document: all that is encoded of it, or up to where a cut changes no id."""

    part: DocumentRange
    source: int
    """The number of the source that the document is of."""
    begins: bool
    """True where the encoded part of the document begins here, rather than goes on."""
    ends: bool
    """True where it ends here."""


@dataclass(frozen=True)
class Shard:
    """Pieces that follow each other in a split."""

    number: int
    pieces: Iterable[Piece]
    text: TextSum
    """Of the raw bytes of the pieces; of pairs, of nothing."""
    sha256: str
    """Of the raw bytes of the split up to the end of the shard."""


def cut_shards(
    sources: Sources, cut: Cut, unit: TextUnit, shard_bytes: int = SHARD_BYTES
) -> Iterator[Shard]:
    """Cut the documents of sources into shards, one at least: a function of the text alone.

    ``cut`` is the tokenizer's, ``unit`` the unit that documents are divided into. Pairs are one
    shard, whose bytes are neither counted nor hashed: which of them are kept is known where they
    are encoded.
    """
    if unit == "pair":
        whole = (Piece(part, n, True, True) for n, ranges in enumerate(sources) for part in ranges)
        return iter([Shard(0, whole, TextSum(), "")])
    return _cut(sources, cut, unit, shard_bytes)


def _cut(sources: Sources, cut: Cut, unit: TextUnit, shard_bytes: int) -> Iterator[Shard]:
    hashed = hashlib.sha256()
    pieces: list[Piece] = []
    number = 0
    summed = TextSum()
    for source, ranges in enumerate(sources):
        for part in ranges:
            text = part.document.read()
            last = len(text) if part.stop is None else part.stop
            if unit == "none":
                stops = chunk_stops(part.document.name, text, part.start, last, cut)
            else:
                stops = sentence_stops(part, text, unit)
            start = position = part.start
            inside = (stop for stop in stops if part.start < stop < last)
            for stop in chain(inside, [last]):
                for low in range(position, stop, _BLOCK_BYTES):
                    block = text[low : min(low + _BLOCK_BYTES, stop)]
                    hashed.update(block)
                    summed.add(block)
                position = stop
                is_full = summed.n_bytes >= shard_bytes or len(pieces) >= _MOST_PIECES
                if not is_full and stop < last:
                    continue
                piece = part
                if start > part.start or stop < last:
                    piece = DocumentRange(part.document, start, stop)
                pieces.append(Piece(piece, source, start == part.start, stop == last))
                start = stop
                if is_full:
                    yield Shard(number, pieces, summed, hashed.hexdigest())
                    pieces = []
                    summed = TextSum()
                    number += 1
    if pieces or not number:
        yield Shard(number, pieces, summed, hashed.hexdigest())


@dataclass
class Figures:
    """Counts of a text and of its ids."""

    n_tokens: int = 0
    n_bytes: int = 0
    n_characters: int = 0
    n_dropped_sentences: int = 0
    n_dropped_documents: int = 0
    is_lossless: bool = True
    source_starts: dict[str, int] = field(default_factory=dict)
    """The position of the first token of each source, by its number."""
    marks: dict[str, int] = field(default_factory=dict)
    """Counts of the names of special tokens in the text, read as such or not."""

    def add(self, more: "Figures") -> None:
        """Add those of the text that follows."""
        for number, start in more.source_starts.items():
            self.source_starts.setdefault(number, self.n_tokens + start)
        self.count_marks(more.marks)
        self.is_lossless &= more.is_lossless
        for name in ("tokens", "bytes", "characters", "dropped_sentences", "dropped_documents"):
            setattr(self, f"n_{name}", getattr(self, f"n_{name}") + getattr(more, f"n_{name}"))

    def count_marks(self, marks: dict[str, int]) -> None:
        """Add numbers of marks, by name."""
        for name, number in marks.items():
            self.marks[name] = self.marks.get(name, 0) + number


class IdsFile:
    """A file of ids being written: of a whole split, or of a part of one.

    Ids take two bytes where the vocabulary has less than 65,536 of them, else four.
    """

    def __init__(self, file: BinaryIO, tokenizer: Tokenizer, unit: TextUnit) -> None:
        fits_two_bytes = tokenizer.vocab_size < 1 << 16
        self.dtype: np.dtype[Any] = np.dtype("<u2" if fits_two_bytes else "<u4")
        self.figures = Figures()
        self._file = file
        self._has_sentences = unit != "none"
        self._crc32 = 0

    def write(self, ids: bytes) -> None:
        """Write ids as they are stored."""
        self._file.write(ids)
        self._crc32 = zlib.crc32(ids, self._crc32)

    def close(
        self, sha256: str, documents: Iterable[bytes], sentences: Iterable[bytes], **more: Any
    ) -> None:
        """End the file: starts of documents, of sources and of sentences, and the description.

        ``sha256`` is of the bytes of the whole split; ``more`` is added to the description.
        """
        figures = self.figures
        n_ids = figures.n_tokens * self.dtype.itemsize
        self._file.write(b"\0" * (aligned(n_ids) - n_ids))
        n_starts = []
        crc32 = 0
        for column in (documents, [_bytes(list(figures.source_starts.values()))], sentences):
            n_bytes = 0
            for block in column:
                self._file.write(block)
                crc32 = zlib.crc32(block, crc32)
                n_bytes += len(block)
            n_starts.append(n_bytes // 8)
        meta: dict[str, Any] = {
            "version": VERSION,
            "dtype": self.dtype.str,
            "n_tokens": figures.n_tokens,
            "n_documents": n_starts[0],
            "n_sources": n_starts[1],
            "n_bytes": figures.n_bytes,
            "sha256": sha256,
            "is_lossless": figures.is_lossless,
            "crc32": self._crc32,
            "starts_crc32": crc32,
        }
        if not figures.is_lossless:
            meta["n_characters"] = figures.n_characters
        if figures.marks:
            meta["marks"] = figures.marks
        if self._has_sentences:
            meta["n_sentences"] = n_starts[2]
            meta["n_dropped_sentences"] = figures.n_dropped_sentences
            meta["n_dropped_documents"] = figures.n_dropped_documents
        write_description(self._file, meta | more)


def _bytes(starts: Any) -> bytes:
    return np.asarray(starts, dtype="<i8").tobytes()


class ShardEncoder:
    """Encodes pieces and writes their ids, an end id between documents.

    Where the text is divided into ``unit``, each sentence is encoded on its own, and those and
    documents without tokens are dropped; of pairs, those with a side without tokens.
    """

    def __init__(
        self, file: BinaryIO, tokenizer: Tokenizer, unit: TextUnit, *, is_first: bool
    ) -> None:
        """Begin with an end id, if documents have one, unless the shard ``is_first``."""
        self._ids = IdsFile(file, tokenizer, unit)
        self.figures = self._ids.figures
        self.text = TextSum()
        """Of the raw bytes that were read; pairs are not counted."""
        self._tokenizer = tokenizer
        self._marks = marks_pattern(tokenizer.marks)
        self._unit = unit
        self._is_first = is_first
        self._document_starts = array("q")
        self._sentence_starts = array("q")
        self._of_pairs = hashlib.sha256()
        self._gives: list[bool] = []
        """True for each piece that gave tokens."""

    def add_all(self, pieces: Iterable[Piece]) -> None:
        """Encode pieces; raise DataError, with file and line, where one cannot be encoded."""
        if self._unit == "pair":
            self._add_pairs(pieces)
            return
        for piece in pieces:
            first = self.figures.n_tokens
            if self._unit == "none":
                self._add(piece)
            else:
                self._add_sentences(piece)
            self._gives.append(self.figures.n_tokens > first)

    def close(self, sha256: str, **more: Any) -> None:
        """End the file; ``sha256`` is of the split's bytes, ``more`` added to the description.

        Of pairs the hash is of the words of both sides of those that were kept, a side a line.
        """
        if self._unit == "pair":
            sha256 = self._of_pairs.hexdigest()
        starts = [[_bytes(column)] for column in (self._document_starts, self._sentence_starts)]
        self._ids.close(sha256, *starts, **more)

    def close_part(self) -> None:
        """End the file as a part of a split."""
        edges = [self._gives[0], self._gives[-1]]
        self.close("", figures=asdict(self.figures), edges=edges, text=asdict(self.text))

    def _begin_document(self, source: int, position: int) -> None:
        self._document_starts.append(position)
        self.figures.source_starts.setdefault(str(source), position)

    def _add(self, piece: Piece) -> None:
        part = piece.part
        end_id = self._tokenizer.end_id
        if piece.begins:
            if end_id is not None and (self._document_starts or not self._is_first):
                self._append(np.array([end_id]))
            self._begin_document(piece.source, self.figures.n_tokens)
        # Cut only where a cut changes no id, so that chunks give the ids of the whole.
        for start, chunk in part.chunks(self._tokenizer.cut):
            self.text.add(chunk)
            try:
                ids = self._tokenizer.encode(chunk)
            except NotUtf8 as error:
                raise part.not_utf8(start + error.position) from error
            self._count(chunk, ids)
            self._append(ids)

    def _add_sentences(self, piece: Piece) -> None:
        assert self._unit != "none", "the text is divided into sentences"
        first = self.figures.n_tokens
        for sentences in sentences_of(piece.part, self._unit, self.text.add):
            for batch in _sentence_batches(sentences):
                self._add_batch(batch)
        if self.figures.n_tokens > first:
            self._begin_document(piece.source, first)
        elif piece.begins and piece.ends:
            self.figures.n_dropped_documents += 1

    def _add_batch(self, sentences: list[bytes]) -> None:
        # A long text is encoded a part at a time where its tokenizer can, those together are not.
        is_one = len(sentences) == 1
        encode = self._tokenizer.encode
        encoded = [encode(sentences[0])] if is_one else self._tokenizer.encode_many(sentences)
        stored = []
        start = self.figures.n_tokens
        for text, ids in zip(sentences, encoded, strict=True):
            if not len(ids):
                self.figures.n_dropped_sentences += 1
                continue
            self._sentence_starts.append(start)
            self._count(text, ids)
            stored.append(ids)
            start += len(ids)
        if stored:
            self._append(np.concatenate(stored))

    def _add_pairs(self, pieces: Iterable[Piece]) -> None:
        rest = iter(pieces)
        while batch := list(islice(rest, _BATCH_SENTENCES)):
            # The words of both sides; the texts as they were read follow, and are not encoded.
            documents = [piece.part.document.read()[:].split(b"\n") for piece in batch]
            source_texts = [lines[0] for lines in documents]
            target_texts = [lines[1] for lines in documents]
            sources = self._tokenizer.encode_many(source_texts)
            targets = self._tokenizer.encode_targets(target_texts)
            rows = zip(batch, source_texts, target_texts, sources, targets, strict=True)
            for piece, source_text, target_text, source, target in rows:
                if not (len(source) and len(target)):
                    self.figures.n_dropped_documents += 1
                    continue
                first = self.figures.n_tokens
                self._begin_document(piece.source, first)
                self._sentence_starts.append(first)
                self._sentence_starts.append(first + len(source))
                for text, ids in ((source_text, source), (target_text, target)):
                    self._of_pairs.update(text + b"\n")
                    self._count(text, ids)
                self._append(np.concatenate([source, target]))

    def _count(self, text: bytes, ids: TokenIds) -> None:
        figures, tokenizer = self.figures, self._tokenizer
        figures.n_bytes += len(text)
        if self._marks is not None:
            figures.count_marks(Counter(mark.decode() for mark in self._marks.findall(text)))
        if tokenizer.is_lossless:
            return
        figures.n_characters += int(count_characters([text])[0])
        if figures.is_lossless:
            # Lengths are compared first: decoding takes longer.
            n_bytes = int(tokenizer.token_bytes[ids].sum())
            figures.is_lossless = n_bytes == len(text) and tokenizer.decode(ids) == text

    def _append(self, ids: AnyInts) -> None:
        self._ids.write(ids.astype(self._ids.dtype).tobytes())
        self.figures.n_tokens += len(ids)


def _sentence_batches(sentences: Iterable[str]) -> Iterator[list[bytes]]:
    """Yield sentences as bytes, so many that a batch is small; a long one is alone."""
    batch: list[bytes] = []
    n_bytes = 0
    for sentence in sentences:
        text = sentence.encode()
        if batch and (n_bytes + len(text) > _BATCH_BYTES or len(batch) == _BATCH_SENTENCES):
            yield batch
            batch = []
            n_bytes = 0
        batch.append(text)
        n_bytes += len(text)
    if batch:
        yield batch


def check_encoded(encoder_text: TextSum, cut: TextSum, name: str, sources: Sources) -> None:
    """Raise DataError where the encoded text is not the text that was cut, from ``name`` on."""
    if encoder_text == cut:
        return
    for ranges in sources:
        check_unchanged(ranges)  # which knows the file
    raise changed(f"{name}, or what follows it,")


def check_sources(figures: Figures, sources: Sources) -> None:
    """Raise DataError for a source that gave no document, or a file that changed meanwhile."""
    for number, ranges in enumerate(sources):
        if str(number) not in figures.source_starts:
            raise DataError(
                f"{ranges[0].document.name} has no sentence, nor has what follows it: "
                "give other text"
            )
        check_unchanged(ranges)


class _Part(NamedTuple):
    """A shard that is encoded, or will be: what joining it takes."""

    path: Path
    name: str
    """Of the first of its documents, for messages."""
    text: TextSum
    sha256: str
    begins: bool
    """True where its first piece begins a document."""
    ends: bool
    """True where its last piece ends one."""
    is_one: bool
    """True where it has a single piece."""
    encoding: Future[None] | None
    """None where an earlier process encoded it."""


def join_shards(
    folder: Path,
    path: Path,
    shards: Iterable[Shard],
    sources: Sources,
    tokenizer: Tokenizer,
    unit: TextUnit,
    n_processes: int | None,
) -> None:
    """Encode shards by several processes and write the ids of all to ``path``.

    Finished shards are kept in ``folder``, which is removed in the end. Raises DataError as
    ``write_store`` does.
    """
    progress = Progress("turning the text into tokens", sum(map(count_bytes, sources)))
    with writing_to(path):
        saved = folder / "tokenizer.json"
        write_file(saved, tokenizer.serialize())
        is_same = load_tokenizer(saved).fingerprint == tokenizer.fingerprint
        assert is_same, f"a {tokenizer.kind} tokenizer is read as it was written"
        if n_removed := _remove_unknown(folder):
            removed = count(n_removed, "shard")
            note(f"{folder}: {removed}, damaged or of another version, encoded anew")
        parts = []
        n_processes = n_processes or default_processes()
        with _encoders(n_processes, saved, tokenizer.fingerprint, unit) as encode:
            for part in _encode_ahead(shards, folder, encode, n_processes + 2):
                if part.encoding is None:
                    progress.skip(part.text.n_bytes)
                else:
                    part.encoding.result()
                    encoded = TextSum(**read_description(part.path)[0]["text"])
                    check_encoded(encoded, part.text, part.name, sources)
                    progress.add(part.text.n_bytes)
                parts.append(part._replace(encoding=None))
    with replacing(path) as file:
        joined = IdsFile(file, tokenizer, unit)
        _join(joined, parts, has_sentences=unit != "none")
        check_sources(joined.figures, sources)
    shutil.rmtree(folder, ignore_errors=True)


def _encode_ahead(
    shards: Iterable[Shard], folder: Path, encode: Callable[..., Future[None]], n_ahead: int
) -> Iterator[_Part]:
    """Yield shards in their order, while as many as ``n_ahead`` behind them are encoded."""
    submitted: deque[_Part] = deque()
    for shard in shards:
        path = folder / f"{shard.number:06d}.shard"
        pieces: list[Piece] = list(shard.pieces)
        encoding = None
        if not _holds(path, shard.text):
            encoding = encode(shard.number, path, pieces)
        first, last = pieces[0], pieces[-1]
        part = _Part(
            path,
            first.part.document.name,
            shard.text,
            shard.sha256,
            first.begins,
            last.ends,
            len(pieces) == 1,
            encoding,
        )
        submitted.append(part)
        if len(submitted) > n_ahead:
            yield submitted.popleft()
    yield from submitted


def _join(joined: IdsFile, parts: Sequence[_Part], *, has_sentences: bool) -> None:
    """Write the ids of parts one behind another, and where their documents and sentences start."""
    figures = joined.figures
    documents: list[Callable[[], Ints]] = []
    sentences: list[Callable[[], Ints]] = []
    # Whether the document that the last part does not end has tokens.
    is_begun = False
    for part in parts:
        meta, ids = _read_part(part.path)
        joined.write(ids)
        gives_first, gives_last = meta["edges"]
        goes_on = not part.begins and is_begun and has_sentences and gives_first
        at = aligned(len(ids))
        n_documents, n_sentences = meta["n_documents"], meta.get("n_sentences", 0)
        n_before = n_documents + meta["n_sources"]
        # A document that began in an earlier part has its start there.
        documents.append(_starts(part.path, at, int(goes_on), n_documents, figures.n_tokens))
        end = n_before + n_sentences
        sentences.append(_starts(part.path, at, n_before, end, figures.n_tokens))
        figures.add(Figures(**meta["figures"]))
        # Documents that several parts share are dropped where none gave a token.
        if not part.begins:
            is_begun |= gives_first
            if part.is_one and not part.ends:
                continue
            figures.n_dropped_documents += has_sentences and not is_begun
        # A document that begins here and goes on, unless it is the one that has just ended.
        is_begun = gives_last and not part.ends
    columns = [(_bytes(read()) for read in column) for column in (documents, sentences)]
    joined.close(parts[-1].sha256, *columns)


def _starts(path: Path, at: int, first: int, stop: int, shift: int) -> Callable[[], Ints]:
    """Return a reader of a part's starts, shifted; those of all are not in memory at once."""

    def read() -> Ints:
        starts = np.fromfile(path, "<i8", stop - first, offset=at + 8 * first)
        return starts + shift

    return read


def _read_part(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return a part's description and ids; raise ValueError, KeyError or OSError if damaged."""
    meta, n_bytes = read_description(path)
    text = FileText(path)
    n_ids = meta["n_tokens"] * np.dtype(meta["dtype"]).itemsize
    ids = text[:n_ids]
    starts = text[aligned(n_ids) : n_bytes]
    if zlib.crc32(ids) != meta["crc32"] or zlib.crc32(starts) != meta["starts_crc32"]:
        raise ValueError("it is damaged")
    return meta, ids


def _holds(path: Path, text: TextSum) -> bool:
    """Return whether a part of this very text was encoded into a file that is whole."""
    try:
        return TextSum(**_read_part(path)[0]["text"]) == text
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _remove_unknown(folder: Path) -> int:
    """Remove shards' files that are damaged or of another version; return how many there were."""
    n_removed = 0
    for path in folder.glob("*.shard"):
        with suppress(OSError, ValueError):
            if "figures" in read_description(path)[0]:
                continue
        path.unlink(missing_ok=True)
        n_removed += 1
    return n_removed


class Progress:
    """Progress of the innermost stage in ``n_bytes``, with those that an earlier process did."""

    def __init__(self, stage: str, n_bytes: int) -> None:
        self._stage = stage
        self._n_bytes = max(1, n_bytes)
        self._n_done = self._n_new = 0
        self._begun_s = time.monotonic()

    def skip(self, n_bytes: int) -> None:
        """Count bytes done by an earlier preparation, which no rate is measured by."""
        self._n_done += n_bytes
        self._begun_s = time.monotonic()

    def add(self, n_bytes: int) -> None:
        """Count bytes done, and show their sum with the rate and the time that is left."""
        self._n_done += n_bytes
        self._n_new += n_bytes
        line = f"{self._stage}: {self._n_done / 1e6:,.0f} of {self._n_bytes / 1e6:,.0f} MB"
        elapsed_s = time.monotonic() - self._begun_s
        if elapsed_s > 0 and self._n_new:
            per_s = self._n_new / elapsed_s
            left = format_seconds((self._n_bytes - self._n_done) / per_s)
            line += f", {per_s / 1e6:,.1f} MB/s, {left} left"
        display().change_innermost(line, min(1.0, self._n_done / self._n_bytes))


def default_processes() -> int:
    """Return how many processes encode a text: a core each, within the memory for them."""
    return min(cores(), _limit.get())


@contextmanager
def limited_to(n_processes: int | None) -> Iterator[None]:
    """Have at most so many processes encode a text in this context; None: as many as usual."""
    token = _limit.set(min(n_processes or MOST_PROCESSES, MOST_PROCESSES))
    try:
        yield
    finally:
        _limit.reset(token)


@contextmanager
def _encoders(
    n_processes: int, tokenizer: Path, fingerprint: str, unit: TextUnit
) -> Iterator[Callable[[int, Path, list[Piece]], Future[None]]]:
    """Start processes that encode shards; yield what submits one to the next that is idle.

    The future raises DataError or ConfigError where the shard cannot be encoded.
    """
    processes = [start_encoder() for _ in range(n_processes)]
    idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
    for process in processes:
        idle.put(process)
    pool = ThreadPoolExecutor(n_processes)

    def encode(request: bytes) -> None:
        process = idle.get()
        try:
            _ask(process, request)
        finally:
            idle.put(process)

    def submit(number: int, path: Path, pieces: list[Piece]) -> Future[None]:
        request = pickle.dumps((tokenizer, fingerprint, unit, number, path, pieces))
        return pool.submit(encode, request)

    try:
        yield submit
    finally:
        for process in processes:
            assert process.stdin is not None and process.stdout is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.kill()
            process.wait()
            process.stdout.close()
        pool.shutdown(cancel_futures=True)


def start_encoder() -> "subprocess.Popen[bytes]":
    """Start a process that runs ``main``; raise DataError where that is not possible."""
    try:
        return subprocess.Popen(
            python_command(__name__),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_ONE_THREAD},
        )
    except OSError as error:
        raise DataError(
            f"a process that turns text into tokens cannot be started: {error.strerror or error}"
        ) from error


def _ask(process: "subprocess.Popen[bytes]", request: bytes) -> None:
    assert process.stdin is not None and process.stdout is not None
    line = b""
    with suppress(BrokenPipeError):
        process.stdin.write(request)
        process.stdin.flush()
        line = process.stdout.readline()
    if not line.endswith(b"\n"):
        code = process.wait()
        how = f"by signal {-code}, as where memory is lacking" if code < 0 else f"with code {code}"
        raise DataError(
            f"a process that turns text into tokens ended {how}: the same command goes on from "
            "what is done"
        )
    if answer := json.loads(line):
        raise (ConfigError if answer["kind"] == "ConfigError" else DataError)(answer["error"])


def main() -> int:
    """Encode the shards that standard input asks for, until it ends: then this process does too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks decides
    requests: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
    Thread(target=_listen, args=(requests,), daemon=True).start()
    while True:
        answer = _encode(*requests.get())
        try:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            return 0


def _listen(requests: "SimpleQueue[tuple[Any, ...]]") -> None:
    with suppress(EOFError, pickle.UnpicklingError):
        while True:
            # Of the process that started this one, as ``multiprocessing`` does.
            requests.put(pickle.load(sys.stdin.buffer))  # noqa: S301
    os._exit(0)


_load = cache(load_tokenizer)


def _encode(
    tokenizer: Path,
    fingerprint: str,
    unit: TextUnit,
    number: int,
    path: Path,
    pieces: Sequence[Piece],
) -> dict[str, str]:
    loaded = _load(tokenizer)
    assert loaded.fingerprint == fingerprint, "a tokenizer is read as it was written"
    try:
        with replacing(path) as file:
            encoder = ShardEncoder(file, loaded, unit, is_first=number == 0)
            encoder.add_all(pieces)
            encoder.close_part()
    except SublayerError as error:
        return {"kind": type(error).__name__, "error": str(error)}
    except OSError as error:
        return {"kind": "DataError", "error": f"cannot read the text: {error}"}
    return {}


def unfinished_folder(path: Path, shard_bytes: int) -> Path:
    """Return the folder in which the shards of the future file ``path`` are kept."""
    return path.with_name(f"{path.name}.{shard_bytes}.unfinished")


def note_unfinished(path: Path) -> None:
    """Say which preparations of other texts than that of ``path`` lie beside it, and take room."""
    kept = []
    for folder in sorted(path.parent.glob("*.unfinished")):
        if folder.name.startswith(f"{path.name}.") or is_held(folder):
            continue
        with suppress(OSError):  # another process removes it meanwhile
            statuses = [file.stat() for file in folder.iterdir()]
            newest = max(status.st_mtime for status in (folder.stat(), *statuses))
            n_bytes = sum(status.st_size for status in statuses)
            n_days = max(0, int((time.time() - newest) / _DAY_S))
            age = f"{count(n_days, 'day')} old" if n_days else "of today"
            kept.append(f"{folder.name} ({n_bytes / 1e6:,.0f} MB, {age})")
    if not kept:
        return
    named = "; ".join(kept[:_MOST_NAMED])
    if len(kept) > _MOST_NAMED:
        named += f"; and {count(len(kept) - _MOST_NAMED, 'other')}"
    note(
        f"{path.parent} keeps what was stopped or is of a text that changed: {named}. "
        "Delete what will not be gone on with"
    )
