"""A study's file with stages: what it says, and what is refused before anything is trained."""

import json
from dataclasses import replace

import pytest

from sublayer import cli
from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError
from sublayer.study.chain.recipes import stage_key
from sublayer.study.chain.stages import PRETRAINING, describe_stages, differing_stages
from sublayer.study.definition import load_study
from tests.study.chain.chains import STUDY, words, write_chain

ARMS = STUDY["arms"]


def test_each_task_is_a_stage_after_the_pre_training(tmp_path):
    study = load_study(str(write_chain(tmp_path)))
    assert study.chain is not None
    assert [(each.name, each.after, each.tasks) for each in study.chain.stages] == [
        ("sst2", PRETRAINING, ("sst2",)),
        ("copa", PRETRAINING, ("copa",)),
    ]
    assert study.chain.n_seeds == 2 and study.n_seeds == 3
    assert [study.chain.of(arm.name).pretrains for arm in study.arms] == [True, True, False]


def test_settings_of_stages_are_laid_over_each_other_from_the_scale_to_the_command_line(tmp_path):
    stages = [
        {"tasks": ["sst2", "copa"], "name": "both", "set": {"optimizer": {"lr": 0.25}}},
        {"tasks": "stsb", "after": "both"},
    ]
    arms = [{"name": "a"}, {"name": "b", "stages": {"stsb": {"model.dropout": 0.5}}}]
    path = write_chain(tmp_path, stages=stages, arms=arms, averages={})
    told = ["finetune.train.epochs=7", "both.optimizer.lr=0.125", "train.steps=9"]
    study = load_study(str(path), told)
    chain = study.chain
    assert chain is not None
    both, stsb = chain.stages
    assert chain.settings_of("a", both)["optimizer.lr"] == 0.125
    # Of lengths that exclude each other the last that is said counts.
    assert chain.settings_of("a", both)["train.epochs"] == 7
    assert "train.steps" not in chain.settings_of("a", both)
    assert "model.dropout" not in chain.settings_of("a", stsb)
    assert chain.settings_of("b", stsb)["model.dropout"] == 0.5
    assert {arm.loaded.recipe.train.steps for arm in study.arms} == {9}


