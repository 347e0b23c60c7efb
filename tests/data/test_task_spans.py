"""Answers in passages: places of tokens, windows, rows of questions, and answers decoded."""

import json
from functools import cache
from itertools import product

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from sublayer.config.data import DataConfig
from sublayer.config.objective import SupervisedObjective
from sublayer.data.tasks import spans as decoding
from sublayer.data.tasks.batches import Assembler, RowRule
from sublayer.data.tasks.encoded import Marks, SpanExamples, WindowRule, encode_passages
from sublayer.data.tasks.prepare import prepare_tasks
from sublayer.data.tokenizers.base import ByteTokenizer
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.data.tokenizers.subword import SubwordTokenizer
from sublayer.errors import ConfigError
from sublayer.objective.supervised.heads import Listed
from sublayer.tasks.registry import TASKS
from sublayer.tasks.task import Answer, Example
from tests.breadth import examples, rows
from tests.data.releases import write_release

_TEXT = (
    "The Panthers' defense gave up just 308 points, ranking sixth. Tesla's machine — “to end” — "
    "cost 1,000,000 (about 6½ km²) in the 1980s; naïve cafés in the U.S. are fine.\n"
) * 20
_SIZES = {"bpe": 400, "wordpiece": 200, "unigram": 150, "word-bpe": 200, "moses-bpe": 200}
_NAMES = ("bytes", "characters", *_SIZES, "t5", "library unigram")
_ODD = ["½", "ﬁ", "İ", "ß", "Σ", "ς", "a\u0301", "\u200b", "\u00ad", "東京", "😀", "▁", "[SEP]"]
_ODD += ["\ud800", "\uffff", "\ufffd", *"“’…", "''", "3,", "\u2028", "\n", " ", "<unk>", "##"]
_DRAWN = st.one_of(st.sampled_from(_ODD), st.sampled_from(_TEXT.split(" ")), st.characters())
_OFFSET, _PASSAGE = 3, "abcdefghijklmnopqrst"


@cache
def _tokenizer(name):
    if name not in ("t5", "library unigram"):
        return train_tokenizer(name, [_TEXT.encode()], vocab_size=_SIZES.get(name))
    model = train_tokenizer("unigram", [_TEXT.encode()], vocab_size=150, sentinels=4)
    # T5's file of the tokenizers library, in short.
    library = tokenizers.Tokenizer(models.Unigram(list(model.scores()), unk_id=model.unk_id))
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    return model if name == "t5" else SubwordTokenizer(library)


def _found(name, text, word):
    placed, start = decoding.encode_with_offsets(_tokenizer(name), text), text.index(word)
    return text[placed.slice(*placed.covering(start, start + len(word)), text)]


@pytest.mark.parametrize("name", rows(_NAMES, 4))
def test_a_word_is_found_in_its_tokens(name):
    text = "In the 1980s Tesla's café, naïve Panthers scored\n\n  points."
    for word in ("Tesla", "café", "naïve", "Panthers", "points"):
        # No token of another word is taken for it.
        found = _found(name, text, word)
        assert word in found and found.strip("'s,.") in (word, word.strip("s"))


@pytest.mark.parametrize("name", ["unigram", "t5", "library unigram", "wordpiece", "word-bpe"])
def test_each_word_of_a_run_of_unknown_ones_is_found(name):
    for word in ("東京", "大阪"):
        assert _found(name, "the 東京 京都, 大阪 points", word) == word


@pytest.mark.parametrize("name", rows(_NAMES, 4))
@examples(200)
@given(text=st.lists(_DRAWN, max_size=12).map("".join))
def test_places_are_in_order_and_in_the_text(name, text):
    placed = decoding.encode_with_offsets(_tokenizer(name), text)
    assert np.array_equal(placed.ids, _tokenizer(name).encode(text.encode("utf-8", "replace")))
    assert placed.ids.shape == placed.starts.shape == placed.ends.shape
    assert (np.diff(placed.starts) >= 0).all() and (np.diff(placed.ends) >= 0).all()
    assert (placed.starts >= 0).all() and (placed.starts <= placed.ends).all()
    assert (placed.ends <= len(text)).all()
    if name == "bytes":
        expected = [n for n, each in enumerate(text) for _ in each.encode("utf-8", "replace")]
        assert placed.starts.tolist() == (placed.ends - 1).tolist() == expected


