"""Probes asked of a model: their files read, their texts scored, their answers scored."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sublayer.config.probes import check_names
from sublayer.counts import count
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.probes.decoder_nats import decoder_nats
from sublayer.evaluation.probes.probe import Items, Nats, Probe, Settings
from sublayer.evaluation.probes.query import EncodedQuery, encode_queries
from sublayer.evaluation.probes.table import PROBES
from sublayer.evaluation.probes.target_nats import target_nats
from sublayer.model.decoder import Decoder
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.transformer import Transformer
from sublayer.system.stages import stage
from sublayer.tasks.example import Example
from sublayer.tasks.metrics.score import score
from sublayer.tasks.registry import TASKS, find_files, locate_files, read_split
from sublayer.tasks.suite import Found
from sublayer.tasks.task import Task

_MOST_LEARNED = 2000
"""Training rows that a threshold is chosen by."""


@dataclass(frozen=True)
class ProbeScore:
    """What a probe found."""

    name: str
    title: str
    metric: str
    value: float
    standard_error: float | None
    """Of so many examples."""
    chance: float
    reference: float | None
    n_examples: int
    notes: tuple[str, ...] = ()

    @property
    def normalised(self) -> float | None:
        """Return it on the paper's axis: 0 is chance, 1 the reference; None without one."""
        if self.reference is None:
            return None
        return (self.value - self.chance) / (self.reference - self.chance)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "probe": self.name,
            "title": self.title,
            "metric": self.metric,
            "value": self.value,
            "standard_error": self.standard_error,
            "chance": self.chance,
            "reference": self.reference,
            "normalised": self.normalised,
            "examples": self.n_examples,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class ReadProbe:
    """A probe with its examples, which any number of models can be asked."""

    probe: Probe
    items: Items
    learned_from: Items | None
    """What the threshold is chosen by."""
    settings: Settings = field(default_factory=Settings)
    _encoded: dict[tuple[int, str, int], list[EncodedQuery]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def encoded(self, items: Items, tokenizer: Tokenizer, context: int) -> list[EncodedQuery]:
        """Encode all queries of items, once for every evaluation of a training."""
        key = id(items), tokenizer.fingerprint, context
        if key not in self._encoded:
            flat = [query for own in items.queries for query in own]
            self._encoded[key] = encode_queries(flat, tokenizer, context)
        return self._encoded[key]


def read_probes(
    names: Sequence[str], folder: str | None, settings: Settings | None = None
) -> list[ReadProbe]:
    """Read the files of probes from a folder, or else from the cache.

    Raises ConfigError for what is no probe, none at all, and settings of probes that are not asked,
    DataError where files are missing.
    """
    settings = settings or Settings()
    check_names(names)
    check_names(list(settings.references))
    settings.check_asked(names)
    return [_read(PROBES[name], folder, settings) for name in names]


def probe_files(name: str, folder: str | None) -> list[Path]:
    """List the files of a probe in a folder, or else in the cache; raise as ``read_probes``."""
    _, found = _find(PROBES[name], folder)
    return sorted(path for paths in found.values() for path in paths)


def check_model(model: Transformer, what: str) -> None:
    """Raise ConfigError where a model does not predict text, and so cannot be probed."""
    if model.tokenizer is None:
        raise ConfigError(f"{what} has no tokenizer.json, without which it reads no text")
    if isinstance(model, Decoder):
        return
    if not isinstance(model, EncoderDecoder):
        raise ConfigError(
            f"{what} is an {model.config.kind}, which predicts no text: probes are for decoders, "
            "LSTMs and encoder-decoders of span corruption"
        )
    if not model.tokenizer.sentinel_ids:
        raise ConfigError(
            f"{what} has no sentinels, with which an encoder-decoder is asked to go on with a text:"
            " probes are for those of span corruption"
        )


def ask(
    model: Transformer,
    probes: Sequence[ReadProbe],
    context: int,
    said: Callable[[int, int], None] = lambda n_done, n_all: None,
) -> list[ProbeScore]:
    """Ask probes of a model that reads ``context`` tokens; raise as ``check_model`` does."""
    check_model(model, "the model")
    return [_ask(model, each, context, said) for each in probes]


def _read(probe: Probe, folder: str | None, settings: Settings) -> ReadProbe:
    task, found = _find(probe, folder)
    for option in probe.splits:
        splits = option.split("+")
        if all(split in found for split in splits):
            break
    else:
        raise DataError(
            f"{folder or 'the cache'} has no {probe.splits[0]} split of {task.title}, which the "
            f"probe {probe.name} is scored on"
        )

    def examples(split: str) -> list[Example]:
        with stage(f"reading {task.title}, {split}"):
            read = read_split(task, split, found[split])
        return [example for example in read.examples if example.is_labelled]

    scored = [example for split in splits for example in examples(split)]
    if not scored:
        raise DataError(f"no row of {task.title}, {', '.join(splits)}, has a label")
    learned = None
    if probe.threshold is not None:
        if "train" not in found:
            raise DataError(
                f"{folder or 'the cache'} has no training part of {task.title}, by which the "
                f"threshold of the probe {probe.name} is chosen"
            )
        learned = probe.items(task, _spread(examples("train")), settings)
    return ReadProbe(probe, probe.items(task, scored, settings), learned, settings)


def _spread(examples: list[Example]) -> list[Example]:
    """Return as many examples as a threshold needs, evenly spread over all."""
    step = max(1, -(-len(examples) // _MOST_LEARNED))
    return examples[::step]


def _find(probe: Probe, folder: str | None) -> tuple[Task, Found]:
    """Find the files of the first of a probe's tasks that is there."""
    *others, last = (TASKS[name] for name in probe.tasks)
    for task in others:
        if folder is not None and (found := find_files(task, folder)):
            return task, found
    return last, locate_files(last, folder)


def _ask(
    model: Transformer, read: ReadProbe, context: int, said: Callable[[int, int], None]
) -> ProbeScore:
    probe, items = read.probe, read.items
    threshold = None
    with stage(f"asking {probe.title}"):
        if read.learned_from is not None:
            assert probe.threshold is not None, "what is learned is a threshold"
            learned, _ = _nats(model, read, read.learned_from, context, said)
            threshold = probe.threshold(learned, read.learned_from.examples)
        nats, n_cut = _nats(model, read, items, context, said)
    predictions = probe.answer(nats, threshold)
    found = score(items.examples, predictions, (probe.metric,))
    notes = [f"{count(n, 'example')} left out: {reason}" for reason, n in items.left_out.items()]
    if threshold is not None and read.learned_from is not None:
        rows = count(len(read.learned_from.examples), "training row")
        if math.isinf(threshold):
            notes.append(f"all are called acceptable: no threshold does better on {rows}")
        else:
            notes.append(
                f"threshold {threshold:.4f}, a mean log-probability of tokens, chosen by {rows}"
            )
    if n_cut:
        notes.append(
            f"{count(n_cut, 'example')} longer than the {context:,} tokens of a context: what "
            "stands before loses its beginning, where nothing does the text its end"
        )
    assert model.tokenizer is not None, "a model without a tokenizer is refused"
    notes += probe.notes(model.tokenizer, read.settings)
    return ProbeScore(
        name=probe.name,
        title=probe.title,
        metric=probe.metric,
        value=found.value,
        standard_error=found.standard_error,
        chance=probe.chance,
        reference=read.settings.references.get(probe.name, probe.reference),
        n_examples=found.n_examples,
        notes=tuple(notes),
    )


def _nats(
    model: Transformer,
    read: ReadProbe,
    items: Items,
    context: int,
    said: Callable[[int, int], None],
) -> tuple[list[list[Nats]], int]:
    """Return the nats of the queries of each example, and how many examples were cut."""
    assert model.tokenizer is not None, "a model without a tokenizer is refused"
    if isinstance(model, EncoderDecoder):
        # A source has a sentinel and an end, too.
        encoded = read.encoded(items, model.tokenizer, max(1, context - 2))
        first = model.tokenizer.pad_id
        if model.config.decoder_start != "pad":
            first = model.tokenizer.end_id
        assert first is not None, "a target starts with an id that the tokenizer has"
        sentinel, end = model.tokenizer.sentinel_ids[0], model.tokenizer.sep_id
        assert end is not None, "sources of span corruption end"
        nats = target_nats(model, encoded, first, sentinel, end, said)
    else:
        assert isinstance(model, Decoder), "other kinds are refused"
        encoded = read.encoded(items, model.tokenizer, context)
        nats = decoder_nats(model, encoded, said)
    by_example = []
    n_cut = 0
    first_number = 0
    for own in items.queries:
        numbers = slice(first_number, first_number + len(own))
        by_example.append(nats[numbers])
        n_cut += any(each.is_cut for each in encoded[numbers])
        first_number = numbers.stop
    return by_example, n_cut
