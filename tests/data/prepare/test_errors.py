"""Texts that cannot be used are refused by name."""

from pathlib import Path

import pytest

from sublayer.config.data import DataConfig
from sublayer.data.prepare import prepare
from sublayer.errors import ConfigError, DataError
from tests.data.prepare.texts import TEXT, raw


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        (b"0123456789", {}, "text has 10 bytes, too few for a valid split"),
        (b"", {}, "text is empty"),
        (b"ab\n\xff" * 300, {"tokenizer": "characters"}, "text, line 2: byte 0xff is not UTF-8"),
        (TEXT, {"tokenizer": "missing.json"}, "cannot read the tokenizer missing.json"),
        (TEXT, {"valid_path": "missing"}, "no such file or folder: missing"),
    ],
)
def test_a_text_that_cannot_be_used_is_named(tmp_path, cache, content, changes, message):
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(DataError, match=message) as raised:
        prepare(DataConfig(path=str(tmp_path / "text"), **changes), cache=cache)
    assert "\n" not in str(raised.value)


def test_a_bad_byte_outside_of_the_training_split_is_found_too(tmp_path, cache):
    (tmp_path / "text").write_bytes(TEXT + b"\xff\n")
    with pytest.raises(DataError, match="text, line 201: byte 0xff is not UTF-8"):
        prepare(
            DataConfig(path=str(tmp_path / "text"), tokenizer="characters", context=64), cache=cache
        )


def test_validation_text_that_is_trained_on_is_refused(file, folder, cache):
    for config in (
        DataConfig(path=str(file), valid_path=str(file)),
        DataConfig(path=str(folder), test_path=str(folder / "07.txt")),
    ):
        with pytest.raises(
            ConfigError, match=r"data.(valid|test)_path = .* is also read for training, in "
        ):
            prepare(config, cache=cache)


def test_a_text_that_is_named_twice_is_refused(file, folder, cache):
    for path in ((str(file), str(file)), (str(folder), str(folder / "07.txt"))):
        with pytest.raises(ConfigError, match=r"are the same text, named twice: leave one out"):
            prepare(DataConfig(path=path, context=64), cache=cache)


def test_validation_documents_are_read_by_the_same_rule(tmp_path, cache):
    one, two = str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")
    Path(one).write_text("".join(f'{{"text": "Document {number}."}}\n' for number in range(9)))
    Path(two).write_text('{"text": "Validation."}\n{"text": "Document 3."}\n')
    config = DataConfig(path=one, valid_path=two, documents="json", context=4)
    both = (
        r"b.jsonl, document at line 2, the same as .*a.jsonl, document at line 4; "
        "name other files in one"
    )
    with pytest.raises(
        ConfigError,
        match=rf"valid_path = .*b.jsonl is also read for training, in .*a.jsonl: .*{both}",
    ):
        prepare(config, cache=cache)
    Path(two).write_text('{"text": "Validation."}\n{"text": "More."}\n')
    assert raw(prepare(config, cache=cache).valid) == b"Validation.More."


def test_a_document_that_two_sources_hold_is_refused(tmp_path, cache):
    one, two = str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")
    for path in (one, two):
        Path(path).write_text(
            "".join(f'{{"text": "{path} {number}."}}\n' for number in range(9))
            + '{"text": "Same."}'
        )
    with pytest.raises(
        ConfigError,
        match=r"a.jsonl, document at line 10 and .*b.jsonl, document at line 10 are the",
    ):
        prepare(DataConfig(path=(one, two), documents="json", context=4), cache=cache)


def test_text_that_is_not_utf8_has_no_sentences(tmp_path, cache):
    (tmp_path / "a.txt").write_bytes(TEXT + b"\n\nbad \xff\n")
    with pytest.raises(
        DataError, match=r"a.txt, line 203: byte 0xff is not UTF-8, which data.sentences needs"
    ):
        prepare(
            DataConfig(path=str(tmp_path / "a.txt"), sentences="prose", context=16), cache=cache
        )
