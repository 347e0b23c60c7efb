"""``sublayer evaluate``, ``predict``, ``finetune``: texts, tasks, rows, by one run or several."""

import csv
import io
import json
import re
import shutil
import zipfile
from itertools import product
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

import sublayer as package
from sublayer.api.run import last_losses, load
from sublayer.cli import texts as module
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import DataError
from sublayer.model.model_folder import save_model
from sublayer.objective.supervised.answering import Answerer
from sublayer.tasks.registry import TASKS
from sublayer.tasks.submissions import read_test_set
from sublayer.training.log import read_metrics
from tests.breadth import rows
from tests.commands.conftest import SHORT, finetuned
from tests.commands.reviews import reviews, write_csv
from tests.published_files import PUBLISHED, write_published
from tests.task_files import write_rte, write_sst2

COLUMNS = ("--text", "review", "--label", "stars")
NEW = reviews(30, seed=9)


def evaluated(sublayer, *words):
    return sublayer("evaluate", *words, "--json").found()


def test_a_run_its_checkpoint_and_its_model_are_scored_alike(sublayer, trained):
    valid = json.loads((trained / "record.json").read_text())["valid"]
    as_in_training = evaluated(sublayer, trained, "--stride", 32)["loss"]
    assert as_in_training == pytest.approx(valid["loss"], rel=1e-6)
    parts = ("", "model", f"checkpoints/step-{valid['step']:08d}")
    assert len({evaluated(sublayer, trained / part)["loss"] for part in parts}) == 1
    corpus = ("--corpus", "python", "--stride", 32)
    named = [evaluated(sublayer, trained, *corpus, "--split", name) for name in ("valid", "test")]
    assert [found["split"] for found in named] == ["valid", "test"]
    assert named[0]["sha256"] != named[1]["sha256"]


def test_a_model_outside_its_run_scores_a_text_that_is_named(sublayer, trained, tmp_path):
    model, text = tmp_path / "model", tmp_path / "text.txt"
    text.write_bytes(b"ten bytes!")
    copied = shutil.copytree(trained / "model", tmp_path / "copied")
    found = evaluated(sublayer, copied, "--path", text)
    names = ("tokens", "bytes", "words", "split")
    assert [found[name] for name in names] == [9, 9, 1, None]
    assert "has no valid split of its own text" in sublayer("evaluate", copied).refusal()
    # A lossy tokenizer is marked, and divided by what was read.
    known = train_tokenizer("characters", ["abcü ".encode()])
    save_model(model, load(trained).model, {"tokenizer.json": known.serialize()})
    text.write_text("abc €€ bü", encoding="utf-8")
    found = evaluated(sublayer, model, "--path", text)
    names = ("tokens", "characters", "bytes", "is_lossless")
    assert [found[name] for name in names] == [8, 8, 13, False]
    assert "the tokenizer is lossy" in sublayer("evaluate", model, "--path", text).out


def test_rows_that_were_trained_on_are_counted(sublayer, reviewer, tmp_path):
    table = reviewer.parents[1] / "my.csv"
    shutil.copy(table, tmp_path / "copy.csv")
    found = evaluated(sublayer, reviewer, "--path", tmp_path / "copy.csv")
    assert found["tasks"][0]["examples"] == 240
    [note] = found["notes"]
    assert note.endswith("of 240 rows are among its training rows, which inflates the score")
    found, one = (evaluated(sublayer, reviewer, "--path", table, "--batch", n) for n in (7, 1))
    assert found["tasks"][0]["examples"] == 48
    assert one.pop("loss") == pytest.approx(found.pop("loss"), rel=1e-5) and one == found
    assert "is its training data: scored on the rows held out" in found["notes"][0]


