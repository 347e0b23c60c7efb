"""Tokenizers by name and by file."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import tokenizers

from sublayer.config.data import GPT1, TOKENIZERS, Normalization, SpecialTokens, is_codes_file
from sublayer.data.tokenizers.base import (
    FORMAT,
    SPACE,
    VERSION,
    ByteTokenizer,
    CharacterTokenizer,
    ExtendedTokenizer,
    Tokenizer,
    WrappedTokenizer,
    read_file,
    read_value,
)
from sublayer.data.tokenizers.gpt1 import (
    UNKNOWN,
    Gpt1Tokenizer,
    find_pair,
    read_pair,
    renormalized,
    train_gpt1,
)
from sublayer.data.tokenizers.languages import BilingualTokenizer, LanguageRules, MosesTokenizer
from sublayer.data.tokenizers.library import call_library
from sublayer.data.tokenizers.sentencepiece import PairedModels, UnigramTokenizer, has_paired_models
from sublayer.data.tokenizers.settings import (
    FILES,
    AddedToken,
    TokenFiles,
    read_token_files,
    token_name,
)
from sublayer.data.tokenizers.subword import (
    END,
    MARKED,
    SPECIALS,
    SubwordTokenizer,
    bert_rules,
    read_wordpiece,
    train_wordpiece,
)
from sublayer.data.tokenizers.word_bpe import WordBpeTokenizer, find_dictionary, read_codes
from sublayer.errors import ConfigError, DataError
from sublayer.files.parsing import parse_json, read_json_object
from sublayer.system.terminal import note

__all__ = ["Tokenizer", "load_tokenizer", "train_tokenizer"]

DEFAULT_SIZES = {"bpe": 8192, "unigram": 30_000, "wordpiece": 30_000, "word-bpe": 10_000}
"""Default vocabulary sizes of trained tokenizers."""

DEFAULT_MERGES = {"moses-bpe": 32_640, GPT1: 40_000}
"""Default numbers of merges, as in the releases of Macaron BERT and GPT-1."""

_RULES = {"moses-bpe": "printable", GPT1: "1"}
"""Versions of text rules, which change whenever a kind would divide a text into other words."""

_BESIDE = ("config.json", *FILES)
_CLOSED = ("BertTokenizer", "AlbertTokenizer", "T5Tokenizer")
"""Classes with an end that closes each text and does not separate documents."""
_GENERATING = ("GemmaTokenizer", "CohereTokenizer")
"""Classes of decoders whose vocabulary has a mask."""
_MOVED = ("XLMRoberta", "Camembert", "MBart", "MBart50", "Nllb", "Pegasus")
"""Classes that insert their own tokens before the pieces of a SentencePiece model."""

_TRAINED = (("BPE", (END,)), ("BPE", (UNKNOWN,)), ("WordPiece", SPECIALS))
"""Models and special tokens of vocabularies trained here: bpe, gpt1-bpe, wordpiece."""

_FILES = ("tokenizer.json", "spiece.model", "vocab.txt")


def train_tokenizer(
    kind: str,
    texts: Iterable[bytes],
    *,
    vocab_size: int | None = None,
    keep_accents: bool | None = None,
    lowercase: bool | None = None,
    merges: int | None = None,
    sentinels: int = 0,
    normalization: Normalization | None = None,
) -> Tokenizer:
    """Train or build a tokenizer of a kind from the texts of a training split.

    Kinds: bytes, characters, bpe, unigram, wordpiece, moses-bpe, word-bpe, gpt1-bpe. ``vocab_size``
    includes every id; the default is 8192 for bpe, 10,000 for word-bpe, 30,000 for unigram and
    wordpiece, the size from 32,640 merges for moses-bpe and from 40,000 for gpt1-bpe, and every
    character for characters. ``merges`` replaces ``vocab_size`` for word-bpe, moses-bpe and
    gpt1-bpe. ``keep_accents`` and ``lowercase`` apply to unigram, wordpiece and moses-bpe, with
    None for the published rules: ALBERT's and BERT's strip accents and lowercase, Macaron BERT's
    normalise punctuation and lowercase, T5's, used with ``sentinels``, do neither. Other kinds
    ignore both. Only unigram takes ``sentinels``. ``normalization`` names the text rules of
    gpt1-bpe, by default the published ones.

    Raises ConfigError for an unknown kind, too small a size or a missing library; DataError for
    texts that are not UTF-8 where the kind is neither bytes nor bpe, and where unigram, wordpiece,
    moses-bpe, word-bpe or gpt1-bpe find no text.
    """
    if sentinels and kind != "unigram":
        raise ConfigError(
            f"data.sentinels = {sentinels} needs data.tokenizer = unigram, not {kind!r}"
        )
    if normalization is not None and kind != GPT1:
        raise ConfigError(
            f"data.normalization = {normalization} needs data.tokenizer = {GPT1}, not {kind!r}"
        )
    size = vocab_size or DEFAULT_SIZES.get(kind, 0)
    n_merges = DEFAULT_MERGES.get(kind) if merges is None else merges
    letters = {"keep_accents": keep_accents, "lowercase": lowercase}
    rules = {name: value for name, value in letters.items() if value is not None}
    trainers: dict[str, Callable[[], Tokenizer]] = {
        "bytes": ByteTokenizer,
        "characters": lambda: CharacterTokenizer.train(texts, vocab_size=vocab_size),
        "bpe": lambda: SubwordTokenizer.train(texts, vocab_size=size),
        "unigram": lambda: UnigramTokenizer.train(
            texts, vocab_size=size, sentinels=sentinels, **letters
        ),
        "wordpiece": lambda: train_wordpiece(texts, vocab_size=size, **letters),
        "word-bpe": lambda: WordBpeTokenizer.train(
            texts, vocab_size=size if merges is None else None, n_merges=merges
        ),
        "moses-bpe": lambda: MosesTokenizer.train(
            texts, vocab_size=vocab_size, n_merges=n_merges, rules=rules
        ),
        GPT1: lambda: train_gpt1(
            texts,
            vocab_size=vocab_size,
            n_merges=n_merges,
            normalization=normalization or "published",
        ),
    }
    if kind not in trainers:
        raise ConfigError(
            f"data.tokenizer = {kind!r} cannot be trained: give one of {', '.join(TOKENIZERS)}"
        )
    return trainers[kind]()


def trainer_version(kind: str) -> str:
    """Return the versions of a kind's trainer and rules: other versions may train another one."""
    libraries = {
        "unigram": ("sentencepiece",),
        "moses-bpe": ("sacremoses",),
        GPT1: ("ftfy", "spacy"),
    }
    versions = [version(name) for name in libraries.get(kind, ()) if find_spec(name) is not None]
    return " ".join([tokenizers.__version__, *versions, *_RULES.get(kind, "").split()])


