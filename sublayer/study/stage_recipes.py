"""The recipes of stages, the keys that their runs are found by, and their trials."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Protocol, Self

from sublayer.config.catalog import HEADINGS
from sublayer.config.finetune import load_finetune
from sublayer.config.load import LoadedRecipe, vary
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import run_steps
from sublayer.config.run_recipe import absolute_paths, dump_recipe
from sublayer.config.sources import RUN_RECIPE
from sublayer.config.stacks import position_scheme
from sublayer.config.texts import TOKENIZERS
from sublayer.config.train import OF_A_RUN
from sublayer.data.cache import content_key, file_digest
from sublayer.data.prepare import Data
from sublayer.data.tasks.division import Division
from sublayer.data.tasks.table_files import find_task_files
from sublayer.data.tasks.task_files import TaskFiles
from sublayer.data.text.splitting import SPLITS
from sublayer.data.texts import find_texts
from sublayer.errors import ConfigError, SublayerError
from sublayer.files.cache_folder import cache_folder
from sublayer.files.checkpoints import Input, checkpoint_path
from sublayer.files.storage import write_file
from sublayer.loading import CHECKPOINTS_NAME
from sublayer.objective.families import family_of
from sublayer.objective.supervised.scores import name_part
from sublayer.runs.inputs import of_identity
from sublayer.runs.start_check import check_start
from sublayer.study.arms import LONGEST_PART, Trial, in_path, make_stage_trials
from sublayer.study.stages import PRETRAINING, Chain, Stage
from sublayer.study.study_file import check_answers
from sublayer.tasks.task import Task

_ORIGIN = "study"


@dataclass
class StageRecipes(AbstractContextManager["StageRecipes"]):
    """The recipes of all stages of all arms, from descriptions of their starts.

    ``arms`` are the recipes of the arms' pre-trainings, by their names; ``tokenizer`` is the file
    of the tokenizer of an arm that is not pre-trained, where another arm's pre-training trains it.
    """

    study: str
    chain: Chain
    arms: Mapping[str, LoadedRecipe]
    tokenizers: Mapping[str, str] = field(default_factory=dict)
    _planned: dict[tuple[str, str], LoadedRecipe] = field(default_factory=dict)
    _folders: dict[str, Path] = field(default_factory=dict)

    def __enter__(self) -> Self:
        """Make the folder of descriptions."""
        self._scratch = TemporaryDirectory(prefix="sublayer-chain-")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the folder of descriptions away."""
        self._scratch.cleanup()

    def planned(self, arm: str, stage: str) -> LoadedRecipe:
        """Return the recipe of a stage as it is known before its start is trained.

        Of an ensemble it is that of its first member. Raises ConfigError, with the names of arm and
        stage, where it does not fit that.
        """
        if stage == PRETRAINING:
            return self.arms[arm]
        key = arm, stage
        own = self.chain.stage(stage)
        if own.ensemble and key not in self._planned:
            members = [self.planned(*member) for member in own.members(arm)]
            check_answers(self.study, arm, own, members)
            self._planned[key] = members[0]
        if key not in self._planned:
            start = self._start(arm, own)
            if start is None:
                self._check_step(arm, own)
            described = (
                start if isinstance(start, LoadedRecipe) else str(self._described(arm, own.after))
            )
            self._planned[key] = self._loaded(arm, own, described, check=True)
        return self._planned[key]

    def actual(self, arm: str, stage: str, start: Path) -> LoadedRecipe:
        """Return the recipe of a stage that starts from a run, which has ended.

        ``start`` is the run's folder.
        """
        own = self.chain.stage(stage)
        fresh = self._start(arm, own)
        if own.from_step is not None:
            start = checkpoint_path(start / CHECKPOINTS_NAME, own.from_step)
        return self._loaded(arm, own, fresh or str(start), check=False)

    def check_start_of(self, arm: str) -> None:
        """Raise ConfigError where an arm cannot start from the pre-training that it names."""
        start = self.chain.of(arm).start
        if start:
            described = self._described(start, PRETRAINING)
            try:
                check_start(self.started(arm, self.arms[arm], described), "compare")
            except ConfigError as error:
                said = str(error).replace(str(described), start)
                raise ConfigError(f"{self.study}: arm {arm}, start: {said}") from None

    def started(self, arm: str, loaded: LoadedRecipe, run: Path) -> LoadedRecipe:
        """Return an arm's recipe as one that starts from a run of the arm that it names.

        It keeps its own model, whatever the run's is.
        """
        before = self.arms[self.chain.of(arm).start].recipe.model
        own = {
            f"model.{name}": value
            for name, value in loaded.recipe.model
            if value != getattr(before, name)
        }
        return vary(loaded, {"init.run": str(run), **own}, origin=_ORIGIN)

    def starts_fresh(self, arm: str, stage: str) -> bool:
        """Return whether an arm's stage starts from random weights."""
        if stage == PRETRAINING or self.chain.stage(stage).ensemble:
            return False
        return self._start(arm, self.chain.stage(stage)) is not None

    def _start(self, arm: str, stage: Stage) -> LoadedRecipe | None:
        """Return the recipe of which a stage takes the model alone; None where it has a start."""
        if stage.after != PRETRAINING or self.chain.of(arm).pretrains:
            return None
        loaded = self.arms[arm]
        path = self.tokenizers.get(arm)
        if path is None:
            return loaded
        return vary(loaded, {"data.tokenizer": path}, origin=_ORIGIN)

    def _check_step(self, arm: str, stage: Stage) -> None:
        """Raise ConfigError where a stage starts from a checkpoint that is not kept."""
        kept = self.planned(arm, stage.after).recipe.train.keep_steps
        if stage.from_step is None or stage.from_step in kept:
            return
        told = f"which keeps those of {', '.join(map(str, kept))}" if kept else "which keeps none"
        of = "" if stage.after == PRETRAINING else f"{stage.after}."
        raise ConfigError(
            f"{self.study}: arm {arm}, stage {stage.name} starts from step {stage.from_step} of "
            f"{stage.after}, {told}: add it there, {of}train.keep_steps=[{stage.from_step}]"
        )

    def _described(self, arm: str, stage: str) -> Path:
        """Return a folder that describes the model of a stage, as the folder of a run does."""
        text = dump_recipe(_as_trained(self.planned(arm, stage).recipe))
        if text not in self._folders:
            folder = Path(self._scratch.name) / f"{stage}-{len(self._folders)}"
            folder.mkdir()
            write_file(folder / RUN_RECIPE, text)
            self._folders[text] = folder
        return self._folders[text]

    def _loaded(
        self, arm: str, stage: Stage, start: str | LoadedRecipe, *, check: bool
    ) -> LoadedRecipe:
        settings = self.chain.settings_of(arm, stage)
        try:
            if stage.finetunes:
                loaded = load_finetune(
                    start,
                    stage.tasks,
                    stage.table or self.chain.data,
                    settings,
                    preset=stage.preset,
                    columns=stage.columns,
                ).loaded
            else:
                assert isinstance(start, str), "what goes on with a text starts from a model"
                before = self.planned(arm, stage.after)
                told = {"init.run": start, "train.keep_steps": [], **settings}
                loaded = vary(before, told, origin=_ORIGIN)
            if check:
                check_start(loaded, "compare")
        except ConfigError as error:
            said = str(error).replace(str(start), stage.after) if isinstance(start, str) else error
            raise ConfigError(f"{self.study}: arm {arm}, stage {stage.name}: {said}") from None
        return loaded


