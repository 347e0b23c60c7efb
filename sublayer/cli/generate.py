"""``sublayer generate``: continue a prompt, or fill the gaps of a text."""

import sys
from typing import TYPE_CHECKING, Any

from sublayer.api.writing import Completions, Texts, generate
from sublayer.cli.build import Json, client_of, print_result, write_result
from sublayer.counts import count
from sublayer.system.stages import note

if TYPE_CHECKING:
    from sublayer.decode.gaps import Completion

EXAMPLE = 'sublayer generate runs/book --prompt "The " --tokens 200 --temperature 0.8'

_UNDERLINED, _PLAIN = "\x1b[4m", "\x1b[24m"


@client_of(generate)
def command(options: dict[str, Any], as_json: Json = False) -> None:
    """Continue a prompt. One continuation appears as it is made; several, each after a line,
    when all are done.

    An encoder-decoder that was trained on gaps fills those of the text, which <extra_id_0>,
    <extra_id_1> ... stand for: greedy, by a beam, or drawn.
    """
    is_single = options["n"] == 1 and not as_json
    written = generate(**options, show=write_result if is_single else None)
    if as_json:
        print_result(written, as_json)
    elif isinstance(written, Completions):
        _print_completions(written, is_single=is_single)
    elif is_single:
        write_result("\n")
        note(_speed(written.n_tokens, written.seconds))
    else:
        write_result(_listed(written))  # as it is, to the last no-break space


def _listed(written: Texts) -> str:
    texts = enumerate(written.texts, start=1)
    return "".join(f"--- {number}\n{written.prompt}{text}\n" for number, text in texts)


def _print_completions(written: Completions, *, is_single: bool) -> None:
    """Print all completions that were drawn, or the best that was searched for."""
    if is_single:
        best = written.completions[0]
        write_result(f"{_underlined(best)}\n")
        _say_unplaced(best)
        note(_speed(best.n_tokens, written.seconds))
        return
    for number, completion in enumerate(written.completions, start=1):
        write_result(f"--- {number}\n{_underlined(completion)}\n")
        _say_unplaced(completion)


def _speed(n_tokens: int, seconds: float) -> str:
    return f"{count(n_tokens, 'token')}, {n_tokens / seconds:,.0f} a second"


def _say_unplaced(completion: "Completion") -> None:
    if completion.unplaced:
        note(f"written for no gap, and left out: {completion.unplaced!r}")


def _underlined(completion: "Completion") -> str:
    """Return the text, on a terminal with what fills its gaps underlined."""
    if not sys.stdout.isatty():
        return completion.text
    shown = ""
    end = 0
    for gap in completion.gaps:
        shown += completion.text[end : gap.place.start]
        if gap.text:
            shown += f"{_UNDERLINED}{gap.text}{_PLAIN}"
        end = gap.place.stop
    return shown + completion.text[end:]
