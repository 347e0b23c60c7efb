"""Where fields of ``[data]`` have an effect: what the objective reads, and what the text is."""

from sublayer.config.fields.use import Use, text_use
from sublayer.config.recipe import Recipe
from sublayer.config.text.corpora import (
    HUB,
    INTRINSIC,
    PARALLEL_CORPORA,
    PUBLISHED_SPLITS,
    RECORD_CORPORA,
    source_names,
)
from sublayer.config.text.pair_fields import PairFields
from sublayer.config.text.task_fields import TaskFields
from sublayer.config.text.tokenizers import (
    GPT1,
    GPT1_SUFFIXES,
    LETTERED_TOKENIZERS,
    MARKED_TOKENIZERS,
    SENTINEL_SUFFIXES,
    TOKENIZERS,
    TRAINED_TOKENIZERS,
)


def _split_is_used(recipe: Recipe) -> bool:
    data = recipe.data
    if data.corpus in PARALLEL_CORPORA:
        return False
    has_valid = data.valid_path or data.valid_source_path
    has_test = data.test_path or data.test_source_path
    return not (has_valid and has_test)


def _has_unpublished_text(recipe: Recipe) -> bool:
    if recipe.data.path is not None:
        return True
    corpora = source_names(recipe.data.corpus)
    return not corpora or any(name not in PUBLISHED_SPLITS for name in corpora)


def _has_record_corpus(recipe: Recipe) -> bool:
    return any(name in RECORD_CORPORA for name in source_names(recipe.data.corpus))


def _is_read_by_rule(recipe: Recipe) -> bool:
    data = recipe.data
    # The passages of that corpus are read from ``path`` in their own way.
    path_is_text = data.path and INTRINSIC not in source_names(data.corpus)
    has_path = bool(path_is_text or data.valid_path or data.test_path)
    return has_path or _has_record_corpus(recipe)


def _is_record_path(path: str) -> bool:
    return path.startswith(HUB) or path.lower().endswith(".parquet")


def _has_fields(recipe: Recipe) -> bool:
    data = recipe.data
    if data.documents is not None:
        return data.documents in ("json", "csv")
    paths = (*source_names(data.path), data.valid_path, data.test_path)
    has_records = any(_is_record_path(path) for path in paths if path)
    return has_records or _has_record_corpus(recipe)


def _has_trained_tokenizer(recipe: Recipe) -> bool:
    return recipe.data.tokenizer in TRAINED_TOKENIZERS


def _has_letters(recipe: Recipe) -> bool:
    if recipe.objective.text == "pairs" or not recipe.data.lowercase:
        return True
    return recipe.data.tokenizer in LETTERED_TOKENIZERS and recipe.init.run is None


def _may_have_sentinels(recipe: Recipe) -> bool:
    tokenizer = recipe.data.tokenizer
    return tokenizer == "unigram" or tokenizer.endswith(SENTINEL_SUFFIXES)


def _may_be_gpt1(recipe: Recipe) -> bool:
    tokenizer = recipe.data.tokenizer
    return tokenizer == GPT1 or tokenizer.endswith(GPT1_SUFFIXES)


def fills_steps(recipe: Recipe) -> bool:
    """Return whether steps are filled with pairs of similar length, by their tokens."""
    if recipe.objective.text == "pairs":
        return True
    unit = getattr(recipe.objective, "pairs", None)
    return unit == "sentences" and recipe.train.batch_tokens is not None


