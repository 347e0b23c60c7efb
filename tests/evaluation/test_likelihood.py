"""Likelihood as of every token alone; probes, and models that know all or nothing."""

import json
import math
import shutil
import sys
from dataclasses import replace
from functools import partial
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import sublayer
from sublayer.api.run import Pretrained
from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.data.store import Split, TokenStore
from sublayer.data.tokenizers.base import ByteTokenizer
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import ConfigError
from sublayer.evaluation import probes as of_probes
from sublayer.evaluation.items import Digest, FromItems, Items, ItemTable
from sublayer.evaluation.probes import EncodedQuery, Query, Requests, decoder_nats, encode_queries
from sublayer.model.model_folder import save_model
from sublayer.model.transformer import build
from sublayer.objective.causal import Counter, Likelihood, score, windows
from sublayer.tasks.probes import PROBES, best_threshold
from sublayer.tasks.task import Example
from tests.breadth import examples
from tests.encoders import drawn

TEXT = "Zwölf Boxkämpfer jagen Viktor quer über den Sylter Deich.\n Emus  füttern!".encode()
NATS, COUNTS = np.array([1.0, 2.0, 4.0]), np.array([[1, 0], [0, 250], [10, 250]], dtype=np.uint8)
TABLE, CONTEXT = ItemTable("a thing", "", {"nats": NATS, "counts": COUNTS}, None), 12
PAIRS = [("the cat", " sat"), ("the cat", " ran"), ("", "on the mat")]
PAIRS += [("a prompt that is longer than all of the context", " and so on")]
VOCAB_SIZE = 19


def split_of(ids, tokenizer=None, document_starts=(0,)):
    starts, ids = np.array(document_starts, dtype=np.int64), np.asarray(ids, dtype=np.uint16)
    store = TokenStore(ids, starts, np.array([0]), len(ids), "", is_lossless=True)
    return Split("test", store, tokenizer or ByteTokenizer(), ("text",))


def tiny_model(vocab_size=VOCAB_SIZE, *, context=40, **fields):
    heads = {} if fields.get("kind") == "lstm" else {"n_heads": 2}
    config = ModelConfig(**{"n_layers": 2, "d_model": 8, **heads, **fields})
    return build(resolve_model(config, vocab_size=vocab_size, context=context), seed=0).eval()


def drawn_tiny_model(vocab_size=VOCAB_SIZE, **fields):
    return drawn(tiny_model(vocab_size, **fields).double(), 0.5)


model_of = partial(drawn_tiny_model, 256, context=64, positions="rotary", d_head=6)


def test_a_uniform_model_costs_the_logarithm_of_the_vocabulary():
    uniform, split = model_of(), split_of(np.frombuffer(TEXT, dtype=np.uint8))
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
    read = replace(ended.store, n_bytes=180, n_characters=180, is_lossless=False)
    split, model = replace(ended, store=read), model_of()
    rules = {"context": 16, "stride": 16, "batch_sequences": 3}
    whole = score(model, split, **rules)
    # The first word is context only: 2 of the 120 bytes that are kept.
    assert (whole.tokens, whole.bytes, whole.characters, whole.words) == (59, 178, 178, 59)
    part = score(model, split, **rules, max_tokens=16)
    # 32 of the 118 others are 48.3 of the 178 that were read.
    assert (part.tokens, part.bytes, part.characters, part.words) == (16, 48, 48, 16)


@examples(100)
@given(n_tokens=st.integers(2, 90), context=st.integers(1, 20), data=st.data())
def test_tokens_but_the_first_are_scored_once_in_order_or_a_limit_of_them(n_tokens, context, data):
    stride = data.draw(st.integers(1, context))
    found = windows(n_tokens, context=context, stride=stride)
    scored = [place for window in found for place in range(window.first, window.stop)]
    assert scored == list(range(1, n_tokens))
    for window in found:
        assert window.start <= window.first - 1 and window.stop - 1 - window.start <= context
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
def test_scores_equal_a_loop_over_single_tokens(context, stride, batch):
    model, split, expected = model_of(), split_of(np.frombuffer(TEXT, dtype=np.uint8)), 0.0
    for target in range(1, len(TEXT)):
        start = stride * max(0, math.ceil((target - context) / stride))
        expected -= log_p(model, list(TEXT[start : target + 1]), target - start)[0]
    found = score(model, split, context=context, stride=stride, batch_sequences=batch)
    assert (found.tokens, found.nats) == (len(TEXT) - 1, pytest.approx(expected, rel=1e-12))


def test_respected_boundaries_hide_the_document_before():
    model, settings = model_of(), {"context": 30, "stride": 30, "batch_sequences": 2}

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
    assert math.isnan(nothing.bits_per_byte) and math.isnan(nothing.word_perplexity)
    assert Likelihood(nats=1e6, tokens=1, bytes=1, characters=1, words=1).perplexity == math.inf


