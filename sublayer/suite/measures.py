"""Models of a suite, and a class per measure: size, speed, bits per byte, probes, BLEU."""

import lzma
import math
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sublayer.config.data import HUB
from sublayer.config.objective import BleuTokenizer, bleu_tokenizer_of
from sublayer.config.recipe import Recipe
from sublayer.config.run_recipe import read_run_recipe
from sublayer.counts import count
from sublayer.data.corpora.named import find_sources
from sublayer.data.prepare import prepare_text
from sublayer.data.text.documents import Document, Reading
from sublayer.data.tokenizers.languages import BilingualTokenizer
from sublayer.decode.translate import tokenizer_of, translate_lines
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.bleu import (
    N_RESAMPLES,
    SEED,
    LineCounts,
    check_bleu_tokenizer,
    count_lines,
    score_of_counts,
)
from sublayer.evaluation.items import Numbers
from sublayer.evaluation.likelihood import score
from sublayer.evaluation.probes import ask, check_model, read_probes
from sublayer.files.cache_folder import cache_folder
from sublayer.files.lines import text_lines
from sublayer.files.paths import expanded, resolved
from sublayer.loading import (
    CHECKPOINTS_NAME,
    MODEL_NAME,
    find_model,
    find_recipe,
    load,
    load_model_tokenizer,
    load_task,
)
from sublayer.model.context import Layout
from sublayer.model.kernels.cross_entropy import nats_of_targets
from sublayer.model.model_folder import read_config
from sublayer.model.transformer import (
    Decoder,
    Encoder,
    EncoderDecoder,
    Transformer,
    compose,
    evaluating,
)
from sublayer.objective.causal import WINDOWS, window_items
from sublayer.objective.evaluation import batch_sequences, context_of
from sublayer.objective.metric import Metric
from sublayer.objective.translation.family import beam_settings
from sublayer.study.results import Cell
from sublayer.suite.file import PairsTable, ProbesTable, TextTable
from sublayer.tasks.probes import PROBES, Settings
from sublayer.tasks.registry import TASKS, cached_folder, find_files
from sublayer.tasks.spec import TaskSpec
from sublayer.text_model import TextModel
from sublayer.training.step_time import Clock, timed

_ARTICLES = {"encoder": "an encoder", "decoder": "a decoder", "lstm": "an LSTM"}


@dataclass(frozen=True)
class Candidate:
    """A model to score."""

    name: str
    """Unique among the models."""
    path: Path
    """Path of the run, the checkpoint or the model folder."""
    shell: TextModel
    """The model without its weights, but with its tokenizer and its tasks."""
    recipe: Recipe | None
    """The recipe of its run; None outside one."""

    @property
    def kind(self) -> str:
        """The kind of model."""
        return self.shell.model.config.kind

    @property
    def described(self) -> str:
        """The kind in words."""
        return _ARTICLES.get(self.kind, f"an {self.kind}")

    @property
    def spec(self) -> TaskSpec | None:
        """The tasks that it answers; None if not fine-tuned."""
        return self.shell.task

    @property
    def context(self) -> int:
        """Its context in tokens."""
        return context_of(self.shell.model, self.recipe)

    def load(self, device: torch.device) -> TextModel:
        """Load it with its weights. Raises CheckpointError if they are damaged."""
        return load(self.path, device=device)


def find_candidates(paths: Sequence[Path]) -> list[Candidate]:
    """Find models by their folders, without reading weights.

    Raises ConfigError for duplicates, CheckpointError for missing models.
    """
    candidates = []
    for name, path in zip(_names(paths), paths, strict=True):
        shell = shell_of(find_model(path))
        recipe = find_recipe(path)
        loaded = None if recipe is None else read_run_recipe(recipe)
        candidates.append(Candidate(name, path, shell, loaded))
    return candidates


def shell_of(folder: Path) -> TextModel:
    """Return the model of a model folder without its weights. Raises CheckpointError."""
    with torch.device("meta"):
        shell = compose(read_config(folder)).eval()
    return TextModel(shell, load_model_tokenizer(folder), load_task(folder))


