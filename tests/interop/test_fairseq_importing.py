"""fairseq's translation models: logits of its equations, settings, files, hostile content."""

import argparse
import math
import os
import sys
import types
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch.nn.functional import layer_norm, linear

from sublayer.errors import CheckpointError
from sublayer.interop.fairseq.fairseq_file import find_checkpoint
from sublayer.interop.fairseq.importing import import_fairseq, read_fairseq
from sublayer.loading import load

PAD, END = 1, 2


@dataclass(frozen=True)
class Shape:
    """A model's sizes and its kind."""

    vocab_size: int = 23
    d_model: int = 12
    n_heads: int = 3
    d_ff: int = 7
    n_encoder: int = 2
    n_decoder: int = 3
    is_macaron: bool = False
    is_pre_norm: bool = True
    is_tied: bool = True
    has_final_norm: bool = True


MACARON = Shape(d_model=10, n_heads=2, is_macaron=True)
PLAIN = Shape(d_model=10, n_heads=2)


def draw(shape, seed=0):
    """Draw every weight in float64, under the names of fairseq's newest version."""
    d_model, found = shape.d_model, {}
    generator = torch.Generator().manual_seed(seed)

    def add(name, *sizes, centre=0.0):
        found[name] = centre + 0.3 * torch.randn(sizes, generator=generator, dtype=torch.float64)

    def add_norm(name):
        add(f"{name}.weight", d_model, centre=1.0)
        add(f"{name}.bias", d_model)

    def add_linear(name, d_in, d_out):
        add(f"{name}.weight", d_out, d_in)
        add(f"{name}.bias", d_out)

    add("encoder.embed_tokens.weight", shape.vocab_size, d_model)
    if not shape.is_tied:
        add("decoder.output_projection.weight", shape.vocab_size, d_model)
    for side, n_layers in (("encoder", shape.n_encoder), ("decoder", shape.n_decoder)):
        for layer in range(n_layers):
            start = f"{side}.layers.{layer}"
            for attention in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    add_linear(f"{start}.{attention}.{part}", d_model, d_model)
                add_norm(f"{start}.{attention}_layer_norm")
            for half in ("macaron_", "")[1 - shape.is_macaron :]:
                add_linear(f"{start}.{half}fc1", d_model, shape.d_ff)
                add_linear(f"{start}.{half}fc2", shape.d_ff, d_model)
                add_norm(f"{start}.{half or 'final_'}layer_norm")
        if shape.is_pre_norm and shape.has_final_norm:
            add_norm(f"{side}.layer_norm")
    return found


def as_newest(weights):
    """Return the newest version's state dict: one table under three names, split projections."""
    table = weights["encoder.embed_tokens.weight"]
    found = {
        "encoder.version": torch.tensor([3.0]),
        "decoder.version": torch.tensor([3.0]),
        **weights,
    }
    found["decoder.embed_tokens.weight"] = table
    found.setdefault("decoder.output_projection.weight", table)
    return found


def as_fork(weights):
    """Return the state dict of Macaron Net's fork of 0.6: fused projections, norms by number."""
    numbers = {"self_attn_layer_norm": 0, "final_layer_norm": 1, "macaron_layer_norm": 2}
    found = {
        f"{side}.embed_positions._float_tensor": torch.zeros(1) for side in ("encoder", "decoder")
    }
    found |= {f"{side}.version": torch.tensor([2.0]) for side in ("encoder", "decoder")}
    for name, tensor in weights.items():
        start, _, kind = name.rpartition(".")
        stem, _, last = start.rpartition(".")
        if last == "q_proj":
            parts = [weights[f"{stem}.{letter}_proj.{kind}"] for letter in "qkv"]
            found[f"{stem}.in_proj_{kind}"] = torch.cat(parts)
        elif name.startswith("encoder.layers") and last in numbers:
            found[f"{stem}.layer_norms.{numbers[last]}.{kind}"] = tensor
        elif name == "decoder.output_projection.weight":
            found["decoder.embed_out"] = tensor
        elif last not in ("k_proj", "v_proj"):
            found[name] = tensor
    found["decoder.embed_tokens.weight"] = weights["encoder.embed_tokens.weight"]
    return found