def counter_of(text, document_starts=(0,)):
    return Counter(split_of(np.frombuffer(text, dtype=np.uint8), document_starts=document_starts))


def test_a_word_counts_where_it_begins_and_ends_with_its_document():
    counter = counter_of(b"ab cd\n\tef")
    # All; from inside "ab" on; till inside "cd"; "d" and whitespace.
    ranges = [(0, 9), (1, 9), (1, 4), (4, 7), (5, 5)]
    assert counter.count(ranges)[:, 3].tolist() == [3, 2, 1, 0, 0]
    divided = counter_of(b"abcd", document_starts=(0, 2))
    assert divided.count([(0, 4), (1, 4)])[:, 3].tolist() == [2, 1]


@examples(100)
@given(text=st.text(alphabet="aü \n\t€", min_size=1, max_size=40), data=st.data())
def test_counts_add_up_and_equal_those_of_the_text(text, data):
    raw = text.encode()
    counter, cut = counter_of(raw), data.draw(st.integers(0, len(raw)))
    whole, *parts = counter.count([(0, len(raw)), (0, cut), (cut, len(raw))])
    assert (*whole,) == (len(raw), len(raw), len(text), len(raw.split()))
    assert sum(parts).tolist() == whole.tolist()


def test_items_are_added_once_or_as_often_as_they_were_drawn():
    sums = TABLE.sums()
    # 250 + 250 does not fit into the type of the counts.
    assert (float(sums["nats"]), sums["counts"].tolist()) == (7.0, [11.0, 500.0])
    drawn = TABLE.sums(np.array([0, 3, 1]))
    assert (float(drawn["nats"]), drawn["counts"].tolist()) == (10.0, [10.0, 1000.0])
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
    assert digest_of([1, 2], [3]) != digest_of([1], [2, 3]) and digest_of([1], []) != digest_of([1])
    monkeypatch.setattr("sublayer.evaluation.items._CHUNK", 7)
    assert digest_of(ids) == before


def drawn_model_of(kind):
    model = drawn_tiny_model(256, context=CONTEXT, n_layers=1, kind=kind)
    return Pretrained(model, train_tokenizer("bytes", ()))


@torch.no_grad()
def log_p(model, ids, first):
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
    parts = ((0, 1, 12), (12, 13, 24), (14, 25, 26))
    expected = sum(log_p(model, ids[a : stop + 1], first - a)[0] for a, first, stop in parts)
    found = Requests(model, CONTEXT, "it").wholes([text, "a"])
    assert found == [pytest.approx(expected, abs=1e-9), 0.0]


def test_a_prompt_is_continued_up_to_a_stop():
    model = drawn_model_of("decoder")
    requests, ids = Requests(model, CONTEXT, "it"), list(b"the cat")
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
    model = drawn_model_of("decoder")
    save_model(tmp_path / "model", model.float(), {"tokenizer.json": model.tokenizer.serialize()})
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


def queries_of(seed=0):
    """Draw queries: prompts that several texts follow, that one follows, and short ones."""
    rng = np.random.default_rng(seed)

    def ids(n):
        return tuple(rng.integers(0, VOCAB_SIZE, n).tolist())

    prompts = [ids(length) for length in (9, 9, 9, 12, 20)]
    queries = [EncodedQuery(prompt, ids(n)) for prompt in prompts for n in (1, 4, 2, 7)]
    one = ids(10)
    queries += [EncodedQuery(one, ids(1)) for _ in range(20)]  # more than go behind one at a time
    queries += [EncodedQuery(ids(n), ids(5)) for n in (1, 3, 15)]
    queries += [EncodedQuery(ids(4), ()), EncodedQuery((3,), ids(3)), EncodedQuery((3,), ids(6))]
    return [queries[place] for place in rng.permutation(len(queries))]


@torch.inference_mode()
def slowly(predict, text):
    pairs = zip([predict(text[:place]) for place in range(len(text))], text, strict=True)
    return [float(torch.logsumexp(each, 0) - each[token]) for each, token in pairs]


@pytest.mark.parametrize("fields", [
    {"positions": "rotary"}, {"positions": "relative"},
    {"block": "macaron", "share": "all", "softmax": "all", "norm_order": "post"}, {"kind": "lstm"},
], ids=str)  # fmt: skip
def test_texts_behind_prompts_cost_what_they_do_token_by_token(fields):
    model, queries, done = drawn_tiny_model(**fields), queries_of(), []
    found = decoder_nats(model, queries, lambda *counts: done.append(counts))
    assert done[-1] == (len(queries), len(queries)) and done == sorted(done)
    for nats, query in zip(found, queries, strict=True):

        def predict(text, query=query):
            return model(torch.tensor([[*query.prompt, *text]])).logits[0, -1]

        assert nats == pytest.approx(slowly(predict, query.text), abs=1e-9)


