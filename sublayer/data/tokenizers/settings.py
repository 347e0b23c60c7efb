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

from sublayer.errors import DataError
from sublayer.files.parsing import check_typed, read_json_object, read_typed

CONFIG_NAME = "tokenizer_config.json"
_ALBERTS, T5S = "AlbertTokenizer", "T5Tokenizer"
_WITH_RULES = (_ALBERTS, "XLNetTokenizer", "PreTrainedTokenizer", "")
"""Classes that read ``do_lower_case`` and ``keep_accents``, or folders that name none."""
_MODELS = "is_models"


@dataclass(frozen=True)
class Normalization:
    """ALBERT's rules; the names of the fields are those of its published settings.

    Source: google-research/albert, ``tokenization.py``.
    """

    do_lower_case: bool = True
    keep_accents: bool = False
    """If False, text is decomposed (NFKD) and combining marks are stripped."""
    divide_digit_commas: bool = True
    """True where a piece that ends in a digit and a comma is divided before the comma."""
    is_models: bool = False
    """True where a text reaches SentencePiece as it is, whitespace and ends of lines too, so that
    the model's own rules alone change it."""

    @classmethod
    def of(cls, pieces: Iterable[str]) -> "Normalization":
        """Detect the rules of a vocabulary as ALBERT's by its pieces.

        Letters are lowered if none is a capital, accents stripped if none has any.
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

        None where there is none, or it says nothing of capitals and accents and ``class_name``, of
        transformers, is not ALBERT's, which lowers and strips by default. Of classes without such
        rules, as T5's, a model's own are all, whatever the settings say.
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
        assert not self.is_models, "the model normalises"
        lines: Iterable[str] = (" ".join(line.split()) for line in text.split("\n"))
        if not self.keep_accents:
            lines = map(strip_accents, lines)
        if self.do_lower_case:
            lines = map(str.lower, lines)
        return [line for line in lines if line]


AS_WRITTEN = Normalization(do_lower_case=False, keep_accents=True, divide_digit_commas=False)
"""The rules that leave each line of a text, with single spaces, to SentencePiece's own."""
AS_MODEL = replace(AS_WRITTEN, is_models=True)
"""The rules that leave a text to SentencePiece's own alone."""


def strip_accents(text: str) -> str:
    """Decompose a text (NFKD) and leave out what combines with the character before it."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    return _combining().sub("", decomposed)


def read_settings(folder: Path) -> dict[str, Any]:
    """Read a folder's ``tokenizer_config.json``, empty without; raise DataError if damaged."""
    path = folder / CONFIG_NAME
    if not path.is_file():
        return {}
    return read_json_object(path, DataError)


