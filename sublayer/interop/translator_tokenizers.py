"""Tokenizers of translators: export to transformers with equal ids, and import."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from sublayer.data.sentencepiece.marian import (
    NAMES,
    SOURCE,
    TARGET,
    PairedModels,
    has_paired_models,
)
from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.subwords.library import call_library
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.subwords.word_bpe import END, WordBpeTokenizer
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.languages import BilingualTokenizer, LanguageRules
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.data.tokenizers.settings import CONFIG_NAME, read_settings
from sublayer.errors import DataError
from sublayer.interop.tokenizers import (
    FILE,
    check_tokenizer,
    library_file,
    library_of,
    lowering,
    settings_file,
    single_spaces,
    split_marks,
)

_SIDES = "sublayer_sides"
"""The field of ``tokenizer_config.json`` with the rules of both languages, ours alone."""

_OTHERS = (SOURCE, TARGET, "sentencepiece.bpe.model", "spiece.model", NAMES)
_OWN_TARGETS = "target_vocab.json"
UNKNOWN_LANGUAGE = "und"


def translator_files(tokenizer: Tokenizer | None, *, max_len: int) -> dict[str, bytes]:
    """Return the files of a transformers AutoTokenizer with equal ids; empty where impossible.

    Contents are by file name; ``describe_text`` says why there are none. It reads the output of
    ``encode_source`` for a line, words after Moses' rules where there are any, and what it
    decodes are words. It knows the names of special ids in a text, such as ``</s>``.
    """
    if not isinstance(tokenizer, BilingualTokenizer) or _obstacle(tokenizer):
        return {}
    if isinstance(tokenizer.vocabulary, PairedModels):
        return _marian_files(tokenizer, tokenizer.vocabulary, max_len)
    library, names = _library_of(tokenizer.vocabulary)
    assert tokenizer.sep_id is not None and tokenizer.pad_id is not None, (
        "the vocabulary was checked"
    )
    rules: list[Any] = [single_spaces(), normalizers.Strip()]
    if tokenizer.source.lowers:
        rules += lowering()
    if library.normalizer is not None:
        rules.append(library.normalizer)
    library.normalizer = normalizers.Sequence(rules)
    end = names[tokenizer.sep_id]
    library.post_processor = processors.TemplateProcessing(
        single=f"$A:0 {end}:0", pair=f"$A:0 $B:0 {end}:0", special_tokens=[(end, tokenizer.sep_id)]
    )
    ids = {
        "eos": tokenizer.sep_id,
        "pad": tokenizer.pad_id,
        "bos": tokenizer.cls_id,
        "unk": tokenizer.unk_id,
    }
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_len,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **{f"{name}_token": names[id_] for name, id_ in ids.items() if id_ is not None},
        **split_marks(tokenizer, by_default=True),
        _SIDES: [tokenizer.source.content(), tokenizer.target.content()],
    }
    return {FILE: library_file(library), CONFIG_NAME: settings_file(settings)}


def describe_text(tokenizer: Tokenizer | None) -> str | None:
    """Return a line on why a translator's tokenizer has no files, or on further steps.

    None where there is nothing to say.
    """
    if not isinstance(tokenizer, BilingualTokenizer):
        return None
    obstacle = _obstacle(tokenizer)
    if obstacle:
        return f"transformers' tokenizers cannot say it: {obstacle}"
    side = tokenizer.source
    if side.moses == "none":
        return None
    steps = []
    if side.moses == "normalize":
        steps = ["normalise punctuation", "drop what cannot be printed"]
    options = " -a" if side.divides_hyphens else ""
    options += "" if side.escapes else " -no-escape"
    steps.append(f"divide words by tokenizer.perl{options} -l {side.language}")
    return f"it reads words after Moses' rules ({', '.join(steps)}), and writes such words"


def read_translators(folder: Path, *, vocab_size: int) -> BilingualTokenizer | None:
    """Read the tokenizer of a translator's HuggingFace folder; None where none can be read.

    The rules of both languages are those that an export kept, or none. Raises DataError where a
    file is damaged, CheckpointError where the tokenizer has ids beyond the model's ``vocab_size``.
    """
    file = folder if has_paired_models(folder) else folder / FILE
    if describe_unread(folder) is not None or not file.exists():
        return None
    vocabulary = check_tokenizer(load_tokenizer(file, special_tokens="file"), folder, vocab_size)
    return BilingualTokenizer(vocabulary, *_read_sides(folder))


def has_language_rules(folder: Path) -> bool:
    """Check whether a folder's tokenizer was exported as a bilingual one.

    Raises DataError where its settings are damaged.
    """
    return _SIDES in read_settings(folder)


def describe_unread(folder: Path) -> str | None:
    """Return why the tokenizer in a folder is not read; None where it is, or there is none.

    Raises DataError where its ``tokenizer.json`` is damaged.
    """
    if has_paired_models(folder):
        is_apart = read_settings(folder).get("separate_vocabs") is True
        if is_apart or (folder / _OWN_TARGETS).is_file():
            return f"its languages have a vocabulary each ({_OWN_TARGETS})"
        return None
    if not (folder / FILE).is_file():
        other = next((name for name in _OTHERS if (folder / name).is_file()), None)
        if other is None:
            return None
        known = f"{FILE}, or {SOURCE} with {TARGET} and {NAMES}"
        return f"a translator's is read from {known}, and the folder has {other}"
    vocabulary = load_tokenizer(folder / FILE)
    if not isinstance(vocabulary, SubwordTokenizer) or vocabulary.sep_id is None:
        return f"its {FILE} has no </s>"
    if vocabulary.pad_id is None and vocabulary.cls_id is None:
        return f"its {FILE} has no <pad> and no <s>"
    library = Library.from_str(vocabulary.library_file.decode())
    refusal = f"{folder / FILE} cannot encode a text"
    around = call_library(lambda: library.encode(""), refusal).ids
    if around != [vocabulary.sep_id]:
        return (
            f"its {FILE} puts more around a text than an end behind it, "
            "as where one model knows many languages"
        )
    return None


def _obstacle(tokenizer: BilingualTokenizer) -> str:
    vocabulary = tokenizer.vocabulary
    if isinstance(vocabulary, PairedModels):
        if tokenizer.source.lowers or tokenizer.target.lowers:
            return "its text is in lower case, and MarianTokenizer takes it as it is written"
        return ""
    if isinstance(vocabulary, UnigramTokenizer):
        return "" if vocabulary.is_plain else "its SentencePiece model is not a plain unigram one"
    if isinstance(vocabulary, SubwordTokenizer):
        return ""
    if not isinstance(vocabulary, WordBpeTokenizer) or vocabulary.kind != WordBpeTokenizer.kind:
        return f"it is of kind {vocabulary.kind}"
    if vocabulary.is_apart:
        return "its codes are of version 0.1, where the end of a word is a symbol of its own"
    if lacking := len(vocabulary.made - set(vocabulary.pieces)):
        return f"its dictionary lacks {lacking:,} pieces that its merges make on the way"
    named = sorted(set(vocabulary.specials) & set(vocabulary.pieces))
    return f"its piece {named[0]} has the name of a special id" if named else ""


def _marian_files(
    tokenizer: BilingualTokenizer, models: PairedModels, max_len: int
) -> dict[str, bytes]:
    names = {"eos": tokenizer.sep_id, "pad": tokenizer.pad_id, "unk": tokenizer.unk_id}
    settings: dict[str, Any] = {
        "tokenizer_class": "MarianTokenizer",
        "model_max_length": max_len,
        "source_lang": tokenizer.source.language,
        "target_lang": tokenizer.target.language,
        "separate_vocabs": False,
        "clean_up_tokenization_spaces": False,
        **{f"{name}_token": models.names[id_] for name, id_ in names.items() if id_ is not None},
        _SIDES: [tokenizer.source.content(), tokenizer.target.content()],
    }
    numbers = {name: id_ for id_, name in enumerate(models.names)}
    return {
        SOURCE: models.source_model,
        TARGET: models.target_model,
        NAMES: json.dumps(numbers, ensure_ascii=False, indent=1).encode() + b"\n",
        CONFIG_NAME: settings_file(settings),
    }


def _library_of(vocabulary: Tokenizer) -> tuple[Library, list[str]]:
    if converted := library_of(vocabulary):
        return converted[:2]
    assert isinstance(vocabulary, WordBpeTokenizer), "what cannot be given was left out"
    names = [*vocabulary.specials, *vocabulary.pieces]
    numbers = {name: id_ for id_, name in enumerate(names)}
    library = Library(
        models.BPE(numbers, vocabulary.merges, unk_token="<unk>", end_of_word_suffix=END)
    )
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.decoder = decoders.BPEDecoder(suffix=END)
    library.add_special_tokens(list(vocabulary.specials))
    return library, names


def _read_sides(folder: Path) -> tuple[LanguageRules, LanguageRules]:
    settings = read_settings(folder)
    kept = settings.get(_SIDES)
    if kept is None:
        named = [settings.get(name) for name in ("source_lang", "target_lang")]
        source, target = [
            LanguageRules(name if isinstance(name, str) and name else UNKNOWN_LANGUAGE)
            for name in named
        ]
        return source, target
    if not isinstance(kept, list) or len(kept) != 2:
        raise DataError(f"{folder / CONFIG_NAME}: {_SIDES} is not the rules of two languages")
    try:
        source, target = (LanguageRules.from_content(side) for side in kept)
        return source, target
    except DataError as error:
        raise DataError(f"{folder / CONFIG_NAME}: {error}") from error
