"""Likelihood: windows, strides, units, items, and harness requests, as of every token alone."""

import math
import sys
from dataclasses import replace
from itertools import pairwise
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import sublayer
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.split import Split
from sublayer.data.store import TokenStore
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import ConfigError
from sublayer.evaluation.counts import Counter, Counts
from sublayer.evaluation.items import Digest, FromItems, Items, ItemTable
from sublayer.evaluation.likelihood import Likelihood, score, windows
from sublayer.evaluation.requests import Requests
from sublayer.model.build import build
from sublayer.model.model_folder import save_model
from tests.breadth import examples

TEXT = "Zwölf Boxkämpfer jagen Viktor quer über den Sylter Deich.\n Emus  füttern!".encode()


def split_of(ids, tokenizer=None, document_starts=(0,)):
    starts = np.array(document_starts, dtype=np.int64)
    store = TokenStore(
        np.asarray(ids, dtype=np.uint16), starts, np.array([0]), len(ids), "", is_lossless=True
    )
    return Split("test", store, tokenizer or ByteTokenizer(), ("text",))


def model_of(**fields):
    settings = {"n_layers": 2, "d_model": 14, "n_heads": 2, "init_std": 0.4, "d_head": 6}
    settings |= {"positions": "rotary", **fields}
    config = resolve_model(ModelConfig.model_validate(settings), vocab_size=256, context=64)
    return build(config, seed=3).double().eval()


@torch.no_grad()
def naive_nats(model, ids, target, start):
    tokens = torch.from_numpy(ids[start:target].astype(np.int64))[None]
    return -float(model(tokens).logits[0, -1].log_softmax(-1)[int(ids[target])])


@pytest.fixture(scope="module")
def model():
    return model_of()


@pytest.fixture(scope="module")
def split():
    return split_of(np.frombuffer(TEXT, dtype=np.uint8))


def test_a_uniform_model_costs_the_logarithm_of_the_vocabulary(split):
    uniform = model_of()
    with torch.no_grad():
        uniform.embedding.weight.zero_()
    found = score(uniform, split, context=16, stride=4, batch_sequences=3)
    n, n_characters = len(TEXT) - 1, len(TEXT.decode()) - 1
    # "Zwölf" begins in the first token, which is context only.
    assert (found.tokens, found.bytes, found.words) == (n, n, 10)
    measures = (found.bits_per_byte, found.perplexity, found.bits_per_character)
    assert measures == pytest.approx((8.0, 256.0, 8.0 * n / n_characters), rel=1e-13)
    assert math.log(found.word_perplexity) == pytest.approx(n * math.log(256) / 10, rel=1e-13)


def test_a_part_of_what_a_lossy_tokenizer_read_has_its_share_of_the_bytes():
    text = b"ab " * 60
    tokenizer = train_tokenizer("word-bpe", [text], vocab_size=10)
    ids = tokenizer.encode(text)
    assert tokenizer.token_bytes[ids].tolist() == [2] * 60
    ended = split_of(ids, tokenizer)
    split = replace(
        ended, store=replace(ended.store, n_bytes=180, n_characters=180, is_lossless=False)
    )
    model = model_of()
    whole = score(model, split, context=16, stride=16, batch_sequences=3)
    # The first word is context only: 2 of the 120 bytes that are kept.
    assert (whole.tokens, whole.bytes, whole.characters, whole.words) == (59, 178, 178, 59)
    part = score(model, split, context=16, stride=16, batch_sequences=3, max_tokens=16)
    # 32 of the 118 others are 48.3 of the 178 that were read.
    assert (part.tokens, part.bytes, part.characters, part.words) == (16, 48, 48, 16)


@examples(100)
@given(n_tokens=st.integers(2, 90), context=st.integers(1, 20), data=st.data())
def test_each_token_but_the_first_is_scored_once_in_order_or_a_limit_of_them(
    n_tokens, context, data
):
    stride = data.draw(st.integers(1, context))
    found = windows(n_tokens, context=context, stride=stride)
    scored = [place for window in found for place in range(window.first, window.stop)]
    assert scored == list(range(1, n_tokens))
    for window in found:
        assert window.start <= window.first - 1
        assert window.stop - 1 - window.start <= context
        assert window.start == 0 or window.first - window.start == context - stride + 1
    most = data.draw(st.integers(1, 100))
    kept = windows(n_tokens, context=context, stride=stride, max_tokens=most)
    n_scored = sum(window.stop - window.first for window in kept)
    assert set(kept) <= set(found) and len(set(kept)) == len(kept)
    assert n_scored <= max(most, min(context, n_tokens - 1))
    assert n_scored == n_tokens - 1 or n_scored > most - 2 * context
    spread = [window.start for window in windows(1001, context=10, stride=10, max_tokens=50)]
    assert spread == [0, 200, 400, 600, 800]


