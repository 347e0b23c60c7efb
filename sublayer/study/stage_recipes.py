"""Stages made ready to run: recipes, keys of their runs, trials, and their plan, ``chain.json``."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from sublayer.config.data import TOKENIZERS
from sublayer.config.finetune import load_finetune
from sublayer.config.layers import RUN_RECIPE
from sublayer.config.load import LoadedRecipe, absolute_paths, dump_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.objective import SupervisedObjective
from sublayer.config.recipe import HEADINGS, Recipe
from sublayer.config.resolve import expected_tasks, run_steps
from sublayer.config.stacks import position_scheme
from sublayer.config.table import MOST_FINETUNINGS, MOST_STEPS
from sublayer.config.train import OF_A_RUN
from sublayer.data.prepare import Data, find_texts
from sublayer.data.tasks.prepare import TaskDivision, TaskFiles, find_task_files
from sublayer.data.text.ranges import SPLITS
from sublayer.errors import ConfigError, SublayerError, check_rules
from sublayer.files.cache_folder import cache_folder, content_key, file_digest
from sublayer.files.checkpoints import Input, checkpoint_path
from sublayer.files.parsing import Count, Typed, check_typed, read_json
from sublayer.files.storage import expanded, write_file, write_json
from sublayer.loading import CHECKPOINTS_NAME
from sublayer.objective.base import KINDS, family_of
from sublayer.objective.supervised.scores import name_part
from sublayer.runs.folder import check_start
from sublayer.runs.resume import check_same_inputs, of_checksums
from sublayer.study.arms import (
    LONGEST_PART,
    NO_TRIAL,
    PRETRAINING,
    TUNING_NUMBER,
    Arm,
    ArmFacts,
    Chain,
    Stage,
    Trial,
    differing_stages,
    in_path,
    make_trials,
)
from sublayer.study.budget import Measures
from sublayer.study.plan_file import StudyPlan
from sublayer.system.terminal import note
from sublayer.tasks.metrics import METRICS
from sublayer.tasks.registry import wording_of

_ORIGIN = "study"


class StageRecipes:
    """The recipes of all stages of all arms, from descriptions of their starts.

    ``arms`` are the recipes of the arms' pre-trainings, by arm; ``tokenizers`` are the tokenizer
    files of arms without pre-training, if another arm's pre-training trains them.
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
        self._planned = {(arm, PRETRAINING): loaded for arm, loaded in arms.items()}
        self._folders: dict[str, Path] = {}
        self._scratch = scratch

    def planned(self, arm: str, stage: str) -> LoadedRecipe:
        """Return the recipe of a stage as known before its start is trained.

        An ensemble has its first member's. Raises ConfigError, with the names of arm and stage, if
        it does not fit its start.
        """
        if (arm, stage) not in self._planned:
            spec, where = self.chain.stage(stage), f"{self.study}: arm {arm}, stage {stage}"
            members = [self.planned(*member) for member in spec.members(arm)]
            for name, loaded in zip(spec.ensemble, members, strict=True):
                objective = loaded.recipe.objective
                assert isinstance(objective, SupervisedObjective), "members are stages of tasks"
                tasks = expected_tasks(loaded.recipe.data) if objective.format == "text" else ()
                written = [task.title for task in tasks if not wording_of(task).has_ranks]
                remedy = "give objective.answer = rank to rank the labels"
                if written:
                    remedy = f"{', '.join(written)} has no labels to rank"
                writes = objective.format == "text" and objective.answer != "rank"
                check_rules(
                    where,
                    (
                        written or writes,
                        f"{name} writes its answers as text, which cannot be averaged: {remedy}",
                    ),
                )
            if not members:
                start = None
                if self.chain.starts(arm, spec):
                    steps = self.planned(arm, spec.after).recipe.train.keep_steps
                    of = "" if spec.after == PRETRAINING else f"{spec.after}."
                    check_rules(
                        where,
                        (
                            spec.from_step not in (None, *steps),
                            f"it starts from step {spec.from_step} of {spec.after}, which keeps "
                            f"{', '.join(map(str, steps)) or 'none'}: add it with "
                            f"{of}train.keep_steps=[{spec.from_step}]",
                        ),
                    )
                    start = self._described(arm, spec.after)
                with _placed(where, start, spec.after):
                    members = [self._loaded(arm, spec, start)]
                    check_start(members[0], "compare")
            self._planned[arm, stage] = members[0]
        return self._planned[arm, stage]

    def actual(self, arm: str, stage: str, start: Path) -> LoadedRecipe:
        """Return the recipe of a stage that starts from an ended run.

        ``start`` is the run's folder.
        """
        spec = self.chain.stage(stage)
        if spec.from_step is not None:
            start = checkpoint_path(start / CHECKPOINTS_NAME, spec.from_step)
        with _placed(f"{self.study}: arm {arm}, stage {stage}", start, spec.after):
            return self._loaded(arm, spec, start if self.chain.starts(arm, spec) else None)

    def started(self, arm: str, loaded: LoadedRecipe, run: Path) -> LoadedRecipe:
        """Return an arm's recipe, starting from a run of its start arm.

        It keeps its model, whatever the run's.
        """
        before = self.arms[self.chain.of(arm).start].recipe.model
        model = {
            f"model.{name}": value
            for name, value in loaded.recipe.model
            if value != getattr(before, name)
        }
        return loaded.vary({"init.run": str(run), **model}, origin=_ORIGIN)

    def check_pretraining(self, arm: str, data: Data) -> None:
        """Raise ConfigError if an arm cannot start from its start arm's pre-training.

        Also if it is to keep a missing step.
        """
        recipe = self.arms[arm].recipe
        epoch_tokens = family_of(recipe.objective).epoch_tokens(recipe, data.train)
        steps = run_steps(recipe, train_tokens=epoch_tokens)
        if steps is not None:
            recipe.train.check_keep_steps(steps)
        start = self.chain.of(arm).start
        if start:
            described = self._described(start, PRETRAINING)
            with _placed(f"{self.study}: arm {arm}, start", described, start):
                check_start(self.started(arm, self.arms[arm], described), "compare")

    def keys(self, texts_of: Callable[[str, Stage], Any]) -> dict[str, dict[str, str]]:
        """Return the keys of the runs of all stages by arm and stage.

        ``texts_of`` identifies the data of an arm's stage, as JSON.
        """
        keys: dict[str, dict[str, str]] = {arm: {} for arm in self.arms}
        for stage in self.chain.all_stages:
            for arm in self.arms:
                if stage.name == PRETRAINING and not self.chain.of(arm).pretrains:
                    continue
                recipe = self.planned(arm, stage.name).recipe
                before = [keys[of][name] for of, name in self.chain.starts(arm, stage)]
                if stage.ensemble:
                    key = content_key("ensemble", before)
                else:
                    step = stage.from_step if before else None
                    texts = texts_of(arm, stage)
                    key = stage_key(recipe, "".join(before), texts, from_step=step)
                keys[arm][stage.name] = key
        return keys

    def _described(self, arm: str, stage: str) -> Path:
        """Return a folder that describes the model of a stage, like a run's folder."""
        recipe = self.planned(arm, stage).recipe
        model = recipe.model
        if model.max_len is None and position_scheme(model).has_end:
            # The learned positions of its future run.
            model = model.model_copy(update={"max_len": recipe.data.context})
        text = dump_recipe(absolute_paths(recipe.model_copy(update={"model": model})))
        if text not in self._folders:
            folder = self._scratch / f"{stage}-{len(self._folders)}"
            folder.mkdir()
            write_file(folder / RUN_RECIPE, text)
            self._folders[text] = folder
        return self._folders[text]

    def _loaded(self, arm: str, stage: Stage, run: Path | None) -> LoadedRecipe:
        """Load the recipe of a stage that starts from a run; None: from random weights."""
        settings = self.chain.settings_of(arm, stage)
        start: str | LoadedRecipe = str(run)
        if run is None:
            path = self._tokenizers.get(arm)
            tokenizer = {} if path is None else {"data.tokenizer": path}
            start = self.arms[arm].vary(tokenizer, origin=_ORIGIN) if path else self.arms[arm]
        if not stage.finetunes:
            overrides = {"init.run": start, "train.keep_steps": [], **settings}
            return self.planned(arm, stage.after).vary(overrides, origin=_ORIGIN)
        return load_finetune(
            start,
            stage.tasks,
            stage.table or self.chain.data,
            settings,
            preset=stage.preset,
            columns=stage.columns,
        ).loaded

    def trials(self, stage: Stage) -> list[Trial]:
        """Build the trials of a stage, equal for all arms; an empty one without tuning.

        Raises ConfigError as ``make_trials`` does.
        """
        chain = self.chain
        if not chain.tune or not stage.finetunes or stage.ensemble:
            return [NO_TRIAL]
        planned = [
            Arm(arm, self.planned(arm, stage.name), chain.of(arm).settings.get(stage.name, {}))
            for arm in self.arms
        ]
        return make_trials(planned, chain.tune, stage=stage.name)

    def find_keys(
        self, data: Mapping[str, Data]
    ) -> "tuple[dict[str, dict[str, str]], ByStage, dict[str, tuple[StagePart, ...]]]":
        """Compute the keys of all stages, their files and texts, and the scored parts of tasks.

        Keys and files are by arm and stage, except pre-trainings', whose ``data`` are prepared;
        parts are by stage. Raises ConfigError and DataError for recipes that do not fit together,
        tasks without files, and texts with nothing left to train on.
        """
        inputs: ByStage = {}
        parts: dict[str, tuple[StagePart, ...]] = {}

        def texts_of(arm: str, stage: Stage) -> Any:
            if stage.name == PRETRAINING:
                self.check_pretraining(arm, data[arm])
                return data[arm].checksums
            recipe = self.planned(arm, stage.name).recipe
            named = recipe.data.tokenizer
            content: list[Any] = []
            if not self.chain.starts(arm, stage):
                # A trained one follows from the recipe.
                if named not in TOKENIZERS and Path(named).is_file():
                    named = file_digest(Path(named), cache_folder())
                content.append(named)
            pairs: list[tuple[str, Any]] = [("tokenizer", tokenizer) for tokenizer in content]
            try:
                if stage.finetunes:
                    files = find_task_files(recipe.data, cache_folder())
                    parts[stage.name] = tuple(_parts(recipe, files))
                    for file in files:
                        identities = {split: file.identity(split) for split in file.paths}
                        pairs += [(f"{file.task.name}.{name}", x) for name, x in identities.items()]
                        content.append([*identities.values()])
                else:
                    is_utf8 = recipe.data.tokenizer != "bytes"
                    texts = find_texts(recipe.data, cache_folder(), is_utf8=is_utf8)
                    names = [(name, texts.identity(name)) for name in SPLITS if texts.has(name)]
                    pairs += names
                    content += [identity for _, identity in names]
            except SublayerError as error:
                raise type(error)(f"stage {stage.name}: {error}") from None
            inputs.setdefault(arm, {})[stage.name] = [
                of_checksums({name: content_key(identity)}, {})[0] for name, identity in pairs
            ]
            return content

        keys = self.keys(texts_of)
        for stage in self.chain.stages:
            if stage.ensemble:
                parts[stage.name] = parts[stage.before[0]]
                for arm in self.arms:
                    self._check_members(arm, stage, keys)
        return keys, inputs, parts

    def _check_members(self, arm: str, stage: Stage, keys: Mapping[str, Mapping[str, str]]) -> None:
        """Raise ConfigError for members of an ensemble that are equal, or scored on other rows."""
        firsts: dict[str, str] = {}
        first_rows: list[Any] | None = None
        for name, (of, member) in zip(stage.ensemble, stage.members(arm), strict=True):
            first = firsts.setdefault(keys[of][member], name)
            recipe = self.planned(of, member).recipe
            rows = []
            for file in find_task_files(recipe.data, cache_folder()):
                for chosen in TaskDivision(recipe.data, file).scored:
                    places = None if chosen.examples is None else chosen.examples.tolist()
                    rows.append([file.task.name, chosen.split, file.identity(chosen.split), places])
            first_rows = first_rows or rows
            check_rules(
                f"{self.study}: arm {arm}, ensemble {stage.name}",
                (
                    first != name,
                    f"{first} and {name} are the same training from the same start: an ensemble "
                    "needs different trainings",
                ),
                (
                    rows != first_rows,
                    f"{name} is scored on different rows than {stage.ensemble[0]}: give both the "
                    "same files (data.path), divided alike",
                ),
            )

    def describe_chain(
        self,
        arms: Sequence[Arm],
        data: Mapping[str, Data],
        measures: Measures,
        *,
        n_seeds: int,
    ) -> "ChainPlan":
        """Return the content of a chain's file before its runs; ``data`` are the pre-trainings'.

        Raises ConfigError and DataError if stages do not fit together.
        """
        chain = self.chain
        keys, inputs, parts = self.find_keys(data)
        trials = {stage.name: tuple(self.trials(stage)) for stage in chain.stages}
        for stage, arm in itertools.product(chain.stages, arms):
            for trial in trials[stage.name] if stage.finetunes and not stage.ensemble else ():
                recipe = trial.of(self.planned(arm.name, stage.name)).recipe
                n_steps = steps_of_tasks(recipe) if recipe.train.keep_steps else None
                with _placed(f"{self.study}: arm {arm.name}, stage {stage.name}"):
                    recipe.train.check_keep_steps(n_steps or MOST_STEPS)
        facts = []
        for arm in arms:
            steps = measures.steps(arm) if chain.of(arm.name).pretrains else 0
            facts.append(arm.facts(measures.model(arm), steps))
        folder = None if chain.data is None else str(expanded(chain.data).absolute())
        chain_plan = ChainPlan(
            chain=replace(chain, data=folder),
            n_seeds=n_seeds,
            n_runs={},
            arms=tuple(facts),
            kinds=tuple(arm.loaded.recipe.objective.kind for arm in arms),
            keys=keys,
            inputs=inputs,
            parts=parts,
            trials=trials,
            tuning_number=TUNING_NUMBER,
        )
        for stage in chain.all_stages:
            n_tried = len(trials.get(stage.name, ()))
            n_all = n_seeds * chain.n_runs(stage) + (n_tried if n_tried > 1 else 0)
            chain_plan.n_runs[stage.name] = n_all * chain_plan.n_distinct(stage.name)
        return chain_plan


