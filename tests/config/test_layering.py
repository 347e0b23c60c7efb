"""Fields and presets; layers of settings, recipes of files and runs, and their starts."""

import json
import math
import shutil
from contextlib import suppress
from itertools import product
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublayer.api.recipes import field_rows, json_schema
from sublayer.config import layers as layering
from sublayer.config import load as loading
from sublayer.config import recipe as declared
from sublayer.config.data import DataConfig
from sublayer.config.finetune import is_recipe, load_preset, preset_names
from sublayer.config.layers import Layer, merge, shipped_recipes
from sublayer.config.load import dump_recipe, load_recipe, read_recipe
from sublayer.config.model import FFNS
from sublayer.config.objective import KINDS
from sublayer.config.optimizers import OPTIMIZERS
from sublayer.config.recipe import TABLES, Recipe, extra, is_union, keys, nearest_key
from sublayer.config.resolve import default_epochs, derived_fields, resolve_model
from sublayer.config.rules import CONDITIONS, is_idle, uses, value_of
from sublayer.errors import ConfigError
from sublayer.model.model_folder import load_weights
from sublayer.study.arms import Arm
from sublayer.study.definition import load_study, other_settings
from sublayer.tasks.registry import TASKS
from tests.breadth import rows

PURE = (
    *("_std", "base", "beta", "betas", "decay", "eps", "exponent", "first_position", "loss", "lr"),
    *("_cap", "_scale", "coefficients", "fraction", "momentum", "norm", "penalty", "power"),
    *("ratio", "seed", "threshold", "weight"),
)


def test_every_field_is_listed_once_with_type_and_description():
    listed = field_rows()
    names = [".".join(filter(None, (each.table, each.name))) for each in listed]
    assert names == [*declared.HEADINGS, *keys()]
    assert all(each.description and each.type and each.default for each in listed)
    assert {each.table for each in field_rows("optimizer")} == {"optimizer"}
    assert {name for each in listed for name in each.set_by} == set(shipped_recipes())
    names = {row.name for row in field_rows() if "number" in row.type and not row.unit}
    assert [name for name in names if not name.endswith(PURE)] == []
    assert [end for end in PURE if not any(name.endswith(end) for name in names)] == []


def test_the_schema_describes_every_table_and_is_json():
    schema = json.loads(json.dumps(json_schema()))
    assert set(schema["properties"]) == {*layering.FILE_ONLY, *declared.HEADINGS, *TABLES}
    model, optimizer = schema["$defs"]["ModelConfig"], schema["properties"]["optimizer"]
    assert schema["additionalProperties"] is model["additionalProperties"] is False
    assert model["properties"]["ffn"]["enum"] == list(FFNS)
    assert "Unit: features." in model["properties"]["d_ff"]["description"]
    assert "discriminator" not in optimizer and len(optimizer["anyOf"]) == len(OPTIMIZERS)
    assert "required" not in schema["$defs"]["SgdConfig"]


NAMED_FFNS = 'model.block=["ffn:relu*0.5", "attention", "ffn:swiglu*0.5"]'


@pytest.mark.parametrize("idle, others", [
    ("model.gelu=exact", [NAMED_FFNS]), ("model.ffn=relu", [NAMED_FFNS]),
    ("model.norm=rms", ["model.kind=lstm"]), ("train.compile=true", ["model.kind=lstm"]),
    ("train.kernels=compiled", ["model.ffn=relu"]), ("train.kernels=compiled", ["model.ffn=swish"]),
    ("train.kernels=compiled",
     ["model.ffn=relu", "model.positions=rotary", "model.rotary_fraction=0.5"]),
    ("model.attention_gate=head", ['model.block=["ffn"]']),
    ("model.value_residual=fixed", ["model.n_layers=1"]),
    ("model.rotary_layout=interleaved", ["model.positions=none"]),
    ("data.vocab_size=300", ["data.tokenizer=tokenizer.json"]),
    ("optimizer.decay_vectors=true", ["optimizer.weight_decay=0"]),
    ("optimizer.schedule=cosine", ["optimizer.kind=schedule-free"]),
    ("optimizer.cooldown_share=0.1", ["optimizer.kind=schedule-free"]),
    ("optimizer.muon_unit=head", ["optimizer.kind=muon", 'model.block=["ffn"]']),
    ("optimizer.muon_unit=head", ["optimizer.kind=muon", "model.kind=lstm"]),
    ("data.text_field=body", ["data.documents=blank-line", "data.path=a.txt"]),
    ("data.split=80/10/10", ["data.valid_path=v", "data.test_path=t"]),
    ("train.micro_batch_sequences=5", ["train.batch_sequences=4"]),
])  # fmt: skip
def test_a_field_without_effect_is_refused_by_name(idle, others):
    load_recipe("gpt", others)
    with pytest.raises(ConfigError) as error:
        load_recipe("gpt", [idle, *others])
    message = str(error.value)
    assert message.startswith(idle.partition("=")[0] + " = ") and " has no effect" in message
    assert others[-1].partition("=")[0] in message


