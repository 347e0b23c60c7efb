"""Runs and comparisons: ``sublayer runs``, ``compare``, ``demo`` and ``report``."""

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from sublayer.api.comparing import compare
from sublayer.files.storage import held
from sublayer.reporting import listing
from sublayer.reporting.terminal import summarize
from sublayer.reporting.words import headline
from sublayer.study.collect import results_of_folder
from tests.commands.conftest import SMALL
from tests.study.studies import FFN, files, settings_of, write_text
from tests.study.synthetic import synthetic_results


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path / "runs" / "book")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def cut_short(run):
    (run / "record.json").unlink()
    shutil.rmtree(run / "model")


def rows(sublayer, *words):
    listed = sublayer("runs", *words, "--json").answer()["runs"]
    return {row["folder"]: row for row in listed}


def of(row, names):
    return [row[name] for name in names.split()]


def test_runs_are_listed_by_their_time_and_left_as_they_are(place, sublayer):
    assert max(map(len, sublayer("runs").shown().splitlines())) <= 80
    shutil.copytree("runs/book", "runs/new")
    for path in Path("runs/book").rglob("*"):
        os.utime(path, (1e9, 1e9))
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    assert list(rows(sublayer)) == ["runs/new", "runs/book"]
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before


def test_an_unfinished_run_has_the_command_that_finishes_it(place, sublayer):
    shutil.move("runs/book", "runs/a book")
    cut_short(place / "runs" / "a book")
    with held(place / "runs" / "a book"):
        assert of(rows(sublayer)["runs/a book"], "state resume") == ["running", ""]
        assert "running now" in sublayer("runs").shown()
    row = rows(sublayer)["runs/a book"]
    assert of(row, "state step steps") == ["unfinished", 4, 4]
    command = shlex.split(row["resume"])
    assert command == ["sublayer", "train", "runs/a book", "--resume"]
    assert sublayer(*command[1:]).code == 0
    assert rows(sublayer)["runs/a book"]["state"] == "finished"


def test_a_run_that_starts_from_another_lists_what_its_start_did_not_give(place, sublayer):
    words = ("init.run=runs/book", "train.steps=2", "model.dropout=0.1", "train.threads=1")
    assert sublayer("train", "gpt", *words, "--out", "runs/later").code == 0
    changed = {"model.dropout": 0.1, "train.steps": 2, "train.threads": 1}
    changed["init.run"] = str(Path("runs/book").resolve())
    assert rows(sublayer)["runs/later"]["changed"] == changed
    shutil.rmtree("runs/book")
    assert rows(sublayer)["runs/later"]["changed"]["model.d_model"] == 16


def test_a_comparison_of_runs_that_have_ended_is_listed_with_its_verdicts(place, sublayer):
    settings = ("train.seed=1", "model.ffn=relu", "train.steps=2", "--out", "runs/other")
    assert sublayer("train", "runs/book", *settings).code == 0
    assert sublayer("compare", "runs/book", "runs/other", "--out", "runs/both").code == 0
    headline = "One seed: values, no verdict; budgets differ by a factor of 2.0 in operations"
    expected = ["comparison", "finished", "", 2, 2, ["book", "other"], headline]
    names = "kind state resume finished planned arms headline"
    assert of(rows(sublayer)["runs/both"], names) == expected
    (place / "runs/both/results.json").unlink()
    resume = "sublayer report runs/both"
    assert of(rows(sublayer)["runs/both"], "state resume") == ["unfinished", resume]
    assert sublayer("report", "runs/both").code == 0
    assert rows(sublayer)["runs/both"]["state"] == "finished"
    results = json.loads(Path("runs/both/results.json").read_text())
    for damage in (3, [3]):
        damaged = {**results, "headline": None, "differences": damage}
        Path("runs/both/results.json").write_text(json.dumps(damaged))
        assert rows(sublayer)["runs/both"]["headline"] == ""
    (place / "runs/both/runs.json").write_text("{}")
    assert "runs.json" in rows(sublayer)["runs/both"]["problem"]


def test_a_folder_that_cannot_be_read_is_named_in_its_row(place, sublayer):
    damaged = {"no-record/record.json": b"{", "no-recipe/recipe.toml": b"= 3"}
    damaged |= {"binary/recipe.toml": b"\xff\x00", "study/study.toml": b"asked = 3"}
    for path, content in damaged.items():
        shutil.copytree("runs/book", Path("runs", path).parent)
        Path("runs", path).write_bytes(content)
    cut_short(place / "runs" / "book")
    Path("runs/book/failure.json").write_text('{"message": "the loss is not finite at step 3"}')
    listed = rows(sublayer)
    failed = listed.pop("runs/book")
    assert of(failed, "state problem") == ["failed", "the loss is not finite at step 3"]
    assert set(listed) == {f"runs/{name}" for name in ("no-record", "no-recipe", "binary", "study")}
    assert all(row["state"] == "damaged" and row["problem"] for row in listed.values())
    assert sublayer("runs").shown().count("damaged") >= 4


