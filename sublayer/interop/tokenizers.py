"""Tokenizers of HuggingFace folders: reading, and export with equal ids."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.subwords.library import BYTE_NAMES
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tasks.encoded import CLASSIFY, DELIMITER, START, TRAVERSAL_NAMES
from sublayer.data.tokenizers.base import SPECIAL_NAMES, ExtendedTokenizer, Tokenizer
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.data.tokenizers.settings import (
    AS_MODEL,
    AS_WRITTEN,
    CONFIG_NAME,
    combining_characters,
)
from sublayer.data.tokenizers.words import SPACE
from sublayer.errors import CheckpointError

FILE = "tokenizer.json"
_FILES = (FILE, "spiece.model", "vocab.txt", "vocab.json")
_ANY_CLASS, _T5_CLASS = "PreTrainedTokenizerFast", "T5Tokenizer"
_T5_UNK_ID = 2
"""The unknown of T5's class, whatever its files say."""
_WHITESPACE = "[\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
# What Python calls whitespace, which is more than the library does.
_RARE = 100.0
# Score that a piece ending in a digit and a comma loses, so that it is never taken: as in the
# conversion of transformers.
_TEMPLATE = "TemplateProcessing"


def read_tokenizer(folder: Path, *, vocab_size: int) -> Tokenizer | None:
    """Read a HuggingFace folder's tokenizer: the library's, or GPT-2's, BERT's or ALBERT's own.

    None where it has none of their files. Raises DataError where they are damaged, CheckpointError
    where the tokenizer has ids beyond the model's ``vocab_size``.
    """
    if not any((folder / name).is_file() for name in _FILES) and not any(folder.glob("*.model")):
        return None
    return check_tokenizer(load_tokenizer(folder, special_tokens="file"), folder, vocab_size)


def check_tokenizer(tokenizer: Tokenizer, path: Path, vocab_size: int) -> Tokenizer:
    """Return a tokenizer that has no ids beyond the model's ``vocab_size``.

    Raises CheckpointError where it has.
    """
    if tokenizer.vocab_size > vocab_size:
        raise CheckpointError(
            f"the tokenizer in {path} has {tokenizer.vocab_size} ids, "
            f"the model's vocab_size is {vocab_size}: they do not belong together"
        )
    return tokenizer


def settings_file(settings: dict[str, Any]) -> bytes:
    """Return the content of ``tokenizer_config.json``."""
    return json.dumps(settings, indent=2).encode() + b"\n"


def library_file(library: Library) -> bytes:
    """Return the content of ``tokenizer.json``."""
    return str(library.to_str(pretty=True)).encode()


def split_marks(tokenizer: Tokenizer, *, by_default: bool = False) -> dict[str, bool]:
    """Return the setting that reads special tokens as text, where we do.

    ``by_default``: where nothing names them, too. A gap, and a mask, is always read.
    """
    is_text = tokenizer.reads_marks is False or (by_default and tokenizer.reads_marks is None)
    return {"split_special_tokens": True} if is_text and tokenizer.marks else {}