def test_a_model_alone_is_scored_on_other_rows_without_baselines(sublayer, reviewer, tmp_path):
    model = shutil.copytree(reviewer / "model", tmp_path / "model")
    new = write_csv(tmp_path / "new.csv", NEW)
    new.write_text(new.read_text() + "short\n")
    found = evaluated(sublayer, model, "--path", new)
    [task] = found["tasks"]
    assert (task["examples"], task["baselines"], task["score"] > 0.9) == (30, {}, True)
    assert "my.csv, dev: 1 row left out: fewer than 4 fields (new.csv:32)" in found["notes"]
    refusal = sublayer("evaluate", model).refusal()
    assert "does not belong to a run: name the folder of the tasks' files (--path)" in refusal


def test_the_development_set_of_another_folder_is_scored_whole(sublayer, entailed, tmp_path):
    glue = write_rte(tmp_path / "glue", {"dev": 30}, seed=5)
    for run, path in ((entailed, glue), (entailed / "model", glue / "RTE" / "dev.tsv")):
        assert evaluated(sublayer, run, "--path", path)["tasks"][0]["examples"] == 30


@pytest.fixture(scope="module")
def runs(reviewer):
    words, found = ("my.csv", *COLUMNS, "--group", "film", *SHORT), []
    for seed, n_steps in enumerate((6, 8, 1)):
        more = (f"train.steps={n_steps}", f"train.seed={seed}", "--out", f"runs/short{seed}")
        found.append(finetuned(reviewer.parents[1], *words, *more))
    return found


def test_members_are_chosen_by_what_was_held_out(sublayer, reviewer, runs):
    asked = (runs[2], reviewer)
    held_out = [evaluated(sublayer, run, "--split", "valid")["tasks"][0]["score"] for run in asked]
    assert held_out[0] < held_out[1]
    found = evaluated(sublayer, *asked, "--choose", "greedy")
    choice = [found["choice"][name] for name in ("how", "score", "members")]
    assert choice == ["greedy", held_out[1], [str(reviewer)]]
    assert [each["is_member"] for each in found["members"]] == [False, True]
    assert found["tasks"] == evaluated(sublayer, reviewer)["tasks"]
    assert found == package.evaluate(asked, choose="greedy").to_dict()


def test_rows_are_answered_by_the_average(sublayer, runs, tmp_path):
    rows = write_csv(tmp_path / "new.csv", NEW[:8])

    def answered(*words):
        out = sublayer("predict", *words, rows, "--json").out
        return [json.loads(line)["probabilities"]["good"] for line in out.splitlines()]

    alone, together = [answered(run) for run in runs], answered(*runs)
    means = [sum(members) / 3 for members in zip(*alone, strict=True)]
    assert together == pytest.approx(means, abs=2e-6)
    found = package.predict(runs, [row["review"] for row in NEW[:8]])
    assert [each.probabilities["good"] for each in found] == pytest.approx(together, abs=1e-6)


def test_an_ensemble_is_compared_with_a_run_row_by_row(sublayer, reviewer, runs):
    [table] = evaluated(sublayer, reviewer, "--against", runs[2])["against"]["tasks"]
    value, other = (evaluated(sublayer, run)["tasks"][0]["score"] for run in (reviewer, runs[2]))
    assert (table["value"], table["other"]) == (value, other)
    assert table["difference"] == value - other
    assert table["n_only_first"] - table["n_only_other"] == round(48 * (value - other))
    low, high = table["interval"]
    assert 0 < low < table["difference"] < high
    assert table["is_decided"] and table["p_mcnemar"] < 0.01
    found = evaluated(sublayer, *runs[:2], "--against", reviewer)
    assert found["against"]["tasks"][0]["value"] == found["tasks"][0]["score"]


def test_runs_that_were_divided_otherwise_are_refused(sublayer, runs, tmp_path):
    write_csv(tmp_path / "my.csv", reviews(240))
    apart = finetuned(tmp_path, "my.csv", *COLUMNS, *SHORT, "train.steps=1", "--out", "apart")
    rows = ("--path", write_csv(tmp_path / "new.csv", NEW))
    scored = f"{apart} is scored on other rows of my.csv than {runs[0]}: "
    for words in ((apart,), ("--against", apart)):
        assert scored in sublayer("evaluate", runs[0], *words).refusal()
    assert sublayer("evaluate", runs[0], apart, *rows).code == 0
    refusal = sublayer("evaluate", runs[0], apart, *rows, "--choose", "greedy").refusal()
    assert f"{apart} held out other rows of my.csv than {runs[0]}: " in refusal


