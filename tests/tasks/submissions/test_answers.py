"""What is handed in is complete."""

import pytest

from sublayer.errors import DataError
from sublayer.tasks.example import Example
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS
from sublayer.tasks.submissions.answers import Answers, in_order

ROWS = [Example(each, {"sentence": each}, is_labelled=False) for each in ("0", "1", "2")]


def _in_order(ids, rows=ROWS):
    answers = Answers(TASKS["sst2"], "test", rows)
    return in_order(answers, [(each, Prediction(number)) for number, each in enumerate(ids)])


def test_predictions_are_put_into_the_order_of_rows():
    assert [each.label for each in _in_order(["2", "0", "1"])] == [1, 2, 0]


def test_a_row_without_prediction_is_named():
    with pytest.raises(DataError, match=r"2 of the 3 rows of SST-2 \(test\).*the id '1'"):
        _in_order(["0"])


def test_two_predictions_for_one_row_are_refused():
    with pytest.raises(DataError, match="two predictions with the id '1'"):
        _in_order(["0", "1", "1", "2"])


def test_two_rows_with_one_id_are_refused():
    with pytest.raises(DataError, match="two rows with the id '0'"):
        _in_order(["0", "1", "2"], [*ROWS, ROWS[0]])


def test_a_prediction_for_no_row_is_named():
    with pytest.raises(DataError, match="1 prediction for .* belong to none .*'x'"):
        _in_order(["0", "1", "2", "x"])
