"""Stages that are ensembles: of which others they are, and what is refused of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sublayer.config.layering.layers import LoadedRecipe
from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.config.task_heads import expected_tasks
from sublayer.errors import ConfigError
from sublayer.nearest import nearest_hint
from sublayer.study.chain.stages import PRETRAINING, Stage, member_of
from sublayer.study.study_file import StageTable
from sublayer.tasks.formats.text import has_ranks

_OF_TRAINING = ("after", "from_step", "preset", "set")


def check_table(study: str, table: StageTable) -> None:
    """Raise ConfigError for what an entry of ``[[stages]]`` says beside ``ensemble``."""
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
        written = [task.title for task in tasks if not has_ranks(task)]
        if written or objective.answer != "rank":
            remedy = "objective.answer = rank has it rank the labels"
            if written:
                remedy = f"{', '.join(written)} has no labels to rank"
            raise ConfigError(
                f"{study}: arm {arm}, ensemble {stage.name}: {name} writes its answers as text, "
                f"which cannot be averaged: {remedy}"
            )
