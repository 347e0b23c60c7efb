"""What the runs of stages are found by, and what tasks their files score: before any is trained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import run_steps
from sublayer.config.text.tokenizers import TOKENIZERS
from sublayer.data.cache import file_digest
from sublayer.data.prepare import Data
from sublayer.data.tasks.division import Division
from sublayer.data.tasks.table_files import find_task_files
from sublayer.data.tasks.task_files import TaskFiles
from sublayer.data.text.splitting import SPLITS
from sublayer.data.texts import find_texts
from sublayer.errors import ConfigError, SublayerError
from sublayer.files.cache_folder import cache_folder
from sublayer.files.saved_record import Input
from sublayer.objective.families import family_of
from sublayer.objective.supervised.scores import name_part
from sublayer.runs.inputs import of_identity
from sublayer.study.chain.recipes import StageRecipes, ensemble_key, stage_key
from sublayer.study.chain.stages import PRETRAINING, Stage
from sublayer.study.names import LONGEST_PART, in_path
from sublayer.tasks.task import Task


@dataclass(frozen=True)
class Keys:
    """What the stages of arms are found by: by arm and stage."""

    by_stage: Mapping[tuple[str, str], str]
    inputs: Mapping[tuple[str, str], list[Input]] = field(default_factory=dict)
    """The files and texts of each stage but pre-trainings, whose data are prepared."""

    def of(self, arm: str, stage: str) -> str:
        """Return the key of an arm's stage."""
        return self.by_stage[arm, stage]

    def distinct(self, stage: str) -> set[str]:
        """Return the keys that a stage has in any arm."""
        return {key for (_, own), key in self.by_stage.items() if own == stage}

    def folder(self, study: Path, arm: str, stage: str) -> Path:
        """Return the folder of the runs of an arm's stage."""
        return study / "stages" / f"{in_path(stage)[:LONGEST_PART]}-{self.of(arm, stage)[:10]}"


class ScoredTask(Protocol):
    """What the columns of a task's scores take from it."""

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def title(self) -> str: ...  # noqa: D102

    @property
    def metrics(self) -> tuple[str, ...]: ...  # noqa: D102


class ScoredPart(Protocol):
    """A part as columns take it."""

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def task(self) -> ScoredTask: ...  # noqa: D102


@dataclass(frozen=True)
class Part:
    """What a stage of tasks is scored on."""

    name: str
    """Its task, or of several parts of one task also the part: see ``part_name``."""
    task: Task


def find_keys(
    recipes: StageRecipes, arms: Sequence[str], data: Mapping[str, Data]
) -> tuple[Keys, dict[str, list[Part]]]:
    """Find the keys of all stages of arms, and the parts that each stage of tasks is scored on.

    ``data`` are those of the arms' pre-trainings. Raises ConfigError and DataError for recipes that
    do not fit together and tasks without files.
    """
    by_stage: dict[tuple[str, str], str] = {}
    inputs: dict[tuple[str, str], list[Input]] = {}
    parts: dict[str, list[Part]] = {}
    chain = recipes.chain
    for arm in arms:
        if chain.of(arm).pretrains:
            recipe = recipes.planned(arm, PRETRAINING).recipe
            _check_kept(recipe, data[arm])
            recipes.check_start_of(arm)
            start = chain.of(arm).start
            parent = by_stage[start, PRETRAINING] if start else ""
            by_stage[arm, PRETRAINING] = stage_key(recipe, parent, data[arm].checksums)
    for stage in chain.stages:
        for arm in arms:
            recipe = recipes.planned(arm, stage.name).recipe
            if stage.ensemble:
                keys = [by_stage[member] for member in stage.members(arm)]
                _check_members(recipes, arm, stage, keys)
                by_stage[arm, stage.name] = ensemble_key(keys)
                parts[stage.name] = parts[stage.before[0]]
                continue
            fresh = recipes.starts_fresh(arm, stage.name)
            parent = "" if fresh else by_stage[arm, stage.after]
            texts = _tokenizer(recipe) if fresh else []
            own = inputs[arm, stage.name] = [of_identity("tokenizer", each) for each in texts]
            if stage.finetunes:
                files = _files(recipe, stage)
                parts[stage.name] = _parts(recipe, files, stage)
                texts += [[each.identity(split) for split in each.found] for each in files]
                for each in files:
                    for split in each.found:
                        own.append(of_identity(f"{each.task.name}.{split}", each.identity(split)))
            else:
                identities = _identity(recipe, stage)
                texts += identities.values()
                own += [of_identity(name, each) for name, each in identities.items()]
            step = None if fresh else stage.from_step
            by_stage[arm, stage.name] = stage_key(recipe, parent, texts, from_step=step)
    return Keys(by_stage, inputs), parts


