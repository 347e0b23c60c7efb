"""How many of something there are is said in one way, with the singular where it is one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sublayer
from sublayer.counts import count
from sublayer.study.report.arm_names import _FORMS, name_setting

PACKAGE = Path(sublayer.__file__).parent
PLURALS = ("runs", "steps", "seeds", "epochs", "documents", "pairs", "lines", "checkpoints")
NEVER_ONE = {
    ("study/report/caveats.py", "seeds"): "one is said in words",
    ("study/report/caveats.py", "runs"): "jobs and arms are two or more",
    ("study/report/messages.py", "seeds"): "a verdict takes three seeds",
    ("study/report/messages.py", "runs"): "a verdict takes three of each arm",
    ("study/report/choices.py", "seeds"): "one is not said",
    ("study/report/spread_words.py", "seeds"): "looks are at three or more",
    ("study/report/spread_words.py", "runs"): "of several arms with several seeds each",
    ("study/judgement/stopping.py", "seeds"): "looks are at three or more",
    ("study/judgement/sequence.py", "seeds"): "looks are at three or more",
    ("study/foresight.py", "seeds"): "a verdict takes three seeds",
    ("study/folder.py", "seeds"): "the last of several looks",
    ("study/header.py", "seeds"): "the most of several looks",
    ("study/report/same_quality_words.py", "seeds"): "a range takes two seeds",
    ("study/report/same_quality_words.py", "runs"): "in only some of several",
    ("objective/supervised/ensemble/evaluation.py", "runs"): "ensembles are of two or more",
    ("objective/supervised/ensemble/rendering.py", "runs"): "some are chosen of several",
    ("study/execution/side_by_side.py", "runs"): "side by side are two or more",
    ("study/finished_runs.py", "steps"): "a lengthened run has more steps than it had",
    ("study/header.py", "steps"): "the end of a range",
    ("training/step_time.py", "steps"): "one is said in words",
    ("runs/small_test.py", "documents"): "one is said in words",
    ("data/corpora/published.py", "runs"): "no number stands before it",
    ("objective/masked/scores.py", "pairs"): "no number stands before it",
}
"""Where the number before a plural is never one, and why."""


@pytest.mark.parametrize(
    ("number", "unit", "form", "text"),
    [
        (1, "step", ",", "1 step"),
        (0, "step", ",", "0 steps"),
        (2000, "step", ",", "2,000 steps"),
        (1, "process", ",", "1 process"),
        (2, "process", ",", "2 processes"),
        (3, "sentence", ",", "3 sentences"),
        (1.0, "epoch", ".3g", "1 epoch"),
        (1.004, "epoch", ".3g", "1 epoch"),
        (0.5, "epoch", ".3g", "0.5 epochs"),
        (7, "more seed", ",", "7 more seeds"),
    ],
)
def test_a_number_of_things(number: float, unit: str, form: str, text: str) -> None:
    assert count(number, unit, form) == text


def test_a_setting_of_one_is_named_in_the_singular() -> None:
    # What is a name is no number.
    numbers = _FORMS.keys() - {"model.positions", "data.tokenizer"}
    named = [name_setting(field, 1) for field in numbers]
    assert [text for text in named if re.search(r"\b1 \w+s\b", text)] == []


def texts(path: Path) -> Iterator[tuple[bool, str]]:
    """The texts of a file's strings; with each, whether a value stands before it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield False, node.value
        if isinstance(node, ast.JoinedStr):
            for before, part in zip([None, *node.values], node.values, strict=False):
                if isinstance(part, ast.Constant):
                    yield isinstance(before, ast.FormattedValue), str(part.value)


def test_no_message_leaves_the_number_to_its_reader() -> None:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        for follows_value, text in texts(path):
            if "(s)" in text:
                found.append((name, text))
            words = text.replace(":", " ").replace(",", " ").split()
            plural = words[0] if follows_value and text.startswith(" ") and words else ""
            if plural in PLURALS and (name, plural) not in NEVER_ONE:
                found.append((name, text))
    assert found == []