ROWS = reviews(20, seed=7)
STARS = [row["stars"] for row in ROWS]


@pytest.fixture
def predicted(sublayer, reviewer, here):
    def run(rows, *options):
        write_csv(here / "new.csv", rows)
        code, out, err = sublayer("predict", reviewer, "new.csv", *options)
        assert code == 0, err
        return list(csv.DictReader(io.StringIO(out)))

    return run


def test_answers_do_not_depend_on_the_batch_and_nearly_not_on_the_precision(predicted):
    options = (("--batch", 1), ("--batch", 7), ("--batch", 64), ("--precision", "bfloat16"))
    answers = [predicted(ROWS, *each) for each in options]
    assert [row["prediction"] for row in answers[0]] == STARS
    alone, *others, rounded = ([float(row["p_good"]) for row in found] for found in answers)
    assert others == [pytest.approx(alone, abs=2e-6)] * 2
    assert rounded == pytest.approx(alone, abs=0.02) and rounded != alone


def test_values_of_every_kind_of_file_are_kept(sublayer, reviewer, here):
    review = 'The "great film" is superb.'
    (here / "new.tsv").write_text(f'review\tnote\n{review}\t"\n')
    header, row = sublayer("predict", reviewer, "new.tsv").out.splitlines()
    assert header.split("\t") == ["review", "note", "prediction", "p_bad", "p_good"]
    assert row.split("\t")[:3] == [review, '"', "good"]
    rows = [{"n": number, "tags": ["ü"], **row} for number, row in enumerate(ROWS)]
    (here / "new.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (here / "new.json").write_text(json.dumps(rows))
    found = [*map(json.loads, sublayer("predict", reviewer, "new.jsonl").out.splitlines())]
    assert found == json.loads(sublayer("predict", reviewer, "new.json").out)
    for row, answered in zip(rows, found, strict=True):
        assert answered.pop("probabilities").keys() == {"bad", "good"}
        assert answered.pop("probability") > 0.5
        assert answered == {**row, "prediction": row["stars"]}
    (here / "new.json").write_text(json.dumps([*rows[:2], {"review": "a\nb"}]))
    assert "texts of 1 row are" in sublayer("predict", reviewer, "new.json", "--out", "x.tsv").err
    seen = pyarrow.array(range(20), pyarrow.int16())
    before = pyarrow.table({"review": [row["review"] for row in ROWS], "seen": seen})
    pyarrow.parquet.write_table(before, here / "new.parquet")
    assert sublayer("predict", reviewer, "new.parquet", "--out", "answered.parquet").code == 0
    after = pyarrow.parquet.read_table(here / "answered.parquet")
    assert after.select(["review", "seen"]).equals(before)
    assert after["prediction"].to_pylist() == STARS
    assert after.schema.field("p_good").type == pyarrow.float64()


def test_rows_without_a_text_and_columns_that_are_there_are_kept(predicted):
    found = predicted([ROWS[0], {**ROWS[1], "review": " "}, ROWS[2]])
    assert [row["prediction"] for row in found] == [STARS[0], "", STARS[2]]
    assert (found[1]["review"], found[1]["p_good"]) == (" ", "")
    rows = [{"words": row["review"], "prediction": "mine", "p_bad": "x"} for row in ROWS]
    found = predicted(rows, "--text", "words")
    assert [(row["prediction"], row["p_bad"]) for row in found] == [("mine", "x")] * 20
    assert [row["prediction_2"] for row in found] == STARS


@pytest.mark.parametrize("content, places, message", [
    ("review\n", "new.csv", "new.csv has no rows"), ("", "new.csv", "new.csv is empty"),
    ("review\n\xff", "new.csv", "is not UTF-8"),
    ("review\na\n", "gone new.csv", "gone is not there: name the runs, then one file of rows"),
    ("review\na\n", "gone lost new.csv", "gone is not there: name the runs"),
    ("review\na\n", "new.csv new.csv", "new.csv is a second file"),
    ("review\na\n", "new.csv run", "new.csv is a file before a run"),
])  # fmt: skip
def test_no_table_behind_runs(sublayer, reviewer, here, content, places, message):
    (here / "new.csv").write_bytes(content.encode("latin-1"))
    (here / "run").mkdir()
    assert message in sublayer("predict", reviewer, *places.split()).refusal()


def test_each_line_is_answered_and_an_empty_one_stays_empty(sublayer, reviewer, standard_input):
    given = b"The lovely film\tis great.\n\nThe dull plot is awful.\r\n \nThe film is bland"
    standard_input(given)
    _, out, err = sublayer("predict", reviewer)
    answers = [line.split("\t") for line in out.split("\n")]
    assert [answer[0] for answer in answers] == ["good", "", "bad", "", "bad", ""]
    assert all(0.5 < float(each[1]) <= 1 for each in answers if each[1:])
    assert "not answered: 2 of 5 lines" in err
    standard_input(b"The lovely [SEP] film is great.\n\xff\nThe dull plot is awful.\n")
    code, out, err = sublayer("predict", reviewer)
    assert "names special tokens, [SEP] 1 time: they" in err
    assert (code, out[:5], out.count("\n")) == (2, "good\t", 1)
    assert "standard input, line 2: byte 0xff" in err and "answered before it: 1 line" in err
    standard_input(given)
    first, second, *_ = map(json.loads, sublayer("predict", reviewer, "--json").out.splitlines())
    assert (first["prediction"], set(first["probabilities"])) == ("good", {"bad", "good"})
    assert second == {"prediction": None}


def test_an_answer_is_printed_before_the_next_line_comes(reviewer, monkeypatch):
    printed = []

    class Stream(io.RawIOBase):
        waiting = [b"The lovely film is great.\n", b"The dull plot is awful.\n"]
        seen: list[int] = []

        def read1(self, size):
            self.seen.append(len(printed))
            return self.waiting.pop(0) if self.waiting else b""

    monkeypatch.setattr(module, "write_result", printed.append)
    module._predict_lines(Answerer([load(reviewer)]), Stream(), as_json=False)
    assert Stream.seen == [0, 1, 2]


@pytest.fixture
def glue(tmp_path):
    folder = write_sst2(tmp_path / "glue", {"train": 31, "dev": 10})
    rows = [f"{number}\tA fine film.\n" for number in range(5)]
    (folder / "SST-2" / "test.tsv").write_text("".join(["index\tsentence\n", *rows]))
    return write_rte(folder, {"train": 30, "dev": 10, "test": 7})


def handed_in(name):
    return [line.split("\t") for line in Path("out", name).read_text().splitlines()]


def test_a_submission_is_complete(sublayer, entailed, glue, here):
    words = ("--data", glue, "--submission", "out", "--json")
    found = sublayer("predict", entailed, *words).found()
    sets = {each["task"]: (each["rows"], each["runs"]) for each in found["sets"]}
    assert sets == {"rte": (7, [str(entailed)]), "sst2": (5, [])}
    before = {file.name: file.read_bytes() for file in Path("out").iterdir()}
    assert before.keys() == {*found["files"], "NOTES.txt", "submission.zip"}
    assert (found["suite"], len(found["files"])) == ("glue", 11)
    with zipfile.ZipFile("out/submission.zip") as archive:
        assert sorted(archive.namelist()) == sorted(found["files"])
    assert Path("out/NOTES.txt").read_text().splitlines() == found["notes"]
    # Of 31 training rows of SST-2 the negative ones are 16.
    assert handed_in("SST-2.tsv")[1:] == [[str(number), "0"] for number in range(5)]
    assert "out exists: name a" in sublayer("predict", entailed, *words).refusal()
    assert {file.name: file.read_bytes() for file in Path("out").iterdir()} == before


def test_runs_that_answer_one_task_answer_it_together(sublayer, entailed, glue, here):
    words = ("--data", str(glue), *SHORT, "train.steps=1", "train.seed=5")
    other, judge = (finetuned(here, each, *words, "--out", f"{each}2") for each in ("rte", "sst2"))
    options = ("--data", glue, "--submission", "out", "--json")
    found = sublayer("predict", entailed, other, judge, *options).found()
    runs = {each["task"]: each["runs"] for each in found["sets"]}
    assert runs == {"rte": [str(entailed), str(other)], "sst2": [str(judge)]}
    rows = glue / "RTE" / "test.tsv"
    lines = sublayer("predict", entailed, other, rows, "--json").out.splitlines()
    expected = [[str(n), json.loads(line)["prediction"]] for n, line in enumerate(lines)]
    assert handed_in("RTE.tsv") == [["index", "prediction"], *expected]


@pytest.mark.parametrize("row, message", [
    ("0\tb", "test.tsv:3: a duplicate id"), ("0\ta", "test.tsv:3: the same row again"),
    ("1", "test.tsv:3: fewer than 2 fields"),
])  # fmt: skip
def test_every_row_of_a_test_set_is_read_or_the_set_is_refused(tmp_path, row, message):
    path = tmp_path / "test.tsv"
    path.write_text("index\tsentence\n0\ta\n1\ta\n")
    assert len(read_test_set(TASKS["sst2"], "test", (path,)).examples) == 2
    path.write_text(f"index\tsentence\n0\ta\n{row}\n")
    with pytest.raises(DataError, match=message):
        read_test_set(TASKS["sst2"], "test", (path,))


RECIPE = """
title = "Small"
source = "tests"
cost = "nothing"
model = { kind = "encoder", n_layers = 1, d_model = 16, n_heads = 2, segments = "both" }
objective = { kind = "supervised" }
data = { tasks = "sst2", path = "glue", context = 32, tokenizer = "wordpiece", vocab_size = 90 }
train = { steps = 6, batch_sequences = 8, precision = "float32", threads = 1 }
"""

_STEPS = [word for word in SHORT if not word.startswith(("model.d_embed", "data.tok", "data.v"))]
_STEPS += ["train.steps=2", "train.evaluate_steps=2"]
_SUITES = {"glue": 11, "superglue": 8, "squad": 1, "race": 2}
"""Files that are handed in at least: of MultiRC and ReCoRD only where their questions are known."""
_MODELS = {"albert-small": ["data.tokenizer=wordpiece", "data.vocab_size=120"]}
_MODELS |= {"gpt": ["data.tokenizer=bpe", "data.vocab_size=300"]}
_MODELS |= {"t5-mini": ["data.tokenizer=unigram", "data.vocab_size=150", "data.sentinels=0"]}


@pytest.mark.parametrize(("name", "recipe"), rows(product(PUBLISHED, _MODELS), 12))
def test_a_task_is_read_learned_scored_and_handed_in(sublayer, tmp_path, here, recipe, name):
    if (recipe, name) in (("gpt", "squad2"), ("t5-mini", "wnli")):
        pytest.skip("it is refused")
    data = write_published(tmp_path / "data", name)
    run = tmp_path / "run"
    words = (name, "--data", data, *_STEPS, *_MODELS[recipe], "--out", run, "--json")
    [seed] = sublayer("finetune", recipe, *words).found()["seeds"]
    assert len(seed["tasks"]) == (2 if name == "mnli" else 1)
    for task in seed["tasks"]:
        assert task["examples"] > 0 and task["baselines"].keys() == {"majority", "words"}
    again = sublayer("evaluate", run, "--json").found()
    for field in ("score", "metrics", "baselines"):
        assert [each[field] for each in again["tasks"]] == [each[field] for each in seed["tasks"]]
    suite = TASKS[name].suite
    if suite in _SUITES:
        handed = sublayer("predict", run, "--data", data, "--submission", "out", "--json").found()
        assert len(handed["files"]) >= _SUITES[suite]
        own = [each for each in handed["sets"] if each["task"] == name]
        assert own and all(each["runs"] == [str(run)] and each["rows"] > 0 for each in own)


def test_a_table_that_cannot_be_learned_is_refused_and_a_wrong_column_first(sublayer, here):
    write_csv(here / "my.csv", [{**row, "film": "one"} for row in reviews(30, seed=3)])
    words = ("finetune", "albert-small", "my.csv", *COLUMNS, *SHORT)
    assert "leave out --data" in sublayer(*words, "--data", "glue").refusal()
    code, _, err = sublayer(*words, "--group", "film")
    assert (code, (here / "runs").exists()) == (2, False)
    assert "in 1 indivisible group" in err.splitlines()[-1]
    wrong = sublayer("finetune", "albert-small", "my.csv", "--text", "reveiw", "--label", "stars")
    assert "reveiw" in wrong.refusal() and "did you mean review" in wrong.err


@pytest.fixture
def small(here):
    (here / "small.toml").write_text(RECIPE)
    write_sst2(here / "glue")
    (here / "odd" / "SST-2").mkdir(parents=True)
    (here / "odd" / "SST-2" / "dev.tsv").write_text("text\tlabel\nfine\t1\n")
    return here


@pytest.mark.parametrize("words, message", [
    ("data.context=3", "data.context = 3 is too short for texts between their special tokens"),
    ("data.select=dev data.path=odd", "SST-2 has dev: leave the setting out"),
    ("data.path=odd", "has no column 'sentence'"),
])  # fmt: skip
def test_tasks_that_cannot_be_trained_are_refused(small, sublayer, words, message):
    code, _, err = sublayer("train", "small.toml", *words.split(), "--out", "run")
    assert (code, (small / "run").exists()) == (2, False)
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and message in errors[0]


def test_a_run_is_scored_on_the_published_set_or_on_what_was_held_out(small, sublayer):
    assert sublayer("train", "small.toml", "--out", "run").code == 0
    [task] = sublayer("evaluate", "run", "--json").found()["tasks"]
    assert (task["task"], task["split"], task["examples"]) == ("sst2", "dev", 20)
    held_out = sublayer("evaluate", "run", "--split", "valid", "--json").found()
    assert held_out["tasks"][0]["examples"] == 6
    shown = sublayer("evaluate", "run", "--split", "valid").out
    assert "scored on held-out rows that chose the checkpoint" in shown
    refusal = sublayer("inspect", "layers", "run").refusal()
    assert "has no valid split of its own text: give a text" in refusal
    path = small / "glue" / "SST-2" / "dev.tsv"
    path.write_text(path.read_text() + "a fine day\t1\n")
    changed = sublayer("evaluate", "run").refusal()
    assert "the examples of run have changed since training" in changed


def test_the_gap_is_to_the_mean_of_the_steps_since_the_evaluation_before(tmp_path):
    losses = [("train", 10, 9.0), ("valid", 10, 5.0), ("train", 20, 2.0)]
    line = '{{"kind": "{0}", "step": {1}, "loss": {2}, "tokens": {1}, "seconds": {1}}}\n'.format
    lines = [line(*each) for each in (*losses, ("train", 21, 4.2), ("valid", 21, 2.5))]
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    # (10 x 2 + 1 x 4.2) / 11
    (found,) = last_losses(read_metrics(tmp_path / "metrics.jsonl"), 2.25)
    assert re.findall(r"[\d.]+", found) == ["2.5000", "0.2500", "2.2000", "0.3000"]