def load_tokenizer(
    path: Path,
    *,
    sentinels: int = 0,
    normalization: Normalization | None = None,
    special_tokens: SpecialTokens | Literal["file"] | None = None,
) -> Tokenizer:
    """Read a tokenizer from a file, or from a folder that has one.

    A file is a ``tokenizer.json``, ours or the ``tokenizers`` library's; a SentencePiece
    ``.model``; BERT's ``vocab.txt``; subword-nmt's or fastBPE's codes, with the ids of fairseq's
    dictionary if one is next to them (``dict.txt``, ``dict.LANGUAGE.txt``); or either file of a
    pair: GPT-1's ``encoder_bpe_40000.json`` and ``vocab_40000.bpe``, or the ``vocab.json`` and
    ``merges.txt`` of GPT-2 or GPT-1. A folder may have any of these. Marian's ``source.spm``,
    ``target.spm`` and ``vocab.json`` take precedence, and ALBERT's ``spiece.model`` over the
    library's copy of it. ``sentinels`` are added to a ``.model`` without any. ``normalization``
    replaces the text rules of a GPT-1 tokenizer, by default the published ones.

    ``special_tokens`` decides how names of special tokens in a text are read. With ``file``, and a
    file that is not ours, the files next to it decide this, the added tokens and the text rules, as
    in transformers' class: names are tokens unless ``split_special_tokens`` is true. None: as our
    own file states, else text.

    Raises DataError where there is no tokenizer, it is malformed, or a folder has several without a
    known name; ConfigError where ``sentinels`` is neither 0 nor its own number, and where
    ``normalization`` is given for a tokenizer of another kind.
    """
    tokenizer = _loaded(path, sentinels)
    n_sentinels = len(tokenizer.sentinel_ids)
    if sentinels not in (0, n_sentinels):
        raise ConfigError(
            f"data.sentinels = {sentinels} needs a SentencePiece .model without sentinels, but "
            f"{path} is another file or has {n_sentinels} sentinels: give data.sentinels = 0"
        )
    if normalization is not None:
        tokenizer = renormalized(tokenizer, path, normalization)
    if special_tokens is not None and not _is_ours(path, tokenizer):
        tokenizer = _as_files_say(tokenizer, path if path.is_dir() else path.parent)
    if special_tokens in ("tokens", "text"):
        tokenizer = with_special_tokens(tokenizer, special_tokens)
    return tokenizer


