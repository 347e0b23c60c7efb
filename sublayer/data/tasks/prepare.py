"""Preparation of tasks in [data]: files located and divided, examples encoded and stored."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sublayer.config.data import DEFAULT_HELD_OUT, TOKENIZERS, DataConfig, own_table
from sublayer.config.objective import SupervisedObjective
from sublayer.data.prepare import (
    Data,
    describe_marks,
    note_losses,
    tokenizer_of_file,
    trained_tokenizer,
)
from sublayer.data.store import TokenStore
from sublayer.data.tasks.batches import TaskPart, TaskSplit
from sublayer.data.tasks.encoded import (
    ENCODING_VERSION,
    TRAVERSAL_NAMES,
    EncodedExamples,
    SpanExamples,
    WindowRule,
    encode_examples,
    find_marks,
    joined,
)
from sublayer.data.tokenizers.base import Tokenizer, marks_pattern
from sublayer.data.tokenizers.named import with_special_tokens
from sublayer.errors import DataError
from sublayer.files.arrays import Bools, dump_arrays, load_arrays
from sublayer.files.cache_folder import cache_folder, content_key, file_digest, replacing
from sublayer.files.lines import suffix_of
from sublayer.numbers import count
from sublayer.system.terminal import note, stage
from sublayer.tasks.finding import SUFFIXES, entries, unpacked_name
from sublayer.tasks.own_table import NAME, OwnTable, describe_left_out
from sublayer.tasks.published import VERSION, ReadSplit
from sublayer.tasks.registry import TASKS, locate_files, read_split, wording_of
from sublayer.tasks.task import Example, Task, bundles_of, held_out

Kept = tuple[dict[str, Any], Any]
"""Arrays by name, with a JSON header."""


@dataclass(frozen=True)
class TaskFiles:
    """Files of one task."""

    task: Task
    paths: Mapping[str, tuple[Path, ...]]
    """Files of each of the publisher's splits."""
    cache: Path

    @cached_property
    def _read(self) -> dict[str, ReadSplit]:
        return {}

    def read(self, split: str) -> ReadSplit:
        """Read a split, once."""
        if split not in self._read:
            with stage(f"reading {self.task.title}, {split}"):
                self._read[split] = read_split(self.task, split, self.paths[split])
        return self._read[split]

    @property
    def scored_splits(self) -> list[str]:
        """Scored splits: the published development set."""
        return [name for name in self.task.dev_splits if name in self.paths]

    @property
    def selecting_split(self) -> str:
        """Selection split, if separate from the scored one; else empty."""
        return ""

    @property
    def test_splits(self) -> list[str]:
        """Published test sets that have files."""
        return [name for name in self.task.test_splits if name in self.paths]

    def usable(self, split: str) -> Bools:
        """Return which examples of a split have labels: ``[N]``."""
        arrays, _ = self._summary(split)
        usable: Bools = arrays["usable"].astype(np.bool_)
        return usable

    def notes(self, split: str) -> list[str]:
        """Describe the omitted, repaired or faulty rows of a split, and files that are not read."""
        _, header = self._summary(split)
        notes: list[str] = header["notes"]
        read = {path for paths in self.paths.values() for path in paths}
        stems = {_stem(path) for path in self.paths[split]}
        others = [
            path.name
            for path in entries(self.paths[split][0].parent)
            if path not in read and _stem(path) in stems and suffix_of(path) in SUFFIXES
        ]
        if others:
            paths = " and ".join(path.name for path in self.paths[split])
            notes = [*notes, f"{', '.join(others)}: not read, since {paths} is"]
        return notes

    def left_out(self, split: str) -> list[str]:
        """Describe the omitted rows of a split, a line for each reason."""
        _, header = self._summary(split)
        lines: list[str] = header["left_out"]
        return lines

    def _summary(self, split: str) -> Kept:
        def compute() -> Kept:
            read = self.read(split)
            usable = np.array([example.is_labelled for example in read.examples], dtype=np.uint8)
            return {"usable": usable}, {"notes": read.described(), "left_out": read.left_out()}

        names = [path.name for path in self.paths[split]]
        key = content_key("read, with places, fields, left out", [names, self.identity(split)])
        return self.kept(key, compute)

    def identity(self, split: str) -> list[Any]:
        """Return the identity of a split's examples, as JSON."""
        digests = [file_digest(path, self.cache) for path in self.paths[split]]
        return [VERSION, self.task.name, split, digests]

    def kept(self, key: str, compute: Callable[[], Kept]) -> Kept:
        """Read arrays from the cache by their key, or compute and cache them."""
        path = self.cache / "tasks" / key
        if path.is_file():
            try:
                return load_arrays(path.read_bytes(), str(path), DataError)
            except DataError:
                # A damaged file of the cache is made anew.
                path.unlink(missing_ok=True)
        data = dump_arrays(*compute())
        with replacing(path) as file:
            file.write(data)
        return load_arrays(data, str(path), DataError)


