"""``chain.json``: the planned stages of a study, with the keys of their runs."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from sublayer.config.table import MOST_FINETUNINGS
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError
from sublayer.files.checkpoints import Input
from sublayer.files.parsing import Count, Typed, check_typed, read_json
from sublayer.files.paths import expanded
from sublayer.files.storage import write_json
from sublayer.objective.families import KINDS
from sublayer.runs.inputs import check_same_inputs
from sublayer.study.arms import LONGEST_PART, Arm, Trial, in_path
from sublayer.study.budget.match import Measures
from sublayer.study.jobs.run import Outcome, read_outcome
from sublayer.study.plan_file import StudyPlan
from sublayer.study.runs import ArmFacts, RunFinder, describe_arm
from sublayer.study.stage_recipes import (
    StagePart,
    StageRecipes,
    check_kept_steps,
    find_keys,
    stage_trials,
)
from sublayer.study.stages import (
    PRETRAINING,
    TUNING_NUMBER,
    Chain,
    describe_stages,
    differing_stages,
)
from sublayer.system.stages import note
from sublayer.tasks.metrics import METRICS

CHAIN = "chain.json"
_FileName = Annotated[str, Field(pattern=r"^[0-9a-z]+\.json$")]
_Key = Annotated[str, Field(pattern=r"^[0-9a-f]{10,}$")]


class Kept(Typed):
    """The content of ``chain.json``; stages are by their names."""

    chain: Chain
    n_seeds: Annotated[int, Field(ge=1, lt=2**31)]
    """Pre-trainings."""
    n_runs: dict[str, Count]
    """Shared runs counted once."""
    arms: tuple[ArmFacts, ...]
    kinds: tuple[str, ...]
    """Kinds of the arms' objectives."""
    keys: dict[str, dict[str, _Key]]
    """By arm and stage."""
    inputs: dict[str, dict[str, list[Input]]] = {}
    """Files and texts of the key, by arm and stage; older studies have none."""
    parts: dict[str, tuple[StagePart, ...]]
    """Parts of each stage of tasks."""
    trials: dict[str, tuple[Trial, ...]]
    tuning_number: Count = 0
    """The number of a trial among fine-tunings of the first pre-training; 0 in early versions,
    which compared trials."""
    baselines: dict[str, _FileName] = {}
    """Files of baseline scores, by scored stage of tasks."""
    cuts: dict[str, str] = {}
    """Notes on truncated rows of stages of tasks; stages without any are left out."""

    def n_distinct(self, stage: str) -> int:
        """Count the trainings of a stage that differ between arms."""
        return len({keys[stage] for keys in self.keys.values() if stage in keys})

    def folders(self, study: Path) -> dict[tuple[str, str], Path]:
        """Return the folders of the runs of arms' stages, in order."""
        names = {stage.name: in_path(stage.name)[:LONGEST_PART] for stage in self.chain.all_stages}
        return {
            (arm, stage): study / "stages" / f"{part}-{keys[stage][:10]}"
            for arm, keys in self.keys.items()
            for stage, part in names.items()
            if stage in keys
        }

    def finder(
        self, study: Path, find: Callable[[Path], Outcome | None] = read_outcome
    ) -> RunFinder:
        """Return the finder of the runs; ``find`` returns the outcome of the run in a folder."""
        seeds, tuning = range(self.n_seeds), [(0, self.tuning_number)]
        folders = self.folders(study)
        return RunFinder(self.chain, folders, self.trials, find, seeds=seeds, tuning=tuning)

    @property
    def stage_texts(self) -> dict[str, dict[str, str]]:
        """Digests of the files of stages, by arm and stage."""
        return {
            f"{arm}, {stage}": {source.name: source.digest for source in inputs}
            for arm, by_stage in self.inputs.items()
            for stage, inputs in by_stage.items()
            if inputs
        }


