"""Folders of transformers: GPT-2's in and out, models by name, altered and hostile folders."""

import dataclasses
import io
import json
import os
import shutil
from contextlib import redirect_stderr, redirect_stdout
from functools import cache, partial
from itertools import cycle
from unittest.mock import Mock

import pytest
import sentencepiece
import tokenizers
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tokenizers import models, pre_tokenizers, trainers

from sublayer.api.run import load
from sublayer.cli import main as cli
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.errors import ConfigError, DataError
from sublayer.interop.huggingface import (
    FAMILIES,
    export_huggingface,
    import_huggingface,
    read_huggingface,
)
from sublayer.model.transformer import build
from sublayer.text_model import TextModel
from tests.breadth import TRIES_ALL, examples
from tests.data.sentencepiece_files import t5_model
from tests.interop.classes import CLASSES
from tests.interop.folders import WEIGHTS, change_weights, check_refused, close, opened, read_json
from tests.interop.tiny import resolved, tiny

TOKENS = torch.randint(23, (2, 13), generator=torch.Generator().manual_seed(5))
SHARED, model_of = [HealthCheck.function_scoped_fixture], cache(tiny)
wide = cache(partial(tiny, vocab_size=310))
POINTER = "version https://git-lfs.github.com/spec/v1"
WRAPPERS = ["module.", "_orig_mod.", "_forward_module.", "net."]
CORPUS = [
    "the cat sat on the mat. The DOG and Ünïcode Zwölf 日本語 テスト 12,345 7,0 Paris is",
    "[NUM] big, see [URL] <|user|> hi don't stop naïve café HELLO 한국어 русский ok",
] * 9  # fmt: skip
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
NEW = ["<|user|>", "<|bot|>", "<sep>", "[URL]", "<new tok>", "<|pad|>"]
PARTS = [
    *NEW, *BERT, "<|endoftext|>", "</s>", "<pad>", "<unk>", "<extra_id_0>", "[NUM]", "a", " ", "  ",
    "\n", "\t", "é", "e\u0301", "ß", "İ", "日本", "🙂", "7,0", ".", "'", "\x01", "\u00a0", "the",
]  # fmt: skip
TEXTS = st.lists(st.lists(st.sampled_from(PARTS), max_size=7).map("".join), max_size=9)
FLAGS = {name: st.booleans() for name in ("special", "single_word", "lstrip", "rstrip")}


def saved(folder, *, dtype=torch.float64, **fields):
    original = tiny("gpt2", dtype=dtype, **fields)
    model = original.model(attn_implementation="eager", bos_token_id=None, eos_token_id=None)
    model.save_pretrained(folder)
    return model


@torch.inference_mode()
def test_half_precision_shards_bare_names_and_old_masks_are_read(tmp_path):
    folder = tmp_path / "gpt2"
    oracle = saved(folder, dtype=torch.bfloat16)
    former = {"h.0.attn.bias": torch.ones(1, 1, 9, 9), "position_ids": torch.arange(16)}
    held = load_file(folder / WEIGHTS)
    tensors = {name.removeprefix("transformer."): held[name] for name in held} | former
    (folder / WEIGHTS).unlink()
    places = dict(zip(tensors, cycle(("a.safetensors", "b.safetensors")), strict=False))
    for file in ("a.safetensors", "b.safetensors"):
        save_file({k: tensors[k] for k in tensors if places[k] == file}, folder / file)
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": places}))
    import_huggingface(folder, tmp_path / "imported")
    assert load(tmp_path / "imported").embedding.weight.dtype == torch.float32
    model = load(tmp_path / "imported", dtype=torch.float64)
    close(model(TOKENS).logits, oracle.double()(TOKENS).logits)
    shutil.copy(folder / "a.safetensors", folder / "c.safetensors")
    places["transformer.extra"] = "c.safetensors"
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": places}))
    check_refused(folder, "as does another file of model.safetensors.index.json")


def weights(name, tensor):
    return lambda folder: change_weights(folder, lambda held: held | {name: tensor})


def config(**fields):
    return lambda folder: model_of("gpt2").save(folder, **fields)


def index(tensor, shard, copy=""):
    def damage(folder):
        (folder / WEIGHTS).rename(folder / "a.safetensors")
        if copy:
            shutil.copy(folder / "a.safetensors", folder / copy)
        places = dict.fromkeys(tiny("gpt2").tensors, "a.safetensors") | {tensor: shard}
        (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": places}))

    return damage


def adapter(folder):
    (folder / "config.json").unlink()
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "a/b"}')


