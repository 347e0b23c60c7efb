"""MultiRC: whether an answer to a question about a paragraph is right. Each answer is an example.

Source: Khashabi et al. 2018, as SuperGLUE publishes it.
"""

from sublayer.tasks.example import Example
from sublayer.tasks.labels import read_class
from sublayer.tasks.nested import Nested, add_known
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.task import Task


def read_multirc(task: Task, row: Nested, result: ReadSplit) -> None:
    """Add the examples of a row: of a passage with its questions, as it is published, or of one
    answer, as the hub's copies have it.

    Passage, question and answer are numbered in ``extra``, as a submission writes them.
    """
    if isinstance(row.values.get("passage"), dict):
        passage = row.inner("passage")
        for question in passage.each("questions"):
            for answer in question.each("answers"):
                idx = (row.whole("idx"), question.whole("idx"), answer.whole("idx"))
                texts = (passage.text("text"), question.text("question"), answer.text("text"))
                _add(task, answer, texts, idx, result)
    else:
        numbers = row.inner("idx")
        idx = (numbers.whole("paragraph"), numbers.whole("question"), numbers.whole("answer"))
        texts = (row.text("paragraph"), row.text("question"), row.text("answer"))
        _add(task, row, texts, idx, result)


def _add(
    task: Task,
    answer: Nested,
    texts: tuple[str, str, str],
    idx: tuple[int, int, int],
    result: ReadSplit,
) -> None:
    label = read_class(task, answer.values.get("label"), answer.place)
    example = Example(
        id=".".join(map(str, idx)),
        fields=dict(zip(task.fields, texts, strict=True)),
        label=label,
        is_labelled=label is not None,
        group=f"{idx[0]}.{idx[1]}",
        source=texts[0],
        extra=dict(zip(("passage", "question", "answer"), idx, strict=True)),
    )
    add_known(result, example, answer)
