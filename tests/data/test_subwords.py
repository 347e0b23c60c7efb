"""Merges trained here and of other programs, the library's files, and files with anything wrong."""

import base64
import copy
import gzip
import json
import re
import subprocess
import sys
from collections import Counter
from functools import cache, reduce
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from sublayer.data.tokenizers import probe as probe
from sublayer.data.tokenizers.base import NotUtf8
from sublayer.data.tokenizers.languages import LanguageRules
from sublayer.data.tokenizers.library import call_library
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.data.tokenizers.probe import try_file
from sublayer.data.tokenizers.subword import SubwordTokenizer, before_whitespace
from sublayer.data.tokenizers.word_bpe import alphabet_of, find_dictionary, read_codes, train_merges
from sublayer.errors import DataError, SublayerError
from tests.breadth import examples, rows
from tests.data.releases import write_release
from tests.data.sentencepiece_files import t5_model
from tests.data.sentences import ODD

CORPUS = ["the quick brown fox jumps over the lazy dog 123, it's! Zo\u00eb caf\u00e9"] * 20
CORPUS += ["deux petits chats dorment, 1,234 a"] * 20
TEXTS = [
    *(b"", b"hello World 123, 2, \xff\xfe", b"a" * 3000, b" " * 3000, b"the quick " * 1500),
    "\u00dcn\u00ef \u4e2d\u6587 \U0001f389 \x00 x\r\n".encode(),
    *(bytes(range(256)), "\u65e5\u672c\u8a9e".encode() * 500),
]
PROSE = "It is a truth: a single man's fortune — naïve, or 1,000 £ — isn't his.\n\n" * 20
TRAINED = SubwordTokenizer.train([PROSE.encode()], vocab_size=320)
BROKEN = {"type": "Precompiled", "precompiled_charsmap": "@"}
MANY = {"type": "Sequence"}
FOUR = {"type": "Replace", "pattern": {"Regex": "."}, "content": "aaaa"}
BOTH = [{"Sequence": {"id": "A", "type_id": 0}}] * 2
TWICE = {"type": "TemplateProcessing", "special_tokens": {}, "pair": BOTH, "single": BOTH}
NAMES = ["<unk>", "</s>", "<pad>", "\u2581the", "a"]


@cache
def published(form):
    """Train a tokenizer of the form in which a model's is published; return its tokenizer.json."""
    content = json.loads(FORMS[form]().to_str())
    if form == "t5":
        # SentencePiece's own table of normalisation, which the library cannot make, in NFC's place.
        charsmap = base64.b64encode(_unigram_model().charsmap).decode()
        table = {"type": "Precompiled", "precompiled_charsmap": charsmap}
        content["normalizer"]["normalizers"][0] = table
    return content


@cache
def _unigram_model():
    return train_tokenizer("unigram", [text.encode() for text in CORPUS], vocab_size=80)


def check_file(path):
    """Load a tokenizer and use it; return whether it loads, else check that the error is a line."""
    try:
        tokenizer, problem = load_tokenizer(path), ""
    except SublayerError as error:
        tokenizer, problem = None, str(error)
    if tokenizer is None:
        assert problem and "\n" not in problem
        return False
    for text in TEXTS:
        try:
            ids = tokenizer.encode(text)
        except NotUtf8:
            continue
        assert len(ids) == 0 or (ids.min() >= 0 and ids.max() < tokenizer.vocab_size)
        decoded = tokenizer.decode(ids)
        if tokenizer.is_lossless:
            assert decoded == text
            assert tokenizer.token_bytes[ids].sum() == len(text)
    for id_ in range(tokenizer.vocab_size):
        tokenizer.decode([id_])
    assert "\ufffd".encode() in tokenizer.decode([tokenizer.vocab_size + 5])
    if tokenizer.has_words:
        tokenizer.starts_word(np.arange(tokenizer.vocab_size))
    return True