@pytest.mark.parametrize("overrides", [
    'model.gelu=exact model.block=["ffn:relu","attention","ffn:gelu"]',
    'model.ffn=relu model.block=["ffn:gelu","attention","ffn"]',
    "model.kind=lstm model.head=transform model.ffn=swish model.swish_beta=2",
    'data.split=80/10/10 data.corpus=["enwik8","python"]',
    "data.split=80/10/10 data.corpus=enwik8 data.path=x",
    "data.text_field=body data.documents=json data.path=a.jsonl",
    "data.text_field=body data.path=hub:owner/name",
    'model.value_residual=learned model.n_layers=1 model.block=["attention","attention"]',
    "train.kernels=compiled model.ffn=swiglu", "train.kernels=compiled model.ffn=geglu",
    "model.kind=encoder-decoder objective.kind=span data.tokenizer=unigram data.sentinels=100 "
    'model.block=["ffn"] model.decoder_block=["cross","ffn"] model.n_heads=2 model.sinks=true',
])  # fmt: skip
def test_a_field_with_effect_is_accepted(overrides):
    load_recipe("gpt", overrides.split())


def test_every_rule_is_about_fields_that_exist():
    deciders = {decider for key in keys() for use in uses(key) for decider in use.deciders}
    assert deciders and deciders <= set(keys())
    infos = (info for key in keys() for info in declared.declarations(key).values())
    assert {name for info in infos for name in extra(info).get("when", ())} == CONDITIONS.keys()
    of_any_kind = {decider for decider in deciders if not is_union(decider.partition(".")[0])}
    assert all(value_of(decider, Recipe()) is not ... for decider in of_any_kind)


OLD_RUNS = Path(__file__).resolve().parents[1] / "golden" / "old" / "ba7f49d"


