"""Every command, by stories of a folder: what it prints, and the results of its studies."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from sublayer.system.terminal import PlainStages
from tests.golden.core import compare, compare_text, expect_names
from tests.golden.inputs import write_faulty, write_inputs
from tests.golden.refusals import REFUSED
from tests.golden.stories import RUNS, STORIES, STUDIES
from tests.golden.transcripts import refusals, transcript, without_machine

TOLERANCE = 1e-3


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of inputs, in 80 columns, with a cache of its own, no GPU and no slow stages."""
    folder = tmp_path / "place"
    folder.mkdir()
    write_inputs(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    # A stage has a line where it lasts, on a slow machine alone.
    monkeypatch.setattr(PlainStages, "tick", lambda _: None)
    torch.set_num_threads(1)
    return folder


def lines_of(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def mistakes_of(text: str) -> list[str]:
    parted = (line.partition(":") for line in lines_of(text))
    return [
        f"{start} {end.strip()}".strip() for start, _, ends in parted for end in ends.split(";")
    ]


@pytest.mark.parametrize("name", STORIES)
def test_commands_print_what_is_on_file(
    name: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = transcript(lines_of(STORIES[name]), capsys)
    if name in STUDIES:
        [path] = place.rglob("results.json")
        results = without_machine(json.loads(path.read_text(encoding="utf-8")))
        compare(f"study-{name}", "results", results, tolerance=TOLERANCE)
    compare_text(f"commands/{name}", text, tolerance=TOLERANCE)


@pytest.mark.parametrize("name", REFUSED)
def test_mistakes_are_refused_in_the_words_on_file(
    name: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_faulty(place)
    if name in ("refused-models", "refused-tasks"):
        transcript(lines_of(RUNS), capsys)
        shutil.copytree("small", "broken")
        Path("broken/model/config.json").unlink()
        shutil.copytree("small", "damaged")
        weights = Path("damaged/model/model.safetensors")
        weights.write_bytes(weights.read_bytes()[:-100])
    compare_text(
        f"commands/{name}", refusals(mistakes_of(REFUSED[name]), capsys), tolerance=TOLERANCE
    )


def test_each_transcript_is_compared() -> None:
    expect_names("commands", [*STORIES, *REFUSED])
