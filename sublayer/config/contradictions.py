"""Contradictions between settings of a recipe, each with its fields and its remedy."""

from collections.abc import Mapping
from typing import Any

from sublayer.config.data import (
    GPT1,
    INTRINSIC,
    PARALLEL_CORPORA,
    TRAINED_TOKENIZERS,
    DataConfig,
    check_sentinels,
    own_table,
    source_names,
    task_of,
)
from sublayer.config.model import (
    POSITIONS,
    SUBLAYERS,
    BiasedMap,
    ModelConfig,
    n_exact_buckets,
)
from sublayer.config.objective import (
    KINDS,
    MARKS,
    MOST_USED,
    CausalObjective,
    MaskedObjective,
    SpanObjective,
    SupervisedObjective,
    TranslationObjective,
)
from sublayer.config.optimizers import MuonConfig, OptimizerConfig, ScheduleFreeConfig
from sublayer.config.recipe import Recipe
from sublayer.config.stacks import (
    StackShape,
    embedding_width,
    entries,
    is_factorised,
    key_heads,
    last_of_same_weights,
    n_rotated,
    shares,
    stacks,
)
from sublayer.errors import ConfigError
from sublayer.numbers import count
from sublayer.tasks.own_table import NAME
from sublayer.tasks.registry import TASKS


def check_model(model: ModelConfig, *, vocab_size: int = 1, context: int = 1) -> None:
    """Raise ConfigError, naming the fields, where fields of a model contradict each other.

    The same holds if the embedding matrix has fewer rows than the tokenizer's ``vocab_size``, or
    the model fewer positions than ``context``, the training window in tokens.
    """
    first, last = stacks(model)[0], stacks(model)[-1]
    is_pair = model.kind == "encoder-decoder"
    if _reads_memory(first):
        or_move = ", or give it to model.decoder_block" if is_pair else ""
        raise ConfigError(
            f"model.block has a cross entry, but a model.kind = {model.kind} has no encoder "
            f"states to attend to: leave it out{or_move}"
        )
    if is_pair and not _reads_memory(last):
        raise ConfigError(
            "model.kind = encoder-decoder needs a cross entry in the decoder's block: give "
            "model.decoder_block one"
        )
    readers = {entry.name: entry.kind for entry in last.block if entry.kind.attends_to == "itself"}
    unknown = [name for name, kind in readers.items() if kind is not SUBLAYERS["attention"]]
    if is_pair and unknown:
        raise ConfigError(
            f"{unknown[0]} reads other tokens, which beam search does not know how to cache: leave "
            "it out of the decoder's block"
        )
    _check_widths(model)
    if model.softmax == "all" and model.d_embed not in (None, model.d_model):
        raise ConfigError(
            "model.softmax = all needs tokens as wide as positions, and model.d_embed = "
            f"{model.d_embed} is not model.d_model = {model.d_model}: leave one of them out"
        )
    if model.norm == "none" and model.final_norm in ("affine", "plain"):
        raise ConfigError(f"model.final_norm = {model.final_norm} contradicts model.norm = none")
    for name in ("final_norm", "embedding_norm"):
        if model.norm == "dyt" and getattr(model, name) == "plain":
            raise ConfigError(
                f"model.{name} = plain contradicts model.norm = dyt, whose slope is a parameter: "
                "give affine or none"
            )
    if not isinstance(model.attention_window, str):
        longest = model.max_len or context
        if model.attention_window > longest:
            raise ConfigError(
                f"model.attention_window = {model.attention_window} is longer than the context of "
                f"{longest}: give a shorter window, or leave it out"
            )
        _check_pattern(model, "window_pattern", "LG", "model.attention_window = none")
    _check_pattern(model, "position_pattern", "PN", "model.positions = none")
    is_shared = any(shares(model, entry) for entry in entries(model))
    if model.share in ("attention", "ffn") and not is_shared:
        raise ConfigError(
            f"model.share = {model.share} has nothing to share: model.block has no {model.share} "
            "entry"
        )
    sizes = [stack.n_layers for stack in stacks(model)] if model.share != "none" else []
    named = {n: "n_layers" if n == model.n_layers else "n_decoder_layers" for n in sizes}
    for n, name in named.items():
        if n % model.share_inner:
            raise ConfigError(
                f"model.share_inner = {model.share_inner} must divide model.{name} = {n}"
            )
    for n, name in named.items():
        if model.share_groups > n // model.share_inner:
            raise ConfigError(
                f"model.share_groups = {model.share_groups} is more than the units of "
                f"model.share_inner = {model.share_inner} in model.{name} = {n}"
            )
    if model.kind == "lstm" and model.init in ("kaiming", "t5"):
        raise ConfigError(
            f"model.init = {model.init} initializes attention and feed-forward weights, and a "
            "model.kind = lstm has neither: give normal, truncated or xavier"
        )
    if model.vocab_size is not None and model.vocab_size % model.vocab_multiple:
        raise ConfigError(
            f"model.vocab_size = {model.vocab_size} is not a multiple of model.vocab_multiple = "
            f"{model.vocab_multiple}: leave one of them out"
        )
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


