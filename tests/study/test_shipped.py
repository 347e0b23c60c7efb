"""Shipped studies, planned at each scale, with the parameters and averages of the papers."""

import json
import math
from pathlib import Path

import pytest

import sublayer
from sublayer import cli
from sublayer.study.budget.plan import make_plan
from sublayer.study.budget.resources import Resources
from sublayer.study.chain.columns import Column, list_columns, primary_column, value_of
from sublayer.study.chain.keys import Part
from sublayer.study.chain.plan import plan_stages
from sublayer.study.chain.stages import Chain
from sublayer.study.checks import check_study
from sublayer.study.definition import Study, load_study, shipped_studies, study_scales
from sublayer.study.judgement.looks import fixed
from sublayer.study.metrics import study_metrics
from sublayer.tasks.registry import TASKS
from tests.breadth import rows
from tests.published_files import write_published
from tests.task_files import write_copa, write_rte, write_squad, write_sst2, write_stsb

PLENTY = Resources("cpu", memory_bytes=1 << 60, disk_bytes=1 << 60, has_fast_bfloat16=True, cores=1)
SCALES = [(name, scale) for name in shipped_studies() for scale in study_scales(name)]
ENCODERS = [name for name in shipped_studies() if name.startswith(("albert-", "bert-"))]


def heads(d_model: int, d_embed: int) -> int:
    """Count the parameters of both heads of an encoder."""
    # Map, norm and bias; the matrix is the table of tokens.
    masked = d_model * d_embed + d_embed + 2 * d_embed + 30_000
    return masked + 2 * d_model + 2


def totals(study: Study) -> dict[str, int]:
    return {arm.name: arm.parameters.total for arm in make_plan(study.arms, "none", PLENTY).arms}


@pytest.mark.parametrize(("name", "scale"), rows(SCALES, 4))
def test_a_shipped_study_is_planned(name, scale):
    study = load_study(name, scale=scale)
    names = [arm.name for arm in study.arms]
    assert study.title and study.source and len(names) >= 2
    if scale == "cpu":
        assert study.caveats and all(len(caveat) < 400 for caveat in study.caveats)
    plan = make_plan(study.arms, study.match, PLENTY)
    assert [arm.name for arm in plan.arms] == names
    if study.chain is None:
        assert study_metrics(study)
        check_study(study, fixed(study.n_seeds or 3))
        return
    # Every stage fits its start and every average its columns.
    stages = plan_stages(study, plan, PLENTY, None, n_seeds=1)
    for stage in study.chain.stages:
        planned = [arm for each in stages if each.stage == stage.name for arm in each.arms]
        assert sorted(planned) == sorted(names)
    columns = columns_of(study)
    assert primary_column(study.name, list(columns.values()), study.metric)
    assert len({column.metric.label for column in columns.values()}) == len(columns)


LARGE, XXLARGE, BASE = 335_691_058, 223_158_450, 11_813_810
ARMS: dict[str, dict[str, int]] = {
    "albert-same-time": {"BERT-large": LARGE, "ALBERT-xxlarge": XXLARGE},
    "albert-layers": {"BERT-large": LARGE, "ALBERT-large": 17_847_474},
    "bert-width": {"BERT-large": LARGE, "BERT-xlarge": 1_279_526_194},
    "albert-dropout": {"with dropout": XXLARGE, "without dropout": XXLARGE},
    "albert-sentence": {"no sentence loss, untrained head": BASE, "NSP": BASE, "SOP": BASE},
    "albert-data": {"without additional data": BASE, "with additional data": BASE},
    "albert-depth": {f"{n} layer{'s' if n > 1 else ''}": 17_847_474 for n in (1, 3, 6, 12, 24, 48)},
}
# Millions, without heads: Lan et al. 2020, tables 4 and 5 of the draft, without the pooler there,
# and of the widths, with it.
SHARING = {
    "E = 768, not shared": 108.49,
    "E = 768, shared attention": 82.49,
    "E = 768, shared FFN": 56.53,
    "E = 768, all shared": 30.52,
    "E = 128, not shared": 89.06,
    "E = 128, shared attention": 63.06,
    "E = 128, shared FFN": 37.10,
    "E = 128, all shared": 11.09,
}
WIDTHS = {"H = 1024": 17.7, "H = 2048": 58.7, "H = 4096": 222.6, "H = 6144": 495.5}


def test_arms_have_the_papers_parameters():
    found = totals(load_study("albert-sharing", scale="paper"))
    pooler = 768 * 768 + 768
    assert {
        arm: round((total - pooler - heads(768, 128 if "128" in arm else 768)) / 1e6, 2)
        for arm, total in found.items()
    } == SHARING
    found = totals(load_study("albert-width", scale="paper"))
    assert {
        arm: round((total - heads(int(arm[4:]), 128)) / 1e6, 1) for arm, total in found.items()
    } == WIDTHS


