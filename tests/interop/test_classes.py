"""Every class of transformers: fields, logits in and out, what it can represent."""

import dataclasses
import re

import pytest
import torch

from sublayer.config.fields.messages import choices_of
from sublayer.config.model import ModelConfig
from sublayer.config.resolved import ResolvedModel
from sublayer.config.table import field
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.answers.label_fields import MOST_LABELS
from sublayer.interop.config_reader import Content
from sublayer.interop.huggingface.classes import FAMILIES, family_for
from sublayer.interop.huggingface.exchange import (
    export_huggingface,
    import_huggingface,
    read_huggingface,
)
from sublayer.interop.huggingface.representable import Rule
from sublayer.loading import load
from sublayer.model.build import build
from sublayer.tasks.spec import TaskSpec
from tests.breadth import rows
from tests.interop.exported import CONTEXT, EXPORTED, config_of, task_of
from tests.interop.folders import check_refused, close, read_json, with_random_vectors
from tests.interop.tiny import CLASSES, VOCAB_SIZE, model_type, ours, theirs, tiny

each_class = pytest.mark.parametrize("name", list(CLASSES))
CHOICES = {
    name: (True, False) if field.annotation is bool else choices_of(field.annotation)
    for name, field in ModelConfig.model_fields.items()
    if field.annotation is bool or choices_of(field.annotation)
}


@each_class
def test_fields_and_defaults_are_those_of_transformers(name):
    import transformers

    table, kind = FAMILIES[name].fields, getattr(transformers, CLASSES[name][0]).config_class
    declared = {each.name: each.default for each in dataclasses.fields(kind)}
    defaults = {key: value.default for key, value in table.fields.items() if key in declared}
    assert defaults == {key: declared[key] for key in defaults}
    assert table.title == kind.__name__
    assert dict(table.aliases) == kind.attribute_map
    known = {*table.fields, *table.ignored, *table.aliases}
    assert declared.keys() | kind().to_dict().keys() <= known
    assert set(transformers.GenerationConfig._get_default_generation_params()) <= known
    assert not table.aliases.keys() & {*table.fields, *table.ignored}
    assert set(table.aliases.values()) <= table.fields.keys()


@each_class
def test_a_class_comes_in_and_goes_out_with_its_logits_and_bits(tmp_path, name):
    original = tiny(name)
    harmless = {"return_dict": False, "dtype": "os.system", "torch_dtype": [1], "id2label": 3}
    harmless |= {"num_labels": 1_000_000_000, "attn_implementation": "kernels-community/flash-attn"}
    harmless |= {"problem_type": "x", "transformers_version": [[1]], "architectures": {"a": None}}
    computed = {*FAMILIES[name].fields.fields, *CLASSES[name][1]}
    harmless = {key: value for key, value in harmless.items() if key not in computed}
    folder = original.save(tmp_path / "theirs", **harmless, sub_configs={}, rotary=True)
    for file in ("generation_config.json", "adapter_config.json", "README.md"):
        (folder / file).write_text("[" * 5000)
    certificate = import_huggingface(folder, tmp_path / "ours")
    assert certificate["largest_difference"]["float64"] < 1e-12
    assert certificate["ignored"].startswith("rotary, sub_configs of config.json")
    model = load(tmp_path / "ours")
    described = Content("config.json", FAMILIES[name].write_config(model.config, None))
    assert FAMILIES[name].fields.read(described).unknown == ()
    close(ours(model), theirs(original.model()), 1e-12)
    export_huggingface(model, tmp_path / "back")
    again = original.kind.from_pretrained(tmp_path / "back", dtype=torch.float64).state_dict()
    assert all(torch.equal(again[key], tensor) for key, tensor in original.tensors.items())
    config = read_json(tmp_path / "back" / "config.json")
    assert config["architectures"] == [CLASSES[name][0]]


def small_changes(name):
    """Return values of another kind than a field's default, which fit a tiny model's tensors."""
    if name == "t5":
        fields = {"feed_forward_proj": "gelu_new", "layer_norm_epsilon": 0.01}
        return fields | {"scale_decoder_outputs": False, "relative_attention_max_distance": 9}
    labels = {"num_labels": 3} if name.endswith("labels") else {}
    if name.startswith(("bert", "albert")):
        return {"hidden_act": "relu", "layer_norm_eps": 0.01, **labels}
    if name.startswith("openai-gpt"):
        return {"afn": "silu", "layer_norm_epsilon": 0.01, **labels}
    if name.startswith("gpt2"):
        fields = {"scale_attn_weights": False, "layer_norm_epsilon": 0.01, **labels}
        return {"activation_function": "relu", **fields}
    return {"activation_function": "gelu", "scale_embedding": name == "marian"}


@each_class
def test_fields_left_out_or_renamed_are_read_as_transformers_reads_them(tmp_path, name):
    aliases = {field: alias for alias, field in FAMILIES[name].fields.aliases.items()}
    changed = {**CLASSES[name][1], **small_changes(name)}
    renamed = {aliases.get(field, field): value for field, value in changed.items()}
    fields = {"model_type": model_type(name), **renamed}
    original = dataclasses.replace(tiny(name), fields=fields)
    folder = original.save(tmp_path / "theirs")
    oracle = original.kind.from_pretrained(folder, local_files_only=True)
    close(ours(read_huggingface(folder)), theirs(oracle), 1e-12)