_WINDOWS = text_use("windows")
_PAIRS = text_use("pairs")
_FILLED = Use(
    f"{_PAIRS.when}, or objective.pairs is sentences and train.batch_tokens is given",
    fills_steps,
    (*_PAIRS.deciders, "objective.pairs", "train.batch_tokens"),
)
_LETTERS = Use(
    f"{_PAIRS.when}, or data.tokenizer is {' or '.join(LETTERED_TOKENIZERS)} and is trained",
    _has_letters,
    (*_PAIRS.deciders, "data.tokenizer", "init.run"),
)
_TEXT = text_use("windows", "sentences")
_TASKS = text_use("tasks")
_TABLE = Use(
    "data.tasks is table", lambda recipe: recipe.data.task_names == ("table",), ("data.tasks",)
)
_NOT_TASKS = text_use("windows", "sentences", "pairs")
_NOT_BOTH_PATHS = Use(
    "valid_path and test_path are not both given",
    _split_is_used,
    ("data.valid_path", "data.test_path"),
)
_UNPUBLISHED = Use(
    "a text has no published split", _has_unpublished_text, ("data.corpus", "data.path")
)
_READ_BY_RULE = Use(
    f"a path names text, or a corpus is {', '.join(RECORD_CORPORA)}",
    _is_read_by_rule,
    ("data.path", "data.corpus"),
)
_FIELDS = Use(
    "documents is json or csv, or unset with a path to .parquet or hub:, or a corpus of records",
    _has_fields,
    ("data.documents", "data.path", "data.corpus"),
)
_OWN_TOKENIZER = Use(
    "no init.run brings its tokenizer", lambda recipe: recipe.init.run is None, ("init.run",)
)
_TRAINED = Use(
    f"data.tokenizer is {', '.join(TRAINED_TOKENIZERS[:-1])} or {TRAINED_TOKENIZERS[-1]}",
    _has_trained_tokenizer,
    ("data.tokenizer",),
)
_WITH_SENTINELS = Use(
    f"data.tokenizer is unigram or a file ({', '.join(SENTINEL_SUFFIXES)})",
    _may_have_sentinels,
    ("data.tokenizer",),
)
_WITH_NORMALIZATION = Use(
    f"data.tokenizer is {GPT1} or a file of GPT-1's ({', '.join(GPT1_SUFFIXES)})",
    _may_be_gpt1,
    ("data.tokenizer",),
)
_WITH_MARKS = Use(
    f"data.tokenizer is a file, {', '.join(MARKED_TOKENIZERS)}, or init.run brings one",
    lambda recipe: (
        recipe.init.run is not None
        or recipe.data.tokenizer in MARKED_TOKENIZERS
        or recipe.data.tokenizer not in TOKENIZERS
    ),
    ("data.tokenizer", "init.run"),
)

DATA_USES: dict[str, tuple[Use, ...]] = {
    **{f"data.{name}": (_PAIRS,) for name in PairFields.model_fields},
    "data.lowercase": (_LETTERS,),
    "data.keep_accents": (_OWN_TOKENIZER,),
    "data.batch_multiple": (_FILLED,),
    "data.batch_parts": (_FILLED,),
    "data.sentences": (_TEXT,),
    "data.watch": (_TEXT,),
    **{f"data.{name}": (_TASKS,) for name in TaskFields.model_fields},
    "data.columns": (_TASKS, _TABLE),
    "data.corpus": (_NOT_TASKS,),
    "data.valid_path": (_NOT_TASKS,),
    "data.test_path": (_NOT_TASKS,),
    "data.split": (_NOT_TASKS, _NOT_BOTH_PATHS, _UNPUBLISHED),
    "data.documents": (_TEXT, _READ_BY_RULE),
    "data.text_field": (_TEXT, _FIELDS),
    "data.tokenizer": (_OWN_TOKENIZER,),
    "data.vocab_size": (_OWN_TOKENIZER, _TRAINED),
    "data.merges": (_OWN_TOKENIZER,),
    "data.sentinels": (_OWN_TOKENIZER, _WITH_SENTINELS),
    "data.normalization": (_OWN_TOKENIZER, _WITH_NORMALIZATION),
    "data.special_tokens": (_WITH_MARKS,),
    "data.windows": (_WINDOWS,),
    "data.boundaries": (_WINDOWS,),
}
"""By field; beyond the ``needs`` of its declaration."""