def settings(shape, **changed):
    """Return the settings as an architecture of fairseq fills them, and some of no account."""
    sizes = {
        "embed_dim": shape.d_model,
        "ffn_embed_dim": shape.d_ff,
        "attention_heads": shape.n_heads,
        "normalize_before": shape.is_pre_norm,
        "learned_pos": False,
        "embed_path": None,
    }
    fields = {
        "arch": "transformer_iwslt_de_en",
        **{f"{side}_{name}": sizes[name] for side in ("encoder", "decoder") for name in sizes},
        "encoder_layers": shape.n_encoder,
        "decoder_layers": shape.n_decoder,
        "decoder_input_dim": shape.d_model,
        "decoder_output_dim": shape.d_model,
        "share_all_embeddings": shape.is_tied,
        "share_decoder_input_output_embed": shape.is_tied,
        "adaptive_softmax_cutoff": None,
        "no_token_positional_embeddings": False,
        "dropout": 0.3,
        "attention_dropout": 0.1,
        "relu_dropout": 0.2,
        "max_source_positions": 64,
        "max_target_positions": 48,
        "lr": [0.0015],
    }
    if shape.is_macaron:
        fields["macaron"] = "new"
    return argparse.Namespace(**{**fields, **changed})


def save_fork(path, weights, args):
    """Save as fairseq 0.6 did: torch's file of before 1.6, with meters and optimizer state."""
    module = types.ModuleType("fairseq.meters")
    meters = OrderedDict()
    for name in ("AverageMeter", "TimeMeter", "StopwatchMeter"):
        kind = type(name, (), {"__module__": module.__name__})
        setattr(module, name, kind)
        meters[name] = kind()
        meters[name].sum = 1.5
    moments = {number: {"step": 7, "exp_avg": torch.ones(2)} for number in range(3)}
    content = {
        "args": args,
        "model": OrderedDict(weights),
        "optimizer_history": [{"criterion_name": "LabelSmoothed", "num_updates": 7}],
        "extra_state": {"train_iterator": {"epoch": 2}, "val_loss": 4.5, "train_meters": meters},
        "last_optimizer_state": {"state": moments, "param_groups": [{"lr": 0.001}]},
    }
    with patch.dict(sys.modules, {"fairseq": types.ModuleType("fairseq"), module.__name__: module}):
        torch.save(content, path, _use_new_zipfile_serialization=False)


def save_newest(path, weights, model):
    """Save as fairseq 0.12 does: ``args`` empty, the settings of the model in ``cfg``."""
    cfg = {"_name": None, "model": model, "task": {"_name": "translation"}}
    content = {"args": None, "cfg": cfg, "model": weights, "extra_state": {"metrics": {}}}
    torch.save({**content, "last_optimizer_state": {}}, path)


def saved(path, shape=PLAIN, change=dict, **changed):
    """Save a random model of the fork, altered as asked, and return the file."""
    save_fork(path / "checkpoint_best.pt", change(as_fork(draw(shape))), settings(shape, **changed))
    return path / "checkpoint_best.pt"


def reference(weights, shape, source, target):
    """Compute the logits by fairseq's equations, in float64; ``PAD`` in the source is padding."""
    seen = source.ne(PAD)[:, None, :]  # [B, 1, S]
    causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
    memory = _stack(weights, shape, "encoder", source, seen)
    hidden = _stack(weights, shape, "decoder", target, causal, (memory, seen))
    output = weights.get("decoder.output_projection.weight", weights["encoder.embed_tokens.weight"])
    return linear(hidden, output)