def test_windows_stand_a_stride_apart_and_the_last_ends_with_the_passage():
    for settings, windows in (
        ((300, 200), [(0, 200), (128, 172)]), ((200, 200), [(0, 200)]),
        ((201, 200), [(0, 200), (128, 73)]), ((10, 4, 3), [(0, 4), (3, 4), (6, 4)]),
        # A stride that is longer than a window would leave tokens out.
        ((10, 4, 128), [(0, 4), (4, 4), (8, 2)]), ((0, 4), [(0, 0)]),
    ):  # fmt: skip
        assert decoding.cut_windows(*settings) == tuple(range(s, s + n) for s, n in windows)
    with pytest.raises(ConfigError, match="no room for a passage"):
        decoding.cut_windows(10, 0)


def test_a_token_is_scored_where_its_poorer_side_has_most_context_and_an_answer_whole():
    # Tokens 3 to 5 stand in both: by their poorer sides 2, 1, 0 in the first, 0, 1, 2 in the
    # second, which is longer: +0.06 against +0.07.
    assert decoding.best_windows((range(6), range(3, 10))).tolist() == [0] * 4 + [1] * 6
    # Of equals the first: token 2 has 1 on its poorer side in both.
    assert decoding.best_windows((range(4), range(1, 5))).tolist() == [0, 0, 0, 1, 1]
    # An answer that a window has in part alone is [CLS].
    answers = ((10, 14), (12, 12), (9, 12), (12, 15), None)
    places = [decoding.gold_places(range(10, 15), answer, offset=7) for answer in answers]
    assert places == [(7, 11), (9, 9), (0, 0), (0, 0), (0, 0)]
    placed = decoding.encode_with_offsets(ByteTokenizer(), "aab ab")
    asked = [[Answer("ab", 4), Answer("aab", 0)], [Answer("ab")], [Answer("cd")], []]
    found = [placed.gold_tokens("aab ab", answers) for answers in asked]
    assert found == [(4, 5), (1, 2), None, None]


def _row(length, **scores):
    """Logits of a row of so many tokens and a [SEP], 0 but for columns such as ``c4``."""
    row = np.zeros(_OFFSET + length + 1)
    for column, score in scores.items():
        row[int(column[1:])] = score
    return row


def _ranked(passage, candidates, windows=None, **rest):
    rest |= {"placed": decoding.encode_with_offsets(ByteTokenizer(), passage), "passage": passage}
    windows = windows or (range(len(passage)),)
    return decoding.rank_spans(windows, candidates, offset=_OFFSET, **rest)


def _independent(passage, starts, ends, **rest):
    return _ranked(passage, [decoding.independent_candidates(starts, ends)], **rest)


def test_an_answer_lies_in_the_passage_and_has_at_most_so_many_tokens():
    # [CLS], the question and the last [SEP] are no answer, however high.
    spans = _independent("ab", _row(2, c0=50, c1=60, c3=1), _row(2, c0=50, c5=40, c4=1))
    assert spans[0].text == "ab"
    assert all(0 <= span.start < 2 for span in spans)
    spans = _independent(" a b", _row(4, c3=9), _row(4, c3=9, c4=8))
    assert (spans[0].text, spans[0].start) == ("a", 1), "whitespace is no part of an answer"
    starts, ends = _row(40, c3=10), _row(40, c32=5, c33=6)
    assert _independent("x" * 40, starts, ends)[0].text == "x" * 30
    assert len(_independent("x" * 40, starts, ends, most_tokens=31)[0].text) == 31
    assert _independent("", np.zeros(4), np.zeros(4)) == []
    nothing = Listed([], 0.0).prediction(is_joint=False, has_unanswerable=False)
    assert (nothing.text, nothing.start) == ("", None)


