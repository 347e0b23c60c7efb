"""What makes a comparison's folder that of the comparison that is asked for."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from sublayer.config.layering.layers import load_recipe, vary
from sublayer.errors import ConfigError
from sublayer.study.arms import Arm
from sublayer.study.budget.budget import MatchedArm
from sublayer.study.budget.shared_tokenizer import keep_tokenizer
from sublayer.study.folder import StudyFolder
from sublayer.study.plan_file import Request

SETTINGS = {"train.steps": 5, "data.path": "book.txt"}


def request_of(**settings: Any) -> Request:
    base = load_recipe("gpt", {**SETTINGS, **settings})
    arms = tuple(
        Arm(ffn, vary(base, {"model.ffn": ffn}), {"model.ffn": ffn}) for ffn in ("relu", "gelu")
    )
    return Request(arms, "parameters", ())


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A folder in which a comparison has begun, as a version with fewer fields wrote it."""
    request = request_of()
    folder = StudyFolder(tmp_path, request)
    folder.begin([MatchedArm(arm, {}, (), 0.0) for arm in request.arms], {})
    path = tmp_path / "study.toml"
    plan = tomllib.loads(path.read_text())
    for name, text in plan["asked"]["recipes"].items():
        recipe = tomllib.loads(text)
        del recipe["title"]
        recipe["source"] = "A sentence that has been mended since."
        for table, field in (("model", "norm"), ("data", "windows"), ("train", "seed")):
            del recipe[table][field]
        plan["asked"]["recipes"][name] = tomli_w.dumps(recipe)
    path.write_text(tomli_w.dumps(plan))
    return tmp_path


def test_fields_and_words_that_came_since_make_no_other_study(begun: Path) -> None:
    folder = StudyFolder(begun, request_of())
    folder.check()
    assert folder.is_ours()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"model.dropout": 0.1}, "its arm relu has dropout = 0.0, not dropout = 0.1"),
        ({"model.norm": "rms"}, "its arm relu has .*, not .*rms"),
        ({"data.context": 64}, "its arm relu has context = 128, not context = 64"),
    ],
)
def test_another_setting_makes_another_study(
    begun: Path, settings: dict[str, Any], named: str
) -> None:
    folder = StudyFolder(begun, request_of(**settings))
    assert not folder.is_ours()
    with pytest.raises(ConfigError, match=named):
        folder.check()


@pytest.mark.parametrize("begins", [False, True])
def test_a_tokenizer_is_kept_only_of_a_study_that_begins(tmp_path: Path, begins: bool) -> None:
    request = request_of()
    out = tmp_path / "out"
    folder = StudyFolder(out, request)
    with folder.held():
        path = keep_tokenizer(out, b"one")
        assert path.read_bytes() == b"one"
        if begins:
            folder.begin([MatchedArm(arm, {}, (), 0.0) for arm in request.arms], {})
    assert out.exists() == path.exists() == begins


def test_a_tokenizer_that_was_there_stays(tmp_path: Path) -> None:
    path = keep_tokenizer(tmp_path, b"another's")
    with StudyFolder(tmp_path, request_of()).held():
        assert keep_tokenizer(tmp_path, b"one") != path
    assert [each.read_bytes() for each in tmp_path.glob(".tokenizer*")] == [b"another's"]
