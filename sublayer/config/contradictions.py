"""Contradictions among the settings of a recipe: tables of conditions and messages."""

import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

from sublayer.config.architecture import POSITIONS, n_exact_buckets
from sublayer.config.data import (
    GPT1,
    INTRINSIC,
    PARALLEL_CORPORA,
    TRAINED_TOKENIZERS,
    DataConfig,
    check_sentinels,
    holds_out,
    kind_of,
    own_table,
    source_names,
)
from sublayer.config.model import ModelConfig
from sublayer.config.recipe import Recipe
from sublayer.config.span import MOST_USED
from sublayer.config.stacks import (
    StackShape,
    embedding_width,
    entries,
    last_of_same_weights,
    shares,
    stacks,
)
from sublayer.config.supervised import KINDS, MARKS, SupervisedObjective
from sublayer.config.train import InitConfig
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.tasks.own_table import NAME
from sublayer.tasks.registry import TASKS


@dataclass(frozen=True)
class Contradiction:
    """A contradiction, and its message, in which ``{table.field}`` stands for a value."""

    fails: Callable[..., object]
    """Of the tables that its parameters name: false where there is none; a mapping where the
    message has values beyond the fields."""
    message: str


class _Words(string.Formatter):
    """Values as a recipe's file has them; names in a list alone."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, tuple | dict):
            return ", ".join(map(str, value))
        if isinstance(value, bool):
            return str(value).lower()
        return str(super().format_field(value, format_spec))


def _check(rules: Iterable[Contradiction], tables: Mapping[str, Any]) -> None:
    for rule in rules:
        asked = {name: tables[name] for name in signature(rule.fails).parameters}
        if failure := rule.fails(**asked):
            values = {**tables, **(failure if isinstance(failure, dict) else {})}
            raise ConfigError(_Words().format(rule.message, **values))


def check_model(model: ModelConfig, *, vocab_size: int = 1, context: int = 1) -> None:
    """Raise ConfigError where fields of a model contradict each other, naming them.

    Also where it has fewer rows than ``vocab_size``, the tokenizer's, or fewer positions than
    ``context``, the training window in tokens.
    """
    _check(MODEL, {"model": model})
    if (model.vocab_size or vocab_size) < vocab_size:
        raise ConfigError(
            f"model.vocab_size = {model.vocab_size} is smaller than the tokenizer's vocabulary of "
            f"{vocab_size}"
        )
    if model.kind != "lstm" and (model.max_len or context) < context:
        raise ConfigError(
            f"model.max_len = {model.max_len} is shorter than data.context = {context}: give "
            f"data.context={model.max_len}, or a longer model.max_len"
        )


def check_recipe(recipe: Recipe) -> None:
    """Raise ConfigError where tables of a recipe contradict each other, naming the fields.

    Sizes that only the data has are checked when a run resolves them.
    """
    objective, data = recipe.objective, recipe.data
    check_model(recipe.model, vocab_size=data.vocab_size or 1, context=data.context)
    rules = _OBJECTIVES.get(objective.kind, (_KIND, _HEAD, _NO_PAIRS))
    _check((*rules, *RECIPE), dict(recipe))
    if isinstance(objective, SupervisedObjective) and data.task_names[0] in TASKS:
        objective.check_head(TASKS[data.task_names[0]])


def check_tables(recipe: Recipe) -> None:
    """Raise ConfigError where fields of one table contradict each other, naming them.

    A recipe that a run wrote was checked as a whole; this refuses one that was edited since.
    """
    shares = (_SHARES,) if recipe.objective.kind == "masked" else ()
    _check((*shares, *TABLE), dict(recipe))


def _attends(model: ModelConfig, to: str) -> bool:
    return any(entry.kind.attends_to == to for entry in entries(model))


def _reads_memory(stack: StackShape) -> bool:
    return any(entry.kind.attends_to == "memory" for entry in stack.block)


def _attends_to_nothing(model: ModelConfig) -> object:
    is_beside = model.kind == "encoder-decoder"
    or_move = ", or give it to model.decoder_block" if is_beside else ""
    return _reads_memory(stacks(model)[0]) and {"or_move": or_move}


def _odd_head(model: ModelConfig) -> object:
    d_head = model.d_head or model.d_model // model.n_heads
    is_needed = POSITIONS[model.positions].even_width == "head" and _attends(model, "itself")
    return {"d_head": d_head} if is_needed and d_head % 2 else None


def _odd_embedding(model: ModelConfig) -> object:
    width = embedding_width(model)
    is_narrow = model.embedding_projection == "sum" and model.d_embed
    if POSITIONS[model.positions].even_width != "embedding" or width % 2 == 0:
        return None
    return {"name": "d_embed" if is_narrow else "d_model", "width": width}


def _near_distance(model: ModelConfig) -> object:
    for stack in stacks(model) if model.positions == "relative" else ():
        n_of_side = model.relative_buckets // (1 if stack.is_causal else 2)
        if model.relative_distance <= n_exact_buckets(n_of_side):
            return {"stack": stack, "n_exact": n_exact_buckets(n_of_side)}
    return None


def _unshared(model: ModelConfig, fails: Callable[[StackShape], bool]) -> object:
    for stack in stacks(model) if model.share != "none" else ():
        if fails(stack):
            name = "n_layers" if stack.n_layers == model.n_layers else "n_decoder_layers"
            return {"name": name, "n": stack.n_layers}
    return None


MODEL = (
    Contradiction(
        _attends_to_nothing,
        "model.block has a cross entry, and in model.kind = {model.kind} it has nothing to attend "
        "to: leave it out{or_move}",
    ),
    Contradiction(
        lambda model: model.kind == "encoder-decoder" and not _reads_memory(stacks(model)[-1]),
        "model.kind = encoder-decoder needs a cross entry in the decoder's block: give "
        "model.decoder_block one",
    ),
    Contradiction(
        lambda model: (
            model.d_head is None
            and model.d_model % model.n_heads
            and (_attends(model, "itself") or _attends(model, "memory"))
        ),
        "model.n_heads = {model.n_heads} must divide model.d_model = {model.d_model} (or give "
        "model.d_head)",
    ),
    Contradiction(
        _odd_head, "model.positions = {model.positions} needs an even model.d_head, not {d_head}"
    ),
    Contradiction(
        _odd_embedding,
        "model.positions = {model.positions} needs an even model.{name}, not {width}",
    ),
    Contradiction(
        lambda model: model.positions == "relative" and model.relative_buckets % 2,
        "model.relative_buckets = {model.relative_buckets} is odd, and half of them have one "
        "distance each: give an even number",
    ),
    Contradiction(
        _near_distance,
        "model.relative_distance = {model.relative_distance} is within the {n_exact} exact "
        "buckets of a side that model.relative_buckets = {model.relative_buckets} makes in the "
        "{stack.name}: give more than {n_exact}, or fewer buckets",
    ),
    Contradiction(
        lambda model: model.softmax == "all" and model.d_embed not in (None, model.d_model),
        "model.softmax = all needs tokens as wide as positions, and model.d_embed = "
        "{model.d_embed} is not model.d_model = {model.d_model}: leave one of them out",
    ),
    Contradiction(
        lambda model: model.norm == "none" and model.final_norm in ("affine", "plain"),
        "model.final_norm = {model.final_norm} contradicts model.norm = none",
    ),
    Contradiction(
        lambda model: (
            model.share in ("attention", "ffn")
            and not any(shares(model, entry) for entry in entries(model))
        ),
        "model.share = {model.share} has nothing to share: model.block has no {model.share} entry",
    ),
    Contradiction(
        lambda model: _unshared(model, lambda stack: stack.n_layers % model.share_inner != 0),
        "model.share_inner = {model.share_inner} must divide model.{name} = {n}",
    ),
    Contradiction(
        lambda model: _unshared(
            model, lambda stack: model.share_groups > stack.n_layers // model.share_inner
        ),
        "model.share_groups = {model.share_groups} is more than the units of model.share_inner = "
        "{model.share_inner} in model.{name} = {n}",
    ),
    Contradiction(
        lambda model: model.kind == "lstm" and model.init in ("kaiming", "t5"),
        "model.init = {model.init} draws the maps of attention and of feed-forward networks, "
        "which a model.kind = lstm has not: give normal, truncated or xavier",
    ),
    Contradiction(
        lambda model: model.vocab_size is not None and model.vocab_size % model.vocab_multiple,
        "model.vocab_size = {model.vocab_size} is no multiple of model.vocab_multiple = "
        "{model.vocab_multiple}: leave one of them out",
    ),
)
"""Of a model's fields alone."""