def altered(random, content):
    """Alter a few values of JSON: other ones and types, left out, twice, or from elsewhere."""
    content, many = copy.deepcopy(content), ("vocab", "merges", "pieces")
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        places = [place for place in _places(content) if place]
        # Of thousands of pieces one is as good as another.
        upper = [each for each in places if len(each) <= 2 or each[1] not in many]
        if places:
            place = random.choice(upper if random.random() < 0.7 else places)
            _alter(random, content, place, places)
    return content


def damaged(random, data):
    """Alter a few bytes: others, some left out, some twice."""
    found = bytearray(data)
    for _ in range(random.choice((1, 2, 5, 20))):
        place = random.randrange(max(1, len(found)))
        match random.randrange(4):
            case 0 | 1:
                found[place : place + 1] = bytes([random.randrange(256)])
            case 2:
                del found[place : place + random.choice((1, 5, 100))]
            case 3:
                found[place:place] = found[place : place + random.choice((1, 10, 100))]
    return bytes(found)


def _alter(random, content, place, places):
    def at(place):
        return reduce(lambda inner, key: inner[key], place, content)

    inner, key = at(place[:-1]), place[-1]
    match random.randrange(6):
        case 0:
            del inner[key]
        case 1 if isinstance(inner, list):
            inner.insert(key, inner[key])
        case 2 if isinstance(inner, list):
            random.shuffle(inner)
        case 3 if isinstance(inner, dict):
            inner[random.choice(("", "a", "\u2581", "x" * 1000))] = inner[key]
        case 4:
            inner[key] = copy.deepcopy(at(random.choice(places)))
        case _:
            inner[key] = copy.deepcopy(random.choice(VALUES))


def _places(content, place=()):
    yield place
    items = {dict: dict.items, list: enumerate}.get(type(content), lambda content: ())
    for key, value in items(content):
        yield from _places(value, (*place, key))


VALUES = [
    *(None, True, 0, -1, 1, 2**31, 2**32 - 1, 2**32, 2**63, 10**30, 1.5, 1e308),
    *("", "a", "\0", "\u2581", " ", "\n", "ByteLevel", "[UNK]", "(a+)+$", "(", "\ud800"),
    *([], {}, [[]], [["a", 1]], {"a": 0}, {"a": 1 << 31}),
    *({"type": "Precompiled", "precompiled_charsmap": map_} for map_ in ("", "/////wAAAAA=", "@")),
    *({"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
      for pattern in ({"Regex": "(a+)+b"}, {"Regex": "("}, {"Regex": "(?=a)"}, {"String": ""})),
    *({"type": "Replace", "pattern": {"Regex": r}, "content": "aa"} for r in (".", "(a*)*b")),
    *({"type": "Sequence", name: []} for name in ("normalizers", "pretokenizers", "decoders")),
    {"type": "Strip", "content": "a", "start": 10**9, "stop": 10**9},
    {"type": "Prepend", "prepend": "a" * 100_000},
    *({"type": name} for name in ("ByteLevel", "ByteFallback", "Fuse", "Nmt", "Unknown")),
    {"type": "Metaspace", "replacement": "ab", "prepend_scheme": "always", "split": True},
    {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}},
    {"type": "RobertaProcessing", "sep": ["a", 2**32 - 1], "cls": ["b", 0], "trim_offsets": True},
    {"strategy": {"Fixed": 10**12}, "direction": "Right", "pad_id": 0, "pad_token": ""},
    {"max_length": 0, "strategy": "LongestFirst", "stride": 5, "direction": "Right"},
    [{"id": 2**32 - 1, "content": "", "special": True, "lstrip": True, "normalized": True}],
]  # fmt: skip


def _trained(model, trainer, **parts):
    tokenizer = Tokenizer(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def _gpt2():
    settings = {"special_tokens": ["<|endoftext|>", "<s>"], "show_progress": False}
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, **settings)
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library = _trained(models.BPE(), trainer, decoder=decoders.ByteLevel(), pre_tokenizer=split)
    library.post_processor = tokenizers.processors.ByteLevel(trim_offsets=False)
    return library


