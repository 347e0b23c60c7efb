"""Tiny tokenizer files of the forms in which they are published, and what may be wrong there."""

import base64
import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Library

from sublayer.data.tokenizers.base import NotUtf8, Tokenizer
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.errors import SublayerError

CORPUS = [
    "the quick brown fox jumps over the lazy dog 123, it's! Zo\u00eb caf\u00e9",
    "deux petits chats dorment, 1,234 a",
] * 20
TEXTS = [
    b"",
    b"hello World 123, 2, \xff\xfe",
    "\u00dcn\u00ef \u4e2d\u6587 \U0001f389 \x00 x\r\n".encode(),
    b"a" * 3000,
    b" " * 3000,
    b"the quick " * 1500,
    bytes(range(256)),
    "\u65e5\u672c\u8a9e".encode() * 500,
]
FORMS = ("gpt2", "llama3", "bert", "albert", "t5", "llama", "roberta", "words")


@cache
def published(form: str) -> dict[str, Any]:
    """Train a tokenizer of the form in which a model's is published; return its tokenizer.json."""
    tokenizer = _FORMS[form]()
    content: dict[str, Any] = json.loads(tokenizer.to_str())
    if form in ("albert", "t5"):
        charsmap = charsmap_of_nfkc()
        place = content["normalizer"]["normalizers"]
        place[[step["type"] for step in place].index("NFC")] = {
            "type": "Precompiled",
            "precompiled_charsmap": charsmap,
        }
    return content


@cache
def charsmap_of_nfkc() -> str:
    """Give SentencePiece's own table of normalisation, in base64."""
    model: Any = train_tokenizer("unigram", [text.encode() for text in CORPUS], vocab_size=80)
    return base64.b64encode(model.charsmap).decode()


@cache
def sentencepiece_model() -> bytes:
    model: Any = train_tokenizer("unigram", [text.encode() for text in CORPUS], vocab_size=80)
    return bytes(model.model)


def check_file(path: Path) -> bool:
    """Load a tokenizer and use it; return whether it loads, else check that the error is a line."""
    tokenizer = loaded(path)
    if isinstance(tokenizer, str):
        assert tokenizer, "an error says something"
        assert "\n" not in tokenizer
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
    assert len(tokenizer.fingerprint) == 64
    if tokenizer.has_words:
        tokenizer.starts_word(np.arange(tokenizer.vocab_size))
    return True


def loaded(path: Path) -> Tokenizer | str:
    """Load a tokenizer, or give the error that says why it cannot be."""
    try:
        return load_tokenizer(path)
    except SublayerError as error:
        return str(error)


def altered(random: Random, content: Any) -> Any:
    """Alter a few values of JSON: other ones and types, left out, twice, or from elsewhere."""
    content = copy.deepcopy(content)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        places = [place for place in _places(content) if place]
        # Of thousands of pieces one is as good as another.
        many = ("vocab", "merges", "pieces")
        upper = [place for place in places if len(place) <= 2 or place[1] not in many]
        place = random.choice(upper if random.random() < 0.7 else places) if places else ()
        if place:
            _alter(random, content, place, places)
    return content


def damaged(random: Random, data: bytes) -> bytes:
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


def _alter(
    random: Random, content: Any, place: tuple[Any, ...], places: list[tuple[Any, ...]]
) -> None:
    inner, key = _at(content, place[:-1]), place[-1]
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
            inner[key] = copy.deepcopy(_at(content, random.choice(places)))
        case _:
            inner[key] = copy.deepcopy(random.choice(VALUES))


