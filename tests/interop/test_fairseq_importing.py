"""fairseq's translation models: logits of its equations, settings, files, hostile content."""

import argparse
import math
import os
import sys
import types
from collections import OrderedDict
from functools import partial
from typing import NamedTuple
from unittest.mock import patch

import pytest
import torch
from torch.nn.functional import gelu, layer_norm, linear

from sublayer.api.run import load
from sublayer.config.load import load_recipe
from sublayer.errors import CheckpointError
from sublayer.interop.fairseq import _is_setting, find_checkpoint, import_fairseq, read_fairseq
from sublayer.objective.supervised.heads import unscaled
from tests.interop.folders import check_refused, close

PAD, END = 1, 2
VOCAB_SIZE, WIDTH, N_HEADS, D_FF = 23, 10, 2, 7
LAYERS = {"encoder": 2, "decoder": 3}
TABLE, HEAD = "encoder.embed_tokens.weight", "decoder.output_projection.weight"


class Shape(NamedTuple):
    is_macaron: bool = False
    is_pre_norm: bool = True
    is_tied: bool = True
    has_final_norm: bool = True


MACARON, PLAIN = Shape(is_macaron=True), Shape()


def draw(shape, seed=0):
    """Draw every weight in float64, under the names of fairseq's newest version."""
    found, generator = {}, torch.Generator().manual_seed(seed)

    def add(name, *sizes, centre=0.0):
        found[name] = centre + 0.3 * torch.randn(sizes, generator=generator, dtype=torch.float64)

    def add_norm(name):
        add(f"{name}.weight", WIDTH, centre=1.0)
        add(f"{name}.bias", WIDTH)

    def add_linear(name, d_in=WIDTH, d_out=WIDTH):
        add(f"{name}.weight", d_out, d_in)
        add(f"{name}.bias", d_out)

    add(TABLE, VOCAB_SIZE, WIDTH)
    if not shape.is_tied:
        add(HEAD, VOCAB_SIZE, WIDTH)
    for side, n_layers in LAYERS.items():
        for layer in range(n_layers):
            start = f"{side}.layers.{layer}"
            for attention in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    add_linear(f"{start}.{attention}.{part}")
                add_norm(f"{start}.{attention}_layer_norm")
            for half in ("macaron_", "")[1 - shape.is_macaron :]:
                add_linear(f"{start}.{half}fc1", d_out=D_FF)
                add_linear(f"{start}.{half}fc2", d_in=D_FF)
                add_norm(f"{start}.{half or 'final_'}layer_norm")
        if shape.is_pre_norm and shape.has_final_norm:
            add_norm(f"{side}.layer_norm")
    return found


def as_newest(weights):
    """Return the newest version's state dict: one table under three names, split projections."""
    found = {f"{side}.version": torch.tensor([3.0]) for side in LAYERS} | weights
    found["decoder.embed_tokens.weight"] = weights[TABLE]
    return {HEAD: weights[TABLE], **found}


FORK = {"encoder": ["self_attn_layer_norm", "final_layer_norm", "macaron_layer_norm"]}
OLDER = FORK | {"decoder": ["self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"]}


def as_fork(weights, numbered=FORK):
    """Return the state dict of Macaron Net's fork of 0.6: fused projections, norms by number."""
    found = {f"{side}.embed_positions._float_tensor": torch.zeros(1) for side in LAYERS}
    found |= {f"{side}.version": torch.tensor([2.0]) for side in LAYERS}
    for name, tensor in weights.items():
        start, _, kind = name.rpartition(".")
        stem, _, last = start.rpartition(".")
        norms = numbered.get(name.partition(".")[0], [])
        if last == "q_proj":
            parts = [weights[f"{stem}.{letter}_proj.{kind}"] for letter in "qkv"]
            found[f"{stem}.in_proj_{kind}"] = torch.cat(parts)
        elif last in norms:
            found[f"{stem}.layer_norms.{norms.index(last)}.{kind}"] = tensor
        elif name == HEAD:
            found["decoder.embed_out"] = tensor
        elif last not in ("k_proj", "v_proj"):
            found[name] = tensor
    return {**found, "decoder.embed_tokens.weight": weights[TABLE]}


