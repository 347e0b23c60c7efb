"""Pairs of texts: read, filtered, divided as published, and in batches once an epoch."""

import gzip
import json
from itertools import pairwise
from zipfile import ZipFile

import numpy as np
import pytest
import torch

from sublayer.config.data import DataConfig
from sublayer.data import parallel
from sublayer.data.parallel import TRANSLATION, find_pairs, record_pairs, tab_pairs
from sublayer.data.prepare import find_texts, prepare
from sublayer.data.store import Split, TokenStore
from sublayer.data.text.documents import json_records
from sublayer.data.tokenizers.base import ByteTokenizer
from sublayer.data.translation_batches import TranslationBatches, fill, side_lengths
from sublayer.errors import DataError
from sublayer.tasks.records import read_parquet
from tests.data.releases import write_release

FIELDS = ("en", "de")
SOURCE, TARGET = ["a cat .", "", "two\u2028dogs"], ["eine Katze .", "leer", "zwei Hunde"]
EXPECTED = [(number, *texts) for number, texts in enumerate(zip(SOURCE, TARGET, strict=True), 1)]
EN = ["A man's hat.", "Two dogs, running!", "", "One very long sentence about nothing at all here"]
EN += ["A hat"]
DE = ["Der Hut eines Mannes.", "Zwei Hunde rennen!", "leer", "kurz", "Ein Hut"]
END, PAD, VOCAB_SIZE = 2, 1, 60


def written(path, data):
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize(("suffix", "end"), [("", "\r\n"), (".gz", "\n")])
def test_two_files_are_paired_line_by_line(tmp_path, suffix, end):
    source = written(tmp_path / f"a{suffix}", b"\xef\xbb\xbf" + end.join([*SOURCE, ""]).encode())
    target = written(tmp_path / f"b{suffix}", end.join(TARGET).encode())
    assert list(parallel.line_pairs(source, target)) == EXPECTED
    for texts, message in (
        ((b"x\n" * 3, b"x\n" * 5), f"a{suffix} has 3 lines and .* has 5"),
        ((b"x\n" * 4, b"x\n"), f"a{suffix} has 4 lines and .* has 1"),
        ((b"x\ny\n", b"x\n\xff\n"), f"b{suffix}, line 2: byte 0xff is not UTF-8"),
    ):
        files = map(written, (source, target), texts)
        with pytest.raises(DataError, match=message):
            list(parallel.line_pairs(*files))


@pytest.mark.parametrize("nested", [False, True])
def test_records_and_lines_with_tabs_hold_pairs(tmp_path, nested):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pairs = [{"en": left, "de": right or None} for _, left, right in EXPECTED]
    rows = [{"translation": pair, "id": 1} for pair in pairs] if nested else pairs
    text = "\n".join(["", *map(json.dumps, rows)])
    records = json_records(written(tmp_path / "a.jsonl.gz", text.encode()))
    found = list(record_pairs(records, FIELDS))
    assert found == [(number + 1, left, right) for number, left, right in EXPECTED]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    rows = read_parquet(tmp_path / "a.parquet", FIELDS, (TRANSLATION,))
    assert list(record_pairs(rows, FIELDS)) == EXPECTED
    lines = ["a cat .\teine Katze .\tby whom", "\tleer", "two\u2028dogs\tzwei Hunde"]
    path = written(tmp_path / "a.tsv", "\n".join(lines).encode())
    assert list(tab_pairs(path, FIELDS, [])) == EXPECTED
    half = json_records(written(tmp_path / "b.jsonl", b'{"en": "a", "de": "\\ud800"}'))
    with pytest.raises(DataError, match=r"b.jsonl:1: '\\ud800' is half of a surrogate pair"):
        list(record_pairs(half, FIELDS))
    with pytest.raises(DataError, match="b.tsv, line 2: no tab"):
        list(tab_pairs(written(tmp_path / "b.tsv", b"a\tb\nc\n"), FIELDS, []))
    named = (b"id\tde\ten\n1\tHaus\thouse\n2\tBaum\ttree",
             b"source\tTarget\nhouse\tHaus\ntree\tBaum\tx")  # fmt: skip
    for text in named:
        notes = []
        found = list(tab_pairs(written(tmp_path / "c.tsv", text), FIELDS, notes))
        assert found == [(2, "house", "Haus"), (3, "tree", "Baum")]
        assert "as a header" in notes[0] and "with more than two columns" in notes[1]


