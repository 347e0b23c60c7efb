"""The tables of config.json say what transformers' classes say: defaults and other names."""

import dataclasses
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sublayer.errors import CheckpointError
from sublayer.interop.config_reader import Content
from sublayer.interop.huggingface.classes import FAMILIES
from sublayer.interop.huggingface.exchange import import_huggingface, read_huggingface
from sublayer.loading import load
from tests.at_length import at_length
from tests.interop.tiny import CLASSES, VOCAB_SIZE, Tiny, model_type, ours, theirs, tiny

each_class = pytest.mark.parametrize("name", list(CLASSES))
_TINY: dict[str, Tiny] = {}


def config_class(name: str) -> Any:
    import transformers

    return getattr(transformers, CLASSES[name][0]).config_class


@each_class
def test_every_default_is_that_of_transformers(name: str) -> None:
    table, theirs = FAMILIES[name].fields, config_class(name)
    declared = {each.name: each.default for each in dataclasses.fields(theirs)}
    known = {key: value for key, value in table.fields.items() if key in declared}
    assert {key: value.default for key, value in known.items()} == {
        key: declared[key] for key in known
    }
    assert table.title == theirs.__name__
    assert dict(table.aliases) == theirs.attribute_map


@each_class
def test_every_field_of_transformers_is_in_the_table(name: str) -> None:
    from transformers import GenerationConfig

    table = FAMILIES[name].fields
    known = {*table.fields, *table.ignored, *table.aliases}
    assert {each.name for each in dataclasses.fields(config_class(name))} <= known
    assert set(config_class(name)().to_dict()) <= known
    assert set(GenerationConfig._get_default_generation_params()) <= known


@each_class
def test_a_field_is_in_the_table_once(name: str) -> None:
    table = FAMILIES[name].fields
    assert not table.fields.keys() & table.aliases.keys()
    assert not table.aliases.keys() & table.ignored
    assert set(table.aliases.values()) <= table.fields.keys()


# Values of another kind than a field's default, which change nothing that a tiny model's tensors
# fix.
_SMALL = {
    "gpt2": {
        "activation_function": "relu",
        "layer_norm_epsilon": 0.01,
        "scale_attn_weights": False,
    },
    "openai-gpt": {"afn": "silu", "layer_norm_epsilon": 0.01},
    "bert": {"hidden_act": "relu", "layer_norm_eps": 0.01},
    "albert": {"hidden_act": "gelu", "layer_norm_eps": 0.01},
    "bert for labels": {"hidden_act": "relu", "num_labels": 3},
    "bert for choices": {"hidden_act": "relu", "layer_norm_eps": 0.01},
    "bert for spans": {"hidden_act": "relu", "num_labels": 2},
    "albert for labels": {"hidden_act": "gelu", "num_labels": 3},
    "albert for choices": {"hidden_act": "gelu", "layer_norm_eps": 0.01},
    "albert for spans": {"hidden_act": "gelu", "num_labels": 2},
    "gpt2 for labels": {"activation_function": "relu", "pad_token_id": 3, "num_labels": 3},
    "openai-gpt for labels": {"afn": "relu", "pad_token_id": 3, "num_labels": 3},
    "openai-gpt for choices": {"afn": "silu", "layer_norm_epsilon": 0.01},
    "m2m_100": {"activation_function": "gelu", "scale_embedding": False, "pad_token_id": 3},
    "marian": {"activation_function": "relu", "scale_embedding": True},
    "t5": {
        "feed_forward_proj": "gelu_new",
        "layer_norm_epsilon": 0.01,
        "scale_decoder_outputs": False,
        "relative_attention_max_distance": 9,
    },
}


