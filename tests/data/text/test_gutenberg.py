import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.text.gutenberg import BOM, body_range

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


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_the_body_stands_between_the_marks(start, end, line_end):
    header = (
        b"\xef\xbb\xbfThe Project Gutenberg EBook of Dracula, by Bram Stoker\n\nTitle: Dracula\n\n"
    )
    text = (header + start + b"\n" + BODY + b"\n" + end + LICENCE).replace(b"\n", line_end)
    assert body(text).strip() == BODY.replace(b"\n", line_end).strip()


def test_who_made_the_file_goes_with_the_header():
    credit = (
        b"\n\nProduced by A and the Online\n"
        b"Proofreading Team (images by\nThe Internet Archive)\n\n\n"
    )
    text = STARTS[0] + credit + BODY + ENDS[0]
    assert body(text).strip() == BODY.strip()
    assert body(STARTS[0] + b"\nProduced by magic?\n" + ENDS[0]).strip() == b""


@pytest.mark.parametrize(
    "text", [STARTS[0] + BODY, BODY + ENDS[0], BODY, b"", b"End of Project Gutenberg's day\n"]
)
def test_without_both_marks_nothing_but_a_byte_order_mark_is_dropped(text):
    assert body(text) == text
    assert body(BOM + text) == text


def test_a_text_about_project_gutenberg_is_kept():
    about = b"Project Gutenberg began in 1971.\nThe end of Project Gutenberg is not near.\n"
    assert body(STARTS[1] + about + BODY + ENDS[0]) == about + BODY


@given(st.binary(max_size=200))
def test_the_body_is_a_part_of_any_text(text):
    start, stop = body_range(text)
    assert 0 <= start <= stop <= len(text)


def test_real_books_lose_their_header_and_licence(real_data):
    for path in sorted((real_data / "books").iterdir()):
        text = path.read_bytes()
        kept = body(text)
        assert BOM not in kept
        assert not re.search(
            rb"gutenberg-tm|gutenberg e|pgdp|full license|trademark|\be-?book", kept, re.IGNORECASE
        )
        assert 18_000 < len(text) - len(kept) < 21_000