def settings(shape, **changed):
    """Return the settings as an architecture of fairseq fills them, and some of no account."""
    sizes = {"embed_dim": WIDTH, "ffn_embed_dim": D_FF, "attention_heads": N_HEADS}
    sizes |= {"normalize_before": shape.is_pre_norm, "learned_pos": False, "embed_path": None}
    fields = {f"{side}_{name}": value for side in LAYERS for name, value in sizes.items()}
    fields |= {f"{side}_layers": n_layers for side, n_layers in LAYERS.items()}
    fields |= {"decoder_input_dim": WIDTH, "decoder_output_dim": WIDTH, "lr": [0.0015]}
    fields["share_all_embeddings"] = fields["share_decoder_input_output_embed"] = shape.is_tied
    fields |= {"adaptive_softmax_cutoff": None, "no_token_positional_embeddings": False}
    fields |= {"dropout": 0.3, "attention_dropout": 0.1, "relu_dropout": 0.2}
    fields |= {"max_source_positions": 64, "max_target_positions": 48}
    if shape.is_macaron:
        fields["macaron"] = "new"
    return argparse.Namespace(arch="transformer_iwslt_de_en", **{**fields, **changed})


def save_fork(path, weights, args):
    """Save as fairseq 0.6 did: torch's file of before 1.6, with meters and optimizer state."""
    module = types.ModuleType("fairseq.meters")
    module.AverageMeter = type("AverageMeter", (), {"__module__": module.__name__, "sum": 1.5})
    meter = module.AverageMeter()
    moments = {number: {"step": 7, "exp_avg": torch.ones(2)} for number in range(3)}
    content = {"args": args, "model": OrderedDict(weights)}
    content["optimizer_history"] = [{"criterion_name": "LabelSmoothed", "num_updates": 7}]
    content["extra_state"] = {"val_loss": 4.5, "train_meters": OrderedDict(train_loss=meter)}
    content["last_optimizer_state"] = {"state": moments, "param_groups": [{"lr": 0.001}]}
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


