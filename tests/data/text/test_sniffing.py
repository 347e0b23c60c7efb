"""Files that hold no text are refused by what they are; another encoding is said."""

import gzip
import re
import subprocess
from pathlib import Path

import pytest

from sublayer.data.text.files import list_files_left_out, read_path
from sublayer.data.text.sniffing import describe_encoding, describe_records
from sublayer.errors import DataError

STORY = "Once upon a time there was a café by the sea.\n" * 40


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"%PDF-1.7 text and more", "is not text but a PDF file: name a file of text"),
        (b"PK\x03\x04 docx", "a zip archive"),
        (b"\x1f\x8b\x08 gz", "compressed with gzip: name it .gz"),
        (b"\x89PNG\r\n\x1a\n", "a picture"),
        (b"text\0text and more text", "is a binary file, not text: its byte 4 is zero"),
    ],
)
def test_a_file_that_is_no_text_is_refused_by_its_kind(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "book.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=re.escape(message)):
        read_path(str(path), tmp_path)
    with pytest.raises(DataError, match=re.escape(message)):
        read_path(str(tmp_path / "*.txt"), tmp_path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_wide_text_is_refused_with_the_command_that_converts_it(
    tmp_path: Path, encoding: str, is_packed: bool
) -> None:
    content = STORY.encode(encoding)
    path = tmp_path / ("book.txt.gz" if is_packed else "book.txt")
    path.write_bytes(gzip.compress(content) if is_packed else content)
    with pytest.raises(DataError, match="is text in UTF-") as refused:
        read_path(str(path), tmp_path)
    if is_packed:
        return
    command = re.search("`(.*)`", str(refused.value))
    assert command
    subprocess.run(command[1], shell=True, cwd=tmp_path, check=True)
    (converted,) = tmp_path.glob("utf8-*")
    assert converted.read_text().lstrip("\ufeff") == STORY


def test_a_zero_byte_far_in_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_bytes(b"a" * 20_000 + b"\0end")
    (document,) = read_path(str(path), tmp_path)
    with pytest.raises(DataError, match="byte 20,000 is zero") as refused:
        document.read()
    command = re.search("`(.*)`", str(refused.value))
    assert command
    subprocess.run(command[1], shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "clean-book.txt").read_bytes() == b"a" * 20_000 + b"end"


def test_an_address_and_a_name_of_the_hub_are_answered(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="curl -LO https://example.org/book.txt"):
        read_path("https://example.org/book.txt", tmp_path)
    with pytest.raises(DataError, match="hub:owner/name would be a data set"):
        read_path("owner/name", tmp_path)


def test_text_that_is_not_utf8_is_said_with_its_first_such_byte(tmp_path: Path) -> None:
    latin, whole = tmp_path / "latin.txt", tmp_path / "whole.txt"
    latin.write_bytes(STORY.encode("latin-1"))
    whole.write_text("é" * 40_000)  # of which the first 64 KiB end within a character
    note = describe_encoding(latin)
    assert note is not None
    assert note.startswith(f"{latin} is not UTF-8: byte 32 is 0xe9.")
    assert describe_encoding(whole) is None


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ('{"text": "Of rivers.", "title": "A longer string"}', "data.documents=json reads"),
        ('{"id": "7", "the body": "Of rivers."}', "json data.text_field='the body' reads"),
        ('{"id": 7}', None),
        ('["Of rivers."]', None),
        ("{Of rivers.}", None),
        ("[" * 60_000, None),
    ],
)
def test_lines_of_json_that_are_read_as_they_are_are_said(
    tmp_path: Path, line: str, settings: str | None
) -> None:
    path = tmp_path / "rivers.jsonl"
    path.write_text(f"{line}\n{line}\n")
    note = describe_records(path)
    assert (note is None) == (settings is None)
    assert settings is None or settings in str(note)


def test_what_a_folder_leaves_out_is_listed(tmp_path: Path) -> None:
    for name, content in {
        "a.txt": b"text",
        "b.png": b"\x89PNG\0",
        "c.zip": b"PK",
        "d.txt": b"",
        ".hidden": b"\0",
    }.items():
        (tmp_path / name).write_bytes(content)
    assert [path.name for path in list_files_left_out(str(tmp_path))] == ["b.png", "c.zip", "d.txt"]
    assert list_files_left_out(str(tmp_path / "a.txt")) == []
