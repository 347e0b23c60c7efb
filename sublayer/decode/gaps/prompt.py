"""A text with gaps, as an encoder reads it."""

from dataclasses import dataclass

from sublayer.counts import count
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.sentinels import sentinel_name, split_at_gaps
from sublayer.errors import ConfigError

_BEFORE = ("\U000f0000".encode(), b".", b"0")
"""Characters that few pieces hold together with the text behind them; the first is unknown."""
_SHOWN = 32
"""Characters of a sentinel's name that an error shows."""


@dataclass(frozen=True)
class Prompt:
    """The texts around gaps, one more than there are gaps, and their ids."""

    texts: list[str]
    ids: list[list[int]]
    sentinels: tuple[int, ...]
    """What stands for each gap; none where the one gap is all that follows the text."""

    @property
    def source(self) -> list[int]:
        """Return what an encoder reads, without its end."""
        source = list(self.ids[0])
        for sentinel, ids in zip(self.sentinels, self.ids[1:], strict=False):
            source.append(sentinel)
            source += ids
        return source

    @property
    def begins_with_gap(self) -> bool:
        """Return whether an encoder reads a sentinel first."""
        return bool(self.sentinels) and not self.ids[0]


def prompt_with_gaps(tokenizer: Tokenizer, text: str) -> Prompt:
    """Read a text in which ``<extra_id_0>``, ``<extra_id_1>`` ... stand for its gaps.

    Text is encoded as it was in training, where gaps were cut out of ids: a space before a gap was
    part of what was cut out, and is not read; text that follows a gap without whitespace begins no
    word, as it has no piece for the space that a tokenizer puts before a text.

    Raises ConfigError where the gaps are not numbered in their order from 0, or there is none, or
    the tokenizer has fewer sentinels; DataError as the tokenizer does.
    """
    parts, names = split_at_gaps(text.encode("utf-8", "surrogateescape"))
    _check_gaps(names, len(tokenizer.sentinel_ids))
    ids = [encode_before_gap(tokenizer, parts[0])]
    ids += [_encode_behind_gap(tokenizer, part.rstrip(b" ")) for part in parts[1:-1]]
    ids.append(_encode_behind_gap(tokenizer, parts[-1]))
    texts = [part.decode("utf-8", "surrogateescape") for part in parts]
    return Prompt(texts, ids, tokenizer.sentinel_ids[: len(names)])


def prompt_to_go_on(tokenizer: Tokenizer, text: str) -> Prompt:
    """Read a text whose one gap is all that follows it. Raises DataError as the tokenizer does."""
    ids = encode_before_gap(tokenizer, text.encode("utf-8", "surrogateescape"))
    return Prompt([text, ""], [ids, []], ())


def _check_gaps(names: list[str], n_sentinels: int) -> None:
    if not names:
        raise ConfigError(
            "the prompt has no gap, and the model fills gaps: write <extra_id_0> where text is "
            "missing"
        )
    for number, name in enumerate(names):
        if name != sentinel_name(number):
            raise ConfigError(
                f"the prompt's gap {number + 1} is {name:.{_SHOWN}}: number gaps in their order, "
                f"this one {sentinel_name(number)}"
            )
    if len(names) > n_sentinels:
        raise ConfigError(
            f"the prompt has {count(len(names), 'gap')}, and the model's tokenizer has "
            f"{count(n_sentinels, 'sentinel')}: leave out gaps"
        )


def encode_before_gap(tokenizer: Tokenizer, part: bytes) -> list[int]:
    """Encode the text before a gap, without the spaces that end it."""
    ids: list[int] = tokenizer.encode(part.rstrip(b" ")).tolist()
    return ids


def _encode_behind_gap(tokenizer: Tokenizer, part: bytes) -> list[int]:
    """Encode text that follows a gap: where no space does, behind a character that is cut off."""
    ids: list[int] = tokenizer.encode(part).tolist()
    if not part or part[:1].isspace():
        return ids
    first = part.decode("utf-8", "surrogateescape")[0].encode("utf-8", "surrogateescape")
    for character in _BEFORE:
        before = tokenizer.encode(character).tolist()
        if tokenizer.unk_id in before and tokenizer.unk_id in tokenizer.encode(first):
            continue  # both would be one unknown
        both: list[int] = tokenizer.encode(character + part).tolist()
        if before and both[: len(before)] == before and len(both) > len(before):
            return both[len(before) :]
    return ids[1:] if len(ids) > 1 and _is_space(tokenizer, ids[0]) else ids


def _is_space(tokenizer: Tokenizer, id_: int) -> bool:
    return id_ not in tokenizer.special_ids and not tokenizer.decode([id_]).strip()
