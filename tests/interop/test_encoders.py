"""BERT, ALBERT and its TensorFlow release: logits of both heads, files, tokenizers."""

import json
import re
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.bert import encoder_names
from sublayer.interop.bert.encoder_weights import leave_out_identity
from sublayer.interop.huggingface.exchange import (
    export_huggingface,
    import_huggingface,
    read_huggingface,
)
from sublayer.interop.huggingface.tokenizer_files import export_files
from sublayer.interop.tensorflow.albert_tf import import_albert_tf
from sublayer.interop.tensorflow.bundle_slices import _ordered, slice_key
from sublayer.interop.tensorflow.crc32c import masked_crc32c
from sublayer.interop.tensorflow.tensor_bundle import read_bundle
from sublayer.loading import load
from sublayer.model.build import build
from tests.breadth import rows
from tests.data.sentences import WRITTEN, sentences
from tests.interop.exported import config_of, with_random_vectors
from tests.interop.folders import WEIGHTS, change_json, change_weights, check_refused, close, opened

VOCAB_SIZE, MAX_LEN = 53, 19
FIELDS = {"vocab_size": VOCAB_SIZE, "max_position_embeddings": MAX_LEN, "hidden_size": 12}
FIELDS |= {"num_attention_heads": 3, "num_hidden_layers": 3, "intermediate_size": 17}
FIELDS |= dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
OF_NAME = {"bert": FIELDS, "albert": {**FIELDS, "embedding_size": 12, "inner_group_num": 2}}


@torch.no_grad()
def random_encoder(name, kind="ForPreTraining", **fields):
    import transformers

    title = name.capitalize()
    oracle = getattr(transformers, title + kind)(getattr(transformers, f"{title}Config")(**fields))
    generator = torch.Generator().manual_seed(1)
    for place, parameter in oracle.named_parameters():
        parameter.normal_(std=0.3, generator=generator)
        if place.lower().endswith(("layernorm.weight", "layer_norm.weight")):
            parameter.add_(1.0)
    return oracle.eval()


def batch():
    mask = torch.arange(MAX_LEN) < torch.tensor([MAX_LEN, 11, 5])[:, None]
    segments = (torch.arange(MAX_LEN) >= torch.tensor([9, 6, 5])[:, None]).long() * mask
    tokens = torch.randint(VOCAB_SIZE, (3, MAX_LEN), generator=torch.Generator().manual_seed(3))
    return {"tokens": tokens, "mask": mask, "segments": segments}


@torch.inference_mode()
def ours(model):
    output = model(**batch())
    return output.logits[batch()["mask"]], output.sentence_logits


@torch.inference_mode()
def theirs(oracle):
    tokens, mask, segments = batch().values()
    output = oracle(tokens, attention_mask=mask.long(), token_type_ids=segments)
    logits = output.logits if "logits" in output else output.prediction_logits
    return logits[mask], output.get("seq_relationship_logits", output.get("sop_logits"))


DTYPES = {torch.float32: 1, torch.float64: 2, torch.int64: 9}
BLOCK_ROWS, RESTART_ROWS = 5, 3


