"""Training text of tokenizers, complete or sampled, and what tokenizers lose of a text."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from sublayer.config.data import LETTERED_TOKENIZERS
from sublayer.counts import count
from sublayer.data.text.ranges import NEEDS_UTF8, DocumentRange, check_unchanged, count_bytes
from sublayer.data.text.sentences import TextUnit, sentence_cut, sentences_of
from sublayer.data.tokenizers.base import Tokenizer, after_newline, character_start
from sublayer.data.tokenizers.subword import before_whitespace
from sublayer.system.stages import note

_CUTS = {"bpe": before_whitespace, "wordpiece": before_whitespace, "characters": character_start}
_MOST_BYTES = {"unigram": 88 << 20}
_MOST_BYTES_OF_OTHERS = 256 << 20
"""Bytes that a tokenizer is trained on at most: with them it takes less than 2 GiB of memory."""
_WINDOW_BYTES = 1 << 20
"""Bytes of the text that are taken at a time, from places that are spread evenly."""
_SEARCHED_BYTES = 64 << 10
_SAMPLES, _SAMPLE_BYTES = 16, 4096
"""Parts of a text, and bytes of each, that are encoded to see how much a tokenizer keeps."""
_WORD_CHARACTERS, _SHOWN_CHARACTERS = 16, 8
_MOST_NAMED = 3
"""Marks that a note names."""
_KNOWN = 999 / 1000
"""Share of a text's characters that a tokenizer knows at least without a word."""
_VERSION = 1
"""Changes whenever another part of equal text would be taken."""


class TrainingText:
    """The training split of a text, for a tokenizer of a kind."""

    def __init__(
        self, sources: Sequence[Sequence[DocumentRange]], kind: str, unit: TextUnit
    ) -> None:
        self._sources = sources
        self._kind = kind
        self._unit = unit
        self._n_bytes = sum(map(count_bytes, sources))
        self._most = _MOST_BYTES.get(kind, _MOST_BYTES_OF_OTHERS)

    @property
    def identity(self) -> list[Any]:
        """Return the identity of the sampled part, as JSON; empty where it is all."""
        return [["sample", self._most, _VERSION]] if self._n_bytes > self._most else []

    def texts(self) -> Iterator[bytes]:
        """Return a tokenizer's training texts; note where they are a sample.

        Raises DataError where it is not UTF-8 and the tokenizer needs it.
        """
        ranges: Iterable[DocumentRange] = chain.from_iterable(self._sources)
        if self._n_bytes > self._most:
            note(
                f"the {self._kind} tokenizer is trained on {self._most / 1e6:,.0f} of the "
                f"{self._n_bytes / 1e6:,.0f} MB of the training text, from places spread evenly"
            )
            ranges = sampled(ranges, self._n_bytes, self._most)
        if self._unit == "none":
            return _chunks(ranges, self._kind)
        return _sentences(ranges, self._unit)

    def check_unchanged(self) -> None:
        """Raise DataError where a file is another one than its digest was computed of."""
        for ranges in self._sources:
            check_unchanged(ranges)