def test_a_comparison_is_one_row_with_the_command_that_resumes_it(place, sublayer, monkeypatch):
    (place / "text.txt").write_text("The cat sat on the mat.\n" * 200)
    words = (*SMALL, "train.steps=2", "train.batch_sequences=2", "data.path=text.txt")
    arms = ("--vary", "model.ffn=gelu,swiglu", "--seeds", "1")
    assert sublayer("compare", "gpt", *words, *arms, "--out", "runs/two").code == 0
    row = rows(sublayer)["runs/two"]
    expected = ["finished", ["ffn=gelu", "ffn=swiglu"], 2, 2, 1, "One seed: values, no verdict"]
    assert of(row, "state arms finished planned seeds headline") == expected
    assert len(rows(sublayer, "--arms", "runs/two")) == 3
    shutil.rmtree("runs/two/arms/1-ffn=swiglu")
    row = rows(sublayer)["runs/two"]
    assert of(row, "state finished") == ["unfinished", 1]
    assert sublayer(*shlex.split(row["resume"])[1:]).code == 0
    assert rows(sublayer)["runs/two"]["state"] == "finished"
    monkeypatch.chdir("runs")
    shutil.rmtree("two/arms/1-ffn=swiglu")
    # From another folder the command changes to the one that its paths are of.
    assert rows(sublayer, ".")["two"]["resume"].startswith(f"cd {place} && sublayer compare gpt ")


def test_many_arms_or_long_names_leave_a_summary_of_one_screen_and_a_headline_of_two_lines():
    for name in ("block=['ffn:relu*0.5','attention','ffn:{}*0.5'] positions=rotary", "arm{}"):
        for effect in (0.0, 0.01):
            results = synthetic_results({name.format(n): n * effect for n in range(20)})
            assert len(headline(results)) <= 120
    lines = summarize(results, Path("/report.html")).splitlines()
    assert len(lines) <= 40 and any("11 more" in line for line in lines)


@pytest.fixture(scope="module")
def compared(tmp_path_factory, own_cache):
    place = tmp_path_factory.mktemp("report")
    text = write_text(place / "river.txt")
    compare("gpt", settings_of(text), vary=[FFN], seeds=3, out=place / "study")
    return place / "study"


@pytest.fixture
def study(compared, here):
    return Path(shutil.copytree(compared, "study"))


def test_the_report_of_a_comparison_is_written_again(sublayer, study):
    kept = re.compile(r'<h1 id="verdict">.*?</h1>|<dl class="samples">.*?</dl>', re.DOTALL)
    page = study / "report.html"
    before, runs = kept.findall(page.read_text()), files(study / "arms")
    assert len(before) == 2 and "ffn=swiglu" in before[0]
    assert sublayer("report", study).code == 0
    assert kept.findall(page.read_text()) == before
    page.unlink()
    assert sublayer("report", study)[:2] == (0, f"{page.resolve()}\n")
    for _ in range(2):
        assert sublayer("report", study, "--out", "copy.html").code == 0
    assert all(kept.findall(each.read_text()) == before for each in (page, Path("copy.html")))
    assert files(study / "arms") == runs
    page.write_text("what somebody wrote")
    assert "is not a report of this folder" in sublayer("report", study).refusal()
    assert page.read_text() == "what somebody wrote"


def test_an_unfinished_comparison_says_what_is_missing(sublayer, study):
    finished = json.loads((study / "results.json").read_text())["notes"]
    assert any(note.startswith("The test split is part of one document") for note in finished)
    shutil.rmtree(study / "arms/1-ffn=swiglu/seed-1")
    for name in ("report.html", "results.json"):
        (study / name).unlink()
    first, *others = results_of_folder(study).notes
    assert first.startswith("Unfinished: 5 of 6 runs")
    assert others == finished
    assert sublayer("report", study).code == 0
    text = (study / "report.html").read_text()
    assert all(note.partition(".")[0].partition("'")[0] in text for note in (first, *finished))
    shutil.rmtree(study / "arms/1-ffn=swiglu")
    assert sublayer("report", study).code == 0
    text = (study / "report.html").read_text()
    assert '<h1 id="verdict">Nothing to compare yet<' in text
    assert "ffn=swiglu" in text and results_of_folder(study).n_comparisons == 1
    assert "<h2>Differences" not in text
    shutil.rmtree(study / "arms/0-ffn=gelu")
    assert "no run of the baseline, ffn=gelu, has ended" in sublayer("report", study).refusal()


def test_a_long_command_is_copied_as_it_is(monkeypatch):
    monkeypatch.setattr(listing, "page_width", lambda: 40)
    words = " ".join(f"--set=x{n}" for n in range(9))
    command = f"cd 'a folder' && sublayer train gpt --resume {words}"
    lines = listing._command(command).split("\n")
    assert all(line.endswith(" \\") for line in lines[:-1]) and max(map(len, lines)) <= 40
    assert shlex.split(" ".join(line.removesuffix("\\") for line in lines)) == shlex.split(command)


def test_a_comparison_where_a_run_is_needed_names_one_of_its_runs(here, trained, sublayer):
    shutil.copytree(trained, here / "ffn" / "arms" / "0-gelu" / "seed-0")
    for words in ("evaluate ffn", "generate ffn --prompt a", "plan ffn", "finetune ffn sst2"):
        refused = sublayer(*words.split())
        assert refused.code == 2 and "ffn/arms/0-gelu/seed-0" in refused.err


@pytest.mark.parametrize("out", [(), ("--out", "runs/gone")])
def test_a_comparison_that_is_not_there_is_not_resumed(out, here, sublayer):
    words = ("compare", "gpt", "--vary", "model.ffn=gelu,relu", "--resume", *out)
    refused = sublayer(*words)
    assert refused.code == 2 and "nothing to resume" in refused.err
    assert not list(here.iterdir())
    held = here / (out[1] if out else "runs/gpt-ffn")
    held.mkdir(parents=True)
    (held / ("other.txt" if not out else ".hidden")).touch()  # of another study, or of none
    refused = sublayer(*words)
    assert refused.code == 2 and f"{held.relative_to(here)} holds " in refused.err
    assert len([*here.rglob("*")]) == 3
