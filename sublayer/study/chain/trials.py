"""What is tried in a stage of tasks, and how long its runs are: before any is trained."""

from collections.abc import Mapping, Sequence

from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import run_steps
from sublayer.data.tasks.division import Division
from sublayer.data.tasks.table_files import find_task_files
from sublayer.errors import ConfigError
from sublayer.files.cache_folder import cache_folder
from sublayer.study.chain.recipes import StageRecipes
from sublayer.study.chain.stages import Stage
from sublayer.study.tuning import Trial, make_stage_trials


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