@pytest.mark.parametrize(("context", "stride", "batch"), [(16, 5, 1), (16, 16, 4), (64, 32, 8)])
def test_scores_equal_a_loop_over_single_tokens(model, split, context, stride, batch):
    ids = np.asarray(split.ids)
    expected = 0.0
    for target in range(1, len(ids)):
        later = max(0, math.ceil((target - context) / stride))
        expected += naive_nats(model, ids, target, later * stride)
    found = score(model, split, context=context, stride=stride, batch_sequences=batch)
    assert found.tokens == len(ids) - 1
    assert found.nats == pytest.approx(expected, rel=1e-12)


def test_respected_boundaries_hide_the_document_before(model):
    settings = {"context": 30, "stride": 30, "batch_sequences": 2}

    def nats(text, **more):
        return score(model, split_of([*text], **more), **settings).nats

    def of_the_second(first, respects):
        both = split_of([*first, *b"xsecond document"], document_starts=(0, 7))
        whole = score(model, both, **settings, respect_boundaries=respects).nats
        return whole - nats(first + b"xs")

    kept, other = (of_the_second(first, True) for first in (b"abcdef", b"ghijkl"))
    assert kept == pytest.approx(other, rel=1e-12)
    assert kept == pytest.approx(nats(b"second document"), rel=1e-12)
    seen, other = (of_the_second(first, False) for first in (b"abcdef", b"ghijkl"))
    assert seen != pytest.approx(other, rel=1e-4)


def test_nothing_to_divide_by_is_not_a_number():
    nothing = Likelihood(nats=3.0, tokens=1, bytes=0, characters=0, words=0)
    assert nothing.loss == 3.0
    assert math.isnan(nothing.bits_per_byte)
    assert math.isnan(nothing.word_perplexity)
    assert Likelihood(nats=1e6, tokens=1, bytes=1, characters=1, words=1).perplexity == math.inf


def counter_of(text, document_starts=(0,)):
    return Counter(split_of(np.frombuffer(text, dtype=np.uint8), document_starts=document_starts))


def test_a_word_counts_where_it_begins_and_ends_with_its_document():
    counter = counter_of(b"ab cd\n\tef")
    assert counter.count(0, 9).words == 3
    assert counter.count(1, 9).words == 2  # begins inside "ab"
    assert counter.count(1, 4).words == 1  # ends inside "cd"
    assert counter.count(4, 7).words == 0  # "d", and whitespace
    divided = counter_of(b"abcd", document_starts=(0, 2))
    assert (divided.count(0, 4).words, divided.count(1, 4).words) == (2, 1)


def test_ranges_that_follow_each_other_are_counted_as_each_alone(monkeypatch):
    text = "zwölf two  three\nfour ".encode() * 9
    counter = counter_of(text, document_starts=(0, 50))
    bounds = np.array([1, 4, 5, 30, 61, 62, 100, len(text)])
    alone = [counter.count(*each) for each in pairwise(bounds.tolist())]
    monkeypatch.setattr("sublayer.evaluation.counts._CHUNK_TOKENS", 8)
    found = counter.count_each(bounds)
    assert [Counts(*each) for each in found.tolist()] == alone
    assert counter.count(1, len(text)) == sum(alone[1:], start=alone[0])


@examples(100)
@given(text=st.text(alphabet="aü \n\t€", min_size=1, max_size=40), data=st.data())
def test_counts_add_up_and_equal_those_of_the_text(text, data):
    raw = text.encode()
    counter, cut = counter_of(raw), data.draw(st.integers(0, len(raw)))
    whole = counter.count(0, len(raw))
    assert whole == Counts(len(raw), len(raw), len(text), len(raw.split()))
    assert counter.count(0, cut) + counter.count(cut, len(raw)) == whole


NATS = np.array([1.0, 2.0, 4.0])
COUNTS = np.array([[1, 0], [0, 250], [10, 250]], dtype=np.uint8)
TABLE = ItemTable("a thing", "", {"nats": NATS, "counts": COUNTS}, None)


def test_items_are_added_once_or_as_often_as_they_were_drawn():
    sums = TABLE.sums()
    # 250 + 250 does not fit into the type of the counts.
    assert (float(sums["nats"]), sums["counts"].tolist()) == (7.0, [11.0, 500.0])
    drawn = TABLE.sums(np.array([0, 3, 1]))
    assert (float(drawn["nats"]), drawn["counts"].tolist()) == (10.0, [10.0, 1000.0])
    for name, column in TABLE.sums(np.ones(3, dtype=np.int64)).items():
        assert np.array_equal(column, sums[name])


def test_a_metric_is_the_value_of_its_tables_sums():
    mean = FromItems("things", lambda sums: float(sums["nats"]) / 3)
    assert mean.of(Items("test", "", {"things": TABLE})) == pytest.approx(7 / 3)
    assert mean.of(Items("test", "", {"others": TABLE})) is None


