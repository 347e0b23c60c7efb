"""Shipped studies that go on to tasks run from beginning to end on a CPU, at a toy's size."""

import json
from pathlib import Path

import pytest

import sublayer
from sublayer import cli
from sublayer.study.definition import load_study, shipped_studies, study_scales
from tests.at_length import EXPLORES
from tests.published_files import write_published
from tests.task_files import write_copa, write_rte, write_squad, write_sst2, write_stsb

pytestmark = pytest.mark.slow

SMALL = {
    "sst2": write_sst2,
    "stsb": write_stsb,
    "rte": write_rte,
    "copa": write_copa,
    "squad": lambda folder: write_squad(folder / "squad"),
}
PUBLISHED = ("cola", "boolq", "cb", "multirc", "wic", "wsc", "race")
FEW = ("albert-data", "gpt1-layers")
"""Those that are run with every `make test`."""
CHAINS = [
    name
    for name in shipped_studies()
    if "cpu" in study_scales(name) and load_study(name, scale="cpu").chain is not None
    if EXPLORES or name in FEW
]
SHIPPED = Path(sublayer.__file__).parent / "studies"
# Over what arms do not differ in.
PRETRAINING = (
    *("train.steps=4", "train.evaluate_steps=4", "train.batch_sequences=4"),
    *("train.evaluate_tokens=512", "data.documents=file"),
)
FINETUNING = (
    *("finetune.train.steps=3", "finetune.train.evaluate_steps=3"),
    "finetune.train.batch_sequences=8",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A text, in several files, and the files of all tasks that the studies learn."""
    folder = tmp_path_factory.mktemp("shipped")
    (folder / "texts").mkdir()
    for part in range(12):
        lines = []
        for n in range(120):
            said = "fine" if (n + part) % 3 else "dull"
            lines.append(f"The {n} films of year {n % 7} and part {part} were {said}. Who saw {n}?")
        (folder / "texts" / f"{part}.txt").write_text("\n".join(lines))
    tasks = folder / "tasks"
    for write in SMALL.values():
        write(tasks)
    for name in PUBLISHED:
        write_published(tasks, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
        yield folder


def shortened(name: str, folder: Path) -> str:
    """The study, as a file of its own where it keeps a step that a toy's training has not."""
    text = (SHIPPED / f"{name}.toml").read_text()
    if "keep_steps" not in text:
        return name
    path = folder / f"{name}.toml"
    short = text.replace("keep_steps = [1000]", "keep_steps = [2]")
    path.write_text(short.replace("from_step = 1000\n", "from_step = 2\n"))
    return str(path)


@pytest.mark.parametrize("name", CHAINS)
def test_it_runs_from_beginning_to_end(name: str, place: Path, tmp_path: Path):
    study = load_study(name, scale="cpu")
    assert study.chain is not None
    words = ["compare", shortened(name, tmp_path), "--scale", "cpu", "--seeds", "1"]
    words += ["--out", str(tmp_path / "out")]
    words += [f"data.path={place / 'texts'}", *PRETRAINING]
    has_merges = study.arms[0].loaded.recipe.data.merges is not None
    words.append("data.merges=60" if has_merges else "data.vocab_size=200")
    if study.chain.finetunes:
        words += ["--finetunings", "1", "--data", str(place / "tasks"), *FINETUNING]
    else:
        words += [f"{stage.name}.train.steps=3" for stage in study.chain.stages]
    assert cli.main(words) == 0
    card = json.loads((tmp_path / "out" / "results.json").read_text())["scorecard"]
    arms = {row["name"]: row["cells"] for row in card["rows"] if row["kind"] == "arm"}
    assert list(arms) == [arm.name for arm in study.arms]
    for arm, cells in arms.items():
        for average in study.chain.averages:
            assert average in cells, arm
    published = {row["name"] for row in card["rows"] if row["kind"] == "published"}
    assert published == study.chain.published.keys()
