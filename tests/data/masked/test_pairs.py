"""Pairs of segments and of single sentences: formed as published, and a function of the seed."""

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chi2_contingency, chisquare

from sublayer.data.counter_rng import seeds
from sublayer.data.masked import segment_pairs as pairs_module
from sublayer.data.masked.segment_pairs import make_pairs
from sublayer.data.masked.segments import PairRule, Pairs, trim, trimmed_lengths
from sublayer.data.masked.sentence_pairs import pairs_of_sentences
from sublayer.errors import ConfigError, DataError

P_LOW = 1e-6


def made(documents, seed=0, epoch=0, **rule):
    """Make the pairs of documents given by the lengths of their sentences."""
    sentences = np.cumsum([0, *(length for document in documents for length in document)])
    firsts = np.cumsum([0, *(len(document) for document in documents)])[:-1]
    rule = PairRule(**({"task": "sop", "max_len": 23, "p_short": 0.0} | rule))
    return make_pairs(
        sentences[:-1], sentences[firsts], int(sentences[-1]), rule, seed=seed, epoch=epoch
    )


def rows(pairs):
    return list(zip(*(column.tolist() for column in pairs), strict=True))


def document_of(documents, tokens):
    ends = np.cumsum([sum(document) for document in documents])
    return np.searchsorted(ends, tokens, side="right")


def released_pairs(documents, number, rule, rng):
    """Follow the published procedure of a document step by step, one token at a time, in lists.

    ``documents`` are lists of sentences, which are lists of tokens. Chunks of one sentence are as
    ``rule.alone`` says.
    """
    document, examples = documents[number], []
    budget = rule.max_len - 3

    def draw_target():
        return rng.randint(2, budget) if rng.random() < rule.p_short else budget

    target = draw_target()
    chunk, i = [], 0
    while i < len(document):
        chunk.append(document[i])
        if i == len(document) - 1 or sum(map(len, chunk)) >= target:
            a_end = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
            a = [token for sentence in chunk[:a_end] for token in sentence]
            b, label = [token for sentence in chunk[a_end:] for token in sentence], 0
            is_random = len(chunk) > 1 and rule.task == "nsp" and rng.random() < 0.5
            if is_random or (len(chunk) == 1 and rule.alone == "negative"):
                other = rng.choice([n for n in range(len(documents)) if n != number])
                b, label = [], 1
                for sentence in documents[other][rng.randrange(len(documents[other])) :]:
                    b += sentence
                    if len(b) >= target - len(a):
                        break
                i -= len(chunk) - a_end
            elif len(chunk) == 1 or rule.task == "none":
                label = -1
            elif rule.task == "sop" and rng.random() < 0.5:
                a, b, label = b, a, 1
            while len(a) + len(b) > budget:
                longer = a if len(a) > len(b) else b
                longer.pop(0 if rng.random() < 0.5 else -1)
            if len(chunk) > 1 or rule.alone != "drop":
                examples.append((a, b, label))
            chunk = []
            if rule.target_per == "example":
                target = draw_target()
        i += 1
    return examples


def described(a_start, a_stop, b_start, b_stop, label):
    """Describe an example by its positions in a document of 25 tokens that the corpus repeats."""
    return (
        a_start % 25,
        a_stop - a_start,
        b_start % 25 if b_stop > b_start else -1,
        b_stop - b_start,
        label,
    )


