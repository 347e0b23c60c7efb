"""Completions of words of a command line: names, each with a description.

Everything is imported late: where these are named, commands are declared.
"""

import os
from pathlib import Path

import typer

Candidates = list[tuple[str, str]]
"""Whole words, each with its description; those that begin otherwise are left out by typer."""
_RUNS = Path("runs")


def recipes(incomplete: str) -> Candidates:
    """Return the shipped recipes, and the runs whose recipes may be taken."""
    from sublayer.config.sources import SHIPPED

    return [*_titled(SHIPPED), *runs(incomplete)]


def presets(incomplete: str) -> Candidates:
    """Return the presets of fine-tuning."""
    from sublayer.config.finetune import SHIPPED

    return _titled(SHIPPED)


def recipes_and_studies(incomplete: str) -> Candidates:
    """Return the shipped recipes and studies, and the runs."""
    from sublayer.config.sources import SHIPPED
    from sublayer.study.definition import SHIPPED as STUDIES

    return [*_titled(SHIPPED), *_titled(STUDIES), *runs(incomplete)]


def recipes_and_settings(incomplete: str) -> Candidates:
    """Return what may follow the first recipe of several: recipes, runs, settings."""
    return (
        settings(incomplete) if "." in incomplete else [*recipes(incomplete), *settings(incomplete)]
    )


def runs(incomplete: str) -> Candidates:
    """Return the runs and imported models below ``runs``; those of a comparison behind its path."""
    return [run for run in runs_and_comparisons(incomplete) if run[1] != "comparison"]


def runs_and_comparisons(incomplete: str) -> Candidates:
    """Return the runs, models and comparisons below ``runs``."""
    from sublayer.reporting.listing import find_folders

    if not _RUNS.is_dir():
        return []
    # The many runs of comparisons are shown to those who look into one.
    with_arms = f"{os.sep}arms{os.sep}" in incomplete
    return [(str(path), kind) for path, kind in find_folders(_RUNS, with_arms=with_arms)]


def fields(incomplete: str) -> Candidates:
    """Return fields as ``sublayer fields`` takes them, and tables."""
    from sublayer.config.catalog import TABLES, keys

    tables = [(table, f"all fields of [{table}]") for table in TABLES]
    return [*tables, *((key, _description(key)) for key in keys())]


def settings(incomplete: str) -> Candidates:
    """Return ``field=`` for each field, and behind that the choices that it has."""
    from sublayer.config.catalog import keys

    key, equals, _ = incomplete.partition("=")
    if not equals:
        return [(f"{name}=", _description(name)) for name in keys()]
    return [(f"{key}={choice}", text) for choice, text in _values(key)]


def varied(incomplete: str) -> Candidates:
    """Return ``field=`` for each field, then its choices, several divided by commas."""
    key, equals, values = incomplete.partition("=")
    if not equals:
        return settings(incomplete)
    done, comma, _ = values.rpartition(",")
    before = f"{key}={done}{comma}"
    given = done.split(",")
    return [(f"{before}{choice}", text) for choice, text in _values(key) if choice not in given]


def corpora(incomplete: str) -> Candidates:
    """Return the corpora by name."""
    from sublayer.config.texts import CORPORA

    return [(name, "") for name in CORPORA]


def tasks(incomplete: str) -> Candidates:
    """Return the tasks that models are fine-tuned on."""
    from sublayer.tasks.registry import TASKS

    return [(task.name, task.title) for task in TASKS.values()]


def devices(incomplete: str) -> Candidates:
    """Return kinds of devices; which there are takes PyTorch to say."""
    return [("cpu", "the processor"), ("cuda", "the first GPU")]


def planned_devices(incomplete: str) -> Candidates:
    """Return kinds of devices, and those that are known by their datasheets."""
    from sublayer.estimate.cluster import DEVICES

    return [*devices(incomplete), *((name, "by its datasheet") for name in DEVICES)]


def scales(ctx: typer.Context, incomplete: str) -> Candidates:
    """Return the scales of the shipped study that is named before."""
    from sublayer.study.definition import shipped_studies, study_scales

    study = ctx.params.get("source")
    return [(name, "") for name in study_scales(study)] if study in shipped_studies() else []


def _titled(folder: Path) -> Candidates:
    from sublayer.config.sources import read_toml

    files = sorted(folder.glob("*.toml"), key=lambda path: path.stem)
    return [(path.stem, str(read_toml(path).get("title", ""))) for path in files]


def _values(key: str) -> Candidates:
    from sublayer.config.catalog import declarations
    from sublayer.config.messages import choices_of
    from sublayer.config.texts import TOKENIZERS

    if key == "init.run":
        return runs("")
    if key == "data.corpus":
        return corpora("")
    if key == "data.tokenizer":
        return [(name, "") for name in TOKENIZERS]
    values: dict[str, None] = {}
    for info in declarations(key).values():
        choices = ("true", "false") if info.annotation is bool else choices_of(info.annotation)
        values.update(dict.fromkeys(map(str, choices)))
    return [(value, "") for value in values]


def _description(key: str) -> str:
    from sublayer.config.catalog import declaration

    first, *_ = (declaration(key).description or "").split(". ")
    return first
