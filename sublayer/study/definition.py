"""The definition of a study: from a file, a recipe and what varies, or several recipes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from sublayer.config.catalog import HEADINGS
from sublayer.config.limits import MOST_ARMS
from sublayer.config.load import LoadedRecipe, load_recipe, vary
from sublayer.config.messages import setting_in_words, show, show_path
from sublayer.config.resolve_train import MEASURED, in_proportion
from sublayer.config.rules import is_idle
from sublayer.config.run_recipe import DERIVED
from sublayer.config.sources import RUN_RECIPE, override_layer, read_toml, shipped_recipes
from sublayer.errors import ConfigError
from sublayer.nearest import nearest
from sublayer.study.arms import (
    Arm,
    TuneBy,
    check_distinct,
    expand,
    make_arm,
    name_arms,
    name_folder,
)
from sublayer.study.budget.expected import expected_length, tokens_per_step
from sublayer.study.budget.match import Rule
from sublayer.study.inspection import Inspecting
from sublayer.study.question import NO_QUESTION, Question
from sublayer.study.scoring import WHOLE_TEST, Scoring
from sublayer.study.stages import Chain
from sublayer.study.study_file import (
    ArmTable,
    ScaleTable,
    StudyFile,
    check_without_stages,
    flatten,
    read_chain,
    read_study_file,
    split_settings,
)
from sublayer.system.stages import note

SHIPPED = Path(__file__).parent.parent / "studies"
PAPER = "paper"
"""The scale of the source's own models and budget."""
_PREFERRED_SCALES = (PAPER, "cpu")  # where none is named; else a study's first
DEFAULT_SEEDS = 5
"""Runs of each arm of a comparison where nobody said how many."""
Overrides = Sequence[str] | Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """Arms, the first of them the baseline, and the rules by which they are compared."""

    name: str
    """The study's, or the recipe's."""
    title: str
    source: str
    """The source that the study repeats: a paper and its section."""
    match: Rule
    n_seeds: int | None
    """Runs of each arm; None where nobody said how many."""
    arms: tuple[Arm, ...]
    metric: str | None = None
    """The metric that decides; None for the objective's first."""
    caveats: tuple[str, ...] = ()
    """Limits of the study's verdicts, a sentence or two each."""
    folder: str = ""
    """The name of its folder; empty: the study's."""
    scoring: Scoring = WHOLE_TEST
    """The split, stride and tokens that its runs are scored on."""
    inspecting: Inspecting | None = None
    """The measures inside its runs; None: none."""
    tune: tuple[str, ...] = ()
    """The default tuning grid: ``field=a,b`` texts, as of ``--tune``."""
    tune_by: TuneBy = "metric"
    """The criterion of tuning on the validation split."""
    chain: Chain | None = None
    """The stages after the pre-training that is an arm's recipe; None: none."""
    question: Question = NO_QUESTION
    """Its margin, spread and hypothesis."""
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Published scores of arms by metric, as printed; a chain has its own."""
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """``steps`` and ``tokens`` of each arm's training at the scale of the paper; empty: unknown."""
    kept_texts: tuple[str, ...] = ()
    """The names of its texts that its folder keeps."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The corpora and files of the first arm, as its recipe named them."""
        if self.kept_texts:
            return self.kept_texts
        data = self.arms[0].loaded.recipe.data
        names: list[str] = []
        for source in (data.corpus, data.path, data.source_path, data.target_path):
            if source is not None:
                names += [source] if isinstance(source, str) else map(str, source)
        return tuple(names)

    @property
    def against(self) -> dict[str, str]:
        """Arms that are compared with another than the first, by name; for a control, itself."""
        return {arm.name: arm.against for arm in self.arms if arm.against is not None}


