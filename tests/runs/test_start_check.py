"""A start whose weights do not fit is refused by field, before anything is prepared."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from sublayer.config.layering.finetune import load_finetune
from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError
from sublayer.runs.start_check import check_start


@pytest.fixture
def book(tmp_path: Path) -> str:
    folder = tmp_path / "book"
    folder.mkdir()
    (folder / "recipe.toml").write_text(
        'derived = []\n[model]\nn_layers = 2\nd_model = 32\n[data]\npath = "book.txt"\n'
    )
    return str(folder)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"model.ffn": "swiglu", "model.norm_eps": 1e-3}, ["ffn"]),
        ({"model.n_layers": 3, "model.bias": False}, ["n_layers", "bias"]),
        ({"model.positions": "learned-per-layer"}, ["positions"]),
    ],
)
def test_other_weights_are_refused_by_field_with_a_command_that_works(
    book: str, fields: dict[str, Any], named: list[str]
) -> None:
    loaded = load_recipe("gpt", {"init.run": book, "train.steps": 5, **fields})
    with pytest.raises(ConfigError) as refused:
        check_start(loaded)
    message = str(refused.value)
    for name in named:
        assert f"model.{name} = " in message
    assert message.count(" where ") == len(named)
    _, command, _ = message.split("`")
    program, verb, source, *settings = shlex.split(command)
    assert (program, verb, source) == ("sublayer", "train", "gpt")
    check_start(load_recipe(source, settings))
    assert "train.steps=5" in settings


def test_other_positions_are_refused_with_the_context_that_is_too_long_for_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "recipe.toml").write_text(
        "derived = []\n[model]\nn_layers = 2\nmax_len = 32\n[data]\ncontext = 32\n"
    )
    asked = {"init.run": str(tmp_path), "model.max_len": 64, "data.context": 48, "train.steps": 5}
    with pytest.raises(ConfigError, match=r"model\.max_len = 64 where .* has 32") as refused:
        check_start(load_recipe("gpt", asked))
    _, command, _ = str(refused.value).split("`")
    *_, kept, steps = shlex.split(command)
    assert (kept, steps) == (f"init.run={tmp_path}", "train.steps=5")
    rotary = (
        (tmp_path / "recipe.toml").read_text().replace("max_len", 'positions="rotary"\nmax_len')
    )
    (tmp_path / "recipe.toml").write_text(rotary)
    check_start(load_recipe("gpt", asked))


def test_over_a_preset_fields_are_named_without_a_command(book: str) -> None:
    (Path(book) / "recipe.toml").write_text(
        "[model]\nmax_len = 32\n[data]\ncontext = 32\ntokenizer = 'bytes'\n"
    )
    loaded = load_finetune(book, ["rte"], "glue", {"data.context": 48}).loaded
    with pytest.raises(ConfigError, match="leave out data.context") as refused:
        check_start(loaded, "finetune")
    assert "`" not in str(refused.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"model.head": "transform", "model.label_outputs": 3},
        {"model.dropout": 0.2, "model.ffn": "relu", "model.positions": "learned"},
        {"model.n_layers": 4, "init.layers": 2},
    ],
)
def test_fields_that_ask_for_the_same_weights_may_differ(book: str, fields: dict[str, Any]) -> None:
    check_start(load_recipe("gpt", {"init.run": book, **fields}))


def test_more_first_blocks_than_a_stack_has_are_refused(book: str) -> None:
    (Path(book) / "recipe.toml").write_text(
        '[model]\nkind = "encoder-decoder"\nn_layers = 3\nn_decoder_layers = 2\n'
        '[objective]\nkind = "span"\n[data]\ntokenizer = "unigram"\n'
    )

    def check(**fields: int) -> None:
        given = {name.replace("__", "."): value for name, value in fields.items()}
        check_start(load_recipe("t5-mini", {"init.run": book, **given}))

    words = f"3 is more than the 2 blocks of the decoder of {book}"
    with pytest.raises(ConfigError, match=re.escape(words)):
        check(init__layers=3)
    with pytest.raises(ConfigError, match="2 is more than the 1 block of the encoder of the rec"):
        check(init__layers=2, model__n_layers=1)
    check(init__layers=2)
    check(init__layers=1, model__n_layers=1, model__n_decoder_layers=4)


def test_a_recipe_file_is_told_which_settings_to_add(book: str, tmp_path: Path) -> None:
    recipe = tmp_path / "wide.toml"
    recipe.write_text(f'extends = "gpt"\n[model]\nd_model = 64\n[init]\nrun = "{book}"\n')
    with pytest.raises(ConfigError, match="leave out model.d_model, which keeps those of"):
        check_start(load_recipe(str(recipe)))
    check_start(load_recipe(str(recipe), {"model.d_model": 32}))
