"""Lines of ``sublayer translate``: read from a stream, and printed or held as they are done."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

from sublayer.commands.shared.base import say, write_result
from sublayer.counts import count
from sublayer.errors import DataError, Interrupted

if TYPE_CHECKING:
    from sublayer.decode.translate import Translation


@dataclass
class TranslationOutput:
    """Prints translations as they come, or holds them, and counts what a user should know of."""

    write: Callable[[Any], str]
    """Writes the ids of a translation as text."""
    n_best: int | None
    """Hypotheses of each line that are printed with their scores; None: the best, as text alone."""
    longest: int
    is_held: bool
    """Whether translations are kept for ``result``, and not printed."""
    held: list[dict[str, Any]] = field(default_factory=list)
    n_done: int = 0
    """Lines that were printed or held."""
    n_tokens: int = 0
    """Of the input."""
    n_too_long: int = 0
    """Lines that were not translated, and stay empty."""
    n_unknown: int = 0
    """Tokens of the input that the vocabulary does not have."""

    def add_all(self, translations: Iterable["Translation"]) -> bool:
        """Print or hold all of them; return whether an interruption ended that."""
        try:
            for translation in translations:
                self.add(translation)
        except KeyboardInterrupt:
            return True
        return False

    def add(self, translation: "Translation") -> None:
        """Print or hold the next line's translation."""
        number = self.n_done + 1
        if translation.is_too_long:
            self.n_too_long += 1
            say(
                f"line {number} has {count(translation.n_tokens, 'token')}, more than the "
                f"{self.longest:,} that the model reads"
            )
        self.n_tokens += translation.n_tokens
        self.n_unknown += translation.n_unknown
        hypotheses = translation.hypotheses[: self.n_best or 1]
        texts = [(self.write(each.ids), each.score) for each in hypotheses]
        if self.is_held:
            self._hold(number, texts)
        else:
            self._print(number, texts)
        self.n_done = number

    def _hold(self, number: int, texts: Sequence[tuple[str, float]]) -> None:
        translations = [{"text": text, "score": score} for text, score in texts]
        self.held.append({"line": number, "translations": translations})

    def _print(self, number: int, texts: Sequence[tuple[str, float]]) -> None:
        if self.n_best is not None:
            for text, score in texts:
                write_result(f"{number}\t{score:.6f}\t{text}\n")
            return
        best = texts[0][0] if texts else ""
        write_result(f"{best}\n")

    def say_counts(self) -> None:
        """Report on standard error what was left out, and what is unknown to the vocabulary."""
        if self.n_too_long:
            say(f"too long, and empty: {self.n_too_long:,} of {count(self.n_done, 'line')}")
        if self.n_unknown:
            say(
                f"unknown to the vocabulary: {self.n_unknown:,} of the input's "
                f"{count(self.n_tokens, 'token')}"
            )

    def interruption(self) -> Interrupted:
        """Return the error that says where an interruption ended the output."""
        left = f"the input from line {self.n_done + 1:,} on is left"
        return Interrupted(f"interrupted after {count(self.n_done, 'line')}: {left}")

    def result(self) -> dict[str, Any]:
        """Return the translations that were held, and the counts."""
        counts = {
            "lines": self.n_done,
            "too_long": self.n_too_long,
            "unknown_tokens": self.n_unknown,
        }
        return {**counts, "translations": self.held}


class LineInput:
    """Lines of a stream up to the first that is not UTF-8, which becomes ``error``."""

    def __init__(self, stream: BinaryIO) -> None:
        self.error: DataError | None = None
        self._stream = stream

    def __iter__(self) -> Iterator[str]:
        from sublayer.files.lines import decoded

        for number, data in enumerate(self._stream, 1):
            try:
                text = decoded("standard input", number, data)
            except DataError as error:
                self.error = DataError(
                    f"{error}; translated before it: {count(number - 1, 'line')}"
                )
                return
            yield text.rstrip("\r\n")
