"""Verdicts on runs of any trainer, from Python."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sublayer.reporting.judged import JudgedRuns


def judge(
    *scores: Any,
    arm: str | None = None,
    seed: str | None = None,
    item: str | None = None,
    document: str | None = None,
    value: str | None = None,
    step: str | None = None,
    at: str | int | None = None,
    task: str | None = None,
    filter: str | None = None,
    names: str | None = None,
    baseline: str | None = None,
    new: str | None = None,
    margin: float | None = None,
    lower_is_better: bool | None = None,
    look: int | None = None,
    looks: int | None = None,
    ledger: str | PathLike[str] | None = None,
    nan_is_failed: bool = False,
    common: bool = False,
) -> "JudgedRuns":
    """Judge the scores of arms, ``judge(base, new)``; the first is the baseline.

    Each is an array ``[seed]`` or ``[seed, item]``, a mapping of seeds to such rows, a DataFrame,
    or the path of a table or a folder of runs; one mapping of arms to arrays, or one DataFrame with
    a column of arms, is enough. ``arm``, ``seed``, ``item``, ``document``, ``value`` and ``step``
    name columns. ``lower_is_better`` is needed where no name of a metric says it; ``new`` is the
    arm that decides where there are several. ``ledger`` is the file that counts the looks of a
    loop, ``looks`` how many are planned, None without an end. The verdict shows itself in a
    notebook, and its ``exit_code`` is the command's. Raises the errors of :mod:`sublayer.errors`.
    """
    from sublayer.api.ask import as_option, as_text
    from sublayer.commands.judge import command
    from sublayer.commands.shared.arguments import check_arguments, check_values
    from sublayer.judging.layout import Asked
    from sublayer.judging.runs import Rules
    from sublayer.judging.sources import read_objects
    from sublayer.judging.verdict import Question
    from sublayer.reporting.judged import judge_understood

    texts = {"arm": arm, "seed": seed, "item": item, "document": document, "value": value}
    texts |= {"step": step, "names": names, "baseline": baseline, "new": new, "task": task}
    options = {**texts, "filtered": filter, "margin": margin, "look": look, "looks": looks}
    options |= {"nan_is_failed": nan_is_failed, "common": common, "at": at}
    options |= {"lower_is_better": lower_is_better}
    given = {name: as_option(each) for name, each in options.items() if each is not None}
    if isinstance(given.get("at"), int):
        given["at"] = str(at)
    check_arguments(command, given)
    check_values(command, given)
    file = None if ledger is None else Path(as_text(ledger, "a file of looks"))
    asked = Asked(filter=filter or "", **{name: given.get(name, "") for name in texts})
    return judge_understood(
        read_objects(scores, asked),
        Rules(given.get("at", ""), nan_is_failed=given["nan_is_failed"], common=given["common"]),
        Question(
            asked.baseline,
            asked.new,
            given.get("margin"),
            given.get("look"),
            given.get("looks"),
            file,
        ),
        given.get("lower_is_better"),
    )