def _check_kept(recipe: Recipe, data: Data) -> None:
    """Raise ConfigError where a pre-training is to keep a step that it has not."""
    epoch_tokens = family_of(recipe.objective).epoch_tokens(recipe, data.train)
    steps = run_steps(recipe, train_tokens=epoch_tokens)
    if steps is not None:
        recipe.train.check_keep_steps(steps)


def _check_members(recipes: StageRecipes, arm: str, stage: Stage, keys: Sequence[str]) -> None:
    """Raise ConfigError where members of an ensemble are the same, or scored on other rows.

    ``keys`` are what their runs are found by.
    """
    shown = f"{recipes.study}: arm {arm}, ensemble {stage.name}"
    named = dict(zip(stage.ensemble, keys, strict=True))
    firsts: dict[str, str] = {}
    for name, key in named.items():
        first = firsts.setdefault(key, name)
        if first != name:
            raise ConfigError(
                f"{shown}: {first} and {name} are the same training from the same start: an "
                "ensemble is of runs that differ"
            )
    scored = {}
    for name, member in zip(stage.ensemble, stage.members(arm), strict=True):
        scored[name] = _scored(recipes.planned(*member).recipe, stage)
    first, *others = scored
    for name in others:
        if scored[name] != scored[first]:
            raise ConfigError(
                f"{shown}: {name} is scored on other rows than {first}: give both the same files "
                "(data.path), divided alike"
            )


def _scored(recipe: Recipe, stage: Stage) -> list[Any]:
    """Return what tells the rows that a recipe is scored on."""
    rows = []
    for each in _files(recipe, stage):
        for chosen in Division(recipe.data, each).scored:
            places = None if chosen.examples is None else chosen.examples.tolist()
            rows.append([each.task.name, chosen.split, each.identity(chosen.split), places])
    return rows


def _identity(recipe: Recipe, stage: Stage) -> dict[str, list[Any]]:
    """Return by split what tells the text of a stage that goes on with one."""
    try:
        texts = find_texts(recipe.data, cache_folder(), is_utf8=recipe.data.tokenizer != "bytes")
    except SublayerError as error:
        raise type(error)(f"stage {stage.name}: {error}") from None
    return {name: texts.identity(name) for name in SPLITS if texts.has(name)}


def _files(recipe: Recipe, stage: Stage) -> list[TaskFiles]:
    try:
        return find_task_files(recipe.data, cache_folder())
    except SublayerError as error:
        raise type(error)(f"stage {stage.name}: {error}") from None


def _parts(recipe: Recipe, files: Sequence[TaskFiles], stage: Stage) -> list[Part]:
    """Return what is scored of tasks, of each of which something is left to train on."""
    parts = []
    for each in files:
        division = Division(recipe.data, each)
        try:
            splits = [chosen.split for chosen in division.scored]
            # Raises where nothing would be left for them.
            _ = division.trained, division.selecting
        except SublayerError as error:
            raise type(error)(f"stage {stage.name}: {error}") from None
        task = each.task
        if recipe.data.score_on == "test":
            task = replace(task, title=f"{task.title} test")
        parts += [Part(name_part(task.name, split, len(splits)), task) for split in splits]
    return parts


def _tokenizer(recipe: Recipe) -> list[Any]:
    """Return what tells a tokenizer of a file; one that is trained follows from the recipe."""
    tokenizer = recipe.data.tokenizer
    if tokenizer in TOKENIZERS or not Path(tokenizer).is_file():
        return [tokenizer]
    return [file_digest(Path(tokenizer), cache_folder())]
