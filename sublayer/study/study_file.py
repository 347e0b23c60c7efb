"""A study's file: its tables, and the stages that they describe at a scale."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from sublayer.config.catalog import TABLES
from sublayer.config.finetune import DEFAULT
from sublayer.config.limits import MOST_ARMS, MOST_FINETUNINGS, MOST_SEEDS, MOST_STEPS
from sublayer.config.load import LoadedRecipe
from sublayer.config.messages import first_problem, show
from sublayer.config.sources import read_toml
from sublayer.config.supervised import SupervisedObjective
from sublayer.config.table import Table
from sublayer.config.task_heads import expected_tasks
from sublayer.config.texts import OwnColumns
from sublayer.errors import ConfigError
from sublayer.nearest import nearest_hint
from sublayer.study.arms import TuneBy
from sublayer.study.budget.match import Rule
from sublayer.study.inspection import Inspecting
from sublayer.study.question import Amount, Hypothesis, Question
from sublayer.study.scoring import Scoring
from sublayer.study.stages import (
    FINETUNE,
    PRETRAINING,
    ArmStages,
    Chain,
    Member,
    Stage,
    in_order,
    laid_over,
    member_of,
)
from sublayer.tasks.registry import TASKS, wording_of

_SCALE_NAME = re.compile("[a-z0-9]+(-[a-z0-9]+)*")
Sentence = Annotated[str, Field(min_length=1)]
Names = Annotated[list[str], Field(min_length=1)]
Metrics = dict[str, str | Names]
"""By column: the metric that it has instead of the score, or several, columns beside it."""
Averages = dict[str, Annotated[list[str | Names], Field(min_length=1)]]
Published = dict[str, dict[str, float]]

DEVIATION = "deviation"
"""The suffix of a published standard deviation: ``loss:deviation``."""


class ArmTable(Table):
    """An entry of ``[[arms]]``: name, settings, and the arm to compare with, if not the first.

    An arm that is ``against`` itself is compared with none: a control of others.

    ``recipe`` is where it starts, if not from the scale's. Of a study with stages ``set`` is of the
    pre-training, which ``pretrain = false`` leaves out, ``finetune`` of all stages of tasks,
    ``stages`` of those that it names. ``start`` names an arm before it, from whose pre-training of
    the same seed its own starts. ``published`` has the published scores, as they are printed: by
    column, or of a study without stages by metric, ``loss``, and as ``loss:deviation`` the standard
    deviation over its runs.
    """

    name: str = Field(min_length=1)
    recipe: str | None = None
    against: str | None = None
    set: dict[str, Any] = Field(default_factory=dict)
    pretrain: bool = True
    start: str | None = None
    finetune: dict[str, Any] = Field(default_factory=dict)
    stages: dict[str, dict[str, Any]] = Field(default_factory=dict)
    published: dict[str, float] = Field(default_factory=dict)


class StageTable(Table):
    """An entry of ``[[stages]]``: a training that starts from what another stage has left.

    ``after`` names that stage. With ``tasks`` it is fine-tuned on them, several as one mixture;
    ``each`` stands for a stage for each of its tasks, named after it; ``table`` is a table of one's
    own, of which ``columns`` says which is what. Without any of them it goes on with a text.
    ``from_step`` is the step of a checkpoint of that stage's runs, which they keep. ``ensemble``
    names stages of the same tasks instead, whose runs' answers are averaged: nothing is trained. A
    stage of one arm is named ``ARM: STAGE``.
    ``finetunings`` are its own, at most, under each pre-training: of a task that takes long.
    """

    name: str | None = Field(None, min_length=1)
    after: str = PRETRAINING
    from_step: int | None = Field(None, ge=1, le=MOST_STEPS)
    tasks: str | list[str] | None = None
    each: list[str] | None = Field(None, min_length=1)
    table: str | None = None
    columns: dict[str, str | list[str]] | None = None
    ensemble: list[str] | None = Field(None, min_length=1)
    finetunings: int | None = Field(None, ge=1, le=MOST_FINETUNINGS)
    preset: str = DEFAULT
    set: dict[str, Any] = Field(default_factory=dict)

    @property
    def task_names(self) -> list[str]:
        """The tasks that it learns, as a mixture or each in a stage."""
        if self.each is not None:
            return self.each
        return [self.tasks] if isinstance(self.tasks, str) else list(self.tasks or ())

    @property
    def stage_names(self) -> list[str]:
        """The names of its stages: each task's, or the one given, of its tasks or of its file."""
        file = Path(self.table or "").name.partition(".")[0]
        return self.each or [self.name or "-".join(self.task_names) or file]