def varint(value):
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def field(number, value):
    """Encode a field of a protobuf message: a number, or a text or message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def write_bundle(prefix, tensors, *, n_shards=2, more=()):
    """Write tensors in turn into shards, behind some unused bytes, and their index."""
    shards = [bytearray(b"unused") for _ in range(n_shards)]
    rows = [(b"", field(1, n_shards) + field(3, field(1, 1)))]
    for number, (name, tensor) in enumerate(sorted(tensors.items())):
        shard, raw = number % n_shards, tensor.contiguous().numpy().tobytes()
        shape = b"".join(field(2, field(1, size)) for size in tensor.shape)
        entry = field(1, DTYPES[tensor.dtype]) + field(2, shape) + field(3, shard)
        entry += field(4, len(shards[shard])) + field(5, len(raw))
        entry += varint(6 << 3 | 5) + masked_crc32c(raw).to_bytes(4, "little")
        rows.append((name if isinstance(name, bytes) else name.encode(), entry))
        shards[shard] += raw
    for number, content in enumerate(shards):
        Path(f"{prefix}.data-{number:05d}-of-{n_shards:05d}").write_bytes(content)
    Path(f"{prefix}.index").write_bytes(sorted_table([*rows, *more]))


def write_sliced(prefix, whole, cuts):
    """Write a tensor as the slices of some extents, each under TensorFlow's key."""
    entry = field(1, 1) + field(2, b"".join(field(2, field(1, size)) for size in whole.shape))
    pieces = {}
    for extents in cuts:
        places = [slice(start, None if n is None else start + n) for start, n in extents]
        pieces[slice_key(b"w", tuple(extents))] = whole[tuple(places)]
        sized = [field(1, start) + (b"" if n is None else field(2, n)) for start, n in extents]
        entry += field(7, b"".join(field(1, each) for each in sized))
    write_bundle(prefix, pieces, more=[(b"w", entry)])


def sorted_table(rows):
    """Lay out a LevelDB table of blocks, each with its checksum, and their index."""
    out, handles = bytearray(), []

    def put(rows, restart_rows):
        stored = block_of(rows, restart_rows) + b"\0"
        handle = varint(len(out)) + varint(len(stored) - 1)
        out.extend(stored + masked_crc32c(stored).to_bytes(4, "little"))
        return handle

    for start in range(0, len(rows), BLOCK_ROWS):
        block = rows[start : start + BLOCK_ROWS]
        handles.append((block[-1][0], put(block, RESTART_ROWS)))
    footer = put([], 1) + put(handles, 1)
    return bytes(out) + footer.ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")


