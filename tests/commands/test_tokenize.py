"""``sublayer tokenize`` trains tokenizers for recipes, and shows the tokens of a text."""

from pathlib import Path
from typing import Any

import pytest

from sublayer.data.tokenizers.named import load_tokenizer
from tests.commands.conftest import StandardInput
from tests.commands.results import Sublayer


def tokens_of(sublayer: Sublayer, source: Path, text: str) -> dict[str, Any]:
    return sublayer("tokenize", source, "--text", text, "--json").found()


def last_line(sublayer: Sublayer, source: Path, text: str) -> str:
    return sublayer("tokenize", source, "--text", text).out.splitlines()[-1]


def test_a_trained_tokenizer_is_kept_and_used(
    sublayer: Sublayer, trained: Path, tmp_path: Path
) -> None:
    text, out = trained.parent / "text.txt", tmp_path / "tokenizer.json"
    shown = sublayer("tokenize", "--path", text, "--vocab-size", 270, "--out", out).shown()
    assert shown.startswith(f"trained bpe of 270 ids: {out}\n")
    found = tokens_of(sublayer, out, "the cat sät")
    n_tokens = len(found["ids"])
    assert load_tokenizer(out).decode(found["ids"]) == "the cat sät".encode()
    assert (found["tokens"], found["bytes"]) == (n_tokens, 12)
    assert n_tokens < 12
    assert found["bytes_per_token"] == 12 / n_tokens


def test_what_a_vocabulary_lacks_is_counted(sublayer: Sublayer, tmp_path: Path) -> None:
    codes = tmp_path / "bpe.codes"
    codes.write_text("#version: 0.2\nd o\ndo g</w>\n")
    assert tokens_of(sublayer, codes, "dog zoo")["unknown"] == 1
    assert last_line(sublayer, codes, "dog zoo").startswith("4 tokens, 1 unknown, 7 ")
    assert last_line(sublayer, codes, "dog").startswith("1 token, 3 bytes")


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "moses-bpe", "word-bpe", "gpt1-bpe"])
def test_vocabularies_for_masks_are_trained_and_shown(
    sublayer: Sublayer, trained: Path, tmp_path: Path, kind: str
) -> None:
    text, out = trained.parent / "text.txt", tmp_path / "tokenizer.json"
    asked = ("tokenize", "--path", text, "--kind", kind, "--vocab-size", 90)
    code, shown, err = sublayer(*asked, "--out", out)
    assert code == 0, err
    assert shown.startswith(f"trained {kind} of ")
    joined = "".join(tokens_of(sublayer, out, "the cat")["pieces"])
    assert joined.replace(" ", "").replace("#", "") == "thecat"


def test_sentinels_are_trained_and_kept(sublayer: Sublayer, trained: Path, tmp_path: Path) -> None:
    text, out = trained.parent / "text.txt", tmp_path / "tokenizer.json"
    asked = ("tokenize", "--path", text, "--vocab-size", 60, "--out", out, "--sentinels", 7)
    code, _, err = sublayer(*asked)
    assert code == 2
    assert "data.sentinels = 7 needs data.tokenizer = unigram, it is 'bpe'" in err
    assert sublayer(*asked, "--kind", "unigram").code == 0
    kept = load_tokenizer(out)
    assert kept.sentinel_ids[0] == kept.vocab_size - 1
    assert len(kept.sentinel_ids) == 7
    ids = tokens_of(sublayer, out, "the <extra_id_0>")["ids"]
    assert not set(kept.sentinel_ids) & set(ids)


def test_a_folder_of_published_files_is_used(sublayer: Sublayer, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[UNK]\nthe\ncat\n")
    assert tokens_of(sublayer, tmp_path, "the Cat sat")["ids"] == [1, 2, 0]


def test_tokens_of_a_run_are_shown_with_blanks_in_sight(sublayer: Sublayer, trained: Path) -> None:
    lines = sublayer("tokenize", trained, "--text", "a é").shown().splitlines()
    rows = [line.split(maxsplit=1) for line in lines[2:-1]]
    assert rows == [["97", '"a"'], ["32", '" "'], ["195", '"\\xc3"'], ["169", '"\\xa9"']]
    assert lines[-1] == "4 tokens, 4 bytes, 1.00 bytes per token"


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