def is_former(tokenizer: Tokenizer, path: Path) -> bool:
    """Return whether a tokenizer was read by an earlier version from a file unchanged since.

    That version read names of special tokens as text, and took some files' rules from their pieces.
    """
    if isinstance(tokenizer, WrappedTokenizer):
        return is_former(tokenizer.vocabulary, path)
    if tokenizer.reads_marks is not None:
        return False
    try:
        now = load_tokenizer(path, sentinels=len(tokenizer.sentinel_ids))
    except (ConfigError, DataError):
        return False
    if _is_ours(path, now):
        return False  # our own files were read the same way
    if isinstance(tokenizer, UnigramTokenizer) and isinstance(now, UnigramTokenizer):
        return tokenizer.model == now.model
    if isinstance(tokenizer, SubwordTokenizer) and isinstance(now, SubwordTokenizer):
        return bool(tokenizer.library_content["model"] == now.library_content["model"])
    return False


def with_special_tokens(tokenizer: Tokenizer, special_tokens: SpecialTokens) -> Tokenizer:
    """Return a tokenizer that reads names of special tokens in a text as tokens, or as text.

    Raises ConfigError where it has no special tokens that a text could name.
    """
    reads_marks = special_tokens == "tokens"
    if tokenizer.reads_marks is reads_marks:
        return tokenizer
    if isinstance(tokenizer, WrappedTokenizer):
        return tokenizer.around(with_special_tokens(tokenizer.vocabulary, special_tokens))
    if not isinstance(tokenizer, SubwordTokenizer | UnigramTokenizer) or not tokenizer.marks:
        raise ConfigError(
            f"data.special_tokens = {special_tokens} has no effect: the tokenizer, of kind "
            f"{tokenizer.kind}, has no special tokens that a text could name"
        )
    return tokenizer.replaced(reads_marks=reads_marks)


def _is_ours(path: Path, tokenizer: Tokenizer) -> bool:
    """Check whether a tokenizer's file is ours, or defines the reading of special tokens."""
    if path.is_dir() or path.suffix != ".json":
        return False
    if tokenizer.reads_marks is not None:
        return True
    if isinstance(tokenizer, SubwordTokenizer):
        content = tokenizer.library_content
        added = tuple(token["content"] for token in content["added_tokens"])
        ids = [token["id"] for token in content["added_tokens"]]
        is_plain = content["post_processor"] is None and ids == list(range(len(added)))
        # A tokenizer trained here, without further settings.
        if is_plain and (content["model"]["type"], added) in _TRAINED:
            return not any((path.parent / name).is_file() for name in _BESIDE)
    data = read_file(path)
    if FORMAT.encode() in data and _parsed(data, path).get("format") == FORMAT:
        return True
    config = path.parent / "config.json"
    return config.is_file() and read_json_object(config, DataError).get("format") == "sublayer"


