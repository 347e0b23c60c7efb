"""Zero-shot probes: tasks answered by the predictions of a model, with nothing trained.

Source: Radford et al. 2018, sec. 5 and figure 2; choices of ours stand beside each probe.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sublayer.config.train import check_names
from sublayer.counts import count
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.prompted_likelihood import (
    EncodedQuery,
    Nats,
    Query,
    decoder_nats,
    encode_queries,
    target_nats,
)
from sublayer.evaluation.split_work import Progress, silent
from sublayer.model.build import Decoder, EncoderDecoder
from sublayer.system.stages import stage
from sublayer.tasks.metrics import METRICS
from sublayer.tasks.registry import TASKS, find_files, locate_files, read_split, wording_of
from sublayer.tasks.rows import Found
from sublayer.tasks.scoring import score
from sublayer.tasks.task import Example, Prediction, Task
from sublayer.text_model import TextModel

_WORDS = ("negative", "positive")


@dataclass(frozen=True)
class Settings:
    """Settings of probes."""

    words: tuple[str, str] | None = None
    """Of SST-2: the words compared behind the sentence, by label; None: negative, positive."""
    references: Mapping[str, float] = field(default_factory=dict)
    """By probe, instead of the table's."""

    def __post_init__(self) -> None:
        """Raise ConfigError for words that are empty or equal, and references that are no share."""
        first, second = self.compared
        if not first or not second or first == second:
            raise ConfigError(
                f"the words {first!r} and {second!r} cannot be compared: give two, that of the "
                "first label, then that of the second, such as negative, positive"
            )
        for name, value in self.references.items():
            if not 0.0 < value <= 1.0:
                raise ConfigError(
                    f"the reference {value:g} of {name} is no share: give such as 0.637"
                )

    @property
    def compared(self) -> tuple[str, str]:
        """Return the words that are compared."""
        return _WORDS if self.words is None else self.words

    def check_asked(self, names: Sequence[str]) -> None:
        """Raise ConfigError for words, or a reference, of a probe that is not among ``names``."""
        for name in self.references:
            if name not in names:
                raise ConfigError(
                    f"{name} has a reference, and is not asked: leave it out, or ask it"
                )
        comparing = [name for name, probe in PROBES.items() if probe.compares_words]
        if self.words is not None and not set(comparing) & set(names):
            raise ConfigError(
                f"{' and '.join(self.words)} are compared by the probe {', '.join(comparing)} "
                "alone, which is not asked: leave them out, or ask it"
            )

    def only(self, name: str) -> "Settings":
        """Return the settings of one probe."""
        references = {probe: value for probe, value in self.references.items() if probe == name}
        return Settings(self.words if PROBES[name].compares_words else None, references)


class ProbeExamples(NamedTuple):
    """The examples of a probe, with the queries of each."""

    examples: Sequence[Example]
    queries: Sequence[Sequence[Query]]
    left_out: Mapping[str, int] = {}
    """Counts of examples that cannot be asked, by the reason."""


@dataclass(frozen=True)
class Probe:
    """A row of the table of probes."""

    name: str
    title: str
    tasks: tuple[str, ...]
    """The tasks whose files it reads: the first that is there."""
    splits: tuple[str, ...]
    """Of these the first that is there is scored; several that stand in one: ``train+dev``."""
    metric: str
    chance: float
    """The score of guessing: 0 on the paper's axis."""
    reference: float | None
    """The score of a model of its time that was trained on the task: 1 on the paper's axis."""
    source: str
    """Of the reference."""
    items: Callable[[Task, Sequence[Example], Settings], ProbeExamples]
    by_token: bool = True
    """True where texts are compared by the mean log-probability of their tokens, not the sum."""
    compares_words: bool = False
    """True where the words of ``Settings`` are compared."""
    has_threshold: bool = False
    """True where the one text of an example is judged by a threshold, which examples of the
    training part choose, never those that are scored."""

    def chance_error(self, n_examples: int) -> float:
        """Return the standard error of guessing on so many examples.

        Of accuracy that of a proportion; of a correlation 1 / sqrt(n).
        """
        if METRICS[self.metric].is_proportion:
            return math.sqrt(self.chance * (1 - self.chance) / n_examples)
        return 1 / math.sqrt(n_examples)

    def answer(self, nats: Sequence[Nats], threshold: float | None) -> Prediction:
        """Answer an example by the nats of its queries: with the likeliest, the first of equals."""
        log_p = [mean_log_p(nll) if self.by_token else -float(nll.sum()) for nll in nats]
        if threshold is not None:
            return Prediction(label=int(log_p[0] >= threshold))
        return Prediction(label=int(np.argmax(log_p)))