def test_old_names_are_read_in_what_was_derived_and_in_folders_of_models(tmp_path, monkeypatch):
    monkeypatch.setitem(declared.RENAMED, "model.width", "model.d_ff")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('derived = ["model.width"]\n[model]\nwidth = 24\nd_model = 8\n')
    assert load_recipe(tmp_path).recipe.model.d_ff is None and read_recipe(recipe).model.d_ff == 24
    shutil.copytree(OLD_RUNS / "causal" / "finished" / "model", tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    file.write_text(file.read_text().replace('"d_ff"', '"width"'))
    assert load_weights(tmp_path / "model")[0].d_ff == 16


def test_the_new_name_is_given_in_one_line(tmp_path):
    words, file = "mask_most is now called objective.max_predictions", tmp_path / "mine.toml"
    file.write_text('extends = "gpt"\n[objective]\nmask_most = 2\n')
    text = 'derived = []\n[objective]\nkind = "masked"\nmask_most = 3\nmax_predictions = 4\n'
    (tmp_path / "recipe.toml").write_text(text)
    for said, read in (
        (
            f"^objective.{words}: write the new name$",
            lambda: load_recipe("gpt", ["objective.mask_most=2"]),
        ),
        (rf"{words}: write the new name \(recipe {file}\)$", lambda: load_recipe(file)),
        (words, lambda: load_study("bert-base", vary_texts=["objective.mask_most=10,20"])),
        (words, lambda: load_recipe(tmp_path)),
    ):
        with pytest.raises(ConfigError, match=said):
            read()


MODELS = {"pair": {"model.pooler": "tanh"}, "text": {"model.decoder_start": "pad"}}
N_TASKS = {
    ("albert", "pair"): 14, ("macaron", "pair"): 8, ("electra", "pair"): 12,
    ("gpt1", "traversal"): len(TASKS) - 2, ("t5", "text"): len(TASKS) - 7,
    ("default", "pair"): len(TASKS), ("default", "traversal"): len(TASKS) - 2,
    ("default", "text"): len(TASKS),
}  # fmt: skip


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
            assert len(figure.source) > 10


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


def test_figures_are_within_what_the_model_has_and_of_no_other_format():
    others = {*product(preset_names(), KINDS)} - N_TASKS.keys()
    assert len(others) == 3 * 6 - len(N_TASKS) and not any(presets_of(*each) for each in others)
    preset = load_preset("albert", "pair", ["rte"], positions=128)
    (figure,) = [each for each in preset.figures if each.key == "data.context"]
    assert figure.value == 128 and figure.source.startswith("512 in ")
    assert load_preset("albert", "pair", ["rte"], positions=2048).settings["data.context"] == 512
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


@pytest.mark.parametrize("text, value", [
    ("3e-4", 3e-4), ("true", True), ("True", "True"), ("'1984'", "1984"),
    ('["ffn*0.5", "attention"]', ["ffn*0.5", "attention"]),
    ("{enwik8 = 1.0}", {"enwik8": 1.0}), ("2020-01-31", "2020-01-31"), ("", ""),
    ("1\nother = 2", "1\nother = 2"), ("-inf", -math.inf),
    *[(text, text) for text in ("9" * 5000, "[" * 70, "{" + "a." * 40 + "b = 1.0}")],
], ids=lambda value: str(value)[:20])  # fmt: skip
def test_an_override_is_a_toml_value_or_else_a_bare_text(text, value):
    assert layering.override_layer([f"key={text}"], "command line").values == {"key": value}


def test_every_value_has_its_origin():
    loaded = load_recipe("llama-2023", ["model.n_layers=2"])
    origins = {"n_layers": "command line", "norm": "recipe llama-2023", "d_model": "recipe gpt"}
    origins |= {"share": "default"}
    assert {name: loaded.origins[f"model.{name}"] for name in origins} == origins
    tables = {table: type(getattr(loaded.recipe, table)) for table in TABLES}
    fields = {f"{table}.{name}" for table, cls in tables.items() for name in cls.model_fields}
    assert set(loaded.origins) == {*fields, *declared.HEADINGS}


def test_an_arm_is_one_more_layer():
    loaded = load_recipe("gpt", ["train.minutes=3", "model.d_ff=64"])
    arm = loaded.vary(["train.steps=7", "model.positions=rotary", "model.rotary_base=500"])
    train, model = arm.recipe.train, arm.recipe.model
    assert (train.steps, train.minutes, model.d_ff, arm.name) == (7, None, 64, loaded.name)
    assert (arm.origins["train.steps"], loaded.recipe.train.minutes) == ("vary", 3)
    model = arm.vary({"model.positions": "none"}).recipe.model
    assert (model.positions, model.rotary_base) == ("none", 10000.0)


def merged(*layers):
    settings = merge([Layer("layer", values) for values in layers])
    return {key: setting.value for key, setting in settings.items()}


def test_a_later_field_text_or_start_replaces_what_it_excludes_or_brings():
    for earlier, later in (
        ("train.minutes", "train.steps"), ("train.tokens", "train.epochs"),
        ("optimizer.warmup_share", "optimizer.warmup_steps"), ("data.vocab_size", "data.merges"),
    ):  # fmt: skip
        assert merged({earlier: 1, "train.seed": 2}, {later: 1}) == {"train.seed": 2, later: 1}
    both = {"data.path": "a", "data.corpus": "b"}
    for later in ({"data.path": "c"}, {"data.corpus": "c"}):
        assert merged(both, later) == later
    assert merged({"data.path": "c"}, both) == both
    earlier = {"data.tokenizer": "bpe", "data.vocab_size": 512, "data.context": 64}
    assert merged(earlier, {"init.run": "runs/a"}) == {"data.context": 64, "init.run": "runs/a"}
    others = ("bytes", "mine/tokenizer.json", "unigram")
    kept = [merged(earlier, {"data.tokenizer": name}).get("data.vocab_size") for name in others]
    assert kept == [None, None, 512]


def test_a_new_optimizer_drops_settings_of_the_old_one_and_keeps_shared_ones():
    adamw = {"optimizer.lr": 1e-3, "optimizer.betas": [0.9, 0.99], "optimizer.clip_norm": 2}
    sgd, adam, same = ({"optimizer.kind": kind} for kind in ("sgd", "adam", "adamw"))
    assert merged(adamw, sgd) == {"optimizer.clip_norm": 2, **sgd}
    # Adam's default learning rate is AdamW's.
    assert merged(adamw, adam) == {"optimizer.lr": 1e-3, "optimizer.clip_norm": 2, **adam}
    assert merged(adamw, same) == merged({**same, **adamw}, same) == {**adamw, **same}


@pytest.mark.parametrize("key, meant", [
    ("model.lr", "optimizer.lr"), ("titel", "title"), ("model.zzzzz", "`sublayer fields model`"),
    ("zzzzz.yyyyy", "the tables are model"),
])  # fmt: skip
def test_an_unknown_key_names_the_nearest_and_its_layer(key, meant):
    with pytest.raises(ConfigError, match=rf"^{key} .*{meant}.*\(recipe x\)$"):
        merge([Layer("recipe x", {key: 1})])
    for wrong, says in (({3: 1}, "name a field"), ({key: {3}}, f"{key} has a value of type set")):
        with pytest.raises(ConfigError, match=says):
            layering.override_layer(wrong, "command line")


def test_a_layer_restores_a_default_that_an_earlier_one_changed():
    changed, restored = (Layer("recipe a", {"model.share_groups": n}) for n in (2, 1))
    layers = ([changed, restored], [changed, restored, restored], [restored], [changed])
    found = [merge(each)["model.share_groups"].restores for each in layers]
    assert found == [True, True, False, False]


@pytest.mark.parametrize("given", ["bytes", "bpe"])
def test_a_tokenizer_beside_a_start_is_refused_whatever_the_recipe_sets(given):
    for recipe in ("gpt", "gpt1-small"):
        with pytest.raises(ConfigError, match=f"^data.tokenizer = {given!r} has no effect"):
            load_recipe(recipe, {"init.run": "runs/a", "data.tokenizer": given})


CHOICES = {
    "model.block": [["attention", "ffn"], ["ffn"], ["attention"], ["ffn:relu", "attention"]],
    "model.d_embed": [32, 64], "model.embedding_projection": ["sum"],
    "model.ffn": ["relu", "gelu"], "model.gelu": ["exact"], "model.norm": ["layer", "none"],
    "model.positions": ["learned", "rotary", "none"], "model.rotary_base": [500.0],
    "model.share": ["none", "all"], "model.share_groups": [2],
    "optimizer.schedule": ["linear", "constant", "inverse-sqrt", "polynomial"],
    "optimizer.warmup": ["albert", "gpt1", "constant"],
    "optimizer.weight_decay": [0.0, 0.2], "optimizer.decay_vectors": [True],
}  # fmt: skip
SETTINGS = st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in CHOICES.items()})


