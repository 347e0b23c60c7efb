"""Studies with stages: settings, plans, refusals and scores, and chains as they run."""

import json
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import tomli_w

import sublayer
from sublayer.cli import main as cli
from sublayer.config.load import load_recipe, read_run_recipe
from sublayer.data import prepare as preparing
from sublayer.data.tasks.batches import of_tasks
from sublayer.errors import ConfigError
from sublayer.files.checkpoints import checkpoint_path, saved_steps
from sublayer.objective import base
from sublayer.objective.supervised.answering import answer_together
from sublayer.reporting.files import results_to_json
from sublayer.reporting.listing import comparison_row
from sublayer.reporting.verify import verify_study
from sublayer.runs.session import prepare_data
from sublayer.statistics.looks import fixed
from sublayer.study import arms as of_arms
from sublayer.study import runner
from sublayer.study.arms import PRETRAINING, Arm, Chain, Stage, Trial
from sublayer.study.collect import results_of_folder, trained_operations
from sublayer.study.columns import Column, list_columns, points_metric, run_scores
from sublayer.study.cost_plan import StagePlan, make_plan, plan_stages, with_stages
from sublayer.study.definition import Study, load_study
from sublayer.study.evidence import StudyJudge, arm_scores
from sublayer.study.jobs.run import Outcome
from sublayer.study.runs import RunFinder, StageRuns, failed_runs, finder_of_chain
from sublayer.study.stage_recipes import ChainPlan, stage_key
from sublayer.tasks.scoring import score
from tests.breadth import rows
from tests.stopping import stopped_at
from tests.study.studies import copied, part_of, read_results, timeless, values
from tests.study.test_budget import PLENTY
from tests.task_files import write_copa, write_sst2, write_stsb

ARMS = [
    {"name": "full", "published": {"sst2": 91.3, "mnli": 81.8}},
    {"name": "no texts", "finetune": {"objective": {"language_weight": 0.0}}},
    {"name": "fresh", "pretrain": False},
]
MODEL = {"n_layers": 1, "d_model": 16, "n_heads": 2}
DATA = {"context": 48, "tokenizer": "bpe", "vocab_size": 300, "split": "80/10/10"}
STEPS = {"steps": 6, "batch_sequences": 4, "evaluate_tokens": 512, "evaluate_steps": 6}
FIXED = {"threads": 1, "precision": "float32"}
FINETUNE = {"steps": 3, "evaluate_steps": 3, "batch_sequences": 8}
SCALE = {"recipe": "gpt", "finetune": {"train": FINETUNE, "data": {"held_out": 0.2}}}
SCALE["set"] = {"model": MODEL, "data": DATA, "train": {**STEPS, **FIXED}}
STUDY = {"match": "none", "seeds": 3, "finetunings": 2, "scale": {"cpu": SCALE}, "arms": ARMS}
STUDY |= {"stages": [{"each": ["sst2", "copa"]}], "averages": {"both": ["sst2", "copa"]}}
QUESTION = {"margin": "99 points of both", "margin_reason": "for the test"}
QUESTION["hypothesis"] = {"says": "x", "contrast": {"no texts": 1.0, "fresh": -1.0}}
EARLY = {"tasks": "sst2", "name": "early", "from_step": 4}
LATE = {"tasks": "sst2", "name": "late"}
TOGETHER = {"name": "both of them", "ensemble": ["early", "late"]}
ENSEMBLE = {"stages": [TOGETHER, EARLY, LATE], "averages": {}, "seeds": 1, "finetunings": 3}
ENSEMBLE["arms"] = [{"name": "a"}, {"name": "b", "set": {"model": {"ffn": "swiglu"}}}]
KEPT = "train.keep_steps=[4]"
COPA = {"tasks": "copa", "after": "sst2"}
UNTRAINED = [{"name": n, "pretrain": False, "set": {"model.ffn": n}} for n in ("gelu", "relu")]
WRITTEN = {"set": {"objective": {"format": "text", "target_length": 8}}}
MNLI, RTE = Stage("mnli", PRETRAINING, ("mnli",)), Stage("rte", "mnli", ("rte",))
CHAIN = Chain((MNLI, RTE, Stage("both", PRETRAINING, ("rte",), ensemble=("rte",) * 2)), n_seeds=3)
PARTS = {
    "mrpc": [part_of("mrpc")],
    "mnli": [part_of("mnli", f"mnli_{each}") for each in ("matched", "mismatched")],
}
KEYS = {PRETRAINING: "f" * 64, "mnli": "0" * 64, "rte": "1" * 64}
TRIALS = (Trial("lr=1", {"optimizer.lr": 1}), Trial("lr=2", {"optimizer.lr": 2}))
COLUMN = Column(points_metric("sst2", "SST-2"), "sst2", key="sst2", part="sst2")
ONCE = {"seeds": 1, "finetunings": 1}


