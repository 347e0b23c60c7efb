"""``sublayer translate``: translate what comes on standard input, line by line."""

import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

from sublayer.api.writing import TranslatedLine, Translations, translate
from sublayer.cli.build import Json, client_of, print_result, write_result
from sublayer.counts import count
from sublayer.errors import DataError, Interrupted
from sublayer.system.stages import note

EXAMPLE = "sublayer translate runs/multi30k-tiny < captions.en > captions.de"


@client_of(translate)
def command(options: dict[str, Any], as_json: Json = False) -> None:
    """Translate each line of standard input to a line of standard output, in order.

    An empty line stays one. A line that is longer than the model reads becomes an empty line, and
    is said on standard error; nothing is cut. With --json one object holds all of it. Ctrl-C ends
    after the last line that was printed, and says which.
    """
    lines = LineInput(sys.stdin.buffer)
    translations = Translations()

    def show(line: TranslatedLine) -> None:
        if not as_json:
            _print(line, has_scores="n_best" in options)
        translations.add(line, is_kept=as_json)

    is_interrupted = False
    try:
        translate(lines=lines, show=show, **options)
    except KeyboardInterrupt:
        is_interrupted = True
    for text in translations.left_out():
        note(text)
    if as_json:
        print_result(translations, as_json)
    if is_interrupted:
        left = f"the input from line {translations.n_lines + 1:,} on is left"
        raise Interrupted(f"interrupted after {count(translations.n_lines, 'line')}: {left}")
    if lines.error is not None:
        raise lines.error


def _print(line: TranslatedLine, *, has_scores: bool) -> None:
    if has_scores:
        for text, score in zip(line.texts, line.scores, strict=True):
            write_result(f"{line.number}\t{score:.6f}\t{text}\n")
    else:
        write_result(f"{line.texts[0] if line.texts else ''}\n")


class LineInput:
    """Lines of a stream up to the first that is not UTF-8, which becomes ``error``."""

    def __init__(self, stream: BinaryIO) -> None:
        self.error: DataError | None = None
        self._stream = stream

    def __iter__(self) -> Iterator[str]:
        from sublayer.files.lines import decoded

        for number, data in enumerate(self._stream, 1):
            try:
                text = decoded("standard input", number, data)
            except DataError as error:
                self.error = DataError(
                    f"{error}; translated before it: {count(number - 1, 'line')}"
                )
                return
            yield text.rstrip("\r\n")
