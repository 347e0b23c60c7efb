"""The items of a fine-tuned model's test: how much each example moves the scores of its task."""

from collections.abc import Sequence

import numpy as np

from sublayer.data.tasks.task_split import TaskSplit
from sublayer.evaluation.items import Digest, FromItems, Items, ItemTable
from sublayer.objective.supervised.report import PartReport

SCORE = "score"
"""The column of the mean of a task's metrics; each metric has one of its own name."""


def moved_by(column: str, table: str) -> FromItems:
    """Return how a score moves with its examples: columns are derivatives, of which it is the sum.

    The sum is that of the movements, not the score.
    """
    return FromItems(table, lambda sums: float(sums[column]))


def task_items(split: TaskSplit, reports: Sequence[PartReport]) -> Items:
    """Return how much each example, or group of them, moves the scores of every part.

    ``reports`` are of the split's parts, in order. A row is the derivative of a score with respect
    to how often the example counts, as its pseudo-value has it (Efron 1982, the jackknife).
    """
    tables = {}
    for part, report in zip(split.parts, reports, strict=True):
        digest = Digest(report.name, part.digest)
        digest.add(np.unique(part.encoded.numbers))
        columns = {}
        for name, influences in report.score.influences.items():
            known = np.where(np.isfinite(influences), influences, 0.0)
            columns[name or SCORE] = known / len(known)
        tables[report.name] = ItemTable(
            unit=f"{report.task.title}: an example, or those of one group",
            digest=digest.hexdigest(),
            columns=columns,
            documents=None,
        )
    return Items(split.name, split.store.sha256, tables)
