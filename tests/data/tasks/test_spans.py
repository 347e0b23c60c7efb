"""Answers in passages: places of tokens, windows, rows of questions, and answers decoded."""

import json
import string
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from sublayer.data.subwords.subword import SubwordTokenizer
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
from sublayer.data.tasks.windows import Window, best_windows, cut_windows, gold_places, gold_tokens
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.errors import ConfigError
from sublayer.tasks.example import Answer
from tests.breadth import examples, rows

_TEXT = (
    "The Panthers' defense gave up just 308 points, ranking sixth. Tesla's machine — “to end” — "
    "cost 1,000,000 (about 6½ km²) in the 1980s; naïve cafés in the U.S. are fine.\n"
) * 20


def _library_unigram(model: Tokenizer) -> SubwordTokenizer:
    # T5's file of the tokenizers library, in short.
    scores = [(name, score) for name, score in model.scores()]
    library = tokenizers.Tokenizer(models.Unigram(scores, unk_id=model.unk_id))
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    return SubwordTokenizer(library)


_SIZES = {
    "characters": None,
    "bpe": 400,
    "wordpiece": 200,
    "unigram": 150,
    "word-bpe": 200,
    "moses-bpe": 200,
}

_NAMES = ("bytes", *_SIZES, "t5", "library unigram")


@cache
def _tokenizer(name: str) -> Tokenizer:
    if name == "bytes":
        return ByteTokenizer()
    if name == "t5":
        return train_tokenizer("unigram", [_TEXT.encode()], vocab_size=150, sentinels=4)
    if name == "library unigram":
        return _library_unigram(_tokenizer("t5"))
    return train_tokenizer(name, [_TEXT.encode()], vocab_size=_SIZES[name])


@pytest.mark.parametrize("name", rows(_NAMES, 5))
def test_a_word_is_found_in_its_tokens(name):
    tokenizer = _tokenizer(name)
    text = "In the 1980s Tesla's café, naïve Panthers scored\n\n  points."
    placed = encode_with_offsets(tokenizer, text)
    assert np.array_equal(placed.ids, tokenizer.encode(text.encode()))
    for word in ("Tesla", "café", "naïve", "Panthers", "points"):
        start = text.index(word)
        tokens = placed.covering(start, start + len(word))
        assert tokens is not None
        assert word in text[placed.slice(*tokens, text)]
        # No token of another word is taken for it.
        assert text[placed.slice(*tokens, text)].strip("'s,.") in (word, word.strip("s"))


def test_places_are_exact_where_every_byte_is_kept():
    text = "aé東b"
    placed = encode_with_offsets(ByteTokenizer(), text)
    assert placed.starts.tolist() == [0, 1, 1, 2, 2, 2, 3]
    assert placed.ends.tolist() == [1, 2, 2, 3, 3, 3, 4]
    placed = encode_with_offsets(_tokenizer("bpe"), _TEXT)
    joined = "".join(
        _TEXT[start:end] for start, end in zip(placed.starts, placed.ends, strict=True)
    )
    assert len(joined) >= len(_TEXT) and set(joined) == set(_TEXT)


def test_what_the_vocabulary_lacks_stands_for_what_lies_between(real_data):
    tokenizer = load_tokenizer(real_data / "vocab" / "albert" / "spiece.model")
    text = "Hello “É½” 1,000 東京, the  End"
    placed = encode_with_offsets(tokenizer, text)
    places = {
        tokenizer.names[id_]: text[start:end].strip()
        for id_, start, end in zip(placed.ids, placed.starts, placed.ends, strict=True)
        if id_ != tokenizer.unk_id
    }
    assert places["▁hello"] == "Hello"
    assert places["e"] == "É"
    assert places["1"] == "½" and places["2"] == "½"
    assert places["▁1,000"] == "1,000"
    assert places["▁the"] == "the"
    assert places["▁end"] == "End"
    unknown = placed.ids == tokenizer.unk_id
    covered = {text[a:b].strip() for a, b in zip(placed.starts, placed.ends, strict=True)}
    assert unknown.any() and "東京" in covered


