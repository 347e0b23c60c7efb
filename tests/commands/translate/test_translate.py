"""``sublayer translate`` writes a line for each line, and refuses what it cannot do in a line."""

import json
from collections.abc import Iterator
from pathlib import Path

from sublayer.loading import load
from tests.commands.translate.conftest import Translate


def test_lines_are_translated_in_order(translate: Translate, translator: Path) -> None:
    lines = ["the cat sees a dog", "", "a dog runs", "the dog and the cat", "cat"]
    text = "\n".join(lines).encode()
    out = translate(translator, text).shown()
    translated = out.splitlines()
    assert out.endswith("\n")
    assert len(translated) == 5
    assert translated[1] == ""
    for line, translation in zip(lines, translated, strict=True):
        alone = translate(translator, f"{line}\n".encode(), "--batch", 1)
        assert alone.out == f"{translation}\n"
    assert translate(translator, text, "--window", 2, "--batch", 2).out == out


def test_a_line_that_is_too_long_is_empty_and_said(translate: Translate, translator: Path) -> None:
    long = b"a cat and " * 40
    code, out, err = translate(translator, b"a cat\n" + long + b"\na dog\n")
    assert code == 0
    first, second, third, end = out.split("\n")
    assert first
    assert third
    assert (second, end) == ("", "")
    assert "line 2 has 121 tokens, more than the 32 that the model reads" in err
    assert "too long, and empty: 1 of 3 lines" in err


def test_what_the_vocabulary_does_not_know_is_counted(
    translate: Translate, translator: Path
) -> None:
    code, out, err = translate(translator, "a cat\na Ж dog ЖЖ\n".encode())
    assert code == 0
    assert len(out.splitlines()) == 2
    # Two ends, and of words what the vocabulary makes of them: the three letters are none of its
    # pieces.
    ids = load(translator).tokenizer.encode_source(["a cat", "a Ж dog ЖЖ"])
    n_tokens = 2 + sum(map(len, ids))
    assert err.strip() == f"unknown to the vocabulary: 3 of the input's {n_tokens} tokens"
    assert translate(translator, "Ж\n".encode(), "--json").found()["unknown_tokens"] == 1


def test_bytes_that_are_no_text_are_named_and_what_is_before_them_translated(
    translate: Translate, translator: Path
) -> None:
    whole = translate(translator, b"a cat\nthe dog\n").out
    code, out, err = translate(translator, b"\xef\xbb\xbfa cat\nthe dog\n\xff\na dog\n")
    assert (code, out) == (2, whole)
    assert err.strip() == (
        "error: standard input, line 3: byte 0xff is not UTF-8: mend or convert it; "
        "translated before it: 2 lines"
    )


def interrupted_lines() -> Iterator[bytes]:
    yield b"a cat\n"
    yield b"the dog\n"
    yield "a Ж\n".encode()
    yield b"cat\n"
    raise KeyboardInterrupt


def test_an_interruption_leaves_what_was_translated_and_says_what_is_left(
    translate: Translate, translator: Path
) -> None:
    code, out, err = translate(translator, interrupted_lines(), "--window", 3)
    assert (code, len(out.splitlines())) == (130, 3)
    assert "interrupted after 3 lines: the input from line 4 on is left" in err
    assert "unknown to the vocabulary: " in err


def test_an_interruption_leaves_json_of_what_was_translated(
    translate: Translate, translator: Path
) -> None:
    code, out, err = translate(translator, interrupted_lines(), "--window", 3, "--json")
    assert code == 130
    assert "interrupted after 3 lines: the input from line 4 on is left" in err
    assert "unknown to the vocabulary: " in err
    found = json.loads(out)
    assert (found["lines"], len(found["translations"])) == (3, 3)