class _SharedTable(Table):
    """The fields that a study has for all of its scales, or a scale instead of the study."""

    metric: str | None = None
    margin: Amount | None = None
    margin_reason: str | None = None
    spread: Amount | None = None
    hypothesis: Hypothesis | None = None
    seeds: int | None = Field(None, ge=1, le=MOST_SEEDS)
    score: Scoring | None = None
    inspect: Inspecting | None = None
    tune: dict[str, Any] | None = None
    tune_by: TuneBy | None = None
    arms: list[ArmTable] | None = Field(None, min_length=2, max_length=MOST_ARMS)
    stages: list[StageTable] | None = Field(None, min_length=1)
    tune_finetune: dict[str, Any] | None = None
    finetunings: int | None = Field(None, ge=1, le=MOST_FINETUNINGS)
    metrics: Metrics | None = None
    averages: Averages | None = None
    published: Published | None = None
    caveats: list[Sentence] = Field(default_factory=list)
    finetune: dict[str, Any] = Field(default_factory=dict)


class ScaleTable(_SharedTable):
    """``[scale.NAME]``: the recipe of all arms, and settings over it.

    ``[[scale.cpu.arms]]`` are arms of this scale alone, for a study that has no ``[[arms]]`` of all
    scales. ``caveats`` are those of this scale, after the study's own, and ``finetune`` are
    settings of all stages of tasks, over the study's; other fields are instead of the study's.
    """

    recipe: str
    set: dict[str, Any] = Field(default_factory=dict)


class StudyFile(_SharedTable):
    """A study's file; settings are ``"model.ffn" = "relu"`` or tables, ``model.ffn = "relu"``.

    So is ``tune``, with a list of values for each field; ``tune_by = "loss"`` chooses among them by
    the validation loss, where the study's metric is at chance in some arm.

    With ``stages`` every arm is a chain: ``finetunings`` is the number of fine-tunings of each
    stage of tasks under each pre-training, ``nested`` the average that stands for them; ``metrics``
    names the metric of a column that is not its score, or lists those that are columns beside it;
    ``averages`` are over columns, of which several in a list count as one; ``published`` has the
    published scores of others than the arms.
    Of a study without stages it is of arms, by metric, instead of what stands with them.

    ``margin`` is the smallest difference of the metric that matters, either way, with
    ``margin_reason``: a number in the unit that differences are shown in, or with that unit behind
    it, as ``"0.01 bits per byte"``. ``spread`` is the standard deviation over seeds that is
    expected of an arm. ``also`` names further metrics that verdicts are given on.
    """

    title: str = ""
    source: str = ""
    match: Rule = "parameters"
    also: list[str] = Field(default_factory=list)
    nested: Literal["mean", "median"] = "mean"
    scale: dict[str, ScaleTable] = Field(min_length=1)

    @property
    def has_stages(self) -> bool:
        """True where any scale has stages."""
        return self.stages is not None or any(table.stages for table in self.scale.values())

    def at(self, scale: str) -> ScaleTable:
        """Return the table of a scale, completed by the study's fields."""
        table = self.scale[scale]
        fields = [name for name in _SharedTable.model_fields if getattr(table, name) is None]
        return table.model_copy(
            update={
                **{name: getattr(self, name) for name in fields},
                "caveats": [*self.caveats, *table.caveats],
                "finetune": laid_over(flatten(self.finetune), flatten(table.finetune)),
            }
        )

    def question_of(self, scale: str) -> Question:
        """Return the question of the study at a scale."""
        table = self.at(scale)
        return Question(
            margin="" if table.margin is None else table.margin,
            margin_reason=table.margin_reason or "",
            spread="" if table.spread is None else table.spread,
            hypothesis=table.hypothesis,
            also=tuple(self.also),
        )

    def published_of(self, scale: str) -> Published:
        """Return the published scores of the arms of a scale without stages, by metric.

        What stands for all scales is of the columns of stages where another scale has them.
        """
        table = self.scale[scale] if self.has_stages else self.at(scale)
        arms = {arm.name: arm.published for arm in table.arms or () if arm.published}
        return {**arms, **(table.published or {})}


