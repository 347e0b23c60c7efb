"""Definition of a study, from a file or recipes, and the options of its command."""

import math
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import exists
from pathlib import Path
from typing import Any

from sublayer.config.layers import (
    RUN_RECIPE,
    find_shipped,
    override_layer,
    read_toml,
    shipped_recipes,
)
from sublayer.config.load import DERIVED, LoadedRecipe, load_recipe
from sublayer.config.messages import check_choice, setting_in_words, show_path
from sublayer.config.plugins import refuse_idle
from sublayer.config.recipe import HEADINGS
from sublayer.config.resolve import MEASURED, in_proportion
from sublayer.config.rules import is_idle
from sublayer.config.table import MOST_ARMS, MOST_FINETUNINGS
from sublayer.errors import ConfigError, check_rules, nearest
from sublayer.files.storage import describe_absence
from sublayer.statistics.contrasts import FEWEST_SEEDS
from sublayer.statistics.looks import Looks, fixed, until_decided
from sublayer.study.arms import (
    FINETUNE,
    TUNING_NUMBER,
    Arm,
    Chain,
    Trial,
    TuneBy,
    check_distinct,
    expand,
    make_arm,
    make_trials,
    name_arms,
    name_folder,
)
from sublayer.study.budget import Rule, expected_length, tokens_per_step
from sublayer.study.inspection import Inspecting
from sublayer.study.jobs.backends import parse_place
from sublayer.study.question import (
    FIRST_TUNING_SEED,
    NO_QUESTION,
    WHOLE_TEST,
    Question,
    Scoring,
    Seeds,
    check_seeds,
)
from sublayer.study.study_file import (
    ArmTable,
    ScaleTable,
    StudyFile,
    check_not_compared,
    check_without_stages,
    read_chain,
    read_study_file,
    split_settings,
)
from sublayer.system.terminal import note
from sublayer.values import show

SHIPPED = Path(__file__).parent.parent / "studies"
PAPER = "paper"
"""The scale of the source's models and budget."""
_PREFERRED_SCALES = (PAPER, "cpu")  # default; else the first
DEFAULT_SEEDS = 5
"""Default number of runs of each arm in a comparison."""
Overrides = Sequence[str] | Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """Arms, the first of them the baseline, and the rules of their comparison."""

    name: str
    """The name of the study, or of the recipe."""
    title: str
    source: str
    """The replicated source: a paper and its section."""
    match: Rule
    n_seeds: int | None
    """Runs of each arm; None if not given."""
    arms: tuple[Arm, ...]
    metric: str | None = None
    """The deciding metric; None for the objective's first."""
    caveats: tuple[str, ...] = ()
    """Limits of the study's verdicts, a sentence or two each."""
    folder: str = ""
    """The name of its folder; empty: the study's."""
    scoring: Scoring = WHOLE_TEST
    """The split, stride and tokens of scoring."""
    inspecting: Inspecting | None = None
    """The inspection of its runs; None: none."""
    tune: tuple[str, ...] = ()
    """The default tuning grid: ``field=a,b`` texts, as in ``--tune``."""
    tune_by: TuneBy = "metric"
    """The criterion of tuning on the validation split."""
    chain: Chain | None = None
    """The stages after an arm's pre-training recipe; None: none."""
    question: Question = NO_QUESTION
    """Its margin, spread and hypothesis."""
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Published scores of arms by metric, as printed; a chain has its own."""
    match_multiple: int = 1
    """The number of which matched widths are multiples."""
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """``steps`` and ``tokens`` of each arm's training at the scale of the paper; empty: unknown."""
    kept_texts: tuple[str, ...] = ()
    """The names of its texts, as kept in its folder."""

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
        """Comparison partners other than the first arm, by arm; for a control, itself."""
        return {arm.name: arm.against for arm in self.arms if arm.against is not None}


