"""Rows of tasks cut to fit, as BERT's loop has it or RACE is read, and drawn as in the papers."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.tasks.encoded import EncodedExamples, cut_lengths, joined
from sublayer.data.tasks.encoding import encode_examples
from sublayer.data.tasks.figure import draw_figures
from sublayer.data.tasks.marks import Marks, find_marks
from sublayer.data.tasks.rows import build_row, n_cut, row_lengths
from sublayer.data.tasks.word_tokens import WordTokens
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.formats.outline import outline
from sublayer.tasks.registry import TASKS
from sublayer.tasks.task import Task
from tests.breadth import rows

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=4)


def cut_as_bert_does(tokens_a, tokens_b, max_length):
    """``_truncate_seq_pair`` of BERT's run_classifier.py, to the letter."""
    while True:
        total_length = len(tokens_a) + len(tokens_b)
        if total_length <= max_length:
            break
        if len(tokens_a) > len(tokens_b):
            tokens_a.pop()
        else:
            tokens_b.pop()


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 90))
def test_two_texts_are_cut_as_bert_cuts_them(n_first, n_second, room):
    first, second = list(range(n_first)), list(range(n_second))
    cut_as_bert_does(first, second, room)
    assert cut_lengths([n_first, n_second], room) == [len(first), len(second)]


@given(LENGTHS, st.integers(0, 100))
def test_of_any_number_of_texts_the_longest_loses_its_last_token_again_and_again(lengths, room):
    kept = list(lengths)
    while sum(kept) > room:
        longest = max(kept)
        # The last of equally long ones.
        kept[max(index for index, length in enumerate(kept) if length == longest)] -= 1
    assert cut_lengths(lengths, room) == kept


class Words(NamedTuple):
    encoded: EncodedExamples
    marks: Marks
    tokenizer: WordTokens

    def rows(self, context, **how):
        return [
            self.tokenizer.decode(build_row(self.encoded, row, self.marks, context, **how).ids)
            .decode()
            .split()
            for row in range(self.encoded.n_rows)
        ]


def words_of(name, examples, format_="pair"):
    task = TASKS[name]
    texts = [text for each in examples for text in (*each.fields.values(), *each.choices)]
    # Options stand in the question's blank.
    tokenizer = WordTokens([*texts, *(text.replace("_", "") for text in texts)])
    encoded = encode_examples(task, examples, tokenizer, format_, trains=True)
    return Words(encoded, find_marks(tokenizer, format_), tokenizer)


def text(letter, n):
    return " ".join(f"{letter}{number}" for number in range(n))


def test_the_longer_text_of_a_pair_gives_way_at_its_end():
    example = Example("0", {"sentence1": text("a", 9), "sentence2": text("b", 4)}, label=0)
    found = words_of("mrpc", [example])
    [row] = found.rows(10)
    assert row == ["[CLS]", "a0", "a1", "a2", "a3", "[SEP]", "b0", "b1", "b2", "[SEP]"]
    segments = build_row(found.encoded, 0, found.marks, 10).segments
    assert segments.tolist() == [0] * 6 + [1] * 4 and segments.dtype == np.int64
    # Exchanged, the same tokens are kept of either text, but for what is equal.
    [swapped] = found.rows(10, is_swapped=True)
    assert swapped == ["[CLS]", "b0", "b1", "b2", "b3", "[SEP]", "a0", "a1", "a2", "[SEP]"]
    assert row_lengths(found.encoded, found.marks, 10).tolist() == [10]
    assert n_cut(found.encoded, found.marks, 10) == 1
    assert n_cut(found.encoded, found.marks, 16) == 0


