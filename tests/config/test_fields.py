"""Fields of a recipe: listing, schema, effect, old names; presets and the tables they are from."""

import json
import shutil
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from sublayer.config.architecture.feedforward import FFNS
from sublayer.config.epochs import default_epochs
from sublayer.config.fields.applicability import USES, uses
from sublayer.config.fields.catalog import HEADINGS, TABLES, is_union, keys
from sublayer.config.fields.listing import field_rows, json_schema
from sublayer.config.fields.renames import RENAMED
from sublayer.config.fields.use import value_of
from sublayer.config.layering.layers import load_recipe
from sublayer.config.layering.run_recipe import read_recipe
from sublayer.config.layering.sources import FILE_ONLY, shipped_recipes
from sublayer.config.objectives.supervised import KINDS
from sublayer.config.optimizers.kinds import OPTIMIZERS
from sublayer.config.presets import load_preset, preset_names
from sublayer.config.recipe import Recipe
from sublayer.errors import ConfigError
from sublayer.model.model_folder import load_weights
from sublayer.study.definition import load_study
from sublayer.tasks.registry import TASKS

PURE = (
    *("_std", "base", "beta", "betas", "decay", "eps", "exponent", "first_position", "loss", "lr"),
    *("momentum", "norm", "penalty", "power", "ratio", "seed", "threshold", "weight"),
)
"""Ends of the names of numbers that count nothing."""


def test_every_field_is_listed_once_with_type_and_description():
    listed = field_rows()
    names = [".".join(filter(None, (each.table, each.name))) for each in listed]
    assert names == [*HEADINGS, *keys()]
    assert all(each.description and each.type and each.default for each in listed)
    assert {each.table for each in field_rows("optimizer")} == {"optimizer"}
    assert {name for each in listed for name in each.set_by} == set(shipped_recipes())
    # Numbers have a unit or are pure.
    names = {row.name for row in field_rows() if "number" in row.type and not row.unit}
    assert [name for name in names if not name.endswith(PURE)] == []
    assert [end for end in PURE if not any(name.endswith(end) for name in names)] == []


def test_the_schema_describes_every_table_and_is_json():
    schema = json.loads(json.dumps(json_schema()))
    assert set(schema["properties"]) == {*FILE_ONLY, *HEADINGS, *TABLES}
    assert schema["additionalProperties"] is False
    model = schema["$defs"]["ModelConfig"]
    assert model["additionalProperties"] is False
    assert model["properties"]["ffn"]["enum"] == list(FFNS)
    assert "Unit: features." in model["properties"]["d_ff"]["description"]
    # A table of kinds may leave out its kind.
    optimizer = schema["properties"]["optimizer"]
    assert "discriminator" not in optimizer and len(optimizer["anyOf"]) == len(OPTIMIZERS)
    assert "required" not in schema["$defs"]["SgdConfig"]


NAMED_FFNS = 'model.block=["ffn:relu*0.5", "attention", "ffn:swiglu*0.5"]'


@pytest.mark.parametrize("idle, others", [
    ("model.gelu=exact", [NAMED_FFNS]), ("model.ffn=relu", [NAMED_FFNS]),
    ("model.norm=rms", ["model.kind=lstm"]), ("train.compile=true", ["model.kind=lstm"]),
    ("data.vocab_size=300", ["data.tokenizer=tokenizer.json"]),
    ("optimizer.decay_vectors=true", ["optimizer.weight_decay=0"]),
    ("data.text_field=body", ["data.documents=blank-line", "data.path=a.txt"]),
    ("data.split=80/10/10", ["data.valid_path=v", "data.test_path=t"]),
])  # fmt: skip
def test_a_field_without_effect_is_refused_by_name(idle, others):
    load_recipe("gpt", others)
    with pytest.raises(ConfigError) as error:
        load_recipe("gpt", [idle, *others])
    message = str(error.value)
    assert message.startswith(idle.partition("=")[0] + " = ") and " has no effect" in message
    assert len(others) != 1 or others[0].partition("=")[0] in message