def test_an_encoder_decoder_writes_the_text_behind_the_first_sentinel():
    model = drawn_tiny_model(kind="encoder-decoder", positions="relative", decoder_start="pad")
    queries = queries_of(1)
    found = of_probes.target_nats(model, queries, first_id=0, sentinel_id=18, end_id=3)
    for nats, query in zip(found, queries, strict=True):

        def predict(text, query=query):
            source = torch.tensor([[*query.prompt, 18, 3]])
            return model(source, target=torch.tensor([[0, 18, *text]])).logits[0, -1]

        assert nats == pytest.approx(slowly(predict, query.text), abs=1e-9)


def test_prompts_are_read_once_and_texts_of_about_equal_lengths_together(monkeypatch):
    model, shapes = drawn_tiny_model(), []
    hidden = model.hidden

    def noted(tokens, *rest, **settings):
        shapes.append(tokens.shape)
        return hidden(tokens, *rest, **settings)

    monkeypatch.setattr(model, "hidden", noted)
    decoder_nats(model, [EncodedQuery(tuple(range(10)), (n, 1, 2)) for n in range(4)])
    assert shapes == [(1, 10), (4, 2)]
    shapes.clear()
    monkeypatch.setattr(of_probes, "_TOKENS", 20)
    lengths = [(1, 9), (4, 1), (9, 1), (1, 4)]
    decoder_nats(model, [EncodedQuery(tuple(range(n)), (n,) * m) for n, m in lengths])
    assert shapes == [(2, 9), (2, 4)]


def test_the_text_begins_where_the_prompt_ends_which_loses_its_beginning_by_the_longest_text():
    text = b"the film was very positive and the plot was very negative. " * 20
    bpe = train_tokenizer("bpe", [text], vocab_size=290)
    queries = [Query("the film was very", " positive"), Query("", "the film was")]
    behind, alone = encode_queries(queries, bpe, 64)
    assert bpe.decode(behind.prompt) == b"the film was very"
    assert bpe.decode(behind.text) == b" positive"
    assert alone.prompt == (bpe.end_id,) and bpe.decode(alone.text) == b"the film was"

    raw = train_tokenizer("bytes", ())
    queries = [Query("abcdefgh", " x"), Query("abcdefgh", " xyz"), Query("abcd", " x")]
    first, second, third = encode_queries(queries, raw, 8)
    # The last of 4 tokens is not read, so that 5 of the prompt go before them.
    assert bytes(first.prompt) == bytes(second.prompt) == b"defgh"
    assert first.is_cut and second.is_cut and not third.is_cut and bytes(third.prompt) == b"abcd"
    [query] = encode_queries([Query("ab", " 23456789")], raw, 4)
    assert (bytes(query.prompt), bytes(query.text), query.is_cut) == (b"b", b" 234", True)
    # Of a text alone the first token is read and not scored, where nothing ends documents.
    [query] = encode_queries([Query("", "abc")], raw, 8)
    assert (bytes(query.prompt), bytes(query.text)) == (b"a", b"bc")


def write_tasks(folder):
    """Write small files of all probes' tasks, whose right answers a model can learn by heart."""

    def put(path, *lines):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("".join(f"{line}\n" for line in lines))

    animals = ("cat", "dog", "girl", "boy")
    judged = [f"a\t1\t\tthe {n} came home early" for n in animals]
    judged += [f"a\t0\t\tearly the home {n} came" for n in animals]
    put("CoLA/train.tsv", *judged)
    put("CoLA/dev.tsv", *judged[1:4], *judged[5:8])
    reviews = ["a fine film\t1", "a dull film\t0", "a fine plot\t1", "a dull plot\t0"]
    for part in ("train", "dev"):
        put(f"SST-2/{part}.tsv", "sentence\tlabel", *reviews)
    stories = {"cow": "barn", "fox": "wood"}
    passages = [
        {"id": f"middle{animal}.txt", "article": f"The {animal} lives in the {place}.",
         "questions": [f"The {animal} lives in the _ .", f"Who lives in the {place}?"],
         "options": [["sea", place, "sky", "house"], ["ant", "bee", animal, "owl"]],
         "answers": ["B", "C"]} for animal, place in stories.items()
    ]  # fmt: skip
    put("race/race_dev_middle.jsonl", *map(json.dumps, passages))
    texts = ["The cup fell on the rug because it was heavy."] * 2 + ["The cup is here and I had it"]
    nouns = [("The cup", 0), ("the rug", 4), ("The cup", 0)]
    it, wsc = {"span2_text": "it", "span2_index": 7}, []
    for number, (text, (noun, place)) in enumerate(zip(texts, nouns, strict=True)):
        target = {"span1_text": noun, "span1_index": place, **it}
        row = {"text": text, "target": target, "idx": number, "label": number != 1}
        wsc.append(json.dumps(row))
    put("WSC/val.jsonl", *wsc)
    put("WSC/train.jsonl", *wsc[:2])
    for part in ("test", "train"):
        put(f"DPR/{part}.c.txt", "Ann told Eve that she won.", "she", "Ann,Eve", "Ann", "")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tasks(tmp_path_factory.mktemp("probes"))


