"""Pairs of texts, as encoders read them: ``[CLS] first [SEP] second [SEP]``."""

from dataclasses import dataclass
from typing import Literal

from sublayer.tasks.example import Example
from sublayer.tasks.formats.parts import answered, fill_query, texts_of
from sublayer.tasks.task import Task

Cut = Literal["longest", "first", "windows"]
"""What gives way where a row is too long: the end of the longer text, token by token; the end of
the first; or nothing, since the second is read in windows."""

QUESTION_TOKENS = 64
"""How many tokens of SQuAD's question are read. Source: BERT's run_squad.py."""
_RACE_TOKENS = 128


@dataclass(frozen=True, slots=True)
class PairRow:
    """A row of tokens to be."""

    first: str
    second: str | None = None
    cut: Cut = "longest"
    first_tokens: int | None = None
    """At most so many of the first text's tokens are read: those at its beginning."""
    second_tokens: int | None = None
    """At most so many of the second text's tokens are read: those at its end."""


def pair_rows(task: Task, example: Example) -> tuple[PairRow, ...]:
    """Return an example's rows: one, or of ``choice`` one for each choice.

    The first field is the first text, all others the second, joined by spaces, and a choice at its
    end. Otherwise written are:

    - BoolQ: the question before the passage (jiant);
    - COPA: premise and question, then the choice (jiant);
    - MultiRC: the passage gives way (jiant, which writes the question into the first text);
    - ReCoRD: the query with the entity in its place (jiant);
    - RACE: the question with the option in its blanks, of which the last 128 tokens are read, after
      the article, which gives way (ALBERT);
    - WSC, DPR: the text with the pronoun marked, then the noun (ours: jiant reads out both spans);
    - WiC: the word before the first sentence, where no cut takes it (ours: jiant writes it as a
      third text);
    - SQuAD: the question, then the passage in windows (BERT).
    """
    texts = texts_of(task, example)
    if task.kind == "choice":
        return tuple(_with_choice(task, texts, choice) for choice in example.choices)
    if task.kind == "span":
        passage, question = texts
        return (PairRow(question, passage, cut="windows", first_tokens=QUESTION_TOKENS),)
    if task.name == "boolq":
        texts.reverse()
    if task.name == "wic":
        first, second, word = texts
        texts = [f"{word} {first}", second]
    first, *rest = texts
    cut: Cut = "first" if task.name == "multirc" else "longest"
    return (PairRow(first, " ".join(rest) if rest else None, cut=cut),)


def _with_choice(task: Task, texts: list[str], choice: str) -> PairRow:
    first, *rest = texts
    if task.name == "record":
        return PairRow(first, fill_query(rest[0], choice))
    if task.name == "copa":
        return PairRow(" ".join(texts), choice)
    if task.suite == "race":
        second = answered(rest[0], choice)
        return PairRow(first, second, cut="first", second_tokens=_RACE_TOKENS)
    return PairRow(first, " ".join([*rest, choice]))