def _as_files_say(tokenizer: Tokenizer, folder: Path) -> Tokenizer:
    """Return a tokenizer with the special tokens, added tokens and rules of a folder's files."""
    if isinstance(tokenizer, UnigramTokenizer):
        files = read_token_files(folder)
        read = tokenizer.replaced(
            reads_marks=not files.splits, added=files.tokens, roles=_roles(files)
        )
        _check_ids(read.marks, files, folder)
        return read
    if not isinstance(tokenizer, SubwordTokenizer):
        return tokenizer
    content = tokenizer.library_content
    has_file = (folder / "tokenizer.json").is_file()
    in_file = content["added_tokens"] if has_file else []
    files = read_token_files(folder, in_file, tokenizer.file_padding)
    kind = content["model"]["type"]
    # Rules, as in its class of transformers.
    if files.class_name == "BertTokenizer" and kind == "WordPiece":
        rules: dict[str, Any] = {"clean_text": True, "handle_chinese_chars": True}
        rules |= {"strip_accents": None, "lowercase": True, **bert_rules(folder)}
        rules["type"] = "BertNormalizer"
        normalizer = content["normalizer"] or {}
        for name in ("lowercase", "strip_accents"):
            if normalizer.get(name, rules[name]) != rules[name]:
                note(
                    f"{name} = {rules[name]} in {folder}, as transformers' BertTokenizer reads it, "
                    f"overrides {name} = {normalizer[name]} of its tokenizer.json"
                )
                break
        content = {**content, "normalizer": rules, "pre_tokenizer": {"type": "BertPreTokenizer"}}
    elif files.class_name in _BPE_RULES and kind == "BPE":
        content = {**content, **_bpe_rules(content["model"], files, folder)}
    # Tokens, from its files and its class.
    text = json.dumps(content if files.defaults is None else {**content, "added_tokens": []})
    library = call_library(
        lambda: tokenizers.Tokenizer.from_str(text), f"{folder} has no readable tokenizer"
    )
    defaults = [name for name in files.defaults or () if library.token_to_id(name) is not None]
    tokens = [*files.tokens, *map(AddedToken, defaults)]
    library.add_tokens([tokenizers.AddedToken(**asdict(token)) for token in tokens])
    result: dict[str, Any] = json.loads(library.to_str())
    if files.class_name == "RobertaTokenizer":
        named = {"sep": "</s>", "cls": "<s>"}
        named = {k: token_name(files.settings.get(f"{k}_token")) or v for k, v in named.items()}
        marks = {key: (name, library.token_to_id(name)) for key, name in named.items()}
        if None not in (id_ for _, id_ in marks.values()):
            flags = {"trim_offsets": True, "add_prefix_space": False}
            result["post_processor"] = {"type": "RobertaProcessing", **marks, **flags}
    _check_ids({token["content"]: token["id"] for token in result["added_tokens"]}, files, folder)
    return tokenizer.replaced(result, reads_marks=not files.splits, roles=_roles(files))