def test_no_answer_is_scored_beside_the_best_span_and_joint_ends_are_of_their_starts():
    spans = _independent("ab", _row(2, c3=4), _row(2, c4=4))
    listed = Listed(spans, 2.5)
    prediction = listed.prediction(is_joint=False, has_unanswerable=True)
    assert (prediction.text, prediction.no_answer) == ("ab", 2.5 - 8)
    assert listed.prediction(is_joint=True, has_unanswerable=True).no_answer == 2.5
    starts = np.log([0.1, 0.1, 0.1, 0.4, 0.3, 1e-30])
    columns = decoding.best_starts(starts, 2)
    assert columns.tolist() == [3, 4]
    ends = np.full((2, 6), -1e30)
    ends[0, 3:5] = np.log([0.2, 0.8])
    ends[1, 4] = 0.0
    spans = _ranked("ab", [decoding.joint_candidates(starts, columns, ends, n_ends=2)])
    # 0.4 * 0.8 = 0.32, 0.3 * 1 and 0.4 * 0.2.
    assert [span.text for span in spans] == ["ab", "b", "a"]
    assert np.exp([span.score for span in spans]) == pytest.approx([0.32, 0.3, 0.08])


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 6), st.integers(0, 1000))
def test_decoding_equals_a_loop_over_all_pairs(n_tokens, room, stride, seed):
    generator = np.random.default_rng(seed)
    passage = "".join(generator.choice(list("ab c"), n_tokens))
    windows = decoding.cut_windows(n_tokens, room, stride)
    logits = [generator.normal(size=(2, _OFFSET + len(window) + 1)) for window in windows]
    candidates = [decoding.independent_candidates(*pair, n_best=5) for pair in logits]
    spans = _ranked(passage, candidates, windows, most_tokens=4, n_best=3)
    scored_in = decoding.best_windows(windows)
    assert len(scored_in) == n_tokens
    expected = []
    for number, (window, (starts, ends)) in enumerate(zip(windows, logits, strict=True)):
        assert len(window) <= room
        for start, end in product(np.argsort(-starts)[:5], np.argsort(-ends)[:5]):
            first, last = start - _OFFSET, end - _OFFSET
            if first < 0 or last >= len(window) or not 0 <= last - first < 4:
                continue
            text = passage[first + window.start : last + window.start + 1].strip()
            if text and scored_in[first + window.start] == number:
                expected.append((starts[start] + ends[end], text))
    expected.sort(key=lambda pair: -pair[0])
    assert [(span.score, span.text) for span in spans] == expected[:3]


def _example(id_, question, *answers, passage=_PASSAGE):
    return Example(id_, {"context": passage, "question": question}, answers=answers, source=passage)


def _encode(examples, *, context=15, stride=5, trains=False, task="squad", n_separators=1):
    rule, tokenizer = WindowRule(context, stride), ByteTokenizer()
    tokenizer.n_separators = n_separators
    return encode_passages(TASKS[task], examples, tokenizer, rule, trains=trains)


def _texts_of(encoded, row):
    return [bytes(text.tolist()).decode() for text in encoded.texts_of(row)]


@pytest.mark.parametrize("more", [0, 1])
def test_a_passage_is_read_in_windows_each_behind_the_question(more):
    examples = [_example("0", "?!", Answer("klm", 10)), _example("1", "#")]
    settings = {"context": 15 + more, "n_separators": 1 + more}
    encoded = _encode(examples, **settings)
    # 15 tokens, 3 marks and a question of 2 leave room for 10; so do 16 tokens and 4 marks.
    found = [_texts_of(encoded, row) for row in encoded.rows_of(0)]
    assert found == [["?!", passage] for passage in ("abcdefghij", "fghijklmno", "klmnopqrst")]
    assert encoded.windows(0) == [range(10), range(5, 15), range(10, 20)]
    # [CLS] ? ! [SEP] is 4: "k" is the sixth and the first of its windows; the first has none of it.
    found = [[0, 0], [9 + more, 11 + more], [4 + more, 6 + more], *[[0, 0]] * 3]
    assert encoded.spans.tolist() == found
    assert (encoded.offset(0), encoded.offset(1)) == (4 + more, 3 + more)
    assert encoded.placed(1).slice(2, 4, _PASSAGE) == slice(2, 5)
    assert len(encoded) == encoded.n_questions == 2
    again = SpanExamples.of_arrays(encoded.arrays()).select(np.array([1]))
    for name, array in _encode(examples[1:], **settings).arrays().items():
        assert name == "numbers" or np.array_equal(again.arrays()[name], array), name
    # Rows are built with marks and the columns of answers.
    encoded = _encode([_example("0", "?!", Answer("klm", 10))], trains=True, **settings)
    marks = Marks(first=256, between=257, last=257, pad=258, n_between=1 + more)
    batch = Assembler(encoded, RowRule("pair", marks, 15 + more)).pack(np.arange(3))
    found = []
    for (first, last), (row, start) in zip(batch.spans, batch.readouts, strict=True):
        assert batch.read.tokens[row, start] == 256
        found.append(batch.read.tokens[row, first : last + 1].tolist())
    assert sorted(found) == [[*b"klm"], [*b"klm"], [256]]


