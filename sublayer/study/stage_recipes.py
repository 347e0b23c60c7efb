"""The recipes of stages, the keys that their runs are found by, and their trials."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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
from sublayer.data.prepare import Data, find_texts
from sublayer.data.tasks.files import Division, TaskFiles, find_task_files
from sublayer.data.text.splitting import SPLITS
from sublayer.errors import ConfigError, SublayerError
from sublayer.files.cache_folder import cache_folder
from sublayer.files.checkpoints import Input, checkpoint_path
from sublayer.files.parsing import Typed
from sublayer.files.storage import write_file
from sublayer.loading import CHECKPOINTS_NAME
from sublayer.objective.families import family_of
from sublayer.objective.supervised.scores import name_part
from sublayer.runs.inputs import of_identity
from sublayer.runs.start_check import check_start
from sublayer.study.arms import NO_TRIAL, Arm, Trial, make_trials
from sublayer.study.stages import PRETRAINING, Chain, Stage
from sublayer.study.study_file import check_answers

_ORIGIN = "study"


class StageRecipes:
    """The recipes of all stages of all arms, from descriptions of their starts.

    ``arms`` are the recipes of the arms' pre-trainings, by their names; ``tokenizers`` are the
    files of the tokenizers of arms that are not pre-trained, where another arm's pre-training
    trains them.
    """

    def __init__(
        self,
        study: str,
        chain: Chain,
        arms: Mapping[str, LoadedRecipe],
        scratch: Path,
        tokenizers: Mapping[str, str] | None = None,
    ) -> None:
        """Take the pre-trainings' recipes, and an empty folder for the descriptions."""
        self.study = study
        self.chain = chain
        self.arms = arms
        self._tokenizers = tokenizers or {}
        self._planned: dict[tuple[str, str], LoadedRecipe] = {}
        self._folders: dict[str, Path] = {}
        self._scratch = scratch

    def planned(self, arm: str, stage: str) -> LoadedRecipe:
        """Return the recipe of a stage as it is known before its start is trained.

        Of an ensemble it is that of its first member. Raises ConfigError, with the names of arm and
        stage, where it does not fit that.
        """
        if stage == PRETRAINING:
            return self.arms[arm]
        if (arm, stage) not in self._planned:
            own = self.chain.stage(stage)
            if own.ensemble:
                members = [self.planned(*member) for member in own.members(arm)]
                check_answers(self.study, arm, own, members)
                loaded = members[0]
            else:
                start: str | LoadedRecipe | None = self._fresh(arm, own)
                if start is None:
                    self._check_step(arm, own)
                    start = str(self._described(arm, own.after))
                loaded = self._loaded(arm, own, start, check=True)
            self._planned[arm, stage] = loaded
        return self._planned[arm, stage]

    def actual(self, arm: str, stage: str, start: Path) -> LoadedRecipe:
        """Return the recipe of a stage that starts from a run, which has ended.

        ``start`` is the run's folder.
        """
        own = self.chain.stage(stage)
        if own.from_step is not None:
            start = checkpoint_path(start / CHECKPOINTS_NAME, own.from_step)
        return self._loaded(arm, own, self._fresh(arm, own) or str(start), check=False)

    def started(self, arm: str, loaded: LoadedRecipe, run: Path) -> LoadedRecipe:
        """Return an arm's recipe as one that starts from a run of the arm that it names.

        It keeps its own model, whatever the run's is.
        """
        before = self.arms[self.chain.of(arm).start].recipe.model
        kept = {
            f"model.{name}": value
            for name, value in loaded.recipe.model
            if value != getattr(before, name)
        }
        return vary(loaded, {"init.run": str(run), **kept}, origin=_ORIGIN)

    def check_pretraining(self, arm: str, data: Data) -> None:
        """Raise ConfigError where an arm cannot start from the pre-training that it names.

        Also where it is to keep a step that it has not.
        """
        recipe = self.arms[arm].recipe
        epoch_tokens = family_of(recipe.objective).epoch_tokens(recipe, data.train)
        steps = run_steps(recipe, train_tokens=epoch_tokens)
        if steps is not None:
            recipe.train.check_keep_steps(steps)
        start = self.chain.of(arm).start
        if start:
            described = self._described(start, PRETRAINING)
            try:
                check_start(self.started(arm, self.arms[arm], described), "compare")
            except ConfigError as error:
                said = str(error).replace(str(described), start)
                raise ConfigError(f"{self.study}: arm {arm}, start: {said}") from None

    def keys(self, texts_of: Callable[[str, Stage | None], list[Any]]) -> dict[str, dict[str, str]]:
        """Return the keys of the runs of all stages by arm and stage.

        ``texts_of`` tells the data of an arm's stage from others, of its pre-training where the
        stage is None.
        """
        keys: dict[str, dict[str, str]] = {arm: {} for arm in self.arms}
        for arm, loaded in self.arms.items():
            if self.chain.of(arm).pretrains:
                start = self.chain.of(arm).start
                parent = keys[start][PRETRAINING] if start else ""
                texts = texts_of(arm, None)
                keys[arm][PRETRAINING] = stage_key(loaded.recipe, parent, texts)
        for stage in self.chain.stages:
            for arm in self.arms:
                recipe = self.planned(arm, stage.name).recipe
                if stage.ensemble:
                    members = [keys[of][name] for of, name in stage.members(arm)]
                    key = content_key("ensemble", members)
                elif self.starts_fresh(arm, stage):
                    key = stage_key(recipe, "", texts_of(arm, stage))
                else:
                    parent, texts = keys[arm][stage.after], texts_of(arm, stage)
                    key = stage_key(recipe, parent, texts, from_step=stage.from_step)
                keys[arm][stage.name] = key
        return keys

    def starts_fresh(self, arm: str, stage: Stage) -> bool:
        """Return whether an arm's stage starts from random weights."""
        is_first = stage.after == PRETRAINING and not stage.ensemble
        return is_first and not self.chain.of(arm).pretrains

    def _fresh(self, arm: str, stage: Stage) -> LoadedRecipe | None:
        """Return the recipe of which a stage takes the model alone; None where it has a start."""
        if not self.starts_fresh(arm, stage):
            return None
        path = self._tokenizers.get(arm)
        settings = {} if path is None else {"data.tokenizer": path}
        return vary(self.arms[arm], settings, origin=_ORIGIN) if settings else self.arms[arm]

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
        recipe = self.planned(arm, stage).recipe
        model = recipe.model
        if model.max_len is None and position_scheme(model).has_end:
            # The positions that a run of it will have learned.
            model = model.model_copy(update={"max_len": recipe.data.context})
        text = dump_recipe(absolute_paths(recipe.model_copy(update={"model": model})))
        if text not in self._folders:
            folder = self._scratch / f"{stage}-{len(self._folders)}"
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


