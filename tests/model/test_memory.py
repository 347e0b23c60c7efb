"""The memory that a config is said to need is what autograd keeps and what a step allocates."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from sublayer.config.layers import load_recipe
from sublayer.config.length import resolve_optimizer, resolve_train
from sublayer.config.objective import CausalObjective, MaskedObjective, TranslationObjective
from sublayer.config.optimizer import AdamConfig, AdamWConfig, LambConfig, OptimizerConfig, SgdConfig
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import resolve_model
from sublayer.data.batches import Batch, Windows
from sublayer.data.characters import ByteTokenizer
from sublayer.data.packed import PairBatch
from sublayer.data.split import Split
from sublayer.data.store import TokenStore
from sublayer.data.translation_batches import TranslationBatch
from sublayer.model.build import build
from sublayer.model.memory import saved_activations, saved_casts, training_memory
from sublayer.model.passes import Pass
from sublayer.objective.build import build_objective
from sublayer.study.random_pairs import RandomPairs, RandomTranslations
from sublayer.train.distributed import World
from sublayer.train.precision import bfloat16_gain, own_clocks
from sublayer.train.step import TrainStep

MODELS: list[dict[str, Any]] = [
    {},
    {"dropout": 0.1, "dropout_ffn": 0.1},
    {"ffn": "swiglu", "norm": "rms", "positions": "rotary", "bias": False},
    {"ffn": "geglu", "block": ("ffn:relu*0.5", "attention", "ffn*0.5"), "norm_order": "post"},
    {"ffn": "bilinear", "share": "all", "norm": "none", "positions": "learned-per-layer"},
    {
        "ffn": "relu",
        "positions": "learned-per-layer",
        "dropout_attention": 0.5,
        "dropout_ffn": 0.5,
        "final_norm": "plain",
    },
    {"d_embed": 32, "head_bias": True, "gelu": "exact", "tie_embeddings": False},
]
PRECISIONS = ("float32", "bfloat16")
ENCODER: dict[str, Any] = {"kind": "encoder", "segments": "both", "head": "transform", "dropout": 0.1}
BERT = {**ENCODER, "norm_order": "post", "embedding_norm": True, "pooler": "tanh", "sentence_classes": 2}
ENCODERS: list[dict[str, Any]] = [
    BERT,
    {**BERT, "d_embed": 32, "embedding_projection": "sum", "share": "all", "dropout": 0.0},
    {**BERT, "d_embed": 32, "embedding_projection": "sum", "share": "all", "norm": "rms", "head_activation": "relu"},
    {**BERT, "d_embed": 64, "ffn": "relu", "head_bias": True, "gelu": "exact", "head_activation": "gelu"},
    {**ENCODER, "segments": "second", "sentence_classes": 1, "norm_affine": False, "positions": "sinusoidal"},
    {**ENCODER, "norm": "rms", "positions": "rotary", "head_activation": "swish", "project_embeddings": "always"},
    {"kind": "encoder", "embedding_norm": True, "tie_embeddings": False, "ffn": "swiglu"},
]
TRANSLATION = {
    "objective.kind": "translation",
    "objective.label_smoothing": 0.1,
    "data.corpus": "iwslt14",
    "data.source_language": "de",
    "data.target_language": "en",
    "data.tokenizer": "word-bpe",
}
TRANSLATOR: dict[str, Any] = {"kind": "encoder-decoder", "positions": "sinusoidal", "n_layers": 3}
TRANSLATORS: list[dict[str, Any]] = [
    {**TRANSLATOR, "dropout": 0.1, "ffn": "relu"},
    {**TRANSLATOR, "block": "macaron", "dropout": 0.1, "dropout_attention": 0.2, "dropout_ffn": 0.1},
    {**TRANSLATOR, "norm_order": "post", "n_decoder_layers": 2, "tie_embeddings": False, "positions": "learned"},
    {**TRANSLATOR, "ffn": "swiglu", "norm": "rms", "bias": False, "share": "all", "d_embed": 32, "positions": "rotary"},
]
VOCAB_SIZE, CONTEXT, SEQUENCES = 384, 96, 5


def make_pass(fields: dict[str, Any], precision: Any) -> Pass:
    settings = {"model.n_layers": 5, "model.d_model": 96, **{f"model.{k}": v for k, v in fields.items()}}
    if fields.get("kind") == "encoder":
        settings |= {"objective.kind": "masked", "data.sentences": "lines", "data.tokenizer": "unigram"}
        settings |= {"objective.sentence": "sop"} if fields.get("sentence_classes") else {}
    if fields.get("kind") == "encoder-decoder":
        settings |= TRANSLATION
    recipe = load_recipe("gpt", settings).recipe
    config = resolve_model(recipe.model, vocab_size=VOCAB_SIZE, context=CONTEXT)
    return Pass(config, sequences=SEQUENCES, context=CONTEXT, precision=precision, objective=recipe.objective)


@contextmanager
def kept_storages(sizes: dict[int, int]) -> Iterator[None]:
    """Collect the storages that autograd saves while entered, by address; views of one count once."""

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield


@pytest.mark.parametrize(
    ("fields", "precision"),
    [
        pytest.param(fields, precision, marks=[] if (number + place) % 2 else pytest.mark.slow)
        for number, fields in enumerate([*MODELS, *ENCODERS, *TRANSLATORS])
        for place, precision in enumerate(PRECISIONS)
    ],
    ids=str,
)
def test_what_autograd_keeps_is_what_is_said(fields: dict[str, Any], precision: str) -> None:
    step = make_pass(fields, precision)
    check_saved(step)


def make_batch(step: Pass) -> Batch | PairBatch | TranslationBatch:
    if not isinstance(step.objective, CausalObjective):
        return make_pairs(step, SEQUENCES).batch(0)
    n_ahead = step.objective.targets
    ids = torch.randint(VOCAB_SIZE, (SEQUENCES, CONTEXT + n_ahead))
    targets = [ids[:, ahead : ahead + CONTEXT].contiguous() for ahead in range(1, n_ahead + 1)]
    further = torch.stack(targets[1:]) if targets[1:] else None
    return Batch(ids[:, :CONTEXT].contiguous(), targets[0], None, further=further)


def make_pairs(step: Pass, n_sequences: int) -> RandomPairs | RandomTranslations:
    if isinstance(step.objective, TranslationObjective):
        return RandomTranslations(VOCAB_SIZE, step.context, n_sequences)
    assert isinstance(step.objective, MaskedObjective)
    return RandomPairs(step.objective, VOCAB_SIZE, step.context, n_sequences)


def check_saved(step: Pass) -> None:
    objective, batch = build_objective(build(step.config, seed=0), step.objective).train(), make_batch(step)
    sizes: dict[int, int] = {}
    with kept_storages(sizes), torch.autocast("cpu", dtype=torch.bfloat16, enabled=step.precision == "bfloat16"):
        total = sum(objective(batch).values(), torch.zeros(()))
    for parameter in objective.parameters():
        sizes.pop(parameter.untyped_storage().data_ptr(), None)
    assert total.requires_grad
    assert saved_activations(step) + saved_casts(step) == pytest.approx(sum(sizes.values()), rel=0.03)


def make_step(step: Pass, optimizer: OptimizerConfig, n_passes: int) -> TrainStep:
    batch = step.sequences * n_passes
    settings = {"data.context": step.context, "train.batch_sequences": batch, "train.threads": 1}
    settings |= {"train.micro_batch_sequences": step.sequences, "train.precision": step.precision}
    settings |= {"train.recompute": "blocks" if step.recomputes else "none"}
    recipe: Recipe = load_recipe("gpt", settings).recipe
    train = resolve_train(recipe, steps=9, valid_tokens=step.context, is_gpu=False, threads=1)
    filled = {"model": step.config, "train": train, "optimizer": resolve_optimizer(optimizer, steps=9)}
    objective = build_objective(build(step.config, seed=0), step.objective)
    resolved, device, world = recipe.model_copy(update=filled), torch.device("cpu"), World(rank=0, size=1)
    if not isinstance(step.objective, CausalObjective):
        return TrainStep(resolved, objective, make_pairs(step, batch), device=device, world=world)
    ids, starts = np.zeros(2000, dtype=np.int64), np.zeros(1, dtype=np.int64)
    split = Split("train", TokenStore(ids, starts, starts, len(ids), "", is_lossless=True), ByteTokenizer(), ("",))
    n_ahead = step.objective.targets
    windows = Windows(split, context=step.context, batch_sequences=batch, seed=0, boundaries="ignore", n_ahead=n_ahead)
    return TrainStep(resolved, objective, windows, device=device, world=world)


def allocated_peak(take_step: TrainStep) -> int:
    """Measure the most bytes that a step holds beyond those before it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        take_step(1)
    assert profiler.profiler is not None and profiler.profiler.kineto_results is not None
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = np.cumsum([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())])
    return int(held.max())