@contextmanager
def _placed(where: str, run: Path | None = None, name: str = "") -> Iterator[None]:
    """Prefix the message of a ConfigError, which names a run by ``name``, with the place."""
    try:
        yield
    except ConfigError as error:
        message = str(error) if run is None else str(error).replace(str(run), name)
        raise ConfigError(f"{where}: {message}") from None


_FIRST_OF_MODELS = {
    *("kind", "n_layers", "n_decoder_layers", "d_model", "n_heads", "d_head", "d_ff", "d_embed"),
    *("embedding_projection", "project_embeddings", "embedding_norm", "segments", "block", "ffn"),
    *("decoder_block", "decoder_start", "gelu", "swish_beta", "norm", "norm_order", "norm_affine"),
    *("norm_eps", "final_norm", "positions", "sinusoids", "first_position", "rotary_base", "head"),
    *("relative_buckets", "relative_distance", "share", "share_groups", "share_inner", "softmax"),
    *("head_activation", "pooler", "sentence_classes", "label_outputs", "span_head", "head_bias"),
    *("tie_embeddings", "embedding_scale", "output_scale", "attention_scale", "bias", "dropout"),
    *("dropout_attention", "dropout_ffn", "dropout_embedding", "dropout_embedding_of", "max_len"),
    *("dropout_final", "init", "init_std", "zero_padding", "vocab_size", "vocab_multiple"),
}
"""Fields of a model that count in a stage's key at their default as well: the first ones."""
_CAME_LATER = (
    *(("data", "keep_accents"), ("data", "score_on"), ("data", "special_tokens")),
    *(("objective", "bleu_tokenizer"), ("train", "patience")),
    *(("model", name) for name in ModelConfig.model_fields if name not in _FIRST_OF_MODELS),
)
"""Fields that do not change a stage's key at their default."""
_FORMER_NORMS = {"affine": True, "none": False}
"""Values of ``embedding_norm`` as keys have them."""