@pytest.mark.parametrize(
    "task, alone, target_per",
    [
        ("none", "drop", "example"),
        ("sop", "keep", "document"),
        ("sop", "negative", "example"),
        ("nsp", "negative", "example"),
        ("nsp", "negative", "document"),
    ],
)
def test_pairs_are_distributed_as_by_the_published_procedure(task, alone, target_per):
    lengths, n_documents = [3, 1, 4, 2, 9, 2, 3, 1], 4000
    rule = {"task": task, "alone": alone, "target_per": target_per, "max_len": 12, "p_short": 0.3}
    ours = Counter(described(*row) for row in rows(made([lengths] * n_documents, **rule)))
    # Five documents are enough to draw others from: all are alike.
    starts = np.cumsum([0, *lengths]).tolist()
    corpus = [[list(range(25 * n + a, 25 * n + b)) for a, b in pairwise(starts)] for n in range(5)]
    rng = random.Random(0)
    theirs = Counter()
    for _ in range(n_documents):
        for a, b, label in released_pairs(corpus, 0, PairRule(**rule), rng):
            theirs[described(a[0], a[-1] + 1, *((b[0], b[-1] + 1) if b else (0, 0)), label)] += 1
    common = [example for example in ours | theirs if ours[example] + theirs[example] >= 25]
    assert sum(ours[example] for example in common) > 0.9 * ours.total()
    # The examples of one document depend on each other; no two of them begin with the same token.
    for first in sorted({example[0] for example in common}):
        table = [
            [counts[example] for example in common if example[0] == first]
            for counts in (ours, theirs)
        ]
        if len(table[0]) > 1:
            assert chi2_contingency(table).pvalue > P_LOW
    for part in (0, 4):
        for value in {example[part] for example in common}:
            n_ours, n_theirs = (
                sum(n for example, n in counts.items() if example[part] == value)
                for counts in (ours, theirs)
            )
            assert abs(n_ours - n_theirs) <= 6 * np.sqrt(n_ours + n_theirs)


def test_two_sentences_are_a_and_b_or_swapped():
    pairs = made([[3, 4], [5, 6]], task="none")
    assert rows(pairs) == [(0, 3, 3, 7, -1), (7, 12, 12, 18, -1)]
    assert [column.dtype for column in pairs] == [np.int64] * 4 + [np.int8]
    assert pairs.n_pairs == 2
    seen = set()
    for seed in range(30):
        seen |= set(rows(made([[3, 4]], seed=seed)))
    assert seen == {(0, 3, 3, 7, 0), (3, 7, 0, 3, 1)}


def test_pairs_do_not_depend_on_how_many_documents_are_planned_at_once(monkeypatch):
    documents = [[3, 4, 2] * (n % 5 + 1) for n in range(40)]
    for task in ("sop", "nsp"):
        whole = made(documents, task=task)
        for size in (1, 7, 50):
            monkeypatch.setattr(pairs_module, "_BLOCK_SENTENCES", size)
            assert all(
                np.array_equal(a, b) for a, b in zip(whole, made(documents, task=task), strict=True)
            )
        monkeypatch.undo()


def test_the_draws_are_these_numbers():
    # Written down once: a change of them would change every run's data without a word.
    documents = [[5, 9, 4, 7, 8, 3], [6, 2, 9]]
    assert rows(made(documents, p_short=0.3)) == [
        (18, 25, 4, 17, 1),
        (25, 33, 33, 33, -1),
        (33, 36, 36, 36, -1),
        (44, 53, 36, 44, 1),
    ]
    assert rows(made(documents, p_short=0.3, task="nsp", seed=1)) == [
        (2, 15, 18, 25, 0),
        (25, 33, 33, 33, -1),
        (33, 36, 36, 36, -1),
        (36, 42, 42, 53, 0),
    ]


corpora = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=12), min_size=2, max_size=8)


