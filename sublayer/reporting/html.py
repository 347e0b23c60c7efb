"""Self-contained HTML pages: reports of studies and runs, verdicts, a scorecard."""

import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from sublayer import numbers
from sublayer.config.load import load_recipe
from sublayer.config.recipe import HEADINGS
from sublayer.files.storage import write_file
from sublayer.numbers import DASH, count, enumerate_names, format_quantity
from sublayer.plot import palette
from sublayer.reporting import figures, tables, words
from sublayer.reporting.tables import card_sheet
from sublayer.runs.folder import MODEL, RunFolder
from sublayer.statistics.contrasts import Difference, Verdict
from sublayer.study.comparisons import compared_budgets, differing_fields
from sublayer.study.results import Results
from sublayer.training.log import METRICS, read_metrics
from sublayer.values import show

_PROMPT = "The "
_EXPONENT = re.compile(r"(\d[\d.]*e-\d+)")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def render_page(
    template: str, filters: Mapping[str, Callable[..., Any]] | None = None, **context: Any
) -> str:
    """Render a page template with the palette; equal contexts give equal text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("sublayer.reporting", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["slug"] = lambda verdict: verdict.replace(" ", "-")
    environment.globals["verdicts"] = get_args(Verdict)
    environment.filters |= filters or {}
    style = (Path(__file__).parent / "page" / "page.css").read_text(encoding="utf-8")
    context |= {"palette": palette(), "style": style.removesuffix("\n")}
    return environment.get_template(template).render(context)


def render_report(results: Results) -> str:
    """Render the report of a study."""
    results = words.in_display_units(results)
    decided = [
        further.metric.label
        for further in results.further
        if any(difference.verdict != "no verdict" for difference in further.differences)
    ]
    cost_plots, equal_costs = figures.draw_costs(results)
    power = figures.draw_power(results)
    # The forest plot: each difference, with the differences of common seeds; a contrast of several
    # arms has none.
    scores = {arm.name: dict(zip(arm.seeds, arm.values, strict=True)) for arm in results.arms}
    rows = []
    for difference in results.differences:
        one, other = scores.get(difference.arm, {}), scores.get(difference.baseline, {})
        seeds = difference.seeds if difference.baseline else ()
        rows.append((difference, [one[seed] - other[seed] for seed in seeds]))
    forest = Forest(rows, results.margin, results.metric.is_lower_better)
    card, text = results.scorecard, results.reproduction.text
    sizes = [] if text is None else text.sizes.values()
    units = list(dict.fromkeys(unit for of_split in sizes for unit in of_split))
    filters: dict[str, Callable[..., Any]] = {
        **forest_filters(words.n_decimals(results)),
        "comparison": lambda difference: tables.comparison(results, difference),
        "printable": _printable,
        "unbroken": _unbroken,
    }
    return render_page(
        "report.html.j2",
        filters,
        results=results,
        looks=figures.looks(results),
        headline=words.headline_parts(results),
        conditions=words.conditions(results),
        statements=words.statements(results),
        n_failed=f"{count(len(results.failures), 'run')} failed",
        text=words.text_line(results),
        facts=list(words.fact_lines(results)),
        confidence=words.confidence(results),
        hypothesis=words.hypothesis_words(results),
        also=enumerate_names(decided),
        forest=forest,
        errors=tables.comparisons_sheet(results, tables.ERRORS),
        scorecard=None if card is None else card_sheet(card),
        budgets=tables.budget_sheet(compared_budgets(results), results.baseline),
        worth=tables.quality_sheet(results),
        cost_plots=cost_plots,
        equal_costs=enumerate_names(equal_costs),
        costs=tables.arms_sheet(results),
        further=tables.further_sheet(results),
        differing=differing_fields(results.arms),
        text_units=units,
        curves=figures.draw_curves(results),
        losses=tables.losses_sheet(results),
        seeds=figures.draw_seeds(results),
        secondary=tables.secondary_sheet(results),
        basis=list(words.basis_lines(results)),
        courses=figures.draw_courses(results),
        turns=list(words.turn_lines(results)),
        power=power,
        power_words=words.power_words(results) if power else "",
        expected_best=figures.draw_expected_best(results),
        layer_plots=figures.draw_layers(results),
        layers=figures.layers_sheet(results),
        layers_read=figures.layers_read(results),
    )


def write_report(results: Results, path: Path) -> None:
    """Write the report atomically. Raises OSError."""
    write_file(path, render_report(results))


def render_run(run: Path) -> str:
    """Render a run's report, partial if the run is unfinished.

    Raises ConfigError if the folder holds no run, and CheckpointError if it is damaged.
    """
    folder = RunFolder(run)
    recipe = folder.recipe()
    record = folder.record()
    lines = list(read_metrics(run / METRICS))
    name = run.absolute().name
    # Fields set to values other than their defaults.
    loaded, settings = load_recipe(run), {}
    for key, origin in loaded.origins.items():
        table, _, field = key.partition(".")
        if origin != "default" and key not in HEADINGS:
            settings[key] = show(getattr(getattr(loaded.recipe, table), field))
    costs: dict[str, str] = {}
    texts: dict[str, str] = {}
    sample = ""
    if record is not None:
        valid, parameters, data = record["valid"], record.get("parameters"), record["data"]
        for key, value in valid.items():
            if key not in figures.NO_METRIC:
                label = key if "/" in key else f"validation {key.replace('_', ' ')}"
                costs[label] = f"{value:.4f}"
        costs |= {
            "best evaluation": f"step {valid['step']:,} of {record['step']:,}",
            "parameters": f"{parameters['total']:,}" if parameters else DASH,
            "FLOPs per token": format_quantity(record.get("flops_per_token")),
            "tokens": format_quantity(record["tokens"]),
            "tokens/s": format_quantity(record["tokens_per_s"]),
            "memory": format_quantity(record.get("peak_memory_bytes"), "B"),
            "time": numbers.format_duration(record["seconds"]),
            "precision": str(record["precision"]),
            "threads": format_quantity(record.get("threads")),
        }
        size = f", {data['vocab_size']:,} tokens" if "vocab_size" in data else ""
        texts["tokenizer"] = f"{data.get('tokenizer', DASH)}{size}"
        for split in ("train", "valid", "test"):
            if split in data:
                sizes = data[split].items()
                texts[split] = ", ".join(
                    f"{value:,} {key.replace('_', ' ')}" for key, value in sizes
                )
        texts |= {f"SHA-256, {key}": str(value) for key, value in data["checksums"].items()}
        if recipe.model.kind == "decoder" and (run / MODEL).is_dir():
            from sublayer.study.inspection import continuation

            context = recipe.data.context
            written = continuation(run, _PROMPT.encode(), context=context, device="cpu")
            sample = _PROMPT + written if written else ""
    return render_page(
        "run.html.j2",
        name=name,
        recipe=recipe,
        is_finished=record is not None,
        last_step=max((line["step"] for line in lines), default=None),
        curves=figures.draw_metrics(lines),
        probes=figures.draw_probes(figures.probed_run(name, record, lines)),
        settings=settings,
        costs=costs,
        texts=texts,
        sample=sample,
    )


def _unbroken(text: str) -> Any:
    """Escape a sentence, and keep numbers such as ``1.6e-2`` from breaking at the hyphen."""
    from markupsafe import Markup, escape

    return Markup(_EXPONENT.sub(r"<span class=number>\1</span>", str(escape(text))))


def _printable(text: str) -> Any:
    """Escape generated text; mark line breaks, invalid UTF-8 and invisible characters."""
    from markupsafe import Markup, escape

    parts = []
    for character in text:
        if character == "\n":
            parts.append('<i class="break">↵</i> ')
        elif character == _REPLACEMENT or unicodedata.category(character).startswith("C"):
            what = "not valid UTF-8" if character == _REPLACEMENT else f"U+{ord(character):04X}"
            parts.append(f'<i class="invalid" title="{what}">{_REPLACEMENT}</i>')
        else:
            parts.append(escape(character))
    return Markup("".join(parts))


@dataclass(frozen=True)
class Forest:
    """Forest plot: differences and their intervals over one axis."""

    rows: Sequence[tuple[Difference, Sequence[float]]]
    """Differences, each with its differences of single seeds."""
    margin: float | None
    """Smaller differences do not matter; None: no margin."""
    is_lower_better: bool
    """True if better arms have their intervals on the left."""

    @cached_property
    def _ends(self) -> tuple[float, float]:
        """The ends of the axis, which covers all intervals, seeds, the margins and 0."""
        shown = [0.0]
        for difference, pairs in self.rows:
            shown += [
                *pairs,
                *(end for end in (difference.low, difference.high) if end is not None),
            ]
        if self.margin is not None:
            shown += [-self.margin, self.margin]
        free = 0.06 * (max(shown) - min(shown)) or 1.0
        return min(shown) - free, max(shown) + free

    def place(self, value: float) -> float:
        """Return the position of a difference from the left, in percent of the axis."""
        low, high = self._ends
        return round(100 * (value - low) / (high - low), 2)

    def width(self, low: float, high: float) -> float:
        """Return the width of an interval, in percent of the axis."""
        return round(self.place(high) - self.place(low), 2)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Positions of about six round values, with their labels."""
        low, high = self._ends
        rough = (high - low) / 6
        unit = 10 ** math.floor(math.log10(rough))
        step = min(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
        decimals = max(0, -math.floor(math.log10(step)))
        return [
            (self.place(n * step), numbers.format_signed(n * step, decimals) if n else "0")
            for n in range(math.ceil(low / step), math.floor(high / step) + 1)
        ]


def forest_filters(decimals: int) -> dict[str, Callable[..., Any]]:
    """Return the filters of its template, for a number of decimals."""

    def signed(value: float | None, n_decimals: int = decimals) -> str:
        return numbers.format_signed(value, n_decimals)

    def interval(difference: Difference) -> str:
        return numbers.format_interval(difference.low, difference.high, decimals)

    return {"signed": signed, "interval": interval}