def read_study_file(path: Path) -> StudyFile:
    """Read a study's file. Raises ConfigError by field where it is none."""
    try:
        file = StudyFile.model_validate(read_toml(path))
    except ValidationError as error:
        raise ConfigError(f"study {path}: {first_problem(error, StudyFile)}") from None
    for scale, table in file.scale.items():
        if not _SCALE_NAME.fullmatch(scale):
            raise ConfigError(
                f"study {path}: scale {show(scale)} is no name of a scale: "
                "it takes lower-case letters, digits and hyphens, as paper-524k"
            )
        if (file.arms is None) == (table.arms is None):
            number = "no arms" if table.arms is None else "arms twice"
            raise ConfigError(
                f"study {path}: scale {scale} has {number}: give [[arms]] or [[scale.{scale}.arms]]"
            )
    return file


def flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten settings in tables, ``{"model": {"ffn": "relu"}}``, to ``{"model.ffn": "relu"}``."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if name in TABLES and isinstance(value, Mapping):
            for key, content in value.items():
                flat[f"{name}.{key}"] = content
        else:
            flat[name] = value
    return flat


def check_ensembles(study: str, stages: Sequence[Stage], settings: Mapping[str, object]) -> None:
    """Raise ConfigError where an ensemble has settings, which are by stage."""
    for stage in stages:
        if stage.ensemble and stage.name in settings:
            raise ConfigError(
                f"{study}: {stage.name} is an ensemble, which trains nothing, and has no settings: "
                f"give them to {', '.join(stage.ensemble)}"
            )


def with_tasks(study: str, stages: Sequence[Stage], arms: Sequence[str] = ()) -> list[Stage]:
    """Return stages, of which ensembles have their members' tasks.

    Raises ConfigError for members that are no stages, of no arm, no stages of the same tasks,
    ensembles themselves, named twice or less than two, and for stages that would start from an
    ensemble.
    """
    by_name = {stage.name: stage for stage in stages}
    complete = []
    for stage in stages:
        start = by_name.get(stage.after)
        if start is not None and start.ensemble:
            raise ConfigError(
                f"{study}: stage {stage.name} comes after {stage.after}, an ensemble, which leaves "
                f"no model to start from: name one of {', '.join(start.ensemble)}"
            )
        if stage.ensemble:
            first = _members(study, stage, by_name, arms)[0]
            complete.append(
                replace(stage, tasks=first.tasks, table=first.table, columns=first.columns)
            )
        else:
            complete.append(stage)
    return complete