def _stem(path: Path) -> str:
    return Path(unpacked_name(path)).stem


@dataclass(frozen=True)
class TableFiles(TaskFiles):
    """Files of a user's table, all of them read at once."""

    table: OwnTable
    splits: Mapping[str, ReadSplit]
    in_parts: bool = False
    """Whether the development set selects and the test set is scored, if both are labelled."""

    def read(self, split: str) -> ReadSplit:
        """Return a split."""
        return self.splits[split]

    @property
    def scored_splits(self) -> list[str]:
        """Scored splits: the test set of three parts, or else the first that is fully labelled."""
        labelled = [name for name in ("dev", "test") if self._is_labelled(name)]
        return ["test"] if self.selecting_split else labelled[:1]

    @property
    def selecting_split(self) -> str:
        """Selection split: the development set of three parts; else empty."""
        has_all = "train" in self.splits and all(map(self._is_labelled, ("dev", "test")))
        return "dev" if has_all and self.in_parts else ""

    def notes(self, split: str) -> list[str]:
        """Describe the omitted rows of a split, and, for the first split, the unused files."""
        notes = self.splits[split].described()
        if split == next(iter(self.splits)):
            used = [split, self.selecting_split, *self.scored_splits]
            for name in self.splits:
                if name in used:
                    continue
                why = "dev is scored; data.select=parts selects on dev and scores test"
                if not self._is_labelled(name):
                    n_without = sum(not one.is_labelled for one in self.splits[name].examples)
                    rows = count(n_without, "row")
                    why = f"{rows} without a label; `sublayer predict` predicts them"
                elif "train" not in self.splits:
                    why = "without a training part, the development set is divided in three"
                notes.append(f"{self.splits[name].paths[0]} is not used: {why}")
            notes += describe_left_out(self.table.path, self.paths)
        return notes

    def _is_labelled(self, name: str) -> bool:
        split = self.splits.get(name)
        return split is not None and all(example.is_labelled for example in split.examples)

    def identity(self, split: str) -> list[Any]:
        """Return the identity of a split, with the columns and the task that the rows define."""
        columns = {**asdict(self.table), "path": ""}
        if not self.table.target:
            del columns["target"]  # older identities have no target
        return [*super().identity(split), columns, asdict(self.task)]


def find_task_files(config: DataConfig, cache: Path) -> list[TaskFiles]:
    """Find the files of all tasks in ``[data]``, or of a user's table.

    Raises DataError where there are none, and for a table with faults, as ``OwnTable.read``.
    """
    if config.task_names != (NAME,):
        # Files are in the folder that data.path names; else in the cache, or downloaded.
        files = []
        for task in map(TASKS.__getitem__, config.task_names):
            path: Any = config.path
            if path is not None and not isinstance(path, str):
                raise DataError(
                    f"data.path must name a single folder with the files of {task.title}, not a "
                    "list"
                )
            located = locate_files(task, path, cache)
            if not any(name.startswith(("train", "dev")) for name in located):
                raise DataError(
                    f"{path or 'the cache'} has no labelled files of {task.title}: `sublayer "
                    "tasks` lists the files of the cache or of a folder"
                )
            files.append(TaskFiles(task, located, cache))
        return files
    table = own_table(config.path, config.columns)
    with stage(f"reading {table.path}"):
        task, splits = table.read()
    paths = {name: split.paths for name, split in splits.items()}
    return [TableFiles(task, paths, cache, table, splits, config.select == "parts")]


