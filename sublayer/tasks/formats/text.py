"""Tasks as text to text: what is read, and what is to be written.

Source, of the tasks of GLUE, SuperGLUE, DPR and SQuAD: T5 (Raffel et al. 2020), by its released
preprocessing, to the letter. All others are written by its general rule; the order of their parts
is ours.
"""

import re
import string

import numpy as np

from sublayer.tasks.example import Example
from sublayer.tasks.formats.parts import marked_text, without_markup
from sublayer.tasks.formats.wnli import as_pronoun
from sublayer.tasks.task import Task

UNANSWERABLE = "unanswerable"
"""What is written of a question that has no answer in its passage; ours."""

UNRANKED = ("wsc", "wnli")
"""Tasks of which one noun alone is written, which has no rank."""
REFERENTS = ("wsc", "wnli", "dpr")
"""Tasks of which the noun that a pronoun stands for is written."""

# Diagnostic sets are written as the tasks that they diagnose.
_NAMES = {
    "ax": "mnli",
    "axb": "rte",
    "axg": "rte",
    "sg_rte": "rte",
    "race_middle": "race",
    "race_high": "race",
}
_KEYS = {
    "ax": {"sentence1": "premise", "sentence2": "hypothesis"},
    "axb": {"sentence1": "premise", "sentence2": "hypothesis"},
}
# What a cut at the end may take stands last.
_FIRST = {
    "multirc": ("question", "answer"),
    "race": ("question",),
}
_LAST = {"race": ("article",)}

_PUNCTUATION = re.compile(f"([{re.escape(string.punctuation)}])")
_SPACES = re.compile(r"\s+", re.ASCII)
_SENTENCE_END = re.compile(r"([.?!\"'])\n@highlight\n")
_HIGHLIGHT = "\n@highlight\n"


def text_input(task: Task, example: Example) -> str:
    """Return what is read: the task's name, and each text after its key, by the alphabet.

    MultiRC's question and answer and RACE's question and options stand before the passage. The
    options of a choice are the texts ``choice1``, ``choice2`` and so on; those of ReCoRD are
    listed. WSC, WNLI and DPR are a text with the pronoun marked. SQuAD's punctuation has spaces on
    both sides, also at the end of a text.
    """
    if task.name in REFERENTS:
        return f"wsc: {_marked(task, example)}"
    if task.kind == "span":
        passage, question = (_pad(example.fields[name]) for name in task.fields)
        return _SPACES.sub(" ", f"question: {question} context: {passage}")
    if task.name == "record":
        return _record(example)
    name = _NAMES.get(task.name, task.name)
    renamed = _KEYS.get(task.name, {})
    texts = {renamed.get(key, key): text for key, text in example.fields.items()}
    for number, choice in enumerate(example.choices, start=1):
        texts[f"choice{number}"] = choice
    first, last = _FIRST.get(name, ()), _LAST.get(name, ())
    between = sorted(key for key in texts if key not in first + last)
    parts = [f"{key}: {texts[key]}" for key in (*first, *between, *last)]
    joined = " ".join([name, *parts])
    return without_markup(joined) if name == "multirc" else joined


def text_target(task: Task, example: Example) -> str | None:
    """Return what is to be written; None where it is not known, for which T5 has ``<unk>``.

    Of several gold answers the first, of a pronoun the noun in question, right or wrong.
    """
    if task.name == "wsc":
        return example.fields["span1_text"]
    if task.name == "wnli":
        return as_pronoun(*example.fields.values()).referent
    if not example.is_labelled:
        return None
    if task.kind == "span":
        return _pad(example.answers[0].text) if example.answers else UNANSWERABLE
    if task.name == "record" or task.kind == "text":
        return example.answers[0].text if example.answers else None
    if example.label is None:
        return None
    if task.kind == "number":
        return _written_number(task, example.label)
    return text_targets(task, example)[int(example.label)]


def text_targets(task: Task, example: Example) -> tuple[str, ...]:
    """Return the texts of all labels or choices, by index, to be ranked.

    None for numbers, spans and texts, and for WSC and WNLI: one noun alone has no rank.
    """
    if task.name in UNRANKED or task.kind == "text":
        return ()
    if task.kind == "classes":
        return task.labels
    if task.name in ("record", "dpr"):
        return example.choices
    return tuple(f"choice{number}" for number, _ in enumerate(example.choices, start=1))


def has_ranks(task: Task) -> bool:
    """Return whether the labels or choices of a task's examples have texts that can be ranked."""
    return task.kind in ("classes", "choice") and task.name not in UNRANKED


def training_texts(task: Task, example: Example) -> tuple[tuple[str, str], ...]:
    """Return the rows that are trained on, input and target of each.

    One, but: ReCoRD's and those of texts are one for each gold answer; of WSC only right nouns are
    learned; WNLI is only evaluated, by a model of WSC or DPR; what has no label is no row.
    """
    if task.name == "wnli" or not example.is_labelled:
        return ()
    if task.name == "wsc" and example.label != 1:
        return ()
    read = text_input(task, example)
    if task.name == "record" or task.kind == "text":
        return tuple((read, answer.text) for answer in example.answers)
    target = text_target(task, example)
    return () if target is None else ((read, target),)


def _marked(task: Task, example: Example) -> str:
    if task.name == "wnli":
        return as_pronoun(*example.fields.values()).text
    return marked_text(task, example)


def _record(example: Example) -> str:
    passage = _SENTENCE_END.sub(r"\1 ", example.fields["passage"]).replace(_HIGHLIGHT, ". ")
    entities = ", ".join(example.choices)
    return f"record query: {example.fields['query']} entities: {entities} passage: {passage}"


def _pad(text: str) -> str:
    return _SPACES.sub(" ", _PUNCTUATION.sub(r" \1 ", text))


def _written_number(task: Task, number: float) -> str:
    if task.name != "stsb":
        return f"{number:g}"
    # To the nearest multiple of 0.2, halves to even, in TensorFlow's precision.
    fifths = np.round(np.float32(number) * np.float32(5)) / np.float32(5)
    return f"{float(fifths):.1f}"
