"""``sublayer evaluate``: how well a model predicts a text, judges pairs of texts, answers tasks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from sublayer.api.scoring import ask_probes, evaluate
from sublayer.cli.build import Json, client_of, emit, has_work, print_result
from sublayer.errors import ConfigError
from sublayer.files.paths import expanded
from sublayer.options import Argument, Option
from sublayer.system.launch import is_first_launched
from sublayer.system.stages import note, stage

EXAMPLE = "sublayer evaluate runs/book --split test --stride 32"

Runs = Annotated[
    Sequence[Path],
    Argument(
        "A run, a checkpoint, or the folder of an imported model; several fine-tuned runs are "
        "an ensemble, whose answers are averaged; with --suite any models.",
        metavar="RUN",
        complete="runs",
    ),
]
Probes = Annotated[
    str | None,
    Option(
        "Ask a model that predicts text what it answers without training: cola, sst2, race, "
        "winograd, dpr, with commas between, or all; --path names the folder of their files.",
        metavar="NAMES",
    ),
]
ProbeWords = Annotated[
    str | None,
    Option(
        "Of the probe sst2: the words that are compared, that of the first label first. "
        "Default: negative,positive.",
        metavar="A,B",
    ),
]
References = Annotated[
    Sequence[str],
    Option(
        "Of --probes: the score that is 1 on the axis that begins at chance. Repeatable.",
        metavar="PROBE=SHARE",
    ),
]
Suite = Annotated[
    Path | None,
    Option(
        "A TOML file that lists tasks, probes, texts and pairs: one scorecard of all runs.",
        metavar="FILE",
    ),
]
CsvFile = Annotated[
    Path | None, Option("Of a suite: write the scorecard as CSV, too.", metavar="FILE")
]
HtmlFile = Annotated[
    Path | None, Option("Of a suite: write the scorecard as HTML, too.", metavar="FILE")
]


@client_of(evaluate)
def command(
    options: dict[str, Any],
    runs: Runs,
    probes: Probes = None,
    words: ProbeWords = None,
    reference: References = (),
    suite: Suite = None,
    csv: CsvFile = None,
    html: HtmlFile = None,
    as_json: Json = False,
) -> None:
    """Score how well a model predicts a text, or answers tasks, that it was not trained on.

    A decoder gives bits per byte (lower is better; compares across tokenizers), and the loss per
    token, character and word. An encoder gives the accuracy of masked tokens and of judging pairs
    of texts: next sentence (nsp) and sentence order (sop), whichever it was trained on. A
    translator gives BLEU against the text's own translations. A fine-tuned model gives its score on
    the development set of its tasks, with the standard error, and baselines without a model;
    several are scored as one, the average of their answers. A model that predicts text answers
    --probes, tasks that it was not trained on. With --suite any models stand side by side in one
    scorecard, on the tasks and texts that a file lists. The arithmetic is that of the saved
    weights, float32, whatever the precision of training was.
    """
    given = {name: value for name, value in options.items() if value is not False}
    device = given.pop("device", None)
    files = {"csv": csv, "html": html}
    of_probes = {"words": words, "reference": reference}
    if suite is not None:
        others = {"probes": probes, **of_probes}
        for name in [*given, *(name for name, value in others.items() if value)]:
            raise ConfigError(
                f"{_option(name)} is of one model's own text or task: with --suite leave it out, "
                "the suite says what is scored"
            )
        _evaluate_suite(suite, runs, files, device, as_json=as_json)
        return
    for name, file in files.items():
        if file is not None:
            raise ConfigError(
                f"--{name} is of the scorecard of a suite: give --suite, or leave it out"
            )
    if not has_work("evaluate"):
        return
    if probes is None:
        for name, value in of_probes.items():
            if value:
                raise ConfigError(f"--{name} is of --probes: give both, or leave it out")
        print_result(evaluate(runs, **options), as_json)
        return
    average, path = given.pop("average", None), given.pop("path", None)
    if len(runs) > 1:
        raise ConfigError("--probes asks one model: name one run, or a --suite for several")
    for name in given:
        raise ConfigError(f"{_option(name)} has no effect on --probes: leave it out")
    of_text = (runs[0], probes, path, words, reference)
    print_result(ask_probes(*of_text, device=device, average=average), as_json)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _evaluate_suite(
    suite: Path,
    runs: Sequence[Path],
    files: Mapping[str, Path | None],
    device: str | None,
    *,
    as_json: bool,
) -> None:
    """Score models side by side, print the scorecard, and write it to files, by their kinds.

    Raises ConfigError, DataError and CheckpointError before anything is computed.
    """
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
        from sublayer.training.processes.world import leave_world

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
        note(f"wrote {path}")

    def render(result: Mapping[str, Any]) -> str:
        from sublayer.reporting.terminal import render_scorecard

        return "\n".join([*([title, ""] if title else []), render_scorecard(card)])

    emit(evaluated.to_json(), as_json, render)
