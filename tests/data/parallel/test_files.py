"""Pairs of texts and translations, wherever they come from, and the errors of broken ones."""

import gzip
import json
from pathlib import Path

import pytest

from sublayer.data.parallel.files import Fields, json_pairs, line_pairs, parquet_pairs, tab_pairs
from sublayer.data.parallel.filter import PairFilter
from sublayer.errors import DataError
from sublayer.files.lines import zstd

FIELDS = Fields("en", "de")
SOURCE, TARGET = ["a cat .", "", "two\u2028dogs"], ["eine Katze .", "leer", "zwei Hunde"]
EXPECTED = [(number, *texts) for number, texts in enumerate(zip(SOURCE, TARGET, strict=True), 1)]


def written(path: Path, data: bytes) -> Path:
    packed = {".gz": gzip.compress, ".zst": zstd.compress}
    path.write_bytes(packed.get(path.suffix, bytes)(data))
    return path


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_two_files_are_paired_line_by_line(tmp_path: Path, suffix: str, end: str) -> None:
    source = written(tmp_path / f"a.en{suffix}", b"\xef\xbb\xbf" + end.join([*SOURCE, ""]).encode())
    target = written(tmp_path / f"a.de{suffix}", end.join(TARGET).encode())
    assert list(line_pairs(source, target)) == EXPECTED


@pytest.mark.parametrize(("n_source", "n_target"), [(3, 5), (4, 1), (0, 2)])
def test_files_of_unequal_length_are_refused_with_both_counts(
    tmp_path: Path, n_source: int, n_target: int
) -> None:
    source, target = (
        written(tmp_path / name, b"x\n" * n) for name, n in (("a", n_source), ("b", n_target))
    )
    with pytest.raises(DataError, match=f"a has {n_source} lines and .*b has {n_target}: line i"):
        list(line_pairs(source, target))


def test_a_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    source, target = written(tmp_path / "a", b"x\ny\n"), written(tmp_path / "b", b"x\n\xff\n")
    with pytest.raises(DataError, match="b, line 2: byte 0xff is not UTF-8"):
        list(line_pairs(source, target))


def test_tabs_divide_pairs(tmp_path: Path) -> None:
    lines = ["a cat .\teine Katze .\tby whom", "\tleer", "two\u2028dogs\tzwei Hunde"]
    assert list(tab_pairs(written(tmp_path / "a.tsv", "\n".join(lines).encode()))) == EXPECTED
    with pytest.raises(DataError, match="b.tsv, line 2: no tab"):
        list(tab_pairs(written(tmp_path / "b.tsv", b"a\tb\nc\n")))


@pytest.mark.parametrize("nested", [False, True])
def test_records_hold_pairs(tmp_path: Path, nested: bool) -> None:
    import pyarrow
    import pyarrow.parquet

    pairs = [{"en": left, "de": right or None} for _, left, right in EXPECTED]
    rows = [{"translation": pair, "id": 1} for pair in pairs] if nested else pairs
    text = "\n".join(["", *map(json.dumps, rows)])
    found = list(json_pairs(written(tmp_path / "a.jsonl.gz", text.encode()), FIELDS))
    assert [each[1:] for each in found] == [each[1:] for each in EXPECTED]
    assert [each[0] for each in found] == [2, 3, 4]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert list(parquet_pairs(tmp_path / "a.parquet", FIELDS)) == EXPECTED


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"en": "a"}', r"line 1: no field 'de': set data.target_field to en"),
        ('{"en": 3, "de": "b"}', "line 1: field 'en' is int, not text"),
        ("[1]", "line 1: not a JSON object"),
        ("{", "line 1: not JSON"),
        (
            '{"translation": {"en": "a", "fr": "b"}}',
            r"no field 'de': set data.target_field to en, fr",
        ),
    ],
)
def test_broken_records_are_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(json_pairs(written(tmp_path / "a.jsonl", line.encode()), FIELDS))


def test_filters_count_what_they_drop() -> None:
    kept = PairFilter(longest=4, ratio=1.5)
    lengths = [(1, 1), (0, 3), (0, 0), (4, 3), (5, 5), (3, 2), (4, 2), (2, 4)]
    assert [kept.keeps(["x"] * n, ["y"] * m) for n, m in lengths] == [
        True,
        False,
        False,
        True,
        False,
        True,
        False,
        False,
    ]
    assert dict(kept.dropped) == {
        "with an empty side": 2,
        "with more than 4 words": 1,
        "with more than 1.5 words to one": 2,
    }
    assert PairFilter().keeps(["x"] * 1000, ["y"])