def _llama3():
    library = _gpt2()
    pattern = r"(?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    pattern += r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    steps = [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"), last]
    library.pre_tokenizer = pre_tokenizers.Sequence(steps)
    pair, ids = "<s> $A <s>:1 $B:1", [("<s>", 1)]
    template = tokenizers.processors.TemplateProcessing("<s> $A", pair, ids)
    library.post_processor = tokenizers.processors.Sequence([library.post_processor, template])
    return library


def _bert():
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=80, special_tokens=names, show_progress=False)
    parts = {"normalizer": normalizers.BertNormalizer(), "decoder": decoders.WordPiece()}
    parts["pre_tokenizer"] = pre_tokenizers.BertPreTokenizer()
    tokenizer = _trained(models.WordPiece(unk_token="[UNK]"), trainer, **parts)
    pair, ids = "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", pair, ids)
    return tokenizer


def _t5():
    names = ["<pad>", "</s>", "<unk>"]
    settings = {"special_tokens": names, "unk_token": "<unk>", "show_progress": False}
    steps = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    parts = {"pre_tokenizer": pre_tokenizers.Sequence(steps), "decoder": decoders.Metaspace()}
    parts["normalizer"] = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    trainer = trainers.UnigramTrainer(vocab_size=60, **settings)
    library = _trained(models.Unigram(), trainer, **parts)
    library.add_special_tokens([f"<extra_id_{number}>" for number in range(5)])
    return library


