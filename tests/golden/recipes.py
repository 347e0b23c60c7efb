"""Recipes of every kind that are trained for twenty steps, and the batches of recipes."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch

from sublayer.config.load import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.objective.base import family_of
from sublayer.runs.session import Place, prepare_data, resolve
from sublayer.training.world import World
from tests.golden.core import digest

STORIES = "stories.txt"
STEPS = 20
# With an ordinary eps, Adam makes full steps of rounding alone where a gradient is 0, such as the
# keys' biases, and processors round differently.
COMMON = f"""
    model.n_layers=2 model.d_model=16 data.context=32
    optimizer.lr=0.01 train.steps={STEPS} train.batch_sequences=4 train.log_steps=1
    train.evaluate_steps={STEPS // 2} train.checkpoint_steps={STEPS} train.best_by=last
    train.precision=float32 train.threads=1
"""
BLOCKS = "model.n_heads=2 model.d_ff=24"
ADAM = "optimizer.eps=1e-4"
ENCODER = f"{BLOCKS} data.sentences=lines data.documents=blank-line data.vocab_size=110"
SPANS = f"{BLOCKS} data.vocab_size=100 data.sentinels=16 model.vocab_multiple=1"
TASK = f"{BLOCKS} optimizer.eps=1e-3 data.vocab_size=100 objective.kind=supervised"

RECIPES: dict[str, tuple[str, str, str]] = {
    "decoder": ("gpt", STORIES, f"{BLOCKS} {ADAM}"),
    "modern decoder": ("llama-2023", STORIES, f"{BLOCKS} {ADAM} data.tokenizer=characters"),
    "macaron decoder in micro-batches": (
        "macaron",
        STORIES,
        f"{BLOCKS} {ADAM} data.tokenizer=bpe data.vocab_size=280 data.windows=shuffled"
        " train.batch_sequences=7 train.micro_batch_sequences=3",
    ),
    "gpt1 with dropout": (
        "gpt1-small",
        STORIES,
        f"{BLOCKS} {ADAM} data.merges=60 optimizer.warmup_steps=4",
    ),
    "lstm": (
        "gpt1-lstm",
        STORIES,
        f"{ADAM} model.d_embed=12 data.tokenizer=bytes optimizer.warmup_steps=2",
    ),
    "character transformer": ("char-small", STORIES, f"{BLOCKS} model.dropout_ffn=0.2"),
    "encoder, sentence order": ("albert-small", STORIES, f"{ENCODER} model.d_embed=8"),
    "encoder, next sentence": (
        "bert-base",
        STORIES,
        f"{ENCODER} data.tokenizer=wordpiece data.watch=[]"
        " objective.static_copies=2 optimizer.warmup_steps=3",
    ),
    "encoder, no sentence loss": (
        "macaron-bert-base-released",
        STORIES,
        f"{ENCODER} {ADAM} objective.sentence=none model.sentence_classes=0",
    ),
    "translator": (
        "iwslt14-small-macaron",
        "pairs.tsv",
        f"{BLOCKS} {ADAM} data.vocab_size=110 optimizer.warmup_steps=5 train.batch_tokens=150",
    ),
    "spans, adafactor": ("t5-small", "stories.txt", SPANS),
    "spans of iid noise": ("t5-mini", STORIES, f"{SPANS} {ADAM} objective.noise=iid"),
    "pair task, encoder": ("albert-small", ".", f"{TASK} model.d_embed=8 data.tasks=rte"),
    "traversal task, decoder": (
        "gpt",
        ".",
        f"{TASK} data.tokenizer=unigram objective.format=traversal objective.language_weight=0.5"
        " data.tasks=copa",
    ),
    "text task, encoder-decoder": (
        "t5-mini",
        ".",
        f"{TASK} data.sentinels=16 objective.format=text objective.target_length=8"
        " data.tasks={sst2=1.0,rte=2.0}",
    ),
    "question answering": (
        "albert-small",
        ".",
        f"{TASK} model.d_embed=8 objective.doc_stride=8 data.tasks=squad",
    ),
}


def settings_of(words: str, path: Path) -> list[str]:
    """Return the common settings, with those of a recipe over them."""
    split = "" if path.is_dir() else "data.split=80/10/10"
    settings = dict(word.split("=", 1) for word in f"{COMMON} {split} {words}".split())
    if "train.batch_tokens" in settings:
        del settings["train.batch_sequences"]
    return [*map("=".join, settings.items()), f"data.path={path}"]


def tiny_widths(model: ModelConfig) -> dict[str, int]:
    """Return the sizes with which the model of any recipe is tiny, and keeps its parameters."""
    sizes = {"n_layers": 3, "d_model": 16, "d_ff": 24, "d_embed": 8, "n_heads": 2}
    return {name: size for name, size in sizes.items() if getattr(model, name) is not None}


def batches_of(recipe: str, settings: list[str]) -> dict[str, dict[str, str]]:
    """Return the shape and checksum of each tensor of some batches, by step, process and field."""
    loaded = load_recipe(recipe, settings)
    data = prepare_data(loaded.recipe)
    place = Place(torch.device("cpu"), World(rank=0, size=1), trains=False)
    resolved = resolve(loaded.recipe, data, place)
    batches = family_of(resolved.objective).batches(resolved, data.train)
    shares = [(0, 0, 1), (STEPS - 1, 0, 1), (1, 1, 2)]
    return {
        f"step {step + 1}, process {rank + 1} of {world}": dict(
            _tensors("", batches.batch(step, rank, world))
        )
        for step, rank, world in shares
    }


def _tensors(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if is_dataclass(value):
        for each in fields(value):
            yield from _tensors(f"{name}.{each.name}".lstrip("."), getattr(value, each.name))
    elif isinstance(value, torch.Tensor):
        shape = "x".join(map(str, value.shape))
        yield name, f"{shape} {digest({'': value})[:16]}"
