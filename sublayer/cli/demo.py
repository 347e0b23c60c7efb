"""``sublayer demo``: a whole comparison in a few minutes."""

from pathlib import Path
from typing import Annotated

from sublayer.cli.build import Details, Json, client_of, print_compared
from sublayer.counts import count
from sublayer.options import Option
from sublayer.system.memory import cores, total_memory
from sublayer.system.stages import format_seconds, note, stage
from sublayer.system.terminal import paragraph

EXAMPLE = "sublayer demo"
_MOST_JOBS = 8
_JOB_BYTES = 1 << 30
"""Allowed for the process of a run; 400 MiB were measured."""
_START_S = 10.0
_RUN_S = (5.5, 7.5)
"""Seconds of one core that a run takes: as measured with avx512, and limited to AVX2."""


@client_of()
def command(
    out: Annotated[Path, Option("The study's folder.")] = Path("runs/demo"),
    details: Details = False,
    as_json: Json = False,
) -> None:
    """Compare tiny decoders on the prose of the running Python installation, and write
    runs/demo/report.html.

    It takes about two minutes on two cores, and uses up to eight. Run again, it makes the
    missing runs, or shows the results.
    """
    memory = total_memory()
    room = _MOST_JOBS if memory is None else memory // _JOB_BYTES
    jobs = max(1, min(cores(), _MOST_JOBS, room))
    announce(out, jobs)
    with stage("starting PyTorch"):
        from sublayer.reporting.files import report_study
        from sublayer.study.options import Options

    results, report = report_study(["demo"], [], Options(out=out, jobs=jobs, is_announced=True))
    print_compared(results, report, as_json=as_json, details=details)


def announce(out: Path, jobs: int) -> None:
    """Say what will be done, and how long it takes, before PyTorch is imported."""
    from sublayer.study.arms import make_trials
    from sublayer.study.definition import load_study

    study = load_study("demo")
    *names, last = (arm.name for arm in study.arms)
    n_rates, n_seeds = len(make_trials(study.arms, study.tune)), study.n_seeds or 1
    n_runs = len(study.arms) * (n_rates + n_seeds)
    steps = study.arms[0].loaded.recipe.train.steps
    note(
        paragraph(
            f"{study.title}: {', '.join(names)} and {last}, each at the best of "
            f"{count(n_rates, 'learning rate')}, with {count(n_seeds, 'seed')}. "
            f"{count(n_runs, 'run')} of {count(steps or 0, 'step')}, {jobs} at a time, in {out}."
        )
    )
    n_left = n_runs - len(list(out.glob("arms/**/record.json")))
    if not n_left:
        note("All of them are done: the report is written again.")
        return
    fast, slow = (format_seconds(_START_S + n_left * run_s / jobs) for run_s in _RUN_S)
    left = "" if n_left == n_runs else f", for {count(n_left, 'missing run')}"
    note(f"Expected: about {fast} on a processor with avx512, {slow} on another{left}.")
