"""Published files of the library are read; those that would end it are refused."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from sublayer.data.subwords.library_files import call_library
from sublayer.data.subwords.probe import try_file
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.errors import DataError
from tests.data.hostile import FORMS, charsmap_of_nfkc, check_file, published, sentencepiece_model


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def changed(form: str, **parts: Any) -> dict[str, Any]:
    content = json.loads(json.dumps(published(form)))
    model = parts.pop("model", {})
    return {**content, **parts, "model": {**content["model"], **model}}


@pytest.mark.parametrize("form", FORMS)
def test_every_published_form_is_read(tmp_path: Path, form: str) -> None:
    path = write(tmp_path / "tokenizer.json", published(form))
    assert check_file(path)
    tokenizer = load_tokenizer(path)
    theirs = Tokenizer.from_str(json.dumps(published(form)))
    for text in ("the quick fox's 12,345 dogs", "Zo\u00eb  na\u00efve \u4e2d\u6587 \U0001f389\n a"):
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text.encode()).tolist() == ids


def test_real_published_files_are_read(real_data: Path) -> None:
    for name in ("albert/spiece.model", "bert/vocab.txt"):
        assert check_file(real_data / "vocab" / name)


def normalizer(charsmap: object) -> dict[str, Any]:
    return {"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap}}


def doubled(times: int) -> dict[str, Any]:
    double = {"type": "Replace", "pattern": {"Regex": "."}, "content": "aaaa"}
    return {"normalizer": {"type": "Sequence", "normalizers": [double] * times}}


def template(*names: str) -> dict[str, Any]:
    single = [{"Sequence": {"id": name, "type_id": 0}} for name in names]
    kind = {"type": "TemplateProcessing", "special_tokens": {}}
    return {"post_processor": {**kind, "single": single, "pair": single}}


@pytest.mark.parametrize(
    ("form", "parts", "message"),
    [
        ("t5", normalizer("@"), "Precompiled"),
        ("t5", normalizer(0), "Precompiled"),
        ("t5", normalizer("@" + charsmap_of_nfkc()[1:]), "Precomp"),
        ("bert", {"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": []}, r"Missing \[UNK\]"),
        ("bert", {"model": {"vocab": {"[UNK]": 0, "a": 1 << 31}}}, "its greatest id is 2147483648"),
        ("gpt2", doubled(40), "takes too much memory|dies"),
        ("gpt2", doubled(3), "it makes .* ids of a text"),
        ("gpt2", template("A", "A"), "changes the ids of the text itself"),
        ("gpt2", template("B"), "index out of bounds"),
    ],
)
def test_files_that_end_the_library_are_refused(
    tmp_path: Path, form: str, parts: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sublayer.data.subwords.probe._BYTES", 192 << 20)
    path = write(tmp_path / "tokenizer.json", changed(form, **parts))
    with pytest.raises(DataError, match=f"tokenizer.json is not a tokenizer .*({message})"):
        load_tokenizer(path)


def test_a_file_that_takes_too_long_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sublayer.data.subwords.probe._SECONDS", 1)
    pattern = {"type": "Split", "pattern": {"Regex": "a+a+(?<!a)"}, "behavior": "Isolated"}
    content = changed("gpt2", pre_tokenizer={**pattern, "invert": False})
    with pytest.raises(DataError, match="it takes more than 1 seconds of a processor"):
        load_tokenizer(write(tmp_path / "tokenizer.json", content))


def test_a_panic_is_an_error_of_ours() -> None:
    content = changed("t5", normalizer={"type": "Precompiled", "precompiled_charsmap": "@"})
    with pytest.raises(DataError, match="reading fails: Precompiled"):
        call_library(lambda: Tokenizer.from_str(json.dumps(content)), "reading fails")
    with pytest.raises(KeyboardInterrupt):
        call_library(lambda: (_ for _ in ()).throw(KeyboardInterrupt), "reading fails")


def test_each_content_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    data = json.dumps(changed("gpt2", truncation=None)).encode() + b" " * 7
    try_file("tokenizers", data, "it")
    assert len(list((tmp_path / "cache" / "tried").iterdir())) == 1
    # A process of its own cannot be had here any more, and none is needed.
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    monkeypatch.setattr("sublayer.data.subwords.probe._tried", set())
    try_file("tokenizers", data, "it")
    with pytest.raises(DataError, match="it: the process that tries it cannot be started"):
        try_file("tokenizers", data + b" ", "it")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="folders are closed to nobody")
def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").mkdir(mode=0o500)
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    try_file("sentencepiece", sentencepiece_model(), "it")
