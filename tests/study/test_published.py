"""What was published of an arm stands beside what was measured of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from sublayer.commands.shared.comparison import render
from sublayer.errors import ConfigError
from sublayer.study.checks import check_study
from sublayer.study.definition import load_study, shipped_studies, study_scales
from sublayer.study.judgement.looks import fixed
from sublayer.study.report.filters import PUBLISHED
from sublayer.study.report.html import render_report
from sublayer.study.results_json import results_to_json

PAPERS = {"gelu": 1.679, "swiglu": 1.636}


def written(folder: Path, **changes: Any) -> str:
    study = {
        "title": "Two networks",
        "scale": {"cpu": {"recipe": "gpt", "set": {"train.steps": 2}}},
        "arms": [
            {"name": name, "set": {"model.ffn": name}, "published": {"bits_per_byte": value}}
            for name, value in PAPERS.items()
        ],
        **changes,
    }
    path = folder / "two.toml"
    path.write_text(tomli_w.dumps(study), encoding="utf-8")
    return str(path)


def published(source: str, scale: str | None = None) -> dict[str, Any]:
    study = load_study(source, scale=scale)
    check_study(study, fixed(3))
    return dict(study.published)


def test_it_stands_with_the_arm_or_with_the_scale(tmp_path: Path):
    own = {name: {"bits_per_byte": value} for name, value in PAPERS.items()}
    assert published(written(tmp_path)) == own
    short = {"recipe": "gpt", "set": {"train.steps": 1}}
    scales = {"cpu": short, "short": {**short, "published": {"swiglu": {"bits_per_byte": 1.944}}}}
    both = written(tmp_path, scale=scales)
    assert published(both, "cpu") == own
    assert published(both, "short") == {**own, "swiglu": {"bits_per_byte": 1.944}}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"geglu": {"bits_per_byte": 1.0}}, "published"),
        ({"swiglu": {"accuracy": 1.0}}, "published of swiglu"),
    ],
    ids=["of no arm", "by no metric"],
)
def test_what_is_published_of_nothing_is_refused(tmp_path: Path, value, said: str):
    with pytest.raises(ConfigError, match=said):
        published(written(tmp_path, published=value))


def test_every_report_prints_it(synthetic_results, tmp_path: Path):
    results = synthetic_results({"gelu": 0.0, "swiglu": -0.02})
    assert PUBLISHED not in render(results, tmp_path / "report.html")
    gelu, swiglu = results.arms
    told = (
        replace(gelu, published={"accuracy": 52.25, "bits_per_byte": 1.679}),
        replace(swiglu, published={"accuracy": 53.5}),
    )
    results = replace(results, arms=told)
    text = render(results, tmp_path / "report.html")
    assert PUBLISHED in text.replace("\n", " ")
    page = render_report(results)
    for shown in ("1.679; 52.25 accuracy", "53.5 accuracy"):
        assert f"<td>{shown}</td>" in page
        # In a column a text may wrap.
        assert all(word in text for word in shown.split())
    kept = results_to_json(results, tmp_path / "report.html")
    assert [arm["published"] for arm in json.loads(json.dumps(kept))["arms"]] == [
        {"accuracy": 52.25, "bits_per_byte": 1.679},
        {"accuracy": 53.5},
    ]


@pytest.mark.parametrize(
    ("name", "scale"), [(name, scale) for name in shipped_studies() for scale in study_scales(name)]
)
def test_shipped_studies_have_published_values_of_their_own_arms_and_metrics(name: str, scale: str):
    study = load_study(name, scale=scale)
    if study.chain is None:
        check_study(study, fixed(study.n_seeds or 3))
