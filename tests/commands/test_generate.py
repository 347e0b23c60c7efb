"""``sublayer generate`` streams, repeats itself, and refuses what it cannot do in one line."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from sublayer.commands.generate import continuation
from sublayer.commands.generate.continuation import Continuation
from sublayer.data.tokenizers.characters import ByteTokenizer
from tests.commands.results import Sublayer


def test_a_text_ends_where_a_stop_begins(sublayer: Sublayer, trained: Path) -> None:
    words = ("generate", trained, "--prompt", "The", "--tokens", 60)
    whole = sublayer(*words).out
    stop = whole.rstrip("\n")[20:22]
    cut = sublayer(*words, "--stop", stop).out
    end = 3 + whole[3:].index(stop)
    assert cut.rstrip("\n") == whole[:end].rstrip("\n")


class EndingTokenizer(ByteTokenizer):
    """Bytes, and a token that ends a document."""

    end_id = 256


def grown(
    monkeypatch: pytest.MonkeyPatch, tokens: Iterable[int], stops: list[str]
) -> tuple[str, list[str]]:
    """Let a text grow by a token at a time; return it, and what was shown of it each time."""
    shown: list[str] = []
    monkeypatch.setattr(continuation, "write_result", shown.append)
    growing = Continuation(EndingTokenizer(), stops, is_shown=True)
    for token in tokens:
        growing.add(token)
    growing.end()
    return growing.text, shown


def test_a_character_is_shown_once_its_last_byte_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    text, shown = grown(monkeypatch, "aé😀b".encode(), [])
    assert text == "aé😀b"
    assert shown == ["a", "é", "😀", "b"]


def test_bytes_that_make_no_character_are_shown_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = "\N{REPLACEMENT CHARACTER}"
    text, _ = grown(monkeypatch, b"a\xe2\x82b\xf0", [])
    assert text == f"a{unknown}b{unknown}"


@pytest.mark.parametrize("stops", [["END"], ["NOT", "END"], ["END", "D."]])
def test_nothing_of_a_stop_is_ever_shown(monkeypatch: pytest.MonkeyPatch, stops: list[str]) -> None:
    text, shown = grown(monkeypatch, b"one E two END. three", stops)
    assert text == "".join(shown) == "one E two "


def test_what_looked_like_a_stop_is_shown_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text, shown = grown(monkeypatch, b"one EN", ["END"])
    assert text == "".join(shown) == "one EN"


def test_a_text_ends_at_the_token_that_ends_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = [*b"one", EndingTokenizer.end_id, *b"more"]
    text, shown = grown(monkeypatch, tokens, ["stop"])
    assert text == "".join(shown) == "one"
