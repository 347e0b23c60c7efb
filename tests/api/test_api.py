"""Functions give the results that the command prints with --json, and show themselves."""

import dataclasses
import inspect
import io
import json
import pickle
import shutil
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import sublayer as package
from sublayer.api.arguments import StudyOptions
from sublayer.api.writing import EMPTY, Fillings
from sublayer.decode.gaps import Filling
from sublayer.errors import ConfigError, DataError
from sublayer.study.definition import Options
from tests import made
from tests.commands.conftest import TINY
from tests.commands.reviews import reviews, write_csv
from tests.commands.test_generate import PROMPT, span_run


def test_evaluate_gives_the_scores_of_the_command(sublayer, trained):
    told = sublayer("evaluate", trained, "--split", "test", "--stride", 8, "--json").found()
    scores = package.open_run(trained).evaluate(split="test", stride=8)
    again = package.evaluate(trained, "test", stride=8)
    assert told == scores.to_dict() == again.to_dict()
    assert f"{scores['bits_per_byte']:,.4f}" in scores._repr_html_()
    with pytest.raises(ConfigError, match="^stride '8' is not accepted: give a whole number$"):
        package.evaluate(trained, stride="8")


def test_generate_gives_the_texts_of_the_command(sublayer, trained):
    drawn = ("--tokens", 20, "--temperature", 0.8, "--seed", 3)
    told = sublayer("generate", trained, "--prompt", "The ", *drawn, "--json").found()
    texts = package.open_run(trained).generate("The ", tokens=20, temperature=0.8, seed=3)
    assert {**texts.to_dict(), "seconds": 0} == {**told, "seconds": 0}
    assert str(texts) == repr(texts) == f"The {told['texts'][0]}"
    several = package.generate(trained, "The <", tokens=5, n=3)
    assert several._repr_html_().count("<b>The &lt;</b>") == 3


def test_gaps_are_completed_and_filled_as_by_the_commands(sublayer, trained, tmp_path):
    run = span_run(tmp_path)
    told = sublayer("generate", run, "--prompt", PROMPT, "--beam", 3, "--json").found()
    completed = package.open_run(run).generate(PROMPT, beam=3)
    assert {**completed.to_dict(), "seconds": 0} == {**told, "seconds": 0}
    assert str(completed) == told["completions"][0]["text"]
    assert completed._repr_html_().count("<tr>") == 4
    told = sublayer("fill", run, "--text", PROMPT, "--n", 2, "--json").found()
    for filled in (package.fill(run, PROMPT, 2), package.load(run).fill(PROMPT, n=2)):
        assert filled.to_dict() == told
    with pytest.raises(ConfigError, match="decoder, which cannot fill masks: use generate"):
        package.fill(trained, "The cat")
    # A filling of no token is visible.
    shown = Fillings("The [MASK] cat.", [[Filling("", 0.5, "The cat.")]])
    assert EMPTY in str(shown) and EMPTY in shown._repr_html_()
    assert shown.to_dict()["masks"][0][0]["text"] == ""


def test_translate_gives_the_translations_of_the_command(sublayer, translator, monkeypatch):
    lines = ["the cat sees a dog", "", "a dog runs"]
    given = SimpleNamespace(buffer=io.BytesIO("\n".join(lines).encode()))
    monkeypatch.setattr("sys.stdin", given)
    told = sublayer("translate", translator, "--beam", 3, "--n-best", 2, "--json").found()
    translated = package.open_run(translator).translate(lines, beam=3, n_best=2)
    again = package.translate(translator, lines, beam=np.int8(3), n_best=2)
    assert translated.to_dict() == told == again.to_dict()
    assert len(translated.texts) == 3 and "<td" in translated._repr_html_()
    for given in ("the cat", ["the\ncat"]):
        with pytest.raises(ConfigError, match="lines is one text|a line contains a line break"):
            package.translate(translator, given)


