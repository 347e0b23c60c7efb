"""``study.toml``: the request of a study, the settled plan and its seals, and the seals of runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from sublayer.config.run_recipe import absolute_paths, dump_recipe
from sublayer.config.sources import RUN_RECIPE
from sublayer.counts import count
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.checkpoints import Input
from sublayer.files.parsing import Count, Number, Typed, check_typed, read_json_object, read_toml
from sublayer.runs.folder import ENSEMBLE
from sublayer.study.arms import Arm, TuneBy
from sublayer.study.budget.match import Rule
from sublayer.study.definition import Study
from sublayer.study.inspection import Inspecting
from sublayer.study.question import USUAL_SEEDS, Question, Seeds
from sublayer.study.scoring import WHOLE_TEST, Scoring
from sublayer.study.seal import (
    SHOWN_DIGITS,
    Seal,
    Sealing,
    describe_changes,
    digest,
    list_additions,
    list_alterations,
    read_seal,
)
from sublayer.study.stages import Chain, describe_stages

PLAN = "study.toml"
_RUNS = ("arms/*/seed-*", "arms/*/*/seed-*", "stages/*/seed-*", "stages/*/*/seed-*")
_EARLIER = "the comparison was begun by a version of sublayer that sealed none"


class Request(Typed):
    """The identity of a study: arms, matching, tuning, scoring; the number of seeds may grow."""

    match: Rule
    tune: list[str]
    recipes: dict[str, str]
    """By arm, the whole recipe as TOML, paths absolute."""
    score: dict[str, str | int] | None = None
    stages: str | None = None
    """Of a chain, as JSON."""
    first_seed: Count = 0
    tuning_seeds: list[Count] = [0]
    """Of each trial. Studies of before there was a choice tuned on the first that they compared."""
    tune_by: TuneBy = "metric"
    """The criterion of the choice among trials."""
    margin: Number | None = None
    """The smallest difference that matters, in the metric's own unit."""
    looks: list[Count] = []
    """The numbers of seeds at which arms may stop; empty: all arms have the same number."""
    margin_factor: float = Field(1.0, exclude=True)
    """The factor that the margin is shown by."""

    @property
    def seeds(self) -> Seeds:
        """The seeds that are compared, and those that tune."""
        return Seeds(self.first_seed, len(self.tuning_seeds), self.tuning_seeds[0])

    @classmethod
    def of(
        cls,
        arms: Sequence[Arm],
        match: Rule,
        tune: Sequence[str] = (),
        *,
        scoring: Scoring = WHOLE_TEST,
        chain: Chain | None = None,
        seeds: Seeds = USUAL_SEEDS,
        tune_by: TuneBy = "metric",
        margin: float | None = None,
        margin_factor: float = 1.0,
        looks: Sequence[int] = (),
    ) -> "Request":
        """Build it; a default is left out, for older studies have the same request without."""
        recipes = {arm.name: dump_recipe(absolute_paths(arm.loaded.recipe)) for arm in arms}
        given: dict[str, Any] = {}
        if not scoring.is_whole_test:
            given["score"] = scoring.model_dump(exclude_none=True)
        if chain is not None:
            given["stages"] = describe_stages(chain)
        if seeds.first:
            given["first_seed"] = seeds.first
        if tune:
            given["tuning_seeds"] = list(seeds.tuning)
            if tune_by != "metric":
                given["tune_by"] = tune_by
        if margin is not None:
            given["margin"] = margin
        if looks:
            given["looks"] = list(looks)
        factor = margin_factor
        return cls(match=match, tune=list(tune), recipes=recipes, margin_factor=factor, **given)


class _Settled(Typed):
    name: str
    settings: dict[str, Any]
    matched: list[str]
    residual: Number


class About(Typed):
    """The parts of a report that do not follow from runs."""

    name: str
    title: str
    metric: str
    """The one that decides; empty: the objective's first."""
    caveats: list[str]
    against: dict[str, str]
    varied: dict[str, dict[str, Any]]
    """The settings of ``--vary`` in each arm that is named by it."""
    layer_notes: list[str] = []
    """Notes on the layers of its recipes; studies of before they were kept have none."""
    text_notes: list[str] = []
    """Notes on its text, as ``layer_notes``."""
    texts: list[str] = []
    """The names of its texts; studies of before they were kept have none."""
    published: dict[str, dict[str, Number]] = {}
    """Published scores of arms, by metric, as they are printed."""
    paper: dict[str, dict[str, Number]] = {}
    """``steps`` and ``tokens`` of each arm's training at the scale of the paper."""
    inspect: Inspecting | None = None
    """The inspection of its runs."""
    question: dict[str, Any] = {}
    """Its question, as ``Question.as_dict`` has it."""

    @classmethod
    def of(cls, study: Study, layer_notes: Sequence[str], text_notes: Sequence[str]) -> "About":
        """Build it from a study."""
        return cls(
            name=study.name,
            title=study.title,
            metric=study.metric or "",
            caveats=list(study.caveats),
            against=study.against,
            varied={arm.name: dict(arm.settings) for arm in study.arms if arm.is_varied},
            layer_notes=list(layer_notes),
            text_notes=list(text_notes),
            texts=list(study.texts),
            published={arm: dict(scores) for arm, scores in study.published.items()},
            paper={arm: dict(length) for arm, length in study.paper.items()},
            inspect=study.inspecting,
            question=study.question.as_dict(),
        )