BAD = {
    "named twice": (
        {"stages": [{"each": ["sst2", "sst2"]}]},
        "two stages are named sst2",
    ),
    "a circle": (
        {
            "stages": [
                {"tasks": "sst2", "after": "copa"},
                {"tasks": "copa", "after": "sst2"},
            ]
        },
        "stages start from each other: sst2 after copa, copa after sst2",
    ),
    "itself": ({"stages": [{"tasks": "sst2", "after": "sst2"}]}, "start from each other"),
    "after nothing": (
        {"stages": [{"tasks": "sst2", "after": "pretrain"}]},
        "comes after pretrain, which is no stage: did you mean pretraining?",
    ),
    "a taken name": (
        {"stages": [{"tasks": "sst2", "name": "pretraining"}]},
        "no stage may be named pretraining",
    ),
    "no task": ({"stages": [{"each": ["sst3"]}]}, "sst3 is no task: did you mean sst2?"),
    "two kinds": (
        {"stages": [{"tasks": "sst2", "each": ["copa"]}]},
        "has tasks and each: give one of them",
    ),
    "a text without a name": (
        {"stages": [{"set": {"train.steps": 3}}]},
        "a stage that goes on with a text needs a name",
    ),
    "arm of no stage": (
        {"arms": [{"name": "a"}, {"name": "b", "stages": {"sst": {"train.steps": 3}}}]},
        "arm b has settings of sst, which is no stage: did you mean sst2?",
    ),
    "equal arms": ({"arms": [{"name": "a"}, {"name": "b"}]}, "arm b is equal to the baseline a"),
    "an average of nothing": (
        {"averages": {"all": ["sst2", "cola"]}},
        "cola is no column: did you mean copa?",
    ),
    "an average of no metric": (
        {"averages": {"all": ["sst2:f2"]}},
        "the average all has sst2:f2, and sst2 has no metric f2",
    ),
    "twice in an average": (
        {"averages": {"all": ["sst2", ["copa", "sst2"]]}},
        "the average all has sst2 twice",
    ),
    "a metric twice": (
        {"metrics": {"sst2": ["accuracy", "accuracy"]}},
        "metrics of sst2 has accuracy twice",
    ),
    "an empty average": ({"averages": {"all": [[]]}}, "averages.all 1 is empty"),
    "the name of a table": (
        {"stages": [{"tasks": "sst2", "name": "train"}], "averages": {}},
        "no stage may be named train",
    ),
    "a name as of a column's metric": (
        {"stages": [{"tasks": "sst2", "name": "a:b"}], "averages": {}},
        "stage 'a:b' has no name that settings and columns can begin with",
    ),
    "a preset of a text": (
        {"stages": [{"name": "more", "preset": "gpt1"}], "averages": {}},
        "more goes on with a text, and a preset is of tasks",
    ),
    "more fine-tunings than the study": (
        {"stages": [{"tasks": "sst2", "finetunings": 3}], "averages": {}},
        "stage sst2 has finetunings = 3, and the study 2",
    ),
    "a step of nothing": (
        {
            "stages": [{"tasks": "sst2", "from_step": 3}],
            "averages": {},
            "arms": [
                {"name": "a", "pretrain": False},
                {"name": "b", "pretrain": False, "finetune": {"model.dropout": 0.5}},
            ],
        },
        "stage sst2 starts from step 3, and no arm is pre-trained",
    ),
    "a step beyond the run": (
        {
            "stages": [
                {
                    "tasks": "sst2",
                    "set": {"train.epochs": 1, "train.keep_steps": [500]},
                },
                {"tasks": "copa", "after": "sst2", "from_step": 500},
            ],
            "averages": {},
        },
        "arm full, stage sst2: train.keep_steps names step 500, and the run has",
    ),
    "an average named as a column": ({"averages": {"sst2": ["copa"]}}, "has the name of a column"),
    "no metric of the task": ({"metrics": {"sst2": "pearson"}}, "SST-2 has no metric pearson"),
    "no column decides": ({"metric": "cola"}, "metric = cola is no column"),
    "a seed": (
        {"stages": [{"tasks": "sst2", "set": {"train.seed": 3}}], "averages": {}},
        "stage sst2 has train.seed, which every arm has the same of",
    ),
    "seeds that differ": (
        {"arms": [{"name": "a"}, {"name": "b", "set": {"train.seed": 4}}]},
        "arm b sets train.seed, and arms are compared on the same seeds",
    ),
    "fine-tunings of a text": (
        {"stages": [{"name": "more", "finetunings": 2}], "averages": {}},
        "more goes on with a text, once under each pre-training",
    ),
    "minutes": (
        {"stages": [{"tasks": "sst2", "set": {"train.minutes": 3}}], "averages": {}},
        "stage sst2 has train.minutes, which would give each of its runs another length",
    ),
    "another start": (
        {"stages": [{"tasks": "sst2", "set": {"init.run": "runs/a"}}], "averages": {}},
        "stage sst2 has init.run, which is what pretraining leaves",
    ),
    "another width": (
        {"stages": [{"tasks": "sst2", "set": {"model.d_model": 32}}], "averages": {}},
        "arm full, stage sst2: the weights of pretraining do not fit model.d_model = 32",
    ),
    "another kind": (
        {"stages": [{"tasks": "sst2", "set": {"objective.format": "pair"}}], "averages": {}},
        "arm full, stage sst2",
    ),
    "more layers than there are": (
        {
            "arms": [
                {"name": "a"},
                {"name": "b", "finetune": {"init.layers": 2}},
            ]
        },
        "init.layers = 2 is more than the 1 block of pretraining",
    ),
    "a checkpoint that is not kept": (
        {"stages": [{"tasks": "sst2", "from_step": 4}], "averages": {}},
        "stage sst2 starts from step 4 of pretraining, which keeps none: add it there, "
        "train.keep_steps=[4]",
    ),
    "another checkpoint than is kept": (
        {
            "stages": [
                {"tasks": "sst2", "set": {"train.keep_steps": [1, 2]}},
                {"tasks": "copa", "after": "sst2", "from_step": 3},
            ],
            "averages": {},
        },
        "stage copa starts from step 3 of sst2, which keeps those of 1, 2: add it there, "
        "sst2.train.keep_steps=[3]",
    ),
    "a checkpoint beyond the end": (
        {"stages": [{"tasks": "sst2", "set": {"train.keep_steps": [4]}}], "averages": {}},
        "arm full, stage sst2: train.keep_steps names step 4, and the run has 3 steps",
    ),
    "a grid of one point": (
        {"tune_finetune": {"optimizer.lr": [0.1]}},
        "has one value",
    ),
    "tuned beside": (
        {"tune_finetune": {"data.context": [32, 64]}},
        "--tune finetune.data.context is not a setting of fine-tuning",
    ),
    "pre-training is tuned": (
        {"tune": {"optimizer.lr": [0.1, 0.2]}},
        "has stages, and tunes its pre-training",
    ),
    "stages that are none": (
        {"stages": None, "averages": {}, "arms": [{"name": "a"}, {"name": "b", "pretrain": False}]},
        "has no effect without [[stages]]",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_refused_in_one_line_before_anything_is_trained(
    case, tmp_path, capsys
):
    changes, said = BAD[case]
    path = write_chain(tmp_path, **changes)
    out = tmp_path / "out"
    assert cli.main(words(path, "--out", str(out))) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert said in error
    assert not list(out.glob("stages/*"))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--tune", "optimizer.lr=0.1,0.2"], "write --tune finetune.optimizer.lr=0.1,0.2"),
        (["train.seed=3"], "train.seed has no effect on a comparison"),
        (["cola.train.steps=3"], "cola is no stage: did you mean copa?: there are finetune, sst2"),
        (
            ["--tune", "finetune.objective.language_weight=0.1,0.2"],
            "objective.language_weight of stage sst2 is what arm no texts has its own of",
        ),
        (["--finetunings", "2000"], "finetunings"),
        (["finetune.objective.language_weight=0.1"], "is what the arms of small differ in"),
    ],
)
def test_options_of_a_chain_that_mean_nothing_are_refused(more, said, tmp_path, capsys):
    assert cli.main(words(write_chain(tmp_path), *more)) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("glue", "stage sst2: {}/glue is no folder: name the one that holds the tasks' files"),
        ("glue/SST-2", "stage sst2: {0}/glue has no files of SST-2: `sublayer tasks {0}/glue`"),
    ],
)
def test_files_that_are_missing_are_said_before_a_text_is_read(gone, said, tmp_path, capsys):
    path = write_chain(tmp_path)
    (tmp_path / gone).rename(tmp_path / "elsewhere")
    out = tmp_path / "out"
    assert cli.main(words(path, "--out", str(out))) == 2
    error = capsys.readouterr().err
    assert said.format(tmp_path) in error.strip().splitlines()[-1]
    assert "turning the text" not in error
    assert not out.exists()