def _stack(weights, shape, side, tokens, mask, source=None):
    table = weights["encoder.embed_tokens.weight"]
    x = math.sqrt(shape.d_model) * table[tokens] + _positions(tokens, shape.d_model)
    for layer in range(shape.n_encoder if side == "encoder" else shape.n_decoder):
        at, n_heads = f"{side}.layers.{layer}", shape.n_heads

        def network(z, at=f"{at}."):
            return _linear(weights, f"{at}fc2", _linear(weights, f"{at}fc1", z).relu())

        parts = [
            ("self_attn_layer_norm", 1.0, partial(_attend, weights, f"{at}.self_attn", n_heads)),
            ("final_layer_norm", 0.5 if shape.is_macaron else 1.0, network),
        ]
        if shape.is_macaron:
            half = partial(network, at=f"{at}.macaron_")
            parts.insert(0, ("macaron_layer_norm", 0.5, half))
        if source is not None:
            read = partial(_attend, weights, f"{at}.encoder_attn", n_heads, read=source)
            parts.insert(-1, ("encoder_attn_layer_norm", 1.0, read))
        for name, step, function in parts:
            given = {"mask": mask} if name == "self_attn_layer_norm" else {}
            z = _norm(weights, f"{at}.{name}", x) if shape.is_pre_norm else x
            x = x + step * function(z, **given)
            if not shape.is_pre_norm:
                x = _norm(weights, f"{at}.{name}", x)
    has_norm = shape.is_pre_norm and shape.has_final_norm
    return _norm(weights, f"{side}.layer_norm", x) if has_norm else x


def _positions(tokens, d_model):
    real, half = tokens.ne(PAD), d_model // 2
    rate = math.log(10000) / (half - 1)
    frequencies = torch.exp(torch.arange(half, dtype=torch.float32) * -rate)
    angles = (real.cumsum(1) + PAD)[..., None].float() * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1).double() * real[..., None]


def _attend(weights, name, n_heads, x, mask=None, read=None):
    memory, seen = read or (x, mask)
    inputs = {"q": x, "k": memory, "v": memory}
    q, k, v = (_linear(weights, f"{name}.{part}_proj", z) for part, z in inputs.items())
    q = q * (x.shape[-1] // n_heads) ** -0.5
    heads = zip(*(each.chunk(n_heads, -1) for each in (q, k, v)), strict=True)
    mixed = [(a @ b.mT).masked_fill(~seen, -math.inf).softmax(-1) @ c for a, b, c in heads]
    return _linear(weights, f"{name}.out_proj", torch.cat(mixed, dim=-1))


def _linear(weights, name, x):
    return linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])


def _norm(weights, name, x):
    return layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-5)


def batch(shape):
    """Draw a source that is padded on the left, as fairseq's are, and what the decoder reads."""
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(END, shape.vocab_size, (3, 8), generator=generator)
    source[1, :5] = PAD
    target = torch.randint(END, shape.vocab_size, (3, 6), generator=generator)
    target[:, 0] = END
    return source, target


@torch.inference_mode()
def logits(model, shape):
    source, target = batch(shape)
    return model(source, source.ne(PAD), target=target).logits


def assert_equal(model, weights, shape):
    expected = reference(weights, shape, *batch(shape))
    assert expected.std() > 0.1
    torch.testing.assert_close(logits(model, shape), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("shape", "is_pre_norm", "is_tied"),
    [(MACARON, True, True), (MACARON, False, False), (PLAIN, True, False), (PLAIN, False, True)],
)
def test_a_model_of_macaron_nets_fork_gives_the_logits_of_its_equations(
    tmp_path, shape, is_pre_norm, is_tied
):
    shape = replace(shape, is_pre_norm=is_pre_norm, is_tied=is_tied)
    weights = draw(shape)
    save_fork(tmp_path / "checkpoint_best.pt", as_fork(weights), settings(shape))
    import_fairseq(tmp_path, tmp_path / "imported")
    assert_equal(load(tmp_path / "imported", dtype=torch.float64), weights, shape)