def stage_key(recipe: Recipe, parent: str, texts: Any, *, from_step: int | None = None) -> str:
    """Return the key of the runs of a stage: from its recipe, its start and its data.

    File paths, and settings that affect no number, are left out. ``parent`` is the previous stage's
    key, ``from_step`` its checkpoint, ``texts`` is JSON that identifies the data's content.
    """
    content = absolute_paths(recipe).model_dump(mode="json", exclude=set(HEADINGS))
    # The kept steps of a run count: others start from them.
    for name in OF_A_RUN:
        content["train"].pop(name, None)
    if not recipe.train.keep_steps:
        # As before this field existed.
        content["train"].pop("keep_steps")
    for table, name in _CAME_LATER:
        declared = type(getattr(recipe, table)).model_fields.get(name)
        if declared is not None and content[table][name] == declared.default:
            content[table].pop(name)
    norm = content["model"]["embedding_norm"]
    content["model"]["embedding_norm"] = _FORMER_NORMS.get(norm, norm)
    for name in list(content["data"]):
        if name == "path" or name.endswith("_path"):
            content["data"].pop(name)
    if recipe.data.tokenizer not in TOKENIZERS:
        content["data"].pop("tokenizer")
    content["init"].pop("run")
    if from_step is not None:
        parent = f"{parent} at step {from_step}"
    return content_key("stage", content, parent, texts)


