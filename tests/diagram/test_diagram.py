"""Diagrams show the architecture that a recipe resolves to, in files and in the terminal."""

import json
import xml.etree.ElementTree as ET
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from sublayer.cli import main
from sublayer.config.architecture.feedforward import FFNS, Ffn
from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.architecture.sublayers import SUBLAYERS
from sublayer.config.layering.layers import load_recipe
from sublayer.config.layering.sources import shipped_recipes
from sublayer.diagram.describe import describe
from sublayer.diagram.figure import Box, Column, Figure, Residual, Sum
from sublayer.diagram.layout import lay_out
from sublayer.diagram.svg import draw_svg
from sublayer.diagram.text import WIDTH, draw_text
from tests.breadth import rows

DOCS = Path(__file__).resolve().parents[2] / "docs"


def figure(name: str, *settings: str) -> Figure:
    return describe(load_recipe(name, settings))


def residuals(column: Column) -> list[Residual]:
    return [part for part in column.block.parts if isinstance(part, Residual)]


def titles(boxes: tuple[Box | Sum, ...]) -> list[str]:
    return [box.added if isinstance(box, Sum) else box.title for box in boxes]


def texts(svg: str) -> str:
    return " ".join(element.text or "" for element in ET.fromstring(svg).iter())


def test_a_macaron_block_has_half_steps_around_attention():
    (column,) = figure("macaron").columns
    first, attention, last = residuals(column)
    assert [part.step for part in (first, attention, last)] == [0.5, 1.0, 0.5]
    assert [part.function.role for part in (first, attention, last)] == ["ffn", "attention", "ffn"]
    assert attention.function.title == "Causal self-attention"
    assert "d_ff 384" in first.function.notes


def test_a_changed_recipe_says_what_was_changed_instead_of_its_title():
    changed = load_recipe("gpt", ["model.block=macaron", "model.n_layers=2", "train.steps=9"])
    figure = describe(changed)
    assert (figure.name, figure.title) == ("gpt", "with model.n_layers = 2, model.block = macaron")
    assert describe(load_recipe("gpt", ["train.steps=9"])).title == changed.recipe.title


def test_norms_stand_before_or_behind_or_nowhere():
    (before,) = figure("gpt").columns
    (behind,) = figure("gpt", "model.norm_order=post").columns
    (nowhere,) = figure("gpt", "model.norm=none").columns
    assert all(part.is_pre_norm and part.norm for part in residuals(before))
    assert titles(before.above) == ["LayerNorm"]
    assert not any(part.is_pre_norm for part in residuals(behind))
    assert behind.above == ()
    assert not any(part.norm for part in residuals(nowhere))


def test_positions_stand_where_they_enter():
    for name, scheme in POSITIONS.items():
        (column,) = figure("gpt", f"model.positions={name}").columns
        attention, _ = residuals(column)
        is_inside = any(name in note for note in attention.function.notes)
        has_sum = any(isinstance(part, Sum) for part in column.below)
        has_sum_in_block = any(isinstance(part, Sum) for part in column.block.parts)
        assert is_inside == (scheme.in_attention != "nothing"), name
        assert has_sum == (scheme.adds_before == "first"), name
        assert has_sum_in_block == (scheme.adds_before == "every"), name


def test_positions_of_layers_are_told_apart_where_the_embeddings_have_a_norm():
    settings = ("model.positions=learned-per-layer", "model.embedding_norm=true")
    (column,) = figure("gpt", *settings).columns
    assert titles(column.below) == ["Embedding matrix", "learned positions of layer 1", "LayerNorm"]
    assert column.block.parts[0] == Sum("learned positions from layer 2 on")


def test_albert_projects_the_normed_sum_and_shares_one_set_of_weights():
    (column,) = figure("albert-base").columns
    below = ["Embedding matrix", "learned positions", "segment A or B", "LayerNorm", "Projection"]
    assert titles(column.below) == below
    assert column.block.notes == ("one set of weights for all layers",)
    words, pair = column.heads
    assert titles(words) == ["Transform", "Output matrix, softmax", "Loss: masked tokens"]
    assert titles(pair) == ["Pooler", "Sentence head", "Loss: sentence order"]


def test_a_projection_of_tokens_stands_below_their_positions():
    (column,) = figure("gpt", "model.d_embed=32").columns
    assert titles(column.below) == ["Embedding matrix", "Projection", "learned positions"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model.share=ffn"], "one set of feed-forward weights for all layers"),
        (["model.share=all", "model.share_groups=2"], "weights shared in 2 groups of 3 layers"),
        (
            ["model.share=all", "model.share_inner=2"],
            "one set of weights for all units of 2 layers",
        ),
    ],
)
def test_what_layers_share_is_said(settings: list[str], said: str):
    (column,) = figure("gpt", *settings).columns
    assert [note.startswith(said) for note in column.block.notes] == [True]


