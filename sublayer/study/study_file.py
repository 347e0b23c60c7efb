"""A study's file: its tables, and the stages that they describe at a scale."""

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from sublayer.config.data import OwnColumns
from sublayer.config.finetune import DEFAULT
from sublayer.config.layers import read_toml
from sublayer.config.messages import check_choice, first_problem
from sublayer.config.recipe import TABLES
from sublayer.config.table import (
    MOST_ARMS,
    MOST_FINETUNINGS,
    MOST_SEEDS,
    MOST_STEPS,
    WIDEST_FFN,
    List,
    Table,
)
from sublayer.errors import ConfigError, check_rules, nearest_hint
from sublayer.study.arms import FINETUNE, PRETRAINING, ArmStages, Chain, Stage, TuneBy, laid_over
from sublayer.study.budget import Rule
from sublayer.study.inspection import Inspecting
from sublayer.study.question import Amount, Hypothesis, Question, Scoring
from sublayer.tasks.registry import TASKS
from sublayer.values import show


def flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten settings in tables, ``{"model": {"ffn": "relu"}}``, to ``{"model.ffn": "relu"}``."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        is_table = name in TABLES and isinstance(value, Mapping)
        flat |= (
            {f"{name}.{key}": leaf for key, leaf in value.items()} if is_table else {name: value}
        )
    return flat


def _flat(settings: Any) -> Any:
    return flatten(settings) if isinstance(settings, Mapping) else settings


_SCALE_NAME = re.compile("[a-z0-9]+(-[a-z0-9]+)*")
Settings = Annotated[dict[str, Any], BeforeValidator(_flat)]
"""Settings by field, in tables or as ``"model.ffn" = "relu"``."""
Grid = Annotated[dict[str, list[Any]], BeforeValidator(_flat)]
"""Values to try by field."""
Sentence = Annotated[str, Field(min_length=1)]
Names = Annotated[List, Field(min_length=1)]
Averages = dict[str, Annotated[tuple[str | Names, ...], Field(min_length=1, strict=False)]]
Published = dict[str, dict[str, float]]

DEVIATION = "deviation"
"""The suffix of a published standard deviation: ``loss:deviation``."""


class ArmTable(Table):
    """An entry of ``[[arms]]``: name, settings, and the arm to compare with, if not the first.

    An arm ``against`` itself has no comparison: a control of others.

    ``recipe`` is its base, by default the scale's. With stages, ``set`` applies to the
    pre-training, which ``pretrain = false`` leaves out, ``finetune`` to all stages of tasks,
    ``stages`` to the named ones. ``start`` names an earlier arm: its pre-training starts from that
    arm's pre-training of the same seed. ``published`` has published scores, as printed: by column,
    or without stages by metric, ``loss``, and as ``loss:deviation`` the standard deviation over its
    runs.
    """

    name: str = Field(min_length=1)
    recipe: str | None = None
    against: str | None = None
    set: Settings = Field(default_factory=dict)
    pretrain: bool = True
    start: str | None = None
    finetune: Settings = Field(default_factory=dict)
    stages: dict[str, Settings] = Field(default_factory=dict)
    published: dict[str, float] = Field(default_factory=dict)


class StageTable(Table):
    """An entry of ``[[stages]]``: a training that starts from another stage's model.

    ``after`` names that stage. With ``tasks`` it is fine-tuned on them, several as one mixture;
    ``each`` makes a stage per task, named after it; ``table`` is a custom table, with the roles of
    its ``columns``. Without any of them it trains on a text. ``from_step`` is the step of a
    checkpoint kept by that stage's runs. ``ensemble`` instead averages, without training, the
    answers of the named stages' runs on the same tasks. One arm's stage is named ``ARM: STAGE``.
    ``finetunings`` limits its fine-tunings under each pre-training, for slow tasks.
    """

    name: str | None = Field(None, min_length=1)
    after: str = PRETRAINING
    from_step: int | None = Field(None, ge=1, le=MOST_STEPS)
    tasks: str | Names | None = None
    each: Names = ()
    table: str | None = None
    columns: OwnColumns | None = None
    ensemble: Names = ()
    finetunings: int | None = Field(None, ge=1, le=MOST_FINETUNINGS)
    preset: str = DEFAULT
    set: Settings = Field(default_factory=dict)

    @property
    def task_names(self) -> tuple[str, ...]:
        """The tasks that it learns, as a mixture or one per stage."""
        return self.each or ((self.tasks,) if isinstance(self.tasks, str) else self.tasks or ())

    @property
    def stage_names(self) -> tuple[str, ...]:
        """The names of its stages: each task's, or the given one, its tasks' or its file's."""
        file = Path(self.table or "").name.partition(".")[0]
        return self.each or (self.name or "-".join(self.task_names) or file,)