def load_study(
    source: str,
    overrides: Overrides = (),
    *,
    vary_texts: Sequence[str] = (),
    scale: str | None = None,
) -> Study:
    """Load a study by shipped name or path, or build one of a recipe and ``--vary`` texts.

    Without such texts it has a single arm. ``overrides`` go to every arm. ``scale`` is paper where
    the study has it, else cpu, else its first, unless given. Raises ConfigError for a file that is
    no study, an override of a field that the arms differ in, ``vary_texts`` for a study, a
    ``scale`` that the study lacks or for a recipe, and as ``load_recipe`` and ``expand`` do.
    """
    path = find_study(source)
    if path is not None:
        if vary_texts:
            raise ConfigError(f"{source} is a study with arms of its own: leave out --vary")
        return _read_study(path, overrides, scale)
    loaded = load_base(source, overrides)
    if scale is not None:
        raise ConfigError(
            f"--scale {scale} chooses the recipe of a study, and {source} is a recipe: leave it out"
        )
    arms = expand(loaded, vary_texts)
    return Study(
        name=loaded.name,
        title=loaded.recipe.title,
        source=loaded.recipe.source,
        match="parameters",
        n_seeds=None,
        arms=tuple(arms),
        folder=name_folder(loaded.name, arms[0].settings),
    )


def default_seeds(study: Study) -> int:
    """Return the default number of runs of each arm: the study's, ``compare``'s, or one."""
    if study.n_seeds:
        return study.n_seeds
    return DEFAULT_SEEDS if len(study.arms) > 1 else 1


def shipped_studies() -> tuple[str, ...]:
    """List the names of the studies that come with the package."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def study_scales(name: str) -> tuple[str, ...]:
    """List the scales of a shipped study, in the order of its file."""
    table = read_toml(SHIPPED / f"{name}.toml")
    return tuple(table["scale"])


def find_study(source: str) -> Path | None:
    """Find a study by shipped name, or by path of a file with ``arms`` or scales; else None.

    Raises ConfigError for a .toml file that cannot be read.
    """
    if source in shipped_studies():
        return SHIPPED / f"{source}.toml"
    path = Path(source)
    if path.suffix != ".toml" or not path.is_file():
        return None
    table = read_toml(path)
    if "arms" in table or "scale" in table:
        return path
    return None


def load_base(source: str, overrides: Overrides) -> LoadedRecipe:
    """Load the recipe of an arm as ``load_recipe`` does; a misspelt name may also be a study's."""
    try:
        return load_recipe(source, overrides)
    except ConfigError as error:
        studies = shipped_studies()
        near = nearest(source, (*shipped_recipes(), *studies))
        if near not in studies or Path(source).exists():
            raise
        raise ConfigError(f"{error}, or the study {near}?") from None


