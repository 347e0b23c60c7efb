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
from sublayer.config.sources import override_layer, read_toml
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
    the same seed its own starts. ``published`` has what was published, as it is printed: by
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


class HypothesisTable(Table):
    """``[hypothesis]``: a statement, and the weights of the arms that decide it.

    Weights add up to 0: ``contrast = { "24 layers" = 1, "12 layers" = -1 }``. It holds where the
    weighted sum is better than 0.
    """

    says: Sentence
    contrast: dict[str, float] = Field(min_length=2)


class ScaleTable(Table):
    """``[scale.NAME]``: the recipe of all arms, and settings over it.

    ``[[scale.cpu.arms]]`` are arms of this scale alone, for a study that has no ``[[arms]]`` of all
    scales. ``caveats`` are those of this scale, after the study's own; ``seeds``, ``score``,
    ``inspect``, ``tune``, ``tune_by``, ``metric``, ``margin``, ``margin_reason``, ``spread`` and
    ``hypothesis`` are of this scale, instead of the study's; so are ``stages``, ``finetunings``,
    ``tune_finetune``, ``metrics``, ``averages`` and ``published``. ``finetune`` are settings of all
    stages of tasks.
    """

    recipe: str
    metric: str | None = None
    margin: Amount | None = None
    margin_reason: str | None = None
    spread: Amount | None = None
    hypothesis: HypothesisTable | None = None
    seeds: int | None = Field(None, ge=1, le=MOST_SEEDS)
    caveats: list[Sentence] = Field(default_factory=list)
    score: Scoring | None = None
    inspect: Inspecting | None = None
    tune: dict[str, Any] | None = None
    tune_by: TuneBy | None = None
    set: dict[str, Any] = Field(default_factory=dict)
    arms: list[ArmTable] | None = Field(None, min_length=2, max_length=MOST_ARMS)
    finetune: dict[str, Any] = Field(default_factory=dict)
    tune_finetune: dict[str, Any] | None = None
    finetunings: int | None = Field(None, ge=1, le=MOST_FINETUNINGS)
    stages: list[StageTable] | None = Field(None, min_length=1)
    metrics: Metrics | None = None
    averages: Averages | None = None
    published: Published | None = None


class StudyFile(Table):
    """A study's file; settings are ``"model.ffn" = "relu"`` or tables, ``model.ffn = "relu"``.

    So is ``tune``, with a list of values for each field; ``tune_by = "loss"`` chooses among them by
    the validation loss, where the study's metric is at chance in some arm.

    With ``stages`` every arm is a chain: ``finetunings`` is the number of fine-tunings of each
    stage of tasks under each pre-training, ``nested`` what of them stands for it; ``metrics`` names
    the metric of a column that is not its score, or lists those that are columns beside it;
    ``averages`` are over columns, of which several in a list count as one; ``published`` has what
    was published of others than the arms.
    Of a study without stages it is of arms, by metric, instead of what stands with them.

    ``margin`` is the smallest difference of the metric that matters, either way, with
    ``margin_reason``: a number in the unit that differences are shown in, or with that unit behind
    it, as ``"0.01 bits per byte"``. ``spread`` is the standard deviation over seeds that is
    expected of an arm. ``also`` names further metrics that verdicts are given on.
    """

    title: str = ""
    source: str = ""
    match: Rule = "parameters"
    metric: str | None = None
    also: list[str] = Field(default_factory=list)
    margin: Amount = ""
    margin_reason: str = ""
    spread: Amount = ""
    hypothesis: HypothesisTable | None = None
    seeds: int | None = Field(None, ge=1, le=MOST_SEEDS)
    caveats: list[Sentence] = Field(default_factory=list)
    score: Scoring | None = None
    inspect: Inspecting | None = None
    tune: dict[str, Any] | None = None
    tune_by: TuneBy = "metric"
    scale: dict[str, ScaleTable] = Field(min_length=1)
    arms: list[ArmTable] | None = Field(None, min_length=2, max_length=MOST_ARMS)
    stages: list[StageTable] | None = Field(None, min_length=1)
    finetune: dict[str, Any] = Field(default_factory=dict)
    tune_finetune: dict[str, Any] | None = None
    finetunings: int | None = Field(None, ge=1, le=MOST_FINETUNINGS)
    nested: Literal["mean", "median"] = "mean"
    metrics: Metrics = Field(default_factory=dict)
    averages: Averages = Field(default_factory=dict)
    published: Published = Field(default_factory=dict)

    def question_of(self, scale: str) -> Question:
        """Return the question of the study at a scale."""
        own = self.scale[scale]
        hypothesis = own.hypothesis or self.hypothesis
        return Question(
            margin=self.margin if own.margin is None else own.margin,
            margin_reason=self.margin_reason if own.margin_reason is None else own.margin_reason,
            spread=self.spread if own.spread is None else own.spread,
            hypothesis=Hypothesis(hypothesis.says, hypothesis.contrast) if hypothesis else None,
            also=tuple(self.also),
        )

    def tune_by_of(self, scale: str) -> TuneBy:
        """Return what chooses among the values that are tried at a scale."""
        return self.scale[scale].tune_by or self.tune_by

    def arms_of(self, scale: str) -> list[ArmTable]:
        """Return the arms of a scale: its own, or those of all scales."""
        return self.scale[scale].arms or self.arms or []

    def stages_of(self, scale: str) -> list[StageTable]:
        """Return the stages of a scale: its own, or those of all scales; none of most studies."""
        return self.scale[scale].stages or self.stages or []

    def published_of(self, scale: str) -> Published:
        """Return the published scores of the arms of a scale without stages, by metric.

        What stands for all scales is of the columns of stages where another scale has them.
        """
        is_of_columns = any(map(self.stages_of, self.scale))
        own = self.scale[scale]
        found: Published = {}
        if own.arms or not is_of_columns:
            found = {arm.name: arm.published for arm in self.arms_of(scale) if arm.published}
        told = own.published
        if told is None:
            told = {} if is_of_columns else self.published
        return {**found, **told}


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


