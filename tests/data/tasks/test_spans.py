"""Answers decoded from the scores of tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.tasks.offsets import PlacedTokens, encode_with_offsets
from sublayer.data.tasks.spans import (
    best_starts,
    independent_candidates,
    independent_prediction,
    joint_candidates,
    joint_prediction,
    null_score,
    rank_spans,
)
from sublayer.data.tasks.windows import Window, best_windows, cut_windows
from sublayer.data.tokenizers.characters import ByteTokenizer

_OFFSET = 3
"""[CLS], one token of a question, [SEP]."""


def _placed(passage: str) -> PlacedTokens:
    return encode_with_offsets(ByteTokenizer(), passage)


def _row(length: int, **scores: float) -> np.ndarray:
    """Logits of a row of so many tokens and a [SEP], 0 but for columns such as ``c4``."""
    row = np.zeros(_OFFSET + length + 1)
    for column, score in scores.items():
        row[int(column[1:])] = score
    return row


def _ranked(passage: str, starts, ends, **rest):
    windows = (Window(0, len(passage)),)
    candidates = [independent_candidates(starts, ends)]
    return rank_spans(
        windows, candidates, offset=_OFFSET, placed=_placed(passage), passage=passage, **rest
    )


def test_the_best_span_is_the_highest_sum_of_a_start_and_an_end_behind_it():
    spans = _ranked("abcdef", _row(6, c4=5.0, c6=6.0), _row(6, c5=4.0, c3=9.0, c7=1.0))
    # Column 3 ends before both starts, so that "b" to "c" has 5 + 4, and "d" to "e" 6 + 1.
    assert (spans[0].text, spans[0].start, spans[0].score) == ("bc", 1, 9.0)
    assert spans[1].text == "a" and spans[1].score == 9.0
    assert sum(span.probability for span in spans) == pytest.approx(1)


def test_an_answer_lies_in_the_passage():
    # [CLS], the question and the last [SEP] are no answer, however high.
    spans = _ranked("ab", _row(2, c0=50, c1=60, c3=1), _row(2, c0=50, c5=40, c4=1))
    assert spans[0].text == "ab"
    assert all(0 <= span.start < 2 for span in spans)


def test_an_answer_has_at_most_so_many_tokens():
    passage = "x" * 40
    starts, ends = _row(40, c3=10), _row(40, c32=5, c33=6)
    assert _ranked(passage, starts, ends)[0].text == "x" * 30
    assert len(_ranked(passage, starts, ends, most_tokens=31)[0].text) == 31


def test_whitespace_is_no_answer_and_no_part_of_one():
    spans = _ranked(" a b", _row(4, c3=9), _row(4, c3=9, c4=8))
    assert (spans[0].text, spans[0].start) == ("a", 1)
    assert all(span.text == span.text.strip() for span in spans)


def test_a_start_counts_in_the_window_that_scores_it():
    passage = "abcdefgh"
    windows = cut_windows(8, 6, stride=2)
    assert windows == (Window(0, 6), Window(2, 6))
    # Token 2, "c", is first of the second window, and is scored in the first: by columns 5 and 3.
    first, second = _row(6, c5=3.0), _row(6, c3=99.0)
    candidates = [independent_candidates(each, each) for each in (first, second)]
    spans = rank_spans(
        windows, candidates, offset=_OFFSET, placed=_placed(passage), passage=passage
    )
    assert (spans[0].text, spans[0].score) == ("c", 6.0)
    assert max(span.score for span in spans) == 6.0


def test_no_candidate_is_the_empty_answer():
    spans = _ranked("", np.zeros(4), np.zeros(4))
    assert spans == []
    prediction = independent_prediction(spans)
    assert (prediction.text, prediction.start) == ("", None)


def test_a_null_score_is_the_lowest_of_all_windows():
    starts = [np.array([3.0, 0.0]), np.array([1.0, 0.0])]
    ends = [np.array([2.0, 0.0]), np.array([1.5, 0.0])]
    assert null_score(starts, ends) == 2.5
    spans = _ranked("ab", _row(2, c3=4), _row(2, c4=4))
    prediction = independent_prediction(spans, 2.5)
    assert (prediction.text, prediction.no_answer) == ("ab", 2.5 - 8)
    assert joint_prediction(spans, [0.5, -1.0, 2.0]).no_answer == -1.0


def test_joint_ends_are_those_of_their_starts():
    starts = np.log(np.array([0.1, 0.1, 0.1, 0.4, 0.3, 0.0 + 1e-30]))
    columns = best_starts(starts, 2)
    assert columns.tolist() == [3, 4]
    ends = np.full((2, 6), -1e30)
    ends[0, 3:5] = np.log([0.2, 0.8])
    ends[1, 4] = 0.0
    candidates = joint_candidates(starts, columns, ends, n_ends=2)
    windows = (Window(0, 2),)
    spans = rank_spans(windows, [candidates], offset=3, placed=_placed("ab"), passage="ab")
    # 0.4 * 0.8 = 0.32, 0.3 * 1 and 0.4 * 0.2.
    assert [span.text for span in spans] == ["ab", "b", "a"]
    assert np.exp([span.score for span in spans]) == pytest.approx([0.32, 0.3, 0.08])


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 6), st.integers(0, 1000))
def test_decoding_equals_a_loop_over_all_pairs(n_tokens, room, stride, seed):
    generator = np.random.default_rng(seed)
    passage = "".join(generator.choice(list("ab c"), n_tokens))
    windows = cut_windows(n_tokens, room, stride)
    logits = [generator.normal(size=(2, _OFFSET + window.length + 1)) for window in windows]
    candidates = [independent_candidates(*pair, n_best=5) for pair in logits]
    spans = rank_spans(
        windows, candidates, offset=_OFFSET, placed=_placed(passage), passage=passage,
        most_tokens=4, n_best=3,
    )  # fmt: skip
    scored_in = best_windows(windows)
    expected = []
    for number, (window, (starts, ends)) in enumerate(zip(windows, logits, strict=True)):
        for start in sorted(range(len(starts)), key=lambda place: -starts[place])[:5]:
            for end in sorted(range(len(ends)), key=lambda place: -ends[place])[:5]:
                first, last = start - _OFFSET, end - _OFFSET
                if first < 0 or last >= window.length or not 0 <= last - first < 4:
                    continue
                if scored_in[first + window.start] != number:
                    continue
                text = passage[first + window.start : last + window.start + 1].strip()
                if text:
                    expected.append((starts[start] + ends[end], text))
    expected.sort(key=lambda each: -each[0])
    assert [(span.score, span.text) for span in spans] == expected[:3]