class Plan(Typed):
    """The content of ``study.toml``."""

    asked: Request
    settled: list[_Settled]
    checksums: dict[str, str]
    """Of the first arm's data."""
    inputs: dict[str, list[Input]] = {}
    """By arm; studies of before they were kept have none."""
    reported_seeds: list[Count]
    jobs: list[Count] = []
    """The numbers of runs that were made at a time, where it was more than one."""
    clusters: list[str] = []
    """The kinds of clusters that runs were made on."""
    extended: list[Number] = []
    """Values of the tuned field that were tried beyond the grid."""
    initial_weights: str = ""
    """The rule that the runs' weights were drawn by; studies of before it was kept have none."""
    command: str = ""
    """The command that resumes the study, from any folder; older studies have none."""
    planned_runs: Count = 0
    planned_seeds: Count = 0
    about: About | None = None
    """None of a study that was begun before it was kept."""
    seals: list[Seal] | None = None
    """Of the plan before the first run, and of additions since; None of a study that was begun
    before there were seals."""


def study_of(plan: Plan, about: About, arms: Sequence[Arm]) -> Study:
    """Build the study of a plan, with its arms."""
    return Study(
        name=about.name,
        title=about.title,
        source="",
        match=plan.asked.match,
        n_seeds=None,
        arms=tuple(replace(arm, against=about.against.get(arm.name)) for arm in arms),
        metric=about.metric or None,
        caveats=tuple(about.caveats),
        scoring=Scoring.model_validate(plan.asked.score or {}),
        inspecting=about.inspect,
        question=Question.of_dict(about.question),
        published=about.published,
        paper=about.paper,
        kept_texts=tuple(about.texts),
    )


def read_plan(folder: Path) -> Plan:
    """Read ``study.toml``. Raises ConfigError where it is missing or damaged."""
    path = folder / PLAN
    try:
        content = read_toml(path, ConfigError)
    except FileNotFoundError:
        raise ConfigError(f"{folder} holds no comparison: it has no {PLAN}") from None
    return check_typed(content, Plan, str(path), ConfigError)


def run_folders(study: Path) -> list[Path]:
    """Return the folders of all runs that have begun in that of a study, in order."""
    folders = (path for pattern in _RUNS for path in study.glob(pattern))
    began = (RUN_RECIPE, ENSEMBLE)
    return sorted(path for path in folders if any((path / name).is_file() for name in began))


def kept_seal(run: Path) -> Mapping[str, Any] | None:
    """Read the seal that a run began under; None where it kept none.

    Raises CheckpointError where the file that it kept is damaged.
    """
    if (run / ENSEMBLE).is_file():
        plan = read_json_object(run / ENSEMBLE, CheckpointError).get("plan")
        return plan if isinstance(plan, dict) else None
    from sublayer.runs.inputs import read_began  # which starts PyTorch

    began = read_began(run)
    return None if began is None else began.plan


def sealing_of(study: Path, stage_texts: Mapping[str, Mapping[str, str]] | None = None) -> Sealing:
    """Read the sealed plan of a study, with its changes since, of its runs too.

    ``stage_texts`` are as ``describe_plan`` has them. Raises CheckpointError where a file
    that a run kept is damaged.
    """
    content = read_toml(study / PLAN, ConfigError)
    seals = [Seal.model_validate(seal) for seal in content.get("seals", [])]
    strangers = group_strangers(
        {str(run.relative_to(study)): kept_seal(run) for run in run_folders(study)}, seals
    )
    if not seals:
        removed = [describe_strangers(group, seals)[1] for group in strangers if group.seal]
        return Sealing(why_not=removed[0] if removed else _EARLIER)
    altered = [text for _, text in list_alterations(content, seals, stage_texts)]
    altered += [describe_strangers(group, seals)[1] for group in strangers]
    return Sealing(
        date=seals[0].date,
        hash=seals[0].hash,
        additions=tuple(text for _, text in list_additions(seals)),
        alterations=tuple(altered),
    )


@dataclass(frozen=True)
class BeganUnder:
    """Runs that began under one seal that their study does not have, or under none."""

    seal: Seal | None
    runs: tuple[str, ...]
    """Their folders, within that of the study."""

    @property
    def which(self) -> str:
        """Name them."""
        return f"{count(len(self.runs), 'run')} ({self.runs[0]}{' …' * (len(self.runs) > 1)})"


def group_strangers(
    began: Mapping[str, Mapping[str, Any] | None], seals: Sequence[Seal]
) -> list[BeganUnder]:
    """Group the runs that did not begin under a seal of their study, by the seal that they keep.

    ``began`` has the content that each run keeps, by its folder.
    """
    known = {digest(seal.model_dump()) for seal in seals}
    groups: dict[str, tuple[Seal | None, list[str]]] = {}
    for run, content in began.items():
        seal = None if content is None else read_seal(content)
        key = "" if seal is None else digest(seal.model_dump())
        if key not in known:
            groups.setdefault(key, (seal, []))[1].append(run)
    return [BeganUnder(seal, tuple(runs)) for seal, runs in groups.values()]


def describe_strangers(group: BeganUnder, seals: Sequence[Seal]) -> tuple[list[str], str]:
    """Describe the other plan that runs began under: the parts that differ, and the deviation."""
    if group.seal is None:
        return [], f"{group.which} kept no sealed plan"
    if not group.seal.is_whole:
        return [], f"{group.which} keep a plan that does not match its hash"
    if not seals:
        which = f"{group.which} began under the sealed plan {group.seal.hash[:SHOWN_DIGITS]}"
        return [], f"{which}, which {PLAN} no longer has"
    # The seal of the study with the same seal before it.
    same = [seal for seal in seals if seal.former == group.seal.former]
    other = same[0] if same else seals[-1]
    changes = describe_changes(group.seal.plan, other.plan)
    text = f"{group.which} began under plan {group.seal.hash[:SHOWN_DIGITS]}, and {PLAN} has "
    text += other.hash[:SHOWN_DIGITS]
    listed = "; ".join(change for _, change in changes)
    return [part for part, _ in changes], f"{text}: {listed or 'its date'}"