_NFC = {"type": "NFC"}
_SPACE = {"String": " "}
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DIVIDES = {"type": "Split", "behavior": "Isolated", "invert": False}
_BPE_RULES: dict[str, tuple[dict[str, Any] | None, list[dict[str, Any]]]] = {
    "GPT2Tokenizer": (None, []),
    "RobertaTokenizer": (None, []),
    "GPTNeoXTokenizer": (_NFC, []),
    "CohereTokenizer": (_NFC, [{"type": "Digits", "individual_digits": True}]),
    "Qwen2Tokenizer": (_NFC, [{**_DIVIDES, "pattern": {"Regex": QWEN2}}]),
    "GemmaTokenizer": (
        {"type": "Replace", "pattern": _SPACE, "content": SPACE},
        [{**_DIVIDES, "behavior": "MergedWithPrevious", "pattern": _SPACE}],
    ),
    "LlamaTokenizer": (None, [{"type": "Metaspace", "replacement": SPACE, "split": False}]),
}
"""Normalizer and first divisions of transformers' classes that set them whatever their file has."""
_FALLING_BACK = ("GemmaTokenizer", "LlamaTokenizer")
"""Classes of pieces of characters, with bytes for those that the vocabulary lacks."""


def _bpe_rules(model: dict[str, Any], files: TokenFiles, folder: Path) -> dict[str, Any]:
    """Return the normalizer, the division into words and the model of a class's BPE."""
    has_space = files.settings.get("add_prefix_space")
    if not isinstance(has_space, bool | None):
        raise DataError(f"{folder}: add_prefix_space = {has_space!r:.60} must be true or false")
    name = files.class_name
    normalizer, steps = _BPE_RULES[name]
    model = {**model, "dropout": None, "unk_token": None, "fuse_unk": False}
    model |= {"continuing_subword_prefix": "", "end_of_word_suffix": ""}
    model |= {"byte_fallback": False, "ignore_merges": False}
    if name in _FALLING_BACK:
        model |= {"fuse_unk": True, "byte_fallback": True}
    else:
        level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": name != "Qwen2Tokenizer"}
        steps = [*steps, {**level, "add_prefix_space": bool(has_space)}]
    if name == "GemmaTokenizer":
        model["unk_token"] = token_name(files.settings.get("unk_token", "<unk>"))
    elif name == "LlamaTokenizer":
        scheme = "always" if files.settings.get("legacy") else "first"
        steps = [{**steps[0], "prepend_scheme": "never" if has_space is False else scheme}]
    words = steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}
    return {"normalizer": normalizer, "pre_tokenizer": words, "model": model}


def _roles(files: TokenFiles) -> dict[str, str]:
    """Return the roles that files give to tokens, without an end that closes a text."""
    roles = dict(files.roles)
    is_of_masks = "mask_id" in roles and files.class_name not in _GENERATING
    if is_of_masks or files.class_name in _CLOSED:
        roles.pop("end_id", None)
    return roles


def _check_ids(ids: Mapping[str, int], files: TokenFiles, folder: Path) -> None:
    for content, id_ in files.ids.items():
        if ids.get(content, id_) != id_:
            raise DataError(
                f"{folder}: {content[:60]!r} has the id {id_} by its files, but {ids[content]} "
                "after the vocabulary, since ids between them have no tokens: save the tokenizer "
                "again with transformers"
            )


