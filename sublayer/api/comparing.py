"""Verdicts: trained and compared arms, judged scores of any trainer's runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

from sublayer.api.arguments import (
    Device,
    Overrides,
    StudyOptions,
    TableFiles,
    as_sources,
    study_options,
)
from sublayer.api.results import Result, draw_curves, figure, html_table, page, prose
from sublayer.errors import SublayerError
from sublayer.options import Option, PathText, checked
from sublayer.plot import look
from sublayer.system.terminal import note, searchable, stage
from sublayer.values import as_json_values

if TYPE_CHECKING:
    from sublayer.reporting.judged import JudgedRuns
    from sublayer.statistics.contrasts import Difference
    from sublayer.study.results import ArmResult, Results

MOST_LOOKS = 1_000_000


@dataclass(frozen=True, repr=False)
class Comparison(Result):
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
        """The verdict of each compared arm, by the arm's name."""
        return {difference.arm: difference.verdict for difference in self.differences}

    def to_dict(self) -> dict[str, Any]:
        """Return the object of ``sublayer compare --json``."""
        from sublayer.reporting.files import results_to_json

        results: dict[str, Any] = as_json_values(results_to_json(self.results, self.report))
        return results

    def __str__(self) -> str:
        from sublayer.reporting.terminal import summarize

        return searchable(summarize(self.results, self.report))

    @property
    def details(self) -> str:
        """The details of the report as text: intervals, notes, costs, differing settings."""
        from sublayer.reporting.terminal import render

        return searchable(render(self.results, self.report))

    def _repr_html_(self) -> str:
        from sublayer.reporting.tables import differences_sheet
        from sublayer.reporting.words import in_display_units

        results = in_display_units(self.results)
        curves = []
        for index, arm in enumerate(results.arms):
            colour, line = look(index).placeholder, look(index).line
            for number, curve in enumerate(arm.curves):
                label = None if number else arm.name
                marker = "o" if len(curve.steps) == 1 else ""
                style = {"color": colour, "linestyle": line, "label": label, "marker": marker}
                curves.append((curve.steps, curve.values, style))
        drawn = draw_curves("Validation of the arms", f"{results.metric.label} (valid)", curves)
        sheet = differences_sheet(results)
        shown = html_table(sheet.headings, sheet.rows)
        return page(shown, figure(drawn), prose(str(self)))


@checked
def compare(
    source: PathText | Sequence[PathText],
    overrides: Overrides | None = None,
    *,
    on: Annotated[
        str | None,
        Option(
            "The cluster for the runs, with the study's folder on all nodes; Ctrl-C leaves them "
            "running, and the same command rejoins them.",
            metavar="ray[:ADDRESS]|slurm[:PARTITION]",
        ),
    ] = None,
    device: Device = None,
    tables: TableFiles = (),
    resume: Annotated[
        bool,
        Option(
            "Resume the study in its folder, as happens without this option, but never begin one."
        ),
    ] = False,
    **options: Unpack[StudyOptions],
) -> Comparison:
    """Train the arms of a study, or of recipes, at an equal budget, and judge their differences.

    ``source`` is a study, a recipe, or a list of recipes or finished runs, the first of them the
    baseline; ``overrides`` apply to all arms. A folder with a begun study is resumed. Raises the
    errors of :mod:`sublayer.errors`.
    """
    from sublayer.reporting.tables import check_table_files, write_tables
    from sublayer.study.definition import asked_study

    files = [Path(file) for file in tables]
    check_table_files(files)
    sources, settings = as_sources(source), overrides or ()
    given = study_options(options, device=device, on=on, resume=resume)
    asked = asked_study(sources, settings, given)
    with stage("starting PyTorch"):
        from sublayer.reporting.files import report_study

    results, report = report_study(sources, settings, given, asked)
    for file in files:
        write_tables(results, file)
    return Comparison(results, report)


class Judging(TypedDict, total=False):
    """Options of a judgement: fields of ``judging.runs.JudgingOptions``."""

    arm: Annotated[
        str | None, Option("The column of arms; or columns, or files.", metavar="COLUMN")
    ]
    seed: Annotated[
        str | None, Option("The column of seeds; or columns, or rows.", metavar="COLUMN")
    ]
    item: Annotated[
        str | None, Option("The column of items; or columns, or rows.", metavar="COLUMN")
    ]
    document: Annotated[str | None, Option("The column of items' documents.", metavar="COLUMN")]
    value: Annotated[str | None, Option("The column of the score.", metavar="COLUMN")]
    step: Annotated[str | None, Option("The column of training steps.", metavar="COLUMN")]
    task: Annotated[
        str | None, Option("The task of lm-evaluation-harness's samples.", metavar="NAME")
    ]
    filter: Annotated[str | None, Option("The filter of the samples' answers.", metavar="NAME")]
    names: Annotated[
        str | None,
        Option(
            "The pattern of the names of files, folders or columns: '{arm}-{seed}'.",
            metavar="PATTERN",
        ),
    ]
    baseline: Annotated[
        str | None, Option("The arm to judge against. Default: first.", metavar="ARM")
    ]
    new: Annotated[str | None, Option("The arm with the verdict of the exit code.", metavar="ARM")]
    at: Annotated[
        str | int | None,
        Option(
            "The step of the compared values, or last, each run's own last step. Default: the "
            "last, if the same for all runs.",
            metavar="STEP",
        ),
    ]
    margin: Annotated[
        float | None,
        Option(
            "Differences smaller than this do not matter, in the unit of the score.",
            least=1e-9,
            most=1e9,
        ),
    ]
    lower_is_better: Annotated[
        bool | None,
        Option("The better direction of the score.", flag="--lower-is-better/--higher-is-better"),
    ]
    look: Annotated[
        int | None,
        Option("The number of this look, among the planned --looks.", least=1, most=MOST_LOOKS),
    ]
    looks: Annotated[
        int | None, Option("The total number of planned looks.", least=1, most=MOST_LOOKS)
    ]
    ledger: Annotated[
        PathText | None,
        Option(
            "The file that counts a loop's looks, so that at most 5% of loops keep anything no "
            "better; --looks is the planned number.",
            metavar="FILE",
        ),
    ]
    nan_is_failed: Annotated[
        bool, Option("Count runs with NaN as failed: worse than all.", default=False)
    ]
    common: Annotated[bool, Option("Leave out seeds and items that some run lacks.", default=False)]


@checked
def judge(*scores: Any, **options: Unpack[Judging]) -> "JudgedRuns":
    """Judge the scores of arms, ``judge(base, new)``; the first is the baseline.

    Each is an array ``[seed]`` or ``[seed, item]``, a mapping of seeds to such rows, a DataFrame,
    or the path of a table or a folder of runs; one mapping of arms to arrays, or one DataFrame with
    a column of arms, is enough. ``lower_is_better`` is needed if no metric's name implies it;
    ``new`` is the deciding arm among several. The verdict shows itself in a notebook, and its
    ``exit_code`` is the command's. Raises the errors of :mod:`sublayer.errors`.
    """
    from sublayer.judging.runs import JudgingOptions
    from sublayer.judging.verdict import read_objects
    from sublayer.reporting.judged import judge_sources

    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    readers: dict[str, Callable[[Any], Any]] = {"at": str, "ledger": Path}
    for name in given.keys() & readers.keys():
        given[name] = readers[name](given[name])
    asked = JudgingOptions(**given)
    sources = read_objects(scores, asked)
    try:
        return judge_sources(sources, asked)
    except SublayerError:
        for line in sources.said:  # the path that the verdict would begin with
            note(f"read: {line}")
        raise
