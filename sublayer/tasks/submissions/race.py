"""RACE's answers as letters; its authors take no file, so its form is ours."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

from sublayer.counts import count
from sublayer.tasks.submissions.answers import Answers, file_prefix, given_predictions, in_order
from sublayer.tasks.submissions.folder import Submission, write_submission

_LETTERS = "ABCDEFGHIJ"


def write_race(path: Path, answers: Sequence[Answers]) -> Submission:
    """Write a new folder with ``answers.json``, an object of ids and letters, and ``answers.csv``.

    What is none of the options is A, and counted in the notes. Otherwise as ``write_squad``.
    """
    contents, notes = {}, []
    for each in answers:
        predictions = in_order(each, given_predictions(each))
        letters = {
            example.id: _LETTERS[int(given.label or 0)]
            for example, given in zip(each.examples, predictions, strict=True)
        }
        prefix = file_prefix(each, answers)
        contents[f"{prefix}answers.json"] = json.dumps(letters, indent=0) + "\n"
        contents[f"{prefix}answers.csv"] = _csv(letters)
        n_outside = sum(given.label is None for given in predictions)
        if n_outside:
            notes.append(
                f"{each.title}: {count(n_outside, 'question')} answered with none of the options; "
                "A is written"
            )
    return write_submission(path, contents, notes, has_archive=False)


def _csv(letters: dict[str, str]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("id", "answer"))
    writer.writerows(letters.items())
    return buffer.getvalue()