def test_a_window_teaches_the_answer_that_it_has_whole():
    # Each window is an example to learn.
    encoded = _encode([_example("0", "?!", Answer("a", 0)), _example("1", "#")], trains=True)
    assert len(encoded) == encoded.n_rows == 6 and encoded.n_questions == 2
    assert encoded.numbers.tolist() == [0, 0, 0, 1, 1, 1]
    assert encoded.spans[:, 0].tolist() == [4, 0, 0, 0, 0, 0]
    # The first answer with a place is learned, or that there is none.
    for answers, span in (((Answer("xyz"), Answer("c", 2)), [5, 5]), ((), [0, 0])):
        settings = {"context": 40, "trains": True, "task": "squad2"}
        assert _encode([_example("0", "?", *answers)], **settings).spans.tolist() == [span]
    # A question whose answer has no place teaches nothing, and is scored.
    examples = [_example("0", "?", Answer("xyz")), _example("1", "?", Answer("b", 1))]
    assert set(_encode(examples, trains=True).numbers.tolist()) == {1}
    scored = _encode(examples)
    assert scored.numbers.tolist() == [0, 1]
    assert not scored.spans[scored.rows_of(0)].any()


def test_a_long_question_is_cut_and_counted_and_a_passage_may_be_empty():
    asked = [_example("0", "?" * 70), _example("1", "?")]
    encoded = _encode(asked, context=200)
    found = (_texts_of(encoded, 0)[0], encoded.n_cut_questions, encoded.most_question_tokens)
    assert found == ("?" * 64, 1, 64)
    # In a short row it has half of the room.
    assert [len(text) for text in _texts_of(_encode(asked, context=43), 0)] == [20, 20]
    encoded = _encode([_example("0", "?", passage="")], context=40)
    assert encoded.windows(0) == [range(0)] and _texts_of(encoded, 0) == ["?", ""]
    with pytest.raises(ConfigError, match="no room for a passage"):
        _encode([_example("0", "?")], context=3)


def test_a_folder_without_train_is_split_by_article_in_windows_of_a_length(tmp_path):
    # Twelve articles of two questions, whose answers are their first words.
    articles, found = [], []
    for number in range(12):
        question = {"question": "Which?", "answers": [{"text": f"w{number}", "answer_start": 0}]}
        texts = [" ".join([f"w{number}", *(f"x{n}y{m}" for m in range(40))]) for n in range(2)]
        asked = [[{"id": f"{number}-{n}", **question}] for n in range(2)]
        paragraphs = [{"context": texts[n], "qas": asked[n]} for n in range(2)]
        articles.append({"title": f"Article {number}", "paragraphs": paragraphs})
    content = json.dumps({"version": "1.1", "data": articles})
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(30))]
    files = {"squad/dev-v1.1.json": content, "vocab.txt": "\n".join(names)}
    write_release(tmp_path, {name: text.encode() for name, text in files.items()})
    more = {"tokenizer": load_tokenizer(tmp_path / "vocab.txt"), "cache": tmp_path / "cache"}
    for context, settings in ((64, {}), (24, {}), (24, {"doc_stride": 3})):
        config = DataConfig(tasks="squad", path=str(tmp_path / "squad"), context=context)
        data = prepare_tasks(config, SupervisedObjective(**settings), **more)
        found.append((data.train.parts[0].encoded.n_rows, data.checksums["train"]))
    sources = [{example.source for example in split.parts[0].examples} for split in data.splits()]
    assert len(set.union(*sources)) == sum(map(len, sources)) == 12 and all(sources)
    assert sum(split.parts[0].encoded.n_questions for split in data.splits()) == 24
    assert found == sorted(found, key=lambda pair: pair[0])
    assert len({n_rows for n_rows, _ in found}) == len({checksum for _, checksum in found}) == 3


# Which characters of pieces and text are paired; \uffff stands for any text.
@pytest.mark.parametrize("pieces, text, in_pieces, in_text", [
    ("abcdXefgh", "abcdefgh", "01235678", "01234567"), ("abcdX", "abcdY", "0123", "0123"),
    ("abcdefgh", "abcdXXefgh", "01234567", "01236789"),
    ("ab\uffff\uffffefgh", "abXefgh", "014567", "013456"),
    ("ab\uffffefgh", "abefgh", "013456", "012345"),
])  # fmt: skip
def test_equal_characters_are_paired_in_order(pieces, text, in_pieces, in_text):
    pairs = zip(*decoding._matches(pieces, text), strict=True)
    assert ["".join(map(str, places)) for places in pairs] == [in_pieces, in_text]
