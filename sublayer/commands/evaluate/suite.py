"""``sublayer evaluate RUN ... --suite FILE``: one scorecard of any models."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sublayer.commands.shared.base import emit, say
from sublayer.errors import ConfigError
from sublayer.files.paths import expanded
from sublayer.system.launch import is_first_launched
from sublayer.system.stages import stage


def evaluate_models(
    suite: Path,
    runs: Sequence[Path],
    files: Mapping[str, Path | None],
    given: Mapping[str, Any],
    device: str | None,
    *,
    as_json: bool,
) -> None:
    """Score models side by side, print the scorecard, and write it to the files asked for.

    ``files`` are by ``csv`` and ``html``; ``given`` are the other options, which a suite has no use
    for. Raises ConfigError, DataError and CheckpointError before anything is computed.
    """
    for name in given:
        raise ConfigError(
            f"--{name.replace('_', '-')} is of one model's own text or task: with --suite leave it "
            "out, the suite says what is scored"
        )
    targets = {kind: expanded(path) for kind, path in files.items() if path is not None}
    if len({path.resolve() for path in targets.values()}) < len(targets):
        raise ConfigError("--csv and --html are the same file: name one for each")
    for path in targets.values():
        if path.exists():
            raise ConfigError(f"{path} is there already: move it, or name another file")
        if not path.parent.is_dir():
            raise ConfigError(f"{path.parent} is no folder: make it first")
    with stage("starting PyTorch"):
        from sublayer.files.storage import write_file
        from sublayer.reporting.html import scorecard_page
        from sublayer.reporting.scorecard import card_csv
        from sublayer.suite.evaluate import check_suite, evaluate_suite
        from sublayer.system.machine import choose_device
        from sublayer.training.processes.joining import leave_world

    chosen = choose_device(device)
    work = check_suite(suite, runs)
    try:
        evaluated = evaluate_suite(work, chosen)
    finally:
        leave_world()
    if not is_first_launched():
        return
    card = evaluated.scorecard()
    title = work.suite.title
    for kind, path in targets.items():
        write_file(
            path, card_csv(card) if kind == "csv" else scorecard_page(card, title or "Scorecard")
        )
        say(f"wrote {path}")

    def render(result: Mapping[str, Any]) -> str:
        from sublayer.reporting.terminal import render_scorecard

        return "\n".join([*([title, ""] if title else []), render_scorecard(card)])

    emit(evaluated.to_json(), as_json, render)


def check_without_suite(files: Mapping[str, Path | None]) -> None:
    """Raise ConfigError for an option that is of a suite alone."""
    for name, path in files.items():
        if path is not None:
            raise ConfigError(
                f"--{name} is of the scorecard of a suite: give --suite, or leave it out"
            )