def _check_widths(model: ModelConfig) -> None:
    """Raise ConfigError where heads or positions do not fit the widths of a model."""
    d_head, rest = divmod(model.d_model, model.n_heads)
    attends = _attends(model, "itself")
    if model.d_head is None and rest and (attends or _attends(model, "memory")):
        raise ConfigError(
            f"model.n_heads = {model.n_heads} must divide model.d_model = {model.d_model} (or give "
            "model.d_head)"
        )
    if model.n_heads % key_heads(model):
        raise ConfigError(
            f"model.n_kv_heads = {model.n_kv_heads} must divide model.n_heads = {model.n_heads}"
        )
    if isinstance(model.bias, dict):
        _check_biases(model, model.bias)
    d_head, even = model.d_head or d_head, POSITIONS[model.positions].even_width
    n_turned = n_rotated(model, d_head)
    if even == "head" and attends and (n_turned % 2 or not n_turned):
        if model.rotary_fraction == 1.0:
            needed = f"an even model.d_head, not {d_head}"
        else:
            needed = (
                f"an even number of rotated features, not the {n_turned} that "
                f"model.rotary_fraction = {model.rotary_fraction:g} leaves of a head's {d_head}"
            )
        raise ConfigError(f"model.positions = {model.positions} needs {needed}")
    width = embedding_width(model)
    if even == "embedding" and width % 2:
        is_narrow = model.embedding_projection == "sum" and model.d_embed
        name = "d_embed" if is_narrow else "d_model"
        raise ConfigError(
            f"model.positions = {model.positions} needs an even model.{name}, not {width}"
        )
    if model.positions == "relative":
        if model.relative_buckets % 2:
            raise ConfigError(
                f"model.relative_buckets = {model.relative_buckets} must be even, since half of "
                "the buckets hold a single distance each"
            )
        for stack in stacks(model):
            n_exact = n_exact_buckets(model.relative_buckets // (1 if stack.is_causal else 2))
            if model.relative_distance <= n_exact:
                raise ConfigError(
                    f"model.relative_distance = {model.relative_distance} must exceed the "
                    f"{n_exact} exact buckets per side of model.relative_buckets = "
                    f"{model.relative_buckets} in the {stack.name}: give more than {n_exact}, or "
                    "fewer buckets"
                )


def _check_pattern(model: ModelConfig, name: str, letters: str, without: str) -> None:
    """Raise ConfigError for a pattern of other letters, or one that a stack has too few layers for.

    ``without`` is the setting that equals a pattern without the first letter.
    """
    pattern = getattr(model, name)
    if not pattern or set(pattern) - set(letters):
        raise ConfigError(
            f"model.{name} = {pattern[:80]!r} is not a text of {letters[0]} and {letters[1]}, a "
            f"letter for each self-attention, such as {letters[0] * 3}{letters[1]}"
        )
    if letters[0] not in pattern:
        raise ConfigError(
            f"model.{name} = {pattern[:80]!r} has no {letters[0]}: give {without} instead"
        )
    for stack in stacks(model):
        n_attentions = stack.n_layers * stack.n_attentions
        if 0 < n_attentions < len(pattern):
            raise ConfigError(
                f"model.{name} = {pattern[:80]!r} is longer than the "
                f"{count(n_attentions, 'self-attention')} of the {stack.name}: give a shorter "
                "pattern, which repeats, or more model.n_layers"
            )


def _check_biases(model: ModelConfig, biases: Mapping[BiasedMap, bool]) -> None:
    """Raise ConfigError for biases by map of an LSTM, and of maps that a model lacks."""
    if model.kind == "lstm":
        raise ConfigError(
            "model.bias names maps of blocks, and a model.kind = lstm has none: give true or false"
        )
    attends = any(entry.kind.attends_to != "nothing" for entry in entries(model))
    there: dict[BiasedMap, bool] = dict.fromkeys(("query", "key", "value", "output"), attends)
    there["gate"] = model.attention_gate != "none"
    there["ffn"] = any(entry.ffn is not None for entry in entries(model))
    there["projection"] = is_factorised(model) or "transform" in (model.head, model.pooler)
    lacking = [name for name in biases if not there[name]]
    if lacking:
        raise ConfigError(
            f"model.bias names {' and '.join(lacking)}, of which the model has no map: leave it out"
        )


def check_recipe(recipe: Recipe) -> None:
    """Raise ConfigError, naming the fields, where tables of a recipe contradict each other.

    Sizes that depend on the data are checked when a run resolves them.
    """
    model, data, objective, train = recipe.model, recipe.data, recipe.objective, recipe.train
    check_model(model, vocab_size=data.vocab_size or 1, context=data.context)
    _check_optimizer(recipe.optimizer)
    if not isinstance(objective, SupervisedObjective):
        if model.kind not in objective.model_kinds:
            raise ConfigError(
                f"objective.kind = {objective.kind} trains a model.kind = "
                f"{' or '.join(objective.model_kinds)}, not {model.kind}: give another objective, "
                "or that kind of model"
            )
        if model.head == "none":
            kind = "transform" if model.kind == "encoder" else "linear"
            raise ConfigError(
                f"objective.kind = {objective.kind} predicts tokens, but model.head = none has no "
                f"output head: give model.head={kind}"
            )
        if objective.text != "pairs" and set(source_names(data.corpus)) & set(PARALLEL_CORPORA):
            raise ConfigError(
                f"data.corpus = {_names(data.corpus)} is a translation corpus, which "
                f"objective.kind = {objective.kind} does not read"
            )
    if isinstance(objective, SupervisedObjective):
        _check_answers(recipe, objective)
    elif isinstance(objective, CausalObjective):
        if objective.targets > data.context:
            raise ConfigError(
                f"objective.targets = {objective.targets} is more than data.context = "
                f"{data.context}: give fewer targets or a longer context"
            )
        if (train.evaluate_stride or 0) > data.context:
            raise ConfigError(
                f"train.evaluate_stride = {train.evaluate_stride} exceeds data.context = "
                f"{data.context} and would skip tokens: give a smaller stride"
            )
        _check_sentences(recipe)
    elif isinstance(objective, MaskedObjective):
        _check_masks(recipe, objective)
    elif isinstance(objective, TranslationObjective):
        for name in ("source_language", "target_language"):
            if getattr(data, name) is None:
                raise ConfigError(
                    f"objective.kind = translation needs data.{name}: give a language code, such "
                    "as de"
                )
        if data.corpus is not None:
            if data.corpus not in PARALLEL_CORPORA:
                raise ConfigError(
                    f"data.corpus = {_names(data.corpus)} has no translations: give one of "
                    f"{', '.join(PARALLEL_CORPORA)}, or files of pairs"
                )
            if data.path or data.source_path or data.target_path:
                raise ConfigError(
                    f"data.corpus = {_names(data.corpus)} and a path both name translation pairs: "
                    "leave one out"
                )
        _check_compilation(recipe)
        _check_tokenizer(recipe)
    elif isinstance(objective, SpanObjective):
        _check_spans(recipe, objective)
    check_tables(recipe)
    n_frozen, freeze = recipe.init.frozen.n_layers, _names(recipe.init.freeze)
    if n_frozen and model.kind == "encoder-decoder":
        raise ConfigError(
            f"init.freeze = {freeze} names the first blocks of one stack, but model.kind = "
            "encoder-decoder has two stacks: leave it out, or give init.freeze=embeddings"
        )
    n_there = model.n_layers if recipe.init.layers is None else recipe.init.layers
    if n_frozen > n_there:
        what = "the model"
        if recipe.init.layers is not None:
            what = f"the model that init.layers = {recipe.init.layers} copies"
        raise ConfigError(
            f"init.freeze = {freeze} is more than the {count(n_there, 'block')} of {what}"
        )
    last = last_of_same_weights(model, n_frozen) if n_frozen else 0
    if last > n_frozen:
        raise ConfigError(
            f"init.freeze = {freeze}, but later blocks share these weights (model.share = "
            f"{model.share}): give layers:{last}, or leave it out"
        )
    if train.best_by != "last" and not data.holds_out("valid"):
        raise ConfigError(
            f"train.best_by = {train.best_by} needs a validation split, but data.split = "
            f"{data.split} holds none out: give train.best_by = last, or a split such as 98/1/1"
        )
    if train.shard != "none" and train.exact:
        raise ConfigError(
            f"train.shard = {train.shard} contradicts train.exact = true, which sums gradients of "
            "full replicas: leave one of them out"
        )
    if isinstance(objective, SupervisedObjective) and data.task_names[0] in TASKS:
        objective.check_head(TASKS[data.task_names[0]])


def check_tables(recipe: Recipe) -> None:
    """Raise ConfigError, naming the fields, where fields of one table contradict each other.

    A run's recipe was checked completely when it was written; this check finds later edits.
    """
    _check_shares(recipe)
    _check_optimizer(recipe.optimizer)
    data, train = recipe.data, recipe.train
    n_weighted, corpora = _n_weighted(data), source_names(data.corpus)
    if n_weighted == 1 and None not in (data.path, data.corpus):
        raise ConfigError(
            "data.path and data.corpus form one mixture: give weights to both, {name = weight}, "
            "or to neither"
        )
    if n_weighted and data.windows == "shuffled":
        raise ConfigError(
            "data.windows = shuffled contradicts the weights of data.path or data.corpus: use "
            "random"
        )
    is_alone = data.path is not None and corpora == (INTRINSIC,) and not n_weighted
    if INTRINSIC in corpora and not is_alone:
        raise ConfigError(
            f"data.corpus = {INTRINSIC} needs data.path, the files of SQuAD and RACE, and is "
            "neither mixed with other texts nor weighted"
        )
    if data.tokenizer == "unigram" and data.vocab_size is not None:
        check_sentinels(data.vocab_size, data.sentinels)
    if train.patience is not None and train.best_by == "last":
        raise ConfigError(
            f"train.patience = {train.patience} has no effect with train.best_by = last, which "
            "never compares evaluations: leave it out, or give train.best_by=loss"
        )


def _names(value: Any) -> str:
    """Format a single name as is, and several as a list."""
    return value if isinstance(value, str) else ", ".join(map(str, value))


def _attends(model: ModelConfig, to: str) -> bool:
    return any(entry.kind.attends_to == to for entry in entries(model))


def _reads_memory(stack: StackShape) -> bool:
    return any(entry.kind.attends_to == "memory" for entry in stack.block)


def _check_sentences(recipe: Recipe) -> None:
    sentences, kind = recipe.data.sentences, recipe.objective.kind
    if sentences != "none":
        raise ConfigError(
            f"data.sentences = {sentences} contradicts objective.kind = {kind}, which reads "
            "unsplit text: leave it out"
        )


def _check_compilation(recipe: Recipe) -> None:
    if recipe.train.compile:
        raise ConfigError(
            "train.compile = true would recompile for every batch shape, and objective.kind = "
            f"{recipe.objective.kind} changes the shape from batch to batch: leave it out"
        )


_WITHOUT_END = ("bytes", "characters", "bpe")


_LACKING: dict[str, tuple[tuple[str, ...], str, str]] = {
    "masked": ((*_WITHOUT_END, GPT1), "[MASK]", "unigram, wordpiece or moses-bpe"),
    "translation": (_WITHOUT_END, "an end of a text and padding", "word-bpe or unigram"),
    "span": (_WITHOUT_END, "an end of a text and padding", "unigram"),
}
"""Tokenizers that lack special tokens of an objective, these tokens, and the alternatives."""


def _check_tokenizer(recipe: Recipe) -> None:
    kind, tokenizer = recipe.objective.kind, recipe.data.tokenizer
    tokenizers, what, others = _LACKING[kind]
    # An initial model has its own tokenizer.
    if recipe.init.run is None and tokenizer in tokenizers:
        raise ConfigError(
            f"data.tokenizer = {tokenizer} lacks {what}, which objective.kind = {kind} needs: "
            f"give {others}, or a file with these in its vocabulary"
        )


_FEWEST_PAIR_TOKENS = 5
"""Minimum length of a pair: three special tokens, and a token of each text."""


def _check_shares(recipe: Recipe) -> None:
    objective = recipe.objective
    if isinstance(objective, MaskedObjective) and objective.p_mask + objective.p_random > 1.0:
        raise ConfigError(
            f"objective.p_mask = {objective.p_mask:g} and objective.p_random = "
            f"{objective.p_random:g} exceed 1 together"
        )


def _check_optimizer(optimizer: OptimizerConfig) -> None:
    if (
        isinstance(optimizer, MuonConfig)
        and optimizer.adjust_lr == "original"
        and optimizer.adamw_lr is None
    ):
        raise ConfigError(
            "optimizer.adjust_lr = original has far higher rates than AdamW: give "
            "optimizer.adamw_lr, such as 3e-4"
        )
    if isinstance(optimizer, ScheduleFreeConfig) and optimizer.betas[0] == 0.0:
        raise ConfigError(
            f"optimizer.betas = {list(optimizer.betas)} takes gradients at the fast weights, where "
            "schedule-free loses their average: give a first number of more than 0, such as 0.9"
        )


def _check_masks(recipe: Recipe, objective: MaskedObjective) -> None:
    data, train = recipe.data, recipe.train
    _check_shares(recipe)
    _check_compilation(recipe)
    if objective.pairs == "sentences" and (train.tokens or train.epochs):
        raise ConfigError(
            "objective.pairs = sentences makes examples far shorter than data.context, while "
            "train.tokens and train.epochs count full windows: give train.steps"
        )
    if objective.pairs == "sentences" and train.batch_tokens and _n_weighted(data):
        raise ConfigError(
            "train.batch_tokens with objective.pairs = sentences fills each step with pairs of "
            "similar length, which contradicts the weights of data.path or data.corpus: give "
            "train.batch_sequences"
        )
    if data.sentences == "none":
        raise ConfigError(
            "objective.kind = masked reads sentences, but data.sentences = none splits none: "
            "give lines, prose or spacy"
        )
    _check_tokenizer(recipe)
    if data.context < _FEWEST_PAIR_TOKENS:
        raise ConfigError(
            f"data.context = {data.context} is too short for the pairs of texts of objective.kind "
            f"= masked: give {_FEWEST_PAIR_TOKENS} or more"
        )
    if objective.sentence != "none" and recipe.model.sentence_classes == 0:
        raise ConfigError(
            f"objective.sentence = {objective.sentence} needs a sentence head, but "
            "model.sentence_classes = 0: give 2"
        )
    if objective.pairs == "sentences" and objective.sentence == "sop":
        raise ConfigError(
            "objective.pairs = sentences makes next-sentence pairs, not the sentence-order pairs "
            "of objective.sentence = sop"
        )
    if objective.sentence == "none" and objective.single_sentence == "negative":
        raise ConfigError(
            "objective.single_sentence = negative makes labels that objective.sentence = none "
            "does not use"
        )
    if data.sentinels and data.tokenizer == "unigram":
        raise ConfigError(
            f"data.sentinels = {data.sentinels} gives data.tokenizer = unigram the ids of T5, "
            "which lack the [CLS] and [MASK] of objective.kind = masked: leave it out"
        )


def _check_spans(recipe: Recipe, objective: SpanObjective) -> None:
    data, noise = recipe.data, objective.row
    # This also raises an error for a context without room for a span.
    longest = noise.raw(objective, data.context)
    if (objective.raw_length or 0) > longest:
        raise ConfigError(
            f"objective.raw_length = {objective.raw_length} makes inputs exceed data.context = "
            f"{data.context}: give at most {longest}"
        )
    _check_sentences(recipe)
    if data.boundaries == "respect" and data.windows == "random":
        raise ConfigError(
            "data.boundaries = respect cuts each document from its start, but data.windows = "
            "random starts anywhere: give shuffled"
        )
    raw = objective.raw_length or longest
    length = noise.target(objective, raw)
    if objective.target_length not in (None, length) and not noise.cuts_targets:
        raise ConfigError(
            f"objective.target_length = {objective.target_length} differs from the length that "
            f"objective.noise = {objective.noise} makes of {raw} tokens, {length}: leave it out"
        )
    keeps_lengths = objective.noise == "spans" and data.boundaries != "respect"
    if recipe.train.compile and not keeps_lengths:
        raise ConfigError(
            "train.compile = true would recompile for every pair of lengths, and only "
            "objective.noise = spans with data.boundaries = ignore keeps them fixed: leave it out"
        )
    _check_tokenizer(recipe)
    # A tokenizer file may have sentinels.
    is_trained = recipe.init.run is None and data.tokenizer in TRAINED_TOKENIZERS
    needed = noise.n_sentinels(objective, raw) if is_trained else 0
    n_there = data.sentinels if data.tokenizer == "unigram" else 0
    if n_there >= needed:
        return
    enough = max(MOST_USED, needed)
    if data.tokenizer != "unigram":
        raise ConfigError(
            f"data.tokenizer = {data.tokenizer} has no sentinels, which objective.noise = "
            f"{objective.noise} needs: give unigram, and data.sentinels = {enough}"
        )
    raise ConfigError(
        f"data.sentinels = {data.sentinels} is too few: objective.noise = {objective.noise} uses "
        f"{needed} in pieces of {raw} tokens; give {enough}, or longer spans or a smaller "
        "data.context"
    )


def _check_answers(recipe: Recipe, objective: SupervisedObjective) -> None:
    model, data = recipe.model, recipe.data
    kinds = KINDS[objective.format]
    if model.kind not in kinds:
        fitting = next(name for name, able in KINDS.items() if model.kind in able)
        raise ConfigError(
            f"objective.format = {objective.format} needs a model.kind = {' or '.join(kinds)}, "
            f"not {model.kind}: give objective.format={fitting}"
        )
    if data.tasks is None:
        raise ConfigError(
            "objective.kind = supervised needs data.tasks: name a task, such as sst2 (`sublayer "
            "tasks` lists them)"
        )
    if data.task_names == (NAME,):
        own_table(data.path, data.columns)
    tasks, is_text = _names(data.task_names), objective.format == "text"
    if len(data.task_names) > 1 and not is_text:
        raise ConfigError(
            f"data.tasks = {tasks} is a mixture, but objective.format = {objective.format} has "
            "one head for one task: name one task, or give objective.format=text"
        )
    if data.size_limit is not None and (isinstance(data.tasks, dict) or len(data.task_names) == 1):
        raise ConfigError(
            f"data.size_limit = {data.size_limit} limits the sizes that weight the tasks of a "
            f"mixture, but data.tasks = {tasks} is one task or has weights: leave it out"
        )
    task_kind = task_of(data.task_names[0], data.columns).kind
    if task_kind == "span" and objective.format == "traversal":
        raise ConfigError(
            f"data.tasks = {tasks} asks for spans of a passage, which objective.format = "
            "traversal cannot mark with its left-to-right attention: give objective.format=text, "
            "or start from an encoder"
        )
    if task_kind == "text" and not is_text:
        raise ConfigError(
            "data.columns has a target, a text to write, but objective.format = "
            f"{objective.format} writes none: give objective.format=text, with a T5 or a decoder"
        )
    if task_kind == "text" and objective.answer == "rank":
        raise ConfigError(
            "objective.answer = rank chooses among labels, but a target is free text: leave it out"
        )
    if model.head == "none" and (is_text or objective.language_weight > 0):
        raise ConfigError(
            f"model.head = none predicts no tokens, but objective.format = {objective.format} "
            f"with objective.language_weight = {objective.language_weight:g} needs token "
            "predictions: start from a model with a head, or leave out the weight"
        )
    if task_kind == "span" and objective.zero_head:
        raise ConfigError(
            "objective.zero_head = true applies to a head for labels, choices or numbers, but "
            f"data.tasks = {tasks} asks for spans: leave it out"
        )
    if not is_text and data.context <= MARKS:
        raise ConfigError(
            f"data.context = {data.context} is too short for texts between their special tokens: "
            f"give {MARKS + 1} or more"
        )
    is_one_row = is_text and model.kind != "encoder-decoder"
    if is_one_row and data.context <= objective.target_length + 1:
        raise ConfigError(
            f"objective.target_length = {objective.target_length} leaves no room for an input in "
            f"data.context = {data.context}: give objective.target_length={data.context // 2} or "
            "less, or a model with a longer context"
        )
    _check_compilation(recipe)


def _n_weighted(data: DataConfig) -> int:
    return sum(isinstance(sources, dict) for sources in (data.path, data.corpus))