# Of the eight kinds of step each model is measured in one every time: in these in turn, which have each choice.
OFTEN = [(1, "bfloat16", False), (2, "float32", True)]
STEPS = [
    pytest.param(fields, *kind, marks=[] if kind == OFTEN[number % 2] else pytest.mark.slow)
    for number, fields in enumerate([*MODELS, *ENCODERS, *TRANSLATORS])
    for kind in product([1, 2], PRECISIONS, [False, True])
]


@pytest.mark.parametrize(("fields", "n_passes", "precision", "recomputes"), STEPS, ids=str)
def test_a_step_allocates_what_is_said(fields: dict[str, Any], n_passes: int, precision: str, recomputes: bool) -> None:
    step = replace(make_pass(fields, precision), recomputes=recomputes)
    optimizer = load_recipe("gpt").recipe.optimizer
    take_step = make_step(step, optimizer, n_passes)
    take_step(0)  # makes the optimizer's state
    said = training_memory(step, optimizer, n_passes=n_passes)
    assert said.tensors - said.weights - said.optimizer == pytest.approx(allocated_peak(take_step), rel=0.1)


WHOLE = """
import json, sys, torch
from sublayer.study.fitting import step_memory
from sublayer.study.measure import train_step
from sublayer.study.resources import find_resources
from sublayer.config.layers import load_recipe, vary
from sublayer.train.memory import PeakMemory

def prepare(smaller):
    recipe = vary(load_recipe(sys.argv[1], sys.argv[2:]), smaller).recipe
    return recipe, train_step(recipe, 256, torch.device("cpu"))

small = ["model.n_layers=2", "model.d_model=32", "data.context=32", "train.batch_sequences=1"]
_, warm = prepare(small)
warm(0)  # what the program itself needs
del warm
recipe, take_step = prepare([])
with PeakMemory(torch.device("cpu")) as measured:
    for step in range(3):
        take_step(step)
said = step_memory(recipe, 256, find_resources("cpu"))
print(json.dumps([said.total - said.weights, measured.bytes]))
"""