def _names(paths: Sequence[Path]) -> list[str]:
    """Name models by the shortest distinct ends of their paths."""
    all_parts = []
    for path in paths:
        parts = resolved(path).parts
        if len(parts) > 2 and parts[-1] == MODEL_NAME:
            parts = parts[:-1]
        if len(parts) > 2 and parts[-2] == CHECKPOINTS_NAME:
            # A step needs its run's name.
            parts = (*parts[:-3], f"{parts[-3]}/{parts[-1]}")
        if parts in all_parts:
            raise ConfigError(f"{path} is named twice: leave one out")
        all_parts.append(parts)
    names = []
    for parts in all_parts:
        n = 1
        while n < len(parts) and sum(other[-n:] == parts[-n:] for other in all_parts) > 1:
            n += 1
        names.append("/".join(parts[-n:]))
    return names


CHANCE, MAJORITY, WORDS = "chance", "majority", "words"
"""Rows of baselines."""


def score_column(
    name: str,
    label: str,
    is_lower_better: bool = False,
    factor: float = 1.0,
    decimals: int = 1,
) -> Metric:
    """Return a column of the scorecard, whose values are multiplied by ``factor`` for display."""
    return Metric(name, label, is_lower_better, from_items=None, factor=factor, decimals=decimals)


class Measured(NamedTuple):
    """Scores of one model by one measure."""

    columns: Sequence[Metric]
    cells: Mapping[str, Cell]
    """By column."""
    others: Mapping[str, Mapping[str, Cell]] = {}
    """Scores of baselines and references, by row and column."""
    notes: Sequence[str] = ()
    reason: str = ""
    """Reason for missing cells; empty if there are cells."""


class Measure(ABC):
    """A measure, whose files have been read or exist."""

    columns: tuple[Metric, ...]
    """The columns that it fills, as far as known in advance."""
    title: str
    """Progress text for people."""
    is_timed = False
    """True if nothing else may run meanwhile."""

    def refusal(self, candidate: Candidate) -> str:
        """Return why a model cannot be measured by its nature; empty if it can.

        Raises a SublayerError for a user's mistake, before any computation.
        """
        return ""

    @abstractmethod
    def score(self, candidate: Candidate, device: torch.device) -> Measured:
        """Measure a model. Raises a SublayerError if that is impossible."""

    def one(
        self,
        candidate: Candidate,
        cell: Cell,
        others: Mapping[str, Cell] = {},
        notes: Sequence[str] = (),
    ) -> Measured:
        """Return the scores of a measure of one column; ``others`` are baselines, by their rows."""
        [column] = self.columns
        named = [f"{candidate.name}, {column.label}: {note}" for note in notes]
        beside = {row: {column.name: other} for row, other in others.items()}
        return Measured(self.columns, {column.name: cell}, beside, named)


class ParameterCount(Measure):
    """The number of parameters, heads included."""

    columns = (score_column("parameters", "parameters", is_lower_better=True, decimals=0),)
    title = "counting parameters"

    def score(self, candidate: Candidate, device: torch.device) -> Measured:
        """Count parameters, shared ones once."""
        n_parameters = sum(parameter.numel() for parameter in candidate.shell.model.parameters())
        return self.one(candidate, Cell(n_parameters))


SPEED = (
    "tokens/s: a forward pass in float32 over full contexts of random tokens, as many at a time "
    "as scoring takes; what predicts text gives every token's probability, an encoder its states, "
    "an encoder-decoder half of the tokens as source and half as target; ± the standard error over "
    "the passes"
)
_WARM_UP = 2
_FEWEST, _MOST = 5, 50
"""Number of timed passes."""
_BUDGET_S = 2.0
_LONGEST = 2048
"""Tokens per row, at most."""


class Speed(Measure):
    """Tokens a second of a forward pass."""

    columns = (score_column("tokens_per_second", "tokens/s", decimals=0),)
    title = "measuring the speed"
    is_timed = True

    def score(self, candidate: Candidate, device: torch.device) -> Measured:
        """Measure speed, while this program does nothing else."""
        model = candidate.load(device).model
        return self.one(candidate, measure_speed(model, candidate.context, device))


def measure_speed(
    model: Transformer, context: int, device: torch.device, clock: Clock = time.perf_counter
) -> Cell:
    """Measure the tokens a second of a forward pass: the mean, and its error over passes."""
    context = min(context, _LONGEST)
    n_rows = batch_sequences(model, context)
    read, n_tokens = _pass_of(model, n_rows, context, device)
    speeds: list[float] = []
    with evaluating(model), torch.inference_mode():
        for _ in range(_WARM_UP):
            timed(read, device=device, clock=clock)
        ends = clock() + _BUDGET_S
        while len(speeds) < _FEWEST or (len(speeds) < _MOST and clock() < ends):
            speeds.append(n_tokens / timed(read, device=device, clock=clock))
    error = statistics.stdev(speeds) / math.sqrt(len(speeds))
    return Cell(statistics.fmean(speeds), error=error)