@given(SETTINGS, SETTINGS)
def test_a_setting_that_a_later_layer_makes_idle_is_dropped_with_a_note(earlier, later):
    base, over = Layer("recipe mine", earlier), Layer("command line", later)
    try:
        *_, notes_before = loading.settle([base])
    except ConfigError:
        return
    try:
        recipe, settings, notes = loading.settle([base, over])
    except ConfigError as error:
        key = str(error).partition(" = ")[0]
        assert key in later
        return
    noted = [note.partition(" = ")[0] for note in notes]
    assert (notes_before, set(noted) & set(later)) == ((), set())
    assert sorted(noted) == sorted(earlier.keys() - settings.keys())
    for key, setting in settings.items():
        assert setting.restores or not is_idle(key, recipe)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_recipes_are_found_by_name_file_and_run(tmp_path):
    named = lambda *given: attrgetter("name", "origin")(layering.find_source(*given))  # noqa: E731
    path = write(tmp_path / "mine.toml", "")
    file = write(tmp_path / "a" / "recipe.toml", "derived = []")
    write(tmp_path / "gpt" / "recipe.toml", "")  # a shipped recipe comes first
    assert (named(path), named("a", tmp_path)) == (("mine", f"recipe {path}"), ("a", "run a"))
    assert layering.find_source(file).name == "a"
    assert named("gpt", tmp_path) == named("gpt") == ("gpt", "recipe gpt")