VALUES = [
    ("gpt2", "tie_word_embeddings", 1), ("gpt2", "n_layer", 0), ("gpt2", "n_layer", 10**5000),
    ("gpt2", "activation_function", "mish"), ("gpt2", "attn_pdrop", 1.0),
    ("bert", "pad_token_id", VOCAB_SIZE), ("bert", "position_embedding_type", "relative_key"),
    ("bert", "type_vocab_size", 3), ("m2m_100", "scale_embedding", None),
    ("m2m_100", "decoder_ffn_dim", 7), ("m2m_100", "decoder_start_token_id", 1),
    ("marian", "decoder_vocab_size", VOCAB_SIZE + 1),
    ("marian", "share_encoder_decoder_embeddings", False),
    ("t5", "feed_forward_proj", "gated-tanh"), ("t5", "relative_attention_max_distance", 4),
    ("bert for labels", "id2label", {"0": "a", "2": "b"}),
    ("gpt2 for labels", "id2label", {"0": "a", "1": "a"}),
    ("albert for labels", "id2label", {"0": " "}),
    ("bert for labels", "id2label", {str(n): f"{n}" for n in range(MOST_LABELS + 1)}),
    ("bert for labels", "problem_type", "multi_label_classification"),
    ("openai-gpt for choices", "summary_type", "mean"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "changed", "value"), VALUES, ids=[f"{name}-{key}" for name, key, _ in VALUES]
)
def test_a_value_of_another_type_or_out_of_range_is_refused_by_name(name, changed, value):
    aliases, fields = FAMILIES[name].fields.aliases, CLASSES[name][1]
    left = {key: each for key, each in fields.items() if key not in (changed, aliases.get(changed))}

    tensors, content = tiny(name).tensors, Content("config.json", {**left, changed: value})
    with pytest.raises(CheckpointError, match=rf"config.json.*\b({changed}|model\.\w+)\b"):
        FAMILIES[name].read_config(FAMILIES[name].fields.read(content), tensors)


def test_names_that_contradict_each_other_and_other_tables_are_refused(tmp_path):
    folder = tiny("gpt2").save(tmp_path / "doubled", num_attention_heads=4)
    check_refused(folder, "n_head = 3 and num_attention_heads = 4 are one")
    check_refused(
        tiny("gpt2").save(tmp_path / "llama", model_type="llama"),
        "model_type = 'llama'; only 'gpt2'",
    )
    original, table = tiny("marian"), "model.encoder.embed_positions.weight"
    original.tensors[table] += 0.1
    check_refused(original.save(tmp_path / "other"), "holds other")
    original.tensors[table] = torch.ones(3)
    check_refused(original.save(tmp_path / "none"), r"\[3\], which is no table of sinusoids")
    with pytest.raises(ConfigError, match="vocab_size = 2 has no room for eos_token_id = 2"):
        export_huggingface(build(config_of("m2m_100", vocab_size=2), seed=0), tmp_path / "small")


def test_copies_of_the_table_of_a_translator_are_left_out(tmp_path):
    original = tiny("m2m_100")
    plain = read_huggingface(original.save(tmp_path / "plain")).state_dict()
    table = original.tensors.pop("model.shared.weight")
    original.tensors["model.encoder.embed_tokens.weight"] = table
    again = read_huggingface(original.save(tmp_path / "kept")).state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in plain.items())
    original.tensors["model.decoder.embed_tokens.weight"] = table + 1
    check_refused(original.save(tmp_path / "two"), "several tables cannot be one")


class LaterConfig(ResolvedModel):
    """A model's config with a field that came later."""

    later: int = field(3, "What no table has.")


def test_every_field_has_a_place_in_every_table():
    for name, family in FAMILIES.items():
        assert family.table.keys() == ModelConfig.model_fields.keys()
        for each, allowed in family.table.items():
            if each in CHOICES and not isinstance(allowed, Rule):
                # Of a number among choices, what other systems have is its default.
                assert set(allowed) <= {*CHOICES[each], ModelConfig.model_fields[each].default}
        config = config_of(name)
        assert family_for(config, task_of(name)) is family
        with pytest.raises(ConfigError, match="represent model.later = 3:"):
            family_for(LaterConfig(**dict(config)))


NEW = [(name, each) for name in FAMILIES for each in CHOICES if each != "kind"]


@pytest.mark.parametrize(("name", "each"), rows(NEW, 4))
def test_a_value_that_no_table_has_is_refused_by_name(name, each):
    changed = config_of(name).model_copy(update={each: "something new"})
    with pytest.raises(ConfigError, match=f"represent .*model.{each} = something new"):
        family_for(changed, task_of(name))