@given(
    documents=corpora,
    task=st.sampled_from(["none", "sop", "nsp"]),
    alone=st.sampled_from(["keep", "negative"]),
    target_per=st.sampled_from(["example", "document"]),
    max_len=st.integers(5, 60),
    p_short=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 10),
)
def test_pairs_lie_in_documents_fit_and_have_the_labels_of_what_they_are(
    documents, task, alone, target_per, max_len, p_short, seed
):
    if task == "none":
        alone = "keep"
    pairs = made(
        documents,
        seed,
        task=task,
        alone=alone,
        target_per=target_per,
        max_len=max_len,
        p_short=p_short,
    )
    a, a_stop, b, b_stop, label = pairs
    assert (a < a_stop).all()
    assert (b <= b_stop).all()
    assert (a_stop - a + b_stop - b <= max_len - 3).all()
    has_b = b_stop > b
    of_a, of_b = document_of(documents, a), document_of(documents, b)
    assert np.array_equal(of_a, document_of(documents, a_stop - 1))
    assert np.array_equal(of_b[has_b], document_of(documents, b_stop[has_b] - 1))
    assert (np.diff(of_a) >= 0).all()
    assert set(of_a.tolist()) == set(range(len(documents)))
    assert np.array_equal(label == -1, np.ones_like(has_b) if task == "none" else ~has_b)
    is_from_elsewhere = has_b & (of_a != of_b)
    assert (label[is_from_elsewhere] == 1).all()
    is_inside = has_b & ~is_from_elsewhere
    is_swapped = is_inside & (b < a)
    assert (b[is_inside & ~is_swapped] >= a_stop[is_inside & ~is_swapped]).all()
    assert (a[is_swapped] >= b_stop[is_swapped]).all()
    if task == "sop":
        assert np.array_equal(label[is_inside] == 1, is_swapped[is_inside])
    else:
        assert not is_swapped.any()
        assert np.array_equal(label == 1, is_from_elsewhere)


@given(
    documents=corpora,
    task=st.sampled_from(["none", "sop"]),
    max_len=st.integers(5, 60),
    seed=st.integers(0, 10),
)
def test_every_token_is_used_once_but_those_that_are_cut(documents, task, max_len, seed):
    n_tokens = sum(map(sum, documents))
    uses = np.zeros(n_tokens, dtype=int)
    for a, a_stop, b, b_stop, _ in rows(
        made(documents, seed, task=task, max_len=max_len, p_short=0.3)
    ):
        uses[a:a_stop] += 1
        uses[b:b_stop] += 1
    assert uses.max() == 1
    # A chunk exceeds its target by less than its last sentence: with one longer than any text, none
    # is cut.
    uncut = made(documents, seed, task=task, max_len=n_tokens + 3)
    assert sum(a_stop - a + b_stop - b for a, a_stop, b, b_stop, _ in rows(uncut)) == n_tokens


def test_a_single_sentence_stands_alone_or_is_dropped():
    # 30 tokens for a budget of 20: A is cut at both ends.
    for task in ("none", "sop", "nsp"):
        a, a_stop, b, b_stop, label = rows(made([[30], [2, 2]], task=task))[0]
        assert (a_stop - a, b_stop - b, label) == (20, 0, -1)
        assert 0 <= a <= 10
    documents = [[3], [2, 2], [30, 4, 4], [5, 30]]
    assert made(documents, alone="drop", task="none").a_start.tolist() == [3, 37, 45]
    assert made([[3], [4]], alone="drop").n_pairs == 0


def test_a_random_b_is_drawn_from_every_other_document_and_each_of_its_sentences_alike():
    documents = [[10, 10], [5] * 3, [7], [2, 2]]
    first = [made(documents, task="nsp", seed=seed) for seed in range(1500)]
    starts = Counter(int(pairs.b_start[0]) for pairs in first if pairs.label[0] == 1)
    assert abs(starts.total() - 750) < 5 * np.sqrt(375)
    shares = {20: 1 / 9, 25: 1 / 9, 30: 1 / 9, 35: 1 / 3, 42: 1 / 6, 44: 1 / 6}
    assert starts.keys() == shares.keys()
    expected = [share * starts.total() for share in shares.values()]
    assert chisquare([starts[b] for b in shares], expected).pvalue > P_LOW


def test_negatives_from_the_same_document_are_far_from_a():
    lengths = np.random.default_rng(0).integers(1, 12, 400).tolist()
    pairs = made([lengths], task="nsp", negatives="anywhere")
    is_negative = pairs.label == 1
    a_start, a_stop, b_start, b_stop, _ = (column[is_negative] for column in pairs)
    distance = np.where(b_start > a_start, b_start - a_stop, a_start - b_stop)
    assert is_negative.sum() > 50
    assert distance.min() >= 23
    assert (b_stop > b_start).all()
    assert (b_start < a_start).any() and (b_start > a_start).any()
    # Without room for the distance, B is a sentence that is not beside A.
    for seed in range(30):
        for a, a_stop, b, b_stop, label in rows(
            made([[5] * 5], task="nsp", negatives="anywhere", seed=seed)
        ):
            if label == 1:
                assert b >= a_stop + 5 or b_stop <= a - 5


