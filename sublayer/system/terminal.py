"""The terminal: wrapped text, streams that outlast their reader, stages of work and notes.

``stage`` shows work while it lasts, ``note`` prints a permanent line. Both use the same display: a
live line of a terminal, lines in a pipe, or the display set by ``shown_by``.
"""

import errno
import io
import os
import re
import shutil
import sys
import textwrap
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

from sublayer.system.processes import is_first_launched

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

_NARROWEST = 40
_WIDEST = 100
_WIDEST_NAME = 24
"""Length of a name, in characters, beyond which its text begins on the next line."""
_NOTE = "note: "
_NO_BREAK = "\N{NO-BREAK SPACE}"


def terminal_width() -> int:
    """Return the terminal's columns, or 80 without a terminal; at least a readable width."""
    return max(_NARROWEST, shutil.get_terminal_size().columns)


def is_live(stream: TextIO) -> bool:
    """Check whether a stream is a terminal that can redraw lines."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def page_width() -> int:
    """Return the terminal's columns, or 80, within readable limits."""
    return min(terminal_width(), _WIDEST)


def paragraph(text: str, *, indent: str = "") -> str:
    """Wrap a text to the terminal's width, each line after ``indent``."""
    return hanging(text, indent, indent)


def noted(text: str) -> str:
    """Wrap a note, its lines aligned after the word ``note``."""
    return hanging(text, _NOTE, " " * len(_NOTE))


def entries(rows: Sequence[tuple[str, str]], *, indent: str = "  ") -> str:
    """Format names and texts in two columns; texts wrap."""
    widest = min(_WIDEST_NAME, max((len(name) for name, _ in rows), default=0))
    column = indent + " " * (widest + 2)
    return "\n".join(
        f"{indent}{name}\n{hanging(text, column, column)}"
        if len(name) > widest
        else hanging(text, f"{indent}{name:<{widest}}  ", column)
        for name, text in rows
    )


def hanging(text: str, first: str, others: str) -> str:
    """Wrap a text to the terminal, the first line after ``first``, the others after ``others``.

    Words longer than a line, such as paths, are not broken; settings only within their values.
    """
    wrapper = textwrap.TextWrapper(
        page_width(),
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=False,
    )
    wrapped = wrapper.fill(text.replace(" = ", f"{_NO_BREAK}={_NO_BREAK}"))
    return wrapped.replace(_NO_BREAK, " ") or first.rstrip()


def searchable(text: str) -> str:
    """Return a text with ordinary spaces in place of no-break spaces."""
    # No-break spaces serve wrapped pages, but on a terminal they prevent searching and `cut`.
    return text.replace(_NO_BREAK, " ")


class Stream(io.TextIOBase):
    """Stream that discards text once writing has failed; ``failure`` is the error, or None."""

    def __init__(self, stream: TextIO | None, name: str) -> None:
        self.failure: OSError | None = None
        self._stream = stream
        self._name = name

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Encoding of the wrapped stream."""
        encoding = getattr(self._stream, "encoding", None)
        return encoding or "utf-8"

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """Error handler of the wrapped stream."""
        return getattr(self._stream, "errors", None)

    @property
    def is_gone(self) -> bool:
        """Return whether the reader has closed the pipe, as ``head`` does."""
        return self.failure is not None and self.failure.errno == errno.EPIPE

    def write(self, text: str) -> int:
        """Write or discard text; return the number of characters in either case."""
        if not isinstance(text, str):
            raise TypeError(f"the stream takes text, not {type(text).__name__}")
        if self.failure is None:
            try:
                self._behind().write(text)
            except (OSError, ValueError) as error:
                self._fail(error)
        return len(text)

    def flush(self) -> None:
        """Flush the wrapped stream, if it works."""
        if self.failure is None and self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._fail(error)

    def isatty(self) -> bool:
        """Return whether the stream is a working terminal."""
        if self.failure is not None:
            return False
        try:
            return self._behind().isatty()
        except (OSError, ValueError):
            return False

    def fileno(self) -> int:
        """Return the descriptor of the wrapped stream; raise OSError where it has none."""
        try:
            return self._behind().fileno()
        except ValueError as error:
            raise io.UnsupportedOperation(str(error)) from None

    def writable(self) -> bool:
        """Return True: text can be written, even if it is lost."""
        return True

    def require(self) -> None:
        """Raise OutputLost where output was lost."""
        if self.failure is not None:
            raise OutputLost

    @property
    def failed(self) -> str:
        """Description of the stream's failure."""
        failure = self.failure
        assert failure is not None, "the stream has not failed"
        reason = _WHY.get(failure.errno or 0) or failure.strerror
        return f"{self._name} {reason or failure}"

    def _behind(self) -> TextIO:
        if self._stream is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._stream

    def _fail(self, error: OSError | ValueError) -> None:
        if isinstance(error, OSError):
            self.failure = error
        else:  # a stream closed by Python
            self.failure = OSError(errno.EBADF, os.strerror(errno.EBADF))
        # Redirected to the null device: buffered text would fail again at exit.
        with suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._behind().fileno())
            os.close(null)


