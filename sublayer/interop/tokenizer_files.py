"""Tokenizers of masked models as the files by which transformers makes the same ids."""

import json
from collections.abc import Sequence
from typing import Any

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

from sublayer.data.normalize import CONFIG_NAME, combining_characters
from sublayer.data.subword import SubwordTokenizer
from sublayer.data.unigram import UnigramTokenizer
from sublayer.data.vocabulary import SPECIAL_NAMES, Tokenizer
from sublayer.data.words import SPACE

_WHITESPACE = "[\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
# What Python calls whitespace, which is more than the library does.

_RARE = 100.0
# What a piece that ends in a digit and a comma loses, so that it is never taken: transformers' own conversion.


def export_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    """Give the files by which transformers' AutoTokenizer makes the same ids; none where it cannot.

    Around a text it puts what masked models have there, ``[CLS]`` and ``[SEP]``.

    ``tokenizer.json`` and ``tokenizer_config.json``; with WordPiece BERT's ``vocab.txt``, with unigram the model
    itself, ``spiece.model``. Bytes, characters and moses-bpe cannot be given, nor SentencePiece's BPE.
    """
    if isinstance(tokenizer, UnigramTokenizer) and tokenizer.is_plain:
        library, names = unigram_library(tokenizer), tokenizer.names
        _set_template(library, tokenizer, names)
        files = {"tokenizer.json": str(library.to_str(pretty=True)).encode(), "spiece.model": tokenizer.model}
        rules = tokenizer.normalization
        settings: dict[str, Any] = {"do_lower_case": rules.do_lower_case, "keep_accents": rules.keep_accents}
    elif isinstance(tokenizer, SubwordTokenizer):
        names = tokenizer.names
        files = {"tokenizer.json": _with_template(tokenizer, names)}
        settings = {}
        if tokenizer.kind == "wordpiece":
            files["vocab.txt"] = "".join(f"{name}\n" for name in names).encode()
            settings = _bert_settings(tokenizer)
    else:
        return {}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **_special(tokenizer, names), **settings}
    return {**files, CONFIG_NAME: json.dumps(settings, indent=2).encode() + b"\n"}


def unigram_library(tokenizer: UnigramTokenizer) -> Library:
    """Build what makes the ids of a SentencePiece model and its rules in the ``tokenizers`` library.

    Departure: a number with a comma is divided by making pieces that end in a digit and a comma too dear, not by
    encoding again what is before the comma; the two differ in few numbers, where pieces have a comma between digits.
    Departure: where two ways to divide a word are equally probable, as of one letter repeated, it may take the other.
    Departure: the library takes the name of a special id in a text, such as ``<pad>``, for that id.
    """
    pieces, charsmap = tokenizer.scores(), tokenizer.charsmap
    if tokenizer.normalization.divide_digit_commas:
        pieces = [(name, score - _RARE * (name[-1:] == "," and name[-2:-1].isdigit())) for name, score in pieces]
    library = Library(models.Unigram(pieces, unk_id=tokenizer.unk_id, byte_fallback=False))
    library.normalizer = normalizers.Sequence([*_rules(tokenizer), *_precompiled(charsmap)])
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")]
    )
    library.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    library.add_special_tokens([tokenizer.names[id_] for id_ in tokenizer.special_ids])
    return library


def _rules(tokenizer: UnigramTokenizer) -> list[Any]:
    rules: list[Any] = [single_spaces()]
    if not tokenizer.normalization.keep_accents:
        rules += [normalizers.NFKD(), normalizers.Replace(Regex(f"[{combining_characters()}]+"), "")]
    if tokenizer.normalization.do_lower_case:
        rules += lowering()
    return rules


def single_spaces() -> normalizers.Normalizer:
    """Build what makes each run of what Python calls whitespace a single space."""
    return normalizers.Replace(Regex(_WHITESPACE), " ")


def lowering() -> list[normalizers.Normalizer]:
    """Build Python's lower case, which, unlike the library's, knows the sigma at the end of a word."""
    return [normalizers.Replace(Regex(r"(?<=\p{L})Σ(?!\p{L})"), "ς"), normalizers.Lowercase()]


def _precompiled(charsmap: bytes) -> list[Any]:
    # The library looks up no more than a few bytes at once, which a decomposed syllable of Korean exceeds.
    rules: list[Any] = [normalizers.NFC(), normalizers.Precompiled(charsmap)] if charsmap else []
    return [*rules, normalizers.Replace(SPACE, " ")]


def _with_template(tokenizer: SubwordTokenizer, names: Sequence[str]) -> bytes:
    library = Library.from_str(tokenizer.serialize().decode())
    if library.post_processor is None:
        _set_template(library, tokenizer, names)
    return str(library.to_str(pretty=True)).encode()


def _set_template(library: Library, tokenizer: Tokenizer, names: Sequence[str]) -> None:
    if tokenizer.cls_id is None or tokenizer.sep_id is None:
        return
    cls, sep = names[tokenizer.cls_id], names[tokenizer.sep_id]
    library.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, tokenizer.cls_id), (sep, tokenizer.sep_id)],
    )


def _special(tokenizer: Tokenizer, names: Sequence[str]) -> dict[str, str]:
    ids = {key: getattr(tokenizer, key) for key in (*SPECIAL_NAMES, "unk_id")}
    return {key.replace("_id", "_token"): names[id_] for key, id_ in ids.items() if id_ is not None}


def _bert_settings(tokenizer: SubwordTokenizer) -> dict[str, Any]:
    normalizer = tokenizer.content()["normalizer"] or {}
    return {"do_lower_case": normalizer["lowercase"]} if normalizer.get("type") == "BertNormalizer" else {}
