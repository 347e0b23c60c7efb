"""ReCoRD: which entity of a news text belongs into a query.

Source: Zhang et al. 2018, as SuperGLUE publishes it, or in their own release.
"""

from sublayer.errors import DataError
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.nested import Nested, add_known, next_passage
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.task import Task

_NO_ENTITIES = "no entities to choose from"
_NO_CHOICE = "an answer that is none of the entities"


def read_record(task: Task, row: Nested, result: ReadSplit) -> None:
    """Add the examples of a row: of a passage with its queries, as it is published, or of one
    query, as the hub's copies have it.

    The authors' own release numbers neither passages nor queries.
    Choices and gold answers are the distinct texts, sorted. Passage and query are numbered in
    ``extra``. Queries that cannot be answered are left out: without entities, or in training with
    an answer that is none of them.
    """
    if "qas" in row.values:
        passage = row.inner("passage")
        entities = _entities(passage)
        first = row.whole("idx") if row.has("idx") else next_passage(result)
        for number, query in enumerate(row.each("qas")):
            gold = [answer.text("text") for answer in _answers(query)]
            last = query.whole("idx") if query.has("idx") else number
            idx = {"passage": first, "query": last}
            texts = (passage.text("text"), query.text("query"))
            _add(task, query, texts, entities, gold, idx, result)
    else:
        numbers = row.inner("idx")
        idx = {"passage": numbers.whole("passage"), "query": numbers.whole("query")}
        gold = list(row.texts("answers")) if row.has("answers") else []
        texts = (row.text("passage"), row.text("query"))
        _add(task, row, texts, set(row.texts("entities")), gold, idx, result)


def _answers(query: Nested) -> list[Nested]:
    return query.each("answers") if query.has("answers") else []


def _entities(passage: Nested) -> set[str]:
    """Return the texts of the entities, whose ends are places of their last characters."""
    text = passage.text("text")
    entities = set()
    for entity in passage.each("entities"):
        start, end = entity.whole("start"), entity.whole("end")
        if not 0 <= start <= end < len(text):
            raise DataError(
                f"{entity.place} is from {start} to {end} of a text of {len(text)} characters"
            )
        entities.add(text[start : end + 1])
    return entities


def _add(
    task: Task,
    row: Nested,
    texts: tuple[str, str],
    entities: set[str],
    gold: list[str],
    idx: dict[str, int],
    result: ReadSplit,
) -> None:
    choices = tuple(sorted(entities))
    answers = tuple(Answer(text) for text in sorted(set(gold)))
    right = [choices.index(answer.text) for answer in answers if answer.text in entities]
    if not choices:
        result.skip(_NO_ENTITIES, row.place)
        return
    if answers and not right:
        if result.name == "train":
            result.skip(_NO_CHOICE, row.place)
            return
        result.keep(_NO_CHOICE, row.place)
    name = f"{idx['passage']}.{idx['query']}"
    example = Example(
        id=name,
        fields=dict(zip(task.fields, texts, strict=True)),
        label=right[0] if right else None,
        choices=choices,
        answers=answers,
        is_labelled=bool(answers),
        group=name,
        source=texts[0],
        extra=idx,
    )
    add_known(result, example, row)