def _members(
    study: str, stage: Stage, by_name: Mapping[str, Stage], arms: Sequence[str]
) -> list[Stage]:
    """Return the members of an ensemble, which are checked."""
    shown = f"{study}: ensemble {stage.name}"
    if len(stage.ensemble) < 2:
        raise ConfigError(f"{shown} has one member, {stage.ensemble[0]}: name at least two stages")
    members: list[Stage] = []
    for number, named in enumerate(stage.ensemble):
        arm, name = member_of("", named)
        if arm and arm not in arms:
            raise ConfigError(
                f"{shown} has {named}, and {arm} is no arm{nearest_hint(arm, arms)}: there are "
                f"{', '.join(arms)}"
            )
        if name not in by_name:
            others = [other for other in by_name if other != stage.name]
            if name == PRETRAINING:
                raise ConfigError(f"{shown} has {name}, which answers no task: name stages of one")
            raise ConfigError(
                f"{shown} has {name}, which is no stage{nearest_hint(name, others)}: there are "
                f"{', '.join(others)}"
            )
        member = by_name[name]
        if named in stage.ensemble[:number]:
            raise ConfigError(f"{shown} has {named} twice: name each stage once")
        if member.ensemble:
            raise ConfigError(
                f"{shown} has {name}, which is an ensemble itself: name its members"
                + (f", {', '.join(member.ensemble)}" if member is not stage else "")
            )
        if not member.finetunes:
            raise ConfigError(
                f"{shown} has {name}, which goes on with a text and answers no task: name stages "
                "of one"
            )
        if members and not _is_same(member, members[0]):
            raise ConfigError(
                f"{shown} has {name}, which learns {_told(member)}, and {members[0].name}, which "
                f"learns {_told(members[0])}: name stages of the same tasks in the same order"
            )
        if members and member.n_seeds != members[0].n_seeds:
            raise ConfigError(
                f"{shown} has {name} and {members[0].name}, of which one is fine-tuned more often: "
                "give both the same finetunings"
            )
        members.append(member)
    return members


def _is_same(one: Stage, other: Stage) -> bool:
    return (one.tasks, one.table, one.columns) == (other.tasks, other.table, other.columns)


def _told(stage: Stage) -> str:
    return ", ".join(stage.tasks) or f"{stage.table} by its columns"


def check_answers(study: str, arm: str, stage: Stage, members: Sequence[LoadedRecipe]) -> None:
    """Raise ConfigError where the answers of an ensemble's members have nothing to average.

    ``members`` are their recipes.
    """
    for name, loaded in zip(stage.ensemble, members, strict=True):
        objective = loaded.recipe.objective
        assert isinstance(objective, SupervisedObjective), "members are stages of tasks"
        if objective.format != "text":
            continue
        tasks = expected_tasks(loaded.recipe.data)
        written = [task.title for task in tasks if not wording_of(task).has_ranks]
        if written or objective.answer != "rank":
            remedy = "objective.answer = rank has it rank the labels"
            if written:
                remedy = f"{', '.join(written)} has no labels to rank"
            raise ConfigError(
                f"{study}: arm {arm}, ensemble {stage.name}: {name} writes its answers as text, "
                f"which cannot be averaged: {remedy}"
            )


_OF_STAGES = ("finetune", "tune_finetune", "finetunings", "metrics", "averages")
"""Fields of a study, or a scale of it, that need stages."""
_KINDS = ("tasks", "each", "table", "ensemble")
"""The kinds of stages, of which a stage has one."""
_OF_TRAINING = ("after", "from_step", "preset", "set")
"""The fields of a stage that an ensemble has not."""
StageSettings = Mapping[str, Mapping[str, Any]]
"""Settings of the command line by stage, or by ``finetune`` for all stages of tasks."""


def split_settings(
    settings: Mapping[str, Any], stages: Sequence[StageTable]
) -> tuple[dict[str, Any], StageSettings]:
    """Split settings into those of the recipe and those of stages.

    The latter begin with ``finetune.`` or with the name of a stage. Raises ConfigError for a
    setting ``NAME.TABLE.FIELD`` of an unknown stage.
    """
    names = [FINETUNE, *(name for table in stages for name in table.stage_names)] if stages else []
    of_recipe: dict[str, Any] = {}
    of_stages: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        stage = max((name for name in names if key.startswith(f"{name}.")), key=len, default="")
        if stage:
            of_stages.setdefault(stage, {})[key.removeprefix(f"{stage}.")] = value
            continue
        name, *fields = key.rsplit(".", 2)
        if names and len(fields) == 2 and fields[0] in TABLES and name not in TABLES:
            raise ConfigError(
                f"{name} is no stage{nearest_hint(name, names)}: there are "
                f"{', '.join(dict.fromkeys(names))}"
            )
        of_recipe[key] = value
    return of_recipe, of_stages


