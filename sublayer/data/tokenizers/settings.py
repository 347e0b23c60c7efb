"""Files of a tokenizer's folder: normalisation, special and added tokens.

Sources: transformers 5, ``tokenization_utils_base.py`` (``_from_pretrained``) and the tokenizers
library's ``added_vocabulary.rs``.
"""

import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from sublayer.data.tokenizers.base import read_file
from sublayer.errors import DataError
from sublayer.files.parsing import check_typed, read_json_object, read_typed

CONFIG_NAME = "tokenizer_config.json"
_ALBERTS, T5S = "AlbertTokenizer", "T5Tokenizer"
_WITH_RULES = (_ALBERTS, "XLNetTokenizer", "PreTrainedTokenizer", "")
"""Classes that read ``do_lower_case`` and ``keep_accents``, or folders that name none."""
_MODELS = "is_models"


@dataclass(frozen=True)
class Normalization:
    """ALBERT's text rules, with the field names of its published settings.

    Source: google-research/albert, ``tokenization.py``.
    """

    do_lower_case: bool = True
    keep_accents: bool = False
    """If False, text is decomposed (NFKD) and combining marks are stripped."""
    divide_digit_commas: bool = True
    """True where a piece that ends in a digit and a comma is split before the comma."""
    is_models: bool = False
    """True where a text reaches SentencePiece unchanged, with its whitespace and newlines, so that
    only the model's own rules apply."""

    @classmethod
    def of(cls, pieces: Iterable[str]) -> "Normalization":
        """Infer the rules of a vocabulary like ALBERT's from its pieces.

        Texts are lowercased if no piece has a capital; accents are stripped if no piece has one.
        """
        text = " ".join(pieces)
        without_accents = _composed(strip_accents(text))
        return cls(
            do_lower_case=text.lower() == text,
            keep_accents=without_accents != _composed(text),
        )

    @classmethod
    def read(cls, folder: Path, class_name: str = "") -> "Normalization | None":
        """Read the rules of ``tokenizer_config.json``; raise DataError if it is damaged.

        None without settings for capitals and accents, unless ``class_name`` is ALBERT's, which
        lowercases and strips by default. Classes without such rules have the model's alone.
        """
        settings = read_settings(folder)
        if class_name not in _WITH_RULES:
            return AS_MODEL
        is_said = bool({"do_lower_case", "keep_accents"} & settings.keys())
        if class_name != _ALBERTS and not is_said:
            return None
        names = [field.name for field in fields(cls) if field.name != _MODELS]
        rules = {name: settings[name] for name in names if name in settings}
        source = str(folder / CONFIG_NAME)
        return check_typed(rules, cls, source, DataError, has_tuples=True)

    def content(self) -> dict[str, bool]:
        """Return the rules, as JSON."""
        rules = asdict(self)
        if not self.is_models:
            del rules[_MODELS]
        return rules

    def lines(self, text: str) -> list[str]:
        """Return the non-empty lines of a text, normalised, with single spaces."""
        assert not self.is_models, "the model normalises its texts itself"
        lines: Iterable[str] = (" ".join(line.split()) for line in text.split("\n"))
        if not self.keep_accents:
            lines = map(strip_accents, lines)
        if self.do_lower_case:
            lines = map(str.lower, lines)
        return [line for line in lines if line]


AS_WRITTEN = Normalization(do_lower_case=False, keep_accents=True, divide_digit_commas=False)
"""Rules that only split lines and collapse spaces, and leave the rest to SentencePiece."""
AS_MODEL = replace(AS_WRITTEN, is_models=True)
"""Rules that leave a text to SentencePiece unchanged."""


def strip_accents(text: str) -> str:
    """Decompose a text (NFKD) and remove its combining characters."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    return _combining().sub("", decomposed)


def read_settings(folder: Path) -> dict[str, Any]:
    """Read a folder's ``tokenizer_config.json``, {} without it; raise DataError if damaged."""
    path = folder / CONFIG_NAME
    if not path.is_file():
        return {}
    return read_json_object(path, DataError)


