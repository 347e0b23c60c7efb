"""Commands of texts: generate, fill, translate, tokenize, predict."""

import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

from sublayer.api import tokenizing, writing
from sublayer.api.results import Found
from sublayer.cli.build import (
    Choices,
    CommandResult,
    Json,
    TextPair,
    client_of,
    names_among,
    print_result,
    refuse,
    write_result,
)
from sublayer.errors import CheckpointError, ConfigError, DataError, Interrupted
from sublayer.files.lines import decoded
from sublayer.files.storage import as_typed, describe_absence, new_file
from sublayer.numbers import count, enumerate_names
from sublayer.options import Argument, Option
from sublayer.system.machine import keep_freed_memory
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
    from sublayer.decode.gaps import Completion
    from sublayer.objective.supervised.answering import Answerer
    from sublayer.tasks.predicting import Answered, AskedRow

_UNDERLINED, _PLAIN = "\x1b[4m", "\x1b[24m"


@client_of(
    writing.generate,
    'sublayer generate runs/book --prompt "The " --tokens 200 --temperature 0.8',
)
def generate(as_json: Json = False, **options: Any) -> CommandResult | None:
    """Continue a prompt: a single continuation appears as it is generated, several at the end.

    Each of several continuations follows a numbered line. An encoder-decoder trained on gaps fills
    the gaps <extra_id_0>, <extra_id_1> ... of the text: greedily, by a beam, or by sampling.
    """
    is_single = "n" not in options and not as_json
    written = writing.generate(**options, show=write_result if is_single else None)
    if as_json:
        return written
    # Printed unchanged, to the last no-break space.
    if isinstance(written, writing.Completions):
        shown = written.completions[:1] if is_single else written.completions
        write_result(f"{writing.numbered([*map(_underlined, shown)])}\n")
        for completion in shown:
            empty = [str(n) for n, gap in enumerate(completion.gaps, 1) if not gap.text.strip()]
            if empty:
                note(f"empty filling: gap {enumerate_names(empty)}")
            if completion.unplaced:
                note(f"text outside all gaps, left out: {completion.unplaced!r}")
        n_tokens = shown[0].n_tokens
    else:
        write_result("\n" if is_single else f"{written!r}\n")
        n_tokens = written.n_tokens
    if is_single:
        note(f"{count(n_tokens, 'token')}, {n_tokens / written.seconds:,.0f} a second")
    return None


def _underlined(completion: "Completion") -> str:
    """Return the text, with fillings underlined on a terminal."""
    if not sys.stdout.isatty():
        return completion.text
    shown, end = "", 0
    for gap in completion.gaps:
        shown += completion.text[end : gap.place.start]
        if gap.text:
            shown += f"{_UNDERLINED}{gap.text}{_PLAIN}"
        end = gap.place.stop
    return shown + completion.text[end:]


@client_of(writing.fill, 'sublayer fill runs/albert-small --text "The [MASK] sat on the mat."')
def fill(**options: Any) -> CommandResult:
    """Fill the masks of a text: the likeliest fillings of each, with their probabilities.

    An encoder fills each mask with one token, given that all others are masked. A T5 fills each
    with any number of tokens; the likeliest that a beam of N finds are listed.
    """
    return writing.fill(**options)


