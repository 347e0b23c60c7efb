"""Presets: every one is a recipe that can be trained, its figures those of the published tables."""

import pytest

from sublayer.config.epochs import default_epochs
from sublayer.config.layering.layers import load_recipe
from sublayer.config.objectives.supervised import KINDS, Format
from sublayer.config.presets import Preset, load_preset, preset_names
from sublayer.errors import ConfigError
from sublayer.tasks.registry import TASKS

MODELS = {
    "pair": {"model.pooler": "tanh"},
    "traversal": {},
    "text": {"model.decoder_start": "pad"},
}


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


def preset_of(name: str, format_: Format, task: str) -> Preset | None:
    if format_ == "traversal" and TASKS[task].kind == "span":
        return None
    try:
        return load_preset(name, format_, [task], has_start=False)
    except ConfigError:
        return None


@pytest.mark.parametrize(("name", "format_"), N_TASKS)
def test_every_figure_is_a_setting_that_has_an_effect_and_a_source(
    name: str, format_: Format
) -> None:
    found = {task: preset_of(name, format_, task) for task in TASKS}
    presets = {task: preset for task, preset in found.items() if preset is not None}
    assert len(presets) == N_TASKS[name, format_]
    for task, preset in presets.items():
        settings = {
            "model.kind": KINDS[format_][0],
            "objective.kind": "supervised",
            "objective.format": format_,
            "data.tasks": task,
            "data.path": "files",
            **MODELS[format_],
        }
        loaded = load_recipe("gpt", {**settings, **preset.settings})
        for figure in preset.figures:
            assert loaded.origins[figure.key] == "command line"
            assert len(figure.source) > 10 and figure.source in preset.sources


ALBERT_RTE = {
    "optimizer.lr": 3e-5,
    "train.batch_sequences": 32,
    "model.dropout": 0.1,
    "train.steps": 800,
    "optimizer.warmup_steps": 200,
    "data.context": 512,
}
ALBERT_SQUAD = {"optimizer.lr": 5e-5, "train.steps": 3649, "data.context": 384, "model.dropout": 0}
GPT1 = {"optimizer.lr": 6.25e-5, "objective.language_weight": 0.5, "train.epochs": 3}


@pytest.mark.parametrize(
    ("name", "format_", "task", "figures"),
    [
        ("albert", "pair", "rte", ALBERT_RTE),
        ("albert", "pair", "squad", ALBERT_SQUAD),
        ("macaron", "pair", "qqp", {"objective.logistic": True, "objective.orders": "random"}),
        ("electra", "pair", "stsb", {"train.epochs": 10, "optimizer.layer_decay": 0.8}),
        ("gpt1", "traversal", "snli", GPT1),
        ("t5", "text", "copa", {"init.freeze": "embeddings", "objective.target_length": 62}),
    ],
)
def test_figures_are_the_published_ones(
    name: str, format_: Format, task: str, figures: dict[str, object]
) -> None:
    settings = load_preset(name, format_, [task]).settings
    assert {key: settings[key] for key in figures} == figures


def test_a_mixture_has_figures_of_its_own() -> None:
    mixture = load_preset("t5", "text", ["sst2", "cb"]).settings
    assert mixture["objective.target_length"] == 114
    with pytest.raises(ConfigError, match="macaron has no figures for a mixture"):
        load_preset("macaron", "pair", ["sst2", "cola"])


def test_a_model_with_fewer_positions_reads_shorter_texts() -> None:
    preset = load_preset("albert", "pair", ["rte"], positions=128)
    (figure,) = [each for each in preset.figures if each.key == "data.context"]
    assert figure.value == 128
    assert figure.source.startswith("512 in ") and figure.source.endswith("positions for 128")
    unlimited = load_preset("albert", "pair", ["rte"], positions=2048).settings
    assert unlimited["data.context"] == 512


def test_nothing_is_said_of_a_start_where_there_is_none() -> None:
    assert "init.freeze" not in load_preset("t5", "text", ["rte"], has_start=False).settings


@pytest.mark.parametrize(
    ("name", "format_", "task", "message"),
    [
        ("alberto", "pair", "rte", "no preset: did you mean albert"),
        ("gpt1", "pair", "rte", "is for objective.format = traversal .* give albert or default"),
        ("albert", "pair", "boolq", "no figures for boolq, only for cola, .* --preset default"),
    ],
)
def test_what_a_preset_is_not_for_is_refused(
    name: str, format_: Format, task: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_preset(name, format_, [task])


@pytest.mark.parametrize(
    ("n_examples", "epochs"),
    [
        (250, 20.0),  # 5,000 examples, CB
        (2_400, 10.0),  # 24,000, about RTE
        (8_000, 3.0),
        (100_000, 2.0),  # 200,000, about QNLI
        (400_000, 1.0),
    ],
)
def test_epochs_by_hand(n_examples: int, epochs: float) -> None:
    assert default_epochs(n_examples) == epochs


def test_more_examples_are_never_trained_on_for_fewer_steps() -> None:
    totals = [round(n * default_epochs(n)) for n in range(1, 500_000, 997)]
    assert totals == sorted(totals)


def test_a_preset_has_figures_for_no_other_format() -> None:
    formats: tuple[Format, ...] = ("pair", "traversal", "text")
    others = [
        (name, format_)
        for name in preset_names()
        for format_ in formats
        if (name, format_) not in N_TASKS
    ]
    assert len(others) == 3 * 6 - len(N_TASKS)
    assert not any(preset_of(name, format_, task) for name, format_ in others for task in TASKS)
