"""Training a SentencePiece vocabulary as ALBERT's was."""

import io
from collections.abc import Iterable, Iterator

from sublayer.errors import ConfigError, DataError, SublayerError

CONTROLS = ("[CLS]", "[SEP]", "[MASK]")
USER_DEFINED = ("(", ")", '"', "-", ".", "–", "£", "€")

_CHARACTER_COVERAGE = 0.99995
_SENTENCES = 10_000_000
_LINE_BYTES = 4192
_LINE_CHARACTERS = _LINE_BYTES // 4
_THREADS = 16


def train_pieces(lines: Iterable[str], *, vocab_size: int) -> bytes:
    """Train a unigram model on lines and give its file; the same lines give the same file, on any machine.

    Ids: ``<pad>`` 0, ``<unk>`` 1, ``[CLS]``, ``[SEP]``, ``[MASK]``, then pieces that always stand alone. Up to ten
    million lines are drawn. Fewer pieces than ``vocab_size`` are found where the text holds no more.

    Raises ConfigError where ``vocab_size`` does not hold the text's characters, DataError where there is no text.
    Source: google-research/albert, ``README.md``.

    Departure: a line that is longer than the trainer takes is divided at spaces, where the release leaves it out.
    """
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    problems: list[SublayerError] = []
    try:
        SentencePieceTrainer.train(
            sentence_iterator=_kept(_short(lines), problems),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            character_coverage=_CHARACTER_COVERAGE,
            input_sentence_size=_SENTENCES,
            shuffle_input_sentence=True,
            max_sentence_length=_LINE_BYTES,
            # How many parts sums are made of, whatever the number of cores: other numbers give other last digits.
            num_threads=_THREADS,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=list(CONTROLS),
            user_defined_symbols=list(USER_DEFINED),
            minloglevel=2,
        )
    except RuntimeError as error:
        if problems:  # the trainer wraps what stops its lines into an error of its own
            raise problems[0] from None
        raise _explained(error, vocab_size) from error
    return model.getvalue()


def _short(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        start = 0
        while len(line) - start > _LINE_CHARACTERS:
            place = line.rfind(" ", start + 1, start + _LINE_CHARACTERS)
            if place < 0:
                place = start + _LINE_CHARACTERS
            yield line[start:place]
            start = place
        yield line[start:]


def _kept(lines: Iterator[str], problems: list[SublayerError]) -> Iterator[str]:
    """Give lines; what stops them is kept."""
    try:
        yield from lines
    except SublayerError as error:
        problems.append(error)
        raise


def _explained(error: RuntimeError, vocab_size: int) -> Exception:
    reason = str(error)
    if "required_chars" in reason:
        return ConfigError(
            f"data.vocab_size = {vocab_size} is too small for unigram: the characters of the text do not fit in it"
        )
    if "sentences_.empty()" in reason:
        return DataError("there is no text to train a tokenizer on: give a longer one")
    return error