def _read_study(path: Path, overrides: Overrides, scale: str | None) -> Study:
    file, name = read_study_file(path), path.stem
    if scale is None:
        preferred = [usual for usual in _PREFERRED_SCALES if usual in file.scale]
        scale, *_ = (*preferred, *file.scale)
    if scale not in file.scale:
        raise ConfigError(f"{name} has no scale {scale}: it has {', '.join(file.scale)}")
    table = file.at(scale)
    has_stages = table.stages is not None
    settings = override_layer(overrides, "command line").values
    overridden, of_stages = split_settings(settings, table.stages or ())
    shrunk = _Shrunk(path, table, overridden)

    @cache
    def base(recipe: str) -> LoadedRecipe:
        moved = shrunk.of_recipe(recipe)
        return _base(path, table, {**overridden, **moved}, recipe=recipe)

    base(table.recipe)
    arms = []
    tables = table.arms or []
    _check_against(name, tables)
    for arm in tables:
        given = flatten(arm.set)
        if "train.seed" in given:
            raise ConfigError(
                f"{name}: arm {arm.name} sets train.seed, and arms are compared on the same "
                "seeds: leave it out, and give their number with --seeds"
            )
        moved = shrunk.settings(given)
        for key in (overridden.keys() & given.keys()) - moved.keys():
            raise ConfigError(
                f"{key} is what the arms of {name} differ in: "
                f"leave out {key}={show(overridden[key])}"
            )
        made = make_arm(arm.name, base(arm.recipe or table.recipe), {**given, **moved})
        arms.append(replace(made, against=arm.against))
    overridden_stages = {key for settings in of_stages.values() for key in settings}
    tune_stages = _tuned(path, table.tune_finetune, overridden_stages)
    if not has_stages:
        check_without_stages(path, file, scale)
    chain = read_chain(name, file, scale, of_stages, tune_stages, at=shrunk.at)
    for text in shrunk.notes:
        note(text)
    names = [arm.name for arm in arms]
    check_distinct(arms, {} if chain is None else {arm: repr(chain.of(arm)) for arm in names})
    scoring = table.score or WHOLE_TEST
    recipes = [(arm.name, arm.loaded.recipe) for arm in arms]
    scoring.check(name, recipes)
    if table.inspect is not None:
        table.inspect.check(name, recipes, has_stages=has_stages)
    tune = _tuned(path, table.tune, overridden)
    tune_by = table.tune_by or "metric"
    if tune_by != "metric" and has_stages:
        raise ConfigError(
            f"{name}: tune_by = {tune_by} is of studies without stages, whose tasks are tuned by "
            "their score: leave it out"
        )
    if tune_by != "metric" and not table.tune:
        raise ConfigError(
            f"{name}: tune_by = {tune_by} chooses nothing, for the study tunes nothing: "
            "leave it out, or give tune"
        )
    paper = _paper_budgets(path, file, scale)
    question = file.question_of(scale)
    question.check_arms(name, names)
    return Study(
        name=name,
        title=file.title,
        source=file.source,
        match=file.match,
        n_seeds=table.seeds,
        arms=tuple(arms),
        metric=table.metric,
        caveats=tuple(table.caveats),
        scoring=scoring,
        inspecting=table.inspect,
        tune=tune,
        tune_by=tune_by,
        chain=chain,
        published={} if chain else file.published_of(scale),
        paper=paper,
        question=question,
    )


def _paper_budgets(path: Path, file: StudyFile, scale: str) -> dict[str, dict[str, float]]:
    """Return the steps and tokens of each arm at scale paper, where that is another scale.

    An arm that the paper has not is given those of the paper's arms, where all have the same.
    """
    if PAPER not in file.scale or scale == PAPER:
        return {}
    table = file.at(PAPER)
    base = cache(partial(_base, path, table, {}))
    budgets: dict[str, dict[str, float]] = {}
    for arm in table.arms or ():
        recipe = make_arm(arm.name, base(arm.recipe), flatten(arm.set)).loaded.recipe
        length = expected_length(recipe, None)
        if length is not None:
            tokens = length.steps * tokens_per_step(recipe)
            budgets[arm.name] = {"steps": length.steps, "tokens": tokens}
    first = next(iter(budgets.values()), {})
    is_common = all(budget == first for budget in budgets.values())
    if first and is_common:
        arms = file.at(scale).arms or ()
        budgets |= {arm.name: first for arm in arms if arm.name not in budgets}
    return budgets


def _tuned(
    path: Path, tune: Mapping[str, Any] | None, overridden: Collection[str]
) -> tuple[str, ...]:
    """Return the tuning grid of a study as texts of ``--tune``, without overridden fields."""
    texts = []
    for key, values in flatten(tune or {}).items():
        if not isinstance(values, list):
            raise ConfigError(
                f"study {path}: tune.{key} = {show(values)} is no list: give the values to try, "
                f"{key} = [{show(values)}, ...]"
            )
        if key not in overridden:
            written = [value if isinstance(value, str) else show(value) for value in values]
            texts.append(f"{key}={','.join(written)}")
    return tuple(texts)