def test_a_zip_of_one_file_is_read_as_the_lines_of_a_side(tmp_path):
    for name in ("train.en", "train.de"):
        with ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            archive.writestr(name, f"{name} 1\n{name} 2\n")
    sides = {side: str(tmp_path / f"train.{code}.zip")
             for side, code in (("source_path", "en"), ("target_path", "de"))}  # fmt: skip
    source = find_pairs(DataConfig(**sides), tmp_path / "cache", "train")
    assert list(source.read()) == [(n, f"train.en {n}", f"train.de {n}") for n in (1, 2)]


def test_filters_tell_why_pairs_are_dropped():
    sizes = ((1, 1), (4, 3), (3, 2), (0, 3), (0, 0), (5, 5), (4, 2), (2, 4))
    longer, wider = "with more than 4 words on a side", "with a length ratio above 1.5"
    reasons = ["", "", "", "with an empty side", "with an empty side", longer, wider, wider]
    assert [parallel.refused_pair(["x"] * n, ["y"] * m, (4, 1.5)) for n, m in sizes] == reasons
    assert not parallel.refused_pair(["x"] * 1000, ["y"])


def test_training_is_filtered_and_scored_texts_are_whole(tmp_path, capsys):
    fields = {"source_language": "en", "target_language": "de", "moses": "tokenize"}
    for language, lines in (("en", EN), ("de", DE)):
        # Equal pairs would all be in one split.
        train = [f"{line} {number}" if line else "" for number in range(8) for line in lines]
        for split, text in (("train", [*train, ""]), ("test", [*lines, " ", ""])):
            (tmp_path / f"{split}.{language}").write_text("\n".join(text))
            side = {"en": "source_path", "de": "target_path"}[language]
            fields["test_" * (split == "test") + side] = str(tmp_path / f"{split}.{language}")
    rules = {"max_words_ratio": 3.0, "lowercase": True, "tokenizer": "word-bpe", "vocab_size": 90}
    data = prepare(DataConfig(**fields, **rules), cache=tmp_path / "cache")
    known = {("a man 's hat .", DE[0].lower()), ("two dogs , running !", DE[1].lower())}
    parts = np.split(data.train.ids, data.train.sentence_starts[1:])
    sources = [" ".join(data.tokenizer.words(part)[:-1]) for part in parts[::2]]
    targets = [data.tokenizer.write(part).rsplit(" ", 1)[0] for part in parts[1::2]]
    assert set(zip(sources, targets, strict=True)) == known | {("a hat", "ein hut")}
    err, pairs = capsys.readouterr().err, data.test.pairs
    assert "8 pairs with an empty side left out" in err and "train split: the bil" not in err
    assert "8 pairs with a length ratio above 3 left out" in err
    given = zip([*EN, " "], [*DE, " "], strict=True)
    assert [(pair.source, pair.target) for pair in pairs] == [*given]
    assert (pairs[0].source_words, pairs[5].target_words) == ("a man 's hat .", "")
    assert len(data.test.document_starts) == 4  # the empty ones have no loss


