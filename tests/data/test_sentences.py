"""Sentences and bodies of prose, and the division of texts into splits."""

import hashlib
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sublayer.config.text.split import parse_split
from sublayer.data.text import content_order, splitting, whole_documents
from sublayer.data.text.content_order import shared_document
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.document_store import open_pack
from sublayer.data.text.files import MemoryDocument
from sublayer.data.text.gutenberg import BOM, body_range
from sublayer.data.text.sentence_ends import split_sentences
from sublayer.data.text.sentences import RULES, by_prose, by_spacy, sentence_cut, sentences_of
from sublayer.data.text.splitting import SPLITS, divide
from sublayer.data.text.whole_documents import WholeDocuments
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


def cut(text, rule, start=0, stop=None):
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


def body(text):
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


def shares_of(split):
    return dict(zip(SPLITS, parse_split(split), strict=True))


SHARES = shares_of("90/5/5")


def text_of(pieces):
    return b"".join(bytes(piece.document.read()[piece.start : piece.stop]) for piece in pieces)


def divide_text(text, *, shares=SHARES, is_utf8=False, sentences="none"):
    document = MemoryDocument("text", text)
    parts = divide([document], shares, name="text", is_utf8=is_utf8, sentences=sentences)
    return [text_of(parts[split]) for split in SPLITS]


@pytest.mark.parametrize(
    ("shares", "n_bytes", "sizes"),
    [
        # 99 * 0.9 = 89.1, 99 * 0.95 = 94.05
        (SHARES, 99, [89, 5, 5]),
        # In floating point, 0.7 + 0.2 is less than 0.9.
        (shares_of("70/20/10"), 10, [7, 2, 1]),
        ({"train": Fraction(19, 20), "test": Fraction(1, 20)}, 100, [95, 0, 5]),
    ],
)
def test_one_text_is_cut_at_exact_shares_rounded_down(shares, n_bytes, sizes):
    parts = divide_text(bytes(range(n_bytes)), shares=shares)
    assert [len(part) for part in parts] == sizes
    assert b"".join(parts) == bytes(range(n_bytes))
    with pytest.raises(DataError, match="text has 10 bytes, too few for a valid split"):
        divide_text(b"0123456789")


def test_cuts_of_sentences_fall_between_paragraphs():
    text = b"one two\r\nthree\r\n\r\n" * 20
    assert divide_text(text, is_utf8=True, sentences="prose") == [
        text[: len(text) * share // 20] for share in (18, 1, 1)
    ]


def in_memory(contents):
    return [MemoryDocument(str(number), text) for number, text in enumerate(contents)]


def test_few_documents_give_the_smallest_to_the_small_splits():
    found = in_memory([b"a" * 1000, b"b" * 400, b"c" * 200])
    parts = divide(found, SHARES, name="folder", is_utf8=False)
    assert [len(text_of(parts[split])) for split in SPLITS] == [1000, 400, 200]
    for contents in ([b"a", b"b"], [b"a", b"a", b"b"]):
        with pytest.raises(DataError, match="folder has 2 different documents, too few for 3 spl"):
            divide(in_memory(contents), SHARES, name="folder", is_utf8=False)
    parts = divide(in_memory(contents), {"train": Fraction(1)}, name="folder", is_utf8=False)
    assert [len(parts[split]) for split in SPLITS] == [3, 0, 0]


def texts(n_documents, seed=0):
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 40, n_documents)
    # A third of them are copies of others.
    names = random.integers(0, n_documents * 2 // 3, n_documents)
    return [b"%d" % name * int(1 + sizes[name]) for name in names]


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """Contents as documents in a file, which are read in small blocks."""
    monkeypatch.setattr(content_order, "_BLOCK", 7)
    monkeypatch.setattr(whole_documents, "_BLOCK", 11)
    return lambda contents: open_pack(
        tmp_path / "pack", [("a", lambda: iter(enumerate(contents, 1)))]
    )


def by_hand(contents):
    """Fill test to a tenth of all bytes and then valid to three, in order of hashes."""
    free = sorted(set(contents), key=lambda text: hashlib.sha256(text).digest())
    splits = []
    for tenths in (1, 3):
        room = Fraction(tenths, 10) * sum(map(len, contents))
        taken = []
        for text in free:
            n_bytes = len(text) * contents.count(text)
            if n_bytes <= room:
                taken.append(text)
                room -= n_bytes
        splits.insert(0, taken)
        free = [text for text in free if text not in taken]
    return [sorted(text for text in contents if text in part) for part in (free, *splits)]


@pytest.mark.parametrize("n_documents", [12, 200])
def test_a_division_does_not_depend_on_how_many_documents_are_in_memory(
    packed, n_documents, monkeypatch
):
    contents = texts(n_documents, seed=n_documents)
    for documents, n_parts in ((in_memory(contents), 1), (packed(contents), 17)):
        monkeypatch.setattr(splitting, "count_parts", lambda count, n=n_parts: n)
        parts = divide(documents, shares_of("60/30/10"), name="a", is_utf8=False)
        found = [[piece.document.read() for piece in parts[split]] for split in SPLITS]
        assert [parts[split].n_bytes for split in SPLITS] == [sum(map(len, part)) for part in found]
        assert [sorted(part) for part in found] == by_hand(contents)
        names = [piece.document.name for piece in parts["train"]]
        assert names == sorted(names, key=lambda name: int(name.split()[-1]))


def test_the_first_document_that_two_texts_share_is_found(packed):
    contents = texts(60, seed=2)
    others = [b"other", *texts(40, seed=3), contents[5]]
    common = set(contents) & set(others)
    first = min(common, key=lambda text: hashlib.sha256(text).hexdigest())
    for most in (1000, 9):
        number, other = shared_document(in_memory(contents), packed(others), most)
        assert contents[number] == others[other] == first
        assert shared_document(in_memory([b"x"]), in_memory(others), most) is None


def test_chosen_documents_are_numbered_through(packed):
    contents = [b"%d" % number for number in range(50)]
    marks = np.arange(50, dtype=np.int8) % 3
    chosen, expected = WholeDocuments(packed(contents), marks, 2), contents[2::3]
    found = [chosen[index].document.read() for index in range(len(chosen))]
    assert found == [piece.document.read() for piece in chosen] == expected
    assert chosen[-1].document.read() == expected[-1]
    assert [piece.document.read() for piece in chosen[3:6]] == expected[3:6]
    with pytest.raises(IndexError):
        chosen[len(expected)]
    assert len(WholeDocuments([])) == 0