_OF_TRAINING = ("after", "from_step", "preset", "set")


def check_table(study: str, table: StageTable) -> None:
    """Raise ConfigError for fields of ``[[stages]]`` that exclude ``ensemble``."""
    if table.ensemble is None:
        return
    if not table.name:
        raise ConfigError(f"{study}: an ensemble of stages needs a name")
    given = [name for name in _OF_TRAINING if name in table.model_fields_set]
    if given:
        raise ConfigError(
            f"{study}: {table.name} is an ensemble, which trains nothing: leave out "
            f"{', '.join(given)}"
        )


def check_untold(study: str, stages: Sequence[Stage], told: Mapping[str, object]) -> None:
    """Raise ConfigError where settings are told of an ensemble; ``told`` is by stage."""
    for stage in stages:
        if stage.ensemble and stage.name in told:
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
    found = []
    for stage in stages:
        start = by_name.get(stage.after)
        if start is not None and start.ensemble:
            raise ConfigError(
                f"{study}: stage {stage.name} comes after {stage.after}, an ensemble, which leaves "
                f"no model to start from: name one of {', '.join(start.ensemble)}"
            )
        if stage.ensemble:
            first = _members(study, stage, by_name, arms)[0]
            found.append(
                replace(stage, tasks=first.tasks, table=first.table, columns=first.columns)
            )
        else:
            found.append(stage)
    return found


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
            others = [own for own in by_name if own != stage.name]
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


Overrides = Sequence[str] | Mapping[str, Any]
_OF_STAGES = ("finetune", "tune_finetune", "finetunings", "metrics", "averages")
"""Fields of a study, or a scale of it, that need stages."""
_KINDS = ("tasks", "each", "table", "ensemble")
"""The kinds of stages, of which a stage has one."""


def split_overrides(
    overrides: Overrides, stages: Sequence[StageTable]
) -> tuple[Overrides, Overrides]:
    """Split overrides into those of the recipe and those of stages.

    The latter begin with ``finetune.`` or with the name of a stage.
    """
    names = _prefixes(stages)

    def is_of_stage(key: str) -> bool:
        return any(key.partition("=")[0].strip().startswith(f"{name}.") for name in names)

    if not stages:
        return overrides, ()
    for key in overrides:
        _check_stage(key, names)
    if isinstance(overrides, Mapping):
        of_stages = {key: value for key, value in overrides.items() if is_of_stage(key)}
        rest = {key: value for key, value in overrides.items() if key not in of_stages}
        return rest, of_stages
    return (
        [text for text in overrides if not is_of_stage(text)],
        [text for text in overrides if is_of_stage(text)],
    )


