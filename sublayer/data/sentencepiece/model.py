"""SentencePiece's model files: opened, parsed, trained, and their sentinels."""

import base64
import hashlib
import io
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO
from unicodedata import category

from sublayer.config.data import check_sentinels
from sublayer.config.table import MOST_SENTINELS
from sublayer.data.subwords.probe import try_file
from sublayer.data.tokenizers.base import NO_TEXT, find_sentinels, read_fields, sentinel_name
from sublayer.data.tokenizers.settings import CONFIG_NAME, read_settings
from sublayer.errors import ConfigError, DataError, SublayerError
from sublayer.system.stages import note


def open_model(model: bytes, name: str = "the file") -> Any:
    """Load a model into SentencePiece's processor; raise DataError, with ``name``, if damaged.

    It is tried in a child process first: a damaged model can crash its reader.
    """
    from sentencepiece import SentencePieceProcessor

    try_file("sentencepiece", model, f"{name} is not a SentencePiece model, or it is damaged")
    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(model)
    return processor


def parse_model(model: bytes) -> Any:
    """Parse a model file into SentencePiece's message; raise DataError if it is damaged."""
    messages: Any = import_module("sentencepiece.sentencepiece_model_pb2")
    problems: Any = import_module("google.protobuf.message")
    try:
        return messages.ModelProto.FromString(model)
    except problems.DecodeError:
        raise DataError("its SentencePiece model is damaged") from None


def packed(model: bytes) -> dict[str, str]:
    """Return a model in base64, with its checksum."""
    checksum = hashlib.sha256(model).hexdigest()
    encoded = base64.b64encode(model)
    return {"sha256": checksum, "model": encoded.decode()}


def unpacked(content: Any) -> bytes:
    """Return the model that ``packed`` encoded; raise DataError where it is damaged."""
    fields = read_fields(content, _Packed)
    try:
        model = base64.b64decode(fields.model, validate=True)
    except ValueError as error:
        raise DataError("its SentencePiece model is not base64: it is damaged") from error
    if hashlib.sha256(model).hexdigest() != fields.sha256:
        raise DataError("its SentencePiece model does not have its checksum: it is damaged")
    return model


@dataclass(frozen=True)
class _Packed:
    sha256: str
    model: str


_T5_CLASSES = ("T5Tokenizer", "T5TokenizerFast")
_T5_SENTINELS = 100
"""Of transformers' class, where its settings do not say how many."""


def mute_sentinels(model: bytes, names: Sequence[str]) -> tuple[bytes, tuple[int, ...]]:
    """Return a model that never encodes text as its sentinels, and their ids.

    ``names`` are all of its pieces. Pieces marked as text are not sentinels, whatever their name.
    Without sentinels the model is unchanged.
    """
    if sentinel_name(0) not in names:
        return model, ()
    content = parse_model(model)
    kinds = content.SentencePiece
    marked = {}
    for id_, piece in enumerate(content.pieces):
        if piece.type in (kinds.CONTROL, kinds.USER_DEFINED, kinds.UNUSED):
            marked[piece.piece] = id_
    ids = find_sentinels(marked)
    if not ids:
        return model, ()
    for id_ in ids:
        # It is in no text that is encoded, and decoded by its name.
        content.pieces[id_].type = kinds.UNUSED
    return content.SerializeToString(deterministic=True), ids


def sentinels_beside(folder: Path) -> int:
    """Return the number of sentinels that a folder's ``tokenizer_config.json`` adds to T5's model.

    0 for other classes, or without the file. Raises DataError where it is damaged.
    """
    settings = read_settings(folder)
    if settings.get("tokenizer_class") not in _T5_CLASSES:
        return 0
    n_sentinels = settings.get("extra_ids", _T5_SENTINELS)
    # bool is a subclass of int.
    is_number = type(n_sentinels) is int
    if not is_number or not 0 <= n_sentinels <= MOST_SENTINELS:
        raise DataError(
            f"{folder / CONFIG_NAME}: extra_ids = {str(n_sentinels)[:60]} must be a number from 0 "
            f"to {MOST_SENTINELS}"
        )
    return int(n_sentinels)


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
    """Yield lines without the trainer's reserved mark, for which it would skip a line.

    Raises DataError behind the last where all are control characters or marks of byte order.
    """
    has_text = False
    for line in lines:
        has_text = has_text or any(category(char)[0] not in "CZ" for char in line)
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
            # The number of partial sums, whatever the cores: it affects the last digits.
            num_threads=_THREADS,
            minloglevel=2,
            **(_T5 if sentinels else _ALBERT),
        )
    except RuntimeError as error:
        if problems:  # the trainer wraps errors of its input
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
