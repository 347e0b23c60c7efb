"""Examples of tasks made by hand, and tiny models that answer them, in float64."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.objectives.supervised import Format, SupervisedObjective
from sublayer.config.resolve_model import resolve_model
from sublayer.config.task_heads import n_outputs
from sublayer.data.tasks.assembly import Assembler, RowRule
from sublayer.data.tasks.encoding import encode_examples
from sublayer.data.tasks.prepare import task_split
from sublayer.data.tasks.task_split import TaskPart, TaskSplit
from sublayer.data.tasks.word_tokens import WordTokens
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.model.build import compose
from sublayer.model.transformer import Transformer
from sublayer.objective.base import Objective
from sublayer.objective.families import FAMILIES
from sublayer.objective.supervised.batches import row_rule
from sublayer.tasks.example import Example
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.task import Task

LEXICON = [f"w{number}" for number in range(40)]
KINDS = {"pair": "encoder", "traversal": "decoder", "text": "encoder-decoder"}
TARGET_LENGTH = 8


def draw_examples(name: str, n: int, seed: int = 0, longest: int = 12) -> list[Example]:
    """Draw examples of a task, whose texts are random words of every length, and their labels."""
    task = TASKS[name]
    rng = np.random.default_rng(seed)

    def text() -> str:
        return " ".join(rng.choice(LEXICON, rng.integers(1, longest + 1)))

    examples = []
    for number in range(n):
        fields = {field: text() for field in task.fields}
        choices: tuple[str, ...] = ()
        if task.kind == "choice":
            # Not all of them have as many.
            choices = tuple(text() for _ in range(2 + number % 3))
        label: float
        if task.kind == "number":
            label = float(rng.integers(0, 26)) / 5
        else:
            label = int(rng.integers(len(choices or task.labels)))
        examples.append(Example(str(number), fields, label, choices))
    return examples


def tokenizer_of(tasks: Sequence[str] = tuple(TASKS)) -> WordTokens:
    """Know all words of the lexicon, and of what the text format writes around them."""
    words = [*LEXICON, *(str(number / 5) for number in range(26))]
    for name in tasks:
        task = TASKS[name]
        words += [name, *task.labels, *(f"{field}:" for field in task.fields)]
    for number in range(1, 6):
        words += [f"choice{number}", f"choice{number}:"]
    return WordTokens([" ".join(words), "race premise: hypothesis:"])


def split_of(
    examples: dict[str, Sequence[Example]],
    format_: Format,
    tokenizer: Tokenizer | None = None,
    weights: dict[str, float] | None = None,
    *,
    trains: bool = True,
    size_limit: int | None = None,
) -> TaskSplit:
    """Encode the examples of one task or several as a split."""
    tokenizer = tokenizer or tokenizer_of()
    parts = []
    for name, own in examples.items():
        encoded = encode_examples(TASKS[name], own, tokenizer, format_, trains=trains)
        parts.append(
            TaskPart(
                task=TASKS[name],
                published="train",
                encoded=encoded,
                read_examples=lambda own=own: own,  # type: ignore[misc]
                weight=(weights or {}).get(name),
                size_limit=size_limit,
            )
        )
    return task_split("train", parts, tokenizer, SupervisedObjective(format=format_))


def rule_of(split: TaskSplit, context: int = 48, kind: str = "", **settings: Any) -> RowRule:
    """Return how a split is read by a model of a kind, the first that reads its format."""
    settings = {"target_length": TARGET_LENGTH, **settings}
    return row_rule(
        SupervisedObjective(format=split.format, **settings),
        split,
        context=context,
        kind=kind or KINDS[split.format],
        starts_with_pad=True,
    )


def assembler_of(split: TaskSplit, context: int = 48, **settings: Any) -> Assembler:
    """Pack the examples of a split."""
    return Assembler(split.encoded, rule_of(split, context, **settings))


def spec_of(tasks: Sequence[Task], format_: Format, context: int = 48, **fields: Any) -> TaskSpec:
    """Say what a model answers."""
    target_length = TARGET_LENGTH if format_ == "text" else 0
    return TaskSpec(tuple(tasks), format_, context, target_length, **fields)


def model_of(
    split: TaskSplit,
    context: int = 48,
    *,
    dtype: torch.dtype = torch.float64,
    answer: str = "greedy",
    **fields: Any,
) -> Transformer:
    """Build a model that answers the tasks of a split, whose weights are all drawn from N(0, 0.3).

    Without a vocabulary head, unless that is asked for or the answers are text.
    """
    task = split.parts[0].task
    own: dict[str, Any] = {
        "kind": KINDS[split.format],
        "n_layers": 2,
        "d_model": 12,
        "n_heads": 2,
        "d_ff": 10,
    }
    if split.format != "text":
        own |= {"head": "none", "label_outputs": n_outputs(task)}
    if split.format == "pair":
        own |= {"segments": "both", "pooler": "tanh"}
    config = ModelConfig.model_validate({**own, **fields})
    resolved = resolve_model(config, vocab_size=split.tokenizer.vocab_size, context=context)
    model = compose(resolved).to(dtype).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
    model.tokenizer = split.tokenizer
    tasks = [part.task for part in split.parts]
    model.task = spec_of(tasks, split.format, context, answer=answer)
    return model


def objective_of(model: Transformer, **settings: Any) -> Objective:
    """Put a model into its objective, without the dropout of what its head reads."""
    settings = {"format": model.task.format, "dropout": 0.0, **settings}
    if model.task.format == "text":
        del settings["dropout"]
    return FAMILIES["supervised"].build(model, SupervisedObjective(**settings), 0)