def test_a_stage_with_a_point_in_its_name_has_its_settings(tmp_path):
    stages = [{"tasks": "sst2", "name": "at 1.5k"}, {"tasks": "copa"}]
    path = write_chain(tmp_path, stages=stages, averages={})
    chain = load_study(str(path), ["at 1.5k.optimizer.lr=0.125"]).chain
    assert chain is not None
    assert [each.settings.get("optimizer.lr") for each in chain.stages] == [0.125, None]


def test_a_mixture_without_a_name_has_its_settings_by_the_name_that_it_is_given(tmp_path):
    path = write_chain(tmp_path, stages=[{"tasks": ["sst2", "copa"]}], averages={})
    chain = load_study(str(path), ["sst2-copa.optimizer.lr=0.125"]).chain
    assert chain is not None and chain.stages[0].settings["optimizer.lr"] == 0.125
    with pytest.raises(ConfigError, match="sst2 is no stage: .* there are finetune, sst2-copa"):
        load_study(str(path), ["sst2.optimizer.lr=0.125"])


def test_a_folder_of_tasks_is_refused_where_tables_name_their_own_files(tmp_path, capsys):
    (tmp_path / "my.csv").write_text("text,label\n" + "a b,1\nc d,0\n" * 40)
    own = {"table": str(tmp_path / "my.csv"), "columns": {"text": "text", "label": "label"}}
    path = write_chain(tmp_path, stages=[own], averages={})
    assert cli.main(words(path)) == 2
    assert "--data is of stages of published tasks" in capsys.readouterr().err


def test_what_differs_between_two_chains_is_named_and_where_files_lie_is_no_difference(tmp_path):
    def described(data="glue", told=(), **changes):
        study = load_study(str(write_chain(tmp_path, **changes)), list(told))
        assert study.chain is not None
        return describe_stages(replace(study.chain, data=data))

    first = described()
    before_data_was_left_out = json.dumps({**json.loads(first), "data": "/a/glue"})
    assert differing_stages(before_data_was_left_out, described("elsewhere")) == ""
    assert differing_stages(first, None) == "stages"
    for damaged in ("{}", "[", '{"stages": 3, "arms": {}, "tune": []}'):
        with pytest.raises(ConfigError, match="what the study's folder says of its stages"):
            differing_stages(damaged, first)
    assert differing_stages(first, described(stages=[{"each": ["sst2"]}], averages={})) == "stages"
    longer = described(told=["sst2.train.steps=4"])
    assert differing_stages(first, longer) == "settings of its stage sst2"
    arms = [*ARMS[:1], {"name": "no texts", "finetune": {"model.dropout": 0.5}}, *ARMS[2:]]
    assert differing_stages(first, described(arms=arms)) == "settings of its arm no texts"


def test_options_of_chains_are_refused_elsewhere(capsys):
    assert cli.main(["compare", "demo", "--finetunings", "2"]) == 2
    assert "--finetunings is of studies with stages of tasks" in capsys.readouterr().err


def test_a_text_that_goes_on_keeps_no_steps_of_the_one_before(tmp_path, capsys):
    stages = [{"name": "more", "set": {"train.steps": 2}}, {"tasks": "sst2", "after": "more"}]
    arms = [{"name": "a"}, {"name": "b", "set": {"model.dropout": 0.1}}]
    path = write_chain(tmp_path, stages=stages, arms=arms, averages={})
    assert cli.main(["plan", str(path), *words(path)[2:], "train.keep_steps=[5]"]) == 0


def test_a_stage_is_found_by_the_checkpoint_that_it_starts_from(tmp_path):
    recipe = load_recipe("gpt").recipe
    keys = [stage_key(recipe, "before", [], from_step=step) for step in (None, 3, 4)]
    assert len(set(keys)) == 3


def test_a_disk_that_the_models_would_fill_is_said_first(tmp_path, monkeypatch, capsys):
    from sublayer.study.chain import checks

    class Full:
        free = 1000

    monkeypatch.setattr(checks.shutil, "disk_usage", lambda path: Full)
    out = tmp_path / "out"
    assert cli.main(words(write_chain(tmp_path), "--out", str(out))) == 2
    assert "the models of all runs take" in capsys.readouterr().err
    assert not list(out.glob("stages/*"))