@pytest.mark.parametrize(
    ("activation", "is_tied"), [("relu", False), ("gelu", True), ("gelu_accurate", False)]
)
def test_the_certificate_compares_a_model_that_transformers_has(tmp_path, activation, is_tied):
    shape = replace(PLAIN, is_tied=is_tied)
    weights = as_newest(draw(shape, 2))
    save_newest(tmp_path / "model.pt", weights, settings(shape, activation_fn=activation))
    certificate = import_fairseq(tmp_path / "model.pt", tmp_path / "imported")
    assert certificate["checked"]
    assert certificate["largest_difference"]["float64"] < 1e-9
    copies = ["decoder.embed_tokens.weight", "decoder.output_projection.weight"]
    assert certificate["left_out"] == {
        "optimizer_tensors": 0,
        "no_weights": ["decoder.version", "encoder.version"],
        "copies": copies if is_tied else copies[:1],
    }
    if activation == "relu":
        assert_equal(load(tmp_path / "imported", dtype=torch.float64), weights, shape)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (MACARON, "model.block = macaron"),
        (replace(PLAIN, is_pre_norm=False), "post-norm with fairseq's sinusoids"),
    ],
)
def test_the_certificate_names_the_reason_where_nothing_was_compared(tmp_path, shape, reason):
    certificate = import_fairseq(saved(tmp_path, shape), tmp_path / "imported")
    assert not certificate["checked"]
    assert certificate["reason"] == f"no class of it has {reason}"
    assert certificate["left_out"]["optimizer_tensors"] == 3


def test_pre_norm_models_of_before_version_2_have_no_final_norms(tmp_path):
    shape = replace(PLAIN, has_final_norm=False)
    weights = draw(shape)
    old = {name: each for name, each in as_fork(weights).items() if not name.endswith("version")}
    save_fork(tmp_path / "old.pt", old, settings(shape))
    assert_equal(read_fairseq(tmp_path / "old.pt")[0], weights, shape)


def test_a_decoder_with_norms_by_number_and_tables_of_sinusoids_is_read(tmp_path):
    weights = draw(PLAIN)
    numbers = {"self_attn_layer_norm": 0, "encoder_attn_layer_norm": 1, "final_layer_norm": 2}
    old = {"decoder.embed_positions.weights": torch.ones(5, 10)}
    for name, tensor in as_fork(weights).items():
        start, _, kind = name.rpartition(".")
        stem, _, last = start.rpartition(".")
        old[f"{stem}.layer_norms.{numbers[last]}.{kind}" if last in numbers else name] = tensor
    save_fork(tmp_path / "old.pt", old, settings(PLAIN))
    assert_equal(read_fairseq(tmp_path / "old.pt")[0], weights, PLAIN)


def test_a_dictionary_beside_it_has_as_many_entries_as_the_table(tmp_path):
    path = saved(tmp_path)
    lines = [f"piece{number}@@ {number}\n" for number in range(PLAIN.vocab_size - 4)]
    for name in ("dict.de.txt", "dict.en.txt"):
        (tmp_path / name).write_text("".join(lines))
    read_fairseq(path)
    (tmp_path / "dict.en.txt").write_text("".join(lines[1:]))
    with pytest.raises(CheckpointError, match=r"dict.en.txt has 22 entries .* has 23 rows"):
        read_fairseq(path)


def test_codes_and_a_dictionary_beside_it_are_its_tokenizer(tmp_path):
    path = saved(tmp_path)
    (tmp_path / "bpecodes").write_text("#version: 0.2\nl o\nlo w</w>\n")
    names = ["low", "lo@@", "l@@", "o@@", "w", "e@@", "r"]
    names += [f"madeupword{number:04}" for number in range(PLAIN.vocab_size - 4 - len(names))]
    (tmp_path / "dict.de.txt").write_text("".join(f"{name} 1\n" for name in names))
    certificate = import_fairseq(path, tmp_path / "with")
    assert certificate["tokenizer"].startswith("it reads words that spaces divide")
    tokenizer = load(tmp_path / "with").tokenizer
    # Numbered as in the dictionary, behind <s>, <pad>, </s> and <unk>: low; lo@@ w e@@ r is not
    # what the merges make.
    assert tokenizer.encode_source(["low lower x"])[0].tolist() == [4, 5, 3, 9, 10, 3]
    assert tokenizer.write([4, 5, 8]) == "low low"
    (tmp_path / "other.codes").write_text("#version: 0.2\nl o</w>\n")
    with pytest.raises(CheckpointError, match=r"has bpecodes and other.codes: leave the codes"):
        read_fairseq(path)
    for codes in ("other.codes", "bpecodes"):
        (tmp_path / codes).unlink()
    assert read_fairseq(path)[0].tokenizer is None


