"""Shipped studies that go on to tasks: each stage fits, and each published number is in the table.

The numbers are those of the papers' tables, whose averages they give.
"""

import math

import pytest

from sublayer.study.budget.plan import make_plan
from sublayer.study.budget.resources import Resources
from sublayer.study.chain.columns import Column, list_columns, primary_column, value_of
from sublayer.study.chain.keys import Part
from sublayer.study.chain.plan import plan_stages
from sublayer.study.chain.stages import Chain
from sublayer.study.definition import Study, load_study, shipped_studies, study_scales
from sublayer.tasks.registry import TASKS

PLENTY = Resources("cpu", memory_bytes=1 << 60, disk_bytes=1 << 60, has_fast_bfloat16=True, cores=1)
CHAINS = [
    (name, scale)
    for name in shipped_studies()
    for scale in study_scales(name)
    if load_study(name, scale=scale).chain is not None
]
NOT_MEASURED = {
    "GLUE": "of GLUE's server, with WNLI",
    "GLUE, as printed": "of GLUE's server, with WNLI",
    "speed": "of other machines",
    "race_middle": "of a model of both schools",
    "race_high": "of a model of both schools",
}


def chain_of(study: Study) -> Chain:
    assert study.chain is not None
    return study.chain


def columns_of(study: Study) -> dict[str, Column]:
    """The columns, as of files that have every published split."""
    chain = chain_of(study)
    parts = {}
    for stage in chain.stages:
        own = []
        for name in stage.tasks:
            task = TASKS[name]
            splits = task.dev_splits or ("test",)
            for split in splits:
                part = f"{name}_{split.removeprefix('dev_')}" if len(splits) > 1 else name
                own.append(Part(part, task))
        parts[stage.name] = own
    kinds = [arm.loaded.recipe.objective.kind for arm in study.arms]
    return {each.name: each for each in list_columns(study.name, chain, parts, kinds)}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scale"), CHAINS)
def test_every_stage_of_every_arm_fits_what_it_starts_from(name: str, scale: str):
    study = load_study(name, scale=scale)
    chain = chain_of(study)
    plan = make_plan(study.arms, study.match, PLENTY)
    stages = plan_stages(study, plan, PLENTY, None, n_seeds=1)
    for stage in chain.stages:
        planned = [arm for each in stages if each.stage == stage.name for arm in each.arms]
        assert sorted(planned) == sorted(arm.name for arm in study.arms)


@pytest.mark.parametrize(("name", "scale"), CHAINS)
def test_columns_metrics_and_averages_are_those_of_its_stages(name: str, scale: str):
    study = load_study(name, scale=scale)
    columns = columns_of(study)
    assert primary_column(study.name, list(columns.values()), study.metric)
    labels = [column.metric.label for column in columns.values()]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("name", sorted({name for name, _ in CHAINS}))
def test_what_was_published_stands_in_columns_at_the_papers_scale(name: str):
    study = load_study(name, scale="paper")
    columns = columns_of(study)
    chain = chain_of(study)
    for arm, published in chain.published.items():
        for column, value in published.items():
            assert column in columns or column in NOT_MEASURED, (arm, column)
            assert 0.0 <= value <= 100.0
    arms = {arm.name for arm in study.arms}
    assert arms & chain.published.keys(), "some arm was published"


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
    value = value_of(columns_of(study)[average], published)
    assert value is not None
    return value


# The paper's own averages, and by how much they miss what their row gives.
@pytest.mark.parametrize(
    ("name", "average", "within"),
    [
        ("albert-main", "Avg", 0.1),
        ("albert-embedding", "Avg", 0.1),
        ("albert-sharing", "Avg", 0.15),
        ("albert-sentence", "Avg", 0.1),
        ("albert-same-time", "Avg", 0.1),
        ("albert-data", "Avg", 0.1),
        ("albert-dropout", "Avg", 0.1),
        ("albert-depth", "Avg", 0.1),
        ("albert-width", "Avg", 0.1),
        ("gpt1-ablation", "Avg", 0.07),
    ],
)
def test_averages_are_taken_as_the_paper_takes_them(name: str, average: str, within: float):
    study = load_study(name, scale="paper")
    for arm, published in chain_of(study).published.items():
        assert published_average(study, arm, average) == pytest.approx(
            published[average], abs=within
        ), arm


def test_glu_averages_are_those_of_t5s_row_and_below_those_of_the_variants():
    study = load_study("glu-finetuning", scale="paper")
    for collection in ("GLUE", "SuperGLUE"):
        for arm, published in chain_of(study).published.items():
            if arm.startswith("standard"):
                continue
            found = published_average(study, arm, f"{collection}, best of each task")
            if arm.startswith("T5"):
                assert found == pytest.approx(published[collection], abs=0.01)
            else:
                assert published[collection] < found - 0.1, arm


def test_macarons_average_with_wnlis_majority_is_the_printed_one():
    study = load_study("macaron-glue", scale="paper")
    for arm, printed in (("BERT base, Devlin et al.", 78.3), ("Macaron base", 79.7)):
        of_eight = published_average(study, arm, "GLUE without WNLI")
        assert (8 * of_eight + 65.1) / 9 == pytest.approx(printed, abs=0.05)
        assert chain_of(study).published[arm]["GLUE, as printed"] == printed
