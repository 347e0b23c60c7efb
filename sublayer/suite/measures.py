"""Models of a suite, and a class per measure: size, speed, bits per byte, probes, BLEU, tasks."""

import lzma
import math
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sublayer.config.data import HUB
from sublayer.config.finetune import load_finetune
from sublayer.config.load import (
    LoadedRecipe,
    absolute_paths,
    find_recipe,
    load_recipe,
    read_run_recipe,
)
from sublayer.config.objective import BleuTokenizer, bleu_tokenizer_of
from sublayer.config.recipe import Recipe
from sublayer.data.corpora import find_sources
from sublayer.data.prepare import prepare_text
from sublayer.data.text.documents import Reading
from sublayer.data.tokenizers.languages import BilingualTokenizer
from sublayer.decode.beam import tokenizer_of, translate_lines
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.bleu import (
    N_RESAMPLES,
    SEED,
    LineCounts,
    check_bleu_tokenizer,
    count_lines,
    score_of_counts,
)
from sublayer.evaluation.items import Metric
from sublayer.evaluation.probes import ask, check_model, read_probes
from sublayer.files.cache_folder import cache_folder
from sublayer.files.lines import text_lines
from sublayer.files.storage import expanded, resolved
from sublayer.loading import (
    CHECKPOINTS_NAME,
    MODEL_NAME,
    find_model,
    load,
    load_model_tokenizer,
    load_task,
)
from sublayer.model.context import Layout
from sublayer.model.kernels.products import nats_of_targets
from sublayer.model.model_folder import read_config
from sublayer.model.transformer import (
    Decoder,
    Encoder,
    EncoderDecoder,
    compose,
    evaluating,
)
from sublayer.numbers import count
from sublayer.objective.base import Evaluation, context_of, scored_sequences
from sublayer.objective.causal import WINDOWS, score, window_items
from sublayer.objective.supervised.answering import answer_known
from sublayer.objective.supervised.evaluation import evaluate_tasks
from sublayer.objective.translation import beam_settings
from sublayer.runs.finetuning import finetune_seeds
from sublayer.runs.folder import RunFolder
from sublayer.study.results import Cell
from sublayer.study.study_file import flatten
from sublayer.suite.file import PairsTable, ProbesTable, TasksTable, TextTable
from sublayer.tasks.probes import PROBES, Settings
from sublayer.tasks.registry import TASKS, TaskSpec, cached_folder, find_files
from sublayer.text_model import TextModel
from sublayer.training.speed import timed

Report = Mapping[str, Any]
"""Report of a part of a task, as JSON."""
_ARTICLES = {"encoder": "an encoder", "decoder": "a decoder", "lstm": "an LSTM"}


@dataclass(frozen=True)
class Candidate:
    """Model to score."""

    name: str
    """Name of the model, unique among the models."""
    path: Path
    """Path of the run, the checkpoint or the model folder."""
    shell: TextModel
    """Model without its weights, but with its tokenizer and its tasks."""
    recipe: Recipe | None
    """Recipe of the model's run; None without a run."""

    @property
    def kind(self) -> str:
        """Kind of the model."""
        return self.shell.model.config.kind

    @property
    def described(self) -> str:
        """Kind of the model in words."""
        return _ARTICLES.get(self.kind, f"an {self.kind}")

    @property
    def spec(self) -> TaskSpec | None:
        """Tasks of the model; None if it was not fine-tuned."""
        return self.shell.task

    @property
    def context(self) -> int:
        """Context of the model in tokens."""
        return context_of(self.shell.model, self.recipe)

    def load(self, device: torch.device) -> TextModel:
        """Load the model with its weights; raise CheckpointError if they are damaged."""
        return load(self.path, device=device)


def find_candidates(paths: Sequence[Path]) -> list[Candidate]:
    """Find models by their folders, without reading weights.

    They are named by the shortest distinct ends of their paths. Raises ConfigError for duplicates,
    CheckpointError for missing models.
    """
    all_parts: list[tuple[str, ...]] = []
    for path in paths:
        parts = resolved(path).parts
        if len(parts) > 2 and parts[-1] == MODEL_NAME:
            parts = parts[:-1]
        if len(parts) > 2 and parts[-2] == CHECKPOINTS_NAME:
            # The name of a checkpoint needs its run's name.
            parts = (*parts[:-3], f"{parts[-3]}/{parts[-1]}")
        if parts in all_parts:
            raise ConfigError(f"{path} is named twice: leave one out")
        all_parts.append(parts)
    candidates = []
    for path, parts in zip(paths, all_parts, strict=True):
        n = 1
        while n < len(parts) and sum(other[-n:] == parts[-n:] for other in all_parts) > 1:
            n += 1
        name = "/".join(parts[-n:])
        shell = shell_of(find_model(path))
        recipe = find_recipe(path)
        loaded = None if recipe is None else read_run_recipe(recipe)
        candidates.append(Candidate(name, path, shell, loaded))
    return candidates


