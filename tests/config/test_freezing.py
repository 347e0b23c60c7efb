"""What ``init.freeze`` may name."""

from pathlib import Path

import pytest

from sublayer.config.freezing import Frozen, parse_freeze
from sublayer.config.layering.layers import load_recipe
from sublayer.config.train import InitConfig
from sublayer.errors import ConfigError


@pytest.mark.parametrize(
    ("words", "frozen"),
    [
        ((), Frozen()),
        ("embeddings", Frozen(embeddings=True)),
        ("layers:3", Frozen(n_layers=3)),
        (("layers:12", "embeddings"), Frozen(embeddings=True, n_layers=12)),
    ],
)
def test_parts_are_read(words: str | tuple[str, ...], frozen: Frozen) -> None:
    assert parse_freeze(words) == frozen
    assert InitConfig(run="runs/a", freeze=words).frozen == frozen


@pytest.mark.parametrize("words", ["embedding", "layers:0", "layers:²", ""])
def test_anything_else_is_refused_with_what_there_is(words: str) -> None:
    with pytest.raises(ConfigError, match="neither embeddings nor layers:K"):
        parse_freeze(words)


def test_a_part_is_named_once() -> None:
    with pytest.raises(ConfigError, match="names layers twice"):
        parse_freeze(("layers:1", "layers:2"))


@pytest.fixture
def book(tmp_path: Path) -> str:
    (tmp_path / "recipe.toml").write_text("[model]\nn_layers = 4\n")
    return str(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"init.freeze": "layers:5"}, "layers:5 is more than the 4 blocks"),
        ({"init.freeze": "layers:3", "init.layers": 2}, "more than the 2 blocks .*init.layers = 2"),
        (
            {"init.freeze": "layers:1", "model.share": "all", "model.share_groups": 2},
            "give layers:2",
        ),
        ({"init.freeze": "layers:1", "model.share": "ffn"}, "give layers:4"),
        (
            {"init.freeze": "layers:1", "model.kind": "encoder-decoder", "objective.kind": "span"},
            "model.kind = encoder-decoder",
        ),
    ],
)
def test_parts_that_cannot_stay_are_refused(
    book: str, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe("gpt", {"init.run": book, **settings})


def test_without_a_start_nothing_can_stay() -> None:
    with pytest.raises(ConfigError, match="init.freeze = 'embeddings' has no effect"):
        load_recipe("gpt", {"init.freeze": "embeddings"})
