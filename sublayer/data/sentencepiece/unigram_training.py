"""Training a SentencePiece vocabulary as ALBERT's was, or T5's."""

import io
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO
from unicodedata import category

from sublayer.config.texts import check_sentinels
from sublayer.data.tokenizers.base import NO_TEXT
from sublayer.errors import ConfigError, DataError, SublayerError
from sublayer.system.stages import note

CONTROLS = ("[CLS]", "[SEP]", "[MASK]")
USER_DEFINED = ("(", ")", '"', "-", ".", "–", "£", "€")

_CHARACTER_COVERAGE = 0.99995
_ALL_CHARACTERS = {"character_coverage": 1.0}
_MARK = "\u2585"
_SENTENCES = 10_000_000
_LINE_BYTES = 4192
_LINE_CHARACTERS = _LINE_BYTES // 4
_THREADS = 16


_ALBERT: dict[str, Any] = {
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": -1,
    "eos_id": -1,
    "control_symbols": list(CONTROLS),
    "user_defined_symbols": list(USER_DEFINED),
}
_T5: dict[str, Any] = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}


class _NoRoom(ConfigError):
    """A vocabulary that does not hold the characters of its text."""


def train_pieces(
    lines: Iterable[str], *, vocab_size: int, sentinels: int = 0, keeps_characters: bool = False
) -> bytes:
    """Train a unigram model on lines; the same lines give the same file, on any machine.

    Ids: ``<pad>`` 0, ``<unk>`` 1, ``[CLS]``, ``[SEP]``, ``[MASK]``, then pieces that always stand
    alone. With ``sentinels``, which the file leaves room for and does not hold, they are T5's:
    ``<pad>`` 0, ``</s>`` 1, ``<unk>`` 2, then pieces. Up to ten million lines are drawn. The pieces
    are fewer than ``vocab_size`` less ``sentinels`` where the text holds no more.
    ``keeps_characters``: without NFKC, and with every character of the lines for which there is
    room; 99.995 % of them otherwise.

    Raises ConfigError where ``vocab_size`` does not hold the text's characters, DataError where
    there is no text. Sources: google-research/albert, ``README.md``; T5: Raffel et al. 2020,
    sec. 2.2, and the ids of its release.

    Departure: a line that is longer than the trainer takes is divided at spaces, where the release
    leaves it out.
    """
    check_sentinels(vocab_size, sentinels)
    lines = _with_text(lines)
    if not keeps_characters:
        return _train(lines, vocab_size, sentinels, {"character_coverage": _CHARACTER_COVERAGE})
    rules: dict[str, Any] = {"normalization_rule_name": "identity"}
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as kept:
        try:
            return _train(_keeping(lines, kept), vocab_size, sentinels, rules | _ALL_CHARACTERS)
        except _NoRoom:
            kept.seek(0)
            again = (line.removesuffix("\n") for line in kept)
            rules["character_coverage"] = _CHARACTER_COVERAGE
            model = _train(again, vocab_size, sentinels, rules)
    note(
        f"data.vocab_size = {vocab_size:,} has no room for every character of the text: the "
        "rarest, 5 of 100,000 of its characters, are unknown to the unigram tokenizer"
    )
    return model


def _with_text(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines without the trainer's own mark, for which it leaves a line out.

    Raises DataError behind the last where all are control characters or marks of byte order.
    """
    has_text = False
    for line in lines:
        has_text = has_text or any(category(each)[0] not in "CZ" for each in line)
        yield line.replace(_MARK, " ")
    if not has_text:
        raise DataError(NO_TEXT)


def _keeping(lines: Iterable[str], file: TextIO) -> Iterator[str]:
    for line in lines:
        file.write(f"{line}\n")
        yield line


def _train(
    lines: Iterable[str], vocab_size: int, sentinels: int, rules: Mapping[str, Any]
) -> bytes:
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    problems: list[SublayerError] = []
    try:
        SentencePieceTrainer.train(
            sentence_iterator=_recording(_short(lines), problems),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size - sentinels,
            hard_vocab_limit=False,
            **rules,
            input_sentence_size=_SENTENCES,
            shuffle_input_sentence=True,
            max_sentence_length=_LINE_BYTES,
            # How many parts sums are made of, whatever the number of cores: other numbers give
            # other last digits.
            num_threads=_THREADS,
            minloglevel=2,
            **(_T5 if sentinels else _ALBERT),
        )
    except RuntimeError as error:
        if problems:  # the trainer wraps what stops its lines into an error of its own
            raise problems[0] from None
        raise _explained(error, vocab_size, sentinels) from error
    return model.getvalue()


def _short(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        start = 0
        while len(line) - start > _LINE_CHARACTERS:
            stop = line.rfind(" ", start + 1, start + _LINE_CHARACTERS)
            if stop < 0:
                stop = start + _LINE_CHARACTERS
            yield line[start:stop]
            start = stop
        yield line[start:]


def _recording(lines: Iterator[str], problems: list[SublayerError]) -> Iterator[str]:
    """Yield lines; append the error that stops them to ``problems``."""
    try:
        yield from lines
    except SublayerError as error:
        problems.append(error)
        raise


def _explained(error: RuntimeError, vocab_size: int, sentinels: int) -> Exception:
    reason = str(error)
    beside = f" with data.sentinels = {sentinels}" if sentinels else ""
    if "required_chars" in reason:
        return _NoRoom(
            f"data.vocab_size = {vocab_size} is too small for unigram{beside}: "
            "the characters of the text do not fit in it"
        )
    if "sentences_.empty()" in reason or "all_chars_count" in reason:
        return DataError(NO_TEXT)
    return DataError(f"SentencePiece trains no tokenizer on this text: {reason[:200]}")
