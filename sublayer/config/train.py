"""``[train]``: length, batches and checkpoints; ``[init]``: the start of training."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from sublayer.config.objective import CausalObjective, MaskedObjective, TranslationObjective
from sublayer.config.table import (
    LARGEST_SEED,
    MOST_LAYERS,
    MOST_STEPS,
    MOST_THREADS,
    MOST_TOKENS,
    BatchTokens,
    Interval,
    List,
    Steps,
    Table,
    Tokens,
    Windows,
    checked_by,
    field,
)
from sublayer.errors import LONGEST_WORD, ConfigError
from sublayer.numbers import count
from sublayer.tasks.own_table import METRICS
from sublayer.tasks.probes import check_names
from sublayer.tasks.registry import TASKS

LAST = "last"
"""No selection: the last checkpoint becomes the model."""
_EVALUATED = {
    name: measure.is_lower_better
    for table in (TranslationObjective, CausalObjective, MaskedObjective)
    for name, measure in table.evaluated.items()
}
LOWER_IS_BETTER = tuple(name for name, is_lower_better in _EVALUATED.items() if is_lower_better)
"""For all other metrics higher is better."""
_OF_TASKS = tuple(dict.fromkeys(name for task in TASKS.values() for name in task.metrics))
_OF_TEXTS = METRICS["text"]
SELECTORS = (
    *LOWER_IS_BETTER,
    *(name for name in _EVALUATED if name not in LOWER_IS_BETTER),
    "score",
    *_OF_TASKS,
    *_OF_TEXTS,
    LAST,
)
"""All choices of ``train.best_by``; an objective has some of them."""


def is_better(name: str, values: Mapping[str, float], best: Mapping[str, float]) -> bool:
    """Return whether an evaluation is better than the best so far, by a metric of both.

    The lower loss breaks a tie where both evaluations have a loss: small tasks have few distinct
    scores, and the first model with the best of them is the least trained. Otherwise, as where the
    loss decides, the earlier one stays.
    """
    value, other = values[name], best[name]
    if value == other and {"loss"} <= values.keys() & best.keys():
        return values["loss"] < best["loss"]
    return value < other if name in LOWER_IS_BETTER else value > other


PREFIX = "probes"
"""Prefix of probe scores in an evaluation: ``probes/sst2``."""


Probes = List | dict[str, str]
"""Probes with files in the cache, or the folder of each."""


def probe_folders(probes: Probes) -> dict[str, str | None]:
    """Return the folder of each probe; None for the cache."""
    if isinstance(probes, dict):
        return dict(probes)
    return dict.fromkeys(probes)


def check_probes(probes: Probes) -> None:
    """Raise ConfigError for an unknown probe, one named twice, and a folder without a name."""
    check_names(list(probes), "train.probes: ")
    for name, folder in probe_folders(probes).items():
        if folder == "":
            raise ConfigError(f"train.probes: {name} names no folder: give the folder of its files")


if TYPE_CHECKING:
    Selector = str
else:
    Selector = Literal[SELECTORS]

LENGTHS = ("steps", "tokens", "epochs", "minutes")
BATCHES = ("batch_tokens", "batch_sequences")
OF_A_RUN = (
    "seed",
    "threads",
    "micro_batch_sequences",
    "checkpoint_steps",
    "save_in_background",
    "keep_checkpoints",
    "hang_minutes",
    "kernels",
    "replicas",
)
"""Fields specific to a run, or without effect on the trained model's numbers."""


def _check_once(steps: tuple[int, ...]) -> None:
    twice = [step for index, step in enumerate(steps) if step in steps[:index]]
    if twice:
        raise ConfigError(f"train.keep_steps names step {twice[0]} twice: give it once")