def config_of(path):
    return read_fairseq(path)[0].config


def test_settings_become_fields(tmp_path):
    (tmp_path / "other").mkdir()
    config = config_of(saved(tmp_path, MACARON))
    expected = {
        "decoder_block": ("ffn:relu*0.5", "attention", "cross", "ffn:relu*0.5"),
        "max_len": 48,
        "init": "xavier",
        "dropout": 0.3,
        "dropout_embedding": 0.3,
        "dropout_attention": 0.1,
        "dropout_ffn": 0.2,
        "embedding_scale": "sqrt",
    }
    assert {name: getattr(config, name) for name in expected} == expected
    changed = {"activation_dropout": 0.4, "no_scale_embedding": True}
    other = config_of(saved(tmp_path / "other", PLAIN, **changed))
    assert (other.block, other.dropout_ffn, other.embedding_scale) == ("transformer", 0.4, "none")


@pytest.mark.parametrize("is_nested", [False, True])
def test_settings_are_read_from_cfg(tmp_path, is_nested):
    found = settings(PLAIN)
    if is_nested:
        found = {}
        for name, value in vars(settings(PLAIN)).items():
            side, _, rest = name.partition("_")
            if side in ("encoder", "decoder"):
                found.setdefault(side, {})[rest] = value
            else:
                found[name] = value
    save_newest(tmp_path / "model.pt", as_newest(draw(PLAIN)), found)
    assert config_of(tmp_path / "model.pt") == config_of(saved(tmp_path))


def altered(name, tensor):
    """Change a tensor of a checkpoint, or leave it out."""
    return lambda weights: {
        **{key: each for key, each in weights.items() if key != name},
        **({} if tensor is ... else {name: tensor}),
    }


