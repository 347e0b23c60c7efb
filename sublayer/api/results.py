"""Results of the functions: the command's JSON object as a dict, which shows itself."""

import shlex
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sublayer.api.html import figure, page, prose, rows_of, table
from sublayer.commands.shared.base import as_json_values, searchable
from sublayer.counts import count
from sublayer.files.paths import as_typed
from sublayer.tables import table as text_table

if TYPE_CHECKING:
    from sublayer.decode.gaps import Completion
    from sublayer.model.output import Filling
    from sublayer.runs.finetuning import SeedResult
    from sublayer.statistics.difference import Difference
    from sublayer.study.results import ArmResult, Results


@dataclass(frozen=True, repr=False)
class Result:
    """The object that ``--json`` prints, read by ``result["name"]``, and its text."""

    found: dict[str, Any]
    render: Callable[[Mapping[str, Any]], str] = field(compare=False)

    def __getitem__(self, name: str) -> Any:
        return self.found[name]

    def to_dict(self) -> dict[str, Any]:
        """Return what the command prints with ``--json``."""
        plain: dict[str, Any] = as_json_values(self.found)
        return plain

    def __repr__(self) -> str:
        return searchable(self.render(self.found))

    def _repr_html_(self) -> str:
        return prose(repr(self))


class Scores(Result):
    """How well a model did: measures by name, and what was scored; ``scores["loss"]`` is one."""

    def _repr_html_(self) -> str:
        measures = {
            name: value for name, value in self.found.items() if isinstance(value, int | float)
        }
        return page(table(["measure", "value"], rows_of(measures)))


@dataclass(frozen=True, repr=False)
class Texts:
    """Continuations of a prompt, without it; as a string, the prompt and the first."""

    prompt: str
    texts: list[str]
    n_tokens: int
    """Tokens drawn for each."""
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return what ``sublayer generate --json`` prints of a decoder."""
        return {
            "prompt": self.prompt,
            "texts": self.texts,
            "tokens": self.n_tokens,
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        return f"{self.prompt}{self.texts[0]}"

    def __repr__(self) -> str:
        if len(self.texts) == 1:
            return str(self)
        lines = [f"--- {number}\n{text}" for number, text in enumerate(self.texts, start=1)]
        return "\n".join([self.prompt, *lines])

    def _repr_html_(self) -> str:
        return page(*(prose(text, before=self.prompt) for text in self.texts))


@dataclass(frozen=True, repr=False)
class Completions:
    """A text with its gaps filled, the best completion first; as a string, that one."""

    prompt: str
    completions: "list[Completion]"
    seconds: float

    @property
    def texts(self) -> list[str]:
        """The completed texts."""
        return [completion.text for completion in self.completions]

    def to_dict(self) -> dict[str, Any]:
        """Return what ``sublayer generate --json`` prints of an encoder-decoder."""
        described = []
        for completion in self.completions:
            gaps = [
                {"text": gap.text, "score": gap.score, "tokens": gap.n_tokens}
                for gap in completion.gaps
            ]
            described.append(
                {
                    "text": completion.text,
                    "score": completion.score,
                    "tokens": completion.n_tokens,
                    "gaps": gaps,
                    "unplaced": completion.unplaced,
                }
            )
        return {"prompt": self.prompt, "completions": described, "seconds": self.seconds}

    def __str__(self) -> str:
        return self.texts[0]

    def __repr__(self) -> str:
        return "\n".join(self.texts)

    def _repr_html_(self) -> str:
        rows = [[completion.text, f"{completion.score:.4f}"] for completion in self.completions]
        return page(table(["text", "score"], rows))


@dataclass(frozen=True, repr=False)
class Fillings:
    """The likeliest fillings of each mask of a text, the likeliest first."""

    text: str
    masks: "list[list[Filling]]"

    @property
    def texts(self) -> list[str]:
        """The text with each filling of its first mask, the likeliest first."""
        return [filling.completed for filling in self.masks[0]]

    def to_dict(self) -> dict[str, Any]:
        """Return what ``sublayer fill --json`` prints."""
        masks = [[filling.to_json() for filling in mask] for mask in self.masks]
        return {"text": self.text, "masks": masks}

    def __repr__(self) -> str:
        shown = []
        for number, mask in enumerate(self.masks, start=1):
            rows = [
                (filling.text, f"{filling.probability:.4f}", filling.completed) for filling in mask
            ]
            name = "filling" if len(self.masks) == 1 else f"mask {number}"
            shown.append(
                text_table([name, "probability", "text"], rows, right=[1])
                if rows
                else f"{name}: nothing of what the model wrote fills it, as a T5 trained on gaps "
                "does"
            )
        return "\n\n".join(shown)

    def _repr_html_(self) -> str:
        shown = []
        for mask in self.masks:
            rows = [[filling.text, f"{filling.probability:.4f}"] for filling in mask]
            shown.append(table(["filling", "probability"], rows))
        return page(*shown)


@dataclass(frozen=True)
class TranslatedLine:
    """The translations of a line, the best first; none of an empty line or one that is too long."""

    number: int
    """Of the line, from 1."""
    texts: list[str]
    scores: list[float]
    """In nats, divided as the length rule says."""
    n_tokens: int
    """Tokens of the line, its end included."""
    n_unknown: int
    """Those that the vocabulary does not have."""
    is_too_long: bool


@dataclass(repr=False)
class Translations:
    """Translations of lines, in order; as a string, the best of each."""

    sources: list[str] = field(default_factory=list)
    """The lines; empty where they were translated as they came."""
    lines: list[TranslatedLine] = field(default_factory=list)
    """Empty where each was shown as it was translated."""
    n_lines: int = 0
    n_tokens: int = 0
    """Tokens of the lines."""
    n_too_long: int = 0
    """Lines that were not translated, and stay empty."""
    n_unknown: int = 0
    """Tokens of the lines that the vocabulary does not have."""

    def add(self, line: TranslatedLine, *, is_kept: bool) -> None:
        """Count the next line, and keep its translations where that is asked."""
        self.n_lines += 1
        self.n_tokens += line.n_tokens
        self.n_too_long += line.is_too_long
        self.n_unknown += line.n_unknown
        if is_kept:
            self.lines.append(line)

    @property
    def texts(self) -> list[str]:
        """The best translation of each line; empty where the line was too long."""
        return [line.texts[0] if line.texts else "" for line in self.lines]

    def left_out(self) -> Iterator[str]:
        """Say how many lines were too long, and how many tokens are unknown."""
        if self.n_too_long:
            yield f"too long, and empty: {self.n_too_long:,} of {count(self.n_lines, 'line')}"
        if self.n_unknown:
            yield (
                f"unknown to the vocabulary: {self.n_unknown:,} of the input's "
                f"{count(self.n_tokens, 'token')}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return what ``sublayer translate --json`` prints."""
        listed = []
        for line in self.lines:
            pairs = zip(line.texts, line.scores, strict=True)
            translations = [{"text": text, "score": score} for text, score in pairs]
            listed.append({"line": line.number, "translations": translations})
        return {
            "lines": self.n_lines,
            "too_long": self.n_too_long,
            "unknown_tokens": self.n_unknown,
            "translations": listed,
        }

    def __repr__(self) -> str:
        return "\n".join(self.texts)

    def _repr_html_(self) -> str:
        rows = list(zip(self.sources, self.texts, strict=False))
        return page(table(["source", "translation"], rows))


