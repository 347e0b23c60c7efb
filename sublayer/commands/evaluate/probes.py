"""``sublayer evaluate RUN --probes``: what a model answers without being trained on the task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sublayer.commands.shared.base import JsonObject, emit
from sublayer.commands.shared.text_options import TokenProgress, recipe_of
from sublayer.config.probes import PROBES, check_names
from sublayer.errors import ConfigError
from sublayer.system.stages import stage
from sublayer.system.terminal import noted, paragraph, terminal_width
from sublayer.tables import table

if TYPE_CHECKING:
    from sublayer.evaluation.probes import Settings

_ALL = "all"
_DASH = "\N{EN DASH}"
_LEGEND = (
    "from 0, which guessing scores, to 1, the reference: what a model of the paper's time scored "
    "that was trained on the task"
)


@dataclass(frozen=True)
class ProbesAsked:
    """What ``--probes`` and the options beside it ask."""

    run: Path
    names: str
    """With commas between them, or ``all``."""
    folder: str | None
    words: str | None
    references: tuple[str, ...]


def evaluate_probes(
    asked: ProbesAsked, *, device: str | None, average: int | None, as_json: bool
) -> None:
    """Ask the probes that are named, and print what they found.

    Raises ConfigError for what is no probe, no words, or no reference, and for a model that
    predicts no text.
    """
    with stage("starting PyTorch"):
        from sublayer.evaluation.probes import ask, check_model, read_probes
        from sublayer.loading import load
        from sublayer.objective.evaluation import context_of
        from sublayer.system.machine import choose_device

    is_all = asked.names == _ALL
    chosen = PROBES if is_all else [name.strip() for name in asked.names.split(",")]
    settings = _settings(asked.words, asked.references)
    check_names(chosen)
    model = load(asked.run, device=choose_device(device), average=average)
    check_model(model, str(asked.run))
    read = read_probes(chosen, asked.folder, settings)
    context = context_of(model, recipe_of(asked.run))
    scores = ask(model, read, context, TokenProgress("scored", "texts"))
    result = {
        "run": str(asked.run),
        "context": context,
        "probes": [each.to_json() for each in scores],
    }
    emit(result, as_json, render_probes)


def _settings(words: str | None, references: Sequence[str]) -> "Settings":
    from sublayer.evaluation.probes import Settings

    settings: dict[str, Any] = {}
    if words is not None:
        first, comma, second = words.partition(",")
        if not comma or not first.strip() or not second.strip() or "," in second:
            raise ConfigError(
                f"--words {words!r} are not two words with a comma between: that of the first "
                "label, then that of the second, such as negative,positive"
            )
        settings["words"] = (first.strip(), second.strip())
    given: dict[str, float] = {}
    for text in references:
        name, equals, value = text.partition("=")
        try:
            given[name.strip()] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise ConfigError(
                f"--reference {text!r} is not such as winograd=0.637: a probe, and its score as a "
                "share"
            )
    return Settings(**settings, references=given)


def render_probes(result: JsonObject) -> str:
    """Format what probes found in a table, and what is to be said of each."""
    from sublayer.tasks.metrics.points import points
    from sublayer.tasks.metrics.table import METRICS

    rows = []
    notes = []
    for each in result["probes"]:
        error = each["standard_error"]
        spread = "" if error is None else f" ± {points(error)}"
        rows.append(
            (
                each["title"],
                f"{each['examples']:,}",
                METRICS[each["metric"]].title,
                f"{points(each['value'])}{spread}",
                points(each["chance"]),
                _DASH if each["reference"] is None else points(each["reference"]),
                _DASH if each["normalised"] is None else f"{each['normalised']:.2f}",
            )
        )
        notes += [noted(f"{each['title']}: {note}") for note in each["notes"]]
    headings = ["probe", "examples", "metric", "score", "chance", "reference", "from 0 to 1"]
    shown = table(headings, rows, right=[1, 3, 4, 5, 6], width=terminal_width())
    return "\n".join([shown, paragraph(_LEGEND), *notes])


def check_alone(given: Mapping[str, Any], runs: Sequence[Path]) -> None:
    """Raise ConfigError for several models, or an option of scoring a text beside the probes."""
    if len(runs) > 1:
        raise ConfigError("--probes asks one model: name one run, or a --suite for several")
    for name in given:
        if name != "path":
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{option} has no effect on --probes: leave it out")
