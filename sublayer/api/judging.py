"""Verdicts on runs of any trainer, from Python."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sublayer.errors import SublayerError
from sublayer.options import Option, PathText, checked
from sublayer.system.stages import note

if TYPE_CHECKING:
    from sublayer.reporting.judged import JudgedRuns

MOST_LOOKS = 1_000_000


@checked
def judge(
    *scores: Any,
    arm: Annotated[
        str | None, Option("The column of arms; or columns, or files.", metavar="COLUMN")
    ] = None,
    seed: Annotated[
        str | None, Option("The column of seeds; or columns, or rows.", metavar="COLUMN")
    ] = None,
    item: Annotated[
        str | None, Option("The column of items; or columns, or rows.", metavar="COLUMN")
    ] = None,
    document: Annotated[
        str | None, Option("The column of items' documents.", metavar="COLUMN")
    ] = None,
    value: Annotated[str | None, Option("The column of the score.", metavar="COLUMN")] = None,
    step: Annotated[str | None, Option("The column of training steps.", metavar="COLUMN")] = None,
    at: Annotated[
        str | int | None,
        Option(
            "The step whose values count, or last: each run's own. Default: the last, where "
            "all runs have it.",
            metavar="STEP",
        ),
    ] = None,
    task: Annotated[
        str | None, Option("The task of lm-evaluation-harness's samples.", metavar="NAME")
    ] = None,
    filter: Annotated[
        str | None, Option("The filter of the samples' answers.", metavar="NAME")
    ] = None,
    names: Annotated[
        str | None,
        Option("How files, folders or columns are named, as '{arm}-{seed}'.", metavar="PATTERN"),
    ] = None,
    baseline: Annotated[
        str | None, Option("The arm to judge against. Default: first.", metavar="ARM")
    ] = None,
    new: Annotated[
        str | None, Option("The arm whose verdict is the exit code.", metavar="ARM")
    ] = None,
    margin: Annotated[
        float | None,
        Option(
            "Differences smaller than this do not matter, in the unit of the score.",
            least=1e-9,
            most=1e9,
        ),
    ] = None,
    lower_is_better: Annotated[
        bool | None,
        Option(
            "Which direction of the score is good.", flag="--lower-is-better/--higher-is-better"
        ),
    ] = None,
    look: Annotated[
        int | None,
        Option("Which of --looks planned looks this is.", least=1, most=MOST_LOOKS),
    ] = None,
    looks: Annotated[
        int | None, Option("Looks that were planned in all.", least=1, most=MOST_LOOKS)
    ] = None,
    ledger: Annotated[
        PathText | None,
        Option(
            "The file that counts a loop's looks, so that at most 5% of loops keep anything "
            "that is no better; --looks: how many are planned.",
            metavar="FILE",
        ),
    ] = None,
    nan_is_failed: Annotated[
        bool, Option("Count runs with NaN as failed: worse than all.")
    ] = False,
    common: Annotated[bool, Option("Leave out seeds and items that some run lacks.")] = False,
) -> "JudgedRuns":
    """Judge the scores of arms, ``judge(base, new)``; the first is the baseline.

    Each is an array ``[seed]`` or ``[seed, item]``, a mapping of seeds to such rows, a DataFrame,
    or the path of a table or a folder of runs; one mapping of arms to arrays, or one DataFrame with
    a column of arms, is enough. ``lower_is_better`` is
    needed where no name of a metric says it; ``new`` is the arm that decides where there are
    several. The verdict shows itself in a notebook, and its ``exit_code`` is the command's. Raises
    the errors of :mod:`sublayer.errors`.
    """
    from sublayer.judging.layout import Asked
    from sublayer.judging.runs import Rules
    from sublayer.judging.sources import read_objects
    from sublayer.judging.verdict import Question
    from sublayer.reporting.judged import judge_understood

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
    file = None if ledger is None else Path(ledger)
    understood = read_objects(scores, asked)
    try:
        return judge_understood(
            understood,
            Rules("" if at is None else str(at), nan_is_failed=nan_is_failed, common=common),
            Question(asked.baseline, asked.new, margin, look, looks, file),
            lower_is_better,
        )
    except SublayerError:
        for line in understood.said:  # which the verdict would have begun with
            note(f"read: {line}")
        raise
