"""GPT-2 of transformers in and out: logits, gradients, files, tokenizers, refusals."""

import json
import os
import shutil

import pytest
import tokenizers
import torch

from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import ConfigError
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
from tests.interop.exported import resolved
from tests.interop.folders import (
    WEIGHTS,
    change_json,
    change_weights,
    check_refused,
    close,
    opened,
    read_json,
)
from tests.interop.test_hostile_folders import shard
from tests.interop.tiny import tiny

N_TOKENS = 13


def saved(folder, *, dtype=torch.float64, **fields):
    """Save a random GPT-2 as transformers does, and return it."""
    original = tiny("gpt2", dtype=dtype, **fields)
    model = original.model(attn_implementation="eager", bos_token_id=None, eos_token_id=None)
    model.save_pretrained(folder)
    return model


def draw_tokens(rows, n=N_TOKENS):
    return torch.randint(23, (rows, n), generator=torch.Generator().manual_seed(5))


SMALL = {"n_layer": 1, "n_head": 1, "n_embd": 7, "n_inner": None, "scale_attn_weights": False}
UNTIED = {"activation_function": "relu", "tie_word_embeddings": False, "layer_norm_epsilon": 1e-3}


@pytest.mark.parametrize("fields", [SMALL, UNTIED], ids=str)
def test_logits_and_gradients_equal_those_of_transformers(tmp_path, fields):
    oracle = saved(tmp_path / "gpt2", **fields)
    certificate = import_huggingface(tmp_path / "gpt2", tmp_path / "imported")
    assert certificate["largest_difference"]["float64"] < 1e-9
    assert certificate == read_json(tmp_path / "imported" / "certificate.json")
    model, tokens = load(tmp_path / "imported"), draw_tokens(2)
    assert model.tokenizer is None
    expected = oracle(tokens).logits
    assert expected.std() > 0.05
    close(model(tokens).logits, expected)
    cache = Cache(model.config, 2, N_TOKENS, torch.float64)
    pieces = [model(each, cache=cache).logits for each in tokens.split([5, 1, 1, 6], dim=1)]
    close(torch.cat(pieces, dim=1), expected)
    mask = torch.ones(2, N_TOKENS, dtype=torch.bool)
    mask[0, :4] = False
    places = (mask.cumsum(1) - 1).clamp_min(0)
    padded = oracle(tokens, attention_mask=mask.long(), position_ids=places).logits
    close(model(tokens, mask).logits[mask], padded[mask])
    targets = tokens.roll(-1, 1).flatten()
    torch.nn.functional.cross_entropy(expected.flatten(0, 1), targets, reduction="sum").backward()
    hidden = model.hidden(tokens, Layout.causal(tokens)).final
    matrix, bias = model.output_projection()
    linear_cross_entropy(hidden.flatten(0, 1), matrix, bias, targets).backward()
    block, theirs = [slots[0] for slots in model.decoder.sublayers], oracle.transformer
    close(model.embedding.weight.grad, theirs.wte.weight.grad)
    close(model.positions.tables[0].weight.grad, theirs.wpe.weight.grad)
    close(block[0].norm.weight.grad, theirs.h[0].ln_1.weight.grad)
    projection = block[0].function.projection.weight.grad.flatten(0, 1).t()
    close(projection, theirs.h[0].attn.c_attn.weight.grad)
    close(block[1].function.output.weight.grad.t(), theirs.h[0].mlp.c_proj.weight.grad)


def test_an_import_keeps_what_training_needs(tmp_path):
    dropouts = {"resid_pdrop": 0.1, "embd_pdrop": 0.2, "attn_pdrop": 0.3}
    saved(tmp_path / "gpt2", n_inner=None, **dropouts)
    config = read_huggingface(tmp_path / "gpt2").config
    assert (config.dropout, config.dropout_embedding, config.dropout_attention) == (0.1, 0.2, 0.3)
    assert (config.dropout_ffn, config.d_ff, config.d_head) == (0.0, 48, 4)
    assert (config.positions, config.final_norm) == ("learned", "affine")


@torch.inference_mode()
def test_half_precision_shards_bare_names_and_old_masks_are_read(tmp_path):
    folder = tmp_path / "gpt2"
    oracle = saved(folder, dtype=torch.bfloat16)
    mask = {"h.0.attn.bias": torch.ones(1, 1, 9, 9)}
    bare = lambda held: {k.removeprefix("transformer."): held[k] for k in held} | mask  # noqa: E731
    change_weights(folder, bare)
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": shard(folder)}))
    import_huggingface(folder, tmp_path / "imported")
    assert load(tmp_path / "imported").embedding.weight.dtype == torch.float32
    model, tokens = load(tmp_path / "imported", dtype=torch.float64), draw_tokens(3)
    close(model(tokens).logits, oracle.double()(tokens).logits)


def weights(name, tensor):
    return lambda folder: change_weights(folder, lambda held: held | {name: tensor})


def config(**fields):
    return lambda folder: change_json(folder / "config.json", **fields)