REFUSED = [
    # The first segment has a vector, which a decoder adds to every token.
    ("gpt2", {"segments": "both"}, "segments = both"),
    ("gpt2", {"positions": "rotary", "d_head": 8}, "positions = rotary, model.d_head = 8"),
    ("gpt2", {"norm": "rms", "ffn": "swiglu"}, "ffn = swiglu, model.norm = rms"),
    ("gpt2", {"block": ("ffn", "attention")}, "block = ['ffn', 'attention']"),
    ("openai-gpt", {"final_norm": "affine"}, "final_norm = affine"),
    ("openai-gpt", {"gelu": "exact", "ffn": "gelu"}, "gelu = exact"),
    ("m2m_100", {"first_position": 24}, "first_position = 24"),
    # What M2M100 is given to begin with would have no position there.
    ("m2m_100", {"first_position": 2, "decoder_start": "pad"}, "decoder_start = pad"),
    ("marian", {"decoder_block": ("attention", "cross", "ffn:gelu")}, "ffn = gelu, relu"),
    ("bert", {"final_norm": "plain"}, "final_norm = plain"),
    ("bert", {"d_embed": 5}, "embedding_projection = tokens"),
    ("bert that judges pairs", {"sentence_classes": 1}, "sentence_classes = 1"),
    ("t5", {"bias": True}, "bias = true"),
    ("t5", {"ffn": "swiglu", "swish_beta": 0.5}, "swish_beta = 0.5"),
    # transformers has no class of spans that there may be none of.
    ("albert for spans", {"span_head": "joint"}, "span_head = joint"),
    ("bert for labels", {"pooler": "none"}, "pooler = none"),
]


@pytest.mark.parametrize(("name", "changes", "named"), REFUSED, ids=str)
def test_only_the_fields_that_stand_in_the_way_are_named(tmp_path, name, changes, named):
    with pytest.raises(ConfigError, match=re.escape(f"represent model.{named}: ")):
        export_huggingface(build(config_of(name, **changes), seed=0), tmp_path / "exported")
    assert not list(tmp_path.iterdir())


PLAIN = {"bias": False, "norm_affine": False}
OPTIONS = [
    ("gpt2", {"tie_embeddings": False, "gelu": "exact", "d_ff": None}),
    ("gpt2", {**PLAIN, "final_norm": "plain", "block": ("attention", "ffn:swish")}),
    ("gpt2", {"positions": "none", "attention_scale": "none", "norm_eps": 1e-2, "share": "all"}),
    ("gpt2", {"positions": "sinusoidal", "embedding_scale": "sqrt", "tie_embeddings": False}),
    ("gpt2", {"embedding_scale": "sqrt", "share": "attention", "segments": "second"}),
    ("openai-gpt", {**PLAIN, "tie_embeddings": False, "positions": "none", "share": "ffn"}),
    ("openai-gpt for choices", {"softmax": "all", "embedding_scale": "sqrt"}),
    ("openai-gpt for labels", {"norm_affine": False}),
    ("bert", {**PLAIN, "head_bias": False, "tie_embeddings": False, "segments": "none"}),
    ("bert that judges pairs", {"positions": "none", "segments": "second", "share": "attention"}),
    ("bert for labels", {"positions": "sinusoidal", "embedding_scale": "sqrt"}),
    ("bert that judges pairs", {"share": "attention", "n_layers": 4, "share_groups": 2}),
    # Groups that transformers rounds otherwise.
    ("albert", {"n_layers": 18, "share_groups": 14}),
    ("albert", {"n_layers": 4, "share_groups": 2, "share_inner": 2, "tie_embeddings": False}),
    ("albert with another width of the table", {**PLAIN, "share": "ffn", "d_embed": 14}),
    ("albert for spans", {"d_embed": 12, "project_embeddings": "always", "share": "all"}),
    ("m2m_100", {"n_decoder_layers": 3, "tie_embeddings": False, "embedding_scale": "none"}),
    ("m2m_100", {**PLAIN, "first_position": 3, "ffn": "gelu", "norm_eps": 1e-5}),
    ("marian", {"head_bias": False, "tie_embeddings": False, "share": "all", "ffn": "swish"}),
    ("t5", {"ffn": "geglu", "gelu": "tanh", "output_scale": "sqrt", "n_decoder_layers": 1}),
    ("t5", {"norm_affine": False, "embedding_scale": "sqrt", "share": "all", "d_head": 5}),
    ("t5", {"tie_embeddings": False, "relative_buckets": 4, "relative_distance": 17}),
]


REST = [(name, {}) for name in EXPORTED if name not in dict(OPTIONS)]


@pytest.mark.parametrize(("name", "fields"), [*OPTIONS, *REST], ids=str)
def test_a_model_is_exported_with_the_same_logits(tmp_path, name, fields):
    config, task = config_of(name, **fields), task_of(name)
    assert family_for(config, task) is FAMILIES[EXPORTED[name][0]]
    model = with_random_vectors(build(config, seed=1))
    if task is not None:
        model.task = TaskSpec((task,), "pair", CONTEXT)
    certificate = export_huggingface(model, tmp_path / "exported")
    assert certificate["checked"]
    # Sinusoids and scaled tables are rounded to float32, and norms enlarge what is rounded.
    assert certificate["largest_difference"]["float64"] <= 1e-4 * certificate["largest_logit"]
