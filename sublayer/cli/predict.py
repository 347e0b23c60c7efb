"""``sublayer predict``: a fine-tuned model's answers to rows of a file, or to lines."""

import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

from sublayer.api.results import Found
from sublayer.api.writing import load_answerer
from sublayer.api.writing import predict as predict_rows
from sublayer.cli.build import (
    Choices,
    CommandResult,
    TextPair,
    client_of,
    names_among,
    refuse,
    write_result,
)
from sublayer.errors import CheckpointError, ConfigError, DataError, Interrupted
from sublayer.files.lines import decoded
from sublayer.files.storage import as_typed, describe_absence, new_file
from sublayer.numbers import count
from sublayer.options import Argument, Option
from sublayer.system.memory import keep_freed_memory
from sublayer.system.processes import n_launched
from sublayer.system.terminal import display, note, stage
from sublayer.tables import table
from sublayer.tasks.predicting import (
    AnswerColumns,
    AskedFile,
    FileKind,
    NamedPrediction,
    ToldColumns,
    check_out,
    kind_of,
    read_asked,
    write_answers,
)
from sublayer.tasks.submissions import ARCHIVE, NOTES

if TYPE_CHECKING:
    from sublayer.objective.supervised.answering import Answerer
    from sublayer.tasks.predicting import Answered, AskedRow

_FLUSHED_ROWS = 256
_READ_BYTES = 1 << 16
_DECIMALS = 4


@client_of(predict_rows, "sublayer predict runs/my new.csv --out answered.csv")
def predict(
    run: Annotated[
        Path,
        Argument(
            "A run, a checkpoint, or the folder of an imported model.",
            metavar="RUN",
            complete="runs",
        ),
    ],
    places: Annotated[
        Sequence[Path],
        Argument(
            "A file of rows as CSV, TSV, JSON lines or Parquet, or a task's own test set; "
            "default: lines of standard input, with tabs between texts. Further runs before it "
            "form an ensemble with averaged answers (with --submission, runs of one task do).",
            metavar="FILE|RUN",
        ),
    ] = (),
    text: Annotated[
        str | None, Option("The column of the text. Default: as in training.", metavar="COLUMN")
    ] = None,
    text_pair: TextPair = None,
    choices: Choices = None,
    out: Annotated[
        Path | None,
        Option(
            "The new file to write, in the format of its suffix. Default: standard output.",
            metavar="FILE",
        ),
    ] = None,
    submission: Annotated[
        Path | None,
        Option(
            "The new folder for a complete submission, the runs' answers to their suite's test "
            "sets; sets without a run get the majority answer.",
            metavar="DIR",
        ),
    ] = None,
    data: Annotated[
        str | None,
        Option(
            "The folder of the tasks' files for --submission. Default: each run's own.",
            metavar="DIR",
            needs="submission",
        ),
    ] = None,
    suite: Annotated[
        str | None,
        Option(
            "The suite of --submission: glue, superglue, squad or race. Default: the runs' own.",
            metavar="NAME",
            needs="submission",
        ),
    ] = None,
    precision: Annotated[
        Literal["float32", "bfloat16"],
        Option(
            "The precision: bfloat16 is faster on processors with units for it, and rounds "
            "probabilities to two or three digits."
        ),
    ] = "float32",
    as_json: Annotated[
        bool,
        Option(
            "Print each row with its answer as JSON, one object per line; with --submission, one "
            "object about the files written.",
            flag="--json",
        ),
    ] = False,
    **options: Any,
) -> CommandResult | None:
    """Answer rows with a fine-tuned model: the same rows in order, with columns of answers added.

    Classes give the label and the probability of each label, choices the text and number of the
    choice, numbers the number, questions the answer's text and start in the passage, written
    answers the text. Columns are found by their names in training, or by the names of the task's
    fields. A row without a text is not answered: its added columns stay empty, and it is counted.
    Without a file each line of standard input is answered as it arrives. Several runs of one task
    form an ensemble with averaged answers.
    """
    if submission is not None:
        given = {"text": text, "text_pair": text_pair, "choices": choices, "out": out, **options}
        given["precision"] = None if precision == "float32" else precision
        reason = "has no effect with --submission, which answers whole test sets: leave it out"
        refuse(given, reason, but=("batch", "device"))
        _check_one_process("a submission is written")
        return _submit([run, *places], submission, suite, data, options)
    runs, file = _divided(run, places)
    columns = ToldColumns(text or "", text_pair or "", names_among(choices))
    if file is None:
        if out is not None:
            raise ConfigError("--out needs a file of rows: name one, or redirect standard output")
        if columns != ToldColumns():
            raise ConfigError("lines of standard input have no columns: leave out the column names")
        _check_one_process("lines of standard input are answered")
    keep_freed_memory()
    dtype = None if precision == "float32" else precision
    answerer = load_answerer(runs, dtype=dtype, **options)
    if file is None:
        _predict_lines(answerer, sys.stdin.buffer, as_json=as_json)
    else:
        _predict_file(answerer, file, columns, out, options.get("device"), as_json=as_json)
    return None