def load_asked(
    sources: Sequence[str],
    overrides: Overrides = (),
    *,
    vary_texts: Sequence[str] = (),
    scale: str | None = None,
) -> Study:
    """Load a study, a recipe with ``--vary`` texts, or several recipes as arms.

    The first of several recipes is the baseline, and overrides apply to all. Raises ConfigError as
    ``load_study`` does, and if several are not recipes, share a name, or are also varied.
    """
    if len(sources) == 1:
        return load_study(sources[0], overrides, vary_texts=vary_texts, scale=scale)
    study = next((source for source in sources if find_study(source) is not None), None)
    check_rules(
        "",
        (
            len(sources) > MOST_ARMS,
            f"{len(sources)} recipes are too many arms: give at most {MOST_ARMS}",
        ),
        (
            vary_texts,
            f"--vary takes a single recipe, and {len(sources)} are compared: leave out --vary, "
            "or give one recipe",
        ),
        (study, f"{study} is a study, which defines its own arms: compare it alone"),
        (scale, _NO_SCALE.format(scale, "these are recipes")),
    )
    arms = []
    for source in sources:
        loaded = load_base(source, overrides)
        arms.append(Arm(loaded.name, loaded, {}))
    check_distinct(arms)
    *others, last = names = [arm.name for arm in arms]
    return Study(
        name=name_arms(names),
        title=f"{', '.join(others)} and {last}",
        source="",
        match="parameters",
        n_seeds=None,
        arms=tuple(arms),
        caveats=tuple(other_settings(arms)),
    )


_NO_SCALE = "--scale {} applies only to a study, and {}: leave it out"


def load_study(
    source: str,
    overrides: Overrides = (),
    *,
    vary_texts: Sequence[str] = (),
    scale: str | None = None,
) -> Study:
    """Load a study by shipped name or path, or build one of a recipe and ``--vary`` texts.

    Without such texts it has a single arm. ``overrides`` apply to every arm. ``scale`` is by
    default paper, if the study has it, else cpu, else its first. Raises ConfigError for a file that
    is not a study, an override of a field that differs between the arms, ``vary_texts`` for a
    study, a ``scale`` that the study lacks, or for a recipe, and as ``load_recipe`` and ``expand``
    do.
    """
    path = find_study(source)
    if path is not None:
        check_rules(
            "", (vary_texts, f"{source} is a study, which defines its own arms: leave out --vary")
        )
        return _read_study(path, overrides, scale)
    loaded = load_base(source, overrides)
    check_rules("", (scale, _NO_SCALE.format(scale, f"{source} is a recipe")))
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


def load_base(source: str, overrides: Overrides) -> LoadedRecipe:
    """Load the recipe of an arm as ``load_recipe`` does; a misspelt name may also be a study's."""
    try:
        return load_recipe(source, overrides)
    except ConfigError as error:
        studies = shipped_studies()
        near = nearest(source, (*shipped_recipes(), *studies))
        if near not in studies or Path(source).exists():
            raise
        head, is_asking, _ = str(error).rpartition("?")
        asked = f"{head}, or" if is_asking else f"{error}; did you mean"
        raise ConfigError(f"{asked} the study {near}?") from None


