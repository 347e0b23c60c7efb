"""MultiRC: whether an answer to a question about a paragraph is right. Each answer is an example.

Source: Khashabi et al. 2018, as SuperGLUE publishes it, or in their own release (``splitv2``).
"""

from sublayer.tasks.example import Example
from sublayer.tasks.labels import read_class
from sublayer.tasks.nested import Nested, add_known, next_passage
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.task import Task


def read_multirc(task: Task, row: Nested, result: ReadSplit) -> None:
    """Add the examples of a row: of a passage with its questions, as it is published, or of one
    answer, as the hub's copies have it.

    In the authors' own release the passage is called ``paragraph``, labels ``isAnswer``, and
    neither passages nor answers are numbered. Passage, question and answer are numbered in
    ``extra``, as a submission writes them.
    """
    name = next((x for x in ("passage", "paragraph") if isinstance(row.values.get(x), dict)), "")
    if name:
        passage = row.inner(name)
        first = row.whole("idx") if name == "passage" else next_passage(result)
        for question in passage.each("questions"):
            for number, answer in enumerate(question.each("answers")):
                last = answer.whole("idx") if name == "passage" else number
                idx = (first, question.whole("idx"), last)
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
    written = answer.values.get("label", answer.values.get("isAnswer"))
    label = read_class(task, written, answer.place)
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
