"""Commands of comparisons: demo, plan, compare, judge, report, runs."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from sublayer.api import comparing, run
from sublayer.api.results import Found
from sublayer.cli.build import CommandResult, Details, client_of
from sublayer.errors import ConfigError
from sublayer.options import Argument, Option
from sublayer.system.machine import cores, total_memory

MOST_JOBS = 8
JOB_BYTES = 1 << 30
"""Memory of a demo run's process; measured: 400 MiB."""
DEVIATES = 4
"""The exit code of ``report --verify`` for results that do not follow from plan and items."""

Source = Annotated[
    str,
    Argument(
        "A recipe to vary, or a study, by name or .toml file; or the baseline, first of several "
        "recipes or finished runs that are the arms.",
        metavar="RECIPE|STUDY",
        complete="recipes_and_studies",
    ),
]
Words = Annotated[
    Sequence[str],
    Argument(
        "Further recipes or runs, one arm each, then settings for all arms, such as "
        "model.d_ff=512.",
        metavar="RECIPE|KEY=VALUE",
        complete="recipes_and_settings",
    ),
]


@client_of(example="sublayer demo")
def demo(
    out: Annotated[Path, Option("The study's folder.")] = Path("runs/demo"),
    details: Details = False,
) -> CommandResult:
    """Compare tiny decoders on the prose of the running Python installation, and write
    runs/demo/report.html.

    It takes about two minutes on two cores, and uses up to eight. The same command again completes
    missing runs, or shows the results.
    """
    memory = total_memory()
    room = MOST_JOBS if memory is None else memory // JOB_BYTES
    jobs = max(1, min(cores(), MOST_JOBS, room))
    return _shown(comparing.compare("demo", out=out, jobs=jobs), details)


def _shown(compared: comparing.Comparison, details: bool) -> CommandResult:
    return Found(compared.to_dict(), compared.details) if details else compared


@client_of(
    comparing.compare,
    "sublayer compare gpt model.n_layers=2 train.steps=200 --vary model.ffn=gelu,swiglu --seeds 3",
)
def compare(
    source: Source,
    words: Words = (),
    details: Details = False,
    **options: Any,
) -> CommandResult:
    """Train every arm at an equal budget with the same seeds, and test which is better.

    Differences have intervals. The same command again resumes where it stopped, or shows the
    results; with more --seeds it trains the missing ones, and intervals widen for the further look.
    Ctrl-C stops, and active runs save; with --on they continue, and the same command rejoins them.
    """
    from sublayer.study.definition import split_words

    return _shown(comparing.compare(*split_words(source, words), **options), details)


@client_of(
    comparing.plan, "sublayer plan gpt train.minutes=5 --vary model.ffn=gelu,swiglu --measure"
)
def plan(source: Source, words: Words = (), **options: Any) -> CommandResult:
    """Print the cost of a run or of each arm of a comparison: parameters, FLOPs, memory, disk; with
    --measure, time; and the detectable difference. With --processes, the cost of each process.

    No text is read and nothing is trained. An untrained vocabulary is assumed to have
    data.vocab_size tokens.
    """
    from sublayer.study.definition import split_words

    return comparing.plan(*split_words(source, words), **options)


@client_of(comparing.judge, "sublayer judge scores/base.csv scores/new.csv")
def judge(
    sources: Annotated[
        Sequence[Path],
        Argument("Tables, or folders of runs; the first is the baseline.", metavar="SOURCE"),
    ],
    html: Annotated[
        Path | None, Option("Also write the verdict as an HTML page.", metavar="FILE")
    ] = None,
    table: Annotated[
        Path | None, Option("Also write runs and differences: .csv, .md or .tex.", metavar="FILE")
    ] = None,
    **options: Any,
) -> CommandResult:
    """Judge runs of any trainer: which arm is better than the baseline, with intervals.

    Reads CSV, TSV, JSON lines and Parquet, and reports its interpretation of the columns. Exit
    codes: 0 better, 10 no difference that matters, 11 cannot tell, 12 worse, 2 a mistake; of
    several arms, the code of --new, else 0 if any is better and 12 if all are worse.
    """
    from sublayer.files.storage import check_free
    from sublayer.reporting.judged import write_page, write_table
    from sublayer.tables import FILES

    check_free(html, "--html", (".html", ".htm"))
    check_free(table, "--table", FILES)
    judged = comparing.judge(*sources, **options)
    if html is not None:
        write_page(judged, html)
    if table is not None:
        write_table(judged, table)
    return judged


@client_of(run.report, "sublayer report runs/gpt-ffn")
def report(
    verify: Annotated[
        bool,
        Option(
            "Verify, without writing, that a comparison's results follow from its sealed plan "
            "and its scores of test items, and list deviations. Exit code 0: they follow; "
            f"{DEVIATES}: they do not, or no plan was sealed.",
        ),
    ] = False,
    **options: Any,
) -> CommandResult:
    """Write the HTML report of a comparison, or of a run, from its folder, and print its path.

    Nothing is trained. The report of an unfinished comparison shows the finished runs, and names
    the missing ones. A file is overwritten only if it is a report of the same folder.
    """
    if not verify:
        path = run.report(**options)
        return Found({"report": path}, str(path))
    for name, flag in (("out", "--out"), ("tables", "--table")):
        if name in options:
            raise ConfigError(f"--verify writes nothing: leave out {flag}")
    folder = run.reported_folder(options["folder"])
    from sublayer.reporting.verify import render_verification, verify_study

    verification = asdict(verify_study(folder))
    code = 0 if verification["follows"] else DEVIATES
    return Found(verification, render_verification(verification), exit_code=code)


@client_of(run.list_runs, "sublayer runs")
def runs(
    folders: Annotated[
        Sequence[str], Argument("Folders to search for runs. Default: runs.", metavar="FOLDER")
    ] = (),
    **options: Any,
) -> CommandResult:
    """List runs, comparisons and imported models, the newest first.

    A score is the best on the validation split during training, unless marked (test). An unfinished
    run is followed by the command that resumes it. Nothing is written, and no model is loaded.
    """
    return run.list_runs(*folders, **options)
