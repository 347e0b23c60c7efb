"""Functions give what the command prints with ``--json``, and refuse what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

import sublayer as package
from sublayer.errors import CheckpointError, ConfigError
from tests.commands.results import Sublayer
from tests.commands.test_generate_gaps import PROMPT, span_run


def without_time(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "seconds"}


def test_evaluate_gives_the_scores_of_the_command(sublayer: Sublayer, trained: Path):
    told = sublayer("evaluate", trained, "--split", "test", "--stride", 8, "--json").found()
    scores = package.open_run(trained).evaluate(split="test", stride=8)
    assert scores == told
    assert scores == package.evaluate(trained, "test", stride=8)
    assert repr(scores) in sublayer("evaluate", trained, "--split", "test", "--stride", 8).out
    assert f"{scores['bits_per_byte']:,.4f}" in scores._repr_html_()


def test_generate_gives_the_texts_of_the_command(sublayer: Sublayer, trained: Path):
    drawn = ("--tokens", 20, "--temperature", 0.8, "--seed", 3)
    told = sublayer("generate", trained, "--prompt", "The ", *drawn, "--json").found()
    texts = package.open_run(trained).generate("The ", tokens=20, temperature=0.8, seed=3)
    assert without_time(texts) == without_time(told)
    assert str(texts) == repr(texts) == f"The {told['texts'][0]}"
    several = package.generate(trained, "The ", tokens=5, n=3)
    assert len(several.texts) == 3
    assert several._repr_html_().count("<b>The </b>") == 3


def test_what_is_generated_is_escaped_in_a_notebook(trained: Path):
    text = package.generate(trained, "<script>The", tokens=1)
    assert "<b>&lt;script&gt;The</b>" in text._repr_html_()


def test_fill_gives_the_completions_of_the_command(
    sublayer: Sublayer, trained: Path, tmp_path: Path
):
    run = span_run(tmp_path)
    told = sublayer("generate", run, "--prompt", PROMPT, "--beam", 3, "--json").found()
    filled = package.open_run(run).fill(PROMPT, beam=3)
    assert without_time(filled) == without_time(told)
    assert str(filled) == told["completions"][0]["text"]
    assert filled._repr_html_().count("<tr>") == 4
    with pytest.raises(ConfigError, match="is an encoder-decoder: use fill, not generate"):
        package.generate(run, PROMPT)
    with pytest.raises(ConfigError, match="is a decoder, which fills no gaps: use generate"):
        package.fill(trained, "The cat")


@pytest.mark.slow
def test_translate_gives_the_translations_of_the_command(
    sublayer: Sublayer, translator: Path, monkeypatch: pytest.MonkeyPatch
):
    import io
    from types import SimpleNamespace

    lines = ["the cat sees a dog", "", "a dog runs"]
    text = "\n".join(lines).encode() + b"\n"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    told = sublayer("translate", translator, "--beam", 3, "--n-best", 2, "--json").found()
    translated = package.open_run(translator).translate(lines, beam=3, n_best=2)
    assert translated == told
    assert len(translated.texts) == 3
    assert "<td" in translated._repr_html_()


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("the cat", "lines is one text: give a list of lines"),
        (["the\ncat"], "a line has a line break in it"),
    ],
)
def test_what_is_no_list_of_lines_is_refused(lines: Any, says: str, translator: Path):
    with pytest.raises(ConfigError, match=says):
        package.translate(translator, lines)


def test_plan_gives_what_the_command_counts(sublayer: Sublayer):
    vary = ["model.ffn=gelu,swiglu"]
    words = ("gpt", "model.n_layers=2", "--vary", *vary, "--seeds", 3)
    told = sublayer("plan", *words, "--json").found()
    plan = package.plan("gpt", {"model.n_layers": 2}, vary=vary, seeds=3)
    assert plan["arms"] == told["arms"]
    assert plan["total"] == told["total"]
    html = plan._repr_html_()
    assert f"{plan['arms'][0]['parameters']['total']:,}" in html
    # The tables are those of a page, however wide: nothing of the terminal's is in them. The second
    # has what each arm takes beyond the first.
    assert html.count("<tr>") == 1 + len(plan["arms"]) + len(plan["arms"]) and "---" not in html
    assert ">operations</th>" in html
    assert "6 runs: time unknown" in html
    assert plan["arms"][1]["name"] in repr(plan)


def test_inspections_give_what_the_command_measures(sublayer: Sublayer, trained: Path):
    told = sublayer("inspect", "layers", trained, "--tokens", 64, "--json").found()
    assert package.open_run(trained).inspect_layers(tokens=64) == told
    shown = package.inspect_splitting(trained, tokens=64)
    told = sublayer("inspect", "splitting", trained, "--tokens", 64, "--json").found()
    assert shown == told
    told = sublayer("inspect", "paths", trained, "--tokens", 5, "--json").found()
    assert package.open_run(trained).inspect_paths(tokens=5) == told
    assert len(package.inspect_paths(trained)["runs"][0]["stacks"][0]["tokens"]) == 16


def test_recipes_are_listed_resolved_and_drawn(sublayer: Sublayer, tmp_path: Path):
    assert package.list_recipes() == sublayer("recipes", "--json").answer()
    assert "albert-base" in package.list_recipes()._repr_html_()
    told = sublayer("recipes", "gpt", "model.d_ff=512", "--json").answer()
    assert package.recipe("gpt", {"model.d_ff": 512}) == told
    drawn = package.draw("gpt", {"model.ffn": "swiglu"}, out=tmp_path / "gpt.svg")
    assert (tmp_path / "gpt.svg").read_text() == drawn.svg
    assert "swiglu" in repr(drawn)
    assert "data:image/svg+xml;base64," in drawn._repr_html_()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stride": 0}, "--stride 0 is too small: give at least 1"),
        ({"stride": "8"}, "--stride = '8' is refused: input should be a valid integer"),
        ({"split": "train"}, "--split = 'train' is refused: input should be 'valid' or 'test'"),
        ({"beam": 3}, "--beam is for models of objective.kind = translation"),
    ],
)
def test_options_are_refused_as_on_the_command_line(
    options: dict[str, Any], says: str, trained: Path
):
    with pytest.raises(ConfigError, match=says):
        package.evaluate(trained, **options)


def test_a_model_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(CheckpointError, match="does not exist"):
        package.evaluate(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"holds no run: it has no recipe\.toml"):
        package.open_run(tmp_path)


def test_results_are_json(trained: Path):
    run = package.open_run(trained)
    assert json.loads(json.dumps(run)) == run
    plan = package.plan("gpt")
    assert json.loads(json.dumps(plan)) == plan
