"""Chains as they run: equal to their commands by hand, shared stages once, stopped and resumed."""

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sublayer import cli
from sublayer.errors import ConfigError
from sublayer.runs.items import read_items
from sublayer.study.from_folder import results_of_folder
from sublayer.study.results import Results
from sublayer.study.results_json import results_to_json
from tests.in_time import some_at_leisure
from tests.stopping import stopped_at
from tests.study.chain.chains import words, write_chain

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chain")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
        yield folder


@pytest.fixture(scope="module")
def done(place):
    study = write_chain(place)
    out = place / "out"
    assert cli.main(words(study, "--out", str(out))) == 0
    return out


def stage(out: Path, name: str) -> list[Path]:
    return sorted(out.glob(f"stages/{name}-*"))


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def test_a_stage_that_arms_share_is_trained_once(done):
    # The arms with and without the loss of texts share a pre-training; the third has none.
    [pretrained] = stage(done, "pretraining")
    assert [run.name for run in sorted(pretrained.iterdir())] == ["seed-0", "seed-1", "seed-2"]
    assert len(stage(done, "sst2")) == len(stage(done, "copa")) == 3
    for folder in stage(done, "sst2"):
        seeds = sorted(run.name for run in folder.iterdir())
        assert seeds == [f"seed-{seed}" for seed in (0, 1, 1000, 1001, 2000, 2001)]


def test_verdicts_of_tasks_are_of_seeds_and_examples(done):
    results = results_of_folder(done)
    for run in (run for folder in stage(done, "sst2") for run in folder.iterdir()):
        items = read_items(run)
        assert items is not None and set(items.tables) == {"sst2"}
        column = items.tables["sst2"].columns["score"]
        assert column.sum() == pytest.approx(0.0, abs=1e-9)
    judged = {further.metric.name: further.differences for further in results.further}
    for differences in (results.differences, judged["sst2"]):
        assert all(each.parts.items is not None for each in differences)
    # A text of a few windows says nothing of another one.
    text = judged["pretraining/bits_per_byte"]
    assert all(each.parts is None or each.parts.items is None for each in text)


def test_a_chain_equals_its_commands_done_by_hand(done, place, capsys):
    by_hand = place / "by-hand"
    text = place / "text.txt"
    sets = [
        "model.n_layers=1",
        "model.d_model=16",
        "model.n_heads=2",
        "data.context=48",
        "data.tokenizer=bpe",
        "data.vocab_size=300",
        "data.split=80/10/10",
        "train.steps=6",
        "train.batch_sequences=4",
        "train.evaluate_tokens=512",
        "train.evaluate_steps=6",
        "train.threads=1",
        "train.precision=float32",
        "train.seed=1",
        f"data.path={text}",
    ]
    assert cli.main(["train", "gpt", *sets, "--out", str(by_hand / "start")]) == 0
    tuned = [
        "train.steps=3",
        "train.evaluate_steps=3",
        "train.batch_sequences=8",
        "train.threads=1",
        "train.precision=float32",
        "data.held_out=0.2",
        "train.seed=1001",
    ]
    start, run = str(by_hand / "start"), by_hand / "sst2"
    glue = str(place / "glue")
    command = ["finetune", start, "sst2", "--data", glue, *tuned, "--out", str(run)]
    assert cli.main(command) == 0
    [pretrained] = stage(done, "pretraining")
    assert weights(by_hand / "start") == weights(pretrained / "seed-1")
    same = [
        folder for folder in stage(done, "sst2") if weights(folder / "seed-1001") == weights(run)
    ]
    assert len(same) == 1  # the arm with the loss of texts, which is the preset's
    scored = json.loads((same[0] / "seed-1001" / "scores.json").read_text())
    expected = json.loads((run / "scores.json").read_text())
    assert [each["score"] for each in scored["tasks"]] == [
        each["score"] for each in expected["tasks"]
    ]


