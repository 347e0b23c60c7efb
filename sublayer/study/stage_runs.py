"""The runs of stages: ``chain.json``, which runs there are, and those that are missing made."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from sublayer.config.limits import MOST_FINETUNINGS
from sublayer.config.load import LoadedRecipe, vary
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError
from sublayer.files.checkpoints import Input
from sublayer.files.parsing import Count, Typed, check_typed, read_json
from sublayer.files.paths import expanded
from sublayer.files.storage import write_json
from sublayer.objective.families import KINDS
from sublayer.objective.metric import Metric
from sublayer.runs.inputs import check_same_inputs
from sublayer.study.arm_runs import ArmFacts, StageRuns, describe_arm, there_and_back
from sublayer.study.arms import Arm, Trial, choose_trial
from sublayer.study.budget.match import ORIGIN, Measures, arm_model, arm_steps
from sublayer.study.jobs.run import Job, Outcome, RunAll, SharedData
from sublayer.study.plan_file import Plan
from sublayer.study.scoring import WHOLE_TEST, Scoring
from sublayer.study.stage_recipes import (
    Keys,
    ScoredPart,
    StageRecipes,
    check_kept_steps,
    find_keys,
    stage_trials,
)
from sublayer.study.stages import (
    PRETRAINING,
    TUNING_NUMBER,
    Chain,
    Stage,
    describe_stages,
    differing_stages,
    finetuning_seed,
)
from sublayer.system.stages import note
from sublayer.tasks.scoring import METRICS

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


class Kept(Typed):
    """The content of ``chain.json``; stages are by their names."""

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
    """The number of a trial among fine-tunings of the first pre-training; 0 in studies of early
    versions, which compared trials."""
    baselines: dict[str, _FileName] = {}
    """The files of their scores, of each stage of tasks that they were scored on."""
    cuts: dict[str, str] = {}
    """Notes on truncated rows of stages of tasks; stages without any are left out."""

    @property
    def stage_keys(self) -> Keys:
        """The keys of the stages of arms."""
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
    recipes: StageRecipes,
    arms: Sequence[Arm],
    data: Mapping[str, Data],
    measures: Measures,
    *,
    n_seeds: int,
) -> Kept:
    """Return all that is kept of a chain before its runs; ``data`` are those of pre-trainings.

    Raises ConfigError and DataError where stages do not fit together.
    """
    chain = recipes.chain
    names = [arm.name for arm in arms]
    keys, parts = find_keys(recipes, names, data)
    trials = {stage.name: stage_trials(recipes, names, stage) for stage in chain.stages}
    check_kept_steps(recipes, names, trials)
    n_runs = {PRETRAINING: n_seeds * len(keys.distinct(PRETRAINING))}
    for stage in chain.stages:
        n_trials = len(trials[stage.name])
        n_tried = n_trials if n_trials > 1 else 0
        n_all = n_seeds * chain.n_runs(stage) + n_tried
        n_runs[stage.name] = n_all * len(keys.distinct(stage.name))
    by_arm: dict[str, dict[str, str]] = {name: {} for name in names}
    for (name, stage_name), key in keys.by_stage.items():
        by_arm[name][stage_name] = key
    inputs: dict[str, dict[str, list[Input]]] = {}
    for (name, stage_name), own in keys.inputs.items():
        inputs.setdefault(name, {})[stage_name] = own
    folder = None if chain.data is None else str(expanded(chain.data).absolute())
    return Kept(
        chain=replace(chain, data=folder),
        n_seeds=n_seeds,
        n_runs=n_runs,
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


def _facts(chain: Chain, arm: Arm, measures: Measures) -> ArmFacts:
    model = arm_model(arm.loaded, measures)
    steps = arm_steps(arm.loaded, measures) if chain.of(arm.name).pretrains else 0
    return describe_arm(arm, model, steps)


def keep_chain(folder: Path, kept: Kept) -> None:
    """Write ``chain.json`` into the folder of its study."""
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
        return None  # a damaged file is written anew


def with_baselines_of(folder: Path, kept: Kept) -> Kept:
    """Return the content of ``chain.json`` with the baselines of an earlier command."""
    earlier = _earlier(folder)
    if earlier is None or earlier.keys != kept.keys:
        return kept
    # Trials are chosen again by the runs that chose them.
    same = {
        "baselines": earlier.baselines,
        "cuts": earlier.cuts,
        "tuning_number": earlier.tuning_number,
    }
    return kept.model_copy(update=same)


def read_chain_file(folder: Path, plan: Plan) -> Kept:
    """Read ``chain.json`` in a folder, whose ``plan`` is the content of ``study.toml``.

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
    """Name a contradiction within the file, or with the study; empty without one."""
    chain = kept.chain
    names = [arm.name for arm in kept.arms]
    if differing_stages(plan.asked.stages, describe_stages(chain)):
        return "its stages are not those of the study"
    if names != [each.name for each in plan.settled] or len(kept.kinds) != len(names):
        return "its arms are not those of the study"
    if not 1 <= chain.n_seeds <= MOST_FINETUNINGS:
        return f"chain.n_seeds = {chain.n_seeds} is not between 1 and {MOST_FINETUNINGS:,}"
    unknown = [kind for kind in kept.kinds if kind not in KINDS]
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