def test_a_loaded_model_is_its_module_and_is_asked_by_methods(trained, translator):
    model, run = package.load(trained), package.open_run(trained)
    tokens = torch.arange(5)[None]
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, model.model(tokens).logits)
    assert model.state_dict().keys() == model.model.state_dict().keys()
    assert sum(each.numel() for each in model.parameters()) == run["parameters"]["total"]
    drawn = {"tokens": 5, "temperature": 0.8, "seed": 3}
    assert model.generate("The ", **drawn).texts == run.generate("The ", **drawn).texts
    lines = ["the cat sees a dog"]
    expected = package.translate(translator, lines).texts
    assert package.load(translator).translate(lines).texts == expected
    with pytest.raises(ConfigError, match="the model is already loaded"):
        model.generate("The ", device="cpu")
    with pytest.raises(ConfigError, match=f"^{trained} is a decoder and translates nothing"):
        model.translate(lines)
    with pytest.raises(AttributeError):
        model.no_such_thing  # noqa: B018


def test_plan_gives_what_the_command_counts(sublayer):
    vary = ["model.ffn=gelu,swiglu"]
    words = ("plan", "gpt", "model.n_layers=2", "--vary", *vary, "--seeds", 3, "--json")
    told = sublayer(*words).found()
    plan = package.plan("gpt", {"model.n_layers": 2}, vary=vary, seeds=3)
    assert (plan.arms, plan.total) == (told["arms"], told["total"])
    assert plan._repr_html_().count("<tr>") == 1 + 2 + 2
    assert plan.arms[1]["name"] in repr(plan)


def test_a_plan_of_a_run_has_the_time_that_its_training_took(trained):
    run = package.open_run(trained)
    [arm] = package.plan(run, {"train.steps": 8}).arms
    pace = run["tokens"] / run["tokens_per_s"] / run["step"]
    assert arm["seconds_per_step"] == pytest.approx(pace) and arm["hours"] >= 8 * pace / 3600
    [other] = package.plan(run, {"model.d_ff": 64}).arms
    assert other["hours"] is None


def test_errors_name_parameters_to_a_program_and_options_to_a_user(sublayer):
    for wrong in ({"seeds_at_most": 3}, {"seeds_at_most": "3"}, {"tuning_seeds": 2}):
        [(name, value)] = wrong.items()
        flag = f"--{name.replace('_', '-')}"
        with pytest.raises(ConfigError, match=name) as refused:
            package.plan("gpt", **wrong)
        assert "--" not in str(refused.value)
        if isinstance(value, int):
            assert flag in sublayer("plan", "gpt", flag, value).err


def test_each_option_of_a_study_is_declared_once_and_visible():
    fields = {each.name for each in dataclasses.fields(Options)}
    shared = StudyOptions.__annotations__.keys() - {"plugins"}
    assert shared <= fields and fields - shared <= {"on", "device", "resume"}
    for function in (package.compare, package.plan):
        assert shared <= inspect.signature(function).parameters.keys()
    assert "beam" in inspect.signature(package.Run.generate).parameters


def test_inspections_give_what_the_command_measures(sublayer, trained):
    for kind in ("layers", "splitting", "paths"):
        told = sublayer("inspect", kind, trained, "--tokens", 8, "--json").found()
        found = getattr(package.open_run(trained), f"inspect_{kind}")(tokens=8)
        assert found.to_dict() == told
    assert len(package.inspect_paths(trained)["runs"][0]["stacks"][0]["tokens"]) == 16


def test_recipes_are_listed_resolved_and_drawn(sublayer, tmp_path):
    assert package.list_recipes().to_dict() == sublayer("recipes", "--json").answer()
    assert "albert-base" in package.list_recipes()._repr_html_()
    told = sublayer("recipes", "gpt", "model.d_ff=512", "--json").answer()
    assert package.recipe("gpt", {"model.d_ff": 512}).to_dict() == told
    told = sublayer("recipes", "llama-2023", "--changed", "--json").answer()
    assert package.recipe("llama-2023", changed=True).to_dict() == told
    with pytest.raises(ConfigError, match="is a study"):
        package.recipe("albert-data")
    drawn = package.draw("gpt", {"model.ffn": "swiglu"}, out=tmp_path / "gpt.svg")
    assert (tmp_path / "gpt.svg").read_text() == drawn.svg
    assert "swiglu" in repr(drawn) and "data:image/svg+xml;base64," in drawn._repr_html_()
    assert repr(pickle.loads(pickle.dumps(drawn))) == repr(drawn)  # noqa: S301


