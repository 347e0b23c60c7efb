"""``sublayer generate`` streams, repeats itself, and refuses what it cannot do in one line."""

import json
from pathlib import Path

import pytest

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
        (["--prompt", "a", "--temperature", "-1"], "--temperature -1"),
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
