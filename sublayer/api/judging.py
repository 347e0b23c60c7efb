"""Verdicts on runs of any trainer, from Python."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sublayer.judging.judge import JudgedRuns


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
    from sublayer.judging.judge import judge_understood
    from sublayer.judging.layout import Asked
    from sublayer.judging.runs import Rules
    from sublayer.judging.sources import read_objects
    from sublayer.judging.verdict import Question

    asked = Asked(
        arm=arm or "",
        seed=seed or "",
        item=item or "",
        document=document or "",
        value=value or "",
        step=step or "",
        names=names or "",
        baseline=baseline or "",
        new=new or "",
        task=task or "",
        filter=filter or "",
    )
    file = None if ledger is None else Path(as_text(ledger, "a file of looks"))
    return judge_understood(
        read_objects(scores, asked),
        Rules("" if at is None else str(at), nan_is_failed=nan_is_failed, common=common),
        Question(baseline or "", new or "", as_option(margin), look, looks, file),
        lower_is_better,
    )