def sampled(ranges: Iterable[DocumentRange], n_bytes: int, most: int) -> Iterator[DocumentRange]:
    """Take about ``most`` of the ``n_bytes`` of ranges, in windows spread evenly over them.

    A document that is no longer than a window is taken as a whole where it begins in one; of a
    longer one the windows are taken, cut after a blank line or a line where there is one.
    """
    n_windows = most // _WINDOW_BYTES
    position = 0
    for part in ranges:
        stop = part.end
        size = stop - part.start
        if size <= _WINDOW_BYTES:
            window = position * n_windows // n_bytes
            if position < -(-window * n_bytes // n_windows) + _WINDOW_BYTES:
                yield part
        else:
            yield from _windows(part, stop, position, n_bytes, n_windows)
        position += size


def _windows(
    part: DocumentRange, stop: int, position: int, n_bytes: int, n_windows: int
) -> Iterator[DocumentRange]:
    text = part.document.read()
    offset = part.start - position
    window = position * n_windows // n_bytes
    while (first := -(-window * n_bytes // n_windows) + offset) < stop:
        bounds = []
        for edge in (first, first + _WINDOW_BYTES):
            near = min(max(edge, part.start), stop)
            least = max(part.start, near - _SEARCHED_BYTES)
            is_edge = near in (part.start, stop)
            bounds.append(near if is_edge else sentence_cut(text, near, least))
        if bounds[0] < bounds[1]:
            yield DocumentRange(part.document, *bounds)
        window += 1


def _sentences(ranges: Iterable[DocumentRange], rule: TextUnit) -> Iterator[bytes]:
    for part in ranges:
        for sentences in sentences_of(part, rule):
            lines = "".join(f"{sentence}\n" for sentence in sentences)
            yield lines.encode()


def _chunks(ranges: Iterable[DocumentRange], kind: str) -> Iterator[bytes]:
    cut = _CUTS.get(kind, after_newline)
    for part in ranges:
        for start, chunk in part.chunks(cut):
            if kind != "bpe":
                try:
                    chunk.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise part.not_utf8(start + error.start, NEEDS_UTF8) from error
            yield chunk


def samples_of(sources: Sequence[Sequence[DocumentRange]], unit: TextUnit) -> list[bytes]:
    """Return up to some 64 kB of a text, from places that are spread evenly over it.

    Of pairs the words of both sides, as they are encoded, and not the lines as they were read.
    """
    ranges = list(chain.from_iterable(_spread(source, _SAMPLES) for source in sources))
    parts = []
    for part in _spread(ranges, _SAMPLES):
        text = part.document.read()
        if unit == "pair":
            parts.append(b"\n".join(text[:].split(b"\n")[:2]))
            continue
        stop = len(text) if part.stop is None else part.stop
        n_windows = -(-_SAMPLES // min(len(ranges), _SAMPLES))
        step = max(_SAMPLE_BYTES, (stop - part.start) // n_windows)
        parts += [text[at : min(at + _SAMPLE_BYTES, stop)] for at in range(part.start, stop, step)]
    return parts


def note_losses(shown: str, texts: Iterable[bytes], tokenizer: Tokenizer, *, trains: bool) -> None:
    """Report where a tokenizer knows fewer than 999 of 1,000 characters of a text.

    Of a text that it trains on, also what share of the words its rules write otherwise, and what
    share so that they are another word of the text: both of what ``texts`` hold.
    """
    if tokenizer.is_lossless:
        return
    words: Counter[str] = Counter()
    for text in texts:
        for chunk in text.decode(errors="ignore").split():
            for at in range(0, len(chunk), _WORD_CHARACTERS):
                words[chunk[at : at + _WORD_CHARACTERS]] += 1
    unknown: Counter[str] = Counter()
    written: dict[str, str] = {}
    rows = tokenizer.encode_many([word.encode() for word in words])
    for (word, n_times), ids in zip(words.items(), rows, strict=True):
        is_known = ids != (-1 if tokenizer.unk_id is None else tokenizer.unk_id)
        decoded = "".join(tokenizer.decode(ids[is_known]).decode(errors="replace").split())
        if is_known.all():
            written[word] = decoded
        else:
            unknown[word] = n_times * max(1, len(word) - len(decoded))
    n_characters = sum(len(word) * n_times for word, n_times in words.items())
    known = 1 - unknown.total() / max(1, n_characters)
    if known < _KNOWN:
        first = ", ".join(word[:_SHOWN_CHARACTERS] for word, _ in unknown.most_common(3))
        note(
            f"{shown}: the {tokenizer.kind} tokenizer knows {known:.1%} of the characters: "
            f"others, as in {first}, are one unknown id. A larger vocabulary that is trained on "
            "such text, or data.tokenizer = bytes or bpe, knows them"
        )
    changed = Counter({word: words[word] for word, form in written.items() if form != word})
    if not trains or not changed:
        return
    forms = Counter(written.values())
    n_merged = sum(n for word, n in changed.items() if forms[written[word]] > 1)
    [(example, _)] = changed.most_common(1)
    is_choice = tokenizer.kind in LETTERED_TOKENIZERS
    note(
        f"{shown}: the {tokenizer.kind} tokenizer writes {changed.total() / words.total():.1%} of "
        f"the words otherwise ({example} as {written[example]}), and "
        f"{n_merged / words.total():.1%} as another word of the text"
        f"{': data.keep_accents and data.lowercase of a vocabulary that is trained' * is_choice}"
    )


def describe_marks(shown: str, marks: Counter[str], tokenizer: Tokenizer, *, trains: bool) -> str:
    """Describe the reading of special tokens in a text, naming the most frequent.

    For training text, also the setting that changes it.
    """
    named = [f"{name} {count(n, 'time')}" for name, n in marks.most_common(_MOST_NAMED)]
    n_others = len(marks) - len(named)
    others = f" and {count(n_others, 'other')}" if n_others else ""
    read, other = "letters", "tokens makes each its token"
    if tokenizer.reads_marks:
        read, other = "these tokens", "text reads them as letters"
    remedy = f" (data.special_tokens = {other})" if trains else ""
    return (
        f"{shown} names special tokens, {', '.join(named)}{others}: they are read as {read}{remedy}"
    )


def _spread(ranges: Sequence[DocumentRange], most: int) -> Sequence[DocumentRange]:
    return ranges[:: max(1, -(-len(ranges) // most))]
