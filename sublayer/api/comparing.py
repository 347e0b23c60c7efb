"""Verdicts: arms that are trained and compared, scores of runs of any trainer."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sublayer.api.arguments import (
    Device,
    Extend,
    Finetunings,
    FirstSeed,
    FirstTuningSeed,
    Jobs,
    Margin,
    Match,
    Overrides,
    Scale,
    Seeds,
    SeedsAtMost,
    TaskData,
    TuningSeeds,
    Until,
    as_text,
)
from sublayer.api.results import figure, html_table, page, prose
from sublayer.errors import ConfigError, SublayerError
from sublayer.options import Option, PathText, checked
from sublayer.system.stages import note, stage
from sublayer.system.terminal import searchable
from sublayer.values import as_json_values

if TYPE_CHECKING:
    from sublayer.reporting.judged import JudgedRuns
    from sublayer.statistics.difference import Difference
    from sublayer.study.results import ArmResult, Results


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
        from sublayer.api.results import draw_comparison

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
            html_table([*headings, "verdict"], rows),
            figure(draw_comparison(shown)),
            notes,
        )


@checked
def compare(
    source: PathText | Sequence[PathText],
    overrides: Overrides | None = None,
    *,
    vary: Annotated[
        Sequence[str],
        Option(
            "Compare these values; the first is the baseline. Repeatable.",
            metavar="FIELD=A,B",
            complete="varied",
        ),
    ] = (),
    match: Match = None,
    seeds: Seeds = None,
    until: Until = None,
    seeds_at_most: SeedsAtMost = None,
    margin: Margin = None,
    tune: Annotated[
        Sequence[str],
        Option(
            "Try these values in every arm, chosen on validation by runs with other seeds than "
            "those that are compared. Repeatable.",
            metavar="FIELD=A,B",
            complete="varied",
        ),
    ] = (),
    tuning_seeds: TuningSeeds = None,
    extend: Extend = None,
    first_seed: FirstSeed = None,
    first_tuning_seed: FirstTuningSeed = None,
    scale: Scale = None,
    finetunings: Finetunings = None,
    data: TaskData = None,
    out: Annotated[
        PathText | None,
        Option("The study's folder. Default: runs/NAME, then runs/NAME.2, ..."),
    ] = None,
    jobs: Jobs = 1,
    on: Annotated[
        str | None,
        Option(
            "Make the runs on a cluster whose nodes share the study's folder. Ctrl-C leaves them "
            "there, and the same command joins them again.",
            metavar="ray[:ADDRESS]|slurm[:PARTITION]",
        ),
    ] = None,
    device: Device = None,
    tables: Annotated[
        Sequence[PathText],
        Option(
            "Also write every run and the differences: .csv, .md or .tex. Repeatable.",
            flag="--table",
            metavar="FILE",
        ),
    ] = (),
) -> Comparison:
    """Train the arms of a study, or of recipes, at an equal budget, and judge their differences.

    ``source`` is a study, a recipe, or a list of recipes or finished runs, the first of them the
    baseline; ``overrides`` go to all arms. Resumes in a folder that was begun. Raises the errors
    of :mod:`sublayer.errors`.
    """
    from sublayer.reporting.tables import check_table_files, write_tables

    files = [Path(file) for file in tables]
    check_table_files(files)
    sources = [*source] if isinstance(source, list | tuple) else [source]
    if not sources:
        raise ConfigError("no recipe is named: give one, or a list of them")
    names = [as_text(name, "a recipe") for name in sources]
    with stage("starting PyTorch"):
        from sublayer.reporting.files import report_study
        from sublayer.study.options import Options

    options = Options(
        vary=tuple(vary),
        match=match,
        seeds=seeds,
        tune=tuple(tune),
        scale=scale,
        out=None if out is None else Path(out),
        device=device,
        jobs=jobs,
        on=on,
        finetunings=finetunings,
        data=None if data is None else fspath(data),
        margin=None if margin is None else str(margin),
        until=until,
        seeds_at_most=seeds_at_most,
        first_seed=first_seed,
        tuning_seeds=tuning_seeds,
        first_tuning_seed=first_tuning_seed,
        extend=extend,
    )
    results, report = report_study(names, overrides or (), options)
    for file in files:
        write_tables(results, file)
    return Comparison(results, report)


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
    from sublayer.judging.options import Asked
    from sublayer.judging.sources import read_objects
    from sublayer.reporting.judged import judge_understood

    asked = Asked(
        arm=arm or "",
        seed=seed or "",
        item=item or "",
        document=document or "",
        value=value or "",
        step=step or "",
        at="" if at is None else str(at),
        names=names or "",
        task=task or "",
        filter=filter or "",
        nan_is_failed=nan_is_failed,
        common=common,
        baseline=baseline or "",
        new=new or "",
        lower_is_better=lower_is_better,
        margin=margin,
        look=look,
        looks=looks,
        ledger=None if ledger is None else Path(ledger),
    )
    understood = read_objects(scores, asked)
    try:
        return judge_understood(understood, asked)
    except SublayerError:
        for line in understood.said:  # which the verdict would have begun with
            note(f"read: {line}")
        raise