MOST_HELD_OUT = 2000
"""Maximum number of examples held out of the training part."""
_TEST_SHARE = 0.2
"""Share of rows that become the test split, in a folder with a single part."""
_MISMATCHED = "dev-mismatched"

_FIRST_EXAMPLES = 20
"""Seed of the choice of training examples (``data.train_examples``)."""


class Chosen(NamedTuple):
    """Chosen examples of a published split."""

    split: str
    examples: Bools | None = None
    """True at chosen examples, ``[N]``; None: all."""


class TaskDivision:
    """Division of one task's examples into training, selection and scoring.

    If there is a training part and a development set, the development set is scored, and either may
    serve for selection (``data.select``). If there is only one of them, its examples are divided in
    three. A table in three parts is not divided. With ``data.score_on = "test"`` the published test
    set is scored, and one part is divided in two.

    Raises DataError where one of the three would be empty, and where the test set to be scored is
    missing.
    """

    def __init__(self, config: DataConfig, files: TaskFiles) -> None:
        self._config = config
        self._files = files
        self._title = files.task.title
        self._devs = files.scored_splits
        scores_test = config.score_on == "test"
        self._tests = files.test_splits if scores_test else []
        has_train = "train" in files.paths
        self._source = "train" if has_train else self._devs[0]
        self._is_published = has_train and bool(self._devs)
        self._selects_by_dev = config.select.startswith("dev")
        # The matched development set is the first of several.
        is_second = config.select == _MISMATCHED
        self._dev = "dev_mismatched" if is_second else next(iter(self._devs), "")
        select = f"data.select = {config.select}"
        refusals = {
            "data.score_on = test needs the published test set": scores_test and not self._tests,
            f"{select} needs a table of your own in three files": config.select == "parts"
            and files.task.name != NAME,
            f"data.held_out has no effect, since {files.selecting_split} selects": bool(
                files.selecting_split
            )
            and config.held_out != DEFAULT_HELD_OUT,
            f"{select} needs a training part and a development set": self._selects_by_dev
            and not self._is_published,
            f"{select} needs MNLI's second development set": is_second
            and self._dev not in self._devs,
        }
        for why, is_refused in refusals.items():
            if is_refused:
                raise DataError(
                    f"{why}, but {self._title} has {', '.join(files.paths)}: leave the setting out"
                )

    @property
    def trained(self) -> Chosen:
        """Examples of the training split."""
        chosen = self._is_usable & ~self._is_test & ~self._is_held_out
        n_wanted = self._config.train_examples
        n_there = int(chosen.sum())
        if n_wanted is not None and n_there < n_wanted:
            raise DataError(
                f"data.train_examples = {n_wanted:,} exceeds the {n_there:,} examples of "
                f"{self._title}, {self._source}, that are left to train on: give fewer"
            )
        if n_wanted is not None:
            # The order depends only on the row, so that larger subsets contain smaller ones.
            order = np.random.default_rng(_FIRST_EXAMPLES).permutation(len(chosen))
            places = order[chosen[order]][:n_wanted]
            chosen = np.zeros_like(chosen)
            chosen[places] = True
        return self._some(chosen, "left to train on", "")

    @property
    def selecting(self) -> list[Chosen]:
        """Examples of the selection splits."""
        if self._files.selecting_split:
            return self._published([self._files.selecting_split])
        if self._selects_by_dev:
            return self._published([self._dev])
        remedy = ", or data.select=dev" if self._is_published else ""
        return [self._some(self._is_held_out, "held out for selection", remedy)]

    @property
    def scored(self) -> list[Chosen]:
        """Examples of the scored splits."""
        if self._tests or self._is_published:
            return self._published(self._tests or self._devs)
        return [self._some(self._is_test, "held out for scoring", "")]

    def _published(self, splits: list[str]) -> list[Chosen]:
        for split in splits:
            if not self._files.usable(split).any():
                remedy = ": give data.score_on=dev" if split in self._tests else ""
                raise DataError(
                    f"no row of {self._title}, {split}, has a label to score against"
                    f"{self._reasons(split)}{remedy}"
                )
        return [Chosen(split) for split in splits]

    def _some(self, examples: Bools, what: str, remedy: str) -> Chosen:
        """Return ``examples`` of the divided part; raise DataError if there are none."""
        if examples.any():
            return Chosen(self._source, examples)
        n = int(self._is_usable.sum())
        # Rows with the same texts, source or group stay together.
        n_bundles = len(bundles_of(self._examples(self._is_usable)))
        bundles = f", in {count(n_bundles, 'indivisible group')}" if n_bundles < n else ""
        raise DataError(
            f"no row of {self._title}, {self._source}, is {what}: {n:,} of "
            f"{len(self._is_usable):,} rows have a label{bundles}: give more rows{remedy}"
            f"{self._reasons(self._source)}"
        )

    def _reasons(self, split: str) -> str:
        """Describe the omitted rows of a split, after a colon; empty if there are none."""
        reasons = "; ".join(self._files.left_out(split))
        return f": {reasons}" if reasons else ""

    def _examples(self, chosen: Bools) -> list[Example]:
        examples = self._files.read(self._source).examples
        return [examples[index] for index in np.flatnonzero(chosen)]

    @cached_property
    def _is_usable(self) -> Bools:
        return self._files.usable(self._source)

    @cached_property
    def _is_test(self) -> Bools:
        if self._is_published or self._tests:
            return np.zeros(len(self._is_usable), dtype=np.bool_)
        return self._divided(_TEST_SHARE, len(self._is_usable), self._is_usable)

    @cached_property
    def _is_held_out(self) -> Bools:
        if self._selects_by_dev or self._files.selecting_split:
            return np.zeros(len(self._is_usable), dtype=np.bool_)
        usable = self._is_usable & ~self._is_test
        return self._divided(self._config.held_out, MOST_HELD_OUT, usable)

    def _divided(self, share: float, at_most: int, usable: Bools) -> Bools:
        identity = self._files.identity(self._source)
        key = content_key(
            "divided", identity, share, at_most, len(usable), np.flatnonzero(~usable).tolist()
        )

        def compute() -> Kept:
            is_out = np.zeros(len(usable), dtype=np.uint8)
            is_out[usable] = held_out(self._examples(usable), share, at_most)
            return {"out": is_out}, {}

        arrays, _ = self._files.kept(key, compute)
        is_out: Bools = arrays["out"].astype(np.bool_)
        return is_out


