"""From the tasks that ``[data]`` names to splits: located, read, divided, encoded, stored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.config.data import DataConfig
from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.config.text.tokenizers import TOKENIZERS
from sublayer.data.arrays import Bools
from sublayer.data.cache import content_key, file_digest
from sublayer.data.prepare import Data
from sublayer.data.store import TokenStore
from sublayer.data.tasks.encoded import EncodedExamples
from sublayer.data.tasks.encoding import VERSION, encode_examples
from sublayer.data.tasks.marks import TRAVERSAL_NAMES, find_marks
from sublayer.data.tasks.span_encoding import WindowRule
from sublayer.data.tasks.span_examples import SpanExamples
from sublayer.data.tasks.task_split import TaskPart, TaskSplit
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.extended import with_names
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.errors import DataError
from sublayer.files.arrays import dump_arrays, load_arrays
from sublayer.files.cache_folder import cache_folder, replacing
from sublayer.files.paths import expanded
from sublayer.system.stages import stage
from sublayer.tasks.division import held_out
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.registry import TASKS, locate_files, read_split
from sublayer.tasks.task import Task

MOST_HELD_OUT = 2000
"""Examples that are held out of the training part at most."""
_TEST_SHARE = 0.2
"""Of the rows of a folder without a training part: those that are scored in the end."""


@dataclass(frozen=True)
class TaskFiles:
    """The files of one task, each split read when it is first asked for."""

    task: Task
    found: Mapping[str, tuple[Path, ...]]

    @cached_property
    def _read(self) -> dict[str, ReadSplit]:
        return {}

    def read(self, split: str) -> ReadSplit:
        """Read a split, once."""
        if split not in self._read:
            with stage(f"reading {self.task.title}, {split}"):
                self._read[split] = read_split(self.task, split, self.found[split])
        return self._read[split]

    def digest(self, split: str, cache: Path) -> list[str]:
        """Return the checksums of a split's files."""
        return [file_digest(path, cache) for path in self.found[split]]


def prepare_tasks(
    config: DataConfig,
    objective: SupervisedObjective,
    *,
    tokenizer: Tokenizer | None = None,
    cache: Path | None = None,
) -> Data:
    """Find, read, divide, encode and store the examples of the tasks that a recipe names.

    ``train`` is the training part without what is held out, ``valid`` what is held out, or the
    published development set (``data.select``), ``test`` the published development set, which is
    what is scored. ``tokenizer`` is that of the model that training starts from; without one the
    recipe's is trained on the training part.

    Raises DataError where files are missing or are not what they should be.
    """
    folder = cache_folder(cache)
    files = [task_files(TASKS[name], config.path, folder) for name in config.task_names]
    if tokenizer is None:
        tokenizer = _tokenizer(config, files)
    if objective.format == "traversal":
        tokenizer = with_names(tokenizer, TRAVERSAL_NAMES)
    weights = config.tasks if isinstance(config.tasks, dict) else {}
    train, valid, test = [], [], []
    for each in files:
        parts = _Divider(config, objective, each, tokenizer, folder)
        weight = weights.get(each.task.name)
        train.append(parts.train(weight))
        valid += parts.valid()
        test += parts.test()
    splits = [
        task_split(name, parts, tokenizer, objective)
        for name, parts in (("train", train), ("valid", valid), ("test", test))
    ]
    checksums = {"tokenizer": tokenizer.fingerprint}
    for split in splits:
        checksums[split.name] = split.store.sha256
    return Data(tokenizer, splits[0], splits[1], splits[2], checksums)


def task_files(task: Task, path: Any, cache: Path) -> TaskFiles:
    """Find a task's files in the folder that ``data.path`` names; without one in the cache, or else
    download them.

    Raises DataError where there are none.
    """
    if path is not None and not isinstance(path, str):
        raise DataError(f"data.path must name the folder of {task.title}'s files: one, not several")
    found = locate_files(task, path, cache)
    if not any(name.startswith(("train", "dev")) for name in found):
        raise DataError(
            f"{path or 'the cache'} has no files of {task.title} with labels: `sublayer tasks` "
            "lists what is there, also of a folder"
        )
    return TaskFiles(task, found)


