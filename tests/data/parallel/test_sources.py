"""Pairs of texts: read from any file, filtered, divided as published, stored and kept to score."""

import gzip
import json

import numpy as np
import pytest

from sublayer.config.data import DataConfig
from sublayer.config.text.corpora import PARALLEL_CORPORA as NAMES
from sublayer.data.parallel.files import Fields, json_pairs, line_pairs, parquet_pairs, tab_pairs
from sublayer.data.parallel.filter import PairFilter
from sublayer.data.parallel.named import PARALLEL_CORPORA
from sublayer.data.parallel.sources import find_pairs, read_pairs
from sublayer.data.prepare import prepare
from sublayer.data.texts import find_texts
from sublayer.errors import ConfigError, DataError

FIELDS = Fields("en", "de")

SOURCE, TARGET = ["a cat .", "", "two\u2028dogs"], ["eine Katze .", "leer", "zwei Hunde"]
EXPECTED = [(number, *texts) for number, texts in enumerate(zip(SOURCE, TARGET, strict=True), 1)]


def written(path, data):
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize(("suffix", "end"), [("", "\r\n"), (".gz", "\n")])
def test_two_files_are_paired_line_by_line(tmp_path, suffix, end):
    source = written(tmp_path / f"a{suffix}", b"\xef\xbb\xbf" + end.join([*SOURCE, ""]).encode())
    target = written(tmp_path / f"b{suffix}", end.join(TARGET).encode())
    assert list(line_pairs(source, target)) == EXPECTED
    for n_source, n_target in ((3, 5), (4, 1), (0, 2)):
        written(source, b"x\n" * n_source)
        written(target, b"x\n" * n_target)
        with pytest.raises(
            DataError, match=f"a{suffix} has {n_source} lines and .* has {n_target}"
        ):
            list(line_pairs(source, target))
    written(target, b"x\n\xff\n")
    with pytest.raises(DataError, match=f"b{suffix}, line 2: byte 0xff is not UTF-8"):
        list(line_pairs(written(source, b"x\ny\n"), target))


@pytest.mark.parametrize("nested", [False, True])
def test_records_and_lines_with_tabs_hold_pairs(tmp_path, nested):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pairs = [{"en": left, "de": right or None} for _, left, right in EXPECTED]
    rows = [{"translation": pair, "id": 1} for pair in pairs] if nested else pairs
    text = "\n".join(["", *map(json.dumps, rows)])
    found = list(json_pairs(written(tmp_path / "a.jsonl.gz", text.encode()), FIELDS))
    assert found == [(number + 1, left, right) for number, left, right in EXPECTED]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert list(parquet_pairs(tmp_path / "a.parquet", FIELDS)) == EXPECTED
    lines = ["a cat .\teine Katze .\tby whom", "\tleer", "two\u2028dogs\tzwei Hunde"]
    assert list(tab_pairs(written(tmp_path / "a.tsv", "\n".join(lines).encode()))) == EXPECTED
    with pytest.raises(DataError, match="b.tsv, line 2: no tab"):
        list(tab_pairs(written(tmp_path / "b.tsv", b"a\tb\nc\n")))


def test_filters_count_dropped_pairs():
    kept = PairFilter(longest=4, ratio=1.5)
    for n, m in ((1, 1), (4, 3), (3, 2)):
        assert kept.keeps(["x"] * n, ["y"] * m)
    for n, m in ((0, 3), (0, 0), (5, 5), (4, 2), (2, 4)):
        assert not kept.keeps(["x"] * n, ["y"] * m)
    assert dict(kept.dropped) == {
        "with an empty side": 2,
        "with more than 4 words": 1,
        "with more than 1.5 words to one": 2,
    }
    assert PairFilter().keeps(["x"] * 1000, ["y"])


LONG = "One very long sentence about nothing at all here"
EN = ["A man's hat.", "Two dogs, running!", "", LONG, "A hat"]
DE = ["Der Hut eines Mannes.", "Zwei Hunde rennen!", "leer", "kurz", "Ein Hut"]


@pytest.fixture
def files(tmp_path):
    for language, lines in (("en", EN), ("de", DE)):
        # Equal pairs would all be in one split.
        train = [f"{line} {number}" if line else "" for number in range(8) for line in lines]
        (tmp_path / f"train.{language}").write_text("\n".join([*train, ""]))
        (tmp_path / f"test.{language}").write_text("\n".join([*lines, " ", ""]))
    return tmp_path


def prepared(files, **fields):
    paths = {"source_path": str(files / "train.en"), "target_path": str(files / "train.de")}
    languages = {"source_language": "en", "target_language": "de", "moses": "tokenize"}
    given = {**paths, **languages, "tokenizer": "word-bpe", "vocab_size": 90, **fields}
    return prepare(DataConfig(**given), cache=files / "cache")