class _SharedTable(Table):
    """The fields of a study for all of its scales, or of a scale instead of the study."""

    metric: str | None = None
    margin: Amount | None = None
    margin_reason: str | None = None
    spread: Amount | None = None
    hypothesis: Hypothesis | None = None
    seeds: int | None = Field(None, ge=1, le=MOST_SEEDS)
    score: Scoring | None = None
    inspect: Inspecting | None = None
    tune: Grid | None = None
    tune_by: TuneBy | None = None
    arms: list[ArmTable] | None = Field(None, min_length=2, max_length=MOST_ARMS)
    stages: list[StageTable] | None = Field(None, min_length=1)
    tune_finetune: Grid | None = None
    finetunings: int | None = Field(None, ge=1, le=MOST_FINETUNINGS)
    metrics: dict[str, str | Names] | None = None
    averages: Averages | None = None
    published: Published | None = None
    caveats: list[Sentence] = Field(default_factory=list)
    finetune: Settings = Field(default_factory=dict)


class ScaleTable(_SharedTable):
    """``[scale.NAME]``: the recipe of all arms, and settings over it.

    ``[[scale.cpu.arms]]`` are arms of only this scale, for a study without ``[[arms]]`` of all
    scales. ``caveats`` follow the study's, and ``finetune`` are settings of all stages of tasks,
    over the study's; other fields replace the study's.
    """

    recipe: str
    set: Settings = Field(default_factory=dict)