def _loaded(path: Path, sentinels: int) -> Tokenizer:
    if path.is_dir():
        folder = path
        if has_paired_models(folder):
            return PairedModels.read(folder)
        file = _tokenizer_file(folder)
        if file is None and (pair := find_pair(folder)):
            return read_pair(pair)
        if file is None:
            raise DataError(
                f"{folder} has no tokenizer.json, nor vocab.json with merges.txt, nor GPT-1's "
                "encoder_bpe_40000.json with vocab_40000.bpe, nor a SentencePiece .model, nor "
                "vocab.txt"
            )
        name = read_token_files(folder).class_name
        if file.suffix == ".model" and name.removesuffix("Tokenizer") in _MOVED:
            raise DataError(
                f"{folder}: the ids of transformers' {name} differ from those of its {file.name}: "
                f"write its tokenizer.json with transformers: {name}.from_pretrained("
                f"{str(folder)!r}).save_pretrained({str(folder)!r})"
            )
        tokenizer = _loaded(file, sentinels)
        original = folder / "spiece.model"
        is_copy = tokenizer.kind == "unigram" and isinstance(tokenizer, SubwordTokenizer)
        if is_copy and original.is_file():
            # The library's copy differs in a few numbers' pieces; it is read only for ids beyond
            # the original's.
            n_sentinels = len(tokenizer.sentinel_ids)
            published = UnigramTokenizer.read(original, sentinels=n_sentinels, class_name=name)
            if (published.vocab_size, published.sentinel_ids) == (
                tokenizer.vocab_size,
                tokenizer.sentinel_ids,
            ):
                return published
        return tokenizer
    if path.suffix == ".model":
        name = read_token_files(path.parent).class_name
        return UnigramTokenizer.read(path, sentinels=sentinels, class_name=name)
    if pair := find_pair(path):
        return read_pair(pair)
    if path.suffix == ".txt":
        return read_wordpiece(path)
    if is_codes_file(path.name):
        return read_codes(path, find_dictionary(path.parent))
    data = read_file(path)
    if FORMAT.encode() in data:
        content = _parsed(data, path)
        if content.get("format") == FORMAT:
            return _own(content, path)
        return SubwordTokenizer.from_bytes(data, path)
    try:
        return SubwordTokenizer.from_bytes(data, path)
    except DataError:
        _parsed(data, path)  # for a file that is not JSON, this error says more
        raise


def has_tokenizer(folder: Path) -> bool:
    """Return whether a folder holds a tokenizer's published files, and is not our model folder."""
    if not folder.is_dir() or (folder / "config.json").is_file():
        return False
    if has_paired_models(folder) or _tokenizer_file(folder) is not None:
        return True
    return find_pair(folder) is not None


def _tokenizer_file(folder: Path) -> Path | None:
    named = [folder / name for name in _FILES if (folder / name).is_file()]
    models = sorted(folder.glob("*.model"))
    if not named and len(models) > 1:
        raise DataError(
            f"{folder} has {models[0].name} and {models[1].name}: name the file to read"
        )
    return next(iter([*named, *models]), None)


def _parsed(data: bytes, path: Path) -> dict[str, Any]:
    content = parse_json(data, f"the tokenizer {path}", DataError)
    if not isinstance(content, dict):
        raise DataError(f"{path} is not a tokenizer: it holds no JSON object")
    return content


def _own(content: dict[str, Any], path: Path) -> Tokenizer:
    if content.get("version") != VERSION:
        raise DataError(
            f"{path} has version {content.get('version')!r}, but this program reads {VERSION}: "
            "update it"
        )
    kind = content.get("kind")
    readers: dict[str, Callable[[dict[str, Any]], Tokenizer]] = {
        "bytes": lambda fields: ByteTokenizer(),
        "characters": CharacterTokenizer.from_content,
        "unigram": UnigramTokenizer.from_content,
        "moses-bpe": MosesTokenizer.from_content,
        "word-bpe": WordBpeTokenizer.from_content,
        GPT1: Gpt1Tokenizer.from_content,
        "sentencepiece-pair": PairedModels.from_content,
        "bilingual": lambda fields: _wrapped(fields, path),
        "extended": lambda fields: _wrapped(fields, path),
        MARKED: lambda fields: SubwordTokenizer.from_content(fields, path),
    }
    read = readers.get(str(kind))
    if read is None:
        raise DataError(f"{path}: its kind is unknown: the file is damaged or from a newer version")
    try:
        return read(content)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _wrapped(content: dict[str, Any], path: Path) -> Tokenizer:
    inner = read_value(content.get("vocabulary"), dict[str, Any])
    if inner.get("format") == FORMAT:
        vocabulary = _own(inner, path)
    else:
        vocabulary = SubwordTokenizer.from_content(inner, path)
    if content["kind"] == "extended":
        return ExtendedTokenizer.from_content(content, vocabulary)
    source, target = (
        LanguageRules.from_content(content.get(side)) for side in ("source", "target")
    )
    return BilingualTokenizer(vocabulary, source, target)
