"""A study: its arms, how they are matched and how many seeds, from a study's file or from a recipe and what varies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from sublayer.config.catalog import TABLES, nearest
from sublayer.config.layers import LoadedRecipe, load_recipe, vary
from sublayer.config.limits import MOST_ARMS, MOST_SEEDS
from sublayer.config.sources import override_layer, read_toml, shipped_recipes
from sublayer.config.table import Table
from sublayer.config.wording import show
from sublayer.errors import ConfigError
from sublayer.study.arms import Arm, check_distinct, expand, make_arm
from sublayer.study.match import Rule

SHIPPED = Path(__file__).parent.parent / "studies"
Scale = Literal["paper", "cpu"]
DEFAULT_SEEDS = 5
"""Runs of each arm of a comparison where nobody said how many."""
Overrides = Sequence[str] | Mapping[str, Any]
Sentence = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True)
class Study:
    """Arms, the first of them the baseline, and the rules by which they are compared.

    ``name`` is the study's or the recipe's. ``n_seeds`` is None where nobody said how many. ``metric`` decides, where
    it is not the usual one. ``caveats`` say, a sentence or two each, what the study's verdicts do not show.
    """

    name: str
    title: str
    source: str
    match: Rule
    n_seeds: int | None
    arms: tuple[Arm, ...]
    metric: str | None = None
    caveats: tuple[str, ...] = ()

    @property
    def against(self) -> dict[str, str]:
        """Which arms are compared with another than the first, and with which; a control with itself."""
        return {arm.name: arm.against for arm in self.arms if arm.against is not None}


class ArmTable(Table):
    """One of ``[[arms]]``: a name, what sets it apart, and the arm that it is compared with, if not the first.

    An arm that is ``against`` itself is compared with none: a control of others.

    ``recipe`` is where it starts, if not from the scale's.
    """

    name: str = Field(min_length=1)
    recipe: str | None = None
    against: str | None = None
    set: dict[str, Any] = Field(default_factory=dict)


class ScaleTable(Table):
    """``[scale.paper]`` or ``[scale.cpu]``: the recipe that all arms start from, and settings laid over it.

    ``[[scale.cpu.arms]]`` are arms of this scale alone, for a study that has no ``[[arms]]`` of all scales.
    ``caveats`` are those of this scale, after the study's own.
    """

    recipe: str
    caveats: list[Sentence] = Field(default_factory=list)
    set: dict[str, Any] = Field(default_factory=dict)
    arms: list[ArmTable] | None = Field(None, min_length=2, max_length=MOST_ARMS)


class StudyFile(Table):
    """A study's file. Settings are written as ``"model.ffn" = "relu"`` or as tables, ``model.ffn = "relu"``."""

    title: str = ""
    source: str = ""
    match: Rule = "parameters"
    metric: str | None = None
    seeds: int | None = Field(None, ge=2, le=MOST_SEEDS)
    caveats: list[Sentence] = Field(default_factory=list)
    scale: dict[Scale, ScaleTable] = Field(min_length=1)
    arms: list[ArmTable] | None = Field(None, min_length=2, max_length=MOST_ARMS)

    def arms_of(self, scale: Scale) -> list[ArmTable]:
        """Give the arms of a scale: its own, or those of all scales."""
        return self.scale[scale].arms or self.arms or []


def load_study(
    source: str, overrides: Overrides = (), *, vary_texts: Sequence[str] = (), scale: Scale | None = None
) -> Study:
    """Load a study by shipped name or path, or make one of a recipe and ``--vary`` texts (none: a single arm).

    ``overrides`` go to every arm. ``scale`` is paper where the study has it, unless given.
    Raises ConfigError for a file that is no study, an override of what the arms differ in, ``vary_texts`` for a study,
    ``scale`` for a recipe, and as ``load_recipe`` and ``expand`` do.
    """
    path = find_study(source)
    if path is not None:
        if vary_texts:
            raise ConfigError(f"{source} is a study with arms of its own: leave out --vary")
        return _read_study(path, overrides, scale)
    loaded = _load_recipe(source, overrides)
    if scale is not None:
        raise ConfigError(f"--scale {scale} chooses the recipe of a study, and {source} is a recipe: leave it out")
    arms = tuple(expand(loaded, vary_texts))
    return Study(loaded.name, loaded.recipe.title, loaded.recipe.source, "parameters", None, arms)