def beside(folder):
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "a/b"}')
    (folder / "adapter_model.safetensors").touch()


def nested(folder):
    (folder / "checkpoint-9").mkdir()
    (folder / "config.json").rename(folder / "checkpoint-9" / "config.json")


@pytest.mark.parametrize("damage, message", [
    (index("more", "a.safetensors"), "a.safetensors lacks more, which"),
    (index("more", "b.safetensors"), "b.safetensors is not there"),
    (index("more", "b.safetensors", "b.safetensors"), "b.safetensors holds .*another file of"),
    (index("wte.weight", "../b.safetensors"), "names '../b.safetensors', which is not"),
    (config(n_layer=900), "asks for 900 blocks of weights"), (shutil.rmtree, "is not a folder"),
    (config(n_inner=3), r"mlp.c_fc.weight has shape \[12, 10\], but config.json gives \[12, 3\]"),
    (config(n_layer=5), r"the weights lack h.2.ln_1.weight and \d+ other"),
    (config(tie_word_embeddings=False), "the weights lack lm_head.weight"),
    (weights("gauge.weight", torch.ones(2)), r"hold gauge\.weight, unk"),
    (weights("lm_head.weight", torch.ones(23, 12)), "lm_head.weight and wte.weight differ"),
    (weights("transformer.ln_f.weight", torch.full((12,), torch.nan)), "ln_f.* not finite"),
    (lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"), "a pickle.*load it"),
    (lambda folder: (folder / WEIGHTS).rename(folder / "tf_model.h5"), "TensorFlow.*from_tf=True"),
    (lambda folder: (folder / WEIGHTS).rename(folder / "model.fp16.safetensors"), "rename it"),
    (lambda folder: (folder / WEIGHTS).write_text(POINTER), "git lfs pull"),
    (lambda folder: trained("bpe").save(f"{folder}/tokenizer.json"), "290 ids, .*vocab_size is 23"),
    (adapter, "it is an adapter.*of 'a/b'.*merge_and_unload"), (nested, "t-9 has one: name"),
    (beside, "adapter_config.json: it is an adapter.*if it is merged already, remove its files"),
    (lambda folder: (folder / "config.json").rename(folder / "albert_config.json"),
     "ALBERT's release: a TensorFlow checkpoint, which cannot be read: name a folder"),
    (lambda folder: (folder / WEIGHTS).rename(folder / "model.ckpt-best.index"), "a TensorFlow"),
    (lambda folder: (folder / "config.json").rename(folder / "vocab.txt"), "only a tokenizer"),
    (lambda folder: (folder / WEIGHTS).rename(folder / "model.onnx"), "inference-only"),
    (config(quantization_config={"bits": 4}), "quantised weights: import"),
    (lambda folder: change_weights(folder, lambda held: {
        name.replace("c_attn.w", "lora_A.w"): held[name] for name in held}), "an unmerged"),
    (weights("module.wte.weight", torch.ones(23, 12)), "hold wte.weight twice|leave one of them"),
    (lambda folder: os.truncate(folder / WEIGHTS, 999), "is damaged or truncated"),
    (lambda folder: (folder / WEIGHTS).unlink(), "has no model.safetensors"),
    (lambda folder: (folder / "config.json").write_text("{"), "config.json is not JSON"),
])  # fmt: skip
def test_a_folder_that_does_not_fit_is_refused_by_name(tmp_path, damage, message):
    saved(tmp_path / "gpt2")
    damage(tmp_path / "gpt2")
    check_refused(tmp_path / "gpt2", message)


@settings(examples(50), suppress_health_check=SHARED)
@given(st.sampled_from(list(CLASSES)), st.lists(st.sampled_from(WRAPPERS), min_size=1, max_size=3))
def test_names_of_a_wrapped_model_are_stripped_with_a_note(tmp_path, name, wrappers):
    place = tmp_path / "case"
    shutil.rmtree(place, ignore_errors=True)
    folder, prefix = model_of(name).save(place / "theirs"), "".join(wrappers)
    change_weights(folder, lambda held: {prefix + each: held[each] for each in held})
    certificate = import_huggingface(folder, place / "ours")
    assert certificate["largest_difference"]["float64"] < 1e-9
    assert all(each in certificate["weights"] for each in wrappers)
    change_weights(folder, lambda held: held | {wrappers[0][:-1]: torch.zeros(1)})
    check_refused(folder, "the weights ")


def test_float64_judges_where_float32_rounds_by_more_than_is_allowed(tmp_path):
    folder = saved(tmp_path / "gpt2", initializer_range=0.3) and tmp_path / "gpt2"
    # Large offsets that cancel lose most digits of float32.
    name = "transformer.ln_f.bias"
    change_weights(folder, lambda held: held | {name: held[name] + 1e8})
    certificate = import_huggingface(folder, tmp_path / "imported")["largest_difference"]
    assert certificate["float64"] < 1e-4


def test_without_transformers_nothing_is_compared_or_overwritten(tmp_path, monkeypatch):
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
    monkeypatch.setattr("sublayer.interop.certificate.REFUSED_SHARE", -1.0)
    check_refused(tmp_path / "gpt2", "logits differ from transformers'")
    monkeypatch.setattr("sublayer.interop.certificate.total_memory", lambda: 1)
    certificate = import_huggingface(tmp_path / "gpt2", tmp_path / "large")
    assert not certificate["checked"] and "comparison needs" in certificate["reason"]


TEXT = "Zwölf Boxkämpfer jagen  Viktor\nquer über den Sylter Deich; 日本 don't\t <|endo"
TRAINING = ["the cat sat on the mat and the dog", "Zwölf Boxkämpfer über den Deich"] * 9


@cache
def trained(kind):
    quiet = {"vocab_size": 290, "show_progress": False}
    if kind == "bpe":
        library = tokenizers.Tokenizer(models.BPE())
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        rules = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
        trainer = trainers.BpeTrainer(special_tokens=["<|endoftext|>"], **rules, **quiet)
    else:
        library = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(special_tokens=[*BERT, "[NUM]"], **quiet)
    library.train_from_iterator(CORPUS, trainer)
    return library


sentence_pieces = cache(partial(t5_model, CORPUS[:2], vocab_size=200))


@st.composite
def drawn_files(draw):
    """Draw the files of a folder by their names; beside them stands the type of its model."""
    name, files, fields = draw(st.sampled_from(["gpt2", "bert", "t5"])), {}, {}
    if name == "t5":
        files["spiece.model"] = sentence_pieces()
        fields |= {"tokenizer_class": "T5Tokenizer", "extra_ids": 3}
        unread = dict.fromkeys(("do_lower_case", "keep_accents"), st.booleans())
        fields |= draw(st.fixed_dictionaries({}, optional=unread))
        processor = sentencepiece.SentencePieceProcessor(model_proto=files["spiece.model"])
        n_ids = processor.get_piece_size() + 3
    else:
        library = trained("bpe" if name == "gpt2" else "wordpiece")
        n_ids, content = library.get_vocab_size(), json.loads(library.to_str())
        if name == "bert":
            pieces = [library.id_to_token(id_) for id_ in range(n_ids)]
            files["vocab.txt"] = "".join(f"{piece}\n" for piece in pieces)
            keys = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
            fields |= draw(st.fixed_dictionaries({}, optional=dict.fromkeys(keys, st.booleans())))
        elif draw(st.booleans()):
            padded = tokenizers.Tokenizer.from_str(library.to_str())
            padded.enable_padding(pad_token="<p>")
            files["tokenizer.json"] = draw(st.sampled_from([library, padded])).to_str()
            titles = ["GPT2Tokenizer", "PreTrainedTokenizerFast"]
            fields["tokenizer_class"] = draw(st.sampled_from(titles))
        else:
            files["vocab.json"] = json.dumps(content["model"]["vocab"])
            merges = [" ".join(pair) for pair in content["model"]["merges"]]
            files["merges.txt"] = "\n".join(["#version: 0.2", *merges])
        split = {"split_special_tokens": st.booleans()}
        fields |= draw(st.fixed_dictionaries({}, optional=split))
    added = draw(st.lists(st.sampled_from(NEW), max_size=4, unique=True))
    by_id = {n_ids + number: each for number, each in enumerate(added)}
    how = draw(st.sampled_from(["added_tokens.json", "decoder", "special_tokens_map.json"]))
    if how == "decoder":
        flags = {id_: draw(st.fixed_dictionaries(FLAGS)) for id_ in by_id}
        fields["added_tokens_decoder"] = {
            id_: {"content": by_id[id_], "normalized": False, **flags[id_]} for id_ in by_id
        }
    elif how == "added_tokens.json":
        files[how] = json.dumps({each: id_ for id_, each in by_id.items()})
    elif name != "t5" and added:
        files[how] = json.dumps({"additional_special_tokens": added})
    if added and draw(st.booleans()):
        fields["pad_token"] = added[0]
    return name, {**files, "tokenizer_config.json": json.dumps(fields)}


@settings(examples(50), suppress_health_check=SHARED)
@given(drawn_files(), TEXTS)
def test_files_decide_on_tokens_and_rules_as_transformers_reads_them(tmp_path, drawn, texts):
    (name, files), place = drawn, tmp_path / "case"
    shutil.rmtree(place, ignore_errors=True)
    folder = wide(name).save(place / "theirs")
    for file, content in files.items():
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    compared = import_huggingface(folder, place / "ours")["tokenizer_ids"]
    assert compared["checked"] and compared["equal"] == compared["texts"] > 20, compared
    model, theirs = load(place / "ours"), opened(folder)
    export_huggingface(model, place / "again")
    back = opened(place / "again")
    assert model.tokenizer.vocab_size == len(theirs)
    assert theirs.pad_token_id in (None, model.tokenizer.pad_id)
    for text in texts:
        ids = model.tokenizer.encode(text.encode()).tolist()
        for each in (theirs, back):
            assert each(text, add_special_tokens=False).input_ids == ids, text


@pytest.mark.parametrize("name, kind", [("BartTokenizer", "bpe"), ("DistilBertTokenizer", "")])
def test_a_class_has_rules_and_tokens_of_its_own_whatever_its_file_says(tmp_path, name, kind):
    fields, text = {"tokenizer_class": name, "add_prefix_space": True}, f"{TEXT}</s>[MASK]A"
    library = trained(kind).to_str().replace("<|endoftext|>", "</s>")
    (tmp_path / "tokenizer.json").write_text(library)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(fields))
    ids = load_tokenizer(tmp_path, special_tokens="file").encode(text.encode()).tolist()
    assert ids == opened(tmp_path)(text, add_special_tokens=False).input_ids