@dataclass(frozen=True, repr=False)
class Comparison:
    """A comparison of arms: their results, the differences with verdicts, and the report's path."""

    results: "Results"
    report: Path

    @property
    def arms(self) -> "Sequence[ArmResult]":
        """The result of each arm: scores by seed, costs, curves."""
        return self.results.arms

    @property
    def differences(self) -> "Sequence[Difference]":
        """The difference of each arm from its baseline: mean, interval, p value, verdict."""
        return self.results.differences

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict of each arm that is compared, by the arm's name."""
        return {difference.arm: difference.verdict for difference in self.differences}

    def to_dict(self) -> dict[str, Any]:
        """Return what ``sublayer compare --json`` prints."""
        from sublayer.reporting.files import results_to_json

        found: dict[str, Any] = as_json_values(results_to_json(self.results, self.report))
        return found

    def __repr__(self) -> str:
        from sublayer.reporting.terminal import summarize

        return searchable(summarize(self.results, self.report))

    def _repr_html_(self) -> str:
        from sublayer.api.plots import draw_comparison

        shown = self.to_dict()
        rows = []
        for difference in shown["differences"]:
            numbers = (difference["mean"], difference["low"], difference["high"])
            cells = ["–" if number is None else f"{number:+.4f}" for number in numbers]
            rows.append([difference["arm"], *cells, difference["verdict"]])
        interval = f"{shown['confidence']:.0%} CI"
        headings = [f"against {shown['baseline']}", "difference", f"{interval} from", "to"]
        caption = f"{shown['metric']} on {shown['scored_on']}, matched by {shown['match']}"
        notes = "".join(prose(note) for note in shown["notes"])
        return page(
            prose(shown["headline"]),
            prose(caption),
            table([*headings, "verdict"], rows),
            figure(draw_comparison(shown)),
            notes,
        )


