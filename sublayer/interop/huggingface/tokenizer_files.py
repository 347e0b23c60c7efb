"""Tokenizers of masked models as the files by which transformers makes the same ids."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tokenizers.base import SPECIAL_NAMES, Tokenizer
from sublayer.data.tokenizers.normalization import CONFIG_NAME, combining_characters
from sublayer.data.tokenizers.words import SPACE

_WHITESPACE = "[\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
# What Python calls whitespace, which is more than the library does.

_RARE = 100.0
# What a piece that ends in a digit and a comma loses, so that it is never taken: transformers' own
# conversion.


def export_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    """Return the files of a transformers AutoTokenizer with the same ids; none where it cannot.

    Contents are by file name. Around a text it puts what masked models have there, ``[CLS]`` and
    ``[SEP]``.

    ``tokenizer.json`` and ``tokenizer_config.json``; with WordPiece BERT's ``vocab.txt``, with
    unigram the model itself, ``spiece.model``. Bytes, characters and moses-bpe cannot be given, nor
    SentencePiece's BPE.
    """
    if isinstance(tokenizer, UnigramTokenizer) and tokenizer.is_plain:
        library = unigram_library(tokenizer)
        names = tokenizer.names
        _set_template(library, tokenizer, names)
        files = {
            "tokenizer.json": str(library.to_str(pretty=True)).encode(),
            "spiece.model": tokenizer.model,
        }
        rules = tokenizer.normalization
        settings: dict[str, Any] = {
            "do_lower_case": rules.do_lower_case,
            "keep_accents": rules.keep_accents,
        }
        if not rules.divide_digit_commas:
            settings["divide_digit_commas"] = False
    elif isinstance(tokenizer, SubwordTokenizer):
        names = tokenizer.names
        files = {"tokenizer.json": _with_template(tokenizer, names)}
        settings = {}
        if tokenizer.kind == "wordpiece":
            lines = [f"{name}\n" for name in names]
            files["vocab.txt"] = "".join(lines).encode()
            settings = _bert_settings(tokenizer)
    else:
        return {}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **_special(tokenizer, names),
        **settings,
        **split_marks(tokenizer),
    }
    return {**files, CONFIG_NAME: json.dumps(settings, indent=2).encode() + b"\n"}


def split_marks(tokenizer: Tokenizer, *, by_default: bool = False) -> dict[str, bool]:
    """Return the setting by which marks of special tokens are text, where they are for us.

    ``by_default``: where nothing says what they are, too. A gap, and a mask, is always read.
    """
    is_text = tokenizer.reads_marks is False or (by_default and tokenizer.reads_marks is None)
    return {"split_special_tokens": True} if is_text and tokenizer.marks else {}


def unigram_library(tokenizer: UnigramTokenizer) -> Library:
    """Build the ``tokenizers`` library's equal of a SentencePiece model and its rules.

    Departure: a number with a comma is divided by making pieces that end in a digit and a comma too
    dear, not by encoding again what is before the comma; the two differ in few numbers, where
    pieces have a comma between digits. Departure: where two ways to divide a word are equally
    probable, as of one letter repeated, it may take the other. Departure: the library takes the
    name of a special id in a text, such as ``<pad>``, for that id.
    """
    pieces = tokenizer.scores()
    if tokenizer.normalization.divide_digit_commas:
        pieces = [(name, score - _rarity(name)) for name, score in pieces]
    model = models.Unigram(pieces, unk_id=tokenizer.unk_id, byte_fallback=False)
    library = Library(model)
    rules = [*_rules(tokenizer), *_precompiled(tokenizer.charsmap)]
    library.normalizer = normalizers.Sequence(rules)
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
    last = piece[-1:]
    before = piece[-2:-1]
    return _RARE if last == "," and before.isdigit() else 0.0


def _rules(tokenizer: UnigramTokenizer) -> list[Any]:
    rules: list[Any] = [] if tokenizer.normalization.is_models else [single_spaces()]
    if not tokenizer.normalization.keep_accents:
        rules += [
            normalizers.NFKD(),
            normalizers.Replace(Regex(f"[{combining_characters()}]+"), ""),
        ]
    if tokenizer.normalization.do_lower_case:
        rules += lowering()
    return rules


def single_spaces() -> normalizers.Normalizer:
    """Build the rule that makes each run of what Python calls whitespace a single space."""
    return normalizers.Replace(Regex(_WHITESPACE), " ")


def lowering() -> list[normalizers.Normalizer]:
    """Build Python's lower case, which, unlike the library's, knows the final sigma.

    Rules to be applied one after another.
    """
    return [normalizers.Replace(Regex(r"(?<=\p{L})Σ(?!\p{L})"), "ς"), normalizers.Lowercase()]


def _precompiled(charsmap: bytes) -> list[Any]:
    # The library looks up no more than a few bytes at once, which a decomposed syllable of Korean
    # exceeds.
    rules: list[Any] = []
    if charsmap:
        rules += [normalizers.NFC(), normalizers.Precompiled(charsmap)]
    return [*rules, normalizers.Replace(SPACE, " ")]


def _with_template(tokenizer: SubwordTokenizer, names: Sequence[str]) -> bytes:
    library = Library.from_str(tokenizer.library_file.decode())
    if library.post_processor is None:
        _set_template(library, tokenizer, names)
    return str(library.to_str(pretty=True)).encode()


def _set_template(library: Library, tokenizer: Tokenizer, names: Sequence[str]) -> None:
    if tokenizer.cls_id is None or tokenizer.sep_id is None:
        return
    cls = names[tokenizer.cls_id]
    sep = names[tokenizer.sep_id]
    library.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, tokenizer.cls_id), (sep, tokenizer.sep_id)],
    )


def _special(tokenizer: Tokenizer, names: Sequence[str]) -> dict[str, str]:
    special = {}
    for key in (*SPECIAL_NAMES, "unk_id"):
        id_ = getattr(tokenizer, key)
        if id_ is not None:
            special[key.replace("_id", "_token")] = names[id_]
    return special


def _bert_settings(tokenizer: SubwordTokenizer) -> dict[str, Any]:
    normalizer = tokenizer.library_content["normalizer"] or {}
    if normalizer.get("type") != "BertNormalizer":
        return {}
    settings = {"do_lower_case": normalizer["lowercase"]}
    if normalizer["strip_accents"] is not None:
        settings["strip_accents"] = normalizer["strip_accents"]
    return settings
