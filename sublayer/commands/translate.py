"""``sublayer translate``: translate what comes on standard input, line by line."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from sublayer.commands.base import AverageOption, DeviceOption, JsonOption, emit, say, write_result
from sublayer.commands.beam import (
    BeamOption,
    MoreOption,
    PenaltyOption,
    RuleOption,
    ShareOption,
    beam_settings,
)
from sublayer.commands.reading import recipe_of
from sublayer.config.limits import MOST_ROWS, WIDEST_BEAM
from sublayer.errors import ConfigError, DataError, Interrupted

if TYPE_CHECKING:
    from sublayer.decode.translate import Translation

EXAMPLE = "sublayer translate runs/multi30k-tiny < captions.en > captions.de"


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run, a checkpoint, or an imported folder.")],
    beam: BeamOption = None,
    rule: RuleOption = None,
    penalty: PenaltyOption = None,
    share: ShareOption = None,
    more: MoreOption = None,
    n_best: Annotated[
        int | None,
        typer.Option(
            "--n-best",
            min=1,
            max=WIDEST_BEAM,
            help="Print so many translations of each line: its number, score and text.",
        ),
    ] = None,
    words: Annotated[
        bool, typer.Option("--words", help="Read and print words that spaces divide, as the vocabulary has them.")
    ] = False,
    average: AverageOption = None,
    batch: Annotated[
        int,
        typer.Option(
            "--batch", min=1, max=MOST_ROWS, help="Lines translated at a time; it changes speed and memory only."
        ),
    ] = 32,
    window: Annotated[
        int,
        typer.Option(
            "--window", min=1, max=MOST_ROWS, help="Lines read before the first is printed, sorted by length."
        ),
    ] = 2048,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Translate each line of standard input to a line of standard output, in order.

    An empty line stays one. A line that is longer than the model reads becomes an empty line, and is said on standard
    error; nothing is cut. With --json one object holds all of it. Ctrl-C ends after the last line that was printed, and
    says which.
    """
    settings = beam_settings(recipe_of(run), beam=beam, rule=rule, penalty=penalty, share=share, more=more)
    if n_best is not None and n_best > settings.beam:
        raise ConfigError(f"--n-best {n_best} is more than the {settings.beam} hypotheses of --beam: give a wider beam")

    from sublayer.decode.translate import tokenizer_of, translate_lines
    from sublayer.load import load
    from sublayer.machine import choose_device
    from sublayer.model.encoder_decoder import EncoderDecoder
    from sublayer.train.allocator import keep_freed_memory

    keep_freed_memory()
    model = load(run, device=choose_device(device), average=average)
    if not isinstance(model, EncoderDecoder):
        raise ConfigError(f"{run} is a {model.config.kind}, which translates nothing: name a translator's run")
    tokenizer = tokenizer_of(model)
    write = (lambda ids: " ".join(tokenizer.words(ids))) if words else tokenizer.write
    assert model.config.max_len is not None, "a saved config is resolved"
    printed = _Printed(write, n_best, model.config.max_len, is_held=as_json)
    given = _Input(sys.stdin.buffer)
    lines = translate_lines(model, given, settings, sentences=batch, window=window, are_words=words)
    is_interrupted = False
    try:
        for found in lines:
            printed.add(found)
    except KeyboardInterrupt:
        is_interrupted = True
    printed.say_counts()
    if as_json:
        emit(printed.result(), as_json, str)
    if is_interrupted:
        left = f"the input from line {printed.n_done + 1:,} on is left"
        raise Interrupted(f"interrupted after {printed.n_done:,} lines: {left}")
    if given.error is not None:
        raise given.error


@dataclass
class _Printed:
    """Prints translations as they come, or holds them, and counts what a user should know of."""

    write: Callable[[Any], str]
    n_best: int | None
    longest: int
    is_held: bool
    held: list[dict[str, Any]] = field(default_factory=list)
    n_done: int = 0
    n_tokens: int = 0
    n_too_long: int = 0
    n_unknown: int = 0

    def add(self, found: "Translation") -> None:
        """Take the next line's."""
        number = self.n_done + 1
        if found.is_too_long:
            self.n_too_long += 1
            say(f"line {number}: {found.n_tokens:,} tokens are more than the {self.longest:,} that the model reads")
        self.n_tokens += found.n_tokens
        self.n_unknown += found.n_unknown
        texts = [{"text": self.write(each.ids), "score": each.score} for each in found.hypotheses[: self.n_best or 1]]
        if self.is_held:
            self.held.append({"line": number, "translations": texts})
        elif self.n_best is None:
            write_result(f"{texts[0]['text'] if texts else ''}\n")
        else:
            for each in texts:
                write_result(f"{number}\t{each['score']:.6f}\t{each['text']}\n")
        self.n_done = number

    def say_counts(self) -> None:
        """Say on standard error what was left out, and what the vocabulary does not know."""
        if self.n_too_long:
            say(f"{self.n_too_long:,} of {self.n_done:,} lines were too long and are empty")
        if self.n_unknown:
            say(f"{self.n_unknown:,} of {self.n_tokens:,} tokens of the input are unknown to the vocabulary")

    def result(self) -> dict[str, Any]:
        """Give all that was held, and the counts."""
        counts = {"lines": self.n_done, "too_long": self.n_too_long, "unknown_tokens": self.n_unknown}
        return {**counts, "translations": self.held}


class _Input:
    """Lines of a stream up to the first that is not UTF-8, which becomes ``error``: those before it are translated."""

    def __init__(self, stream: BinaryIO) -> None:
        self.error: DataError | None = None
        self._stream = stream

    def __iter__(self) -> Iterator[str]:
        from sublayer.data.lines import decoded

        for number, data in enumerate(self._stream, 1):
            try:
                text = decoded("standard input", number, data)
            except DataError as error:
                self.error = DataError(f"{error}; the {number - 1:,} lines before it are translated")
                return
            yield text.rstrip("\r\n")
