"""The fields of ``[data]`` that say which tasks are learned, and which examples choose."""

from typing import Literal

from pydantic import field_validator

from sublayer.config.limits import MOST_WINDOWS
from sublayer.config.table import Table, field
from sublayer.config.text.corpora import Sources, source_names
from sublayer.config.text.own_table import OwnColumns, check_columns
from sublayer.config.text.tasks import check_tasks

DEFAULT_HELD_OUT = 0.1


class TaskFields(Table):
    """The tasks of a model that answers, or the columns of a table of one's own."""

    tasks: Sources | None = field(
        None,
        (
            "Tasks to fine-tune on, whose files are in the folder that path names: one, a list, or "
            "{name = weight}; a mixture without weights draws each by its size. `sublayer tasks` "
            "lists them. Or table: one of your own, which path names."
        ),
    )
    size_limit: int | None = field(
        None,
        "In a mixture by size, a task of more training examples is drawn as if it had so many "
        "(T5's artificial data set size limit).",
        unit="examples",
        ge=1,
        le=MOST_WINDOWS,
    )
    train_examples: int | None = field(
        None,
        "Train on so many of each task's training examples, the same for all seeds, and more of "
        "them with more; what is held out is not among them.",
        unit="examples",
        ge=2,
        le=MOST_WINDOWS,
    )
    columns: OwnColumns | None = field(
        None,
        (
            "Which columns of a table of your own are what: text; text_pair, a second text, or the "
            "question about it; label, the class, or number, a label that is one; choices, a list "
            "of columns, of which label says the right one; answer, a part of the text, and "
            "answer_start, where it begins; target, a text to write; group, a document's rows, "
            "which stay together; id."
        ),
    )
    select: Literal["held-out", "dev", "dev-mismatched", "parts"] = field(
        "held-out",
        (
            "Which examples choose the checkpoint: some that are held out of the training part, or "
            "the published development set, as in the papers, which is what is scored, too; of "
            "MNLI that is the matched one, and dev-mismatched the other. parts: of a table in "
            "three files (train, dev, test) dev chooses, and test is scored, as finetune has it."
        ),
    )
    score_on: Literal["dev", "test"] | None = field(
        None,
        "Which published examples are scored in the end: the development set, or the test set, "
        "where it has labels, as RACE's, SNLI's, SciTail's and Story Cloze's.",
        derived="dev",
    )
    held_out: float = field(
        DEFAULT_HELD_OUT,
        "Share of the training part that is held out; at most 2,000 examples.",
        unit="share of examples",
        needs={"select": ("held-out", "parts")},
        gt=0.0,
        le=0.5,
    )

    @property
    def task_names(self) -> tuple[str, ...]:
        """Return the names of the tasks."""
        return source_names(self.tasks)

    @field_validator("tasks")
    @classmethod
    def _tasks_are_known(cls, tasks: Sources | None) -> Sources | None:
        check_tasks(tasks)
        return tasks

    @field_validator("columns")
    @classmethod
    def _columns_fit_together(cls, columns: OwnColumns | None) -> OwnColumns | None:
        check_columns(columns)
        return columns
