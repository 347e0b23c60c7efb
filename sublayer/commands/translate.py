"""``sublayer translate``: translate what comes on standard input, line by line."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from sublayer.commands.base import DeviceOption, JsonOption, emit, say
from sublayer.commands.beam import (
    AverageOption,
    BeamOption,
    MoreOption,
    PenaltyOption,
    RuleOption,
    ShareOption,
    beam_settings,
)
from sublayer.errors import ConfigError, DataError, Interrupted

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
        typer.Option("--n-best", min=1, help="Print so many translations of each line: its number, score and text."),
    ] = None,
    words: Annotated[
        bool, typer.Option("--words", help="Read and print words that spaces divide, as the vocabulary has them.")
    ] = False,
    average: AverageOption = None,
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Lines translated at a time; it changes speed and memory only.")
    ] = 32,
    window: Annotated[
        int, typer.Option("--window", min=1, help="Lines read before the first is printed, sorted by length.")
    ] = 2048,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Translate each line of standard input to a line of standard output, in order.

    An empty line stays one. A line that is longer than the model reads becomes an empty line, and is said on standard
    error; nothing is cut. With --json one object holds all of it. Ctrl-C ends after the last line that was printed, and
    says which.
    """
    settings = beam_settings(beam, rule, penalty, share, more)
    if n_best is not None and n_best > settings.beam:
        raise ConfigError(f"--n-best {n_best} is more than the {settings.beam} hypotheses of --beam: give a wider beam")

    from sublayer.decode.translate import tokenizer_of, translate_lines
    from sublayer.load import load
    from sublayer.model.encoder_decoder import EncoderDecoder
    from sublayer.train.machine import choose_device

    model = load(run, device=choose_device(device), average=average)
    if not isinstance(model, EncoderDecoder):
        raise ConfigError(f"{run} is a {model.config.kind}, which translates nothing: name a translator's run")
    tokenizer = tokenizer_of(model)
    write = (lambda ids: " ".join(tokenizer.words(ids))) if words else tokenizer.write
    n_done = n_too_long = 0
    results: list[dict[str, Any]] = []
    lines = translate_lines(model, _lines(sys.stdin.buffer), settings, sentences=batch, window=window, are_words=words)
    try:
        for number, found in enumerate(lines, 1):
            if found.is_too_long:
                n_too_long += 1
                longest = model.config.max_len
                say(f"line {number}: {found.n_tokens:,} tokens are more than the {longest:,} that the model reads")
            texts = [{"text": write(each.ids), "score": each.score} for each in found.hypotheses[: n_best or 1]]
            if as_json:
                results.append({"line": number, "translations": texts})
            elif n_best is None:
                print(texts[0]["text"] if texts else "")
            else:
                for each in texts:
                    print(f"{number}\t{each['score']:.6f}\t{each['text']}")
            n_done = number
    except KeyboardInterrupt:
        sys.stdout.flush()
        left = f"the input from line {n_done + 1:,} on is left"
        raise Interrupted(f"interrupted after {n_done:,} lines: {left}") from None
    sys.stdout.flush()
    if n_too_long:
        say(f"{n_too_long:,} of {n_done:,} lines were too long and are empty")
    if as_json:
        emit({"lines": n_done, "too_long": n_too_long, "translations": results}, as_json, str)


def _lines(stream: BinaryIO) -> Iterator[str]:
    for number, data in enumerate(stream, 1):
        try:
            yield data.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(
                f"standard input, line {number}: byte 0x{data[error.start]:02x} is not UTF-8: convert the text first"
            ) from None
