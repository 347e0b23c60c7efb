"""What is handed in, as it is printed: who answered which set, and what was filled in."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sublayer.files.paths import as_typed
from sublayer.tables import table
from sublayer.tasks.submissions.folder import ARCHIVE, NOTES

if TYPE_CHECKING:
    from sublayer.runs.submission import HandedIn


def submit_runs(
    runs: Sequence[Path],
    out: Path,
    suite: str | None,
    data: str | None,
    batch: int | None,
    device: str | None,
) -> dict[str, Any]:
    """Write a submission, and return what it has as JSON. Raises as ``submit`` does."""
    from sublayer.runs.submission import submit
    from sublayer.system.machine import choose_device

    handed_in = submit(runs, out, suite=suite, data=data, batch=batch, device=choose_device(device))
    return _result(handed_in)


def _result(handed_in: "HandedIn") -> dict[str, Any]:
    sets = [
        {
            "task": answers.task.name,
            "title": answers.task.title,
            "split": answers.split,
            "rows": len(answers.examples),
            "runs": [str(run) for run in runs],
        }
        for answers, runs in handed_in.sets
    ]
    submission = handed_in.submission
    has_archive = (submission.path / ARCHIVE).exists()
    return {
        "folder": str(submission.path),
        "suite": handed_in.suite,
        "archive": str(submission.path / ARCHIVE) if has_archive else None,
        "files": list(submission.files),
        "sets": sets,
        "notes": list(submission.notes),
    }


def render_submission(result: Mapping[str, Any]) -> str:
    """Format a submission for the terminal."""
    rows = [
        (
            each["title"],
            each["split"],
            f"{each['rows']:,}",
            ", ".join(map(as_typed, each["runs"])) or "the majority",
        )
        for each in result["sets"]
    ]
    lines = [table(["task", "set", "rows", "answered by"], rows, right=[2])]
    lines += [f"note: {note}" for note in result["notes"]]
    folder = as_typed(result["folder"])
    lines.append(f"files: {len(result['files'])} in {folder}")
    if result["notes"]:
        lines.append(f"the notes are in {folder}/{NOTES}, too")
    if result["archive"] is not None:
        lines.append(f"to hand in: {as_typed(result['archive'])}")
    return "\n".join(lines)
