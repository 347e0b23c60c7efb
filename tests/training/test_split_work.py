"""Two processes share what is scored and saved, and find what one finds."""

import json
import subprocess
from pathlib import Path

import pytest

from sublayer.training.processes.world import World
from tests.torchrun import in_two_processes

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def launched(folder, what, *texts):
    command = in_two_processes("tests.training.two_processes", folder, what, *texts)
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600)


def found(folder, what, *texts):
    result = launched(folder, what, *texts)
    assert result.returncode == 0, result.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture(scope="module")
def scores(tmp_path_factory, text_path, stories_path, pairs_path, tasks_path):
    folder = tmp_path_factory.mktemp("two")
    text = folder / "text.txt"
    # Some batches of 4096 tokens, which is what is shared.
    text.write_text((text_path.read_text() + "\n") * 4)
    stories = folder / "stories"
    stories.mkdir()
    for number, path in enumerate(sorted(stories_path.iterdir()) * 30):
        (stories / f"{number}.txt").write_text(path.read_text())
    return found(folder, "scores", text, stories, pairs_path, text, *[tasks_path] * 4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("effort", ["training", "test"])
@pytest.mark.parametrize(
    "kind",
    ["causal", "masked", "translation", "span", "pair", "traversal", "text", "ranked"],
)
def test_two_processes_score_what_one_does_to_the_bit_and_share_the_work(
    scores, kind, effort, dtype
):
    first, second = (each[f"{kind} {effort} torch.{dtype}"] for each in scores)
    assert "loss" in first["alone"]["scores"]
    keeps_items = kind in ("causal", "masked", "translation", "span")
    assert bool(first["alone"]["items"]) == (effort == "test" and keeps_items)
    assert first["together"]["items"] == first["alone"]["items"]
    assert second["together"]["items"] == first["alone"]["items"]
    assert first["together"]["scores"] == first["alone"]["scores"]
    assert second["together"]["scores"] == first["alone"]["scores"]
    calls = [each["together"]["calls"] for each in (first, second)]
    assert min(calls) > 0
    assert max(calls) <= 0.8 * first["alone"]["calls"]


def test_two_processes_agree(tmp_path):
    first, second = found(tmp_path, "agreement")
    assert first["ragged"] == [[1.5], [], [3.0, float(2**40)], [4.0], [5.0, 6.0, 7.0]]
    assert (first["fewer"], first["empty"], first["none"]) == ([[8.0]], [[], [], []], [])
    assert (first["sum"], first["share"], first["any"]) == ([3.0], [0.0, 7.0], [True, True, False])
    for name in ("ragged", "fewer", "empty", "none", "sum", "share", "any"):
        assert second[name] == first[name], name
    assert (first["written"], second["written"]) == ([0], [])
    for each in (first, second):
        said = "process 1 has another text than the first: give all nodes the same files"
        assert each["differing"] == said
    assert first["failure"] == ["ValueError", "the disk is full"]
    assert second["failure"] == ["SaidElsewhere", "the first process failed, and says why"]


def test_a_process_that_fails_leaves_none_waiting(tmp_path):
    result = launched(tmp_path, "lose_one")
    assert result.returncode != 0
    assert "lost" in result.stderr
    assert not list(tmp_path.iterdir())


def test_one_process_is_a_world_of_its_own():
    alone, written = World(rank=0, size=1), []
    alone.by_first(lambda: written.append(1))
    assert written == [1]
    assert alone.any(True) and not alone.any(False)
    assert list(alone.own(3)) == [0, 1, 2]
    assert alone.share([2.0]) == [2.0]