@pytest.mark.parametrize("file, content", [
    ("added_tokens", '{"<a>": 299}'), ("added_tokens", '{"<a>": "x"}'), ("added_tokens", "[]"),
    ("special_tokens_map", '{"pad_token": 3}'), ("tokenizer_config", '{"extra_special_tokens": 5}'),
    ("tokenizer_config", '{"added_tokens_decoder": {"290": 5}}'),
    ("tokenizer_config", '{"split_special_tokens": "no"}'),
])  # fmt: skip
def test_files_of_special_tokens_that_are_damaged_are_refused(tmp_path, file, content):
    folder = wide("gpt2").save(tmp_path / "theirs")
    trained("bpe").save(str(folder / "tokenizer.json"))
    (folder / f"{file}.json").write_text(content)
    check_refused(folder, "ids" if "299" in content else f"{file}.json", DataError)


@pytest.mark.parametrize("name", ["gpt2", "gpt2 for labels", "openai-gpt for labels"])
@pytest.mark.parametrize("pad_id", [None, 0, 5])
def test_the_padding_of_a_decoder_survives(tmp_path, name, pad_id):
    folder = wide(name).save(tmp_path / "theirs", pad_token_id=pad_id)
    if name == "gpt2":
        trained("bpe").save(str(folder / "tokenizer.json"))
    said = import_huggingface(folder, tmp_path / "here").get("ignored", "")
    export_huggingface(load(tmp_path / "here"), tmp_path / "back")
    kept = read_json(tmp_path / "back" / "config.json").get("pad_token_id")
    assert kept == pad_id or (name == "gpt2" and pad_id == 5 and "pad_token_id = 5" in said)