def test_the_article_of_race_gives_way_and_the_last_tokens_of_question_and_option_are_read():
    fields = {"article": text("a", 30), "question": text("q", 126)}
    example = Example("0", fields, label=0, choices=(text("x", 4), "y0"))
    found = words_of("race_high", [example])
    first, second = found.rows(140)
    # 128 of 130 are read: the article keeps nine.
    assert first[1:10] == [f"a{n}" for n in range(9)] and first[10] == "[SEP]"
    assert first[11:13] == ["q2", "q3"] and first[-2:] == ["x3", "[SEP]"]
    assert second[1:11] == [f"a{n}" for n in range(10)] and second[12:14] == ["q0", "q1"]
    assert len(first) == len(second) == 140
    # Without room for the article it is gone, and the rest is cut at its end.
    first, _ = found.rows(20)
    assert first == ["[CLS]", "[SEP]", *(f"q{n}" for n in range(2, 19)), "[SEP]"]


@given(
    st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=3), min_size=1, max_size=6),
    st.integers(4, 30),
)
def test_the_length_of_every_row_is_known_before_it_is_built(texts, context):
    lengths = [length for row in texts for length in row]
    n_rows = len(texts)
    encoded = EncodedExamples(
        ids=np.arange(sum(lengths)),
        text_starts=np.cumsum([0, *lengths]),
        row_starts=np.cumsum([0, *map(len, texts)]),
        example_starts=np.arange(n_rows + 1),
        labels=np.zeros(n_rows),
        is_labelled=np.ones(n_rows, dtype=bool),
        cuts=np.arange(n_rows) % 2,
        numbers=np.arange(n_rows),
    )
    marks = Marks(900, 901, 902, 903)
    expected = [len(build_row(encoded, row, marks, context).ids) for row in range(n_rows)]
    assert row_lengths(encoded, marks, context).tolist() == expected
    assert max(expected) <= context


def test_examples_are_selected_and_joined_with_all_that_is_theirs():
    def race(number, n_choices):
        fields = {"article": text(f"a{number}", number + 1), "question": f"q{number}"}
        choices = tuple(f"c{number}{place}" for place in range(n_choices))
        return Example(str(number), fields, label=number % 2, choices=choices)

    examples = [race(0, 2), race(1, 4), race(2, 3), race(3, 2)]
    found = words_of("race_high", examples)
    chosen = found.encoded.select(np.array([2, 0]))
    assert chosen.numbers.tolist() == [2, 0] and chosen.labels.tolist() == [0, 0]
    both = joined([chosen, found.encoded.select(np.array([3]))])
    assert both.numbers.tolist() == [2, 0, 3] and both.labels.tolist() == [0, 0, 1]
    rows = Words(both, found.marks, found.tokenizer).rows(30)
    whole = found.rows(30)
    assert rows == [*whole[6:9], *whole[:2], *whole[9:]]
    again = EncodedExamples.of_arrays(both.arrays())
    assert Words(again, found.marks, found.tokenizer).rows(30) == rows
    assert len(found.encoded.select(np.array([], dtype=np.int64))) == 0


def test_the_longest_texts_of_wic_give_way_and_its_word_is_read():
    for n_first, n_second in ((9, 4), (4, 9), (1, 30)):
        fields = {"sentence1": text("a", n_first), "sentence2": text("b", n_second), "word": "w0"}
        [row] = words_of("wic", [Example("0", fields, label=0)]).rows(7)
        assert " ".join(row) == "[CLS] w0 a0 [SEP] b0 b1 [SEP]"
    fields = {"sentence1": text("a", 9), "sentence2": text("b", 4), "word": "w0"}
    [row] = words_of("wic", [Example("0", fields, label=0)], "traversal").rows(9)
    assert " ".join(row) == "_start_ a0 a1 _delimiter_ b0 b1 _delimiter_ w0 _classify_"


def _lines(name: str, example: Example | None = None, tokenizer=None) -> dict[str, list[str]]:
    task = TASKS[name]
    figures = draw_figures(task, outline(task) if example is None else example, tokenizer)
    lines = {}
    for figure in figures:
        rows = [" ".join(token.text for token in row) for row in figure.rows]
        if figure.target:
            rows.append("-> " + " ".join(token.text for token in figure.target))
        lines[figure.format] = rows or [figure.problem]
    return lines


SENTENCE = Example("0", {"sentence": "The course is jumping well."}, label=0)
PAIR = {
    "sentence1": "The rhino grazed on the grass.",
    "sentence2": "A rhino is grazing in a field.",
}


