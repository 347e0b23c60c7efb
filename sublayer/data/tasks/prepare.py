"""Preparation of the tasks of ``[data]``: located, read, divided, encoded and stored as splits."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.config.data import TOKENIZERS, DataConfig
from sublayer.config.supervised import SupervisedObjective
from sublayer.counts import count
from sublayer.data.cache import content_key
from sublayer.data.prepare import Data, tokenizer_of_file, trained_tokenizer
from sublayer.data.store import TokenStore
from sublayer.data.tasks.batches import TaskPart, TaskSplit
from sublayer.data.tasks.encoded import (
    TRAVERSAL_NAMES,
    EncodedExamples,
    SpanExamples,
    find_marks,
    joined,
)
from sublayer.data.tasks.encoding import VERSION, WindowRule, encode_examples
from sublayer.data.tasks.files import Chosen, Kept, TaskDivision, TaskFiles, find_task_files
from sublayer.data.tokenizers.base import Tokenizer, with_names
from sublayer.data.tokenizers.named import with_special_tokens
from sublayer.data.tokenizers.settings import marks_pattern
from sublayer.data.training_text import describe_marks, note_losses
from sublayer.errors import DataError
from sublayer.files.cache_folder import cache_folder
from sublayer.system.stages import note, stage
from sublayer.tasks.own_table import NAME
from sublayer.tasks.registry import wording_of
from sublayer.tasks.task import Example

_SHOWN_CLASSES = 10
SAMPLED_ROWS = 500
"""Rows of a table, about, that are encoded to see how much of it a tokenizer keeps."""


def prepare_tasks(
    config: DataConfig,
    objective: SupervisedObjective,
    *,
    tokenizer: Tokenizer | None = None,
    cache: Path | None = None,
    trains: bool = True,
) -> Data:
    """Find, read, divide, encode and store the examples of a recipe's tasks.

    ``train`` is the training part without held-out examples, ``valid`` the held-out ones, or the
    published development set (``data.select``), ``test`` the published development set, which is
    scored. ``tokenizer`` is the initial model's; without one the recipe's is trained on the
    training part. ``trains``: words that its rules change are reported.

    Raises DataError where files are missing or malformed.
    """
    folder = cache_folder(cache)
    files = find_task_files(config, folder)
    divisions = [TaskDivision(config, task_files) for task_files in files]
    if tokenizer is None:
        tokenizer = _tokenizer(config, files, divisions)
    if config.special_tokens is not None:
        tokenizer = with_special_tokens(tokenizer, config.special_tokens)
    if objective.format == "traversal":
        tokenizer = with_names(tokenizer, TRAVERSAL_NAMES)
    if config.task_names == (NAME,):
        _note_texts(files[0], divisions[0], tokenizer, trains=trains)
    weights = config.tasks if isinstance(config.tasks, dict) else {}
    train: list[TaskPart] = []
    valid: list[TaskPart] = []
    test: list[TaskPart] = []
    for task_files, division in zip(files, divisions, strict=True):
        part = partial(_part, config, objective, task_files, tokenizer)
        weight = weights.get(task_files.task.name)
        train.append(part(division.trained, trains=True, weight=weight))
        valid += map(part, division.selecting)
        test += map(part, division.scored)
    _check_trained(train, objective)
    splits = [
        task_split(name, parts, tokenizer, objective)
        for name, parts in (("train", train), ("valid", valid), ("test", test))
    ]
    checksums = {"tokenizer": tokenizer.fingerprint}
    digests = {}
    for split in splits:
        checksums[split.name] = split.store.sha256
        digests[split.name] = content_key(split.store.sha256, [part.digest for part in split.parts])
    return Data(tokenizer, splits[0], splits[1], splits[2], checksums, digests=digests)


def task_split(
    name: str, parts: Sequence[TaskPart], tokenizer: Tokenizer, objective: SupervisedObjective
) -> TaskSplit:
    """Join the examples of tasks in a split."""
    encoded = joined([part.encoded for part in parts])
    starts = encoded.text_starts[encoded.row_starts[encoded.example_starts[:-1]]]
    keys: list[Any] = [[part.task.name, part.published] for part in parts]
    keys += [[part.encoded.numbers.tolist(), part.encoded.golds()] for part in parts]
    store = TokenStore(
        ids=encoded.ids,
        document_starts=starts,
        source_starts=np.zeros(1, dtype=np.int64),
        n_bytes=0,
        sha256=content_key(
            keys, tokenizer.fingerprint, hashlib.sha256(encoded.ids.tobytes()).hexdigest()
        ),
        is_lossless=False,
    )
    return TaskSplit(
        name=name,
        store=store,
        tokenizer=tokenizer,
        sources=tuple(dict.fromkeys(part.task.title for part in parts)),
        parts=tuple(parts),
        format=objective.format,
        marks=find_marks(tokenizer, objective.format),
    )


def _part(
    config: DataConfig,
    objective: SupervisedObjective,
    files: TaskFiles,
    tokenizer: Tokenizer,
    chosen: Chosen,
    *,
    trains: bool = False,
    weight: float | None = None,
) -> TaskPart:
    """Encode the chosen examples of one task."""
    task, split = files.task, chosen.split
    format_ = objective.format
    windows = None
    if task.kind == "span" and format_ == "pair":
        windows = WindowRule(config.context, objective.doc_stride)
    # All others are written alike for training and for use.
    trains = trains and (format_ == "text" or windows is not None)
    # Of few that are asked for no others are encoded; else all, for every division of them.
    few = None if config.train_examples is None else chosen.examples
    places = None if few is None else np.flatnonzero(few)
    identity = [*files.identity(split), *([] if windows is None else windows)]
    which = [] if places is None else [places.tolist()]
    key = content_key("encoded", VERSION, tokenizer.fingerprint, format_, trains, identity, *which)

    def compute() -> Kept:
        examples = files.read(split).examples
        if places is not None:
            examples = [examples[index] for index in places]
        with stage(f"turning {task.title}, {split}, into tokens"):
            encoded = encode_examples(
                task, examples, tokenizer, format_, trains=trains, windows=windows
            )
        if places is not None:
            encoded = replace(encoded, numbers=places[encoded.numbers])
        return encoded.arrays(), {}

    arrays, _ = files.kept(key, compute)
    encoded = (EncodedExamples if windows is None else SpanExamples).of_arrays(arrays)
    n_lost = 0
    if chosen.examples is not None:
        if places is None:
            encoded = encoded.select(np.flatnonzero(chosen.examples[encoded.numbers]))
        if isinstance(encoded, SpanExamples):
            n_lost = int(chosen.examples.sum()) - encoded.n_questions
    return TaskPart(
        task=task,
        published=split,
        encoded=encoded,
        read_examples=lambda: files.read(split).examples,
        weight=weight,
        size_limit=config.size_limit,
        notes=files.notes(split),
        digest=content_key(files.identity(split)),
        n_lost=n_lost,
    )


def _check_trained(parts: Sequence[TaskPart], objective: SupervisedObjective) -> None:
    has_others = any(len(part.encoded) for part in parts)
    for part in parts:
        labels = set(part.encoded.labels.tolist())
        # As text WSC is learned from the rows that are true alone, as published.
        has_labels = part.task.kind in ("classes", "number") and objective.format != "text"
        if has_labels and len(labels) == 1:
            [only] = labels
            name = part.task.labels[int(only)] if part.task.kind == "classes" else f"{only:g}"
            raise DataError(
                f"{part.task.title}: all {count(len(part.encoded), 'row')} to train on are {name}: "
                "there is nothing to learn"
            )
        is_answered_alone = objective.format == "text" and not wording_of(part.task).learns
        if len(part.encoded) or (has_others and is_answered_alone):
            continue
        raise DataError(
            f"nothing of {part.task.title} is left to train on in objective.format = "
            f"{objective.format}: leave {part.task.name} out of data.tasks"
        )


def _note_texts(
    files: TaskFiles, division: TaskDivision, tokenizer: Tokenizer, *, trains: bool
) -> None:
    """Note the text of a table that a tokenizer loses, and how it reads marks of special tokens."""
    has_answers = files.task.kind == "text"
    split, chosen = division.trained
    examples = files.read(split).examples
    numbers = np.arange(len(examples)) if chosen is None else np.flatnonzero(chosen)
    some = [examples[n] for n in numbers[:: max(1, len(numbers) // SAMPLED_ROWS)].tolist()]
    texts = texts_of(some, has_answers=has_answers)
    if trains:
        _note_rows(files, division, [examples[n] for n in numbers.tolist()])
    note_losses("the table", texts, tokenizer, trains=trains)
    rows = texts_of((examples[n] for n in numbers.tolist()), has_answers=has_answers)
    note_marks("the table", rows, tokenizer, trains=trains)


def note_marks(shown: str, texts: Sequence[bytes], tokenizer: Tokenizer, *, trains: bool) -> bool:
    """Note how marks of special tokens in texts are read; return whether there are any."""
    if (pattern := marks_pattern(tokenizer.marks)) is None:
        return False
    marks = Counter(mark.decode() for text in texts for mark in pattern.findall(text))
    if marks:
        note(describe_marks(shown, marks, tokenizer, trains=trains))
    return bool(marks)


def _note_rows(files: TaskFiles, division: TaskDivision, learned: Sequence[Example]) -> None:
    """Report a table's classes, and rows of other parts that are also in training."""
    title, labels = files.task.title, files.task.labels
    if files.task.kind == "classes":
        counts = Counter(example.label for example in learned)
        listed = [f"{labels[n]} {counts[n]:,}" for n in range(min(len(labels), _SHOWN_CLASSES))]
        more = f" and {len(labels) - len(listed):,} more" if len(labels) > len(listed) else ""
        note(f"{title}: {len(labels):,} classes, by rows to train on: {', '.join(listed)}{more}")
    texts = {example.texts for example in learned}
    for split in dict.fromkeys(part.split for part in (*division.selecting, *division.scored)):
        rows = files.read(split).examples if split != division.trained.split else []
        n_there = sum(example.texts in texts for example in rows)
        if n_there:
            note(
                f"{title}, {split}: {n_there:,} of {count(len(rows), 'row')} have the texts of "
                "rows that are trained on: its score is too good by that"
            )


def texts_of(examples: Iterable[Example], *, has_answers: bool = False) -> list[bytes]:
    """Return the texts of examples, a line each: fields, choices, and answers if read."""
    texts = []
    for example in examples:
        texts += [*example.fields.values(), *example.choices]
        if has_answers:
            texts += [answer.text for answer in example.answers]
    return [f"{text}\n".encode() for text in texts]


def _tokenizer(
    config: DataConfig, files: Sequence[TaskFiles], divisions: Sequence[TaskDivision]
) -> Tokenizer:
    kind = config.tokenizer
    if kind not in TOKENIZERS:
        return tokenizer_of_file(config)
    texts: list[bytes] = []
    for own_files, division in zip(files, divisions, strict=True):
        split, chosen = division.trained
        assert chosen is not None, "the training examples are chosen"
        examples = own_files.read(split).examples
        texts += texts_of(
            (examples[number] for number in np.flatnonzero(chosen).tolist()),
            has_answers=own_files.task.kind == "text",
        )
    with stage(f"training a {kind} tokenizer on the training examples"):
        return trained_tokenizer(config, texts)
