"""Tokenizers of HuggingFace folders, also translators': reading, and export with equal ids.

Functions named ``..._files`` return the contents of the files of a transformers AutoTokenizer with
equal ids, by file name; none for characters, moses-bpe and SentencePiece's BPE.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

from sublayer.data.tasks.encoded import CLASSIFY, DELIMITER, START, TRAVERSAL_NAMES
from sublayer.data.tokenizers.base import (
    SPACE,
    SPECIAL_NAMES,
    ByteTokenizer,
    ExtendedTokenizer,
    Tokenizer,
)
from sublayer.data.tokenizers.languages import BilingualTokenizer, LanguageRules
from sublayer.data.tokenizers.library import call_library
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.data.tokenizers.sentencepiece import (
    NAMES,
    SOURCE,
    TARGET,
    PairedModels,
    UnigramTokenizer,
    has_paired_models,
)
from sublayer.data.tokenizers.settings import (
    AS_MODEL,
    AS_WRITTEN,
    CONFIG_NAME,
    T5S,
    combining_characters,
    read_settings,
    read_token_files,
    token_name,
)
from sublayer.data.tokenizers.subword import BYTE_NAMES, SubwordTokenizer
from sublayer.data.tokenizers.word_bpe import END, WordBpeTokenizer
from sublayer.errors import CheckpointError, DataError

FILE = "tokenizer.json"
_FILES = (FILE, "spiece.model", "vocab.txt", "vocab.json")
_WHITESPACE = "[\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
# Python's whitespace, which includes more characters than the library's.
_RARE = 100.0
# Penalty on the score of a piece ending in a digit and a comma, so that it is never chosen, as in
# transformers' conversion.


def read_tokenizer(folder: Path, *, vocab_size: int) -> Tokenizer | None:
    """Read a folder's tokenizer, if any: the library's, or GPT-2's, BERT's or ALBERT's own.

    Raises DataError where it is damaged, CheckpointError for ids beyond the ``vocab_size``.
    """
    if not any((folder / name).is_file() for name in _FILES) and not any(folder.glob("*.model")):
        return None
    return check_tokenizer(load_tokenizer(folder, special_tokens="file"), folder, vocab_size)


def check_tokenizer(tokenizer: Tokenizer, path: Path, vocab_size: int) -> Tokenizer:
    """Return the tokenizer; raise CheckpointError for ids beyond the model's ``vocab_size``."""
    if tokenizer.vocab_size > vocab_size:
        raise CheckpointError(
            f"the tokenizer in {path} has {tokenizer.vocab_size} ids, "
            f"but the model's vocab_size is {vocab_size}: they do not belong together"
        )
    return tokenizer


def settings_file(settings: dict[str, Any]) -> bytes:
    """Return the content of ``tokenizer_config.json``."""
    return json.dumps(settings, indent=2).encode() + b"\n"


def library_file(library: Library) -> bytes:
    """Return the content of ``tokenizer.json``."""
    return str(library.to_str(pretty=True)).encode()


def _settings(
    name_of: Callable[[int], str | None],
    ids: Mapping[str, int | None],
    max_len: int,
    **settings: Any,
) -> bytes:
    """Return the settings of a tokenizer: special tokens, by role and id, and others."""
    content = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_len,
        "clean_up_tokenization_spaces": False,
        **{f"{role}_token": name_of(id_) for role, id_ in ids.items() if id_ is not None},
        **settings,
    }
    return settings_file(content)


def _files(
    tokenizer: Tokenizer,
    library: Library,
    ids: Mapping[str, int | None],
    *,
    max_len: int,
    splits: bool = True,
    **settings: Any,
) -> dict[str, bytes]:
    """Return ``tokenizer.json`` and its settings; unset ``reads_marks`` are as ``splits``."""
    is_text = tokenizer.reads_marks is False or (splits and tokenizer.reads_marks is None)
    if is_text and tokenizer.marks:
        settings["split_special_tokens"] = True
    content = _settings(library.id_to_token, ids, max_len, **settings)
    return {FILE: library_file(library), CONFIG_NAME: content}