@dataclass(frozen=True, repr=False)
class Finetuned:
    """The runs of a fine-tuning, one a seed, with their scores beside the baselines."""

    path: Path
    """The folder of the run, or of the runs of several seeds."""
    seeds: "Sequence[SeedResult]"
    selected_by: str
    """The examples whose score chose the checkpoint, as ``data.select`` names them, or last."""

    @property
    def scores(self) -> list[float]:
        """The score of each seed: the mean over its tasks."""
        return [seed.score for seed in self.seeds]

    @property
    def median(self) -> float:
        """The median score of the seeds."""
        return statistics.median(self.scores)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``sublayer finetune --json`` prints."""
        from sublayer.objective.supervised.scores import average_reports

        seeds = [
            {
                "seed": seed.seed,
                "run": str(seed.folder),
                "score": seed.score,
                "steps": seed.record["step"],
                "seconds": seed.record["seconds"],
                "tasks": [report.to_json() for report in seed.reports],
                "averages": average_reports(seed.reports),
                "task_bests": [report.to_json() for report in seed.task_bests],
                "collapsed": seed.has_collapsed,
            }
            for seed in self.seeds
        ]
        return {
            "run": str(self.path),
            "select": self.selected_by,
            "median": self.median,
            "lowest": min(self.scores),
            "best": max(self.scores),
            "collapsed": sum(seed.has_collapsed for seed in self.seeds),
            "seeds": seeds,
        }

    def __repr__(self) -> str:
        from sublayer.objective.supervised.rendering import (
            render_averages,
            render_baselines,
            render_reports,
        )
        from sublayer.objective.supervised.scores import REMEDY
        from sublayer.tasks.scoring import points

        result = self.to_dict()
        seeds = result["seeds"]
        folder = as_typed(result["run"])
        lines = []
        if len(seeds) == 1:
            lines.append(render_reports(seeds[0]["tasks"]))
            lines += render_averages(seeds[0]["averages"])
            if seeds[0]["task_bests"]:
                lines.append("each task by the checkpoint that was best for it:")
                lines.append(render_reports(seeds[0]["task_bests"]))
        else:
            # The seed in the middle stands for all of them.
            ordered = sorted(seeds, key=lambda seed: seed["score"])
            middle = ordered[(len(seeds) - 1) // 2]
            lines.append(render_reports(middle["tasks"]))
            lines += render_averages(middle["averages"])
            shown = ", ".join(points(seed["score"]) for seed in seeds)
            lines.append(
                f"{count(len(seeds), 'seed')}: median {points(result['median'])}, from "
                f"{points(result['lowest'])} to {points(result['best'])} (the best of several is "
                f"too good by chance): {shown}"
            )
        lines += render_baselines(seeds[0]["tasks"])
        if result["collapsed"]:
            lines.append(
                f"collapsed: {result['collapsed']} of {count(len(seeds), 'run')}; "
                f"what helps: {REMEDY}"
            )
            if len(seeds) > 1:
                for seed in seeds:
                    for task in seed["tasks"]:
                        if task["collapse"]:
                            lines.append(
                                f"  seed {seed['seed']}, {task['title']}: {task['collapse']}"
                            )
        if result["select"].startswith("dev"):
            lines.append(
                "selected by the development set, which is what is scored (data.select = "
                f"{result['select']}): as in the papers, and too good by that"
            )
        lines.append(f"model and record: {folder}")
        lines.append(f"next: sublayer predict {shlex.quote(as_typed(seeds[0]['run']))}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return prose(repr(self))


class Listing(Result):
    """The recipes and studies that there are."""

    def _repr_html_(self) -> str:
        recipes = [[each["name"], each["title"], each["cost"]] for each in self["recipes"]]
        studies = [[each["name"], each["title"]] for each in self["studies"]]
        return page(
            table(["recipe", "title", "cost"], recipes),
            table(["study", "title"], studies),
        )


class Rows(Result):
    """What was run: a row for each run, comparison and imported model."""

    def _repr_html_(self) -> str:
        rows = [
            [each["folder"], each["kind"], each["state"], each["headline"] or each["title"]]
            for each in self["runs"]
        ]
        return page(table(["folder", "kind", "state", "headline"], rows))


@dataclass(frozen=True, repr=False)
class Diagram(Result):
    """The drawn architecture of a recipe; ``svg`` is the picture."""

    svg: str
    """The picture, as the text of an SVG file."""

    def _repr_html_(self) -> str:
        return figure(self.svg)