OBJECTIVES = [CausalObjective(auxiliary="layers", targets=2), CausalObjective(positions="last")]


@pytest.mark.parametrize("precision", [pytest.param("float32", marks=pytest.mark.slow), "bfloat16"])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=["auxiliary", "last"])
@pytest.mark.parametrize("fields", [MODELS[0], pytest.param(MODELS[4], marks=pytest.mark.slow), MODELS[5]], ids=str)
def test_other_losses_keep_and_allocate_what_is_said(
    fields: dict[str, Any], objective: CausalObjective, precision: str
) -> None:
    optimizer = SgdConfig(lr=1e-2, momentum=0.9)
    for recomputes in (False, True):
        step = replace(make_pass(fields, precision), objective=objective, recomputes=recomputes)
        take_step = make_step(step, optimizer, 2)
        take_step(0)
        said = training_memory(step, optimizer, n_passes=2)
        assert said.tensors - said.weights - said.optimizer == pytest.approx(allocated_peak(take_step), rel=0.1)
    check_saved(replace(step, recomputes=False))


SMALL_ALBERT = (
    *("albert-base", "model.n_layers=8", "model.d_model=256", "model.n_heads=4", "data.context=256"),
    *("train.batch_sequences=8", "train.micro_batch_sequences=4", "optimizer.warmup_steps=1", "train.steps=9"),
)
CHARACTERS = (
    *("char-t64", "model.n_layers=24", "model.d_model=256", "model.d_ff=1024"),
    *("train.batch_sequences=4", "train.micro_batch_sequences=2"),
)