@st.composite
def configurations(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Draw a class and a file of it: some fields changed, some left out, some by another name."""
    name = draw(st.sampled_from(list(CLASSES)))
    changed = {key: value for key, value in _SMALL[name].items() if draw(st.booleans())}
    aliases = {field: alias for alias, field in FAMILIES[name].fields.aliases.items()}
    renamed = {field: alias for field, alias in aliases.items() if draw(st.booleans())}
    doubled = draw(st.booleans())
    fields: dict[str, Any] = {**CLASSES[name][1], **changed}
    for field, alias in renamed.items():
        fields[alias] = fields[field] if doubled else fields.pop(field)
    return name, fields


def check(name: str, fields: dict[str, Any], original: Tiny | None = None) -> None:
    """Import a model of just these fields, as without transformers; compare the logits."""
    if name not in _TINY:
        _TINY[name] = tiny(name)
    original = original or _TINY[name]
    with TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        original = dataclasses.replace(original, fields={"model_type": model_type(name), **fields})
        folder = original.save(Path(place) / "theirs")
        oracle = original.kind.from_pretrained(folder, local_files_only=True)
        patch.setattr("sublayer.interop.certificate.find_spec", lambda name: None)
        assert not import_huggingface(folder, Path(place) / "ours")["checked"]
        torch.testing.assert_close(
            ours(load(Path(place) / "ours")), theirs(oracle), rtol=0, atol=1e-12
        )


@settings(max_examples=12)
@given(configurations())
def test_what_a_file_leaves_out_or_renames_is_what_transformers_takes(
    drawn: tuple[str, dict[str, Any]],
) -> None:
    check(*drawn)


@pytest.mark.slow
@at_length(150)
@given(configurations())
def test_many_files_are_what_transformers_takes(drawn: tuple[str, dict[str, Any]]) -> None:
    check(*drawn)


# All that a file need say of a model whose other sizes are the defaults; the width alone is cut.
_WIDTHS = {
    "gpt2": {"n_embd": 12},
    "openai-gpt": {"n_embd": 12},
    "bert": {"hidden_size": 12},
    "albert": {"hidden_size": 64},
    "bert for labels": {"hidden_size": 12},
    "bert for choices": {"hidden_size": 12, "architectures": ["BertForMultipleChoice"]},
    "bert for spans": {"hidden_size": 12},
    "albert for labels": {"hidden_size": 64},
    "albert for choices": {"hidden_size": 64, "architectures": ["AlbertForMultipleChoice"]},
    "albert for spans": {"hidden_size": 64},
    "gpt2 for labels": {"n_embd": 12},
    "openai-gpt for labels": {"n_embd": 12},
    "openai-gpt for choices": {"n_embd": 12},
    "m2m_100": {"d_model": 16},
    "marian": {"d_model": 16},
    "t5": {"d_model": 16},
}


@pytest.mark.slow
@settings(max_examples=5)
@given(st.data())
@each_class
def test_sizes_that_a_file_leaves_out_are_the_defaults(name: str, data: st.DataObject) -> None:
    table = FAMILIES[name].fields
    sizes = {
        key: field.default for key, field in table.fields.items() if type(field.default) is int
    }
    said = {key: value for key, value in sizes.items() if data.draw(st.booleans())}
    if (original := _TINY.get(f"large {name}")) is None:
        known = {*sizes, *CLASSES[name][1]} & table.fields.keys()
        defaults = {key: table.fields[key].default for key in known}
        original = _TINY[f"large {name}"] = tiny(name, **{**defaults, **_WIDTHS[name]})
    check(name, {**said, **_WIDTHS[name]}, original)


@each_class
def test_the_certificate_agrees_with_transformers_own_defaults(tmp_path: Path, name: str) -> None:
    original = tiny(name)
    certificate = import_huggingface(original.save(tmp_path / "theirs"), tmp_path / "ours")
    assert certificate["largest_difference"]["float64"] < 1e-12


def test_a_size_that_a_file_leaves_out_is_the_default(tmp_path: Path) -> None:
    original = tiny("m2m_100", max_position_embeddings=1024)
    assert (
        read_huggingface(original.save(tmp_path / "a", max_position_embeddings=...)).config.max_len
        == 1024
    )
    original = tiny("bert", type_vocab_size=2, max_position_embeddings=512)
    assert (
        read_huggingface(original.save(tmp_path / "b", max_position_embeddings=...)).config.max_len
        == 512
    )


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        (name, field, value)
        for name, field, values in [
            ("gpt2", "scale_attn_weights", (0, None, "true", [])),
            ("gpt2", "tie_word_embeddings", (1, None, "false")),
            ("gpt2", "n_layer", (2.0, None, "2", True, 0, -1, 10**12, 2**63)),
            ("gpt2", "num_hidden_layers", (2.0, None, "2", True, 0, -1, 10**12)),
            ("gpt2", "layer_norm_epsilon", (0, None, "1e-5", True, 2**64, -1.0)),
            ("gpt2", "add_cross_attention", (True, 0, None)),
            ("bert", "is_decoder", (True, 0, [], "no")),
            ("bert", "pad_token_id", (VOCAB_SIZE, -1, 10**12, 0.0, True)),
            ("bert", "quantization_config", ({}, 0, {"quant_method": "x"})),
            ("bert", "auto_map", ({"AutoModel": "modeling.Other"}, "x")),
            ("albert", "hidden_size", (10**12, 2**63, 12.0)),
            ("albert", "num_hidden_groups", (0, 10**9, 1.0)),
            ("albert", "inner_group_num", (10**9, 10**6, None)),
            ("m2m_100", "scale_embedding", (0, 1, None, "true")),
            ("m2m_100", "max_position_embeddings", (10**9, 10**30, 16.0)),
            ("m2m_100", "init_std", (1_000_000_000, 0, None, "x")),
            ("m2m_100", "is_encoder_decoder", (False, 1)),
            ("m2m_100", "eos_token_id", ([2], None, VOCAB_SIZE)),
            ("marian", "decoder_vocab_size", (0, VOCAB_SIZE - 1, VOCAB_SIZE + 1, 23.0, "23")),
            ("marian", "share_encoder_decoder_embeddings", (0, None, False)),
            ("marian", "d_model", (11, 10**12)),
            ("t5", "feed_forward_proj", ("tanh", "gated-tanh", "gated-gelu-new", None, 3)),
            ("t5", "dense_act_fn", ("silu", "x", None)),
            ("t5", "is_gated_act", (True, None, 0)),
            ("t5", "scale_decoder_outputs", (1, None, "true")),
            ("t5", "relative_attention_num_buckets", (0, 2, 7, 10**9, 8.0)),
            ("t5", "relative_attention_max_distance", (4, 1, 10**12)),
            ("t5", "decoder_start_token_id", (5, VOCAB_SIZE, -1)),
            ("t5", "num_decoder_layers", (0, 1.0, 10**9)),
            ("bert for labels", "id2label", ({}, [], "x", {"1": "a"}, {"0": "a", "2": "b"})),
            ("albert for labels", "id2label", ({"0": ""}, {"0": 3}, {"0": " "}, {"0": "a\n"})),
            ("gpt2 for labels", "id2label", ({"0": "a", "1": "a"}, {"00": "a"})),
            ("bert for labels", "num_labels", (0, None, 2.0, "3", True, 10**12, 2)),
            ("bert for labels", "problem_type", ("x", 3, "multi_label_classification")),
            ("bert for spans", "num_labels", (1, 3, 0)),
            ("bert for spans", "id2label", ({"0": 1},)),
            ("gpt2 for labels", "pad_token_id", (VOCAB_SIZE, -1, "x", 0.0)),
        ]
        for value in values
    ],
)  # fmt: skip
def test_a_value_of_another_type_or_out_of_range_is_refused_by_name(
    name: str, field: str, value: Any
) -> None:
    given = {key: each for key, each in CLASSES[name][1].items() if key != field}
    given = {
        key: each for key, each in given.items() if FAMILIES[name].fields.aliases.get(field) != key
    }

    def read() -> None:
        content = FAMILIES[name].fields.read(Content("config.json", {**given, field: value}))
        FAMILIES[name].read_config(content, tiny(name).tensors)

    with pytest.raises(CheckpointError, match=rf"config.json.*\b({field}|model\.\w+)\b") as caught:
        read()
    assert "\n" not in str(caught.value)


def test_two_names_of_one_field_that_differ_are_refused(tmp_path: Path) -> None:
    folder = tiny("gpt2").save(tmp_path / "theirs", num_attention_heads=4)
    with pytest.raises(
        CheckpointError, match="n_head = 3 and num_attention_heads = 4 are one field"
    ):
        read_huggingface(folder)


@each_class
def test_fields_that_change_no_number_are_left_out_and_unknown_ones_are_named(
    tmp_path: Path, name: str
) -> None:
    original = tiny(name)
    harmless = {
        "return_dict": False,
        "chunk_size_feed_forward": 3,
        "dtype": "os.system",
        "torch_dtype": [1],
        "id2label": 3,
        "num_labels": 1_000_000_000,
        "attn_implementation": "kernels-community/flash-attn",
        "_attn_implementation": 3,
        "experts_implementation": "x",
        "use_cache": 7,
        "problem_type": "x",
        "output_attentions": True,
        "transformers_version": [[1]],
        "architectures": {"a": None},
    }
    computed = {*FAMILIES[name].fields.fields, *CLASSES[name][1]}
    harmless = {key: value for key, value in harmless.items() if key not in computed}
    folder = original.save(tmp_path / "theirs", **harmless, sub_configs={}, rotary=True)
    certificate = import_huggingface(folder, tmp_path / "ours")
    assert certificate["largest_difference"]["float64"] < 1e-12
    assert certificate["ignored"].startswith("rotary, sub_configs of config.json")
    plain = original.kind(original.kind.config_class(**CLASSES[name][1])).double()
    plain.load_state_dict(original.tensors, strict=False)
    plain.tie_weights()
    torch.testing.assert_close(ours(load(tmp_path / "ours")), theirs(plain), rtol=0, atol=1e-12)


@each_class
def test_what_an_export_writes_is_in_the_table(tmp_path: Path, name: str) -> None:
    model = read_huggingface(tiny(name).save(tmp_path / "theirs"))
    family = FAMILIES[name]
    described = Content("config.json", family.write_config(model.config, None))
    assert family.fields.read(described).unknown == ()


def test_positions_that_are_no_sinusoids_are_refused(tmp_path: Path) -> None:
    original = tiny("marian")
    original.tensors["model.encoder.embed_positions.weight"][3, 1] += 0.1
    with pytest.raises(
        CheckpointError, match=r"encoder.embed_positions.weight holds other numbers than Marian's"
    ):
        read_huggingface(original.save(tmp_path / "theirs"))
