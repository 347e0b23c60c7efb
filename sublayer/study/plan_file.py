"""``study.toml``: the request of a study, the settled plan and its seals, and the seals of runs.

A plan is settled and hashed before the first run. A seal is a table with ``date``, ``former``,
``plan`` and ``hash``: the SHA-256 of the JSON of the others, keys sorted, without spaces. A later
addition, such as more seeds, gets a further seal, whose ``former`` is the previous hash. Each run
keeps the seal under which it began. A hash proves that the plan came first only to those who
received it beforehand.
"""

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import Field

from sublayer.config.layers import RUN_RECIPE
from sublayer.config.load import absolute_paths, dump_recipe
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.checkpoints import Input
from sublayer.files.parsing import Count, Number, Typed, check_typed, read_json_object, read_toml
from sublayer.numbers import count
from sublayer.runs.folder import ENSEMBLE
from sublayer.statistics.contrasts import CONFIDENCE
from sublayer.study.arms import Arm, TuneBy
from sublayer.study.budget import Rule
from sublayer.study.definition import OptionedStudy, Study
from sublayer.study.inspection import Inspecting
from sublayer.study.question import Question, Scoring, Seeds
from sublayer.study.results import SHOWN_DIGITS, Sealing, shown_date

PARTS = {
    "study": "name",
    "match": "matched budget",
    "match_multiple": "multiple of matched widths",
    "arms": "arms",
    "stages": "stages",
    "score": "scoring",
    "tune": "tuning grid",
    "tune_by": "tuning criterion",
    "tuning_seeds": "tuning seeds",
    "extend": "tuning extension",
    "seeds": "seeds",
    "looks": "looks",
    "level": "level",
    "metric": "primary metric",
    "margin": "margin",
    "margin_stated": "margin",
    "margin_reason": "reason for the margin",
    "also": "further metrics with verdicts",
    "hypothesis": "hypothesis",
    "contrast": "contrast",
    "texts": "texts",
    "code": "code",
}
"""Parts of a plan, by name in words."""
ADDED = ("seeds", "looks", "extend", "code")
"""Parts that may change after the first run, with a record: verdicts account for them, or they do
not concern the question."""


class Seal(Typed):
    """A sealed plan."""

    date: str
    """UTC, in ISO 8601."""
    hash: str
    former: str = ""
    """The hash of the previous seal; empty for the first."""
    plan: dict[str, Any]

    @property
    def is_whole(self) -> bool:
        """True if its content has its hash."""
        return self.hash == seal_hash(self.model_dump())


def canonical(content: Any) -> bytes:
    """Write JSON that is identical for equal content: keys sorted, without spaces, UTF-8."""
    text = json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def digest(content: Any) -> str:
    """Return the SHA-256 of canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical(content)).hexdigest()


def seal_hash(seal: Mapping[str, Any]) -> str:
    """Compute the hash of a seal, without its ``hash``."""
    return digest({name: value for name, value in seal.items() if name != "hash"})


def describe_plan(
    study: Mapping[str, Any],
    *,
    metric: str,
    extend: int = 0,
    stage_texts: Mapping[str, Mapping[str, str]] | None = None,
    level: float | None = None,
    code: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the plan to seal, from the content of a ``study.toml``.

    Recipes, settled settings and stages are in that file in full, here by their digests. ``metric``
    decides; ``extend`` is the most extensions of a grid; ``stage_texts`` are digests of the files
    of stages, by arm and stage. ``level`` and ``code`` are by default the current ones.
    """
    if code is None:
        # Results name seals, and are read without importing PyTorch.
        from sublayer.runs.run import code_sha256, commit

        code = {"version": version("sublayer"), "sha256": code_sha256()}
        if (revision := commit()) is not None:
            code = {**code, "commit": revision}
    request = study["asked"]
    about = study.get("about", {})
    question = about.get("question", {})
    against = about.get("against", {})
    settled = {arm["name"]: arm["settings"] for arm in study["settled"]}
    arms = {}
    for name, recipe in request["recipes"].items():
        arm = {"recipe": recipe, "settings": settled.get(name), "against": against.get(name, "")}
        arms[name] = digest(arm)
    looks = request.get("looks") or [study.get("planned_seeds", 0)]
    texts = {
        arm: {file["name"]: file["digest"] for file in inputs}
        for arm, inputs in study.get("inputs", {}).items()
    }
    plan = {
        "study": about.get("name", ""),
        "match": request["match"],
        "match_multiple": request.get("match_multiple", 0),
        "arms": arms,
        "stages": digest(request["stages"]) if "stages" in request else "",
        "score": request.get("score", {}),
        "tune": request["tune"],
        "tune_by": request.get("tune_by", "metric") if request["tune"] else "",
        "tuning_seeds": request.get("tuning_seeds", []),
        "extend": extend,
        "seeds": list(Seeds(request.get("first_seed", 0)).compared(looks[-1])),
        "looks": looks,
        "level": round(1.0 - CONFIDENCE, 9) if level is None else level,
        "metric": metric,
        "margin": request.get("margin", ""),
        "margin_stated": question.get("margin", ""),
        "margin_reason": question.get("margin_reason", ""),
        "also": question.get("also", []),
        "hypothesis": question.get("says", ""),
        "contrast": question.get("contrast", {}),
        "texts": {**texts, **(stage_texts or {})},
        "code": dict(code),
    }
    # Missing parts are left out.
    return {name: value for name, value in plan.items() if value not in ("", [], {}, 0)}


