"""Sentences of prose, and the body of a book between its header and its licence."""

import random
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import MemoryDocument
from sublayer.data.text.gutenberg import BOM, body_range
from sublayer.data.text.sentence_ends import split_sentences
from sublayer.data.text.sentences import (
    RULES,
    by_line,
    by_prose,
    by_spacy,
    sentence_cut,
    sentences_of,
)
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
    "",
]


@pytest.mark.parametrize("case", CASES)
def test_sentences_end_where_a_reader_ends_them(case):
    sentences = list(filter(None, case.split(" | ")))
    assert split_sentences(" ".join(sentences)) == sentences


@given(st.lists(st.text("aA1.!?… \"'”’()I—*_", min_size=1).filter(str.strip), max_size=8))
def test_sentences_joined_by_a_space_are_the_paragraph(words):
    paragraph = " ".join(" ".join(words).split())
    assert " ".join(split_sentences(paragraph)) == paragraph
    assert all(each == each.strip() != "" for each in split_sentences(paragraph))


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
def test_a_text_is_divided_by_lines_and_by_prose(line_end):
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
    sentences = ["One came.", "Two left!", "Why?", "Nobody knew"]
    assert by_spacy("One came. Two\nleft! Why?\n\nNobody knew") == sentences
    draw = random.Random(0)
    text = "".join(draw.choice("aB.\n \r\"'”?!é") for _ in range(2000))
    assert "".join("".join(by_spacy(text)).split()) == "".join(text.split())


@examples(200)
@given(
    st.text(st.characters(codec="utf-8"), max_size=300) | st.text("aB.\n \r\"'”?!", max_size=300)
)
@example("a\r\r\nb\n\x0b\nc")
def test_no_character_but_blanks_is_lost(text):
    for rule in ("lines", "prose"):
        found = RULES[rule](text)
        assert "".join("".join(found).split()) == "".join(text.split())
        assert all(each == each.strip() != "" and not re.search(r"[\n\r]", each) for each in found)


@examples(200)
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


BODY = b"CHAPTER I\n\nIt was a dark night.\n\nFINIS\n"

LICENCE = (
    b"\n\nThis file should be named 11.txt\n"
    b"*** START: FULL LICENSE ***\nTHE FULL PROJECT GUTENBERG LICENSE\n"
)

STARTS = [
    b"*** START OF THIS PROJECT GUTENBERG EBOOK DRACULA ***\n",
    b"*** START OF THE PROJECT GUTENBERG EBOOK DRACULA ***\n",
    b"***START OF THE PROJECT GUTENBERG EBOOK DRACULA***\n",
    b"*** START OF THE PROJECT GUTENBERG EBOOK THE ADVENTURES OF A\nGENTLEMAN, VOLUME 2 ***\n",
    b"*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n",
    b"*END THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n",
    b"**START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**START**\nwords of lawyers\n"
    b"*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n",
]

ENDS = [
    b"*** END OF THIS PROJECT GUTENBERG EBOOK DRACULA ***\n",
    b"***END OF THE PROJECT GUTENBERG EBOOK DRACULA***\n",
    b"End of Project Gutenberg's Dracula, by Bram Stoker\n\n"
    b"*** END OF THIS PROJECT GUTENBERG EBOOK DRACULA ***\n",
    b"End of the Project Gutenberg EBook of Dracula, by Bram Stoker\n",
    b"End of Project Gutenberg\xe2\x80\x99s Dracula\n",
    b"End of The Project Gutenberg Etext of Dracula\n",
]


def body(text):
    start, stop = body_range(text)
    return text[start:stop]


@pytest.mark.parametrize("number", range(len(STARTS)))
def test_the_body_stands_between_the_marks(number):
    header = b"\xef\xbb\xbfThe Project Gutenberg EBook of Dracula\n\nTitle: Dracula\n\n"
    end = ENDS[number % len(ENDS)]
    text = header + STARTS[number] + b"\n" + BODY + b"\n" + end + LICENCE
    assert body(text).strip() == BODY.strip()
    text, expected = text.replace(b"\n", b"\r\n"), BODY.replace(b"\n", b"\r\n")
    assert body(text).strip() == expected.strip()


def test_who_made_the_file_goes_with_the_header():
    credit = (
        b"\n\nProduced by A and the Online\n"
        b"Proofreading Team (images by\nThe Internet Archive)\n\n\n"
    )
    text = STARTS[0] + credit + BODY + ENDS[0]
    assert body(text).strip() == BODY.strip()
    assert body(STARTS[0] + b"\nProduced by magic?\n" + ENDS[0]).strip() == b""


def test_without_both_marks_nothing_but_a_byte_order_mark_is_dropped():
    for text in (STARTS[0] + BODY, BODY + ENDS[0], BODY, b"", b"End of Project Gutenberg's day\n"):
        assert body(text) == text
        assert body(BOM + text) == text
    about = b"Project Gutenberg began in 1971.\nThe end of Project Gutenberg is not near.\n"
    assert body(STARTS[1] + about + BODY + ENDS[0]) == about + BODY


@given(st.binary(max_size=200))
def test_the_body_is_a_part_of_any_text(text):
    start, stop = body_range(text)
    assert 0 <= start <= stop <= len(text)


def test_real_books_become_plausible_sentences_of_their_bodies(real_data):
    for path in sorted((real_data / "books").iterdir()):
        text = path.read_bytes()
        kept = body(text)
        assert BOM not in kept
        legal = rb"gutenberg-tm|gutenberg e|pgdp|full license|trademark|\be-?book"
        assert not re.search(legal, kept, re.IGNORECASE)
        assert 18_000 < len(text) - len(kept) < 21_000
        found = by_prose(kept.decode())
        assert "".join("".join(found).split()) == "".join(kept.decode().split())
        # Novels of the time have 15 to 25 words a sentence.
        assert 14 < len(kept.split()) / len(found) < 26
        assert not any(re.search(r"\b(?:Mr|Mrs|Dr|St)\.$", sentence) for sentence in found)
        assert sum(sentence[0].islower() for sentence in found) < 0.02 * len(found)
