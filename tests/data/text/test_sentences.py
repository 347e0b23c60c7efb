import random
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import MemoryDocument
from sublayer.data.text.gutenberg import body_range
from sublayer.data.text.sentences import (
    RULES,
    by_line,
    by_prose,
    by_spacy,
    sentence_cut,
    sentences_of,
)
from sublayer.errors import DataError

BOOK = """THE BOOK

CHAPTER I. Down the Hole. It begins

Mr. Day was
tired.  "Why?" he
asked. Nobody knew.
  \t
CHAPTER II
The second day came. It
was short.

* * * * *

THE END
"""


def sentences(text: bytes, rule: str, start: int = 0, stop: int | None = None) -> list[str]:
    found = sentences_of(DocumentRange(MemoryDocument("a.txt", text), start, stop), rule)
    return [sentence for chunk in found for sentence in chunk]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_prose_is_joined_and_split(line_end):
    assert by_prose(BOOK.replace("\n", line_end)) == [
        "THE BOOK",
        "CHAPTER I. Down the Hole. It begins",
        "Mr. Day was tired.",
        '"Why?" he asked.',
        "Nobody knew.",
        "CHAPTER II",
        "The second day came.",
        "It was short.",
        "* * * * *",
        "THE END",
    ]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_lines_are_sentences_and_blank_ones_are_not(line_end):
    text = "one. two.\n\n \n three \n\u00e9t\u00e9"
    assert by_line(text.replace("\n", line_end)) == ["one. two.", "three", "\u00e9t\u00e9"]


def test_a_contents_page_is_a_heading_a_line():
    assert by_prose("Letter 1\nLetter 2\nChapter 1\n") == ["Letter 1", "Letter 2", "Chapter 1"]
    assert by_prose("He had read\nbook 2 and left. He slept.") == [
        "He had read book 2 and left.",
        "He slept.",
    ]


def test_spacy_splits_paragraphs_by_its_sentencizer():
    pytest.importorskip("spacy")
    # The sentencizer knows marks and no abbreviations but those of its tokenizer.
    assert by_spacy("One came. Two\nleft! Why?\n\nNobody knew") == [
        "One came.",
        "Two left!",
        "Why?",
        "Nobody knew",
    ]


@given(
    st.text(st.characters(codec="utf-8"), max_size=300) | st.text("aB.\n \r\"'”?!", max_size=300)
)
@example("a\r\r\nb\n\x0b\nc")
def test_no_character_but_blanks_is_lost(text):
    for rule in ("lines", "prose"):
        found = RULES[rule](text)
        assert "".join("".join(found).split()) == "".join(text.split())
        assert all(each == each.strip() != "" and not re.search(r"[\n\r]", each) for each in found)


def test_spacy_loses_no_character():
    pytest.importorskip("spacy")
    draw = random.Random(0)
    text = "".join(draw.choice("aB.\n \r\"'”?!é") for _ in range(2000))
    assert "".join("".join(by_spacy(text)).split()) == "".join(text.split())


@given(st.text("ab. C\n", max_size=300), st.integers(1, 40))
def test_a_chunk_border_changes_nothing(text, n_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sublayer.data.text.document_range._CHUNK_BYTES", n_bytes)
        for rule in ("lines", "prose"):
            assert sentences(text.encode(), rule) == RULES[rule](text)


def test_a_piece_gives_its_own_sentences_of_the_body_alone():
    text = (
        "\ufeffLegal words.\n*** START OF THE PROJECT GUTENBERG EBOOK A ***\nOne. Two.\n\nThree.\n"
        "*** END OF THE PROJECT GUTENBERG EBOOK A ***\nMore legal words.\n"
    ).encode()
    assert sentences(text, "prose") == ["One.", "Two.", "Three."]
    place = text.index(b"Three")
    assert sentences(text, "prose", 0, place) == ["One.", "Two."]
    assert sentences(text, "prose", place) == ["Three."]


def test_a_cut_falls_on_a_blank_line_else_a_line_else_a_character():
    assert sentence_cut(b"one\n\ntwo\nthree\nfour", 16, 0) == 5
    assert sentence_cut(b"one\r\n\r\ntwo\r\nthree", 14, 0) == 7
    assert sentence_cut(b"one\n\ntwo\nthree\nfour", 16, 5) == 15
    assert sentence_cut("one éé".encode(), 7, 0) == 6
    assert sentence_cut(b"one", 3, 0) == 3


def test_the_file_and_the_line_of_a_bad_byte_are_named():
    with pytest.raises(
        DataError, match=r"a.txt, line 3: byte 0xff is not UTF-8, which data.sentences needs"
    ):
        sentences(b"one\n\ntwo \xff three\n", "prose")


def test_real_books_become_plausible_sentences(real_data):
    for path in sorted((real_data / "books").iterdir()):
        text = path.read_bytes()
        body = text[slice(*body_range(text))].decode()
        found = by_prose(body)
        assert "".join("".join(found).split()) == "".join(body.split())
        assert not any("\n" in each or "\r" in each or "\ufeff" in each for each in found)
        # Novels of the time have 15 to 25 words a sentence.
        assert 14 < len(body.split()) / len(found) < 26
        assert sum(bool(re.search(r"\b(?:Mr|Mrs|Dr|St)\.$", each)) for each in found) == 0
        assert sum(each[0].islower() for each in found) < 0.02 * len(found)