def test_iwslt14_is_divided_as_its_script_does(tmp_path, monkeypatch):
    said = {"de": "Das ist Satz {}.".format, "en": "This is sentence {}.".format}

    def read(source="de", target="en", **fields):
        given_ = {"corpus": "iwslt14", "tokenizer": "word-bpe", **fields}
        data = DataConfig(source_language=source, target_language=target, **given_)
        texts = find_texts(data, tmp_path / "cache", is_utf8=True)
        splits = ("train", "valid", "test")
        return {split: parallel.read_pairs(texts.ranges(split)) for split in splits}

    monkeypatch.setenv("SUBLAYER_DATA", str(tmp_path))
    names = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
    files, url = {}, "<url>http://www.ted.com/talks/x</url>"
    for language, text in said.items():
        lines = [url, f"<title>{text('title')}</title>"]
        lines += [f"<description>TED Talk: {text('description')}</description>"]
        lines += [f" {text(number)} " for number in range(58)]
        files[f"train.tags.de-en.{language}"] = "\n".join([*lines, ""])
        end = "&amp; it\N{RIGHT SINGLE QUOTATION MARK}s </seg>\n"
        for first, name in enumerate(names):
            texts = [(id_, text(10 * first + id_)) for id_ in (1, 2)]
            body = "".join(f'<seg id="{id_}"> {each} {end}' for id_, each in texts)
            body = f"<srcset><doc>\n<title>no segment</title>\n{body}</doc></srcset>"
            files[f"IWSLT14.{name}.de-en.{language}.xml"] = body
    files = {name: content.encode() for name, content in files.items()}
    write_release(tmp_path / "iwslt14" / "de-en", files)
    splits = read()
    assert [len(pairs) for pairs in splits.values()] == [58, 2, 10]
    every = [said["de"]("title"), f"TED Talk: {said['de']('description')}"]
    every += [said["de"](number) for number in range(58)]
    assert [pair.source for pair in splits["valid"]] == [every[22], every[45]]
    training = [text for text in every if text not in (every[22], every[45])]
    assert [pair.source for pair in splits["train"]] == training
    assert splits["test"][0].target == "This is sentence 1. & it's"
    assert splits["test"][-1].source == "Das ist Satz 42. & it's"
    # Every 23rd is counted after the filters: all behind the description come one earlier.
    valid = read(max_words=5)["valid"]
    assert [pair.source for pair in valid] == [said["de"](21), said["de"](44)]
    sides = [(pair.target, pair.source) for pair in read("en", "de")["test"]]
    assert sides == [(pair.source, pair.target) for pair in splits["test"]]


class Vocabulary(ByteTokenizer):
    sep_id, pad_id = END, PAD


def split_of(lengths, seed=0):
    rng = np.random.default_rng(seed)
    flat = [length for pair in lengths for length in pair]
    ids = rng.integers(3, VOCAB_SIZE, sum(flat)).astype("<u2")
    starts = np.cumsum([0, *flat])[:-1].astype(np.int64)
    store = TokenStore(ids, starts[::2], np.zeros(1, dtype=np.int64), 0, "", False, starts)
    return Split("train", store, Vocabulary(), ("pairs",))


def random_split(n, longest=30):
    rng = np.random.default_rng(3)
    return split_of([tuple(rng.integers(1, longest, 2).tolist()) for _ in range(n)])


def rows(batch):
    """Take a batch apart, checking what stands around the tokens."""
    side = batch.read
    mask = torch.ones_like(side.tokens, dtype=torch.bool) if side.mask is None else side.mask
    parts = zip(side.tokens, mask, batch.written.tokens, batch.targets, strict=True)
    found = []
    for source, real, target, labels in parts:
        n_source, n_target = int(real.sum()), int((labels >= 0).sum())
        assert real[:n_source].all() and (source[n_source:] == PAD).all()
        assert source[n_source - 1] == target[0] == labels[n_target - 1] == END
        assert (target[1:n_target] == labels[: n_target - 1]).all()
        assert (target[n_target:] == PAD).all()
        texts = source[: n_source - 1].tolist(), labels[: n_target - 1].tolist()
        found.append((tuple(texts[0]), tuple(texts[1])))
    assert batch.n_predicted == int((batch.targets >= 0).sum())
    return found


