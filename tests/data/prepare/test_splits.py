"""Splits of a text: divided, replaced, weighted, cut into sentences, watched, or refused."""

import gzip
import hashlib
import io
import json
import tarfile
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.config.data import DataConfig
from sublayer.data.batches import Windows
from sublayer.data.prepare import prepare, prepare_text, prepare_tokenizer
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import ConfigError, DataError
from tests.breadth import examples
from tests.data.corpora.releases import write_release
from tests.data.prepare.texts import TEXT, book, raw, sentences_of_split


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe"])
def test_the_splits_of_a_file_are_its_bytes_in_order(file, cache, tokenizer, tmp_path):
    vocab_size = 300 if tokenizer == "bpe" else None
    fields = {"tokenizer": tokenizer, "vocab_size": vocab_size, "context": 64}
    data = prepare(DataConfig(path=str(file), **fields), cache=cache)
    n = len(TEXT)
    assert raw(data.train) == TEXT[: n * 90 // 100]
    assert raw(data.valid) == TEXT[n * 90 // 100 : n * 95 // 100]
    assert raw(data.test) == TEXT[n * 95 // 100 :]
    sizes = {"bytes": n * 90 // 100, "tokens": len(data.train.ids), "documents": 1}
    assert data.sizes()["train"] == sizes
    for split in (data.train, data.valid, data.test):
        assert split.store.is_lossless and split.is_cut
        assert data.tokenizer.token_bytes[split.ids].sum() == split.store.n_bytes
    (tmp_path / "text.gz").write_bytes(gzip.compress(TEXT))
    packed = prepare(DataConfig(path=str(tmp_path / "text.gz"), **fields), cache=cache)
    assert packed.checksums == data.checksums


def test_splits_without_a_share_are_not_held_out(file, cache):
    data = prepare(DataConfig(path=str(file), split="100/0/0", context=64), cache=cache)
    assert data.valid is None and data.test is None
    assert raw(data.train) == file.read_bytes()
    assert data.checksums.keys() == {"train", "tokenizer"}
    assert data.sizes().keys() == {"train"}
    data = prepare(DataConfig(path=str(file), split="90/10/0", context=64), cache=cache)
    assert data.valid is not None and data.test is None
    assert raw(data.train) + raw(data.valid) == file.read_bytes()


def test_documents_are_divided_whole(folder, cache):
    data = prepare(DataConfig(path=str(folder), context=64), cache=cache)
    assert [sizes["documents"] for sizes in data.sizes().values()] == [36, 2, 2]
    texts = []
    for split in (data.train, data.valid, data.test):
        assert not split.is_cut
        bounds = [*split.document_starts.tolist(), len(split.ids)]
        texts += [raw(split)[start:stop] for start, stop in pairwise(bounds)]
    assert sorted(texts) == sorted(path.read_bytes() for path in folder.iterdir())


def test_other_files_replace_a_split_and_are_read_by_the_same_rule(file, folder, cache, tmp_path):
    other = tmp_path / "valid.txt"
    other.write_bytes(b"validation")
    fields = {"path": str(file), "valid_path": str(other), "context": 64}
    n = len(TEXT)
    one = prepare(DataConfig(**fields), cache=cache)
    texts = [raw(split) for split in one.splits()]
    assert texts == [TEXT[: n * 95 // 100], b"validation", TEXT[n * 95 // 100 :]]
    both = prepare(DataConfig(**fields, test_path=str(folder / "0*.txt")), cache=cache)
    assert (raw(both.train), raw(both.valid)) == (TEXT, b"validation")
    assert len(both.test.document_starts) == 10
    records = [f'{{"text": "Document {number}."}}\n' for number in range(9)]
    (tmp_path / "a.jsonl").write_text("".join(records))
    other = tmp_path / "b.jsonl"
    path, valid = str(tmp_path / "a.jsonl"), str(other)
    config = DataConfig(path=path, valid_path=valid, documents="json", context=4)
    other.write_text(f'{{"text": "Validation."}}\n{records[3]}')
    both = "b.jsonl, document at line 2, the same as .*a.jsonl, document at line 4; name other"
    with pytest.raises(ConfigError, match=f"valid_path = .*b.jsonl is also read .*{both}"):
        prepare(config, cache=cache)
    other.write_text('{"text": "Validation."}\n{"text": "More."}\n')
    assert raw(prepare(config, cache=cache).valid) == b"Validation.More."


def test_a_list_is_joined_and_each_entry_divided(file, folder, cache):
    data = prepare(DataConfig(path=(str(file), str(folder)), context=64), cache=cache)
    alone = prepare(DataConfig(path=str(file), context=64), cache=cache)
    assert raw(data.test).startswith(raw(alone.test))
    assert data.test.sources == (str(file), str(folder))
    assert data.test.store.source_starts.tolist() == [0, len(alone.test.ids)]
    assert {name: sizes["documents"] for name, sizes in data.sizes().items()} == {
        "train": 37,
        "valid": 3,
        "test": 3,
    }
    assert data.train.weights is None


def test_weights_sample_training_and_leave_evaluation_alone(file, tmp_path, cache):
    (tmp_path / "other.txt").write_bytes(bytes(reversed(TEXT)))
    config = DataConfig(path={str(file): 1.0, str(tmp_path / "other.txt"): 3.0}, context=64)
    data = prepare(config, cache=cache)
    assert data.train.weights == (1.0, 3.0)
    assert data.valid.weights is None
    n_first = data.train.store.source_starts[1]
    windows = Windows(data.train, context=64, batch_sequences=50, seed=0)
    starts = np.concatenate([windows.starts(step) for step in range(80)])
    assert abs(np.count_nonzero(starts >= n_first) - 3000) < 5 * 27
    equal = prepare(DataConfig(path=tuple(config.path), context=64), cache=cache)
    assert equal.checksums == data.checksums


def test_a_published_split_is_kept(tmp_path, cache, file):
    release = write_release(tmp_path / "release")
    data = prepare(DataConfig(path=str(release), context=8), cache=cache)
    assert raw(data.train) == b"The first sentence .\nThe second sentence .\n"
    assert raw(data.test) == b"A test sentence .\n"
    mixed = prepare(
        DataConfig(path=(str(release), str(file)), split="80/10/10", context=8), cache=cache
    )
    assert raw(mixed.test) == b"A test sentence .\n" + TEXT[len(TEXT) * 90 // 100 :]
    with pytest.raises(
        ConfigError, match=r"data.split = 80/10/10 has no effect: .* has a published split"
    ):
        prepare(DataConfig(path=str(release), split="80/10/10", context=8), cache=cache)


@pytest.mark.all
def test_the_built_in_corpus_needs_nothing_and_is_scored_on_its_splits(prose_cache):
    data = prepare(DataConfig(corpus="python"), cache=prose_cache)
    sizes = data.sizes()
    total = sum(size["bytes"] for size in sizes.values())
    assert 1_500_000 < total < 4_000_000
    assert sizes["valid"]["bytes"] == pytest.approx(0.05 * total, rel=0.02)
    assert data.train.sources == ("python",)
    tokenizer = train_tokenizer("bytes", ())
    for split in ("valid", "test"):
        scored = prepare_text(tokenizer, corpus="python", split=split, cache=prose_cache)
        assert scored.store.sha256 == data.checksums[split]


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        (b"0123456789", {}, "text has 10 bytes, too few for a valid split"),
        (b"", {}, "text is empty"),
        (b"ab\n\xff" * 300, {"tokenizer": "characters"}, "text, line 2: byte 0xff is not UTF-8"),
        (TEXT + b"\xff", {"tokenizer": "characters"}, "text, line 201: byte 0xff is not UTF-8"),
        (
            TEXT + b"\xff",
            {"sentences": "prose"},
            "line 201: byte 0xff .*which data.sentences needs",
        ),
        (TEXT, {"tokenizer": "missing.json"}, "cannot read the tokenizer missing.json"),
        (TEXT, {"valid_path": "missing"}, "no such file or folder: missing"),
    ],
)
def test_a_text_that_cannot_be_used_is_refused(tmp_path, cache, content, changes, message):
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(DataError, match=message):
        prepare(DataConfig(path=str(tmp_path / "text"), context=64, **changes), cache=cache)


def test_a_text_that_is_read_twice_is_refused(file, folder, cache, tmp_path):
    scored = DataConfig(path=str(file), valid_path=str(file))
    of_folder = DataConfig(path=str(folder), test_path=str(folder / "07.txt"))
    for config in (scored, of_folder):
        with pytest.raises(
            ConfigError, match=r"data.(valid|test)_path = .* is also read for train"
        ):
            prepare(config, cache=cache)
    one, two = str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")
    for path in (one, two):
        records = [f'{{"text": "{path} {number}."}}\n' for number in range(9)]
        Path(path).write_text("".join(records) + '{"text": "Same."}')
    for path, rule in (
        ((str(file), str(file)), None),
        ((str(folder), str(folder / "07.txt")), None),
        ((one, two), "json"),
    ):
        with pytest.raises(ConfigError, match="are the same text, named twice: leave one out"):
            prepare(DataConfig(path=path, documents=rule, context=4), cache=cache)


def test_a_scored_text_is_taken_whole(file, folder, cache, tmp_path):
    tokenizer = train_tokenizer("bytes", ())
    assert raw(prepare_text(tokenizer, path=str(file), cache=cache)) == TEXT
    several = prepare_text(tokenizer, path=str(folder), cache=cache)
    assert (len(several.document_starts), several.name) == (40, "test")
    release = write_release(tmp_path / "release")
    assert raw(prepare_text(tokenizer, path=str(release), cache=cache)) == b"A test sentence .\n"
    (tmp_path / "a.jsonl").write_text('{"body": "One. Two."}\n{"body": "Three."}\n')
    reading = {"sentences": "prose", "documents": "json", "text_field": "body"}
    split = prepare_text(tokenizer, path=str(tmp_path / "a.jsonl"), **reading, cache=cache)
    assert sentences_of_split(split) == ["One.", "Two.", "Three."]
    assert split.document_starts.tolist() == [0, 8]
    (tmp_path / "text").write_bytes(b"a")
    with pytest.raises(DataError, match=r"text has 1 token; 2 are the least that can be scored"):
        prepare_text(tokenizer, path=str(tmp_path / "text"), cache=cache)
    with pytest.raises(ConfigError, match="there is no text"):
        prepare_text(tokenizer, cache=cache)


@pytest.mark.parametrize(("tokenizer", "suffix"), [("bytes", "txt.gz"), ("bpe", "txt")])
def test_one_book_is_divided_between_paragraphs_of_its_body(tmp_path, cache, tokenizer, suffix):
    path = tmp_path / f"book.{suffix}"
    path.write_bytes(gzip.compress(book(1)) if suffix.endswith("gz") else book(1))
    vocab_size = 300 if tokenizer == "bpe" else None
    config = DataConfig(
        path=str(path), sentences="prose", tokenizer=tokenizer, vocab_size=vocab_size, context=16
    )
    data = prepare(config, cache=cache)
    found = [sentences_of_split(split) for split in (data.train, data.valid, data.test)]
    assert [len(each) for each in found] == [54 * 3, 3 * 3, 3 * 3]
    assert found[0][:3] == ["Sentence 0 of 1 came.", "It was short!", "“Was it?” he asked."]
    assert found[2][-3] == "Sentence 59 of 1 came."
    assert data.sizes()["test"]["sentences"] == 9
    assert data.test.store.n_bytes == sum(len(each.encode()) for each in found[2])
    assert data.test.store.is_lossless or tokenizer == "characters"
    # The cut splits' raw bytes are the body, in order.
    text = book(1)
    body = text[text.index(b"Sentence 0") : text.index(b"*** END")]
    for split in (data.train, data.valid, data.test):
        length = next(
            n
            for n in range(len(body) + 1)
            if hashlib.sha256(body[:n]).hexdigest() == split.store.sha256
        )
        body = body[length:]
    assert body == b""


def test_the_tokenizer_is_trained_on_cleaned_sentences(tmp_path, cache):
    path = tmp_path / "book.txt"
    path.write_bytes(book(1))
    config = DataConfig(path=str(path), sentences="prose", tokenizer="characters", context=16)
    tokenizer = prepare_tokenizer(config, cache=cache)
    cleaned = sentences_of_split(prepare(config, cache=cache).train)
    assert set(tokenizer.content()["characters"]) == {"\n", *"".join(cleaned)}
    plain = prepare_tokenizer(DataConfig(path=str(path), tokenizer="characters"), cache=cache)
    assert {"\ufeff", "*", "L"} & set(plain.content()["characters"])
    assert not {"\ufeff", "*", "L"} & set(tokenizer.content()["characters"])


def test_documents_of_json_are_divided_whole(tmp_path, cache):
    lines = [json.dumps({"body": f"Document {number // 2}. It is short."}) for number in range(80)]
    lines[3:3] = ['{"body": " "}', '{"body": ""}']
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    config = DataConfig(
        path=str(tmp_path / "a.jsonl.gz"),
        documents="json",
        text_field="body",
        sentences="prose",
        context=16,
    )
    data = prepare(config, cache=cache)
    splits = (data.train, data.valid, data.test)
    found = [set(sentences_of_split(split)) - {"It is short."} for split in splits]
    assert [len(each) for each in found] == [36, 2, 2]
    assert len(set.union(*found)) == 40
    for split in splits:
        assert set(split.document_starts.tolist()) < set(split.sentence_starts.tolist())
    assert data.sizes()["train"]["documents"] == 72
    assert data.sizes()["train"]["empty_documents"] == 2
    assert "empty_documents" not in data.sizes()["test"]
    plain = prepare(config.model_copy(update={"sentences": "none"}), cache=cache)
    assert plain.train.sentence_starts is None
    assert plain.checksums == data.checksums


@examples(100)
@given(
    st.lists(
        st.text("abC. \n", max_size=20).map("One {}".format), min_size=3, max_size=30, unique=True
    )
)
def test_no_document_and_no_character_is_lost_or_in_two_splits(documents):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
        config = DataConfig(
            path=str(path), documents="json", sentences="prose", split="34/33/33", context=2
        )
        data = prepare(config, cache=Path(folder))
        found = []
        for split in (data.train, data.valid, data.test):
            bounds = [*split.document_starts.tolist(), len(split.ids)]
            found += [
                "".join(raw(split)[start:stop].decode().split()) for start, stop in pairwise(bounds)
            ]
        assert sorted(found) == sorted("".join(text.split()) for text in documents)


SQUAD = {"data": [{"paragraphs": [{"context": "One passage.", "qas": []}] * 2}]}

RACE = {"article": "A middle school passage.", "questions": []}


def test_watched_texts_change_no_split(file, cache, tmp_path):
    squad, race = tmp_path / "dev.json", tmp_path / "race"
    squad.write_text(json.dumps(SQUAD))
    race.mkdir()
    (race / "1.txt").write_text(json.dumps(RACE))
    watch = {"squad": str(squad), "race": str(race), "own": str(file)}
    data = prepare(DataConfig(path=str(file), watch=watch, context=64), cache=cache)
    texts = {name: raw(split) for name, split in data.watched.items()}
    race_text = b"A middle school passage."
    assert texts == {"squad": b"One passage.", "race": race_text, "own": file.read_bytes()}
    plain = prepare(DataConfig(path=str(file), context=64), cache=cache)
    assert data.checksums == plain.checksums


def put_publishers_files(cache: Path) -> None:
    """Keep small files of SQuAD and RACE where those that are fetched are kept."""
    corpora = cache / "corpora"
    corpora.mkdir(parents=True)
    (corpora / "dev-v1.1.json").write_text(json.dumps(SQUAD))
    with tarfile.open(corpora / "RACE.tar.gz", "w:gz") as archive:
        for name in ("RACE/dev/middle/1.txt", "RACE/train/middle/1.txt"):
            content = json.dumps({**RACE, "article": f"A passage of {name}."}).encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def test_the_passages_of_both_development_sets_are_a_text_to_watch_or_to_test_on(
    file: Path, cache: Path
):
    put_publishers_files(cache)
    both = b"One passage.A passage of RACE/dev/middle/1.txt."
    apart = prepare(
        DataConfig(path=str(file), watch=("squad-dev", "race-dev"), context=64), cache=cache
    )
    assert b"".join(raw(split) for split in apart.watched.values()) == both
    together = DataConfig(path=str(file), watch=("albert-intrinsic",), context=64)
    (watched,) = prepare(together, cache=cache).watched.items()
    assert (watched[0], raw(watched[1])) == ("intrinsic", both)
    tested = DataConfig(
        path=str(file), split="90/10/0", test_path="albert-intrinsic", valid_path="race-dev"
    )
    data = prepare(tested.model_copy(update={"context": 64}), cache=cache)
    assert raw(data.train) == file.read_bytes()
    assert data.test is not None and data.valid is not None
    assert raw(data.test) == both
    assert raw(data.valid) == b"A passage of RACE/dev/middle/1.txt."
    assert data.test.sizes()["documents"] == 2


@pytest.mark.parametrize(
    ("fields", "remedy"),
    [
        ({"test_path": "albert-intrinsic"}, "data.test_path = PATH"),
        ({"watch": ("squad-dev",)}, r"data.watch = {squad = PATH}, or .* data.watch = \[\]"),
    ],
)
def test_corpora_that_cannot_be_fetched_are_refused(file, cache, monkeypatch, fields, remedy):
    def refuse(*_: object, **__: object) -> None:
        raise DataError("dev-v1.1.json cannot be downloaded")

    monkeypatch.setattr("sublayer.data.corpora.watched.fetch", refuse)
    with pytest.raises(DataError, match=f"dev-v1.1.json cannot be downloaded; give .*{remedy}"):
        prepare(DataConfig(path=str(file), context=64, **fields), cache=cache)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"no such file or folder: .*notes\.txt"),
        (bytes(range(256)) * 4, r"notes\.txt is a binary file"),
        (b"n", r"notes, which is watched, has 1 token; 2 are the least that can be scored"),
    ],
)
def test_a_file_that_cannot_be_watched_is_refused(content, message, file, cache, tmp_path):
    notes = tmp_path / "notes.txt"
    if content is not None:
        notes.write_bytes(content)
    with pytest.raises(DataError, match=message):
        prepare(DataConfig(path=str(file), watch={"notes": str(notes)}, context=64), cache=cache)


@pytest.mark.parametrize(
    "watch", [("sqad-dev",), ("squad-dev", "squad-dev"), {"a/b": "x"}, {"a": ""}, {"valid": "x"}]
)
def test_a_watch_that_means_nothing_is_refused(watch):
    with pytest.raises((ConfigError, ValueError), match="watch"):
        DataConfig(watch=watch)
