"""The table of fine-tuning: answer tasks, in one of three formats."""

from typing import ClassVar, Literal

from sublayer.config.data import DataConfig
from sublayer.config.limits import LARGEST_FACTOR, LONGEST_WINDOW
from sublayer.config.objective import (
    Lengths,
    Loss,
    ModelKind,
    ObjectiveTable,
    OtherTables,
    TextUse,
)
from sublayer.config.table import field
from sublayer.config.texts import check_size_limit, kind_of, metrics_of, own_table
from sublayer.errors import ConfigError
from sublayer.tasks.own_table import NAME
from sublayer.tasks.registry import TASKS
from sublayer.tasks.task import Task

Format = Literal["pair", "traversal", "text"]
KINDS: dict[str, tuple[ModelKind, ...]] = {
    "pair": ("encoder",),
    "traversal": ("decoder", "lstm"),
    "text": ("encoder-decoder", "decoder", "lstm"),
}
"""The kinds of model that can read each format."""

_MARKS = 4
"""Of a row of three texts, the most that a task has."""


class SupervisedObjective(ObjectiveTable):
    """Answer tasks: fine-tuning on examples with labels, choices, numbers or spans."""

    model_kinds: ClassVar[tuple[ModelKind, ...]] = ("encoder",)
    text: ClassVar[TextUse] = "tasks"
    scores_whole_split: ClassVar[bool] = True

    kind: Literal["supervised"] = field(
        "supervised", "Answer tasks: fine-tuning on examples with labels, choices or spans."
    )
    format: Format = field(
        "pair",
        "How an example is written: pair: [CLS] A [SEP] B [SEP], for encoders; traversal: texts "
        "between a start, delimiters and an end, for decoders and LSTMs (GPT-1); text: all as "
        "text, the answer too (T5).",
    )
    dropout: float = field(
        0.1,
        "Dropout of the vector that the task's head reads; of spans of what no answer is judged "
        "by.",
        unit="probability",
        needs={"format": ("pair", "traversal")},
        ge=0.0,
        lt=1.0,
    )
    zero_head: bool = field(
        False,
        "Whether the head that answers begins at zero (Macaron Net), whatever the start has.",
        needs={"format": ("pair", "traversal")},
    )
    logistic: bool = field(
        False,
        "Whether a task of two labels has one output, the logit of the second label (Macaron Net), "
        "and not one for each.",
        needs={"format": ("pair", "traversal")},
    )
    orders: Literal["given", "random", "both"] = field(
        "given",
        "Of tasks whose two texts may be exchanged: read in training as they are given, in either "
        "order by chance, or in both. A traversal always has both.",
        needs={"format": ("pair",)},
    )
    language_weight: float = field(
        0.0,
        "Weight of the loss of predicting the texts themselves, a mean over rows of each row's "
        "mean (GPT-1: 0.5).",
        needs={"format": ("traversal",)},
        ge=0.0,
        le=LARGEST_FACTOR,
    )
    answer: Literal["greedy", "rank"] = field(
        "greedy",
        "How an answer is read off: written token by token, or the label whose text is likeliest.",
        needs={"format": ("text",)},
    )
    target_length: int = field(
        64,
        "Tokens of the longest target, its end included; what is beyond is cut off.",
        unit="tokens",
        needs={"format": ("text",)},
        ge=2,
        le=LONGEST_WINDOW,
    )
    doc_stride: int = field(
        128,
        "Tokens between the windows in which a long passage is read for a span.",
        unit="tokens",
        needs={"format": ("pair",)},
        ge=1,
        le=LONGEST_WINDOW,
    )
    max_answer: int = field(
        30,
        "Tokens of the longest span that is answered.",
        unit="tokens",
        needs={"format": ("pair",)},
        ge=1,
        le=LONGEST_WINDOW,
    )

    def check(self, recipe: OtherTables) -> None:
        """Raise ConfigError, naming both fields, where the objective contradicts the recipe."""
        kinds = KINDS[self.format]
        if recipe.model.kind not in kinds:
            fitting = [name for name, each in KINDS.items() if recipe.model.kind in each]
            raise ConfigError(
                f"objective.format = {self.format} is read by a model.kind = {' or '.join(kinds)}, "
                f"not {recipe.model.kind}: give objective.format={fitting[0]}"
            )
        if recipe.data.tasks is None:
            raise ConfigError(
                "objective.kind = supervised needs data.tasks: name a task, such as sst2 "
                "(`sublayer tasks` lists them)"
            )
        if recipe.data.is_parallel:
            raise ConfigError(
                f"data.source_language = {recipe.data.source_language:.40} makes the text pairs, "
                "which objective.kind = supervised does not read: leave it out"
            )
        names = recipe.data.task_names
        if names == (NAME,):
            own_table(recipe.data.path, recipe.data.columns)
        if len(names) > 1 and self.format != "text":
            raise ConfigError(
                f"data.tasks = {', '.join(names)} is a mixture, which objective.format = "
                f"{self.format} has no one head for: name one task, or give objective.format=text"
            )
        check_size_limit(recipe.data.size_limit, recipe.data.tasks)
        kind = kind_of(names[0], recipe.data.columns)
        if self.format == "traversal" and kind == "span":
            raise ConfigError(
                f"data.tasks = {names[0]} asks for a part of a passage, of which "
                "objective.format = traversal, whose tokens see only what is before them, knows "
                "no end: give objective.format=text, or start from an encoder"
            )
        if kind == "text" and self.format != "text":
            start = (
                "a T5 or a decoder" if recipe.model.kind == "encoder" else "objective.format=text"
            )
            raise ConfigError(
                f"data.columns has a target, a text to be written, which objective.format = "
                f"{self.format} does not: give {start}"
            )
        if kind == "text" and self.answer == "rank":
            raise ConfigError(
                "objective.answer = rank chooses among labels, and a target is a text that is "
                "written: leave it out"
            )
        if recipe.model.head == "none" and (self.format == "text" or self.language_weight > 0):
            asked = "format = text" if self.format == "text" else "language_weight"
            advice = "" if self.format == "text" else "set objective.language_weight=0, or "
            raise ConfigError(
                f"model.head = none predicts no tokens, which objective.{asked} asks for: "
                f"{advice}start from a model with a head"
            )
        if self.zero_head and kind == "span":
            raise ConfigError(
                "objective.zero_head = true is for a head of labels, choices or numbers, and "
                f"data.tasks = {names[0]} asks for spans: leave it out"
            )
        if names[0] in TASKS:
            self.check_head(TASKS[names[0]])
        self._check_room(recipe)
        if recipe.train.compile:
            raise ConfigError(
                "train.compile = true would compile anew for every length of an example: "
                "leave it out"
            )

    def _check_room(self, recipe: OtherTables) -> None:
        context = recipe.data.context
        if self.format != "text" and context < _MARKS + 1:
            raise ConfigError(
                f"data.context = {context} has no room for texts between their marks: give "
                f"{_MARKS + 1} or more"
            )
        if self.format == "text" and recipe.model.kind != "encoder-decoder":
            if context > self.target_length + 1:
                return
            raise ConfigError(
                f"objective.target_length = {self.target_length} leaves no room for an input in "
                f"data.context = {context}: give objective.target_length={context // 2} or less, "
                "or a model of a longer context"
            )

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
        metrics = {name: metrics_of(name, data.columns) for name in data.task_names}
        if len(metrics) == 1:
            [own] = metrics.values()
            return ("loss", "score", *own)
        names = []
        for task, own in metrics.items():
            names += [f"{task}/{metric}" for metric in ("score", *own)]
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
        found = [Loss("answer", head) for head in ("label", "span", "joint_span")]
        if self.language_weight:
            found.append(Loss("next token", notes=(f"weight {self.language_weight:g}",)))
        return tuple(found)