def steps_of_tasks(recipe: Recipe) -> int | None:
    """Count the steps of a fine-tuning from its rows; None if they depend on their tokens.

    Raises DataError if their files are not the needed ones.
    """
    if recipe.train.steps is not None or recipe.train.batch_tokens is not None:
        return recipe.train.steps
    n_examples = 0
    for file in find_task_files(recipe.data, cache_folder()):
        chosen = TaskDivision(recipe.data, file).trained.examples
        n_examples += 0 if chosen is None else int(chosen.sum())
    return run_steps(recipe, train_tokens=n_examples * recipe.data.context)


class ScoredTask(Typed):
    """A task, as far as its columns depend on it."""

    name: str
    title: str
    metrics: tuple[str, ...]


class StagePart(Typed):
    """A scored part of a stage of tasks."""

    name: str
    """Its task, or for several parts of one task also the part: see ``part_name``."""
    task: ScoredTask


ByStage = dict[str, dict[str, list[Input]]]


def _parts(recipe: Recipe, files: Sequence[TaskFiles]) -> Iterator[StagePart]:
    """Yield the scored parts of tasks; raise if nothing is left to train on."""
    of_test = " test" if recipe.data.score_on == "test" else ""
    for file in files:
        division = TaskDivision(recipe.data, file)
        splits = [chosen.split for chosen in division.scored]
        # Raises if nothing would be left for them.
        _ = division.trained, division.selecting
        name, task = file.task.name, file.task
        scored_task = ScoredTask(
            name=name, title=f"{task.title}{of_test}", metrics=tuple(task.metrics)
        )
        for split in splits:
            yield StagePart(name=name_part(name, split, len(splits)), task=scored_task)


