"""Warn of what is left out of a text, and of a vocabulary that does not fit it."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from sublayer.config.data import DataConfig
from sublayer.config.recipe import Recipe
from sublayer.config.texts import HUB, WATCHED, source_names
from sublayer.counts import count
from sublayer.data.batches import Batches
from sublayer.data.parallel.batches import side_lengths
from sublayer.data.prepare import Data
from sublayer.data.tasks.batches import ExampleBatches
from sublayer.data.tasks.split_notes import describe_cuts
from sublayer.data.tasks.task_split import TaskSplit, of_tasks
from sublayer.data.text.files import describe_files, list_files_left_out
from sublayer.data.training_text import describe_marks

_UNKNOWN_SHARE = 1e-3
"""Of the train split's tokens: more than these are not rare characters alone."""
_CHUNK = 1 << 24
_MOST_NAMED = 3
"""Files of a folder that a warning names."""


def list_data_warnings(recipe: Recipe, data: Data, batches: Batches) -> list[str]:
    """Return the warnings, a line each; ``batches`` are those of the train split."""
    return [
        *_files(recipe.data),
        *_tasks(data),
        *_unfilled(recipe, data.tokenizer.vocab_size),
        *_left_out(recipe, data),
        *_unknown(recipe, data),
        *_marks(data),
        *_too_long(recipe, data, batches),
    ]


def _files(data: DataConfig) -> Iterator[str]:
    """Warn of files that are left out, not in UTF-8, or of JSON, by the names of the first."""
    if data.is_parallel or data.tasks is not None:
        # Their readers count what they leave out.
        return
    has_parquet = data.documents in (None, "json")
    paths = [*source_names(data.path), data.valid_path, data.test_path]
    others = []
    for entry in paths:
        if entry is None or entry in WATCHED or entry.startswith(HUB):
            continue
        left_out = list_files_left_out(entry, has_parquet=has_parquet)
        if left_out:
            first = ", ".join(path.name for path in left_out[:_MOST_NAMED])
            more = f" and {len(left_out) - _MOST_NAMED:,} more" if left_out[_MOST_NAMED:] else ""
            yield f"left out of {entry}, for they hold no text: {first}{more}"
        is_as_it_is = data.documents is None and data.corpus is None
        others += describe_files(entry, seeks_records=is_as_it_is)
    yield from others


def _tasks(data: Data) -> Iterator[str]:
    """Say what of the files of tasks is left out, and what is scored where nothing is published."""
    notes: list[str] = []
    for split in data.splits():
        if not isinstance(split, TaskSplit):
            return
        for part in split.parts:
            notes += [f"{part.task.title}, {part.published}: {note}" for note in part.notes]
    # Of one split there are parts that train, and that select.
    yield from dict.fromkeys(notes)
    trained = {part.task.name: part.published for part in of_tasks(data.train).parts}
    for part in of_tasks(data.test or data.train).parts:
        if part.published == trained[part.task.name]:
            missing = "development set" if part.published == "train" else "training part"
            yield (
                f"there is no {missing} of {part.task.title}: {count(len(part.encoded), 'row')} of "
                f"{part.published} are left out of training, to be scored in the end"
            )
        elif part.published.startswith("test") and part.task.dev_splits:
            yield f"{part.task.title} is scored on {part.published}, the published test set"


def _unfilled(recipe: Recipe, n_ids: int) -> Iterator[str]:
    asked = recipe.data.vocab_size
    if recipe.init.run is None and asked is not None and n_ids < asked:
        yield (
            f"data.vocab_size = {asked}, of which the training text fills {n_ids:,}: the model has "
            "those"
        )


def _left_out(recipe: Recipe, data: Data) -> Iterator[str]:
    for name, sizes in data.sizes().items():
        n = sizes.get("empty_documents")
        if n and recipe.data.is_parallel:
            yield (f"the loss of the {name} split leaves out {count(n, 'pair')} with an empty side")
        elif n:
            yield f"the {name} split leaves out {count(n, 'document')} without text"


def _unknown(recipe: Recipe, data: Data) -> Iterator[str]:
    """Warn where a vocabulary from elsewhere lacks more of a text than rare characters."""
    if not recipe.data.is_parallel or data.tokenizer.unk_id is None:
        return
    ids = data.train.ids
    n_unknown = 0
    # The comparison takes a byte for each id: in chunks it stays small.
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        is_unknown = chunk == data.tokenizer.unk_id
        n_unknown += int(np.count_nonzero(is_unknown))
    if n_unknown > _UNKNOWN_SHARE * len(ids):
        yield (
            f"{n_unknown:,} of {len(ids):,} tokens of the train split are unknown to data.tokenizer"
        )


def _marks(data: Data) -> Iterator[str]:
    """Say how marks of special tokens in the texts are read."""
    marks: Counter[str] = Counter()
    for split in data.splits():
        marks.update(split.store.marks)
    if marks:
        yield describe_marks("the text", marks, data.tokenizer, trains=True)


def _too_long(recipe: Recipe, data: Data, batches: Batches) -> Iterator[str]:
    yield from batches.notes()
    if isinstance(batches, ExampleBatches):
        for split in data.splits()[1:]:
            yield from describe_cuts(of_tasks(split), batches.rule)
    if not recipe.data.is_parallel:
        return
    for split in data.splits()[1:]:
        longer_sides = side_lengths(split).max(1)
        is_long = longer_sides > recipe.data.context
        n_long = int(is_long.sum())
        if n_long:
            yield (
                f"the loss of the {split.name} split leaves out {count(n_long, 'pair')}, longer "
                "than data.context"
            )
