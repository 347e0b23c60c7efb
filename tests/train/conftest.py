import numpy as np
import pytest

from sublayer.config.layers import load_recipe, vary
from sublayer.run import train_run
from sublayer.train.progress import SilentProgress

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


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("SUBLAYER_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture
def tiny(text_path, stories_path):
    """A loader of the tiny recipe: `tiny({"optimizer.kind": "sgd"})`; what is masked reads stories."""

    def load(settings=None):
        is_masked = (settings or {}).get("objective.kind") == "masked"
        path = stories_path if is_masked else text_path
        return vary(load_recipe("gpt", {**TINY, "data.path": str(path)}), settings or {})

    return load


@pytest.fixture
def run(tmp_path, tiny):
    """Train the tiny recipe in `tmp_path / name`."""

    def train(name, settings=None, *, progress=None, resume=False):
        return train_run(tiny(settings), tmp_path / name, progress=progress or SilentProgress(), resume=resume)

    return train