def stack_of(weights, shape, side, tokens, mask, source=None, segments=0.0, last=torch.relu):
    """Compute a stack by fairseq's equations, in float64; ``last`` is of the second network."""

    def project(name, x):
        return linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(name, x):
        gain, offset = (weights.get(f"{name}.{kind}") for kind in ("weight", "bias"))
        return layer_norm(x, x.shape[-1:], gain, offset, 1e-5)

    def attend(name, x, memory, seen):
        inputs = {"q": x, "k": memory, "v": memory}
        q, k, v = (project(f"{name}.{part}_proj", z) for part, z in inputs.items())
        q = q * (WIDTH // N_HEADS) ** -0.5
        heads = zip(*(each.chunk(N_HEADS, -1) for each in (q, k, v)), strict=True)
        mixed = [(a @ b.mT).masked_fill(~seen, -math.inf).softmax(-1) @ c for a, b, c in heads]
        return project(f"{name}.out_proj", torch.cat(mixed, dim=-1))

    def network(name, x):
        activated = (torch.relu if name.endswith("macaron_") else last)(project(f"{name}fc1", x))
        return project(f"{name}fc2", activated)

    real, half = tokens.ne(PAD), WIDTH // 2
    frequencies = torch.exp(torch.arange(half) * (-math.log(10000) / (half - 1)))
    angles = (real.cumsum(1) + PAD)[..., None].float() * frequencies
    positions = torch.cat([angles.sin(), angles.cos()], dim=-1).double() * real[..., None]
    x = math.sqrt(WIDTH) * weights[TABLE][tokens] + positions + segments
    for layer in range(LAYERS[side]):
        at = f"{side}.layers.{layer}."
        parts = [("self_attn_", 1.0, lambda z, at=at: attend(f"{at}self_attn", z, z, mask))]
        if source is not None:
            read = lambda z, at=at: attend(f"{at}encoder_attn", z, *source)  # noqa: E731
            parts.append(("encoder_attn_", 1.0, read))
        if shape.is_macaron:
            parts.insert(0, ("macaron_", 0.5, partial(network, f"{at}macaron_")))
        parts.append(("final_", 0.5 if shape.is_macaron else 1.0, partial(network, at)))
        for name, step, function in parts:
            name = f"{at}{name}layer_norm"
            x = x + step * function(norm(name, x) if shape.is_pre_norm else x)
            if not shape.is_pre_norm:
                x = norm(name, x)
    has_norm = shape.is_pre_norm and shape.has_final_norm
    return norm(f"{side}.layer_norm", x) if has_norm else x


@torch.inference_mode()
def assert_equal(model, weights, shape):
    """Compare logits of a source that is padded on the left, as fairseq's are, with equations."""
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(END, VOCAB_SIZE, (3, 8), generator=generator)
    source[1, :5] = PAD
    target = torch.randint(END, VOCAB_SIZE, (3, 6), generator=generator)
    target[:, 0] = END
    seen, causal = source.ne(PAD)[:, None, :], torch.ones(6, 6, dtype=torch.bool).tril()
    memory = stack_of(weights, shape, "encoder", source, seen)
    hidden = stack_of(weights, shape, "decoder", target, causal, (memory, seen))
    expected = linear(hidden, weights.get(HEAD, weights[TABLE]))
    assert expected.std() > 0.1
    found = model(source, source.ne(PAD), target=target).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("shape", [
    MACARON, Shape(True, False, False), Shape(False, True, False), Shape(False, False, True),
])  # fmt: skip
def test_a_model_of_macaron_nets_fork_gives_the_logits_of_its_equations(tmp_path, shape):
    weights = draw(shape)
    save_fork(tmp_path / "checkpoint_best.pt", as_fork(weights), settings(shape))
    certificate = import_fairseq(tmp_path, tmp_path / "imported")
    assert_equal(load(tmp_path / "imported", dtype=torch.float64), weights, shape)
    assert certificate["left_out"]["optimizer_tensors"] == 3
    assert certificate["checked"] == (shape == Shape(False, True, False))
    if shape == MACARON:
        assert certificate["reason"] == "it has no class with model.block = macaron"


def bert_of(shape, *, is_plain, n_classes=0, first=0.0):
    """Draw a BERT of the fork: its weights by their newest names, and as it saves them."""
    weights = {name: each for name, each in draw(shape).items() if name.startswith("encoder.")}
    if is_plain:
        weights = {name: each for name, each in weights.items() if "layer_norm" not in name}
    generator = torch.Generator().manual_seed(5)

    def drawn(*sizes):
        return torch.randn(sizes, generator=generator, dtype=torch.float64)

    weights["encoder.embed_segment.weight"] = torch.stack([drawn(WIDTH), first * drawn(WIDTH)])
    n_outputs = n_classes or 1
    heads = {"classifier.weight": drawn(n_outputs, WIDTH), "classifier.bias": drawn(n_outputs)}
    if not n_classes:
        heads |= {"embed_out": weights[TABLE] if shape.is_tied else drawn(VOCAB_SIZE, WIDTH)}
        heads |= {"mid_layer.0.weight": drawn(WIDTH, WIDTH), "mid_layer.0.bias": drawn(WIDTH)}
        heads |= {f"mid_layer.2.{kind}": drawn(WIDTH) for kind in ("weight", "bias")}
    saved = {k: v for k, v in as_fork(weights).items() if not k.startswith("decoder.")}
    return weights | heads, saved | heads


@torch.no_grad()
def answers_of_bert(weights, shape, activation):
    """Compute states and logits of padded pairs by the equations, and what our model is given."""
    tokens = torch.randint(END, VOCAB_SIZE, (3, 8), generator=torch.Generator().manual_seed(3))
    tokens[1, 5:] = PAD
    # The code numbers segments from behind: the first text is 1, as is padding.
    is_first = (torch.arange(8) < 3) | tokens.eq(PAD)
    vectors = weights["encoder.embed_segment.weight"][is_first.long()]
    last, mask = {"relu": torch.relu, "gelu": gelu}[activation], tokens.ne(PAD)
    h = stack_of(weights, shape, "encoder", tokens, mask[:, None], segments=vectors, last=last)
    found = {"answers": linear(h[:, 0], weights["classifier.weight"], weights["classifier.bias"])}
    if "embed_out" in weights:
        inner = last(linear(h, weights["mid_layer.0.weight"], weights["mid_layer.0.bias"]))
        ends = weights["mid_layer.2.weight"], weights["mid_layer.2.bias"]
        found["tokens"] = linear(layer_norm(inner, (WIDTH,), *ends), weights["embed_out"])
    return (tokens, mask, (~is_first).long()), found


@pytest.mark.parametrize("shape, plain, act, first", [
    (MACARON, True, "gelu", 0.0), (PLAIN, True, "gelu", 0.0),
    (Shape(True, False, False), False, "relu", 1.0), (Shape(False, True, False), False, "gelu", 0.0)
])  # fmt: skip
def test_a_bert_of_the_fork_gives_the_logits_of_its_equations(tmp_path, shape, plain, act, first):
    weights, stored = bert_of(shape, is_plain=plain, first=first)
    fields = {"act_fn": act, "no_normalize_affine": plain, "max_positions": 40, "n_classes": 0}
    save_fork(tmp_path / "checkpoint_best.pt", stored, settings(shape, **fields))
    certificate = import_fairseq(tmp_path, tmp_path / "imported")
    assert certificate["left_out"]["copies"] == ["embed_out"][: shape.is_tied]
    model = load(tmp_path / "imported", dtype=torch.float64)
    given, expected = answers_of_bert(weights, shape, act)
    found = model.requires_grad_(False)(*given)
    close(found.logits[given[1]], expected["tokens"][given[1]])
    # Theirs says that the second text follows, ours that it does not.
    close(found.sentence_logits, -expected["answers"])
    config = model.config
    assert (config.max_len, config.segments) == (40, "both" if first else "second")
    if plain and shape == MACARON:
        released = load_recipe("macaron-bert-base-released").recipe.model
        names = ("norm_affine", "final_norm", "sinusoids", "segments", "sentence_classes", "init")
        assert config.block == tuple(released.block)
        assert all(getattr(config, name) == getattr(released, name) for name in names)


@pytest.mark.parametrize("criterion, n_classes, kind", [
    ("cross_entropy_classify", 3, "classes"), ("cross_entropy_classify_binary", 1, "classes"),
    ("mean_squared_error", 1, "number"),
])  # fmt: skip
def test_a_fine_tuned_bert_of_the_fork_answers(tmp_path, criterion, n_classes, kind):
    weights, stored = bert_of(MACARON, is_plain=True, n_classes=n_classes)
    fields = {"act_fn": "gelu", "no_normalize_affine": True, "n_classes": n_classes}
    path = tmp_path / "checkpoint_last.pt"
    save_fork(path, stored, settings(MACARON, **fields, criterion=criterion))
    import_fairseq(path, tmp_path / "imported")
    model = load(tmp_path / "imported", dtype=torch.float64)
    given, expected = answers_of_bert(weights, MACARON, "gelu")
    close(model.requires_grad_(False)(*given)["label"], expected["answers"])
    task = model.task.tasks[0]
    assert (task.kind, len(task.labels)) == (kind, 0 if kind == "number" else max(2, n_classes))
    if kind == "number":
        close(unscaled(task, expected["answers"]), expected["answers"] * 2 + 3)
    save_fork(path, stored, settings(MACARON, **fields, criterion="adaptive_loss"))
    check_refused(path, "criterion = 'adaptive_loss' .* does not det", by=import_fairseq)


def test_codes_beside_a_bert_are_its_tokenizer_of_moses_rules(tmp_path):
    pytest.importorskip("sacremoses")
    stored, fields = bert_of(MACARON, is_plain=True)[1], {"no_normalize_affine": True}
    save_fork(tmp_path / "best.pt", stored, settings(MACARON, act_fn="gelu", **fields))
    (tmp_path / "codes").write_text("l o 9\nlo w</w> 7\n")
    names = ["low", "lo@@", "l@@", "o@@", "w", "e@@", "r", ".", *"abcdfghij"]
    (tmp_path / "dict.txt").write_text("".join(f"{name} 1\n" for name in names))
    import_fairseq(tmp_path / "best.pt", tmp_path / "imported")
    tokenizer = load(tmp_path / "imported").tokenizer
    # Numbered behind <Lua heritage>, <pad>, </s>, <unk>, <mask> and <cls>.
    assert tokenizer.encode(b"Low low.").tolist() == [6, 6, 13]
    special = (tokenizer.pad_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.cls_id)
    assert special == (1, 2, 4, 5)


@pytest.mark.parametrize("act, tied", [("relu", False), ("gelu", True), ("gelu_accurate", False)])
def test_the_certificate_compares_a_model_that_transformers_has(tmp_path, act, tied):
    shape = PLAIN._replace(is_tied=tied)
    weights = as_newest(draw(shape, 2))
    save_newest(tmp_path / "model.pt", weights, settings(shape, activation_fn=act))
    certificate = import_fairseq(tmp_path / "model.pt", tmp_path / "imported")
    assert certificate["checked"] and certificate["largest_difference"]["float64"] < 1e-9
    no_weights = ["decoder.version", "encoder.version"]
    copies = ["decoder.embed_tokens.weight", HEAD][: 1 + tied]
    left_out = {"optimizer_tensors": 0, "no_weights": no_weights, "copies": copies}
    assert certificate["left_out"] == left_out
    if act == "relu":
        assert_equal(load(tmp_path / "imported", dtype=torch.float64), weights, shape)


def test_norms_of_older_versions_are_read_none_last_and_by_number(tmp_path):
    shape = PLAIN._replace(has_final_norm=False)
    weights = draw(shape)
    old = {name: each for name, each in as_fork(weights).items() if not name.endswith("version")}
    save_fork(tmp_path / "old.pt", old, settings(shape))
    assert_equal(read_fairseq(tmp_path / "old.pt")[0].model, weights, shape)
    weights = draw(PLAIN)
    old = as_fork(weights, OLDER) | {"decoder.embed_positions.weights": torch.ones(5, 10)}
    save_fork(tmp_path / "old.pt", old, settings(PLAIN))
    assert_equal(read_fairseq(tmp_path / "old.pt")[0].model, weights, PLAIN)


def test_codes_and_a_dictionary_beside_it_are_its_tokenizer(tmp_path):
    path = saved(tmp_path)
    (tmp_path / "bpecodes").write_text("#version: 0.2\nl o\nlo w</w>\n")
    names = ["low", "lo@@", "l@@", "o@@", "w", "e@@", "r"]
    names += [f"madeupword{number:04}" for number in range(VOCAB_SIZE - 4 - len(names))]
    (tmp_path / "dict.de.txt").write_text("".join(f"{name} 1\n" for name in names))
    certificate = import_fairseq(path, tmp_path / "with")
    assert certificate["tokenizer"].startswith("it reads and writes words separated")
    tokenizer = load(tmp_path / "with").tokenizer
    # Numbered as in the dictionary, behind <s>, <pad>, </s> and <unk>: low; lo@@ w e@@ r is not
    # what the merges make.
    assert tokenizer.encode_source(["low lower x"])[0].tolist() == [4, 5, 3, 9, 10, 3]
    assert tokenizer.write([4, 5, 8]) == "low low"
    (tmp_path / "dict.en.txt").write_text("".join(f"{name} 1\n" for name in names[1:]))
    check_refused(path, r"dict.en.txt has 22 entries, .* has 23 rows", by=import_fairseq)
    (tmp_path / "dict.en.txt").unlink()
    (tmp_path / "other.codes").write_text("#version: 0.2\nl o</w>\n")
    check_refused(path, r"has bpecodes and other.codes: keep only the codes", by=import_fairseq)
    for codes in ("other.codes", "bpecodes"):
        (tmp_path / codes).unlink()
    assert read_fairseq(path)[0].tokenizer is None


def test_settings_become_fields_and_may_be_nested(tmp_path):
    config = read_fairseq(saved(tmp_path, MACARON))[0].model.config
    assert config.decoder_block == ("ffn:relu*0.5", "attention", "cross", "ffn:relu*0.5")
    assert (config.max_len, config.init, config.embedding_scale) == (48, "xavier", "sqrt")
    assert (config.dropout, config.dropout_embedding) == (0.3, 0.3)
    assert (config.dropout_attention, config.dropout_ffn) == (0.1, 0.2)
    changed = {"activation_dropout": 0.4, "relu_dropout": None, "no_scale_embedding": True}
    other = read_fairseq(saved(tmp_path, PLAIN, **changed))[0].model.config
    assert (other.block, other.dropout_ffn, other.embedding_scale) == ("transformer", 0.4, "none")
    found = vars(settings(PLAIN))
    for side in LAYERS:
        names = [name for name in found if name.startswith(f"{side}_")]
        found[side] = {name.removeprefix(f"{side}_"): found.pop(name) for name in names}
    save_newest(tmp_path / "model.pt", as_newest(draw(PLAIN)), found)
    nested = read_fairseq(tmp_path / "model.pt")[0].model.config
    assert nested == read_fairseq(saved(tmp_path))[0].model.config


def altered(name, tensor):
    changed = {} if tensor is ... else {name: tensor}
    return {"change": lambda weights: {k: weights[k] for k in weights if k != name} | changed}


ODD = dict.fromkeys(("encoder_embed_dim", "decoder_embed_dim"), 11)
ODD |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 1)
ODD |= dict.fromkeys(("decoder_input_dim", "decoder_output_dim"))
BIAS, COPY = "encoder.layers.0.fc2.bias", "decoder.embed_tokens.weight"
ATTENTION, UNSHARED = "encoder.layers.0.self_attn", {"share_all_embeddings": False}


