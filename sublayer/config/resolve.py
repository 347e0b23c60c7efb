"""Resolution of open fields of a recipe: of the model, its heads, the length and the batches."""

import math
from dataclasses import dataclass
from typing import Any, Self

from sublayer.config.contradictions import check_model
from sublayer.config.data import LETTERED_TOKENIZERS, DataConfig, task_of
from sublayer.config.model import ModelConfig, write_block
from sublayer.config.objective import SupervisedObjective
from sublayer.config.optimizers import MuonConfig, OptimizerConfig
from sublayer.config.recipe import Recipe, ResolvedModel, ResolvedTrain
from sublayer.config.stacks import key_heads, stacks
from sublayer.config.train import LENGTHS, TrainConfig
from sublayer.errors import ConfigError
from sublayer.numbers import count
from sublayer.tasks.registry import wording_of
from sublayer.tasks.task import Task


def resolve_model(model: ModelConfig, *, vocab_size: int, context: int) -> ResolvedModel:
    """Resolve every derived field of a model.

    ``vocab_size`` is the tokenizer's, ``context`` the training window in tokens. Raises ConfigError
    where fields contradict each other, and where the model has fewer tokens or positions than
    these.
    """
    check_model(model, vocab_size=vocab_size, context=context)
    if model.kind == "lstm":
        model = model.model_copy(update=OF_NO_BLOCKS)
    # Derived values may exceed the limits of given values.
    derived = derive(model, vocab_size=vocab_size, context=context)
    return ResolvedModel.model_construct(**{**dict(model), **derived})