def _pass_of(
    model: Transformer, n_rows: int, context: int, device: torch.device
) -> tuple[Callable[[], object], int]:
    """Return a forward pass, and the tokens that it reads."""
    generator = torch.Generator().manual_seed(0)
    is_pair = isinstance(model, EncoderDecoder)
    size = (n_rows, max(1, context // 2) if is_pair else context)
    assert model.config.vocab_size is not None, "the model is built"
    source, target = (
        torch.randint(model.config.vocab_size, size, generator=generator).to(device)
        for _ in range(2)
    )

    def read() -> Tensor:
        if isinstance(model, Encoder):
            return model.hidden(source, Layout.bidirectional(source, None)).final
        if isinstance(model, EncoderDecoder):
            memory = model.encode(source)
            final = model.hidden(target, Layout.causal(target), memory=memory).final
        else:
            final = model.hidden(source, Layout.causal(source)).final
        matrix, bias = model.output_projection()
        embedded = model.to_embedding(final).flatten(0, 1)
        return nats_of_targets(embedded, matrix, bias, target.flatten()).total

    return read, source.numel() * (2 if is_pair else 1)


COMPRESSED = "xz"
"""The row of a general compressor."""
_CHUNK_BYTES = 4 << 20


class BitsPerByte(Measure):
    """Bits per byte of a text, without its first token.

    Every token has at least half the model's context before it. Raises DataError if the text is not
    on this machine.
    """

    def __init__(self, text: TextTable) -> None:
        self._text = text
        column = f"bits_per_byte/{text.label}"
        label = f"bits per byte, {text.label}"
        self.columns = (score_column(column, label, is_lower_better=True, decimals=3),)
        self.title = f"scoring {text.label}"
        if text.path.startswith(HUB) or "://" in text.path:
            raise DataError(f"{text.path} is not on this machine: a suite reads local files alone")
        [source] = find_sources(text.path, None, cache_folder(None), Reading(text.documents))
        if not source.documents:
            raise DataError(f"{text.path} is a release of several splits: name the files of one")
        for document in source.documents:
            document.read()  # raises for an empty, binary or cut file
        self._documents = source.documents

    @cached_property
    def _compressed(self) -> Cell:
        return Cell(compressed_bits(self._documents))

    def refusal(self, candidate: Candidate) -> str:
        """Refuse a model that predicts no next token, or reads no text."""
        if not isinstance(candidate.shell.model, Decoder):
            return f"{candidate.described} predicts no text from its beginning to its end"
        if candidate.shell.tokenizer is None:
            return "it has no tokenizer.json, without which it reads no text"
        return ""

    def score(self, candidate: Candidate, device: torch.device) -> Measured:
        """Score the text in windows half a context apart."""
        text_model = candidate.load(device)
        model, tokenizer = text_model.model, text_model.tokenizer
        assert tokenizer is not None, "a model without a tokenizer is refused"
        text = prepare_text(
            tokenizer, path=self._text.path, split="valid", documents=self._text.documents
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
                "its tokenizer is lossy, so that unknown text was scored as unknown: not comparable"
            )
        return self.one(candidate, cell, {COMPRESSED: self._compressed}, notes)


def _ratio_error(bits: Numbers, n_bytes: Numbers) -> float | None:
    """Compute the standard error of a ratio of sums over windows, taken as a random sample."""
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


def local_folder(tasks: Sequence[str], data: str | None) -> str:
    """Return the folder of one of several tasks: the named one, or else the cache's.

    Raises DataError if there is none: nothing is downloaded.
    """
    titles = " or ".join(TASKS[name].title for name in tasks)
    if data is not None:
        if not any(find_files(TASKS[name], data) for name in tasks):
            raise DataError(
                f"{data} has no files of {titles}: `sublayer tasks {data}` lists what it has"
            )
        return data
    for name in tasks:
        folder = cached_folder(TASKS[name])
        if folder is not None:
            return str(folder)
    raise DataError(
        f"{titles} is not in the cache, and a suite downloads nothing: name the folder of its "
        'files, data = "DIR"'
    )


REFERENCE = "reference"
"""The row of the published reference: 1 on the axis of the probes' source."""


class ProbeMeasure(Measure):
    """A probe, read once and applied to every model.

    Raises ConfigError for settings that it does not take, DataError if its files are not on this
    machine.
    """

    def __init__(self, name: str, group: ProbesTable) -> None:
        probe = PROBES[name]
        words = None
        if group.words is not None:
            first, second = group.words
            words = first.strip(), second.strip()
        settings = Settings(words, group.references)
        settings.check_asked(group.names)
        settings = settings.only(name)
        self._read = read_probes([name], local_folder(probe.tasks, group.data), settings)
        self.columns = (score_column(f"probe/{name}", f"{probe.title}, zero-shot", factor=100.0),)
        self.title = f"asking {probe.title}"

    def refusal(self, candidate: Candidate) -> str:
        """Refuse a model that predicts no text."""
        try:
            check_model(candidate.shell, candidate.name)
        except ConfigError as error:
            return f"it {str(error).removeprefix(candidate.name).lstrip()}"
        return ""

    def score(self, candidate: Candidate, device: torch.device) -> Measured:
        """Score the model by the probe."""
        [answered] = ask(candidate.load(device), self._read, candidate.context)
        probe = answered.probe
        others = {CHANCE: Cell(probe.chance, error=probe.chance_error(answered.n_examples))}
        if answered.reference is not None:
            others[REFERENCE] = Cell(answered.reference)
        cell = Cell(answered.value, error=answered.standard_error)
        return self.one(candidate, cell, others, answered.notes)


COPIED = "source copied"
"""The row of the source as its translation."""
_MEASURE = "sacrebleu"


class Bleu(Measure):
    """BLEU of plain text (sacreBLEU), with the beam of each translator's run.

    Raises DataError if a file is missing, or if they differ in number of lines, and ConfigError if
    sacrebleu is not installed.
    """

    def __init__(self, pairs: PairsTable) -> None:
        check_bleu_tokenizer(pairs.bleu_tokenizer or "13a")
        self._pairs = pairs
        self._sources = text_lines(expanded(pairs.source))
        self._references = text_lines(expanded(pairs.target))
        if len(self._sources) != len(self._references):
            raise DataError(
                f"{pairs.source} has {count(len(self._sources), 'line')}, {pairs.target} "
                f"{len(self._references):,}: a translation stands in each source's line"
            )
        if not self._sources:
            raise DataError(f"{pairs.source} has no line to translate")
        self.columns = (score_column(f"bleu/{pairs.label}", f"BLEU, {pairs.label}"),)
        self.title = f"translating {pairs.label}"

    def refusal(self, candidate: Candidate) -> str:
        """Refuse a model that does not translate."""
        if not isinstance(candidate.shell.model, EncoderDecoder):
            return f"{candidate.described} translates nothing"
        if not isinstance(candidate.shell.tokenizer, BilingualTokenizer):
            return "it was not trained to translate: it has no tokenizer of two languages"
        return ""

    def score(self, candidate: Candidate, device: torch.device) -> Measured:
        """Translate every line, and score the translations."""
        model = candidate.load(device)
        tokenizer = tokenizer_of(model)
        settings = beam_settings(candidate.recipe, {})
        translated = list(translate_lines(model, self._sources, settings))
        texts = [tokenizer.write(line.ids) for line in translated]
        n_long = sum(line.is_too_long for line in translated)
        notes = []
        if n_long:
            notes.append(f"{count(n_long, 'line')} longer than the model reads, scored as empty")
        tokens = self._pairs.bleu_tokenizer
        tokens = tokens or bleu_tokenizer_of(tokenizer.target.language)
        counted = self._counted(texts, tokens)
        if tokens != "13a":
            notes.append(counted.signature)
        copied = _cell(self._counted(self._sources, tokens))
        return self.one(candidate, _cell(counted), {COPIED: copied}, notes)

    def _counted(self, texts: Sequence[str], tokens: BleuTokenizer) -> LineCounts:
        lowercase = self._pairs.lowercase
        return count_lines(_MEASURE, texts, self._references, lowercase=lowercase, tokens=tokens)


def _cell(counts: LineCounts) -> Cell:
    return Cell(counts.value, error=bootstrap_error(counts))


def bootstrap_error(counts: LineCounts) -> float | None:
    """Return the bootstrap standard error of a score over lines; None for a single line."""
    n_lines = len(counts.counts)
    if n_lines < 2:
        return None
    generator = np.random.default_rng(SEED)
    scores = []
    for _ in range(N_RESAMPLES):
        times = np.bincount(generator.integers(n_lines, size=n_lines), minlength=n_lines)
        scores.append(score_of_counts(counts.name, times @ counts.counts))
    return float(np.std(scores, ddof=1))