@pytest.mark.parametrize("kind", ["bytes", "bpe", "wordpiece"])
def test_an_exported_tokenizer_makes_the_same_ids_in_transformers(tmp_path, kind):
    ours = train_tokenizer(kind, [text.encode() for text in TRAINING], vocab_size=280)
    sizes = {"n_layers": 1, "d_model": 8, "n_heads": 2}
    model = build(resolved(sizes, ours.vocab_size), seed=0).eval()
    export_huggingface(TextModel(model, ours), tmp_path / "exported")
    theirs = opened(tmp_path / "exported")
    text = TEXT if ours.is_lossless else "Zwölf cats sat"
    ids = ours.encode(text.encode()).tolist()
    assert theirs(text).input_ids == ids
    again = read_huggingface(tmp_path / "exported").tokenizer
    assert again.encode(text.encode()).tolist() == ids
    if ours.is_lossless:
        assert (theirs.decode(ids), theirs.eos_token_id) == (TEXT, ours.end_id)


NUMBERS = [*(-1, 0, 1, 2, 3, 12, 23, 1000, 2**31, 2**63, 10**30), *(0.5, 1.0, -0.1, 1e-5, 1e300)]
WORDS = ["", "x", "0", "relu", "gelu", "mish", "float16", "../../x", "a\0b"]
LITERALS = [
    *("null", "true", "false", "[]", "{}", "[1]", '{"": null}', '{"0": [1]}', '{"0": "a"}'),
    *("NaN", "-Infinity", "1" * 5000, "1e999", '"\\ud800"', "[" * 3000 + "]" * 3000, "01", "tru"),
    *('{"a":' * 200 + "1" + "}" * 200, '{"a": 1, "a": 2}', "[1,]", ""),
]