@pytest.mark.parametrize("former", layering.FORMER_NAMES)
def test_a_former_name_finds_its_recipe_and_its_current_name_is_said(former, tmp_path):
    current = layering.FORMER_NAMES[former]
    path = write(tmp_path / "mine.toml", f'extends = "{former}"\ntitle = "Mine"')
    assert load_recipe(former).recipe == load_recipe(current).recipe
    assert load_recipe(former).name == former and load_recipe(current).notes == ()
    for loaded in (load_recipe(former, ["model.n_layers=2"]), load_recipe(path)):
        assert loaded.notes == (f"the recipe {former} is now called {current}",)
    assert is_recipe(former)


def test_extended_recipes_come_base_first(tmp_path):
    base = 'extends = "gpt"\ntitle = "Base"\nsource = "A book"\n[model]\nn_layers = 2\nd_ff = 8'
    write(tmp_path / "base.toml", base)
    path = write(tmp_path / "top.toml", 'extends = "base.toml"\ntitle = "Top"\n[model]\nd_ff = 16')
    origins = [layer.origin for layer in layering.find_source(path).read_layers()]
    assert origins == ["recipe gpt", "recipe base.toml", f"recipe {path}"]
    loaded = load_recipe(path)
    assert (loaded.recipe.model.n_layers, loaded.recipe.model.d_ff) == (2, 16)
    assert [loaded.origins[f"model.{name}"] for name in ("n_layers", "d_ff")] == origins[1:]
    assert (loaded.recipe.title, loaded.recipe.source) == ("Top", "")


@pytest.mark.parametrize("text, says", [
    ("model = 3\n", "write [model]"), ("[model]\nlr.rate = 3\n", "model.lr"),
    ("title = '\udcff'", "is not UTF-8 text"),
    ("[model]\nshare_groups = 2\n", "has no effect with model.share = 'none'"),
])  # fmt: skip
def test_a_recipe_with_a_mistake_is_refused_by_file(tmp_path, text, says):
    path = tmp_path / "x.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError) as error:
        load_recipe(path, ["model.d_ff=64"])
    message = str(error.value)
    assert says in message and str(path) in message and "\n" not in message


def test_paths_are_made_absolute_and_names_of_data_sets_and_urls_are_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hub, url = "hub:owner/name:config@train", "https://owner.org/a.txt"
    fields = {"valid_path": "squad-dev", "test_path": "albert-intrinsic", "tokenizer": "moses-bpe"}
    given = DataConfig(path=("a/../b.txt", hub, url), **fields)
    expected = given.model_copy(update={"path": (str(tmp_path / "b.txt"), hub, url)})
    assert loading.absolute_paths(Recipe(data=given)).data == expected
    for field, name in (("path", "squad-dev"), ("tokenizer", "x.json"), ("tokenizer", "deep/code")):
        found = loading.absolute_paths(Recipe(data=DataConfig(**{field: name}))).data
        assert getattr(found, field) == str(tmp_path / name)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
