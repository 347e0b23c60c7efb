"""Decoders of transformers, by class: fields and weights in and out; options of formats."""

import dataclasses
import random

import pytest
import torch

from sublayer.api.run import export
from sublayer.decode.sample import GREEDY, generate
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.exits import EXITS
from sublayer.interop.foreign_config import Content
from sublayer.interop.huggingface import (
    FAMILIES,
    export_huggingface,
    export_transformers,
    family_for,
    read_huggingface,
)
from sublayer.model.transformer import build
from sublayer.text_model import TextModel
from tests.breadth import TRIES_ALL, rows
from tests.interop.classes import CLASSES, DECODERS, LIMIT
from tests.interop.folders import change_weights, close, read_json
from tests.interop.test_classes import built
from tests.interop.tiny import config_of, difference, lifted, tiny, with_random_vectors
from tests.model.test_published import LIMITS, draw, logits_of_class


def is_accepted(field, value):
    try:
        field.rule(value)
    except ValueError:
        return False
    return True


def drawn(name, draws):
    """Draw fields of a class's config, of sizes, windows, positions, biases, scales and caps."""
    n_heads = draws.choice([2, 4])
    values = {
        "vocab_size": [19], "hidden_size": [16], "n_embd": [16], "num_hidden_layers": [2, 3],
        "n_layer": [2, 3], "max_position_embeddings": [32], "n_positions": [32],
        "num_attention_heads": [n_heads], "n_head": [n_heads], "head_dim": [4, 6, 8],
        "pad_token_id": [None], "num_key_value_heads": [1, 2, n_heads],
        "intermediate_size": [6, 20], "n_inner": [None, 9],
        "hidden_act": ["silu", "gelu", "gelu_pytorch_tanh", "relu", "relu2", "linear", "sigmoid"],
        "hidden_activation": ["silu", "gelu", "gelu_pytorch_tanh", "relu"],
        "activation_function": ["relu", "gelu", "gelu_new", "relu2", "silu"], "rotary_dim": [2, 4],
        "rope_theta": [50.0, 10_000.0], "rope_local_base_freq": [9.0], "rotary_emb_base": [70.0],
        "rotary_pct": [0.5, 1.0], "sliding_window": [2, 4], "use_sliding_window": [True, False],
        "max_window_layers": [0, 1], "sliding_window_pattern": [2, 3],
        "no_rope_layer_interval": [1, 2, 9], "use_parallel_residual": [True, False],
        "attention_bias": [True, False], "mlp_bias": [True, False],
        "tie_word_embeddings": [True, False], "final_logit_softcapping": [None, 1.5],
        "attn_logit_softcapping": [None, 0.7], "query_pre_attn_scalar": [4, 7],
        "embedding_multiplier": [1.0, 3.0], "logits_scaling": [1.0, 2.5],
        "attention_multiplier": [0.3, 0.5], "residual_multiplier": [1.0, 0.22],
        "logit_scale": [1.0, 0.25], "rms_norm_eps": [1e-6, 1e-3], "layer_norm_eps": [1e-5, 1e-2],
        "layer_norm_epsilon": [1e-5, 1e-2],
    }  # fmt: skip
    drawn = {}
    for key, field in FAMILIES[name].fields.fields.items():
        accepted = [value for value in values.get(key, ()) if is_accepted(field, value)]
        if accepted:
            drawn[key] = draws.choice(accepted)
    return drawn


