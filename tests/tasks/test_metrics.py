"""Baselines; examples held out; metrics against scikit-learn, their errors, models in pairs."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics import CHRF
from scipy.stats import binomtest, bootstrap, pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from sublayer.errors import DataError
from sublayer.tasks import baselines as module
from sublayer.tasks import scoring
from sublayer.tasks.baselines import BASELINES, FEATURES, Overlap, score_windows, split_words
from sublayer.tasks.metrics import METRICS, Answered, RougeWords, is_equal, normalise, spearman
from sublayer.tasks.own_table import METRICS as OF_KINDS
from sublayer.tasks.registry import TASKS
from sublayer.tasks.scoring import paired, points, score, with_threshold
from sublayer.tasks.task import Answer, Example, Prediction, Task, held_out

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
    said = ("a cow ate", "it rained")
    scored = [pair(text, ("sentence1", "sentence2"), "a cow ate", text) for text in said]
    assert [each.label for each in WORDS.predict(TASKS["axb"], train, scored)] == [0, 1]


@pytest.mark.parametrize("task", [CLASSES, NUMBER])
def test_rows_without_words_are_answered_and_those_without_labels_teach_nothing(task):
    train = _rows(["", "", ""], [1, 0, 1])
    assert (len(WORDS.predict(task, train, train)), WORDS.predict(task, train, [])) == (3, [])
    train = [Example("0", {"text": "x"}, is_labelled=False)]
    for baseline in (each for each in BASELINES.values() if task.kind in each.kinds):
        with pytest.raises(DataError, match="no training rows with a label"):
            baseline.predict(task, train, train)


@pytest.mark.parametrize(("metric", "p_rare"), [("accuracy", 0.1), ("matthews", 0.5)])
def test_labels_that_are_rare_count_as_much_where_the_metric_says_so(metric, p_rare):
    train = _rows(["plain words"] * 10, [0] * 9 + [1])
    task = Task("x", "X", "", "classes", ("text",), (metric,), labels=("a", "b"))
    (prediction,) = WORDS.predict(task, train, _rows(["plain words"], [0]))
    assert prediction.probabilities[1] == pytest.approx(p_rare, abs=0.01)


RARE, COMMON, UNKNOWN = np.log(3 / 2) + 1, np.log(3 / 3) + 1, np.log(3) + 1
OVERLAPS = [
    ("the cat sat the", "the cat ran",
     {"shared words, of the second's": 2 / 3, "shared words, of the first's": 2 / 3,
      "shared words, of both's": 2 / 4, "shared word pairs, of the second's": 1 / 2,
      "log of the first's length": np.log(5), "log of the second's length": np.log(4)}),
    ("the cat", "the unicorn",
     {"shared words by rarity, of the second's": COMMON / (COMMON + UNKNOWN),
      "log of the rarity of words only in the second": np.log1p(UNKNOWN),
      "log of the rarity of words only in the first": np.log1p(RARE)}),
    ("cat cat the", "cat the",
     {"cosine of TF-IDF": (2 * RARE**2 + COMMON**2)
      / np.hypot(2 * RARE, COMMON) / np.hypot(RARE, COMMON)}),
    ("the cat never sat", "the cat sat",
     {"negation in the first": 1, "negation in the second": 0, "negation in only one": 1}),
    ("", "", dict.fromkeys(FEATURES, 0)),
]  # fmt: skip


@pytest.mark.parametrize("most_rows", [2, 100])
def test_the_overlap_of_two_texts_by_hand(monkeypatch, most_rows):
    monkeypatch.setattr(module, "_MOST_ROWS", most_rows)
    firsts, seconds = ([each[n].split() for each in OVERLAPS] for n in (0, 1))
    rows = Overlap([["the", "cat", "sat"], ["the", "dog"]]).features(firsts, seconds).tolist()
    for row, (*_, features) in zip(rows, OVERLAPS, strict=True):
        found = dict(zip(FEATURES, row, strict=True))
        assert {name: found[name] for name in features} == pytest.approx(features)


PASSAGE = "The tower was built in 1889 by Gustave Eiffel. It is visited by seven million people. "
PASSAGE += "Paris, where it stands, is the capital of France."


def _asked(question, passage=PASSAGE, answers=()):
    return Example("0", {"context": passage, "question": question}, answers=answers)


@pytest.mark.parametrize("question, passage, answer", [
    ("When was the tower built?", PASSAGE, "1889"),
    ("Who built the tower?", PASSAGE, "Gustave Eiffel"), ("Who is Al?", "Oh Bo. Al is Cy.", "Cy"),
    ("Is it what it is?", "It is what it is.", "It is what it is."), ("Who?", "", ""),
])  # fmt: skip
def test_the_answer_is_a_phrase_of_the_sentence_with_the_questions_words(question, passage, answer):
    (prediction,) = WORDS.predict(TASKS["squad"], [], [_asked(question, passage)])
    assert prediction.text == answer
    assert not answer or passage[prediction.start :].startswith(answer)


def test_answers_do_not_follow_the_order_of_a_set():
    code = """