def _check_stage(setting: str, names: Sequence[str]) -> None:
    """Raise ConfigError for a setting ``NAME.TABLE.FIELD`` of an unknown stage."""
    name, *fields = setting.partition("=")[0].strip().rsplit(".", 2)
    if len(fields) == 2 and fields[0] in TABLES and name not in (*names, *TABLES):
        raise ConfigError(
            f"{name} is no stage{nearest_hint(name, names)}: there are {', '.join(names)}"
        )


def read_chain(
    path: Path,
    file: StudyFile,
    scale: str,
    overrides: Overrides,
    tune: tuple[str, ...],
    *,
    at: Callable[[int], int] = lambda step: step,
) -> Chain | None:
    """Put together the chain of a study's scale; None where it has no stages.

    ``overrides`` are those of stages, ``tune`` is the grid of stages of tasks, ``at`` moves a
    step of the pre-training into a shorter one. Raises
    ConfigError for stages that do not fit together, and settings of unknown stages.
    """
    tables, scale_table = file.stages_of(scale), file.scale[scale]
    arms = file.arms_of(scale)
    if not tables:
        _check_without(path, file, scale)
        return None
    common = laid_over(flatten(file.finetune), flatten(scale_table.finetune))
    told = _by_stage(overrides, _prefixes(tables))
    stages = []
    for table in tables:
        for each in _stages(path, table, common, told):
            is_moved = each.from_step is not None and each.after == PRETRAINING
            from_step = at(each.from_step) if is_moved and each.from_step else each.from_step
            stages.append(replace(each, from_step=from_step))
    names = [arm.name for arm in arms]
    ordered = in_order(path.stem, with_tasks(path.stem, stages, names))
    for number, arm in enumerate(arms):
        _check_arm_start(path.stem, arm, arms[:number])
    check_untold(path.stem, ordered, told)
    n_seeds = scale_table.finetunings or file.finetunings or 1
    for stage in ordered:
        if stage.n_seeds is not None and stage.n_seeds > n_seeds:
            raise ConfigError(
                f"{path.stem}: stage {stage.name} has finetunings = {stage.n_seeds}, and the study "
                f"{n_seeds}: a stage may have fewer"
            )
        if stage.from_step is not None and not any(arm.pretrain for arm in arms):
            raise ConfigError(
                f"{path.stem}: stage {stage.name} starts from step {stage.from_step}, and no arm "
                "is pre-trained: leave out from_step"
            )
    published = {arm.name: arm.published for arm in arms if arm.published}
    metrics, averages, others = (
        getattr(file if getattr(scale_table, name) is None else scale_table, name)
        for name in ("metrics", "averages", "published")
    )
    return Chain(
        stages=ordered,
        arms={arm.name: _arm(path, arm, ordered, told) for arm in arms},
        n_seeds=n_seeds,
        nested=file.nested,
        metrics={name: _member(metric) for name, metric in metrics.items()},
        averages={name: tuple(map(_member, members)) for name, members in averages.items()},
        published={**published, **others},
        tune=tune,
    )


def _stages(
    path: Path, table: StageTable, common: Mapping[str, Any], told: Mapping[str, Mapping[str, Any]]
) -> list[Stage]:
    kinds = [name for name in _KINDS if getattr(table, name) is not None]
    shown = table.name or ", ".join(_names(table)) or "a stage"
    if len(kinds) > 1:
        raise ConfigError(f"{path.stem}: {shown} has {' and '.join(kinds)}: give one of them")
    if table.each is not None and table.name is not None:
        raise ConfigError(
            f"{path.stem}: stages of each task have the tasks' names: leave out name = {table.name}"
        )
    if (table.columns is not None) != (table.table is not None):
        raise ConfigError(f"{path.stem}: {shown}: table and columns stand together")
    check_table(path.stem, table)
    if table.finetunings is not None and (not kinds or table.ensemble is not None):
        why = "goes on with a text, once under each pre-training"
        if table.ensemble is not None:
            why = "has as many as its members"
        raise ConfigError(f"{path.stem}: {shown} {why}: leave out finetunings")
    if table.ensemble is not None:
        assert table.name is not None, "it is checked"
        return [Stage(table.name, "", ensemble=tuple(table.ensemble))]
    for name in _names(table):
        if name not in TASKS:
            raise ConfigError(
                f"{path.stem}: {name} is no task; `sublayer tasks` lists them"
                f"{nearest_hint(name, tuple(TASKS))}"
            )
    if not kinds and not table.name:
        raise ConfigError(f"{path.stem}: a stage that goes on with a text needs a name")
    if not kinds and table.preset != DEFAULT:
        raise ConfigError(
            f"{path.stem}: {shown} goes on with a text, and a preset is of tasks: leave out preset"
        )
    groups = [(name,) for name in table.each] if table.each else [tuple(_names(table))]
    stages = []
    for tasks in groups:
        name = "-".join(tasks) if table.each else _name(table)
        settings = flatten(table.set)
        if kinds:
            settings = laid_over(common, settings, told.get(FINETUNE, {}))
        settings = laid_over(settings, told.get(name, {}))
        columns: OwnColumns | None = table.columns  # type: ignore[assignment]
        stages.append(
            Stage(
                name,
                table.after,
                tasks,
                table.table,
                columns,
                table.preset,
                settings,
                n_seeds=table.finetunings,
                from_step=table.from_step,
            )
        )
    return stages


