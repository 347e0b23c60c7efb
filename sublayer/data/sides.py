"""What is done to a text before a vocabulary of two languages sees it, and undone in what is translated."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from sublayer.data.moses import Moses
from sublayer.errors import DataError

MosesRule = Literal["none", "tokenize", "normalize"]
_RULES = ("none", "tokenize", "normalize")


@dataclass(frozen=True)
class Side:
    """The rules of one language: ``data.moses`` and its companions."""

    language: str
    moses: MosesRule = "none"
    divides_hyphens: bool = False
    lowers: bool = False

    def words(self, line: str) -> list[str]:
        """Divide a line into words. Raises ConfigError where Moses' rules are asked for and not installed."""
        if self._moses is not None:
            return self._moses.tokens(line)
        return (line.lower() if self.lowers else line).split()

    def text(self, words: Iterable[str]) -> str:
        """Put words together as they are written."""
        return " ".join(words) if self._moses is None else self._moses.join(words)

    def content(self) -> dict[str, Any]:
        """Give all that defines it, as JSON."""
        return asdict(self)

    @classmethod
    def from_content(cls, content: Any) -> "Side":
        """Make what ``content`` gave. Raises DataError where it is damaged."""
        known = {"language": str, "moses": str, "divides_hyphens": bool, "lowers": bool}
        is_whole = isinstance(content, dict) and content.keys() == known.keys()
        if not (is_whole and all(isinstance(content[name], kind) for name, kind in known.items())):
            raise DataError("the rules of a language are damaged")
        if content["moses"] not in _RULES:
            raise DataError(f"the rules of a language have moses = {content['moses']!r}: update the program")
        return cls(**content)

    @cached_property
    def _moses(self) -> Moses | None:
        if self.moses == "none":
            return None
        normalizes = self.moses == "normalize"
        return Moses(self.language, normalizes=normalizes, divides_hyphens=self.divides_hyphens, lowers=self.lowers)