SEEDS = range(25 if TRIES_ALL else 1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", rows(DECODERS, 4))
@torch.no_grad()
def test_random_decoders_come_in_and_go_out(tmp_path, name, seed):
    fields = drawn(name, random.Random(f"{name} {seed}"))
    original = tiny(name, **dict.fromkeys(CLASSES[name][1], ...) | fields)
    # The file has all fields, as transformers writes it, but an end, which would cut answers.
    written = original.model().config.to_dict() | {"dtype": ..., "eos_token_id": ...}
    read = read_huggingface(original.save(tmp_path / "theirs", **written))
    export_huggingface(read, tmp_path / "back", FAMILIES[name].title)
    model, (tokens, mask) = read.model, draw(seed)
    with lifted(original.kind):
        back = original.kind.from_pretrained(tmp_path / "back", dtype=torch.float64).eval()
        for each in (back, original.model()):
            expected = logits_of_class(each, tokens, mask)[mask]
            close(model(tokens, mask).logits[mask], expected)
    greedy = torch.cat([*generate(model, tokens[1:, :5], 6, GREEDY)])
    expected = back.generate(tokens[1:, :5], max_new_tokens=6, do_sample=False)
    assert torch.equal(greedy, expected[0, 5:])


@pytest.mark.parametrize("name, changes, ours_of_it", [
    ("llama", {"rope_theta": 500.0}, {"rotary_base": 500.0}),
    ("llama", {"rope_theta": 9.0, "rope_scaling": {"type": "default"}}, {"rotary_base": 9.0}),
    ("cohere", {}, {"rotary_base": 500_000.0}), ("smollm3", {}, {"rotary_base": 2_000_000.0}),
    ("gpt_neox", {"rotary_emb_base": 70, "rotary_pct": 1.0},
     {"rotary_base": 70.0, "rotary_fraction": 1.0, "block": "parallel"}),
    ("gemma3_text", {"rope_theta": 9.0, "rope_local_base_freq": 3.0, "sliding_window_pattern": 2},
     {"rotary_base": 9.0, "rotary_local_base": 3.0, "window_pattern": "LG"}),
    ("gemma3_text", {"layer_types": ["full_attention"] * 2}, {"rotary_base": 1e6}),
    ("qwen2", {"use_sliding_window": False, "max_window_layers": 0}, {"attention_window": "none"}),
    ("mistral", {"sliding_window": None}, {"attention_window": "none"}),
    ("smollm3", {"no_rope_layers": [0, 0]}, {"positions": "none"}),
    ("granite", {"attention_multiplier": 0.5}, {"attention_scale": "sqrt"}),
    ("llama", {"pad_token_id": -1}, {}),
    ("gpt2", {"activation_function": "relu", "scale_attn_weights": False},
     {"ffn": "relu", "attention_scale": "none"}),
    ("openai-gpt", {"afn": "silu", "layer_norm_epsilon": 0.01}, {"ffn": "swish", "norm_eps": 0.01}),
    ("m2m_100", {"activation_function": "gelu", "scale_embedding": False},
     {"ffn": "gelu", "gelu": "exact", "embedding_scale": "none"}),
    ("albert",
     {"num_hidden_groups": 2, "inner_group_num": 3, "embedding_size": 4, "hidden_act": "relu",
      "hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3, "layer_norm_eps": 1e-7,
      "initializer_range": 0.05},
     {"d_embed": 4, "n_layers": 6, "share": "all", "share_groups": 2, "share_inner": 3,
      "dropout": 0.2, "dropout_embedding": 0.2, "dropout_attention": 0.3, "dropout_ffn": 0.0,
      "norm_eps": 1e-7, "ffn": "relu", "init": "truncated", "init_std": 0.05}),
    ("gpt2", {"resid_pdrop": 0.4, "embd_pdrop": 0.2, "attn_pdrop": 0.3, "n_inner": 10},
     {"dropout": 0.4, "dropout_embedding": 0.2, "dropout_ffn": 0.0, "dropout_attention": 0.3}),
])  # fmt: skip
def test_fields_of_either_version_of_transformers_are_read(tmp_path, name, changes, ours_of_it):
    original = tiny(name, **changes)
    read = read_huggingface(original.save(tmp_path / "theirs"))
    assert {key: getattr(read.model.config, key) for key in ours_of_it} == ours_of_it
    assert difference(name, read, original.model()) < LIMIT


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize("name, changes, message", [
    ("llama", {"rope_scaling": LLAMA3}, "rope_scaling = .*rope_type only 'default'"),
    ("qwen2", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rope_parameters = "),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "type only 'default'"),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
    ("gemma3_text", {"rope_parameters": {"rope_theta": 9.0}}, "rope_theta changes the model"),
    ("mistral", {"attention_bias": True}, "attention_bias = true"),
    ("llama", {"sliding_window": 4}, "sliding_window = 4"),
    ("llama", {"num_local_experts": 8}, "num_local_experts = 8"),
    ("cohere", {"use_qk_norm": True}, "use_qk_norm = true"),
    ("gemma2", {"layer_types": ["chunked_attention"] * 2}, "layer_types = .*only 'sliding"),
    ("gemma2", {"layer_types": ["full_attention"]}, "layer_types has 1 entries for 2 layers"),
    ("gemma2", {"sliding_window": None}, "need a sliding_window"),
    ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention = true"),
    ("smollm3", {"no_rope_layers": [2, 1]}, "no_rope_layers = "),
    ("llama", {"head_dim": 4, "num_attention_heads": 3, "num_key_value_heads": 3},
     "Llama's class has no model.n_heads = 3"),
    ("gpt_neox", {"rotary_pct": 0.3}, "even number of rotated features"),
    ("gptj", {"rotary_dim": 6}, "rotary_fraction = 1.5"),
    ("llama", {"hidden_act": "mish"}, "hidden_act = 'mish'"),
    ("llama", {"pad_token_id": 23}, "pad_token_id = 23 is not within vocab_size = 23"),
    ("albert", {"pruned_heads": {"0": [1]}}, r"pruned_heads = {'0': \[1\]}"),
    ("bert", {"num_attention_heads": 5}, "num_attention_heads = 5 does not divide"),
    ("albert", {"num_hidden_groups": 3}, "num_hidden_groups = 3 does not divide num_hidden"),
])  # fmt: skip
def test_a_field_that_changes_the_model_is_refused_by_name(name, changes, message):
    family, fields = FAMILIES[name], {**CLASSES[name][1], **changes}
    with pytest.raises(CheckpointError, match=message):
        family.read_config(family.fields.read(Content("config.json", fields)), {})


def test_rotary_bases_are_written_for_either_version_of_transformers(tmp_path):
    export_huggingface(built("llama", rotary_base=70.0), tmp_path / "out")
    fields = read_json(tmp_path / "out" / "config.json")
    assert fields["rope_theta"] == fields["rope_parameters"]["rope_theta"] == 70.0


@pytest.mark.parametrize("name, fields", [
    # A bias of labels is folded into the offsets of the last norm; maps of one field get zeros.
    ("gpt_neox for labels", {}), ("gptj for labels", {}),
    ("openai-gpt for labels", {"share": "all"}),
    ("gpt2 for labels", {"norm_affine": False, "final_norm": "plain"}), ("qwen2", {}),
    ("llama", {"bias": {"output": True}}), ("llama", {"bias": {"key": True, "ffn": True}}),
])  # fmt: skip
def test_biases_go_where_a_class_has_them(tmp_path, name, fields):
    model = with_random_vectors(build(config_of(name, **fields), seed=1).double())
    certificate = export_huggingface(TextModel(model), tmp_path / "out")
    assert certificate["largest_difference"]["float64"] < LIMITS[torch.float64]
    assert read_json(tmp_path / "out" / "config.json")["architectures"] == [CLASSES[name][0]]


def test_a_bias_of_labels_without_offsets_needs_own_code(tmp_path):
    model = TextModel(with_random_vectors(build(config_of("llama for labels"), seed=1).double()))
    with pytest.raises(ConfigError, match="final_norm no offsets"):
        export_huggingface(model, tmp_path / "refused")
    certificate = export_transformers(model, tmp_path / "out").certificate
    assert "code" in certificate
    assert certificate["largest_difference"]["float64"] < LIMITS[torch.float64]


def test_the_first_class_that_can_represent_a_model_is_written(tmp_path):
    def chosen(name, **changes):
        return family_for(config_of(name, **changes)).title

    for fields in ({}, {"n_kv_heads": 1, "norm_affine": False, "share": "all"}, {"bias": True}):
        assert chosen("llama", **fields) == "Llama"
    assert chosen("llama", attention_window=3, window_pattern="LG") == "SmolLM3"
    assert chosen("llama", attention_scale=2.5) == "Granite"
    with pytest.raises(ConfigError, match="Llama's class cannot represent model.sinks = true: "):
        export_huggingface(built("llama", sinks=True), tmp_path / "refused")


def test_an_output_matrix_by_its_old_name_is_read_without_masks_and_angles(tmp_path):
    original = tiny("gpt_neox")
    folder = original.save(tmp_path / "theirs")
    old = {
        f"gpt_neox.layers.0.attention.{name}": torch.ones(2)
        for name in ("bias", "rotary_emb.inv_freq")
    }
    change_weights(folder, lambda h: {"embed_out.weight": h.pop("lm_head.weight"), **h, **old})
    assert difference("gpt_neox", read_huggingface(folder), original.model()) < 1e-9


def test_a_class_is_named_or_refused_and_a_format_takes_only_its_options(tmp_path, monkeypatch):
    model, out = built("gpt2"), tmp_path / "exported"
    export_huggingface(model, out, "GPT2LMHeadModel")
    assert read_json(out / "config.json")["architectures"] == ["GPT2LMHeadModel"]
    for name, message in {
        "GPT-1": r"GPT-1.s class cannot represent model.d_ff = 5, model.norm_order = pre",
        "BERT": r"BERT's class cannot represent model.kind = decoder",
        "GPT-3": r"--class 'GPT-3' is not a known class: give GPT-2, GPT-1",
    }.items():
        with pytest.raises(ConfigError, match=message):
            export_huggingface(model, tmp_path / "refused", name)
    plain = dataclasses.replace(EXITS["transformers"], options=())
    monkeypatch.setitem(EXITS, "transformers", plain)
    with pytest.raises(ConfigError, match="class_name has no effect with to transformers"):
        export(tmp_path, tmp_path / "refused", class_name="GPT-2")