HELD_OUT = Metric(
    "held-out score",
    "score on what was held out",
    is_lower_better=False,
    from_items=None,
    unit="points",
    factor=100.0,
    decimals=1,
)
"""The metric that trials of a stage of tasks are chosen by: of held-out training examples."""


class Gathering:
    """Finds the runs of all arms, those that are being made or those of a folder.

    A run that is not there yet has an outcome without scores, and one whose start has failed has
    that as its failure.
    """

    def __init__(self, kept: Kept, folder: Path, find: Callable[[Path], Outcome | None]) -> None:
        """Take what there is: ``find`` returns the outcome of the run in a folder, if any."""
        self._chain = kept.chain
        self._arms = [arm.name for arm in kept.arms]
        self._keys = kept.stage_keys
        self._folder = folder
        self._find = find
        self._trials = kept.trials
        self._n_seeds = kept.n_seeds
        self.tuning_number = kept.tuning_number
        self._ended: dict[str, set[Path]] = {}
        self.chosen: dict[tuple[str, str], Trial] = {}
        """The trial of each arm's stage whose trials have all ended."""

    def choose(self, stage: Stage) -> None:
        """Choose the trial of a stage with the best held-out score, of equal ones by loss.

        Each arm chooses by its own runs.
        """
        trials = self._trials[stage.name]
        for arm in self._arms:
            tried = self._tried(arm, stage)
            if tried is None:
                continue
            compared = [
                trial.name for trial in trials if self.path(arm, stage.name, 0, 0, trial).is_dir()
            ]
            losses = {name: _held_out(outcome, "loss") for name, outcome in tried.items()}
            self.chosen[arm, stage.name] = (
                choose_trial(trials, _held_out_losses(tried), ties=losses, compared=compared)
                if tried
                else trials[0]
            )

    def gathered(self) -> dict[tuple[str, str], StageRuns]:
        """Return the runs of all stages by arm and stage; each stage has been chosen for."""
        found = {}
        for arm in self._arms:
            if self._chain.of(arm).pretrains:
                outcomes = {seed: [self._pretrained(arm, seed)] for seed in range(self._n_seeds)}
                found[arm, PRETRAINING] = StageRuns(outcomes)
            for stage in self._chain.stages:
                found[arm, stage.name] = self._of_stage(arm, stage)
        return found

    def n_ended(self) -> dict[str, int]:
        """Count the runs of each stage that have ended among those that were looked for."""
        return {stage: len(paths) for stage, paths in self._ended.items()}

    def path(
        self,
        arm: str,
        stage: str,
        seed: int,
        number: int = 0,
        trial: Trial | None = None,
    ) -> Path:
        """Return the folder of a run."""
        folder = self._keys.folder(self._folder, arm, stage)
        if trial is not None and trial.name:
            folder /= trial.folder
        if stage == PRETRAINING or not self._chain.stage(stage).finetunes:
            return folder / f"seed-{seed}"
        return folder / f"seed-{finetuning_seed(seed, number)}"

    def start(self, arm: str, stage: Stage, seed: int) -> Path | None:
        """Return the run that a stage's runs start from: the first under the same pre-training.

        None where they start from random weights.
        """
        if stage.after != PRETRAINING:
            return self.path(arm, stage.after, seed, 0, self.chosen[arm, stage.after])
        return self.path(arm, PRETRAINING, seed) if self._chain.of(arm).pretrains else None

    def lost(self, arm: str, stage: Stage, seed: int, number: int) -> str:
        """Say why a run cannot be made: one that it takes has failed; else empty."""
        for own_arm, name in stage.members(arm) or [(arm, stage.after)]:
            failure = self._failure(own_arm, name, seed, number if stage.ensemble else 0)
            if failure:
                takes = "of which it is an ensemble" if stage.ensemble else "which it starts from"
                return f"{name}, {takes}, failed: {failure}"
        return ""

    def _failure(self, arm: str, stage: str, seed: int, number: int) -> str:
        """Return why a run has failed; empty where it has not, or an arm has none."""
        if stage == PRETRAINING:
            return self._pretrained(arm, seed).failure if self._chain.of(arm).pretrains else ""
        trial = self.chosen.get((arm, stage))
        if trial is None:
            return ""
        return self.outcome(arm, self._chain.stage(stage), trial, seed, number).failure

    def outcome(self, arm: str, stage: Stage, trial: Trial, seed: int, number: int) -> Outcome:
        """Return the outcome of a run of a stage."""
        path = self.path(arm, stage.name, seed, number, trial)
        found = self._find(path) or Outcome(path, failure=self.lost(arm, stage, seed, number))
        return self._noted(stage.name, found)

    def _pretrained(self, arm: str, seed: int) -> Outcome:
        path = self.path(arm, PRETRAINING, seed)
        found = self._find(path) or Outcome(path, failure=self.lost_start(arm, seed))
        return self._noted(PRETRAINING, found)

    def lost_start(self, arm: str, seed: int) -> str:
        """Say why a pre-training cannot be made: the arm's that it starts from failed; else ""."""
        start = self._chain.of(arm).start
        failure = self._pretrained(start, seed).failure if start else ""
        return f"{start}, which it starts from, failed: {failure}" if failure else ""

    def _noted(self, stage: str, outcome: Outcome) -> Outcome:
        if has_ended(outcome):
            self._ended.setdefault(stage, set()).add(outcome.path)
        return outcome

    def _of_stage(self, arm: str, stage: Stage) -> StageRuns:
        trial = self.chosen.get((arm, stage.name))
        if trial is None:
            return StageRuns({})
        outcomes = {}
        for seed in range(self._n_seeds):
            outcomes[seed] = [
                self.outcome(arm, stage, trial, seed, number)
                for number in range(self._chain.n_runs(stage))
            ]
        losses = _held_out_losses(self._tried(arm, stage) or {})
        return StageRuns(outcomes, trial, losses, chosen_by=HELD_OUT if losses else None)

    def _tried(self, arm: str, stage: Stage) -> dict[str, Outcome] | None:
        """Return the run of each trial, empty of a single one; None while any has not ended."""
        trials = self._trials[stage.name]
        if len(trials) < 2:
            return {}
        number = self.tuning_number
        outcomes = {trial.name: self.outcome(arm, stage, trial, 0, number) for trial in trials}
        return outcomes if all(map(has_ended, outcomes.values())) else None


