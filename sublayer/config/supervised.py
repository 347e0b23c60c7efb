"""The table of fine-tuning: answer tasks, in one of three formats."""

from typing import ClassVar, Literal

from sublayer.config.data import DataConfig, task_of
from sublayer.config.objective import (
    Lengths,
    Loss,
    ModelKind,
    ObjectiveTable,
    TextUse,
)
from sublayer.config.table import Dropout, Tokens, Weight, WindowTokens, field
from sublayer.errors import ConfigError
from sublayer.tasks.task import Task

Format = Literal["pair", "traversal", "text"]
KINDS: dict[str, tuple[ModelKind, ...]] = {
    "pair": ("encoder",),
    "traversal": ("decoder", "lstm"),
    "text": ("encoder-decoder", "decoder", "lstm"),
}
"""The kinds of model that can read each format."""

MARKS = 4
"""Of a row of three texts, the most that a task has."""


class SupervisedObjective(ObjectiveTable):
    """Answer tasks: fine-tuning on examples with labels, choices, numbers or spans."""

    model_kinds: ClassVar[tuple[ModelKind, ...]] = ("encoder",)
    text: ClassVar[TextUse] = "tasks"
    scores_whole_split: ClassVar[bool] = True

    kind: Literal["supervised"] = "supervised"
    """Answer tasks: fine-tuning on examples with labels, choices or spans."""
    format: Format = "pair"
    """Format of an example: pair: [CLS] A [SEP] B [SEP], for encoders; traversal: texts between a
    start, delimiters and an end, for decoders and LSTMs (GPT-1); text: all as text, the answer too
    (T5)."""
    dropout: Dropout[float] = field(0.1, needs={"format": ("pair", "traversal")})
    """Dropout of the vector that the task's head reads; of spans of what no answer is judged by."""
    zero_head: bool = field(False, needs={"format": ("pair", "traversal")})
    """Answering head at zero in the beginning (Macaron Net), whatever the start has."""
    logistic: bool = field(False, needs={"format": ("pair", "traversal")})
    """One output for a task of two labels, the logit of the second (Macaron Net), in place of one
    for each."""
    orders: Literal["given", "random", "both"] = field("given", needs={"format": ("pair",)})
    """Of tasks whose two texts may be exchanged: read in training as they are given, in either
    order by chance, or in both. A traversal always has both."""
    language_weight: Weight[float] = field(0.0, needs={"format": ("traversal",)})
    """Weight of the loss of predicting the texts themselves, a mean over rows of each row's mean
    (GPT-1: 0.5)."""
    answer: Literal["greedy", "rank"] = field("greedy", needs={"format": ("text",)})
    """Decoding of an answer: written token by token, or the label whose text is likeliest."""
    target_length: WindowTokens[int] = field(64, needs={"format": ("text",)})
    """Tokens of the longest target, its end included; the rest is cut off."""
    doc_stride: Tokens[int] = field(128, needs={"format": ("pair",)})
    """Tokens between the windows in which a long passage is read for a span."""
    max_answer: Tokens[int] = field(30, needs={"format": ("pair",)})
    """Tokens of the longest span that is answered."""

    def check_head(self, task: Task) -> None:
        """Raise ConfigError where a head of one output is asked for, and a task has no two labels.

        The labels of a table of one's own are not known before it is read.
        """
        if self.logistic and not (task.kind == "classes" and len(task.labels) == 2):
            raise ConfigError(
                "objective.logistic = true is for a task of two labels, which data.tasks = "
                f"{task.name} is not: leave it out"
            )

    def trains_kind(self, kind: str) -> bool:
        """Return whether models of a kind can be trained at all."""
        return kind in KINDS[self.format]

    def evaluations(self, data: DataConfig) -> tuple[str, ...]:
        """Return the loss, the score, and the metrics of each task; of several behind its name."""
        metrics = {name: task_of(name, data.columns).metrics for name in data.task_names}
        if len(metrics) == 1:
            [task_metrics] = metrics.values()
            return ("loss", "score", *task_metrics)
        names = []
        for task, task_metrics in metrics.items():
            names += [f"{task}/{metric}" for metric in ("score", *task_metrics)]
        return ("loss", "score", *names)

    def lengths(self, context: int) -> Lengths:
        """Return the greatest lengths of an input and of a target.

        A decoder alone has the target in the row that it reads.
        """
        if self.format == "text":
            return Lengths(context, self.target_length)
        return Lengths(context, context)

    def n_predictions(self, context: int) -> int:
        """Count the positions of a row that predict a token."""
        if self.format == "text" or self.language_weight > 0:
            return context
        return 0

    def reads_texts_alone(self) -> bool:
        """Return whether the answer alone is learned, from the state that stands for the text."""
        return self.format != "text" and self.language_weight == 0

    def n_ids(self, context: int) -> int:
        """Count the ids that a row of a batch is certain to have, its targets included."""
        return 1

    def trains(self, head: str) -> bool:
        """Return whether a head that the model has, by its name in ``HEADS``, has a loss."""
        return head != "sentence"

    def reads(self) -> str:
        """Name the input of a model's first stack."""
        return "tokens of an example"

    def losses(self) -> tuple[Loss, ...]:
        """Return the losses: of the answer, and with a traversal of the text itself."""
        if self.format == "text":
            return (Loss("next token of the answer"),)
        # A model has one of the three.
        losses = [Loss("answer", head) for head in ("label", "span", "joint_span")]
        if self.language_weight:
            losses.append(Loss("next token", notes=(f"weight {self.language_weight:g}",)))
        return tuple(losses)