def stage_trials(recipes: StageRecipes, stage: Stage) -> list[Trial]:
    """Build the trials of a stage, the same for every arm; an empty one where nothing is tuned.

    Raises ConfigError as ``make_trials`` does.
    """
    chain = recipes.chain
    if not chain.tune or not stage.finetunes or stage.ensemble:
        return [NO_TRIAL]
    planned = [
        Arm(arm, recipes.planned(arm, stage.name), chain.of(arm).settings.get(stage.name, {}))
        for arm in recipes.arms
    ]
    return make_trials(planned, chain.tune, stage=stage.name)


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


def check_kept_steps(recipes: StageRecipes, trials: Mapping[str, Sequence[Trial]]) -> None:
    """Raise ConfigError where a stage of tasks is to keep a step that its run, or a trial, lacks.

    ``trials`` are by stage.
    """
    for stage in recipes.chain.stages:
        for arm in recipes.arms if stage.finetunes and not stage.ensemble else ():
            planned = recipes.planned(arm, stage.name)
            for recipe in (trial.of(planned).recipe for trial in trials[stage.name]):
                steps = steps_of_tasks(recipe) if recipe.train.keep_steps else None
                try:
                    if steps is not None:
                        recipe.train.check_keep_steps(steps)
                except ConfigError as error:
                    raise ConfigError(
                        f"{recipes.study}: arm {arm}, stage {stage.name}: {error}"
                    ) from None


class ScoredTask(Typed):
    """A task, as far as its columns take from it."""

    name: str
    title: str
    metrics: tuple[str, ...]


class Part(Typed):
    """A scored part of a stage of tasks."""

    name: str
    """Its task, or of several parts of one task also the part: see ``part_name``."""
    task: ScoredTask


ByStage = dict[str, dict[str, list[Input]]]