def decoder_files(tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
    """Return the files of a tokenizer that puts nothing around a text but a start, if any."""
    if tokenizer is None:
        return {}
    if converted := as_library(tokenizer):
        library, names, _ = converted
        start_id = tokenizer.start_id
        if library.encode("").ids != ([] if start_id is None else [start_id]):
            library.post_processor = None
            if start_id is not None:
                name = names[start_id]
                library.post_processor = processors.TemplateProcessing(
                    [name, "$A"], [name, "$A", f"{name}:1", "$B:1"], [(name, start_id)]
                )
    elif isinstance(tokenizer, ByteTokenizer):
        # A piece for each byte, with the byte as its id, and no merges.
        library = Library(models.BPE(BYTE_NAMES, []))
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        library.decoder = decoders.ByteLevel()
    else:
        return {}
    pad_id = tokenizer.pad_id if tokenizer.reads_marks else None
    ids = {"bos": tokenizer.first_id, "eos": tokenizer.end_id, "pad": pad_id}
    return _files(tokenizer, library, ids, max_len=max_len)


def framing_files(
    tokenizer: Tokenizer | None, *, max_len: int, reads_segments: bool
) -> dict[str, bytes]:
    """Return the files of a tokenizer that puts ``[CLS]`` and ``[SEP]`` around a text."""
    if tokenizer is None or (converted := as_library(tokenizer)) is None:
        return {}
    library, names, files = converted
    settings: dict[str, Any] = {}
    if isinstance(tokenizer, UnigramTokenizer):
        rules = tokenizer.normalization
        settings = {"do_lower_case": rules.do_lower_case, "keep_accents": rules.keep_accents}
        if not rules.divide_digit_commas:
            settings["divide_digit_commas"] = False
    elif tokenizer.kind == "wordpiece":
        files["vocab.txt"] = "".join(f"{name}\n" for name in names).encode()
        normalizer = json.loads(library.to_str())["normalizer"] or {}
        if normalizer.get("type") == "BertNormalizer":
            settings = {"do_lower_case": normalizer["lowercase"]}
            if normalizer["strip_accents"] is not None:
                settings["strip_accents"] = normalizer["strip_accents"]
    cls_id, sep_id = tokenizer.cls_id, tokenizer.sep_id
    if library.post_processor is None and cls_id is not None and sep_id is not None:
        cls, sep = names[cls_id], names[sep_id]
        library.post_processor = processors.TemplateProcessing(
            f"{cls}:0 $A:0 {sep}:0",
            f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
            [(cls, cls_id), (sep, sep_id)],
        )
    # By default, transformers' tokenizer leaves out the segments of a pair.
    segments = ["token_type_ids"] if reads_segments else []
    settings["model_input_names"] = ["input_ids", *segments, "attention_mask"]
    ids = {key.removesuffix("_id"): getattr(tokenizer, key) for key in (*SPECIAL_NAMES, "unk_id")}
    return {**files, **_files(tokenizer, library, ids, max_len=max_len, splits=False, **settings)}


_INPUTS = ["input_ids", "attention_mask"]
_T5_UNK_ID = 2  # fixed in the class


def ending_files(tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
    """Return the files of a tokenizer that puts the end after a text; T5's where it has T5's ids.

    It reads the names of special ids in a text, such as ``<extra_id_0>``, as those ids; a
    vocabulary with a piece of such a name cannot be exported.
    """
    if tokenizer is None or (converted := as_library(tokenizer)) is None:
        return {}
    library, names, files = converted
    end_id, pad_id, settings = tokenizer.sep_id, tokenizer.pad_id, dict[str, Any]()
    if end_id is None or pad_id is None:
        return {}
    end = names[end_id]
    if isinstance(tokenizer, UnigramTokenizer):
        if len(set(names)) < len(names):
            return {}
        layout = [names[pad_id], end, *names[_T5_UNK_ID : _T5_UNK_ID + 1], tokenizer.unk_id]
        is_plain = tokenizer.normalization in (AS_WRITTEN, AS_MODEL)
        if is_plain and layout == ["<pad>", "</s>", "<unk>", _T5_UNK_ID]:
            n_sentinels = len(tokenizer.sentinel_ids)
            settings = {"tokenizer_class": T5S, "extra_ids": n_sentinels}
    if library.post_processor is None:
        library.post_processor = processors.TemplateProcessing(
            ["$A", end], ["$A", end, "$B", end], [(end, end_id)]
        )
    settings["model_input_names"] = _INPUTS
    ids = {"eos": end_id, "pad": pad_id, "unk": tokenizer.unk_id}
    return {**files, **_files(tokenizer, library, ids, max_len=max_len, splits=False, **settings)}


def padding_id(tokenizer: Tokenizer | None) -> int | None:
    """Return the padding id of a classifier's rows, in which no row ends; None if it is unknown."""
    if tokenizer is None:
        return None
    ids = (tokenizer.pad_id, tokenizer.end_id, tokenizer.added_ids.get(START))
    return next((id_ for id_ in ids if id_ is not None), None)


def _with_marks(processor: Any, ids: Mapping[str, int]) -> Any:
    template = processors.TemplateProcessing(
        single=[START, "$A", CLASSIFY],
        pair=[START, "$A", DELIMITER, "$B", CLASSIFY],
        special_tokens=list(ids.items()),
    )
    return template if processor is None else processors.Sequence([processor, template])


def _without_marks(processor: Any) -> Any:
    if processor is None or processor["type"] == "TemplateProcessing":
        return None
    if processor["type"] != "Sequence":
        return processor
    others = [part for part in processor["processors"] if part["type"] != "TemplateProcessing"]
    return others[0] if len(others) == 1 else {**processor, "processors": others}


def traversal_files(tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
    """Return the files of a tokenizer of traversals: a start, a delimiter between texts, an end.

    Departure: it reads the names of these marks in a text as the marks. A tokenizer without them is
    written like a decoder's.
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
            # The vocabulary has unused ids, or one of these names already.
            return {}
        library.post_processor = _with_marks(library.post_processor, marks)
    settings = json.loads(files[CONFIG_NAME])
    settings["model_input_names"] = ["input_ids", "attention_mask"]
    if (pad_id := padding_id(tokenizer)) is not None:
        settings["pad_token"] = library.id_to_token(pad_id)
    return {FILE: library_file(library), CONFIG_NAME: settings_file(settings)}


def with_added_marks(tokenizer: Tokenizer | None) -> Tokenizer | None:
    """Return a tokenizer with added ids in place of marks after its vocabulary, if it has them."""
    if not isinstance(tokenizer, SubwordTokenizer):
        return tokenizer
    n_before, content = tokenizer.vocab_size - len(TRAVERSAL_NAMES), tokenizer.library_content
    if tuple(tokenizer.names[n_before:]) != TRAVERSAL_NAMES:
        return tokenizer
    plain = {
        "added_tokens": [token for token in content["added_tokens"] if token["id"] < n_before],
        "post_processor": _without_marks(content["post_processor"]),
    }
    vocabulary = tokenizer.replaced({**content, **plain}, reads_marks=tokenizer.reads_marks)
    # Otherwise the names are already pieces of the vocabulary.
    is_added = vocabulary.vocab_size == n_before
    return ExtendedTokenizer(vocabulary, TRAVERSAL_NAMES) if is_added else tokenizer


def with_start(tokenizer: Tokenizer | None, folder: Path) -> Tokenizer | None:
    """Return a decoder's tokenizer with the start that its folder puts before each text, if any."""
    if not isinstance(tokenizer, SubwordTokenizer | UnigramTokenizer):
        return tokenizer
    files = read_token_files(folder)
    name = None
    if isinstance(tokenizer, UnigramTokenizer):
        if files.settings.get("add_bos_token") is True:
            name = token_name(files.settings.get("bos_token"))
    elif files.class_name != "GPTNeoXTokenizer":  # which leaves out what its file puts around
        library = Library.from_str(tokenizer.library_file.decode())
        refusal = f"{folder / FILE} cannot encode a text"
        ids = call_library(lambda: library.encode("a"), refusal).ids
        plain = library.encode("a", add_special_tokens=False).ids
        if len(ids) > len(plain) and ids[1 : len(plain) + 1] == plain:
            name = tokenizer.names[ids[0]]
    if name is None:
        return tokenizer
    roles = {**tokenizer.roles, "start_id": name}
    return tokenizer.replaced(reads_marks=tokenizer.reads_marks, roles=roles)


def as_library(tokenizer: Tokenizer) -> tuple[Library, list[str], dict[str, bytes]] | None:
    """Return a subword or unigram vocabulary as the library's, its names and its model file."""
    if isinstance(tokenizer, UnigramTokenizer) and tokenizer.is_plain:
        return unigram_library(tokenizer), tokenizer.names, {"spiece.model": tokenizer.model}
    if isinstance(tokenizer, SubwordTokenizer):
        return Library.from_str(tokenizer.library_file.decode()), tokenizer.names, {}
    return None


def unigram_library(tokenizer: UnigramTokenizer) -> Library:
    """Build the ``tokenizers`` library's equivalent of a SentencePiece model and its rules.

    Departure: a number with a comma is divided by a penalty on pieces that end in a digit and a
    comma, not by encoding the text before the comma again; the two differ in few numbers, where
    pieces have a comma between digits. Departure: where two segmentations of a word are equally
    probable, as of one letter repeated, it may choose the other. Departure: the library reads the
    name of a special id in a text, such as ``<pad>``, as that id.
    """
    normalization = tokenizer.normalization
    pieces = tokenizer.scores()
    if normalization.divide_digit_commas:
        pieces = [
            (name, score - _RARE * (name[-1:] == "," and name[-2:-1].isdigit()))
            for name, score in pieces
        ]
    library = Library(models.Unigram(pieces, unk_id=tokenizer.unk_id, byte_fallback=False))
    rules: list[Any] = [] if normalization.is_models else [single_spaces()]
    if not normalization.keep_accents:
        accents = Regex(f"[{combining_characters()}]+")
        rules += [normalizers.NFKD(), normalizers.Replace(accents, "")]
    if normalization.do_lower_case:
        rules += lowering()
    if tokenizer.charsmap:
        # The library's lookup is limited to a few bytes, fewer than a decomposed Korean syllable.
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


def single_spaces() -> normalizers.Normalizer:
    """Build the rule that replaces each run of Python's whitespace by a single space."""
    return normalizers.Replace(Regex(_WHITESPACE), " ")


def lowering() -> list[normalizers.Normalizer]:
    """Build the rules of Python's lowercasing, which handles the final sigma."""
    return [normalizers.Replace(Regex(r"(?<=\p{L})Σ(?!\p{L})"), "ς"), normalizers.Lowercase()]


SIDES = "sublayer_sides"
"""Our own field of ``tokenizer_config.json`` with the rules of both languages."""
_OTHERS = (SOURCE, TARGET, "sentencepiece.bpe.model", "spiece.model", NAMES)
_OWN_TARGETS = "target_vocab.json"
UNKNOWN_LANGUAGE = "und"


def translator_files(tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
    """Return the files of a translator's tokenizer; ``describe_text`` gives the reason for none.

    It reads and decodes words: the text after Moses' rules, where the languages have any. It reads
    the names of special ids in a text, such as ``</s>``, as those ids.
    """
    if not isinstance(tokenizer, BilingualTokenizer) or _obstacle(tokenizer):
        return {}
    vocabulary, end_id, pad_id = tokenizer.vocabulary, tokenizer.sep_id, tokenizer.pad_id
    sides = [tokenizer.source.content(), tokenizer.target.content()]
    ids = {"eos": end_id, "pad": pad_id, "unk": tokenizer.unk_id}
    if isinstance(vocabulary, PairedModels):
        settings: dict[str, Any] = {
            "tokenizer_class": "MarianTokenizer",
            "source_lang": tokenizer.source.language,
            "target_lang": tokenizer.target.language,
            "separate_vocabs": False,
            SIDES: sides,
        }
        numbers = {name: id_ for id_, name in enumerate(vocabulary.names)}
        return {
            SOURCE: vocabulary.source_model,
            TARGET: vocabulary.target_model,
            NAMES: json.dumps(numbers, ensure_ascii=False, indent=1).encode() + b"\n",
            CONFIG_NAME: _settings(vocabulary.names.__getitem__, ids, max_len, **settings),
        }
    if converted := as_library(vocabulary):
        library, names, _ = converted
    else:
        assert isinstance(vocabulary, WordBpeTokenizer), "what cannot be given was left out"
        names = [*vocabulary.specials, *vocabulary.pieces]
        numbers = {name: id_ for id_, name in enumerate(names)}
        library = Library(
            models.BPE(numbers, vocabulary.merges, unk_token="<unk>", end_of_word_suffix=END)
        )
        library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        library.decoder = decoders.BPEDecoder(suffix=END)
        library.add_special_tokens(list(vocabulary.specials))
    assert end_id is not None and pad_id is not None, "the vocabulary was checked"
    rules: list[Any] = [single_spaces(), normalizers.Strip()]
    if tokenizer.source.lowers:
        rules += lowering()
    if library.normalizer is not None:
        rules.append(library.normalizer)
    library.normalizer = normalizers.Sequence(rules)
    end = names[end_id]
    library.post_processor = processors.TemplateProcessing(
        f"$A:0 {end}:0", f"$A:0 $B:0 {end}:0", [(end, end_id)]
    )
    more: dict[str, Any] = {"model_input_names": _INPUTS, SIDES: sides}
    return _files(tokenizer, library, {**ids, "bos": tokenizer.cls_id}, max_len=max_len, **more)


def describe_text(tokenizer: Tokenizer | None) -> str | None:
    """Return why a translator's tokenizer has no files, or the steps that it leaves out."""
    if not isinstance(tokenizer, BilingualTokenizer):
        return None
    if obstacle := _obstacle(tokenizer):
        return f"transformers' tokenizers cannot express it: {obstacle}"
    side = tokenizer.source
    if side.moses == "none":
        return None
    steps = []
    if side.moses == "normalize":
        steps = ["normalise punctuation", "drop non-printing characters"]
    options = " -a" if side.divides_hyphens else ""
    options += "" if side.escapes else " -no-escape"
    steps.append(f"divide words by tokenizer.perl{options} -l {side.language}")
    return f"it reads and writes words after Moses' rules ({', '.join(steps)})"


def read_translators(folder: Path, *, vocab_size: int) -> BilingualTokenizer | None:
    """Read a translator's tokenizer where it can be read; raise as ``read_tokenizer`` does."""
    file = folder if has_paired_models(folder) else folder / FILE
    if describe_unread(folder) is not None or not file.exists():
        return None
    vocabulary = check_tokenizer(load_tokenizer(file, special_tokens="file"), folder, vocab_size)
    settings = read_settings(folder)
    rules = settings.get(SIDES)
    if rules is None:
        languages = [settings.get(name) for name in ("source_lang", "target_lang")]
        named = (name if isinstance(name, str) and name else UNKNOWN_LANGUAGE for name in languages)
        return BilingualTokenizer(vocabulary, *map(LanguageRules, named))
    if not isinstance(rules, list) or len(rules) != 2:
        raise DataError(f"{folder / CONFIG_NAME}: {SIDES} must list the rules of two languages")
    try:
        source, target = map(LanguageRules.from_content, rules)
    except DataError as error:
        raise DataError(f"{folder / CONFIG_NAME}: {error}") from error
    return BilingualTokenizer(vocabulary, source, target)


def describe_unread(folder: Path) -> str | None:
    """Return why a folder's tokenizer cannot be read, if so; raise DataError for damaged files."""
    if has_paired_models(folder):
        is_apart = read_settings(folder).get("separate_vocabs") is True
        if is_apart or (folder / _OWN_TARGETS).is_file():
            return f"its languages have separate vocabularies ({_OWN_TARGETS})"
        return None
    if not (folder / FILE).is_file():
        other = next((name for name in _OTHERS if (folder / name).is_file()), None)
        if other is None:
            return None
        readable = f"{FILE}, or {SOURCE} with {TARGET} and {NAMES}"
        return f"a translator's is read from {readable}, but the folder has {other}"
    vocabulary = load_tokenizer(folder / FILE)
    if not isinstance(vocabulary, SubwordTokenizer) or vocabulary.sep_id is None:
        return f"its {FILE} has no </s>"
    if vocabulary.pad_id is None and vocabulary.cls_id is None:
        return f"its {FILE} has no <pad> and no <s>"
    library = Library.from_str(vocabulary.library_file.decode())
    refusal = f"{folder / FILE} cannot encode a text"
    around = call_library(lambda: library.encode(""), refusal).ids
    if around != [vocabulary.sep_id]:
        return f"its {FILE} adds more to a text than an end token, as for a model of many languages"
    return None


def _obstacle(tokenizer: BilingualTokenizer) -> str:
    vocabulary = tokenizer.vocabulary
    if isinstance(vocabulary, PairedModels):
        if tokenizer.source.lowers or tokenizer.target.lowers:
            return "it lowercases text, but MarianTokenizer keeps capitals"
        return ""
    if isinstance(vocabulary, UnigramTokenizer):
        return "" if vocabulary.is_plain else "its SentencePiece model is not a plain unigram model"
    if isinstance(vocabulary, SubwordTokenizer):
        return ""
    if not isinstance(vocabulary, WordBpeTokenizer) or vocabulary.kind != WordBpeTokenizer.kind:
        return f"it is of kind {vocabulary.kind}"
    if vocabulary.is_apart:
        return "its codes are of version 0.1, where the end of a word is a separate symbol"
    if lacking := len(vocabulary.made - set(vocabulary.pieces)):
        return f"its dictionary lacks {lacking:,} pieces that its merges make as intermediates"
    named = sorted(set(vocabulary.specials) & set(vocabulary.pieces))
    return f"its piece {named[0]} has the name of a special id" if named else ""
