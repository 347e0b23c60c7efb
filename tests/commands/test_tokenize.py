"""``sublayer tokenize`` trains tokenizers that recipes can use, and shows the tokens of a text."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from sublayer.data.tokenizer import load_tokenizer

Sublayer = Callable[..., tuple[int, str, str]]


def test_a_trained_tokenizer_is_kept_and_used(sublayer: Sublayer, trained: Path, tmp_path: Path) -> None:
    text, out = trained.parent / "text.txt", tmp_path / "tokenizer.json"
    code, shown, err = sublayer("tokenize", "--path", text, "--vocab-size", 270, "--out", out)
    assert (code, err) == (0, "")
    assert shown.startswith(f"trained bpe of 270 ids: {out}\n")
    found = json.loads(sublayer("tokenize", out, "--text", "the cat sät", "--json")[1])
    tokenizer = load_tokenizer(out)
    assert tokenizer.decode(found["ids"]) == "the cat sät".encode()
    assert (found["tokens"], found["bytes"]) == (len(found["ids"]), 12)
    assert found["tokens"] < 12
    assert found["bytes_per_token"] == 12 / found["tokens"]


def test_what_a_vocabulary_lacks_is_counted(sublayer: Sublayer, tmp_path: Path) -> None:
    codes = tmp_path / "bpe.codes"
    codes.write_text("#version: 0.2\nd o\ndo g</w>\n")
    assert json.loads(sublayer("tokenize", codes, "--text", "dog zoo", "--json")[1])["unknown"] == 1
    assert sublayer("tokenize", codes, "--text", "dog zoo")[1].splitlines()[-1].startswith("4 tokens, 1 unknown, 7 ")
    assert sublayer("tokenize", codes, "--text", "dog")[1].splitlines()[-1].startswith("1 tokens, 3 bytes")


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "moses-bpe", "word-bpe"])
def test_vocabularies_for_masks_are_trained_and_shown(
    sublayer: Sublayer, trained: Path, tmp_path: Path, kind: str
) -> None:
    text, out = trained.parent / "text.txt", tmp_path / "tokenizer.json"
    code, shown, err = sublayer("tokenize", "--path", text, "--kind", kind, "--vocab-size", 90, "--out", out)
    assert code == 0, err
    assert shown.startswith(f"trained {kind} of ")
    found = json.loads(sublayer("tokenize", out, "--text", "the cat", "--json")[1])
    assert "".join(found["pieces"]).replace(" ", "").replace("#", "") == "thecat"


def test_a_vocabulary_that_the_text_cannot_fill_is_said_to_be_smaller(sublayer: Sublayer, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(f"ab ba {'ab' * n}." for n in range(400)))
    asked = ("tokenize", "--path", tmp_path / "text.txt", "--documents", "blank-line", "--vocab-size", 5000)
    code, shown, err = sublayer(*asked, "--out", tmp_path / "tokenizer.json", "--json")
    assert code == 0, err
    assert err == f"the text fills {json.loads(shown)['vocab_size']} of 5,000 ids\n"


def test_documents_are_of_a_text_that_is_read(sublayer: Sublayer, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[UNK]\nthe\n")
    code, _, err = sublayer("tokenize", tmp_path, "--documents", "file", "--text", "the")
    assert (code, "--documents" in err) == (2, True)


def test_a_folder_of_published_files_is_used(sublayer: Sublayer, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[UNK]\nthe\ncat\n")
    assert json.loads(sublayer("tokenize", tmp_path, "--text", "the Cat sat", "--json")[1])["ids"] == [1, 2, 0]


def test_tokens_of_a_run_are_shown_with_blanks_in_sight(sublayer: Sublayer, trained: Path) -> None:
    code, out, err = sublayer("tokenize", trained, "--text", "a é")
    assert (code, err) == (0, "")
    assert [line.split(maxsplit=1) for line in out.splitlines()[2:-1]] == [
        ["97", '"a"'], ["32", '" "'], ["195", '"\\xc3"'], ["169", '"\\xa9"'],
    ]  # fmt: skip
    assert out.splitlines()[-1] == "4 tokens, 4 bytes, 1.00 bytes per token"


def test_text_is_read_from_standard_input(sublayer: Sublayer, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"\xffab"), isatty=lambda: False))
    found = json.loads(sublayer("tokenize", trained, "--json")[1])
    assert found["ids"] == [255, 97, 98]
    assert found["pieces"] == ["\\xff", "a", "b"]


def test_what_cannot_be_tokenized_is_refused_in_a_line(sublayer: Sublayer, trained: Path, tmp_path: Path) -> None:
    text = trained.parent / "text.txt"
    (tmp_path / "taken.json").write_text("kept")
    for words, message in (
        ((), "give either a run or a tokenizer"),
        ((trained, "--path", text), "give either a run or a tokenizer"),
        ((trained, "--out", tmp_path / "new.json"), "--out keeps a tokenizer that is trained"),
        (("--path", text), "--out is missing"),
        (("--path", text, "--out", tmp_path / "taken.json"), "nothing is overwritten"),
        (("--path", text, "--vocab-size", 256, "--out", tmp_path / "new.json"), "too small for bpe"),
        (("--path", tmp_path / "nowhere", "--out", tmp_path / "new.json"), "no such file or folder"),
        ((text, "--text", "x"), "is not a tokenizer"),
        ((tmp_path / "nowhere", "--text", "x"), "does not exist"),
    ):
        code, out, err = sublayer("tokenize", *words)
        assert (code, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken.json"]
    assert (tmp_path / "taken.json").read_text() == "kept"