def block_of(rows, restart_rows):
    """Lay out rows whose keys share their beginning with the key before, but at restarts."""
    out, restarts, last = bytearray(), [0], b""
    for number, (key, value) in enumerate(rows):
        pairs = zip(last, key, strict=False)
        shared = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(last), len(key)))
        if number % restart_rows == 0:
            shared = 0
            restarts[number // restart_rows :] = [len(out)]
        out += varint(shared) + varint(len(key) - shared) + varint(len(value))
        out += key[shared:] + value
        last = key
    ends = [*restarts, len(restarts)]
    return bytes(out) + b"".join(place.to_bytes(4, "little") for place in ends)


SMALL = {"hidden_size": 6, "num_attention_heads": 2, "intermediate_size": 7}
ALBERT = {"num_hidden_layers": 2, "inner_group_num": 1, "embedding_size": 5}


def saved(folder, name, kind="ForPreTraining", **fields):
    oracle = random_encoder(name, kind, **{**OF_NAME[name], **fields}).double()
    oracle.save_pretrained(folder)
    return oracle


def leave_out(folder, names):
    change_weights(folder, lambda held: {k: held[k] for k in held if not re.search(names, k)})


GROUPED = {"embedding_size": 14, "num_hidden_groups": 3, "hidden_act": "relu"}


@pytest.mark.parametrize(("name", "fields"), [("bert", {}), ("albert", {}), ("albert", GROUPED)])
def test_both_heads_give_the_same_logits(tmp_path, name, fields):
    oracle = saved(tmp_path / "theirs", name, **fields, layer_norm_eps=1e-5)
    certificate = import_huggingface(tmp_path / "theirs", tmp_path / "imported")
    assert certificate["largest_difference"]["float64"] < 1e-9
    expected = theirs(oracle)
    assert expected[0].dtype == torch.float64 and expected[0].std() > 0.05
    model = load(tmp_path / "imported")
    close(ours(model), expected)
    wide = tuple(each if each is None else each.double() for each in ours(model.float()))
    close(wide, expected, 1e-5 * max(1.0, float(expected[0].abs().max())))


def test_the_fields_of_an_albert_are_those_of_its_file(tmp_path):
    depths = {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 3}
    dropouts = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
    start = {"initializer_range": 0.05, "layer_norm_eps": 1e-7, "hidden_act": "gelu_new"}
    saved(tmp_path, "albert", **{**SMALL, "embedding_size": 4, **depths, **dropouts, **start})
    config = read_huggingface(tmp_path).config
    assert (config.d_model, config.d_embed, config.n_heads, config.n_layers) == (6, 4, 2, 12)
    assert (config.share, config.share_groups, config.share_inner) == ("all", 2, 3)
    assert (config.dropout, config.dropout_embedding, config.dropout_attention) == (0.2, 0.2, 0.3)
    assert (config.dropout_ffn, config.init, config.init_std) == (0, "truncated", 0.05)
    assert (config.norm_eps, config.gelu) == (1e-7, "tanh")


@pytest.mark.parametrize("name", ["bert", "albert"])
def test_heads_may_be_missing_but_that_of_tokens(tmp_path, name):
    masked = saved(tmp_path / "masked", name, kind="ForMaskedLM")
    model = read_huggingface(tmp_path / "masked")
    assert (model.config.pooler, model.config.sentence_classes) == ("none", 0)
    close(ours(model), theirs(masked))
    oracle = saved(tmp_path / "pooled", name)
    leave_out(tmp_path / "pooled", "seq_rel|sop")
    model = read_huggingface(tmp_path / "pooled")
    assert (model.config.pooler, model.config.sentence_classes) == ("tanh", 0)
    close(ours(model), (theirs(oracle)[0], None))
    leave_out(tmp_path / "masked", r"predictions\.(transform\.)?dense")
    check_refused(tmp_path / "masked", r"the weights lack .*dense\.weight")


@pytest.mark.parametrize("name, kind, pooler", [
    ("bert", "Model", "tanh"), ("albert", "Model", "tanh"), ("bert", "Model", "none"),
    ("albert", "Model", "none"), ("bert", "ForNextSentencePrediction", "tanh"),
])  # fmt: skip
def test_an_encoder_without_a_head_of_tokens_goes_in_and_out(tmp_path, name, kind, pooler):
    oracle = saved(tmp_path / "theirs", name, kind, embedding_size=7)
    if pooler == "none":
        leave_out(tmp_path / "theirs", "pooler")
    certificate = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert certificate["largest_difference"]["float64"] < 1e-12
    model = load(tmp_path / "ours")
    assert (model.config.head, model.config.pooler) == ("none", pooler)
    with pytest.raises(ConfigError, match="predicts no tokens .*finetune"):
        model.logits(torch.ones(12))
    export_huggingface(model, tmp_path / "back")
    again = type(oracle).from_pretrained(tmp_path / "back", dtype=torch.float64).eval()
    tokens, mask, segments = batch().values()
    with torch.inference_mode():
        found = [each(tokens, mask.long(), segments) for each in (oracle, again)]
    close(found[1][0], found[0][0], 1e-12)  # sums differ by the alignment of memory
    kept = (load_file(tmp_path / each / WEIGHTS).keys() for each in ("theirs", "back"))
    assert next(kept) == next(kept)


@pytest.mark.parametrize(("name", "is_tied"), [("bert", True), ("albert", False)])
def test_old_names_are_read(tmp_path, name, is_tied):
    oracle = saved(tmp_path, name, tie_word_embeddings=is_tied)
    head = "cls.predictions" if name == "bert" else "predictions"

    def age(held):
        old = {}
        for key, tensor in held.items():
            norm = key.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")
            old[norm.removeprefix(f"{name}.")] = tensor
        old["embeddings.position_ids"] = torch.arange(19)[None]
        if is_tied:
            old[f"{head}.decoder.weight"] = old["embeddings.word_embeddings.weight"].clone()
            old[f"{head}.decoder.bias"] = old.pop(f"{head}.bias")
        return old

    change_weights(tmp_path, age)
    model = read_huggingface(tmp_path)
    assert model.config.tie_embeddings == is_tied
    close(ours(model), theirs(oracle))


WORDS, NORM = "embeddings.word_embeddings.weight", "embeddings.LayerNorm"


def added(name, source):
    return lambda folder: change_weights(folder, lambda held: held.update({name: held[source] + 1}))


def changed(**fields):
    return lambda folder: change_json(folder / "config.json", **fields)


@pytest.mark.parametrize("name, damage, message", [
    ("bert", added("cls.predictions.decoder.bias", "cls.predictions.bias"), "that differs"),
    ("albert", added(WORDS, f"albert.{WORDS}"), f"hold albert.{WORDS} and {WORDS}"),
    ("bert", added(f"{NORM}.gamma", f"bert.{NORM}.weight"), f"hold {NORM}.gamma and {NORM}.w"),
    ("albert", added("albert.encoder.extra", "predictions.bias"), "hold encoder.extra, which"),
    ("albert", changed(pruned_heads={"0": [1]}), r"pruned_heads = {'0': \[1\]}"),
    ("bert", changed(num_attention_heads=4), "num_attention_heads = 4 does not divide"),
    ("bert", changed(tie_word_embeddings=False), r"the weights lack .*decoder.weight"),
    ("albert", changed(num_hidden_groups=3), "num_hidden_groups = 3 is more than"),
    ("albert", changed(num_hidden_layers=18, num_hidden_groups=14), "does not part num_hidden"),
    ("albert", changed(inner_group_num=2), r"the weights lack .*albert_layers.1.*other"),
])  # fmt: skip
def test_a_folder_that_does_not_fit_is_refused_by_name(tmp_path, name, damage, message):
    saved(tmp_path / "theirs", name, **SMALL, **(ALBERT if name == "albert" else {}))
    damage(tmp_path / "theirs")
    check_refused(tmp_path / "theirs", message)


TEXT = "the dog ran over the mat"


def without_names(text):
    # The library takes the names of special ids in the text of a unigram vocabulary for those ids.
    return text.replace("<pad>", "").replace("<unk>", "")


@pytest.mark.parametrize("kind, file, name", [
    ("wordpiece", "vocab.txt", "albert"), ("unigram", "spiece.model", "bert"),
])  # fmt: skip
def test_an_exported_tokenizer_frames_the_same_ids_in_transformers(tmp_path, kind, file, name):
    from transformers import AutoConfig

    tokenizer = train_tokenizer(kind, ["\n".join(WRITTEN).encode() * 3], vocab_size=600)
    config = config_of(name, vocab_size=tokenizer.vocab_size, max_len=32)
    model, folder = with_random_vectors(build(config, seed=7)), tmp_path / "exported"
    model.tokenizer = tokenizer
    export_huggingface(model, folder)
    library = opened(folder)
    ids, second = (tokenizer.encode(text).tolist() for text in (TEXT.encode(), b"the cat"))
    cls_id, sep_id = tokenizer.cls_id, tokenizer.sep_id
    pair = library(TEXT, "the cat")
    assert pair.input_ids == [cls_id, *ids, sep_id, *second, sep_id]
    assert pair.token_type_ids == [0] * (len(ids) + 2) + [1] * (len(second) + 1)
    # One letter repeated has ways to be divided that are equally probable.
    for each in map(without_names, WRITTEN):
        if kind == "wordpiece" or "xxx" not in each:
            found = library(each, add_special_tokens=False, split_special_tokens=True).input_ids
            assert found == tokenizer.encode(each.encode()).tolist()
    for special in ("pad", "cls", "sep", "mask", "unk"):
        assert getattr(library, f"{special}_token_id") == getattr(tokenizer, f"{special}_id")
    assert library.model_max_length == 32
    config = AutoConfig.from_pretrained(folder)
    special = {"pad_token_id": tokenizer.pad_id, "bos_token_id": cls_id, "eos_token_id": sep_id}
    assert config.to_dict().items() >= special.items()
    import_huggingface(folder, tmp_path / "imported")
    again = load(tmp_path / "imported").tokenizer
    assert again.encode(TEXT.encode()).tolist() == ids and again.mask_id == tokenizer.mask_id
    # The original file alone will do.
    (folder / "tokenizer.json").unlink()
    assert load_tokenizer(folder / file).fingerprint == tokenizer.fingerprint
    assert read_huggingface(folder).tokenizer.encode(TEXT.encode()).tolist() == ids


# transformers' name -> the released code's, as its variables are called in Lan et al.'s repository.
RENAMED = [
    (r"albert\.embeddings\.(\w+_embeddings)\.weight", r"bert/embeddings/\1"),
    (r"albert\.embeddings\.LayerNorm", r"bert/embeddings/LayerNorm"),
    (r"albert\.encoder\.embedding_hidden_mapping_in", r"bert/encoder/embedding_hidden_mapping_in"),
    (r"albert\.encoder\.albert_layer_groups\.(\d+)", r"bert/encoder/transformer/group_\1"),
    (r"\.albert_layers\.(\d+)", r"/inner_group_\1"),
    (r"\.attention\.(query|key|value)", r"/attention_1/self/\1"),
    (r"\.attention\.dense", r"/attention_1/output/dense"),
    (r"\.attention\.LayerNorm", r"/LayerNorm"),
    (r"\.ffn_output", r"/ffn_1/intermediate/output/dense"),
    (r"\.ffn\b", r"/ffn_1/intermediate/dense"), (r"\.full_layer_layer_norm", r"/LayerNorm_1"),
    (r"albert\.pooler", r"bert/pooler/dense"),
    (r"^predictions\.bias", r"cls/predictions/output_bias"),
    (r"^predictions", r"cls/predictions/transform"),
    (r"transform\.(dense|LayerNorm)", r"transform/\1"),
    (r"sop_classifier\.classifier\.weight", r"cls/seq_relationship/output_weights"),
    (r"sop_classifier\.classifier\.bias", r"cls/seq_relationship/output_bias"),
    (r"(LayerNorm\w*)\.weight", r"\1/gamma"), (r"(LayerNorm\w*)\.bias", r"\1/beta"),
    (r"\.weight", r"/kernel"), (r"\.bias", r"/bias"),
]  # fmt: skip


def released(oracle):
    """Return the weights under the released names, kernels turned, with an optimizer's slots."""
    found = {}
    for name, tensor in oracle.state_dict().items():
        if ".decoder." in name:
            continue
        for pattern, replacement in RENAMED:
            name = re.sub(pattern, replacement, name)
        found[name] = tensor.T.contiguous() if name.endswith("/kernel") else tensor
    slots = {f"{name}/{slot}": torch.ones(2) for name in found for slot in ("adam_m", "adam_v")}
    return {**found, **slots, "global_step": torch.tensor(7)}


# As TensorFlow 2.21 wrote it: x = range(10) as int32 in the first shard, y = range(5.) as float32
# in the second.
INDEX = bytes.fromhex(
    "0000 0608 021a 0208 0100 010f 7808 0312 0412 0208 0a28 2835 492f f9f2"
    "0001 1179 0801 1204 1202 0805 1801 2814 35f7 aa3f ee00 0000 0001 0000"
    "0000 afca b56c 0000 0000 0100 0000 00c0 f2a1 b000 0102 7a00 3900 0000"
    "0001 0000 0000 94b1 d08c 3e08 4b0e" + "00" * 36 + "57fb 808b 2475 47db"
)


def test_slices_are_sorted_by_numbers_of_as_many_bytes_as_they_take():
    # tensorflow/core/lib/strings/ordered_code.cc: leading ones count the bytes.
    codes = {-65: "3fbf", -64: "40", -1: "7f", 0: "80", 63: "bf", 64: "c040", 8191: "dfff"}
    codes[8192] = "e02000"
    assert {value: _ordered(value).hex() for value in codes} == codes


@pytest.mark.parametrize("name, extents, key", [  # as TensorFlow 2.21 wrote them
    (b"part1", ((0, 4), (4500, 4500)), b"\0part1\0\x01\x01\x02\x80\x84\xd1\x94\xd1\x94"),
    (b"partTrue", ((667, 333), (0, 5)), b"\0partTrue\0\x01\x01\x02\xc2\x9b\xc1M\x80\x85"),
    (b"big", ((9999999999, 1), (0, None)), b"\0big\0\x01\x01\x02\xfaT\x0b\xe3\xff\x81\x80\x7f"),
])  # fmt: skip
def test_slices_have_the_keys_that_tensorflow_gives_them(name, extents, key):
    assert slice_key(name, extents) == key


@pytest.mark.parametrize("cuts", [
    [[(0, 2), (0, 5)], [(2, 1), (0, 5)], [(3, 4), (0, 5)]], [[(0, 7), (0, 3)], [(0, 7), (3, 2)]],
    [[(3, 4), (0, None)], [(0, 3), (0, None)]], [[(0, None), (4, 1)], [(0, 7), (0, 4)]],
    [[(0, 7), (0, 5)]],
])  # fmt: skip
def test_a_tensor_in_slices_along_an_axis_is_joined(tmp_path, cuts):
    whole = torch.arange(35.0).view(7, 5)
    write_sliced(tmp_path / "m", whole, cuts)
    found = read_bundle(tmp_path / "m")
    assert list(found) == ["w"] and torch.equal(found["w"], whole)


FIRST, LAST = [(0, 3), (0, 5)], [(3, 4), (0, 5)]


@pytest.mark.parametrize("cuts, message", [
    ([FIRST, [(3, 4), (0, 2)], [(3, 4), (2, 3)]], r"they cut the axes \[0, 1\]"),
    ([FIRST], "they end at element 3 of 7 of axis 0"), ([[(0, 7)]], "they do not have the 2 axes"),
    ([FIRST, [(4, 3), (0, 5)]], "the one at element 4 of axis 0 does not fit"),
    ([FIRST, [(2, 5), (0, 5)]], "the one at element 2 of axis 0 does not fit"),
    ([FIRST, FIRST, LAST], "the one at element 0 of axis 0 does not fit"),
])  # fmt: skip
def test_slices_that_do_not_follow_each_other_are_refused(tmp_path, cuts, message):
    write_sliced(tmp_path / "m", torch.ones(7, 5), cuts)
    with pytest.raises(CheckpointError, match=f"'w' in slices that cannot be joined: {message}"):
        read_bundle(tmp_path / "m")


def test_a_checkpoint_of_tensorflow_is_read_and_every_byte_of_its_index_guarded(tmp_path):
    written = {"x": torch.arange(10, dtype=torch.int32), "y": torch.arange(5.0)}
    for number, tensor in enumerate(written.values()):
        (tmp_path / f"m.data-0000{number}-of-00002").write_bytes(tensor.numpy().tobytes())
    unguarded = []
    for place in range(-1, len(INDEX)):
        index = bytearray(INDEX)
        if place >= 0:
            index[place] ^= 0x55
        (tmp_path / "m.index").write_bytes(index)
        with suppress(CheckpointError):
            found = read_bundle(tmp_path)
            close(found, written, atol=0)
            unguarded.append(place)
    # The footer of 48 bytes starts with two handles of 2 bytes and ends with the magic number of 8.
    assert unguarded == [-1, *range(142 - 48 + 4, 142 - 8)]


def release(folder, change=dict, **fields):
    """Write a random ALBERT as released, and return transformers' model of the same weights."""
    drawn = {**OF_NAME["albert"], "hidden_act": "gelu_new"}
    oracle = random_encoder("albert", **drawn, **fields).double()
    folder.mkdir()
    write_bundle(folder / "model.ckpt-best", change(released(oracle)))
    config = {name: value for name, value in drawn.items() if value is not None}
    config |= {"type_vocab_size": 2, "net_structure_type": 0, "hidden_act": "gelu", **fields}
    (folder / "albert_config.json").write_text(json.dumps(config))
    return oracle


def test_a_release_gives_the_logits_of_transformers_with_the_same_weights(tmp_path):
    folder = tmp_path / "albert"
    oracle = release(folder)
    tokenizer = train_tokenizer("unigram", [b"the cat sat on the mat, and on"] * 9, vocab_size=40)
    (folder / "30k-clean.model").write_bytes(tokenizer.model)
    certificate = import_albert_tf(folder, tmp_path / "imported")
    slots = [name for name in released(oracle) if name.endswith(("adam_m", "adam_v", "_step"))]
    assert certificate["left_out"] == {"optimizer_tensors": len(slots)}
    expected, model = theirs(oracle), load(tmp_path / "imported")
    assert expected[0].std() > 0.05
    close(ours(model), expected)
    assert model.tokenizer.encode(b"the cat").tolist() == tokenizer.encode(b"the cat").tolist()
    with pytest.raises(ConfigError, match="nothing is overwritten"):
        import_albert_tf(folder, folder)


@pytest.mark.parametrize("fields, change, message", [
    ({"hidden_act": "tanh"}, {}, "hidden_act = 'tanh' is not one of gelu, relu"),
    ({"num_attention_heads": 7}, {}, "num_attention_heads = 7 does not divide"),
    ({}, {"bert/extra": torch.ones(2)}, "hold extra, which ALBERT's release has not"),
    ({}, {"pooler/dense/bias": torch.ones(2)}, "bert/pooler/dense/bias and pooler/dense/bias"),
], ids=str)  # fmt: skip
def test_a_release_that_does_not_fit_is_refused_by_name(tmp_path, fields, change, message):
    folder = tmp_path / "albert"
    release(folder, lambda tensors: {**tensors, **change})
    change_json(folder / "albert_config.json", **fields)
    check_refused(folder, message, by=import_albert_tf)
    shard = folder / "model.ckpt-best.data-00001-of-00002"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="is cut short"):
        read_bundle(folder)


