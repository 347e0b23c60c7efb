"""The recipes of stages: as they will be, before anything is trained, and as they are."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from sublayer.config.architecture.derived import position_scheme
from sublayer.config.fields.catalog import HEADINGS
from sublayer.config.layering.finetune import load_finetune
from sublayer.config.layering.layers import LoadedRecipe, vary
from sublayer.config.layering.paths import absolute_paths
from sublayer.config.layering.run_recipe import dump_recipe
from sublayer.config.layering.sources import RUN_RECIPE
from sublayer.config.recipe import Recipe
from sublayer.config.text.tokenizers import TOKENIZERS
from sublayer.config.train import OF_A_RUN
from sublayer.data.cache import content_key
from sublayer.errors import ConfigError
from sublayer.files.checkpoints import checkpoint_path
from sublayer.files.storage import write_file
from sublayer.loading import CHECKPOINTS_NAME
from sublayer.runs.start_check import check_start
from sublayer.study.chain.ensembles import check_answers
from sublayer.study.chain.stages import PRETRAINING, Chain, Stage

_ORIGIN = "study"


@dataclass
class StageRecipes(AbstractContextManager["StageRecipes"]):
    """The recipes of all stages of all arms, each from a description of what it starts from.

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
        """Return the recipe of a stage as it is known before what it starts from is trained.

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
        """Return a folder that describes what a stage leaves, as that of a run does."""
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
    """Return what the runs of a stage are found by: its recipe, what it starts from, its data.

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
    """Return what the runs of an ensemble are found by; ``members`` are its stages' keys."""
    return content_key("ensemble", list(members))


def _as_trained(recipe: Recipe) -> Recipe:
    """Return a recipe with the positions that a run of it will have learned."""
    model = recipe.model
    if model.max_len is None and position_scheme(model).has_end:
        model = model.model_copy(update={"max_len": recipe.data.context})
    return absolute_paths(recipe.model_copy(update={"model": model}))