BIAS, TABLE = "encoder.layers.0.fc2.bias", "encoder.embed_tokens.weight"
ATTENTION = "encoder.layers.0.self_attn"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((BIAS, ...), f"the weights lack {BIAS}"),
        (("decoder.extra", torch.ones(2)), "hold decoder.extra, which"),
        (("decoder.embed_tokens.weight", torch.ones(23, 10)), f"differs from {TABLE}"),
        (("decoder.embed_out", torch.ones(23, 10)), "though checkpoint_best.pt says"),
        ((f"{ATTENTION}.q_proj.weight", torch.ones(10, 10)), "q_proj.weight twice"),
        ((f"{ATTENTION}.in_proj_bias", torch.ones(31)), r"in_proj_bias has shape \[31\]"),
        ((BIAS, torch.full((10,), torch.nan)), "fc2.bias holds numbers that are not fin"),
        ((BIAS, torch.ones(10).to_sparse()), "not a name of a plain tensor"),
        ((BIAS, None), "not a name of a plain"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(tmp_path, change, message):
    path = saved(tmp_path, change=altered(*change))
    with pytest.raises(CheckpointError, match=message) as caught:
        import_fairseq(path, tmp_path / "imported")
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"encoder_learned_pos": True}, "cannot say: encoder_learned_pos = True"),
        ({"decoder_embed_dim": 12}, "decoder_embed_dim = 12: both stacks have one width"),
        ({"encoder_embed_dim": 11, "decoder_embed_dim": 11}, "encoder_embed_dim = 11 is odd"),
        ({"decoder_output_dim": 8}, "decoder_output_dim = 8 is not"),
        ({"decoder_normalize_before": False}, "both stacks have one order"),
        ({"activation_fn": "tanh"}, "activation_fn = 'tanh' is not one of relu, gelu"),
        ({"dropout": 1.5}, "dropout = 1.5"),
        ({"dropout": [1]}, r"dropout = \[1\]"),
        ({"dropout": 10**5000}, "is damaged, or no checkpoint"),
        ({"lr": torch.ones(2)}, "the setting lr holds a Tensor, not a plain value"),
        ({"share_all_embeddings": False}, "share_all_embeddings = False"),
        ({"macaron": True, "activation_fn": "gelu"}, "activation_fn = 'gelu': Macaron"),
        ({"encoder_layers": 1}, "hold encoder.layers.1.fc1.bias and 15 other"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(tmp_path, changed, message):
    other = altered("decoder.embed_tokens.weight", torch.ones(31, 10))
    path = saved(tmp_path, change=other if "share_all_embeddings" in changed else dict, **changed)
    with pytest.raises(CheckpointError, match=message):
        import_fairseq(path, tmp_path / "imported")
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_folder_is_read_that_holds_one_checkpoint(tmp_path):
    path = saved(tmp_path)
    assert find_checkpoint(tmp_path) == find_checkpoint(path) == path
    path.with_name("checkpoint_last.pt").write_bytes(path.read_bytes())
    (tmp_path / "empty").mkdir()
    for place, message in (
        (tmp_path, "has checkpoint_best.pt and 1 more: name one of them"),
        (tmp_path / "nowhere", "is not a checkpoint of fairseq"),
        (tmp_path / "empty", "nor a folder that holds one"),
    ):
        with pytest.raises(CheckpointError, match=message):
            find_checkpoint(place)


class Command:
    """What runs a command when an ordinary unpickler reads it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(("place", "is_old"), [("args", True), ("model", False)])
def test_code_in_a_pickle_is_refused_and_never_run(tmp_path, place, is_old):
    content = {"args": settings(PLAIN), "model": as_fork(draw(PLAIN)), "extra_state": {}}
    content[place], path = Command(tmp_path / "made"), tmp_path / "x.pt"
    torch.save(content, path, _use_new_zipfile_serialization=is_old)
    with pytest.raises(CheckpointError, match=r"names posix.mkdir, .* is never run"):
        import_fairseq(path, tmp_path / "imported")
    assert [path.name for path in tmp_path.iterdir()] == ["x.pt"]


class DictConfig(dict[str, Any]):
    """A class of a library that is not of torch."""


def test_a_class_that_is_not_torchs_is_named(tmp_path):
    save_newest(tmp_path / "x.pt", as_newest(draw(PLAIN)), DictConfig(vars(settings(PLAIN))))
    with pytest.raises(CheckpointError, match=rf"names {__name__}.DictConfig, .* as plain values"):
        read_fairseq(tmp_path / "x.pt")


@pytest.mark.parametrize("is_old", [True, False])
def test_a_file_that_was_cut_is_refused(tmp_path, is_old):
    path = saved(tmp_path)
    if not is_old:
        save_newest(path, as_newest(draw(PLAIN)), settings(PLAIN))
    content, cut = path.read_bytes(), tmp_path / "cut.pt"
    for length in range(0, len(content), len(content) // 9):
        cut.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match="is damaged"):
            read_fairseq(cut)


def test_a_byte_that_was_changed_in_a_weight_is_noticed(tmp_path):
    path = tmp_path / "model.pt"
    weights = as_newest(draw(PLAIN))
    save_newest(path, weights, settings(PLAIN))
    content = bytearray(path.read_bytes())
    content[content.index(weights["encoder.layers.0.fc1.weight"].numpy().tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is damaged .*: the check sum of 'model/data/"):
        read_fairseq(path)


def tables(*shape):
    """Return the tables of both stacks alone."""
    return {name: torch.ones(shape) for name in (TABLE, "decoder.embed_tokens.weight")}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "holds no model"),
        ({"model": {}}, "it has neither args nor cfg with model"),
        ({"model": {}, "args": argparse.Namespace()}, f"the weights lack {TABLE}"),
        ({"model": tables(9), "args": argparse.Namespace()}, "has shape"),
        ({"model": tables(9, 4), "args": argparse.Namespace()}, "does not say"),
        ({"model": {2: torch.ones(1)}}, "model holds 2, which is not a name of a plain tensor"),
    ],
)
def test_a_file_without_a_translation_model_is_refused(tmp_path, content, message):
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=message):
        read_fairseq(tmp_path / "x.pt")