@pytest.mark.parametrize("changed, message", [
    (altered(BIAS, ...), f"the weights lack {BIAS}"),
    (altered(COPY, torch.ones(23, 10)), f"differs from {TABLE}"),
    (altered("decoder.embed_out", torch.ones(23, 10)), "checkpoint_best.pt ties"),
    (altered(f"{ATTENTION}.q_proj.weight", torch.ones(10, 10)), "q_proj.weight twice"),
    (altered(f"{ATTENTION}.in_proj_bias", torch.ones(31)), r"in_proj_bias has shape \[31\]"),
    (altered(BIAS, torch.full((10,), torch.nan)), "fc2.bias holds numbers that are not fin"),
    (altered(BIAS, torch.ones(10).to_sparse()), "not the name of a plain tensor"),
    ({"encoder_learned_pos": True}, "as a recipe: encoder_learned_pos = true"),
    ({"decoder_embed_dim": 12}, "decoder_embed_dim = 12: both stacks share one"),
    (ODD, "an even model.d_model, not 11"),
    ({"decoder_normalize_before": False}, "both stacks share one"),
    ({"dropout": 1.5}, "dropout = 1.5"), ({"dropout": 10**5000}, "is damaged, or not a fairseq"),
    ({"lr": torch.ones(2)}, "the setting lr holds a Tensor, not a plain value"),
    (altered(COPY, torch.ones(31, 10)) | UNSHARED, "differs from encoder.embed_tokens"),
    ({"macaron": True, "activation_fn": "gelu"}, "activation_fn = 'gelu': Macaron"),
    ({"encoder_layers": 1}, "hold encoder.layers.1.fc1.bias and 15 other"),
])  # fmt: skip
def test_weights_and_settings_that_do_not_fit_are_refused_by_name(tmp_path, changed, message):
    path = saved(tmp_path, **changed)
    check_refused(path, message, by=import_fairseq)
    assert [*tmp_path.iterdir()] == [path]


