"""Submissions: predictions in publishers' formats, complete and checked.

Sources: GLUE's eleven TSV files: gluebenchmark.com, its FAQ; SuperGLUE's ten files of JSON lines:
super.gluebenchmark.com and jiant's writer, with MultiRC's rows as passages with their questions and
answers, and ReCoRD's labels as texts.
"""

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from sublayer.errors import DataError
from sublayer.files.storage import new_folder
from sublayer.numbers import count
from sublayer.tasks.baselines import BASELINES
from sublayer.tasks.published import SAME_ID, AnswerFile, Published, ReadSplit
from sublayer.tasks.registry import SUITES, read_split
from sublayer.tasks.task import Example, Prediction, Task


@dataclass(frozen=True)
class Answers:
    """A split and its predictions."""

    task: Task
    split: str
    """Such as ``test``, or ``test_matched``."""
    examples: Sequence[Example]
    predictions: Sequence[Prediction] | None = None
    """Predictions of the examples; None where no model was trained: then the majority's answer is
    submitted, with a note."""
    train: Sequence[Example] = ()
    """Examples that determine the majority."""

    @property
    def title(self) -> str:
        """Return its name in messages."""
        return f"{self.task.title} ({self.split})"


ARCHIVE = "submission.zip"
NOTES = "NOTES.txt"
_DATE = (1980, 1, 1, 0, 0, 0)
"""Fixed, so that equal files make equal archives."""


class Submission(NamedTuple):
    """A written submission."""

    suite: str
    path: Path
    files: tuple[str, ...]
    """Names of the files; ``ARCHIVE``, if written, holds them all."""
    notes: tuple[str, ...]
    """Notes on rows filled in or left out and on incomplete files, a line each; also written to
    ``NOTES``, if any."""


def write_submission(
    path: Path, files: Mapping[str, str], notes: Sequence[str], *, has_archive: bool
) -> None:
    """Write files, by name, and their archive into a new folder, all or nothing.

    Raises DataError where ``path`` exists, or cannot be written.
    """
    try:
        with new_folder(path) as folder:
            for name, content in files.items():
                (folder / name).write_text(content, encoding="utf-8", newline="")
            if has_archive:
                with zipfile.ZipFile(folder / ARCHIVE, "w") as archive:
                    for name, content in files.items():
                        info = zipfile.ZipInfo(name, _DATE)
                        info.compress_type = zipfile.ZIP_DEFLATED
                        info.external_attr = 0o644 << 16
                        archive.writestr(info, content.encode())
            if notes:
                text = "".join(f"{line}\n" for line in notes)
                (folder / NOTES).write_text(text, encoding="utf-8", newline="")
    except FileExistsError:
        raise DataError(f"{path} exists: name a new folder") from None
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}") from None


_ONE_FOR_ALL = "one answer: the published training set's majority, or the first of balanced classes"


def asked_sets(suite: str) -> list[tuple[Published, AnswerFile]]:
    """Return the sets required by a suite's publisher, with their prediction files."""
    files = [(row, file) for row in SUITES[suite].rows for file in row.submission]
    return sorted(files, key=lambda of_row: of_row[1].position)


SUBMITTED = tuple(filter(asked_sets, SUITES))
"""Suites with a publisher that takes predictions."""


def read_test_set(task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    """Read a set for submission.

    Raises DataError where a row would be left out, or two rows share an id: a submission is
    complete.
    """
    read = read_split(task, split, paths)
    problems = [*read.skipped, *(what for what in read.repaired if what == SAME_ID)]
    if problems:
        first = problems[0]
        n = read.skipped[first] or read.repaired[first]
        raise DataError(
            f"{read.firsts[first]}: {first} (in {n:,}): a submission needs an answer for each row, "
            "by its id: correct the file"
        )
    return read


def write_predictions(suite: str, path: Path, answers: Sequence[Answers]) -> Submission:
    """Write a new folder with the files that a suite's publisher takes.

    For a suite submitted as a whole, the files are also packed into an archive. In it, splits
    missing from ``answers``, or without predictions, get the majority's answer in each row, with a
    note; without examples, MultiRC and ReCoRD are left out, since their rows cannot be generated.
    For other suites, file names begin with the task's name and the split's where there are several
    splits.

    Raises DataError where a split has no predictions, occurs twice or is not the suite's, a
    predicted number is not finite, or ``path`` exists.
    """
    by_set = {(answer.task.name, answer.split): answer for answer in answers}
    files = {(row.task.name, file.split): (row, file) for row, file in asked_sets(suite)}
    for answer in answers:
        if (answer.task.name, answer.split) not in files:
            raise DataError(f"{answer.title} is not part of this submission: leave it out")
        if by_set[answer.task.name, answer.split] is not answer:
            raise DataError(f"{answer.title} is given twice: give it once")
    contents: dict[str, str] = {}
    notes: list[str] = []
    for key, (row, file) in files.items():
        available, prefix = by_set.get(key), ""
        if file.most is None:
            if available is None:
                continue
            if available.predictions is None:
                raise DataError(f"{available.title} has no predictions: predict it first")
            examples, predictions = available.examples, available.predictions
            prefix = f"{row.task.name}-{file.split}-" if len(answers) > 1 else ""
        elif available is not None:
            examples, predictions = available.examples, _filled(file, file.most, available, notes)
        elif file.n_rows:
            examples = [Example(str(number), {}) for number in range(file.n_rows)]
            predictions = [file.most] * file.n_rows
            notes.append(
                f"{file.name}: not trained, and its rows are not available; all {file.n_rows:,} "
                f"published rows have {_ONE_FOR_ALL}"
            )
        else:
            notes.append(
                f"{file.name}: left out: not trained, and the passages for its rows are not "
                "available"
            )
            continue
        pairs = list(zip(examples, predictions, strict=True))
        written = row.answer_files(file, pairs, notes)
        contents |= {f"{prefix}{name}": content for name, content in written.items()}
    is_whole = any(file.most is not None for _, file in files.values())
    write_submission(path, contents, notes, has_archive=is_whole)
    return Submission(suite, path, tuple(contents), tuple(notes))


def _filled(
    file: AnswerFile, most: Prediction, answers: Answers, notes: list[str]
) -> list[Prediction]:
    """Return a prediction for each row, the majority's where there is none, and add notes."""
    predictions = answers.predictions
    if predictions is None:
        predictions, how = [most] * len(answers.examples), _ONE_FOR_ALL
        if answers.train:
            majority = BASELINES["majority"]
            predictions = majority.predict(answers.task, answers.train, answers.examples)
            how = majority.describe(answers.task)
        notes.append(f"{file.name}: not trained; every row has {how}")
    filled = [
        replace(prediction, label=most.label)
        if prediction.label is None and not (file.takes_text and prediction.text)
        else prediction
        for prediction in predictions
    ]
    n_outside = sum(new is not old for new, old in zip(filled, predictions, strict=True))
    if n_outside:
        notes.append(
            f"{file.name}: {count(n_outside, 'row')} answered outside the labels, and the "
            "majority's label is written"
        )
    if file.n_rows and len(predictions) != file.n_rows:
        notes.append(f"{file.name}: {len(predictions):,} of the {file.n_rows:,} published rows")
    return filled
