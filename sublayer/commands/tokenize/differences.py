"""What GPT-1's two text rules make different of a text: counted, and printed."""

from pathlib import Path
from typing import Any

from sublayer.commands.shared.base import JsonObject
from sublayer.commands.shared.tokenizers import read_tokenizer
from sublayer.config.texts import Normalization
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.tables import table

_SHOWN = 20
_LONGEST = 40


def count_differences(
    source: Path, normalization: Normalization | None, text: bytes
) -> dict[str, Any]:
    """Count what the two make of a text with the vocabulary of a tokenizer of GPT-1's kind.

    Raises ConfigError where it is of another, or one of the rules is asked for; DataError where
    ftfy or spaCy is missing, or the text is not UTF-8.
    """
    from sublayer.data.gpt1 import differences
    from sublayer.data.gpt1.tokenizer import vocabulary_of

    if normalization is not None:
        raise ConfigError("--differences compares both text rules: leave --normalization out")
    tokenizer = read_tokenizer(source)
    vocabulary = vocabulary_of(tokenizer)
    if vocabulary is None:
        raise ConfigError(
            f"--differences are of a tokenizer of GPT-1's kind, and that of {source} is of kind "
            f"{tokenizer.kind}: name another"
        )
    found = differences.count_differences(vocabulary, text)
    most_frequent = sorted(found.changes.items(), key=lambda item: (-item[1], item[0]))
    return {
        "bytes": len(text),
        "words": found.words,
        "different": found.different,
        "published": vars(found.published),
        "transformers": vars(found.transformers),
        "changes": [
            {"published": list(published), "transformers": list(others), "times": times}
            for (published, others), times in most_frequent
        ],
    }


def render_differences(result: JsonObject) -> str:
    """Format what differs for the terminal."""
    rows = []
    for name in ("published", "transformers"):
        side = result[name]
        counts = (side["tokens"], side["line_ends"], side["unknown"])
        rows.append((name, *(f"{number:,}" for number in counts)))
    n_words = result["words"]
    share = result["different"] / n_words if n_words else 0.0
    lines = [
        table(["text rules", "tokens", "ends of lines", "unknown"], rows, right=[1, 2, 3]),
        f"of {count(n_words, 'word')} that whitespace divides {result['different']:,} differ "
        f"({share:.1%})",
    ]
    changes = result["changes"]
    if changes:
        cells = [
            (f"{change['times']:,}", _shown(change["published"]), _shown(change["transformers"]))
            for change in changes[:_SHOWN]
        ]
        lines.append(table(["times", "published", "transformers"], cells, right=[0]))
    if len(changes) > _SHOWN:
        lines.append(f"... and {len(changes) - _SHOWN:,} more (--json has all)")
    return "\n".join(lines)


def _shown(words: list[str]) -> str:
    text = " ".join(words) if words else "nothing"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
