"""Translation of lines in order, in windows sorted by length, in constant memory."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from sublayer.data.tokenizers.languages import BilingualTokenizer
from sublayer.decode.beam import BeamHypothesis, BeamSettings, search
from sublayer.errors import ConfigError
from sublayer.model.transformer import EncoderDecoder
from sublayer.system.stages import stage
from sublayer.text_model import TextModel

WINDOW = 2048
"""Lines that are sorted together."""


@dataclass(frozen=True)
class TranslatedLine:
    """Hypotheses of a line, best first; none where it was not translated.

    Untranslated lines are empty, or too long for the model.
    """

    hypotheses: list[BeamHypothesis]
    n_tokens: int
    """Tokens of the source, its end included."""
    n_unknown: int
    """Tokens that the vocabulary does not know."""
    is_too_long: bool = False
    """True where the source has more tokens than the model has positions."""

    @property
    def ids(self) -> NDArray[np.int64]:
        """Ids of the best hypothesis without its end; empty without hypotheses."""
        if not self.hypotheses:
            return np.zeros(0, dtype=np.int64)
        return self.hypotheses[0].ids


def tokenizer_of(text_model: TextModel) -> BilingualTokenizer:
    """Return a translator's tokenizer.

    Raises ConfigError where it is missing or of another kind.
    """
    if not isinstance(text_model.tokenizer, BilingualTokenizer):
        raise ConfigError(
            "the model has no tokenizer of two languages: name a run that was trained to translate"
        )
    return text_model.tokenizer


def translate_lines(
    text_model: TextModel,
    lines: Iterable[str],
    settings: BeamSettings,
    *,
    sentences: int = 32,
    window: int = WINDOW,
    are_words: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Iterator[TranslatedLine]:
    """Translate lines of text or of space-separated words; yield results in order.

    A line without tokens has no hypotheses; nor has one that exceeds the model's positions, which
    is marked, never cut. Windows of ``window`` lines are read, sorted by length, then translated,
    ``sentences`` at a time, which changes speed and memory only. ``progress`` receives the number
    of translated lines of the window.

    Raises ConfigError where the model has no vocabulary of two languages, and as ``search`` does.
    """
    model, tokenizer = text_model.model, tokenizer_of(text_model)
    assert isinstance(model, EncoderDecoder), "others translate nothing"
    rest = iter(lines)
    while batch := list(islice(rest, window)):
        if are_words:
            encoded = tokenizer.encode_many([line.encode() for line in batch])
        else:
            encoded = tokenizer.encode_source(batch)
        with stage("translating"):
            translations = _translate_window(
                model, encoded, settings, tokenizer, sentences, progress
            )
        yield from translations


def _translate_window(
    model: EncoderDecoder,
    encoded: list[NDArray[np.int32]],
    settings: BeamSettings,
    tokenizer: BilingualTokenizer,
    sentences: int,
    progress: Callable[[int], None] | None,
) -> list[TranslatedLine]:
    end_id = tokenizer.sep_id
    pad_id = tokenizer.pad_id
    assert end_id is not None and pad_id is not None, "the vocabulary was checked"
    translations = []
    for ids in encoded:
        n_tokens = len(ids) + 1
        n_unknown = 0 if tokenizer.unk_id is None else int((ids == tokenizer.unk_id).sum())
        is_too_long = n_tokens > model.config.max_len
        translations.append(TranslatedLine([], n_tokens, n_unknown, is_too_long=is_too_long))
    order = [
        index
        for index, translation in enumerate(translations)
        if translation.n_tokens > 1 and not translation.is_too_long
    ]
    order.sort(key=lambda index: -len(encoded[index]))
    n_done = len(encoded) - len(order)
    sources = (encoded[index] for index in order)
    starts_with_pad = model.config.decoder_start == "pad"
    results = search(
        model,
        sources,
        settings,
        end_id=end_id,
        pad_id=pad_id,
        start_id=pad_id if starts_with_pad else end_id,
        sentences=min(sentences, max(1, len(order))),
    )
    for number, hypotheses in results:
        index = order[number]
        translations[index] = replace(translations[index], hypotheses=hypotheses)
        n_done += 1
        if progress is not None:
            progress(n_done)
    return translations
