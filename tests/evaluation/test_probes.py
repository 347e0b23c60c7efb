"""Probes: what is asked, what texts cost behind prompts, and models that know all or nothing."""

import json
import shutil

import numpy as np
import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.evaluation.probes.decoder_nats import decoder_nats
from sublayer.evaluation.probes.query import EncodedQuery, Query, encode_queries
from sublayer.evaluation.probes.scoring import ask, read_probes
from sublayer.evaluation.probes.table import PROBES
from sublayer.evaluation.probes.target_nats import target_nats
from sublayer.model.build import build
from sublayer.tasks.example import Example

VOCAB_SIZE = 19


def model_of(vocab_size=VOCAB_SIZE, *, context=40, **fields):
    heads = {} if fields.get("kind") == "lstm" else {"n_heads": 2}
    config = ModelConfig(**{"n_layers": 2, "d_model": 8, **heads, **fields})
    return build(resolve_model(config, vocab_size=vocab_size, context=context), seed=0).eval()


def drawn_model_of(**fields):
    model, generator = model_of(**fields).double(), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.5, generator=generator)
    return model


def queries_of(seed=0):
    """Draw queries: prompts that several texts follow, that one follows, and short ones."""
    rng = np.random.default_rng(seed)

    def ids(n):
        return tuple(rng.integers(0, VOCAB_SIZE, n).tolist())

    queries = []
    for length in (9, 9, 9, 12, 20):
        prompt = ids(length)
        queries += [EncodedQuery(prompt, ids(n)) for n in (1, 4, 2, 7)]
    one = ids(10)
    queries += [EncodedQuery(one, ids(1)) for _ in range(20)]  # more than go behind one at a time
    queries += [EncodedQuery(ids(n), ids(5)) for n in (1, 3, 15)]
    queries += [EncodedQuery(ids(4), ()), EncodedQuery((3,), ids(3)), EncodedQuery((3,), ids(6))]
    return [queries[place] for place in rng.permutation(len(queries))]


@torch.inference_mode()
def slowly(predict, text):
    """Compute the nats of each token by a forward pass of its own, without any cache."""
    logits = [predict(text[:place]) for place in range(len(text))]
    pairs = zip(logits, text, strict=True)
    return [float(torch.logsumexp(each, 0) - each[token]) for each, token in pairs]


@pytest.mark.parametrize(
    "fields",
    [
        {"positions": "rotary"},
        {"positions": "relative"},
        {"block": "macaron", "share": "all", "softmax": "all", "norm_order": "post"},
        {"kind": "lstm"},
    ],
    ids=str,
)
def test_texts_behind_prompts_cost_what_they_do_token_by_token(fields):
    model, queries, done = drawn_model_of(**fields), queries_of(), []
    found = decoder_nats(model, queries, lambda *counts: done.append(counts))
    assert done[-1] == (len(queries), len(queries)) and done == sorted(done)
    for nats, query in zip(found, queries, strict=True):

        def predict(text, query=query):
            return model(torch.tensor([[*query.prompt, *text]])).logits[0, -1]

        assert nats == pytest.approx(slowly(predict, query.text), abs=1e-9)


def test_an_encoder_decoder_writes_the_text_behind_the_first_sentinel():
    model = drawn_model_of(kind="encoder-decoder", positions="relative", decoder_start="pad")
    queries = queries_of(1)
    found = target_nats(model, queries, first_id=0, sentinel_id=18)
    for nats, query in zip(found, queries, strict=True):

        def predict(text, query=query):
            source = torch.tensor([[*query.prompt, 18]])
            return model(source, target=torch.tensor([[0, 18, *text]])).logits[0, -1]

        assert nats == pytest.approx(slowly(predict, query.text), abs=1e-9)


def test_prompts_that_several_texts_follow_are_read_once(monkeypatch):
    model, n_read = drawn_model_of(), []
    hidden = model.hidden

    def counted(tokens, *rest, **settings):
        n_read.append(tokens.numel())
        return hidden(tokens, *rest, **settings)

    monkeypatch.setattr(model, "hidden", counted)
    decoder_nats(model, [EncodedQuery(tuple(range(10)), (n, 1, 2)) for n in range(4)])
    # The prompt, and of each text all but the last token.
    assert n_read == [10, 4 * 2]


def test_the_scored_text_begins_where_the_prompt_alone_ends():
    text = b"the film was very positive and the plot was very negative. " * 20
    bpe = train_tokenizer("bpe", [text], vocab_size=290)
    queries = [Query("the film was very", " positive"), Query("", "the film was")]
    behind, alone = encode_queries(queries, bpe, 64)
    assert bpe.decode(behind.prompt) == b"the film was very"
    assert bpe.decode(behind.text) == b" positive"
    assert alone.prompt == (bpe.end_id,) and bpe.decode(alone.text) == b"the film was"