class StudyFile(_SharedTable):
    """A study's file; settings are ``"model.ffn" = "relu"`` or tables, ``model.ffn = "relu"``.

    So is ``tune``, with a list of values for each field; ``tune_by = "loss"`` selects by the
    validation loss, for a study whose metric is at chance in some arm.

    With ``stages`` every arm is a chain: ``finetunings`` is the number of fine-tunings of each
    stage of tasks under each pre-training, ``nested`` their summary; ``metrics`` names a column's
    metric, if not its score, or lists metrics that are columns, too; ``averages`` are over columns,
    several in a list counting as one; ``published`` has published scores of others than the arms.
    Without stages, it is by arm and metric, instead of the arms' ``published``.

    ``match_multiple`` is the number of which matched widths are multiples.

    ``margin`` is the smallest difference of the metric that matters, either way, with
    ``margin_reason``: a number in the unit that differences are shown in, or with that unit behind
    it, as ``"0.01 bits per byte"``. ``spread`` is the standard deviation over seeds that is
    expected of an arm. ``also`` names further metrics with verdicts.
    """

    title: str = ""
    source: str = ""
    match: Rule = "parameters"
    match_multiple: int = Field(1, ge=1, le=WIDEST_FFN)
    also: List = ()
    nested: Literal["mean", "median"] = "mean"
    scale: dict[str, ScaleTable] = Field(min_length=1)

    @property
    def has_stages(self) -> bool:
        """True if any scale has stages."""
        return self.stages is not None or any(table.stages for table in self.scale.values())

    def at(self, scale: str) -> ScaleTable:
        """Return the table of a scale, completed by the study's fields."""
        table = self.scale[scale]
        fields = [name for name in _SharedTable.model_fields if getattr(table, name) is None]
        return table.model_copy(
            update={
                **{name: getattr(self, name) for name in fields},
                "caveats": [*self.caveats, *table.caveats],
                "finetune": laid_over(self.finetune, table.finetune),
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
            also=self.also,
        )

    def published_of(self, scale: str) -> Published:
        """Return the published scores of arms at a scale, with those of others.

        Without stages they are by metric: those of all scales are by stage columns if another scale
        has stages.
        """
        table = self.at(scale)
        if self.has_stages and table.stages is None:
            table = self.scale[scale]
        arms = {arm.name: arm.published for arm in table.arms or () if arm.published}
        return {**arms, **(table.published or {})}


def read_study_file(path: Path) -> StudyFile:
    """Read a study's file. Raises ConfigError, naming the field, if it is not a study."""
    try:
        file = StudyFile.model_validate(read_toml(path))
    except ValidationError as error:
        raise ConfigError(f"study {path}: {first_problem(error, StudyFile)}") from None
    check_rules(
        f"study {path}",
        (
            file.match_multiple > 1 and file.match != "parameters",
            f"match_multiple = {file.match_multiple} applies to matched widths, and match = "
            f"{file.match} solves none: leave it out",
        ),
    )
    for scale, table in file.scale.items():
        number = "no arms" if table.arms is None else "arms twice"
        check_rules(
            f"study {path}",
            (
                not _SCALE_NAME.fullmatch(scale),
                f"scale {show(scale)} is not a valid name: use lower-case letters, digits and "
                "hyphens, as in paper-524k",
            ),
            (
                (file.arms is None) == (table.arms is None),
                f"scale {scale} has {number}: give [[arms]] or [[scale.{scale}.arms]]",
            ),
        )
    return file


StageSettings = Mapping[str, Mapping[str, Any]]
"""Settings of the command line by stage, or by ``finetune`` for all stages of tasks."""


def split_settings(
    settings: Mapping[str, Any], stages: Sequence[StageTable]
) -> tuple[dict[str, Any], StageSettings]:
    """Split settings into the recipe's and the stages'.

    The latter begin with ``finetune.`` or the name of a stage. Raises ConfigError for a setting
    ``NAME.TABLE.FIELD`` of an unknown stage.
    """
    names = [FINETUNE, *(name for table in stages for name in table.stage_names)] if stages else []
    by_stage: dict[str, dict[str, Any]] = {"": {}}
    for key, value in settings.items():
        stage = max((name for name in names if key.startswith(f"{name}.")), key=len, default="")
        name, *fields = key.rsplit(".", 2)
        is_of_stage = len(fields) == 2 and fields[0] in TABLES and name not in TABLES
        if names and is_of_stage and not stage:
            check_choice("", "stage", name, dict.fromkeys(names))
        by_stage.setdefault(stage, {})[key.removeprefix(f"{stage}.") if stage else key] = value
    return by_stage.pop(""), by_stage


def check_not_compared(
    study: str, overrides: Mapping[str, Any], compared: Container[str], prefix: str = ""
) -> None:
    """Raise ConfigError if the command line, with ``prefix``, sets a compared setting."""
    for key, value in overrides.items():
        if key in compared:
            raise ConfigError(
                f"the arms of {study} differ in {prefix}{key}: leave out "
                f"{prefix}{key}={show(value)}"
            )


_NO_SIGNS = (":", "/", "=")
"""Separators in the names of settings and columns."""


def read_chain(
    study: str,
    file: StudyFile,
    scale: str,
    overrides: StageSettings,
    tune: tuple[str, ...],
    *,
    at: Callable[[int], int] = lambda step: step,
) -> Chain | None:
    """Return the chain of a study's scale; None without stages.

    ``overrides`` are the command line's, ``tune`` is the grid of stages of tasks, ``at`` moves a
    step of the pre-training into a shorter one. Raises ConfigError for stages that do not fit
    together, and settings of unknown stages.
    """
    table = file.at(scale)
    arms, n_seeds = table.arms or [], table.finetunings or 1
    if table.stages is None:
        return None
    stages = [
        stage
        for one in table.stages
        for stage in _stages(study, one, table.finetune, overrides, at)
    ]
    stages = _with_tasks(study, stages, [arm.name for arm in arms])
    names = [stage.name for stage in stages]
    leaving = [PRETRAINING, *(stage.name for stage in stages if not stage.ensemble)]
    for stage in stages:
        name = stage.name
        is_taken = name in (PRETRAINING, FINETUNE, *TABLES)
        has_sign = not name.strip() or any(sign in name for sign in _NO_SIGNS)
        check_rules(
            study,
            (names.count(name) > 1, f"two stages are named {name}: give each its own name"),
            (
                is_taken or has_sign,
                f"no stage may be named {name!r}, as settings and columns begin with its name: "
                f"use no {' '.join(_NO_SIGNS)}, and no reserved name",
            ),
        )
        if not stage.ensemble:
            where = f"{study}: stage {name}, after: "
            check_choice(where, "stage that leaves a model", stage.after, leaving)
    try:
        TopologicalSorter({stage.name: stage.before for stage in stages}).prepare()
    except CycleError as error:
        circle = ", ".join(error.args[1])
        raise ConfigError(f"{study}: stages start from each other in a circle, {circle}") from None
    # Sorted by depth, else in their order.
    ordered = tuple(sorted(stages, key=Chain(tuple(stages)).depth))
    for stage in ordered:
        check_rules(
            f"{study}: stage {stage.name}",
            (
                stage.n_seeds is not None and stage.n_seeds > n_seeds,
                f"finetunings = {stage.n_seeds} exceeds the study's {n_seeds}: a stage may only "
                "have fewer",
            ),
            (
                stage.from_step is not None and not any(arm.pretrain for arm in arms),
                f"it starts from step {stage.from_step}, and no arm is pre-trained: leave out "
                "from_step",
            ),
        )
    trained = [stage.name for stage in ordered if not stage.ensemble]
    for name in overrides:
        check_choice(f"{study}: settings of ", "trained stage", name, [FINETUNE, *trained])
    pretrained: list[str] = []
    by_arm = {}
    for arm in arms:
        by_arm[arm.name] = _arm(study, arm, ordered, overrides, pretrained)
        pretrained += [arm.name] if arm.pretrain else []
    return Chain(
        stages=ordered,
        arms=by_arm,
        n_seeds=n_seeds,
        nested=file.nested,
        metrics=table.metrics or {},
        averages=table.averages or {},
        published=file.published_of(scale),
        tune=tune,
    )


_KINDS = {
    "tasks": ("columns",),
    "each": ("name", "columns"),
    "table": (),
    "ensemble": ("after", "from_step", "preset", "set", "finetunings", "columns"),
    "text": ("columns", "preset", "finetunings"),
}
"""Fields without effect, by the kind of a stage."""


def _stages(
    study: str,
    table: StageTable,
    common: Mapping[str, Any],
    overrides: StageSettings,
    at: Callable[[int], int],
) -> list[Stage]:
    """Return the stages of a table; ``common`` are the settings of all stages of tasks."""
    kinds = [name for name in _KINDS if name in table.model_fields_set] or ["text"]
    names, kind = table.task_names, kinds[0]
    idle = [name for name in _KINDS[kind] if name in table.model_fields_set]
    unknown = next((name for name in names if name not in TASKS), None)
    shown = table.name or ", ".join(names) or "a stage"
    what = "trains on a text" if kind == "text" else f"has {kind}"
    check_rules(
        study,
        (len(kinds) > 1, f"{shown} has {' and '.join(kinds)}: give one of them"),
        (
            kind in ("text", "ensemble") and not table.name,
            f"a stage that {what} needs a name",
        ),
        (idle, f"{shown} {what}, so {', '.join(idle)} has no effect: leave it out"),
        (kind == "table" and not table.columns, f"{shown} has a table: give its columns too"),
        (
            unknown is not None,
            f"{unknown} is not a task; `sublayer tasks` lists "
            f"them{nearest_hint(unknown or '', tuple(TASKS))}",
        ),
    )
    if kind == "ensemble":
        return [Stage(shown, "", ensemble=table.ensemble)]
    from_step = table.from_step
    if from_step is not None and table.after == PRETRAINING:
        from_step = at(from_step)
    settings = table.set
    if kind != "text":
        settings = laid_over(common, settings, overrides.get(FINETUNE, {}))
    groups = [(name,) for name in names] if table.each else [names]
    return [
        Stage(
            name,
            table.after,
            tasks,
            table.table,
            table.columns,
            table.preset,
            laid_over(settings, overrides.get(name, {})),
            n_seeds=table.finetunings,
            from_step=from_step,
        )
        for name, tasks in zip(table.stage_names, groups, strict=True)
    ]


def _with_tasks(study: str, stages: Sequence[Stage], arms: Sequence[str]) -> list[Stage]:
    """Return stages, with ensembles having their members' tasks.

    Raises ConfigError for fewer than two members, and for members of unknown arms, that are not
    stages of tasks, or that differ in tasks or number of fine-tunings.
    """
    by_name = {stage.name: stage for stage in stages if stage.finetunes}
    complete = []
    for stage in stages:
        shown, members = f"{study}: ensemble {stage.name}", []
        for arm, name in stage.members(""):
            check_choice(f"{shown}: ", "arm", arm, ("", *arms))
            check_choice(f"{shown}: ", "stage that learns tasks", name, by_name)
            members.append(by_name[name])
        kinds = [(member.tasks, member.table, member.columns, member.n_seeds) for member in members]
        check_rules(
            shown,
            (
                members and len({*stage.ensemble}) < max(2, len(members)),
                "name at least two stages, each once",
            ),
            (
                any(kind != kinds[0] for kind in kinds),
                "name stages of the same tasks in the same order, with the same finetunings",
            ),
        )
        for first in members[:1]:
            stage = replace(stage, tasks=first.tasks, table=first.table, columns=first.columns)
        complete.append(stage)
    return complete


def _arm(
    study: str,
    arm: ArmTable,
    stages: Sequence[Stage],
    overrides: StageSettings,
    pretrained: Sequence[str],
) -> ArmStages:
    """Return the deviations of an arm, which may start from earlier arms in ``pretrained``."""
    where = f"{study}: arm {arm.name}"
    trained = [stage for stage in stages if not stage.ensemble]
    for name in arm.stages:
        check_choice(f"{where}, settings of ", "trained stage", name, (x.name for x in trained))
    texts = [stage.name for stage in stages if not stage.finetunes]
    check_rules(
        where,
        (
            not arm.pretrain and (texts or arm.start),
            f"it is not pre-trained, and {', '.join(texts) or f'start = {arm.start}'} continues "
            "a pre-training: leave out one of them",
        ),
    )
    if arm.start:
        check_choice(f"{where}, start: ", "earlier arm with a pre-training", arm.start, pretrained)
    by_stage: dict[str, dict[str, Any]] = {}
    for stage in trained:
        common = arm.finetune if stage.finetunes else {}
        by_stage[stage.name] = laid_over(common, arm.stages.get(stage.name, {}))
        for of in (FINETUNE, stage.name):
            check_not_compared(study, overrides.get(of, {}), by_stage[stage.name], f"{of}.")
    return ArmStages(arm.pretrain, arm.start or "", by_stage)


def check_without_stages(path: Path, file: StudyFile, scale: str) -> None:
    """Raise ConfigError for settings that need stages.

    A setting of all scales is valid if another scale has stages.
    """
    table = file.scale[scale] if file.has_stages else file.at(scale)
    names = ("finetune", "tune_finetune", "finetunings", "metrics", "averages")
    idle = {name for name in names if getattr(table, name)}
    for arm in file.at(scale).arms or ():
        idle |= {
            f"{name} of an arm" for name in ("finetune", "stages", "start") if getattr(arm, name)
        }
        idle |= set() if arm.pretrain else {"pretrain = false"}
    which = "it" if len(file.scale) == 1 else f"scale {scale}"
    check_rules(
        f"study {path}",
        (
            idle,
            f"{', '.join(sorted(idle))} has no effect without [[stages]], and {which} has none",
        ),
    )