def _head_for(model: ModelConfig) -> object:
    kind = "transform" if model.kind == "encoder" else "linear"
    return {"kind": kind} if model.head == "none" else None


_FEWEST_PAIR_TOKENS = 5
"""A pair's three special tokens, and a token of each text."""
_WITHOUT_END = ("bytes", "characters", "bpe")
_LACKING: dict[str, tuple[tuple[str, ...], str, str]] = {
    "masked": ((*_WITHOUT_END, GPT1), "[MASK]", "unigram, wordpiece or moses-bpe"),
    "translation": (_WITHOUT_END, "an end of a text and padding", "word-bpe or unigram"),
    "span": (_WITHOUT_END, "an end of a text and padding", "unigram"),
}
"""By objective, the tokenizers that lack something which it needs, and those to give."""


def _lacks(data: DataConfig, objective: Any, init: InitConfig) -> object:
    tokenizers, what, others = _LACKING[objective.kind]
    if init.run is not None or data.tokenizer not in tokenizers:
        return None  # a start brings its tokenizer
    return {"what": what, "others": others}


_KIND = Contradiction(
    lambda model, objective: (
        model.kind not in objective.model_kinds and {"kinds": " or ".join(objective.model_kinds)}
    ),
    "objective.kind = {objective.kind} trains a model.kind = {kinds}, not {model.kind}: give "
    "another objective, or that kind of model",
)
_HEAD = Contradiction(
    _head_for,
    "objective.kind = {objective.kind} predicts tokens, for which model.head = none has no head: "
    "give model.head={kind}",
)
_NO_PAIRS = Contradiction(
    lambda data: set(source_names(data.corpus)) & set(PARALLEL_CORPORA),
    "data.corpus = {data.corpus} is translations, which objective.kind = {objective.kind} does "
    "not read",
)
_TOKENIZER = Contradiction(
    _lacks,
    "data.tokenizer = {data.tokenizer} lacks {what}, which objective.kind = {objective.kind} "
    "needs: give {others}, or a file whose vocabulary has them",
)
_COMPILE = Contradiction(
    lambda train: train.compile,
    "train.compile = true would compile anew for every shape of a batch, which objective.kind = "
    "{objective.kind} changes from batch to batch: leave it out",
)
_SHARES = Contradiction(
    lambda objective: objective.p_mask + objective.p_random > 1.0,
    "objective.p_mask = {objective.p_mask:g} and objective.p_random = {objective.p_random:g} "
    "exceed 1 together",
)
_AS_IT_IS = Contradiction(
    lambda data: data.sentences != "none",
    "data.sentences = {data.sentences} contradicts objective.kind = {objective.kind}, which reads "
    "the text as it is: leave it out",
)