def _check_one_process(what: str) -> None:
    if n_launched() > 1:
        raise ConfigError(f"{what} by one process: start one, or name a file of rows")


def _divided(run: Path, places: Sequence[Path]) -> tuple[list[Path], Path | None]:
    """Divide the paths into runs, which are folders, and the file of rows after them."""
    runs = [run, *(path for path in places if path.is_dir())]
    files = [path for path in places if not path.is_dir()]
    missing = [file for file in files[:-1] if not file.exists()]
    if missing:
        fault = describe_absence(missing[0])
        raise CheckpointError(f"{fault}: name the runs, then one file of rows")
    if len(files) > 1:
        raise ConfigError(
            f"{files[1]} is a second file: answer one file at a time, or give --submission"
        )
    if files and files[0] != places[-1]:
        raise ConfigError(f"{files[0]} is a file before a run: name the runs first")
    return runs, files[0] if files else None


class _StandardOutput(io.BytesIO):
    """Standard output for results, as a stream of bytes."""

    def flush(self) -> None:
        if text := self.getvalue().decode("utf-8", "surrogatepass"):
            write_result(text)
            self.seek(0)
            self.truncate()


def _predict_file(
    answerer: "Answerer",
    file: Path,
    columns: ToldColumns,
    out: Path | None,
    device: str | None,
    *,
    as_json: bool,
) -> None:
    """Answer the rows of a file by all launched processes; the first writes.

    Raises ConfigError if the answers cannot be written, DataError for a file without rows, in all
    processes, and TrainingError if one is lost.
    """
    from sublayer.system.machine import choose_device
    from sublayer.training.world import join_world, leave_world, naming_lost

    try:
        answerer.processes = world = join_world(choose_device(device))
        kind = "jsonl" if as_json else None if out is None else kind_of(out)
        if out is not None:
            world.by_first(lambda: check_out(out, kind))
        asked = read_asked(answerer.task, answerer.spec.columns, columns, file)
        kind = kind or asked.kind
        if out is None and kind in ("parquet", "xlsx"):
            named = "Parquet" if kind == "parquet" else "of Excel"
            raise ConfigError(f"{file} is {named} and cannot be printed: give --out, or --json")
        with naming_lost("nothing is written"):
            if world.is_main:
                _write_answers(answerer, asked, kind, out)
            else:
                for _ in answerer.answer_rows(asked.rows, asked.choice_names):
                    pass
            world.wait()
    finally:
        leave_world()


def _write_answers(
    answerer: "Answerer", asked: AskedFile, kind: FileKind, out: Path | None
) -> None:
    """Write all rows with their answers, and report unanswered ones."""

    for line in asked.notes:
        note(line)
    columns = AnswerColumns(
        answerer.task, asked.names, asked.choice_names, is_written=answerer.is_written
    )
    n_rows = n_outside = n_unanswered = 0
    first_unanswered = ""

    def show(done: int, total: int) -> None:
        display().change_innermost(
            f"answering rows from {n_rows + 1:,} on: {done} of {count(total, 'batch')}"
        )

    def answered() -> "Answered":
        nonlocal n_rows, n_outside, n_unanswered, first_unanswered
        for row, named in answerer.answer_rows(asked.rows, asked.choice_names, show):
            yield row, named
            n_rows += 1
            if not named.is_answered:
                n_unanswered += 1
                first_unanswered = first_unanswered or row.place
            n_outside += named.is_answered and named.label is None
            if n_rows % _FLUSHED_ROWS == 0:
                stream.flush()

    opened = nullcontext(_StandardOutput()) if out is None else new_file(out)
    with opened as stream, stage("answering"):
        try:
            write_answers(stream, kind, asked, columns, answered())
        except KeyboardInterrupt:
            stream.flush()
            raise Interrupted(f"interrupted after {count(n_rows, 'row')}") from None
        answerer.note_cut()
        if out is None:
            stream.flush()
    rows = count(n_rows, "row")
    if n_unanswered:
        note(
            f"not answered, with an empty text: {n_unanswered:,} of {rows}, the first at "
            f"{first_unanswered}"
        )
    if n_outside:
        note(f"answered with none of the labels: {n_outside:,} of {rows}")
    if not n_unanswered and not n_outside:
        note(f"answered {rows} of {as_typed(str(asked.path))}")
    if out is not None:
        note(f"written to {as_typed(str(out))}")


