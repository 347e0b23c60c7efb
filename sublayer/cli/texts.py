"""Commands of texts: generate, fill, translate, tokenize."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from sublayer.api import tokenizing, writing
from sublayer.cli.build import CommandResult, Json, client_of, print_result, write_result
from sublayer.errors import DataError, Interrupted
from sublayer.numbers import count, enumerate_names
from sublayer.system.terminal import note

if TYPE_CHECKING:
    from sublayer.decode.gaps import Completion

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
        from sublayer.files.lines import decoded

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