def test_a_folder_is_read_that_holds_one_checkpoint(tmp_path):
    path = saved(tmp_path)
    assert find_checkpoint(tmp_path) == find_checkpoint(path) == path
    path.with_name("checkpoint_last.pt").write_bytes(path.read_bytes())
    (tmp_path / "empty").mkdir()
    messages = {"": "has checkpoint_best.pt and 1 more", "nowhere": "is neither a fairseq"}
    for place, message in (messages | {"empty": "nor a folder with one"}).items():
        with pytest.raises(CheckpointError, match=message):
            find_checkpoint(tmp_path / place)


class Command:
    """What runs a command when an ordinary unpickler reads it."""

    def __reduce__(self):
        return os.mkdir, ("made",)


class DictConfig(dict):
    """A class of a library that is not of torch."""


@pytest.mark.parametrize(("place", "is_old"), [("args", True), ("model", False)])
def test_code_in_a_pickle_is_refused_and_never_run(tmp_path, monkeypatch, place, is_old):
    monkeypatch.chdir(tmp_path)
    content = {"args": settings(PLAIN), "model": as_fork(draw(PLAIN)), "extra_state": {}}
    content[place], path = Command(), tmp_path / "x.pt"
    torch.save(content, path, _use_new_zipfile_serialization=is_old)
    check_refused(path, r"names posix.mkdir, .* is never run", by=import_fairseq)
    assert [path.name for path in tmp_path.iterdir()] == ["x.pt"]
    save_newest(path, as_newest(draw(PLAIN)), DictConfig(vars(settings(PLAIN))))
    message = rf"names {__name__}.DictConfig, .* as plain values"
    check_refused(path, message, by=import_fairseq)


