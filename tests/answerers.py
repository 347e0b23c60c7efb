"""Examples of tasks made by hand, and tiny models that answer them, in float64."""

import numpy as np
import torch

from sublayer.api.run import Pretrained
from sublayer.config.model import ModelConfig
from sublayer.config.objective import SupervisedObjective
from sublayer.config.resolve import n_outputs
from sublayer.data.tasks.batches import Assembler, TaskPart
from sublayer.data.tasks.encoded import encode_examples
from sublayer.data.tasks.figure import WordTokens
from sublayer.data.tasks.prepare import task_split
from sublayer.objective.base import family
from sublayer.objective.supervised.heads import row_rule
from sublayer.tasks.registry import TASKS, TaskSpec
from sublayer.tasks.task import Example
from tests.encoders import random_model

LEXICON = [f"w{number}" for number in range(40)]
KINDS = {"pair": "encoder", "traversal": "decoder", "text": "encoder-decoder"}
TARGET_LENGTH = 8


def draw_examples(name, n, seed=0, longest=12):
    """Draw examples of a task, whose texts are random words of every length, and their labels."""
    task = TASKS[name]
    rng = np.random.default_rng(seed)

    def text():
        return " ".join(rng.choice(LEXICON, rng.integers(1, longest + 1)))

    examples = []
    for number in range(n):
        fields = {field: text() for field in task.fields}
        # Not all of them have as many.
        n_choices = 2 + number % 3 if task.kind == "choice" else 0
        choices = tuple(text() for _ in range(n_choices))
        n_labels = 26 if task.kind == "number" else len(choices or task.labels)
        label = int(rng.integers(n_labels))
        label = label / 5 if task.kind == "number" else label
        examples.append(Example(str(number), fields, label, choices))
    return examples


def tokenizer_of(tasks=tuple(TASKS)):
    """Know all words of the lexicon, and of what the text format writes around them."""
    words = [*LEXICON, *(str(number / 5) for number in range(26))]
    for name, task in zip(tasks, map(TASKS.get, tasks), strict=True):
        words += [name, *task.labels, *(f"{field}:" for field in task.fields)]
    for number in range(1, 6):
        words += [f"choice{number}", f"choice{number}:"]
    return WordTokens([" ".join(words), "race premise: hypothesis:"])


def split_of(examples, format_, tokenizer=None, weights=None, *, trains=True, size_limit=None):
    tokenizer = tokenizer or tokenizer_of()
    parts = []
    for name, own in examples.items():
        encoded = encode_examples(TASKS[name], own, tokenizer, format_, trains=trains)
        given = {"weight": (weights or {}).get(name), "size_limit": size_limit}
        given |= {"encoded": encoded, "read_examples": lambda own=own: own}
        parts.append(TaskPart(task=TASKS[name], published="train", **given))
    return task_split("train", parts, tokenizer, SupervisedObjective(format=format_))


def rule_of(split, context=48, kind="", **settings):
    settings = {"target_length": TARGET_LENGTH, **settings}
    objective = SupervisedObjective(format=split.format, **settings)
    kind = kind or KINDS[split.format]
    model = ModelConfig.model_construct(kind=kind, decoder_start="pad")
    return row_rule(objective, split, context, model)


def assembler_of(split, context=48, **settings):
    return Assembler(split.encoded, rule_of(split, context, **settings))


def spec_of(tasks, format_, context=48, **fields):
    target_length = TARGET_LENGTH if format_ == "text" else 0
    return TaskSpec(tuple(tasks), format_, context, target_length, **fields)


def model_of(split, context=48, *, dtype=torch.float64, **fields):
    """Build a model that answers a split's tasks, all weights drawn from N(0, 0.3)."""
    task = split.parts[0].task
    own = {"kind": KINDS[split.format], "n_layers": 2, "d_model": 12, "n_heads": 2, "d_ff": 10}
    if split.format != "text":
        own |= {"head": "none", "label_outputs": n_outputs(task)}
    if split.format == "pair":
        own |= {"segments": "both", "pooler": "tanh"}
    return random_model({**own, **fields}, split.tokenizer.vocab_size, context, dtype=dtype)


def answering(split, context=48, *, answer="greedy", **fields):
    """Build such a model with the split's tokenizer and its tasks."""
    spec = spec_of([part.task for part in split.parts], split.format, context, answer=answer)
    return Pretrained(model_of(split, context, **fields), split.tokenizer, spec)


def objective_of(model, split, **settings):
    """Put a model into its objective, without the dropout of what its head reads."""
    dropout = {} if split.format == "text" else {"dropout": 0.0}
    objective = SupervisedObjective(**{"format": split.format, **dropout, **settings})
    task = spec_of([part.task for part in split.parts], split.format)
    return family("supervised").build(model, objective, 0, task)