@pytest.mark.parametrize("name", ["albert/spiece.model", "bert/vocab.txt"])
def test_published_vocabularies_make_the_same_ids_in_transformers(real_data, tmp_path, name):
    tokenizer = load_tokenizer(real_data / "vocab" / name)
    for file, content in export_files(tokenizer).items():
        (tmp_path / file).write_bytes(content)
    library = opened(tmp_path)
    found = list(map(without_names, rows(sentences(real_data), 400)))
    plain = library(found, add_special_tokens=False, split_special_tokens=True).input_ids
    for text, expected in zip(found, plain, strict=True):
        assert tokenizer.encode(text.encode()).tolist() == expected, text
    framed = [tokenizer.cls_id, *tokenizer.encode(b"a").tolist(), tokenizer.sep_id]
    assert library("a").input_ids == framed
    again, whole = load_tokenizer(tmp_path), "\n".join(found).encode()
    assert again.encode(whole).tolist() == tokenizer.encode(whole).tolist()
    assert again.special_ids == tokenizer.special_ids


@pytest.mark.parametrize("weight, bias, n_left", [
    (1, 0, 0), (None, 0, 1), (1, None, 1), (1, 1, 2), (2, 0, 2),
])  # fmt: skip
def test_a_projection_that_is_there_and_changes_nothing_is_left_out(weight, bias, n_left):
    factors, parts = (weight, bias), (torch.eye(2), torch.ones(2))
    given = zip(encoder_names.ALBERT.linear, factors, parts, strict=True)
    place = encoder_names.ALBERT.projection
    weights = {place + end: each * part for end, each, part in given if each is not None}
    leave_out_identity(weights, encoder_names.ALBERT)
    assert len(weights) == n_left
