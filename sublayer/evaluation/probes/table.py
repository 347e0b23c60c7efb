"""The probes, by name. Source: Radford et al. 2018, sec. 5 and figure 2; what that leaves open is
said beside each."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from sublayer.counts import count
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.evaluation.probes.probe import (
    Items,
    Nats,
    Probe,
    Settings,
    choose,
    mean_log_p,
    total_log_p,
)
from sublayer.evaluation.probes.query import Query
from sublayer.tasks.example import Example
from sublayer.tasks.formats.parts import marked_text
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.task import Task

_NOTHING_BEHIND = "nothing stands behind the pronoun"
_NOT_TWO = "its candidates are not two, of which one is right"


def _cola(task: Task, examples: Sequence[Example], settings: Settings) -> Items:
    queries = [[Query("", example.fields["sentence"])] for example in examples]
    return Items(task, examples, queries)


def _acceptable(nats: Sequence[Sequence[Nats]], threshold: float | None) -> list[Prediction]:
    assert threshold is not None, "the threshold is chosen by the training part"
    return [Prediction(label=int(mean_log_p(own) >= threshold)) for [own] in nats]


def _best_threshold(nats: Sequence[Sequence[Nats]], examples: Sequence[Example]) -> float:
    """Return the threshold of the highest Matthews correlation, the lowest of equal ones.

    It lies between two sentences, or below all.
    """
    scores = np.array([mean_log_p(own) for [own] in nats])
    labels = np.array([bool(example.label) for example in examples])
    order = np.argsort(scores, kind="stable")
    scores, labels = scores[order], labels[order]
    # Below the k-th place all are unacceptable.
    right_below = np.concatenate([[0], np.cumsum(~labels)])
    wrong_below = np.concatenate([[0], np.cumsum(labels)])
    n_right, n_wrong = int(labels.sum()), int((~labels).sum())
    best, threshold = -math.inf, -math.inf
    for place in range(len(scores)):
        if place and scores[place] == scores[place - 1]:
            continue
        true_negative, false_negative = right_below[place], wrong_below[place]
        true_positive, false_positive = n_right - false_negative, n_wrong - true_negative
        norm = (
            float(true_positive + false_positive)
            * float(true_positive + false_negative)
            * float(true_negative + false_positive)
            * float(true_negative + false_negative)
        )
        product = float(true_positive * true_negative) - float(false_positive * false_negative)
        value = product / math.sqrt(norm) if norm else 0.0
        if value > best:
            best = value
            before = scores[place - 1] if place else -math.inf
            threshold = float((before + scores[place]) / 2) if place else -math.inf
    return threshold


def _sentiment(task: Task, examples: Sequence[Example], settings: Settings) -> Items:
    queries = []
    for example in examples:
        prompt = f"{example.fields['sentence'].rstrip()} very"
        queries.append([Query(prompt, f" {word}") for word in settings.compared])
    return Items(task, examples, queries)


def _several_tokens(tokenizer: Tokenizer, settings: Settings) -> list[str]:
    """Say which of the words that are compared are several tokens."""
    notes = []
    for word in settings.compared:
        before = len(tokenizer.encode(b"very"))
        n_tokens = len(tokenizer.encode(f"very {word}".encode())) - before
        if n_tokens > 1:
            notes.append(f"{word!r} is {count(n_tokens, 'token')}, scored as a whole")
    return notes


def _likelier(nats: Sequence[Sequence[Nats]], threshold: float | None) -> list[Prediction]:
    """Choose the likeliest text, of several tokens as a whole."""
    return [choose([total_log_p(own) for own in each]) for each in nats]


def _likelier_by_token(nats: Sequence[Sequence[Nats]], threshold: float | None) -> list[Prediction]:
    return [choose([mean_log_p(own) for own in each]) for each in nats]


def _race(task: Task, examples: Sequence[Example], settings: Settings) -> Items:
    """Ask for each option behind passage and question; of a blank, in its place."""
    queries = []
    for example in examples:
        question, blank, _ = example.fields["question"].partition("_")
        asked = question if blank else example.fields["question"]
        prompt = f"{example.fields['article'].rstrip()} {asked}".rstrip()
        queries.append([Query(prompt, f" {option.strip()}") for option in example.choices])
    return Items(task, examples, queries)


def _pronouns(task: Task, examples: Sequence[Example], settings: Settings) -> Items:
    """Ask for the rest of each text behind each candidate in the pronoun's place."""
    asked: list[Example] = []
    queries: list[list[Query]] = []
    left_out: Counter[str] = Counter()
    for example in examples if task.kind == "choice" else _grouped(examples, left_out):
        own = list(_substituted(task, example))
        if not own or not own[0].text.strip(" .,;:!?\"'"):
            left_out[_NOTHING_BEHIND] += 1
            continue
        asked.append(example)
        queries.append(own)
    return Items(task, asked, queries, dict(left_out))


