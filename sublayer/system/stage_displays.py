"""Where stages of work are shown: lines in a pipe, or whoever hears them."""

import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]
Say = Callable[[str], None]
"""Shows the user a line."""

_FIRST_LINE_S = 1.0
"""A stage that ends sooner has no line in a pipe."""
_NEXT_LINE_S = 10.0
"""Between two lines in a pipe."""
_NUMBER = re.compile(r"\d+")


def say_nothing(text: str) -> None:
    """Ignore a message."""


@dataclass(eq=False)
class Stage:
    """Something that is being done, and since when."""

    text: str
    begun: float
    is_timed: bool = True
    """Whether its text is followed by how long it has lasted."""
    fraction: float | None = None
    """How much of it is done, from 0 to 1; None where that is not known."""
    is_said: bool = False
    """Whether its text has been printed, in a pipe."""


class Stages(ABC):
    """The stages that this process is in, one within the other; the innermost is shown.

    While there is one, ``tick`` is called every ``tick_s`` seconds from a thread of its own.
    """

    tick_s = 0.1

    def __init__(self, clock: Clock = time.monotonic, *, has_thread: bool = True) -> None:
        """Show nothing yet; without a thread somebody else calls ``tick``."""
        self._clock = clock
        self._has_thread = has_thread
        self._lock = threading.RLock()
        self._stack: list[Stage] = []
        self._over: threading.Event | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being done."""
        return not self._stack

    def begin(self, text: str, *, is_timed: bool = True) -> Stage:
        """Enter a stage."""
        stage = Stage(text, self._clock(), is_timed)
        with self._lock:
            self._stack.append(stage)
            if self._over is None and self._has_thread:
                self._over = threading.Event()
                threading.Thread(target=self._run, args=(self._over,), daemon=True).start()
            self.show()
        return stage

    def change(self, stage: Stage, text: str, fraction: float | None = None) -> None:
        """Replace the text of a stage, which the next tick shows; cheap."""
        with self._lock:
            stage.text = text
            stage.fraction = fraction

    def change_innermost(self, text: str, fraction: float | None = None) -> None:
        """Replace the text of the innermost stage, if there is one."""
        with self._lock:
            if self._stack:
                self.change(self._stack[-1], text, fraction)

    def end(self, stage: Stage) -> None:
        """Leave a stage, and those within it that are not left."""
        with self._lock:
            if stage in self._stack:
                del self._stack[self._stack.index(stage) :]
            if not self._stack and self._over is not None:
                self._over.set()
                self._over = None
            self.show()

    @abstractmethod
    def show(self) -> None:
        """Show which stage is the innermost now."""

    @abstractmethod
    def tick(self) -> None:
        """Show that it lasts."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Print a line that stays."""

    def _run(self, over: threading.Event) -> None:
        while not over.wait(self.tick_s):
            with self._lock:
                # It may have ended while this thread waited for the lock.
                if not over.is_set():
                    self.tick()


class PlainStages(Stages):
    """A line for each stage that lasts more than a second, and one every ten seconds.

    Of stages that differ by numbers alone, such as the evaluations of a run, the first has a line.
    """

    def __init__(
        self, write: Say, clock: Clock = time.monotonic, *, has_thread: bool = True
    ) -> None:
        """Print lines by ``write``."""
        super().__init__(clock, has_thread=has_thread)
        self._write = write
        self._last = clock()
        self._said: set[str] = set()
        """Texts that were printed, without their numbers, since nothing was done."""

    def show(self) -> None:
        """Print nothing: a short stage has no line."""
        if not self._stack:
            self._said.clear()

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
    """Stages that somebody else shows: ``hear`` is told the innermost, "" where there is none."""

    def __init__(self, hear: Say, note: Say) -> None:
        """Need no thread: whoever hears shows that time passes."""
        super().__init__(has_thread=False)
        self._hear = hear
        self._note = note

    def show(self) -> None:
        """Tell the innermost stage."""
        self._hear(self._stack[-1].text if self._stack else "")

    def tick(self) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Pass a line on."""
        self._note(text)


def format_seconds(seconds: float) -> str:
    """Format a duration, rounded to seconds, as ``1:02:03`` or ``2:03``; a negative one is 0:00."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{rest:02d}"
    return f"{minutes}:{rest:02d}"