def test_a_prompt_loses_its_beginning_by_the_longest_text_behind_it():
    raw = train_tokenizer("bytes", ())
    queries = [Query("abcdefgh", " x"), Query("abcdefgh", " xyz"), Query("abcd", " x")]
    first, second, third = encode_queries(queries, raw, 8)
    # The last of 4 tokens is not read, so that 5 of the prompt go before them.
    assert bytes(first.prompt) == bytes(second.prompt) == b"defgh"
    assert first.is_cut and second.is_cut and not third.is_cut
    assert bytes(third.prompt) == b"abcd"
    # A text that is longer than the context loses its end.
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
    passages = [
        {
            "id": f"middle{number}.txt",
            "article": f"The {animal} lives in the {place}.",
            "questions": [f"The {animal} lives in the _ .", f"Who lives in the {place}?"],
            "options": [["sea", place, "sky", "house"], ["ant", "bee", animal, "owl"]],
            "answers": ["B", "C"],
        }
        for number, (animal, place) in enumerate((("cow", "barn"), ("fox", "wood")))
    ]
    put("race/race_dev_middle.jsonl", *map(json.dumps, passages))
    texts = ["The cup fell on the rug because it was heavy."] * 2 + [
        "The cup is here and I took it"
    ]
    nouns, it = [("The cup", 0), ("the rug", 4), ("The cup", 0)], {"span2_text": "it"}
    it["span2_index"] = 7
    wsc = [
        {"text": text, "target": {"span1_text": noun, "span1_index": place, **it}, "idx": number}
        for number, (text, (noun, place)) in enumerate(zip(texts, nouns, strict=True))
    ]
    wsc = [json.dumps({**row, "label": row["idx"] != 1}) for row in wsc]
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
    return read_probes(list(PROBES), str(folder))


def texts(probes):
    """Return the right prompt and text of each example, by probe."""
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
    model = model_of(words.vocab_size, context=64, d_model=32)
    model.tokenizer = words
    return model


def test_a_model_that_knows_the_answers_by_heart_scores_1(probes, answerer):
    asked = texts(probes)
    # The queries are those of Radford et al.
    assert asked["sst2"][0] == ("a fine film very", " positive")
    assert asked["race"][0] == ("The cow lives in the barn. The cow lives in the", " barn")
    assert asked["race"][1] == ("The cow lives in the barn. Who lives in the barn?", " cow")
    assert asked["winograd"][0] == ("The cup fell on the rug because the cup", " was heavy.")
    assert asked["dpr"] == [("Ann told Eve that Ann", " won.")]
    [winograd] = [each for each in probes if each.probe.name == "winograd"]
    # What training and development both have is asked once; one row has no second candidate.
    assert winograd.items.left_out == {"its candidates are not two, of which one is right": 1}
    model = answerer.train()
    whole = {prompt + text: None for pairs in asked.values() for prompt, text in pairs}
    encoded = [model.tokenizer.encode(row.encode()).astype(np.int64) for row in whole]
    ids = [torch.from_numpy(row) for row in encoded]
    padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    targets = torch.nn.utils.rnn.pad_sequence([row[1:] for row in ids], True, -1)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(200):
        logits = model(padded[:, :-1]).logits.flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, targets.flatten(), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scores = {each.name: each for each in ask(model.eval(), probes, 64)}
    values = {name: score.value for name, score in scores.items()}
    assert values == pytest.approx(dict.fromkeys(PROBES, 1.0))
    assert scores["sst2"].normalised == pytest.approx(0.5 / 0.432)
    assert scores["winograd"].normalised is None


def test_a_uniform_model_scores_at_chance(probes, answerer):
    with torch.no_grad():
        answerer.embedding.weight.zero_()  # of equal logits
    scores = {each.name: each for each in ask(answerer, probes, 64)}
    assert scores["cola"].value == 0.0 and scores["sst2"].value == 0.5
    assert scores["sst2"].normalised == 0.0


def test_the_threshold_is_chosen_by_the_training_part_alone(folder, answerer, tmp_path):
    shutil.copytree(folder, tmp_path / "other")
    dev = tmp_path / "other" / "CoLA" / "dev.tsv"
    turned = dev.read_text().replace("\t1\t", "\tx\t").replace("\t0\t", "\t1\t")
    dev.write_text(turned.replace("\tx\t", "\t0\t"))
    [score] = ask(answerer, read_probes(["cola"], str(folder)), 64)
    [other] = ask(answerer, read_probes(["cola"], str(tmp_path / "other")), 64)
    assert (score.notes[0], score.value) == (other.notes[0], pytest.approx(-other.value))


def test_thresholds_equal_a_slow_search():
    rng, threshold = np.random.default_rng(3), PROBES["cola"].threshold

    def matthews(is_above, labels):
        if is_above.all() or not is_above.any() or labels.all() or not labels.any():
            return 0.0
        return float(np.corrcoef(is_above, labels)[0, 1])

    for _ in range(30):
        scores, labels = np.round(rng.normal(size=12), 1), rng.integers(0, 2, 12)
        examples = [Example(str(n), {"sentence": ""}, int(label)) for n, label in enumerate(labels)]
        found = threshold([[np.array([-each])] for each in scores], examples)
        best = max(matthews(scores >= each, labels) for each in [-np.inf, *scores])
        assert matthews(scores >= found, labels) == pytest.approx(best, abs=1e-12)
