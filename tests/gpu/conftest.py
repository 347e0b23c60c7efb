"""Where the tests of this folder compute: on a GPU, and on a CPU by what a GPU would take."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.gpu.kinds import Texts
from tests.made import WORDS
from tests.task_files import write_copa, write_rte, write_squad, write_sst2, write_stsb


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """The GPU; or the CPU by the operators that a GPU takes, instead of by kernels of its own."""
    if request.param == "cpu":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    else:
        # As exact as the CPU's products.
        monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    return torch.device(request.param)


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory, stories_path: Path) -> Texts:
    """The texts of every kind of objective, small."""
    folder = tmp_path_factory.mktemp("texts")
    rng = np.random.default_rng(7)
    plain = folder / "words.txt"
    plain.write_text(" ".join(rng.choice(WORDS, 12000)))
    pairs = folder / "pairs.tsv"
    lines = [rng.choice(WORDS, rng.integers(1, 9)).tolist() for _ in range(400)]
    pairs.write_text("".join(f"{' '.join(w)}\t{' '.join(reversed(w))}\n" for w in lines))
    tasks = folder / "tasks"
    tasks.mkdir()
    write_squad(write_rte(write_copa(write_stsb(write_sst2(tasks)))))
    return Texts(plain, stories_path, pairs, tasks)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