def shipped_studies() -> tuple[str, ...]:
    """List the names of the studies that come with the package."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def find_study(source: str) -> Path | None:
    """Find a study by shipped name or by path of a file that has ``arms`` or scales; None for anything else."""
    if source in shipped_studies():
        return SHIPPED / f"{source}.toml"
    path = Path(source)
    is_study = path.suffix == ".toml" and path.is_file() and not read_toml(path).keys().isdisjoint(("arms", "scale"))
    return path if is_study else None


def _load_recipe(source: str, overrides: Overrides) -> LoadedRecipe:
    try:
        return load_recipe(source, overrides)
    except ConfigError as error:
        near = nearest(source, (*shipped_recipes(), *shipped_studies()))
        if near not in shipped_studies() or Path(source).exists():
            raise
        raise ConfigError(f"{error}, or the study {near}?") from None


def _read_study(path: Path, overrides: Overrides, scale: Scale | None) -> Study:
    file = _validated(path)
    scale = scale or ("paper" if "paper" in file.scale else "cpu")
    if scale not in file.scale:
        raise ConfigError(f"{path.stem} has no scale {scale}: it has {', '.join(file.scale)}")
    base = _base(path, file.scale[scale], overrides)
    given = override_layer(overrides, "command line").values
    arms = []
    _check_against(path, file.arms_of(scale))
    for table in file.arms_of(scale):
        settings = flatten(table.set)
        for key in given.keys() & settings.keys():
            raise ConfigError(f"{key} is what the arms of {path.stem} differ in: leave out {key}={show(given[key])}")
        own = file.scale[scale].model_copy(update={"recipe": table.recipe}) if table.recipe else None
        arm = make_arm(table.name, _base(path, own, overrides) if own else base, settings)
        arms.append(replace(arm, against=table.against))
    check_distinct(arms)
    caveats = (*file.caveats, *file.scale[scale].caveats)
    return Study(path.stem, file.title, file.source, file.match, file.seeds, tuple(arms), file.metric, caveats)


def _check_against(path: Path, arms: Sequence[ArmTable]) -> None:
    names = [arm.name for arm in arms]
    against = {arm.name: arm.against for arm in arms if arm.against is not None}
    for name, other in against.items():
        if other not in names:
            raise ConfigError(f"{path.stem}: arm {name} is against {other}, which is not an arm of it")
        if other == name and list(against.values()).count(name) == 1:
            raise ConfigError(f"{path.stem}: arm {name} is against itself, a control, but no other arm is against it")
        if name == names[0]:
            raise ConfigError(
                f"{path.stem}: arm {name} is the first, which others are compared with: leave out against"
            )


def _base(path: Path, scale: ScaleTable, overrides: Overrides) -> LoadedRecipe:
    beside = path.parent / scale.recipe
    is_file = scale.recipe not in shipped_recipes() and beside.exists()
    loaded = load_recipe(beside if is_file else scale.recipe, flatten(scale.set), origin=f"study {path.stem}")
    return vary(loaded, overrides, origin="command line") if overrides else loaded


def flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Write settings that may be in tables, ``{"model": {"ffn": "relu"}}``, as ``{"model.ffn": "relu"}``."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if name in TABLES and isinstance(value, Mapping):
            flat.update({f"{name}.{key}": content for key, content in value.items()})
        else:
            flat[name] = value
    return flat


def _validated(path: Path) -> StudyFile:
    try:
        file = StudyFile.model_validate(read_toml(path))
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in detail["loc"])
        raise ConfigError(f"study {path}: {place}: {detail['msg']}") from None
    for scale, table in file.scale.items():
        if (file.arms is None) == (table.arms is None):
            number = "no arms" if table.arms is None else "arms twice"
            raise ConfigError(f"study {path}: scale {scale} has {number}: give [[arms]] or [[scale.{scale}.arms]]")
    return file