def _grouped(examples: Sequence[Example], left_out: Counter[str]) -> Iterator[Example]:
    """Put the rows of one pronoun together: its two candidates, of which one is right.

    Of other numbers of candidates guessing would not score a half.
    """
    groups: dict[tuple[str, int], list[Example]] = {}
    for example in examples:
        key = example.fields["text"], example.extra["span2_index"]
        groups.setdefault(key, []).append(example)
    for rows in groups.values():
        labels: dict[str, int] = {}
        for row in rows:
            labels[row.fields["span1_text"]] = int(row.label or 0)
        right = [index for index, label in enumerate(labels.values()) if label]
        if len(labels) != 2 or len(right) != 1:
            left_out[_NOT_TWO] += 1
            continue
        first = rows[0]
        yield Example(
            id=first.id,
            fields=first.fields,
            label=right[0],
            choices=tuple(labels),
            source=first.source,
            extra=first.extra,
        )


def _substituted(task: Task, example: Example) -> Iterator[Query]:
    pronoun = example.fields["pronoun" if task.name == "dpr" else "span2_text"]
    marked = marked_text(task, example)
    place = marked.lower().find(f"*{pronoun.lower()}*")
    before, rest = marked[:place], marked[place + len(pronoun) + 2 :]
    for candidate in example.choices:
        written = candidate
        # A candidate in the middle of a sentence has no capital for its article.
        if before.strip() and written.split(" ")[0].lower() in ("the", "a", "an"):
            written = written[0].lower() + written[1:]
        yield Query(f"{before}{written}", rest)


PROBES: dict[str, Probe] = {
    probe.name: probe
    for probe in (
        Probe(
            "cola",
            "CoLA",
            tasks=("cola",),
            splits=("dev",),
            metric="matthews",
            chance=0.0,
            reference=0.35,
            source="Radford et al. 2018, table 4: the best single-task model before",
            items=_cola,
            answer=_acceptable,
            threshold=_best_threshold,
        ),
        Probe(
            "sst2",
            "SST-2",
            tasks=("sst2",),
            splits=("dev",),
            metric="accuracy",
            chance=0.5,
            reference=0.932,
            source="Radford et al. 2018, table 4: the best single-task model before",
            items=_sentiment,
            answer=_likelier,
            notes=_several_tokens,
        ),
        Probe(
            "race",
            "RACE",
            tasks=("race", "race_middle", "race_high"),
            splits=("dev",),
            metric="accuracy",
            chance=0.25,
            reference=0.533,
            source="Radford et al. 2018, table 3: the best model before",
            items=_race,
            answer=_likelier_by_token,
        ),
        Probe(
            "winograd",
            "Winograd schemas",
            tasks=("wsc",),
            splits=("train+dev", "dev", "train"),
            metric="accuracy",
            chance=0.5,
            reference=None,
            source="the paper does not say which",
            items=_pronouns,
            answer=_likelier_by_token,
        ),
        Probe(
            "dpr",
            "DPR",
            tasks=("dpr",),
            splits=("test",),
            metric="accuracy",
            chance=0.5,
            reference=None,
            source="the paper does not say which",
            items=_pronouns,
            answer=_likelier_by_token,
        ),
    )
}
"""In the order in which they are shown."""
