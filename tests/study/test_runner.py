"""Whole comparisons of tiny models: complete, resumable, equal for all arms, honest."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from sublayer.api.training import compare
from sublayer.config.layering.sources import read_toml
from sublayer.errors import CheckpointError, ConfigError, DataError, TrainingError
from sublayer.evaluation.items import Items
from sublayer.evaluation.likelihood import score
from sublayer.loading import load
from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.runs.folder import RunFolder
from sublayer.runs.items import ITEMS, read_items
from sublayer.runs.session import prepare_data
from sublayer.study.from_folder import results_of_folder
from sublayer.study.items.file_header import STUDY_ITEMS
from sublayer.study.items.reading import read_study_items
from sublayer.study.options import Options
from sublayer.study.results_json import results_to_json
from sublayer.study.runner import run_study

WORDS = [
    "the",
    "reed",
    "by",
    "the",
    "river",
    "bends",
    "and",
    "does",
    "not",
    "break",
    "while",
    "oaks",
    "fall",
]
TINY = [
    "model.n_layers=1",
    "model.d_model=8",
    "model.n_heads=2",
    "data.context=16",
    "train.batch_sequences=2",
]
FFN = "model.ffn=gelu,swiglu"


def settings_of(text: Path) -> list[str]:
    return [
        *TINY,
        f"data.path={text}",
        "train.steps=5",
        "train.precision=float32",
        "train.threads=1",
    ]


def write_text(path: Path) -> Path:
    """Write a text of 13 kB."""
    path.write_text(" ".join(WORDS[(i * i + i // 7) % len(WORDS)] for i in range(2800)))
    return path


@dataclass(frozen=True)
class Study:
    """Two arms compared over three seeds, which tests copy before they change it."""

    folder: Path
    text: Path
    result: dict[str, Any]

    def copied(self, folder: str) -> Path:
        return Path(shutil.copytree(self.folder, folder))


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A study that was run once, and a cache for it and for all that is trained on its text."""
    place = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(place / "cache"))
        text = write_text(place / "river.txt")
        result = compare("gpt", settings_of(text), vary=[FFN], seeds=3, out=place / "gpt")
    return Study(place / "gpt", text, result)


