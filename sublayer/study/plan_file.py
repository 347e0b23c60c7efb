"""``study.toml``: the request of a study, the settled plan and its seals, and the seals of runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from sublayer.config.layers import RUN_RECIPE
from sublayer.config.run_recipe import absolute_paths, dump_recipe
from sublayer.counts import count
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.checkpoints import Input
from sublayer.files.parsing import Count, Number, Typed, check_typed, read_json_object, read_toml
from sublayer.runs.folder import ENSEMBLE
from sublayer.study.arms import Arm, TuneBy
from sublayer.study.budget.match import Rule
from sublayer.study.definition import Study
from sublayer.study.inspection import Inspecting
from sublayer.study.options import OptionedStudy
from sublayer.study.question import Question, Seeds
from sublayer.study.scoring import Scoring
from sublayer.study.seal import (
    SHOWN_DIGITS,
    Seal,
    Sealing,
    describe_changes,
    list_additions,
    list_alterations,
)
from sublayer.study.stages import describe_stages

PLAN = "study.toml"
_RUNS = ("arms/*/seed-*", "arms/*/*/seed-*", "stages/*/seed-*", "stages/*/*/seed-*")
_EARLIER = "the comparison was begun by a version of sublayer that sealed none"


class Request(Typed):
    """The identity of a study: arms, matching, tuning, scoring; the number of seeds may grow."""

    match: Rule
    tune: list[str]
    recipes: dict[str, str]
    """By arm, the full recipe as TOML, paths absolute."""
    score: dict[str, str | int] | None = None
    stages: str | None = None
    """For a chain, as JSON."""
    first_seed: Count = 0
    tuning_seeds: list[Count] = [0]
    """Seeds of each trial. Older studies tuned on the first compared seed."""
    tune_by: TuneBy = "metric"
    """The selection criterion of trials."""
    margin: Number | None = None
    """The smallest difference that matters, in the metric's unit."""
    looks: list[Count] = []
    """The numbers of seeds at which arms may stop; empty: equal for all arms."""
    margin_factor: float = Field(1.0, exclude=True)
    """The display factor of the margin."""

    @property
    def seeds(self) -> Seeds:
        """The compared seeds, and the tuning seeds."""
        return Seeds(self.first_seed, len(self.tuning_seeds), self.tuning_seeds[0])

    @classmethod
    def of(
        cls, asked: OptionedStudy, *, margin: float | None = None, margin_factor: float = 1.0
    ) -> "Request":
        """Build it; defaults are left out, as in older studies' requests."""
        study, tune, whole = asked.study, list(asked.tune), asked.study.scoring.is_whole_test
        recipes = {arm.name: dump_recipe(absolute_paths(arm.loaded.recipe)) for arm in study.arms}
        given = {
            "score": None if whole else study.scoring.model_dump(exclude_none=True),
            "stages": study.chain and describe_stages(study.chain),
            "first_seed": asked.seeds.first,
            "tuning_seeds": list(asked.seeds.tuning) if tune else None,
            "tune_by": "loss" if tune and study.tune_by == "loss" else None,
            "margin": margin,
            "looks": list(asked.looks.planned) if asked.looks.is_sequential else None,
        }
        content: dict[str, Any] = {"match": study.match, "tune": tune, "recipes": recipes}
        content |= {name: value for name, value in given.items() if value}
        return cls(margin_factor=margin_factor, **content)


class _Settled(Typed):
    name: str
    settings: dict[str, Any]
    matched: list[str]
    residual: Number


class About(Typed):
    """Parts of a report that do not follow from runs."""

    name: str
    title: str
    metric: str
    """The deciding metric; empty: the objective's first."""
    caveats: list[str]
    against: dict[str, str]
    varied: dict[str, dict[str, Any]]
    """The settings of ``--vary`` in each arm named by them."""
    layer_notes: list[str] = []
    """Notes on the layers of its recipes; older studies have none."""
    text_notes: list[str] = []
    """Notes on its text, as ``layer_notes``."""
    texts: list[str] = []
    """The names of its texts; older studies have none."""
    published: dict[str, dict[str, Number]] = {}
    """Published scores of arms, by metric, as printed."""
    paper: dict[str, dict[str, Number]] = {}
    """``steps`` and ``tokens`` of each arm's training at the scale of the paper."""
    inspect: Inspecting | None = None
    """The inspection of its runs."""
    question: dict[str, Any] = {}
    """Its question, from ``Question.as_dict``."""

    @classmethod
    def of(cls, study: Study, layer_notes: Sequence[str], text_notes: Sequence[str]) -> "About":
        """Build it from a study."""
        same = ("name", "title", "against", "published", "paper")
        return cls(
            **{name: getattr(study, name) for name in same},
            metric=study.metric or "",
            caveats=list(study.caveats),
            texts=list(study.texts),
            varied={arm.name: dict(arm.settings) for arm in study.arms if arm.is_varied},
            layer_notes=list(layer_notes),
            text_notes=list(text_notes),
            inspect=study.inspecting,
            question=study.question.as_dict(),
        )


