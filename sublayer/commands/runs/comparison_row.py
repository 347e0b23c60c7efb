"""The row of a comparison: its arms and seeds, how many of its runs have ended, its verdicts."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sublayer.commands.runs.row import Row, State, newest
from sublayer.commands.runs.run_row import ENSEMBLE, FAILURE, SCORES, TEST
from sublayer.counts import count
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.parsing import read_json_object, read_toml
from sublayer.files.saved_record import RECORD
from sublayer.files.typed import Count, Typed, check_typed
from sublayer.system.lock import is_held

STUDY, RUNS, RESULTS = "study.toml", "runs.json", "results.json"


class _Asked(Typed):
    recipes: dict[str, str]
    tune: list[str] = []
    tuning_seeds: list[Count] = []
    """Of runs that are not scored, for they choose."""


class _Study(Typed):
    """What a row needs of ``study.toml``."""

    asked: _Asked
    command: str = ""
    planned_runs: Count = 0
    planned_seeds: Count = 0


class _Runs(Typed):
    """What a comparison of finished runs is of, in ``runs.json``."""

    runs: list[str]


def comparison_row(path: Path) -> Row:
    """Read the row of a comparison. Raises ConfigError and CheckpointError where it is damaged."""
    if not (path / STUDY).exists():
        return _finished_row(path)
    content = read_toml(path / STUDY, ConfigError)
    study = check_typed(content, _Study, str(path / STUDY), ConfigError)
    results = _results(path)
    ended, failed = _count(path, study.asked.tuning_seeds)
    planned = study.planned_runs or None
    seeds = study.planned_seeds or results.get("planned_seeds")
    state: State = "finished"
    if ended + failed < (planned or 0) or not results:
        state = "running" if is_held(path) else "unfinished"
    return Row(
        folder=str(path),
        kind="comparison",
        state=state,
        when=newest([path / STUDY, path / RESULTS]),
        recipe=str(results.get("name", "")),
        title=str(results.get("title", "")),
        arms=tuple(study.asked.recipes),
        seeds=seeds if isinstance(seeds, int) else None,
        finished=ended,
        planned=planned,
        headline=_headline(results),
        resume=_from_here(study.command) if state == "unfinished" else "",
        problem=f"{failed} failed" if failed else "",
    )


def _finished_row(path: Path) -> Row:
    """Read the row of a comparison of runs that exist: what it compares, and its verdicts."""
    asked = check_typed(
        read_json_object(path / RUNS, ConfigError), _Runs, str(path / RUNS), ConfigError
    )
    results = _results(path)
    arms = [str(arm["name"]) for arm in results.get("arms", ())]
    seeds = results.get("planned_seeds")
    return Row(
        folder=str(path),
        kind="comparison",
        state="finished" if results else "unfinished",
        when=newest([path / RUNS, path / RESULTS]),
        recipe=str(results.get("name", "")),
        title=str(results.get("title", "")),
        arms=tuple(arms),
        seeds=seeds if isinstance(seeds, int) else None,
        finished=len(asked.runs) if results else 0,
        planned=len(asked.runs),
        headline=_headline(results),
        resume="" if results else shlex.join(["sublayer", "report", str(path)]),
    )


def _from_here(command: str) -> str:
    """Return the command without the change to a folder that is the current one."""
    return command.removeprefix(f"cd {shlex.quote(str(Path.cwd()))} && ")


def _results(path: Path) -> Mapping[str, Any]:
    try:
        return read_json_object(path / RESULTS, CheckpointError)
    except FileNotFoundError:
        return {}


def _count(path: Path, tuning_seeds: Sequence[int] = ()) -> tuple[int, int]:
    """Count the single runs that were trained and scored, and those that failed.

    Those of ``tuning_seeds`` are trained alone.
    """
    tuned = {f"seed-{seed}" for seed in tuning_seeds}
    ended = failed = 0
    # Those of a chain lie below its stages.
    for parent in ("arms", "stages"):
        for record in (path / parent).glob(f"**/seed-*/{RECORD}"):
            if record.parent.name in tuned:
                ended += 1
                continue
            ended += any((record.parent / name).exists() for name in (TEST, SCORES))
        # Ensembles of runs train nothing, of which there would be a record.
        for ensemble in (path / parent).glob(f"**/seed-*/{ENSEMBLE}"):
            ended += (ensemble.parent / SCORES).exists()
        failed += len(list((path / parent).glob(f"**/seed-*/{FAILURE}")))
    return ended, failed


def _headline(results: Mapping[str, Any]) -> str:
    """Return the headline of the report; of results without one, how often each verdict occurs."""
    headline, differences = results.get("headline"), results.get("differences")
    if isinstance(headline, str) or not isinstance(differences, list):
        return headline or ""
    verdicts = [str(each["verdict"]) for each in differences if isinstance(each, Mapping)]
    counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts)]
    return f"{count(len(verdicts), 'comparison')}: {', '.join(counts)}" if counts else ""