def _texts() -> st.SearchStrategy[str]:
    letters = ("½", "ﬁ", "İ", "ß", "Σ", "ς", "a\u0301", "\u200b", "\u00ad", "東京", "😀", "▁")
    not_letters = ("\ud800", "\uffff", "\ufffd", "“", "’", "…", "''", "3,", "\u2028", "\n", " ")
    odd = st.sampled_from((*letters, *not_letters, "[SEP]", "<unk>", "##"))
    known = st.sampled_from(_TEXT.split(" "))
    return st.lists(st.one_of(odd, known, st.characters()), max_size=12).map("".join)


@pytest.mark.parametrize("name", rows(_NAMES, 5))
@examples(200)
@given(text=_texts())
def test_places_are_in_order_and_in_the_text(name, text):
    tokenizer = _tokenizer(name)
    placed = encode_with_offsets(tokenizer, text)
    assert np.array_equal(placed.ids, tokenizer.encode(text.encode("utf-8", "replace")))
    assert placed.ids.shape == placed.starts.shape == placed.ends.shape
    assert (np.diff(placed.starts) >= 0).all() and (np.diff(placed.ends) >= 0).all()
    assert (placed.starts <= placed.ends).all()
    assert (placed.starts >= 0).all() and (placed.ends <= len(text)).all()


def _gold_spans(real_data) -> Iterator[tuple[str, int, str]]:
    path = real_data / "squad" / "squad_v1.1_dev_240_paragraphs.json"
    for article in json.loads(path.read_text("utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                for answer in question["answers"]:
                    yield paragraph["context"], answer["answer_start"], answer["text"]


# How many of the 1,190 end inside a token: of the first two "7,000,000 square kilometres (2,70",
# which its annotator cut short; of byte pairs those whose last token has marks behind it.
@pytest.mark.parametrize(("name", "n_inside"), [("bert/vocab.txt", 1), ("bytes", 0), ("bpe", 12)])
def test_every_answer_of_the_shared_piece_comes_back_from_its_tokens(real_data, name, n_inside):
    spans = list(_gold_spans(real_data))
    if "/" in name:
        tokenizer = load_tokenizer(real_data / "vocab" / name)
    else:
        contexts = dict.fromkeys(context.encode() for context, _, _ in spans)
        tokenizer = train_tokenizer(name, contexts, vocab_size=3000 if name == "bpe" else None)
    placed = {}
    others = []
    for context, start, answer in spans:
        if context not in placed:
            placed[context] = encode_with_offsets(tokenizer, context)
        tokens = placed[context].covering(start, start + len(answer))
        assert tokens is not None
        found = placed[context].slice(*tokens, context)
        assert found.start <= start and found.stop >= start + len(answer.rstrip())
        if context[found] != answer:
            others.append((answer, context[found]))
    assert len(spans) == 1190 and len(others) == n_inside
    marks = string.punctuation + string.digits
    assert all(answer.strip(marks) == found.strip(marks) for answer, found in others)


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


_OFFSET = 3


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


def test_an_answer_lies_in_the_passage_and_has_at_most_so_many_tokens():
    # [CLS], the question and the last [SEP] are no answer, however high.
    spans = _ranked("ab", _row(2, c0=50, c1=60, c3=1), _row(2, c0=50, c5=40, c4=1))
    assert spans[0].text == "ab"
    assert all(0 <= span.start < 2 for span in spans)
    spans = _ranked(" a b", _row(4, c3=9), _row(4, c3=9, c4=8))
    assert (spans[0].text, spans[0].start) == ("a", 1), "whitespace is no part of an answer"
    assert all(span.text == span.text.strip() for span in spans)
    starts, ends = _row(40, c3=10), _row(40, c32=5, c33=6)
    assert _ranked("x" * 40, starts, ends)[0].text == "x" * 30
    assert len(_ranked("x" * 40, starts, ends, most_tokens=31)[0].text) == 31
    assert _ranked("", np.zeros(4), np.zeros(4)) == []
    nothing = independent_prediction([])
    assert (nothing.text, nothing.start) == ("", None)


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
