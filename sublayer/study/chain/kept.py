"""``chain.json``: what a chain's report is made of beside its runs, so that no text is read."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from sublayer.config.limits import MOST_FINETUNINGS
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.files.parsing import read_json
from sublayer.files.paths import expanded
from sublayer.files.saved_record import Input
from sublayer.files.typed import Count, Number, Typed, check_typed
from sublayer.objective.families import FAMILIES
from sublayer.runs.inputs import check_same_inputs
from sublayer.study.budget.match import MatchedArm, Measures, arm_model, arm_steps
from sublayer.study.chain.keys import Keys, ScoredPart
from sublayer.study.chain.recipes import StageRecipes
from sublayer.study.chain.stages import (
    PRETRAINING,
    TUNING_NUMBER,
    Chain,
    describe_stages,
    differing_stages,
)
from sublayer.study.plan_file import Plan
from sublayer.study.results_json import write_json
from sublayer.study.tuning import Trial
from sublayer.system.stages import note
from sublayer.tasks.metrics.table import METRICS

CHAIN = "chain.json"
_FileName = Annotated[str, Field(pattern=r"^[0-9a-z]+\.json$")]
_Key = Annotated[str, Field(pattern=r"^[0-9a-f]{10,}$")]


class KeptTask(Typed):
    """A task, as far as its columns take from it."""

    name: str
    title: str
    metrics: tuple[str, ...]


class KeptPart(Typed):
    """A part that a stage of tasks is scored on."""

    name: str
    task: KeptTask


class ArmFacts(Typed):
    """What an arm is of which its runs say nothing."""

    name: str
    parameters: dict[str, Count | None]
    flops_per_token: Count
    steps: Count
    """Of its pre-training; 0 without."""
    mismatch: Number
    matched: tuple[str, ...]


class Kept(Typed):
    """What ``chain.json`` holds; stages are by their names."""

    chain: Chain
    n_seeds: Annotated[int, Field(ge=1, lt=2**31)]
    """Pre-trainings."""
    n_runs: dict[str, Count]
    """Those that arms share counted once."""
    arms: tuple[ArmFacts, ...]
    kinds: tuple[str, ...]
    """Of the arms' objectives."""
    keys: dict[str, dict[str, _Key]]
    """By arm and stage."""
    inputs: dict[str, dict[str, list[Input]]] = {}
    """By arm and stage the files and texts of the key; studies of before they were kept have none.
    """
    parts: dict[str, tuple[KeptPart, ...]]
    """Of each stage of tasks."""
    trials: dict[str, tuple[Trial, ...]]
    tuning_number: Count = 0
    """Which fine-tuning under the first pre-training a trial is; 0 of studies that were begun when
    trials were compared too."""
    baselines: dict[str, _FileName] = {}
    """The files of their scores, of each stage of tasks that they were scored on."""
    cuts: dict[str, str] = {}
    """What is cut of the rows of a stage of tasks, in words; of those alone of which any is."""

    @property
    def stage_keys(self) -> Keys:
        """What the stages of arms are found by."""
        pairs = {(arm, stage): key for arm, own in self.keys.items() for stage, key in own.items()}
        return Keys(pairs)

    @property
    def stage_texts(self) -> dict[str, dict[str, str]]:
        """The digests of the files of stages, by arm and stage."""
        return {
            f"{arm}, {stage}": {each.name: each.digest for each in inputs}
            for arm, own in self.inputs.items()
            for stage, inputs in own.items()
            if inputs
        }


def describe_chain(
    chain: Chain,
    arms: Sequence[MatchedArm],
    keys: Keys,
    parts: Mapping[str, Sequence[ScoredPart]],
    trials: Mapping[str, Sequence[Trial]],
    n_runs: Mapping[str, int],
    measures: Measures,
    *,
    n_seeds: int,
) -> Kept:
    """Return what is kept of a chain before its runs."""
    by_arm: dict[str, dict[str, str]] = {arm.arm.name: {} for arm in arms}
    for (arm_name, stage), key in keys.by_stage.items():
        by_arm[arm_name][stage] = key
    inputs: dict[str, dict[str, list[Input]]] = {}
    for (arm_name, stage), own in keys.inputs.items():
        inputs.setdefault(arm_name, {})[stage] = own
    data = None if chain.data is None else str(expanded(chain.data).absolute())
    return Kept(
        chain=replace(chain, data=data),
        n_seeds=n_seeds,
        n_runs=dict(n_runs),
        arms=tuple(_facts(chain, arm, measures) for arm in arms),
        kinds=tuple(arm.loaded.recipe.objective.kind for arm in arms),
        keys=by_arm,
        inputs=inputs,
        parts={stage: tuple(map(_part, own)) for stage, own in parts.items()},
        trials={stage: tuple(own) for stage, own in trials.items()},
        tuning_number=TUNING_NUMBER,
    )


