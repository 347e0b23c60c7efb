"""A text that ``sublayer generate`` continues: shown as it grows, and ended at a stop."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from sublayer.commands.generate import continuation
from sublayer.commands.generate.continuation import Continuation
from sublayer.data.tokenizers.characters import ByteTokenizer
from tests.commands.results import Sublayer


class EndingTokenizer(ByteTokenizer):
    """Bytes, and a token that ends a document."""

    end_id = 256


def test_a_text_ends_where_a_stop_begins(sublayer: Sublayer, trained: Path) -> None:
    words = ("generate", trained, "--prompt", "The", "--tokens", 60)
    whole = sublayer(*words).out
    stop = whole.rstrip("\n")[20:22]
    cut = sublayer(*words, "--stop", stop).out
    end = 3 + whole[3:].index(stop)
    assert cut.rstrip("\n") == whole[:end].rstrip("\n")


@pytest.mark.parametrize(
    ("tokens", "stops", "shown"),
    [
        ("aé😀b".encode(), [], ["a", "é", "😀", "b"]),
        (b"a\xe2\x82b\xf0", [], ["a\ufffdb\ufffd"]),
        (b"one E two END. three", ["END"], ["one E two "]),
        (b"one E two END. three", ["NOT", "END"], ["one E two "]),
        (b"one E two END. three", ["END", "D."], ["one E two "]),
        (b"one EN", ["END"], ["one EN"]),
        ([*b"one", EndingTokenizer.end_id, *b"more"], ["stop"], ["one"]),
    ],
)
def test_a_text_is_shown_without_parts_of_characters_and_stops(
    monkeypatch: pytest.MonkeyPatch, tokens: Iterable[int], stops: list[str], shown: list[str]
) -> None:
    parts: list[str] = []
    monkeypatch.setattr(continuation, "write_result", parts.append)
    growing = Continuation(EndingTokenizer(), stops, is_shown=True)
    for token in tokens:
        growing.add(token)
    growing.end()
    assert growing.text == "".join(parts) == "".join(shown)
    assert len(shown) == 1 or parts == shown
