"""The table of exits: current, with an exit for every recipe, and true of small models."""

from pathlib import Path
from runpy import run_path

import pytest

from sublayer.config.load import load_recipe
from sublayer.config.resolve import resolve_model
from sublayer.errors import ConfigError
from sublayer.interop.exits import EXITS
from sublayer.model.layers import load_class
from sublayer.model.transformer import build
from sublayer.text_model import TextModel

DOCS = Path(__file__).parents[2] / "docs"
SMALL = {"n_layers": 2, "n_decoder_layers": 2, "d_model": 16, "n_heads": 2, "d_head": 8}
SMALL |= {"d_ff": 24, "d_embed": 12}


@pytest.fixture(scope="module")
def page():
    return run_path(str(DOCS / "exits.py"))


@pytest.fixture(scope="module")
def exits_of_recipes(page):
    return page["exits_of_recipes"]()


def test_the_table_is_current_and_transformers_loads_every_recipe(page, exits_of_recipes):
    assert page["table"]() in (DOCS / "exchanging.md").read_text(), "run python docs/exits.py"
    cells = {name: exits["transformers"] for name, exits in exits_of_recipes.items()}
    assert [name for name, cell in cells.items() if cell.startswith(page["NO"])] == []


@pytest.mark.all
def test_small_models_are_exported_as_the_table_says(tmp_path, page, exits_of_recipes):
    for cells, name in {tuple(x.items()): name for name, x in exits_of_recipes.items()}.items():
        model = load_recipe(name).recipe.model
        small = {field: n for field, n in SMALL.items() if getattr(model, field) is not None}
        config = resolve_model(model.model_copy(update=small), vocab_size=64, context=12)
        assert tuple(page["exits_of"](config).items()) == cells, name
        text_model = TextModel(build(config, seed=0).eval())
        for to, cell in cells:
            write = load_class(EXITS[to].writer)
            if cell.startswith(page["NO"]):
                with pytest.raises(ConfigError, match="cannot be exported|has no architecture"):
                    write(text_model, tmp_path / name / to)
                continue
            written = write(text_model, tmp_path / name / to).class_name
            assert cell in (page["YES"], page["OWN_CODE"]) or cell.strip("`") in written
            assert written.startswith("Sublayer") == (cell == page["OWN_CODE"])