def shell_of(folder: Path) -> TextModel:
    """Return a model folder's model without its weights. Raises CheckpointError."""
    with torch.device("meta"):
        shell = compose(read_config(folder)).eval()
    return TextModel(shell, load_model_tokenizer(folder), load_task(folder))


CHANCE, MAJORITY, WORDS = "chance", "majority", "words"
"""Rows of baselines."""


def score_column(
    name: str,
    label: str,
    is_lower_better: bool = False,
    factor: float = 1.0,
    decimals: int = 1,
) -> Metric:
    """Return a column of the scorecard; its values are multiplied by ``factor`` for display."""
    return Metric(name, label, is_lower_better, from_items=None, factor=factor, decimals=decimals)


class Measured(NamedTuple):
    """Scores of one model by one measure."""

    columns: Sequence[Metric]
    cells: Mapping[str, Cell]
    """Scores by column."""
    others: Mapping[str, Mapping[str, Cell]] = {}
    """Scores of baselines and references, by row and column."""
    notes: Sequence[str] = ()
    reason: str = ""
    """Reason for missing cells; empty if there are cells."""


class Measure(ABC):
    """Measure, with its files already read or known to exist."""

    columns: tuple[Metric, ...]
    """Columns that the measure fills, as far as known in advance."""
    title: str
    """Progress text for people."""
    is_timed = False
    """Whether nothing else may run at the same time."""

    def refusal(self, candidate: Candidate) -> str:
        """Return the reason why a kind of model cannot be measured; empty if it can.

        Raises a SublayerError for a user's mistake, before any computation.
        """
        return ""

    @abstractmethod
    def score(self, candidate: Candidate, device: torch.device) -> Measured:
        """Measure a model; raise a SublayerError if that is impossible."""

    def one(
        self,
        candidate: Candidate,
        cell: Cell,
        others: Mapping[str, Cell] = {},
        notes: Sequence[str] = (),
    ) -> Measured:
        """Return the scores of a measure of one column; ``others`` are baselines, by row."""
        [column] = self.columns
        named = [f"{candidate.name}, {column.label}: {note}" for note in notes]
        beside = {row: {column.name: other} for row, other in others.items()}
        return Measured(self.columns, {column.name: cell}, beside, named)


class ParameterCount(Measure):
    """Number of parameters, heads included."""

    columns = (score_column("parameters", "parameters", is_lower_better=True, decimals=0),)
    title = "counting parameters"

    def score(self, candidate: Candidate, device: torch.device) -> Measured:
        """Count parameters, shared ones once."""
        n_parameters = sum(parameter.numel() for parameter in candidate.shell.model.parameters())
        return self.one(candidate, Cell(n_parameters))


SPEED = (
    "tokens/s: a forward pass in float32 over full contexts of random tokens, in the batch size "
    "of scoring; a model that predicts text computes every token's probability, an encoder its "
    "states, an encoder-decoder takes half of the tokens as source and half as target; ± the "
    "standard error over the passes"
)
_WARM_UP = 2
_FEWEST, _MOST = 5, 50
"""Number of timed passes."""
_BUDGET_S = 2.0
_LONGEST = 2048
"""Maximum number of tokens per row."""