class TrainConfig(Table):
    """The run: one of steps, tokens, epochs, minutes; one of batch_tokens, batch_sequences.
    """  # fmt: skip

    steps: Interval[int | None] = field(
        None, derived="tokens, epochs or minutes; for tasks, epochs by their number of examples"
    )
    """Optimizer steps; excludes tokens, epochs, minutes."""
    tokens: float | None = field(None, unit="tokens", gt=0, le=MOST_TOKENS)
    """Tokens to train on, rounded up to steps."""
    epochs: float | None = field(None, unit="passes", gt=0, le=1e6)
    """Passes over the training split, rounded up to steps."""
    minutes: float | None = field(None, unit="minutes", gt=0, le=1e7)
    """Wall-clock time of the command after set-up, evaluation included; converted to steps by one
    measurement."""
    batch_tokens: BatchTokens[int | None] = None
    """Tokens per optimizer step, rounded to whole windows; for tasks, rows of data.context tokens
    that pack the examples; excludes batch_sequences."""
    batch_sequences: Windows[int | None] = field(None, derived="batch_tokens / context, else 16")
    """Windows per optimizer step."""
    micro_batch_sequences: Windows[int | None] = field(
        None,
        derived=(
            "1,024 tokens per thread, 4,096 up to a d_model of 128; on a GPU the whole batch; "
            "with exact at most an eighth of the batch"
        ),
        when=("micro-batches",),
    )
    """Windows per forward and backward pass, or shorter rows of as many tokens; gradients
    accumulate to the same batch."""
    recompute: Literal["none", "blocks"] = "none"
    """Activation checkpointing: the backward pass recomputes blocks instead of storing their
    activations."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products; auto measures once per machine which is faster."""
    compile: bool = field(False, when=("blocks",))
    """Compilation of the model with torch.compile (GPU)."""
    kernels: Literal["auto", "eager", "compiled"] = field("auto", when=("compiled-kernels",))
    """Kernels of feed-forward activations, RMS norms and rotary positions on a CPU: PyTorch's
    operators, or one pass compiled by a C++ compiler; auto compiles for runs of one process that it
    shortens, of some ten minutes."""
    evaluate_steps: Interval[int | None] = field(
        None,
        derived="a tenth of the run; more where ten evaluations would take over a fifth of minutes",
    )
    """Optimizer steps between evaluations on the validation split."""
    evaluate_tokens: BatchTokens[int | None] = field(
        None,
        derived=(
            "32768, or the whole split if smaller; fewer where that takes over a fifth of minutes"
        ),
    )
    """Tokens of the validation split scored by each evaluation during training, evenly spread."""
    evaluate_stride: Tokens[int | None] = field(None, when=("strides",))
    """Tokens between the windows scored by each evaluation during training, by default
    data.context; 1 gives every token the full context, at data.context times the cost."""
    probes: Annotated[Probes, checked_by(check_probes)] = field((), when=("probes",))
    """Zero-shot probes scored at every evaluation: names, with their files in the cache, or the
    folder of each, { sst2 = "glue" }. They select no checkpoint, and minutes excludes their
    time."""
    best_by: Selector = field("loss", when=("selector",))
    """Checkpoint that becomes the model: the lowest validation loss, the best value of another
    evaluation metric, such as a task's score or the BLEU of greedy translations, or the last."""
    patience: int | None = field(None, unit="evaluations", ge=1, le=MOST_STEPS)
    """Consecutive evaluations without an improvement of best_by after which the run ends early;
    unset, it takes all of its steps."""
    checkpoint_steps: Interval[int | None] = field(None, derived="evaluate_steps")
    """Optimizer steps between checkpoints."""
    save_in_background: bool = True
    """Writing of checkpoints while training continues, from copies of weights and optimizer state
    in CPU memory; false saves that memory, and training waits."""
    keep_checkpoints: int = field(2, unit="checkpoints", ge=2, le=1_000_000)
    """Newest checkpoints kept, besides the best and those of keep_steps."""
    keep_steps: Annotated[Steps, checked_by(_check_once)] = field((), unit="steps")
    """Optimizer steps with a checkpoint that is kept whatever keep_checkpoints says:
    `RUN/checkpoints/step-...` is a model to start from."""
    log_steps: Interval[int | None] = field(None, derived="a two-hundredth of the run")
    """Optimizer steps between lines of metrics.jsonl."""
    exact: bool = False
    """Bit-identical results on any number of processes: sums of gradients and losses, and dropout
    draws, follow the micro-batches of the whole batch in a fixed order. A run may continue on
    another number of processes."""
    shard: Literal["none", "optimizer", "full"] = "none"
    """Sharding over processes: optimizer, the optimizer state and the summed gradients; full, also
    the weights, gathered block by block."""
    seed: int = field(0, ge=0, le=LARGEST_SEED)
    """Seed of initial weights, data order and dropout."""
    hang_minutes: float = field(10.0, unit="minutes", gt=0, le=1e5)
    """Minutes without a response after which a process counts as hung and all end; text preparation
    by the first may take longer."""
    threads: int | None = field(
        None,
        unit="threads",
        derived="the processor's cores, divided among the processes; with exact 1",
        ge=1,
        le=MOST_THREADS,
    )
    """PyTorch CPU threads per process."""
    replicas: int | None = field(
        None,
        unit="replicas",
        derived=(
            "2 in one process on a CPU with an even number of threads, up to a d_model of 256, "
            "without dropout; else 1"
        ),
        ge=1,
        le=MOST_THREADS,
        when=("replicas",),
    )
    """Replicas of the model, with a share of the threads each: every one computes its part of the
    micro-batches, on the same weights, and gradients are summed."""

    def check_keep_steps(self, steps: int) -> None:
        """Raise ConfigError where a step of ``keep_steps`` is beyond a run of ``steps`` steps."""
        beyond = [step for step in self.keep_steps if step > steps]
        if beyond:
            raise ConfigError(
                f"train.keep_steps names step {beyond[0]}, but the run has "
                f"{count(steps, 'step')}: leave it out, or give a longer run"
            )