def differing_parts(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the differing parts of two plans, in the order of ``PARTS``."""

    def content(plan: Mapping[str, Any], part: str) -> bytes:
        value = plan.get(part)
        if part == "code" and isinstance(value, Mapping):  # another commit may have the same code
            value = {name: fact for name, fact in value.items() if name != "commit"}
        return canonical(value)

    names = dict.fromkeys([*PARTS, *sorted({*one, *other})])
    return [name for name in names if content(one, name) != content(other, name)]


def describe_changes(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the differing parts of two plans, with the changes: ``margin 0.5, now 0.1``."""
    changes: dict[str, str] = {}
    parts = differing_parts(one, other)
    # The single look of a fixed number of seeds repeats the seeds.
    is_fixed = "seeds" in parts and all(len(plan.get("looks", [])) < 2 for plan in (one, other))
    for part in parts:
        text, before, now = PARTS.get(part, part), one.get(part), other.get(part)
        if part in ("arms", "texts") and isinstance(before, Mapping) and isinstance(now, Mapping):
            names = [key for key in {**before, **now} if before.get(key) != now.get(key)]
            text += f" ({', '.join(names)})"
        elif part != "stages":
            text += f" {_shown(part, before)}, now {_shown(part, now)}"
        if part != "looks" or not is_fixed:
            changes.setdefault(text, part)
    return [(part, text) for text, part in changes.items()]


def _shown(part: str, value: Any) -> str:
    match value:
        case None:
            return "none"
        case {"version": release, "sha256": code} if part == "code":
            return f"{release} {str(code)[:SHOWN_DIGITS]}"
        case [first, _, *_] if part == "seeds":
            return f"{first} to {value[-1]}"
        case list():
            return ", ".join(map(str, value))
        case dict():
            return ", ".join(f"{key}: {part}" for key, part in value.items())
    return str(value)


def list_additions(seals: Sequence[Seal]) -> list[tuple[str, str]]:
    """Return each part that a later seal changed, and the change in words with date and hash."""
    return [
        (part, f"{change} ({shown_date(seal.date)}, hash {seal.hash[:SHOWN_DIGITS]})")
        for before, seal in itertools.pairwise(seals)
        for part, change in describe_changes(before.plan, seal.plan)
    ]


def list_alterations(
    study: Mapping[str, Any],
    seals: Sequence[Seal],
    stage_texts: Mapping[str, Mapping[str, str]] | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield each part that differs from the last seal, with the change; "" for a damaged seal."""
    former = ""
    for seal in seals:
        if not seal.is_whole or seal.former != former:
            name = f"seal {seal.hash[:SHOWN_DIGITS]} of {shown_date(seal.date)}"
            yield "", f"{name} does not match its hash, or the seal before it: one was edited"
        former = seal.hash
    # Parts only in the seal are taken from there.
    sealed = seals[-1].plan
    stated = describe_plan(
        study,
        metric=study.get("about", {}).get("metric") or sealed.get("metric", ""),
        extend=sealed.get("extend", 0),
        stage_texts=stage_texts,
        level=sealed.get("level"),
        code=sealed.get("code", {}),
    )
    yield from describe_changes(sealed, stated)


PLAN = "study.toml"
_RUNS = ("arms/*/seed-*", "arms/*/*/seed-*", "stages/*/seed-*", "stages/*/*/seed-*")
_EARLIER = "the comparison was begun by a version of sublayer that sealed no plans"


class Request(Typed):
    """The identity of a study: arms, matching, tuning, scoring; the number of seeds may grow."""

    match: Rule
    match_multiple: Count = 1
    """The number of which matched widths are multiples."""
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
        cls, optioned: OptionedStudy, *, margin: float | None = None, margin_factor: float = 1.0
    ) -> "Request":
        """Build it; defaults are left out, as in older studies' requests."""
        study, tune = optioned.study, list(optioned.tune)
        recipes = {arm.name: dump_recipe(absolute_paths(arm.loaded.recipe)) for arm in study.arms}
        parts = {
            "match_multiple": study.match_multiple if study.match_multiple > 1 else None,
            "score": None
            if study.scoring.is_whole_test
            else study.scoring.model_dump(exclude_none=True),
            "stages": study.chain and study.chain.describe_stages(),
            "first_seed": optioned.seeds.first,
            "tuning_seeds": list(optioned.seeds.tuning) if tune else None,
            "tune_by": "loss" if tune and study.tune_by == "loss" else None,
            "margin": margin,
            "looks": list(optioned.looks.planned) if optioned.looks.is_sequential else None,
        }
        content: dict[str, Any] = {"match": study.match, "tune": tune, "recipes": recipes}
        content |= {name: value for name, value in parts.items() if value}
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

    def study(self, about: About, arms: Sequence[Arm]) -> Study:
        """Build the study of a plan, with its arms."""
        return Study(
            name=about.name,
            title=about.title,
            source="",
            match=self.asked.match,
            match_multiple=self.asked.match_multiple,
            n_seeds=None,
            arms=tuple(replace(arm, against=about.against.get(arm.name)) for arm in arms),
            metric=about.metric or None,
            caveats=tuple(about.caveats),
            scoring=Scoring.model_validate(self.asked.score or {}),
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
        from sublayer.runs.resume import read_began  # imports PyTorch

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
    altered = [
        describe_strangers(seal, runs, seals)[1] for seal, runs in strangers if seal or seals
    ]
    if not seals:
        return Sealing(why_not=altered[0] if altered else _EARLIER)
    altered = [text for _, text in list_alterations(content, seals, stage_texts)] + altered
    added = tuple(text for _, text in list_additions(seals))
    return Sealing(seals[0].date, seals[0].hash, additions=added, alterations=tuple(altered))


def group_strangers(
    began: Mapping[str, Seal | None], seals: Sequence[Seal]
) -> list[tuple[Seal | None, list[str]]]:
    """Group the runs begun under no seal of their study, by the seal that they keep.

    ``began`` has each run's seal, by its folder relative to the study's.
    """
    groups: list[tuple[Seal | None, list[str]]] = []
    for run, seal in began.items():
        if seal in seals:
            continue
        same = [runs for other, runs in groups if other == seal]
        groups += [] if same else [(seal, [])]
        (same or [groups[-1][1]])[0].append(run)
    return groups


def describe_strangers(
    seal: Seal | None, runs: Sequence[str], seals: Sequence[Seal]
) -> tuple[list[str], str]:
    """Describe the other plan of a group of runs: the differing parts, and the deviation."""
    which = f"{count(len(runs), 'run')} ({runs[0]}{' …' * (len(runs) > 1)})"
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
