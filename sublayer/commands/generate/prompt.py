"""The prompt of ``sublayer generate``, and the texts where continuations end."""

from pathlib import Path
from typing import TYPE_CHECKING

from sublayer.errors import ConfigError

if TYPE_CHECKING:
    from sublayer.data.tokenizers.base import Tokenizer
    from sublayer.model.transformer import Transformer


def check_texts(prompt: str, stops: list[str]) -> None:
    """Raise ConfigError for an empty prompt or stop."""
    if "" in stops:
        raise ConfigError(
            "--stop is empty, which would end every text at once: give some text, or leave it out"
        )
    if not prompt:
        raise ConfigError("--prompt is empty: give at least one character to continue from")


def tokenizer_of(run: Path, model: "Transformer") -> "Tokenizer":
    """Return a model's tokenizer; raise ConfigError where it has none."""
    if model.tokenizer is None:
        raise ConfigError(
            f"{run} has no tokenizer, so it cannot read a prompt: "
            "import it from a folder that has one"
        )
    tokenizer: Tokenizer = model.tokenizer
    return tokenizer


def check_no_gap(run: Path, kind: str, prompt: str) -> None:
    """Raise ConfigError where a prompt has a gap; ``kind`` says of the model what it is."""
    from sublayer.data.tokenizers.sentinels import split_at_gaps

    _, names = split_at_gaps(prompt.encode("utf-8", "surrogateescape"))
    if names:
        raise ConfigError(
            f"--prompt has the gap {names[0]:.32}, and {run} is {kind}: leave it out, or name a "
            "run of objective.kind = span, with sentinels, to fill it"
        )


def encode_prompt(tokenizer: "Tokenizer", prompt: str) -> list[int]:
    """Encode a prompt; raise ConfigError for what the tokenizer does not know.

    Bytes of the command line that are no UTF-8 are encoded as they are.
    """
    text = prompt.encode("utf-8", "surrogateescape")
    ids: list[int] = tokenizer.encode(text).tolist()
    if tokenizer.unk_id is not None and tokenizer.unk_id in ids:
        unknown = _first_unknown(tokenizer, prompt)
        raise ConfigError(
            f"--prompt has {unknown!r}, which the model's tokenizer does not know: leave it out"
        )
    return ids


def space_behind(tokenizer: "Tokenizer", ids: list[int], prompt: str) -> str:
    """Return the space behind a prompt's last word where the tokenizer takes it for whole.

    Words that end in a mark have a space in it, which a prompt has seldom at its end.
    """
    ends_word = tokenizer.decode(ids[-1:]).endswith(b" ")
    return " " if ends_word and not prompt[-1:].isspace() else ""


def _first_unknown(tokenizer: "Tokenizer", prompt: str) -> str:
    """Return the first character that is unknown by itself, or else the whole prompt."""
    for character in prompt:
        ids = tokenizer.encode(character.encode()).tolist()
        if tokenizer.unk_id in ids:
            return character
    return prompt
