"""Sentences of prose, and the body of a book between its header and its licence."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import MemoryDocument
from sublayer.data.text.gutenberg import BOM, body_range
from sublayer.data.text.sentence_ends import split_sentences
from sublayer.data.text.sentences import RULES, by_prose, by_spacy, sentence_cut, sentences_of
from sublayer.errors import DataError
from tests.breadth import examples

CASES = [
    "Did it rain? | It did! | We stayed in. | What?! | No!! | Stop.",
    "Mr. Bennet saw Dr. Watson in St. James's. | Messrs. Hill and Col. Forster left.",
    "Fruit, e.g. Apples, i.e. Food, vs. Stone. | The value is 3.14. | It is 2.5 times 1.256.",
    "J. R. R. Tolkien wrote it. | Thomas A. Edison met W. H. Auden. | J.-P. Sartre stayed.",
    "It is I. | He left. | It was Charles I. of England. | See W. I. Lenin. | I. Newton.",
    "He came at 5 p.m. | She left at 6 a.m. sharp. | They met at 5 p.m. Eastern Time.",
    "He lived in the U.S. | They met. | The U.S. President came, a Ph.D. Student.",
    "See No. 4 and vol. 2, p. 17. | He said no. | Four men came. | It cost £5. | 20 men paid.",
    "“What?” he said. | “Nothing.” | He left. | ‘Oh dear! | I shall be late!’ | She ran.",
    "He said “Go.” | (She went.) | [He did not.] | She spoke _so._ | He heard (see fig. 3). | So.",
    "I wonder... perhaps not. | Well... | He left. | I… I do not know. | He paused… | She waited.",
    "Wait . . . what? | Well . . . . | He left. | Really?—yes. | Come! come along.--Mr. Long left.",
    "2. The second point. | IV. The Fourth. | So are plums, etc. | Eat.",
    "(b). The first. | Il est là. | Élan est parti. | The end. | * * *",
]


@pytest.mark.parametrize("case", CASES)
def test_sentences_end_where_a_reader_ends_them(case):
    sentences = case.split(" | ")
    assert split_sentences(" ".join(sentences)) == sentences


BOOK = """THE BOOK

CHAPTER I. Down the Hole. It begins

Mr. Day was
tired.  "Why?" he
asked. Nobody knew.
  \t
Letter 1
Letter 2
Chapter 1
The second day came. It
was short. \u00c9t\u00e9 in
book 2. He slept.

* * * * *

