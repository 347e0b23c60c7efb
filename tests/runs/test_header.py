"""What is said of a run before its first step, and of a test split that is small."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sublayer.config.data import DataConfig
from sublayer.config.layering.layers import load_recipe
from sublayer.data.prepare import Data, prepare
from sublayer.runs.header import text_rows
from sublayer.runs.small_test import describe_small_test


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    Path("book.txt").write_text("the cat sat on the mat. " * 100)
    return "book.txt"


LANGUAGES = {"source_language": "en", "target_language": "de"}
PAIRS = {**LANGUAGES, "source_path": "train.en", "target_path": "train.de"}
PAIRS |= {"tokenizer": "word-bpe", "vocab_size": 60}
VALID = {"valid_source_path": "valid.en", "valid_target_path": "valid.de"}
TEST = {"test_source_path": "test.en", "test_target_path": "test.de"}


def rows_of(data: dict[str, Any], recipe: str) -> dict[str, str]:
    """The rows of a text; what is said of a test split stands with the row above it."""
    config = DataConfig.model_validate(data)
    found: dict[str, str] = {}
    for name, value in text_rows(
        load_recipe(recipe).recipe.model_copy(update={"data": config}), prepare(config)
    ):
        name = name or next(reversed(found))
        found[name] = f"{found.get(name, '')} {value}".strip()
    return found


def test_a_header_names_the_files_of_each_split_beside_their_sizes(text: str) -> None:
    for name, n_pairs in (("train", 200), ("valid", 30), ("test", 40)):
        for language in ("en", "de"):
            lines = (f"a cat sat on mat {n:03}\n" for n in range(n_pairs))
            Path(f"{name}.{language}").write_text("".join(lines))
    given = "train.en and train.de: 200 pairs, en to de, 8,000 bytes"
    valid = "valid.en and valid.de: 30 pairs, 1,200 bytes"
    test = "test.en and test.de: 40 pairs, 1,600 bytes"
    rows = rows_of({**PAIRS, **VALID}, "multi30k-tiny")
    assert (rows["text"], rows["validation"]) == (given, valid)
    assert rows["split"] == "190 / 10 pairs to train and test on"
    rows = rows_of({**PAIRS, **VALID, **TEST}, "multi30k-tiny")
    assert (rows["text"], rows["validation"], rows["test"]) == (given, valid, test)
    assert "split" not in rows
    Path("other.txt").write_text("the dog ran. " * 100)
    rows = rows_of({"path": text, "valid_path": "other.txt"}, "gpt")
    assert rows["text"] == "book.txt: 1 document, 2,400 bytes"
    assert rows["split"].startswith("2,280 / 120 bytes to train and test on the test split is part")
    assert rows["validation"] == "other.txt: 1 document, 1,300 bytes"


def data_of(test: int, *, is_cut: bool = False, **more: Any) -> Data:
    split = SimpleNamespace(
        document_starts=range(test), is_cut=is_cut, read_pairs=more.get("read_pairs")
    )
    return cast(Data, SimpleNamespace(test=split))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (data_of(1, is_cut=True), "part of one document"),
        (data_of(9), "9 documents"),
        (data_of(5, read_pairs=list), "5 pairs of texts"),
    ],
)
def test_a_small_test_split_is_noted(data: Data, expected: str) -> None:
    said = describe_small_test(data)
    assert said is not None
    assert said.startswith(f"the test split is {expected}")
    assert describe_small_test(data_of(10)) is None
