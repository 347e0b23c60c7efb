"""A file of rows, answered: its rows with their answers, printed or written to a new file."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from sublayer.commands.shared.base import say, write_result
from sublayer.counts import count
from sublayer.errors import ConfigError, Interrupted
from sublayer.files.paths import as_typed
from sublayer.files.storage import new_file
from sublayer.system.stages import display, stage
from sublayer.tasks.predicting.answer_columns import answer_columns
from sublayer.tasks.predicting.columns import ToldColumns
from sublayer.tasks.predicting.files import AskedFile, kind_of, read_asked
from sublayer.tasks.predicting.writers import WRITERS, RowWriter, check_out

if TYPE_CHECKING:
    from sublayer.objective.supervised.answering import Answerer

_FLUSHED_ROWS = 256


class _StandardOutput:
    """Standard output for results, as a stream of bytes."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._waiting.append(data)
        return len(data)

    def flush(self) -> None:
        if self._waiting:
            write_result(b"".join(self._waiting).decode("utf-8", "surrogatepass"))
            self._waiting.clear()


def predict_file(
    answerer: "Answerer", file: Path, told: ToldColumns, out: Path | None, *, as_json: bool
) -> None:
    """Answer the rows of a file, and say what was not answered.

    Raises ConfigError where the answers cannot be written, DataError for what is no file of rows.
    """
    if out is not None:
        kind = check_out(out, "jsonl" if as_json else kind_of(out))
    asked = read_asked(answerer.task, answerer.spec.columns, told, file)
    if out is None:
        kind = "jsonl" if as_json else asked.kind
        if kind in ("parquet", "xlsx"):
            named = "Parquet" if kind == "parquet" else "of Excel"
            raise ConfigError(f"{file} is {named}, which is not printed: give --out, or --json")
    for note in asked.notes:
        say(note)
    columns = answer_columns(
        answerer.task,
        asked.names,
        asked.choice_names,
        is_written=answerer.is_written,
        has_probabilities=answerer.has_probabilities,
    )
    with _opened(out) as stream, stage("answering"):
        counted, firsts = _answer(answerer, asked, WRITERS[kind](stream, asked, columns), stream)
    _say_counts(counted, firsts, asked)
    if out is not None:
        say(f"written to {as_typed(str(out))}")


def predict_together(
    answerer: "Answerer",
    file: Path,
    told: ToldColumns,
    out: Path | None,
    device: str | None,
    *,
    as_json: bool,
) -> None:
    """Answer the rows of a file by the processes that were started together; the first writes.

    Raises as ``predict_file`` does, in all of them, and TrainingError where one is lost.
    """
    from sublayer.objective.supervised.answering import answer_rows
    from sublayer.system.machine import choose_device
    from sublayer.training.processes.joining import join_world, leave_world, naming_lost

    try:
        answerer.processes = world = join_world(choose_device(device))
        if out is not None:
            world.by_first(lambda: check_out(out, "jsonl" if as_json else kind_of(out)))
        with naming_lost("nothing is written"):
            if world.is_main:
                predict_file(answerer, file, told, out, as_json=as_json)
            else:
                asked = read_asked(answerer.task, answerer.spec.columns, told, file)
                for _ in answer_rows(answerer, asked.rows, asked.choice_names):
                    pass
            world.wait()
    finally:
        leave_world()


@contextmanager
def _opened(out: Path | None) -> Iterator[IO[bytes]]:
    if out is None:
        output = cast(IO[bytes], _StandardOutput())
        yield output
        output.flush()
        return
    with new_file(out) as file:
        yield file


def _answer(
    answerer: "Answerer", asked: AskedFile, writer: RowWriter, stream: IO[bytes]
) -> tuple[Counter[str], dict[str, str]]:
    """Write all rows; count them, those that are not answered, and where the first of these is."""
    from sublayer.objective.supervised.answering import CutRows, answer_rows

    counted: Counter[str] = Counter(rows=0, unanswered=0, outside=0)
    cut = CutRows(answerer)
    firsts: dict[str, str] = {}

    def show(done: int, total: int) -> None:
        display().change_innermost(
            f"answering rows from {counted['rows'] + 1:,} on: {done} of {count(total, 'batch')}"
        )

    try:
        for row, named in answer_rows(answerer, asked.rows, asked.choice_names, show):
            writer.add(row, named)
            cut.hear(row, named)
            counted["rows"] += 1
            if not named.is_answered:
                counted["unanswered"] += 1
                firsts.setdefault("unanswered", row.place)
            elif named.label is None:
                counted["outside"] += 1
            if counted["rows"] % _FLUSHED_ROWS == 0:
                stream.flush()
    except KeyboardInterrupt:
        stream.flush()
        raise Interrupted(f"interrupted after {count(counted['rows'], 'row')}") from None
    writer.finish()
    cut.say()
    return counted, firsts


def _say_counts(counted: Counter[str], firsts: Mapping[str, str], asked: AskedFile) -> None:
    n_rows = count(counted["rows"], "row")
    if counted["unanswered"]:
        say(
            f"not answered, for a text of theirs is empty: {counted['unanswered']:,} of {n_rows}, "
            f"the first at {firsts['unanswered']}"
        )
    if counted["outside"]:
        say(f"answered with none of the labels: {counted['outside']:,} of {n_rows}")
    if not counted["unanswered"] and not counted["outside"]:
        say(f"answered {n_rows} of {as_typed(str(asked.path))}")