from sublayer.tasks.baselines import BASELINES
from sublayer.tasks.registry import TASKS
from sublayer.tasks.task import Example
words = "one two three four five six seven".split()
passage = " ".join(word + " " for n, word in enumerate(words, 1) for _ in range(n))
fields = {"context": f"{passage}. One two three five.", "question": f"eight {' '.join(words)}?"}
print(BASELINES["words"].predict(TASKS["squad"], [], [Example("0", fields)]))
"""
    command, outputs = [sys.executable, "-c", code], set()
    for seed in range(4):
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        done = subprocess.run(command, capture_output=True, check=True, env=environment)
        outputs.add(done.stdout)
    assert len(outputs) == 1


def test_where_questions_may_have_no_answer_the_threshold_is_learned():
    known = _asked("When was the tower built?", answers=(Answer("1889"),))
    unknown = _asked("When was the senate of Rome abolished?")
    first, second = WORDS.predict(TASKS["squad"], [], [known, unknown])
    assert 0 <= first.no_answer < second.no_answer <= 1
    predictions = WORDS.predict(TASKS["squad2"], [known, unknown], [known, unknown])
    assert [each.text for each in predictions] == ["1889", ""]


@pytest.mark.parametrize("passage, wanted, value", [
    # Two words: "a b" has log(1 + 1/1) and log(1 + 1/2), which is more than of "b c".
    ("a b x b c", "ac", np.log(2)), ("a b x b c", "ab", np.log(2) + np.log(1.5)),
    ("a b x b c", "bcayzw", 2 * np.log(2) + 2 * np.log(1.5)),  # longer than the passage
    ("", "a", 0),
])  # fmt: skip
def test_a_window_is_as_long_as_there_are_wanted_words(passage, wanted, value):
    assert score_windows(passage, [frozenset(wanted)]) == [pytest.approx(value)]


@pytest.mark.parametrize("name, texts, choices, chosen", [
    ("race", ("Tom has a red hat. Ann has a blue coat.", "Ann has a _ ."),
     ("red hat", "blue coat"), 1),
    ("record", ("Rome fell. Paris won the cup.", "The cup went to @placeholder"),
     ("Rome", "Paris"), 1), ("story_cloze", ("It rained.",), ("Yes", "No"), 0),
])  # fmt: skip
def test_the_choice_fills_the_blank_and_ties_go_to_the_first(name, texts, choices, chosen):
    fields = dict(zip(TASKS[name].fields, texts, strict=True))
    (prediction,) = WORDS.predict(TASKS[name], [], [Example("0", fields, choices=choices)])
    assert prediction.label == chosen


def test_words_are_in_lower_case_with_their_accents_and_marks():
    assert split_words("Don't go, Zoë!") == ["don", "'", "t", "go", ",", "zoë", "!"]


def test_a_label_that_was_never_seen_is_never_predicted():
    texts = ["a cat", "the cat", "a dog", "the dog"]
    for labels, seen in (([0, 0, 2, 2], [0, 2]), ([2, 2, 2, 2], [2])):
        rows = _rows(texts, labels)
        predictions = WORDS.predict(CLASSES, rows, rows)
        assert [each.label for each in predictions] == labels
        for each in predictions:
            assert sum(each.probabilities) == pytest.approx(1)
            assert [n for n, p in enumerate(each.probabilities) if p] == seen


def _examples(n, *, n_labels=2, n_sources=None):
    labels = [int(row % 10 >= 7) if n_labels == 2 else row % n_labels for row in range(n)]
    sources = ["" if n_sources is None else f"article {row % n_sources}" for row in range(n)]
    texts = [{"sentence": f"sentence {row}"} for row in range(n)]
    return [Example(str(row), texts[row], labels[row], source=sources[row]) for row in range(n)]


def test_classes_keep_their_shares_and_rare_labels_and_numbers_are_held_out_too():
    taken = held_out(_examples(1000), 0.1, 10_000)
    assert np.bincount([int(row % 10 >= 7) for row in np.flatnonzero(taken)]).tolist() == [70, 30]
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
    assert taken[300::2].tolist() == taken[301::2].tolist() and abs(taken.sum() - share * 306) <= 10
    order = np.random.default_rng(3).permutation(306)
    shuffled = [replace(examples[row], id=f"x{row}") for row in order]
    assert np.array_equal(held_out(shuffled, share, 1000), taken[order])


@pytest.mark.parametrize("n, n_sources, at_most, expected", [
    (0, 1, 99, 0), (40, 1, 99, 0), (40, 2, 99, 20), (400, 400, 5, 5), (400, 40, 19, 10),
])  # fmt: skip
def test_one_source_is_whole_and_never_are_there_more_than_allowed(n, n_sources, at_most, expected):
    assert held_out(_examples(n, n_sources=n_sources), 0.1, at_most).sum() == expected


def labelled(labels, groups=()):
    rows = enumerate(zip(labels, groups or [""] * len(labels), strict=True))
    return [Example(str(index), {}, label, group=group) for index, (label, group) in rows]


def said(labels):
    return [Prediction(label=label) for label in labels]


def _scored(gold, predicted, *names, groups=()):
    return score(labelled(gold, groups), said(predicted), names)


def _values(gold, predicted, *names):
    found = _scored(gold, predicted, *names).metrics
    return {name: each.value for name, each in found.items()}


LISTS = st.lists(st.sampled_from(["the", "cat", "a", "Matte,", "Größe", "猫", "!"]), max_size=9)


@given(st.lists(st.tuples(st.lists(LISTS, min_size=1, max_size=3), LISTS), min_size=1, max_size=5))
@settings(max_examples=30, deadline=None)
def test_metrics_of_written_texts_are_sacrebleus_and_rouge_scores(rows):
    texts = [([" ".join(each) for each in golds], " ".join(said)) for golds, said in rows]
    examples = [Example("", {}, answers=tuple(map(Answer, golds))) for golds, _ in texts]
    found = score(examples, [Prediction(text=text) for _, text in texts], OF_KINDS["text"])
    most = max(len(golds) for golds, _ in texts)
    streams = [[g[n] if n < len(g) else None for g, _ in texts] for n in range(most)]
    chrf = CHRF().corpus_score([text for _, text in texts], streams).score / 100
    assert found.value == found.metrics["chrf"].value == pytest.approx(chrf, abs=1e-12)
    same = [any(text.split() == gold.split() for gold in golds) for golds, text in texts]
    assert found.metrics["exact_text"].value == pytest.approx(np.mean(same))
    if all(text.isascii() for golds, said in texts for text in (*golds, said)):
        for name in ("rouge1", "rouge2", "rougeL"):
            scorer = RougeScorer([name])
            each = [scorer.score_multi(golds, text)[name].fmeasure for golds, text in texts]
            assert found.metrics[name].value == pytest.approx(np.mean(each))


def test_rouge_has_letters_of_all_scripts():
    found = RougeWords().tokenize("Größe_x: naïve, हिन्दी में 猫が")
    assert found == ["größe", "x", "naïve", "हिन्दी", "में", "猫", "が"]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_metrics_of_classes_are_scikit_learns(n_classes):
    generator = np.random.default_rng(n_classes)
    for n, p_right in product((2, 3, 7, 40, 500), (0.0, 0.3, 0.9)):
        gold, other = generator.integers(n_classes, size=(2, n))
        both = gold.tolist(), np.where(generator.random(n) < p_right, gold, other).tolist()
        expected = {"accuracy": accuracy_score(*both)}
        expected["macro_f1"] = f1_score(*both, average="macro", zero_division=0)
        if all(len({*each}) > 1 for each in both):
            expected["matthews"] = matthews_corrcoef(*both)
        if n_classes == 2:
            expected["f1"] = f1_score(*both, zero_division=0)
        assert _values(*both, *expected) == pytest.approx(expected)


@pytest.mark.parametrize("name, gold, predicted, groups, value", [
    # Of a label that there is not the opposite counts.
    ("f1", [0, 1, 1, 0], [0, 1, 2, 2], "", 0.5),
    # T5's; class 1 is never predicted; what is no label is missed, and is no class.
    ("macro_f1", [0, 1, 1, 2], [0, 0, 2, 2], "", 4 / 9),
    ("macro_f1", [0, 1, 1, 2], [0, None, None, 2], "", 2 / 3),
    # What is no label is a class of its own.
    ("matthews", [0, 1, 1, 0, 1], [0, 1, None, 0, 0], "",
     matthews_corrcoef([0, 1, 1, 0, 1], [0, 1, -1, 0, 0])),
    # A text that is no number is T5's -1.
    ("pearson", [0.0, 2.0, 5.0, 3.0], [0.5, None, 4.0, 3.5], "",
     pearsonr([0.0, 2.0, 5.0, 3.0], [0.5, -1, 4.0, 3.5]).statistic),
    # Three questions: all right; one of two; all right.
    ("f1a", [0, 1, 1, 1, 0], [0, 1, 1, 0, 0], "aabbc", 4 / 5),
    ("group_exact_match", [0, 1, 1, 1, 0], [0, 1, 1, 0, 0], "aabbc", 2 / 3),
    ("group_exact_match", [0, 1, 1, 0, 1], [0, 1, 0, 0, 0], ["a", "b", "a", "", ""], 0.5),
    # Parity asks for the same, not for the right; two that are no label are not the same.
    ("gender_parity", [1, 1, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 1, 0], [*"112233", ""], 2 / 3),
])  # fmt: skip
def test_values_by_hand(name, gold, predicted, groups, value):
    found = _scored(gold, predicted, name, groups=groups)
    assert found.value == pytest.approx(value)
    assert found.n_outside == predicted.count(None) or 2 in predicted


@pytest.mark.filterwarnings("ignore::scipy.stats.NearConstantInputWarning")
@pytest.mark.parametrize(("times", "more"), [(-3, 1e6), (1e-9, 5), (1e200, 0)])
def test_correlations_are_scipys_with_ties_at_any_scale(times, more):
    generator = np.random.default_rng(0)
    for n, decimals in product((5, 60, 700), (0, 1, 9)):
        x = generator.normal(size=n).round(decimals)
        y = (x + generator.normal(size=n)).round(decimals)
        found = _values(x.tolist(), (times * y + more).tolist(), "pearson", "spearman")
        # What is left of 1e-9 beside 5 has seven digits.
        pearson, rank = (np.sign(times) * of(x, y).statistic for of in (pearsonr, spearmanr))
        assert found["pearson"] == pytest.approx(pearson, abs=1e-6)
        assert found["spearman"] == pytest.approx(rank)


@pytest.mark.parametrize("name, gold, predicted, reason", [
    ("matthews", [0, 1, 1], [1, 1, 1], "all predictions are the same"),
    ("pearson", [1, 2, 3], [0.1, 0.1, 0.1], "all predictions are the same"),
    ("pearson", [1, 2, 3], [0.1, float("nan"), 1], "1 of the predicted numbers are not finite"),
    ("gender_parity", [1, 1], [1, 1], "no two examples form a pair"),
])  # fmt: skip
def test_a_metric_without_a_value_says_why(name, gold, predicted, reason):
    found = _scored(gold, predicted, name)
    assert (found.value, found.metrics[name].reason) == (0, reason) and not found.standard_error


def test_schools_of_race_are_beside_its_score():
    examples = [Example(id_, {}, 0) for id_ in ("high1.txt.0", "middle2.txt.0", "middle3.txt.1")]
    found = score(examples, said([0, 1, 0]), TASKS["race"].metrics)
    assert found.value == found.metrics["accuracy"].value == pytest.approx(2 / 3)
    assert (found.metrics["middle"].value, found.metrics["high"].value) == (0.5, 1.0)
    pair = paired(examples, said([0, 1, 0]), said([1, 1, 0]), TASKS["race"].metrics)
    assert (pair.value, pair.n_only_first) == (found.value, 1)


def test_influences_are_slopes_by_weight():
    generator = np.random.default_rng(1)
    gold = generator.integers(6, size=30)
    predicted = gold + generator.integers(4, size=30)
    examples = labelled(gold.tolist(), [str(index // 2) for index in range(30)])
    contributions = spearman(Answered(examples, said(predicted.tolist())))
    more, less = (contributions.at(np.ones((15, 15)) + step * np.eye(15)) for step in (1e-6, -1e-6))
    np.testing.assert_allclose(contributions.influences(), 15 * (more - less) / 2e-6, atol=1e-7)
    # Three of four right: 1 - 3/4 and 0 - 3/4; of a score the mean of its metrics' influences.
    found = _scored([1, 1, 0, 0], [1, 1, 0, 1], "accuracy", "f1").influences
    assert found["accuracy"] == pytest.approx([0.25, 0.25, 0.25, -0.75])
    assert found[""] == pytest.approx((found["accuracy"] + found["f1"]) / 2)


def test_the_metrics_of_all_tasks_are_known():
    assert {name for task in TASKS.values() for name in task.metrics} <= METRICS.keys()


V1 = ("exact_match", "token_f1")
V2 = ("exact_match_v2", "token_f1_v2")


def asked(golds):
    return [Example(str(n), {}, answers=tuple(map(Answer, each))) for n, each in enumerate(golds)]


def test_an_answer_is_normalised_in_the_scripts_order_and_of_a_choice_its_text_is_scored():
    texts = {"The-Cat": "thecat", "  An  apple,\ta\u00a0day ": "apple day", "‘the’ “a”": "‘ ’ “ ”"}
    assert {text: normalise(text) for text in texts} == texts
    golds = (Answer("the new york"), Answer("NY"))
    example = Example("0", {}, choices=("New York", "Iran"), answers=golds)
    found = score([example] * 3, [*said([0, 1]), Prediction(text="york")], V1)
    values = [each.value for each in found.metrics.values()]
    assert values == pytest.approx([1 / 3, (1 + 2 / 3) / 3]) and found.n_outside == 1


_T5 = [["big moose", "hippo"], ["correct1"], ["correct2.1", "correct2.2"], ["a", "b"]]
_WRITTEN = ["‘a big  Moose!‘", "wrong", "correct2.2", "c"]


@pytest.mark.parametrize("golds, texts, metrics, values", [
    (_T5, _WRITTEN, V1, (0.25, 0.35)), ([["abc abd", "$$$$"]], ["abd"], V1, (0, 2 / 3)),
    # 2 of 3 words, and 2 of 4: a repeated word counts as often as both have it.
    ([["x x y z"]], ["x x x"], V1, (0, 4 / 7)),
    # Equal, but no word is shared; "the" is no gold answer of 2.0, but where it is alone.
    ([["the", "cat"]], ["an"], V1, (1, 0)), ([["the", "cat"]], ["an"], V2, (0, 0)),
    ([["the"]], ["an"], V2, (1, 1)), ([[], []], ["", "cat"], V2, (0.5, 0.5)),
    # A question without prediction is wrong in 1.1, and left out in 2.0.
    ([["cat"], ["dog"]], ["cat", None], V1, (0.5, 0.5)),
    ([["cat"], ["dog"]], ["cat", None], V2, (1, 1)),
])  # fmt: skip
def test_answers_score_as_in_squads_scripts(golds, texts, metrics, values):
    predictions = [None if text is None else Prediction(text=text) for text in texts]
    found = score(asked(golds), predictions, metrics)
    assert [each.value for each in found.metrics.values()] == pytest.approx(values)


def _told(*answers):
    return [Prediction(text=text, no_answer=no_answer) for text, no_answer in answers]


@pytest.mark.parametrize("golds, predictions, exact, f1", [
    ([["cat"], [], ["dog"], []],
     _told(("cat", -2.0), ("bird", 1.0), ("dog", 0.5), ("fish", 3.0)), (1, 0.5), (1, 0.5)),
    ([["big cat"], []], _told(("cat", 1.0), ("dog", 2.0)), (0.5, 0), ((2 / 3 + 1) / 2, 1)),
    # Equal scores are walked in order, so the threshold may promise too much.
    ([["cat"], []], _told(("cat", 1.0), ("dog", 1.0)), (1, 1), (1, 1)),
    # As in the script two unanswerable questions over one prediction are more than all.
    ([[], []], [*_told(("", 0.0)), None], (2, 0), (2, 0)),
])  # fmt: skip
def test_the_best_thresholds_by_hand(golds, predictions, exact, f1):
    assert scoring.best_threshold(asked(golds), predictions, is_equal) == exact
    assert scoring.best_threshold(asked(golds), predictions) == pytest.approx(f1)


def test_the_best_score_is_the_best_of_all_thresholds():
    at = with_threshold(_told(("cat", 1.0), ("dog", 1.5)), 1.0)
    assert [each.text for each in at] == ["cat", ""]
    generator = np.random.default_rng(0)
    examples = asked([["cat"] if generator.random() < 0.5 else [] for _ in range(200)])
    right = generator.random(200) < 0.7
    predictions = _told(*(("cat" if each else "dog", generator.normal()) for each in right))
    scores = {
        each.no_answer: score(examples, with_threshold(predictions, each.no_answer), V2[:1]).value
        for each in predictions
    }
    best, threshold = scoring.best_threshold(examples, predictions, is_equal)
    assert best == pytest.approx(max(scores.values())) == scores[threshold]
    # "the" is an answer, by which nothing but an empty one is right.
    examples = asked([["big cat"], ["the"], [], []])
    predictions = _told(("cat", 0), ("", 0), ("", 0), ("dog", 0))
    found = scoring.by_answerable(examples, predictions)
    parts = {answerable: (part.n, part.exact, part.f1) for answerable, part in found.items()}
    assert parts == {True: pytest.approx((2, 0.5, (2 / 3 + 1) / 2)), False: (2, 0.5, 0.5)}
    assert scoring.by_answerable(examples[:1], predictions[:1]).keys() == {True}


def _drawn_answers(n, seed, p_right=0.8):
    generator = np.random.default_rng(seed)
    gold = generator.integers(2, size=n)
    return gold.tolist(), np.where(generator.random(n) < p_right, gold, 1 - gold).tolist()


def test_the_error_of_accuracy_is_that_of_a_proportion():
    # SST-2's 872 sentences at 82.0: 1.3 points.
    found = _scored([1] * 872, [1] * 715 + [0] * 157, "accuracy")
    assert (points(found.value), points(found.standard_error)) == ("82.0", "1.3")
    assert found.standard_error == np.sqrt(715 / 872 * 157 / 872 / 872)
    assert _scored([1], [1], "accuracy").standard_error is None
    assert _scored([1, 1], [1, 0], "accuracy").standard_error == np.sqrt(1 / 8)
    with pytest.raises(DataError, match="2 of 2 examples have no label"):
        score([Example("0", {}, is_labelled=False)] * 2, said([0, 1]), ["accuracy"])
    for arguments in ((score, [], []), (paired, [], [], [])):
        with pytest.raises(DataError, match="no examples"):
            arguments[0](*arguments[1:], ["accuracy"])
    # That of a mean knows that its metrics agree, and that groups are drawn whole.
    gold, predicted = _drawn_answers(200, 3)
    alone = _scored(gold, predicted, "macro_f1")
    mean = _scored(gold, predicted, "macro_f1", "accuracy")
    assert mean.value == pytest.approx(np.mean([each.value for each in mean.metrics.values()]))
    assert mean.standard_error == pytest.approx(alone.standard_error, rel=0.05)
    repeated = [np.repeat(each, 4).tolist() for each in (gold, predicted)]
    groups = [str(index) for index in range(200) for _ in range(4)]
    once, four = _scored(gold, predicted, "f1"), _scored(*repeated, "f1", groups=groups)
    assert four.value == once.value
    assert four.standard_error == pytest.approx(once.standard_error, rel=0.01)


@pytest.mark.parametrize("name", ["matthews", "spearman"])
def test_the_error_of_others_is_how_far_they_spread_over_sets(name):
    found = []
    for seed in range(200):
        gold, predicted = _drawn_answers(200, seed)
        if name == "spearman":
            noise = np.random.default_rng(seed).normal(size=(2, 200))
            gold, predicted = noise[0].tolist(), (noise[0] + noise[1]).tolist()
        found.append(_scored(gold, predicted, name))
    spread = np.std([each.value for each in found])
    assert np.mean([each.standard_error for each in found]) == pytest.approx(spread, rel=0.13)


def test_mcnemars_p_is_that_of_rows_that_one_alone_has_right_and_the_interval_scipys():
    ours, theirs = [1] * 15 + [0] * 5, [1] * 8 + [0] * 9 + [1] * 3
    found = paired(labelled([1] * 20), said(ours), said(theirs), ["accuracy"])
    assert (found.n_only_first, found.n_only_other, found.is_decided) == (7, 3, False)
    # Seven of ten heads or a rarer number: 2 * (120 + 45 + 10 + 1) / 1024.
    assert found.p_mcnemar == pytest.approx(352 / 1024) == binomtest(7, 10).pvalue
    assert found.difference == pytest.approx(0.2)
    gold, ours = _drawn_answers(50, 1)
    for name in ("accuracy", "f1", "matthews", "spearman"):
        found = paired(labelled(gold), said(ours), said(ours), [name])
        assert (found.difference, found.interval) == (0, (0, 0))
        assert found.p_mcnemar == (1 if name == "accuracy" else None)
    # The interval is SciPy's, and groups are drawn whole.
    draws = ((0.8, 1), (0.7, 2))
    both = [(np.random.default_rng(seed).random(300) < p).astype(int) for p, seed in draws]
    found = paired(labelled([1] * 300), *(said(each.tolist()) for each in both), ["accuracy"])
    generator = np.random.default_rng(0)
    drawn = bootstrap((both[0] - both[1],), np.mean, method="percentile", rng=generator)
    expected = tuple(drawn.confidence_interval)
    assert found.interval == pytest.approx(expected, abs=0.006)
    repeated = [said(np.repeat(each, 3).tolist()) for each in both]
    groups = [str(index) for index in range(300) for _ in range(3)]
    found = paired(labelled([1] * 900, groups), *repeated, ["accuracy"])
    assert found.interval == pytest.approx(expected, abs=0.01) and found.p_mcnemar is None
