"""Bits per byte of texts, by models that predict the next token."""

import lzma
import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch

from sublayer.config.text.corpora import HUB
from sublayer.data.corpora.named import find_sources
from sublayer.data.prepare import prepare_text
from sublayer.data.text.documents import Reading
from sublayer.data.text.files import Document
from sublayer.errors import DataError
from sublayer.evaluation.items import Numbers
from sublayer.evaluation.likelihood import score
from sublayer.files.cache_folder import cache_folder
from sublayer.model.decoder import Decoder
from sublayer.objective.causal.items import WINDOWS, window_items
from sublayer.objective.evaluation import batch_sequences
from sublayer.study.scorecard import Cell
from sublayer.suite.candidate import Candidate
from sublayer.suite.file import TextTable
from sublayer.suite.found import Column, Found
from sublayer.suite.measure import Measure

COMPRESSED = "xz"
"""The row of what a general compressor makes of the same text."""
_CHUNK_BYTES = 4 << 20


class BitsPerByte(Measure):
    """The bits that a model needs for a byte of a text, of all of it but its first token.

    Every token is predicted behind at least half the model's own context.
    """

    def __init__(self, text: TextTable) -> None:
        self._text = text
        column = f"bits_per_byte/{text.label}"
        label = f"bits per byte, {text.label}"
        self.columns = (Column(column, label, is_lower_better=True, decimals=3),)
        self.title = f"scoring {text.label}"
        self._documents = _documents(text)

    @cached_property
    def _compressed(self) -> Cell:
        return Cell(compressed_bits(self._documents))

    def refusal(self, candidate: Candidate) -> str:
        """Refuse what predicts no next token, or reads no text."""
        if not isinstance(candidate.shell, Decoder):
            return f"{candidate.described} predicts no text from its beginning to its end"
        if candidate.shell.tokenizer is None:
            return "it has no tokenizer.json, without which it reads no text"
        return ""

    def score(self, candidate: Candidate, device: torch.device) -> Found:
        """Score the text in windows half a context apart."""
        model = candidate.load(device)
        assert model.tokenizer is not None, "a model without a tokenizer is refused"
        text = prepare_text(
            model.tokenizer, path=self._text.path, split="valid", documents=self._text.documents
        )
        context = candidate.context
        stride = max(1, context // 2)
        recipe = candidate.recipe
        likelihood = score(
            model,
            text,
            context=context,
            stride=stride,
            batch_sequences=batch_sequences(model, context),
            respect_boundaries=recipe is not None and recipe.data.boundaries == "respect",
        )
        items = window_items(text, likelihood, context=context, stride=stride)
        columns = items.tables[WINDOWS].columns
        cell = Cell(
            likelihood.bits_per_byte,
            error=_ratio_error(columns["nats"] / math.log(2), columns["bytes"]),
        )
        notes = []
        if not text.store.is_lossless:
            notes.append(
                f"{candidate.name}, {self._text.label}: its tokenizer is lossy, so that unknown "
                "text was scored as unknown: not comparable"
            )
        [column] = self.columns
        others = {COMPRESSED: {column.name: self._compressed}}
        return Found(self.columns, {column.name: cell}, others, notes)


def _documents(text: TextTable) -> Sequence[Document]:
    """Find the documents of a text. Raises DataError where it is not on this machine."""
    path = text.path
    if path.startswith(HUB) or "://" in path:
        raise DataError(f"{path} is not on this machine: a suite reads local files alone")
    [source] = find_sources(path, None, cache_folder(None), Reading(text.documents))
    if not source.documents:
        raise DataError(f"{path} is a release of several splits: name the files of one")
    for document in source.documents:
        document.read()  # raises for what is empty, binary or cut short
    return source.documents


def _ratio_error(bits: Numbers, n_bytes: Numbers) -> float | None:
    """Compute the standard error of a ratio of sums over windows, which are taken as drawn."""
    n = len(bits)
    total = float(n_bytes.sum())
    if n < 2 or not total:
        return None
    apart = bits - bits.sum() / total * n_bytes
    return math.sqrt(n / (n - 1) * float(np.square(apart).sum())) / total


def compressed_bits(documents: Sequence[Document]) -> float:
    """Return the bits per byte of documents, one after another, as xz compresses them."""
    compressor = lzma.LZMACompressor(preset=9)
    n_bytes, n_compressed = 0, 0
    for document in documents:
        text = document.read()
        for low in range(0, len(text), _CHUNK_BYTES):
            chunk = bytes(text[low : low + _CHUNK_BYTES])
            n_bytes += len(chunk)
            n_compressed += len(compressor.compress(chunk))
    n_compressed += len(compressor.flush())
    return 8 * n_compressed / n_bytes