def describe_chain(
    recipes: StageRecipes,
    arms: Sequence[Arm],
    data: Mapping[str, Data],
    measures: Measures,
    *,
    n_seeds: int,
) -> Kept:
    """Return the content of a chain's file before its runs; ``data`` are those of pre-trainings.

    Raises ConfigError and DataError if stages do not fit together.
    """
    chain = recipes.chain
    keys, inputs, parts = find_keys(recipes, data)
    trials = {stage.name: tuple(stage_trials(recipes, stage)) for stage in chain.stages}
    check_kept_steps(recipes, trials)
    facts = []
    for arm in arms:
        steps = measures.steps(arm) if chain.of(arm.name).pretrains else 0
        facts.append(describe_arm(arm, measures.model(arm), steps))
    folder = None if chain.data is None else str(expanded(chain.data).absolute())
    kept = Kept(
        chain=replace(chain, data=folder),
        n_seeds=n_seeds,
        n_runs={},
        arms=tuple(facts),
        kinds=tuple(arm.loaded.recipe.objective.kind for arm in arms),
        keys=keys,
        inputs=inputs,
        parts=parts,
        trials=trials,
        tuning_number=TUNING_NUMBER,
    )
    for stage in chain.all_stages:
        n_tried = len(trials.get(stage.name, ()))
        n_all = n_seeds * chain.n_runs(stage) + (n_tried if n_tried > 1 else 0)
        kept.n_runs[stage.name] = n_all * kept.n_distinct(stage.name)
    return kept


def keep_chain(folder: Path, kept: Kept) -> None:
    """Write ``chain.json`` into the folder of its study."""
    write_json(folder / CHAIN, kept.model_dump(mode="json"))


def beside_earlier(folder: Path, kept: Kept, recipes: StageRecipes) -> Kept:
    """Return the content of ``chain.json`` with the baselines of an earlier command.

    Raises DataError, with both values, if a stage's files changed since the study began. A stage
    whose key changed for another reason is noted: it is made anew.
    """
    try:
        earlier = _read(folder / CHAIN)
    except (FileNotFoundError, ConfigError):
        return kept  # a damaged file is rewritten
    for arm, stages in kept.keys.items():
        for stage, key in stages.items():
            known = earlier.inputs.get(arm, {}).get(stage)
            if known is not None:
                what, recipe = f"{folder}, stage {stage} of {arm},", recipes.planned(arm, stage)
                now = kept.inputs[arm][stage]
                check_same_inputs(what, recipe.recipe, known, now, "give another --out")
            if earlier.keys.get(arm, {}).get(stage, key) != key:
                note(
                    f"stage {stage} of {arm} began with other data, or in another version of "
                    "sublayer: it is made anew"
                )
    # Trials are selected again by the runs that selected them.
    names = ("baselines", "cuts", "tuning_number") if earlier.keys == kept.keys else ()
    return kept.model_copy(update={name: getattr(earlier, name) for name in names})


def read_chain_file(folder: Path, plan: StudyPlan) -> Kept:
    """Read ``chain.json`` in a folder, whose ``plan`` is the content of ``study.toml``.

    Raises ConfigError if it is missing or damaged.
    """
    remedy = f"this writes it anew: {plan.command}" if plan.command else "its command writes it"
    try:
        kept = _read(folder / CHAIN)
    except FileNotFoundError:
        raise ConfigError(
            f"{folder} has no {CHAIN}, which the report of a study with stages is made of: {remedy}"
        ) from None
    except ConfigError as error:
        raise ConfigError(f"{error}: {remedy}") from None
    chain, names = kept.chain, [arm.name for arm in kept.arms]
    fits = (
        not differing_stages(plan.asked.stages, describe_stages(chain))
        and names == [arm.name for arm in plan.settled]
        and len(kept.kinds) == len(names)
        and set(KINDS) >= set(kept.kinds)
        and 1 <= chain.n_seeds <= MOST_FINETUNINGS
        and all(
            METRICS.keys() >= set(part.task.metrics)
            for parts in kept.parts.values()
            for part in parts
        )
        and all(kept.parts.get(stage.name) for stage in chain.stages if stage.finetunes)
        and all(kept.trials.get(stage.name) for stage in chain.stages)
        and all(
            stage.name in kept.keys.get(name, {})
            for name, stage in itertools.product(names, chain.all_stages)
            if stage.name != PRETRAINING or chain.of(name).pretrains
        )
    )
    if not fits:
        raise ConfigError(
            f"{folder / CHAIN} is damaged: its content does not fit the study: {remedy}"
        )
    return kept


def _read(path: Path) -> Kept:
    content = read_json(path, ConfigError)
    return check_typed(content, Kept, str(path), ConfigError, has_tuples=True)
