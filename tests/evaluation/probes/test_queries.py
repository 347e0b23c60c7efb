"""Queries as tokens: where the scored text begins, and what a context holds."""

import pytest

from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.evaluation.probes.query import Query, encode_queries

TEXT = b"the film was very positive and the plot was very negative. " * 20


@pytest.fixture(scope="module")
def bpe():
    return train_tokenizer("bpe", [TEXT], vocab_size=290)


def test_the_scored_text_begins_where_the_prompt_alone_ends(bpe) -> None:
    [query] = encode_queries([Query("the film was very", " positive")], bpe, 64)
    assert bpe.decode(query.prompt) == b"the film was very"
    assert bpe.decode(query.text) == b" positive"


def test_where_tokens_join_both_the_joint_tokens_are_scored() -> None:
    chars = train_tokenizer("characters", [TEXT], vocab_size=None)
    [query] = encode_queries([Query("the pl", "ot")], chars, 64)
    assert chars.decode(query.prompt) == b"the pl" and chars.decode(query.text) == b"ot"


def test_of_a_text_alone_the_first_token_is_read_and_not_scored(bpe) -> None:
    [query] = encode_queries([Query("", "the film was")], bpe, 64)
    whole = bpe.encode(b"the film was").tolist()
    if bpe.end_id is None:
        assert (list(query.prompt), list(query.text)) == (whole[:1], whole[1:])
    else:
        assert (list(query.prompt), list(query.text)) == ([bpe.end_id], whole)


def test_a_prompt_loses_its_beginning_by_the_longest_text_behind_it() -> None:
    raw = train_tokenizer("bytes", ())
    queries = [Query("abcdefgh", " x"), Query("abcdefgh", " xyz"), Query("abcd", " x")]
    first, second, third = encode_queries(queries, raw, 8)
    # The last of 4 tokens is not read, so that 5 of the prompt go before them.
    assert bytes(first.prompt) == bytes(second.prompt) == b"defgh"
    assert first.is_cut and second.is_cut and not third.is_cut
    assert bytes(third.prompt) == b"abcd"


def test_a_text_that_is_longer_than_the_context_loses_its_end() -> None:
    raw = train_tokenizer("bytes", ())
    [query] = encode_queries([Query("ab", " 23456789")], raw, 4)
    assert (bytes(query.prompt), bytes(query.text), query.is_cut) == (b"b", b" 234", True)
