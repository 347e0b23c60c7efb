"""What a probe asks of a model: how likely a text is behind another one."""

from collections.abc import Sequence
from dataclasses import dataclass

from sublayer.data.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class Query:
    """Two texts, of which the second is scored, given the first."""

    prompt: str
    """Empty: nothing stands before."""
    text: str
    """With the space that it begins with, if any."""


@dataclass(frozen=True)
class EncodedQuery:
    """A query as tokens."""

    prompt: tuple[int, ...]
    """At least one token, which nothing predicts."""
    text: tuple[int, ...]
    """Those that are scored."""
    is_cut: bool = False
    """Whether the context holds less than all of both."""


def encode_queries(
    queries: Sequence[Query], tokenizer: Tokenizer, context: int
) -> list[EncodedQuery]:
    """Encode queries, each as one text, so that tokens are those of the text as a whole.

    What is scored begins with the first token that the prompt alone does not begin with. Where
    nothing stands before, that is the end of a document, which training has seen before each; where
    a tokenizer has none, the first token of the text, which is then not scored. A prompt loses its
    beginning where ``context`` tokens do not hold it beside the longest text that follows it, and
    so is the same for all of them; a text that is longer alone loses its end.
    """
    prompts = [query.prompt.encode() for query in queries]
    wholes = [f"{query.prompt}{query.text}".encode() for query in queries]
    encoded_prompts = _encode_each(tokenizer, prompts)
    encoded_wholes = _encode_wholes(tokenizer, prompts, wholes)
    divided = [
        _divided(prompt, whole, tokenizer.end_id)
        for prompt, whole in zip(encoded_prompts, encoded_wholes, strict=True)
    ]
    longest: dict[str, int] = {}
    for query, (_, text) in zip(queries, divided, strict=True):
        longest[query.prompt] = max(longest.get(query.prompt, 0), len(text))
    encoded = []
    for query, (prompt, text) in zip(queries, divided, strict=True):
        # The last token of a text is predicted, and not read.
        room = max(1, context + 1 - longest[query.prompt])
        kept_text = text[:context]
        kept_prompt = prompt[-room:]
        is_cut = len(kept_text) < len(text) or len(kept_prompt) < len(prompt)
        encoded.append(EncodedQuery(tuple(kept_prompt), tuple(kept_text), is_cut))
    return encoded


def _encode_wholes(
    tokenizer: Tokenizer, prompts: Sequence[bytes], wholes: Sequence[bytes]
) -> list[list[int]]:
    """Encode texts as wholes; what stands before a place where a cut changes no id only once."""
    cuts = [
        tokenizer.cut(whole, len(prompt)) for prompt, whole in zip(prompts, wholes, strict=True)
    ]
    before = _encode_each(tokenizer, [whole[:cut] for whole, cut in zip(wholes, cuts, strict=True)])
    behind = _encode_each(tokenizer, [whole[cut:] for whole, cut in zip(wholes, cuts, strict=True)])
    return [[*first, *second] for first, second in zip(before, behind, strict=True)]


def _encode_each(tokenizer: Tokenizer, texts: Sequence[bytes]) -> list[list[int]]:
    """Encode texts, equal ones once."""
    distinct = list(dict.fromkeys(texts))
    ids = [each.tolist() for each in tokenizer.encode_many(distinct)]
    by_text = dict(zip(distinct, ids, strict=True))
    return [by_text[text] for text in texts]


def _divided(
    prompt: list[int], whole: list[int], end_id: int | None
) -> tuple[list[int], list[int]]:
    n_shared = 0
    for own, other in zip(prompt, whole, strict=False):
        if own != other:
            break
        n_shared += 1
    if n_shared:
        return whole[:n_shared], whole[n_shared:]
    if end_id is not None:
        return [end_id], whole
    return whole[:1], whole[1:]
