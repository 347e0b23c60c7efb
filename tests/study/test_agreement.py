"""Runs that do not compare are refused by what keeps them apart, in settings and not in sums."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError
from sublayer.study.agreement import check_agree
from sublayer.study.recorded import Recorded

BOOK = {"data.path": "book.txt"}


def run(name: str, settings: dict[str, Any], **checksums: str) -> Recorded:
    """A run whose text and tokenizer have the checksums of others, but for those given."""
    equal = dict.fromkeys(("train", "valid", "test", "tokenizer"), "0")
    recipe = load_recipe("gpt", settings).recipe
    return cast(
        Recorded,
        SimpleNamespace(path=Path(name), recipe=recipe, checksums={**equal, **checksums}),
    )


@pytest.mark.parametrize(
    ("settings", "name", "said"),
    [
        (
            {"data.path": "notes.txt", "data.context": 64},
            "train",
            "their training texts differ, data.path = 'book.txt' and 'notes.txt'",
        ),
        (
            {},
            "test",
            "their test texts differ, data.path = 'book.txt' and data.corpus = 'python'",
        ),
        (
            {**BOOK, "data.split": "80/10/10"},
            "train",
            "their training texts differ, no data.split and data.split = '80/10/10'",
        ),
        (
            {"data.path": "notes.txt", "data.tokenizer": "characters"},
            "tokenizer",
            "their tokenizers differ, data.tokenizer = 'bytes' and 'characters'",
        ),
        (
            {"data.path": "notes.txt"},
            "tokenizer",
            "their tokenizers differ, data.path = 'book.txt' and 'notes.txt'",
        ),
        (
            {**BOOK, "model.n_layers": 2},
            "valid",
            "their validation texts differ, though their settings are equal: a file has changed "
            "between them",
        ),
    ],
)
def test_what_keeps_two_runs_apart_is_named(settings: dict[str, Any], name: str, said: str) -> None:
    other = run("b", settings, **{name: "1"})
    with pytest.raises(ConfigError) as refused:
        check_agree([run("a", BOOK), other])
    assert str(refused.value) == f"a and b do not compare: {said}"


def test_runs_of_one_text_agree_whatever_their_models() -> None:
    check_agree([run("a", BOOK), run("b", {**BOOK, "model.n_layers": 2})])
