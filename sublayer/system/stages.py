"""Stages of work and notes: the progress display on standard error.

``stage`` shows work while it lasts, ``note`` prints a permanent line. Both use one display: a live
line of a terminal, lines in a pipe, or the display set by ``shown_by``.
"""

import re
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from sublayer.system.processes import is_first_launched
from sublayer.system.terminal import is_live, lasting_stderr, paragraph

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

Clock = Callable[[], float]
Say = Callable[[str], None]
"""Shows the user a line."""

_FIRST_LINE_S, _NEXT_LINE_S = 1.0, 10.0
"""A stage that ends sooner has no line in a pipe; between two lines."""
_TIMED_AFTER_S = 1.0
"""Seconds after which a terminal shows the duration of a stage."""
_NARROWEST_BAR, _WIDEST_BAR = 10, 30
_ECHO = 3
"""Columns that a line leaves free: a terminal echoes ^C behind it, which must not begin another."""
_NUMBER = re.compile(r"\d+")


def say_nothing(text: str) -> None:
    """Ignore a message."""


def format_seconds(seconds: float) -> str:
    """Format a duration, rounded to seconds, as ``1:02:03`` or ``2:03``; a negative one is 0:00."""
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
    """Return rich's console of a terminal, without markup."""
    from rich.console import Console

    return Console(file=stream, force_terminal=True, emoji=False, markup=False, highlight=False)


def print_wrapped(console: "Console", text: str) -> None:
    """Print a text, its lines wrapped at words to the terminal's width."""
    console.print("\n".join(map(paragraph, text.split("\n"))), soft_wrap=True)


def live_lines(
    console: "Console", draw: Callable[[], "RenderableType"], per_second: float
) -> "Live":
    """Return live lines of a terminal, below printed ones, removed at the end."""
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
    """A stage of work, with its start time."""

    text: str
    begun: float
    is_timed: bool = True
    """True where its text is followed by its duration."""
    fraction: float | None = None
    """Share of it that is done, from 0 to 1; None where that is not known."""
    is_said: bool = False
    """True where its text has been printed, in a pipe."""


class Stages(ABC):
    """Nested stages of this process; the innermost is shown."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._stack: list[TimedStage] = []

    @property
    def is_idle(self) -> bool:
        """True where no stage is open."""
        return not self._stack

    def begin(self, text: str, *, is_timed: bool = True) -> TimedStage:
        """Enter a stage."""
        stage = TimedStage(text, self._clock(), is_timed)
        with self._lock:
            self._stack.append(stage)
            self.show()
        return stage

    def change(self, stage: TimedStage, text: str, fraction: float | None = None) -> None:
        """Replace the text of a stage, shown at the next refresh; cheap."""
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
    """The innermost stage as the last, live line of a terminal."""

    def __init__(
        self, stream: TextIO, clock: Clock = time.monotonic, *, has_thread: bool = True
    ) -> None:
        """Write to a terminal; without a thread only ``show`` draws the line."""
        from rich.spinner import Spinner

        super().__init__(clock)
        self._console = console_of(stream)
        # Not every terminal has Braille dots.
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
        # rich draws under a lock: waiting for another here could deadlock.
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
    """A line per stage of more than a second, and another every ten seconds.

    Of stages that differ only in numbers, such as a run's evaluations, the first has a line.
    """

    def __init__(
        self, write: Say, clock: Clock = time.monotonic, *, has_thread: bool = True
    ) -> None:
        """Print lines by ``write``; without a thread the caller calls ``tick``."""
        super().__init__(clock)
        self._write = write
        self._has_thread = has_thread
        self._over: threading.Event | None = None
        self._last = clock()
        self._said: set[str] = set()
        """Texts that were printed, without their numbers, since nothing was done."""

    def show(self) -> None:
        """Print nothing yet: a short stage has no line."""
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
    """Stages shown by the callback ``hear``, which receives the innermost, "" for none."""

    def __init__(self, hear: Say, note: Say) -> None:
        super().__init__()
        self._hear = hear
        self._note = note

    def show(self) -> None:
        """Report the innermost stage."""
        self._hear(self._stack[-1].text if self._stack else "")

    def note(self, text: str) -> None:
        """Pass a line on."""
        self._note(text)


_replacements: list[Stages] = []
"""Displays that ``shown_by`` has put in place, the newest last."""
_own: tuple[TextIO, Stages] | None = None
"""The display of this process, and the standard error that it was made for."""


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
    """Print a line that stays on standard error."""
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
    """Show stages and notes elsewhere within this context."""
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
