import json
import subprocess
from pathlib import Path

import pytest
import torch

from sublayer.runs.run import train_run
from sublayer.training.progress import SilentProgress
from tests.made import KINDS, TINY
from tests.torchrun import in_processes

ROOT = Path(__file__).parents[2]


class Notes(SilentProgress):
    """Keeps what is said."""

    def __init__(self):
        self.texts = []

    def note(self, text):
        self.texts.append(text)


@pytest.fixture(scope="session")
def text_path(workshop):
    return workshop.path({})


@pytest.fixture(scope="session")
def pairs_path(workshop):
    return workshop.path(KINDS["translation"])


@pytest.fixture(scope="session")
def tasks_path(workshop):
    return workshop.path(KINDS["pair"])


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
def tiny(workshop):
    """A loader of the tiny recipe: `tiny({"optimizer.kind": "sgd"})`."""
    return lambda settings=None: workshop.recipe(settings or {})


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
def asked(tmp_path, workshop):
    """What ``several_trainings`` is asked, a training for each way of settings, by its name."""

    def ask(ways, folder, end=None):
        """With ``end`` the step after which all processes end."""
        trainings = []
        for name, way in ways.items():
            settings = {**TINY, **way, "data.path": str(workshop.path(way))}
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
        return result

    return train
