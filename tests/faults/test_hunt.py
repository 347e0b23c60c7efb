"""The hunt for seeded faults: which of the recorded tests it runs."""

from tests.faults.hunt import collect, keep_tests

TESTS = """
import pytest


def test_a():
    pass


@pytest.mark.parametrize("text", ["x y", "a\\tb"])
def test_b(text):
    pass
"""


def test_recorded_tests_that_no_longer_exist_are_left_out(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    there = ["test_it.py::test_b[x y]", "test_it.py::test_a", r"test_it.py::test_b[a\tb]"]
    gone = ["test_it.py::test_b[z]", "test_gone.py::test_a"]
    assert collect(tmp_path) == set(there)
    known = {
        "seconds": dict.fromkeys((*there, *gone), 1.0),
        "reached": {"3": [gone[0], there[0], gone[1], there[1]], "5": gone},
    }
    seconds, reached = keep_tests(known, collect(tmp_path))
    assert (list(seconds), reached) == (there, {"3": there[:2], "5": []})
