"""What is said of a run before its first step, and of a test split that is small."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sublayer.config.data import DataConfig
from sublayer.config.layering.layers import load_recipe
from sublayer.data.prepare import Data, prepare
from sublayer.runs.header import text_rows
from sublayer.runs.run import train_run
from sublayer.runs.small_test import describe_small_test
from sublayer.training.progress import SilentProgress

SETTINGS = {
    "model.n_layers": 1,
    "model.d_model": 16,
    "model.n_heads": 2,
    "data.context": 16,
    "data.tokenizer": "bytes",
    "train.steps": 4,
    "train.batch_sequences": 2,
    "train.precision": "float32",
    "train.threads": 1,
}


class Heard(SilentProgress):
    """Keeps what is said."""

    is_alone = True

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


def header(heard: Heard) -> dict[str, str]:
    """The rows of a header by their names; the lines of a long one are joined."""
    rows: dict[str, str] = {}
    name = ""
    for line in heard.lines:
        assert len(line) <= 80
        name = line[:11].strip() or name
        rows[name] = f"{rows.get(name, '')} {line[11:].strip()}".strip()
    return rows


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    Path("book.txt").write_text("the cat sat on the mat. " * 100)
    return "book.txt"


def test_a_header_says_what_is_trained_on_what_and_where(text: str) -> None:
    heard = Heard()
    loaded = load_recipe("gpt", {**SETTINGS, "data.path": text})
    record = train_run(loaded, Path("runs/a"), device="cpu", progress=heard)
    rows = header(heard)
    assert rows["text"] == "book.txt: 1 document, 2,400 bytes"
    assert rows["split"].startswith("2,160 / 120 / 120 bytes to train, validate and test on")
    assert "the test split is part of one document" in rows["split"]
    assert rows["tokenizer"] == "bytes, 256 ids"
    assert rows["model"] == f"decoder, {record['parameters']['training']:,} parameters"
    assert rows["device"] == "cpu, float32, 1 thread"
    assert rows["batch"].startswith("32 tokens a step: 2 sequences of 16, ")
    assert rows["length"] == "4 steps, 0.0593 epochs"
    assert rows["folder"] == "runs/a"
    assert rows["expected"] == "said after the first steps"
    # The next run of this size knows the pace of the first.
    train_run(loaded, Path("runs/b"), device="cpu", progress=(later := Heard()))
    assert header(later)["expected"].startswith("about 0:")


PAIRS = {
    "source_path": "train.en",
    "target_path": "train.de",
    "source_language": "en",
    "target_language": "de",
    "tokenizer": "word-bpe",
    "vocab_size": 60,
}
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
        (data_of(2, is_cut=True), "parts of 2 documents"),
        (data_of(9), "9 documents"),
        (data_of(5, read_pairs=list), "5 pairs of texts"),
    ],
)
def test_a_small_test_split_is_noted(data: Data, expected: str) -> None:
    said = describe_small_test(data)
    assert said is not None
    assert said.startswith(f"the test split is {expected}")
    assert describe_small_test(data_of(10)) is None