def blocks_of_lines(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield available lines, without line ends, as soon as there are any."""
    rest = b""
    read = getattr(stream, "read1", stream.read)
    while data := read(_READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


def _predict_lines(answerer: "Answerer", stream: BinaryIO, *, as_json: bool) -> None:
    """Answer each line, of one or several tab-separated texts, with one line.

    An empty line, or one with the wrong number of texts, gets an empty line and a warning. Raises
    DataError at a line that is not UTF-8, after answering those before.
    """

    n_lines = n_unanswered = 0
    problem: DataError | None = None
    try:
        for lines in blocks_of_lines(stream):
            rows = []
            for number, line in enumerate(lines, n_lines + 1):
                try:
                    text = decoded("standard input", number, line)
                except DataError as error:
                    problem = error
                    break
                rows.append(_row(answerer, text.removesuffix("\r"), number))
            answers = ""
            for _, named in answerer.answer_rows(rows):
                n_unanswered += not named.is_answered
                answers += f"{_written(named, as_json)}\n"
            write_result(answers)
            n_lines += len(rows)
            if problem is not None:
                break
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted after {count(n_lines, 'line')}") from None
    answerer.note_cut()
    if n_unanswered:
        note(f"not answered: {n_unanswered:,} of {count(n_lines, 'line')}")
    if problem is not None:
        raise DataError(f"{problem}; answered before it: {count(n_lines, 'line')}")


def _row(answerer: "Answerer", line: str, number: int) -> "AskedRow":
    """Read the texts of a line; none, with a warning, if it is empty or their number is wrong."""

    where = f"line {number}"
    is_one = len(answerer.task.fields) == 1 and answerer.task.kind != "choice"
    if line.strip():
        try:
            return answerer.given_row([line] if is_one else line.split("\t"), where)
        except DataError as error:
            note(f"{error}, divided by tabs")
    return answerer.given_row(None, where)


def _written(named: NamedPrediction, as_json: bool) -> str:
    if as_json:
        return json.dumps(named.to_json(), ensure_ascii=False)
    if named.label is None:
        return ""
    label = named.label
    cells = [f"{label:.{_DECIMALS}f}" if isinstance(label, float) else " ".join(label.split())]
    if named.probability is not None:
        cells.append(f"{named.probability:.{_DECIMALS}f}")
    return "\t".join(cells)


def _submit(
    runs: Sequence[Path], out: Path, suite: str | None, data: str | None, options: dict[str, Any]
) -> CommandResult:
    """Answer the test sets of a suite by runs, and write the submission."""
    from sublayer.runs.finetuning import submit
    from sublayer.system.machine import choose_device

    device, batch = choose_device(options.get("device")), options.get("batch")
    submission, sets = submit(runs, out, suite=suite, data=data, batch=batch, device=device)
    folder, archive = as_typed(str(submission.path)), submission.path / ARCHIVE
    results: dict[str, Any] = {
        "folder": str(submission.path),
        "suite": submission.suite,
        "archive": str(archive) if archive.exists() else None,
        "files": list(submission.files),
        "sets": [
            {
                "task": answers.task.name,
                "title": answers.task.title,
                "split": answers.split,
                "rows": len(answers.examples),
                "runs": list(map(str, by)),
            }
            for answers, by in sets
        ],
        "notes": list(submission.notes),
    }
    rows = [
        (
            answers.task.title,
            answers.split,
            f"{len(answers.examples):,}",
            ", ".join(as_typed(str(run)) for run in by) or "the majority",
        )
        for answers, by in sets
    ]
    lines = [table(["task", "set", "rows", "answered by"], rows, right=[2])]
    lines += [f"note: {line}" for line in submission.notes]
    lines.append(f"files: {len(submission.files)} in {folder}")
    if submission.notes:
        lines.append(f"the notes are in {folder}/{NOTES}, too")
    if results["archive"] is not None:
        lines.append(f"to hand in: {as_typed(results['archive'])}")
    return Found(results, "\n".join(lines))