@client_of(writing.translate, "sublayer translate runs/multi30k-tiny < captions.en > captions.de")
def translate(as_json: Json = False, **options: Any) -> CommandResult | None:
    """Translate each line of standard input to a line of standard output, in order.

    An empty line stays empty. A line longer than the model's context becomes an empty line,
    reported on standard error; nothing is truncated. With --json one object holds all lines. Ctrl-C
    ends after the last printed line, and reports its number.
    """
    lines = LineInput(sys.stdin.buffer)
    translations = writing.Translations()

    def show(line: writing.TranslatedLine) -> None:
        if "n_best" in options and not as_json:
            for text, score in zip(line.texts, line.scores, strict=True):
                write_result(f"{line.number}\t{score:.6f}\t{text}\n")
        elif not as_json:
            write_result(f"{line.texts[0] if line.texts else ''}\n")
        translations.add(line, is_kept=as_json)

    is_interrupted = False
    try:
        writing.translate(lines=lines, show=show, **options)
    except KeyboardInterrupt:
        is_interrupted = True
    for text in translations.left_out():
        note(text)
    if as_json:
        print_result(translations, as_json=True)
    if is_interrupted:
        left = f"the input from line {translations.n_lines + 1:,} on is untranslated"
        raise Interrupted(f"interrupted after {count(translations.n_lines, 'line')}: {left}")
    if lines.error is not None:
        raise lines.error
    return None


class LineInput:
    """Lines of a stream up to the first line that is not UTF-8; ``error`` then reports it."""

    def __init__(self, stream: BinaryIO) -> None:
        self.error: DataError | None = None
        self._stream = stream

    def __iter__(self) -> Iterator[str]:
        for number, data in enumerate(self._stream, 1):
            try:
                text = decoded("standard input", number, data)
            except DataError as error:
                done = count(number - 1, "line")
                self.error = DataError(f"{error}; translated before it: {done}")
                return
            yield text.rstrip("\r\n")


@client_of(
    tokenizing.tokenize,
    "sublayer tokenize --path book.txt --kind bpe --vocab-size 4096 --out tokenizer.json "
    '--text "a word"',
)
def tokenize(**options: Any) -> CommandResult:
    """Train a tokenizer on a text and save it, or show the tokens of a text.

    A recipe uses a saved tokenizer with data.tokenizer=FILE.
    """
    reads = "source" in options and not options.keys() & {"text", "out", "path", "corpus"}
    if reads and not sys.stdin.isatty():
        options["text"] = sys.stdin.buffer.read()
    return tokenizing.tokenize(**options)


_FLUSHED_ROWS = 256
_READ_BYTES = 1 << 16
_DECIMALS = 4


@client_of(writing.predict, "sublayer predict runs/my new.csv --out answered.csv")
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
        settings = {"text": text, "text_pair": text_pair, "choices": choices, "out": out, **options}
        settings["precision"] = None if precision == "float32" else precision
        reason = "has no effect with --submission, which answers whole test sets: leave it out"
        refuse(settings, reason, but=("batch", "device"))
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
    answerer = writing.load_answerer(runs, dtype=dtype, **options)
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
        table = read_asked(answerer.task, answerer.spec.columns, columns, file)
        kind = kind or table.kind
        if out is None and kind in ("parquet", "xlsx"):
            named = "Parquet" if kind == "parquet" else "of Excel"
            raise ConfigError(f"{file} is {named} and cannot be printed: give --out, or --json")
        with naming_lost("nothing is written"):
            if world.is_main:
                _write_answers(answerer, table, kind, out)
            else:
                for _ in answerer.answer_rows(table.rows, table.choice_names):
                    pass
            world.wait()
    finally:
        leave_world()


def _write_answers(
    answerer: "Answerer", source: AskedFile, kind: FileKind, out: Path | None
) -> None:
    """Write all rows with their answers, and report unanswered ones."""

    for line in source.notes:
        note(line)
    columns = AnswerColumns(
        answerer.task, source.names, source.choice_names, is_written=answerer.is_written
    )
    n_rows = n_outside = n_unanswered = 0
    first_unanswered = ""

    def show(done: int, total: int) -> None:
        display().change_innermost(
            f"answering rows from {n_rows + 1:,} on: {done} of {count(total, 'batch')}"
        )

    def answered() -> "Answered":
        nonlocal n_rows, n_outside, n_unanswered, first_unanswered
        for row, named in answerer.answer_rows(source.rows, source.choice_names, show):
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
            write_answers(stream, kind, source, columns, answered())
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
        note(f"answered {rows} of {as_typed(str(source.path))}")
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
