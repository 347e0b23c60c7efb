"""What stands around and between the texts of an example, by the format."""

from dataclasses import dataclass

from sublayer.config.supervised import Format
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import ConfigError

START, DELIMITER, CLASSIFY = "_start_", "_delimiter_", "_classify_"
"""The names of a traversal's marks. Source: Radford et al. 2018, as released."""
TRAVERSAL_NAMES = (START, DELIMITER, CLASSIFY)
"""In the order of their ids, behind all others."""


@dataclass(frozen=True)
class Marks:
    """Ids of marks; None where the format has none of their kind."""

    first: int | None
    """Before the first text."""
    between: int
    """After every text but the last."""
    last: int
    """After the last text."""
    pad: int
    """What rows are filled up with."""

    def n_marks(self, n_texts: int) -> int:
        """Count the marks of a row of so many texts."""
        return n_texts + (self.first is not None)


def find_marks(tokenizer: Tokenizer, format_: Format) -> Marks:
    """Find the ids of a format's marks in a vocabulary. Raises ConfigError where it lacks them."""
    if format_ == "traversal":
        return _traversal_marks(tokenizer)
    end = tokenizer.sep_id
    if format_ == "text":
        end = tokenizer.sep_id if tokenizer.sep_id is not None else tokenizer.end_id
        if end is None:
            raise ConfigError(
                f"the tokenizer, of kind {tokenizer.kind}, has no end of a text, which "
                "objective.format = text needs: start from a model that has one, such as one "
                "that was pre-trained with data.tokenizer = bpe or unigram"
            )
        pad = end if tokenizer.pad_id is None else tokenizer.pad_id
        return Marks(None, end, end, pad)
    missing = []
    if tokenizer.cls_id is None:
        missing.append("[CLS]")
    if end is None:
        missing.append("[SEP]")
    if missing or tokenizer.cls_id is None or end is None:
        raise ConfigError(
            f"the tokenizer, of kind {tokenizer.kind}, has no {', no '.join(missing)}, which "
            "objective.format = pair needs: start from an encoder whose tokenizer has them"
        )
    pad = end if tokenizer.pad_id is None else tokenizer.pad_id
    return Marks(tokenizer.cls_id, end, end, pad)


def has_traversal(tokenizer: Tokenizer) -> bool:
    """Whether a vocabulary has the marks of a traversal."""
    return all(name in tokenizer.added_ids for name in TRAVERSAL_NAMES)


def _traversal_marks(tokenizer: Tokenizer) -> Marks:
    added = tokenizer.added_ids
    if not has_traversal(tokenizer):
        raise ConfigError(
            "the tokenizer has no start, delimiter and end of a traversal, which objective.format "
            "= traversal needs: sublayer finetune adds them and trains them"
        )
    pad = added[CLASSIFY] if tokenizer.pad_id is None else tokenizer.pad_id
    return Marks(added[START], added[DELIMITER], added[CLASSIFY], pad)
