"""The terminal: width, wrapped text, and streams that outlast their reader."""

import errno
import io
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO, cast

_NARROWEST = 40
_WIDEST = 100
_WIDEST_NAME = 24
"""Characters of a name, beyond which its text begins on the next line."""
_NOTE = "note: "
_NO_BREAK = "\N{NO-BREAK SPACE}"


def terminal_width() -> int:
    """Return the terminal's columns, or 80 without one; at least a readable width."""
    return max(_NARROWEST, shutil.get_terminal_size().columns)


def is_live(stream: TextIO) -> bool:
    """Check whether a stream is a terminal that can redraw lines."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def page_width() -> int:
    """Return the terminal's columns, or 80, within readable limits."""
    return min(terminal_width(), _WIDEST)


def paragraph(text: str, *, indent: str = "") -> str:
    """Wrap a text to the terminal; every line begins with ``indent``."""
    return hanging(text, indent, indent)


def noted(text: str) -> str:
    """Wrap a note, its lines aligned behind the word ``note``."""
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
    """Wrap a text to the terminal, its first line behind ``first``, the others behind ``others``.

    Words longer than a line, such as paths, are not broken, settings only within their value.
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
    """Return a text with ordinary spaces for no-break ones."""
    # No-break spaces serve wrapped pages; on a terminal they defeat searching and cutting.
    return text.replace(_NO_BREAK, " ")


class Stream(io.TextIOBase):
    """Writes to a stream until it fails, then discards; ``failure`` is the error, or None."""

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
        """True where the reader has left, as ``head`` does."""
        return self.failure is not None and self.failure.errno == errno.EPIPE

    def write(self, text: str) -> int:
        """Write text, or lose it; return the number of characters in either case."""
        if not isinstance(text, str):
            raise TypeError(f"text is written here, not {type(text).__name__}")
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
        """Return whether this is a terminal that works."""
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
        """The failure of the stream, in words."""
        failure = self.failure
        assert failure is not None, "nothing is wrong with it"
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
        # Redirected to nowhere: text that the stream still buffers would fail again at exit.
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
    errno.EPIPE: "is read by nobody",
}


@contextmanager
def lasting_streams() -> Iterator[tuple[Stream, Stream]]:
    """Replace standard output and error by streams that outlast their failure; return both."""
    # An opened file takes the lowest free descriptor, and would get libraries' output to 1 or 2.
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    before = sys.stdin, sys.stdout, sys.stderr
    for stream in before[1:]:
        if isinstance(stream, io.TextIOWrapper):
            # A terminal replaces characters that it lacks; files and pipes are UTF-8 everywhere.
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
    """Return standard error as a stream that outlasts its failure."""
    stream = sys.stderr
    lasting = stream if isinstance(stream, Stream) else Stream(stream, "standard error")
    return cast(TextIO, lasting)