class StudyPlan(Typed):
    """The content of ``study.toml``."""

    asked: Request
    settled: list[_Settled]
    checksums: dict[str, str]
    """Checksums of the first arm's data."""
    inputs: dict[str, list[Input]] = {}
    """Inputs by arm; older studies have none."""
    reported_seeds: list[Count]
    jobs: list[Count] = []
    """The numbers of parallel runs, if more than one."""
    clusters: list[str] = []
    """The kinds of clusters on which runs were made."""
    extended: list[Number] = []
    """Values of the tuned field tried beyond the grid."""
    initial_weights: str = ""
    """The initialization rule of the runs' weights; older studies have none."""
    command: str = ""
    """The command that resumes the study, from any folder; older studies have none."""
    planned_runs: Count = 0
    planned_seeds: Count = 0
    about: About | None = None
    """None for an older study."""
    seals: list[Seal] | None = None
    """Seals of the plan before the first run, and of additions since; None for older studies."""


def study_of(plan: StudyPlan, about: About, arms: Sequence[Arm]) -> Study:
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


def read_plan(folder: Path) -> StudyPlan:
    """Read ``study.toml``. Raises ConfigError if it is missing or damaged."""
    path = folder / PLAN
    try:
        content = read_toml(path, ConfigError)
    except FileNotFoundError:
        raise ConfigError(f"{folder} holds no comparison: it has no {PLAN}") from None
    return check_typed(content, StudyPlan, str(path), ConfigError)


def run_folders(study: Path) -> list[Path]:
    """Return the folders of all runs begun in a study's folder, in order."""
    folders = (path for pattern in _RUNS for path in study.glob(pattern))
    began = (RUN_RECIPE, ENSEMBLE)
    return sorted(path for path in folders if any((path / name).is_file() for name in began))


def kept_seal(run: Path) -> Seal | None:
    """Read the seal at a run's start; None if it kept none.

    Raises CheckpointError if its file is damaged.
    """
    if (run / ENSEMBLE).is_file():
        content = read_json_object(run / ENSEMBLE, CheckpointError).get("plan")
    else:
        from sublayer.runs.inputs import read_began  # imports PyTorch

        content = getattr(read_began(run), "plan", None)
    try:
        return Seal.model_validate(content)
    except ValueError:
        return None


def sealing_of(study: Path, stage_texts: Mapping[str, Mapping[str, str]] | None = None) -> Sealing:
    """Read the sealed plan of a study, with its changes since, including its runs'.

    ``stage_texts`` are as in ``describe_plan``. Raises CheckpointError if a run's file is damaged.
    """
    content = read_toml(study / PLAN, ConfigError)
    seals = [Seal.model_validate(seal) for seal in content.get("seals", [])]
    began = {str(run.relative_to(study)): kept_seal(run) for run in run_folders(study)}
    strangers = group_strangers(began, seals)
    altered = [describe_strangers(group, seals)[1] for group in strangers if group.seal or seals]
    if not seals:
        return Sealing(why_not=altered[0] if altered else _EARLIER)
    altered = [text for _, text in list_alterations(content, seals, stage_texts)] + altered
    added = tuple(text for _, text in list_additions(seals))
    return Sealing(seals[0].date, seals[0].hash, additions=added, alterations=tuple(altered))


@dataclass(frozen=True)
class BeganUnder:
    """Runs begun under one foreign seal, or under none."""

    seal: Seal | None
    runs: list[str]
    """Their folders, relative to the study's."""

    @property
    def which(self) -> str:
        """Name them."""
        return f"{count(len(self.runs), 'run')} ({self.runs[0]}{' …' * (len(self.runs) > 1)})"


def group_strangers(began: Mapping[str, Seal | None], seals: Sequence[Seal]) -> list[BeganUnder]:
    """Group the runs begun under no seal of their study, by the seal that they keep.

    ``began`` has each run's seal, by its folder.
    """
    groups: list[BeganUnder] = []
    for run, seal in began.items():
        if seal in seals:
            continue
        same = [group for group in groups if group.seal == seal]
        groups += [] if same else [BeganUnder(seal, [])]
        (same or groups)[-1].runs.append(run)
    return groups


def describe_strangers(group: BeganUnder, seals: Sequence[Seal]) -> tuple[list[str], str]:
    """Describe the other plan of such runs: the differing parts, and the deviation."""
    seal, which = group.seal, group.which
    if seal is None:
        return [], f"{which} kept no sealed plan"
    if not seal.is_whole:
        return [], f"{which} keep a plan that does not match its hash"
    if not seals:
        return [], (
            f"{which} began under the sealed plan {seal.hash[:SHOWN_DIGITS]}, which {PLAN} no "
            "longer has"
        )
    # The study's seal with the same predecessor.
    other = next((sibling for sibling in seals if sibling.former == seal.former), seals[-1])
    changes = describe_changes(seal.plan, other.plan)
    listed = "; ".join(change for _, change in changes) or "its date"
    return [part for part, _ in changes], (
        f"{which} began under plan {seal.hash[:SHOWN_DIGITS]}, and {PLAN} has "
        f"{other.hash[:SHOWN_DIGITS]}: {listed}"
    )