def _arm(
    path: Path, arm: ArmTable, stages: Sequence[Stage], told: Mapping[str, Mapping[str, Any]]
) -> ArmStages:
    by_stage: dict[str, dict[str, Any]] = {}
    names = [stage.name for stage in stages]
    for name in arm.stages:
        if name not in names:
            raise ConfigError(
                f"{path.stem}: arm {arm.name} has settings of {name}, which is no stage"
                f"{nearest_hint(name, names)}"
            )
    check_untold(path.stem, stages, arm.stages)
    texts = [stage.name for stage in stages if not stage.finetunes]
    if not arm.pretrain and texts:
        raise ConfigError(
            f"{path.stem}: arm {arm.name} is not pre-trained, and {', '.join(texts)} would go on "
            "with that: leave out pretrain = false, or the stage"
        )
    for stage in stages:
        if stage.ensemble:
            continue
        own = flatten(arm.finetune) if stage.finetunes else {}
        own = laid_over(own, flatten(arm.stages.get(stage.name, {})))
        for told_key in {**told.get(FINETUNE, {}), **told.get(stage.name, {})}:
            if told_key in own:
                raise ConfigError(
                    f"{told_key} is what the arms of {path.stem} differ in: leave it out"
                )
        by_stage[stage.name] = own
    return ArmStages(arm.pretrain, arm.start or "", by_stage)


def _check_arm_start(study: str, arm: ArmTable, before: Sequence[ArmTable]) -> None:
    """Raise ConfigError where an arm starts from none that is pre-trained before it."""
    if arm.start is None:
        return
    names = [each.name for each in before if each.pretrain]
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


def _check_without(path: Path, file: StudyFile, scale: str) -> None:
    """Raise ConfigError for what only stages give a meaning.

    What is said for all scales has one where another scale has stages.
    """
    table = file.scale[scale]
    given: dict[str, Any] = {name: getattr(table, name) for name in _OF_STAGES}
    if not any(file.stages_of(name) for name in file.scale):
        given = {name: given[name] or getattr(file, name) for name in _OF_STAGES}
    for arm in file.arms_of(scale):
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


def _prefixes(stages: Sequence[StageTable]) -> list[str]:
    """Return what settings of stages begin with, before a point."""
    prefixes = [FINETUNE]
    for table in stages:
        prefixes += table.each or [_name(table)]
    return list(dict.fromkeys(prefixes))


def _by_stage(overrides: Overrides, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the settings of each stage, by the names that they begin with."""
    told: dict[str, dict[str, Any]] = {}
    for key, value in override_layer(overrides, "command line").values.items():
        stage = max((name for name in names if key.startswith(f"{name}.")), key=len)
        told.setdefault(stage, {})[key.removeprefix(f"{stage}.")] = value
    return told


def _name(table: StageTable) -> str:
    """Return the name of a table's only stage: its own, its tasks' or its file's."""
    return table.name or "-".join(_names(table)) or Path(table.table or "").name.partition(".")[0]


def _names(table: StageTable) -> list[str]:
    if table.each is not None:
        return table.each
    if table.tasks is None:
        return []
    return [table.tasks] if isinstance(table.tasks, str) else list(table.tasks)


def _member(member: str | list[str]) -> Member:
    return member if isinstance(member, str) else tuple(member)