def read_chain(
    study: str,
    file: StudyFile,
    scale: str,
    overrides: StageSettings,
    tune: tuple[str, ...],
    *,
    at: Callable[[int], int] = lambda step: step,
) -> Chain | None:
    """Put together the chain of a study's scale; None where it has no stages.

    ``overrides`` are those of the command line, ``tune`` is the grid of stages of tasks, ``at``
    moves a step of the pre-training into a shorter one. Raises ConfigError for stages that do not
    fit together, and settings of unknown stages.
    """
    table = file.at(scale)
    arms, tables = table.arms or [], table.stages
    if tables is None:
        return None
    stages = [
        stage for one in tables for stage in _stages(study, one, table.finetune, overrides, at)
    ]
    ordered = in_order(study, with_tasks(study, stages, [arm.name for arm in arms]))
    for number, arm in enumerate(arms):
        _check_arm_start(study, arm, arms[:number])
    check_ensembles(study, ordered, overrides)
    n_seeds = table.finetunings or 1
    for stage in ordered:
        if stage.n_seeds is not None and stage.n_seeds > n_seeds:
            raise ConfigError(
                f"{study}: stage {stage.name} has finetunings = {stage.n_seeds}, and the study "
                f"{n_seeds}: a stage may have fewer"
            )
        if stage.from_step is not None and not any(arm.pretrain for arm in arms):
            raise ConfigError(
                f"{study}: stage {stage.name} starts from step {stage.from_step}, and no arm "
                "is pre-trained: leave out from_step"
            )
    published = {arm.name: arm.published for arm in arms if arm.published}
    metrics, averages = table.metrics or {}, table.averages or {}
    return Chain(
        stages=ordered,
        arms={arm.name: _arm(study, arm, ordered, overrides) for arm in arms},
        n_seeds=n_seeds,
        nested=file.nested,
        metrics={name: _member(metric) for name, metric in metrics.items()},
        averages={name: tuple(map(_member, members)) for name, members in averages.items()},
        published={**published, **(table.published or {})},
        tune=tune,
    )


def _stages(
    study: str,
    table: StageTable,
    common: Mapping[str, Any],
    overrides: StageSettings,
    at: Callable[[int], int],
) -> list[Stage]:
    """Return the stages of a table; ``common`` are the settings of all stages of tasks."""
    kinds = [name for name in _KINDS if getattr(table, name) is not None]
    names = table.task_names
    shown = table.name or ", ".join(names) or "a stage"
    if len(kinds) > 1:
        raise ConfigError(f"{study}: {shown} has {' and '.join(kinds)}: give one of them")
    if table.each is not None and table.name is not None:
        raise ConfigError(
            f"{study}: stages of each task have the tasks' names: leave out name = {table.name}"
        )
    if (table.columns is not None) != (table.table is not None):
        raise ConfigError(f"{study}: {shown}: table and columns stand together")
    if table.ensemble is not None and not table.name:
        raise ConfigError(f"{study}: an ensemble of stages needs a name")
    given = [name for name in _OF_TRAINING if name in table.model_fields_set]
    if table.ensemble is not None and given:
        raise ConfigError(
            f"{study}: {table.name} is an ensemble, which trains nothing: leave out "
            f"{', '.join(given)}"
        )
    if table.finetunings is not None and (not kinds or table.ensemble is not None):
        why = "goes on with a text, once under each pre-training"
        if table.ensemble is not None:
            why = "has as many as its members"
        raise ConfigError(f"{study}: {shown} {why}: leave out finetunings")
    if table.ensemble is not None:
        return [Stage(table.stage_names[0], "", ensemble=tuple(table.ensemble))]
    for name in names:
        if name not in TASKS:
            raise ConfigError(
                f"{study}: {name} is no task; `sublayer tasks` lists them"
                f"{nearest_hint(name, tuple(TASKS))}"
            )
    if not kinds and not table.name:
        raise ConfigError(f"{study}: a stage that goes on with a text needs a name")
    if not kinds and table.preset != DEFAULT:
        raise ConfigError(
            f"{study}: {shown} goes on with a text, and a preset is of tasks: leave out preset"
        )
    from_step = table.from_step
    if from_step is not None and table.after == PRETRAINING:
        from_step = at(from_step)
    groups = [(name,) for name in names] if table.each else [tuple(names)]
    stages = []
    for name, tasks in zip(table.stage_names, groups, strict=True):
        settings = flatten(table.set)
        if kinds:
            settings = laid_over(common, settings, overrides.get(FINETUNE, {}))
        columns: OwnColumns | None = table.columns  # type: ignore[assignment]
        stages.append(
            Stage(
                name,
                table.after,
                tasks,
                table.table,
                columns,
                table.preset,
                laid_over(settings, overrides.get(name, {})),
                n_seeds=table.finetunings,
                from_step=from_step,
            )
        )
    return stages