def _without_language(data: DataConfig) -> object:
    names = ("source_language", "target_language")
    missing = [name for name in names if getattr(data, name) is None]
    return missing and {"name": missing[0]}


def _raw(data: DataConfig, objective: Any) -> int:
    """Return the tokens of a piece whose spans are cut out. Raises ConfigError for no room."""
    return int(objective.raw_length or objective.row.raw(objective, data.context))


def _too_long(data: DataConfig, objective: Any) -> object:
    longest = objective.row.raw(objective, data.context)
    return (objective.raw_length or 0) > longest and {"longest": longest}


def _other_target(data: DataConfig, objective: Any) -> object:
    raw = _raw(data, objective)
    needed = objective.row.target(objective, raw)
    is_right = objective.target_length in (None, needed) or objective.row.cuts_targets
    return None if is_right else {"raw": raw, "needed": needed}


def _few_sentinels(data: DataConfig, objective: Any, init: InitConfig) -> object:
    # A file may have some.
    raw = _raw(data, objective)
    needed = objective.row.n_sentinels(objective, raw)
    is_trained = init.run is None and data.tokenizer in TRAINED_TOKENIZERS
    n_there = data.sentinels if data.tokenizer == "unigram" else 0
    if not is_trained or n_there >= needed:
        return None
    return {"raw": raw, "needed": needed, "enough": max(MOST_USED, needed)}


