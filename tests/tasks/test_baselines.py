"""Baselines of every kind of task, their parts against scikit-learn's, and examples held out."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model import Ridge as ScikitRidge

from sublayer.errors import DataError
from sublayer.tasks.baselines import overlap as module
from sublayer.tasks.baselines.linear import predict_classes
from sublayer.tasks.baselines.logistic import fit_logistic
from sublayer.tasks.baselines.overlap import FEATURES, Overlap
from sublayer.tasks.baselines.phrases import predict_spans
from sublayer.tasks.baselines.ridge import fit_ridge
from sublayer.tasks.baselines.table import BASELINES
from sublayer.tasks.baselines.tfidf import fit_tfidf
from sublayer.tasks.baselines.tokens import split_words
from sublayer.tasks.baselines.window import predict_choices, read_passage, score_window
from sublayer.tasks.division import held_out
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.registry import TASKS
from sublayer.tasks.task import Task

MAJORITY, WORDS = BASELINES["majority"], BASELINES["words"]
CLASSES = Task("x", "X", "", "classes", ("text",), ("accuracy",), labels=("no", "yes", "maybe"))
NUMBER = Task("x", "X", "", "number", ("text",), ("pearson",))
CHOICE = Task("x", "X", "", "choice", ("text",), ("accuracy",))


def _rows(texts, labels):
    pairs = enumerate(zip(texts, labels, strict=True))
    return [Example(str(n), {"text": text}, label) for n, (text, label) in pairs]


def test_the_majority_is_the_most_frequent_label_the_mean_or_the_first_sentence():
    train = _rows("abcd", [1, 0, 1, 2])
    predictions = MAJORITY.predict(CLASSES, train, train[:2])
    found = [(each.label, each.probabilities) for each in predictions]
    assert found == [(1, (0.25, 0.5, 0.25))] * 2
    numbers = _rows("abc", [1.0, 2.0, 6.0])
    assert MAJORITY.predict(NUMBER, numbers, numbers[:1])[0].label == 3
    example = Example("0", {"context": "He left. She came.", "question": "Who?"})
    for task, text in (("squad", "He left."), ("squad2", "")):
        assert MAJORITY.predict(TASKS[task], [], [example])[0].text == text
    # Of choices it is the place that is right most often.
    train = [Example(str(n), {"text": ""}, n, choices=("a", "b", "c")) for n in (2, 0, 2)]
    train.append(Example("3", {"text": ""}, choices=("a", "b"), answers=(Answer("b"),)))
    short = Example("4", {"text": ""}, choices=("a", "b"))
    predictions = MAJORITY.predict(CHOICE, train, [train[0], short])
    assert [each.label for each in predictions] == [2, 0]


def test_words_of_pairs_learn_whether_both_say_the_same():
    def pair(id_, names, first, second, *label):
        return Example(id_, {names[0]: first, names[1]: second}, *label)

    texts = [("a cat sat", "a cat sat", 0), ("a cat sat", "dogs ran off", 1)]
    texts += [(f"the animal{n} sleeps", f"an animal{n + n % 2} sleeps", n % 2) for n in range(30)]
    train = [pair(str(n), ("premise", "hypothesis"), *texts[n]) for n in range(32)]
    # A diagnostic set, whose fields have other names, is answered by what its task teaches.
    said = ("a cow ate", "it rained")
    scored = [pair(text, ("sentence1", "sentence2"), "a cow ate", text) for text in said]
    assert [each.label for each in WORDS.predict(TASKS["axb"], train, scored)] == [0, 1]


@pytest.mark.parametrize("task", [CLASSES, NUMBER])
def test_rows_without_words_are_answered_and_those_without_labels_teach_nothing(task):
    train = _rows(["", "", ""], [1, 0, 1])
    assert len(WORDS.predict(task, train, train)) == 3
    assert WORDS.predict(task, train, []) == []
    train = [Example("0", {"text": "x"}, is_labelled=False)]
    for baseline in (each for each in BASELINES.values() if task.kind in each.kinds):
        with pytest.raises(DataError, match="no training rows with a label"):
            baseline.predict(task, train, train)


@pytest.mark.parametrize(("metric", "p_rare"), [("accuracy", 0.1), ("matthews", 0.5)])
def test_labels_that_are_rare_count_as_much_where_the_metric_says_so(metric, p_rare):
    train = _rows(["plain words"] * 10, [0] * 9 + [1])
    task = Task("x", "X", "", "classes", ("text",), (metric,), labels=("a", "b"))
    (prediction,) = predict_classes(task, train, _rows(["plain words"], [0]))
    assert prediction.probabilities[1] == pytest.approx(p_rare, abs=0.01)


RARE, COMMON, UNKNOWN = np.log(3 / 2) + 1, np.log(3 / 3) + 1, np.log(3) + 1
"""Weights of a word of one of two texts, of both and of none."""


OVERLAPS = [
    ("the cat sat the", "the cat ran",
     {"shared words, of the second's": 2 / 3, "shared words, of the first's": 2 / 3,
      "shared words, of both's": 2 / 4, "shared word pairs, of the second's": 1 / 2,
      "log of the first's length": np.log(5), "log of the second's length": np.log(4)}),
    ("the cat", "the unicorn",
     {"shared words by rarity, of the second's": COMMON / (COMMON + UNKNOWN),
      "log of the rarity that the second has alone": np.log1p(UNKNOWN),
      "log of the rarity that the first has alone": np.log1p(RARE)}),
    ("cat cat the", "cat the",
     {"cosine of TF-IDF": (2 * RARE**2 + COMMON**2)
      / np.hypot(2 * RARE, COMMON) / np.hypot(RARE, COMMON)}),
    ("the cat never sat", "the cat sat",
     {"negation in the first": 1, "negation in the second": 0, "negation in one alone": 1}),
    ("", "", dict.fromkeys(FEATURES, 0)),
]  # fmt: skip


@pytest.mark.parametrize("most_rows", [2, 100])
def test_the_overlap_of_two_texts_by_hand(monkeypatch, most_rows):
    monkeypatch.setattr(module, "_MOST_ROWS", most_rows)
    overlap = Overlap([["the", "cat", "sat"], ["the", "dog"]])
    firsts, seconds = ([each[n].split() for each in OVERLAPS] for n in (0, 1))
    rows = overlap.features(firsts, seconds).tolist()
    for row, (*_, features) in zip(rows, OVERLAPS, strict=True):
        found = dict(zip(FEATURES, row, strict=True))
        assert {name: found[name] for name in features} == pytest.approx(features)


PASSAGE = (
    "The tower was built in 1889 by Gustave Eiffel. It is visited by seven million people. "
    "Paris, where it stands, is the capital of France."
)


def _asked(question, passage=PASSAGE, answers=()):
    return Example("0", {"context": passage, "question": question}, answers=answers)


@pytest.mark.parametrize("question, passage, answer", [
    ("When was the tower built?", PASSAGE, "1889"),
    ("Who built the tower?", PASSAGE, "Gustave Eiffel"),
    ("Is it what it is?", "It is what it is.", "It is what it is."),
    ("Who?", "", ""),
])  # fmt: skip
def test_the_answer_is_a_phrase_of_the_sentence_with_the_questions_words(question, passage, answer):
    (prediction,) = predict_spans(TASKS["squad"], [], [_asked(question, passage)])
    assert prediction.text == answer
    assert not answer or passage[prediction.start :].startswith(answer)


def test_where_questions_may_have_no_answer_the_threshold_is_learned():
    known = _asked("When was the tower built?", answers=(Answer("1889"),))
    unknown = _asked("When was the senate of Rome abolished?")
    first, second = predict_spans(TASKS["squad"], [], [known, unknown])
    assert 0 <= first.no_answer < second.no_answer <= 1
    predictions = predict_spans(TASKS["squad2"], [known, unknown], [known, unknown])
    assert [each.text for each in predictions] == ["1889", ""]


@pytest.mark.parametrize("passage, wanted, value", [
    # Two words: "a b" has log(1 + 1/1) and log(1 + 1/2), which is more than of "b c".
    ("a b x b c", "ac", np.log(2)),
    ("a b x b c", "ab", np.log(2) + np.log(1.5)),
    ("a b x b c", "bcayzw", 2 * np.log(2) + 2 * np.log(1.5)),  # longer than the passage
    ("", "a", 0),
])  # fmt: skip
def test_a_window_is_as_long_as_there_are_wanted_words(passage, wanted, value):
    assert score_window(read_passage(passage), frozenset(wanted)) == pytest.approx(value)


@pytest.mark.parametrize("name, texts, choices, chosen", [
    ("race", ("Tom has a red hat. Ann has a blue coat.", "Ann has a _ ."),
     ("red hat", "blue coat"), 1),
    ("record", ("Rome fell. Paris won the cup.", "The cup went to @placeholder"),
     ("Rome", "Paris"), 1),
    ("story_cloze", ("It rained.",), ("Yes", "No"), 0),
])  # fmt: skip
def test_the_choice_fills_the_blank_and_ties_go_to_the_first(name, texts, choices, chosen):
    fields = dict(zip(TASKS[name].fields, texts, strict=True))
    (prediction,) = predict_choices(TASKS[name], [Example("0", fields, choices=choices)])
    assert prediction.label == chosen


TEXTS = ["The cat sat on the mat.", "the dog, the cat", "", "a dog is a dog is a dog", "mat"]
OTHERS = ["the cat is a unicorn", "unicorn", "", "sat on the mat . a dog is", "dog the the the"]


@pytest.mark.parametrize("n_words", [1, 3])
def test_tf_idf_is_scikit_learns_column_by_column(n_words):
    settings = {"token_pattern": None, "lowercase": False, "ngram_range": (1, n_words)}
    theirs = TfidfVectorizer(tokenizer=split_words, **settings)
    expected = theirs.fit_transform(TEXTS).toarray()
    tfidf, rows = fit_tfidf([split_words(text) for text in TEXTS], n_words=n_words)
    ours = rows.toarray()
    # Their columns are in another order: as a word stands alone, so do its columns.
    order, our_order = (np.lexsort(np.round(each, 9)) for each in (expected, ours))
    np.testing.assert_allclose(ours[:, our_order], expected[:, order], atol=1e-12)
    other = tfidf.transform([split_words(text) for text in OTHERS]).toarray()
    np.testing.assert_allclose(other @ ours.T, theirs.transform(OTHERS).toarray() @ expected.T)


def test_words_are_in_lower_case_and_no_feature_reaches_into_the_next_text():
    assert split_words("Don't go, Zoë!") == ["don", "'", "t", "go", ",", "zoë", "!"]
    for texts, n_words, shape, other, n_known in (
        ([["a", "b"], ["c"]], 2, (2, 4), ["b", "c"], 2),  # a, b, c and "a b"
        ([[], []], 3, (2, 0), ["a"], 0),
    ):
        tfidf, rows = fit_tfidf(texts, n_words=n_words)
        found = tfidf.transform([other])
        assert (rows.shape, found.shape, found.nnz) == (shape, (1, shape[1]), n_known)


def _drawn(n_classes, n=130, n_features=7):
    generator = np.random.default_rng(n_classes)
    features = generator.normal(size=(n, n_features)) * (generator.random((n, n_features)) < 0.5)
    scores = features @ generator.normal(size=(n_features, n_classes))
    scores[:, 0] += 1  # classes of unlike frequency
    labels = (scores + generator.gumbel(size=scores.shape)).argmax(1)
    return csr_matrix(features), labels


@pytest.mark.parametrize("n_classes, weight", [(2, None), (2, "balanced"), (5, "balanced")])
def test_logistic_regression_is_scikit_learns(n_classes, weight):
    features, labels = _drawn(n_classes)
    theirs = LogisticRegression(C=0.7, tol=1e-9, max_iter=5000, class_weight=weight)
    expected = theirs.fit(features, labels).predict_proba(features)
    settings = {"inverse_penalty": 0.7, "is_balanced": bool(weight), "tolerance": 1e-9}
    model, dense = (
        fit_logistic(each, labels, n_classes=n_classes, **settings)
        for each in (features, features.toarray())
    )
    np.testing.assert_allclose(model.probabilities(features), expected, atol=1e-6)
    np.testing.assert_allclose(dense.weights, model.weights, atol=1e-6)


def test_a_label_that_was_never_seen_is_never_predicted():
    features, labels = _drawn(2)
    found, plain, alone = (
        fit_logistic(features, each, n_classes=n, inverse_penalty=1).probabilities(features)
        for each, n in ((np.array([1, 4])[labels], 6), (labels, 2), (np.ones_like(labels), 2))
    )
    np.testing.assert_array_equal(found[:, [1, 4]], plain)
    assert (found[:, [0, 2, 3, 5]] == 0).all() and (alone == [0, 1]).all()


@pytest.mark.parametrize("penalty", [0.1, 30])
def test_ridge_regression_is_scikit_learns(penalty):
    features, labels = _drawn(4)
    dense, numbers = features.toarray(), labels + 10.0
    expected = ScikitRidge(penalty).fit(dense, numbers)
    model = fit_ridge(features, numbers, penalty=penalty)
    np.testing.assert_allclose(model.weights, expected.coef_, atol=1e-6)
    assert model.bias == pytest.approx(expected.intercept_)
    np.testing.assert_allclose(model.predict(features), expected.predict(dense), atol=1e-6)


def _examples(n, *, n_labels=2, n_sources=None):
    labels = [int(row % 10 >= 7) if n_labels == 2 else row % n_labels for row in range(n)]
    sources = ["" if n_sources is None else f"article {row % n_sources}" for row in range(n)]
    texts = [{"sentence": f"sentence {row}"} for row in range(n)]
    return [Example(str(row), texts[row], labels[row], source=sources[row]) for row in range(n)]


def test_classes_keep_their_shares_and_rare_labels_and_numbers_are_held_out_too():
    taken = held_out(_examples(1000), 0.1, 10_000)
    counts = np.bincount([int(row % 10 >= 7) for row in np.flatnonzero(taken)])
    assert counts.tolist() == [70, 30]
    assert held_out(_examples(200, n_labels=100), 0.1, 1000).sum() == 20
    numbers = [Example(str(row), {"text": str(row)}, row / 7) for row in range(100)]
    assert held_out(numbers, 0.1, 1000).sum() == 10


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_a_marked_source_and_repeated_texts_stand_on_one_side_in_any_order(share):
    # The same text in two articles binds both; a pair in either order is one text.
    left, right = ({f"sentence{n}": text for n, text in enumerate(texts, 1)}
                   for texts in (("left", "right"), ("right", "left")))  # fmt: skip
    examples = [
        *_examples(300, n_sources=30),
        *(Example("a", {"sentence": "twice"}, n, source=f"article {n + 1}") for n in (0, 1)),
        *(Example("c", fields, n) for n, fields in enumerate((left, right))),
        *(Example("e", {"sentence": f"e{n}"}, 1, group="one") for n in (0, 1)),
    ]
    taken = held_out(examples, share, 1000)
    sides = {(each.source, bool(out)) for each, out in zip(examples, taken, strict=True)}
    assert len({side for side in sides if side[0]}) == 30
    assert taken[300::2].tolist() == taken[301::2].tolist()
    assert abs(taken.sum() - share * 306) <= 10
    # Neither the order of rows nor their ids decide.
    order = np.random.default_rng(3).permutation(306)
    shuffled = [replace(examples[row], id=f"x{row}") for row in order]
    assert np.array_equal(held_out(shuffled, share, 1000), taken[order])


@pytest.mark.parametrize("n, n_sources, at_most, expected", [
    (0, 1, 99, 0), (40, 1, 99, 0), (40, 2, 99, 20), (400, 400, 5, 5), (400, 40, 19, 10),
])  # fmt: skip
def test_one_source_is_whole_and_never_are_there_more_than_allowed(n, n_sources, at_most, expected):
    assert held_out(_examples(n, n_sources=n_sources), 0.1, at_most).sum() == expected
