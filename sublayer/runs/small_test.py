"""Say where the split that judges a model is too small to stand for others."""

from sublayer.counts import count
from sublayer.data.prepare import Data
from sublayer.data.tasks.task_split import TaskSplit

_FEW = 10
"""Fewer documents than these are few."""


def describe_small_test(data: Data) -> str | None:
    """Return a sentence on a test split of few documents or pairs; None where there are enough."""
    test = data.test
    if test is None:
        return None
    n = len(test.document_starts)
    if n >= _FEW:
        return None
    if test.read_pairs is not None:
        return (
            f"the test split has only {count(n, 'pair')} of texts: scores on other texts may differ"
        )
    if test.is_cut:
        whole = "one document" if n == 1 else f"{n} documents"
        part = "part" if n == 1 else "parts"
        return (
            f"the test split is {part} of {whole}, the rest of which is trained on: scores on "
            "other documents may differ"
        )
    unit = "example" if isinstance(test, TaskSplit) else "document"
    items = f"one {unit}" if n == 1 else f"{n} {unit}s"
    return f"the test split has only {items}: scores on other {unit}s may differ"