def _other_format(model: ModelConfig, objective: Any) -> object:
    kinds, kind = KINDS[objective.format], model.kind
    fitting = [name for name, able in KINDS.items() if kind in able]
    return kind not in kinds and {"kinds": " or ".join(kinds), "fitting": fitting[0]}


def _is_asked(kind: str, data: DataConfig) -> bool:
    return kind_of(data.task_names[0], data.columns) == kind


def _is_table_unsaid(data: DataConfig) -> None:
    if data.task_names == (NAME,):
        own_table(data.path, data.columns)


def _has_no_room(model: ModelConfig, data: DataConfig, objective: Any) -> object:
    is_one_row = objective.format == "text" and model.kind != "encoder-decoder"
    context = data.context
    return is_one_row and context <= objective.target_length + 1 and {"half": context // 2}


_OBJECTIVES: dict[str, tuple[Contradiction, ...]] = {
    "causal": (
        _KIND,
        _HEAD,
        _NO_PAIRS,
        Contradiction(
            lambda data, objective: objective.targets > data.context,
            "objective.targets = {objective.targets} is more than data.context = {data.context}: "
            "give fewer targets or a longer context",
        ),
        Contradiction(
            lambda data, train: (train.evaluate_stride or 0) > data.context,
            "train.evaluate_stride = {train.evaluate_stride} is more than data.context = "
            "{data.context}, which would leave tokens out: give a smaller stride",
        ),
        _AS_IT_IS,
    ),
    "masked": (
        _KIND,
        _HEAD,
        _NO_PAIRS,
        _SHARES,
        _COMPILE,
        Contradiction(
            lambda objective, train: (
                objective.pairs == "sentences" and (train.tokens or train.epochs)
            ),
            "objective.pairs = sentences makes examples far shorter than data.context, by which "
            "train.tokens and train.epochs are counted: give train.steps",
        ),
        Contradiction(
            lambda data, objective, train: (
                objective.pairs == "sentences"
                and train.batch_tokens
                and dict in (type(data.path), type(data.corpus))
            ),
            "train.batch_tokens fills steps with pairs of one length, which the weights of "
            "data.path or data.corpus contradict with objective.pairs = sentences: give "
            "train.batch_sequences",
        ),
        Contradiction(
            lambda data: data.sentences == "none",
            "objective.kind = masked reads sentences, and data.sentences = none: give lines, "
            "prose or spacy",
        ),
        _TOKENIZER,
        Contradiction(
            lambda data: data.context < _FEWEST_PAIR_TOKENS,
            "data.context = {data.context} has no room for a pair of texts, which objective.kind "
            f"= masked reads: give {_FEWEST_PAIR_TOKENS} or more",
        ),
        Contradiction(
            lambda model, objective: objective.sentence != "none" and model.sentence_classes == 0,
            "objective.sentence = {objective.sentence} needs a head: model.sentence_classes = 0 "
            "has none, give 2",
        ),
        Contradiction(
            lambda objective: objective.pairs == "sentences" and objective.sentence == "sop",
            "objective.pairs = sentences pairs what follows and what does not, not "
            "objective.sentence = sop",
        ),
        Contradiction(
            lambda objective: (
                objective.sentence == "none" and objective.single_sentence == "negative"
            ),
            "objective.single_sentence = negative makes labels, which objective.sentence = none "
            "has no use for",
        ),
        Contradiction(
            lambda data: data.sentinels and data.tokenizer == "unigram",
            "data.sentinels = {data.sentinels} gives data.tokenizer = unigram T5's ids, without "
            "[CLS] and [MASK], which objective.kind = masked needs: leave it out",
        ),
    ),
    "translation": (
        _KIND,
        _HEAD,
        Contradiction(
            _without_language,
            "objective.kind = translation needs data.{name}: give its code, such as de",
        ),
        Contradiction(
            lambda data: data.corpus not in (None, *PARALLEL_CORPORA),
            "data.corpus = {data.corpus} has no translations: give one of "
            f"{', '.join(PARALLEL_CORPORA)}, or files of pairs",
        ),
        Contradiction(
            lambda data: (
                data.corpus is not None and (data.path or data.source_path or data.target_path)
            ),
            "data.corpus = {data.corpus} and a path both name pairs: leave one out",
        ),
        _COMPILE,
        _TOKENIZER,
    ),
    "span": (
        _KIND,
        _HEAD,
        _NO_PAIRS,
        # Which refuses a context without room for a span, too.
        Contradiction(
            _too_long,
            "objective.raw_length = {objective.raw_length} makes inputs longer than data.context "
            "= {data.context}: give at most {longest}",
        ),
        _AS_IT_IS,
        Contradiction(
            lambda data: data.boundaries == "respect" and data.windows == "random",
            "data.boundaries = respect cuts each document from its start, which data.windows = "
            "random does not: give shuffled",
        ),
        Contradiction(
            _other_target,
            "objective.target_length = {objective.target_length} is not what objective.noise = "
            "{objective.noise} makes of {raw} tokens, {needed}: leave it out",
        ),
        Contradiction(
            lambda data, objective, train: (
                train.compile and (objective.noise != "spans" or data.boundaries == "respect")
            ),
            "train.compile = true would compile anew for every pair of lengths, which only "
            "objective.noise = spans with data.boundaries = ignore keeps the same: leave it out",
        ),
        _TOKENIZER,
        Contradiction(
            lambda data, objective, init: (
                data.tokenizer != "unigram" and _few_sentinels(data, objective, init)
            ),
            "data.tokenizer = {data.tokenizer} has no sentinels, which objective.noise = "
            "{objective.noise} takes: give unigram, and data.sentinels = {enough}",
        ),
        Contradiction(
            _few_sentinels,
            "data.sentinels = {data.sentinels} is fewer than objective.noise = {objective.noise} "
            "takes in pieces of {raw} tokens, {needed}: give {enough}, or longer spans or a "
            "smaller data.context",
        ),
    ),
    "supervised": (
        Contradiction(
            _other_format,
            "objective.format = {objective.format} is read by a model.kind = {kinds}, not "
            "{model.kind}: give objective.format={fitting}",
        ),
        Contradiction(
            lambda data: data.tasks is None,
            "objective.kind = supervised needs data.tasks: name a task, such as sst2 "
            "(`sublayer tasks` lists them)",
        ),
        Contradiction(_is_table_unsaid, ""),
        Contradiction(
            lambda data, objective: len(data.task_names) > 1 and objective.format != "text",
            "data.tasks = {data.task_names} is a mixture, which objective.format = "
            "{objective.format} has no one head for: name one task, or give "
            "objective.format=text",
        ),
        Contradiction(
            lambda data: (
                data.size_limit is not None
                and (isinstance(data.tasks, dict) or len(data.task_names) == 1)
            ),
            "data.size_limit = {data.size_limit} limits the sizes by which the tasks of a mixture "
            "are drawn, and data.tasks = {data.task_names} is one task or has weights: leave it "
            "out",
        ),
        Contradiction(
            lambda data, objective: objective.format == "traversal" and _is_asked("span", data),
            "data.tasks = {data.task_names} asks for a part of a passage, of which "
            "objective.format = traversal, whose tokens see only what is before them, knows no "
            "end: give objective.format=text, or start from an encoder",
        ),
        Contradiction(
            lambda data, objective: objective.format != "text" and _is_asked("text", data),
            "data.columns has a target, a text to be written, which objective.format = "
            "{objective.format} does not: give objective.format=text, with a T5 or a decoder",
        ),
        Contradiction(
            lambda data, objective: objective.answer == "rank" and _is_asked("text", data),
            "objective.answer = rank chooses among labels, and a target is a text that is "
            "written: leave it out",
        ),
        Contradiction(
            lambda model, objective: (
                model.head == "none"
                and (objective.format == "text" or objective.language_weight > 0)
            ),
            "model.head = none predicts no tokens, which objective.format = {objective.format} "
            "with objective.language_weight = {objective.language_weight:g} asks for: start from "
            "a model with a head, or leave out the weight",
        ),
        Contradiction(
            lambda data, objective: objective.zero_head and _is_asked("span", data),
            "objective.zero_head = true is for a head of labels, choices or numbers, and "
            "data.tasks = {data.task_names} asks for spans: leave it out",
        ),
        Contradiction(
            lambda data, objective: objective.format != "text" and data.context <= MARKS,
            "data.context = {data.context} has no room for texts between their marks: give "
            f"{MARKS + 1} or more",
        ),
        Contradiction(
            _has_no_room,
            "objective.target_length = {objective.target_length} leaves no room for an input in "
            "data.context = {data.context}: give objective.target_length={half} or less, or a "
            "model of a longer context",
        ),
        _COMPILE,
    ),
}


def _sources(data: DataConfig) -> list[Any]:
    return [given for given in (data.path, data.corpus) if given is not None]


def _n_weighted(data: DataConfig) -> int:
    return sum(isinstance(given, dict) for given in _sources(data))


def _frozen_beyond(model: ModelConfig, init: InitConfig) -> object:
    taken = init.layers
    n_there = model.n_layers if taken is None else taken
    what = "the model" if taken is None else f"the start that init.layers = {taken} takes"
    return init.frozen.n_layers > n_there and {"there": f"the {count(n_there, 'block')} of {what}"}


def _frozen_with_others(model: ModelConfig, init: InitConfig) -> object:
    n = init.frozen.n_layers
    last = last_of_same_weights(model, n) if n else 0
    return last > n and {"last": last}


def _have_no_room(data: DataConfig) -> None:
    if data.tokenizer == "unigram" and data.vocab_size is not None:
        check_sentinels(data.vocab_size, data.sentinels)


TABLE = (
    Contradiction(
        lambda data: 0 < _n_weighted(data) < len(_sources(data)),
        "data.path and data.corpus are mixed: give weights to both, {{name = weight}}, or to none",
    ),
    Contradiction(
        lambda data: data.windows == "shuffled" and _n_weighted(data),
        "data.windows = shuffled contradicts the weights of data.path or data.corpus; use random",
    ),
    Contradiction(
        lambda data: (
            INTRINSIC in source_names(data.corpus)
            and (
                data.path is None or source_names(data.corpus) != (INTRINSIC,) or _n_weighted(data)
            )
        ),
        f"data.corpus = {INTRINSIC} reads data.path, so it needs data.path, the files of SQuAD "
        "and RACE, and is not mixed with others, nor weighted",
    ),
    Contradiction(_have_no_room, ""),
    Contradiction(
        lambda train: train.patience is not None and train.best_by == "last",
        "train.patience = {train.patience} waits for a better evaluation, and train.best_by = "
        "last has none: leave it out, or give train.best_by=loss",
    ),
)
"""Of fields of one table, whatever the objective."""
RECIPE = (
    *TABLE,
    Contradiction(
        lambda model, init: init.frozen.n_layers and model.kind == "encoder-decoder",
        "init.freeze = {init.freeze} names the first blocks of a stack, and model.kind = "
        "encoder-decoder has two: leave it out, or give init.freeze=embeddings",
    ),
    Contradiction(_frozen_beyond, "init.freeze = {init.freeze} is more than {there}"),
    Contradiction(
        _frozen_with_others,
        "init.freeze = {init.freeze}, but later blocks have the same weights (model.share = "
        "{model.share}): give layers:{last}, or leave it out",
    ),
    Contradiction(
        lambda data, train: train.best_by != "last" and not holds_out(data, "valid"),
        "train.best_by = {train.best_by} needs a validation split, of which data.split = "
        "{data.split} has none: give train.best_by = last, or a split such as 98/1/1",
    ),
    Contradiction(
        lambda train: train.shard != "none" and train.exact,
        "train.shard = {train.shard} contradicts train.exact = true, which adds up gradients of "
        "whole copies: leave one of them out",
    ),
)
"""Of tables of any objective."""
