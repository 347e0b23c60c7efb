"""Runs whose evaluations ask zero-shot probes: what is written, drawn, and left as it was."""

import json
import re

import pytest

from sublayer import cli
from sublayer.config.layering.layers import load_recipe
from sublayer.config.probes import PROBES as NAMES
from sublayer.errors import ConfigError
from sublayer.evaluation.probes.table import PROBES
from sublayer.training.metrics import METRICS, read_metrics
from tests.evaluation.probes.test_probes import write_tasks

SMALL = [
    "model.n_layers=1",
    "model.d_model=16",
    "model.n_heads=2",
    "data.context=32",
    "train.steps=6",
    "train.evaluate_steps=2",
    "train.batch_sequences=2",
    "train.evaluate_tokens=256",
    "train.threads=1",
    "train.precision=float32",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probed")
    write_tasks(folder / "tasks")
    (folder / "text.txt").write_text("\n".join(f"line {n} of a small text" for n in range(300)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
        yield folder


def train(place, name, *more):
    words = ["train", "gpt", f"data.path={place / 'text.txt'}", *SMALL, *more]
    return cli.main([*words, "--out", str(place / name)])


def asked(place, *names):
    inner = ", ".join(f'{name} = "{place / "tasks"}"' for name in names)
    return f"train.probes={{ {inner} }}"


def test_the_names_of_the_settings_are_those_of_the_table():
    assert tuple(PROBES) == NAMES


@pytest.mark.slow
def test_every_evaluation_asks_and_nothing_else_changes(place, capsys):
    assert train(place, "plain") == 0
    assert train(place, "probed", asked(place, "sst2", "winograd")) == 0
    assert "probes: SST-2 " in capsys.readouterr().err
    lines = [each for each in read_metrics(place / "probed" / METRICS) if each["kind"] == "valid"]
    assert [each["step"] for each in lines] == [2, 4, 6]
    assert all(0.0 <= each["probes/sst2"] <= 1.0 for each in lines)
    record = json.loads((place / "probed" / "record.json").read_text())
    assert record["probes"]["sst2"]["examples"] == 4
    assert record["probes"]["sst2"]["chance_error"] == pytest.approx(0.25)
    assert "probes/winograd" in record["valid"]
    weights = [
        (place / name / "model" / "model.safetensors").read_bytes() for name in ("plain", "probed")
    ]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_reports_draw_the_probes_as_the_paper_does(place):
    for seed in (0, 1):
        more = [f"train.seed={seed}", asked(place, "sst2", "winograd")]
        assert train(place, f"a-{seed}", *more) == 0
        assert train(place, f"b-{seed}", *more, "model.ffn=swiglu") == 0
    assert cli.main(["report", str(place / "a-0")]) == 0
    page = (place / "a-0" / "report.html").read_text()
    assert "<h2>Zero-shot probes</h2>" in page
    assert "from chance (0) to the reference (1)" in page
    runs = [str(place / f"{arm}-{seed}") for arm in "ab" for seed in (0, 1)]
    assert cli.main(["compare", *runs, "--out", str(place / "compared")]) == 0
    page = (place / "compared" / "report.html").read_text()
    # One line for each arm; what has no reference stands in a figure of its own.
    assert len(re.findall(r"SST-2, [ab]", page)) == 2
    assert "zero-shot winograd" in page


def test_probes_of_what_predicts_no_text_have_no_effect(place, capsys):
    with pytest.raises(ConfigError, match="it counts only where objective.kind is causal or span"):
        load_recipe("albert-small", {"train.probes": {"sst2": "glue"}})
    assert train(place, "wrong", "train.probes={ sst3 = 'glue' }") == 2
    assert "train.probes: sst3 is no probe: did you mean sst2?" in capsys.readouterr().err
    assert train(place, "missing", "train.probes={ sst2 = 'nowhere' }") == 2
    assert "nowhere" in capsys.readouterr().err