PATHS = TEXT.filter(bool) | st.lists(TEXT.filter(bool), min_size=1, max_size=3).map(tuple)
NUMBER = st.floats(1e-9, 1e3)
DRAWN = {
    "model": {"swish_beta": st.just("learned") | st.floats(-1e6, 1e6),
              "norm_eps": st.floats(1e-300, 1, exclude_max=True),
              "block": st.sampled_from(["macaron", ("ffn*0.25", "attention")])},
    "data": {"corpus": st.sampled_from([None, "python", ("python", "enwik8")]),
             "path": PATHS | st.dictionaries(TEXT.filter(bool), NUMBER, min_size=1),
             "valid_path": st.none() | TEXT.filter(bool),
             "watch": st.sampled_from([(), ("race-dev",), {"squad": "dev.json", "own": "a/b.txt"}]),
             "columns": st.sampled_from([None, {"text": "a", "choices": ("b", "c"), "label": "d"}]),
             "tasks": st.sampled_from([None, ("sst2", "cola"), {"sst2": 0.5, "cola": 2.0}])},
    "optimizer": {"lr": NUMBER, "betas": st.tuples(*[st.floats(0, 1, exclude_max=True)] * 2)},
    "train": {"keep_steps": st.lists(st.integers(1, 10**6), unique=True, max_size=3).map(tuple),
              "probes": st.sampled_from([(), ("sst2",), {"sst2": "glue", "race": "a b"}]),
              "seed": st.integers(0, 2**63 - 1)},
    "init": {"freeze": st.sampled_from([(), "embeddings", ("embeddings", "layers:2")])},
}  # fmt: skip
TABLES_DRAWN = {name: st.fixed_dictionaries({}, optional=DRAWN[name]) for name in DRAWN}
DERIVED = st.lists(st.sampled_from(["train.steps", "model.d_ff"]), unique=True)
NAMES = st.sampled_from(("gpt", "bert-base", "multi30k-tiny"))


@settings(max_examples=60)
@given(NAMES, TEXT, st.fixed_dictionaries(TABLES_DRAWN), DERIVED)
def test_a_written_recipe_is_read_back_exactly(tmp_path_factory, name, title, drawn, derived):
    content = load_recipe(name).recipe.model_dump()
    content |= {table: {**content[table], **fields} for table, fields in drawn.items()}
    if not isinstance(content["data"]["path"], str | tuple | None):
        content["data"]["corpus"] = None
    recipe = Recipe.model_validate({**content, "title": title})
    folder = write_run(tmp_path_factory.mktemp("run"), recipe, *derived)
    assert read_recipe(folder / "recipe.toml") == recipe


def write_run(folder, recipe, *derived):
    write(folder / "recipe.toml", dump_recipe(recipe, derived, as_run=True))
    return folder


def test_a_run_as_a_base_gives_its_recipe_again_and_what_it_set_counts(tmp_path):
    given = ["model.share=all", "model.share_groups=2", "model.block=macaron"]
    given += ["train.batch_tokens=4096", "train.tokens=1e6", "optimizer.warmup_steps=3"]
    given += ["train.micro_batch_sequences=4"]
    recipe = load_recipe("gpt", given).recipe
    folder = write_run(tmp_path / "a", recipe)
    assert load_recipe(folder).recipe == recipe
    (note,) = load_recipe(folder, ["model.share=none"]).notes
    assert note.startswith(f"model.share_groups = 2 of run {folder} has no effect")
    (note,) = load_recipe(folder, ["train.batch_sequences=1"]).notes
    assert note.startswith(f"train.micro_batch_sequences = 4 of run {folder} has no effect")
    loaded = load_recipe(folder, ["model.norm=none", "init.run=x"])
    assert loaded.origins["model.rotary_base"] == "default"
    assert loaded.origins["train.tokens"] == f"run {folder}"


@pytest.mark.parametrize("lowers", [False, True])
def test_a_run_as_a_base_or_a_start_lowers_capitals_as_it_was_told(tmp_path, lowers):
    recipe = load_recipe("gpt", {"data.tokenizer": "wordpiece", "data.lowercase": lowers}).recipe
    folder = write_run(tmp_path / "a", recipe, *derived_fields(recipe, recipe))
    assert load_recipe(folder).recipe == recipe
    assert load_recipe("gpt", {"init.run": str(folder)}).recipe.data.lowercase is False
    # Before there was data.keep_accents every run wrote lowercase = false.
    before = load_recipe(write_run(tmp_path / "b", recipe)).recipe.data.lowercase
    assert before is (lowers or None)


