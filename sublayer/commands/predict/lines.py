"""Lines of standard input, answered as they come."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from sublayer.commands.shared.base import say, write_result
from sublayer.counts import count
from sublayer.errors import DataError, Interrupted
from sublayer.files.lines import decoded
from sublayer.tasks.predicting.named import UNANSWERED, NamedPrediction

if TYPE_CHECKING:
    from sublayer.objective.supervised.answering import Answerer
    from sublayer.tasks.predicting.files import AskedRow

_READ_BYTES = 1 << 16
_DECIMALS = 4


def blocks_of_lines(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the lines that have come, without their ends, as soon as there are any."""
    rest = b""
    read = getattr(stream, "read1", stream.read)
    while data := read(_READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


def predict_lines(answerer: "Answerer", stream: BinaryIO, *, as_json: bool) -> None:
    """Answer lines, each one or several texts divided by tabs, with a line each.

    A line that is empty, or has other texts than the task, is answered with an empty line, and
    said. Raises DataError at a line that is not UTF-8, after those before it.
    """
    from sublayer.objective.supervised.answering import CutRows

    n_lines = n_unanswered = 0
    cut = CutRows(answerer)
    problem: DataError | None = None
    try:
        for lines in blocks_of_lines(stream):
            texts, problem = _texts(lines, n_lines)
            rows = [_row(answerer, text, n_lines + place) for place, text in enumerate(texts, 1)]
            answers = _answered(answerer, rows)
            for row, each in zip(rows, answers, strict=True):
                if row is not None:
                    cut.hear(row, each)
            write_result("".join(f"{_written(each, as_json)}\n" for each in answers))
            n_lines += len(answers)
            n_unanswered += sum(not each.is_answered for each in answers)
            if problem is not None:
                break
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted after {count(n_lines, 'line')}") from None
    cut.say()
    if n_unanswered:
        say(f"not answered: {n_unanswered:,} of {count(n_lines, 'line')}")
    if problem is not None:
        raise DataError(f"{problem}; answered before it: {count(n_lines, 'line')}")


def _texts(lines: list[bytes], n_before: int) -> tuple[list[str], DataError | None]:
    """Decode lines up to the first that is not UTF-8."""
    texts = []
    for number, line in enumerate(lines, n_before + 1):
        try:
            texts.append(decoded("standard input", number, line))
        except DataError as error:
            return texts, error
    return texts, None


def _row(answerer: "Answerer", line: str, number: int) -> "AskedRow | None":
    from sublayer.objective.supervised.answering import given_row

    text = line.removesuffix("\r")
    is_one = len(answerer.task.fields) == 1 and answerer.task.kind != "choice"
    texts = [text] if is_one else text.split("\t")
    if not text.strip():
        return None
    try:
        return given_row(answerer, texts, f"line {number}")
    except DataError as error:
        say(f"{error}, divided by tabs")
        return None


def _answered(answerer: "Answerer", rows: "list[AskedRow | None]") -> list[NamedPrediction]:
    from sublayer.objective.supervised.answering import answer_rows

    asked = [row for row in rows if row is not None]
    found = (named for _, named in answer_rows(answerer, asked))
    return [UNANSWERED if row is None else next(found) for row in rows]


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
