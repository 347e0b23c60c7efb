"""``sublayer translate``: translate what comes on standard input, line by line."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sublayer.commands.shared.base import (
    AverageOption,
    DeviceOption,
    JsonOption,
    RunArgument,
    emit,
)
from sublayer.commands.shared.beam_options import (
    BeamOption,
    MaxLengthOffsetOption,
    MaxLengthRatioOption,
    PenaltyOption,
    RuleOption,
    beam_options,
)
from sublayer.commands.shared.text_options import recipe_of
from sublayer.commands.translate.lines import LineInput, TranslationOutput
from sublayer.config.limits import MOST_ROWS, WIDEST_BEAM
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.system.stages import display, stage

if TYPE_CHECKING:
    from sublayer.model.encoder_decoder import EncoderDecoder

EXAMPLE = "sublayer translate runs/multi30k-tiny < captions.en > captions.de"

NBestOption = Annotated[
    int | None,
    typer.Option(
        "--n-best",
        min=1,
        max=WIDEST_BEAM,
        help="Print so many translations of each line: its number, score and text.",
    ),
]
WordsOption = Annotated[
    bool,
    typer.Option(
        "--words", help="Read and print words that spaces divide, as the vocabulary has them."
    ),
]
LinesOption = Annotated[
    int,
    typer.Option(
        "--batch",
        min=1,
        max=MOST_ROWS,
        help="Lines translated at a time; affects speed and memory only.",
    ),
]
WindowOption = Annotated[
    int,
    typer.Option(
        "--window",
        min=1,
        max=MOST_ROWS,
        help="Lines read before the first is printed, sorted by length.",
    ),
]


def command(
    run: RunArgument,
    beam: BeamOption = None,
    rule: RuleOption = None,
    penalty: PenaltyOption = None,
    max_length_ratio: MaxLengthRatioOption = None,
    max_length_offset: MaxLengthOffsetOption = None,
    n_best: NBestOption = None,
    words: WordsOption = False,
    average: AverageOption = None,
    batch: LinesOption = 32,
    window: WindowOption = 2048,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Translate each line of standard input to a line of standard output, in order.

    An empty line stays one. A line that is longer than the model reads becomes an empty line, and
    is said on standard error; nothing is cut. With --json one object holds all of it. Ctrl-C ends
    after the last line that was printed, and says which.
    """
    given = beam_options(beam, rule, penalty, max_length_ratio, max_length_offset)
    computation = Computation(n_best, words, average, batch, window, device)
    translate_all(run, LineInput(sys.stdin.buffer), given, computation, as_json=as_json)


@dataclass(frozen=True)
class Computation:
    """How many translations of a line, in what form, and where and how they are computed."""

    n_best: int | None
    words: bool
    average: int | None
    batch: int
    window: int
    device: str | None


def translate_all(
    run: Path,
    lines: Iterable[str],
    given: dict[str, Any],
    computation: Computation,
    *,
    as_json: bool,
) -> None:
    """Translate lines and print the translations, or emit all of them as one object.

    ``given`` are the options of the search. Raises Interrupted and DataError after what was done.
    """
    with stage("starting PyTorch"):
        from sublayer.objective.translation.family import beam_settings

    settings = beam_settings(recipe_of(run), given)
    _check_n_best(computation.n_best, settings.beam)

    from sublayer.decode.translate import translate_lines
    from sublayer.system.allocator import keep_freed_memory

    keep_freed_memory()
    model = _load_translator(run, computation.device, computation.average)
    output = _output(model, computation.words, computation.n_best, is_held=as_json)

    def show(n_done: int) -> None:
        display().change_innermost(f"translated {count(output.n_done + n_done, 'line')}")

    translations = translate_lines(
        model,
        lines,
        settings,
        sentences=computation.batch,
        window=computation.window,
        are_words=computation.words,
        progress=show,
    )
    is_interrupted = output.add_all(translations)
    output.say_counts()
    if as_json:
        emit(output.result(), as_json, str)
    if is_interrupted:
        raise output.interruption()
    if isinstance(lines, LineInput) and lines.error is not None:
        raise lines.error


def _check_n_best(n_best: int | None, beam: int) -> None:
    """Raise ConfigError where more translations are asked for than the search keeps."""
    if n_best is not None and n_best > beam:
        raise ConfigError(
            f"--n-best {n_best} is more than the {beam} hypotheses of --beam: give a wider beam"
        )


def _load_translator(run: Path, device: str | None, average: int | None) -> "EncoderDecoder":
    """Load a model; raise ConfigError where it is not a translator."""
    from sublayer.loading import load
    from sublayer.model.encoder_decoder import EncoderDecoder
    from sublayer.system.machine import choose_device

    model = load(run, device=choose_device(device), average=average)
    if not isinstance(model, EncoderDecoder):
        raise ConfigError(
            f"{run} is a {model.config.kind}, which translates nothing: name a translator's run"
        )
    return model


def _output(
    model: "EncoderDecoder", words: bool, n_best: int | None, *, is_held: bool
) -> TranslationOutput:
    from sublayer.decode.translate import tokenizer_of

    tokenizer = tokenizer_of(model)

    def write(ids: Any) -> str:
        return " ".join(tokenizer.words(ids)) if words else tokenizer.write(ids)

    assert model.config.max_len is not None, "a saved config is resolved"
    return TranslationOutput(write, n_best, model.config.max_len, is_held=is_held)