def _part(part: ScoredPart) -> KeptPart:
    task = part.task
    kept = KeptTask(name=task.name, title=task.title, metrics=task.metrics)
    return KeptPart(name=part.name, task=kept)


def _facts(chain: Chain, arm: MatchedArm, measures: Measures) -> ArmFacts:
    loaded = arm.loaded
    recipe = loaded.recipe
    model = arm_model(loaded, measures)
    return ArmFacts(
        name=arm.arm.name,
        parameters=asdict(count_parameters(model, recipe.objective)),
        flops_per_token=flops_per_token(model, recipe.data.context, recipe.objective),
        steps=arm_steps(loaded, measures) if chain.of(arm.arm.name).pretrains else 0,
        mismatch=arm.mismatch,
        matched=tuple(arm.matched),
    )


def keep_chain(folder: Path, kept: Kept) -> None:
    """Write what is kept of a chain into the folder of its study."""
    write_json(folder / CHAIN, kept.model_dump(mode="json"))


def check_same_stages(folder: Path, kept: Kept, recipes: StageRecipes) -> None:
    """Raise DataError, with both values, where a stage's files changed since the study began.

    A stage that is found by another key for another reason is noted: it is made anew.
    """
    earlier = _earlier(folder)
    if earlier is None:
        return
    for arm, stages in kept.keys.items():
        for stage, key in stages.items():
            known = earlier.inputs.get(arm, {}).get(stage)
            if known is not None:
                what, recipe = f"{folder}, stage {stage} of {arm},", recipes.planned(arm, stage)
                now = kept.inputs[arm][stage]
                check_same_inputs(what, recipe.recipe, known, now, "give another --out")
            before = earlier.keys.get(arm, {}).get(stage)
            if before not in (None, key):
                note(
                    f"stage {stage} of {arm} began with other data, or in another version of "
                    "sublayer: it is made anew"
                )


def _earlier(folder: Path) -> Kept | None:
    try:
        content = read_json(folder / CHAIN, ConfigError)
        return check_typed(content, Kept, CHAIN, ConfigError, has_tuples=True)
    except (FileNotFoundError, ConfigError):
        return None  # what is damaged is written anew


def with_baselines_of(folder: Path, kept: Kept) -> Kept:
    """Return what is kept of a chain, with the baselines that an earlier command scored for it."""
    earlier = _earlier(folder)
    if earlier is None or earlier.keys != kept.keys:
        return kept
    # What was tuned is chosen again by the runs that chose it.
    same = {
        "baselines": earlier.baselines,
        "cuts": earlier.cuts,
        "tuning_number": earlier.tuning_number,
    }
    return kept.model_copy(update=same)


def read_chain_file(folder: Path, plan: Plan) -> Kept:
    """Read what is kept of the chain in a folder, whose ``plan`` is what ``study.toml`` holds.

    Raises ConfigError where it is missing or damaged.
    """
    path = folder / CHAIN
    remedy = f"this writes it anew: {plan.command}" if plan.command else "its command writes it"
    try:
        content = read_json(path, ConfigError)
        kept = check_typed(content, Kept, str(path), ConfigError, has_tuples=True)
    except FileNotFoundError:
        raise ConfigError(
            f"{folder} has no {CHAIN}, which the report of a study with stages is made of: {remedy}"
        ) from None
    except ConfigError as error:
        raise ConfigError(f"{error}: {remedy}") from None
    wrong = _contradiction(kept, plan)
    if wrong:
        raise ConfigError(f"{path} is damaged: {wrong}: {remedy}")
    return kept


def _contradiction(kept: Kept, plan: Plan) -> str:
    """Say what does not fit together, or not to the study; empty where all does."""
    chain = kept.chain
    names = [arm.name for arm in kept.arms]
    if differing_stages(plan.asked.stages, describe_stages(chain)):
        return "its stages are not those of the study"
    if names != [each.name for each in plan.settled] or len(kept.kinds) != len(names):
        return "its arms are not those of the study"
    if not 1 <= chain.n_seeds <= MOST_FINETUNINGS:
        return f"chain.n_seeds = {chain.n_seeds} is not between 1 and {MOST_FINETUNINGS:,}"
    unknown = [kind for kind in kept.kinds if kind not in FAMILIES]
    if unknown:
        return f"{unknown[0]} is no objective"
    for arm in names:
        stages = [stage.name for stage in chain.stages]
        if chain.of(arm).pretrains:
            stages.append(PRETRAINING)
        for stage in stages:
            if stage not in kept.keys.get(arm, {}):
                return f"the arm {arm} has no key of {stage}"
    for each in chain.stages:
        if not kept.trials.get(each.name):
            return f"{each.name} has no trials"
        parts = kept.parts.get(each.name, ())
        if each.finetunes and not parts:
            return f"{each.name} has no parts"
        for part in parts:
            if not METRICS.keys() >= set(part.task.metrics):
                return f"{part.task.name} has metrics that are none"
    return ""
