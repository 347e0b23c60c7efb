"""Functions give the results that the command prints with --json, and show themselves."""

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sublayer as package
from sublayer.cli import main
from sublayer.errors import CheckpointError, ConfigError
from tests.commands.conftest import TINY
from tests.commands.results import Sublayer
from tests.commands.reviews import reviews, write_csv
from tests.commands.test_generate_gaps import PROMPT, span_run


def without_time(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "seconds"}


def test_evaluate_gives_the_scores_of_the_command(sublayer: Sublayer, trained: Path):
    told = sublayer("evaluate", trained, "--split", "test", "--stride", 8, "--json").found()
    scores = package.open_run(trained).evaluate(split="test", stride=8)
    assert scores == told
    assert scores == package.evaluate(trained, "test", stride=8)
    assert f"{scores['bits_per_byte']:,.4f}" in scores._repr_html_()


def test_generate_gives_the_texts_of_the_command(sublayer: Sublayer, trained: Path):
    drawn = ("--tokens", 20, "--temperature", 0.8, "--seed", 3)
    told = sublayer("generate", trained, "--prompt", "The ", *drawn, "--json").found()
    texts = package.open_run(trained).generate("The ", tokens=20, temperature=0.8, seed=3)
    assert without_time(texts) == without_time(told)
    assert str(texts) == repr(texts) == f"The {told['texts'][0]}"
    several = package.generate(trained, "The <", tokens=5, n=3)
    assert len(several.texts) == 3
    assert several._repr_html_().count("<b>The &lt;</b>") == 3


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


def test_translate_gives_the_translations_of_the_command(
    sublayer: Sublayer, translator: Path, monkeypatch: pytest.MonkeyPatch
):
    lines = ["the cat sees a dog", "", "a dog runs"]
    text = "\n".join(lines).encode() + b"\n"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    told = sublayer("translate", translator, "--beam", 3, "--n-best", 2, "--json").found()
    translated = package.open_run(translator).translate(lines, beam=3, n_best=2)
    assert translated == told
    assert len(translated.texts) == 3
    assert "<td" in translated._repr_html_()


def test_a_text_is_no_list_of_lines(translator: Path):
    for lines, message in (("the cat", "lines is one text"), (["the\ncat"], "a line break in it")):
        with pytest.raises(ConfigError, match=message):
            package.translate(translator, lines)  # type: ignore[arg-type]


def test_plan_gives_what_the_command_counts(sublayer: Sublayer):
    vary = ["model.ffn=gelu,swiglu"]
    words = ("gpt", "model.n_layers=2", "--vary", *vary, "--seeds", 3)
    told = sublayer("plan", *words, "--json").found()
    plan = package.plan("gpt", {"model.n_layers": 2}, vary=vary, seeds=3)
    assert plan["arms"] == told["arms"]
    assert plan["total"] == told["total"]
    html = plan._repr_html_()
    # Each arm, and its excess over the first, below two headings.
    assert html.count("<tr>") == 1 + 2 + 2 and "---" not in html
    assert plan["arms"][1]["name"] in repr(plan)
    until = package.plan("gpt", vary=vary, until="decided", seeds_at_most=5)
    assert until["total"]["runs"] == 2 * 5


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
        ({"stride": "8"}, "--stride = '8' is refused"),
        ({"split": "train"}, "--split = 'train' is refused"),
        ({"beam": 3}, "--beam is for models"),
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


ROWS = reviews(6, seed=7)


def test_a_loaded_model_answers_as_the_command_does(
    sublayer: Sublayer, reviewer: Path, tmp_path: Path
):
    path = write_csv(tmp_path / "new.csv", ROWS)
    told = sublayer("predict", reviewer, path, "--json").out.splitlines()
    found = package.load(reviewer).predict(ROWS)
    for line, each, row in zip(map(json.loads, told), found, ROWS, strict=True):
        assert {**row, **each.to_json()} == line
    assert [each.label for each in found] == [row["stars"] for row in ROWS]


