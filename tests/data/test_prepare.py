import gzip
import hashlib
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublayer.config.data import DataConfig
from sublayer.data.batches import Windows
from sublayer.data.prepare import prepare, prepare_text, prepare_tokenizer
from sublayer.data.split import Split
from sublayer.data.tokenizer import load_tokenizer, train_tokenizer
from sublayer.errors import ConfigError, DataError
from tests.data.releases import write_release

TEXT = b"".join(b"line %d of a text that is long enough to be divided\n" % number for number in range(200))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "folder"
    path.mkdir()
    for number in range(40):
        (path / f"{number:02}.txt").write_bytes(TEXT[number * 200 : number * 200 + 200])
    return path


def raw(split: Split) -> bytes:
    return split.tokenizer.decode(split.ids)


def stored(cache: Path) -> set[str]:
    return {path.name for path in (cache / "tokens").iterdir()}


@pytest.mark.parametrize("tokenizer", ["bytes", "characters", "bpe"])
def test_the_splits_of_a_file_are_its_bytes_in_order(file, cache, tokenizer):
    vocab_size = 300 if tokenizer == "bpe" else None
    data = prepare(DataConfig(path=str(file), tokenizer=tokenizer, vocab_size=vocab_size, context=64), cache=cache)
    n = len(TEXT)
    assert raw(data.train) == TEXT[: n * 90 // 100]
    assert raw(data.valid) == TEXT[n * 90 // 100 : n * 95 // 100]
    assert raw(data.test) == TEXT[n * 95 // 100 :]
    assert data.sizes()["train"] == {"bytes": n * 90 // 100, "tokens": len(data.train.ids), "documents": 1}
    for split in (data.train, data.valid, data.test):
        assert split.store.is_lossless
        assert data.tokenizer.token_bytes[split.ids].sum() == split.store.n_bytes
        assert data.tokenizer.token_characters[split.ids].sum() == split.store.n_bytes


@pytest.mark.parametrize("tokenizer", ["unigram", "wordpiece", "moses-bpe"])
def test_vocabularies_for_masks_see_the_training_split_and_encode_every_split(file, cache, tokenizer):
    config = DataConfig(path=str(file), tokenizer=tokenizer, vocab_size=120, context=64)
    data = prepare(config, cache=cache)
    n = len(TEXT)
    trained = train_tokenizer(tokenizer, [TEXT[: n * 90 // 100]], vocab_size=120)
    assert data.tokenizer.fingerprint == trained.fingerprint
    assert data.train.ids.tolist() == trained.encode(TEXT[: n * 90 // 100]).tolist()
    assert data.valid.ids.tolist() == trained.encode(TEXT[n * 90 // 100 : n * 95 // 100]).tolist()
    assert prepare(config, cache=cache).checksums == data.checksums
    bad = file.with_name("bad.txt")
    bad.write_bytes(b"a\n\xff" + TEXT)
    with pytest.raises(DataError, match=r"bad.txt, line 2: byte 0xff is not UTF-8"):
        prepare(DataConfig(path=str(bad), tokenizer=tokenizer, vocab_size=120), cache=cache)


def test_a_compressed_file_gives_the_same_splits(file, cache, tmp_path):
    (tmp_path / "text.gz").write_bytes(gzip.compress(TEXT))
    plain = prepare(DataConfig(path=str(file), context=64), cache=cache)
    packed = prepare(DataConfig(path=str(tmp_path / "text.gz"), context=64), cache=cache)
    assert packed.checksums == plain.checksums


@pytest.mark.parametrize("windows", ["random", "shuffled"])
def test_no_window_reaches_into_another_split(tmp_path, cache, windows):
    # Every byte of the text says which split it belongs to.
    (tmp_path / "text").write_bytes(b"t" * 900 + b"v" * 50 + b"e" * 50)
    data = prepare(DataConfig(path=str(tmp_path / "text"), context=13), cache=cache)
    cut = Windows(data.train, context=13, batch_sequences=50, seed=0, mode=windows)
    seen = [cut.batch(step) for step in range(20)]
    assert {int(value) for batch in seen for value in np.unique(batch.tokens)} == {ord("t")}
    assert {int(value) for batch in seen for value in np.unique(batch.targets)} == {ord("t")}


def test_documents_are_divided_whole(folder, cache):
    data = prepare(DataConfig(path=str(folder), context=64), cache=cache)
    assert {name: sizes["documents"] for name, sizes in data.sizes().items()} == {"train": 36, "valid": 2, "test": 2}
    found = []
    for split in (data.train, data.valid, data.test):
        bounds = [*split.document_starts.tolist(), len(split.ids)]
        found += [raw(split)[start:stop] for start, stop in pairwise(bounds)]
    assert sorted(found) == sorted(path.read_bytes() for path in folder.iterdir())


def test_a_second_time_nothing_is_read_again(file, cache):
    first = prepare(DataConfig(path=str(file), tokenizer="bpe", vocab_size=300, context=64), cache=cache)
    times = {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}
    second = prepare(DataConfig(path=str(file), tokenizer="bpe", vocab_size=300, context=64), cache=cache)
    assert times == {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}
    assert second.checksums == first.checksums
    assert np.array_equal(second.train.ids, first.train.ids)


def test_a_changed_file_is_prepared_anew(file, cache):
    first = prepare(DataConfig(path=str(file), context=64), cache=cache)
    file.write_bytes(TEXT.replace(b"line 1 ", b"LINE 1 "))
    second = prepare(DataConfig(path=str(file), context=64), cache=cache)
    assert second.checksums["train"] != first.checksums["train"]
    assert second.checksums["test"] == first.checksums["test"]
    assert raw(second.train).startswith(b"line 0 of a text that is long enough to be divided\nLINE 1 ")


def test_a_damaged_cache_is_made_again(file, cache):
    config = DataConfig(path=str(file), tokenizer="bpe", vocab_size=300, context=64)
    first = prepare(config, cache=cache)
    expected = np.array(first.train.ids)
    names = stored(cache)
    for path in [*(cache / "tokens").iterdir(), *(cache / "tokenizers").iterdir()]:
        path.write_bytes(path.read_bytes()[:-50])
    again = prepare(config, cache=cache)
    assert stored(cache) == names
    assert np.array_equal(again.train.ids, expected)


def test_leftovers_of_a_killed_process_do_no_harm(file, cache):
    prepare(DataConfig(path=str(file), context=64), cache=cache)
    for name in stored(cache):
        whole = cache / "tokens" / name
        whole.rename(cache / "tokens" / f".{name}.0123456789abcdef.tmp")
    assert raw(prepare(DataConfig(path=str(file), context=64), cache=cache).train) == TEXT[: len(TEXT) * 90 // 100]


def test_the_tokenizer_is_trained_on_the_training_split_alone(tmp_path, cache):
    (tmp_path / "text").write_bytes(b"ab " * 600 + b"xy " * 33)
    characters = prepare(DataConfig(path=str(tmp_path / "text"), tokenizer="characters", context=64), cache=cache)
    assert characters.tokenizer.vocab_size == 4
    assert characters.train.store.is_lossless
    assert not characters.test.store.is_lossless
    config = DataConfig(path=str(tmp_path / "text"), tokenizer="bpe", vocab_size=300, context=64)
    bpe = prepare(config, cache=cache)
    assert bpe.tokenizer.encode(b" ab").tolist() != []
    assert len(bpe.tokenizer.encode(b" ab")) == 1
    assert len(bpe.tokenizer.encode(b" xy")) == 3
    assert prepare_tokenizer(config, cache=cache).fingerprint == bpe.tokenizer.fingerprint


def test_a_tokenizer_file_is_used_as_it_is(file, cache, tmp_path):
    tokenizer = train_tokenizer("bpe", [b"long enough " * 20], vocab_size=270)
    tokenizer.save(tmp_path / "tokenizer.json")
    config = DataConfig(path=str(file), tokenizer=str(tmp_path / "tokenizer.json"), context=64)
    data = prepare(config, cache=cache)
    assert data.checksums["tokenizer"] == data.tokenizer.fingerprint == tokenizer.fingerprint
    assert prepare_tokenizer(config, cache=cache).fingerprint == tokenizer.fingerprint
    given = prepare(DataConfig(path=str(file), context=64), tokenizer=tokenizer, cache=cache)
    assert given.checksums == data.checksums


def test_other_files_replace_the_split(file, folder, cache, tmp_path):
    (tmp_path / "valid.txt").write_bytes(b"validation")
    n = len(TEXT)
    one = prepare(DataConfig(path=str(file), valid_path=str(tmp_path / "valid.txt"), context=64), cache=cache)
    assert (raw(one.train), raw(one.valid), raw(one.test)) == (
        TEXT[: n * 95 // 100],
        b"validation",
        TEXT[n * 95 // 100 :],
    )
    both = prepare(
        DataConfig(
            path=str(file), valid_path=str(tmp_path / "valid.txt"), test_path=str(folder / "0*.txt"), context=64
        ),
        cache=cache,
    )
    assert (raw(both.train), raw(both.valid)) == (TEXT, b"validation")
    assert len(both.test.document_starts) == 10


def test_a_list_is_joined_and_each_entry_divided(file, folder, cache):
    data = prepare(DataConfig(path=(str(file), str(folder)), context=64), cache=cache)
    alone = prepare(DataConfig(path=str(file), context=64), cache=cache)
    assert raw(data.test).startswith(raw(alone.test))
    assert data.test.sources == (str(file), str(folder))
    assert data.test.store.source_starts.tolist() == [0, len(alone.test.ids)]
    assert {name: sizes["documents"] for name, sizes in data.sizes().items()} == {"train": 37, "valid": 3, "test": 3}
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
    mixed = prepare(DataConfig(path=(str(release), str(file)), split="80/10/10", context=8), cache=cache)
    assert raw(mixed.test) == b"A test sentence .\n" + TEXT[len(TEXT) * 90 // 100 :]
    with pytest.raises(ConfigError, match=r"data.split = 80/10/10 has no effect: .* has a published split"):
        prepare(DataConfig(path=str(release), split="80/10/10", context=8), cache=cache)


def test_the_built_in_corpus_needs_nothing(prose_cache):
    data = prepare(DataConfig(corpus="python"), cache=prose_cache)
    sizes = data.sizes()
    total = sum(size["bytes"] for size in sizes.values())
    assert 1_500_000 < total < 4_000_000
    assert sizes["valid"]["bytes"] == pytest.approx(0.05 * total, rel=0.02)
    assert sizes["test"]["bytes"] == pytest.approx(0.05 * total, rel=0.02)
    assert data.train.sources == ("python",)


def test_the_documents_of_bpe_end(folder, cache):
    data = prepare(DataConfig(path=str(folder), tokenizer="bpe", vocab_size=270, context=64), cache=cache)
    ends = np.flatnonzero(data.train.ids == data.tokenizer.end_id)
    assert (ends + 1).tolist() == data.train.document_starts[1:].tolist()


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        (b"0123456789" * 10, {}, r"the train split of .*text has 90 tokens, fewer than data.context \+ 1 = 257: give"),
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
        prepare(DataConfig(path=str(tmp_path / "text"), tokenizer="characters", context=64), cache=cache)


def test_a_text_cut_inside_a_character_does_for_bytes_and_bpe(tmp_path, cache):
    text = "naïve ".encode() * 500 + b"\xc3"
    (tmp_path / "text").write_bytes(text)
    for tokenizer in ("bytes", "bpe"):
        config = DataConfig(path=str(tmp_path / "text"), tokenizer=tokenizer, context=64)
        data = prepare(config, cache=cache)
        assert raw(data.train) + raw(data.valid) + raw(data.test) == text


def test_validation_text_that_is_trained_on_is_refused(file, folder, cache):
    for config in (
        DataConfig(path=str(file), valid_path=str(file)),
        DataConfig(path=str(folder), test_path=str(folder / "07.txt")),
    ):
        with pytest.raises(ConfigError, match=r"data.(valid|test)_path = .* is also read for training, in "):
            prepare(config, cache=cache)


def test_a_text_that_is_named_twice_is_refused(file, folder, cache):
    for path in ((str(file), str(file)), (str(folder), str(folder / "07.txt"))):
        with pytest.raises(ConfigError, match=r"are the same text, named twice: leave one out"):
            prepare(DataConfig(path=path, context=64), cache=cache)


def test_a_text_to_be_scored_is_taken_whole(file, folder, cache, tmp_path):
    tokenizer = train_tokenizer("bytes", ())
    assert raw(prepare_text(tokenizer, path=str(file), cache=cache)) == TEXT
    several = prepare_text(tokenizer, path=str(folder), cache=cache)
    assert len(several.document_starts) == 40
    assert several.name == "test"
    release = write_release(tmp_path / "release")
    assert raw(prepare_text(tokenizer, path=str(release), cache=cache)) == b"A test sentence .\n"


def test_a_corpus_is_scored_on_one_of_its_splits(prose_cache):
    tokenizer = train_tokenizer("bytes", ())
    data = prepare(DataConfig(corpus="python"), cache=prose_cache)
    for split in ("valid", "test"):
        found = prepare_text(tokenizer, corpus="python", split=split, cache=prose_cache)
        assert found.store.sha256 == data.checksums[split]


def test_a_text_of_one_token_cannot_be_scored(tmp_path, cache):
    (tmp_path / "text").write_bytes(b"a")
    with pytest.raises(DataError, match=r"text has 1 token\(s\); 2 are the least that can be scored"):
        prepare_text(train_tokenizer("bytes", ()), path=str(tmp_path / "text"), cache=cache)
    with pytest.raises(ConfigError, match="there is no text"):
        prepare_text(train_tokenizer("bytes", ()), cache=cache)


def test_two_processes_prepare_the_same_text_at_once(file, cache):
    program = (
        "import sys; from pathlib import Path; from sublayer.config.data import DataConfig; "
        "from sublayer.data.prepare import prepare; "
        "config = DataConfig(path=sys.argv[1], tokenizer='bpe', vocab_size=400, context=64); "
        "print(prepare(config, cache=Path(sys.argv[2])).checksums)"
    )
    command = [sys.executable, "-c", program, str(file), str(cache)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"}) for _ in "ab"
    ]
    outputs = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert outputs[0] == outputs[1] != b""
    assert not list(cache.rglob("*.tmp"))


@pytest.mark.slow
def test_real_text_comes_back_from_every_tokenizer(real_data, cache):
    path = real_data / "enwik8" / "enwik8_first_4MB"
    text = path.read_bytes()
    for tokenizer in ("bytes", "bpe"):
        data = prepare(DataConfig(path=str(path), tokenizer=tokenizer), cache=cache)
        assert raw(data.train) + raw(data.valid) + raw(data.test) == text
        n_test = len(text) - len(text) * 95 // 100
        assert n_test <= data.test.store.n_bytes <= n_test + 3


def test_real_books_are_divided_whole(real_data, cache):
    data = prepare(DataConfig(path=str(real_data / "books"), tokenizer="characters"), cache=cache)
    sizes = data.sizes()
    assert sum(size["documents"] for size in sizes.values()) == 7
    assert sum(size["bytes"] for size in sizes.values()) == sum(
        path.stat().st_size for path in (real_data / "books").iterdir()
    )
    assert load_tokenizer(next((cache / "tokenizers").iterdir())).fingerprint == data.tokenizer.fingerprint


MARK = "*** {} OF THE PROJECT GUTENBERG EBOOK A ***\n"
BOOK = f"\ufeffLegal.\n{MARK.format('START')}{{}}\n{MARK.format('END')}Legal.\n"


def book(n: int) -> bytes:
    paragraphs = (f"Sentence {i} of\n{n} came. It  was short! “Was it?” he asked.\n" for i in range(60))
    return BOOK.format("\n".join(paragraphs)).encode()


def sentences_of_split(split: Split) -> list[str]:
    assert split.sentence_starts is not None
    bounds = [*split.sentence_starts.tolist(), len(split.ids)]
    return [split.tokenizer.decode(split.ids[start:stop]).decode() for start, stop in pairwise(bounds)]


@pytest.mark.parametrize("tokenizer", ["bytes", "characters", "bpe"])
@pytest.mark.parametrize("suffix", ["txt", "txt.gz"])
def test_one_book_is_divided_between_paragraphs_of_its_body(tmp_path, cache, tokenizer, suffix):
    path = tmp_path / f"book.{suffix}"
    path.write_bytes(gzip.compress(book(1)) if suffix.endswith("gz") else book(1))
    vocab_size = 300 if tokenizer == "bpe" else None
    config = DataConfig(path=str(path), sentences="prose", tokenizer=tokenizer, vocab_size=vocab_size, context=16)
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
        length = next(n for n in range(len(body) + 1) if hashlib.sha256(body[:n]).hexdigest() == split.store.sha256)
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
        path=str(tmp_path / "a.jsonl.gz"), documents="json", text_field="body", sentences="prose", context=16
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


def test_a_second_time_no_document_is_read_again(tmp_path, cache):
    (tmp_path / "a.txt").write_bytes(b"\n\n".join(b"Document %d. Short." % number for number in range(40)))
    config = DataConfig(path=str(tmp_path / "a.txt"), documents="blank-line", sentences="prose", context=16)
    first = prepare(config, cache=cache)
    times = {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}
    second = prepare(config, cache=cache)
    assert times == {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}
    assert first.sizes() == second.sizes()
    other = prepare(config, cache=tmp_path / "other")
    assert stored(tmp_path / "other") == stored(cache)
    for one, two in ((first.train, other.train), (first.test, other.test)):
        assert np.array_equal(one.ids, two.ids)
        assert np.array_equal(one.sentence_starts, two.sentence_starts)


def test_each_rule_for_sentences_has_a_store_of_its_own(tmp_path, cache):
    (tmp_path / "a.txt").write_bytes(book(1))
    for rule in ("none", "lines", "prose"):
        before = len(stored(cache)) if (cache / "tokens").is_dir() else 0
        prepare(DataConfig(path=str(tmp_path / "a.txt"), sentences=rule, context=16), cache=cache)
        assert len(stored(cache)) == before + 3


@settings(max_examples=40)
@given(st.lists(st.text("abC. \n", max_size=20).map("One {}".format), min_size=3, max_size=30, unique=True))
def test_no_document_and_no_character_is_lost_or_in_two_splits(documents):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
        config = DataConfig(path=str(path), documents="json", sentences="prose", split="34/33/33", context=2)
        data = prepare(config, cache=Path(folder))
        found = []
        for split in (data.train, data.valid, data.test):
            bounds = [*split.document_starts.tolist(), len(split.ids)]
            found += ["".join(raw(split)[start:stop].decode().split()) for start, stop in pairwise(bounds)]
        assert sorted(found) == sorted("".join(text.split()) for text in documents)


def test_validation_documents_are_read_by_the_same_rule(tmp_path, cache):
    one, two = str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")
    Path(one).write_text("".join(f'{{"text": "Document {number}."}}\n' for number in range(9)))
    Path(two).write_text('{"text": "Validation."}\n{"text": "Document 3."}\n')
    config = DataConfig(path=one, valid_path=two, documents="json", context=4)
    both = r"b.jsonl, document at line 2, the same as .*a.jsonl, document at line 4; name other files in one"
    with pytest.raises(ConfigError, match=rf"valid_path = .*b.jsonl is also read for training, in .*a.jsonl: .*{both}"):
        prepare(config, cache=cache)
    Path(two).write_text('{"text": "Validation."}\n{"text": "More."}\n')
    assert raw(prepare(config, cache=cache).valid) == b"Validation.More."


def test_a_document_that_two_sources_hold_is_refused(tmp_path, cache):
    one, two = str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")
    for path in (one, two):
        Path(path).write_text("".join(f'{{"text": "{path} {number}."}}\n' for number in range(9)) + '{"text": "Same."}')
    with pytest.raises(ConfigError, match=r"a.jsonl, document at line 10 and .*b.jsonl, document at line 10 are the"):
        prepare(DataConfig(path=(one, two), documents="json", context=4), cache=cache)


def test_a_text_to_be_scored_is_cut_into_sentences(tmp_path, cache):
    (tmp_path / "a.jsonl").write_text('{"body": "One. Two."}\n{"body": "Three."}\n')
    split = prepare_text(
        train_tokenizer("bytes", ()),
        path=str(tmp_path / "a.jsonl"),
        sentences="prose",
        documents="json",
        text_field="body",
        cache=cache,
    )
    assert sentences_of_split(split) == ["One.", "Two.", "Three."]
    assert split.document_starts.tolist() == [0, 8]


def test_text_that_is_not_utf8_has_no_sentences(tmp_path, cache):
    (tmp_path / "a.txt").write_bytes(TEXT + b"\n\nbad \xff\n")
    with pytest.raises(DataError, match=r"a.txt, line 203: byte 0xff is not UTF-8, which data.sentences needs"):
        prepare(DataConfig(path=str(tmp_path / "a.txt"), sentences="prose", context=16), cache=cache)


@pytest.mark.slow
def test_real_books_are_cut_into_sentences(real_data, cache):
    config = DataConfig(path=str(real_data / "books"), sentences="prose", tokenizer="bpe", vocab_size=2000)
    data = prepare(config, cache=cache)
    sizes = data.sizes()
    assert sum(size["documents"] for size in sizes.values()) == 7
    assert 40_000 < sum(size["sentences"] for size in sizes.values()) < 46_000
    for split in (data.train, data.valid, data.test):
        assert split.store.is_lossless
        assert data.tokenizer.token_bytes[split.ids].sum() == split.store.n_bytes
        assert not any("\n" in sentence for sentence in sentences_of_split(split))
