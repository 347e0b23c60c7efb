"""The tokenizer that a command line names."""

from pathlib import Path
from typing import TYPE_CHECKING

from sublayer.config.texts import Normalization
from sublayer.errors import CheckpointError

if TYPE_CHECKING:
    from sublayer.data.tokenizers.base import Tokenizer


def read_tokenizer(source: Path, normalization: Normalization | None = None) -> "Tokenizer":
    """Read the tokenizer of a run, of a model's folder, or of a file or folder of its own.

    ``normalization`` replaces the text rules of one of GPT-1's kind. Raises CheckpointError where
    there is none, DataError where it cannot be read, ConfigError where it has no such rules.
    """
    from sublayer.data.tokenizers.named import has_tokenizer, load_tokenizer

    if source.is_file() or has_tokenizer(source):
        return load_tokenizer(source, normalization=normalization, special_tokens="file")

    from sublayer.loading import find_model

    file = find_model(source) / "tokenizer.json"
    if not file.is_file():
        raise CheckpointError(f"{source} has no tokenizer.json")
    return load_tokenizer(file, normalization=normalization)