class OutputLost(Exception):
    """A result could not be printed; the stream has the reason."""


_WHY = {
    errno.EBADF: "is closed",
    errno.ENOSPC: "is full",
    errno.EDQUOT: "is full",
    errno.EPIPE: "has no reader",
}


@contextmanager
def lasting_streams() -> Iterator[tuple[Stream, Stream]]:
    """Replace standard output and error by streams that survive their failure; return both."""
    # A file opened as descriptor 1 or 2, if free, would receive the output of libraries.
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    before = sys.stdin, sys.stdout, sys.stderr
    for stream in before[1:]:
        if isinstance(stream, io.TextIOWrapper):
            # A terminal replaces characters that it lacks; files and pipes are always UTF-8.
            stream.reconfigure(errors="replace")
            if not Stream(stream, "").isatty():
                stream.reconfigure(encoding="utf-8")
    output = Stream(before[1], "standard output")
    error = Stream(before[2], "standard error")
    sys.stdout, sys.stderr = output, error
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115
    try:
        yield output, error
    finally:
        output.flush()
        error.flush()
        sys.stdin, sys.stdout, sys.stderr = before


def lasting_stderr() -> TextIO:
    """Return standard error as a stream that survives its failure."""
    stream = sys.stderr
    lasting = stream if isinstance(stream, Stream) else Stream(stream, "standard error")
    return cast(TextIO, lasting)


Clock = Callable[[], float]
Say = Callable[[str], None]
"""Function that shows the user a line."""

_FIRST_LINE_S, _NEXT_LINE_S = 1.0, 10.0
"""Seconds after which a stage gets its first line in a pipe, and a further line."""
_TIMED_AFTER_S = 1.0
"""Seconds after which a terminal shows the duration of a stage."""
_NARROWEST_BAR, _WIDEST_BAR = 10, 30
_ECHO = 3
"""Columns left free at the end of a line, where a terminal echoes ^C without a line break."""
_NUMBER = re.compile(r"\d+")


def say_nothing(text: str) -> None:
    """Ignore a message."""


def format_seconds(seconds: float) -> str:
    """Format a duration, rounded to seconds, as ``1:02:03`` or ``2:03``; 0:00 if negative."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def start_ticking(tick: Callable[[], None], every_s: float) -> threading.Event:
    """Call ``tick`` every ``every_s`` seconds in another thread, until the event is set."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            tick()

    threading.Thread(target=run, daemon=True).start()
    return over


def console_of(stream: TextIO) -> "Console":
    """Return a rich console of a terminal, without markup."""
    from rich.console import Console

    return Console(file=stream, force_terminal=True, emoji=False, markup=False, highlight=False)


def print_wrapped(console: "Console", text: str) -> None:
    """Print a text, with lines wrapped at words to the terminal's width."""
    console.print("\n".join(map(paragraph, text.split("\n"))), soft_wrap=True)