def find_keys(
    recipes: StageRecipes, data: Mapping[str, Data]
) -> tuple[dict[str, dict[str, str]], ByStage, dict[str, tuple[Part, ...]]]:
    """Find the keys of all stages, their files and texts, and the parts that tasks are scored on.

    Keys and files are by arm and stage, without those of pre-trainings, whose ``data`` are
    prepared; parts are by stage. Raises ConfigError and DataError for recipes that do not fit
    together and tasks without files.
    """
    chain = recipes.chain
    inputs: ByStage = {}
    parts: dict[str, tuple[Part, ...]] = {}

    def texts_of(arm: str, stage: Stage | None) -> Any:
        if stage is None:
            recipes.check_pretraining(arm, data[arm])
            return data[arm].checksums
        recipe = recipes.planned(arm, stage.name).recipe
        tokenizer = recipe.data.tokenizer
        if tokenizer not in TOKENIZERS and Path(tokenizer).is_file():
            tokenizer = file_digest(Path(tokenizer), cache_folder())
        # One that is trained follows from the recipe.
        texts: dict[str, Any] = {}
        if recipes.starts_fresh(arm, stage):
            texts["tokenizer"] = tokenizer
        identities, scored = _stage_texts(recipe, stage)
        if stage.finetunes:
            parts[stage.name] = scored
        listed = [pair for identity in identities for pair in identity]
        inputs.setdefault(arm, {})[stage.name] = [
            of_identity(name, each) for name, each in (*texts.items(), *listed)
        ]
        of_files = [[each for _, each in identity] for identity in identities]
        of_texts = [each for _, each in listed]
        return [*texts.values(), *(of_files if stage.finetunes else of_texts)]

    keys = recipes.keys(texts_of)
    for stage in chain.stages:
        if stage.ensemble:
            parts[stage.name] = parts[stage.before[0]]
            for arm in recipes.arms:
                _check_members(recipes, arm, stage, keys)
    return keys, inputs, parts


def _stage_texts(
    recipe: Recipe, stage: Stage
) -> tuple[list[list[tuple[str, Any]]], tuple[Part, ...]]:
    """Identify the splits of each of a stage's tasks, or of its text, by name; with its parts.

    Raises ConfigError and DataError, with the name of the stage, where files are missing, and where
    nothing is left to train on.
    """
    try:
        if stage.finetunes:
            files = find_task_files(recipe.data, cache_folder())
            parts = tuple(_parts(recipe, files))
            identities = [
                [(f"{file.task.name}.{split}", file.identity(split)) for split in file.found]
                for file in files
            ]
            return identities, parts
        is_utf8 = recipe.data.tokenizer != "bytes"
        texts = find_texts(recipe.data, cache_folder(), is_utf8=is_utf8)
        return [[(name, texts.identity(name)) for name in SPLITS if texts.has(name)]], ()
    except SublayerError as error:
        raise type(error)(f"stage {stage.name}: {error}") from None


def _check_members(
    recipes: StageRecipes, arm: str, stage: Stage, keys: Mapping[str, Mapping[str, str]]
) -> None:
    """Raise ConfigError where members of an ensemble are the same, or scored on other rows."""
    shown = f"{recipes.study}: arm {arm}, ensemble {stage.name}"
    firsts: dict[str, str] = {}
    scored: list[list[Any]] = []
    for name, (of, member) in zip(stage.ensemble, stage.members(arm), strict=True):
        first = firsts.setdefault(keys[of][member], name)
        if first != name:
            raise ConfigError(
                f"{shown}: {first} and {name} are the same training from the same start: an "
                "ensemble is of runs that differ"
            )
        recipe = recipes.planned(of, member).recipe
        rows = []
        for file in find_task_files(recipe.data, cache_folder()):
            for chosen in Division(recipe.data, file).scored:
                places = None if chosen.examples is None else chosen.examples.tolist()
                rows.append([file.task.name, chosen.split, file.identity(chosen.split), places])
        scored.append(rows)
    for name, rows in zip(stage.ensemble, scored, strict=True):
        if rows != scored[0]:
            raise ConfigError(
                f"{shown}: {name} is scored on other rows than {stage.ensemble[0]}: give both the "
                "same files (data.path), divided alike"
            )


def _parts(recipe: Recipe, files: Sequence[TaskFiles]) -> Iterator[Part]:
    """Yield the scored parts of tasks; raise where nothing is left to train on."""
    for file in files:
        division = Division(recipe.data, file)
        splits = [chosen.split for chosen in division.scored]
        # Raises where nothing would be left for them.
        _ = division.trained, division.selecting
        task, title = file.task, file.task.title
        if recipe.data.score_on == "test":
            title = f"{title} test"
        kept = ScoredTask(name=task.name, title=title, metrics=tuple(task.metrics))
        for split in splits:
            yield Part(name=name_part(task.name, split, len(splits)), task=kept)