def _check_against(study: str, arms: Sequence[ArmTable]) -> None:
    names = [arm.name for arm in arms]
    against = {arm.name: arm.against for arm in arms if arm.against is not None}
    others = list(against.values())
    for name, other in against.items():
        if other not in names:
            raise ConfigError(f"{study}: arm {name} is against {other}, which is not an arm of it")
        if other == name and others.count(name) == 1:
            raise ConfigError(
                f"{study}: arm {name} is against itself, a control, but no other arm is against it"
            )
        if name == names[0]:
            raise ConfigError(
                f"{study}: arm {name} is the first, which others are compared with: "
                "leave out against"
            )


class _Shrunk:
    """A study's scale with fewer pre-training steps than its own, as it is tried in minutes."""

    def __init__(self, path: Path, scale: ScaleTable, overridden: Mapping[str, Any]) -> None:
        self._path = path
        self._scale = scale
        self._overridden = overridden
        steps = overridden.get("train.steps")
        self._steps: int = steps if isinstance(steps, int) else 0
        self._before: int | None = None
        """None: the length is no number of steps, or is not overridden."""
        self._is_shrunk = self._steps > 0
        if self._is_shrunk:
            self._before = _base(path, scale, {}).recipe.train.steps
            self._is_shrunk = self._before is None or self._steps < self._before
        self.notes: list[str] = []
        """Settings that were moved to another step than the study's, a line each."""

    def at(self, step: int) -> int:
        """Return where a step of the study's own length is in the shorter run.

        Where that length is no number of steps, what lies beyond is a twentieth of the run.
        """
        if not self._is_shrunk or step <= self._steps:
            return step
        return in_proportion(step, of=self._before or 20 * step, to=self._steps)

    def of_recipe(self, name: str) -> dict[str, Any]:
        """Move steps of a recipe of the scale that lie beyond the shorter run into it."""
        if not self._is_shrunk:
            return {}
        recipe = _base(self._path, self._scale, {}, recipe=name).recipe
        return self.settings(
            {
                "optimizer.warmup_steps": recipe.optimizer.warmup_steps,
                "train.keep_steps": recipe.train.keep_steps,
            }
        )

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Move steps of ``given`` that lie beyond the shorter run into it, in proportion."""
        moved: dict[str, Any] = {}
        for key in ("train.steps", "optimizer.warmup_steps", "train.keep_steps"):
            value = given.get(key)
            if not value or (key in self._overridden and key != "train.steps"):
                continue
            steps = [value] if isinstance(value, int) else list(value)
            there = sorted({self.at(step) for step in steps})
            if there != sorted(steps):
                moved[key] = there[0] if isinstance(value, int) else there
                of = "the study's length" if self._before is None else f"{self._before:,} steps"
                text = f"{key} = {show(value)} is for {of}: {show(moved[key])} of {self._steps:,}"
                if text not in self.notes:
                    self.notes.append(text)
        return moved


def _base(
    path: Path, scale: ScaleTable, overrides: Mapping[str, Any], recipe: str | None = None
) -> LoadedRecipe:
    """Load the recipe of a scale, or another in its place, under the scale's settings."""
    source: Path | str = recipe or scale.recipe
    beside = path.parent / source
    if source not in shipped_recipes() and beside.exists():
        source = beside
    loaded = load_recipe(source, flatten(scale.set), origin=f"study {path.stem}")
    return vary(loaded, overrides, origin="command line") if overrides else loaded


_NOT_SAID = (
    "model",
    "train.seed",
    "train.threads",
    "train.micro_batch_sequences",
    "train.checkpoint_steps",
    "train.keep_checkpoints",
    "train.keep_steps",
    "train.log_steps",
    *HEADINGS,
)
"""Settings that arms are compared by, share, or that change no number."""