@pytest.mark.parametrize("name", rows(ARMS, 2))
def test_arms_have_the_parameters_of_their_models(name):
    assert totals(load_study(name, scale="paper")) == ARMS[name]


@pytest.mark.parametrize("name", rows(["albert-data", "albert-dropout"], 1))
def test_arms_that_go_on_with_one_training_go_on_at_its_rate_to_the_papers_end(name):
    for scale in study_scales(name):
        study = load_study(name, scale=scale)
        (stage,) = [each for each in chain_of(study).stages if not each.finetunes]
        assert len({arm.loaded.recipe.model_dump_json() for arm in study.arms}) == 1
        before = study.arms[0].loaded.recipe
        settings = chain_of(study).settings_of(study.arms[0].name, stage)
        total = settings["train.steps"] + (before.train.steps or 0)
        left = settings["train.steps"] / total
        assert before.optimizer.final_lr_share == pytest.approx(left)
        assert settings["optimizer.lr"] == pytest.approx(left * before.optimizer.lr)
        if scale == "paper":
            assert total == {"albert-data": 125_000, "albert-dropout": 1_000_000}[name]


def chain_of(study: Study) -> Chain:
    return study.chain


def columns_of(study: Study) -> dict[str, Column]:
    """The columns, as of files that have every published split."""
    chain = chain_of(study)
    parts: dict[str, list[Part]] = {}
    for stage in chain.stages:
        for name in stage.tasks:
            splits = TASKS[name].dev_splits or ("test",)
            for split in splits:
                part = f"{name}_{split.removeprefix('dev_')}" if len(splits) > 1 else name
                parts.setdefault(stage.name, []).append(Part(part, TASKS[name]))
    kinds = [arm.loaded.recipe.objective.kind for arm in study.arms]
    return {each.name: each for each in list_columns(study.name, chain, parts, kinds)}


def published_average(study: Study, arm: str, average: str) -> float:
    """Compute an average of what was published, a score as the mean of its metrics."""
    chain = chain_of(study)
    published = dict(chain.published[arm])
    metrics: dict[str, list[float]] = {}
    for column, value in published.items():
        if ":" in column:
            metrics.setdefault(column.partition(":")[0], []).append(value)
    for column, values in metrics.items():
        published[column] = math.fsum(values) / len(values)
    return value_of(columns_of(study)[average], published)


AVERAGES = [
    *((f"albert-{name}", 0.1) for name in ("main", "embedding", "sentence", "depth")),
    ("albert-sharing", 0.15),
    *((f"albert-{name}", 0.1) for name in ("same-time", "data", "dropout", "width")),
    ("gpt1-ablation", 0.07),
]
"""The paper's averages, and by how much they miss what their row gives."""


@pytest.mark.parametrize(("name", "within"), rows(AVERAGES, 3))
def test_averages_are_taken_as_the_paper_takes_them(name, within):
    study = load_study(name, scale="paper")
    for arm, published in chain_of(study).published.items():
        average = published_average(study, arm, "Avg")
        assert average == pytest.approx(published["Avg"], abs=within), arm


def test_averages_of_glus_and_macarons_are_the_printed_ones():
    study = load_study("glu-finetuning", scale="paper")
    for collection in ("GLUE", "SuperGLUE"):
        for arm, published in chain_of(study).published.items():
            found = published_average(study, arm, f"{collection}, best of each task")
            if arm.startswith("T5"):
                assert found == pytest.approx(published[collection], abs=0.01)
            elif not arm.startswith("standard"):
                assert published[collection] < found - 0.1, arm
    study = load_study("macaron-glue", scale="paper")
    for arm, printed in (("BERT base, Devlin et al.", 78.3), ("Macaron base", 79.7)):
        of_eight = published_average(study, arm, "GLUE without WNLI")
        # With WNLI's majority.
        assert (8 * of_eight + 65.1) / 9 == pytest.approx(printed, abs=0.05)


CHAINS = [name for name, scale in SCALES if scale == "cpu" and load_study(name, scale=scale).chain]
SMALL = {
    "sst2": write_sst2,
    "stsb": write_stsb,
    "rte": write_rte,
    "copa": write_copa,
    "squad": lambda folder: write_squad(folder / "squad"),
}
PUBLISHED = ("cola", "boolq", "cb", "multirc", "wic", "wsc", "race")
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


@pytest.mark.all
@pytest.mark.parametrize("name", rows(CHAINS, 1))
def test_a_chain_runs_from_beginning_to_end_at_the_size_of_a_toy(name, place, tmp_path):
    study = load_study(name, scale="cpu")
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