EMBEDDINGS = "embeddings"


_PART = re.compile(rf"{EMBEDDINGS}|layers:(0*[1-9][0-9]*)")


@dataclass(frozen=True)
class Frozen:
    """Parts of a model."""

    embeddings: bool = False
    """Everything before the first block."""
    n_layers: int = 0
    """Number of first blocks."""

    def __bool__(self) -> bool:
        """Return whether anything is named."""
        return self.embeddings or self.n_layers > 0

    def __str__(self) -> str:
        """Return the parts in words."""
        parts = [EMBEDDINGS] if self.embeddings else []
        if self.n_layers:
            blocks = "first block" if self.n_layers == 1 else f"first {self.n_layers} blocks"
            parts.append(f"the {blocks}")
        return " and ".join(parts)


NOTHING = Frozen()


def parse_freeze(words: str | tuple[str, ...]) -> Frozen:
    """Read ``embeddings``, ``layers:k``, or both. Raises ConfigError for anything else."""
    parts: dict[str, int] = {}
    for word in (words,) if isinstance(words, str) else words:
        match = _PART.fullmatch(word)
        if match is None:
            raise ConfigError(
                f"init.freeze = {word[:LONGEST_WORD]!r} is neither embeddings nor layers:K, the "
                "first K blocks, such as layers:2"
            )
        part = word.partition(":")[0]
        if part in parts:
            raise ConfigError(f"init.freeze names {part} twice: give it once")
        parts[part] = int(match[1] or 0)
    return Frozen(EMBEDDINGS in parts, parts.get("layers", 0))


class InitConfig(Table):
    """The start of training, instead of random weights."""

    run: str | None = None
    """A run, a checkpoint or an imported folder; its tokenizer comes with it."""
    layers: int | None = field(None, unit="blocks", ge=0, le=MOST_LAYERS, when=("start",))
    """Number of first blocks taken from each stack of that model; the rest start fresh."""
    freeze: Annotated[str | List, checked_by(parse_freeze)] = field((), when=("start",))
    """Frozen parts of that model: embeddings, everything before the first block; layers:K, the
    first K blocks; or both in a list."""

    @property
    def frozen(self) -> Frozen:
        """Return the parts that ``freeze`` names."""
        return parse_freeze(self.freeze)
