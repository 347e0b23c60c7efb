"""The expected size of a vocabulary, before any text is read."""

from dataclasses import dataclass
from pathlib import Path

from sublayer.config.recipe import Recipe
from sublayer.config.text.tokenizers import GPT1
from sublayer.data.tokenizers.named import DEFAULT_MERGES, DEFAULT_SIZES, load_tokenizer
from sublayer.errors import ConfigError

_BYTES = 256
_BESIDE_MERGES = {GPT1: 478}
"""Ids of GPT-1's vocabulary as released, 40,478, that are none of its 40,000 merges."""
_BESIDE_OTHER_MERGES = 128
"""The same of Macaron BERT's dictionary as released, which has 32,768, and 32,640 merges."""


@dataclass(frozen=True)
class Vocabulary:
    """The size that a tokenizer has or will probably have."""

    size: int
    note: str = ""
    """What was assumed, in words; empty where nothing was."""


def expected_vocabulary(recipe: Recipe) -> Vocabulary:
    """Return the size of a recipe's vocabulary; untrained, it counts as ``data.vocab_size``.

    Raises ConfigError where ``init.run`` has no tokenizer, DataError for a file that is none.
    """
    if recipe.init.run is not None:
        path = _tokenizer_of(Path(recipe.init.run))
        return Vocabulary(load_tokenizer(path).vocab_size)
    data = recipe.data
    if data.tokenizer == "bytes":
        return Vocabulary(_BYTES)
    if data.merges is not None:
        return _of_merges(data.merges, data.tokenizer)
    if data.tokenizer in DEFAULT_SIZES:
        return Vocabulary(data.vocab_size or DEFAULT_SIZES[data.tokenizer])
    if data.tokenizer in DEFAULT_MERGES:
        n_merges = DEFAULT_MERGES[data.tokenizer]
        return (
            Vocabulary(data.vocab_size) if data.vocab_size else _of_merges(n_merges, data.tokenizer)
        )
    if data.tokenizer != "characters":  # the path of a file
        path = Path(data.tokenizer)
        tokenizer = load_tokenizer(path, sentinels=data.sentinels, special_tokens="file")
        return Vocabulary(tokenizer.vocab_size)
    if data.vocab_size is not None:
        return Vocabulary(data.vocab_size)
    size = recipe.model.vocab_size or _BYTES
    return Vocabulary(size, f"how many characters the text has is not known: counted as {size}")


def _of_merges(n_merges: int, tokenizer: str) -> Vocabulary:
    size = n_merges + _BESIDE_MERGES.get(tokenizer, _BESIDE_OTHER_MERGES)
    note = f"how many characters the text has is not known: {n_merges} merges are counted as {size}"
    return Vocabulary(size, note)


def _tokenizer_of(run: Path) -> Path:
    checkpoints = sorted((run / "checkpoints").glob("step-*/model"), reverse=True)
    for folder in (run / "model", *checkpoints, run):
        path = folder / "tokenizer.json"
        if path.is_file():
            return path
    raise ConfigError(
        f"init.run = {run} has no tokenizer.json: name a run, a checkpoint or an imported folder"
    )
