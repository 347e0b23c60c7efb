"""Zero-shot evaluation of tasks by a model's predictions.

Source: Radford et al. 2018, sec. 5 and figure 2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from sublayer.counts import count
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.prompted_likelihood import (
    EncodedQuery,
    decoder_nats,
    encode_queries,
    target_nats,
)
from sublayer.evaluation.split_work import Progress, silent
from sublayer.model.transformer import Decoder, EncoderDecoder
from sublayer.system.stages import stage
from sublayer.tasks.probes import (
    PROBES,
    Nats,
    Probe,
    ProbeExamples,
    Settings,
    best_threshold,
    check_names,
)
from sublayer.tasks.published import Found
from sublayer.tasks.registry import TASKS, find_files, locate_files, read_split
from sublayer.tasks.scoring import score
from sublayer.tasks.task import Example, Task
from sublayer.text_model import TextModel

_MOST_LEARNED = 2000
"""Training rows that a threshold is chosen by."""


@dataclass(frozen=True)
class ProbeScore:
    """Score of a model on a probe."""

    probe: Probe
    value: float
    standard_error: float | None
    """Of so many examples."""
    reference: float | None
    n_examples: int
    notes: Sequence[str] = ()

    @property
    def normalised(self) -> float | None:
        """Return the score on the paper's scale: 0 is chance, 1 the reference; None without one."""
        if self.reference is None:
            return None
        return (self.value - self.probe.chance) / (self.reference - self.probe.chance)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "probe": self.probe.name,
            "title": self.probe.title,
            "metric": self.probe.metric,
            "value": self.value,
            "standard_error": self.standard_error,
            "chance": self.probe.chance,
            "reference": self.reference,
            "normalised": self.normalised,
            "examples": self.n_examples,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class ReadProbe:
    """A probe with its examples, for any number of models."""

    probe: Probe
    items: ProbeExamples
    learned_from: ProbeExamples | None
    """Examples by which the threshold is chosen."""
    settings: Settings
    _encoded: dict[tuple[int, str, int], list[EncodedQuery]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def encoded(
        self, items: ProbeExamples, tokenizer: Tokenizer, context: int
    ) -> list[EncodedQuery]:
        """Encode all queries of items, once for all evaluations of a training run."""
        key = id(items), tokenizer.fingerprint, context
        if key not in self._encoded:
            flat = [query for queries in items.queries for query in queries]
            self._encoded[key] = encode_queries(flat, tokenizer, context)
        return self._encoded[key]


def read_probes(
    names: Sequence[str], folder: str | None, settings: Settings | None = None
) -> list[ReadProbe]:
    """Read the files of probes from a folder, by default from the cache.

    Raises ConfigError for unknown names, none at all, and settings of unused probes; DataError
    where files are missing.
    """
    settings = settings or Settings()
    check_names(names)
    check_names(list(settings.references))
    settings.check_asked(names)
    return [_read(PROBES[name], folder, settings) for name in names]


def probe_files(name: str, folder: str | None) -> list[Path]:
    """List the files of a probe in a folder or the cache; raise as ``read_probes`` does."""
    _, files = _find(PROBES[name], folder)
    return sorted(path for paths in files.values() for path in paths)


def check_model(text_model: TextModel, what: str) -> None:
    """Raise ConfigError where a model has no tokenizer, or does not predict text."""
    model, tokenizer = text_model.model, text_model.tokenizer
    if tokenizer is None:
        raise ConfigError(f"{what} has no tokenizer.json, without which it reads no text")
    if isinstance(model, Decoder):
        return
    if not isinstance(model, EncoderDecoder):
        raise ConfigError(
            f"{what} is an {model.config.kind}, which predicts no text: probes are for decoders, "
            "LSTMs and encoder-decoders of span corruption"
        )
    if not tokenizer.sentinel_ids:
        raise ConfigError(
            f"{what} has no sentinels, with which an encoder-decoder is asked to go on with a text:"
            " probes are for those of span corruption"
        )


def ask(
    text_model: TextModel,
    probes: Sequence[ReadProbe],
    context: int,
    progress: Progress = silent,
) -> list[ProbeScore]:
    """Score a model that reads ``context`` tokens on probes; raise as ``check_model`` does."""
    check_model(text_model, "the model")
    return [_ask(text_model, probe, context, progress) for probe in probes]


def _read(probe: Probe, folder: str | None, settings: Settings) -> ReadProbe:
    task, files = _find(probe, folder)
    for option in probe.splits:
        splits = option.split("+")
        if all(split in files for split in splits):
            break
    else:
        raise DataError(
            f"{folder or 'the cache'} has no {probe.splits[0]} split of {task.title}, which the "
            f"probe {probe.name} is scored on"
        )

    def examples(split: str) -> list[Example]:
        with stage(f"reading {task.title}, {split}"):
            read = read_split(task, split, files[split])
        return [example for example in read.examples if example.is_labelled]

    scored = [example for split in splits for example in examples(split)]
    if not scored:
        raise DataError(f"no row of {task.title}, {', '.join(splits)}, has a label")
    learned = None
    if probe.has_threshold:
        if "train" not in files:
            raise DataError(
                f"{folder or 'the cache'} has no training part of {task.title}, by which the "
                f"threshold of the probe {probe.name} is chosen"
            )
        rows = examples("train")
        step = max(1, -(-len(rows) // _MOST_LEARNED))
        learned = probe.items(task, rows[::step], settings)
    return ReadProbe(probe, probe.items(task, scored, settings), learned, settings)


def _find(probe: Probe, folder: str | None) -> tuple[Task, Found]:
    """Find the files of a probe's first available task."""
    *others, last = (TASKS[name] for name in probe.tasks)
    for task in others:
        if folder is not None and (files := find_files(task, folder)):
            return task, files
    return last, locate_files(last, folder)


def _ask(text_model: TextModel, read: ReadProbe, context: int, progress: Progress) -> ProbeScore:
    probe, items, settings = read.probe, read.items, read.settings
    threshold = None
    notes = [f"{count(n, 'example')} left out: {reason}" for reason, n in items.left_out.items()]
    with stage(f"asking {probe.title}"):
        if read.learned_from is not None:
            learned, _ = _nats(text_model, read, read.learned_from, context, progress)
            threshold = best_threshold(learned, read.learned_from.examples)
            rows = count(len(read.learned_from.examples), "training row")
            notes.append(
                f"all are called acceptable: no threshold does better on {rows}"
                if math.isinf(threshold)
                else f"threshold {threshold:.4f}, a mean log-probability of tokens, chosen by "
                f"{rows}"
            )
        nats, n_cut = _nats(text_model, read, items, context, progress)
    stats = score(items.examples, [probe.answer(nlls, threshold) for nlls in nats], (probe.metric,))
    if n_cut:
        notes.append(
            f"{count(n_cut, 'example')} longer than the {context:,} tokens of a context: what "
            "stands before loses its beginning, where nothing does the text its end"
        )
    tokenizer = text_model.tokenizer
    assert tokenizer is not None, "a model without a tokenizer is refused"
    for word in settings.compared if probe.compares_words else ():
        n_before = len(tokenizer.encode(b"very"))
        n_tokens = len(tokenizer.encode(f"very {word}".encode())) - n_before
        if n_tokens > 1:
            notes.append(f"{word!r} is {count(n_tokens, 'token')}, scored as a whole")
    reference = settings.references.get(probe.name, probe.reference)
    return ProbeScore(probe, stats.value, stats.standard_error, reference, stats.n_examples, notes)


def _nats(
    text_model: TextModel, read: ReadProbe, items: ProbeExamples, context: int, progress: Progress
) -> tuple[list[list[Nats]], int]:
    """Compute the nats of each example's queries; count the cut examples."""
    model, tokenizer = text_model.model, text_model.tokenizer
    assert tokenizer is not None, "a model without a tokenizer is refused"
    if isinstance(model, EncoderDecoder):
        # A source also has a sentinel and an end.
        encoded = read.encoded(items, tokenizer, max(1, context - 2))
        starts_with_pad = model.config.decoder_start == "pad"
        first = tokenizer.pad_id if starts_with_pad else tokenizer.end_id
        end = tokenizer.sep_id
        assert first is not None and end is not None, "targets of span corruption start and end"
        nats = target_nats(model, encoded, first, tokenizer.sentinel_ids[0], end, progress)
    else:
        assert isinstance(model, Decoder), "other kinds are refused"
        encoded = read.encoded(items, tokenizer, context)
        nats = decoder_nats(model, encoded, progress)
    answered = iter(zip(nats, encoded, strict=True))
    by_example = [list(islice(answered, len(queries))) for queries in items.queries]
    n_cut = sum(any(query.is_cut for _, query in pairs) for pairs in by_example)
    return [[nll for nll, _ in pairs] for pairs in by_example], n_cut