def _at(content: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        content = content[key]
    return content


def _places(content: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    items = {dict: dict.items, list: enumerate}.get(type(content), lambda content: ())
    for key, value in items(content):
        yield from _places(value, (*place, key))


def _replace(pattern: dict[str, str], text: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": text}


def _split(pattern: dict[str, str], behavior: str = "Isolated") -> dict[str, Any]:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}


def _template(single: list[Any]) -> dict[str, Any]:
    return {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": {}}


_WHOLE, _OTHER = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")

_RULES = ("ByteLevel", "ByteFallback", "Fuse", "NFKD", "Nmt", "Whitespace", "Unknown")
_STEPS = ("normalizers", "pretokenizers", "decoders", "processors")
_TOKEN = {"id": 2**32 - 1, "content": "a", "special": True, "single_word": False, "lstrip": True}
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**32 - 1, 2**32, 2**63, 10**18, 10**30, 1.5, 1e308),
    *("", "a", "\0", "\u2581", " ", "\n", "ByteLevel", "[UNK]", "(a+)+$", "(", "(.*)*x", "\ud800"),
    *([], {}, [[]], [["a", 1]], {"a": 0}, {"a": 1 << 31}),
    *(
        {"type": "Precompiled", "precompiled_charsmap": map_}
        for map_ in ("", "AAAA", "/////wAAAAA=", "@", "AAAAA", 3)
    ),
    *(_split({"Regex": pattern}) for pattern in ("(a+)+b", "(", "", "(?=a)", "(\\s*)*$")),
    *(_split({"String": ""}, behavior) for behavior in ("Removed", "MergedWithNext", "Contiguous")),
    *(_replace(pattern, "aa") for pattern in ({"String": ""}, {"Regex": ""}, {"Regex": "(a*)*b"})),
    {"type": "Sequence", "normalizers": [_replace({"Regex": "."}, "aaaa")] * 20},
    *({"type": "Sequence", name: []} for name in _STEPS),
    *({"type": "FixedLength", "length": length} for length in (0, 1, 2**40)),
    {"type": "Strip", "content": "a", "start": 10**9, "stop": 10**9},
    {"type": "Prepend", "prepend": "a" * 100_000},
    *({"type": name} for name in _RULES),
    {"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": True},
    {"type": "BPEDecoder", "suffix": ""},
    {"type": "Metaspace", "replacement": "ab", "prepend_scheme": "always", "split": True},
    *(_template(single) for single in ([], [_WHOLE, _WHOLE], [_OTHER])),
    _template([{"SpecialToken": {"id": "x", "type_id": 0}}]),
    {"type": "RobertaProcessing", "sep": ["a", 2**32 - 1], "cls": ["b", 0], "trim_offsets": True},
    {"strategy": {"Fixed": 10**12}, "direction": "Right", "pad_id": 0, "pad_token": ""},
    {"max_length": 0, "strategy": "LongestFirst", "stride": 5, "direction": "Right"},
    [{"id": 0, "content": "", "special": False}],
    [{**_TOKEN, "rstrip": True, "normalized": True}],
]


def _trained(model: Any, trainer: Any, **parts: Any) -> Library:
    tokenizer = Library(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def _byte_level(**parts: Any) -> Library:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>", "<s>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    return _trained(models.BPE(), trainer, decoder=decoders.ByteLevel(), **parts)


def _gpt2() -> Library:
    return _byte_level(
        pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False),
        post_processor=processors.ByteLevel(trim_offsets=False),
    )


def _llama3() -> Library:
    pattern = Regex(
        r"(?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
    )
    steps = [
        pre_tokenizers.Split(pattern, "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    template = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    tokenizer = _byte_level(pre_tokenizer=pre_tokenizers.Sequence(steps))
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), template]
    )
    return tokenizer


def _roberta() -> Library:
    return _byte_level(
        pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True),
        post_processor=processors.RobertaProcessing(("<|endoftext|>", 0), ("<s>", 1)),
    )


def _bert() -> Library:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = _trained(
        models.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer(vocab_size=80, special_tokens=names, show_progress=False),
        normalizer=normalizers.BertNormalizer(),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
        decoder=decoders.WordPiece(),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def _unigram(rules: list[Any], names: list[str]) -> Library:
    steps = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    trainer = trainers.UnigramTrainer(
        vocab_size=60, special_tokens=names, unk_token="<unk>", show_progress=False
    )
    # Where NFC stands, the published ones have a table, which the library cannot make.
    parts = {
        "normalizer": normalizers.Sequence([*rules, normalizers.NFC()]),
        "pre_tokenizer": pre_tokenizers.Sequence(steps),
        "decoder": decoders.Metaspace(),
    }
    return _trained(models.Unigram(), trainer, **parts)


def _albert() -> Library:
    rules = [
        normalizers.Replace("``", '"'),
        normalizers.NFKD(),
        normalizers.StripAccents(),
        normalizers.Lowercase(),
        normalizers.Replace(Regex(" {2,}"), " "),
    ]
    return _unigram(rules, ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"])


def _t5() -> Library:
    tokenizer = _unigram([], ["<pad>", "</s>", "<unk>"])
    tokenizer.add_special_tokens([f"<extra_id_{number}>" for number in range(5)])
    return tokenizer


def _llama() -> Library:
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    undo = [
        decoders.Replace("\u2581", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    return _trained(
        models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True),
        trainers.BpeTrainer(vocab_size=400, special_tokens=names, show_progress=False),
        normalizer=normalizers.Sequence(
            [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
        ),
        decoder=decoders.Sequence(undo),
    )


def _words() -> Library:
    steps = [
        pre_tokenizers.Whitespace(),
        pre_tokenizers.Digits(True),
        pre_tokenizers.Split(Regex(r"\w+|[^\w\s]+"), "isolated"),
    ]
    return _trained(
        models.WordLevel(unk_token="[UNK]"),
        trainers.WordLevelTrainer(special_tokens=["[UNK]"], show_progress=False),
        pre_tokenizer=pre_tokenizers.Sequence(steps),
    )


_FORMS = {
    "gpt2": _gpt2,
    "llama3": _llama3,
    "bert": _bert,
    "albert": _albert,
    "t5": _t5,
    "llama": _llama,
    "roberta": _roberta,
    "words": _words,
}