def write_chain(folder: Path, **changes) -> Path:
    """Write the study with some of its keys replaced, its text and its tasks, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "text.txt").exists():
        films = ((n, n % 7, "fine" if n % 3 else "dull") for n in range(400))
        lines = (f"the {n} films of year {year} were {how}" for n, year, how in films)
        (folder / "text.txt").write_text("\n".join(lines))
        write_stsb(write_copa(write_sst2(folder / "glue")))
    study = {key: value for key, value in {**STUDY, **changes}.items() if value is not None}
    (folder / "small.toml").write_text(tomli_w.dumps(study))
    return folder / "small.toml"


def words(study: Path, *more: str) -> list[str]:
    text, tasks = (str(study.parent / name) for name in ("text.txt", "glue"))
    return ["compare", str(study), f"data.path={text}", "--data", tasks, *more]


@pytest.fixture
def finished(workshop, monkeypatch):

    def find(name: str, *more: str, **changes) -> Path:
        def make(folder: Path) -> None:
            monkeypatch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
            study = write_chain(folder, **changes)
            assert cli.main(words(study, *more, "--out", str(folder / "out"))) == 0

        folder = workshop.once(f"chain-{name}", make)
        monkeypatch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
        return folder

    return find


def test_settings_are_laid_over_each_other_from_the_scale_to_the_command_line(tmp_path):
    stages = [
        {"tasks": ["sst2", "copa"], "name": "at 1.5k", "set": {"optimizer": {"lr": 0.25}}},
        {"tasks": "stsb", "after": "at 1.5k"},
        {"tasks": ["sst2", "copa"]},
    ]
    arms = [{"name": "a"}, {"name": "b", "stages": {"stsb": {"model.dropout": 0.5}}}]
    path = write_chain(tmp_path, stages=stages, arms=arms, averages={})
    given = ["finetune.train.epochs=7", "at 1.5k.optimizer.lr=0.125", "train.steps=9"]
    chain = load_study(str(path), [*given, "sst2-copa.optimizer.lr=0.5"]).chain
    by_name = {each.name: each for each in chain.stages}
    both, stsb, last = (by_name[name] for name in ("at 1.5k", "stsb", "sst2-copa"))
    settings = chain.settings_of("a", both)
    assert (settings["optimizer.lr"], settings["train.epochs"]) == (0.125, 7)
    assert "train.steps" not in settings and last.settings["optimizer.lr"] == 0.5
    assert [chain.settings_of(arm, stsb).get("model.dropout") for arm in "ab"] == [None, 0.5]
    with pytest.raises(ConfigError, match="sst2 is no stage: .* there are finetune, at 1.5k"):
        load_study(str(path), ["sst2.optimizer.lr=0.125"])


def stages_of(*stages, **more):
    return {"stages": list(stages), "averages": {}, **more}


def arms_of(**changes):
    return {"arms": [{"name": "a"}, {"name": "b", **changes}]}


def sst2(**changes):
    return stages_of({"tasks": "sst2", **changes})


@pytest.mark.parametrize("changes, message", [
    ({"stages": [{"each": ["sst2", "sst2"]}]}, "two stages are named sst2"),
    (stages_of({"tasks": "sst2", "after": "copa"}, COPA), "from each other"),
    (sst2(after="pretrain"), "leaves a model: did you mean pretraining?"),
    (sst2(name="train"), "may be named 'train'"), (sst2(each=["copa"]), "has tasks and each"),
    (stages_of({"set": {"train.steps": 3}}), "needs a name"),
    (stages_of({"name": "more", "preset": "gpt1"}), "text, so preset has no effect"),
    (stages_of({"name": "more", "finetunings": 2}), "more trains on a text"),
    (sst2(set={"train.minutes": 3}), "stage sst2: it sets train.minutes"),
    (sst2(set={"model.d_model": 32}), "do not fit model.d_model = 32"),
    (sst2(set={"objective.format": "pair"}), "arm full, stage sst2"),
    (sst2(set={"train.keep_steps": [4]}), "the run has 3 steps"),
    (sst2(from_step=4), "add it with train.keep_steps=[4]"),
    (stages_of({"tasks": "sst2", "set": {"train.keep_steps": [1, 2]}}, {**COPA, "from_step": 3}),
     "sst2.train.keep_steps=[3]"),
    ({**sst2(from_step=3), "arms": UNTRAINED}, "no arm is pre-trained"),
    (arms_of(stages={"sst": {"train.steps": 3}}), "sst is no trained stage: did"),
    (arms_of(), "arm b is equal to the baseline a"),
    (arms_of(finetune={"init.layers": 2}), "init.layers = 2 is more than the 1 block"),
    ({**arms_of(pretrain=False), "stages": None, "averages": {}}, "has no effect without"),
    ({"averages": {"all": ["sst2", "cola"]}}, "cola is not a column: did you mean copa?"),
    ({"averages": {"all": ["sst2:f2"]}}, "sst2 has no metric f2"),
    ({"averages": {"all": ["sst2", ["copa", "sst2"]]}}, "the average all has sst2 twice"),
    ({"metrics": {"sst2": ["accuracy", "accuracy"]}}, "metrics of sst2 has accuracy twice"),
    ({"tune_finetune": {"data.context": [32, 64]}}, "is not a setting of fine-tuning"),
    ({"tune": {"optimizer.lr": [0.1, 0.2]}}, "has both stages and tune"),
    ({"tune_finetune": {"optimizer.lr": [0.1, 0.2]}, "finetunings": 1000}, "between 1 and 999"),
    ({"margin": "0.1 bits per byte"}, "measured in points: give such as"),
    (arms_of(start="c"), "start: c is no earlier arm with a pre-training"),
    ({"arms": [{"name": "a", "start": "b"}, {"name": "b"}]}, "there are none"),
    (arms_of(start="a", pretrain=False), "is not pre-trained, and start = a"),
    (arms_of(start="a", set={"model": {"d_model": 32}}), "arm b, start: "),
    (stages_of({"tasks": "sst2"}, {"name": "x", "ensemble": ["sst2", "c: sst2"]}), "is no arm"),
    (sst2(set={"data.score_on": "test"}), "SST-2 has train, dev: leave the setting out"),
])  # fmt: skip
def test_a_chain_that_does_not_fit_is_refused(changes, message, tmp_path, capsys):
    out = tmp_path / "out"
    assert cli.main(words(write_chain(tmp_path, **changes), "--out", str(out))) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
    assert not list(out.glob("stages/*"))


@pytest.mark.parametrize("more, message", [
    (["--tune", "optimizer.lr=0.1,0.2"], "write --tune finetune.optimizer.lr=0.1,0.2"),
    (["train.seed=3"], "train.seed has no effect on a comparison"),
    (["--tune", "finetune.objective.language_weight=0.1,0.2"], "arm no texts also sets it"),
    (["finetune.objective.language_weight=0.1"], "the arms of small differ in finetune.obj"),
    (["--until", "decided", "--seeds-at-most", "5"], "--seeds-at-most applies only to"),
])  # fmt: skip
def test_options_without_effect_on_a_chain_are_refused(more, message, tmp_path, capsys):
    assert cli.main(words(write_chain(tmp_path), *more)) == 2
    assert message in capsys.readouterr().err


def test_a_full_disk_and_missing_files_are_named_first(tmp_path, monkeypatch, capsys):
    path, out = write_chain(tmp_path), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(runner.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
        assert cli.main(words(path, "--out", str(tmp_path / "full"))) == 2
    assert "the models of all runs take" in capsys.readouterr().err
    assert not list(tmp_path.glob("full/stages/*"))
    for gone, message in (("SST-2", "has no files of SST-2"), ("", "is not a folder")):
        (tmp_path / "glue" / gone).rename(tmp_path / f"elsewhere{gone}")
        assert cli.main(words(path, "--out", str(out))) == 2
        error = capsys.readouterr().err
        assert f"stage sst2: {tmp_path}/glue {message}" in error.strip().splitlines()[-1]
        assert "tokenizing the text" not in error and not out.exists()
    (tmp_path / "my.csv").write_text("text,label\n" + "a b,1\nc d,0\n" * 40)
    own = {"table": str(tmp_path / "my.csv"), "columns": {"text": "text", "label": "label"}}
    assert cli.main(words(write_chain(tmp_path, **stages_of(own)))) == 2
    assert "--data requires stages of published tasks" in capsys.readouterr().err


def of_members(*members: str):
    return {"name": "c", "ensemble": list(members)}


@pytest.mark.parametrize("stages, arms, message", [
    ([EARLY, LATE, of_members("early", "latter")], {}, "latter is no stage that learns"),
    ([EARLY, LATE, of_members("early")], {}, "name at least two stages, each once"),
    ([EARLY, {"tasks": "copa"}, of_members("early", "copa")], {}, "name stages of the same tasks"),
    ([TOGETHER, EARLY, LATE, of_members("early", "both of them")], {}, "both of them is no stage"),
    ([EARLY, LATE, of_members("early", "pretraining")], {}, "pretraining is no stage"),
    (ENSEMBLE["stages"], arms_of(stages={"both of them": {"train.steps": 3}}), "is no trained"),
    (ENSEMBLE["stages"], arms_of(pretrain=False), "early and late are the same training"),
    ([TOGETHER, EARLY, {**LATE, "set": {"data.path": "other"}}], {}, "late is scored on diff"),
    ([TOGETHER, {**EARLY, **WRITTEN}, {**LATE, **WRITTEN}], {}, "= rank to rank the labels"),
])  # fmt: skip
def test_wrong_ensembles_are_refused(stages, arms, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = write_chain(tmp_path, **{**ENSEMBLE, **arms, "stages": stages})
    other = shutil.copytree("glue", "other") / Path("SST-2/dev.tsv")
    other.write_text("\n".join(other.read_text().splitlines()[:-4]) + "\n")
    assert cli.main(words(path, KEPT, "--out", "out")) == 2
    assert message in capsys.readouterr().err
    assert not list(Path("out").glob("stages/*"))


def test_differences_of_two_chains_are_named_and_the_place_of_files_is_none(tmp_path):
    def described(data="glue", settings=(), **changes):
        chain = load_study(str(write_chain(tmp_path, **changes)), settings).chain
        return replace(chain, data=data).describe_stages()

    first = described()
    before_data_was_left_out = json.dumps({**json.loads(first), "data": "/a/glue"})
    assert of_arms.differing_stages(before_data_was_left_out, described("elsewhere")) == ""
    assert of_arms.differing_stages(first, None) == "stages"
    for damaged in ("{}", "[", '{"stages": 3, "arms": {}, "tune": []}'):
        with pytest.raises(ConfigError, match="the stages in the study's folder"):
            of_arms.differing_stages(damaged, first)
    fewer = described(stages=[{"each": ["sst2"]}], averages={})
    assert of_arms.differing_stages(first, fewer) == "stages"
    longer = described(settings=["sst2.train.steps=4"])
    assert of_arms.differing_stages(first, longer) == "settings of its stage sst2"
    arms = [*ARMS[:1], {"name": "no texts", "finetune": {"model.dropout": 0.5}}, *ARMS[2:]]
    assert of_arms.differing_stages(first, described(arms=arms)) == "settings of its arm no texts"


@pytest.mark.parametrize("stage", ["../../up", "..", "a\0b", "x" * 300])
def test_the_folder_of_a_stage_is_one_of_the_studys_stages(tmp_path, stage):
    kept = kept_of(Chain((Stage(stage, PRETRAINING),)), {"full": {stage: "0123456789abcdef"}})
    [folder] = kept.folders(tmp_path).values()
    assert folder.parent == tmp_path / "stages" and folder.name.endswith("-0123456789")
    folder.mkdir(parents=True)
    assert folder.resolve().parent == (tmp_path / "stages").resolve()


def test_a_plan_counts_kept_checkpoints_and_no_training_of_an_ensemble(tmp_path, capsys):
    path, plans, disks = write_chain(tmp_path, **ENSEMBLE), [], []
    for kept in ("[2, 4]", "[4]"):
        asked = words(path, f"train.keep_steps={kept}", "--json")[1:]
        assert cli.main(["plan", *asked]) == 0
        plans.append(json.loads(capsys.readouterr().out))
        stages = plans[-1]["stages"]
        disks += [next(each["disk_bytes"] for each in stages if each["stage"] == PRETRAINING)]
    # Model, gradients' two moments: a checkpoint is three times the model.
    assert disks[0] / 7 == disks[1] / 4
    after = {each["stage"]: each["after"] for each in stages}
    assert after["early"] == "pretraining at step 4"
    fields = ("stage", "after", "runs", "steps", "hours", "disk_bytes")
    expected = ["both of them", "early, late", 3, 0, 0.0, 0]
    assert [[each[name] for name in fields] for each in stages[-2:]] == [expected] * 2
    assert plans[0]["total"]["runs"] == 20
    recipe = load_recipe("gpt").recipe
    keys = [stage_key(recipe, "before", [], from_step=step) for step in (None, 3, 4)]
    assert len(set(keys)) == 3


def trained(tokens: int, flops_per_token: int | None) -> Outcome:
    record = {"tokens": tokens, "flops_per_token": flops_per_token}
    return Outcome(Path("run"), record, {"": 0.5})


def test_operations_are_those_of_all_stages_or_unknown(tmp_path):
    outcomes = {"mnli": [trained(10, 5), trained(12, 5), trained(50, 5)]}
    outcomes |= {PRETRAINING: [trained(1000, 7)], "both": [Outcome(Path("y"), test={"": 0.6})]}
    outcomes["rte"] = [trained(3, 5), Outcome(Path("x"), failure="diverged")]
    runs = {name: StageRuns({0: own}) for name, own in outcomes.items()}
    assert trained_operations(CHAIN, runs) == 7075
    assert trained_operations(CHAIN, {name: runs[name] for name in ("mnli", "rte")}) == 60 + 15
    for unknown in ([], [trained(1000, None)]):
        runs["mnli"] = StageRuns({0: unknown})
        assert trained_operations(CHAIN, runs) is None

    def operations_beyond(*settings: str) -> tuple[list[StagePlan], dict[str, float | None]]:
        study = load_study(str(path), [f"data.path={tmp_path / 'text.txt'}", *settings])
        plan = make_plan(study.arms, "none", PLENTY)
        stages = plan_stages(study, plan, PLENTY, None, n_seeds=2)
        arms = with_stages(plan, stages, study.chain).arms
        return stages, {arm.name: arm.excess.planned.operations for arm in arms}

    path = write_chain(tmp_path)
    stages, beyond = operations_beyond()
    spent = {"full": 0.0, "no texts": 0.0, "fresh": 0.0}
    for each in stages:
        # 6 steps of 4 windows of 48 tokens, and 3 steps of 8 examples.
        tokens = 6 * 4 * 48 if each.stage == PRETRAINING else 3 * 8 * 48
        for arm in each.arms:
            spent[arm] += tokens * each.run.flops_per_token
    shares = {arm: pytest.approx(spent[arm] / spent["full"] - 1) for arm in ("no texts", "fresh")}
    assert beyond == {"full": None, **shares}
    # Both of the others are pre-trained alike, and what is unknown is left out of both.
    _, beyond = operations_beyond("finetune.train.epochs=3")
    assert beyond == {"full": None, "no texts": 0.0, "fresh": None}


def test_a_metric_stands_for_the_score_with_its_own_error_and_several_beside_it():
    two = Chain((Stage("mrpc", PRETRAINING, ("mrpc",)), MNLI))
    columns = list_columns("s", replace(two, metrics={"mrpc": "f1"}), PARTS, ())
    labels = {"mrpc": "MRPC, F1", "mnli": "mnli, mean", "mnli/mnli_matched": "MNLI matched"}
    labels["mnli/mnli_mismatched"] = "MNLI mismatched"
    assert {column.name: column.metric.label for column in columns} == labels
    test = {"": 0.7, "mrpc": 0.7, "mrpc:error": 0.1, "mrpc:f1": 0.8, "mrpc:accuracy": 0.6}
    scores = run_scores(columns, "mrpc", {**test, "mrpc:f1:error": 0.2})
    assert (scores["mrpc"], scores["mrpc:error"]) == (0.8, 0.2)
    assert "mrpc:error" not in run_scores(columns, "mrpc", test)
    assert run_scores(columns, "another stage", test) == {}
    several = replace(two, metrics={"mrpc": ("f1", "accuracy")})
    several = replace(several, averages={"both": ("mrpc", "mrpc:f1")})
    columns = list_columns("s", several, PARTS, ())
    assert [each.name for each in columns][:4] == ["both", "mrpc", "mrpc:f1", "mrpc:accuracy"]
    scores = run_scores(columns, "mrpc", test)
    del test[""]
    assert test.items() <= scores.items() and "mrpc:f1:error" not in scores
    assert columns[0].value_of(scores) == pytest.approx(0.75)


def kept_of(chain: Chain, keys: dict[str, dict[str, str]], **trials) -> ChainPlan:
    facts = {"parameters": {}, "flops_per_token": 0, "steps": 1, "mismatch": 0.0, "matched": ()}
    arms = tuple(of_arms.ArmFacts(name=name, **facts) for name in keys)
    runs = {"n_seeds": 1, "n_runs": {}, "keys": keys, "parts": {}, "trials": trials}
    return ChainPlan(chain=chain, arms=arms, kinds=("causal",), **runs)


def gathered(outcomes: dict[str, Outcome], **trials) -> RunFinder:
    folders = {f"{name}-{key[:10]}": name for name, key in KEYS.items()}

    def find(path: Path) -> Outcome | None:
        _, _, folder, *rest = path.parts
        return outcomes.get("/".join([folders[folder], *rest]))

    tried = {"mnli": (of_arms.NO_TRIAL,), "rte": (of_arms.NO_TRIAL,), **trials}
    kept = kept_of(Chain((MNLI, RTE), n_seeds=2), {"a": KEYS}, **tried)
    finder = finder_of_chain(Path("study"), kept, find)
    for stage in (MNLI, RTE):
        finder.choose(stage.name)
    return finder


def ended(score: float) -> Outcome:
    return Outcome(Path(f"{score}"), {"valid": {"score": score}}, {"": score})


def test_what_follows_on_a_failure_has_ended_and_nothing_is_chosen_before_all_trials_have():
    failed = gathered({f"{PRETRAINING}/seed-0": Outcome(Path("p"), failure="diverged")})
    runs = failed.gathered()
    [first, _] = runs["a", "rte"].outcomes[0]
    after = "the start of this stage, failed"
    assert first.failure == f"mnli, {after}: pretraining, {after}: diverged"
    assert failed.n_ended() == {PRETRAINING: 1, "mnli": 2, "rte": 2}
    nothing = gathered({f"{PRETRAINING}/seed-0": ended(0.5)})
    [first, _] = nothing.gathered()["a", "mnli"].outcomes[0]
    assert (first.test, first.failure) == (None, "")
    assert nothing.n_ended() == {PRETRAINING: 1}
    outcomes = {f"{PRETRAINING}/seed-0": ended(0.5), "mnli/lr=1/seed-0": ended(0.6)}
    part = gathered(outcomes, mnli=TRIALS)
    runs = part.gathered()["a", "mnli"]
    assert (runs.outcomes, runs.scores) == ({}, {})
    assert part.n_ended() == {PRETRAINING: 1, "mnli": 1}
    outcomes["mnli/lr=2/seed-0"] = ended(0.7)
    runs = gathered(outcomes, mnli=TRIALS).gathered()["a", "mnli"]
    assert (runs.trial, runs.scores) == (TRIALS[1], {"lr=1": 0.6, "lr=2": 0.7})
    outcomes["mnli/lr=2/seed-0"] = Outcome(Path("t"), failure="diverged")
    assert gathered(outcomes, mnli=TRIALS).gathered()["a", "mnli"].trial == TRIALS[0]


def test_a_failed_run_that_arms_share_counts_as_failed_for_each_of_them():
    shared = {0: [Outcome(Path("x"), failure="diverged")], 1: [ended(0.5)], 2: [ended(0.6)]}
    runs = {(arm, "sst2"): StageRuns(shared) for arm in "ab"}
    found = {(arm, seed) for arm, _, seed, _ in failed_runs(runs)}
    assert found == {("a", 0), ("b", 0)}
    arms = tuple(Arm(arm, load_recipe("gpt"), {}) for arm in "ab")
    study = Study("s", "", "", "none", 3, arms, chain=Chain((MNLI,)))
    values = {arm: {1: 0.5, 2: 0.6} for arm in "ab"}
    judge = StudyJudge(study, [COLUMN], runs, 3, fixed(3))
    assert judge.failed(values) == {arm: [0] for arm in "ab"}


def nested(scores: dict[int, list[float]], n_seeds: int, *columns: Column, within=0, **options):
    """The scores of an arm whose fine-tunings under each seed scored this, and failed where 0."""

    def outcome(seed: int, score: float) -> Outcome:
        test = {"sst2": score} if seed else {"sst2": score, "sst2:f1": 0.1}
        return Outcome(Path(), test=test) if score else Outcome(Path(), failure="diverged")

    outcomes = {seed: [outcome(seed, each) for each in own] for seed, own in scores.items()}
    chain = Chain((Stage("sst2", PRETRAINING, ("sst2",)),), n_seeds=n_seeds, **options)
    runs = {"sst2": StageRuns(outcomes)}
    return arm_scores(chain, runs, [*columns, COLUMN], within=within)


def test_fine_tunings_stand_for_their_pre_training_by_mean_or_median_and_averages():
    scores = {0: [0.5, 0.7, 0.9], 1: [0.2, 0.2, 0.8]}
    mean, cells = nested(scores, 3)
    assert mean["sst2"] == pytest.approx({0: 0.7, 1: 0.4})
    cell = cells["sst2"]
    # Over the two means, and within: sqrt((0.08 + 0.24) / 4).
    expected = (0.55, 0.3 / 2**0.5, 0.08**0.5)
    assert (cell.mean, cell.sd, cell.inner_sd) == pytest.approx(expected)
    median, _ = nested(scores, 3, nested="median")
    assert median["sst2"] == pytest.approx({0: 0.7, 1: 0.2})
    # A failed fine-tuning is left out; those of one pre-training alone are compared themselves.
    found, _ = nested({0: [0.5, 0.0], 1: [0.6, 0.8]}, 2)
    assert found["sst2"] == pytest.approx({0: 0.5, 1: 0.7})
    within, _ = nested({0: [0.5, 0.7, 0.9]}, 3, within=3)
    assert within["sst2"] == {0: 0.5, 1: 0.7, 2: 0.9}
    in_order = StageRuns({0: [ended(0.5), ended(0.7)]}).scored(within=2)
    assert [seeds for _, seeds, _ in in_order] == [(0,), (1,)]
    both = Column(points_metric("both", "both"), "", members=("sst2", ("sst2", "sst2:f1")))
    found, _ = nested({0: [0.5], 1: [0.7]}, 1, both)
    assert found["both"] == pytest.approx({0: (0.5 + (0.5 + 0.1) / 2) / 2})


@pytest.fixture
def place(finished):
    return finished("plain", **QUESTION)


@pytest.fixture
def together(finished):
    return finished("ensemble", KEPT, **ENSEMBLE)


def stage(out: Path, name: str) -> list[Path]:
    return sorted(out.glob(f"stages/{name}-*"))


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def test_a_stage_that_arms_share_is_trained_once_and_as_by_hand(place, tmp_path):
    # The arms with and without the loss of texts share a pre-training; the third has none.
    [pretrained] = stage(place / "out", "pretraining")
    assert [run.name for run in sorted(pretrained.iterdir())] == ["seed-0", "seed-1", "seed-2"]
    assert len(stage(place / "out", "sst2")) == len(stage(place / "out", "copa")) == 3
    for folder in stage(place / "out", "sst2"):
        seeds = sorted(run.name for run in folder.iterdir())
        assert seeds == [f"seed-{seed}" for seed in (0, 1, 1000, 1001, 2000, 2001)]
    # Three pre-trainings for two arms; three arms on two tasks, twice under each of three.
    row = comparison_row(place / "out")
    assert (row.state, row.finished, row.planned) == ("finished", 39, 39)

    def settings_of(**tables) -> list[str]:
        return [f"{table}.{name}={each[name]}" for table, each in tables.items() for name in each]

    start, run = str(tmp_path / "start"), tmp_path / "sst2"
    train = {**STEPS, **FIXED, "seed": 1}
    sets = settings_of(model=MODEL, data=DATA, train=train)
    assert cli.main(["train", "gpt", *sets, f"data.path={place / 'text.txt'}", "--out", start]) == 0
    train = {**FINETUNE, **FIXED, "seed": 1001}
    tuned = settings_of(train=train, data={"held_out": 0.2})
    command = ["finetune", start, "sst2", "--data", str(place / "glue"), *tuned]
    assert cli.main([*command, "--out", str(run)]) == 0
    [pretrained] = stage(place / "out", "pretraining")
    assert weights(Path(start)) == weights(pretrained / "seed-1")
    tuned = [each / "seed-1001" for each in stage(place / "out", "sst2")]
    [same] = [each for each in tuned if weights(each) == weights(run)]
    scores = [json.loads((each / "scores.json").read_text())["tasks"] for each in (run, same)]
    assert [task["score"] for task in scores[0]] == [task["score"] for task in scores[1]]


def test_a_report_reads_no_texts_and_names_missing_runs(place, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(preparing, "find_texts", None)
    monkeypatch.setattr(base, "prepare", None)
    copy = copied(place / "out", tmp_path / "copy")
    again = json.loads(json.dumps(results_to_json(results_of_folder(copy), Path("r.html"))))
    assert again == {**read_results(place / "out"), "report": again["report"]}
    assert verify_study(copy).deviations == ()
    shutil.rmtree(stage(copy, "sst2")[0] / "seed-1001")
    kinds = {each.kind for each in verify_study(copy).deviations}
    assert kinds == {"run missing", "results altered"}
    early = results_of_folder(copy)
    assert early.notes[0].startswith("Unfinished: 38 of 39 runs have ended; missing")
    assert {each.verdict for each in early.differences} == {"no verdict"}
    assert any(each.mean is not None for each in early.differences)
    for folder in (*stage(copy, "sst2"), *stage(copy, "copa")):
        shutil.rmtree(folder)
    (copy / "results.json").unlink()
    assert cli.main(["report", str(copy)]) == 0
    page = (copy / "report.html").read_text()
    assert "3 of 39 runs have ended" in page and "18 of copa" in page
    (copy / "baselines").rename(tmp_path / "baselines")
    with pytest.raises(ConfigError, match="holds the baselines' scores"):
        results_of_folder(copy)
    (tmp_path / "baselines").rename(copy / "baselines")
    shutil.rmtree(copy / "stages")
    capsys.readouterr()
    assert cli.main(["report", str(copy)]) == 2
    assert "no run of the baseline, full, has ended" in capsys.readouterr().err


@pytest.mark.parametrize("damage, message", [
    (lambda kept: kept.update(n_seeds="2"), "n_seeds"),
    (lambda kept: kept["chain"]["stages"].pop(), "does not fit the study"),
    (lambda kept: kept["keys"]["fresh"].pop("sst2"), "does not fit the study"),
    (lambda kept: kept["baselines"].update(sst2="../a.json"), "baselines.sst2"),
    (None, "has no chain.json"),
])  # fmt: skip
def test_a_damaged_chain_file_is_refused(place, tmp_path, damage, message):
    shutil.copy(place / "out" / "study.toml", tmp_path)
    content = json.loads((place / "out" / "chain.json").read_text())
    if damage is not None:
        damage(content)
        (tmp_path / "chain.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=message):
        results_of_folder(tmp_path)


@pytest.mark.parametrize("name", rows(["sst2-", "pretraining-"], 1))
def test_a_chain_that_is_killed_in_any_stage_resumes_to_the_same_report(name, place, tmp_path):
    study = write_chain(tmp_path, **ONCE)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert cli.main(words(study, "--out", str(whole))) == 0
    target = sorted(path for path in whole.glob(f"stages/{name}*/seed-*") if path.is_dir())[0]
    at = ("os.rename", f"{target.relative_to(whole)}/record.json")
    command = stopped_at([at], signal.SIGKILL, *words(study, "--out", str(broken)))
    killed = subprocess.run(command, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert cli.main(words(study, "--out", str(broken))) == 0
    assert timeless(read_results(whole)) == timeless(read_results(broken))


def test_a_task_after_a_task_starts_from_its_first_fine_tuning_and_is_tuned(place, tmp_path):
    out = tmp_path / "out"
    stages = [{"tasks": "sst2"}, {"tasks": "copa", "after": "sst2"}]
    arms = [{"name": "a"}, {"name": "b", "finetune": {"model.dropout": 0.3}}]
    asked = {"seeds": 1, "finetunings": 3, "tune_finetune": {"optimizer.lr": [0.0001, 0.01]}}
    study = write_chain(tmp_path, stages=stages, arms=arms, **asked)
    assert cli.main(words(study, "--out", str(out))) == 0
    tried = {path.name: path for path in stage(out, "sst2")[0].iterdir()}
    assert sorted(tried) == ["lr=0.0001", "lr=0.01"]
    made = sorted(sorted(run.name for run in path.iterdir()) for path in tried.values())
    assert made == [["seed-0", "seed-1", "seed-2", "seed-999"], ["seed-999"]]
    runs = [*out.glob("stages/copa-*/*/seed-1"), *out.glob("stages/copa-*/*/seed-999")]
    assert len(runs) == 2 + 4
    for run in runs:
        start = Path(read_run_recipe(run / "recipe.toml").init.run)
        assert start.name == "seed-0" and start.parent.parent.name.startswith("sst2-")
    results = read_results(out)
    assert "weights alone" in " ".join(results["notes"])
    tuned = {each.partition("=")[0] for arm in results["arms"] for each in arm["tuned"]}
    assert tuned == {"finetune.optimizer.lr"}


def test_an_ensemble_scores_the_average_of_answers_of_equal_seeds(together, capsys):
    out = together / "out"
    assert verify_study(out).deviations == ()
    runs = sorted(out.glob("stages/both-of-them-*/seed-*"))
    assert [run.name for run in runs] == ["seed-0", "seed-1", "seed-2"] * 2
    for run in runs:
        listed = json.loads((run / "ensemble.json").read_text())["members"]
        members = [run / each for each in listed]
        names = [member.resolve().parent.name.partition("-")[0] for member in members]
        assert (names, {member.name for member in members}) == (["early", "late"], {run.name})
        [part] = of_tasks(prepare_data(read_run_recipe(members[0] / "recipe.toml")).test).parts
        predictions = answer_together([sublayer.load(each) for each in members], [part])
        [scored] = json.loads((run / "scores.json").read_text())["tasks"]
        found = score(part.examples, predictions, part.task.metrics)
        assert (scored["score"], scored["examples"]) == (found.value, len(part.examples))
    cells = {row["name"]: row["cells"] for row in read_results(out)["scorecard"]["rows"]}
    assert cells["a"]["both of them"]["n_runs"] == 3
    assert cells["words"]["both of them"]["mean"] == cells["words"]["early"]["mean"]
    row = comparison_row(out)
    assert (row.state, row.finished, row.planned) == ("finished", 20, 20)
    pretrained = sorted(out.glob("stages/pretraining-*/seed-0"))
    assert [saved_steps(run / "checkpoints") for run in pretrained] == [[4], [4]]
    recipes = [out.glob(f"stages/{name}-*/*/recipe.toml") for name in ("early", "late")]
    early, late = ({read_run_recipe(path).init.run for path in paths} for paths in recipes)
    assert early == {str(checkpoint_path(run / "checkpoints", 4).absolute()) for run in pretrained}
    assert late == {str(run.absolute()) for run in pretrained}
    assert not list(out.glob("stages/early-*/*/checkpoints"))


@pytest.mark.parametrize("is_cut", [False, True])
def test_arms_start_from_each_other_and_answer_together(place, tmp_path, is_cut):
    out, shared = tmp_path / "out", {"model": {"share": "all", "n_layers": 1}}
    deeper = {"model": {"share": "all", "n_layers": 3}}
    arms = [{"name": "one", "set": shared, "published": {"speed": 1.0, "sst2": 80.0}}]
    arms.append({"name": "two", "start": "one", "set": deeper, "published": {"speed": 0.5}})
    first = {"tasks": "sst2", "set": {"data.context": 8 if is_cut else 48}}
    stages = [first, {"name": "both", "ensemble": ["one: sst2", "two: sst2"]}]
    study = write_chain(tmp_path, stages=stages, arms=arms, averages={}, **ONCE)
    assert cli.main(words(study, "--out", str(out))) == 0
    starts = {}
    for run in out.glob("stages/pretraining-*/seed-0"):
        recipe = read_run_recipe(run / "recipe.toml")
        starts[recipe.model.n_layers] = (run, recipe.init.run)
    assert starts[1][1] is None and Path(starts[3][1]) == starts[1][0].absolute()
    [averaged] = out.glob("stages/both-*/seed-0")
    members = json.loads((averaged / "ensemble.json").read_text())["members"]
    of_members = [read_run_recipe(averaged / each / "recipe.toml").init.run for each in members]
    assert of_members == [str(starts[n_layers][0].absolute()) for n_layers in (1, 3)]
    listed = read_results(out)["scorecard"]["rows"]
    rows = {row["name"]: row["cells"] for row in listed if row["kind"] == "arm"}
    assert rows["one"]["both"] == rows["two"]["both"] and rows["one"]["speed"]["mean"] == 1.0
    assert rows["two"]["speed"]["mean"] > 0.0
    assert any(note.startswith("sst2: ") for note in read_results(out)["notes"]) == is_cut


def test_an_ensemble_resumes_side_by_side_and_fails_with_a_member(together, tmp_path):
    study, out = together / "small.toml", tmp_path / "out"
    shutil.copytree(together / "out", out, symlinks=True)
    report = read_results(out)
    missing, *_ = sorted(out.glob("stages/both-of-them-*/seed-*"))
    before = {path: path.stat().st_mtime_ns for path in out.glob("stages/*/*/scores.json")}
    scores = (missing / "scores.json").read_bytes()
    shutil.rmtree(missing)
    assert cli.main(words(study, KEPT, "--out", str(out), "--jobs", "2")) == 0
    assert (missing / "scores.json").read_bytes() == scores
    changed = [path for path, at in before.items() if path.stat().st_mtime_ns != at]
    assert changed == [missing / "scores.json"]
    again = read_results(out)
    assert values(again) == values(report) and again["scorecard"] == report["scorecard"]
    member = missing / json.loads((missing / "ensemble.json").read_text())["members"][1]
    (member / "failure.json").write_text('{"message": "the loss is not finite"}')
    shutil.rmtree(missing.parent)
    assert cli.main(words(study, KEPT, "--out", str(out))) == 0
    failed = [each for each in read_results(out)["failures"] if "both of them" in each["arm"]]
    message = "late, a member of this ensemble, failed: the loss is not finite"
    assert [each["message"] for each in failed] == [message]
    assert sorted(run.name for run in missing.parent.iterdir()) == ["seed-1", "seed-2"]
