"""Losses of recipes of every kind over twenty steps, initial weights and the last checkpoint."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

import sublayer
from tests.golden.core import compare, digest, expect_names
from tests.golden.texts import write_texts

SUBJECT, STORIES = "recipes", "stories.txt"
ROOT = Path(__file__).parents[2]
STEPS = 20
TOLERANCE = 1e-5
NOISE = 1e-5
"""Tensors of a smaller norm are moved by rounding alone, such as a bias that a softmax ignores."""
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

RECIPES = {
    "decoder": ("gpt", STORIES, f"{BLOCKS} {ADAM}"),
    "modern decoder": ("modern", STORIES, f"{BLOCKS} {ADAM} data.tokenizer=characters"),
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


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    write_texts(folder)
    return folder


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def settings_of(words: str, path: Path) -> list[str]:
    """Return the common settings, with those of a recipe over them."""
    split = "" if path.is_dir() else "data.split=80/10/10"
    settings = dict(word.split("=", 1) for word in f"{COMMON} {split} {words}".split())
    if "train.batch_tokens" in settings:
        del settings["train.batch_sequences"]
    return [*map("=".join, settings.items()), f"data.path={path}"]


def results(run: Path) -> tuple[dict[str, object], dict[str, object]]:
    """Return what a run measured and its weights' norms, and what is held to the bit."""
    columns: dict[str, list[float]] = {}
    for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()):
        for name in line.keys() - {"kind", "step", "seconds"}:
            columns.setdefault(f"{line['kind']} {name}", []).append(line[name])
    columns = dict(sorted(columns.items()))
    weights = load_file(run / "model" / "model.safetensors")
    norms = {name: float(weight.double().norm()) for name, weight in sorted(weights.items())}
    norms = {name: norm if norm > NOISE else 0.0 for name, norm in norms.items()}
    checkpoint = run / "checkpoints" / f"step-{STEPS:08}"
    files = sorted(checkpoint.rglob("*.safetensors"))
    sums = {path.relative_to(checkpoint).as_posix(): digest(load_file(path)) for path in files}
    bits = {"metrics": columns, "model": digest(weights), "checkpoint": sums}
    return {"metrics": columns, "norms": norms}, bits


@pytest.mark.parametrize("name", RECIPES)
def test_twenty_steps(name: str, texts: Path, tmp_path: Path) -> None:
    recipe, path, words = RECIPES[name]
    settings = settings_of(words, texts / path)
    initial = sublayer.from_recipe(recipe, settings).state_dict()
    sublayer.train(recipe, settings, out=tmp_path / "run", device="cpu")
    found, bits = results(tmp_path / "run")
    compare(SUBJECT, name, found, tolerance=TOLERANCE, bits={"initial": digest(initial), **bits})


def test_a_warm_start(texts: Path, tmp_path: Path) -> None:
    recipe, path, words = RECIPES["decoder"]
    settings = settings_of(words, texts / path)
    sublayer.train(recipe, settings, out=tmp_path / "first", device="cpu")
    start = [f"init.run={tmp_path / 'first'}", "init.layers=1", "init.freeze=embeddings"]
    sublayer.train(recipe, [*settings, *start], out=tmp_path / "run", device="cpu")
    found, bits = results(tmp_path / "run")
    compare(SUBJECT, "warm start", found, tolerance=TOLERANCE, bits=bits)


def test_bfloat16(texts: Path, tmp_path: Path) -> None:
    recipe, path, words = RECIPES["modern decoder"]
    settings = settings_of(f"{words} train.precision=bfloat16", texts / path)
    sublayer.train(recipe, settings, out=tmp_path / "run", device="cpu")
    compare(SUBJECT, "bfloat16", {}, bits=results(tmp_path / "run")[1])


@pytest.fixture(scope="module")
def together(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of runs of 1, 2 and 4 processes with ``train.exact``, and of 2 that share."""
    folder = tmp_path_factory.mktemp("together")
    words = f"{BLOCKS} {ADAM} model.dropout=0.1 train.batch_sequences=8"
    exact = settings_of(f"{words} train.exact=true train.micro_batch_sequences=1", texts / STORIES)
    full = settings_of(f"{words} train.shard=full", texts / STORIES)
    ways = {"exact-1": exact, "exact-2": exact, "exact-4": exact, "full-2": full}
    end = ["--device", "cpu", "--out"]
    trainings = [
        (int(name[-1]), ["train", "gpt", *settings, *end, str(folder / name)])
        for name, settings in ways.items()
    ]
    command = [sys.executable, "-m", "tests.golden.processes", json.dumps(trainings)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr[-6000:]
    return folder


def test_exact_on_one_two_and_four_processes(together: Path) -> None:
    found, bits = results(together / "exact-1")
    for n_processes in (2, 4):
        assert results(together / f"exact-{n_processes}") == (found, bits)
    compare(SUBJECT, "exact on 1, 2, 4 processes", found, tolerance=TOLERANCE, bits=bits)


def test_sharded_on_two_processes(together: Path) -> None:
    found, bits = results(together / "full-2")
    compare(SUBJECT, "sharded on 2 processes", found, tolerance=TOLERANCE, bits=bits)


def test_nothing_else_is_on_file() -> None:
    others = ["warm start", "bfloat16", "exact on 1, 2, 4 processes", "sharded on 2 processes"]
    expect_names(SUBJECT, [*RECIPES, *others])