def mean_log_p(nats: Nats) -> float:
    """Return the mean log-probability of a text's tokens; of none the worst there is."""
    return -float(nats.mean()) if len(nats) else -math.inf


_NOTHING_BEHIND = "nothing stands behind the pronoun"
_NOT_TWO = "its candidates are not two, of which one is right"


def _cola(task: Task, examples: Sequence[Example], settings: Settings) -> ProbeExamples:
    return ProbeExamples(
        examples, [[Query("", example.fields["sentence"])] for example in examples]
    )


def best_threshold(nats: Sequence[Sequence[Nats]], examples: Sequence[Example]) -> float:
    """Return the threshold of the highest Matthews correlation, the lowest of equal ones.

    It lies between two sentences, or below all.
    """
    scores = np.array([mean_log_p(nll) for [nll] in nats])
    labels = np.array([bool(example.label) for example in examples])
    order = np.argsort(scores, kind="stable")
    scores, labels = scores[order], labels[order]
    places = np.flatnonzero(np.concatenate([[True], scores[1:] != scores[:-1]]))
    # Below each place all are called unacceptable.
    true_negative = np.concatenate([[0.0], np.cumsum(~labels)])[places]
    false_negative = np.concatenate([[0.0], np.cumsum(labels)])[places]
    true_positive = labels.sum() - false_negative
    false_positive = (~labels).sum() - true_negative
    norm = (true_positive + false_positive) * (true_positive + false_negative)
    norm = norm * (true_negative + false_positive) * (true_negative + false_negative)
    product = true_positive * true_negative - false_positive * false_negative
    values = np.divide(product, np.sqrt(norm), out=np.zeros(len(places)), where=norm > 0)
    index = int(places[values.argmax()])
    return float((scores[index - 1] + scores[index]) / 2) if index else -math.inf


def _sentiment(task: Task, examples: Sequence[Example], settings: Settings) -> ProbeExamples:
    queries = []
    for example in examples:
        prompt = f"{example.fields['sentence'].rstrip()} very"
        queries.append([Query(prompt, f" {word}") for word in settings.compared])
    return ProbeExamples(examples, queries)


def _race(task: Task, examples: Sequence[Example], settings: Settings) -> ProbeExamples:
    """Ask for each option behind passage and question; of a blank, in its place."""
    queries = []
    for example in examples:
        question, blank, _ = example.fields["question"].partition("_")
        asked = question if blank else example.fields["question"]
        prompt = f"{example.fields['article'].rstrip()} {asked}".rstrip()
        queries.append([Query(prompt, f" {option.strip()}") for option in example.choices])
    return ProbeExamples(examples, queries)


def _pronouns(task: Task, examples: Sequence[Example], settings: Settings) -> ProbeExamples:
    """Ask for the rest of each text behind each candidate in the pronoun's place."""
    asked: list[Example] = []
    queries: list[list[Query]] = []
    left_out: Counter[str] = Counter()
    for example in examples if task.kind == "choice" else _grouped(examples, left_out):
        variants = list(_substituted(task, example))
        if not variants or not variants[0].text.strip(" .,;:!?\"'"):
            left_out[_NOTHING_BEHIND] += 1
            continue
        asked.append(example)
        queries.append(variants)
    return ProbeExamples(asked, queries, dict(left_out))


def _grouped(examples: Sequence[Example], left_out: Counter[str]) -> Iterator[Example]:
    """Put the rows of one pronoun together: its two candidates, of which one is right.

    Of other numbers of candidates guessing would not score a half.
    """
    groups: dict[tuple[str, int], list[Example]] = {}
    for example in examples:
        key = example.fields["text"], example.extra["span2_index"]
        groups.setdefault(key, []).append(example)
    for rows in groups.values():
        labels = {row.fields["span1_text"]: int(row.label or 0) for row in rows}
        right = [index for index, label in enumerate(labels.values()) if label]
        if len(labels) != 2 or len(right) != 1:
            left_out[_NOT_TWO] += 1
            continue
        yield replace(rows[0], label=right[0], choices=tuple(labels))