_CAME_LATER = (
    *(("data", "keep_accents"), ("data", "score_on"), ("data", "special_tokens")),
    *(("objective", "bleu_tokenizer"), ("train", "patience")),
)
"""Fields without which, where they are unset, the runs of a stage are found as before them."""


def stage_key(recipe: Recipe, parent: str, texts: Any, *, from_step: int | None = None) -> str:
    """Return the key of the runs of a stage: of its recipe, its start and its data.

    Where files lie, and what changes no number, is left out. ``parent`` is the key of the stage
    before, ``from_step`` the checkpoint of it, ``texts`` is JSON that identifies the data's
    content.
    """
    content = absolute_paths(recipe).model_dump(mode="json", exclude=set(HEADINGS))
    # Which steps a run keeps is no such field: it changes what others start from.
    for name in OF_A_RUN:
        content["train"].pop(name, None)
    if not recipe.train.keep_steps:
        # As runs were found before there were any.
        content["train"].pop("keep_steps")
    for table, name in _CAME_LATER:
        if content[table].get(name) is None:
            content[table].pop(name, None)
    for name in list(content["data"]):
        if name == "path" or name.endswith("_path"):
            content["data"].pop(name)
    if recipe.data.tokenizer not in TOKENIZERS:
        content["data"].pop("tokenizer")
    content["init"].pop("run")
    if from_step is not None:
        parent = f"{parent} at step {from_step}"
    return content_key("stage", content, parent, texts)


