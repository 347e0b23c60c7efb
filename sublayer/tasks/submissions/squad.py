"""SQuAD's prediction files, as its evaluation scripts read them."""

import json
from collections.abc import Sequence
from pathlib import Path

from sublayer.tasks.submissions.answers import Answers, file_prefix, given_predictions, in_order
from sublayer.tasks.submissions.folder import Submission, write_submission


def write_squad(path: Path, answers: Sequence[Answers]) -> Submission:
    """Write a new folder with ``predictions.json``: an object of ids and answers, empty for none.

    Of 2.0 ``null_odds.json`` has each id's score of no answer. With several splits the names begin
    with the task's and the split's. Raises DataError where rows are missing, stand twice, are
    unknown or have no predictions, and where there is something at ``path``.
    """
    contents = {}
    for each in answers:
        ids = [example.id for example in each.examples]
        predictions = in_order(each, given_predictions(each))
        prefix = file_prefix(each, answers)
        texts = {id_: given.text for id_, given in zip(ids, predictions, strict=True)}
        contents[f"{prefix}predictions.json"] = _json(texts)
        if each.task.has_unanswerable:
            odds = {id_: given.no_answer for id_, given in zip(ids, predictions, strict=True)}
            contents[f"{prefix}null_odds.json"] = _json(odds)
    return write_submission(path, contents, (), has_archive=False)


def _json(values: dict[str, str] | dict[str, float]) -> str:
    return json.dumps(values, ensure_ascii=False, indent=0) + "\n"
