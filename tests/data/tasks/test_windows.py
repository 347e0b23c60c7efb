"""Windows of a passage, and where its answer stands in each."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.tasks.offsets import encode_with_offsets
from sublayer.data.tasks.windows import (
    Window,
    best_windows,
    cut_windows,
    gold_places,
    gold_tokens,
)
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.errors import ConfigError
from sublayer.tasks.example import Answer


def test_windows_stand_a_stride_apart_and_the_last_ends_with_the_passage():
    assert cut_windows(300, 200) == (Window(0, 200), Window(128, 172))
    assert cut_windows(200, 200) == (Window(0, 200),)
    assert cut_windows(201, 200) == (Window(0, 200), Window(128, 73))
    assert cut_windows(10, 4, stride=3) == (Window(0, 4), Window(3, 4), Window(6, 4))
    # A stride that is longer than a window would leave tokens out.
    assert cut_windows(10, 4, stride=128) == (Window(0, 4), Window(4, 4), Window(8, 2))
    assert cut_windows(0, 4) == (Window(0, 0),)
    with pytest.raises(ConfigError, match="no room for a passage"):
        cut_windows(10, 0)


def test_a_token_is_scored_where_its_poorer_side_has_most_context():
    # Tokens 3 to 5 stand in both: by their poorer sides 2, 1, 0 in the first, 0, 1, 2 in the
    # second, which is longer: +0.06 against +0.07.
    windows = (Window(0, 6), Window(3, 7))
    assert best_windows(windows).tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert best_windows((Window(0, 4), Window(2, 4))).tolist() == [0, 0, 0, 1, 1, 1]
    # Of equals the first: token 2 has 1 on its poorer side in both.
    assert best_windows((Window(0, 4), Window(1, 4))).tolist() == [0, 0, 0, 1, 1]


@given(st.integers(0, 60), st.integers(1, 20), st.integers(1, 20))
def test_every_token_is_scored_once_in_a_window_that_has_it(n_tokens, room, stride):
    windows = cut_windows(n_tokens, room, stride)
    assert all(window.length <= room for window in windows)
    best = best_windows(windows)
    assert len(best) == n_tokens
    for place, number in enumerate(best.tolist()):
        assert windows[number].start <= place < windows[number].stop


def test_an_answer_that_a_window_has_only_in_part_is_cls():
    window = Window(10, 5)
    assert gold_places(window, (10, 14), offset=7) == (7, 11)
    assert gold_places(window, (12, 12), offset=7) == (9, 9)
    assert gold_places(window, (9, 12), offset=7) == (0, 0)
    assert gold_places(window, (12, 15), offset=7) == (0, 0)
    assert gold_places(window, None, offset=7) == (0, 0)


def test_the_first_gold_answer_is_found_by_its_place_or_else_by_its_text():
    passage = "aab ab"
    placed = encode_with_offsets(ByteTokenizer(), passage)
    assert gold_tokens(placed, passage, [Answer("ab", 4), Answer("aab", 0)]) == (4, 5)
    assert gold_tokens(placed, passage, [Answer("ab")]) == (1, 2)
    assert gold_tokens(placed, passage, [Answer("cd")]) is None
    assert gold_tokens(placed, passage, []) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert/vocab.txt", "albert/spiece.model"])
def test_every_answer_of_the_shared_piece_stands_whole_in_a_window_that_scores_it(real_data, name):
    tokenizer = load_tokenizer(real_data / "vocab" / name)
    path = real_data / "squad" / "squad_v1.1_dev_240_paragraphs.json"
    n_answers = 0
    for article in json.loads(path.read_text("utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            passage = paragraph["context"]
            placed = encode_with_offsets(tokenizer, passage)
            for question in paragraph["qas"]:
                answer = question["answers"][0]
                gold = gold_tokens(
                    placed, passage, [Answer(answer["text"], answer["answer_start"])]
                )
                assert gold is not None
                n_asked = min(64, len(tokenizer.encode(question["question"].encode())))
                windows = cut_windows(len(placed.ids), 256 - n_asked - 3)
                scored = windows[best_windows(windows)[gold[0]]]
                start, end = gold_places(scored, gold, n_asked + 2)
                assert 0 < start <= end < 256
                n_answers += 1
    assert n_answers == 1190