_SHOWN_CLASSES = 10
SAMPLED_ROWS = 500
"""Approximate number of a table's rows on which a tokenizer's losses are measured."""


def prepare_tasks(
    config: DataConfig,
    objective: SupervisedObjective,
    *,
    tokenizer: Tokenizer | None = None,
    cache: Path | None = None,
    trains: bool = True,
) -> Data:
    """Find, read, divide, encode and store the examples of a recipe's tasks.

    ``train`` is the training part without held-out examples, ``valid`` the held-out examples or the
    published development set (``data.select``), ``test`` the published development set, which is
    scored. ``tokenizer`` is the initial model's; without one the recipe's is trained on the
    training part. With ``trains``, a note reports the words that the tokenizer's rules change.

    Raises DataError where files are missing or malformed.
    """
    folder = cache_folder(cache)
    files = find_task_files(config, folder)
    divisions = [TaskDivision(config, task_files) for task_files in files]
    if tokenizer is None and config.tokenizer not in TOKENIZERS:
        tokenizer = tokenizer_of_file(config)
    elif tokenizer is None:
        texts: list[bytes] = []
        for task_files, division in zip(files, divisions, strict=True):
            published, chosen = division.trained
            assert chosen is not None, "the training examples are chosen"
            examples = task_files.read(published).examples
            texts += texts_of(
                (examples[number] for number in np.flatnonzero(chosen).tolist()),
                has_answers=task_files.task.kind == "text",
            )
        with stage(f"training a {config.tokenizer} tokenizer on the training examples"):
            tokenizer = trained_tokenizer(config, texts)
    if config.special_tokens is not None:
        tokenizer = with_special_tokens(tokenizer, config.special_tokens)
    if objective.format == "traversal":
        tokenizer = tokenizer.with_names(TRAVERSAL_NAMES)
    if config.task_names == (NAME,):
        _note_table(files[0], divisions[0], tokenizer, trains=trains)
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
    has_others = any(len(one.encoded) for one in train)
    for one in train:
        labels = set(one.encoded.labels.tolist())
        # In text to text, WSC is learned only from the rows labelled true, as published.
        has_labels = one.task.kind in ("classes", "number") and objective.format != "text"
        if has_labels and len(labels) == 1:
            [only] = labels
            name = one.task.labels[int(only)] if one.task.kind == "classes" else f"{only:g}"
            raise DataError(
                f"{one.task.title}: all {count(len(one.encoded), 'row')} to train on have the "
                f"label {name}: add rows with another label"
            )
        is_answered_alone = objective.format == "text" and not wording_of(one.task).learns
        if len(one.encoded) or (has_others and is_answered_alone):
            continue
        raise DataError(
            f"{one.task.title} has no examples to train on in objective.format = "
            f"{objective.format}: leave {one.task.name} out of data.tasks"
        )
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
    """Join the examples of several tasks into a split."""
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
    # Other formats are the same in training and in scoring.
    trains = trains and (format_ == "text" or windows is not None)
    # With data.train_examples only the chosen examples are encoded; else all, for any division.
    few = None if config.train_examples is None else chosen.examples
    places = None if few is None else np.flatnonzero(few)
    identity = [*files.identity(split), *([] if windows is None else windows)]
    which = [] if places is None else [places.tolist()]
    key = content_key(
        "encoded", ENCODING_VERSION, tokenizer.fingerprint, format_, trains, identity, *which
    )

    def compute() -> Kept:
        examples = files.read(split).examples
        if places is not None:
            examples = [examples[index] for index in places]
        with stage(f"tokenizing {task.title}, {split}"):
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