def _composed(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


@cache
def combining_characters() -> str:
    """List all combining characters of Python's Unicode tables."""
    characters = map(chr, range(sys.maxunicode + 1))
    return "".join(filter(unicodedata.combining, characters))


@cache
def _combining() -> re.Pattern[str]:
    return re.compile(f"[{combining_characters()}]+")


_ADDED, _SPECIAL = "added_tokens.json", "special_tokens_map.json"
FILES = (CONFIG_NAME, _ADDED, _SPECIAL)
"""Files next to a tokenizer that name its special tokens."""
_DECODER = "added_tokens_decoder"
_Number = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
_Id = Annotated[int, Field(ge=0, lt=10**9)]
_ROLES = {
    "eos_token": "end_id",
    **{f"{name}_token": f"{name}_id" for name in ("pad", "cls", "sep", "mask")},
}
"""Our names of special ids, by the settings that name their tokens."""
_NAMED = tuple(f"{name}_token" for name in ["bos", "eos", "unk", "sep", "pad", "cls", "mask"])


def _tokens(named: str) -> dict[str, str]:
    """Return special tokens by their settings, from pairs such as ``eos=</s>``."""
    pairs = (each.split("=") for each in named.split())
    return {f"{key}_token": name for key, name in pairs}


_GPT2 = "bos=<|endoftext|> eos=<|endoftext|> unk=<|endoftext|>"
_CLASSES: dict[str, dict[str, str]] = {
    "GPT2Tokenizer": _tokens(_GPT2),
    "BertTokenizer": _tokens("unk=[UNK] sep=[SEP] pad=[PAD] cls=[CLS] mask=[MASK]"),
    "RobertaTokenizer": _tokens(
        "bos=<s> eos=</s> unk=<unk> sep=</s> pad=<pad> cls=<s> mask=<mask>"
    ),
    "GPTNeoXTokenizer": _tokens(f"{_GPT2} pad=<|padding|>"),
    "Qwen2Tokenizer": _tokens("eos=<|endoftext|> unk=<|endoftext|> pad=<|endoftext|>"),
    "LlamaTokenizer": _tokens("bos=<s> eos=</s> unk=<unk>"),
    "GemmaTokenizer": _tokens("bos=<bos> eos=<eos> unk=<unk> pad=<pad> mask=<mask>"),
    "CohereTokenizer": _tokens(
        "bos=<BOS_TOKEN> eos=<|END_OF_TURN_TOKEN|> unk=<UNK> pad=<PAD> cls=<CLS> sep=<SEP> "
        "mask=<MASK_TOKEN>"
    ),
}
"""The special tokens of classes that rebuild their tokenizer, whatever its file has."""
_CLASS_OF = {
    "albert": "AlbertTokenizer",
    "t5": "T5Tokenizer",
    "marian": "MarianTokenizer",
    "openai-gpt": "OpenAIGPTTokenizer",
    **dict.fromkeys(("roberta", "bart"), "RobertaTokenizer"),
    **dict.fromkeys(("bert", "distilbert", "electra"), "BertTokenizer"),
    **dict.fromkeys(("gpt2", "gptj"), "GPT2Tokenizer"),
    "gpt_neox": "GPTNeoXTokenizer",
    **dict.fromkeys(("qwen2", "qwen3"), "Qwen2Tokenizer"),
    **dict.fromkeys(("gemma2", "gemma3_text"), "GemmaTokenizer"),
    "cohere": "CohereTokenizer",
}
"""The default class, by the model's type, for a folder with settings that name none."""
_AS_FILE = ("mistral", "granite", "olmo2", "modernbert")
"""Types of models whose ``tokenizer.json`` is read as it is, whatever class is named."""
_SAME_CLASS = {
    "BartTokenizer": "RobertaTokenizer",
    **dict.fromkeys(("DistilBertTokenizer", "ElectraTokenizer"), "BertTokenizer"),
}
"""Classes that read files like another class, and that class."""


@dataclass(frozen=True)
class AddedToken:
    """A token matched in a text before the vocabulary divides it."""

    content: Annotated[str, Field(min_length=1)]
    special: bool = True
    lstrip: bool = False
    """True where the token includes the whitespace before it."""
    rstrip: bool = False
    single_word: bool = False
    """True where it is not matched next to a letter or digit."""
    normalized: bool = False
    """True where it is matched in the normalised text."""

    def pattern(self) -> str:
        """Return the regular expression that matches it in a text."""
        mark = re.escape(self.content)
        if self.single_word:
            mark = rf"(?<!\w){mark}(?!\w)"
        before = r"\s*" if self.lstrip else ""
        after = r"\s*" if self.rstrip else ""
        return f"{before}{mark}{after}"


@dataclass(frozen=True)
class TokenFiles:
    """A tokenizer's special and added tokens, as named by the files of its folder."""

    tokens: tuple[AddedToken, ...] = ()
    """Tokens in order: those missing from the vocabulary get ids in this order."""
    ids: Mapping[str, int] = field(default_factory=dict)
    """The ids that files assign to some of them."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """The tokens for padding and the like, by ``pad_id`` and so on."""
    splits: bool = False
    """True where names of special tokens in a text are text (``split_special_tokens``)."""
    class_name: str = ""
    """transformers' class, without ``Fast``; empty where the files do not name it."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    defaults: Sequence[str] | None = None
    """The class's default special tokens; None for a class that takes them from its tokenizer's
    file."""


def read_token_files(
    folder: Path, in_file: Sequence[Mapping[str, Any]] = (), padding: str | None = None
) -> TokenFiles:
    """Read ``tokenizer_config.json`` and the files next to it, as transformers does.

    ``in_file`` are the added tokens of a ``tokenizer.json``, ``padding`` its padding token.
    """
    settings = read_settings(folder)
    class_name = _class_name(folder, settings)
    if padding is not None and class_name not in _CLASSES:
        settings = {"pad_token": padding, **settings}
    path = folder / _SPECIAL
    if _DECODER not in settings and path.is_file():
        special = read_json_object(path, DataError)
        _named(special, str(path))
        settings = {**settings, **special}
    named = _named(settings, str(folder / CONFIG_NAME))
    ids: dict[str, int] = {}
    tokens: dict[str, AddedToken] = {}
    if _DECODER in settings:
        source = f"{folder / CONFIG_NAME}: {_DECODER}"
        numbered = check_typed(settings[_DECODER], dict[_Number, Any], source, DataError)
        for number, value in sorted(numbered.items(), key=lambda item: int(item[0])):
            token = _token(value, source)
            tokens[token.content] = token
            ids[token.content] = int(number)
    else:
        path = folder / _ADDED
        if path.is_file():
            ids = read_typed(path, dict[str, _Id], DataError)
            for content in sorted(ids, key=ids.__getitem__):
                is_special = content in named
                tokens[content] = AddedToken(content, is_special, normalized=not is_special)
        for value in in_file:
            token = _token(value, "tokenizer.json: added_tokens")
            tokens[token.content] = token
    for content, token in named.items():
        tokens.setdefault(content, token)
    roles = {}
    for key, role in _ROLES.items():
        if settings.get(key) is not None:
            roles[role] = _token(settings[key], f"{folder / CONFIG_NAME}: {key}").content
    splits = settings.get("split_special_tokens", False)
    if not isinstance(splits, bool):
        raise DataError(f"{folder / CONFIG_NAME}: split_special_tokens must be true or false")
    defaults = None
    if class_name in _CLASSES:
        defaults = [name for key, name in _CLASSES[class_name].items() if key not in settings]
    return TokenFiles(tuple(tokens.values()), ids, roles, splits, class_name, settings, defaults)


def _class_name(folder: Path, settings: Mapping[str, Any]) -> str:
    """Return the class by which AutoTokenizer reads a folder; empty for one without rules."""
    path = folder / "config.json"
    config = read_json_object(path, DataError) if path.is_file() else {}
    model_type = str(config.get("model_type"))
    named = (settings.get("tokenizer_class"), config.get("tokenizer_class"))
    name = next((name for name in named if isinstance(name, str)), _CLASS_OF.get(model_type, ""))
    name = name.removesuffix("Fast")
    name = _SAME_CLASS.get(name, name)
    if model_type == "qwen2":
        return _CLASS_OF[model_type]
    file = folder / "tokenizer.json"
    # The class has SentencePiece's rules, which byte-level vocabularies of Llama 3 lack.
    if name == "LlamaTokenizer" and file.is_file() and b'"ByteLevel"' in read_file(file):
        return ""
    return "" if model_type in _AS_FILE else name


class MarkedText:
    """Splits texts at the names of tokens; the longest match at a position wins."""

    def __init__(self, tokens: Mapping[str, int], added: Sequence[AddedToken] = ()) -> None:
        self.tokens = tokens
        by_content = {token.content: token for token in added}
        longest_first = sorted(tokens, key=len, reverse=True)
        patterns = [by_content.get(name, AddedToken(name)).pattern() for name in longest_first]
        self._pattern = re.compile(f"({'|'.join(patterns)})") if patterns else None

    def split(self, text: str) -> list[str | int]:
        """Return the parts of a text in order: texts between names, and the ids of names."""
        if self._pattern is None:
            return [text]
        parts: list[str | int] = []
        for number, part in enumerate(self._pattern.split(text)):
            if number % 2:
                id_ = self.tokens.get(part)
                parts.append(self.tokens[part.strip()] if id_ is None else id_)
            elif part:
                parts.append(part)
        return parts


def _named(settings: Mapping[str, Any], source: str) -> dict[str, AddedToken]:
    """Return the tokens that settings name by role, and further special tokens."""
    tokens = {}
    extra = settings.get("extra_special_tokens") or settings.get("additional_special_tokens") or []
    named = [settings.get(key) for key in _NAMED]
    others = [
        value
        for key, value in settings.items()
        if key.endswith("_token") and key not in _NAMED and isinstance(value, str | dict)
    ]
    further = list(extra.values()) if isinstance(extra, dict) else extra
    if not isinstance(further, list):
        raise DataError(f"{source}: extra_special_tokens must be a list or an object")
    for value in [*named, *others, *further]:
        if value is not None:
            token = _token(value, source)
            tokens[token.content] = AddedToken(**{**asdict(token), "special": True})
    return tokens


def token_name(value: Any) -> Any:
    """Return the name of a token that a setting gives alone or with its flags; None without one."""
    return value.get("content") if isinstance(value, Mapping) else value


def _token(value: Any, source: str) -> AddedToken:
    if isinstance(value, str):
        value = {"content": value, "special": True}
    if isinstance(value, Mapping):
        value = {"special": False, **value}
        value.pop("__type", None)
        value.setdefault("normalized", not value["special"])
    return check_typed(value, AddedToken, source, DataError, has_tuples=True)
