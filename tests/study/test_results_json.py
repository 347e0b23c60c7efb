"""``results.json``: every key is documented, and holds what the report shows."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sublayer.inspection.layer_change import LayerChange, Spread
from sublayer.study.inspection.kept import InspectedLayers
from sublayer.study.results import Results, Sample, StudyText
from sublayer.study.results_json import results_to_json

DOCUMENT = Path(__file__).parents[2] / "docs" / "comparing.md"
BY_NAME = {
    "parameters",
    "environment",
    "checksums",
    "sizes",
    "counts",
    "differing",
    "settings",
    "further_curves",
}
"""Objects whose keys are names of the study's own."""


def keys(content: Any, name: str = "") -> Iterator[str]:
    """Yield the keys of all objects, but for those that are names."""
    if isinstance(content, list):
        for item in content:
            yield from keys(item, name)
    if isinstance(content, Mapping):
        is_named = name in BY_NAME or (name == "further" and "metric" not in content)
        for key, value in content.items():
            if not is_named:
                yield key
            # The settings of a field are by arm, and the sizes of a split by what is counted.
            inner = {"differing": "settings", "sizes": "counts"}.get(name, key)
            yield from keys(value, inner)


def complete(results: Results) -> Results:
    first, *others = results.arms
    first = replace(
        first,
        training_curves=first.curves,
        further_curves={"loss": first.curves},
        sample=Sample("The", " end"),
        layers={
            0: InspectedLayers("test", 96, 6, (LayerChange(1, *[Spread(1.0, (0, 1, 2))] * 5),))
        },
        recipe='[model]\nffn = "relu"\n',
    )
    reproduction = replace(
        results.reproduction,
        text=StudyText(("python",), {"test": {"bytes": 3, "documents": 1}}),
        date="2026-11-23T10:00:00+00:00",
    )
    return replace(results, arms=(first, *others), reproduction=reproduction)


def test_every_key_is_documented(
    synthetic_results: Callable[..., Results], encoder_results: Results, tmp_path: Path
):
    text = DOCUMENT.read_text()
    section = text.partition("## results.json")[2].partition("\n## ")[0]
    documented = set(re.findall(r"`(\w+)`", section))
    for results in (complete(synthetic_results(failed=("macaron", 3))), encoder_results):
        content = results_to_json(results, tmp_path / "report.html")
        written = json.loads(json.dumps(content, allow_nan=False))
        # The quartiles of a number are documented with it.
        found = {key.removesuffix("_quartiles") for key in keys(written)}
        assert found - documented == set()


def test_the_json_has_the_gap_the_text_and_what_arms_differ_by(
    synthetic_results: Callable[..., Results], tmp_path: Path
):
    content = results_to_json(complete(synthetic_results()), tmp_path / "report.html")
    first = content["arms"][0]
    assert first["final_losses"]["gap"] == 0.0
    assert first["sample"] == {"prompt": "The", "text": " end"}
    assert content["differing"]["model.ffn"]["gpt"] == {"value": "relu", "origin": "own"}
    assert content["reproduction"]["text"]["sizes"]["test"]["documents"] == 1