def _note_table(
    files: TaskFiles, division: TaskDivision, tokenizer: Tokenizer, *, trains: bool
) -> None:
    """Report, by notes, a table's text that a tokenizer loses, and its reading of special tokens.

    With ``trains``, also report the classes of the training rows, and rows of other splits with the
    texts of training rows.
    """
    title, kind, labels = files.task.title, files.task.kind, files.task.labels
    split, chosen = division.trained
    examples = files.read(split).examples
    numbers = np.arange(len(examples)) if chosen is None else np.flatnonzero(chosen)
    learned = [examples[n] for n in numbers.tolist()]
    some = learned[:: max(1, len(learned) // SAMPLED_ROWS)]
    if trains and kind == "classes":
        counts = Counter(example.label for example in learned)
        listed = [f"{labels[n]} {counts[n]:,}" for n in range(min(len(labels), _SHOWN_CLASSES))]
        more = f" and {len(labels) - len(listed):,} more" if len(labels) > len(listed) else ""
        note(f"{title}: {len(labels):,} classes, with training rows: {', '.join(listed)}{more}")
    if trains:
        texts = {example.texts for example in learned}
        for other in dict.fromkeys(part.split for part in (*division.selecting, *division.scored)):
            rows = files.read(other).examples if other != split else []
            n_there = sum(example.texts in texts for example in rows)
            if n_there:
                note(
                    f"{title}, {other}: {n_there:,} of {count(len(rows), 'row')} have the same "
                    "texts as training rows, which inflates the score"
                )
    has_answers = kind == "text"
    note_losses("the table", texts_of(some, has_answers=has_answers), tokenizer, trains=trains)
    note_marks("the table", texts_of(learned, has_answers=has_answers), tokenizer, trains=trains)


def note_marks(shown: str, texts: Sequence[bytes], tokenizer: Tokenizer, *, trains: bool) -> bool:
    """Report, by a note, the reading of special tokens in texts; return whether there are any."""
    if (pattern := marks_pattern(tokenizer.marks)) is None:
        return False
    marks = Counter(mark.decode() for text in texts for mark in pattern.findall(text))
    if marks:
        note(describe_marks(shown, marks, tokenizer, trains=trains))
    return bool(marks)


def texts_of(examples: Iterable[Example], *, has_answers: bool = False) -> list[bytes]:
    """Return the texts of examples, a line each: fields, choices and, if requested, answers."""
    texts = []
    for example in examples:
        texts += [*example.fields.values(), *example.choices]
        if has_answers:
            texts += [answer.text for answer in example.answers]
    return [f"{text}\n".encode() for text in texts]