def index(tensor, shard):
    """Have an index name all tensors in a shard, and one more in any."""

    def damage(folder):
        (folder / WEIGHTS).rename(folder / "a.safetensors")
        places = dict.fromkeys(tiny("gpt2").tensors, "a.safetensors") | {tensor: shard}
        (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": places}))

    return damage


@pytest.mark.parametrize("damage, message", [
    (index("more", "a.safetensors"), "a.safetensors lacks more, which"),
    (index("more", "b.safetensors"), "b.safetensors is missing"),
    (index("wte.weight", "../b.safetensors"), "names '../b.safetensors', which is not"),
    (config(n_layer=900), "says 900 blocks of weights"),
    (config(n_inner=3), r"mlp.c_fc.weight has shape \[12, 10\], config.json says \[12, 3\]"),
    (config(n_layer=5), r"the weights lack h.2.ln_1.weight and \d+ other"),
    (config(tie_word_embeddings=False), "the weights lack lm_head.weight"),
    (weights("gauge.weight", torch.ones(2)), r"hold gauge\.weight, which"),
    (weights("lm_head.weight", torch.ones(23, 12)), "lm_head.weight that differs"),
    (weights("transformer.ln_f.weight", torch.full((12,), torch.nan)), "ln_f.* not finite"),
    (lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"), "is a pickle"),
    (
        lambda folder: os.truncate(folder / WEIGHTS, 999),
        "model.safetensors is damaged or cut short",
    ),
    (lambda folder: (folder / WEIGHTS).unlink(), "has no model.safetensors"),
    (lambda folder: (folder / "config.json").write_text("{"), "config.json is not JSON"),
    (lambda folder: (folder / "config.json").unlink(), "is not a HuggingFace folder"),
    (shutil.rmtree, "is not a folder"),
])  # fmt: skip
def test_a_folder_that_does_not_fit_is_refused_by_name(tmp_path, damage, message):
    saved(tmp_path / "gpt2")
    damage(tmp_path / "gpt2")
    check_refused(tmp_path / "gpt2", message)


def test_without_transformers_the_certificate_says_so_and_nothing_is_overwritten(
    tmp_path, monkeypatch
):
    saved(tmp_path / "gpt2")
    monkeypatch.setattr("sublayer.interop.certificate.find_spec", lambda name: None)
    certificate = import_huggingface(tmp_path / "gpt2", tmp_path / "imported")
    assert certificate == {"checked": False, "reason": "transformers is not installed"}
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match="nothing is overwritten"):
        import_huggingface(tmp_path / "gpt2", tmp_path / "imported")
    for place in ("imported", "gpt2/config.json/exported"):
        with pytest.raises(ConfigError, match="nothing is overwritten|cannot write"):
            export_huggingface(load(tmp_path / "imported"), tmp_path / place)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_certificate_is_of_the_memory_there_is_and_refuses_other_logits(tmp_path, monkeypatch):
    saved(tmp_path / "gpt2")
    monkeypatch.setattr("sublayer.interop.certificate._FLOAT64_PARAMETERS", 0)
    certificate = import_huggingface(tmp_path / "gpt2", tmp_path / "narrow")
    assert list(certificate["largest_difference"]) == ["float32"]
    monkeypatch.setattr("sublayer.interop.certificate._REFUSED_SHARE", -1.0)
    check_refused(tmp_path / "gpt2", "logits differ from transformers'")
    monkeypatch.setattr("sublayer.interop.certificate.total_memory", lambda: 1)
    certificate = import_huggingface(tmp_path / "gpt2", tmp_path / "large")
    assert not certificate["checked"] and "to compare needs" in certificate["reason"]


TEXT = "Zwölf Boxkämpfer jagen  Viktor\nquer über den Sylter Deich; 日本 don't\t <|endo"
TRAINING = ["the cat sat on the mat and the dog", "Zwölf Boxkämpfer über den Deich"] * 9


@pytest.mark.parametrize("files", ["tokenizer.json", "vocab.json and merges.txt"])
def test_an_imported_tokenizer_makes_the_ids_of_the_library(tmp_path, files):
    folder, trained = tmp_path / "gpt2", tokenizers.ByteLevelBPETokenizer()
    rules = {"special_tokens": ["<|endoftext|>"], "show_progress": False}
    trained.train_from_iterator(TRAINING, 280, **rules)
    theirs = tokenizers.Tokenizer.from_str(trained.to_str())
    saved(folder, vocab_size=290)
    if files == "tokenizer.json":
        theirs.save(str(folder / files))
    else:
        theirs.model.save(str(folder))
    import_huggingface(folder, tmp_path / "imported")
    ours = load(tmp_path / "imported").tokenizer
    ids = ours.encode(TEXT.encode())
    assert (ids.tolist(), ours.decode(ids)) == (theirs.encode(TEXT).ids, TEXT.encode())
    assert ours.is_lossless and ours.end_id == theirs.token_to_id("<|endoftext|>")
    saved(tmp_path / "small", vocab_size=279)
    theirs.save(str(tmp_path / "small" / "tokenizer.json"))
    check_refused(tmp_path / "small", r"has 280 ids, the model's vocab_size is 279")


@pytest.mark.parametrize("kind", ["bytes", "bpe", "wordpiece"])
def test_an_exported_tokenizer_makes_the_same_ids_in_transformers(tmp_path, kind):
    ours = train_tokenizer(kind, [text.encode() for text in TRAINING], vocab_size=280)
    sizes = {"n_layers": 1, "d_model": 8, "n_heads": 2}
    model = build(resolved(sizes, ours.vocab_size), seed=0).eval()
    model.tokenizer = ours
    export_huggingface(model, tmp_path / "exported")
    theirs = opened(tmp_path / "exported")
    text = TEXT if ours.is_lossless else "Zwölf cats sat"
    ids = ours.encode(text.encode()).tolist()
    assert theirs(text).input_ids == ids
    again = read_huggingface(tmp_path / "exported").tokenizer
    assert again.encode(text.encode()).tolist() == ids
    if ours.is_lossless:
        assert (theirs.decode(ids), theirs.eos_token_id) == (TEXT, ours.end_id)