def _llama():
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    undo = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    rules = [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    parts = {"normalizer": normalizers.Sequence(rules)}
    parts["decoder"] = decoders.Sequence([*undo, decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=names, show_progress=False)
    model = models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    return _trained(model, trainer, **parts)


FORMS = {"gpt2": _gpt2, "llama3": _llama3, "bert": _bert, "t5": _t5, "llama": _llama}
CODES = "#version: 0.2\nl o\nlo w</w>\ne r</w>\n"


@pytest.fixture
def write(tmp_path):
    def to_file(content, name="codes"):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path / name

    return to_file


def names_of(tokenizer):
    return [*tokenizer.specials, *tokenizer.content()["pieces"]]


def joined(symbols, pair):
    found, at = [], 0
    while at < len(symbols):
        is_pair = tuple(symbols[at : at + 2]) == pair
        found.append("".join(symbols[at : at + 1 + is_pair]))
        at += 1 + is_pair
    return found


def merged(symbols, ranks):
    """Join the pair of the earliest merge, all of it from the left, until there is none."""
    while pairs := [pair for pair in pairwise(symbols) if pair in ranks]:
        symbols = joined(symbols, min(pairs, key=ranks.__getitem__))
    return symbols


def applied(word, ranks, *, is_apart):
    symbols = [*word, "</w>"] if is_apart else [*word[:-1], f"{word[-1]}</w>"]
    symbols = merged(symbols, ranks)
    return [*symbols[:-2], f"{symbols[-2]}</w>"] if symbols[-1] == "</w>" else symbols


@pytest.mark.parametrize("version", ["0.1", "0.2"])
def test_every_word_is_divided_as_subword_nmt_says(write, real_data, version):
    files = [real_data / "multi30k" / f"train.{each}.gz" for each in ("en", "de")]
    texts = [gzip.decompress(file.read_bytes()).decode() for file in files]
    captions = [line for text in texts for line in text.splitlines()]
    counts = Counter(word for line in captions[::9] for word in line.split())
    learned = train_merges(counts, alphabet_of(counts), n_merges=2000, end="</w>")
    ranks = {pair: rank for rank, pair in enumerate(learned.merges)}
    lines = [" ".join(merge) for merge in learned.merges]
    tokenizer = read_codes(write("\n".join([f"#version: {version}", *lines]) + "\n"))
    names = names_of(tokenizer)
    words = sorted({word for line in captions[1::70] for word in line.split()})
    rows = tokenizer.encode_many([word.encode() for word in words])
    for word, ids in zip(words, rows, strict=True):
        pieces = applied(word, ranks, is_apart=version == "0.1")
        expected = [piece if piece in names else "<unk>" for piece in pieces]
        assert [names[id_] for id_ in ids] == expected, word


def test_codes_of_subword_nmt_of_either_version_and_of_fastbpe_are_read(write):
    tokenizer = read_codes(write(CODES))
    # Special ids, e l o r w, the same with an end of word, and what the merges make.
    for word, ids in {"low": [15], "lower": [14, 8, 16], "lo": [5, 11], "é": [3]}.items():
        assert tokenizer.encode(word.encode()).tolist() == ids
    ids = (tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id, tokenizer.unk_id)
    assert tokenizer.vocab_size == 17 and ids == (0, 1, 2, 3)
    counted = read_codes(write("l o 70\nlo w</w> 9\ne r</w> 3\n", "fast.codes"))
    assert counted.fingerprint == tokenizer.fingerprint, "fastBPE counts its merges"
    with pytest.raises(DataError, match="fast.codes, line 2: 'lo w</w>' .* count"):
        read_codes(write("l o 70\nlo w</w>\ne r</w> 3\n", "fast.codes"))
    # Before 0.2 w is joined before the end is, so that "low" ends without the merge of both.
    apart = read_codes(write("l o\nlo w\nw </w>\n"))
    names = names_of(apart)
    found = [[names[id_] for id_ in apart.encode(word)] for word in (b"low", b"lot", b"ww", b"o")]
    assert found == [["low</w>"], ["lo", "<unk>"], ["w", "w</w>"], ["o</w>"]]
    assert apart.decode(apart.encode(b"low ww")) == b"low ww "


def test_a_dictionary_gives_the_ids_and_is_stored_with_them(write, tmp_path):
    dictionary = "er 90\nlow 9\nw@@ 7\ne@@ 5\n@@ 2\nmadeupword0000 0\n"
    for name in ("dict.de.txt", "dict.en.txt"):
        write(dictionary, name)
    codes = write(CODES)
    tokenizer = load_tokenizer(codes)
    pieces = ["er</w>", "low</w>", "w", "e", "@@</w>", "madeupword0000</w>"]
    assert names_of(tokenizer)[4:] == pieces
    # "lo" is made on the way and no piece: unknown where it stays, as one.
    assert tokenizer.encode(b"low lower @ wer").tolist() == [5, 3, 6, 4, 3, 6, 4]
    assert tokenizer.decode([6, 4, 5, 3, 9]) == b"wer low madeupword0000 "
    tokenizer.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert again.fingerprint == tokenizer.fingerprint
    assert again.encode(b"low wer").tolist() == tokenizer.encode(b"low wer").tolist()
    write("er 8\n", "dict.de.txt")
    with pytest.raises(DataError, match=r"dict.de.txt and dict.en.txt differ"):
        find_dictionary(tmp_path)


@pytest.mark.parametrize("codes, dictionary, message", [
    ("", None, "codes has no merge"), ("#version: 0.2\na b</w>\na\n", None, "codes, line 3: 'a'"),
    (CODES, "er 9\nlow x\n", "dict.txt, line 2: 'low x'"),
    (CODES, "er 9\nw@@ 3\ner 1\n", "dict.txt, line 3: 'er'"),
])  # fmt: skip
def test_damaged_codes_and_dictionaries_are_refused(write, codes, dictionary, message):
    with pytest.raises(DataError, match=message):
        read_codes(write(codes), dictionary and write(dictionary, "dict.txt"))


def test_the_most_frequent_pair_of_the_most_frequent_characters_is_merged_first(monkeypatch):
    # a-b is 3 times in "ab" and once in "abb"; then "a" + "bb" is no pair, "ab" + "b" is.
    found = train_merges({"ab": 3, "abb": 1}, ["a", "b"], n_merges=2, inner="##")
    assert found.pieces == ("a", "b", "##a", "##b", "ab", "abb")
    assert found.merges == (("a", "##b"), ("ab", "##b"))
    found = train_merges({"ab": 3, "cb": 9}, ["a", "b"], n_merges=5, end="</w>")
    assert "c" not in "".join(found.pieces), "c is outside the alphabet"
    counts = {"abab": 100, "ba": 7}
    whole = train_merges(counts, ["a", "b"], n_merges=3, end="</w>")
    monkeypatch.setattr("sublayer.data.tokenizers.word_bpe._BATCH_CHARACTERS", 11)
    assert train_merges(counts, ["a", "b"], n_merges=3, end="</w>") == whole
    monkeypatch.setattr("sublayer.data.tokenizers.word_bpe.N_CHARACTERS", 2)
    assert alphabet_of({"zb": 2, "a": 1, "c": 1}) == ["b", "z"]


def library_ids(tokenizer, text):
    library = Tokenizer.from_str(tokenizer.serialize().decode())
    library.encode_special_tokens = True
    return list(library.encode(text, add_special_tokens=False).ids)


def byte_level(*first, add_prefix_space=False):
    library = Tokenizer.from_str(TRAINED.serialize().decode())
    last = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=not first)
    library.pre_tokenizer = pre_tokenizers.Sequence([*first, last]) if first else last
    return library


SPLIT = pre_tokenizers.Split(tokenizers.Regex(r"\p{L}+\s*|[^\p{L}]+"), "isolated")
PATTERNS = byte_level(SPLIT)
PATTERNS.add_tokens(["a b"])
PATTERNED = SubwordTokenizer(PATTERNS)


@given(st.binary(max_size=200))
def test_any_bytes_round_trip_and_count(text):
    ids = TRAINED.encode(text)
    assert TRAINED.decode(ids) == text
    assert TRAINED.token_bytes[ids].sum() == len(text)


@examples(250)
@given(ODD)
def test_ids_are_the_librarys_in_batches_too_and_by_another_pattern(text):
    data = text.encode()
    ids = TRAINED.encode(data)
    assert ids.tolist() == library_ids(TRAINED, text)
    assert TRAINED.token_characters[ids].sum() == len(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sublayer.data.tokenizers.subword._SPAN_CHARACTERS", 7)
        assert TRAINED.encode(data).tolist() == ids.tolist()
    assert PATTERNED.is_lossless and PATTERNED.cut(data, len(data)) == 0
    ids = PATTERNED.encode(data)
    assert ids.tolist() == library_ids(PATTERNED, text)
    assert PATTERNED.decode(ids) == data
    assert PATTERNED.token_bytes[ids].sum() == len(data)


def test_cuts_fall_before_whitespace_and_training_in_parts_gives_the_same_merges():
    cuts = [(b"one two\n\nthree", 13), (b"one two three", 6), (b"  onetwothree", 13), (b"", 0)]
    assert [before_whitespace(*cut) for cut in cuts] == [7, 3, 0, 0]
    data = PROSE.encode()
    place = before_whitespace(data, 700)
    parts = SubwordTokenizer.train([data[:place], data[place:]], vocab_size=320)
    assert parts.serialize() == TRAINED.serialize()


def test_files_of_the_library_and_gpt2s_are_read_without_dropout(write, tmp_path):
    content = json.loads(TRAINED.serialize())
    content["model"]["dropout"] = 0.5
    path = write(json.dumps(content), "tokenizer.json")
    ids = TRAINED.encode(PROSE.encode()).tolist()
    assert load_tokenizer(tmp_path).encode(PROSE.encode()).tolist() == ids
    path.unlink()
    write(json.dumps(content["model"]["vocab"]), "vocab.json")
    write("\n".join(["#version: 0.2", *map(" ".join, content["model"]["merges"])]), "merges.txt")
    loaded = load_tokenizer(tmp_path)
    assert loaded.is_lossless and loaded.end_id == TRAINED.end_id
    assert loaded.encode(PROSE.encode()).tolist() == ids
    for line in (b"\xff", b"a b c"):
        write(b"#version: 0.2\n" + line, "merges.txt")
        with pytest.raises(DataError, match="merges.txt, line 2"):
            load_tokenizer(tmp_path)


def test_rules_that_change_text_are_marked_as_lossy(tmp_path):
    normalising, stripping = byte_level(), byte_level()
    normalising.normalizer = normalizers.NFC()
    stripping.add_tokens([tokenizers.AddedToken("<tag>", lstrip=True)])
    words = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    lossy, found = [normalising, stripping, byte_level(add_prefix_space=True), words], []
    for library in (byte_level(), *lossy):
        library.save(str(tmp_path / "tokenizer.json"))
        found.append(load_tokenizer(tmp_path))
    assert [tokenizer.is_lossless for tokenizer in found] == [True, *[False] * 4]
    assert found[-1].kind == "wordpiece" and found[-1].unk_id == 0
    assert found[-1].encode(b"b a x").tolist() == [2, 1, 0]


def changed(form, *, model=None, **parts):
    content = published(form)
    return {**content, **parts, "model": {**content["model"], **(model or {})}}


@pytest.mark.parametrize("form", rows(FORMS, 5))
def test_every_published_form_is_read(write, form):
    content = json.dumps(published(form))
    path, theirs = write(content, "tokenizer.json"), Tokenizer.from_str(content)
    tokenizer = load_tokenizer(path)
    assert check_file(path) and (form != "t5" or tokenizer.unk_id == 2)
    for text in ("the quick fox's 12,345 dogs", "Zo\u00eb  na\u00efve \u4e2d\u6587 \U0001f389\n a"):
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text.encode()).tolist() == ids


def test_a_panic_of_the_library_is_an_error_of_ours():
    content = json.dumps(changed("t5", normalizer=BROKEN))
    with pytest.raises(DataError, match="reading fails: Precompiled"):
        call_library(lambda: Tokenizer.from_str(content), "reading fails")
    with pytest.raises(KeyboardInterrupt):
        call_library(lambda: (_ for _ in ()).throw(KeyboardInterrupt), "reading fails")


@pytest.mark.parametrize("form, parts, message", [
    ("t5", {"normalizer": BROKEN}, "Precompiled"),
    ("bert", {"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": []}, r"Missing \[UNK\]"),
    ("bert", {"model": {"vocab": {"[UNK]": 0, "a": 1 << 31}}}, "greatest id is 2147483648"),
    ("gpt2", {"normalizer": {**MANY, "normalizers": [FOUR] * 40}}, "too much memory|crashes"),
    ("gpt2", {"normalizer": {**MANY, "normalizers": [FOUR] * 3}}, "it gives .* ids for"),
    ("gpt2", {"post_processor": TWICE}, "changes the ids"),
])  # fmt: skip
def test_files_that_end_the_library_are_refused(write, form, parts, message, monkeypatch):
    monkeypatch.setattr("sublayer.data.tokenizers.probe._BYTES", 192 << 20)
    path = write(json.dumps(changed(form, **parts)), "tokenizer.json")
    with pytest.raises(DataError, match=f"tokenizer.json is not a tokenizer .*({message})"):
        load_tokenizer(path)


def test_each_content_is_tried_once(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    data = json.dumps(changed("gpt2", truncation=None)).encode() + b" " * 7
    try_file("tokenizers", data, "it")
    assert len(list((tmp_path / "cache" / "tried").iterdir())) == 1
    # A process of its own cannot be had here any more, and none is needed.
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    monkeypatch.setattr("sublayer.data.tokenizers.probe._tried", set())
    try_file("tokenizers", data, "it")
    with pytest.raises(DataError, match="it: the process that probes it cannot run"):
        try_file("tokenizers", data + b" ", "it")


@cache
def own(kind):
    if kind == "bilingual":
        sides = {side: LanguageRules(side[:2]).content() for side in ("source", "target")}
        return {**own("word-bpe"), "kind": kind, "vocabulary": own("word-bpe"), **sides}
    if kind == "pair":
        model = {name: own("unigram")[name] for name in ("sha256", "model")}
        both = {"names": NAMES, "source": model, "target": model}
        return {**own("word-bpe"), "kind": "sentencepiece-pair", **both}
    more = {} if kind == "characters" else {"vocab_size": 80}
    if kind == "sentinels":
        kind, more = "unigram", {**more, "sentinels": 5}
    return train_tokenizer(kind, [text.encode() for text in CORPUS], **more).content()


def written(random, content, share=0.15):
    text = json.dumps(altered(random, content)).encode()
    return damaged(random, text) if random.random() < share else text


def gpt(random):
    model, names = own("gpt1-bpe"), ("encoder_bpe_9.json", "vocab_9.bpe")
    if random.random() < 0.5:
        model, names = published("gpt2")["model"], ("vocab.json", "merges.txt")
    lines = "\n".join(["#version: 0.2", *map(" ".join, model["merges"]), ""]).encode()
    lines = lines if random.random() < 0.5 else damaged(random, lines)
    return {names[0]: written(random, model.get("vocab") or model["ids"], 0), names[1]: lines}


def codes(random):
    found = {"codes": damaged(random, b"#version: 0.2\nt h\nth e</w>\nq u\no w\nd o\n")}
    if random.random() < 0.5:
        found["dict.txt"] = damaged(random, b"the 20\nqu@@ 9\no 3\nw@@ 2\n")
    return found


def marian(random):
    ids = written(random, {name: id_ for id_, name in enumerate(NAMES)}, 0.3)
    models = dict.fromkeys(("source.spm", "target.spm"), bytes(_unigram_model().model))
    return {**models, "vocab.json": ids}


def with_sentinels(random):
    model = t5_model(user_defined_symbols=[f"<extra_id_{number}>" for number in range(5)])
    beside = written(random, {"tokenizer_class": "T5Tokenizer", "extra_ids": 5}, 0)
    return {"spiece.model": damaged(random, model), "tokenizer_config.json": beside}


def wordpiece(random):
    pieces = "".join(f"{piece}\n" for piece in published("bert")["model"]["vocab"]).encode()
    settings = [b"{}", b'{"do_lower_case": 3}', b"[" * 100_000, b'{"do_lower_case": false}']
    return {"vocab.txt": damaged(random, pieces), "tokenizer_config.json": random.choice(settings)}


KINDS = ("characters", "word-bpe", "gpt1-bpe", "unigram", "sentinels", "bilingual", "pair")
MAKERS = {
    "library": lambda rng: {"tokenizer.json": written(rng, published(rng.choice([*FORMS])))},
    "own": lambda rng: {"tokenizer.json": written(rng, own(rng.choice(KINDS)))},
    "sentinels": with_sentinels, "codes": codes, "wordpiece": wordpiece, "gpt": gpt,
    "marian": marian,
}  # fmt: skip


def check(files):
    with TemporaryDirectory() as folder:
        write_release(Path(folder), files)
        check_file(Path(folder) / "codes" if "codes" in files else Path(folder))


@pytest.mark.parametrize("kind", MAKERS)
@examples(75)
@given(random=st.randoms(use_true_random=False))
def test_files_with_anything_wrong_are_read_or_refused(kind, random):
    check(MAKERS[kind](random))


@pytest.mark.parametrize("name", ["tokenizer.json", "spiece.model", "vocab.txt", "codes"])
def test_deep_and_empty_files_are_refused(name):
    deep = [b"[" * 100_000, b'{"a":' * 100_000, b'{"model": ' + b"1" * 5000 + b"}"]
    for data in (*deep, b"", b"\xff"):
        check({name: data})


@pytest.mark.parametrize("code, stdout, reason", [
    (1, b"Missing [UNK]", "it: Missing [UNK]"),
    (-11, b"", "it: the library crashes on it, or takes more than 4 seconds of processor time or "
     "512 MiB (code -11)"),
])  # fmt: skip
def test_a_process_that_tries_a_file_says_why_it_ended(monkeypatch, code, stdout, reason):
    ended = subprocess.CompletedProcess([], code, stdout, b"")
    monkeypatch.setattr(probe.subprocess, "run", lambda command, **options: ended)
    with pytest.raises(DataError, match=f"^{re.escape(reason)}$"):
        try_file("tokenizers", b"", "it")