@pytest.fixture
def settings(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Settings of a tiny recipe on that text, in a folder of its own."""
    monkeypatch.setenv("SUBLAYER_CACHE", str(study.text.parent / "cache"))
    monkeypatch.chdir(tmp_path)
    return settings_of(study.text)


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file below a folder."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in found
    }


def values(result: dict[str, Any]) -> list[list[float]]:
    return [arm["values"] for arm in result["arms"]]


def test_every_arm_is_trained_on_every_seed_and_compared(study: Study):
    result = study.result
    assert [arm["name"] for arm in result["arms"]] == ["ffn=gelu", "ffn=swiglu"]
    assert [arm["seeds"] for arm in result["arms"]] == [[0, 1, 2], [0, 1, 2]]
    (difference,) = result["differences"]
    gelu, swiglu = values(result)
    assert difference["mean"] == pytest.approx((sum(swiglu) - sum(gelu)) / 3)
    assert difference["verdict"] in ("better", "worse", "cannot tell")
    assert result["metric"] == "bits_per_byte"
    assert result["report"] == str(study.folder.resolve() / "report.html")
    assert "<h1" in (study.folder / "report.html").read_text()
    assert json.loads((study.folder / "results.json").read_text()) == result


def test_values_are_those_of_the_models_on_the_test_split(study: Study, settings: list[str]):
    run = study.folder / "arms/1-ffn=swiglu/seed-1"
    test = prepare_data(RunFolder(run).recipe()).test
    likelihood = score(load(run), test, context=16, stride=8, batch_sequences=4)
    assert likelihood.bits_per_byte == pytest.approx(values(study.result)[1][1], rel=1e-5)


def value_of(items: Items) -> float:
    from_items = BITS_PER_BYTE.from_items
    assert from_items is not None
    found = from_items.of(items)
    assert found is not None
    return found


def test_every_run_keeps_the_items_that_its_value_follows_from(study: Study) -> None:
    digests = set()
    for place, arm in enumerate(study.result["arms"]):
        for seed, value in enumerate(arm["values"]):
            run = study.folder / f"arms/{place}-{arm['name']}/seed-{seed}"
            items = read_items(run)
            assert items is not None
            assert value_of(items) == pytest.approx(value, rel=1e-9)
            digests.add(items.tables["windows"].digest)
    assert len(digests) == 1


def test_a_study_keeps_the_items_of_all_its_runs(study: Study) -> None:
    runs = read_study_items(study.folder / STUDY_ITEMS)
    values = {arm["name"]: arm["values"] for arm in study.result["arms"]}
    assert [(run.arm, run.seed) for run in runs] == [
        (name, seed) for name in values for seed in range(3)
    ]
    for run in runs:
        # Nats are rounded to steps of a thousandth, of which a sum is right to half a step.
        assert value_of(run.items) == pytest.approx(values[run.arm][run.seed], rel=1e-6)


@pytest.mark.slow
def test_runs_of_before_have_no_items_and_are_reported_as_they_are(
    study: Study, settings: list[str]
) -> None:
    old = study.copied("old")
    (old / "arms/0-ffn=gelu/seed-1" / ITEMS).unlink()
    (old / STUDY_ITEMS).unlink()
    again = compare("gpt", settings, vary=[FFN], seeds=3, out=old)
    assert values(again) == values(study.result)
    runs = read_study_items(old / STUDY_ITEMS)
    assert [(run.arm, run.seed) for run in runs] == [
        ("ffn=gelu", 0),
        ("ffn=gelu", 2),
        *(("ffn=swiglu", seed) for seed in range(3)),
    ]


def test_damaged_items_of_a_run_are_named(study: Study, settings: list[str]) -> None:
    damaged = study.copied("damaged")
    (damaged / "arms/0-ffn=gelu/seed-1" / ITEMS).write_bytes(b"no items")
    with pytest.raises(CheckpointError, match=r"seed-1/items\.safetensors is damaged"):
        compare("gpt", settings, vary=[FFN], seeds=3, out=damaged)


@pytest.mark.parametrize("folder", ["runs/gpt-ffn", "runs/gpt-ffn.2", "runs/gpt", "runs/gpt-2"])
@pytest.mark.slow
def test_the_same_command_again_shows_what_there_is(study: Study, settings: list[str], folder: str):
    """Earlier versions named the folder after the recipe alone."""
    for other in ("runs/gpt-ffn", "runs/gpt"):
        Path(other).mkdir(parents=True)
        Path(other, "other.txt").touch()
    shutil.rmtree(folder, ignore_errors=True)
    before = files(study.copied(folder) / "arms")
    again = compare("gpt", settings, vary=[FFN], seeds=3)
    assert again == {**study.result, "report": str(Path(folder, "report.html").resolve())}
    assert files(Path(folder, "arms")) == before


@pytest.mark.slow
def test_a_study_goes_on_with_the_runs_that_are_missing(study: Study, settings: list[str]):
    part = study.copied("part")
    shutil.rmtree(part / "arms/0-ffn=gelu/seed-1")
    kept = files(part / "arms/1-ffn=swiglu")
    assert values(compare("gpt", settings, vary=[FFN], seeds=3, out=part)) == values(study.result)
    assert files(part / "arms/1-ffn=swiglu") == kept


@pytest.mark.slow
def test_added_seeds_keep_the_runs_and_widen_the_intervals_for_the_second_look(
    study: Study, settings: list[str]
):
    study.copied("runs/gpt-ffn")
    five = compare("gpt", settings, vary=[FFN], seeds=5)
    assert [each[:3] for each in values(five)] == values(study.result)
    assert study.result["looks"] == [3]
    assert five["looks"] == [3, 5]
    # The same runs, had nobody looked at three.
    plan = Path(shutil.copytree("runs/gpt-ffn", "fresh"), "study.toml")
    plan.write_text(tomli_w.dumps({**read_toml(plan), "reported_seeds": []}))
    fresh = compare("gpt", settings, vary=[FFN], seeds=5, out="fresh")
    assert values(fresh) == values(five)
    assert fresh["looks"] == [5]
    (after,), (alone,) = five["differences"], fresh["differences"]
    assert after["mean"] == alone["mean"]
    assert after["high"] - after["low"] > 1.1 * (alone["high"] - alone["low"])
    assert after["p"] > alone["p"] and after["p_raw"] == alone["p_raw"]
    page = Path(five["report"])
    assert "judged with 3, 5 seeds in turn" in page.read_text()
    assert "in turn" not in Path(fresh["report"]).read_text()
    written = results_to_json(results_of_folder(Path("runs/gpt-ffn")), page)
    assert json.loads(json.dumps(written["differences"])) == five["differences"]
    # What was reported first holds as it did, and so does its report.
    again = compare("gpt", settings, vary=[FFN], seeds=3)
    assert again["differences"] == study.result["differences"]
    assert Path(again["report"]) == page
    written = results_to_json(results_of_folder(Path("runs/gpt-ffn")), page)
    assert json.loads(json.dumps(written["arms"])) == again["arms"]
    assert json.loads(json.dumps(written["differences"])) == again["differences"]


@pytest.mark.slow
def test_one_seed_gives_values_and_no_verdict_and_two_more_go_on(study: Study, settings: list[str]):
    one = compare("gpt", settings, vary=[FFN], seeds=1)
    assert values(one) == [each[:1] for each in values(study.result)]
    assert one["planned_seeds"] == 1
    (difference,) = one["differences"]
    (first,), (second,) = values(one)
    assert difference["verdict"] == "no verdict"
    assert difference["mean"] == pytest.approx(second - first)
    assert difference["low"] is difference["high"] is difference["p"] is None
    note, *_ = one["notes"]
    assert "--seeds 3 continues from these runs with twice 2 runs of " in note
    assert json.loads(Path("runs/gpt-ffn/results.json").read_text()) == one
    kept = files(Path("runs/gpt-ffn/arms"))
    three = compare("gpt", settings, vary=[FFN], seeds=3)
    assert Path(three["report"]) == Path(one["report"])
    assert values(three) == values(study.result)
    # One seed was no look: it could give no verdict.
    assert three["differences"] == study.result["differences"]
    assert three["looks"] == [3]
    assert kept.items() <= files(Path("runs/gpt-ffn/arms")).items()


@pytest.mark.slow
def test_one_seed_of_which_nothing_can_be_compared_fails_after_its_report(settings: list[str]):
    with pytest.raises(TrainingError, match="no arm has a seed that finished beside the baseline"):
        compare("gpt", settings, vary=["optimizer.lr=1e-3,1e6"], seeds=1)
    assert "not finite" in Path("runs/gpt-lr/report.html").read_text()


def test_the_folder_of_another_study_is_refused_and_left_alone(study: Study, settings: list[str]):
    before = files(study.copied("study"))
    longer = ["train.steps=6" if "steps" in text else text for text in settings]
    others: list[tuple[dict[str, Any], str]] = [
        ({"vary": ["model.ffn=gelu,relu"]}, "another study, of ffn=gelu, ffn=swiglu"),
        ({"match": "none"}, "another study, with match = parameters, not none"),
        ({"tune": ["optimizer.lr=1e-3,2e-3"]}, "with tune"),
        ({"overrides": longer}, "steps = 5, not steps = 6"),
    ]
    for changed, difference in others:
        with pytest.raises(ConfigError, match=f"study holds .*{difference}"):
            compare(
                "gpt", out="study", **{"overrides": settings, "vary": [FFN], "seeds": 3, **changed}
            )
        assert files(Path("study")) == before


@pytest.mark.parametrize("rule", [None, "in the order of modules"])
@pytest.mark.parametrize("out", ["runs/gpt", None])
def test_a_study_whose_seeds_gave_other_weights_is_refused_and_left_alone(
    study: Study, settings: list[str], rule: str | None, out: str | None
):
    path = study.copied("runs/gpt") / "study.toml"
    plan = read_toml(path)
    assert plan.pop("initial_weights")
    path.write_text(tomli_w.dumps({**plan, **({} if rule is None else {"initial_weights": rule})}))
    before = files(Path("runs"))
    refusal = (
        "runs/gpt was begun by another version .* resume with that version, or give another --out"
    )
    with pytest.raises(ConfigError, match=refusal):
        compare("gpt", settings, vary=[FFN], seeds=4, out=out)
    assert files(Path("runs")) == before


def test_a_folder_with_other_files_is_refused(settings: list[str]):
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("do not lose")
    with pytest.raises(ConfigError, match="mine holds other files: give another --out"):
        compare("gpt", settings, vary=[FFN], out="mine")
    assert files(Path("mine")).keys() == {"thesis.txt"}


@pytest.mark.slow
def test_another_study_of_the_same_name_gets_the_next_folder(study: Study, settings: list[str]):
    study.copied("runs/gpt-ffn")
    compare("gpt", settings, vary=["model.ffn=gelu,relu"], seeds=1)
    again = compare("gpt", settings, vary=["model.ffn=gelu,relu"], seeds=1)
    assert Path(again["report"]) == Path("runs/gpt-ffn.2/report.html").resolve()


@pytest.mark.parametrize(
    ("options", "extra", "message"),
    [
        (Options(vary=(FFN,), seeds=0), [], "--seeds 0 is too few"),
        (Options(vary=(FFN,), seeds=2), [], "--seeds 2 says too little .* at least 3, or 1 for"),
        (Options(), [], "nothing to be compared with"),
        (Options(vary=("model.d_head=4,8",)), ["model.d_head=4"], "both set and given to --vary"),
        (
            Options(vary=("model.bias=true,true",)),
            [],
            "is equal to the baseline|two arms are named",
        ),
        (Options(vary=(FFN,)), ["train.seed=3"], "train.seed has no effect"),
        (Options(vary=(FFN,), tune=("model.d_ff=8,9",)), [], "is not a setting of training"),
        (
            Options(vary=("optimizer.lr=1e-3,2e-3",), tune=("optimizer.lr=1e-3,2e-3",)),
            [],
            "both compared and tuned",
        ),
        (Options(vary=("model.share=none,all",)), [], "use --match flops or --match time"),
    ],
)
def test_a_comparison_without_meaning_is_refused_before_anything_is_trained(
    settings: list[str], options: Options, extra: list[str], message: str
):
    layers = ["model.n_layers=2" if text == "model.n_layers=1" else text for text in settings]
    with pytest.raises(ConfigError, match=message):
        run_study(["gpt"], [*layers, *extra], options)
    assert not list(Path().rglob("record.json"))


@pytest.mark.slow
def test_failed_runs_are_listed_and_stop_nothing(settings: list[str]):
    varied = ["optimizer.lr=1e-3,1e-2,1e6"]
    result = compare("gpt", settings, vary=varied, seeds=3)
    assert [(failure["arm"], failure["seed"]) for failure in result["failures"]] == [
        ("lr=1e6", seed) for seed in range(3)
    ]
    assert [len(arm["values"]) for arm in result["arms"]] == [3, 3, 0]
    # Three of three failed: two by chance in the 20 ways to divide six runs.
    *_, failed = result["differences"]
    assert (failed["by_ranks"], failed["n_failed"]) == (True, [3, 0])
    assert failed["p_raw"] == pytest.approx(2 / 20)
    assert failed["verdict"] == "cannot tell"
    page = Path(result["report"]).read_text()
    assert "not finite" in page and "3 of 3 runs of learning rate 1000000.0 failed" in page
    assert compare("gpt", settings, vary=varied, seeds=3) == result
    # The arm of which no run has a score is in the report that is written again, too.
    again = results_to_json(results_of_folder(Path("runs/gpt-lr")), Path(result["report"]))
    assert json.loads(json.dumps(again["differences"])) == result["differences"]


@pytest.mark.slow
def test_a_study_of_which_nothing_can_be_compared_fails_after_its_report(settings: list[str]):
    with pytest.raises(TrainingError, match=r"see .*report\.html"):
        compare("gpt", settings, vary=["optimizer.lr=1e6,2e6"], seeds=3)
    assert Path("runs/gpt-lr/report.html").exists()


def test_matching_by_parameters_widens_or_narrows_the_arm(study: Study):
    result = study.result
    gelu, swiglu = (arm["parameters"]["total"] for arm in result["arms"])
    assert result["arms"][1]["matched"] == ["model.d_ff=21"]
    assert result["arms"][1]["mismatch"] == pytest.approx(swiglu / gelu - 1)
    excess = result["arms"][1]["excess"]
    assert excess["against"] == "ffn=gelu"
    assert excess["realised"]["parameters"] == pytest.approx(swiglu / gelu - 1)
    # Of as many tokens: what a token takes more.
    spent = [arm["flops_per_token"] * arm["tokens"] for arm in result["arms"]]
    assert [arm["operations"] for arm in result["arms"]] == spent
    assert [arm["planned_operations"] for arm in result["arms"]] == spent
    assert excess["realised"]["operations"] == pytest.approx(spent[1] / spent[0] - 1)
    assert excess["planned"] == excess["realised"]


@pytest.mark.slow
def test_matching_by_operations_changes_steps_only(settings: list[str]):
    result = compare(
        "gpt", settings, vary=["model.block=transformer,macaron"], match="flops", seeds=1
    )
    plain, macaron = result["arms"]
    assert (plain["steps"], macaron["parameters"]["total"] > plain["parameters"]["total"]) == (
        5,
        True,
    )
    assert macaron["steps"] == round(5 * plain["flops_per_token"] / macaron["flops_per_token"])
    left = macaron["steps"] * macaron["flops_per_token"] / (5 * plain["flops_per_token"]) - 1
    assert macaron["excess"]["realised"]["operations"] == pytest.approx(left)
    assert macaron["excess"]["realised"]["parameters"] > 0.05


@pytest.mark.slow
def test_the_mismatch_of_time_is_of_what_the_runs_took(settings: list[str]):
    result = compare("gpt", settings, vary=[FFN], match="time", seeds=1)
    gelu, swiglu = result["arms"]
    assert swiglu["matched"][0].startswith("train.steps=")
    assert gelu["mismatch"] == 0.0
    share = swiglu["training_seconds"] / gelu["training_seconds"] - 1
    assert swiglu["mismatch"] == pytest.approx(share)
    assert swiglu["excess"]["realised"]["time"] == pytest.approx(share)
    told = [note for note in result["notes"] if "did not train for equal time" in note]
    assert bool(told) == (abs(share) > 0.03)


@pytest.mark.slow
def test_minutes_become_the_same_steps_for_every_arm(settings: list[str]):
    timed = [text for text in settings if "steps" not in text] + ["train.minutes=0.02"]
    result = compare("gpt", timed, vary=[FFN], seeds=1)
    gelu, swiglu = (arm["steps"] for arm in result["arms"])
    assert gelu == swiglu
    settled = read_toml(Path("runs/gpt-ffn/study.toml"))["settled"]
    assert {each["settings"]["train.steps"] for each in settled} == {gelu}
    assert compare("gpt", timed, vary=[FFN], seeds=1) == result


@pytest.mark.slow
def test_every_arm_gets_the_same_trials_and_keeps_the_best_on_validation(settings: list[str]):
    result = compare("gpt", settings, vary=[FFN], seeds=1, tune=["optimizer.lr=1e-7,1e-2"])
    assert [arm["tuned"] for arm in result["arms"]] == [["optimizer.lr=0.01"]] * 2
    for arm in ("0-ffn=gelu", "1-ffn=swiglu"):
        trained = {
            str(path.parent.relative_to(f"runs/gpt-ffn/arms/{arm}"))
            for path in Path(f"runs/gpt-ffn/arms/{arm}").rglob("record.json")
        }
        # What is compared was not chosen by its own luck.
        assert trained == {"lr=1e-7/seed-1000", "lr=1e-2/seed-1000", "lr=1e-2/seed-0"}


@pytest.mark.slow
def test_a_changed_text_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    settings = settings_of(write_text(tmp_path / "river.txt"))
    compare("gpt", settings, vary=[FFN], seeds=1)
    with (tmp_path / "river.txt").open("a") as text:
        text.write(" and more than before")
    with pytest.raises(DataError, match="the text has changed"):
        compare("gpt", settings, vary=[FFN], seeds=3)