def _composed(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


@cache
def combining_characters() -> str:
    """List all characters that combine with the one before them, by Python's tables."""
    characters = map(chr, range(sys.maxunicode + 1))
    return "".join(filter(unicodedata.combining, characters))


@cache
def _combining() -> re.Pattern[str]:
    return re.compile(f"[{combining_characters()}]+")


_ADDED, _SPECIAL = "added_tokens.json", "special_tokens_map.json"
FILES = (CONFIG_NAME, _ADDED, _SPECIAL)
"""Files beside a tokenizer that name its special tokens."""
_DECODER = "added_tokens_decoder"
_Number = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
_Id = Annotated[int, Field(ge=0, lt=10**9)]
_ROLES = {
    "eos_token": "end_id",
    "pad_token": "pad_id",
    "cls_token": "cls_id",
    "sep_token": "sep_id",
    "mask_token": "mask_id",
}
"""Our names of ids by the settings that name their tokens."""
_NAMED = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_CLASSES: dict[str, dict[str, str]] = {
    "GPT2Tokenizer": dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>"),
    "BertTokenizer": {
        "unk_token": "[UNK]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "mask_token": "[MASK]",
    },
    "RobertaTokenizer": {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "sep_token": "</s>",
        "pad_token": "<pad>",
        "cls_token": "<s>",
        "mask_token": "<mask>",
    },
}
"""The special tokens of classes that build their tokenizer anew, whatever its file has."""
_CLASS_OF = {
    "gpt2": "GPT2Tokenizer",
    "bert": "BertTokenizer",
    "albert": "AlbertTokenizer",
    "t5": "T5Tokenizer",
    "marian": "MarianTokenizer",
    "openai-gpt": "OpenAIGPTTokenizer",
}
"""The class of a folder whose settings name none, by its model's type."""
_SAME_CLASS = {
    "BartTokenizer": "RobertaTokenizer",
    "DistilBertTokenizer": "BertTokenizer",
    "ElectraTokenizer": "BertTokenizer",
}
"""Other names of classes that read alike."""


@dataclass(frozen=True)
class AddedToken:
    """A token that is looked for in a text before the vocabulary divides it."""

    content: Annotated[str, Field(min_length=1)]
    special: bool = True
    lstrip: bool = False
    """True where whitespace before it belongs to it."""
    rstrip: bool = False
    single_word: bool = False
    """True where it is none beside a letter or a digit."""
    normalized: bool = False
    """True where it is looked for in the text after its normalisation."""

    def pattern(self) -> str:
        """Return the regular expression of its mark in a text."""
        mark = re.escape(self.content)
        if self.single_word:
            mark = rf"(?<!\w){mark}(?!\w)"
        before = r"\s*" if self.lstrip else ""
        after = r"\s*" if self.rstrip else ""
        return f"{before}{mark}{after}"


@dataclass(frozen=True)
class TokenFiles:
    """Special and added tokens of a tokenizer, as the files of its folder name them."""

    tokens: tuple[AddedToken, ...] = ()
    """In the order in which those that the vocabulary lacks get ids."""
    ids: Mapping[str, int] = field(default_factory=dict)
    """The ids that files give some of them."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """The tokens that stand for padding and the like, by ``pad_id`` and so on."""
    splits: bool = False
    """True where marks of special tokens in a text are text (``split_special_tokens``)."""
    class_name: str = ""
    """Of transformers, without ``Fast``; nothing where the files do not tell."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    defaults: Sequence[str] | None = None
    """The special tokens that a class has where files name no others; None for a class that takes
    those of its tokenizer's file."""


def read_token_files(
    folder: Path, in_file: Sequence[Mapping[str, Any]] = (), padding: str | None = None
) -> TokenFiles:
    """Read ``tokenizer_config.json`` and the files next to it, as transformers does.

    ``in_file`` are the added tokens of a ``tokenizer.json``, ``padding`` the token by which it
    pads. Raises DataError where a file is damaged.
    """
    settings = read_settings(folder)
    class_name = settings.get("tokenizer_class")
    config: Mapping[str, Any] = {}
    path = folder / "config.json"
    if not isinstance(class_name, str) and path.is_file():
        config = read_json_object(path, DataError)
        class_name = config.get("tokenizer_class")
    if not isinstance(class_name, str):
        class_name = _CLASS_OF.get(str(config.get("model_type")), "")
    class_name = class_name.removesuffix("Fast")
    class_name = _SAME_CLASS.get(class_name, class_name)
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


class MarkedText:
    """Texts split at the marks of tokens; the longest of those that begin at a place is taken."""

    def __init__(self, tokens: Mapping[str, int], added: Sequence[AddedToken] = ()) -> None:
        self.tokens = tokens
        by_content = {token.content: token for token in added}
        longest_first = sorted(tokens, key=len, reverse=True)
        patterns = [by_content.get(name, AddedToken(name)).pattern() for name in longest_first]
        self._pattern = re.compile(f"({'|'.join(patterns)})") if patterns else None

    def split(self, text: str) -> list[str | int]:
        """Return the parts of a text in order: texts between marks, and the ids of marks."""
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


def marks_pattern(names: Mapping[str, int]) -> re.Pattern[bytes] | None:
    """Return the expression that finds names of special tokens in bytes; None without names."""
    if not names:
        return None
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile(b"|".join(re.escape(name.encode()) for name in longest_first))


def _named(settings: Mapping[str, Any], source: str) -> dict[str, AddedToken]:
    """Return the tokens that settings name by their part, and further special ones."""
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


def _token(value: Any, source: str) -> AddedToken:
    if isinstance(value, str):
        value = {"content": value, "special": True}
    if isinstance(value, Mapping):
        value = {"special": False, **value}
        value.setdefault("normalized", not value["special"])
    return check_typed(value, AddedToken, source, DataError, has_tuples=True)