def live_lines(
    console: "Console", draw: Callable[[], "RenderableType"], per_second: float
) -> "Live":
    """Return live lines of a terminal, kept below printed lines and removed at the end."""
    from rich.live import Live

    return Live(
        get_renderable=draw,
        console=console,
        auto_refresh=per_second > 0,
        refresh_per_second=per_second or 1,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


@dataclass(eq=False)
class TimedStage:
    """Stage of work, with its start time."""

    text: str
    begun: float
    is_timed: bool = True
    """Whether the duration follows the text."""
    fraction: float | None = None
    """Completed share of the stage, from 0 to 1; None if unknown."""
    is_said: bool = False
    """Whether the text has been printed, in a pipe."""


class Stages(ABC):
    """Nested stages of this process, of which the innermost is shown."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._stack: list[TimedStage] = []

    @property
    def is_idle(self) -> bool:
        """Return whether no stage is open."""
        return not self._stack

    def begin(self, text: str, *, is_timed: bool = True) -> TimedStage:
        """Enter a stage."""
        stage = TimedStage(text, self._clock(), is_timed)
        with self._lock:
            self._stack.append(stage)
            self.show()
        return stage

    def change(self, stage: TimedStage, text: str, fraction: float | None = None) -> None:
        """Replace the text of a stage, at low cost; the next refresh shows it."""
        with self._lock:
            stage.text, stage.fraction = text, fraction

    def change_innermost(self, text: str, fraction: float | None = None) -> None:
        """Replace the text of the innermost stage, if any."""
        with self._lock:
            if self._stack:
                self.change(self._stack[-1], text, fraction)

    def end(self, stage: TimedStage) -> None:
        """Leave a stage and all stages within it."""
        with self._lock:
            if stage in self._stack:
                del self._stack[self._stack.index(stage) :]
            self.show()

    @abstractmethod
    def show(self) -> None:
        """Show the innermost stage."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Print a permanent line."""

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hide a live line while other output is written to the terminal."""
        yield


class LiveStages(Stages):
    """Display of the innermost stage as the last, live line of a terminal."""

    def __init__(
        self, stream: TextIO, clock: Clock = time.monotonic, *, has_thread: bool = True
    ) -> None:
        """Draw on a terminal; without a thread, only ``show`` draws the line."""
        from rich.spinner import Spinner

        super().__init__(clock)
        self._console = console_of(stream)
        # Not every terminal can show Braille dots.
        self._spinner = Spinner("dots" if self._console.encoding.startswith("utf") else "line")
        self._per_second = 10 if has_thread else 0
        self._live: Live | None = None

    def show(self) -> None:
        """Draw the innermost stage, or remove the line."""
        with self._lock:
            if not self._stack:
                if self._live is not None:
                    self._live.stop()
                self._live = None
            elif self._live is None:
                self._live = live_lines(self._console, self._draw, self._per_second)
                self._live.start(refresh=True)
            else:
                self._live.refresh()

    def note(self, text: str) -> None:
        """Print a text above the live line."""
        print_wrapped(self._console, text)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Remove the line, then draw it again."""
        with self._lock:
            if self._live is not None:
                self._live.stop()
                self._live = None
            yield
            self.show()

    def _draw(self) -> "RenderableType":
        # rich draws under a lock: waiting for another lock here could deadlock.
        from rich.constrain import Constrain
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        stack = list(self._stack)
        if not stack:
            return ""
        stage = stack[-1]
        lasted = self._clock() - stage.begun
        is_timed = stage.is_timed and lasted >= _TIMED_AFTER_S
        elapsed = f"  {format_seconds(lasted)}" if is_timed else ""
        text = Text(f"{stage.text}{elapsed}", no_wrap=True, overflow="ellipsis")
        cells: list[RenderableType] = [self._spinner, text]
        width = self._console.width - _ECHO
        room = width - text.cell_len - 4
        if stage.fraction is not None and room >= _NARROWEST_BAR:
            cells.append(ProgressBar(1.0, stage.fraction, width=min(room, _WIDEST_BAR)))
        line = Table.grid(padding=(0, 1))
        line.add_column(width=1)
        line.add_row(*cells)
        return Constrain(line, width)


class PlainStages(Stages):
    """Display of lines in a pipe: one per stage of more than a second, and one every ten seconds.

    Of stages that differ only in numbers, such as a run's evaluations, only the first has a line.
    """

    def __init__(
        self, write: Say, clock: Clock = time.monotonic, *, has_thread: bool = True
    ) -> None:
        """Print lines by ``write``; without a thread, the caller must call ``tick``."""
        super().__init__(clock)
        self._write = write
        self._has_thread = has_thread
        self._over: threading.Event | None = None
        self._last = clock()
        self._said: set[str] = set()
        """Texts, without their numbers, printed since the last time without a stage."""

    def show(self) -> None:
        """Print nothing yet, since a short stage has no line."""
        if not self._stack:
            self._said.clear()
            if self._over is not None:
                self._over.set()
            self._over = None
        elif self._over is None and self._has_thread:
            self._over = start_ticking(self.tick, every_s=0.1)

    def tick(self) -> None:
        """Print a line if it is due."""
        with self._lock:
            if not self._stack:
                return
            stage = self._stack[-1]
            now = self._clock()
            lasted = now - stage.begun
            kind = _NUMBER.sub("", stage.text)
            is_new = not stage.is_said and kind not in self._said and stage.is_timed
            if (is_new and lasted >= _FIRST_LINE_S) or now - self._last >= _NEXT_LINE_S:
                elapsed = f" {format_seconds(lasted)}" if stage.is_said and stage.is_timed else ""
                stage.is_said = True
                self._said.add(kind)
                self.note(f"{stage.text}{elapsed}")

    def note(self, text: str) -> None:
        """Print a line."""
        with self._lock:
            self._last = self._clock()
            self._write(text)


class HeardStages(Stages):
    """Display by callbacks: ``hear`` receives the innermost stage's text, "" for no stage."""

    def __init__(self, hear: Say, note: Say) -> None:
        super().__init__()
        self._hear = hear
        self._note = note

    def show(self) -> None:
        """Pass on the innermost stage's text."""
        self._hear(self._stack[-1].text if self._stack else "")

    def note(self, text: str) -> None:
        """Pass on a line."""
        self._note(text)


_replacements: list[Stages] = []
"""Displays set by ``shown_by``, the newest last."""
_own: tuple[TextIO, Stages] | None = None
"""Display of this process, with the standard error for which it was created."""


@contextmanager
def stage(text: str) -> Iterator[None]:
    """Show a stage of work while it lasts."""
    shown = display()
    entered = shown.begin(text)
    try:
        yield
    finally:
        shown.end(entered)


def note(text: str) -> None:
    """Print a permanent line on standard error."""
    display().note(text)


def display() -> Stages:
    """Return the current display of stages and notes."""
    global _own
    if _replacements:
        return _replacements[-1]
    # Library callers and tests may replace the stream.
    if _own is None or (_own[0] is not sys.stderr and _own[1].is_idle):
        _own = sys.stderr, _choose()
    return _own[1]


@contextmanager
def shown_by(stages: Stages) -> Iterator[None]:
    """Show stages and notes by another display within this context."""
    _replacements.append(stages)
    try:
        yield
    finally:
        _replacements.remove(stages)


def _choose() -> Stages:
    if not is_first_launched():
        return HeardStages(say_nothing, print_line)  # only rank 0 prints
    stream = lasting_stderr()
    return LiveStages(stream) if is_live(stream) else PlainStages(print_line)


def print_line(text: str, stream: TextIO | None = None) -> None:
    """Print a line on standard error or another stream; ignore a lost stream."""
    print(text, file=stream or lasting_stderr(), flush=True)