def test_training_is_filtered_and_scored_texts_are_whole(files, capsys):
    held = {"test_source_path": str(files / "test.en"), "test_target_path": str(files / "test.de")}
    data = prepared(files, max_words_ratio=3.0, lowercase=True, **held)
    known = {("a man 's hat .", DE[0].lower()), ("two dogs , running !", DE[1].lower())}
    known.add(("a hat", "ein hut"))
    parts = np.split(data.train.ids, data.train.sentence_starts[1:])
    sources = [" ".join(data.tokenizer.words(part)[:-1]) for part in parts[::2]]
    targets = [data.tokenizer.write(part).rsplit(" ", 1)[0] for part in parts[1::2]]
    assert set(zip(sources, targets, strict=True)) == known
    err = capsys.readouterr().err
    assert "8 pairs with an empty side left out" in err
    assert "8 pairs with more than 3 words to one left out" in err
    assert "without text" not in err
    pairs = data.test.pairs
    given = list(zip([*EN, " "], [*DE, " "], strict=True))
    assert [(pair.source, pair.target) for pair in pairs] == given
    assert (pairs[0].source_words, pairs[5].target_words) == ("a man 's hat .", "")
    assert len(data.test.document_starts) == 4  # the empty ones have no loss


IWSLT = {"de": "Das ist Satz {}.", "en": "This is sentence {}."}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_DATA", str(tmp_path))
    return tmp_path


def write_iwslt(folder, n_pairs=60):
    place = folder / "iwslt14" / "de-en"
    place.mkdir(parents=True)
    sets = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
    for language, text in IWSLT.items():
        lines = [
            "<url>http://www.ted.com/talks/x</url>",
            f"<title>{text.format('title')}</title>",
            f"<description>TED Talk: {text.format('description')}</description>",
            *(f" {text.format(number)} " for number in range(n_pairs - 2)),
        ]
        (place / f"train.tags.de-en.{language}").write_text("\n".join(lines) + "\n")
        end = "&amp; it\N{RIGHT SINGLE QUOTATION MARK}s </seg>\n"
        for number, name in enumerate(sets):
            segments = [
                f'<seg id="{id_}"> {text.format(10 * number + id_)} {end}' for id_ in (1, 2)
            ]
            body = f"<srcset><doc>\n<title>no segment</title>\n{''.join(segments)}</doc></srcset>"
            (place / f"IWSLT14.{name}.de-en.{language}.xml").write_text(body)


def corpus_config(**fields):
    languages = {"source_language": "de", "target_language": "en"}
    return DataConfig(**{"corpus": "iwslt14", **languages, "tokenizer": "word-bpe", **fields})


def pairs_of(data, folder):
    texts = find_texts(data, folder / "cache", is_utf8=True)
    return {split: read_pairs(texts.ranges(split)) for split in ("train", "valid", "test")}


def test_iwslt14_is_divided_as_its_script_does(folder):
    write_iwslt(folder)
    splits = pairs_of(corpus_config(), folder)
    assert [len(pairs) for pairs in splits.values()] == [58, 2, 10]
    every = [IWSLT["de"].format("title"), f"TED Talk: {IWSLT['de'].format('description')}"]
    every += [IWSLT["de"].format(number) for number in range(58)]
    assert [pair.source for pair in splits["valid"]] == [every[22], every[45]]
    training = [text for text in every if text not in (every[22], every[45])]
    assert [pair.source for pair in splits["train"]] == training
    assert splits["test"][0].target == "This is sentence 1. & it's"
    assert splits["test"][-1].source == "Das ist Satz 42. & it's"
    # Every 23rd is counted after the filters: the description has more words, so that all behind
    # it come one earlier.
    valid = pairs_of(corpus_config(max_words=5), folder)["valid"]
    assert [pair.source for pair in valid] == [IWSLT["de"].format(21), IWSLT["de"].format(44)]
    turned = pairs_of(corpus_config(source_language="en", target_language="de"), folder)["test"]
    sides = [(pair.target, pair.source) for pair in turned]
    assert sides == [(pair.source, pair.target) for pair in splits["test"]]


def test_missing_files_and_languages_are_refused(folder):
    assert tuple(PARALLEL_CORPORA) == NAMES
    with pytest.raises(DataError, match=r"iwslt14 is not there: unpack its publisher's files"):
        find_pairs(corpus_config(), folder / "cache", "train")
    write_iwslt(folder)
    (folder / "iwslt14" / "de-en" / "train.tags.de-en.en").unlink()
    with pytest.raises(DataError, match=r"has no train.tags.de-en.en: unpack all"):
        find_pairs(corpus_config(), folder / "cache", "train")
    with pytest.raises(ConfigError, match="iwslt14 has de and en, not fr and en"):
        find_pairs(corpus_config(source_language="fr"), folder / "cache", "train")