def split_words(source: str, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line's words into sources and ``key=value`` settings.

    ``source`` is the first word. Paths of runs may have an equals sign. Words before the first
    setting are compared; later ones are read, or refused, as settings.
    """
    # os.path accepts a setting that is too long for a path.
    settings = (n for n, word in enumerate(words) if "=" in word and not exists(word))  # noqa: PTH110
    n_sources = next(settings, len(words))
    return [source, *words[:n_sources]], list(words[n_sources:])


def is_run(source: str) -> bool:
    """Return whether a word names the folder of a run."""
    return (Path(source) / RUN_RECIPE).is_file()


def shipped_studies() -> tuple[str, ...]:
    """List the shipped studies."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def study_scales(name: str) -> tuple[str, ...]:
    """List the scales of a shipped study, in the order of its file."""
    return tuple(read_toml(SHIPPED / f"{name}.toml")["scale"])


def find_study(source: str) -> Path | None:
    """Find a study by shipped name, or by path of a file with ``arms`` or scales; else None.

    Raises ConfigError for a .toml file that cannot be read.
    """
    if source in shipped_studies():
        return SHIPPED / f"{source}.toml"
    path = Path(source)
    is_study = path.suffix == ".toml" and path.is_file() and {"arms", "scale"} & {*read_toml(path)}
    return path if is_study else None


def _read_study(path: Path, overrides: Overrides, scale: str | None) -> Study:
    file, name = read_study_file(path), path.stem
    usual = next(option for option in (*_PREFERRED_SCALES, *file.scale) if option in file.scale)
    scale = usual if scale is None else scale
    check_choice(f"{name}: ", "scale", scale, file.scale)
    for name_of_scale in file.scale:
        table = file.at(name_of_scale)
        recipes = [table.recipe, *(arm.recipe or table.recipe for arm in table.arms or ())]
        for recipe in dict.fromkeys(recipes):
            try:
                _load_of_scale(path, table, recipe)
            except ConfigError as error:
                raise ConfigError(f"{name}: scale {name_of_scale}: {error}") from None
    table = file.at(scale)
    has_stages = table.stages is not None
    settings = override_layer(overrides, "command line").values
    overridden, of_stages = split_settings(settings, table.stages or ())
    shrunk = _Scale(path, table, overridden)
    tables = table.arms or []
    names = [arm.name for arm in tables]
    others = [arm.against for arm in tables if arm.against is not None]
    arms = []
    for arm in tables:
        against = arm.against
        # An arm against itself is a control for others.
        is_alone = against == arm.name and others.count(arm.name) == 1
        check_rules(
            f"{name}: arm {arm.name}",
            (
                "train.seed" in arm.set,
                "it sets train.seed, but all arms share the same seeds: leave it out, and set "
                "their number with --seeds",
            ),
            (
                against is not None and (arm is tables[0] or is_alone),
                f"it has against = {against}: leave it out of the first arm, and of a control "
                "(an arm against itself) unless another arm is against it",
            ),
        )
        check_choice(f"{name}: arm {arm.name}, against: ", "arm", against or names[0], names)
        arms.append(shrunk.arm(arm))
    if not has_stages:
        check_without_stages(path, file, scale)
    overridden_stages = {key for settings in of_stages.values() for key in settings}
    tune_stages = _tuned(table.tune_finetune, overridden_stages)
    chain = read_chain(name, file, scale, of_stages, tune_stages, at=shrunk.at)
    for text in shrunk.notes:
        note(text)
    check_distinct(arms, {} if chain is None else {arm: repr(chain.of(arm)) for arm in names})
    scoring = table.score or WHOLE_TEST
    named = [(arm.name, arm.loaded.recipe) for arm in arms]
    scoring.check(name, named)
    if table.inspect is not None:
        table.inspect.check(name, named, has_stages=has_stages)
    tune_by = table.tune_by or "metric"
    if tune_by != "metric" and (has_stages or not table.tune):
        raise ConfigError(
            f"{name}: tune_by = {tune_by} applies only to a study that has tune and no stages: "
            "leave it out, or give tune; stages of tasks are tuned by score"
        )
    question = file.question_of(scale)
    question.check_arms(name, names)
    return Study(
        name=name,
        title=file.title,
        source=file.source,
        match=file.match,
        match_multiple=file.match_multiple,
        n_seeds=table.seeds,
        arms=tuple(arms),
        metric=table.metric,
        caveats=tuple(table.caveats),
        scoring=scoring,
        inspecting=table.inspect,
        tune=_tuned(table.tune, overridden),
        tune_by=tune_by,
        chain=chain,
        published={} if chain else file.published_of(scale),
        paper=_paper_budgets(path, file, scale),
        question=question,
    )


def _paper_budgets(path: Path, file: StudyFile, scale: str) -> dict[str, dict[str, float]]:
    """Return the steps and tokens of each arm at scale paper, if the current scale is another.

    An arm missing in the paper gets the values of the paper's arms, if they are equal.
    """
    if PAPER not in file.scale or scale == PAPER:
        return {}
    table = file.at(PAPER)
    paper = _Scale(path, table, {})
    budgets: dict[str, dict[str, float]] = {}
    for arm in table.arms or ():
        recipe = paper.arm(arm).loaded.recipe
        length = expected_length(recipe, None)
        if length is not None:
            tokens = length.steps * tokens_per_step(recipe)
            budgets[arm.name] = {"steps": length.steps, "tokens": tokens}
    first = next(iter(budgets.values()), None)
    if first and all(budget == first for budget in budgets.values()):
        budgets |= {arm.name: first for arm in file.at(scale).arms or ()}
    return budgets


def _tuned(tune: Mapping[str, list[Any]] | None, overridden: Collection[str]) -> tuple[str, ...]:
    """Return the tuning grid of a study as texts of ``--tune``, without overridden fields."""
    texts = []
    for key, values in (tune or {}).items():
        if key not in overridden:
            written = [value if isinstance(value, str) else show(value) for value in values]
            texts.append(f"{key}={','.join(written)}")
    return tuple(texts)


_STEPS = ("train.steps", "optimizer.warmup_steps", "train.keep_steps")
"""Settings that are steps of a run."""


class _Scale:
    """A study's scale under the settings of the command line.

    With a shortened pre-training, as for a quick try, steps of other settings beyond its end move
    in proportion.
    """

    def __init__(self, path: Path, table: ScaleTable, overrides: Mapping[str, Any]) -> None:
        """Take the study's file and the settings of the command line."""
        self._path, self._table, self._overrides = path, table, overrides
        self._bases: dict[str, LoadedRecipe] = {}
        steps, self._before = overrides.get("train.steps"), None
        if steps:
            self._before = self._load(table.recipe, {}).recipe.train.steps
        before = self._before or math.inf
        # 0: it is not shorter.
        self._to = steps if isinstance(steps, int) and 0 < steps < before else 0
        self.notes: list[str] = []
        """Moved settings, a line each."""

    def arm(self, arm: ArmTable) -> Arm:
        """Make an arm; raise ConfigError, with its name, for settings that do not fit."""
        recipe = arm.recipe or self._table.recipe
        if recipe not in self._bases:
            moved = {}
            if self._to:
                base = self._load(recipe, {}).recipe
                steps = base.optimizer.warmup_steps, base.train.keep_steps
                moved = self._moved(dict(zip(_STEPS[1:], steps, strict=True)))
            self._bases[recipe] = self._load(recipe, {**self._overrides, **moved})
        moved = self._moved(arm.set)
        check_not_compared(self._path.stem, self._overrides, arm.set.keys() - moved.keys())
        made = make_arm(arm.name, self._bases[recipe], {**arm.set, **moved})
        return replace(made, against=arm.against)

    def at(self, step: int) -> int:
        """Return the position of a step of the study's length in the shorter run.

        If that length is not in steps, a step beyond the run moves to a twentieth of the run.
        """
        if not self._to or step <= self._to:
            return step
        return in_proportion(step, of=self._before or 20 * step, to=self._to)

    def _moved(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        moved: dict[str, Any] = {}
        for key in _STEPS:
            value = settings.get(key)
            if not value or (key in self._overrides and key != _STEPS[0]):
                continue
            steps = [value] if isinstance(value, int) else sorted(value)
            there = sorted({self.at(step) for step in steps})
            if there != steps:
                moved[key] = there[0] if isinstance(value, int) else there
                of = "the study's length" if self._before is None else f"{self._before:,} steps"
                text = f"{key} = {show(value)} is for {of}: {show(moved[key])} of {self._to:,}"
                self.notes += [text] if text not in self.notes else []
        return moved

    def _load(self, recipe: str, overrides: Mapping[str, Any]) -> LoadedRecipe:
        loaded = _load_of_scale(self._path, self._table, recipe)
        return loaded.vary(overrides, origin="command line") if overrides else loaded


def _load_of_scale(path: Path, table: ScaleTable, recipe: str) -> LoadedRecipe:
    """Load a recipe, shipped or next to the study's file, with the settings of a scale over it."""
    beside = path.parent / recipe
    is_beside = find_shipped(recipe) is None and beside.exists()
    return load_recipe(beside if is_beside else recipe, table.set, origin=f"study {path.stem}")


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
"""Settings that arms are compared by, share, or that do not affect numbers."""


def other_settings(arms: Sequence[Arm]) -> Iterator[str]:
    """Yield the settings of each arm, besides the model, that differ from the baseline's."""
    baseline = arms[0]
    before = _settings(baseline.loaded)
    for arm in arms[1:]:
        settings = _settings(arm.loaded)
        following = _derived(baseline.loaded) & _derived(arm.loaded)
        changes = []
        # For different kinds of optimizers or objectives, the kind covers fields of only one.
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
    """Return the derived fields of a run's recipe."""
    origins = loaded.origins.items()
    return {key for key, origin in origins if origin == DERIVED and key not in MEASURED}


def _settings(loaded: LoadedRecipe) -> dict[str, Any]:
    """Return the effective settings of a recipe, except the model's, by ``table.field``."""
    settings = {}
    for table, fields in loaded.recipe.model_dump(mode="json").items():
        if table in _NOT_SAID:
            continue
        for name, value in fields.items():
            key = f"{table}.{name}"
            if key not in _NOT_SAID and not is_idle(key, loaded.recipe):
                settings[key] = value
    return settings


@dataclass(frozen=True)
class Options:
    """Options of a comparison; None means the study's, or the default.

    ``vary`` and ``tune`` are ``field=a,b`` texts.
    """

    vary: tuple[str, ...] = ()
    match: Rule | None = None
    match_multiple: int | None = None
    """The number of which matched widths are multiples."""
    seeds: int | None = None
    tune: tuple[str, ...] = ()
    scale: str | None = None
    out: Path | None = None
    resume: bool = False
    """True: no new study may begin."""
    device: str | None = None
    jobs: int = 1
    """Number of runs in parallel."""
    on: str | None = None
    """The cluster for runs, as ``ray`` or ``slurm:PARTITION``; None: this machine."""
    finetunings: int | None = None
    """For a chain: fine-tunings of each task under each pre-training."""
    data: str | None = None
    """For a chain: the folder of the tasks' files."""
    margin: str | None = None
    """The smallest difference that matters, in display units."""
    until: str | None = None
    """``decided``: an arm gets more seeds until it is decided."""
    seeds_at_most: int | None = None
    """With ``until``: the last number of seeds."""
    first_seed: int | None = None
    """The first compared seed; None: 0."""
    tuning_seeds: int | None = None
    """Runs of each trial, with different seeds; None: 1."""
    first_tuning_seed: int | None = None
    """The first tuning seed; None: one beyond all comparisons."""
    extend: int | None = None
    """Maximum extensions of a numeric grid with the best value at an edge; None: none."""

    def given(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the given options, as on the command line, in the order of ``names``."""
        values = {f"--{name.replace('_', '-')}": getattr(self, name) for name in names}
        return {option: value for option, value in values.items() if value is not None}

    def command_line(
        self, sources: Sequence[str], overrides: Overrides, *, out: Path | None = None
    ) -> str:
        """Return the command line of a comparison.

        With ``out``, its folder, it resumes there: paths are as given, so it begins by changing to
        the original working directory.
        """
        if isinstance(overrides, Mapping):
            overrides = [f"{key}={value}" for key, value in overrides.items()]
        repeated = {"--vary": self.vary, "--tune": self.tune}
        pairs: list[tuple[str, object]] = [
            (name, text) for name, texts in repeated.items() for text in texts
        ]
        pairs += [("--jobs", self.jobs)] if self.jobs > 1 else []
        pairs += self.given(_SINGLE).items()
        pairs += [] if out is None else [("--out", out)]
        words = ["sublayer", "compare", *sources, *overrides]
        command = shlex.join([*words, *(str(word) for pair in pairs for word in pair)])
        return command if out is None else f"cd {shlex.quote(str(Path.cwd()))} && {command}"


_OF_PLAIN = ("until", "seeds_at_most", "first_seed", "tuning_seeds", "first_tuning_seed", "extend")
"""Options of studies without stages."""
_SINGLE = (
    *("on", "match", "match_multiple", "seeds", "until", "seeds_at_most", "margin"),
    *("first_seed", "tuning_seeds", "first_tuning_seed", "extend"),
    *("finetunings", "data", "scale", "device"),
)
"""Single-valued options, as a command line lists them."""


@dataclass(frozen=True)
class OptionedStudy:
    """A study with its command's options, all checked."""

    study: Study
    looks: Looks
    """The numbers of seeds at its looks."""
    seeds: Seeds
    tune: tuple[str, ...]
    """The tuning grid of the arms' recipes, ``field=a,b`` texts."""
    trials: Sequence[Trial]
    """Trials of the grid; an empty one without a grid."""
    n_tuning: int
    """Most tuning runs of each arm."""

    @property
    def n_seeds(self) -> int:
        """The most compared seeds."""
        return self.looks.planned[-1]


def ask(study: Study, options: Options) -> OptionedStudy:
    """Apply a command's options to a study.

    Raises ConfigError for options that have no effect on it, that contradict each other or the
    study, and for numbers of seeds that allow no comparison.
    """
    if study.chain is None:  # whose stages are loaded later
        refuse_idle()
    rule, multiple = options.match or study.match, options.match_multiple
    if rule == "parameters":
        multiple = multiple or study.match_multiple
    check_rules(
        f"--match-multiple {multiple}",
        (
            multiple and rule != "parameters",
            f"it applies to matched widths, and match = {rule} solves none: leave it out, or give "
            "--match parameters",
        ),
    )
    study = _with_options(replace(study, match=rule, match_multiple=multiple or 1), options)
    # Time cannot be the budget of parallel runs, which slow each other down, or of cluster runs, as
    # nodes differ and may be shared.
    on, jobs = options.on, options.jobs
    option, reason = f"--jobs {jobs}", "parallel runs slow each other down"
    if on is not None:
        parse_place(on)
        check_rules(
            f"{option} contradicts --on {on}",
            (
                jobs > 1,
                "it is for one machine, and a cluster makes as many runs at a time as fit; "
                "leave out one of them",
            ),
        )
        option, reason = f"--on {on}", "cluster nodes differ in speed"
    minutes = [arm.loaded.recipe.train.minutes for arm in study.arms]
    limits = [limit for limit in minutes if limit is not None]
    length, remedy = f"train.minutes = {max(limits, default=0):g}", "train.steps"
    if study.match == "time":
        length, remedy = "match = time", "--match parameters or --match flops"
    is_timed, is_shared = limits or study.match == "time", on is not None or jobs != 1
    check_rules(
        f"{option} contradicts {length}",
        (is_timed and is_shared, f"{reason}; leave it out, or give {remedy}"),
    )
    n_seeds = options.seeds
    if n_seeds is None:
        n_seeds = study.n_seeds or (DEFAULT_SEEDS if len(study.arms) > 1 else 1)
    until, most = options.until, options.seeds_at_most
    is_whole = until == "decided" and most is not None and options.seeds is None
    check_rules(
        "",
        (
            not is_whole and (until or most is not None),
            "--until decided and --seeds-at-most N (such as 20) require each other and exclude "
            "--seeds: give both, without --seeds, or neither",
        ),
    )
    looks = fixed(n_seeds) if most is None else until_decided(most)
    if study.chain is not None:
        check_seeds(n_seeds)
        n_inner, most_inner = (
            study.chain.n_seeds,
            TUNING_NUMBER if study.chain.tune else MOST_FINETUNINGS,
        )
        check_rules(
            f"--finetunings {n_inner}",
            (not 1 <= n_inner <= most_inner, f"it is not between 1 and {most_inner:,}"),
            (
                study.chain.is_within(n_seeds) and n_inner < FEWEST_SEEDS,
                "too few to estimate the spread over fine-tunings of one pre-training: give "
                f"{FEWEST_SEEDS} or more, or 1 for values without a verdict",
            ),
        )
    elif len(study.arms) > 1:
        check_seeds(looks.planned[-1])
    # With stages, tasks are tuned.
    tune = () if study.chain is not None else options.tune or study.tune
    trials = make_trials(study.arms, tune)
    first = options.first_tuning_seed
    seeds = Seeds(
        first=options.first_seed or 0,
        n_tuning=options.tuning_seeds or 1,
        first_tuning=FIRST_TUNING_SEED if first is None else first,
    )
    tuning_options = tuple(options.given(("tuning_seeds", "first_tuning_seed", "extend")))
    seeds.check(looks.planned[-1], is_tuned=bool(tune), options=tuning_options)
    if options.extend:
        values = [value for trial in trials for value in trial.settings.values()]
        are_numbers = all(isinstance(value, int | float) and value > 0 for value in values)
        check_rules(
            "--extend",
            (
                not are_numbers or len(values) != len(trials),
                "it extends only the grid of a single positive number, such as --tune "
                "optimizer.lr=1e-3,2e-3: leave it out",
            ),
        )
    n_tuning = (len(trials) + (options.extend or 0)) * seeds.n_tuning if tune else 0
    return OptionedStudy(study, looks, seeds, tuple(tune), trials, n_tuning)


def _with_options(study: Study, options: Options) -> Study:
    """Return a study with the given margin and settings of stages."""
    chain, texts, prefix = study.chain, options.tune, f"{FINETUNE}."
    of_tasks = [text for text in texts if text.startswith(prefix)]
    if options.margin is not None:
        reason = "given on the command line"
        question = replace(study.question, margin=options.margin, margin_reason=reason)
        study = replace(study, question=question)
    if chain is None:
        needing_stages = [
            *options.given(("finetunings", "data")),
            *(f"--tune {text}" for text in of_tasks),
        ]
        check_rules(
            "",
            (
                needing_stages,
                f"{', '.join(needing_stages)} requires stages of tasks, and {study.name} has "
                "none: leave it out",
            ),
        )
        return study
    plain = ", ".join(options.given(_OF_PLAIN))
    stray = next((text for text in texts if text not in of_tasks), None)
    has_published = any(stage.tasks for stage in chain.stages)
    check_rules(
        "",
        (
            plain,
            f"{plain} applies only to studies without stages, where a run is a single training: "
            "leave it out",
        ),
        (
            study.tune,
            f"{study.name} has both stages and tune: write tune_finetune, which selects by the "
            "tasks' scores",
        ),
        (
            options.data is not None and not has_published,
            f"--data requires stages of published tasks, and {study.name} has none: leave it out",
        ),
        (
            stray,
            f"--tune {stray}: {study.name} tunes only its stages of tasks: write --tune "
            f"{prefix}{stray}",
        ),
    )
    n_seeds = chain.n_seeds if options.finetunings is None else options.finetunings
    tune = tuple(text.removeprefix(prefix) for text in of_tasks) or chain.tune
    chain = replace(chain, n_seeds=n_seeds, data=options.data, tune=tune)
    return replace(study, chain=chain)


def asked_study(
    sources: Sequence[str], overrides: Overrides, options: Options
) -> OptionedStudy | None:
    """Load the study that a command asks for; None for several runs, which are compared unchanged.

    Raises ConfigError as ``load_asked`` and ``ask`` do, and for runs beside other sources, or with
    options that would change them.
    """
    run = next(filter(is_run, sources), None) if len(sources) > 1 else None
    if run is not None:
        for source in sources:
            if not Path(source).exists() and find_shipped(source) is None:
                raise ConfigError(f"{describe_absence(source)}: name a finished run")
            check_rules(
                "",
                (
                    not is_run(source),
                    f"{run} is a run and {source} is not: compare either recipes or folders of "
                    "finished runs; sublayer report shows a comparison",
                ),
            )
        words = replace(options, device=None).command_line([], overrides).split()[2:]
        words += ["--resume"] if options.resume else []
        idle = " ".join(words)
        check_rules("", (words, f"existing runs are compared unchanged: leave out {idle}"))
        return None
    study = load_asked(sources, overrides, vary_texts=options.vary, scale=options.scale)
    return ask(study, options)
