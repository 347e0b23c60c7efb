"""What several formats write alike: a choice in its place, a question in words, texts cleaned."""

import re

from sublayer.tasks.example import Example
from sublayer.tasks.formats.pronoun import mark_first, mark_word
from sublayer.tasks.task import Task

# COPA asks with one word. Source: jiant's copa.py.
_COPA_QUESTIONS = {
    "cause": "What was the cause of this?",
    "effect": "What happened as a result?",
}
PLACEHOLDER = "@placeholder"
"""What ReCoRD's query has where an entity is asked for."""
_BLANK = "_"
_BOLD = re.compile("</?b>")


def texts_of(task: Task, example: Example) -> list[str]:
    """Return an example's texts in the order of the task's fields, as models of every kind read
    them: WSC's and DPR's pronoun marked and left out, COPA's question in words, MultiRC without
    marks of HTML.
    """
    if task.name in ("wsc", "dpr"):
        texts = [marked_text(task, example)]
        if task.name == "wsc":
            texts.append(example.fields["span1_text"])
        return texts
    texts = [example.fields[name] for name in task.fields]
    if task.name == "copa":
        texts[-1] = _COPA_QUESTIONS.get(texts[-1], texts[-1])
    if task.name == "multirc":
        texts = [without_markup(text) for text in texts]
    return texts


def marked_text(task: Task, example: Example) -> str:
    """Return WSC's or DPR's text, with stars around the pronoun that is meant."""
    text = example.fields["text"]
    if task.name == "dpr":
        return mark_first(text, example.fields["pronoun"])
    return mark_word(text, example.fields["span2_text"], example.extra["span2_index"])


def without_markup(text: str) -> str:
    """Replace line breaks of HTML by spaces and drop the marks of bold type, but not what is bold.

    Source: T5's preprocessing of MultiRC.
    """
    return _BOLD.sub("", text.replace("<br>", " "))


def fill_query(query: str, entity: str) -> str:
    """Return ReCoRD's query with an entity in its place. Source: jiant's record.py."""
    return query.replace(PLACEHOLDER, entity)


def answered(question: str, option: str) -> str:
    """Return RACE's question with an option in each of its blanks, or behind it without one.

    Source: ALBERT's race_utils.py.
    """
    if _BLANK in question:
        return question.replace(_BLANK, option)
    return f"{question} {option}"