def test_the_encoder_of_a_t5_feeds_the_cross_attention_of_its_decoder():
    encoder, decoder = figure("t5-v1.1-base").columns
    assert encoder.feeds_memory
    assert not decoder.feeds_memory
    assert [part.reads_memory for part in residuals(decoder)] == [False, True, False]
    assert encoder.heads == ()
    assert "not tied" in decoder.heads[0][0].notes
    tied = figure("t5-base").columns[1].heads[0][0]
    assert "the embedding matrix (tied)" in tied.notes


def test_the_deep_character_transformer_has_losses_of_its_lower_layers():
    (column,) = figure("char-t64").columns
    loss = column.block.loss
    assert loss is not None
    assert "and the token after it × 0.5" in loss.notes
    assert [chain[-1].title for chain in column.heads] == [
        "Loss: next token",
        "Loss: the token after it",
    ]
    (plain,) = figure("char-t64", "objective.auxiliary=none", "objective.targets=1").columns
    assert plain.block.loss is None
    assert len(plain.heads) == 1


def test_a_new_network_is_drawn_from_its_row(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(FFNS, "siglu", Ffn("sigmoid", is_gated=True))
    loaded = load_recipe("gpt", {"model.block": ["attention", "ffn:siglu*0.3"]})
    text = draw_text(describe(loaded))
    assert "siglu: (sigmoid(x W) ⊙" in text
    assert "× 0.3" in text


@pytest.mark.parametrize("name", rows(shipped_recipes(), 9))
def test_every_recipe_is_drawn_within_the_terminal_and_its_file(name: str):
    drawn = figure(name)
    lines = draw_text(drawn).splitlines()
    assert max(map(len, lines)) <= WIDTH
    svg = draw_svg(drawn)
    root = ET.fromstring(svg)
    drawing = lay_out(drawn)
    for box in drawing.boxes:
        assert box.x >= 0
        assert box.x + box.width <= drawing.width
        assert box.bottom + box.height <= drawing.height
    assert float(root.get("width", "0")) >= drawing.width
    for part in (part for column in drawn.columns for part in residuals(column)):
        assert part.function.title in texts(svg)
    assert "http://" not in svg.replace("http://www.w3.org/2000/svg", "")


def test_boxes_do_not_cover_each_other():
    for name in ("albert-base", "char-t64", "t5-base", "wmt14-base-macaron"):
        boxes = lay_out(figure(name)).boxes
        for index, one in enumerate(boxes):
            for other in boxes[index + 1 :]:
                is_beside = one.x + one.width <= other.x or other.x + other.width <= one.x
                is_above = (
                    one.bottom + one.height <= other.bottom
                    or other.bottom + other.height <= one.bottom
                )
                assert is_beside or is_above, (name, one.title, other.title)


def test_every_kind_of_sublayer_has_a_title():
    assert all(row.title for row in SUBLAYERS.values())


def test_the_command_draws_in_the_terminal_and_in_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["recipes", "gpt", "model.ffn=swiglu", "--diagram"]) == 0
    assert "swiglu: (swish(x W) ⊙" in capsys.readouterr().out
    out = tmp_path / "gpt.svg"
    assert main(["recipes", "gpt", "--diagram", "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["file"] == str(out)
    assert told["columns"][0]["block"]["n_layers"] == 6
    assert out.read_text() == draw_svg(figure("gpt"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["gpt", "--out", "a.svg"], "--out is the file of a diagram: give --diagram too"),
        (["--diagram"], "--diagram draws one recipe: name it, as in `recipes gpt --diagram`"),
        (["gpt", "--diagram", "--out", "a.png"], "--out a.png is not an .svg file"),
        (["gpt", "--diagram", "--changed"], "--diagram draws a recipe, and --changed lists fields"),
        (["demo", "--diagram"], "demo is a study: `sublayer plan demo` shows its arms"),
    ],
)
def test_a_diagram_that_cannot_be_is_a_mistake(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["recipes", *words]) == 2
    assert capsys.readouterr().err.startswith(f"error: {says}")


def drawer() -> ModuleType:
    spec = spec_from_file_location("diagrams", DOCS / "diagrams.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_diagrams_of_the_pages_are_as_drawn_now():
    module = drawer()
    for name in module.RECIPES:
        kept = (module.IMAGES / f"{name}.svg").read_text(encoding="utf-8")
        assert kept == module.diagram(name), "python docs/diagrams.py draws them anew"