def test_every_pair_is_used_once_an_epoch_in_batches_of_the_epoch():
    split = random_split(400)
    starts = [*split.store.sentence_starts.tolist(), len(split.ids)]
    texts = [tuple(split.ids[low:high].tolist()) for low, high in pairwise(starts)]
    batches = TranslationBatches(split, context=32, batch_tokens=256, seed=1)
    step, seen = 0, []
    for epoch in range(3):
        found = []
        for _ in range(batches.n_batches(epoch)):
            batch = batches.batch(step)
            assert len(batch) * batch.width <= 256
            assert batches.n_tokens(step) == batch.n_predicted
            found.append(rows(batch))
            step += 1
        used = sorted(pair for batch in found for pair in batch)
        assert used == sorted(zip(texts[::2], texts[1::2], strict=True))
        seen.append({frozenset(batch) for batch in found})
    assert seen[0] != seen[1] != seen[2]
    assert batches.steps(2) == batches.n_batches(0) + batches.n_batches(1)


def test_long_pairs_are_left_out_and_runs_of_a_multiple_those_of_fairseqs_code():
    split, settings = split_of([(3, 9), (4, 4), (10, 1), (9, 9)]), {"batch_tokens": 40, "seed": 0}
    batches = TranslationBatches(split, context=10, **settings)
    assert batches.n_left_out == 1
    assert sum(len(batches.batch(step)) for step in range(batches.n_batches(0))) == 3
    with pytest.raises(DataError, match="every pair of the train .* of more than data.context = 4"):
        TranslationBatches(split_of([(4, 1), (1, 5)]), context=4, **settings)
    # Worked out by hand from batch_by_size with required_batch_size_multiple = 2: three pairs of 2
    # tokens fill 7, two stay, and the third begins the next run with the pair of 3.
    assert fill(np.array([2, 2, 2, 3, 3, 9]), 7, 2) == [(0, 2), (2, 4), (4, 5), (5, 6)]
    assert fill(np.array([2, 2, 2, 3, 3, 9]), 7) == [(0, 3), (3, 5), (5, 6)]


def fairseq_batches(n=300, **settings):
    given_ = {"context": 32, "batch_tokens": 512, "seed": 4, "multiple": 8, "order": "once"}
    return TranslationBatches(random_split(n), **{**given_, **settings})


def epoch_of(batches, epoch):
    first = sum(batches.n_batches(each) for each in range(epoch))
    steps = range(first, first + batches.n_batches(epoch))
    return [frozenset(batches.places(step).tolist()) for step in steps]


def test_batches_that_are_made_once_are_sorted_and_come_in_another_order_each_epoch():
    batches = fairseq_batches()
    first, second, third = (epoch_of(batches, epoch) for epoch in range(3))
    assert set(first) == set(second) == set(third)
    assert first != second != third != first
    assert sorted(place for batch in first for place in batch) == list(range(300))
    assert sum(len(batch) % 8 != 0 for batch in first) <= 1
    # By source, and then by target.
    lengths = side_lengths(batches.split)
    sizes = sorted(sorted(map(tuple, lengths[[*places]].tolist())) for places in first)
    assert all(shorter[-1] <= longer[0] for shorter, longer in pairwise(sizes))


@pytest.mark.parametrize("order", ["anew", "once"])
def test_a_step_of_several_batches_is_their_union(order):
    one = fairseq_batches(1000, order=order, batch_tokens=128)
    four = fairseq_batches(1000, order=order, batch_tokens=512, parts=4)
    singles, grouped = epoch_of(one, 1), epoch_of(four, 1)
    assert grouped == [frozenset().union(*singles[i : i + 4]) for i in range(0, len(singles), 4)]
    assert (set(epoch_of(one, 0)) == set(singles)) == (order == "once")
    # Batches of one length are not taken together.
    reads = side_lengths(one.split)[:, 0]
    both = ([np.ptp(reads[[*each]]) for each in epoch] for epoch in (singles, grouped))
    spread, wider = map(np.median, both)
    assert wider > 2 * spread