def test_the_digest_is_of_numbers_and_of_where_an_item_ends(monkeypatch):
    def digest_of(*parts, names=("windows",)):
        digest = Digest(*names)
        for part in parts:
            digest.add(part)
        return digest.hexdigest()

    ids = np.arange(300)
    before = digest_of(ids)
    for same in (ids.astype(np.uint16), ids.astype(">i8"), range(300)):
        assert digest_of(same) == before
    assert digest_of(ids[::-1]) != before != digest_of(ids, names=("pairs",))
    assert digest_of([1, 2], [3]) != digest_of([1], [2, 3])
    assert digest_of([1], []) != digest_of([1])
    monkeypatch.setattr("sublayer.evaluation.items._CHUNK", 7)
    assert digest_of(ids) == before


CONTEXT = 12
LONG = "a prompt that is longer than all of the context"
PAIRS = [("the cat", " sat"), ("the cat", " ran"), ("", "on the mat"), (LONG, " and so on")]


def drawn_model_of(kind):
    fields = {} if kind == "lstm" else {"n_heads": 2}
    config = ModelConfig(kind=kind, n_layers=1, d_model=8, **fields)
    model = build(resolve_model(config, vocab_size=256, context=CONTEXT), seed=0).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.5, generator=generator)
    model.tokenizer = train_tokenizer("bytes", ())
    return model


@torch.no_grad()
def log_p(model, ids, first):
    """Read each token behind at most the context, one at a time."""
    total, is_greedy = 0.0, True
    for place in range(first, len(ids)):
        logits = model(torch.tensor([ids[:place]])).logits[0, -1].log_softmax(-1)
        total += float(logits[ids[place]])
        is_greedy = is_greedy and int(logits.argmax()) == ids[place]
    return total, is_greedy


@pytest.mark.parametrize("kind", ["decoder", "lstm"])
def test_continuations_are_scored_as_one_by_one(kind):
    model = drawn_model_of(kind)
    requests = Requests(model, CONTEXT, "it")
    greedy = int(model(torch.tensor([list(b"the cat")])).logits[0, -1].argmax())
    assert greedy < 128, "its text is one token"
    pairs = [*PAIRS, ("the cat", chr(greedy))]
    for (prompt, text), found in zip(pairs, requests.likelihoods(pairs), strict=True):
        ids = list((prompt + text).encode())
        first = len(prompt.encode()) or 1  # bytes mark no end of a document
        # What the context holds, the last token not being read.
        cut = max(0, len(ids) - 1 - CONTEXT)
        expected, is_greedy = log_p(model, ids[cut:], first - cut)
        assert found == (pytest.approx(expected, abs=1e-9), is_greedy)


def test_whole_texts_have_every_token_once_and_a_full_last_window():
    model, text = drawn_model_of("decoder"), "it was a long text of bytes"
    ids = list(text.encode())
    # 26 tokens behind the first: 12, 12, and 2 that are read behind ten others.
    expected = sum(
        log_p(model, ids[start : stop + 1], first - start)[0]
        for start, first, stop in ((0, 1, 12), (12, 13, 24), (14, 25, 26))
    )
    found = Requests(model, CONTEXT, "it").wholes([text, "a"])
    assert found == [pytest.approx(expected, abs=1e-9), 0.0]


def test_a_prompt_is_continued_up_to_a_stop():
    model = drawn_model_of("decoder")
    requests = Requests(model, CONTEXT, "it")
    ids = list(b"the cat")
    for _ in range(5):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    whole = bytes(ids[7:]).decode(errors="replace")
    assert requests.written("the cat", {"max_gen_toks": 5, "until": []}) == whole
    stopped = requests.written("the cat", {"max_gen_toks": 5, "until": [whole[2]]})
    assert stopped == whole[: whole.index(whole[2])]
    for prompt, settings, message in (("the cat", {"beams": 2}, "beams"), ("", {}, "empty")):
        with pytest.raises(ConfigError, match=message):
            requests.written(prompt, settings)


def test_the_harness_asks_a_saved_model(tmp_path, monkeypatch):
    model = drawn_model_of("decoder").float()
    save_model(tmp_path / "model", model, {"tokenizer.json": model.tokenizer.serialize()})
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", None)
    with pytest.raises(ConfigError, match=r"sublayer\[harness\]"):
        sublayer.harness_model(tmp_path / "model")
    stand_in = ModuleType("lm_eval.api.model")
    stand_in.LM = type("LM", (), {})
    for name in ("lm_eval", "lm_eval.api"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", stand_in)
    harness = sublayer.harness_model(tmp_path / "model", device="cpu")
    assert isinstance(harness, stand_in.LM)
    requests, settings = Requests(model, CONTEXT, "it"), {"until": ["\n"], "max_gen_toks": 3}
    asked = [SimpleNamespace(args=pair) for pair in PAIRS]
    assert harness.loglikelihood(asked) == requests.likelihoods(PAIRS)
    texts = [SimpleNamespace(args=("some text",))]
    assert harness.loglikelihood_rolling(texts) == requests.wholes(["some text"])
    prompts = [SimpleNamespace(args=("the cat", settings))]
    assert harness.generate_until(prompts) == [requests.written("the cat", settings)]
    assert harness.tokenizer_name == model.tokenizer.fingerprint
