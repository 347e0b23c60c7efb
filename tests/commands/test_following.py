"""What is named as next fits the kind of model, and names the text that it has."""

from typing import Any

import pytest

from sublayer.commands.shared.following import after_import, after_training
from sublayer.config.layering.layers import load_recipe

BOOK = {"data.path": "book.txt"}
LANGUAGES = {"data.source_path": "train.en", "data.target_path": "train.de"}
VALID = {"data.valid_source_path": "valid.en", "data.valid_target_path": "valid.de"}
PACKED = {"data.test_source_path": "test.en.gz", "data.test_target_path": "test.de.gz"}
ALL = ("train", "valid", "test")


@pytest.mark.parametrize(
    ("recipe", "settings", "splits", "commands"),
    [
        (
            "bert-base",
            {"objective.kind": "supervised", "data.tasks": "sst2", "data.path": "glue"},
            ALL,
            ["evaluate a", "predict a FILE"],
        ),
        ("gpt", BOOK, ALL, ["evaluate a --split test", 'generate a --prompt "The "']),
        ("gpt", BOOK, ("train", "valid"), ["evaluate a --split valid", None]),
        ("gpt", BOOK, ("train",), ["evaluate a --path book.txt", None]),
        ("gpt", {}, ("train",), ["evaluate a --path FILE", None]),
        ("albert-small", BOOK, ALL, ["evaluate a --split test", "inspect layers a"]),
        (
            "albert-small",
            {"data.path": "my books"},
            ("train",),
            ["evaluate a --path 'my books'", "inspect layers a --path 'my books'"],
        ),
        (
            "t5-mini",
            BOOK,
            ALL,
            ["evaluate a --split test", 'generate a --prompt "The <extra_id_0> of the book."'],
        ),
        (
            "t5-mini",
            {**BOOK, "objective.noise": "prefix"},
            ALL,
            ["evaluate a --split test", 'generate a --prompt "The "'],
        ),
        ("multi30k-tiny", LANGUAGES, ALL, ["evaluate a --split test", "translate a < train.en"]),
        ("multi30k-tiny", {**LANGUAGES, **VALID}, ALL, [None, "translate a < valid.en"]),
        ("multi30k-tiny", {**LANGUAGES, **VALID, **PACKED}, ALL, [None, "translate a < valid.en"]),
        ("multi30k-tiny", {"data.path": "pairs.tsv"}, ALL, [None, "translate a < FILE"]),
    ],
)
def test_after_training_stand_the_commands_of_that_kind_of_model(
    recipe: str, settings: dict[str, Any], splits: tuple[str, ...], commands: list[str | None]
) -> None:
    first, second = after_training("a", load_recipe(recipe, settings).recipe, splits)
    for line, beginning, command in zip(
        (first, second), ("next: ", "      "), commands, strict=True
    ):
        assert line.startswith(f"{beginning}sublayer ")
        if command is not None:
            assert line == f"{beginning}sublayer {command}"


def test_after_an_import_stand_the_commands_of_that_kind_of_model() -> None:
    def named(kind: str, *, is_translator: bool = False, knows_gaps: bool = False) -> list[str]:
        return after_import("m", kind, is_translator=is_translator, knows_gaps=knows_gaps)

    assert named("decoder") == [
        "next: sublayer evaluate m --path FILE",
        '      sublayer generate m --prompt "The "',
    ]
    assert named("encoder") == ["next: sublayer inspect layers m --path FILE"]
    translator = named("encoder-decoder", is_translator=True)
    assert translator == ["next: sublayer translate m < FILE"]
    filler = named("encoder-decoder", knows_gaps=True)
    assert filler == ['next: sublayer generate m --prompt "The <extra_id_0> of the book."']
    unmarked = after_import(
        "m", "decoder", is_translator=False, knows_gaps=False, answers="rte", lacks_marks=True
    )
    assert unmarked == ["next: sublayer finetune m TASK --data DIR"]
    assert named("encoder-decoder") == ['next: sublayer generate m --prompt "The "']