CHAIN = "chain.json"
_FileName = Annotated[str, Field(pattern=r"^[0-9a-z]+\.json$")]
_Key = Annotated[str, Field(pattern=r"^[0-9a-f]{10,}$")]


class ChainPlan(Typed):
    """The content of ``chain.json``; stages are by their names."""

    chain: Chain
    n_seeds: Annotated[int, Field(ge=1, lt=2**31)]
    """Pre-trainings."""
    n_runs: dict[str, Count]
    """Shared runs counted once."""
    arms: tuple[ArmFacts, ...]
    kinds: tuple[str, ...]
    """Kinds of the arms' objectives."""
    keys: dict[str, dict[str, _Key]]
    """By arm and stage."""
    inputs: dict[str, dict[str, list[Input]]] = {}
    """Files and texts of the key, by arm and stage; older studies have none."""
    parts: dict[str, tuple[StagePart, ...]]
    """Parts of each stage of tasks."""
    trials: dict[str, tuple[Trial, ...]]
    tuning_number: Count = 0
    """The number of a trial among fine-tunings of the first pre-training; 0 in early versions,
    which compared trials."""
    baselines: dict[str, _FileName] = {}
    """Files of baseline scores, by scored stage of tasks."""
    cuts: dict[str, str] = {}
    """Notes on truncated rows of stages of tasks; stages without any are left out."""

    def n_distinct(self, stage: str) -> int:
        """Count the trainings of a stage that differ between arms."""
        return len({keys[stage] for keys in self.keys.values() if stage in keys})

    def folders(self, study: Path) -> dict[tuple[str, str], Path]:
        """Return the folders of the runs of arms' stages, in order."""
        names = {stage.name: in_path(stage.name)[:LONGEST_PART] for stage in self.chain.all_stages}
        return {
            (arm, stage): study / "stages" / f"{part}-{keys[stage][:10]}"
            for arm, keys in self.keys.items()
            for stage, part in names.items()
            if stage in keys
        }

    @property
    def stage_texts(self) -> dict[str, dict[str, str]]:
        """Digests of the files of stages, by arm and stage."""
        return {
            f"{arm}, {stage}": {source.name: source.digest for source in inputs}
            for arm, by_stage in self.inputs.items()
            for stage, inputs in by_stage.items()
            if inputs
        }

    def keep(self, folder: Path) -> None:
        """Write ``chain.json`` into the folder of its study."""
        write_json(folder / CHAIN, self.model_dump(mode="json"))

    def beside_earlier(self, folder: Path, recipes: StageRecipes) -> "ChainPlan":
        """Return the content of ``chain.json`` with the baselines of an earlier command.

        Raises DataError, with both values, if a stage's files changed since the study began. A
        stage whose key changed for another reason is run again, with a note.
        """
        try:
            earlier = _read(folder / CHAIN)
        except (FileNotFoundError, ConfigError):
            return self  # a damaged file is rewritten
        for arm, stages in self.keys.items():
            for stage, key in stages.items():
                known = earlier.inputs.get(arm, {}).get(stage)
                if known is not None:
                    what, recipe = f"{folder}, stage {stage} of {arm},", recipes.planned(arm, stage)
                    now = self.inputs[arm][stage]
                    check_same_inputs(what, recipe.recipe, known, now, "give another --out")
                if earlier.keys.get(arm, {}).get(stage, key) != key:
                    note(
                        f"stage {stage} of {arm} was begun with other data, or by another version "
                        "of sublayer: it is run again"
                    )
        # Trials are selected again by the runs that selected them.
        names = ("baselines", "cuts", "tuning_number") if earlier.keys == self.keys else ()
        return self.model_copy(update={name: getattr(earlier, name) for name in names})


