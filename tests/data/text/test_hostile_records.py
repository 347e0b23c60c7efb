"""Files of records with anything wrong: each is read, or refused in one line that names it."""

import gzip
import io
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from sublayer.data.corpora.albert_intrinsic import passages
from sublayer.data.parallel.files import Fields, json_pairs, parquet_pairs, tab_pairs
from sublayer.data.text.files import FileDocument, read_path
from sublayer.data.text.records import json_lines, parquet_rows
from sublayer.errors import DataError
from sublayer.files.file_text import FileText
from sublayer.files.lines import read_lines, unpacked
from tests.at_length import at_length
from tests.data.hostile import altered, damaged

RANDOMS = st.randoms(use_true_random=False)
TEXTS = ["one", None, "zw\u00e9i", "", "long " * 50] * 8
SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "A",
            "paragraphs": [{"context": "One.", "qas": []}, {"context": "Two.", "qas": []}],
        }
    ]
    * 2,
}
RACE = {"id": "high1.txt", "article": "Four is\na number.", "questions": ["?"], "options": [["a"]]}
RECORD = {"text": "one", "id": 3, "translation": {"en": "one", "de": "eins"}, "en": "a", "de": None}


def check(data: bytes, name: str, *reads: Callable[[Path], Iterable[Any]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        for read in reads:
            problem = problem_of(read, path)
            assert "\n" not in problem
            assert not problem or name in problem


def problem_of(read: Callable[[Path], Iterable[Any]], path: Path) -> str:
    try:
        for _ in read(path):
            pass
    except DataError as error:
        return str(error)
    return ""


def passages_of(path: Path) -> Iterable[Any]:
    return passages(FileDocument(path, path.parent))


@settings(max_examples=200)
@given(st.sampled_from([SQUAD, RACE]), RANDOMS)
def test_passages_are_read_or_refused(content: Any, random: Random) -> None:
    text = json.dumps(altered(random, content)).encode()
    check(damaged(random, text) if random.random() < 0.2 else text, "a.json", passages_of)


@pytest.mark.parametrize("paragraphs", [3, 1.5, True, None, "text", {"context": "a"}, [None], [3]])
def test_paragraphs_that_are_no_list_are_refused(tmp_path: Path, paragraphs: Any) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    with pytest.raises(
        DataError, match=r"a.json, line 1: data without paragraphs that have a context"
    ):
        list(passages_of(tmp_path / "a.json"))


def test_half_a_surrogate_pair_in_a_passage_is_named(tmp_path: Path) -> None:
    for content in ({"article": "\ud800"}, {"data": [{"paragraphs": [{"context": "\ud800"}]}]}):
        (tmp_path / "a.json").write_text(json.dumps(content))
        with pytest.raises(DataError, match=r"a.json, line 1: '\\ud800' is half a surrogate pair"):
            list(passages_of(tmp_path / "a.json"))


@settings(max_examples=200)
@given(RANDOMS)
def test_json_lines_are_read_or_refused(random: Random) -> None:
    lines = [json.dumps(altered(random, RECORD)) for _ in range(3)]
    text = "\n".join(lines).encode()
    data = damaged(random, text) if random.random() < 0.3 else text
    fields = Fields("en", "de")
    check(
        data,
        "a.jsonl",
        lambda path: json_lines(path, "text"),
        lambda path: json_pairs(path, fields),
        tab_pairs,
    )


def parquet(random: Random) -> bytes:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    texts = TEXTS if random.random() < 0.7 else [text or "" for text in TEXTS]
    columns = {
        "text": arrow.array(texts),
        "large": arrow.array(texts, arrow.large_string()),
        "view": arrow.array(texts, arrow.string_view()),
        "category": arrow.array(texts).dictionary_encode(),
        "bytes": arrow.array([None if text is None else text.encode() for text in texts]),
        "translation": arrow.array([{"en": text, "de": text} for text in texts]),
    }
    names = random.choices(sorted(columns), k=random.choice((1, 2)))
    table = arrow.table(
        [columns[name] for name in names], names=[random.choice((name, "text")) for name in names]
    )
    file = io.BytesIO()
    write_table(
        table,
        file,
        compression=random.choice(("none", "snappy", "gzip", "zstd", "brotli")),
        use_dictionary=random.random() < 0.5,
        data_page_version=random.choice(("1.0", "2.0")),
        row_group_size=random.choice((7, 1000)),
    )
    return file.getvalue()


@settings(max_examples=100)
@given(RANDOMS)
def test_parquet_files_are_read_or_refused(random: Random) -> None:
    check_parquet(random)


@pytest.mark.slow
@at_length(2000)
@given(RANDOMS)
def test_any_parquet_file_is_read_or_refused(random: Random) -> None:
    check_parquet(random)


def check_parquet(random: Random) -> None:
    whole = parquet(random)
    data = damaged(random, whole) if random.random() < 0.8 else whole
    pairs = Fields("en", "de")
    check(
        data,
        "a.parquet",
        lambda path: parquet_rows(path, "text"),
        lambda path: parquet_pairs(path, pairs),
    )


@settings(max_examples=100)
@given(st.sampled_from([".gz", ".zst"]), RANDOMS)
def test_packed_texts_are_read_or_refused(suffix: str, random: Random) -> None:
    text = b"".join(
        b"line %d of some text\n" % random.randrange(100) for _ in range(random.randrange(1, 200))
    )
    packed = (
        gzip.compress(text) if suffix == ".gz" else zstandard.compress(text) * random.choice((1, 2))
    )
    data = damaged(random, packed)
    check(data, f"a{suffix}", read_lines, lambda path: [unpacked(path)])
    check(data, f"a.jsonl{suffix}", lambda path: json_lines(path, "text"))


def bomb(folder: Path, suffix: str) -> Path:
    text = b" " * (72 << 20)
    path = folder / f"bomb{suffix}"
    path.write_bytes(gzip.compress(text, 1) if suffix == ".gz" else zstandard.compress(text))
    return path


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_file_that_becomes_more_than_memory_is_refused(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sublayer.files.lines._most_bytes", lambda: 8 << 20)
    path = bomb(tmp_path, suffix)
    with pytest.raises(
        DataError, match=rf"bomb{suffix} becomes more than 0.0 GiB, half of the memory here"
    ):
        unpacked(path)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_file_that_becomes_more_than_the_disk_holds_is_refused(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sublayer.files.lines._most_on_disk", lambda folder: 68 << 20)
    path = bomb(tmp_path, suffix)
    with pytest.raises(
        DataError, match=rf"bomb{suffix} becomes more than 0.1 GiB, half of what is free in"
    ):
        FileDocument(path, tmp_path / "cache").read()
    assert not list((tmp_path / "cache").rglob("unpacked/*"))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_large_compressed_file_is_unpacked_once(tmp_path: Path, suffix: str) -> None:
    path = bomb(tmp_path, suffix)
    document = FileDocument(path, tmp_path / "cache")
    text = document.read()
    assert isinstance(text, FileText) and len(text) == 72 << 20
    [unpacked_path] = (tmp_path / "cache" / "unpacked").iterdir()
    written = unpacked_path.stat().st_mtime_ns
    assert FileDocument(path, tmp_path / "cache").read()[: 1 << 20] == b" " * (1 << 20)
    assert unpacked_path.stat().st_mtime_ns == written


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sublayer.files.lines._LONGEST_LINE", 1 << 20)
    (tmp_path / "a.jsonl").write_bytes(b"{}\n" + b" " * (1 << 20))
    with pytest.raises(DataError, match=r"a.jsonl, line 2: longer than 1 MiB"):
        list(read_lines(tmp_path / "a.jsonl"))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe is no file and no folder"):
        read_path(str(tmp_path / "pipe"), tmp_path)
    with pytest.raises(DataError, match="cannot read .*File name too long"):
        read_path("x" * 5000, tmp_path)
