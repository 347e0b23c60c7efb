"""GPT-2 of transformers in and out: logits, gradients, files, tokenizers, refusals."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from tokenizers import decoders, models, pre_tokenizers, trainers
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.named import train_tokenizer
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
from sublayer.model.context.layout import Layout
from sublayer.model.kernels.cross_entropy import linear_cross_entropy
from sublayer.model.transformer import Transformer
from tests.interop.tiny import tiny

WEIGHTS, N_TOKENS = "model.safetensors", 13


def saved(folder: Path, *, dtype: torch.dtype = torch.float64, **fields: Any) -> Any:
    """Save a random GPT-2 as transformers does, and return it."""
    original = tiny("gpt2", dtype=dtype, **fields)
    model = original.model(attn_implementation="eager", bos_token_id=None, eos_token_id=None)
    model.save_pretrained(folder)
    return model


def draw_tokens(rows: int, n: int = N_TOKENS) -> Tensor:
    return torch.randint(23, (rows, n), generator=torch.Generator().manual_seed(5))


def equal(found: Tensor, expected: Tensor, atol: float = 1e-9) -> None:
    torch.testing.assert_close(found, expected, atol=atol, rtol=0)


def model_of(**fields: Any) -> Transformer:
    settings = {"n_layers": 4, "d_model": 15, "n_heads": 3, "d_ff": 17, "init_std": 0.3, **fields}
    config = ModelConfig.model_validate(settings)
    model = build(resolve_model(config, vocab_size=23, context=19), seed=7)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(2)
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.empty_like(parameter).normal_(std=0.1, generator=generator))
    return model.eval()


@pytest.mark.parametrize(
    "fields",
    [
        {"n_layer": 1, "n_head": 1, "n_embd": 7, "n_inner": None, "scale_attn_weights": False},
        {"activation_function": "relu", "tie_word_embeddings": False, "layer_norm_epsilon": 1e-3},
        {"activation_function": "gelu_new", "n_layer": 3, "n_head": 2, "n_embd": 10},
    ],
    ids=str,
)
def test_logits_and_gradients_equal_those_of_transformers(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    oracle = saved(tmp_path / "gpt2", **fields)
    certificate = import_huggingface(tmp_path / "gpt2", tmp_path / "imported")
    assert certificate["largest_difference"]["float64"] < 1e-9
    assert certificate == json.loads((tmp_path / "imported" / "certificate.json").read_text())
    model, tokens = load(tmp_path / "imported"), draw_tokens(2)
    assert model.tokenizer is None
    expected = oracle(tokens).logits
    assert expected.std() > 0.05
    equal(model(tokens).logits, expected)
    cache = Cache(model.config, 2, N_TOKENS, torch.float64)
    pieces = [model(each, cache=cache).logits for each in tokens.split([5, 1, 1, 6], dim=1)]
    equal(torch.cat(pieces, dim=1), expected)
    mask = torch.ones(2, N_TOKENS, dtype=torch.bool)
    mask[0, :4] = False
    places = (mask.cumsum(1) - 1).clamp_min(0)
    padded = oracle(tokens, attention_mask=mask.long(), position_ids=places).logits
    equal(model(tokens, mask).logits[mask], padded[mask])
    targets = tokens.roll(-1, 1).flatten()
    torch.nn.functional.cross_entropy(expected.flatten(0, 1), targets, reduction="sum").backward()
    hidden = model.hidden(tokens, Layout.causal(tokens)).final
    matrix, bias = model.output_projection()
    linear_cross_entropy(hidden.flatten(0, 1), matrix, bias, targets).backward()
    block, theirs = [slots[0] for slots in model.decoder.sublayers], oracle.transformer
    equal(model.embedding.weight.grad, theirs.wte.weight.grad)
    equal(model.positions.tables[0].weight.grad, theirs.wpe.weight.grad)
    equal(block[0].norm.weight.grad, theirs.h[0].ln_1.weight.grad)
    projection = block[0].function.projection.weight.grad.flatten(0, 1).t()
    equal(projection, theirs.h[0].attn.c_attn.weight.grad)
    equal(block[1].function.output.weight.grad.t(), theirs.h[0].mlp.c_proj.weight.grad)


def test_an_import_keeps_what_training_needs(tmp_path: Path) -> None:
    dropouts = {"resid_pdrop": 0.1, "embd_pdrop": 0.2, "attn_pdrop": 0.3}
    saved(tmp_path / "gpt2", n_inner=None, **dropouts)
    config = read_huggingface(tmp_path / "gpt2").config
    found = [config.dropout, config.dropout_embedding, config.dropout_attention, config.dropout_ffn]
    assert found == [0.1, 0.2, 0.3, 0.0]
    assert (config.d_ff, config.d_head) == (48, 4)
    assert (config.positions, config.final_norm) == ("learned", "affine")


@pytest.mark.parametrize("is_tied", [True, False])
def test_import_and_export_give_back_the_same_bits(tmp_path: Path, is_tied: bool) -> None:
    folder = tmp_path / "gpt2"
    fields = {"tie_word_embeddings": is_tied, "activation_function": "gelu_new"}
    saved(folder, dtype=torch.float32, **fields)
    import_huggingface(folder, tmp_path / "imported")
    export_huggingface(load(tmp_path / "imported"), tmp_path / "exported")
    before, after = (load_file(path / WEIGHTS) for path in (folder, tmp_path / "exported"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    old, new = (
        json.loads((path / "config.json").read_text()) for path in (folder, tmp_path / "exported")
    )
    assert {name: old[name] for name in new} == new


@torch.inference_mode()
def test_half_precision_shards_bare_names_and_old_masks_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "gpt2"
    oracle = saved(folder, dtype=torch.bfloat16)
    tensors = load_file(folder / WEIGHTS)
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    bare["h.0.attn.bias"] = torch.ones(1, 1, 9, 9)
    names = sorted(bare)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, held in shards.items():
        save_file({name: bare[name] for name in held}, folder / shard)
    places = {name: shard for shard, held in shards.items() for name in held}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": places}))
    (folder / WEIGHTS).unlink()
    import_huggingface(folder, tmp_path / "imported")
    assert load(tmp_path / "imported").embedding.weight.dtype == torch.float32
    model, tokens = load(tmp_path / "imported", dtype=torch.float64), draw_tokens(3)
    equal(model(tokens).logits, oracle.double()(tokens).logits)


EXACT, ROUNDED = 1e-9, 1e-4
"""Sinusoids and scaled tables are written as the model computes them: in float32."""


@pytest.mark.parametrize(
    ("fields", "atol"),
    [
        ({"tie_embeddings": False, "gelu": "exact"}, EXACT),
        ({"bias": False, "norm_affine": False, "final_norm": "plain", "ffn": "swish"}, EXACT),
        ({"share": "all", "share_groups": 2, "block": ("attention", "ffn:relu")}, EXACT),
        ({"positions": "none", "attention_scale": "none", "norm_eps": 1e-2}, EXACT),
        ({"positions": "sinusoidal", "d_model": 18}, ROUNDED),
        ({"embedding_scale": "sqrt"}, ROUNDED),
        ({"embedding_scale": "sqrt", "tie_embeddings": False, "share": "attention"}, ROUNDED),
    ],
    ids=str,
)
@torch.inference_mode()
def test_an_export_opens_in_transformers_and_comes_back_with_the_same_logits(
    tmp_path: Path, fields: dict[str, Any], atol: float
) -> None:
    from transformers import AutoModelForCausalLM

    model, tokens = model_of(**fields), draw_tokens(3)
    certificate = export_huggingface(model, tmp_path / "exported")
    assert certificate["checked"] and certificate["against"].startswith("transformers ")
    oracle = AutoModelForCausalLM.from_pretrained(tmp_path / "exported").eval()
    expected = model(tokens).logits
    assert expected.std() > 0.05
    equal(oracle(tokens).logits, expected, 2e-5)
    equal(read_huggingface(tmp_path / "exported")(tokens).logits, expected, 2e-5)
    equal(oracle.double()(tokens).logits, model.double()(tokens).logits, atol)


def damage_of(change: Callable[[dict[str, Tensor]], Any]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file(tensors, folder / WEIGHTS)

    return damage


def config_of(**fields: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return damage


def cut_off(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100])


def point_elsewhere(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    places = '{"weight_map": {"wte.weight": "../other.safetensors"}}'
    (folder / f"{WEIGHTS}.index.json").write_text(places)


def promise(tensor: str, shard: str) -> Callable[[Path], None]:
    """Have the index name one more tensor in a shard."""

    def damage(folder: Path) -> None:
        (folder / WEIGHTS).rename(folder / "a.safetensors")
        places = dict.fromkeys(load_file(folder / "a.safetensors"), "a.safetensors")
        index = json.dumps({"weight_map": {**places, tensor: shard}})
        (folder / f"{WEIGHTS}.index.json").write_text(index)

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (promise("more", "a.safetensors"), "a.safetensors lacks more, which"),
        (promise("more", "b.safetensors"), "b.safetensors is missing"),
        (config_of(n_layer=900), "says 900 blocks of weights"),
        (lambda folder: (folder / "config.json").unlink(), "is not a HuggingFace folder"),
        (config_of(n_inner=3), r"mlp.c_fc.weight has shape \[12, 10\], config.json says \[12, 3\]"),
        (config_of(n_layer=5), r"the weights lack h.2.ln_1.weight and \d+ other"),
        (config_of(tie_word_embeddings=False), "the weights lack lm_head.weight"),
        (
            damage_of(lambda held: held.update({"gauge.weight": torch.ones(2)})),
            r"hold gauge\.weight, which",
        ),
        (
            damage_of(lambda held: held.update({"lm_head.weight": torch.ones(23, 12).double()})),
            "lm_head.weight that differs .* tie_word_embeddings",
        ),
        (
            damage_of(lambda held: held["transformer.ln_f.weight"].fill_(torch.nan)),
            "ln_f.weight holds numbers that are not finite",
        ),
        (
            lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"),
            r"pytorch_model.bin is a pickle.*safe_serialization=True",
        ),
        (cut_off, "model.safetensors is damaged or cut short"),
        (lambda folder: (folder / WEIGHTS).unlink(), "has no model.safetensors"),
        (point_elsewhere, r"names '../other.safetensors', which is not a .safetensors file"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is not JSON"),
        (shutil.rmtree, "is not a folder"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused_by_name(
    tmp_path: Path, damage: Callable[[Path], Any], message: str
) -> None:
    saved(tmp_path / "gpt2")
    damage(tmp_path / "gpt2")
    with pytest.raises(CheckpointError, match=message) as caught:
        import_huggingface(tmp_path / "gpt2", tmp_path / "imported")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "imported").exists()


def test_without_transformers_the_certificate_says_so_and_nothing_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "gpt2")
    monkeypatch.setattr("sublayer.interop.certificate.find_spec", lambda name: None)
    certificate = import_huggingface(tmp_path / "gpt2", tmp_path / "imported")
    assert certificate == {"checked": False, "reason": "transformers is not installed"}
    assert "not checked" in describe(certificate)
    before = sorted(tmp_path.rglob("*"))
    for exchange in (
        lambda: import_huggingface(tmp_path / "gpt2", tmp_path / "imported"),
        lambda: export_huggingface(model_of(), tmp_path / "imported"),
    ):
        with pytest.raises(ConfigError, match="nothing is overwritten"):
            exchange()
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(ConfigError, match="cannot write"):
        export_huggingface(model_of(), tmp_path / "gpt2" / "config.json" / "exported")


def test_a_certificate_is_of_the_memory_there_is_and_refuses_other_logits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "gpt2")
    monkeypatch.setattr("sublayer.interop.certificate._FLOAT64_PARAMETERS", 0)
    certificate = import_huggingface(tmp_path / "gpt2", tmp_path / "narrow")
    assert list(certificate["largest_difference"]) == ["float32"]
    monkeypatch.setattr("sublayer.interop.certificate._REFUSED_SHARE", -1.0)
    with pytest.raises(CheckpointError, match="logits differ from transformers'"):
        import_huggingface(tmp_path / "gpt2", tmp_path / "other")
    assert not (tmp_path / "other").exists()
    monkeypatch.setattr("sublayer.interop.certificate.total_memory", lambda: 1)
    certificate = import_huggingface(tmp_path / "gpt2", tmp_path / "large")
    assert not certificate["checked"] and "to compare needs" in certificate["reason"]


TEXT = "Zwölf Boxkämpfer jagen  Viktor\nquer über den Sylter Deich; 日本 don't\t <|endo"
TRAINING = ["the cat sat on the mat and the dog", "Zwölf Boxkämpfer über den Deich"] * 9


def library_tokenizer(vocab_size: int) -> tokenizers.Tokenizer:
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained.train_from_iterator(TRAINING, trainer)
    return trained


def export_with(tokenizer: Tokenizer, folder: Path) -> Path:
    config = ModelConfig(n_layers=1, d_model=8, n_heads=2)
    resolved = resolve_model(config, vocab_size=tokenizer.vocab_size, context=16)
    model = build(resolved, seed=0).eval()
    model.tokenizer = tokenizer
    export_huggingface(model, folder)
    return folder


@pytest.mark.parametrize("files", ["tokenizer.json", "vocab.json and merges.txt"])
def test_an_imported_tokenizer_makes_the_ids_of_the_library(tmp_path: Path, files: str) -> None:
    folder, theirs = tmp_path / "gpt2", library_tokenizer(280)
    saved(folder, vocab_size=290)
    if files == "tokenizer.json":
        theirs.save(str(folder / files))
    else:
        theirs.model.save(str(folder))
    import_huggingface(folder, tmp_path / "imported")
    ours = load(tmp_path / "imported").tokenizer
    assert ours.encode(TEXT.encode()).tolist() == theirs.encode(TEXT).ids
    assert ours.decode(ours.encode(TEXT.encode())) == TEXT.encode()
    assert ours.is_lossless
    assert ours.end_id == theirs.token_to_id("<|endoftext|>")
    saved(tmp_path / "small", vocab_size=279)
    theirs.save(str(tmp_path / "small" / "tokenizer.json"))
    with pytest.raises(CheckpointError, match=r"has 280 ids, the model's vocab_size is 279"):
        read_huggingface(tmp_path / "small")


@pytest.mark.parametrize("kind", ["bytes", "bpe", "unigram", "wordpiece"])
def test_an_exported_tokenizer_makes_the_same_ids_in_transformers(
    tmp_path: Path, kind: str
) -> None:
    from transformers import AutoTokenizer

    ours = train_tokenizer(kind, [text.encode() for text in TRAINING], vocab_size=280)
    theirs = AutoTokenizer.from_pretrained(export_with(ours, tmp_path / "exported"))
    text = TEXT if ours.is_lossless else "Zwölf cats sat"
    ids = ours.encode(text.encode()).tolist()
    assert theirs(text).input_ids == ids
    again = read_huggingface(tmp_path / "exported").tokenizer
    assert again is not None
    assert again.encode(text.encode()).tolist() == ids
    if ours.is_lossless:
        assert theirs.decode(ids) == TEXT
        assert theirs.eos_token_id == ours.end_id


def test_a_tokenizer_of_characters_stays_behind(tmp_path: Path) -> None:
    folder = export_with(train_tokenizer("characters", [TEXT.encode()]), tmp_path / "exported")
    assert not (folder / "tokenizer.json").exists()