MODERN = (
    *("modern", "data.context=256", "train.batch_sequences=16", "train.micro_batch_sequences=4"),
    "train.precision=float32",
)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's peak memory")
@pytest.mark.parametrize(
    "settings",
    [
        ("gpt", "model.d_model=384", "data.context=256", "train.batch_sequences=4", "train.precision=float32"),
        ("gpt", "model.d_model=384", "data.context=256", "train.batch_sequences=16", "train.precision=float32"),
        ("gpt", "model.d_model=320", "data.context=256", "train.batch_sequences=16", "train.precision=bfloat16"),
        ("gpt", "model.d_model=256", "model.dropout=0.1", "model.n_layers=16", "train.precision=bfloat16"),
        ("gpt", "model.n_layers=24", "model.d_model=256", "train.recompute=blocks", "train.precision=float32"),
        (*MODERN, "model.d_model=384"),
        (*MODERN, "model.d_model=512"),
        (*MODERN, "model.d_model=384", "model.d_ff=384"),
        (*MODERN, "model.d_model=384", "model.d_ff=1024"),
        ("gpt", "model.d_model=384", "optimizer.kind=lamb", "train.batch_sequences=1", "train.precision=float32"),
        (*CHARACTERS, "train.precision=float32"),
        (*SMALL_ALBERT, "train.precision=float32"),
        (*SMALL_ALBERT, "train.precision=float32", "train.recompute=blocks"),
        (*CHARACTERS, "train.precision=float32", "train.recompute=blocks"),
        (*CHARACTERS, "train.precision=bfloat16", "train.recompute=blocks"),
    ],
    ids=" ".join,
)
def test_a_process_takes_what_is_said(settings: tuple[str, ...]) -> None:
    if "train.precision=bfloat16" in settings and bfloat16_gain(256, own_clocks()) == 0.0:
        pytest.skip("bfloat16 is emulated here, in minutes and with copies in float32; no run chooses it")
    command = [sys.executable, "-c", WHOLE, *settings, "train.threads=1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said, measured = json.loads(done.stdout)
    assert said == pytest.approx(measured, rel=0.1)


OPTIMIZERS: dict[str, OptimizerConfig] = {
    "momentum": SgdConfig(lr=1e-2, momentum=0.9),
    "decayed": SgdConfig(lr=1e-2, momentum=0.9, weight_decay=0.1),
    "adam": AdamConfig(),
    "adamw": AdamWConfig(),
    "uncorrected": AdamWConfig(bias_correction=False),
    "albert": LambConfig(form="albert"),
    "published": LambConfig(form="published"),
}


@pytest.mark.parametrize("fields", [MODELS[2], MODELS[4]], ids=str)
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_an_update_that_outweighs_the_activations_allocates_what_is_said(
    optimizer: OptimizerConfig, fields: dict[str, Any]
) -> None:
    step = replace(make_pass({**fields, "share": "none"}, "float32"), sequences=1, context=8)
    take_step = make_step(step, optimizer, 1)
    take_step(0)
    said = training_memory(step, optimizer, n_passes=1)
    assert said.activations < said.weights
    assert said.tensors - said.weights - said.optimizer == pytest.approx(allocated_peak(take_step), rel=0.1)


@pytest.mark.parametrize(
    ("optimizer", "states"),
    [
        (SgdConfig(lr=1e-2, momentum=0.0), 0),
        (SgdConfig(lr=1e-2, momentum=0.9), 1),
        (load_recipe("gpt").recipe.optimizer, 2),
        (OPTIMIZERS["uncorrected"], 2),
        (OPTIMIZERS["albert"], 2),
        (OPTIMIZERS["published"], 2),
    ],
    ids=["sgd", "momentum", "adamw", "uncorrected", "albert", "published"],
)
def test_an_optimizer_keeps_the_numbers_that_are_said(optimizer: OptimizerConfig, states: int) -> None:
    step = make_pass({}, "float32")
    take_step = make_step(step, optimizer, 1)
    take_step(0)
    kept = [v for state in take_step.optimizer.state.values() for v in state.values() if torch.is_tensor(v) and v.dim()]
    said = training_memory(step, optimizer, n_passes=1)
    assert said.optimizer == sum(tensor.nbytes for tensor in kept) == states * said.weights