def test_the_scorecard_has_arms_baselines_and_what_was_published(done):
    results = json.loads((done / "results.json").read_text())
    card = results["scorecard"]
    names = [column["name"] for column in card["columns"]]
    assert names[:3] == ["both", "sst2", "copa"] and "pretraining/bits_per_byte" in names
    assert names[-1] == "mnli"
    rows = {(row["name"], row["kind"]): row["cells"] for row in card["rows"]}
    assert {kind for _, kind in rows} == {"arm", "baseline", "published"}
    full = rows["full", "arm"]
    by_seed = {}
    for task in ("sst2", "copa"):
        of_arm = next(
            folder
            for folder in stage(done, task)
            if recipe_weight(folder) == 0.5 and starts(folder)
        )
        for seed in range(3):
            scores = [
                json.loads((of_arm / f"seed-{1000 * seed + number}" / "scores.json").read_text())
                for number in (0, 1)
            ]
            by_seed[task, seed] = sum(each["tasks"][0]["score"] for each in scores) / 2
    both = [(by_seed["sst2", seed] + by_seed["copa", seed]) / 2 for seed in range(3)]
    assert results["arms"][0]["values"] == pytest.approx(both)
    assert full["both"]["mean"] == pytest.approx(sum(both) / 3)
    assert full["sst2"]["n_runs"] == 6
    assert "pretraining/bits_per_byte" not in rows["fresh", "arm"]
    assert rows["full", "published"]["mnli"]["mean"] == pytest.approx(0.818)
    assert rows["words", "baseline"]["both"]["mean"] > 0
    assert "Scores" in (done / "report.html").read_text()


def recipe_weight(folder: Path) -> float:
    import tomllib

    recipe = tomllib.loads((folder / "seed-0" / "recipe.toml").read_text())
    return float(recipe["objective"]["language_weight"])


def starts(folder: Path) -> bool:
    import tomllib

    return "run" in tomllib.loads((folder / "seed-0" / "recipe.toml").read_text()).get("init", {})


def test_lists_count_the_runs_of_all_stages(done, capsys):
    assert cli.main(["runs", str(done.parent), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    rows = rows[0].get("runs", rows)
    [row] = [row for row in rows if row["folder"] == str(done)]
    # Three pre-trainings for two arms; three arms on two tasks, twice under each of three.
    assert (row["state"], row["finished"], row["planned"]) == ("finished", 39, 39)


@contextmanager
def without_texts(place: Path) -> Iterator[None]:
    """Take a study's text and tasks away for a while."""
    away = [(place / name, place / f"{name}-away") for name in ("text.txt", "glue")]
    for path, aside in away:
        path.rename(aside)
    try:
        yield
    finally:
        for path, aside in away:
            aside.rename(path)


def as_json(results: Results) -> dict:
    written = json.loads(json.dumps(results_to_json(results, Path("report.html"))))
    return written | {"report": ""}


def test_the_report_is_written_again_from_the_folder_without_texts(done, place, tmp_path):
    copy = Path(shutil.copytree(done, tmp_path / "copy"))
    before = (copy / "report.html").read_text()
    with without_texts(place):
        again = as_json(results_of_folder(copy))
        assert cli.main(["report", str(copy)]) == 0
    assert again == json.loads((done / "results.json").read_text()) | {"report": ""}
    page, _, mark = (copy / "report.html").read_text().rstrip().rpartition("\n")
    assert (page, mark[:4]) == (before.rstrip(), "<!--")


def test_a_report_of_a_chain_says_which_runs_are_missing_and_the_command_makes_them(
    done, place, tmp_path
):
    copy = Path(shutil.copytree(done, tmp_path / "copy"))
    lacking = stage(copy, "sst2")[0] / "seed-1001"
    for gone in (lacking, copy / "baselines"):
        shutil.rmtree(gone)
    with without_texts(place):
        with pytest.raises(ConfigError, match="has the baselines' scores"):
            results_of_folder(copy)
        shutil.copytree(done / "baselines", copy / "baselines")
        first, *others = results_of_folder(copy).notes
        assert cli.main(["report", str(copy)]) == 0
    assert first.startswith(
        "Unfinished: 38 of 39 runs of all stages have ended; missing are 1 of sst2. This resumes"
    )
    written = json.loads((done / "results.json").read_text())
    # What collapsed is counted among those that have ended.
    kept = [note for note in written["notes"] if not note.startswith("Runs that collapsed")]
    assert [note for note in others if not note.startswith("Runs that collapsed")] == kept
    assert "missing are 1 of sst2" in (copy / "report.html").read_text()
    assert cli.main(words(place / "small.toml", "--out", str(copy))) == 0
    assert (lacking / "scores.json").is_file()
    made = json.loads((copy / "results.json").read_text())
    assert [arm["values"] for arm in made["arms"]] == [arm["values"] for arm in written["arms"]]


def test_a_report_of_pretrainings_alone_compares_no_tasks_yet(done, tmp_path, capsys):
    copy = Path(shutil.copytree(done, tmp_path / "copy"))
    for name in ("sst2", "copa"):
        for folder in stage(copy, name):
            shutil.rmtree(folder)
    (copy / "results.json").unlink()
    assert cli.main(["report", str(copy)]) == 0
    page = (copy / "report.html").read_text()
    assert "3 of 39 runs of all stages have ended" in page and "18 of copa" in page
    shutil.rmtree(copy / "stages")
    capsys.readouterr()
    assert cli.main(["report", str(copy)]) == 2
    err = capsys.readouterr().err
    assert "no run of the baseline, full, has ended: there is nothing to report yet" in err


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda kept: kept.update(n_seeds="2"), "chain.json is damaged: n_seeds"),
        (lambda kept: kept["chain"]["stages"].pop(), "its stages are not those of the study"),
        (lambda kept: kept["keys"]["fresh"].pop("sst2"), "the arm fresh has no key of sst2"),
        (lambda kept: kept["baselines"].update(sst2="../a.json"), "damaged: baselines.sst2"),
        (lambda kept: kept["arms"].reverse(), "its arms are not those of the study"),
        (lambda kept: kept["trials"].update(copa=[]), "copa has no trials"),
    ],
)
def test_a_damaged_chain_file_is_said(done, tmp_path, capsys, damage, said):
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(done / "study.toml", copy)
    content = json.loads((done / "chain.json").read_text())
    damage(content)
    (copy / "chain.json").write_text(json.dumps(content))
    assert cli.main(["report", str(copy)]) == 2
    err = capsys.readouterr().err
    assert said in err and "this writes it anew: " in err and "sublayer compare" in err
    (copy / "chain.json").unlink()
    assert cli.main(["report", str(copy)]) == 2
    assert "has no chain.json" in capsys.readouterr().err


