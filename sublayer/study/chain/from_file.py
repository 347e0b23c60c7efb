"""The chain of a study's file: its stages with the settings of a scale and of the command line."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sublayer.config.fields.catalog import TABLES
from sublayer.config.layering.overrides import override_layer
from sublayer.config.presets import DEFAULT
from sublayer.config.text.own_table import OwnColumns
from sublayer.errors import ConfigError
from sublayer.nearest import nearest_hint
from sublayer.study.chain.ensembles import check_table, check_untold, with_tasks
from sublayer.study.chain.stages import (
    FINETUNE,
    PRETRAINING,
    ArmStages,
    Chain,
    Member,
    Stage,
    in_order,
    laid_over,
)
from sublayer.study.study_file import ArmTable, StageTable, StudyFile, flatten
from sublayer.tasks.registry import TASKS

Overrides = Sequence[str] | Mapping[str, Any]
_OF_STAGES = ("finetune", "tune_finetune", "finetunings", "metrics", "averages")
"""What a study, or a scale of it, says of stages alone."""
_KINDS = ("tasks", "each", "table", "ensemble")
"""What a stage may be of: one of them."""


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
    """Raise ConfigError for a setting ``NAME.TABLE.FIELD`` of what is no stage."""
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

    ``overrides`` are those of stages, ``tune`` is what is tried in stages of tasks, ``at`` moves a
    step of the pre-training into a shorter one. Raises
    ConfigError for stages that do not fit together, and settings of what is no stage.
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
    """Return what a table's only stage is called: its name, its tasks' or its file's."""
    return table.name or "-".join(_names(table)) or Path(table.table or "").name.partition(".")[0]


def _names(table: StageTable) -> list[str]:
    if table.each is not None:
        return table.each
    if table.tasks is None:
        return []
    return [table.tasks] if isinstance(table.tasks, str) else list(table.tasks)


def _member(member: str | list[str]) -> Member:
    return member if isinstance(member, str) else tuple(member)