def has_ended(outcome: Outcome) -> bool:
    """Return whether a run was scored, or failed."""
    return outcome.test is not None or bool(outcome.failure)


def _held_out_losses(tried: Mapping[str, Outcome]) -> dict[str, float | None]:
    """Return the held-out score of each trial, negative: lower is better."""
    scores = {name: _held_out(outcome, "score") for name, outcome in tried.items()}
    return {name: None if score is None else -score for name, score in scores.items()}


def _held_out(outcome: Outcome, metric: str) -> float | None:
    """Return a metric on held-out training examples; None of a failure."""
    if outcome.record is None:
        return None
    value = outcome.record["valid"].get(metric)
    return None if value is None else float(value)


class ChainRuns:
    """Makes the runs of all arms that are missing."""

    def __init__(
        self,
        kept: Kept,
        arms: Sequence[Arm],
        recipes: StageRecipes,
        data: Mapping[str, Data],
        folder: Path,
        run_all: RunAll,
        *,
        scoring: Scoring = WHOLE_TEST,
        plan: Mapping[str, Any] | None = None,
    ) -> None:
        """Take a study's parts: ``data`` are those of pre-trainings by arm, ``plan`` is sealed."""
        self._plan = plan
        self._kept = kept
        self._chain = kept.chain
        self._arms = arms
        self._recipes = recipes
        self._keys = kept.stage_keys
        self._data = data
        self._folder = folder
        self._run_all = run_all
        self._scoring = scoring
        self._trains = {arm.name: arm.loaded.recipe.train for arm in arms}
        self._shared = SharedData()
        self._outcomes: dict[Path, Outcome] = {}
        self._found = Gathering(kept, folder, self._outcomes.get)

    def work(self) -> dict[tuple[str, str], StageRuns]:
        """Make all runs and return them by arm and stage.

        Raises as ``run_all`` does.
        """
        names = [arm.name for arm in self._arms]
        for n_starts in sorted({self._chain.n_starts(name) for name in names}):
            self._make(self._pretrainings(n_starts))
        depths = {self._chain.depth(stage) for stage in self._chain.stages}
        for depth in sorted(depths):
            stages = [each for each in self._chain.stages if self._chain.depth(each) == depth]
            self._make(self._first_trials(stages))
            for stage in stages:
                self._found.choose(stage)
            self._make(self._all_seeds(stages))
        return self._found.gathered()

    def _make(self, tasks: Iterator[Job]) -> None:
        """Make runs, each folder once, whatever arms have it."""
        by_path = {task.path: task for task in tasks if task.path not in self._outcomes}
        self._outcomes |= self._run_all(list(by_path.values()))

    def _pretrainings(self, n_starts: int) -> Iterator[Job]:
        """Yield the pre-trainings that follow so many others."""
        for seed in range(self._kept.n_seeds):
            for position in there_and_back(len(self._arms), seed):
                arm = self._arms[position]
                name = arm.name
                own = self._chain.of(name)
                if not own.pretrains or self._chain.n_starts(name) != n_starts:
                    continue
                if self._found.lost_start(name, seed):
                    continue
                loaded = vary(arm.loaded, {"train.seed": seed}, origin=ORIGIN)
                if own.start:
                    start = self._found.path(own.start, PRETRAINING, seed)
                    loaded = replace(self._recipes.started(name, loaded, start), notes=())
                yield Job(
                    label=f"{self._called(name, PRETRAINING)}, seed {seed}",
                    path=self._found.path(name, PRETRAINING, seed),
                    loaded=loaded,
                    data=self._data[name],
                    scored=loaded.recipe,
                    scoring=self._scoring,
                    plan=self._plan,
                )

    def _first_trials(self, stages: Sequence[Stage]) -> Iterator[Job]:
        for stage in stages:
            if len(self._kept.trials[stage.name]) < 2:
                continue
            for trial in self._kept.trials[stage.name]:
                for arm in self._arms:
                    number = self._kept.tuning_number
                    yield from self._task(arm.name, stage, trial, 0, number)

    def _all_seeds(self, stages: Sequence[Stage]) -> Iterator[Job]:
        for seed in range(self._kept.n_seeds):
            for stage in stages:
                for number in range(self._chain.n_runs(stage)):
                    for arm in self._arms:
                        trial = self._found.chosen[arm.name, stage.name]
                        yield from self._task(arm.name, stage, trial, seed, number)

    def _task(self, arm: str, stage: Stage, trial: Trial, seed: int, number: int) -> Iterator[Job]:
        """Yield a run; nothing where its start has failed."""
        if self._found.lost(arm, stage, seed, number):
            return
        if stage.ensemble:
            yield self._averaged(arm, stage, seed, number)
            return
        start = self._found.start(arm, stage, seed)
        loaded = self._seeded(arm, stage, start, trial, seed, number)
        own = f", {trial.name}" if trial.name else ""
        seeds = f"seed {seed}" + (f", fine-tuning {number}" if stage.finetunes else "")
        yield Job(
            label=f"{self._called(arm, stage.name)}{own}, {seeds}",
            path=self._found.path(arm, stage.name, seed, number, trial),
            loaded=loaded,
            data=self._shared,
            scored=loaded.recipe,
            scoring=self._scoring,
            finetunes=stage.finetunes,
            plan=self._plan,
        )

    def _averaged(self, arm: str, stage: Stage, seed: int, number: int) -> Job:
        """Return what averages runs of the same seeds, none of which has failed."""
        members = [
            self._found.path(*member, seed, number, self._found.chosen[member])
            for member in stage.members(arm)
        ]
        of, name = stage.members(arm)[0]
        first = self._chain.stage(name)
        trial = self._found.chosen[of, name]
        start = self._found.start(of, first, seed)
        loaded = self._seeded(of, first, start, trial, seed, number)
        return Job(
            label=f"{self._called(arm, stage.name)}, seed {seed}, fine-tuning {number}",
            path=self._found.path(arm, stage.name, seed, number),
            loaded=loaded,
            data=self._shared,
            scored=loaded.recipe,
            finetunes=True,
            members=tuple(members),
            plan=self._plan,
        )

    def _seeded(
        self, arm: str, stage: Stage, start: Path | None, trial: Trial, seed: int, number: int
    ) -> LoadedRecipe:
        loaded = self._recipes.actual(arm, stage.name, start or self._folder)
        settings = {"train.seed": finetuning_seed(seed, number) if stage.finetunes else seed}
        seeded = vary(trial.of(loaded), self._machine(arm) | settings, origin=ORIGIN)
        # Notes on an arm's recipe are notes of the study.
        return replace(seeded, notes=())

    def _machine(self, arm: str) -> dict[str, Any]:
        """Return the settled threads and precision, the same for all runs of an arm."""
        train = self._trains[arm]
        return {"train.threads": train.threads, "train.precision": train.precision}

    def _called(self, arm: str, stage: str) -> str:
        """Name the run of a stage by the arms that share it."""
        key = self._keys.of(arm, stage)
        names = [
            arm.name for arm in self._arms if self._keys.by_stage.get((arm.name, stage)) == key
        ]
        return f"{', '.join(names)}: {stage}"
