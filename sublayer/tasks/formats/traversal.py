"""Texts in a row with delimiters between them, as GPT-1 reads a task with structure."""

from sublayer.tasks.example import Example
from sublayer.tasks.formats.parts import fill_query, texts_of
from sublayer.tasks.task import Task

TraversalRow = tuple[str, ...]
"""The texts between which ``_delimiter_`` stands: after ``_start_``, before ``_classify_``."""


def traversal_rows(task: Task, example: Example) -> tuple[TraversalRow, ...]:
    """Return an example's rows: one, two of a symmetric task, or one for each choice.

    Source: Radford et al. 2018, sec. 3.3 and figure 1:

    - one text; premise, then hypothesis;
    - symmetric tasks: both orders, whose final states are added;
    - choices: document and question as one text, then the answer (so in RACE, whose blanks are not
      filled; Story Cloze: the story, then the ending).

    All else is ours. Any other pair is written like an entailment, in the order of the task's
    fields, and

    - MultiRC like RACE: passage and question, then the answer;
    - WiC as three texts: both sentences, then the word.

    COPA asks in words, of ReCoRD the second text is the query with the entity in its place, WSC and
    DPR have the pronoun marked. SQuAD's question stands before the passage, or no state of the
    passage would know what is asked.
    """
    texts = texts_of(task, example)
    if task.kind == "choice":
        return tuple(_with_choice(task, texts, choice) for choice in example.choices)
    if task.kind == "span":
        passage, question = texts
        return ((question, passage),)
    if task.name == "multirc":
        passage, question, answer = texts
        return ((f"{passage} {question}", answer),)
    if task.is_symmetric:
        first, second = texts
        return ((first, second), (second, first))
    return (tuple(texts),)


def _with_choice(task: Task, texts: list[str], choice: str) -> TraversalRow:
    if task.name == "record":
        passage, query = texts
        return passage, fill_query(query, choice)
    return " ".join(texts), choice
