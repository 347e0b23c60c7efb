"""What has ended of a chain's runs, and what each arm chose, by the folders that there are."""

from pathlib import Path

from sublayer.study.chain.gathering import Gathering
from sublayer.study.chain.kept import ArmFacts, Kept
from sublayer.study.chain.stages import PRETRAINING, Chain, Stage
from sublayer.study.execution.one_run import Outcome
from sublayer.study.tuning import NO_TRIAL, Trial

STUDY = Path("study")
CHAIN = Chain((Stage("mnli", PRETRAINING, ("mnli",)), Stage("rte", "mnli", ("rte",))), n_seeds=2)
KEYS = {PRETRAINING: "f" * 64, "mnli": "0" * 64, "rte": "1" * 64}
TRIALS = (Trial("lr=1", {"optimizer.lr": 1}), Trial("lr=2", {"optimizer.lr": 2}))


def gathered(outcomes: dict[str, Outcome], trials=None) -> Gathering:
    folders = {f"{name}-{key[:10]}": name for name, key in KEYS.items()}

    def find(path: Path) -> Outcome | None:
        _, _, folder, *rest = path.parts
        return outcomes.get("/".join([folders[folder], *rest]))

    arm = ArmFacts(
        name="a", parameters={}, flops_per_token=0, steps=1, mismatch=0.0, matched=("steps",)
    )
    kept = Kept(
        chain=CHAIN,
        n_seeds=1,
        n_runs={},
        arms=(arm,),
        kinds=("causal",),
        keys={"a": KEYS},
        parts={},
        trials={"mnli": (NO_TRIAL,), "rte": (NO_TRIAL,)} | (trials or {}),
    )
    gathering = Gathering(kept, STUDY, find)
    for stage in CHAIN.stages:
        gathering.choose(stage)
    return gathering


def ended(score: float) -> Outcome:
    return Outcome(Path(f"{score}"), {"valid": {"score": score}}, {"": score})


def test_what_follows_on_a_failure_has_ended_and_what_is_not_there_has_not():
    failed = gathered({f"{PRETRAINING}/seed-0": Outcome(Path("p"), failure="diverged")})
    runs = failed.gathered()
    [first, _] = runs["a", "rte"].outcomes[0]
    assert first.failure == (
        "mnli, which it starts from, failed: pretraining, which it starts from, failed: diverged"
    )
    assert failed.n_ended() == {PRETRAINING: 1, "mnli": 2, "rte": 2}
    nothing = gathered({f"{PRETRAINING}/seed-0": ended(0.5)})
    [first, _] = nothing.gathered()["a", "mnli"].outcomes[0]
    assert (first.test, first.failure) == (None, "")
    assert nothing.n_ended() == {PRETRAINING: 1}


def test_nothing_is_chosen_before_all_trials_have_ended():
    trials = {"mnli": TRIALS}
    outcomes = {f"{PRETRAINING}/seed-0": ended(0.5), "mnli/lr=1/seed-0": ended(0.6)}
    part = gathered(outcomes, trials)
    runs = part.gathered()
    assert not runs["a", "mnli"].outcomes and not runs["a", "mnli"].tried
    assert part.n_ended() == {PRETRAINING: 1, "mnli": 1}
    outcomes["mnli/lr=2/seed-0"] = ended(0.7)
    whole = gathered(outcomes, trials)
    runs = whole.gathered()
    assert runs["a", "mnli"].trial == TRIALS[1]
    assert runs["a", "mnli"].tried == {"lr=1": 0.6, "lr=2": 0.7}
    outcomes["mnli/lr=2/seed-0"] = Outcome(Path("t"), failure="diverged")
    assert gathered(outcomes, trials).gathered()["a", "mnli"].trial == TRIALS[0]