@pytest.mark.parametrize(
    ("name", "example", "format_", "lines"),
    [
        # Radford et al., figure 1: classification, entailment, similarity and multiple choice.
        ("sst2", None, "traversal", ["_start_ sentence _classify_"]),
        ("mnli", None, "traversal", ["_start_ premise _delimiter_ hypothesis _classify_"]),
        (
            "stsb",
            None,
            "traversal",
            [
                "_start_ sentence1 _delimiter_ sentence2 _classify_",
                "_start_ sentence2 _delimiter_ sentence1 _classify_",
            ],
        ),
        (
            "story_cloze",
            None,
            "traversal",
            [
                "_start_ story _delimiter_ choice1 _classify_",
                "_start_ story _delimiter_ choice2 _classify_",
            ],
        ),
        # Devlin et al., figure 4: pairs and single sentences.
        ("mrpc", None, "pair", ["[CLS] sentence1 [SEP] sentence2 [SEP]"]),
        ("cola", None, "pair", ["[CLS] sentence [SEP]"]),
        # Raffel et al., figure 1.
        (
            "cola",
            SENTENCE,
            "text",
            ["cola sentence: The course is jumping well. </s>", "-> unacceptable </s>"],
        ),
        (
            "stsb",
            Example("0", PAIR, label=3.75),
            "text",
            [
                f"stsb sentence1: {PAIR['sentence1']} sentence2: {PAIR['sentence2']} </s>",
                "-> 3.8 </s>",
            ],
        ),
        # An answer that is not known is not written.
        (
            "sst2",
            Example("0", {"sentence": "fine"}, is_labelled=False),
            "text",
            ["sst2 sentence: fine </s>"],
        ),
    ],
)
def test_rows_are_those_of_the_papers_figures(name, example, format_, lines):
    assert _lines(name, example)[format_] == lines


def test_an_answer_in_a_passage_is_drawn_in_every_format():
    task = Task("squad", "SQuAD", "squad", "span", ("context", "question"), ("f1",))
    example = Example("0", {"context": "c d", "question": "a b"}, answers=(Answer("c", 0),))
    pair, traversal, text = draw_figures(task, example, None)
    assert [token.text for token in pair.rows[0]] == ["[CLS]", "a", "b", "[SEP]", "c", "d", "[SEP]"]
    marks = [True, False, False, True, False, False, True]
    assert [token.is_mark for token in traversal.rows[0]] == marks
    assert [token.text for token in text.target] == ["c", "</s>"]


@pytest.mark.parametrize("name", rows(TASKS, 4))
def test_every_task_has_rows_in_every_format(name):
    lines = _lines(name)
    assert lines["pair"][0].startswith("[CLS] ") and lines["pair"][0].endswith(" [SEP]")
    assert lines["traversal"][0].startswith("_start_ ")
    assert lines["traversal"][0].endswith(" _classify_")
    assert lines["text"][0].endswith(" </s>") and lines["text"][1].startswith("-> ")


def test_the_pieces_of_a_tokenizer_are_shown(real_data):
    texts = {"premise": "It was unbelievably good.", "hypothesis": "Fine."}
    example = Example("0", texts, label=0)
    bert = load_tokenizer(real_data / "vocab" / "bert" / "vocab.txt")
    assert _lines("mnli", example, bert)["pair"] == [
        "[CLS] it was un ##bel ##ie ##va ##bly good . [SEP] fine . [SEP]"
    ]
    albert = load_tokenizer(real_data / "vocab" / "albert" / "spiece.model")
    assert _lines("mnli", example, albert)["traversal"] == [
        "_start_ ▁it ▁was ▁un be liev ably ▁good . _delimiter_ ▁fine . _classify_"
    ]


def test_a_format_whose_marks_a_tokenizer_lacks_says_so():
    lines = _lines("sst2", Example("0", {"sentence": "a\nb"}, label=0), ByteTokenizer())
    assert "has no [CLS], no [SEP]" in lines["pair"][0]
    assert lines["traversal"] == [r"_start_ a \n b _classify_"]
