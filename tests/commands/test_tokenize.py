"""``sublayer tokenize`` trains tokenizers for recipes, and shows the tokens of a text."""

from pathlib import Path
from typing import Any

from tests.commands.conftest import StandardInput
from tests.commands.results import Sublayer


def tokens_of(sublayer: Sublayer, source: Path, text: str) -> dict[str, Any]:
    return sublayer("tokenize", source, "--text", text, "--json").found()


def last_line(sublayer: Sublayer, source: Path, text: str) -> str:
    return sublayer("tokenize", source, "--text", text).out.splitlines()[-1]


def test_what_a_vocabulary_lacks_is_counted(sublayer: Sublayer, tmp_path: Path) -> None:
    codes = tmp_path / "bpe.codes"
    codes.write_text("#version: 0.2\nd o\ndo g</w>\n")
    assert tokens_of(sublayer, codes, "dog zoo")["unknown"] == 1
    assert last_line(sublayer, codes, "dog zoo").startswith("4 tokens, 1 unknown, 7 ")
    assert last_line(sublayer, codes, "dog").startswith("1 token, 3 bytes")


def test_a_folder_of_published_files_is_used(sublayer: Sublayer, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[UNK]\nthe\ncat\n")
    assert tokens_of(sublayer, tmp_path, "the Cat sat")["ids"] == [1, 2, 0]


def test_text_is_read_from_standard_input(
    sublayer: Sublayer, trained: Path, standard_input: StandardInput
) -> None:
    standard_input(b"\xffab")
    found = sublayer("tokenize", trained, "--json").found()
    assert found["ids"] == [255, 97, 98]
    assert found["pieces"] == ["\\xff", "a", "b"]


def test_gpt1s_rules_are_trained_replaced_and_compared(
    sublayer: Sublayer, trained: Path, tmp_path: Path, standard_input: StandardInput
) -> None:
    text, out = trained.parent / "text.txt", tmp_path / "tokenizer.json"
    asked = ("tokenize", "--path", text, "--kind", "gpt1-bpe", "--vocab-size", 70)
    sublayer(*asked, "--normalization", "transformers", "--out", out).shown()
    fast = tokens_of(sublayer, out, "can't")
    kept = tmp_path / "published.json"
    shown = sublayer("tokenize", out, "--normalization", "published", "--out", kept).shown()
    assert shown.strip() == f"gpt1-bpe of 70 ids, published text rules: {kept}"
    published = tokens_of(sublayer, kept, "can't")
    assert published["pieces"] != fast["pieces"]
    for source in (out, kept):
        standard_input(b"can't\ncan't cat")
        found = sublayer("tokenize", source, "--differences", "--json").found()
        assert (found["words"], found["different"], found["bytes"]) == (3, 2, 15)
        assert found["changes"] == [
            {"published": ["ca", "n't"], "transformers": ["can", "'", "t"], "times": 2}
        ]
        assert found["published"]["tokens"] > 0 == found["transformers"]["line_ends"]
    shown = sublayer("tokenize", out, "--differences", "--text", "can't cat").shown()
    assert "of 2 words that whitespace divides 1 differ (50.0%)" in shown
    assert shown.splitlines()[-1].split() == ["1", "ca", "n't", "can", "'", "t"]