def test_values_that_a_run_derived_are_derived_anew_where_the_run_is_a_base(tmp_path):
    given = load_recipe("gpt").recipe
    train = given.train.model_copy(update={"steps": 4213})
    folder = write_run(tmp_path / "a", given.model_copy(update={"train": train}), "train.steps")
    assert read_recipe(folder / "recipe.toml").train.steps == 4213
    based = load_recipe(folder).recipe.train
    assert (based.steps, based.minutes) == (None, given.train.minutes)
    other = load_recipe(folder, ["train.steps=5"]).recipe.train
    assert (other.steps, other.minutes) == (5, None)
    with pytest.raises(ConfigError, match=r"toml is not the recipe of a run: d_head, n_kv_heads,"):
        loading.read_run_recipe(folder / "recipe.toml")
    with pytest.raises(ConfigError, match="is not there"):
        read_recipe(folder / "none.toml")


@pytest.mark.parametrize("tables, says", [
    ('[objective]\nkind = "masked"\np_mask = 0.9\np_random = 0.2\n', "objective.p_random = 0.2"),
    ('[train]\npatience = 2\nbest_by = "last"\n', "train.patience = 2"),
    ('[data]\npath = { a = 1.0 }\ncorpus = "c4"\n', "give weights to both"),
    ('[data]\npath = { a = 1.0 }\nwindows = "shuffled"\n', "data.windows = shuffled"),
    ('[data]\ncorpus = "albert-intrinsic"\n', "needs data.path"),
    ('[data]\ntokenizer = "unigram"\nvocab_size = 50\nsentinels = 50\n', "data.sentinels = 50"),
])  # fmt: skip
def test_a_recipe_of_a_run_whose_table_contradicts_itself_is_refused(tmp_path, tables, says):
    path = write(tmp_path / "a" / "recipe.toml", tables)
    with pytest.raises(ConfigError) as error:
        read_recipe(Path(path))
    assert says in str(error.value) and f"run {tmp_path / 'a'}" in str(error.value)


SMALL = {"model.n_layers": 2, "model.d_model": 32, "model.ffn": "swiglu", "model.d_ff": 48}
SMALL |= {"data.context": 64, "data.path": "book.txt", "data.split": "80/10/10"}


@pytest.fixture
def run(tmp_path):
    def write_start(settings=SMALL, source="gpt"):
        recipe = load_recipe(source, settings).recipe
        model = resolve_model(recipe.model, vocab_size=256, context=recipe.data.context)
        open_fields = model.model_fields_set - recipe.model.model_fields_set
        derived = [f"model.{name}" for name in open_fields]
        folder = write_run(tmp_path / "book", recipe.model_copy(update={"model": model}), *derived)
        described = {"format": "sublayer", "version": 1, "model": model.model_dump(mode="json")}
        write(folder / "model" / "config.json", json.dumps(described))
        return str(folder)

    return write_start


def test_a_start_gives_its_model_and_its_text(run):
    folder = run()
    loaded = load_recipe("llama-2023", {"init.run": folder})
    model, data = loaded.recipe.model, loaded.recipe.data
    assert (model.n_layers, model.d_model, model.ffn, model.d_ff) == (2, 32, "swiglu", 48)
    assert (model.norm, model.positions) == ("layer", "learned")  # gpt's defaults, not llama-2023's
    assert (data.path, data.corpus, data.split, data.context) == ("book.txt", None, "80/10/10", 64)
    assert loaded.origins["model.d_model"] == f"run {folder}"
    assert "data.path = 'book.txt' instead of data.corpus = 'python'" in loaded.notes[1]
    arm = loaded.vary({"model.norm_eps": 1e-3}).recipe.model
    assert (arm.norm_eps, arm.d_model) == (1e-3, 32)