def decoder_files(tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
    """Return the files of a transformers AutoTokenizer with equal ids; empty where impossible.

    Contents are by file name. It puts nothing around a text. Characters and moses-bpe cannot be
    given, nor SentencePiece's BPE. ``max_len`` is the longest text that it is told to make.
    """
    if isinstance(tokenizer, SubwordTokenizer):
        content = tokenizer.library_file
    elif isinstance(tokenizer, UnigramTokenizer) and tokenizer.is_plain:
        content = library_file(unigram_library(tokenizer))
    elif isinstance(tokenizer, ByteTokenizer):
        # Each byte's name, numbered by the byte, and no merges.
        of_bytes = Library(models.BPE(BYTE_NAMES, []))
        of_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        of_bytes.decoder = decoders.ByteLevel()
        content = library_file(of_bytes)
    else:
        return {}
    settings: dict[str, Any] = {
        "tokenizer_class": _ANY_CLASS,
        "model_max_length": max_len,
        "clean_up_tokenization_spaces": False,
    }
    library = Library.from_str(content.decode())
    if tokenizer.end_id is not None:
        end = library.id_to_token(tokenizer.end_id)
        settings |= {"bos_token": end, "eos_token": end}
    if tokenizer.reads_marks and tokenizer.pad_id is not None:
        settings["pad_token"] = library.id_to_token(tokenizer.pad_id)
    settings |= split_marks(tokenizer, by_default=True)
    return {FILE: content, CONFIG_NAME: settings_file(settings)}


def encoder_files(tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
    """Return the files of a transformers AutoTokenizer with equal ids; empty where impossible.

    Contents are by file name. Around a text it puts what masked models have there, ``[CLS]`` and
    ``[SEP]``.

    ``tokenizer.json`` and ``tokenizer_config.json``; with WordPiece BERT's ``vocab.txt``, with
    unigram the model itself, ``spiece.model``. Bytes, characters and moses-bpe cannot be given, nor
    SentencePiece's BPE.
    """
    if tokenizer is None or (converted := library_of(tokenizer)) is None:
        return {}
    library, names, files = converted
    more: dict[str, Any] = {}
    if isinstance(tokenizer, UnigramTokenizer):
        rules = tokenizer.normalization
        more = {"do_lower_case": rules.do_lower_case, "keep_accents": rules.keep_accents}
        if not rules.divide_digit_commas:
            more["divide_digit_commas"] = False
    elif tokenizer.kind == "wordpiece":
        files["vocab.txt"] = "".join(f"{name}\n" for name in names).encode()
        normalizer = json.loads(library.to_str())["normalizer"] or {}
        if normalizer.get("type") == "BertNormalizer":
            more = {"do_lower_case": normalizer["lowercase"]}
            if normalizer["strip_accents"] is not None:
                more["strip_accents"] = normalizer["strip_accents"]
    cls_id, sep_id = tokenizer.cls_id, tokenizer.sep_id
    if library.post_processor is None and cls_id is not None and sep_id is not None:
        cls, sep = names[cls_id], names[sep_id]
        library.post_processor = processors.TemplateProcessing(
            single=f"{cls}:0 $A:0 {sep}:0",
            pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
            special_tokens=[(cls, cls_id), (sep, sep_id)],
        )
    ids = {key: getattr(tokenizer, key) for key in (*SPECIAL_NAMES, "unk_id")}
    settings = {
        "tokenizer_class": _ANY_CLASS,
        **{key.replace("_id", "_token"): names[id_] for key, id_ in ids.items() if id_ is not None},
        **more,
        **split_marks(tokenizer),
        "model_max_length": max_len,
        # Without being told, transformers' tokenizer leaves out the segments of a pair.
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    return {**files, FILE: library_file(library), CONFIG_NAME: settings_file(settings)}


def t5_files(tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
    """Return the files of a transformers AutoTokenizer with equal ids; empty where impossible.

    Contents are by file name. It puts the end behind a text, and takes the names of special ids in
    a text, such as ``<extra_id_0>``, for those. ``max_len`` is the longest text that it is told to
    make.

    T5's layout, of whatever size, becomes a ``T5Tokenizer``, with its ``spiece.model``. Any other
    SentencePiece unigram or ``tokenizer.json`` with an end and padding becomes a tokenizer of no
    class of its own. A vocabulary with a piece by a sentinel's name cannot be given.
    """
    if tokenizer is None or tokenizer.sep_id is None or tokenizer.pad_id is None:
        return {}
    converted = library_of(tokenizer)
    more: dict[str, Any] = {"tokenizer_class": _ANY_CLASS}
    if converted is None:
        return {}
    library, names, files = converted
    if isinstance(tokenizer, UnigramTokenizer):
        if len(set(names)) < len(names):
            return {}
        layout = [names[id_] for id_ in (tokenizer.pad_id, tokenizer.sep_id)]
        if (
            [*layout, *names[_T5_UNK_ID : _T5_UNK_ID + 1]] == ["<pad>", "</s>", "<unk>"]
            and tokenizer.unk_id == _T5_UNK_ID
            and tokenizer.normalization in (AS_WRITTEN, AS_MODEL)
        ):
            more = {"tokenizer_class": _T5_CLASS, "extra_ids": len(tokenizer.sentinel_ids)}
    if library.post_processor is None:
        end = names[tokenizer.sep_id]
        library.post_processor = processors.TemplateProcessing(
            single=["$A", end],
            pair=["$A", end, "$B", end],
            special_tokens=[(end, tokenizer.sep_id)],
        )
    ids = {"eos": tokenizer.sep_id, "pad": tokenizer.pad_id, "unk": tokenizer.unk_id}
    settings = {
        **more,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **{f"{name}_token": names[id_] for name, id_ in ids.items() if id_ is not None},
        "model_max_length": max_len,
        **split_marks(tokenizer),
    }
    return {**files, FILE: library_file(library), CONFIG_NAME: settings_file(settings)}


def library_of(tokenizer: Tokenizer) -> tuple[Library, list[str], dict[str, bytes]] | None:
    """Return the library's equal of a vocabulary, its names, and SentencePiece's file of it.

    None for bytes, characters, moses-bpe and SentencePiece's BPE.
    """
    if isinstance(tokenizer, UnigramTokenizer) and tokenizer.is_plain:
        return unigram_library(tokenizer), tokenizer.names, {"spiece.model": tokenizer.model}
    if isinstance(tokenizer, SubwordTokenizer):
        return Library.from_str(tokenizer.library_file.decode()), tokenizer.names, {}
    return None


def unigram_library(tokenizer: UnigramTokenizer) -> Library:
    """Build the ``tokenizers`` library's equal of a SentencePiece model and its rules.

    Departure: a number with a comma is divided by making pieces that end in a digit and a comma too
    dear, not by encoding again the text before the comma; the two differ in few numbers, where
    pieces have a comma between digits. Departure: where two ways to divide a word are equally
    probable, as of one letter repeated, it may take the other. Departure: the library takes the
    name of a special id in a text, such as ``<pad>``, for that id.
    """
    normalization = tokenizer.normalization
    pieces = tokenizer.scores()
    if normalization.divide_digit_commas:
        pieces = [(name, score - _rarity(name)) for name, score in pieces]
    library = Library(models.Unigram(pieces, unk_id=tokenizer.unk_id, byte_fallback=False))
    rules: list[Any] = [] if normalization.is_models else [single_spaces()]
    if not normalization.keep_accents:
        accents = Regex(f"[{combining_characters()}]+")
        rules += [normalizers.NFKD(), normalizers.Replace(accents, "")]
    if normalization.do_lower_case:
        rules += lowering()
    if tokenizer.charsmap:
        # The library looks up no more than a few bytes at once, which a decomposed syllable of
        # Korean exceeds.
        rules += [normalizers.NFC(), normalizers.Precompiled(tokenizer.charsmap)]
    library.normalizer = normalizers.Sequence([*rules, normalizers.Replace(SPACE, " ")])
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always"),
        ]
    )
    library.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    added = {token.content for token in tokenizer.added}
    special = [tokenizer.names[id_] for id_ in tokenizer.special_ids]
    library.add_special_tokens([name for name in special if name not in added])
    library.add_tokens([AddedToken(**asdict(token)) for token in tokenizer.added])
    return library


def _rarity(piece: str) -> float:
    return _RARE if piece[-1:] == "," and piece[-2:-1].isdigit() else 0.0


def single_spaces() -> normalizers.Normalizer:
    """Build the rule that makes each run of what Python calls whitespace a single space."""
    return normalizers.Replace(Regex(_WHITESPACE), " ")


def lowering() -> list[normalizers.Normalizer]:
    """Build Python's lower case, which, unlike the library's, knows the final sigma.

    Rules to be applied one after another.
    """
    return [normalizers.Replace(Regex(r"(?<=\p{L})Σ(?!\p{L})"), "ς"), normalizers.Lowercase()]


def traversal_files(tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
    """Return the files of a transformers AutoTokenizer with equal ids; empty where impossible.

    Contents are by file name. It puts the start before a text, the delimiter between two and the
    end behind them. Departure: in a text it takes the names of these marks for them. A tokenizer
    without them is written as that of a decoder.
    """
    plain = tokenizer
    if isinstance(tokenizer, ExtendedTokenizer) and tokenizer.names == TRAVERSAL_NAMES:
        plain = tokenizer.vocabulary
    files = decoder_files(plain, max_len=max_len)
    if not files:
        return {}
    library = Library.from_str(files[FILE].decode())
    if isinstance(tokenizer, ExtendedTokenizer):
        library.add_special_tokens(list(TRAVERSAL_NAMES))
        marks = tokenizer.added_ids
        if any(library.token_to_id(name) != id_ for name, id_ in marks.items()):
            # Some ids of the vocabulary stand for nothing, or it has one of these names already.
            return {}
        library.post_processor = _with_marks(library.post_processor, marks)
    settings = {
        **json.loads(files[CONFIG_NAME]),
        "model_input_names": ["input_ids", "attention_mask"],
    }
    pad_id = padding_id(tokenizer)
    if pad_id is not None:
        settings["pad_token"] = library.id_to_token(pad_id)
    return {FILE: library_file(library), CONFIG_NAME: settings_file(settings)}


def padding_id(tokenizer: Tokenizer | None) -> int | None:
    """Return the padding id of a classifier's rows; None without a tokenizer.

    It is never the last token of a row, of which the class reads the last that is none of it.
    """
    if tokenizer is None:
        return None
    ids = (tokenizer.pad_id, tokenizer.end_id, tokenizer.added_ids.get(START))
    return next((id_ for id_ in ids if id_ is not None), None)


def read_traversal_tokenizer(folder: Path, *, vocab_size: int) -> Tokenizer | None:
    """Read a HuggingFace folder's tokenizer; marks of a traversal at its end are ids of their own.

    Raises as ``read_tokenizer`` does.
    """
    tokenizer = read_tokenizer(folder, vocab_size=vocab_size)
    if not isinstance(tokenizer, SubwordTokenizer):
        return tokenizer
    if tuple(tokenizer.names[-len(TRAVERSAL_NAMES) :]) != TRAVERSAL_NAMES:
        return tokenizer
    n_before = tokenizer.vocab_size - len(TRAVERSAL_NAMES)
    content = tokenizer.library_content
    content = {
        **content,
        "added_tokens": [token for token in content["added_tokens"] if token["id"] < n_before],
        "post_processor": _without_marks(content["post_processor"]),
    }
    vocabulary = tokenizer.replaced(content, reads_marks=tokenizer.reads_marks)
    if vocabulary.vocab_size != n_before:
        # The names are pieces of the vocabulary.
        return tokenizer
    return ExtendedTokenizer(vocabulary, TRAVERSAL_NAMES)


def _with_marks(processor: Any, ids: Mapping[str, int]) -> Any:
    template = processors.TemplateProcessing(
        single=[START, "$A", CLASSIFY],
        pair=[START, "$A", DELIMITER, "$B", CLASSIFY],
        special_tokens=list(ids.items()),
    )
    return template if processor is None else processors.Sequence([processor, template])


def _without_marks(processor: Any) -> Any:
    if processor is None or processor["type"] == _TEMPLATE:
        return None
    if processor["type"] != "Sequence":
        return processor
    others = [part for part in processor["processors"] if part["type"] != _TEMPLATE]
    return others[0] if len(others) == 1 else {**processor, "processors": others}
