"""What is named as next fits the kind of model, and names the text that it has."""

from typing import Any

import pytest

from sublayer.commands.shared.following import after_import, after_training
from sublayer.config.layering.layers import load_recipe

GENERATE = 'generate a --prompt "The '
BOOK = {"data.path": "book.txt"}
TASK = {"objective.kind": "supervised", "data.tasks": "sst2", "data.path": "glue"}
PREFIX = {**BOOK, "objective.noise": "prefix"}
PAIR = {"data.source_path": "train.en", "data.target_path": "train.de"}
VALID = {"data.valid_source_path": "valid.en", "data.valid_target_path": "valid.de"}
PACKED = {"data.test_source_path": "test.en.gz", "data.test_target_path": "test.de.gz"}


@pytest.mark.parametrize(
    ("recipe", "settings", "splits", "first", "second"),
    [
        ("bert-base", TASK, "train valid test", "evaluate a", "predict a FILE"),
        ("gpt", BOOK, "train valid", "evaluate a --split valid", f'{GENERATE}"'),
        ("gpt", BOOK, "train", "evaluate a --path book.txt", f'{GENERATE}"'),
        ("gpt", {}, "train", "evaluate a --path FILE", f'{GENERATE}"'),
        (
            *("albert-small", {"data.path": "my books"}, "train"),
            *("evaluate a --path 'my books'", "inspect layers a --path 'my books'"),
        ),
        ("t5-mini", PREFIX, "train valid test", "evaluate a --split test", f'{GENERATE}"'),
        (
            *("multi30k-tiny", {**PAIR, **VALID, **PACKED}, "train valid test"),
            *("evaluate a --split test", "translate a < valid.en"),
        ),
        (
            *("multi30k-tiny", {"data.path": "pairs.tsv"}, "train valid test"),
            *("evaluate a --split test", "translate a < FILE"),
        ),
    ],
)
def test_after_training_stand_the_commands_of_that_kind_of_model(
    recipe: str, settings: dict[str, Any], splits: str, first: str, second: str
) -> None:
    found = after_training("a", load_recipe(recipe, settings).recipe, tuple(splits.split()))
    assert list(found) == [f"next: sublayer {first}", f"      sublayer {second}"]


@pytest.mark.parametrize(
    ("kind", "marks", "commands"),
    [
        ("decoder", {}, ["evaluate m --path FILE", 'generate m --prompt "The "']),
        ("encoder", {}, ["inspect layers m --path FILE"]),
        ("encoder-decoder", {"is_translator": True}, ["translate m < FILE"]),
        (
            *("encoder-decoder", {"knows_gaps": True}),
            ['generate m --prompt "The <extra_id_0> of the book."'],
        ),
        ("encoder-decoder", {}, ['generate m --prompt "The "']),
        ("decoder", {"answers": "rte", "lacks_marks": True}, ["finetune m TASK --data DIR"]),
    ],
)
def test_after_an_import_stand_the_commands_of_that_kind_of_model(
    kind: str, marks: dict[str, Any], commands: list[str]
) -> None:
    found = after_import("m", kind, **{"is_translator": False, "knows_gaps": False, **marks})
    assert [line.removeprefix("next: ").strip() for line in found] == [
        f"sublayer {command}" for command in commands
    ]