def ensemble_key(members: Sequence[str]) -> str:
    """Return the key of the runs of an ensemble; ``members`` are its stages' keys."""
    return content_key("ensemble", list(members))


def _as_trained(recipe: Recipe) -> Recipe:
    """Return a recipe with the positions that a run of it will have learned."""
    model = recipe.model
    if model.max_len is None and position_scheme(model).has_end:
        model = model.model_copy(update={"max_len": recipe.data.context})
    return absolute_paths(recipe.model_copy(update={"model": model}))


def stage_trials(recipes: StageRecipes, arms: Sequence[str], stage: Stage) -> list[Trial]:
    """Build the trials of a stage, the same for every arm; an empty one where nothing is tuned.

    Raises ConfigError as ``make_stage_trials`` does.
    """
    chain = recipes.chain
    tune = chain.tune if stage.finetunes and not stage.ensemble else ()
    planned = {arm: recipes.planned(arm, stage.name) for arm in arms}
    own = {arm: chain.of(arm).settings.get(stage.name, {}) for arm in arms}
    return make_stage_trials(stage.name, planned, own, tune)


def steps_of_tasks(recipe: Recipe) -> int | None:
    """Count the steps of a fine-tuning by its rows; None where they depend on their tokens.

    Raises DataError where their files are not those that are needed.
    """
    if recipe.train.steps is not None:
        return recipe.train.steps
    if recipe.train.batch_tokens is not None:
        return None
    n_examples = 0
    for each in find_task_files(recipe.data, cache_folder()):
        chosen = Division(recipe.data, each).trained.examples
        n_examples += 0 if chosen is None else int(chosen.sum())
    return run_steps(recipe, train_tokens=n_examples * recipe.data.context)


def check_kept_steps(
    recipes: StageRecipes, arms: Sequence[str], trials: Mapping[str, Sequence[Trial]]
) -> None:
    """Raise ConfigError where a stage of tasks is to keep a step that its run, or a trial, lacks.

    ``trials`` are by stage.
    """
    for stage in recipes.chain.stages:
        if not stage.finetunes or stage.ensemble:
            continue
        for arm in arms:
            planned = recipes.planned(arm, stage.name)
            for trial in trials[stage.name]:
                recipe = trial.of(planned).recipe
                if not recipe.train.keep_steps:
                    continue
                steps = steps_of_tasks(recipe)
                try:
                    if steps is not None:
                        recipe.train.check_keep_steps(steps)
                except ConfigError as error:
                    raise ConfigError(
                        f"{recipes.study}: arm {arm}, stage {stage.name}: {error}"
                    ) from None


@dataclass(frozen=True)
class Keys:
    """The keys of the stages of arms."""

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
    """A task as columns read it."""

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
    """A scored part of a stage of tasks."""

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
            own = inputs[arm, stage.name] = [of_identity("tokenizer", text) for text in texts]
            if stage.finetunes:
                files = _files(recipe, stage)
                parts[stage.name] = _parts(recipe, files, stage)
                texts += [[file.identity(split) for split in file.found] for file in files]
                for file in files:
                    for split in file.found:
                        own.append(of_identity(f"{file.task.name}.{split}", file.identity(split)))
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
    """Return the scored parts of tasks; raise where nothing is left to train on."""
    parts = []
    for file in files:
        division = Division(recipe.data, file)
        try:
            splits = [chosen.split for chosen in division.scored]
            # Raises where nothing would be left for them.
            _ = division.trained, division.selecting
        except SublayerError as error:
            raise type(error)(f"stage {stage.name}: {error}") from None
        task = file.task
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