def derive(model: ModelConfig, *, vocab_size: int, context: int) -> dict[str, Any]:
    """Return the derived fields of a model, without checking them."""
    has_final_norm = model.norm != "none" and model.norm_order != "post"
    multiple = model.vocab_multiple
    decoder: dict[str, Any] = dict.fromkeys(DECODER_FIELDS)
    if model.kind == "encoder-decoder":
        stack = stacks(model)[-1]
        block = write_block(stack.block)
        decoder = {"n_decoder_layers": stack.n_layers, "decoder_block": block}
    return {
        **decoder,
        "n_kv_heads": key_heads(model),
        # Without attention, more heads than features are allowed.
        "d_head": model.d_head or max(1, model.d_model // model.n_heads),
        "d_ff": model.d_ff or 4 * model.d_model,
        "d_embed": model.d_embed or model.d_model,
        "norm_eps": model.norm_eps or (1e-6 if model.norm == "rms" else 1e-5),
        "final_norm": model.final_norm or ("affine" if has_final_norm else "none"),
        "dropout_attention": _or(model.dropout_attention, model.dropout),
        "dropout_ffn": model.dropout_ffn or 0.0,
        "dropout_embedding": _or(model.dropout_embedding, model.dropout),
        "vocab_size": model.vocab_size or -(-vocab_size // multiple) * multiple,
        "max_len": model.max_len or context,
    }


DECODER_FIELDS = ("n_decoder_layers", "decoder_block")
"""Fields of the decoder of an encoder-decoder; None otherwise, also in a resolved config."""


OF_NO_BLOCKS: dict[str, Any] = {
    "norm": "none",
    "embedding_norm": "none",
    "positions": "none",
    "share": "none",
    "dropout_attention": 0.0,
    "dropout_final": 0.0,
    "max_len": None,
}
"""Block fields of a resolved LSTM, which tell readers of a config that it has no blocks."""


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def expected_model(recipe: Recipe, vocab_size: int) -> ResolvedModel:
    """Resolve a recipe's model with the heads that its data will need, before the data is read.

    Raises ConfigError as ``resolve_model`` does.
    """
    model = recipe.model
    if isinstance(recipe.objective, SupervisedObjective):
        model = with_heads(model, recipe.objective, expected_tasks(recipe.data)[0])
    return resolve_model(model, vocab_size=vocab_size, context=recipe.data.context)


def expected_tasks(data: DataConfig) -> tuple[Task, ...]:
    """Return the tasks that ``[data]`` names, before reading them."""
    return tuple(task_of(name, data.columns) for name in data.task_names)


def with_heads(model: ModelConfig, objective: SupervisedObjective, task: Task) -> ModelConfig:
    """Return a model with exactly the head that a task needs."""
    # A model fine-tuned on another task has the heads of that task.
    changes: dict[str, Any] = {"sentence_classes": 0, "label_outputs": 0, "span_head": "none"}
    if objective.format == "text":
        return model.model_copy(update=changes)
    if not objective.language_weight:
        changes.update(
            head="none",
            softmax="tokens",
            head_activation="ffn",
            head_bias=False,
            output_scale="none",
            logit_cap="none",
        )
    if task.kind == "span":
        joint = "joint" if task.has_unanswerable else "independent"
        changes.update(span_head=joint, pooler="none")
    else:
        objective.check_head(task)
        changes["label_outputs"] = n_outputs(task, logistic=objective.logistic)
    return model.model_copy(update=changes)


def n_outputs(task: Task, *, logistic: bool = False) -> int:
    """Count the outputs of a label head: one for each class, or one for choices or numbers.

    With ``logistic`` there is one for two classes, too.
    """
    return len(task.labels) if task.kind == "classes" and not logistic else 1


def rows_of_example(recipe: Recipe) -> int:
    """Count the rows of an example, which must be computed in one micro-batch.

    There is one per choice (some examples may have more), or per order of two texts.
    """
    objective = recipe.objective
    if not isinstance(objective, SupervisedObjective) or objective.format == "text":
        return 1
    task = expected_tasks(recipe.data)[0]
    wording = wording_of(task)
    if task.kind == "choice":
        columns = recipe.data.columns or {}
        return len(columns["choices"]) if "choices" in columns else wording.n_choices
    return 2 if objective.format == "traversal" and task.is_symmetric else 1


_EPOCHS = 3.0
_FEWEST_EXAMPLES, _MOST_EPOCHS = 24_000, 20.0
_MOST_EXAMPLES, _FEWEST_EPOCHS = 200_000, 1.0


class TaskEpoch(int):
    """Number of tokens in an epoch of tasks, as steps count them, with its number of examples."""

    n_examples: int

    def __new__(cls, tokens: int, n_examples: int) -> Self:
        """Create the number of tokens."""
        epoch = super().__new__(cls, tokens)
        epoch.n_examples = n_examples
        return epoch


def default_epochs(n_examples: int) -> float:
    """Return the default number of epochs for a task of ``n_examples`` training examples.

    It is three; for a small task, enough for 24,000 examples, at most 20; for a large task, enough
    for 200,000 examples, at least one. Tasks of 250 to 400,000 rows thus take 5,000 to 400,000
    examples.
    """
    for_small = min(_MOST_EPOCHS, _FEWEST_EXAMPLES / n_examples)
    for_large = max(_FEWEST_EPOCHS, _MOST_EXAMPLES / n_examples)
    return min(max(_EPOCHS, for_small), for_large)


EVALUATIONS = 10
"""Default number of evaluations of a run, if its minutes allow it."""
_EVALUATION_SHARE = 0.2
"""Maximum share of evaluations in a run by minutes."""
_LOG_LINES = 200
_CHECKPOINTS_AND_LOGS = 0.01
"""Share of a run by minutes that is spent neither on steps nor on evaluations."""
_WARMUP_SHARE = 0.05
_EVALUATE_TOKENS = 32768
_CACHE_TOKENS, _CACHE_TOKENS_NARROW = 1024, 4096
"""Number of tokens of a micro-batch per thread.

With fewer, threads wait for each other; more exceed the cache. Measured at a d_model of 256 and
512, and of 128, where the overhead of small products is largest.
"""
_NARROW = 128
_REPLICATED = 256
"""Largest d_model with two replicas by default, whose gradients take memory."""
_EXACT_PARTS = 8
"""Number of micro-batches of a step with ``exact``, and thus of processes that can share it."""


def batch_sequences(recipe: Recipe) -> int:
    """Return the windows per step: ``batch_sequences``, ``batch_tokens`` in windows, or 16."""
    train = recipe.train
    if train.batch_tokens is not None:
        return max(1, round(train.batch_tokens / recipe.data.context))
    return train.batch_sequences or 16


def evaluation_effort(recipe: Recipe) -> float:
    """Return the tokens computed per scored token in an evaluation during training."""
    stride = recipe.train.evaluate_stride
    return 1.0 if stride is None else recipe.data.context / stride


def run_steps(recipe: Recipe, *, train_tokens: int | None) -> int | None:
    """Return the optimizer steps of a run, or None if the recipe alone does not determine them.

    A measurement (minutes) or the data (epochs) must then do so. ``train_tokens`` is the size of
    the training split, None if unknown. Tasks have the epochs of ``default_epochs`` unless set.
    Raises ConfigError where no length is set.
    """
    train = recipe.train
    if train.steps is not None:
        return train.steps
    tokens = train.tokens
    has_epochs = train.minutes is None and recipe.objective.text == "tasks"
    if tokens is None and (train.epochs is not None or has_epochs):
        if train_tokens is None:
            return None
        n_examples = getattr(train_tokens, "n_examples", train_tokens // recipe.data.context)
        epochs = default_epochs(n_examples) if train.epochs is None else train.epochs
        tokens = epochs * train_tokens
    if tokens is not None:
        return max(1, math.ceil(tokens / (batch_sequences(recipe) * recipe.data.context)))
    if train.minutes is not None:
        return None
    raise ConfigError(
        f"the run has no length: give one of {', '.join(f'train.{name}' for name in LENGTHS)}"
    )


@dataclass(frozen=True)
class Length:
    """Length of a run, and its evaluations during training."""

    steps: int
    n_evaluations: int = EVALUATIONS
    evaluate_tokens: int | None = None
    """Number of tokens that each evaluation scores; None: the default."""


def length_in(
    minutes: float,
    step_s: float,
    evaluation_s: float,
    *,
    evaluate_steps: int | None,
    scored_tokens: int | None,
) -> Length:
    """Compute the length that fits into ``minutes`` of wall clock, at most a fifth for evaluations.

    If ten evaluations would take more, there are fewer; if a single one would, it scores fewer
    tokens than the ``scored_tokens`` of the measured ``evaluation_s``. Settings of the recipe are
    kept: ``evaluate_steps``, and the number of tokens if ``scored_tokens`` is None. Raises
    ConfigError if not even one step fits.
    """
    seconds = 60.0 * minutes * (1.0 - _CHECKPOINTS_AND_LOGS)
    n_evaluations = EVALUATIONS
    tokens = None
    if evaluate_steps is not None:
        steps = seconds / (step_s + evaluation_s / evaluate_steps)
    else:
        limit = _EVALUATION_SHARE * seconds
        n_that_fit = int(limit / max(evaluation_s, 1e-9))
        n_evaluations = max(1, min(EVALUATIONS, n_that_fit))
        one_s = evaluation_s
        if evaluation_s > limit and scored_tokens is not None:
            tokens = max(1, int(scored_tokens * limit / evaluation_s))
            one_s = evaluation_s * tokens / scored_tokens
        steps = (seconds - n_evaluations * one_s) / step_s
    if steps < 1:
        raise ConfigError(
            f"train.minutes = {minutes:g} is too short: a step takes {format_step(step_s)} "
            f"and an evaluation {format_step(evaluation_s)} here"
        )
    return Length(int(steps), n_evaluations, tokens)


def format_step(seconds: float) -> str:
    """Format the seconds of a step or an evaluation, with two digits below a hundred."""
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    return f"{seconds:.2g} s"


def in_proportion(step: int, *, of: int, to: int) -> int:
    """Return the step of a run of ``to`` steps at the same fraction as ``step`` of ``of``."""
    return max(1, round(step * to / of))


def run_threads(train: TrainConfig, shared: int) -> int:
    """Return the threads of a run's process with ``shared`` cores.

    With ``exact`` it is one on any machine, since results may depend on the number of threads.
    """
    return train.threads or (1 if train.exact else max(1, shared))


def may_have_replicas(recipe: Recipe) -> bool:
    """Return whether a process may train with several replicas, of which none draws at random."""
    dropouts = ("dropout", "attention", "ffn", "embedding", "final")
    names = (name if name == "dropout" else f"dropout_{name}" for name in dropouts)
    draws = any(getattr(recipe.model, name) for name in names)
    if isinstance(recipe.objective, SupervisedObjective) and recipe.objective.format != "text":
        draws |= recipe.objective.dropout > 0.0
    return not (draws or recipe.train.exact or recipe.train.compile)


def resolve_train(
    recipe: Recipe,
    *,
    steps: int,
    valid_tokens: int | None,
    is_gpu: bool,
    threads: int,
    n_evaluations: int = EVALUATIONS,
    evaluate_tokens: int | None = None,
    n_processes: int = 1,
) -> ResolvedTrain:
    """Resolve ``[train]`` for a run of ``steps`` optimizer steps, except the precision.

    ``valid_tokens`` is the size of the validation split; if it is None, as many tokens as an
    evaluation scores are assumed. On a GPU a batch is one micro-batch, unless the recipe sets
    another size; on a CPU a micro-batch fits into the caches of ``threads`` threads.
    """
    train = recipe.train
    sequences = batch_sequences(recipe)
    threads = run_threads(train, threads)
    is_narrow = recipe.model.d_model <= _NARROW
    tokens_per_thread = _CACHE_TOKENS_NARROW if is_narrow else _CACHE_TOKENS
    cached_tokens = threads * tokens_per_thread
    cached_sequences = max(1, cached_tokens // recipe.data.context)
    default_micro = sequences if is_gpu else cached_sequences
    if train.exact:
        default_micro = min(default_micro, math.ceil(sequences / _EXACT_PARTS))
    micro = min(train.micro_batch_sequences or default_micro, sequences)
    replicas = train.replicas
    if replicas is None:
        is_alone = n_processes == 1 and not is_gpu and may_have_replicas(recipe)
        has_both = threads % 2 == 0 and micro > 1 and recipe.model.d_model <= _REPLICATED
        replicas = 2 if is_alone and has_both else 1
    if threads % replicas or micro < replicas:
        raise ConfigError(
            f"train.replicas = {replicas} must divide train.threads = {threads}, and be at most "
            f"train.micro_batch_sequences = {micro}: leave it out"
        )
    evaluate_steps = train.evaluate_steps or max(1, math.ceil(steps / n_evaluations))
    most_tokens = evaluate_tokens or _EVALUATE_TOKENS
    scored_tokens = min(most_tokens, valid_tokens or most_tokens)
    derived = {
        "steps": steps,
        "batch_sequences": sequences,
        "micro_batch_sequences": micro,
        "evaluate_steps": evaluate_steps,
        "evaluate_tokens": train.evaluate_tokens or scored_tokens,
        "checkpoint_steps": train.checkpoint_steps or evaluate_steps,
        "log_steps": train.log_steps or max(1, steps // _LOG_LINES),
        "threads": threads,
        "replicas": replicas,
    }
    # Derived values may exceed the limits of given values.
    return ResolvedTrain.model_construct(**{**dict(train), **derived})


def resolve_optimizer(optimizer: OptimizerConfig, *, steps: int) -> OptimizerConfig:
    """Resolve the warm-up of a run of ``steps`` optimizer steps, and the rate of Muon's AdamW.

    Raises as ``warmup_steps`` does.
    """
    derived: dict[str, Any] = {"warmup_steps": warmup_steps(optimizer, steps)}
    if isinstance(optimizer, MuonConfig):
        derived["adamw_lr"] = optimizer.adamw_lr or optimizer.lr
    return optimizer.model_copy(update=derived)


def warmup_steps(optimizer: OptimizerConfig, steps: int) -> int:
    """Return the number of warm-up steps in a run of ``steps`` optimizer steps.

    Raises ConfigError if inverse-sqrt, ALBERT's or GPT-1's warm-up has none, and for a warm-up
    longer than the run.
    """
    needing = ""
    if optimizer.schedule == "inverse-sqrt":
        needing = "optimizer.schedule = inverse-sqrt"
    elif optimizer.warmup in ("albert", "gpt1"):
        needing = f"optimizer.warmup = {optimizer.warmup}"
    warmup = optimizer.warmup_steps
    if warmup is None:
        share = _WARMUP_SHARE if optimizer.warmup_share is None else optimizer.warmup_share
        fewest = 1 if needing and share > 0 else 0
        warmup = max(round(share * steps), fewest)
    if needing and warmup < 1:
        raise ConfigError(f"{needing} needs optimizer.warmup_steps of at least 1")
    # A constant warm-up may be longer than the run, whose rate is then constant.
    if warmup > steps and optimizer.warmup != "constant":
        raise ConfigError(
            f"optimizer.warmup_steps = {warmup} is longer than the run of {count(steps, 'step')}: "
            f"give optimizer.warmup_share, such as {_WARMUP_SHARE:g} of the run, or a longer run"
        )
    return warmup


MEASURED = ("train.steps", "train.precision")
"""Derived fields whose values, and thus results, differ between machines or days."""


def derived_fields(unresolved: Recipe, resolved: Recipe) -> list[str]:
    """Return each ``table.field`` that is derived: unset or ``auto`` in ``unresolved``.

    Besides the derived fields of ``resolved`` this is ``data.keep_accents`` of a trained
    vocabulary.
    """
    before = unresolved.model_dump()
    after = resolved.model_dump()
    derived = []
    for table, values in after.items():
        if not isinstance(values, dict):  # a heading
            continue
        for name, value in values.items():
            if value != before[table].get(name):
                derived.append(f"{table}.{name}")
    data = unresolved.data
    if data.keep_accents is None and data.tokenizer in LETTERED_TOKENIZERS:
        derived.append("data.keep_accents")
    return derived


def check_shares(recipe: Recipe, n_processes: int, *, is_gpu: bool) -> None:
    """Raise ConfigError if one of several processes would get no part of a batch.

    This follows from the recipe alone, before a text is read.
    """
    if n_processes == 1:
        return
    # Only the batches are needed, so that any length and any split serve; exact has one thread.
    train = resolve_train(recipe, steps=1, valid_tokens=1, is_gpu=is_gpu, threads=1)
    sequences = train.batch_sequences
    if sequences < n_processes:
        name, size = "train.batch_sequences", n_processes
        value = f"{sequences}"
        if recipe.train.batch_tokens is not None:
            name, size = "train.batch_tokens", n_processes * recipe.data.context
            value = f"{recipe.train.batch_tokens}, {count(sequences, 'window')},"
        raise ConfigError(
            f"{name} = {value} is too small for {n_processes} processes: start fewer, or give "
            f"{name}={size} or more"
        )
    n_parts = train.n_micro_batches
    if train.exact and n_parts < n_processes:
        raise ConfigError(
            f"train.exact divides a step into {count(n_parts, 'micro-batch')}, too few for "
            f"{n_processes} processes: start fewer, or give "
            f"train.micro_batch_sequences={sequences // n_processes}"
        )