class Speed(Measure):
    """Tokens per second of a forward pass."""

    columns = (score_column("tokens_per_second", "tokens/s", decimals=0),)
    title = "measuring the speed"
    is_timed = True

    def score(self, candidate: Candidate, device: torch.device) -> Measured:
        """Measure the mean speed and its error over passes, with nothing else running."""
        model = candidate.load(device).model
        context = min(candidate.context, _LONGEST)
        is_pair = isinstance(model, EncoderDecoder)
        size = scored_sequences(model, context), max(1, context // 2) if is_pair else context
        generator = torch.Generator().manual_seed(0)
        assert model.config.vocab_size is not None, "a built model has a vocabulary"
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
            matrix, bias, cap = model.output_projection()
            embedded = model.to_embedding(final).flatten(0, 1)
            return nats_of_targets(embedded, matrix, bias, target.flatten(), cap=cap).total

        n_tokens = source.numel() * (2 if is_pair else 1)
        speeds: list[float] = []
        with evaluating(model), torch.inference_mode():
            for _ in range(_WARM_UP):
                timed(read, device=device)
            ends = time.perf_counter() + _BUDGET_S
            while len(speeds) < _FEWEST or (len(speeds) < _MOST and time.perf_counter() < ends):
                speeds.append(n_tokens / timed(read, device=device))
        error = statistics.stdev(speeds) / math.sqrt(len(speeds))
        return self.one(candidate, Cell(statistics.fmean(speeds), error=error))


COMPRESSED = "xz"
"""Row of a general compressor."""
_CHUNK_BYTES = 4 << 20


class BitsPerByte(Measure):
    """Bits per byte of a text, without its first token.

    Every token has at least half of the model's context before it. Raises DataError if the text is
    not on this machine.
    """

    def __init__(self, text: TextTable) -> None:
        self._text = text
        column = f"bits_per_byte/{text.label}"
        label = f"bits per byte, {text.label}"
        self.columns = (score_column(column, label, is_lower_better=True, decimals=3),)
        self.title = f"scoring {text.label}"
        if text.path.startswith(HUB) or "://" in text.path:
            raise DataError(f"{text.path} is not on this machine: a suite reads only local files")
        [source] = find_sources(text.path, None, cache_folder(None), Reading(text.documents))
        if not source.documents:
            raise DataError(
                f"{text.path} is a release of several splits: name the files of a single split"
            )
        for document in source.documents:
            document.read()  # raises for an empty, binary or truncated file
        self._documents = source.documents

    @cached_property
    def _compressed(self) -> Cell:
        """Bits per byte of the concatenated documents, compressed by xz."""
        compressor = lzma.LZMACompressor(preset=9)
        n_bytes, n_compressed = 0, 0
        for document in self._documents:
            text = document.read()
            for low in range(0, len(text), _CHUNK_BYTES):
                chunk = bytes(text[low : low + _CHUNK_BYTES])
                n_bytes += len(chunk)
                n_compressed += len(compressor.compress(chunk))
        n_compressed += len(compressor.flush())
        return Cell(8 * n_compressed / n_bytes)

    def refusal(self, candidate: Candidate) -> str:
        """Refuse a model that predicts no next token, or reads no text."""
        if not isinstance(candidate.shell.model, Decoder):
            return f"{candidate.described} does not predict a text from beginning to end"
        if candidate.shell.tokenizer is None:
            return "the model has no tokenizer.json, so it cannot read text"
        return ""

    def score(self, candidate: Candidate, device: torch.device) -> Measured:
        """Score the text in windows half a context apart."""
        text_model = candidate.load(device)
        model, tokenizer = text_model.model, text_model.tokenizer
        assert tokenizer is not None, "a measured model must have a tokenizer"
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
            batch_sequences=scored_sequences(model, context),
            respect_boundaries=recipe is not None and recipe.data.boundaries == "respect",
        )
        items = window_items(text, likelihood, context=context, stride=stride)
        columns = items.tables[WINDOWS].columns
        # Standard error of a ratio of sums over windows, which are taken as a random sample.
        bits, n_bytes = columns["nats"] / math.log(2), columns["bytes"]
        n, total, error = len(bits), float(n_bytes.sum()), None
        if n > 1 and total:
            apart = bits - bits.sum() / total * n_bytes
            error = math.sqrt(n / (n - 1) * float(np.square(apart).sum())) / total
        cell = Cell(likelihood.bits_per_byte, error=error)
        notes = []
        if not text.store.is_lossless:
            notes.append(
                "the tokenizer is lossy, so that unknown text was scored as unknown tokens: not "
                "comparable"
            )
        return self.one(candidate, cell, {COMPRESSED: self._compressed}, notes)


def local_folder(tasks: Sequence[str], data: str | None) -> str:
    """Return the folder of one of several tasks: the named one, or else the cache's.

    Raises DataError if there is none, since nothing is downloaded.
    """
    titles = " or ".join(TASKS[name].title for name in tasks)
    if data is not None:
        if not any(find_files(TASKS[name], data) for name in tasks):
            raise DataError(
                f"{data} has no files of {titles}: `sublayer tasks {data}` lists its tasks"
            )
        return data
    for name in tasks:
        folder = cached_folder(TASKS[name])
        if folder is not None:
            return str(folder)
    raise DataError(
        f"{titles} is not in the cache, and a suite downloads nothing: give the folder of its "
        'files, data = "DIR"'
    )


