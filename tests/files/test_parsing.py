"""What is read of small files: values of JSON and TOML, and one line of error for all else."""

import json
import math
import os
import re
from contextlib import suppress
from pathlib import Path

import hypothesis.strategies as st
import pytest
import tomli_w
from hypothesis import given, settings

import sublayer
from sublayer.errors import DataError
from sublayer.files.parsing import (
    MAX_DEPTH,
    parse_json,
    parse_toml,
    parse_toml_value,
    read_json,
    read_json_object,
    read_toml,
)

_TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
_NUMBERS = st.integers(-(10**39), 10**39) | st.floats(allow_nan=False, allow_infinity=False)
_VALUES = st.recursive(
    st.booleans() | _NUMBERS | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=12,
)
_HOSTILE = (
    "[" * 100_000,
    '{"a":' * 70 + "1" + "}" * 70,
    "1" * 5000,
    '{"a": NaN}',
    "[1e999]",
    "-Infinity",
    '"\\ud800"',
    '{"\\udfff": 1}',
    '{"a": 1, "a": 2}',
    '{"a": 1} {',
    "",
)
_HOSTILE_TOML = (
    "a = " + "[" * 1000,
    "a = " + "9" * 5000,
    "a = 0x" + "f" * 5000,
    "a = inf",
    "a = [nan]",
    "a = 1\na = 2",
    "a." * 200_000 + "a = 1",
    "[" + '"a" . ' * 200_000 + "a]",
    "a = 2023-02-30",
    "a = ",
    'a = "\\ud800"',
)


@given(_VALUES)
@settings(max_examples=50)
def test_what_json_can_say_is_read_as_it_is(value: object) -> None:
    assert parse_json(json.dumps(value), "x", DataError) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode(), "x", DataError) == value


@given(st.dictionaries(_TEXTS, _VALUES, max_size=4))
@settings(max_examples=50)
def test_what_toml_can_say_is_read_as_it_is(table: dict[str, object]) -> None:
    assert parse_toml(tomli_w.dumps(table), "x", DataError) == table


@pytest.mark.parametrize("text", _HOSTILE, ids=range(len(_HOSTILE)))
def test_hostile_json_is_one_line_of_error(text: str) -> None:
    with pytest.raises(DataError) as error:
        parse_json(text, "some.json", DataError)
    assert (
        str(error.value).startswith("some.json")
        and "\n" not in str(error.value)
        and len(str(error.value)) < 200
    )


@pytest.mark.parametrize("text", _HOSTILE_TOML, ids=range(len(_HOSTILE_TOML)))
def test_hostile_toml_is_one_line_of_error(text: str) -> None:
    with pytest.raises(DataError) as error:
        parse_toml(text, "some.toml", DataError)
    assert (
        str(error.value).startswith("some.toml")
        and "\n" not in str(error.value)
        and len(str(error.value)) < 200
    )


@given(st.binary(max_size=40) | st.text(max_size=40))
@settings(max_examples=200)
def test_anything_at_all_is_a_value_or_one_line_of_error(data: bytes | str) -> None:
    for parse in (parse_json, parse_toml):
        with suppress(DataError):
            parse(data, "some", DataError)


@given(st.integers(1, 3 * MAX_DEPTH), st.sampled_from(["[%s]", '{"a": %s}', '[1, {"b": %s}]']))
def test_nesting_is_read_up_to_a_depth_and_refused_beyond(depth: int, level: str) -> None:
    text = "0"
    for _ in range(depth):
        text = level.replace("%s", text)
    n_levels = depth * (2 if level.startswith("[1") else 1)
    if n_levels <= MAX_DEPTH:
        parse_json(text, "x", DataError)
    else:
        with pytest.raises(DataError, match="nested more than"):
            parse_json(text, "x", DataError)


def test_the_error_names_the_place() -> None:
    with pytest.raises(DataError, match=r"x: model\.lr is inf, which is not finite"):
        parse_toml("[model]\nlr = inf", "x", DataError)
    with pytest.raises(DataError, match=r"x has the key b twice in one object"):
        parse_json('{"a": {"b": 1, "b": 1}}', "x", DataError)


def test_files_are_limited_in_bytes_and_their_errors_name_them(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    path.write_text("[" + "1, " * 400 + "1]")
    assert len(read_json(path, DataError)) == 401
    with pytest.raises(DataError, match=r"large\.json is larger than 100 bytes"):
        read_json(path, DataError, max_bytes=100)
    with pytest.raises(DataError, match=r"large\.json holds no JSON object"):
        read_json_object(path, DataError)
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none.json", DataError)
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_toml(tmp_path, DataError)
    path.write_bytes(b"\xef\xbb\xbfa = 1")
    assert read_toml(path, DataError) == {"a": 1}, "editors of Windows begin files with this mark"
    path.write_bytes(b"a = '\xff'")
    with pytest.raises(DataError, match=r"large\.json is not UTF-8 text \(byte 5\)"):
        read_toml(path, DataError)


def test_whole_numbers_as_large_as_any_field_takes_are_read() -> None:
    assert parse_json(f"[{2**64}, {10**39}]", "x", DataError) == [2**64, 10**39]
    assert math.isclose(parse_json("1e308", "x", DataError), 1e308)


# What they read is no small file of somebody's: records of a text, what a library has just made,
# what we packed, what a process of a study says to another.
_OTHER_READERS = {
    "files/json_footer.py",
    "data/corpora/albert_intrinsic.py",
    "data/subwords/bpe_training.py",
    "data/corpora/python_docs.py",
    "data/shards/joined.py",
    "data/shards/request.py",
    "data/shards/worker.py",
    "data/shards/workers.py",
    "data/text/records.py",
    "data/subwords/subword.py",
    "interop/answers/traversal_tokenizer.py",
    "interop/huggingface/folder_tokenizer.py",
    "study/cluster/schedulers/ray_broker.py",
    "study/cluster/schedulers/ray_cluster.py",
    "study/execution/child.py",
    "study/execution/job.py",
    "study/execution/stepper.py",
    "suite/evaluate.py",
    "system/python_process.py",
}


def test_nothing_else_reads_json_or_toml() -> None:
    package = Path(sublayer.__file__).parent
    readers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"\bjson\.loads?\(|\btomllib\.loads?\(", path.read_text())
    }
    assert readers == {"files/parsing.py"} | _OTHER_READERS


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[" * 100_000, "[" * 100_000),
        ("9" * 5000, "9" * 5000),
        ("0x" + "f" * 5000, "0x" + "f" * 5000),
        ("{" + "a." * 30_000 + "a = 1}", "{" + "a." * 30_000 + "a = 1}"),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("a\nb", "a\nb"),
        ("{a = 1}", {"a": 1}),
        ("[1, 'x']", [1, "x"]),
    ],
    ids=range(9),
)
def test_a_setting_that_is_no_value_of_toml_is_a_text(text: str, value: object) -> None:
    assert parse_toml_value(text) == value


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe cannot be read: it is no file that stays"):
        read_json(tmp_path / "pipe", DataError)