def split_words(source: str, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line's words into sources and ``key=value`` settings.

    ``source`` is the first word. Paths of runs may have an equals sign. All before the first
    setting is compared; what comes after it is a setting, or a mistake that says so where it is
    read.
    """
    sources = [source]
    for index, word in enumerate(words):
        if "=" in word and not Path(word).exists():
            return sources, list(words[index:])
        sources.append(word)
    return sources, []


def load_asked(
    sources: Sequence[str],
    overrides: Overrides = (),
    *,
    vary_texts: Sequence[str] = (),
    scale: str | None = None,
) -> Study:
    """Load a study, a recipe with ``--vary`` texts, or several recipes as arms.

    Of several recipes the first is the baseline, and overrides go to all. Raises ConfigError as
    ``load_study`` does, and where several are no recipes, have one name, or are varied too.
    """
    if len(sources) == 1:
        return load_study(sources[0], overrides, vary_texts=vary_texts, scale=scale)
    if len(sources) > MOST_ARMS:
        raise ConfigError(f"{len(sources)} recipes are too many arms: give at most {MOST_ARMS}")
    _check_recipes(sources, vary_texts, scale)
    arms: list[Arm] = []
    for source in sources:
        loaded = load_base(source, overrides)
        if any(arm.name == loaded.name for arm in arms):
            raise ConfigError(
                f"two arms are named {loaded.name}: give each recipe once, rename one file"
            )
        arms.append(Arm(loaded.name, loaded, {}))
    check_distinct(arms)
    names = [arm.name for arm in arms]
    *others, last = names
    return Study(
        name=name_arms(names),
        title=f"{', '.join(others)} and {last}",
        source="",
        match="parameters",
        n_seeds=None,
        arms=tuple(arms),
        caveats=tuple(other_settings(arms)),
    )


def is_run(source: str) -> bool:
    """Return whether a word names the folder of a run."""
    return (Path(source) / RUN_RECIPE).is_file()


def _check_recipes(sources: Sequence[str], vary_texts: Sequence[str], scale: str | None) -> None:
    if vary_texts:
        raise ConfigError(
            f"--vary varies one recipe, and {len(sources)} are compared: leave it out, or give one"
        )
    for source in sources:
        if find_study(source) is not None:
            raise ConfigError(f"{source} is a study with arms of its own: compare it alone")
    if scale is not None:
        raise ConfigError(
            f"--scale {scale} chooses the recipe of a study, and these are recipes: leave it out"
        )


def other_settings(arms: Sequence[Arm]) -> Iterator[str]:
    """Say of each arm what differs from the baseline's beside the model."""
    baseline = arms[0]
    before = _settings(baseline.loaded)
    for arm in arms[1:]:
        settings = _settings(arm.loaded)
        following = _derived(baseline.loaded) & _derived(arm.loaded)
        changes = []
        # Of other kinds of optimizers or objectives, the kind stands for what only one has.
        for key in sorted(before.keys() & settings.keys()):
            if before[key] != settings[key] and key not in following:
                words = setting_in_words(key, settings[key])
                changes.append(f"{words} ({baseline.name}: {show_path(before[key])})")
        if changes:
            yield (
                f"{arm.name} differs from {baseline.name} not only in the model, so verdicts are "
                f"not about the model alone: {', '.join(changes)}."
            )


def _derived(loaded: LoadedRecipe) -> set[str]:
    """Return which fields of a run's recipe followed from others."""
    origins = loaded.origins.items()
    return {key for key, origin in origins if origin == DERIVED and key not in MEASURED}


def _settings(loaded: LoadedRecipe) -> dict[str, Any]:
    """Return the settings of a recipe that have an effect, but the model's, by ``table.field``."""
    settings = {}
    for table, fields in loaded.recipe.model_dump(mode="json").items():
        if table in _NOT_SAID:
            continue
        for name, value in fields.items():
            key = f"{table}.{name}"
            if key not in _NOT_SAID and not is_idle(key, loaded.recipe):
                settings[key] = value
    return settings
