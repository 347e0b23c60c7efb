"""GPT-1's published text rules: one by one, against the released code, cut anywhere, counted."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.gpt1 import text_rules
from sublayer.data.gpt1.text_rules import NEWLINE, cut, mend, standardise, words_of
from sublayer.errors import DataError
from tests.data.gpt1 import released

PIECES = st.sampled_from(
    [
        *"ab Zé'.,:;!?-_~\"()[]{}|/\\*+<>&^=@#0189\t\r\n\x85\u00a0\u2028—…´’ﬁＡ漢İ",
        *("&amp;", "&lt;", "<b>", "â€™", "don't ", ":)", "a.m. ", "\x1b[0m", "\n", "\r\n"),
    ]
)

TEXTS = st.lists(PIECES, max_size=60).map("".join)


def words(text: str) -> list[str]:
    found = []
    for part in words_of(text):
        found += [part.distinct[number] for number in part.numbers.tolist()]
    return found


@pytest.mark.parametrize(
    ("text", "standard"),
    [
        ('a-~!";b?+,)(c/*[]}{|_d', 'a - ~ ! " ; b ? + , ) ( c / * [ ] } { | _ d'),
        ("a---b|||c-", "a --- b ||| c -"),
        ("a\\b.c:'<>@#$%^&=`", "a\\b.c:'<>@#$%^&=`"),
        ("a—b–c―d…e´f", "a - b - c - d...e'f"),
        ("a—-b", "a -- b"),
        (" a \t\u00a0b\nc,\n \t\r\n\n  d\n", "a b \n c , \n d"),
        (" \n ", ""),
    ],
)
def test_marks_are_set_apart_and_whitespace_is_single(text, standard):
    # Spaces that two marks share are one.
    assert standardise(text) == standard == released.standardise(text)


def test_a_long_run_of_whitespace_takes_no_longer_than_its_length():
    # The published patterns try every place of such a run again; these look at each once.
    assert standardise("a" + " " * 2_000_000 + "b\n" + "\n " * 500_000 + "c") == "a b \n c"


@given(TEXTS)
def test_text_is_mended_as_ftfy_does(text):
    ftfy = pytest.importorskip("ftfy")
    assert mend(text) == ftfy.fix_text(text)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""])
def test_every_end_of_a_line_is_ftfys(end):
    ftfy = pytest.importorskip("ftfy")
    for line in ("plain\ttext", "", "a & b", "“a”"):
        text = f"first{end}{line}{end}"
        assert mend(text) == ftfy.fix_text(text)


def test_an_entity_counts_up_to_the_first_line_with_a_tag():
    assert mend("a &amp; b\n<i> &amp;\n&amp;") == "a & b\n<i> &amp;\n&amp;"


@given(TEXTS)
def test_words_are_those_of_the_released_code(text):
    pytest.importorskip("spacy")
    newline = f"{NEWLINE} "
    assert words(text) == [NEWLINE if word == newline else word for word in released.words(text)]


@pytest.mark.parametrize(
    "size",
    [
        20,
    ],
)
def test_a_long_text_is_divided_in_parts_as_it_is_whole(monkeypatch, size):
    pytest.importorskip("spacy")
    prose = "It was the best of times - it was (so far) the worst.\nDon't \n\n ask, e.g. why " * 9
    whole = words(prose)
    monkeypatch.setattr(text_rules, "_BLOCK_CHARACTERS", size)
    assert len(list(words_of(prose))) > 9
    assert words(prose) == whole
    assert words(prose.replace("\n", " ")) == [word for word in whole if word != "\n"]


PROSE = "the old man\nwent to sea & back, well\n" * 3 + "a <b>tag\nand more of it\nto the end"


@given(st.one_of(TEXTS, TEXTS.map(lambda text: PROSE + text + PROSE)), st.integers(0, 300))
def test_a_cut_changes_no_word(text, near):
    pytest.importorskip("spacy")
    data = text.encode()
    place = cut(data, min(near, len(data)))
    assert place <= near
    assert words(data[:place].decode()) + words(data[place:].decode()) == words(text)


def test_cuts_stand_late_in_lines_that_are_left_as_they_are():
    data = b"one two\nthree four five\nsix seven"
    assert cut(data, len(data)) == data.index(b" five")
    assert cut(data, 10) == data.index(b" two")
    assert cut(data, 5) == 0
    assert cut(b"one two\r\nthree four\r\nfive six", 26) == data.index(b" four") + 1
    assert cut(b"one two\rthree four\n five", 20) == 0
    assert cut(b"one two\n<b>\nthree four\n", 20) == 3
    assert cut("one two\nthree “four” five\n".encode(), 30) == 3


@pytest.mark.parametrize("missing", ["ftfy", "spacy"])
def test_without_a_library_the_extra_is_named(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    text_rules._spacy.cache_clear()
    with pytest.raises(
        DataError, match=rf"text rules need {missing}: pip install 'sublayer\[spacy\]'"
    ):
        list(words_of("a text"))
    text_rules._spacy.cache_clear()


def test_a_text_without_words_has_none():
    pytest.importorskip("spacy")
    assert words("") == words(" \n\n ") == []
    assert np.concatenate([np.zeros(0), *(part.numbers for part in words_of(""))]).size == 0
