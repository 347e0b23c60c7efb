"""Presets: every one is a recipe that can be trained, its figures those of the published tables."""

from itertools import product

import pytest

from sublayer.config.epochs import default_epochs
from sublayer.config.layering.layers import load_recipe
from sublayer.config.objectives.supervised import KINDS, Format
from sublayer.config.presets import Preset, load_preset, preset_names
from sublayer.errors import ConfigError
from sublayer.tasks.registry import TASKS

MODELS = {"pair": {"model.pooler": "tanh"}, "text": {"model.decoder_start": "pad"}}
N_TASKS = {
    ("albert", "pair"): 14,
    ("macaron", "pair"): 8,
    ("electra", "pair"): 12,
    ("gpt1", "traversal"): len(TASKS) - 2,
    ("t5", "text"): len(TASKS) - 7,
    ("default", "pair"): len(TASKS),
    ("default", "traversal"): len(TASKS) - 2,
    ("default", "text"): len(TASKS),
}
"""How many tasks each has figures for; a traversal answers none of spans."""


def presets_of(name: str, format_: Format) -> dict[str, Preset]:
    found = {}
    for task in TASKS:
        if format_ == "traversal" and TASKS[task].kind == "span":
            continue
        try:
            found[task] = load_preset(name, format_, [task], has_start=False)
        except ConfigError:
            continue
    return found


@pytest.mark.parametrize(("name", "format_"), N_TASKS)
def test_every_figure_is_a_setting_that_has_an_effect_and_a_source(name, format_):
    presets = presets_of(name, format_)
    assert len(presets) == N_TASKS[name, format_]
    for task, preset in presets.items():
        settings = {"model.kind": KINDS[format_][0], "objective.kind": "supervised"}
        settings |= {"objective.format": format_, "data.tasks": task, "data.path": "files"}
        loaded = load_recipe("gpt", {**settings, **MODELS.get(format_, {}), **preset.settings})
        for figure in preset.figures:
            assert loaded.origins[figure.key] == "command line"
            assert len(figure.source) > 10 and figure.source in preset.sources


def test_a_preset_has_figures_for_no_other_format():
    others = {*product(preset_names(), KINDS)} - N_TASKS.keys()
    assert len(others) == 3 * 6 - len(N_TASKS)
    assert not any(presets_of(*other) for other in others)


ALBERT = {"optimizer.lr": 3e-5, "train.batch_sequences": 32, "model.dropout": 0.1}
ALBERT |= {"train.steps": 800, "optimizer.warmup_steps": 200, "data.context": 512}
GPT1 = {"optimizer.lr": 6.25e-5, "objective.language_weight": 0.5, "train.epochs": 3}


@pytest.mark.parametrize("name, format_, tasks, figures", [
    ("albert", "pair", "rte", ALBERT),
    ("albert", "pair", "squad", {"optimizer.lr": 5e-5, "train.steps": 3649, "data.context": 384,
                                 "model.dropout": 0}),
    ("macaron", "pair", "qqp", {"objective.logistic": True, "objective.orders": "random"}),
    ("electra", "pair", "stsb", {"train.epochs": 10, "optimizer.layer_decay": 0.8}),
    ("gpt1", "traversal", "snli", GPT1),
    ("t5", "text", "copa", {"init.freeze": "embeddings", "objective.target_length": 62}),
    ("t5", "text", "sst2 cb", {"objective.target_length": 114}),
])  # fmt: skip
def test_figures_are_the_published_ones(name, format_, tasks, figures):
    settings = load_preset(name, format_, tasks.split()).settings
    assert {key: settings[key] for key in figures} == figures


def test_figures_are_within_what_the_model_has():
    preset = load_preset("albert", "pair", ["rte"], positions=128)
    (figure,) = [each for each in preset.figures if each.key == "data.context"]
    assert figure.value == 128
    assert figure.source.startswith("512 in ") and figure.source.endswith("positions for 128")
    unlimited = load_preset("albert", "pair", ["rte"], positions=2048).settings
    assert unlimited["data.context"] == 512
    assert "init.freeze" not in load_preset("t5", "text", ["rte"], has_start=False).settings


@pytest.mark.parametrize("name, tasks, message", [
    ("alberto", "rte", "no preset: did you mean albert"),
    ("gpt1", "rte", "is for objective.format = traversal .* give albert or default"),
    ("albert", "boolq", "no figures for boolq, only for cola, .* --preset default"),
    ("macaron", "sst2 cola", "macaron has no figures for a mixture"),
])  # fmt: skip
def test_a_preset_for_other_tasks_is_refused(name, tasks, message):
    with pytest.raises(ConfigError, match=message):
        load_preset(name, "pair", tasks.split())


def test_fewer_examples_have_more_epochs_and_never_more_steps():
    # 5,000 examples, CB; 24,000, about RTE; 200,000, about QNLI.
    sizes = (250, 2_400, 8_000, 100_000, 400_000)
    assert [default_epochs(n) for n in sizes] == [20.0, 10.0, 3.0, 2.0, 1.0]
    totals = [round(n * default_epochs(n)) for n in range(1, 500_000, 997)]
    assert totals == sorted(totals)
