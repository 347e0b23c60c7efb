"""Runs, comparisons and imported models below folders: a row each, from small files only."""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

from sublayer.config.layers import RUN_RECIPE, shipped_recipe, shipped_recipes
from sublayer.config.load import load_recipe, read_recipe, read_start
from sublayer.errors import CheckpointError, ConfigError, SublayerError
from sublayer.files.checkpoints import RECORD, checkpoint_path, read_record, read_state, saved_steps
from sublayer.files.parsing import Count, Typed, check_typed, read_json_object, read_toml
from sublayer.files.storage import is_held
from sublayer.numbers import count, format_duration
from sublayer.system.terminal import page_width, paragraph, searchable
from sublayer.values import LONGEST_VALUE, show

Kind = Literal["run", "comparison", "model"]
State = Literal["finished", "unfinished", "running", "failed", "damaged"]

STUDY, RUNS, RESULTS = "study.toml", "runs.json", "results.json"
FAILURE, TEST, SCORES, ENSEMBLE = "failure.json", "test.json", "scores.json", "ensemble.json"
"""Files of a comparison's run: its failure, its test scores, its members."""
_SCORES = {
    "bits_per_byte": ("", " bits/byte", 1.0, 3),
    "bleu": ("BLEU ", "", 1.0, 2),
    "mlm_accuracy": ("MLM ", "%", 100.0, 1),
    "loss": ("loss ", " nats", 1.0, 3),
}
"""Scores, the first available one shown: text before and after, factor, decimals."""
_DEEPEST = 6
"""Depth of nested folders that are searched."""
_LONGEST_FOLDER = 22
"""Width of the folder column in characters; a longer folder has a separate line."""
_DETAIL = "    "


@dataclass(frozen=True)
class ListedScore:
    """A stored score of a model."""

    name: str
    """Its key, such as ``bits_per_byte``."""
    value: float
    split: Literal["valid", "test"]