@pytest.mark.parametrize("is_old", [True, False])
def test_a_file_that_was_cut_or_changed_in_a_byte_is_refused(tmp_path, is_old):
    path, weights = saved(tmp_path), as_newest(draw(PLAIN))
    if not is_old:
        save_newest(path, weights, settings(PLAIN))
    content, cut = bytearray(path.read_bytes()), tmp_path / "cut.pt"
    for length in range(0, len(content), len(content) // 9):
        cut.write_bytes(content[:length])
        check_refused(cut, "is damaged", by=import_fairseq)
    cut.write_text("text,label\n")
    check_refused(cut, "not a file that torch.save wrote", by=import_fairseq)
    if not is_old:
        content[content.index(weights["encoder.layers.0.fc1.weight"].numpy().tobytes())] ^= 1
        cut.write_bytes(content)
        check_refused(cut, r"is damaged .*: the checksum of '\w+/data/", by=import_fairseq)


NARROW, WIDE = (dict.fromkeys((TABLE, COPY), torch.ones(shape)) for shape in ((9,), (9, 4)))


@pytest.mark.parametrize("content, message", [
    ([1, 2], "holds no model"), ({"model": {}}, "it has neither args nor cfg with model"),
    ({"model": NARROW, "args": argparse.Namespace()}, "has shape"),
    ({"model": WIDE, "args": argparse.Namespace()}, "has no enc"),
    ({"model": {2: torch.ones(1)}}, "model holds 2, which is not the name of a plain tensor"),
])  # fmt: skip
def test_a_file_without_a_translation_model_is_refused(tmp_path, content, message):
    torch.save(content, tmp_path / "x.pt")
    check_refused(tmp_path / "x.pt", message, by=import_fairseq)


@pytest.mark.parametrize("value, is_setting", [
    ([1, {"a": (None, 2.5, "b", True)}], True), (1 << 10_000, False), ({"a": [-1 << 9999]}, False),
    ([[0] * 10**6], False), ({"a": object()}, False),
])  # fmt: skip
def test_a_setting_is_what_a_command_line_can_say(value, is_setting):
    assert _is_setting(value) == is_setting
