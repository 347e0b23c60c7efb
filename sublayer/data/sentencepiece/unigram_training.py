"""Training a SentencePiece vocabulary as ALBERT's was, or T5's."""

import io
from collections.abc import Iterable, Iterator
from typing import Any

from sublayer.config.text.tokenizers import check_sentinels
from sublayer.errors import ConfigError, DataError, SublayerError

CONTROLS = ("[CLS]", "[SEP]", "[MASK]")
USER_DEFINED = ("(", ")", '"', "-", ".", "–", "£", "€")

_CHARACTER_COVERAGE = 0.99995
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


def train_pieces(lines: Iterable[str], *, vocab_size: int, sentinels: int = 0) -> bytes:
    """Train a unigram model on lines; the same lines give the same file, on any machine.

    Ids: ``<pad>`` 0, ``<unk>`` 1, ``[CLS]``, ``[SEP]``, ``[MASK]``, then pieces that always stand
    alone. With ``sentinels``, which the file leaves room for and does not hold, they are T5's:
    ``<pad>`` 0, ``</s>`` 1, ``<unk>`` 2, then pieces. Up to ten million lines are drawn. The pieces
    are fewer than ``vocab_size`` less ``sentinels`` where the text holds no more.

    Raises ConfigError where ``vocab_size`` does not hold the text's characters, DataError where
    there is no text. Sources: google-research/albert, ``README.md``; T5: Raffel et al. 2020,
    sec. 2.2, and the ids of its release.

    Departure: a line that is longer than the trainer takes is divided at spaces, where the release
    leaves it out.
    """
    from sentencepiece import SentencePieceTrainer

    check_sentinels(vocab_size, sentinels)
    model = io.BytesIO()
    problems: list[SublayerError] = []
    try:
        SentencePieceTrainer.train(
            sentence_iterator=_recording(_short(lines), problems),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size - sentinels,
            hard_vocab_limit=False,
            character_coverage=_CHARACTER_COVERAGE,
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
        return ConfigError(
            f"data.vocab_size = {vocab_size} is too small for unigram{beside}: "
            "the characters of the text do not fit in it"
        )
    if "sentences_.empty()" in reason:
        return DataError("there is no text to train a tokenizer on: give a longer one")
    return error
