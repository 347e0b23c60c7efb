"""``sublayer generate`` streams, repeats itself, and refuses what it cannot do in one line."""

import json
from pathlib import Path

import pytest

from sublayer.commands import generate
from sublayer.data.characters import ByteTokenizer
from tests.commands.conftest import Sublayer


def test_a_continuation_follows_its_prompt_and_is_a_function_of_the_seed(sublayer: Sublayer, trained: Path) -> None:
    arguments = ("generate", str(trained), "--prompt", "The cat", "--tokens", "40", "--seed")
    code, first, said = sublayer(*arguments, "1")
    assert code == 0
    assert first.startswith("The cat")
    assert first.endswith("\n")
    assert "40 tokens" in said
    assert sublayer(*arguments, "1")[1] == first != sublayer(*arguments, "2")[1]


def test_json_holds_every_continuation_of_a_batch(sublayer: Sublayer, trained: Path) -> None:
    _, out, _ = sublayer(
        *("generate", str(trained), "--prompt", "A", "--tokens", "9", "--batch", "3", "--json"),
        *("--temperature", "0.5", "--top-k", "90", "--top-p", "0.9", "--window", "rolling"),
    )
    result = json.loads(out)
    assert (result["prompt"], len(result["texts"]), result["tokens"]) == ("A", 3, 9)


def test_a_text_ends_where_a_stop_begins(sublayer: Sublayer, trained: Path) -> None:
    arguments = ("generate", str(trained), "--prompt", "The", "--tokens", "60")
    _, whole, _ = sublayer(*arguments)
    stop = whole.rstrip("\n")[20:22]
    _, cut, _ = sublayer(*arguments, "--stop", stop)
    assert cut.rstrip("\n") == whole[: 3 + whole[3:].index(stop)].rstrip("\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt", ""], "--prompt is empty"),
        (["--prompt", "a", "--stop", ""], "--stop is empty"),
        (["--prompt", "a", "--temperature", "-1"], "--temperature"),
        (["--prompt", "a", "--temperature", "0", "--batch", "2"], "--batch 2"),
        (["--prompt", "a", "--seed", "99999999999999999999"], "--seed"),
        (["--prompt", "a" * 33], "the prompt has 33 tokens, more than the context of 32"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_said_in_one_line(
    sublayer: Sublayer, trained: Path, options: list[str], message: str
) -> None:
    code, out, said = sublayer("generate", str(trained), *options)
    assert (code, said.count("\n")) == (2, 1)
    assert message in said
    assert out == ""


class EndingTokenizer(ByteTokenizer):
    """Bytes, and a token that ends a document."""

    end_id = 256


def grown(
    monkeypatch: pytest.MonkeyPatch, text: bytes, stops: list[str], *, ends: bool = False
) -> tuple[str, list[str]]:
    """Give a text that grew by one byte at a time, and what was shown of it after each, and after its end."""
    shown: list[str] = []
    monkeypatch.setattr(generate, "write_result", shown.append)
    growing = generate._Text(EndingTokenizer(), stops, shows=True)
    for token in [*text, *([256, *b"more"] if ends else [])]:
        growing.add(token)
    growing.end()
    return growing.text, shown


def test_a_character_is_shown_once_its_last_byte_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    text, shown = grown(monkeypatch, "aé😀b".encode(), [])
    assert text == "aé😀b"
    assert shown == ["a", "é", "😀", "b"]


def test_bytes_that_make_no_character_are_shown_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert grown(monkeypatch, b"a\xe2\x82b\xf0", [])[0] == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("stops", [["END"], ["NOT", "END"], ["END", "D."]])
def test_nothing_of_a_stop_is_ever_shown(monkeypatch: pytest.MonkeyPatch, stops: list[str]) -> None:
    text, shown = grown(monkeypatch, b"one E two END. three", stops)
    assert text == "".join(shown) == "one E two "


def test_what_looked_like_a_stop_is_shown_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text, shown = grown(monkeypatch, b"one EN", ["END"])
    assert text == "".join(shown) == "one EN"


def test_a_text_ends_at_the_token_that_ends_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    text, shown = grown(monkeypatch, b"one", ["stop"], ends=True)
    assert text == "".join(shown) == "one"