THE END
"""
PROSE = [
    *("THE BOOK", "CHAPTER I. Down the Hole. It begins"),
    *("Mr. Day was tired.", '"Why?" he asked.', "Nobody knew."),
    *("Letter 1", "Letter 2", "Chapter 1"),
    *("The second day came.", "It was short.", "\u00c9t\u00e9 in book 2.", "He slept."),
    *("* * * * *", "THE END"),
]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_text_is_divided_by_lines_and_by_prose(line_end):
    text = BOOK.replace("\n", line_end)
    assert by_prose(text) == PROSE
    lines = [line.strip() for line in BOOK.split("\n")]
    assert RULES["lines"](text) == [line for line in lines if line]


def test_spacy_splits_paragraphs_by_its_sentencizer():
    pytest.importorskip("spacy")
    # The sentencizer knows marks and no abbreviations but those of its tokenizer.
    sentences = ["One came.", "Two left!", "Why?", "Nobody knew"]
    assert by_spacy("One came. Two\nleft! Why?\n\nNobody knew") == sentences


def cut(text: bytes, rule: str, start: int = 0, stop: int | None = None) -> list[str]:
    found = sentences_of(DocumentRange(MemoryDocument("a.txt", text), start, stop), rule)
    return [sentence for chunk in found for sentence in chunk]


@examples(200)
@given(
    st.text(st.characters(codec="utf-8"), max_size=300) | st.text("aB.\n \r\"'”?!", max_size=300),
    st.integers(1, 40),
)
@example("a\r\r\nb\n\x0b\nc", 3)
def test_no_character_but_blanks_is_lost_wherever_a_chunk_ends(text, n_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sublayer.data.text.document_range._CHUNK_BYTES", n_bytes)
        for rule in ("lines", "prose"):
            found = RULES[rule](text)
            assert "".join("".join(found).split()) == "".join(text.split())
            assert not any(each != each.strip() or re.search(r"[\n\r]", each) for each in found)
            if not text.startswith("\ufeff"):
                assert cut(text.encode(), rule) == found


def test_cuts_fall_between_sentences_of_the_body():
    text = (
        "\ufeffLegal words.\n*** START OF THE PROJECT GUTENBERG EBOOK A ***\nOne. Two.\n\nThree.\n"
        "*** END OF THE PROJECT GUTENBERG EBOOK A ***\nMore legal words.\n"
    ).encode()
    place = text.index(b"Three")
    assert cut(text, "prose") == ["One.", "Two.", "Three."]
    assert cut(text, "prose", 0, place) == ["One.", "Two."]
    assert cut(text, "prose", place) == ["Three."]
    with pytest.raises(DataError, match="a.txt, line 3: byte 0xff is not UTF-8, which data.senten"):
        cut(b"one\n\ntwo \xff three\n", "prose")
    assert sentence_cut(b"one\n\ntwo\nthree\nfour", 16, 0) == 5
    assert sentence_cut(b"one\r\n\r\ntwo\r\nthree", 14, 0) == 7
    assert sentence_cut(b"one\n\ntwo\nthree\nfour", 16, 5) == 15
    assert sentence_cut("one éé".encode(), 7, 0) == 6
    assert sentence_cut(b"one", 3, 0) == 3


BODY = b"CHAPTER I\n\nIt was a dark night.\n\nFINIS\n"
LICENCE = b"\n\nThis file should be named 11.txt\n*** START: FULL LICENSE ***\nTHE FULL LICENSE\n"
CREDIT = b"\n\nProduced by A and the Online\nTeam (images by\nThe Internet Archive)\n\n\n"
SMALL = b"SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n"
MARKS = [
    (b"*** START OF THIS PROJECT GUTENBERG EBOOK A ***\n", b"*** END OF THIS PROJECT GUTENBERG A"),
    (b"***START OF THE PROJECT GUTENBERG EBOOK A***\n", b"***END OF THE PROJECT GUTENBERG EBOOK"),
    (
        b"*** START OF THE PROJECT GUTENBERG EBOOK THE ADVENTURES OF A\nGENTLEMAN ***\n",
        b"End of Project Gutenberg's A, by B\n\n*** END OF THIS PROJECT GUTENBERG EBOOK A ***\n",
    ),
    (b"*END*THE " + SMALL, b"End of the Project Gutenberg EBook of A, by B\n"),
    (b"*END THE " + SMALL, b"End of Project Gutenberg\xe2\x80\x99s A\n"),
    (
        b"**START**THE SMALL PRINT!**FOR ETEXTS**START**\nwords of lawyers\n*END*THE " + SMALL,
        b"End of The Project Gutenberg Etext of A\n",
    ),
]


def body(text: bytes) -> bytes:
    start, stop = body_range(text)
    return text[start:stop]


@pytest.mark.parametrize(("start", "end"), MARKS)
def test_the_body_stands_between_the_marks(start, end):
    header = b"\xef\xbb\xbfThe Project Gutenberg EBook of A\n\nTitle: A\n\n"
    for credit in (b"\n", CREDIT):
        text = header + start + credit + BODY + b"\n" + end + LICENCE
        assert body(text).strip() == BODY.strip()
        assert body(text.replace(b"\n", b"\r\n")).strip() == BODY.strip().replace(b"\n", b"\r\n")


def test_without_both_marks_nothing_but_a_byte_order_mark_is_dropped():
    start, end = MARKS[0]
    for text in (start + BODY, BODY + end, BODY, b"", b"End of Project Gutenberg's day\n"):
        assert body(text) == body(BOM + text) == text
    about = b"Project Gutenberg began in 1971.\nThe end of Project Gutenberg is not near.\n"
    assert body(start + about + BODY + end) == about + BODY
