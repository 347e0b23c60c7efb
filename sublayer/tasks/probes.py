"""Zero-shot probes, one row each: queries of its examples, answered by the likelihood of texts.

Source: Radford et al. 2018, sec. 5 and figure 2; our own choices are noted at each probe.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sublayer.errors import LONGEST_WORD, ConfigError, nearest_hint
from sublayer.tasks.metrics import METRICS
from sublayer.tasks.registry import wording_of
from sublayer.tasks.task import Example, Prediction, Task

Nats = NDArray[np.float64]
"""Negative log-likelihood of each token of a text, given the tokens before it, ``[T]``."""


class Query(NamedTuple):
    """Two texts; the second is scored, given the first."""

    prompt: str
    """Empty: nothing precedes the text."""
    text: str
    """With its leading space, if any."""


_WORDS = ("negative", "positive")


@dataclass(frozen=True)
class Settings:
    """Settings of probes."""

    words: tuple[str, str] | None = None
    """Words that SST-2 compares after the sentence, by label; None: negative, positive."""
    references: Mapping[str, float] = field(default_factory=dict)
    """References by probe, in place of the table's."""

    def __post_init__(self) -> None:
        """Raise ConfigError for empty or equal words, and for references outside 0 to 1."""
        first, second = self.compared
        if not first or not second or first == second:
            raise ConfigError(
                f"the words {first!r} and {second!r} cannot be compared: give two different "
                "words, by label, such as negative, positive"
            )
        for name, value in self.references.items():
            if not 0.0 < value <= 1.0:
                raise ConfigError(
                    f"the reference {value:g} of {name} is not in (0, 1]: give a share, as 0.637"
                )

    @property
    def compared(self) -> tuple[str, str]:
        """Return the words that are compared."""
        return _WORDS if self.words is None else self.words

    def check_asked(self, names: Sequence[str]) -> None:
        """Raise ConfigError for words, or a reference, of a probe not in ``names``."""
        for name in self.references:
            if name not in names:
                raise ConfigError(
                    f"{name} has a reference, but is not among the probes: leave it out, or add it"
                )
        comparing = [name for name, probe in PROBES.items() if probe.compares_words]
        if self.words is not None and not set(comparing) & set(names):
            raise ConfigError(
                f"{' and '.join(self.words)} are compared only by the probe "
                f"{', '.join(comparing)}, which is not among the probes: leave them out, or add it"
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
    """Counts of examples left out, by the reason."""


@dataclass(frozen=True)
class Probe:
    """A row of the table of probes."""

    name: str
    title: str
    tasks: tuple[str, ...]
    """Tasks with the examples; the first with files is read."""
    splits: tuple[str, ...]
    """Splits; the first present is scored, and an entry such as ``train+dev`` joins several."""
    metric: str
    chance: float
    """Score of guessing: 0 on the paper's axis."""
    reference: float | None
    """Score of a contemporary model trained on the task: 1 on the paper's axis."""
    source: str
    """Source of the reference."""
    items: Callable[[Task, Sequence[Example], Settings], ProbeExamples]
    by_token: bool = True
    """True where texts are compared by the mean log-probability of their tokens, not the sum."""
    compares_words: bool = False
    """True where it compares the words of ``Settings``."""
    has_threshold: bool = False
    """True where an example has one text, judged by a threshold; it is chosen on training examples,
    never on scored ones."""

    def chance_error(self, n_examples: int) -> float:
        """Return the standard error of guessing on ``n_examples``.

        For accuracy it is that of a proportion; for a correlation 1 / sqrt(n).
        """
        if METRICS[self.metric].is_proportion:
            return math.sqrt(self.chance * (1 - self.chance) / n_examples)
        return 1 / math.sqrt(n_examples)

    def answer(self, nats: Sequence[Nats], threshold: float | None) -> Prediction:
        """Answer an example by its likeliest query, the first of equals, or by the threshold."""
        log_p = [mean_log_p(nll) if self.by_token else -float(nll.sum()) for nll in nats]
        if threshold is not None:
            return Prediction(label=int(log_p[0] >= threshold))
        return Prediction(label=int(np.argmax(log_p)))


def mean_log_p(nats: Nats) -> float:
    """Return the mean log-probability of a text's tokens; -inf without any."""
    return -float(nats.mean()) if len(nats) else -math.inf


_NOTHING_BEHIND = "no text follows the pronoun"
_NOT_TWO = "not two candidates with one right"


def _cola(task: Task, examples: Sequence[Example], settings: Settings) -> ProbeExamples:
    return ProbeExamples(
        examples, [[Query("", example.fields["sentence"])] for example in examples]
    )


def best_threshold(nats: Sequence[Sequence[Nats]], examples: Sequence[Example]) -> float:
    """Return the threshold with the highest Matthews correlation, the lowest of equals.

    It lies between the scores of two sentences, or below all.
    """
    scores = np.array([mean_log_p(nll) for [nll] in nats])
    labels = np.array([bool(example.label) for example in examples])
    order = np.argsort(scores, kind="stable")
    scores, labels = scores[order], labels[order]
    places = np.flatnonzero(np.concatenate([[True], scores[1:] != scores[:-1]]))
    # All sentences below each place are predicted unacceptable.
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
    """Score each option after passage and question, or in the question's blank."""
    queries = []
    for example in examples:
        question, blank, _ = example.fields["question"].partition("_")
        shown = question if blank else example.fields["question"]
        prompt = f"{example.fields['article'].rstrip()} {shown}".rstrip()
        queries.append([Query(prompt, f" {option.strip()}") for option in example.choices])
    return ProbeExamples(examples, queries)


def _pronouns(task: Task, examples: Sequence[Example], settings: Settings) -> ProbeExamples:
    """Score the rest of each text after each candidate in the pronoun's place.

    Rows of one pronoun are one example, with two candidates, one of them right: with more
    candidates guessing would not score one half.
    """
    left_out: Counter[str] = Counter()
    grouped: list[Example | None] = list(examples)
    if task.kind != "choice":
        groups: dict[tuple[str, int], list[Example]] = {}
        for example in examples:
            key = example.fields["text"], example.extra["span2_index"]
            groups.setdefault(key, []).append(example)
        grouped = []
        for rows in groups.values():
            labels = {row.fields["span1_text"]: int(row.label or 0) for row in rows}
            right = [index for index, label in enumerate(labels.values()) if label]
            is_pair = len(labels) == 2 and len(right) == 1
            choices = tuple(labels)
            grouped.append(replace(rows[0], label=right[0], choices=choices) if is_pair else None)
    wording = wording_of(task)
    assert wording.marked is not None, "the probe is of pronouns"
    scored: list[Example] = []
    queries: list[list[Query]] = []
    for pair in grouped:
        if pair is None:
            left_out[_NOT_TWO] += 1
            continue
        pronoun = pair.fields[wording.pronoun]
        marked = wording.marked(pair)
        start = marked.lower().find(f"*{pronoun.lower()}*")
        before, rest = marked[:start], marked[start + len(pronoun) + 2 :]
        if not pair.choices or not rest.strip(" .,;:!?\"'"):
            left_out[_NOTHING_BEHIND] += 1
            continue
        variants = []
        for candidate in pair.choices:
            # A candidate inside a sentence has its article in lower case.
            if before.strip() and candidate.split(" ")[0].lower() in ("the", "a", "an"):
                candidate = candidate[0].lower() + candidate[1:]
            variants.append(Query(f"{before}{candidate}", rest))
        scored.append(pair)
        queries.append(variants)
    return ProbeExamples(scored, queries, dict(left_out))


_BEST = "the best earlier single-task model"
_UNKNOWN = "not given in the paper"
PROBES: dict[str, Probe] = {
    probe.name: probe
    for probe in (
        Probe("cola", "CoLA", ("cola",), ("dev",), "matthews", 0.0, 0.35,
              f"Radford et al. 2018, table 4: {_BEST}", _cola, has_threshold=True),
        Probe("sst2", "SST-2", ("sst2",), ("dev",), "accuracy", 0.5, 0.932,
              f"Radford et al. 2018, table 4: {_BEST}", _sentiment, by_token=False,
              compares_words=True),
        Probe("race", "RACE", ("race", "race_middle", "race_high"), ("dev",), "accuracy", 0.25,
              0.533, "Radford et al. 2018, table 3: the best earlier model", _race),
        Probe("winograd", "Winograd schemas", ("wsc",), ("train+dev", "dev", "train"), "accuracy",
              0.5, None, _UNKNOWN, _pronouns),
        Probe("dpr", "DPR", ("dpr",), ("test",), "accuracy", 0.5, None, _UNKNOWN, _pronouns),
    )
}  # fmt: skip
"""Probes by name, in display order."""


def check_names(names: Sequence[str], where: str = "") -> None:
    """Raise ConfigError for an unknown probe, and for one that is named twice."""
    for name in names:
        if name not in PROBES:
            shown = name[:LONGEST_WORD] or "an empty name"
            raise ConfigError(
                f"{where}{shown} is not a probe{nearest_hint(name, PROBES)}: choose among "
                f"{', '.join(PROBES)}"
            )
        if names.count(name) > 1:
            raise ConfigError(f"{where}probe {name} is named twice")
