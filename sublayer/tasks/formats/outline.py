"""An example whose texts are the names of its parts, as in the papers' figures."""

from sublayer.tasks.example import Answer, Example
from sublayer.tasks.task import Task

# Where a format does more than to put texts in order.
_TEXTS = {
    "cause_or_effect": {"premise": "premise", "question": "cause"},
    "blank": {"article": "article", "question": "question with _"},
    "query": {"passage": "passage", "query": "query with @placeholder"},
    "passage": {"context": "context with answer", "question": "question"},
    "pronoun": {"text": "Ann told Eve that she won.", "pronoun": "she"},
    "spans": {"text": "Ann told Eve that she won.", "span1_text": "Eve", "span2_text": "she"},
    "wnli": {"sentence1": "Ann told Eve that she won.", "sentence2": "Eve won."},
}
_OF_TASK = {
    "copa": "cause_or_effect",
    "record": "query",
    "dpr": "pronoun",
    "wsc": "spans",
    "wnli": "wnli",
}
_SPANS = {"span1_index": 2, "span2_index": 4}


def outline(task: Task) -> Example:
    """Return an example of a task that says what stands where: ``sentence1`` and so on.

    Its label is the last class, the second choice or the number in the middle.
    """
    kind = _OF_TASK.get(task.name, {"race": "blank", "squad": "passage"}.get(task.suite, ""))
    fields = dict(_TEXTS[kind]) if kind else {name: name for name in task.fields}
    low, high = task.numbers
    if task.kind == "span":
        answer = Answer("answer", fields["context"].index("answer"))
        return Example("0", fields, answers=(answer,))
    if task.kind == "number":
        return Example("0", fields, label=(low + high) / 2)
    if task.kind == "classes":
        extra = _SPANS if task.name == "wsc" else {}
        return Example("0", fields, label=len(task.labels) - 1, extra=extra)
    if task.name == "record":
        answers = (Answer("entity2"),)
        return Example("0", fields, choices=("entity1", "entity2"), answers=answers)
    choices = ("Ann", "Eve") if task.name == "dpr" else ("choice1", "choice2")
    return Example("0", fields, label=1, choices=choices)
