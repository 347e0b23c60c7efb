"""Tiny tokenizer files of the forms in which they are published, and what may be wrong there."""

import base64
import copy
import json
from functools import cache, reduce

import numpy as np
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Library

from sublayer.data.tokenizers.base import NotUtf8
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.errors import SublayerError

CORPUS = [
    "the quick brown fox jumps over the lazy dog 123, it's! Zo\u00eb caf\u00e9",
    "deux petits chats dorment, 1,234 a",
] * 20
TEXTS = [
    *(b"", b"hello World 123, 2, \xff\xfe", b"a" * 3000, b" " * 3000, b"the quick " * 1500),
    "\u00dcn\u00ef \u4e2d\u6587 \U0001f389 \x00 x\r\n".encode(),
    *(bytes(range(256)), "\u65e5\u672c\u8a9e".encode() * 500),
]


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


def sentencepiece_model():
    return bytes(_unigram_model().model)


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
    tokenizer = Library(model)
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
    library.post_processor = processors.ByteLevel(trim_offsets=False)
    return library


def _llama3():
    library = _gpt2()
    pattern = r"(?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    pattern += r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated"), last]
    library.pre_tokenizer = pre_tokenizers.Sequence(steps)
    pair, ids = "<s> $A <s>:1 $B:1", [("<s>", 1)]
    template = processors.TemplateProcessing("<s> $A", pair, ids)
    library.post_processor = processors.Sequence([library.post_processor, template])
    return library


def _bert():
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=80, special_tokens=names, show_progress=False)
    parts = {"normalizer": normalizers.BertNormalizer(), "decoder": decoders.WordPiece()}
    parts["pre_tokenizer"] = pre_tokenizers.BertPreTokenizer()
    tokenizer = _trained(models.WordPiece(unk_token="[UNK]"), trainer, **parts)
    pair, ids = "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", pair, ids)
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