literals = st.one_of(
    st.sampled_from([*NUMBERS, *WORDS]).map(json.dumps),
    st.sampled_from(LITERALS),
    (st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)).map(json.dumps),
)


def names_of(name):
    """Name every field that transformers' class knows, and some that it does not."""
    table = FAMILIES[name].fields
    known = {each.name for each in dataclasses.fields(model_of(name).kind.config_class)}
    junk = {"sub_configs", "rotary", "layer_types", "rope_scaling", "__class__", "top_k", ""}
    return sorted(known | table.fields.keys() | table.aliases.keys() | junk)


def run_import(folder, out):
    err = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(err):
        code = cli.main(["import", "huggingface", str(folder), "--out", str(out)])
    return code, err.getvalue()


@st.composite
def altered(draw):
    name = draw(st.sampled_from(list(CLASSES)))
    fields = {key: json.dumps(value) for key, value in model_of(name).fields.items()}
    for key in draw(st.lists(st.sampled_from(names_of(name)), min_size=1, max_size=3)):
        if draw(st.integers(0, 9)):
            fields[key] = draw(literals)
        else:
            fields.pop(key, None)
    return name, f"{{{', '.join(f'{json.dumps(key)}: {fields[key]}' for key in fields)}}}"


@settings(examples(400 if TRIES_ALL else 50), suppress_health_check=SHARED)
@given(altered())
def test_an_altered_config_is_refused_in_a_line_or_read(tmp_path, drawn):
    name, text = drawn
    place = tmp_path / "case"
    shutil.rmtree(place, ignore_errors=True)
    folder = model_of(name).save(place / "theirs")
    (folder / "config.json").write_text(text)
    code, err = run_import(folder, place / "new" / "ours")
    if code:
        line = err.strip().splitlines()[-1]
        assert code == 2 and line.startswith("error: ") and len(line) < 1000, err
        assert [*place.iterdir()] == [folder]
    else:
        certificate = read_json(place / "new" / "ours" / "certificate.json")
        # A drawn config may scale its logits by hundreds.
        allowed = 1e-12 * max(1.0, certificate["largest_logit"])
        assert certificate["largest_difference"]["float64"] < allowed


def test_weights_of_a_format_are_converted_with_a_note_or_refused_by_name(tmp_path):
    folder, name = model_of("gpt2").save(tmp_path / "theirs"), "transformer.h.1.ln_2.bias"
    change_weights(folder, lambda held: held | {name: held[name].to(torch.bfloat16)})
    code, err = run_import(folder, tmp_path / "ours")
    assert code == 0, err
    said = read_json(tmp_path / "ours" / "certificate.json")["weights"]
    assert said.endswith("became float32")
    assert {each.dtype for each in load(tmp_path / "ours").parameters()} == {torch.float32}
    change_weights(folder, lambda held: held | {name: held[name].to(torch.int32)})
    check_refused(folder, "h.1.ln_2.bias")


def test_a_refused_or_interrupted_import_leaves_nothing_behind(tmp_path, monkeypatch):
    folder = model_of("gpt2").save(tmp_path / "theirs")
    interrupt = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("sublayer.model.model_folder.save_file", interrupt)
    assert run_import(folder, tmp_path / "new" / "ours")[0] == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["theirs"]
