"""Models of transformers' GPT-2 give the same logits here, and models from here there."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.certificate import describe
from sublayer.interop.huggingface.exchange import (
    export_huggingface,
    import_huggingface,
    read_huggingface,
)
from sublayer.loading import load
from sublayer.model.build import build
from sublayer.model.context.cache import Cache
from sublayer.model.transformer import Transformer
from tests.in_time import some_in_time

SaveGpt2 = Callable[..., tuple[Path, Any]]


def tokens_for(model: Transformer, rows: int = 3) -> Tensor:
    assert model.config.vocab_size is not None
    assert model.config.max_len is not None
    shape = (rows, model.config.max_len)
    return torch.randint(model.config.vocab_size, shape, generator=torch.Generator().manual_seed(5))


def model_of(**fields: Any) -> Transformer:
    settings = {"n_layers": 4, "d_model": 15, "n_heads": 3, "d_ff": 17, "init_std": 0.3, **fields}
    model = build(
        resolve_model(ModelConfig.model_validate(settings), vocab_size=53, context=19), seed=7
    )
    with torch.no_grad():
        generator = torch.Generator().manual_seed(2)
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.empty_like(parameter).normal_(std=0.1, generator=generator))
    return model.eval()


@pytest.mark.parametrize("seed", range(12))
@torch.inference_mode()
def test_random_gpt2_models_give_the_same_logits_in_float64(
    save_gpt2: SaveGpt2, tmp_path: Path, seed: int
) -> None:
    folder, oracle = save_gpt2(seed)
    certificate = import_huggingface(folder, tmp_path / "imported")
    model = load(tmp_path / "imported")
    tokens = tokens_for(model)
    expected = oracle(tokens).logits
    assert model.tokenizer is None
    assert expected.dtype == torch.float64
    assert expected.std() > 0.05
    torch.testing.assert_close(model(tokens).logits, expected, atol=1e-9, rtol=0)
    assert certificate["largest_difference"]["float64"] < 1e-9
    assert certificate == json.loads((tmp_path / "imported" / "certificate.json").read_text())


@pytest.mark.parametrize("seed", range(4))
@torch.inference_mode()
def test_cached_decoding_gives_the_same_logits_in_float64(save_gpt2: SaveGpt2, seed: int) -> None:
    folder, oracle = save_gpt2(seed)
    model = read_huggingface(folder)
    tokens = tokens_for(model)
    cache = Cache(model.config, tokens.shape[0], tokens.shape[1], dtype=torch.float64)
    pieces = [
        model(piece, cache=cache).logits
        for piece in (tokens[:, :4], *tokens[:, 4:].split(1, dim=1))
    ]
    torch.testing.assert_close(torch.cat(pieces, dim=1), oracle(tokens).logits, atol=1e-9, rtol=0)


def test_an_import_keeps_what_training_needs(save_gpt2: SaveGpt2) -> None:
    folder, _ = save_gpt2(
        resid_pdrop=0.1, embd_pdrop=0.2, attn_pdrop=0.3, n_inner=None, n_embd=12, n_head=3
    )
    config = read_huggingface(folder).config
    assert (
        config.dropout,
        config.dropout_embedding,
        config.dropout_attention,
        config.dropout_ffn,
    ) == (
        0.1,
        0.2,
        0.3,
        0,
    )
    assert (config.d_ff, config.d_head, config.positions, config.final_norm) == (
        48,
        4,
        "learned",
        "affine",
    )


@pytest.mark.parametrize("tie_word_embeddings", [True, False])
def test_import_and_export_give_back_the_same_bits(
    save_gpt2: SaveGpt2, tmp_path: Path, tie_word_embeddings: bool
) -> None:
    folder, _ = save_gpt2(
        tie_word_embeddings=tie_word_embeddings, activation_function="gelu_new", dtype=torch.float32
    )
    import_huggingface(folder, tmp_path / "imported")
    export_huggingface(load(tmp_path / "imported"), tmp_path / "exported")
    before, after = (
        load_file(path / "model.safetensors") for path in (folder, tmp_path / "exported")
    )
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    old, new = (
        json.loads((path / "config.json").read_text()) for path in (folder, tmp_path / "exported")
    )
    assert {name: old[name] for name in new} == {**new, "n_inner": old["n_inner"]}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.inference_mode()
def test_half_precision_weights_become_exact_float32(
    save_gpt2: SaveGpt2, tmp_path: Path, dtype: torch.dtype
) -> None:
    folder, oracle = save_gpt2(dtype=dtype)
    import_huggingface(folder, tmp_path / "imported")
    model = load(tmp_path / "imported", dtype=torch.float64)
    assert load(tmp_path / "imported").embedding.weight.dtype == torch.float32
    tokens = tokens_for(model)
    torch.testing.assert_close(
        model(tokens).logits, oracle.double()(tokens).logits, atol=1e-9, rtol=0
    )


@torch.inference_mode()
def test_shards_bare_names_and_old_masks_are_read(save_gpt2: SaveGpt2) -> None:
    folder, oracle = save_gpt2()
    tensors = load_file(folder / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    bare["h.0.attn.bias"] = torch.ones(1, 1, 9, 9)
    names = sorted(bare)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, held in shards.items():
        save_file({name: bare[name] for name in held}, folder / shard)
    places = {name: shard for shard, held in shards.items() for name in held}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (folder / "model.safetensors").unlink()
    model = read_huggingface(folder)
    tokens = tokens_for(model)
    torch.testing.assert_close(model(tokens).logits, oracle(tokens).logits, atol=1e-9, rtol=0)


EXPORTED: dict[str, dict[str, Any]] = {
    "a plain model": {},
    "exact gelu": {"gelu": "exact"},
    "relu": {"ffn": "relu"},
    "swish": {"ffn": "swish"},
    "an untied head": {"tie_embeddings": False},
    "no biases": {"bias": False},
    "norms without parameters": {"norm_affine": False, "final_norm": "plain"},
    "shared weights": {"share": "all", "share_groups": 2},
    "shared attention": {"share": "attention"},
    "no positions": {"positions": "none"},
    "a list of entries": {"block": ("attention", "ffn:relu")},
    "plain scores and another eps": {"attention_scale": "none", "norm_eps": 1e-2},
}
ROUNDED: dict[str, dict[str, Any]] = {
    "sinusoids": {"positions": "sinusoidal", "d_model": 18},
    "scaled embeddings": {"embedding_scale": "sqrt"},
    "scaled embeddings and an untied head": {"embedding_scale": "sqrt", "tie_embeddings": False},
}


@pytest.mark.parametrize("name", some_in_time([*EXPORTED, *ROUNDED], 3))
@torch.inference_mode()
def test_an_export_loads_in_transformers_with_the_same_logits(tmp_path: Path, name: str) -> None:
    from transformers import AutoModelForCausalLM

    model = model_of(**{**EXPORTED, **ROUNDED}[name])
    certificate = export_huggingface(model, tmp_path / "exported")
    oracle = AutoModelForCausalLM.from_pretrained(tmp_path / "exported").eval()
    tokens = tokens_for(model)
    expected = model(tokens).logits
    assert expected.std() > 0.05
    torch.testing.assert_close(oracle(tokens).logits, expected, atol=2e-5, rtol=0)
    # Sinusoids and scaled tables are written as the model computes them: in float32.
    torch.testing.assert_close(
        oracle.double()(tokens).logits,
        model.double()(tokens).logits,
        atol=1e-9 if name in EXPORTED else 1e-4,
        rtol=0,
    )
    assert certificate["checked"]
    assert certificate["against"].startswith("transformers ")


@torch.inference_mode()
def test_an_export_can_be_imported_again(tmp_path: Path) -> None:
    model = model_of(share="all", bias=False)
    export_huggingface(model, tmp_path / "exported")
    again = read_huggingface(tmp_path / "exported")
    tokens = tokens_for(model)
    torch.testing.assert_close(again(tokens).logits, model(tokens).logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"positions": "rotary", "d_head": 6}, ["model.positions = rotary", "model.d_head = 6"]),
        ({"positions": "learned-per-layer"}, ["model.positions = learned-per-layer"]),
        ({"norm": "rms", "ffn": "swiglu"}, ["model.ffn = swiglu", "model.norm = rms"]),
        ({"norm_order": "post"}, ["model.d_ff = 17"]),
        ({"norm": "none"}, ["model.norm = none"]),
        ({"block": "macaron", "ffn": "glu"}, ["model.block = macaron", "model.ffn = glu"]),
        ({"block": ("ffn", "attention")}, ["model.block = ['ffn', 'attention']"]),
        ({"block": ("attention*0.5", "ffn")}, ["model.block = ['attention*0.5', 'ffn']"]),
        ({"d_embed": 5, "head_bias": True}, ["model.d_embed = 5", "model.head_bias = true"]),
    ],
)
def test_a_model_that_gpt2_cannot_represent_is_refused_by_field(
    tmp_path: Path, fields: dict[str, Any], named: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        export_huggingface(model_of(**fields), tmp_path / "exported")
    assert f"cannot represent {', '.join(named)}:" in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "llama"}, "model_type = 'llama'; only 'gpt2', 'openai-gpt', 'bert'"),
        ({"activation_function": "mish"}, "activation_function = 'mish' is not one of gelu_new"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True"),
        ({"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn = True"),
        ({"add_cross_attention": True}, "add_cross_attention = True"),
        ({"n_layer": "two"}, "n_layer = 'two' is not a whole number"),
        ({"n_head": 4}, "n_head = 4 does not divide n_embd"),
        ({"layer_norm_epsilon": 0}, "layer_norm_epsilon = 0 is not a number greater than 0"),
        ({"attn_pdrop": 1.0}, "attn_pdrop = 1.0 is not a number of at least 0 and less than 1"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings = 1 is not true or false"),
        ({"n_inner": 3}, r"mlp.c_fc.weight has shape \[15, 60\], config.json says \[15, 3\]"),
        ({"n_layer": 5}, r"the weights lack h.1.ln_1.weight and \d+ other"),
        ({"tie_word_embeddings": False}, "the weights lack lm_head.weight"),
    ],
)
def test_a_config_that_cannot_be_imported_is_refused_by_field(
    save_gpt2: SaveGpt2, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    folder, _ = save_gpt2(n_embd=15, n_head=3, n_layer=1, n_inner=60, tie_word_embeddings=True)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CheckpointError, match=message) as caught:
        import_huggingface(folder, tmp_path / "imported")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "imported").exists()


def replace_weights(folder: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_weights_that_do_not_fit_are_refused_by_name(save_gpt2: SaveGpt2) -> None:
    folder, _ = save_gpt2(tie_word_embeddings=True)
    replace_weights(folder, lambda tensors: tensors.update({"gauge.weight": torch.ones(2)}))
    with pytest.raises(
        CheckpointError, match=r"hold gauge\.weight, which GPT-2's language model has not"
    ):
        read_huggingface(folder)

    def untie(tensors: dict[str, Tensor]) -> None:
        del tensors["gauge.weight"]
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"] + 1

    replace_weights(folder, untie)
    with pytest.raises(
        CheckpointError, match=r"lm_head.weight that differs .* set tie_word_embeddings to false"
    ):
        read_huggingface(folder)


def test_weights_that_are_not_finite_are_refused(save_gpt2: SaveGpt2, tmp_path: Path) -> None:
    folder, _ = save_gpt2()
    replace_weights(folder, lambda tensors: tensors["transformer.ln_f.weight"].fill_(torch.nan))
    with pytest.raises(CheckpointError, match="ln_f.weight holds numbers that are not finite"):
        import_huggingface(folder, tmp_path / "imported")


def test_without_transformers_the_certificate_says_so(
    save_gpt2: SaveGpt2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = save_gpt2()
    monkeypatch.setattr("sublayer.interop.certificate.find_spec", lambda name: None)
    certificate = import_huggingface(folder, tmp_path / "imported")
    assert certificate == {"checked": False, "reason": "transformers is not installed"}
    assert (
        describe(certificate) == "not checked against transformers: transformers is not installed"
    )
    assert (tmp_path / "imported" / "model.safetensors").is_file()


def test_a_pickle_is_refused_with_the_remedy(save_gpt2: SaveGpt2) -> None:
    folder, _ = save_gpt2()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(
        CheckpointError, match=r"pytorch_model.bin is a pickle.*safe_serialization=True"
    ):
        read_huggingface(folder)


def test_damaged_and_missing_files_are_named(save_gpt2: SaveGpt2, tmp_path: Path) -> None:
    folder, _ = save_gpt2()
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-100])
    with pytest.raises(CheckpointError, match=r"model.safetensors is damaged or cut short"):
        read_huggingface(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"has no model.safetensors"):
        read_huggingface(folder)
    (folder / "model.safetensors.index.json").write_text(
        '{"weight_map": {"wte.weight": "../other.safetensors"}}'
    )
    with pytest.raises(
        CheckpointError, match=r"names '../other.safetensors', which is not a .safetensors file"
    ):
        read_huggingface(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config.json is not JSON"):
        read_huggingface(folder)
    shutil.rmtree(folder)
    with pytest.raises(CheckpointError, match="is not a folder"):
        import_huggingface(folder, tmp_path / "imported")


def test_nothing_is_overwritten(save_gpt2: SaveGpt2, tmp_path: Path) -> None:
    folder, _ = save_gpt2()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note.txt").write_text("kept")
    with pytest.raises(ConfigError, match="nothing is overwritten"):
        import_huggingface(folder, tmp_path / "mine")
    with pytest.raises(ConfigError, match="nothing is overwritten"):
        export_huggingface(model_of(), tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["note.txt"]