def _arm(study: str, arm: ArmTable, stages: Sequence[Stage], overrides: StageSettings) -> ArmStages:
    names = [stage.name for stage in stages]
    for name in arm.stages:
        if name not in names:
            raise ConfigError(
                f"{study}: arm {arm.name} has settings of {name}, which is no stage"
                f"{nearest_hint(name, names)}"
            )
    check_ensembles(study, stages, arm.stages)
    texts = [stage.name for stage in stages if not stage.finetunes]
    if not arm.pretrain and texts:
        raise ConfigError(
            f"{study}: arm {arm.name} is not pre-trained, and {', '.join(texts)} would go on "
            "with that: leave out pretrain = false, or the stage"
        )
    by_stage: dict[str, dict[str, Any]] = {}
    for stage in stages:
        if stage.ensemble:
            continue
        settings = flatten(arm.finetune) if stage.finetunes else {}
        settings = laid_over(settings, flatten(arm.stages.get(stage.name, {})))
        for key in {**overrides.get(FINETUNE, {}), **overrides.get(stage.name, {})}:
            if key in settings:
                raise ConfigError(f"{key} is what the arms of {study} differ in: leave it out")
        by_stage[stage.name] = settings
    return ArmStages(arm.pretrain, arm.start or "", by_stage)


def _check_arm_start(study: str, arm: ArmTable, before: Sequence[ArmTable]) -> None:
    """Raise ConfigError where an arm starts from none that is pre-trained before it."""
    if arm.start is None:
        return
    names = [earlier.name for earlier in before if earlier.pretrain]
    if not arm.pretrain:
        raise ConfigError(
            f"{study}: arm {arm.name} is not pre-trained, and start = {arm.start} is of that: "
            "leave one of them out"
        )
    if arm.start not in names:
        there = f"there are {', '.join(names)}" if names else "it is the first"
        raise ConfigError(
            f"{study}: arm {arm.name} has start = {arm.start}, which is no arm that is pre-trained "
            f"and stands before it{nearest_hint(arm.start, names)}: {there}"
        )


def check_without_stages(path: Path, file: StudyFile, scale: str) -> None:
    """Raise ConfigError for settings that have a meaning with stages alone.

    A setting of all scales has one where another scale has stages.
    """
    table = file.scale[scale] if file.has_stages else file.at(scale)
    given: dict[str, Any] = {name: getattr(table, name) for name in _OF_STAGES}
    for arm in file.at(scale).arms or ():
        given["finetune"] = given["finetune"] or arm.finetune
        given["stages of an arm"] = given.get("stages of an arm") or arm.stages
        given["start of an arm"] = given.get("start of an arm") or arm.start
        given["pretrain = false"] = given.get("pretrain = false") or not arm.pretrain
    for name, value in given.items():
        if value:
            raise ConfigError(
                f"study {path}: {name} has no effect without [[stages]], of which "
                f"{'it' if len(file.scale) == 1 else f'scale {scale}'} has none"
            )


def _member(member: str | list[str]) -> Member:
    return member if isinstance(member, str) else tuple(member)
