"""Pairs are formed as published, a pure function of seed and epoch."""

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare

from sublayer.data.masked import segment_pairs as pairs_module
from sublayer.data.masked.segments import PairRule
from sublayer.errors import DataError
from tests.data.masked.pair_rows import P_LOW, document_of, made, rows


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


@pytest.mark.parametrize("target_per", ["example", "document"])
@pytest.mark.parametrize(
    "task, alone", [("none", "drop"), ("sop", "keep"), ("sop", "negative"), ("nsp", "negative")]
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


def test_two_sentences_are_a_and_b():
    pairs = made([[3, 4], [5, 6]], task="none")
    assert rows(pairs) == [(0, 3, 3, 7, -1), (7, 12, 12, 18, -1)]
    assert [column.dtype for column in pairs] == [np.int64] * 4 + [np.int8]
    assert pairs.n_pairs == 2


def test_a_swapped_pair_has_its_second_half_first():
    seen = set()
    for seed in range(30):
        seen |= set(rows(made([[3, 4]], seed=seed)))
    assert seen == {(0, 3, 3, 7, 0), (3, 7, 0, 3, 1)}


def test_chunks_are_filled_up_to_their_target():
    # A budget of 20: 8 + 8 + 4 reaches it, 9 + 12 exceeds it and is cut, 3 + 4 is what remains.
    pairs = made([[8, 8, 4, 9, 12, 3, 4]], task="none")
    assert pairs.a_start[0] == 0
    assert pairs.b_stop[0] == 20
    assert (pairs.a_stop - pairs.a_start)[1:].tolist() == [9, 3]
    assert (pairs.b_stop - pairs.b_start)[1:].tolist() == [11, 4]
    assert pairs.a_start[2] == 41
    assert pairs.b_start[1] in (29, 30)


def test_where_a_chunk_is_divided_is_uniform():
    # Five sentences of 2 tokens in a budget of 10: A has 1 to 4 of them.
    pairs = made([[2] * 5] * 4000, task="none", max_len=13)
    counts = Counter((pairs.a_stop - pairs.a_start).tolist())
    assert sorted(counts) == [2, 4, 6, 8]
    assert chisquare(list(counts.values())).pvalue > P_LOW


@pytest.mark.parametrize("target_per", ["example", "document"])
def test_short_targets_are_uniform_from_two_tokens_to_the_budget(target_per):
    # Sentences of one token: a first chunk is exactly as long as its target; a budget of 9.
    pairs = made([[1] * 9] * 4000, max_len=12, p_short=0.5, target_per=target_per, task="none")
    is_first = pairs.a_start % 9 == 0
    lengths = (pairs.b_stop - pairs.a_start)[is_first]
    expected = np.full(8, 0.5 / 8)
    expected[-1] += 0.5
    assert chisquare(np.bincount(lengths, minlength=10)[2:], expected * 4000).pvalue > P_LOW


def test_a_target_is_drawn_for_each_example_or_once_per_document():
    for target_per, n_documents_of_one_length in (("example", 0), ("document", 50)):
        pairs = made([[1] * 1000] * 50, max_len=12, p_short=1.0, target_per=target_per, task="none")
        lengths = pairs.b_stop - pairs.a_start
        # The last chunk is what remains.
        per_document = [set(lengths[pairs.a_start // 1000 == n][:-1].tolist()) for n in range(50)]
        assert sum(len(seen) == 1 for seen in per_document) == n_documents_of_one_length
        assert set.union(*per_document) == set(range(2, 10))


def test_labels_are_balanced():
    for task in ("sop", "nsp"):
        labels = made([[4] * 50] * 400, task=task).label
        n_labelled = np.count_nonzero(labels >= 0)
        assert abs(np.count_nonzero(labels == 1) - n_labelled / 2) < 2.5 * np.sqrt(n_labelled)


def test_what_a_document_gives_does_not_depend_on_the_others():
    document = np.random.default_rng(0).integers(1, 12, 60).tolist()
    for task in ("none", "sop"):
        one, other = (
            made([before, document, [2, 2]], task=task, p_short=0.3)
            for before in ([4], [3, 9, 2, 30, 1])
        )
        seen = [
            [
                tuple(token - start for token in row[:4]) + row[4:]
                for row in rows(pairs)
                if start <= row[0] < stop
            ]
            for pairs, start, stop in ((one, 4, 4 + sum(document)), (other, 45, 45 + sum(document)))
        ]
        assert seen[0] == seen[1]
        assert len(seen[0]) > 10


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


def test_pairs_are_a_function_of_seed_and_epoch():
    documents = [[3, 4, 2, 8, 6]] * 30
    for task in ("sop", "nsp"):
        first = rows(made(documents, task=task))
        assert first == rows(made(documents, task=task))
        assert first != rows(made(documents, task=task, epoch=1))
        assert first != rows(made(documents, task=task, seed=1))
        assert rows(made(documents, task=task, epoch=1)) != rows(made(documents, task=task, seed=1))


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


def test_an_empty_text_is_refused():
    with pytest.raises(DataError, match="no sentences to make pairs of: the text is empty"):
        made([])


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