def test_answers_are_those_of_the_command(sublayer, reviewer, tmp_path):
    rows = reviews(6, seed=7)
    path = write_csv(tmp_path / "new.csv", rows)
    told = sublayer("predict", reviewer, path, "--json").out.splitlines()
    found = package.predict(reviewer, rows)
    answered = [{**row, **each.to_json()} for row, each in zip(rows, found, strict=True)]
    assert answered == [*map(json.loads, told)]
    assert [each.label for each in found] == [row["stars"] for row in rows]
    assert package.open_run(reviewer).predict(rows, batch=2) == found
    assert package.load(reviewer).predict([row["review"] for row in rows]) == found


def test_rows_are_what_they_look_like(reviewer):
    pandas = pytest.importorskip("pandas")
    text, other = "The film is dull.", "A fine story."
    texts = pandas.Series([text, None, float("nan"), pandas.NA, other])
    frame = pandas.DataFrame({"id": range(5), "review": texts})
    asked = [frame, {"review": [*texts]}, texts, [*texts], texts.to_numpy(), frame["review"]]
    asked += [frame.itertuples(index=False), [row for _, row in frame.iterrows()]]
    if pyarrow := pytest.importorskip("pyarrow"):
        asked.append(pyarrow.table({"review": [text, None, "", " ", other]}))
    for rows in asked:
        answers = package.predict(reviewer, rows)
        assert [each.is_answered for each in answers] == [True, False, False, False, True]
    lines = [text, "", other]
    model = package.load(reviewer)
    for given in (pandas.Series([text, None, other]), pandas.DataFrame({"t": lines}), lines):
        assert np.array_equal(model.embed(given), model.embed(lines))
    twice = pandas.DataFrame([[1, 2]], columns=["review", "review"])
    wrong = [text, 5, None, twice, {"review": text}, {"a": [1], "b": []}, [text, 5], [b"x"]]
    for rows in [*wrong, {text, other}, ["a\ud800"], [Path("x.csv")]]:
        with pytest.raises(DataError):
            package.predict(reviewer, rows)
    for wrong in ({"beam": 0}, {"batch": 0}, {"top_k": "2"}):
        with pytest.raises(ConfigError, match="too small|is not accepted"):
            package.predict(reviewer, [text], **wrong)


def test_a_table_is_learned_from_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = write_csv(tmp_path / "my.csv", reviews(60))
    columns = {"text": "review", "number": "rating", "group": "film"}
    settings = dict(word.split("=") for word in TINY) | {"train.steps": 1}
    found = package.finetune("albert-small", rows, settings, columns=columns)
    assert found.path == Path("runs") / "my"
    [tuned] = found.to_dict()["seeds"]
    assert set(tuned["tasks"][0]["metrics"]) == {"pearson", "spearman"}
    [answer] = package.predict(found.path, ["The film is dull."])
    assert isinstance(answer.label, float)
    frame = pytest.importorskip("pandas").read_csv(rows)
    same = package.finetune("albert-small", frame, settings, columns=columns, out="runs/frame")
    [again] = same.to_dict()["seeds"]
    assert again["tasks"][0]["metrics"] == tuned["tasks"][0]["metrics"]
    for wrong in (b"x", {1}, "\ud800", 1j):
        with pytest.raises(DataError, match="row 0 of the table: 'review' "):
            package.evaluate(found.path, path={"review": [wrong], "rating": [1.0]})
    scored = package.evaluate(found.path, path=frame.assign(far=[float("inf")] * len(frame)))
    assert scored["tasks"][0]["metrics"].keys() == {"pearson", "spearman"}