def test_without_a_sentence_for_it_a_negative_is_left_unlabelled():
    seen = set()
    for seed in range(30):
        seen |= set(rows(made([[3, 4]], task="nsp", negatives="anywhere", seed=seed)))
    assert {row[4] for row in seen} == {-1, 0}
    assert {row[:2] for row in seen if row[4] == -1} == {(0, 3), (3, 7)}


@pytest.mark.parametrize(
    ("documents", "rule", "error", "message"),
    [
        ([], {}, DataError, "no sentences to make pairs of: the text is empty"),
        ([[3, 4, 5]], {"task": "nsp"}, DataError, "next-sentence pairs need two documents"),
        ([[3, 4]], {"alone": "negative"}, DataError, "pairs for single sentences need two doc"),
        ([[3, 4]], {"max_len": 4}, ConfigError, "max_len = 4 must be at least 5"),
        ([[3, 4]], {"p_short": 1.1}, ConfigError, "p_short = 1.1 must be from 0 to 1"),
        ([[3, 4]], {"task": "none", "alone": "negative"}, ConfigError, "alone = negative"),
    ],
)
def test_texts_and_rules_without_pairs_are_refused(documents, rule, error, message):
    with pytest.raises(error, match=message):
        made(documents, **rule)
    assert made([[3, 4]], max_len=5, p_short=1.0, negatives="anywhere").n_pairs >= 1


lengths = st.integers(0, 60)


def pairs_of(a_length, b_length, count=1):
    a, b = np.full(count, 100), np.full(count, 1000)
    return Pairs(a, a + a_length, b, b + b_length, np.zeros(count, dtype=np.int8))


@given(a=lengths, b=lengths, budget=st.integers(2, 70))
def test_what_is_kept_is_what_dropping_from_the_longer_leaves(a, b, budget):
    a_left, b_left = a, b
    while a_left + b_left > budget:
        if a_left > b_left:
            a_left -= 1
        else:
            b_left -= 1
    a_length, b_length = trimmed_lengths(pairs_of(a, b), budget)
    assert (a_length.tolist(), b_length.tolist()) == ([a_left], [b_left])


def test_each_token_dropped_is_the_first_or_the_last_by_a_coin_in_a_and_b_alike():
    bits = seeds(0, 0, 0, 4000)
    pairs = trim(pairs_of(12, 7, 4000), np.full(4000, 4), np.full(4000, 7), bits)
    assert (pairs.a_stop - pairs.a_start == 4).all()
    assert set(pairs.b_start.tolist()) == {1000}
    counts = np.bincount(pairs.a_start - 100, minlength=9)
    assert chisquare(counts, binom.pmf(np.arange(9), 8, 0.5) * 4000).pvalue > P_LOW
    pairs = trim(pairs_of(9, 9, 4000), np.full(4000, 8), np.full(4000, 8), bits)
    counts = Counter(zip(pairs.a_start.tolist(), pairs.b_start.tolist(), strict=True))
    assert len(counts) == 4
    assert chisquare(list(counts.values())).pvalue > P_LOW


def paired(lengths, **settings):
    starts = np.cumsum([0, *lengths[:-1]])
    settings = {"max_len": 384, "seed": 0, "epoch": 0} | settings
    return pairs_of_sentences(starts, sum(lengths), **settings)


def test_every_sentence_but_the_last_is_first_once_and_every_one_but_the_first_is_second_once():
    lengths = np.random.default_rng(0).integers(1, 40, 501).tolist()
    pairs = paired(lengths)
    starts = np.cumsum([0, *lengths])
    assert pairs.a_start.tolist() == starts[:500].tolist()
    assert pairs.a_stop.tolist() == starts[1:501].tolist()
    assert sorted(pairs.b_start.tolist()) == starts[1:501].tolist()
    assert np.array_equal(pairs.b_stop, starts[np.searchsorted(starts, pairs.b_start) + 1])


