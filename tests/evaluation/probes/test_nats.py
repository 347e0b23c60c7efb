"""What texts cost behind prompts: equal to each text alone, whatever is batched and shared."""

from typing import Any

import numpy as np
import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.evaluation.probes.decoder_nats import decoder_nats
from sublayer.evaluation.probes.query import EncodedQuery, Query, encode_queries
from sublayer.evaluation.probes.target_nats import target_nats
from sublayer.model.build import build
from sublayer.model.decoder import Decoder
from sublayer.model.encoder_decoder import EncoderDecoder

VOCAB_SIZE, CONTEXT = 19, 40
KINDS: dict[str, dict[str, Any]] = {
    "rotary": {"positions": "rotary"},
    "relative": {"positions": "relative"},
    "macaron": {"block": "macaron", "share": "all"},
    "as gpt1": {"softmax": "all", "norm_order": "post"},
    "lstm": {"kind": "lstm"},
}


def model_of(**fields: Any) -> Any:
    config = resolve_model(
        ModelConfig(**{"n_layers": 2, "d_model": 8, **_heads(fields), **fields}),
        vocab_size=VOCAB_SIZE,
        context=CONTEXT,
    )
    model = build(config, seed=0).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.5, generator=generator)
    return model


def _heads(fields: dict[str, Any]) -> dict[str, Any]:
    return {} if fields.get("kind") == "lstm" else {"n_heads": 2}


def queries_of(seed: int = 0) -> list[EncodedQuery]:
    """Draw queries: prompts that several texts follow, that one follows, and short ones."""
    rng = np.random.default_rng(seed)

    def ids(n: int) -> tuple[int, ...]:
        return tuple(int(each) for each in rng.integers(0, VOCAB_SIZE, n))

    queries = []
    for length in (9, 9, 9, 12, 20):
        prompt = ids(length)
        queries += [EncodedQuery(prompt, ids(n)) for n in (1, 4, 2, 7)]
    one = ids(10)
    queries += [EncodedQuery(one, ids(1)) for _ in range(20)]  # more than go behind one at a time
    queries += [EncodedQuery(ids(n), ids(5)) for n in (1, 3, 15)]
    queries.append(EncodedQuery(ids(4), ()))
    queries += [EncodedQuery((3,), ids(n)) for n in (3, 6)]
    order = rng.permutation(len(queries))
    return [queries[place] for place in order]


def slowly(model: Decoder, query: EncodedQuery) -> list[float]:
    """Compute the nats of each token by a forward pass of its own, without any cache."""
    nats = []
    read = list(query.prompt)
    for token in query.text:
        logits = model(torch.tensor([read])).logits[0, -1]
        nats.append(float(torch.logsumexp(logits, 0) - logits[token]))
        read.append(token)
    return nats


@pytest.mark.parametrize("kind", KINDS)
def test_texts_behind_prompts_cost_what_they_do_token_by_token(kind: str) -> None:
    model = model_of(**KINDS[kind])
    queries = queries_of()
    with torch.inference_mode():
        expected = [slowly(model, query) for query in queries]
    done: list[tuple[int, int]] = []
    found = decoder_nats(model, queries, lambda *counts: done.append(counts))
    assert done[-1] == (len(queries), len(queries)) and done == sorted(done)
    for own, wanted in zip(found, expected, strict=True):
        assert own == pytest.approx(wanted, abs=1e-9)


def test_prompts_that_several_texts_follow_are_read_once(monkeypatch) -> None:
    model = model_of()
    queries = [EncodedQuery(tuple(range(10)), (n, 1, 2)) for n in range(4)]
    n_read = []
    hidden = model.hidden
    monkeypatch.setattr(
        model,
        "hidden",
        lambda tokens, *a, **k: n_read.append(tokens.numel()) or hidden(tokens, *a, **k),
    )
    decoder_nats(model, queries)
    # The prompt, and of each text all but the last token.
    assert n_read == [10, 4 * 2]


def test_an_encoder_decoder_writes_the_text_behind_the_first_sentinel() -> None:
    model = model_of(kind="encoder-decoder", positions="relative", decoder_start="pad")
    assert isinstance(model, EncoderDecoder)
    queries = queries_of(1)
    found = target_nats(model, queries, first_id=0, sentinel_id=18)
    with torch.inference_mode():
        for own, query in zip(found, queries, strict=True):
            source = torch.tensor([[*query.prompt, 18]])
            expected = []
            written = [0, 18]
            for token in query.text:
                logits = model(source, target=torch.tensor([written])).logits[0, -1]
                expected.append(float(torch.logsumexp(logits, 0) - logits[token]))
                written.append(token)
            assert own == pytest.approx(expected, abs=1e-9)


TEXT = b"the film was very positive and the plot was very negative. " * 20


@pytest.fixture(scope="module")
def bpe():
    return train_tokenizer("bpe", [TEXT], vocab_size=290)


def test_the_scored_text_begins_where_the_prompt_alone_ends(bpe) -> None:
    [query] = encode_queries([Query("the film was very", " positive")], bpe, 64)
    assert bpe.decode(query.prompt) == b"the film was very"
    assert bpe.decode(query.text) == b" positive"


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
