"""Small files: values of JSON and TOML, measurements among them, and a line of error for others."""

import json
import os

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sublayer.errors import DataError
from sublayer.files import parsing
from sublayer.files.measurements import Measurement, keep, recall
from sublayer.files.parsing import parse_json, parse_toml, read_json, read_toml

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
NUMBERS = st.integers(-(10**39), 10**39) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.booleans() | NUMBERS | TEXTS
VALUES = SCALARS | st.lists(SCALARS, max_size=4) | st.dictionaries(TEXTS, SCALARS, max_size=4)
VALUES |= st.lists(VALUES, max_size=4) | st.dictionaries(TEXTS, VALUES, max_size=4)


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
@settings(max_examples=50)
def test_values_are_read_as_they_are_written(table):
    assert parse_json(json.dumps(table), "x", DataError) == table
    assert parse_json(json.dumps(table, ensure_ascii=False).encode(), "x", DataError) == table
    assert parse_toml(tomli_w.dumps(table), "x", DataError) == table


@pytest.mark.parametrize("parse, text, why", [
    (parse_json, "[" * 65 + "0" + "]" * 65, "is nested more than 64 deep"),
    (parse_json, "1" * 5000, "holds a number of 5,000 digits"),
    (parse_json, '{"a": NaN}', "holds NaN"),
    (parse_json, "[1e999]", "a value is inf, which is not finite"),
    (parse_json, '{"\\udfff": 1}', "is not Unicode text"),
    (parse_json, '{"a": {"b": 1, "b": 1}}', "has the key b twice in one object"),
    (parse_toml, "a = " + "[" * 1000, "is nested more than 64 deep"),
    (parse_toml, "a = 0x" + "f" * 5000, "a is a number of more than 40 digits"),
    (parse_toml, "[model]\nlr = inf", "model.lr is inf, which is not finite"),
    (parse_toml, "[" + '"a" . ' * 200_000 + "a]", "has a key of more than 32 parts"),
], ids=range(10))  # fmt: skip
def test_hostile_text_is_one_line_of_error(parse, text, why):
    with pytest.raises(DataError) as error:
        parse(text, "some.file", DataError)
    line = str(error.value)
    assert line.startswith("some.file") and why in line
    assert "\n" not in line and len(line) < 200


def test_files_are_limited_in_bytes_and_their_errors_name_them(tmp_path):
    path = tmp_path / "large.json"
    path.write_text("[" + "1, " * 400 + "1]")
    assert len(read_json(path, DataError, max_bytes=path.stat().st_size)) == 401
    with pytest.raises(DataError, match=r"large\.json is larger than 1,202 bytes"):
        read_json(path, DataError, max_bytes=path.stat().st_size - 1)
    with pytest.raises(DataError, match=r"large\.json holds no JSON object"):
        parsing.read_json_object(path, DataError)
    path.write_bytes(b"\xef\xbb\xbfa = 1")
    assert read_toml(path, DataError) == {"a": 1}, "editors of Windows begin files with this mark"
    path.write_bytes(b"a = '\xff'")
    with pytest.raises(DataError, match=r"large\.json is not UTF-8 text \(byte 5\)"):
        read_toml(path, DataError)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe cannot be read: it is a pipe or a device"):
        read_json(tmp_path / "pipe", DataError)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_measurements_are_recalled_with_their_time_until_they_are_the_oldest(cache, monkeypatch):
    assert recall("speed", 2) is None
    assert keep("speed", [1.5, 2], clock=lambda: 77.0) == Measurement((1.5, 2.0), 77.0)
    keep("other", [3.0], clock=lambda: 78.0)
    assert (recall("speed", 2), recall("speed", 1)) == (Measurement((1.5, 2.0), 77.0), None)
    with monkeypatch.context() as patch:
        patch.setenv("ATEN_CPU_CAPABILITY", "AVX2")
        assert recall("speed", 2) is None, "another limit of the processor is another machine"
    monkeypatch.setattr("sublayer.files.measurements._MOST", 2)
    keep("speed", [4.0, 5.0], clock=lambda: 79.0)
    assert (recall("speed", 2), recall("other", 1).at) == (Measurement((4.0, 5.0), 79.0), 78.0)
    keep("third", [1.0], clock=lambda: 80.0)
    assert recall("other", 1) is None and recall("speed", 2).at == 79.0


@given(VALUES | st.none() | VALUES.map(lambda value: {"values": [value], "at": value}))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_cache_of_measurements_stops_nothing(cache, entry):
    keep("speed", [1.0])
    path = cache / "measured.json"
    (key,) = json.loads(path.read_text())
    for content in (json.dumps({key: entry, "another": entry}), json.dumps(entry), str(entry)):
        path.write_text(content)
        found = recall("speed", 1)
        assert found is None or (found.values[0] >= 0 and found.at >= 0)
        keep("speed", [3.0])
        assert recall("speed", 1).values == (3.0,)
    path.unlink()
    path.mkdir()
    assert recall("speed", 1) is None and keep("speed", [3.0]).values == (3.0,)
    path.rmdir()
