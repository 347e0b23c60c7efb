"""BLEU of translators on pairs of texts."""

from collections.abc import Sequence

import numpy as np
import torch

from sublayer.config.objectives.translation import BleuTokenizer, bleu_tokenizer_of
from sublayer.counts import count
from sublayer.data.tokenizers.bilingual import BilingualTokenizer
from sublayer.decode.translate import translate_lines
from sublayer.errors import DataError
from sublayer.evaluation.bleu import (
    LineCounts,
    check_bleu_tokenizer,
    count_lines,
    score_of_counts,
)
from sublayer.evaluation.significance import N_RESAMPLES, SEED
from sublayer.files.lines import text_lines
from sublayer.files.paths import expanded
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.objective.translation.evaluation import beam_settings
from sublayer.study.scorecard import Cell
from sublayer.suite.candidate import Candidate
from sublayer.suite.file import PairsTable
from sublayer.suite.found import Column, Found
from sublayer.suite.measure import Measure

COPIED = "source copied"
"""The row of the source as if it were its translation."""
_MEASURE = "sacrebleu"


class Bleu(Measure):
    """BLEU of text as it is written (sacreBLEU), with the beam of each translator's own run.

    Raises DataError where a file is missing, or they have not as many lines as each other, and
    ConfigError where sacrebleu is not installed.
    """

    def __init__(self, pairs: PairsTable) -> None:
        check_bleu_tokenizer(pairs.bleu_tokenizer or "13a")
        self._pairs = pairs
        self._sources = _lines(pairs.source)
        self._references = _lines(pairs.target)
        if len(self._sources) != len(self._references):
            raise DataError(
                f"{pairs.source} has {count(len(self._sources), 'line')}, {pairs.target} "
                f"{len(self._references):,}: a translation stands in each source's line"
            )
        if not self._sources:
            raise DataError(f"{pairs.source} has no line to translate")
        self.columns = (Column(f"bleu/{pairs.label}", f"BLEU, {pairs.label}"),)
        self.title = f"translating {pairs.label}"

    def refusal(self, candidate: Candidate) -> str:
        """Refuse what translates nothing."""
        if not isinstance(candidate.shell, EncoderDecoder):
            return f"{candidate.described} translates nothing"
        if not isinstance(candidate.shell.tokenizer, BilingualTokenizer):
            return "it was not trained to translate: it has no tokenizer of two languages"
        return ""

    def score(self, candidate: Candidate, device: torch.device) -> Found:
        """Translate every line, and score the translations."""
        model = candidate.load(device)
        assert isinstance(model, EncoderDecoder), "others are refused"
        settings = beam_settings(candidate.recipe, {})
        translated = list(translate_lines(model, self._sources, settings))
        texts = [model.tokenizer.write(each.ids) for each in translated]
        [column] = self.columns
        n_long = sum(each.is_too_long for each in translated)
        notes = []
        if n_long:
            notes.append(
                f"{candidate.name}, {column.label}: {count(n_long, 'line')} longer than the model "
                "reads, scored as empty"
            )
        tokens = self._pairs.bleu_tokenizer
        tokens = tokens or bleu_tokenizer_of(model.tokenizer.target.language)
        counted = self._counted(texts, tokens)
        if tokens != "13a":
            notes.append(f"{candidate.name}, {column.label}: {counted.signature}")
        others = {COPIED: {column.name: _cell(self._counted(self._sources, tokens))}}
        return Found(self.columns, {column.name: _cell(counted)}, others, notes)

    def _counted(self, texts: Sequence[str], tokens: BleuTokenizer) -> LineCounts:
        lowercase = self._pairs.lowercase
        return count_lines(_MEASURE, texts, self._references, lowercase=lowercase, tokens=tokens)


def _cell(counts: LineCounts) -> Cell:
    return Cell(counts.value, error=bootstrap_error(counts))


def bootstrap_error(counts: LineCounts) -> float | None:
    """Return the standard error of a score by drawing lines again; None of a single line."""
    n_lines = len(counts.counts)
    if n_lines < 2:
        return None
    generator = np.random.default_rng(SEED)
    scores = []
    for _ in range(N_RESAMPLES):
        times = np.bincount(generator.integers(n_lines, size=n_lines), minlength=n_lines)
        scores.append(score_of_counts(counts.name, times @ counts.counts))
    return float(np.std(scores, ddof=1))


def _lines(path: str) -> list[str]:
    return text_lines(expanded(path))