def test_a_run_and_a_function_answer_alike(reviewer: Path):
    texts = [row["review"] for row in ROWS]
    found = package.predict(reviewer, texts)
    assert package.open_run(reviewer).predict(texts, batch=2) == found
    assert package.open_run(reviewer).load().predict(texts) == found


def test_a_table_is_learned_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    rows = write_csv(tmp_path / "my.csv", reviews(60))
    overrides = [word for word in TINY if not word.startswith("train.steps")]
    columns = {"text": "review", "number": "rating", "group": "film"}
    settings = [*overrides, "train.steps=1"]
    found = package.finetune("albert-small", rows, settings, columns=columns)
    assert found["run"] == str(Path("runs") / "my")
    assert set(found["seeds"][0]["tasks"][0]["metrics"]) == {"pearson", "spearman"}
    [answer] = package.predict(found["run"], ["The film is dull."])
    assert isinstance(answer.label, float)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"label": "stars"}, "does not say which column is the text"),
        ({"text": "review", "choices": "a,b"}, "choices is a list of columns"),
    ],
)
def test_columns_that_are_not_told_as_they_are_in_recipes_are_refused(
    columns: dict[str, str], said: str
):
    with pytest.raises(ConfigError, match=said):
        package.finetune("albert-small", "my.csv", columns=columns)


SMALL: dict[str, Any] = {
    "model.n_layers": 1,
    "model.d_model": 16,
    "model.n_heads": 2,
    "data.context": 32,
    "train.steps": 4,
    "train.evaluate_steps": 2,
    "train.batch_sequences": 2,
    "train.precision": "float32",
    "train.threads": 1,
}


@pytest.fixture
def workplace(tmp_path: Path, own_cache: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "text.txt").write_text("The cat sat on the mat while it rained.\n" * 300)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_train_returns_the_run_as_a_dict_of_its_record(workplace: Path):
    run = package.train("gpt", {**SMALL, "data.path": "text.txt"}, out="runs/a")
    assert run == json.loads((workplace / "runs/a/record.json").read_text())
    assert run["valid"]["bits_per_byte"] > 0
    assert run.path == Path("runs/a")
    assert run.recipe.model.d_model == 16
    assert [line["step"] for line in run.curve] == [2, 4]
    assert {line["kind"] for line in run.metrics} >= {"valid"}
    assert package.open_run("runs/a") == run
    assert run.load().config == package.load(run).config
    assert package.train(run, resume=True) == run


def test_a_run_shows_itself_in_a_shell_and_in_a_notebook(trained: Path, tmp_path: Path):
    run = package.open_run(trained)
    lines = repr(run).splitlines()
    assert str(trained) in lines[0]
    assert f"bits_per_byte {run['valid']['bits_per_byte']:.4f}" in lines[1]
    html = run._repr_html_()
    assert "<table>" in html
    assert "data:image/svg+xml;base64," in html
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "recipe.toml").write_bytes((trained / "recipe.toml").read_bytes())
    unfinished = package.open_run(folder)
    assert not unfinished.is_finished and unfinished == {}
    assert "not finished" in repr(unfinished) and "not finished" in unfinished._repr_html_()


def test_compare_gives_what_the_command_prints(workplace: Path, capsys: pytest.CaptureFixture[str]):
    settings = {**SMALL, "data.path": "text.txt"}
    vary = "model.ffn=gelu,swiglu"
    found = package.compare("gpt", settings, vary=[vary], seeds=3, out="runs/c")
    capsys.readouterr()
    words = [f"{key}={value}" for key, value in settings.items()]
    command = ["compare", "gpt", *words, "--vary", vary, "--seeds", "3", "--out", "runs/c"]
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    for name in ("arms", "differences", "notes", "metric"):
        assert found[name] == told[name]
    assert found.verdicts == {each["arm"]: each["verdict"] for each in told["differences"]}
    assert found["report"] in repr(found)
    html = found._repr_html_()
    assert all(verdict in html for verdict in found.verdicts.values())
    with pytest.raises(ConfigError, match="not in BLEU"):
        package.compare("gpt", settings, vary=[vary], seeds=3, margin="1 BLEU", out="runs/none")
