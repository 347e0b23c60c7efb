"""Translate lines of text in order, in windows that are sorted by length: constant memory on endless input."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from sublayer.data.bilingual import BilingualTokenizer
from sublayer.decode.beam import BeamSettings, Hypothesis, search
from sublayer.errors import ConfigError
from sublayer.model.encoder_decoder import EncoderDecoder

WINDOW = 2048
"""Lines that are sorted together."""


@dataclass(frozen=True)
class Translation:
    """What became of a line: its hypotheses, the best first. None: an empty line, or one too long for the model.

    ``n_tokens`` are the source's, its end included; ``n_unknown`` of them stand for what the vocabulary does not know.
    """

    hypotheses: list[Hypothesis]
    n_tokens: int
    n_unknown: int
    is_too_long: bool = False

    @property
    def ids(self) -> NDArray[np.int64]:
        """The best hypothesis, empty where there is none."""
        return self.hypotheses[0].ids if self.hypotheses else np.zeros(0, dtype=np.int64)


def tokenizer_of(model: EncoderDecoder) -> BilingualTokenizer:
    """Give a translator's tokenizer. Raises ConfigError where it has no vocabulary of two languages."""
    if not isinstance(model.tokenizer, BilingualTokenizer):
        raise ConfigError("the model has no tokenizer of two languages: name a run that was trained to translate")
    return model.tokenizer


def translate_lines(
    model: EncoderDecoder,
    lines: Iterable[str],
    settings: BeamSettings,
    *,
    sentences: int = 32,
    window: int = WINDOW,
    are_words: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Translation]:
    """Translate lines as people write them, or words that spaces divide, and give them in order.

    A line without a token gives none; nor does one that is longer than the model reads, which is marked, never cut.
    ``progress`` is told how many lines of the window are done. Raises ConfigError where the model has no vocabulary of
    two languages.
    """
    tokenizer = tokenizer_of(model)
    rest = iter(lines)
    while held := list(islice(rest, window)):
        if are_words:
            encoded = tokenizer.encode_many([line.encode() for line in held])
        else:
            encoded = tokenizer.encode_source(held)
        yield from _translate_window(model, encoded, settings, tokenizer, sentences, progress)


def _translate_window(
    model: EncoderDecoder,
    encoded: list[NDArray[np.int32]],
    settings: BeamSettings,
    tokenizer: BilingualTokenizer,
    sentences: int,
    progress: Callable[[int], None] | None,
) -> list[Translation]:
    assert model.config.max_len is not None, "a saved config is resolved"
    assert tokenizer.sep_id is not None and tokenizer.pad_id is not None, "the vocabulary was checked"
    unknown = [0 if tokenizer.unk_id is None else int((ids == tokenizer.unk_id).sum()) for ids in encoded]
    found = [
        Translation([], len(ids) + 1, n_unknown, is_too_long=len(ids) + 1 > model.config.max_len)
        for ids, n_unknown in zip(encoded, unknown, strict=True)
    ]
    order = sorted(range(len(encoded)), key=lambda index: -len(encoded[index]))
    order = [index for index in order if len(encoded[index]) and not found[index].is_too_long]
    done = len(encoded) - len(order)
    sources = (encoded[index] for index in order)
    start_id = tokenizer.pad_id if model.config.decoder_start == "pad" else tokenizer.sep_id
    results = search(
        model,
        sources,
        settings,
        end_id=tokenizer.sep_id,
        pad_id=tokenizer.pad_id,
        start_id=start_id,
        sentences=min(sentences, max(1, len(order))),
    )
    for place, hypotheses in results:
        found[order[place]] = replace(found[order[place]], hypotheses=hypotheses)
        done += 1
        if progress is not None:
            progress(done)
    return found
