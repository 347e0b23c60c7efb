"""What tuning chose is said, with what others scored, and a warning at the grid's edge."""

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.objective.metric import Metric
from sublayer.study.arms import Arm
from sublayer.study.budget.budget import MatchedArm
from sublayer.study.execution.arm_runs import ArmRuns
from sublayer.study.report.choices import explain_choices, explain_unknown_choice
from sublayer.study.tuning import make_trials


@pytest.mark.parametrize(
    ("losses", "chosen", "edge"),
    [
        ((2.5, 2.25, 2.75), "lr=2e-3", ""),
        ((2.0, 2.25, 2.75), "lr=1e-3", "optimizer.lr = 0.001 is the lowest that was tried"),
        ((2.5, None, 2.25), "lr=4e-3", "optimizer.lr = 0.004 is the highest that was tried"),
    ],
)
def test_a_choice_is_said_with_what_others_scored(
    losses: tuple[float | None, ...], chosen: str, edge: str
):
    arm = Arm("gpt", load_recipe("gpt"), {})
    trials = make_trials([arm], ["optimizer.lr=1e-3,2e-3,4e-3"])
    by_name = {trial.name: loss for trial, loss in zip(trials, losses, strict=True)}
    (trial,) = [each for each in trials if each.name == chosen]
    runs = ArmRuns(MatchedArm(arm, {}, (), 0.0), trial, {}, by_name)
    (note,) = explain_choices([runs], trials)
    assert note.startswith(f"gpt chose {chosen} by its validation loss: lr=1e-3 ")
    assert ("lr=2e-3 failed" in note) == (None in losses)
    assert ("edge of the grid" in note) == bool(edge)
    assert edge in note


def test_nothing_is_said_where_nothing_was_tuned():
    arm = Arm("gpt", load_recipe("gpt"), {})
    (trial,) = make_trials([arm], [])
    assert explain_choices([ArmRuns(MatchedArm(arm, {}, (), 0.0), trial, {})], [trial]) == ()


@pytest.mark.parametrize(("by", "n_notes"), [(None, 1), (BITS_PER_BYTE, 0)])
def test_intervals_without_other_tunings_say_so(by: Metric | None, n_notes: int):
    arm = Arm("gpt", load_recipe("gpt"), {})
    trials = make_trials([arm], ["optimizer.lr=1e-3,2e-3"])
    losses = {"lr=1e-3": 2.0, "lr=2e-3": 3.0}
    tuned = ArmRuns(MatchedArm(arm, {}, (), 0.0), trials[0], {}, losses, by)
    notes = explain_unknown_choice([tuned], BITS_PER_BYTE)
    assert len(notes) == n_notes
    assert all("chosen by their validation loss" in note for note in notes)
    untuned = ArmRuns(MatchedArm(arm, {}, (), 0.0), trials[0], {})
    assert explain_unknown_choice([untuned], BITS_PER_BYTE) == ()