SMALL = {**made.TINY, "data.path": "text.txt", "train.steps": 4, "train.evaluate_steps": 2}


@pytest.fixture
def workplace(tmp_path, own_cache, monkeypatch):
    (tmp_path / "text.txt").write_text("The cat sat on the mat while it rained.\n" * 300)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_numbers_of_numpy_are_settings(workplace):
    given = {"train.steps": np.int64(2), "optimizer.lr": np.float32(0.25)}
    given |= {"data.path": Path("text.txt"), "train.evaluate_steps": np.array(2).item()}
    run = package.train("gpt", {**SMALL, **given})
    assert (run.recipe.train.steps, run.recipe.optimizer.lr) == (2, 0.25)
    result = package.evaluate(run, stride=np.int64(8))
    assert result.to_dict() == package.evaluate(run, stride=8).to_dict()
    assert package.plan("gpt", {**SMALL, "train.evaluate_steps": None}) is not None
    assert package.plan("gpt", SMALL, vary="model.ffn=gelu,swiglu") is not None
    assert package.generate(run, "The", tokens=1, temperature=Decimal("0.5")).texts
    with pytest.raises(TypeError, match=r"^train\(\) .* 'bogus'$"):
        package.train("gpt", bogus=1)
    with pytest.raises(ConfigError, match="prompt is None"):
        package.generate(run, None)
    for refused in (object(), float("nan"), [np.nan], pytest, {2}, []):
        calls = [partial(package.train, "gpt", {**SMALL, x: refused}) for x in ("train.steps", 1)]
        calls += [partial(package.load, run, **{x: refused}) for x in ("dtype", "average")]
        for call in (partial(package.evaluate, refused), *calls):
            with pytest.raises(ConfigError):
                call()


def test_train_returns_the_run_as_a_dict_of_its_record(workplace):
    run = package.train("gpt", SMALL, out="runs/a")
    assert run == json.loads((workplace / "runs/a/record.json").read_text())
    assert (run.path, run.recipe.model.d_model) == (Path("runs/a"), 24)
    assert [line["step"] for line in run.curve] == [2, 4]
    assert {line["kind"] for line in run.metrics} >= {"valid"}
    assert package.open_run("runs/a") == run == package.train(run, resume=True)
    assert run.load().config == package.load(run).config


def test_a_run_shows_itself_in_a_shell_and_in_a_notebook(trained, tmp_path):
    run = package.open_run(trained)
    score = f"{run['valid']['bits_per_byte']:.4f} bits per byte"
    assert str(trained) in repr(run) and score in repr(run)
    assert run.to_dict() == run
    listed = package.list_runs(trained.parent)
    again = pickle.loads(pickle.dumps(listed))  # noqa: S301
    assert repr(again) == repr(listed) and trained.name in repr(listed)
    assert "data:image/svg+xml;base64," in run._repr_html_()
    shutil.copy(trained / "recipe.toml", tmp_path)
    unfinished = package.open_run(tmp_path)
    assert not unfinished.is_finished and "not finished" in repr(unfinished)
    assert unfinished == {} and "not finished" in unfinished._repr_html_()


def test_compare_gives_what_the_command_prints(workplace, sublayer):
    vary = "model.ffn=gelu,swiglu"
    found = package.compare("gpt", SMALL, vary=[vary], seeds=3, out="runs/c")
    words = [f"{key}={value}" for key, value in SMALL.items()]
    options = ("--vary", vary, "--seeds", 3, "--out", "runs/c", "--json")
    told = sublayer("compare", "gpt", *words, *options).found()
    for name in ("arms", "differences", "notes", "metric"):
        assert found.to_dict()[name] == told[name]
    assert found.verdicts == {each["arm"]: each["verdict"] for each in told["differences"]}
    assert str(found.report) in repr(found)
    assert all(verdict in found._repr_html_() for verdict in found.verdicts.values())