@pytest.mark.parametrize("overrides", [
    'model.gelu=exact model.block=["ffn:relu","attention","ffn:gelu"]',
    'model.ffn=relu model.block=["ffn:gelu","attention","ffn"]',
    "model.kind=lstm model.head=transform model.ffn=swish model.swish_beta=2",
    'data.split=80/10/10 data.corpus=["enwik8","python"]',
    "data.split=80/10/10 data.corpus=enwik8 data.path=x",
    "data.text_field=body data.documents=json data.path=a.jsonl",
    "data.text_field=body data.path=hub:owner/name",
])  # fmt: skip
def test_a_field_with_effect_is_accepted(overrides):
    load_recipe("gpt", overrides.split())


def test_every_rule_is_about_fields_that_exist():
    deciders = {decider for key in keys() for use in uses(key) for decider in use.deciders}
    assert deciders and deciders | set(USES) <= set(keys())
    of_any_kind = {decider for decider in deciders if not is_union(decider.partition(".")[0])}
    assert all(value_of(decider, Recipe()) is not ... for decider in of_any_kind)


OLD_RUNS = Path(__file__).resolve().parents[1] / "golden" / "old" / "ba7f49d"


def test_old_names_are_read_in_what_was_derived_and_in_folders_of_models(tmp_path, monkeypatch):
    monkeypatch.setitem(RENAMED, "model.width", "model.d_ff")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('derived = ["model.width"]\n[model]\nwidth = 24\nd_model = 8\n')
    assert load_recipe(tmp_path).recipe.model.d_ff is None
    assert read_recipe(recipe).model.d_ff == 24
    shutil.copytree(OLD_RUNS / "causal" / "finished" / "model", tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    file.write_text(file.read_text().replace('"d_ff"', '"width"'))
    assert load_weights(tmp_path / "model")[0].d_ff == 16


def test_the_new_name_is_given_in_one_line(tmp_path):
    words = "objective.mask_most is now called objective.max_predictions: write that"
    file = tmp_path / "mine.toml"
    file.write_text('extends = "gpt"\n[objective]\nmask_most = 2\n')
    with pytest.raises(ConfigError) as given:
        load_recipe("gpt", ["objective.mask_most=2"])
    with pytest.raises(ConfigError) as written:
        load_recipe(file)
    assert (str(given.value), str(written.value)) == (words, f"{words} (recipe {file})")
    with pytest.raises(ConfigError, match=words.partition(":")[0]):
        load_study("bert-base", vary_texts=["objective.mask_most=10,20"])
    text = 'derived = []\n[objective]\nkind = "masked"\nmask_most = 3\nmax_predictions = 4\n'
    (tmp_path / "recipe.toml").write_text(text)
    with pytest.raises(ConfigError, match="mask_most is now called"):
        load_recipe(tmp_path)


MODELS = {"pair": {"model.pooler": "tanh"}, "text": {"model.decoder_start": "pad"}}
N_TASKS = {
    ("albert", "pair"): 14, ("macaron", "pair"): 8, ("electra", "pair"): 12,
    ("gpt1", "traversal"): len(TASKS) - 2, ("t5", "text"): len(TASKS) - 7,
    ("default", "pair"): len(TASKS), ("default", "traversal"): len(TASKS) - 2,
    ("default", "text"): len(TASKS),
}  # fmt: skip
"""How many tasks each has figures for; a traversal answers none of spans."""


def presets_of(name, format_):
    found = {}
    for task in TASKS:
        if format_ != "traversal" or TASKS[task].kind != "span":
            with suppress(ConfigError):
                found[task] = load_preset(name, format_, [task], has_start=False)
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
    assert len(others) == 3 * 6 - len(N_TASKS) and not any(presets_of(*each) for each in others)


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
    assert figure.value == 128 and figure.source.startswith("512 in ")
    unlimited = load_preset("albert", "pair", ["rte"], positions=2048).settings
    assert unlimited["data.context"] == 512
    assert "init.freeze" not in load_preset("t5", "text", ["rte"], has_start=False).settings


@pytest.mark.parametrize("name, tasks, message", [
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
