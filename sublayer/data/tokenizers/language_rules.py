"""Language-specific processing before encoding, undone after decoding."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from sublayer.data.tokenizers.moses import Moses
from sublayer.errors import DataError

MosesRule = Literal["none", "tokenize", "normalize"]
_RULES = ("none", "tokenize", "normalize")


@dataclass(frozen=True)
class LanguageRules:
    """The rules of one language: ``data.moses`` and its companions."""

    language: str
    """Its code, such as ``de``: Moses' rules differ by language."""
    moses: MosesRule = "none"
    """``none``: words stand between spaces. ``tokenize``: Moses' tokenizer divides them;
    ``normalize``: after punctuation was made plain and what cannot be printed dropped."""
    divides_hyphens: bool = False
    """Whether Moses' tokenizer takes ``a-b`` apart; without it of no effect."""
    lowers: bool = False
    """Whether text becomes lower case; no rule undoes that."""
    escapes: bool = False
    """Whether Moses' tokenizer writes ``&amp;`` for ``&``; without it of no effect."""

    def words(self, line: str) -> list[str]:
        """Split a line into words; raise ConfigError where Moses' rules are not installed."""
        if self._moses is not None:
            return self._moses.tokens(line)
        if self.lowers:
            line = line.lower()
        return line.split()

    def text(self, words: Iterable[str]) -> str:
        """Detokenize: join words as they are written, or by spaces where no rule divided them.

        Raises ConfigError as ``words`` does.
        """
        if self._moses is None:
            return " ".join(words)
        return self._moses.join(words)

    def content(self) -> dict[str, Any]:
        """Return all that defines it, as JSON: ``escapes`` where it is so, as it came later."""
        content = asdict(self)
        if not self.escapes:
            del content["escapes"]
        return content

    @classmethod
    def from_content(cls, content: Any) -> "LanguageRules":
        """Build from ``content``; raise DataError where it is damaged."""
        known = {"language": str, "moses": str, "divides_hyphens": bool, "lowers": bool}
        if not isinstance(content, dict) or content.keys() - {"escapes"} != known.keys():
            raise DataError("the rules of a language are damaged")
        for name, value in content.items():
            if not isinstance(value, known.get(name, bool)):
                raise DataError("the rules of a language are damaged")
        if content["moses"] not in _RULES:
            raise DataError(
                f"the rules of a language have moses = {content['moses']!r}: update the program"
            )
        return cls(**content)

    @cached_property
    def _moses(self) -> Moses | None:
        if self.moses == "none":
            return None
        normalizes = self.moses == "normalize"
        return Moses(
            self.language,
            normalizes=normalizes,
            divides_hyphens=self.divides_hyphens,
            escapes=self.escapes,
            lowers=self.lowers,
        )