def test_a_start_of_another_kind_or_for_a_context_that_is_no_number_is_refused(run, tmp_path):
    with pytest.raises(ConfigError, match=r"has model.kind = decoder, but .*encoder"):
        load_recipe("albert-small", {"init.run": run()})
    model = str(Path(run()) / "model")
    (Path(model).parent / "recipe.toml").unlink()
    path = write(tmp_path / "base.toml", 'extends = "gpt"\n[data]\ncontext = "long"\n')
    with pytest.raises(ConfigError, match="data.context = 'long'"):
        load_recipe(path, {"init.run": model})


def test_settings_of_the_command_line_stand(run):
    folder = run()
    given = {"init.run": folder, "data.path": "notes.txt", "model.dropout": 0.1}
    loaded = load_recipe("gpt", given)
    model, data = loaded.recipe.model, loaded.recipe.data
    assert (data.path, data.split, data.context) == ("notes.txt", None, 64)
    assert (model.dropout, model.dropout_attention) == (0.1, None)  # follows dropout, as there
    kept, others = loaded.notes
    assert all(each in kept for each in ("dropout = 0.1 (there 0.0)", "no data.split (there '80"))
    assert "model.d_model = 32 instead of 192" in others


def test_the_data_of_a_recipe_of_tasks_counts_for_any_model(run, tmp_path):
    text = '[objective]\nkind = "supervised"\nformat = "traversal"\n[model]\nn_layers = 9\n'
    text += '[data]\ntasks = "rte"\npath = "glue"\ncontext = 48\n'
    loaded = load_recipe(write(tmp_path / "tasks.toml", text), {"init.run": run()})
    model, data = loaded.recipe.model, loaded.recipe.data
    assert (data.tasks, data.path, data.context, data.split) == ("rte", "glue", 48, None)
    assert (model.n_layers, model.max_len) == (2, 64)


def test_the_recipe_of_a_run_that_had_a_start_is_whole_without_it(run, tmp_path):
    first = run({"data.tokenizer": "bpe"})
    second = load_recipe("gpt", {"init.run": first, "model.init_std": 0.02}).recipe
    later = write_run(tmp_path / "later", second)
    assert "\ntokenizer = " not in (later / "recipe.toml").read_text()  # it is the start's
    [said] = other_settings([Arm(str(x), load_recipe(str(x)), {}) for x in (first, later)])
    assert "init.run = " in said and "tokenizer" not in said
    (Path(first) / "recipe.toml").unlink()
    assert load_recipe(later).recipe.model == second.model


def test_a_start_is_a_run_its_checkpoint_or_a_model(run):
    folder = Path(run())
    for part in ("model", "checkpoints/step-3/model"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        start = loading.read_start(str(folder / part))
        assert (start.model.d_ff, start.data.path) == (48, "book.txt")
    for damage in ("not toml [", "[model]\nno = 1"):
        (folder / "recipe.toml").write_text(damage)
        assert [loading.read_start(str(each)) for each in (folder, folder / "no")] == [None] * 2
    (folder / "recipe.toml").unlink()
    loaded = load_recipe("gpt", {"init.run": str(folder / "model")}).recipe
    assert (loaded.model.d_ff, loaded.data.context, loaded.data.corpus) == (48, 64, "python")


@pytest.mark.parametrize("name", rows(shipped_recipes(), 2))
def test_every_shipped_model_is_kept_as_it_is(run, name):
    before, after = load_recipe(name).recipe, load_recipe(name, {"init.run": run({}, name)}).recipe
    sizes = {"vocab_size": 256, "context": before.data.context}
    kept, given = (resolve_model(each.model, **sizes) for each in (after, before))
    assert kept.model_dump() == given.model_dump()


@pytest.mark.parametrize("word, meant", [
    ("width", None), ("depth", None), ("bananas", None), ("device", None),
    ("dropuot", "model.dropout"), ("vocab", "model.vocab_size"), ("epoch", "train.epochs"),
    ("layers", "init.layers"), ("precison", "train.precision"),
])  # fmt: skip
def test_a_field_is_suggested_for_a_slip_alone(word, meant):
    assert nearest_key(word) == meant
