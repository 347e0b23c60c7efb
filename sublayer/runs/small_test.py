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
            f"the test split is {count(n, 'pair')} of texts: what is measured on it says little of "
            "others"
        )
    if test.is_cut:
        whole = "one document, whose other parts" if n == 1 else f"{n} documents, whose other parts"
        part = "part" if n == 1 else "parts"
        return (
            f"the test split is {part} of {whole} are trained on: "
            "what is measured on it says little of other documents"
        )
    unit = "example" if isinstance(test, TaskSplit) else "document"
    items = f"one {unit}" if n == 1 else f"{n} {unit}s"
    return f"the test split is {items}: what is measured on it says little of others"