@dataclass(frozen=True)
class ListingRow:
    """A run, a comparison or an imported model; unknown fields are None or empty."""

    folder: str
    kind: Kind
    state: State
    when: float
    """Time of the last write, in seconds since 1970."""
    recipe: str = ""
    """The shipped recipe of a run, the name of a study."""
    title: str = ""
    model: str = ""
    """The kind of model: decoder, encoder or encoder-decoder."""
    changed: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a run that differ from the recipe, and their values."""
    score: ListedScore | None = None
    step: int | None = None
    """Optimizer steps so far; of an unfinished run, up to its newest checkpoint."""
    steps: int | None = None
    """Optimizer steps of the full run."""
    seconds: float | None = None
    arms: tuple[str, ...] = ()
    seeds: int | None = None
    """Runs of each arm; None for a comparison without this number."""
    finished: int | None = None
    """Trained and scored runs of a comparison."""
    planned: int | None = None
    headline: str = ""
    """The verdicts of a comparison."""
    resume: str = ""
    """The command that resumes an unfinished one; empty if unknown."""
    problem: str = ""
    """Reason why it failed, or cannot be read."""

    def cells(self) -> tuple[str, ...]:
        """Return the cells of its row in a table."""
        when = datetime.fromtimestamp(self.when).strftime("%Y-%m-%d %H:%M") if self.when else "?"
        score = ""
        if self.score is not None:
            before, after, factor, decimals = _SCORES[self.score.name]
            split = " (test)" if self.score.split == "test" else ""
            score = f"{before}{self.score.value * factor:.{decimals}f}{after}{split}"
        steps = "" if self.step is None else f"{self.step:,}"
        if self.kind == "comparison":
            score = "" if self.state == "finished" else self.state
            steps = count(self.finished or 0, "run")
            if self.planned is not None:
                steps = f"{self.finished} of {count(self.planned, 'run')}"
        elif self.step is not None and self.state != "finished" and self.steps is not None:
            steps = f"{steps} of {self.steps:,}"
        if self.state in ("damaged", "failed"):
            score = self.state
        time = "" if self.seconds is None else searchable(format_duration(self.seconds))
        return (self.folder, when, score, steps, time)


def find_rows(folders: Sequence[Path], *, with_arms: bool) -> list[ListingRow]:
    """Return a row for each run, comparison and imported model, the newest first.

    ``with_arms`` adds the single runs of comparisons. Unreadable ones have a row with the reason.
    Raises ConfigError for a missing folder.
    """
    rows: dict[Path, ListingRow] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder} is not a folder: give one that holds runs, such as runs")
        for path, kind in find_folders(folder, with_arms=with_arms):
            rows.setdefault(path, _row(path, kind))
    return sorted(rows.values(), key=lambda row: row.when, reverse=True)


def find_folders(
    folder: Path, *, with_arms: bool, deepest: int = _DEEPEST
) -> Iterator[tuple[Path, Kind]]:
    """Find the runs, comparisons and models below a folder, by file names only."""
    kind: Kind | None = None
    if any(os.path.lexists(folder / name) for name in (STUDY, RUNS)):
        kind = "comparison"
    elif os.path.lexists(folder / RUN_RECIPE):
        kind = "run"
    elif all((folder / name).is_file() for name in ("config.json", "model.safetensors")):
        kind = "model"
    if kind is not None:
        yield folder, kind
    if deepest and (kind is None or (kind == "comparison" and with_arms)):
        try:
            inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        except OSError:
            return  # no permission: nothing there for this user
        for path in inside:
            if path.is_dir() and not path.is_symlink():
                yield from find_folders(path, with_arms=with_arms, deepest=deepest - 1)


def _row(path: Path, kind: Kind) -> ListingRow:
    try:
        if kind == "run":
            return _run_row(path)
        if kind == "comparison":
            return comparison_row(path)
        config = read_json_object(path / "config.json", CheckpointError)
    except (SublayerError, OSError) as error:
        return ListingRow(str(path), kind, "damaged", path.lstat().st_mtime, problem=str(error))
    when, model = _newest(path, "config.json"), str(config.get("kind", ""))
    return ListingRow(str(path), "model", "finished", when, title="an imported model", model=model)


def _newest(folder: Path, *names: str) -> float:
    """Return the newest modification time of existing files; 0 without any."""
    paths = (folder / name for name in names)
    return max((path.lstat().st_mtime for path in paths if path.exists()), default=0.0)


def _json(path: Path) -> Mapping[str, Any] | None:
    try:
        return read_json_object(path, CheckpointError)
    except FileNotFoundError:
        return None


def _run_row(path: Path) -> ListingRow:
    record = read_record(path)
    recipe = load_recipe(path).recipe
    steps = read_recipe(path / RUN_RECIPE).train.steps
    is_early = record is not None and bool(record.get("stopped_early"))
    if record is not None and steps is not None and record["step"] < steps and not is_early:
        record = None  # lengthened, and stopped before its next step
    failure = _json(path / FAILURE)
    state: State = "finished"
    if failure is not None:
        state = "failed"
    elif record is None:
        state = "running" if is_held(path) else "unfinished"
    step, seconds, best = 0, None, {}
    if record is not None:
        step, seconds, best = record["step"], record["seconds"], record["valid"]
    elif saved := saved_steps(path / "checkpoints"):
        step = saved[-1]
        # Resuming reports damage, and uses an older one.
        with suppress(CheckpointError):
            newest = read_state(checkpoint_path(path / "checkpoints", step))
            step, seconds = newest.step, newest.seconds
            best = {} if newest.best is None else newest.best.model_dump()
    name = _names_by_title().get(recipe.title, "")
    resume = shlex.join(["sublayer", "train", str(path), "--resume"])
    # Fields of the given recipe that differ from the shipped one; for a run that starts from
    # another, fields that its start did not give.
    changed = {}
    base, start = (_shipped(name), read_start(recipe.init.run)) if name else ({}, None)
    for table, values in recipe.model_dump().items() if name else ():
        for field_name, value in values.items() if isinstance(values, dict) else ():
            # A field that a later layer dropped is unset; its replacement is listed.
            if value is None or base[table].get(field_name) == value:
                continue
            key = f"{table}.{field_name}"
            if start is None or not start.keeps(key, value):
                changed[key] = value
    return ListingRow(
        folder=str(path),
        kind="run",
        state=state,
        when=_newest(path, RECORD, TEST, "metrics.jsonl", RUN_RECIPE),
        recipe=name,
        title=recipe.title,
        model=recipe.model.kind,
        changed=changed,
        score=_score(_json(path / TEST) or {}, "test") or _score(best, "valid"),
        step=step,
        steps=steps,
        seconds=seconds,
        resume=resume if state == "unfinished" else "",
        problem="" if failure is None else str(failure.get("message", "it failed")),
    )


def _score(scores: Mapping[str, Any], split: Literal["valid", "test"]) -> ListedScore | None:
    for name in _SCORES:
        if isinstance(value := scores.get(name), int | float):
            return ListedScore(name, float(value), split)
    return None


@cache
def _names_by_title() -> dict[str, str]:
    return {shipped_recipe(name).title: name for name in shipped_recipes()}


@cache
def _shipped(name: str) -> dict[str, Any]:
    return load_recipe(name).recipe.model_dump()


class _Asked(Typed):
    recipes: dict[str, str]
    tune: list[str] = []
    tuning_seeds: list[Count] = []
    """Seeds of tuning runs, which are not scored."""


class _Study(Typed):
    """The part of ``study.toml`` that a row needs."""

    asked: _Asked
    command: str = ""
    planned_runs: Count = 0
    planned_seeds: Count = 0


class _Runs(Typed):
    """The runs of a comparison of finished runs, in ``runs.json``."""

    runs: list[str]


def comparison_row(path: Path) -> ListingRow:
    """Read the row of a comparison. Raises ConfigError and CheckpointError if it is damaged."""
    file = path / STUDY if (path / STUDY).exists() else path / RUNS
    results = _json(path / RESULTS) or {}
    failed = 0
    planned: int | None
    if file.name == STUDY:
        study = check_typed(read_toml(file, ConfigError), _Study, str(file), ConfigError)
        arms, seeds = list(study.asked.recipes), study.planned_seeds
        finished, failed = _count(path, study.asked.tuning_seeds)
        planned = study.planned_runs or None
        # The command without a change to the current folder.
        resume = study.command.removeprefix(f"cd {shlex.quote(str(Path.cwd()))} && ")
    else:
        compared = check_typed(read_json_object(file, ConfigError), _Runs, str(file), ConfigError)
        arms, seeds = [str(arm["name"]) for arm in results.get("arms", ())], 0
        planned = len(compared.runs)
        finished = planned if results else 0
        resume = shlex.join(["sublayer", "report", str(path)])
    state: State = "finished"
    if not results or finished + failed < (planned or 0):
        state = "running" if is_held(path) else "unfinished"
    # The headline of the report; without one, the number of each verdict.
    headline, differences = results.get("headline"), results.get("differences")
    if not isinstance(headline, str):
        verdicts = [
            str(difference["verdict"])
            for difference in (differences if isinstance(differences, list) else ())
            if isinstance(difference, Mapping) and "verdict" in difference
        ]
        counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts)]
        headline = f"{count(len(verdicts), 'comparison')}: {', '.join(counts)}" if counts else ""
    n_seeds: Any = seeds or results.get("planned_seeds")
    return ListingRow(
        folder=str(path),
        kind="comparison",
        state=state,
        when=_newest(path, file.name, RESULTS),
        recipe=str(results.get("name", "")),
        title=str(results.get("title", "")),
        arms=tuple(arms),
        seeds=n_seeds if isinstance(n_seeds, int) else None,
        finished=finished,
        planned=planned,
        headline=headline,
        resume=resume if state == "unfinished" else "",
        problem=f"{failed} failed" if failed else "",
    )


def _count(path: Path, tuning_seeds: Sequence[int]) -> tuple[int, int]:
    """Count the trained and scored runs, and the failed ones.

    Runs of ``tuning_seeds`` are only trained.
    """
    tuned = {f"seed-{seed}" for seed in tuning_seeds}
    ended = failed = 0
    # A chain's runs lie below its stages.
    for parent in ("arms", "stages"):
        for record in (path / parent).glob(f"**/seed-*/{RECORD}"):
            scores = (record.parent / name for name in (TEST, SCORES))
            ended += record.parent.name in tuned or any(file.exists() for file in scores)
        # Ensembles train nothing, so they have no record.
        for ensemble in (path / parent).glob(f"**/seed-*/{ENSEMBLE}"):
            ended += (ensemble.parent / SCORES).exists()
        failed += len(list((path / parent).glob(f"**/seed-*/{FAILURE}")))
    return ended, failed


def render_rows(rows: Sequence[ListingRow]) -> str:
    """Format rows, the first at the top: a line of columns, and below it details."""
    headings = ("folder", "when", "how good", "steps", "time")
    cells = [row.cells() for row in rows]
    widths = []
    for column in zip(headings, *cells, strict=True):
        longest = _LONGEST_FOLDER if column[0] == "folder" else max(map(len, column))
        widths.append(max(len(cell) for cell in column if len(cell) <= longest))

    def line(row: Sequence[str]) -> str:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        return "  ".join(padded).rstrip()

    lines = [line(headings)]
    for row, (folder, *others) in zip(rows, cells, strict=True):
        if len(folder) > _LONGEST_FOLDER:
            lines.append(folder)
            folder = ""
        lines.append(line((folder, *others)))
        parts = [row.recipe or row.title or "a recipe without a title"]
        parts += [f"({row.model})"] if row.model else []
        for key, value in row.changed.items():
            written = show(value)
            if isinstance(value, str):
                written = value.removeprefix(f"{Path.cwd()}{os.sep}")[-LONGEST_VALUE:]
            parts.append(f"{key}={written}")
        description = "" if row.state == "damaged" else " ".join(parts)
        if row.kind == "comparison":
            seeds = f", {count(row.seeds, 'seed')}" if row.seeds else ""
            description = f"comparison of {', '.join(row.arms)}{seeds}"
        details = (description, row.headline, row.problem)
        lines += [paragraph(text, indent=_DETAIL) for text in details if text]
        if row.state == "running":
            lines.append(f"{_DETAIL}running now")
        if row.resume:
            lines.append(_command(row.resume))
    return "\n".join(lines)


def _command(command: str) -> str:
    """Format a command to be copied: on a line, or on several that the shell joins."""
    lines = []
    line = _DETAIL.removesuffix(" ")
    for word in shlex.split(command):
        quoted = word if word == "&&" else shlex.quote(word)
        if len(line) + 1 + len(quoted) > page_width() - 2 and line.strip():
            lines.append(f"{line} \\")
            line = f"{_DETAIL} "
        line = f"{line} {quoted}"
    return "\n".join([*lines, line])
