"""A status line: the last line of a terminal, which moves as long as something is done."""

import os
import shutil
import time
import unicodedata
from typing import TextIO

from sublayer.system.stage_displays import Clock, Stages, format_seconds

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_FRAMES = "|/-\\"
_SHOWN_AFTER_S = 1.0
"""How long a stage has lasted is shown from then on."""
_NARROWEST_BAR, _WIDEST_BAR = 10, 30
_CLEAR = "\r\x1b[K"


class StatusLine(Stages):
    """The last line of a terminal, which moves as long as something is done."""

    def __init__(
        self, stream: TextIO, clock: Clock = time.monotonic, *, has_thread: bool = True
    ) -> None:
        """Write to a stream that is a terminal."""
        super().__init__(clock, has_thread=has_thread)
        self._stream = stream
        self._frames = _FRAMES if _has_braille(stream) else _ASCII_FRAMES
        self._n_ticks = 0
        self._is_drawn = False

    def show(self) -> None:
        """Draw the innermost stage, or take the line away."""
        with self._lock:
            if self._stack:
                self._draw()
            elif self._is_drawn:
                self._is_drawn = False
                self._write(_CLEAR)

    def tick(self) -> None:
        """Draw the line with what has changed."""
        with self._lock:
            self._n_ticks += 1
            self.show()

    def note(self, text: str) -> None:
        """Print a line above the status line."""
        with self._lock:
            clear = _CLEAR if self._is_drawn else ""
            self._is_drawn = False
            self._write(f"{clear}{text}\n")
            self.show()

    def _draw(self) -> None:
        stage = self._stack[-1]
        lasted = self._clock() - stage.begun
        frame = self._frames[self._n_ticks % len(self._frames)]
        text = stage.text
        if stage.is_timed and lasted >= _SHOWN_AFTER_S:
            text = f"{text}  {format_seconds(lasted)}"
        # The last column is left free: some terminals wrap at it.
        width = _columns(self._stream) - len(frame) - 2
        line = cut(text, width)
        if stage.fraction is not None:
            strokes = "━─" if self._frames == _FRAMES else "=-"
            line += _bar(stage.fraction, width - columns_of(line) - 2, strokes)
        self._is_drawn = True
        self._write(f"{_CLEAR}{frame} {line}")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def cut(text: str, width: int) -> str:
    """Cut a text to so many columns of a terminal, of which wide characters take two."""
    used = 0
    for position, character in enumerate(text):
        used += columns_of(character)
        if used > width:
            return text[:position]
    return text


def columns_of(text: str) -> int:
    """Count the columns of a terminal that a text takes."""
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)


def _bar(fraction: float, width: int, strokes: str) -> str:
    """Draw how much is done, after two blanks; nothing where there is no room for it."""
    if width < _NARROWEST_BAR:
        return ""
    n_cells = min(width, _WIDEST_BAR)
    n_done = round(min(1.0, max(0.0, fraction)) * n_cells)
    return f"  {strokes[0] * n_done}{strokes[1] * (n_cells - n_done)}"


def _columns(stream: TextIO) -> int:
    if "COLUMNS" in os.environ:
        return shutil.get_terminal_size().columns
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def _has_braille(stream: TextIO) -> bool:
    try:
        _FRAMES.encode(stream.encoding or "utf-8")
    except (LookupError, UnicodeEncodeError):
        return False
    return True