def task_split(
    name: str, parts: Sequence[TaskPart], tokenizer: Tokenizer, objective: SupervisedObjective
) -> TaskSplit:
    """Put the examples of tasks together as a split."""
    ids = np.concatenate([part.encoded.ids for part in parts])
    starts = []
    first = 0
    for part in parts:
        encoded = part.encoded
        starts.append(first + encoded.text_starts[encoded.row_starts[encoded.example_starts[:-1]]])
        first += len(encoded.ids)
    keys: list[Any] = [[part.task.name, part.published] for part in parts]
    for part in parts:
        keys.append([part.encoded.numbers.tolist(), part.encoded.golds()])
    store = TokenStore(
        ids=ids,
        document_starts=np.concatenate(starts),
        source_starts=np.zeros(1, dtype=np.int64),
        n_bytes=0,
        sha256=content_key(keys, tokenizer.fingerprint, ids[:1000].tolist(), len(ids)),
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


class _Divider:
    """One task's examples divided into those that train, select and are scored."""

    def __init__(
        self,
        config: DataConfig,
        objective: SupervisedObjective,
        files: TaskFiles,
        tokenizer: Tokenizer,
        cache: Path,
    ) -> None:
        self._config = config
        self._objective = objective
        self._files = files
        self._tokenizer = tokenizer
        self._cache = cache
        self._devs = [name for name in files.task.dev_splits if name in files.found]
        self._has_train = "train" in files.found
        self._source = "train" if self._has_train else self._devs[0]

    def train(self, weight: float | None) -> TaskPart:
        """Return what is trained on."""
        return self._part(self._source, ~(self._is_held_out | self._is_test), weight, trains=True)

    def valid(self) -> list[TaskPart]:
        """Return what selects."""
        if self._config.select == "dev" and self._has_train and self._devs:
            # The first alone, where there are several: the matched one.
            return [self._part(self._devs[0])]
        return [self._part(self._source, self._is_held_out)]

    def test(self) -> list[TaskPart]:
        """Return what is scored in the end."""
        if not self._has_train:
            return [self._part(self._source, self._is_test)]
        if not self._devs:
            return [self._part(self._source, self._is_held_out)]
        return [self._part(name) for name in self._devs]

    @cached_property
    def _is_test(self) -> Bools:
        if self._has_train:
            return np.zeros(len(self._is_usable), dtype=np.bool_)
        return self._divided("test", _TEST_SHARE, len(self._is_usable), self._is_usable)

    @cached_property
    def _is_held_out(self) -> Bools:
        selects_by_dev = self._config.select == "dev" and self._has_train and bool(self._devs)
        if selects_by_dev:
            return np.zeros(len(self._is_usable), dtype=np.bool_)
        usable = self._is_usable & ~self._is_test
        return self._divided("valid", self._config.held_out, MOST_HELD_OUT, usable)

    @cached_property
    def _is_usable(self) -> Bools:
        """Return which examples of the source have labels."""
        key = content_key("usable", self._identity(self._source))

        def compute() -> dict[str, Any]:
            examples = self._files.read(self._source).examples
            return {"usable": np.array([each.is_labelled for each in examples], dtype=np.uint8)}

        usable: Bools = self._cached(key, compute)["usable"].astype(np.bool_)
        return usable

    def _divided(self, purpose: str, share: float, at_most: int, usable: Bools) -> Bools:
        key = content_key(
            "divided", purpose, share, at_most, self._identity(self._source), int(usable.sum())
        )

        def compute() -> dict[str, Any]:
            examples = self._files.read(self._source).examples
            chosen = [examples[index] for index in np.flatnonzero(usable)]
            is_out = np.zeros(len(examples), dtype=np.uint8)
            is_out[usable] = held_out(chosen, share, at_most)
            return {"out": is_out}

        is_out: Bools = self._cached(key, compute)["out"].astype(np.bool_)
        return is_out

    def _part(
        self,
        split: str,
        chosen: Bools | None = None,
        weight: float | None = None,
        *,
        trains: bool = False,
    ) -> TaskPart:
        encoded = self._encoded(split, trains=trains)
        n_lost = 0
        if chosen is not None:
            encoded = encoded.select(np.flatnonzero(chosen[encoded.numbers]))
            if isinstance(encoded, SpanExamples):
                n_lost = int(chosen.sum()) - encoded.n_questions
        files = self._files
        return TaskPart(
            task=files.task,
            published=split,
            encoded=encoded,
            read_examples=lambda: files.read(split).examples,
            weight=weight,
            skipped=lambda: files.read(split).skipped,
            n_lost=n_lost,
        )

    def _encoded(self, split: str, *, trains: bool) -> EncodedExamples:
        format_ = self._objective.format
        task = self._files.task
        windows = None
        if task.kind == "span" and format_ == "pair":
            windows = WindowRule(self._config.context, self._objective.doc_stride)
        identity = [*self._identity(split), *([] if windows is None else windows)]
        key = content_key(
            "encoded", VERSION, self._tokenizer.fingerprint, format_, trains, identity
        )

        def compute() -> dict[str, Any]:
            examples = self._files.read(split).examples
            with stage(f"turning {task.title}, {split}, into tokens"):
                encoded = encode_examples(
                    task, examples, self._tokenizer, format_, trains=trains, windows=windows
                )
            return encoded.arrays()

        stored = self._cached(key, compute)
        kind = EncodedExamples if windows is None else SpanExamples
        return kind.of_arrays(stored)

    def _identity(self, split: str) -> list[Any]:
        return [self._files.task.name, split, self._files.digest(split, self._cache)]

    def _cached(self, key: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Read arrays from the cache, or compute and store them."""
        path = self._cache / "tasks" / key
        if path.is_file():
            try:
                arrays, _ = load_arrays(path.read_bytes(), str(path), DataError)
            except DataError:
                # A damaged file of the cache is made again.
                path.unlink(missing_ok=True)
            else:
                return arrays
        computed = compute()
        data = dump_arrays(computed, {})
        with replacing(path) as file:
            file.write(data)
        return load_arrays(data, str(path), DataError)[0]


def _tokenizer(config: DataConfig, files: Sequence[TaskFiles]) -> Tokenizer:
    kind = config.tokenizer
    if kind not in TOKENIZERS:
        return load_tokenizer(expanded(kind), sentinels=config.sentinels)
    texts: list[bytes] = []
    for each in files:
        split = "train" if "train" in each.found else next(iter(each.found))
        for example in each.read(split).examples:
            texts += [f"{text}\n".encode() for text in (*example.fields.values(), *example.choices)]
    with stage(f"training a {kind} tokenizer on the training examples"):
        return train_tokenizer(
            kind,
            texts,
            vocab_size=config.vocab_size,
            merges=config.merges,
            sentinels=config.sentinels,
        )