def _substituted(task: Task, example: Example) -> Iterator[Query]:
    wording = wording_of(task)
    assert wording.marked is not None, "the probe is of pronouns"
    pronoun = example.fields[wording.pronoun]
    marked = wording.marked(example)
    start = marked.lower().find(f"*{pronoun.lower()}*")
    before, rest = marked[:start], marked[start + len(pronoun) + 2 :]
    for candidate in example.choices:
        # A candidate in the middle of a sentence has no capital for its article.
        if before.strip() and candidate.split(" ")[0].lower() in ("the", "a", "an"):
            candidate = candidate[0].lower() + candidate[1:]
        yield Query(f"{before}{candidate}", rest)


_BEST = "the best single-task model before"
_UNKNOWN = "the paper does not say which"
PROBES: dict[str, Probe] = {
    probe.name: probe
    for probe in (
        Probe("cola", "CoLA", ("cola",), ("dev",), "matthews", 0.0, 0.35,
              f"Radford et al. 2018, table 4: {_BEST}", _cola, has_threshold=True),
        Probe("sst2", "SST-2", ("sst2",), ("dev",), "accuracy", 0.5, 0.932,
              f"Radford et al. 2018, table 4: {_BEST}", _sentiment, by_token=False,
              compares_words=True),
        Probe("race", "RACE", ("race", "race_middle", "race_high"), ("dev",), "accuracy", 0.25,
              0.533, "Radford et al. 2018, table 3: the best model before", _race),
        Probe("winograd", "Winograd schemas", ("wsc",), ("train+dev", "dev", "train"), "accuracy",
              0.5, None, _UNKNOWN, _pronouns),
        Probe("dpr", "DPR", ("dpr",), ("test",), "accuracy", 0.5, None, _UNKNOWN, _pronouns),
    )
}  # fmt: skip
"""In the order in which they are shown."""


_MOST_LEARNED = 2000
"""Training rows that a threshold is chosen by."""


@dataclass(frozen=True)
class ProbeScore:
    """The score of a model by a probe."""

    probe: Probe
    value: float
    standard_error: float | None
    """Of so many examples."""
    reference: float | None
    n_examples: int
    notes: Sequence[str] = ()

    @property
    def normalised(self) -> float | None:
        """Return it on the paper's axis: 0 is chance, 1 the reference; None without one."""
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
    """A probe with its examples, which any number of models can be asked."""

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
        """Encode all queries of items, once for every evaluation of a training."""
        key = id(items), tokenizer.fingerprint, context
        if key not in self._encoded:
            flat = [query for queries in items.queries for query in queries]
            self._encoded[key] = encode_queries(flat, tokenizer, context)
        return self._encoded[key]


def read_probes(
    names: Sequence[str], folder: str | None, settings: Settings | None = None
) -> list[ReadProbe]:
    """Read the files of probes from a folder, or else from the cache.

    Raises ConfigError for unknown names, none at all, and settings of probes that are not asked,
    DataError where files are missing.
    """
    settings = settings or Settings()
    check_names(names)
    check_names(list(settings.references))
    settings.check_asked(names)
    return [_read(PROBES[name], folder, settings) for name in names]


def probe_files(name: str, folder: str | None) -> list[Path]:
    """List the files of a probe in a folder, or else in the cache; raise as ``read_probes``."""
    _, files = _find(PROBES[name], folder)
    return sorted(path for paths in files.values() for path in paths)


def check_model(text_model: TextModel, what: str) -> None:
    """Raise ConfigError where a model does not predict text, and so cannot be probed."""
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
    """Ask probes of a model that reads ``context`` tokens; raise as ``check_model`` does."""
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
    """Find the files of the first of a probe's tasks that is there."""
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
    """Return the nats of the queries of each example, and how many examples were cut."""
    model, tokenizer = text_model.model, text_model.tokenizer
    assert tokenizer is not None, "a model without a tokenizer is refused"
    if isinstance(model, EncoderDecoder):
        # A source has a sentinel and an end, too.
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
