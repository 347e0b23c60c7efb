"""A suite's file: measures and settings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from sublayer.config.data import DocumentRule
from sublayer.config.finetune import DEFAULT, preset_names
from sublayer.config.layers import read_toml
from sublayer.config.messages import first_problem
from sublayer.config.objective import BleuTokenizer
from sublayer.config.table import Table
from sublayer.errors import ConfigError, nearest_hint
from sublayer.tasks.probes import check_names
from sublayer.tasks.registry import TASKS

_MOST_SEEDS = 100


class TasksTable(Table):
    """An entry of ``[[tasks]]``: tasks by name, and the folder of their files.

    Models that do not answer them are fine-tuned now if ``finetune`` names a folder for their runs:
    by ``preset``, with settings ``set`` over it, and ``seeds`` times each.
    """

    names: list[str] = Field(min_length=1)
    data: str | None = None
    finetune: str | None = Field(None, min_length=1)
    preset: str = DEFAULT
    seeds: int | None = Field(None, ge=1, le=_MOST_SEEDS)
    set: dict[str, Any] = Field(default_factory=dict)


class ProbesTable(Table):
    """An entry of ``[[probes]]``: probes by name, and the folder of their files.

    ``words`` are the two compared by the SST-2 probe, ``references`` the scores, as shares, at 1 on
    a probe's axis.
    """

    names: list[str] = Field(min_length=1)
    data: str | None = None
    words: list[str] | None = Field(None, min_length=2, max_length=2)
    references: dict[str, float] = Field(default_factory=dict)


class TextTable(Table):
    """An entry of ``[[texts]]``: a text scored in bits per byte."""

    path: str = Field(min_length=1)
    name: str | None = Field(None, min_length=1)
    documents: DocumentRule | None = None

    @property
    def label(self) -> str:
        """Its name in the scorecard."""
        return self.name or Path(self.path).name


class PairsTable(Table):
    """An entry of ``[[pairs]]``: lines to translate, and a translation of each.

    ``bleu_tokenizer`` is sacreBLEU's, by default for each translator's target language.
    """

    source: str = Field(min_length=1)
    target: str = Field(min_length=1)
    name: str | None = Field(None, min_length=1)
    lowercase: bool = False
    bleu_tokenizer: BleuTokenizer | None = None

    @property
    def label(self) -> str:
        """Its name in the scorecard."""
        return self.name or Path(self.target).name


class SuiteFile(Table):
    """A suite's file."""

    title: str = ""
    parameters: bool = False
    speed: bool = False
    tasks: list[TasksTable] = Field(default_factory=list)
    probes: list[ProbesTable] = Field(default_factory=list)
    texts: list[TextTable] = Field(default_factory=list)
    pairs: list[PairsTable] = Field(default_factory=list)


def read_suite(path: Path) -> SuiteFile:
    """Read a suite's file.

    Raises ConfigError, with its name, if it is not a suite, is empty, names unknown or duplicate
    entries, or has a setting without effect.
    """
    try:
        suite = SuiteFile.model_validate(read_toml(path))
    except ValidationError as error:
        raise ConfigError(f"suite {path}: {first_problem(error, SuiteFile)}") from None
    if suite == SuiteFile(title=suite.title):
        raise ConfigError(
            f"suite {path} has nothing to measure: give [[tasks]], [[probes]], [[texts]] or "
            "[[pairs]], parameters = true or speed = true"
        )
    for group in suite.tasks:
        for name in group.names:
            if name not in TASKS:
                raise ConfigError(
                    f"suite {path}: {name:.60} is not a task; `sublayer tasks` lists "
                    f"them{nearest_hint(name, tuple(TASKS))}"
                )
        if group.preset not in preset_names():
            raise ConfigError(
                f"suite {path}: {group.preset:.60} is not a preset; the presets are "
                f"{', '.join(preset_names())}"
            )
        for name, default in (("preset", DEFAULT), ("seeds", None), ("set", {})):
            if group.finetune is None and getattr(group, name) != default:
                raise ConfigError(
                    f"suite {path}: {name} requires fine-tuning: give a folder for the runs, "
                    'finetune = "FOLDER", or leave it out'
                )
    for probes in suite.probes:
        try:
            check_names(probes.names)
        except ConfigError as error:
            raise ConfigError(f"suite {path}: {error}") from None
    _check_twice(path, "task", [name for group in suite.tasks for name in group.names])
    _check_twice(path, "probe", [name for group in suite.probes for name in group.names])
    _check_twice(path, "text", [text.label for text in suite.texts])
    _check_twice(path, "pairs", [pairs.label for pairs in suite.pairs])
    return suite


def _check_twice(path: Path, what: str, names: Sequence[str]) -> None:
    for name in names:
        if list(names).count(name) > 1:
            raise ConfigError(
                f"suite {path}: {what} {name:.60} is listed twice: leave one out, or rename one"
            )