def test_the_label_is_zero_exactly_where_b_follows_a():
    for n_sentences in (2, 3, 4, 11):
        for seed in range(50):
            pairs = paired([3] * n_sentences, seed=seed)
            assert np.array_equal(pairs.label == 0, pairs.b_start == pairs.a_stop)
            assert set(pairs.label.tolist()) <= {0, 1}
    # Of the 1,000 that are permuted, one keeps its successor by chance, on average.
    assert 1000 <= np.count_nonzero(paired([3] * 2001).label == 0) <= 1007


def test_the_moved_half_and_its_order_are_uniform():
    # Five sentences, four pairs: two of them trade successors, or not: 6 halves, each in two
    # orders.
    seen = [tuple((paired([1] * 5, seed=seed).b_start - 1).tolist()) for seed in range(3000)]
    counts = Counter(seen)
    trades = [counts[second] for second in counts if second != (0, 1, 2, 3)]
    assert len(trades) == 6
    expected = np.array([6, 1, 1, 1, 1, 1, 1]) * 250
    assert chisquare([counts[0, 1, 2, 3], *trades], expected).pvalue > P_LOW
    first, epoch = paired([3] * 200), paired([3] * 200, epoch=1)
    assert all(np.array_equal(a, b) for a, b in zip(first, paired([3] * 200), strict=True))
    assert not np.array_equal(first.b_start, epoch.b_start)


def kept(pairs):
    return (pairs.a_stop - pairs.a_start).tolist(), (pairs.b_stop - pairs.b_start).tolist()


def test_the_longer_sentence_is_cut_first():
    # A budget of 17: 20 and 5 fit as 12 and 5, whichever is first; 5 and 12 fit as they are.
    assert kept(paired([20, 5], max_len=20)) == ([12], [5])
    assert kept(paired([5, 20], max_len=20)) == ([5], [12])
    assert kept(paired([5, 12], max_len=20)) == ([5], [12])


def test_what_exceeds_two_equal_sentences_is_split_by_a_coin():
    # 30 and 22 for 37: both are cut to 22, then 7 tokens between them.
    seen = [kept(paired([30, 22], max_len=40, seed=seed)) for seed in range(2000)]
    assert all(a[0] + b[0] == 37 for a, b in seen)
    counts = np.bincount([22 - a[0] for a, _ in seen], minlength=8)
    assert chisquare(counts, binom.pmf(np.arange(8), 7, 0.5) * 2000).pvalue > P_LOW


@given(
    lengths=st.lists(st.integers(1, 30) | st.integers(500, 600), min_size=2, max_size=12),
    max_len=st.integers(5, 40),
    seed=st.integers(0, 100),
)
def test_pairs_fit_and_no_sentence_is_cut_to_nothing(lengths, max_len, seed):
    pairs = paired(lengths, max_len=max_len, seed=seed)
    a_length, b_length = (np.array(column) for column in kept(pairs))
    starts = np.cumsum([0, *lengths])
    first = np.arange(len(lengths) - 1)
    second = np.searchsorted(starts, pairs.b_start, side="right") - 1
    assert (starts[first] <= pairs.a_start).all()
    assert (pairs.a_stop <= starts[first + 1]).all()
    assert (pairs.b_stop <= starts[second + 1]).all()
    assert (a_length >= 1).all()
    assert (b_length >= 1).all()
    whole = np.diff(starts)[first] + np.diff(starts)[second]
    assert np.array_equal(a_length + b_length, np.minimum(whole, max_len - 3))


def test_texts_without_two_sentences_and_lengths_without_room_are_refused():
    with pytest.raises(DataError, match="no sentences to make pairs of"):
        pairs_of_sentences(np.zeros(0, dtype=np.int64), 0, seed=0, epoch=0)
    with pytest.raises(DataError, match="next-sentence pairs need two sentences"):
        paired([7])
    with pytest.raises(ConfigError, match="max_len = 4 must be at least 5"):
        paired([7, 7], max_len=4)
