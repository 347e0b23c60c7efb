"""How large a vocabulary will be, before any text is read."""

from dataclasses import dataclass
from pathlib import Path

from sublayer.config.recipe import Recipe
from sublayer.data.tokenizer import DEFAULT_BPE_SIZE, load_tokenizer
from sublayer.errors import ConfigError

_BYTES = 256


@dataclass(frozen=True)
class Vocabulary:
    """The size that a tokenizer has or will probably have; ``note`` says what was assumed."""

    size: int
    note: str = ""


def expected_vocabulary(recipe: Recipe) -> Vocabulary:
    """Give the vocabulary of a recipe's tokenizer; one that is yet to be trained counts as ``data.vocab_size``.

    Raises ConfigError where ``init.run`` has no tokenizer, DataError for a file that is none.
    """
    if recipe.init.run is not None:
        return Vocabulary(load_tokenizer(_tokenizer_of(Path(recipe.init.run))).vocab_size)
    data = recipe.data
    if data.tokenizer == "bytes":
        return Vocabulary(_BYTES)
    if data.tokenizer == "bpe":
        return Vocabulary(data.vocab_size or DEFAULT_BPE_SIZE)
    if data.tokenizer != "characters":
        return Vocabulary(load_tokenizer(Path(data.tokenizer)).vocab_size)
    if data.vocab_size is not None:
        return Vocabulary(data.vocab_size)
    size = recipe.model.vocab_size or _BYTES
    return Vocabulary(size, f"how many characters the text has is not known: counted as {size}")


def _tokenizer_of(run: Path) -> Path:
    checkpoints = sorted((run / "checkpoints").glob("step-*/model"), reverse=True)
    for folder in (run / "model", *checkpoints, run):
        if (folder / "tokenizer.json").is_file():
            return folder / "tokenizer.json"
    raise ConfigError(f"init.run = {run} has no tokenizer.json: name a run, a checkpoint or an imported folder")
