"""The columns of a chain's scores: which there are, what they are called, what they hold."""

from dataclasses import replace

import pytest

from sublayer.errors import ConfigError
from sublayer.study.chain.columns import list_columns, published_metric, run_scores, value_of
from sublayer.study.chain.keys import Part
from sublayer.study.chain.stages import PRETRAINING, Chain, Stage
from sublayer.study.definition import load_study
from sublayer.tasks.registry import TASKS
from tests.study.chain.chains import STUDY, write_chain

CHAIN = Chain((Stage("mrpc", PRETRAINING, ("mrpc",)), Stage("mnli", PRETRAINING, ("mnli",))))
PARTS = {
    "mrpc": [Part("mrpc", TASKS["mrpc"])],
    "mnli": [Part(f"mnli_{each}", TASKS["mnli"]) for each in ("matched", "mismatched")],
}


def listed(chain: Chain, parts=PARTS) -> dict[str, str]:
    columns = list_columns("s", chain, parts, ())
    return {column.name: column.metric.label for column in columns}


def test_parts_of_a_task_are_told_apart_by_name_and_label():
    assert listed(CHAIN) == {
        "mrpc": "MRPC",
        "mnli": "mnli, mean",
        "mnli/mnli_matched": "MNLI matched",
        "mnli/mnli_mismatched": "MNLI mismatched",
    }


def test_a_metric_stands_instead_of_the_score_and_several_stand_beside_it():
    assert listed(replace(CHAIN, metrics={"mrpc": "f1"}))["mrpc"] == "MRPC, F1"
    chain = replace(
        CHAIN, metrics={"mrpc": ("f1", "accuracy")}, averages={"both": ("mrpc", "mrpc:f1")}
    )
    assert list(listed(chain))[:4] == ["both", "mrpc", "mrpc:f1", "mrpc:accuracy"]
    columns = {each.name: each for each in list_columns("s", chain, PARTS, ())}
    test = {"": 0.7, "mrpc": 0.7, "mrpc:error": 0.1, "mrpc:f1": 0.8, "mrpc:accuracy": 0.6}
    scores = run_scores(list(columns.values()), "mrpc", test)
    assert (scores["mrpc"], scores["mrpc:f1"], scores["mrpc:accuracy"]) == (0.7, 0.8, 0.6)
    assert scores["mrpc:error"] == 0.1
    assert "mrpc:f1:error" not in scores
    assert value_of(columns["both"], scores) == pytest.approx(0.75)


def test_a_metric_that_stands_for_the_score_has_its_own_error():
    columns = list_columns("s", replace(CHAIN, metrics={"mrpc": "f1"}), PARTS, ())
    test = {
        "mrpc": 0.7,
        "mrpc:error": 0.1,
        "mrpc:f1": 0.8,
        "mrpc:f1:error": 0.2,
        "mrpc:accuracy": 0.6,
    }
    scores = run_scores(columns, "mrpc", test)
    assert (scores["mrpc"], scores["mrpc:error"]) == (0.8, 0.2)
    assert "mrpc:error" not in run_scores(columns, "mrpc", {"mrpc:f1": 0.8, "mrpc:error": 0.1})


def test_a_metric_of_a_tasks_own_best_checkpoint_is_a_column():
    tasks = ("mrpc", "rte", "sg_rte")
    chain = Chain(
        (Stage("mixture", PRETRAINING, tasks),),
        metrics={"mixture/best/mrpc": ("f1", "accuracy")},
    )
    labels = listed(chain, {"mixture": [Part(name, TASKS[name]) for name in tasks]})
    assert labels["mixture/best/mrpc:f1"] == "MRPC, its best checkpoint, F1"
    # Two tasks have one title.
    assert labels["mixture/rte"] == "RTE (mixture/rte)"
    assert labels["mixture/sg_rte"] == "RTE (mixture/sg_rte)"
    assert len(set(labels.values())) == len(labels)


def test_a_metric_that_a_task_has_not_is_refused():
    with pytest.raises(ConfigError, match="MRPC has no metric pearson"):
        listed(replace(CHAIN, metrics={"mrpc": ("f1", "pearson")}))


def test_what_is_published_alone_is_labelled_as_if_it_were_measured():
    labels = {
        name: published_metric(name).label
        for name in ("mrpc:f1", "mnli/mnli_matched", "race_middle", "mixture/best/cola", "GLUE")
    }
    assert labels == {
        "mrpc:f1": "MRPC, F1",
        "mnli/mnli_matched": "MNLI matched",
        "race_middle": "RACE middle",
        "mixture/best/cola": "CoLA, its best checkpoint",
        "GLUE": "GLUE",
    }


def test_a_scale_has_metrics_averages_and_a_deciding_column_of_its_own(tmp_path):
    scales = {
        "cpu": STUDY["scale"]["cpu"],
        "small": {
            **STUDY["scale"]["cpu"],
            "stages": [{"each": ["sst2", "stsb"]}],
            "metrics": {"stsb": ["pearson", "spearman"]},
            "averages": {"two": ["sst2", "stsb:pearson"]},
            "metric": "sst2",
            "published": {"others": {"sst2": 90.0}},
        },
    }
    path = write_chain(tmp_path, scale=scales, metrics={"sst2": "accuracy"})
    of_all, of_small = (load_study(str(path), scale=name) for name in ("cpu", "small"))
    assert of_all.chain is not None and of_small.chain is not None
    assert (of_all.metric, of_small.metric) == (None, "sst2")
    assert of_all.chain.metrics == {"sst2": "accuracy"}
    assert of_small.chain.metrics == {"stsb": ("pearson", "spearman")}
    assert list(of_all.chain.averages) == ["both"]
    assert list(of_small.chain.averages) == ["two"]
    assert "others" in of_small.chain.published and "others" not in of_all.chain.published


def test_a_scale_without_stages_leaves_alone_what_is_said_of_those_of_others(tmp_path):
    plain = {key: value for key, value in STUDY["scale"]["cpu"].items() if key != "finetune"}
    chained = {**STUDY["scale"]["cpu"], "stages": STUDY["stages"]}
    arms = [{"name": "a", "published": {"sst2": 91.3}}, {"name": "b", "set": {"model.d_ff": 24}}]
    path = write_chain(tmp_path, scale={"cpu": plain, "more": chained}, stages=None, arms=arms)
    assert load_study(str(path), scale="cpu").chain is None
    assert load_study(str(path), scale="more").chain is not None
    path = write_chain(
        tmp_path,
        scale={"cpu": {**plain, "metrics": {"sst2": "accuracy"}}, "more": chained},
        stages=None,
        arms=arms,
    )
    with pytest.raises(ConfigError, match="metrics has no effect without .* of which scale cpu"):
        load_study(str(path), scale="cpu")
