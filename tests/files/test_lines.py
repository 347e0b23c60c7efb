import gzip
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.errors import DataError
from sublayer.files import file_text
from sublayer.files.lines import decoded, read_lines, zstd

TEXT = b"one\n\ntwo \xff\r\nthree"


def test_lines_are_numbered_and_whole_in_every_form(tmp_path):
    (tmp_path / "a").write_bytes(TEXT)
    (tmp_path / "a.gz").write_bytes(gzip.compress(TEXT[:5]) + gzip.compress(TEXT[5:]))
    (tmp_path / "a.ZST").write_bytes(zstd.compress(TEXT[:5]) + zstd.compress(TEXT[5:]))
    for name in ("a", "a.gz", "a.ZST"):
        assert list(read_lines(tmp_path / name)) == [
            (1, b"one\n"),
            (2, b"\n"),
            (3, b"two \xff\r\n"),
            (4, b"three"),
        ]


def test_a_large_zstd_file_is_its_bytes(tmp_path):
    text = os.urandom(1 << 20)
    (tmp_path / "a.zst").write_bytes(zstd.compress(text) + zstd.compress(text))
    assert b"".join(line for _, line in read_lines(tmp_path / "a.zst")) == text + text


@pytest.mark.parametrize("name", ["a", "a.gz", "a.zst"])
def test_a_file_of_no_bytes_has_no_lines(tmp_path, name):
    (tmp_path / name).touch()
    assert list(read_lines(tmp_path / name)) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.gz", gzip.compress(bytes(range(256)) * 50, mtime=0)[:-20]),
        ("not.gz", b"plain text"),
        ("cut.zst", zstd.compress(os.urandom(5000))[:-20]),
        ("cut_second.zst", zstd.compress(b"whole") + zstd.compress(b"cut")[:-1]),
        ("not.zst", b"plain text"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(
        DataError, match=rf"{name} is damaged (gzip|zstd) \(.*\): fetch or compress it again"
    ) as raised:
        list(read_lines(tmp_path / name))
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*gone: No such file"):
        list(read_lines(tmp_path / "gone"))


def test_a_byte_order_mark_is_no_text_of_the_first_line():
    mark = b"\xef\xbb\xbf"
    assert decoded("a", 1, mark + b"one\n") == "one\n"
    assert decoded("a", 2, mark + b"two") == "\ufefftwo"
    with pytest.raises(DataError, match=r"a, line 1: byte 0xff is not UTF-8"):
        decoded("a", 1, mark + b"\xff")


@given(st.binary(max_size=20), st.binary(max_size=3))
def test_a_mark_is_found_wherever_a_block_ends(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, mark: bytes
) -> None:
    path = tmp_path_factory.mktemp("text") / "text"
    content = bytes(byte % 3 + 97 for byte in content)  # so few letters that marks repeat
    mark = bytes(byte % 3 + 97 for byte in mark) or b"a"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_text, "_BLOCK_BYTES", 4)
        text = file_text.FileText(path)
        assert text.find(mark) == content.find(mark)
        for start in range(len(content)):
            for stop in range(start, len(content) + 1):
                assert text.rfind(mark, start, stop) == content.rfind(mark, start, stop)