def test_a_task_that_takes_long_may_be_tuned_less_often(place, capsys):
    stages = [{"tasks": "sst2", "finetunings": 1}, {"tasks": "copa"}]
    study = write_chain(place / "fewer", stages=stages, finetunings=3)
    command = words(study, "--json")
    assert cli.main(["plan", *command[1:]]) == 0
    plan = json.loads(capsys.readouterr().out)
    runs = {(each["stage"], each["runs"]) for each in plan["stages"]}
    assert runs == {("pretraining", 3), ("sst2", 3), ("copa", 9)}


def test_a_plan_counts_all_stages_those_that_arms_share_once(place, capsys):
    study = write_chain(place)
    command = words(study, "--json")
    assert cli.main(["plan", *command[1:]]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["total"]["runs"] == 39
    shared = [each for each in plan["stages"] if each["stage"] == "pretraining"]
    assert [each["arms"] for each in shared] == [["full", "no texts"]]
    assert {each["steps"] for each in plan["stages"] if each["stage"] == "sst2"} == {3}


def test_a_repeated_command_trains_nothing_and_more_seeds_train_what_is_missing(done, place):
    study = place / "small.toml"
    before = {path: path.stat().st_mtime_ns for path in done.glob("stages/*/*/record.json")}
    report = json.loads((done / "results.json").read_text())
    assert cli.main(words(study, "--out", str(done))) == 0
    assert json.loads((done / "results.json").read_text()) == report
    assert cli.main(words(study, "--out", str(done), "--finetunings", "3")) == 0
    after = {path: path.stat().st_mtime_ns for path in done.glob("stages/*/*/record.json")}
    assert {path: after[path] for path in before} == before
    added = {path.parent.name for path in after.keys() - before.keys()}
    assert added == {"seed-2", "seed-1002", "seed-2002"}


@pytest.mark.parametrize(
    "where",
    some_at_leisure(["stages/sst2-", "stages/pretraining-", "stages/copa-"], 3),
)
def test_a_chain_that_is_killed_in_any_stage_resumes_to_the_same_report(where, place, tmp_path):
    study = write_chain(tmp_path, seeds=1, finetunings=1)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert cli.main(words(study, "--out", str(whole))) == 0
    # The second record of a run is what it is killed before.
    name = where.partition("/")[2]
    target = sorted(path for path in whole.glob(f"stages/{name}*/seed-*") if path.is_dir())[0]
    place_ = ("os.rename", f"{target.relative_to(whole)}/record.json")
    command = stopped_at([place_], signal.SIGKILL, *words(study, "--out", str(broken)))
    killed = subprocess.run(command, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert cli.main(words(study, "--out", str(broken))) == 0
    results = [json.loads((each / "results.json").read_text()) for each in (whole, broken)]
    for each in results:
        timeless(each)
    assert results[0] == results[1]


def timeless(results: dict) -> None:
    """Leave out what is another each time: places, dates and the speed of the machine."""
    for name in ("report", "reproduction", "same_quality"):
        results.pop(name)
    for arm in results["arms"]:
        for name in ("tokens_per_s", "peak_memory_bytes", "seconds", "training_seconds"):
            arm.pop(name)


def test_runs_side_by_side_score_as_in_turn(done, place, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(done, out)
    scores = {run: (run / "scores.json").read_bytes() for run in out.glob("stages/sst2-*/seed-0")}
    assert len(scores) == 3
    for run in scores:
        shutil.rmtree(run)
    assert cli.main(words(place / "small.toml", "--out", str(out), "--jobs", "2")) == 0
    for run, scored in scores.items():
        assert (run / "scores.json").read_bytes() == scored


def test_a_task_after_a_task_starts_from_its_first_fine_tuning_and_is_tuned(place, tmp_path):
    stages = [{"tasks": "sst2"}, {"tasks": "copa", "after": "sst2"}]
    arms = [{"name": "a"}, {"name": "b", "finetune": {"model.dropout": 0.3}}]
    study = write_chain(
        tmp_path,
        stages=stages,
        arms=arms,
        seeds=1,
        finetunings=3,
        tune_finetune={"optimizer.lr": [0.0001, 0.01]},
    )
    out = tmp_path / "out"
    assert cli.main(words(study, "--out", str(out), "--json")) == 0
    results = json.loads((out / "results.json").read_text())
    import tomllib

    # Trials are another fine-tuning than those that are compared.
    tried = {path.name: path for path in next(iter(stage(out, "sst2"))).iterdir()}
    assert sorted(tried) == ["lr=0.0001", "lr=0.01"]
    made = sorted(sorted(run.name for run in path.iterdir()) for path in tried.values())
    assert made == [["seed-0", "seed-1", "seed-2", "seed-999"], ["seed-999"]]
    runs = [*out.glob("stages/copa-*/*/seed-1"), *out.glob("stages/copa-*/*/seed-999")]
    assert len(runs) == 2 + 4
    for run in runs:
        recipe = tomllib.loads((run / "recipe.toml").read_text())
        start = Path(recipe["init"]["run"])
        assert start.name == "seed-0" and start.parent.parent.name.startswith("sst2-")
    notes = " ".join(results["notes"])
    assert "hold for those weights alone" in notes
    assert "a, sst2: chose lr=" in notes and "with seed 999" in notes and "was tried" in notes
    for arm in results["arms"]:
        assert {each.partition("=")[0] for each in arm["tuned"]} == {"finetune.optimizer.lr"}


def test_a_mixture_is_scored_by_its_best_checkpoint_and_each_task_by_its_own(place, tmp_path):
    study = write_chain(
        tmp_path,
        stages=[{"name": "mixture", "tasks": ["sst2", "stsb"]}],
        averages={"one checkpoint": ["mixture/sst2", "mixture/stsb:pearson"]},
        arms=[{"name": "a"}, {"name": "b", "set": {"model.ffn": "swiglu"}}],
        scale={
            "cpu": {
                "recipe": "t5-mini",
                "set": {
                    "model": {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 16},
                    "data": {"context": 32, "split": "80/10/10", "vocab_size": 300},
                    "train": {"steps": 3, "evaluate_steps": 3, "threads": 1, "batch_sequences": 4},
                },
                "finetune": {
                    "train": {"steps": 4, "evaluate_steps": 2, "batch_sequences": 8},
                    "data": {"held_out": 0.2, "context": 64},
                    "objective": {"target_length": 8},
                },
            }
        },
        seeds=1,
        finetunings=1,
    )
    out = tmp_path / "out"
    assert cli.main(words(study, "--out", str(out))) == 0
    card = json.loads((out / "results.json").read_text())["scorecard"]
    names = [column["name"] for column in card["columns"]]
    for name in ("one checkpoint", "mixture", "mixture/sst2", "mixture/best/stsb"):
        assert name in names


def test_a_stage_goes_on_with_another_text(place, tmp_path):
    more = tmp_path / "more.txt"
    more.write_text("\n".join(f"{n} reviews of {n} plays, all of them new" for n in range(300)))
    study = write_chain(
        tmp_path,
        stages=[
            {"name": "longer", "set": {"train.steps": 5}},
            {"tasks": "sst2", "after": "longer"},
        ],
        arms=[
            {"name": "the same text"},
            {"name": "more text", "stages": {"longer": {"data.path": str(more)}}},
        ],
        averages={},
        seeds=1,
        finetunings=1,
    )
    out = tmp_path / "out"
    assert cli.main(words(study, "--out", str(out))) == 0
    assert len(stage(out, "pretraining")) == 1 and len(stage(out, "longer")) == 2