REFERENCE = "reference"
"""Row of the published reference, which is 1 on the axis of the probes' source."""


class ProbeMeasure(Measure):
    """Probe, read once and applied to every model.

    Raises ConfigError for settings that do not apply to it, DataError if its files are not on this
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
"""Row of the source as its translation."""
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
                f"{len(self._references):,}: give one translation per source line"
            )
        if not self._sources:
            raise DataError(f"{pairs.source} has no lines to translate: name another file")
        self.columns = (score_column(f"bleu/{pairs.label}", f"BLEU, {pairs.label}"),)
        self.title = f"translating {pairs.label}"

    def refusal(self, candidate: Candidate) -> str:
        """Refuse a model that does not translate."""
        if not isinstance(candidate.shell.model, EncoderDecoder):
            return f"{candidate.described} does not translate"
        if not isinstance(candidate.shell.tokenizer, BilingualTokenizer):
            return "the model was not trained to translate: it has no tokenizer of two languages"
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
            notes.append(
                f"{count(n_long, 'line')} longer than the model's maximum, scored as empty"
            )
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
    """Return a score, with its bootstrap standard error over lines; None for a single line."""
    n_lines = len(counts.counts)
    if n_lines < 2:
        return Cell(counts.value)
    generator = np.random.default_rng(SEED)
    scores = []
    for _ in range(N_RESAMPLES):
        times = np.bincount(generator.integers(n_lines, size=n_lines), minlength=n_lines)
        scores.append(score_of_counts(counts.name, times @ counts.counts))
    return Cell(counts.value, error=float(np.std(scores, ddof=1)))


class TaskMeasure(Measure):
    """Task, on whose development set every model is scored.

    Raises DataError if its files are missing on this machine, or lack a required split.
    """

    def __init__(self, name: str, group: TasksTable, suite_tasks: Sequence[str]) -> None:
        self._task = TASKS[name]
        self._group = group
        self._suite_tasks = suite_tasks
        self._data = local_folder([name], group.data)
        self.columns = (score_column(name, self._task.title, factor=100.0),)
        self.title = f"scoring {self._task.title}"
        files = find_files(self._task, self._data)
        if not self._task.dev_splits:
            raise DataError(f"{self._task.title} has no development set to score: leave it out")
        for split in (self._task.dev_splits[0], *(["train"] if group.finetune else [])):
            if split not in files:
                raise DataError(
                    f"{self._data} has no {split} file of {self._task.title}: "
                    f"`sublayer tasks {self._data}` lists its tasks and their files"
                )

    def trains(self, candidate: Candidate) -> bool:
        """Return whether a model must be fine-tuned first."""
        return self._group.finetune is not None and not self._answers(candidate)

    def refusal(self, candidate: Candidate) -> str:
        """Refuse a model that answers other tasks, or cannot be fine-tuned.

        Raises ConfigError if a model answers none of the suite's tasks and is not fine-tuned now,
        if a setting does not apply, and if the folder of its run holds a run of another recipe or
        of other seeds.
        """
        if self._answers(candidate):
            return ""
        spec = candidate.spec
        if self._group.finetune is None:
            names = [] if spec is None else [task.name for task in spec.tasks]
            if not set(names) & set(self._suite_tasks):
                raise ConfigError(
                    f"{candidate.name} has no head that answers {self._task.title}: name a run "
                    'that was fine-tuned on it, or a folder to fine-tune it in, finetune = "FOLDER"'
                )
            return (
                f"the model answers {', '.join(names)}, and the suite fine-tunes no model on this "
                "task"
            )
        try:
            loaded = self._loaded(candidate, self._group.set)
        except ConfigError as error:
            if self._group.set and self._is_learnable(candidate):
                raise
            return str(error)
        folder, n_seeds = self._folder(candidate), self._group.seeds
        for path in (folder, *folder.parents):
            if path.exists() and not path.is_dir():
                raise ConfigError(f"{path} is not a folder: give another for the runs (finetune)")
        if n_seeds is None:
            runs = {folder: loaded}
            others = sorted(folder.glob("seed-*"))
        else:
            runs = {
                folder / f"seed-{seed}": loaded.vary({"train.seed": seed}, origin=f"seed {seed}")
                for seed in range(n_seeds)
            }
            others = [folder] if _is_run(folder) else []
        if others:
            raise ConfigError(
                f"{others[0]} holds a run of another number of seeds: give the same seeds, or "
                "another folder (finetune)"
            )
        for path, run in runs.items():
            if _is_run(path):
                # Fields of the model derived from the data are compared in training.
                before = load_recipe(path).recipe.model
                recipe = absolute_paths(run.recipe).model_copy(update={"model": before})
                RunFolder(path).check_recipe(recipe)
        return ""

    def score(self, candidate: Candidate, device: torch.device) -> Measured:
        """Score the answers of a model, which is fine-tuned first unless it answers the task."""
        if self.trains(candidate):
            # Existing runs are reused.
            folder = self._folder(candidate)
            results = finetune_seeds(
                self._loaded(candidate, self._group.set),
                folder,
                self._group.seeds,
                resume=_is_run(folder) or any(map(_is_run, folder.glob("seed-*"))),
                device=str(device),
            )
            by_seed = [[report.to_json() for report in seed.reports] for seed in results]
            return self._of_reports(candidate, by_seed, [n for seed in results for n in seed.notes])
        text_model = candidate.load(device)
        options: dict[str, Any] = {"path": self._data}
        if self._named(candidate):
            assert text_model.task is not None, "a scored model must have a task"
            tasks = text_model.task.tasks
            same = tuple(task for task in tasks if task.name == self._task.name)
            text_model.task = replace(text_model.task, tasks=same)
        else:
            options["task"] = self._task.name
        request = Evaluation(
            run=candidate.path,
            text_model=text_model,
            recipe=candidate.recipe,
            options=options,
        )
        result = evaluate_tasks(request)
        return self._of_reports(candidate, [result["tasks"]], result["notes"])

    def _named(self, candidate: Candidate) -> bool:
        spec = candidate.spec
        return spec is not None and any(task.name == self._task.name for task in spec.tasks)

    def _answers(self, candidate: Candidate) -> bool:
        """Return whether a model answers the task, which a foreign one may by its label words."""
        if self._named(candidate):
            return True
        spec = candidate.spec
        if spec is None or any(task.name in TASKS for task in spec.tasks) or spec.columns:
            return False
        shell = shell_of(find_model(candidate.path))
        try:
            answer_known(shell, self._task)
        except ConfigError:
            return False
        return True

    def _loaded(self, candidate: Candidate, settings: Mapping[str, Any]) -> LoadedRecipe:
        return load_finetune(
            str(candidate.path),
            [self._task.name],
            self._data,
            flatten(settings),
            preset=self._group.preset,
        ).loaded

    def _is_learnable(self, candidate: Candidate) -> bool:
        """Return whether a model could be fine-tuned without the settings."""
        try:
            self._loaded(candidate, {})
        except ConfigError:
            return False
        return True

    def _folder(self, candidate: Candidate) -> Path:
        assert self._group.finetune is not None, "a fine-tuned model needs a folder"
        return Path(self._group.finetune) / candidate.name.replace("/", "-") / self._task.name

    def _of_reports(
        self,
        candidate: Candidate,
        by_seed: Sequence[Sequence[Report]],
        notes: Sequence[str],
    ) -> Measured:
        """Combine the reports of all seeds: the mean score of each part of the task."""
        all_notes = [f"{candidate.name}, {self._task.title}: {note}" for note in notes]
        columns: list[Metric] = []
        cells: dict[str, Cell] = {}
        others: dict[str, dict[str, Cell]] = {}
        for number, first in enumerate(by_seed[0]):
            if first["title"] != self._task.title:
                continue  # another task of a mixture
            reports = [of_seed[number] for of_seed in by_seed]
            label = str(first["title"])
            if sum(other["title"] == label for other in by_seed[0]) > 1:
                label = f"{label} {str(first['split']).removeprefix('dev_')}"
            column = score_column(first["task"], label, factor=100.0)
            columns.append(column)
            scores = [float(report["score"]) for report in reports]
            errors = [report["standard_error"] for report in reports]
            cells[column.name] = Cell(
                statistics.fmean(scores),
                inner_sd=statistics.stdev(scores) if len(scores) > 1 else None,
                error=None if None in errors else statistics.fmean(map(float, errors)),
                n_runs=len(scores),
                n_collapsed=sum(bool(report["collapse"]) for report in reports),
            )
            for name, baseline in first["baselines"].items():
                cell = Cell(baseline["score"], error=baseline["standard_error"])
                others.setdefault(name, {})[column.name] = cell
            for report in reports:
                if report["collapse"]:
                    all_notes.append(f"{candidate.name}, {column.label}: {report['collapse']}")
        return Measured(columns, cells, others, list(dict.fromkeys(all_notes)))


def _is_run(folder: Path) -> bool:
    return RunFolder(folder).has_recipe()
