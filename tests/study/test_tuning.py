"""Trials: the same for every arm, of settings that leave budgets alone, chosen on validation."""

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError
from sublayer.study.arms import expand
from sublayer.study.tuning import Trial, choose_trial, make_trials

ARMS = expand(load_recipe("gpt"), ["model.ffn=gelu,swiglu"])


def test_trials_are_every_combination_of_the_values():
    trials = make_trials(ARMS, ["optimizer.lr=1e-3,2e-3", "model.dropout=0,0.1"])
    assert len(trials) == 4
    tried = trials[-1].of(ARMS[1].loaded).recipe
    assert (tried.optimizer.lr, tried.model.dropout, tried.model.ffn) == (2e-3, 0.1, "swiglu")


def test_no_two_trials_have_one_folder():
    fields = ("lr=3e-4", "batch_sequences=16", "warmup_share=0.1", "weight_decay=0.0")
    names = [f"{', '.join(fields)}{last}" for last in "159"]
    folders = [Trial(name, {}).folder for name in names]
    assert len(set(folders)) == 3 and max(map(len, folders)) <= 60
    assert Trial("lr=3e-4 dropout=0.1", {}).folder == "lr=3e-4-dropout=0.1"


def test_without_tuning_the_one_trial_is_the_arm_itself():
    (trial,) = make_trials(ARMS, [])
    assert trial.of(ARMS[0].loaded) is ARMS[0].loaded


@pytest.mark.parametrize("field", ["model.d_model=64,128", "train.steps=5,6", "data.context=16,32"])
def test_what_changes_an_arms_budget_is_not_tuned(field: str):
    with pytest.raises(ConfigError, match="is not a setting of training"):
        make_trials(ARMS, [field])


def test_the_lowest_validation_loss_is_chosen_and_failures_never_are():
    trials = [Trial(name, {"optimizer.lr": 1.0}) for name in "abc"]
    assert choose_trial(trials, {"a": 2.0, "b": 1.5, "c": None}).name == "b"
    assert choose_trial(trials, {"a": None, "b": None, "c": None}).name == "a"
