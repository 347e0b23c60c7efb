"""Diagrams show the architecture that a recipe resolves to, in files and in the terminal."""

import re
import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path
from runpy import run_path

import pytest

from sublayer.cli.main import main
from sublayer.config.layers import shipped_recipes
from sublayer.config.load import load_recipe
from sublayer.config.model import FFNS, POSITIONS, Ffn
from sublayer.diagram import WIDTH, Residual, describe, draw_svg, draw_text
from tests.breadth import rows

SVG = "{http://www.w3.org/2000/svg}"


def figure(name, *settings):
    return describe(load_recipe(name, settings))


def gpt(*settings):
    return figure("gpt", *settings).columns[0]


def residuals(column):
    return [part for part in column.block.parts if isinstance(part, Residual)]


def titles(boxes):
    return [box if isinstance(box, str) else box.title for box in boxes]


def test_a_changed_recipe_says_what_was_changed_instead_of_its_title():
    changed = figure("gpt", "model.block=macaron", "model.n_layers=2", "train.steps=9")
    assert changed.name == "gpt"
    assert changed.title == "with model.n_layers = 2, model.block = macaron"
    assert figure("gpt", "train.steps=9").title == load_recipe("gpt").recipe.title


def norms(*settings):
    column = gpt(*settings)
    found = {(bool(p.before), bool(p.after), bool(p.behind)) for p in residuals(column)}
    return found, titles(column.above)


def test_norms_stand_before_or_behind_or_nowhere():
    assert norms() == ({(True, False, False)}, ["LayerNorm"])
    assert norms("model.norm_order=post") == ({(False, False, True)}, [])
    assert norms("model.norm_order=around") == ({(True, True, False)}, ["LayerNorm"])
    assert norms("model.norm_order=after") == ({(False, True, False)}, ["LayerNorm"])
    assert norms("model.norm=none") == ({(False, False, False)}, [])


def test_functions_in_parallel_are_one_box_with_one_norm_or_several():
    both = 'model.block=["attention+ffn*0.5"]'
    (part,) = residuals(gpt(both))
    assert part.function.title == "Causal self-attention + Feed-forward network × ½"
    assert part.step == "" and not part.before.notes
    (part,) = residuals(gpt(both, "model.parallel_norm=separate"))
    assert part.before.notes


def test_positions_stand_where_they_enter():
    for name, scheme in POSITIONS.items():
        column = gpt(f"model.positions={name}")
        attention, _ = residuals(column)
        is_inside = any(name in note for note in attention.function.notes)
        parts = (column.below, column.block.parts)
        sums = [any(isinstance(part, str) for part in each) for each in parts]
        assert is_inside == (scheme.in_attention != "nothing"), name
        assert sums == [scheme.adds_before == "first", scheme.adds_before == "every"], name
    column = gpt("model.positions=learned-per-layer", "model.embedding_norm=affine")
    assert titles(column.below) == ["Embedding matrix", "learned positions of layer 1", "LayerNorm"]
    assert column.block.parts[0] == "learned positions from layer 2 on"
    below = ["Embedding matrix", "Projection", "learned positions"]
    assert titles(gpt("model.d_embed=32").below) == below


def test_windows_and_layers_without_positions_are_said():
    patterns = ["model.window_pattern=LLG", "model.position_pattern=PN"]
    column = gpt("model.positions=alibi", "model.attention_window=32", *patterns)
    notes = residuals(column)[0].function.notes
    assert {"window of 32 tokens, LLG", "alibi biases of scores, PN"} <= {*notes}


@pytest.mark.parametrize("settings, said", [
    ([], "one set of weights for all layers"),
    (["model.share_groups=2"], "weights shared in 2 groups of 3 layers"),
    (["model.share_inner=2"], "one set of weights for all units of 2 layers"),
])  # fmt: skip
def test_what_layers_share_is_said(settings, said):
    (note,) = gpt("model.share=all", *settings).block.notes
    assert note.startswith(said)


def test_a_new_network_is_drawn_from_its_row(monkeypatch):
    monkeypatch.setitem(FFNS, "siglu", Ffn("sigmoid", is_gated=True))
    block = {"model.block": ["attention", "ffn:siglu*0.3"]}
    text = draw_text(describe(load_recipe("gpt", block)))
    assert "siglu: (sigmoid(x W) ⊙" in text and "× 0.3" in text


@pytest.mark.parametrize("name", rows(shipped_recipes(), 5))
def test_every_recipe_is_drawn_within_the_terminal_and_its_file(name):
    drawn = figure(name)
    assert max(map(len, draw_text(drawn).splitlines())) <= WIDTH
    root = ET.fromstring(draw_svg(drawn))
    width, height = (float(root.get(side, "0")) for side in ("width", "height"))
    (group,) = root.iter(f"{SVG}g")
    _, shift, foot, *_ = re.split("[( )]", group.get("transform", ""))
    boxes = []
    for box in root.iter(f"{SVG}rect"):
        if box.get("class") not in ("paper", "panel"):
            x, y, *size = (float(box.get(name)) for name in ("x", "y", "width", "height"))
            boxes.append((x + float(shift), y + float(foot), *size))
    for x, y, *size in boxes:
        assert 0 <= x <= width - size[0] and 0 <= y <= height - size[1]
    for (x, y, *size), (other_x, other_y, *other_size) in combinations(boxes, 2):
        is_beside = x + size[0] <= other_x or other_x + other_size[0] <= x
        assert is_beside or y + size[1] <= other_y or other_y + other_size[1] <= y
    texts = " ".join(element.text or "" for element in root.iter())
    assert all(part.function.title in texts for each in drawn.columns for part in residuals(each))


def test_a_diagram_is_of_one_recipe(capsys):
    assert (main(["recipes", "--diagram"]), main(["recipes", "demo", "--diagram"])) == (2, 2)
    first, second = re.findall(r"(?m)^error: (.*)$", capsys.readouterr().err)
    assert "draws one recipe: name it" in first and "demo is a study" in second


def test_the_diagrams_of_the_pages_are_as_drawn_now():
    page = run_path(Path(__file__).resolve().parents[2] / "docs" / "diagrams.py")
    for name in page["RECIPES"]:
        kept = (page["IMAGES"] / f"{name}.svg").read_text(encoding="utf-8")
        assert kept == page["diagram"](name), "python docs/diagrams.py draws them anew"