def read_chain_file(folder: Path, plan: StudyPlan) -> ChainPlan:
    """Read ``chain.json`` in a study's folder; ``plan`` is the content of its ``study.toml``.

    Raises ConfigError if it is missing or damaged.
    """
    remedy = (
        f"write it again with {plan.command}" if plan.command else "run the study's command again"
    )
    try:
        chain_plan = _read(folder / CHAIN)
    except FileNotFoundError:
        raise ConfigError(
            f"{folder} has no {CHAIN}, which the report of a study with stages needs: {remedy}"
        ) from None
    except ConfigError as error:
        raise ConfigError(f"{error}: {remedy}") from None
    chain, names = chain_plan.chain, [arm.name for arm in chain_plan.arms]
    fits = (
        not differing_stages(plan.asked.stages, chain.describe_stages())
        and names == [arm.name for arm in plan.settled]
        and len(chain_plan.kinds) == len(names)
        and set(KINDS) >= set(chain_plan.kinds)
        and 1 <= chain.n_seeds <= MOST_FINETUNINGS
        and all(
            METRICS.keys() >= set(part.task.metrics)
            for parts in chain_plan.parts.values()
            for part in parts
        )
        and all(chain_plan.parts.get(stage.name) for stage in chain.stages if stage.finetunes)
        and all(chain_plan.trials.get(stage.name) for stage in chain.stages)
        and all(
            stage.name in chain_plan.keys.get(name, {})
            for name, stage in itertools.product(names, chain.all_stages)
            if stage.name != PRETRAINING or chain.of(name).pretrains
        )
    )
    if not fits:
        raise ConfigError(
            f"{folder / CHAIN} is damaged: its content does not fit the study: {remedy}"
        )
    return chain_plan


def _read(path: Path) -> ChainPlan:
    content = read_json(path, ConfigError)
    return check_typed(content, ChainPlan, str(path), ConfigError, has_tuples=True)