@pytest.fixture(scope="module")
def probes(folder):
    return of_probes.read_probes(list(PROBES), str(folder))


def texts(probes):
    found = {}
    for each in probes:
        pairs = zip(each.items.examples, each.items.queries, strict=True)
        if each.probe.name == "cola":
            right = [queries[0] for example, queries in pairs if example.label]
        else:
            right = [queries[int(example.label or 0)] for example, queries in pairs]
        found[each.probe.name] = [(query.prompt, query.text) for query in right]
    return found


@pytest.fixture
def answerer(folder):
    corpus = [path.read_bytes() for path in sorted(folder.glob("*/*"))]
    words = train_tokenizer("bpe", corpus, vocab_size=400)
    model = tiny_model(words.vocab_size, context=64, d_model=32)
    return Pretrained(model, words)


def test_a_model_that_knows_the_answers_by_heart_scores_1(probes, answerer):
    asked = texts(probes)
    assert asked["sst2"][0] == ("a fine film very", " positive")
    assert asked["race"][0] == ("The cow lives in the barn. The cow lives in the", " barn")
    assert asked["race"][1] == ("The cow lives in the barn. Who lives in the barn?", " cow")
    assert asked["winograd"][0] == ("The cup fell on the rug because the cup", " was heavy.")
    assert asked["dpr"] == [("Ann told Eve that Ann", " won.")]
    [winograd] = [each for each in probes if each.probe.name == "winograd"]
    # What training and development both have is asked once; one row has no second candidate.
    assert winograd.items.left_out == {"not two candidates with one right": 1}
    model = answerer.train()
    tokenizer = answerer.tokenizer
    whole = {prompt + text: None for pairs in asked.values() for prompt, text in pairs}
    encoded = [tokenizer.encode(row.encode()).astype(np.int64) for row in whole]
    ids = [torch.from_numpy(row) for row in encoded]
    padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    targets = torch.nn.utils.rnn.pad_sequence([row[1:] for row in ids], True, -1)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(200):
        logits = model(padded[:, :-1]).logits.flatten(0, 1)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits, targets.flatten(), ignore_index=-1).backward()
        optimizer.step()
    learned = Pretrained(model.eval(), tokenizer)
    scores = {each.probe.name: each for each in of_probes.ask(learned, probes, 64)}
    values = {name: score.value for name, score in scores.items()}
    assert values == pytest.approx(dict.fromkeys(PROBES, 1.0))
    assert scores["sst2"].normalised == pytest.approx(0.5 / 0.432)
    assert scores["winograd"].normalised is None


def test_a_uniform_model_scores_at_chance(probes, answerer):
    with torch.no_grad():
        answerer.embedding.weight.zero_()  # of equal logits
    scores = {each.probe.name: each for each in of_probes.ask(answerer, probes, 64)}
    assert scores["cola"].value == 0.0 and scores["sst2"].value == 0.5
    assert scores["sst2"].normalised == 0.0


def test_the_threshold_is_chosen_by_the_training_part_alone(folder, answerer, tmp_path):
    shutil.copytree(folder, tmp_path / "other")
    dev = tmp_path / "other" / "CoLA" / "dev.tsv"
    turned = dev.read_text().replace("\t1\t", "\tx\t").replace("\t0\t", "\t1\t")
    dev.write_text(turned.replace("\tx\t", "\t0\t"))
    [score] = of_probes.ask(answerer, of_probes.read_probes(["cola"], str(folder)), 64)
    [other] = of_probes.ask(answerer, of_probes.read_probes(["cola"], str(tmp_path / "other")), 64)
    assert (score.notes[0], score.value) == (other.notes[0], pytest.approx(-other.value))


def test_thresholds_equal_a_slow_search():
    rng = np.random.default_rng(3)

    def matthews(is_above, labels):
        if is_above.all() or not is_above.any() or labels.all() or not labels.any():
            return 0.0
        return float(np.corrcoef(is_above, labels)[0, 1])

    for _ in range(30):
        scores, labels = np.round(rng.normal(size=12), 1), rng.integers(0, 2, 12)
        examples = [Example(str(n), {"sentence": ""}, int(label)) for n, label in enumerate(labels)]
        found = best_threshold([[np.array([-each])] for each in scores], examples)
        best = max(matthews(scores >= each, labels) for each in [-np.inf, *scores])
        assert matthews(scores >= found, labels) == pytest.approx(best, abs=1e-12)
