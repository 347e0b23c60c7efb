import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from sublayer.config.layering.layers import load_recipe, vary
from sublayer.runs.run import train_run
from sublayer.training.progress import SilentProgress
from tests.task_files import write_copa, write_rte, write_squad, write_sst2, write_stsb
from tests.torchrun import in_processes

ROOT = Path(__file__).parents[2]
WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "saw",
    "another",
    "dog",
    "run",
    "over",
    "green",
    "fields",
    "while",
    "it",
    "rained",
    "all",
    "day",
    "long",
]

TINY = {
    "model.n_layers": 2,
    "model.d_model": 24,
    "model.n_heads": 2,
    "model.dropout": 0.1,
    "data.context": 32,
    "train.steps": 24,
    "train.batch_sequences": 6,
    "train.micro_batch_sequences": 2,
    "train.evaluate_steps": 6,
    "train.checkpoint_steps": 4,
    "train.log_steps": 3,
    "train.precision": "float32",
    "train.threads": 1,
    "optimizer.lr": 1e-2,
}

MASKED = {
    "model.kind": "encoder",
    "model.segments": "both",
    "model.head": "transform",
    "model.pooler": "tanh",
    "model.sentence_classes": 2,
    "objective.kind": "masked",
    "objective.masking": "word",
    "objective.sentence": "sop",
    "data.sentences": "lines",
    "data.tokenizer": "wordpiece",
    "data.vocab_size": 90,
}
"""Laid over the tiny recipe, an encoder that is pre-trained on pairs of sentences."""


TRANSLATION = {
    "model.kind": "encoder-decoder",
    "objective.kind": "translation",
    "objective.label_smoothing": 0.1,
    "data.source_language": "en",
    "data.target_language": "de",
    "data.tokenizer": "word-bpe",
    "data.vocab_size": 120,
}
"""Laid over the tiny recipe, a translator of pairs."""

SPAN = {
    "model.kind": "encoder-decoder",
    "model.decoder_start": "pad",
    "objective.kind": "span",
    "objective.z_loss": 1e-3,
    "objective.chunk_tokens": 500,
    "data.tokenizer": "unigram",
    "data.vocab_size": 90,
    "data.sentinels": 20,
    "data.windows": "shuffled",
}
"""Laid over the tiny recipe, an encoder-decoder that fills gaps; one document is long."""

PAIR = {
    "model.kind": "encoder",
    "model.segments": "both",
    "model.pooler": "tanh",
    "objective.kind": "supervised",
    "objective.orders": "random",
    "data.tasks": "stsb",
    "data.tokenizer": "wordpiece",
    "data.vocab_size": 90,
}
"""Laid over the tiny recipe, an encoder that learns a number of two texts."""

TRAVERSAL = {
    "objective.kind": "supervised",
    "objective.format": "traversal",
    "objective.language_weight": 0.5,
    "data.tasks": "copa",
    "data.tokenizer": "unigram",
    "data.vocab_size": 90,
}
"""Laid over the tiny recipe, a decoder that learns to choose, and the texts themselves."""

QUESTIONS = {
    "model.kind": "encoder",
    "model.segments": "both",
    "objective.kind": "supervised",
    "objective.doc_stride": 4,
    "data.tasks": "squad",
    "data.tokenizer": "wordpiece",
    "data.vocab_size": 90,
}
"""Laid over the tiny recipe, an encoder that finds answers in windows of passages."""

TEXT = {
    "model.kind": "encoder-decoder",
    "model.decoder_start": "pad",
    "model.positions": "relative",
    "objective.kind": "supervised",
    "objective.format": "text",
    "objective.target_length": 8,
    "data.tasks": {"sst2": 1.0, "rte": 2.0},
    "data.tokenizer": "unigram",
    "data.vocab_size": 90,
}
"""Laid over the tiny recipe, an encoder-decoder that writes the answers of a mixture."""


class Notes(SilentProgress):
    """Keeps what is said."""

    def __init__(self):
        self.texts = []

    def note(self, text):
        self.texts.append(text)


@pytest.fixture(scope="session")
def text_path(tmp_path_factory):
    words = np.random.default_rng(7).choice(WORDS, 12000)
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_text(" ".join(words))
    return path


@pytest.fixture(scope="session")
def pairs_path(tmp_path_factory):
    rng = np.random.default_rng(8)
    lines = [rng.choice(WORDS, rng.integers(1, 9)).tolist() for _ in range(400)]
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text("".join(f"{' '.join(words)}\t{' '.join(reversed(words))}\n" for words in lines))
    return path


@pytest.fixture(scope="session")
def tasks_path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    return write_squad(write_rte(write_copa(write_stsb(write_sst2(folder)))))


@pytest.fixture
def double():
    """Tensors of float64 where nothing else is said."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("SUBLAYER_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture
def tiny(text_path, stories_path, pairs_path, tasks_path):
    """A loader of the tiny recipe: `tiny({"optimizer.kind": "sgd"})`; masked ones read stories."""
    paths = {"masked": stories_path, "translation": pairs_path, "supervised": tasks_path}

    def load(settings=None):
        path = paths.get((settings or {}).get("objective.kind"), text_path)
        return vary(load_recipe("gpt", {**TINY, "data.path": str(path)}), settings or {})

    return load


@pytest.fixture(scope="session")
def unbroken_runs(tmp_path_factory):
    """The folders of unbroken runs, by what was laid over the tiny recipe."""
    return tmp_path_factory.mktemp("unbroken"), {}


@pytest.fixture
def unbroken(unbroken_runs, tiny):
    """The folder of an unbroken run, trained once for all tests, which leave it as it is."""
    place, known = unbroken_runs

    def train(settings=None):
        key = repr(settings or {})
        if key not in known:
            known[key] = place / str(len(known))
            train_run(tiny(settings), known[key], progress=SilentProgress())
        return known[key]

    return train


@pytest.fixture
def run(tmp_path, tiny):
    """Train the tiny recipe in `tmp_path / name`."""

    def train(name, settings=None, *, progress=None, resume=False):
        return train_run(
            tiny(settings), tmp_path / name, progress=progress or SilentProgress(), resume=resume
        )

    return train


@pytest.fixture
def asked(tmp_path, text_path, stories_path, pairs_path, tasks_path):
    """What ``several_trainings`` is asked, a training for each way of settings, by its name."""
    paths = {"masked": stories_path, "translation": pairs_path, "supervised": tasks_path}

    def ask(ways, folder, end=None):
        """With ``end`` the step after which all processes end."""
        trainings = []
        for name, way in ways.items():
            path = paths.get(way.get("objective.kind"), text_path)
            settings = {**TINY, **way, "data.path": str(path)}
            if settings.get("model.kind") == "lstm":
                del settings["model.n_heads"]
            out = str(tmp_path / folder / name)
            if end is None:
                fields = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
                trainings.append(["train", "gpt", *fields, "--out", out, "--resume"])
            else:
                told = {"recipe": "gpt", "settings": settings, "out": out, "end": end}
                trainings.append(told)
        return trainings

    return ask


@pytest.fixture
def train_in(tmp_path):
    """Have so many processes make trainings, one after the other."""

    def train(n_processes, trainings):
        listed = tmp_path / "trainings.json"
        listed.write_text(json.dumps(trainings))
        command = in_processes(n_processes, "tests.training.several_trainings", listed)
        result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert result.returncode == 0, result.stderr[:6000]

    return train
