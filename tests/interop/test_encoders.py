"""BERT and ALBERT: logits of both heads, files, tokenizers."""

import re

import pytest
import torch
from safetensors.torch import load_file

from sublayer.api.run import load
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.errors import ConfigError
from sublayer.interop.encoders import PROJECTION, Bert, leave_out_identity
from sublayer.interop.huggingface import export_huggingface, import_huggingface, read_huggingface
from sublayer.model.transformer import build
from sublayer.text_model import TextModel
from tests.breadth import rows
from tests.data.sentences import WRITTEN, sentences
from tests.interop.folders import WEIGHTS, change_json, change_weights, check_refused, close, opened
from tests.interop.tiny import config_of, ours, pairs, theirs, tiny, with_random_vectors

SMALL = {"hidden_size": 6, "num_attention_heads": 2, "intermediate_size": 7}
ALBERT = {"num_hidden_layers": 2, "inner_group_num": 1, "embedding_size": 5}


def saved(folder, name, kind="ForPreTraining", **fields):
    original = tiny(name, title=name.capitalize() + kind, **fields)
    original.save(folder)
    return original.model()


def leave_out(folder, names):
    change_weights(folder, lambda held: {k: held[k] for k in held if not re.search(names, k)})


@pytest.mark.parametrize("n_groups", [1, 3])
def test_groups_of_an_albert_give_the_same_logits(tmp_path, n_groups):
    fields = {"num_hidden_layers": 3, "num_hidden_groups": n_groups, "inner_group_num": 2}
    oracle = saved(tmp_path / "theirs", "albert", **fields, embedding_size=14, hidden_act="relu")
    certificate = import_huggingface(tmp_path / "theirs", tmp_path / "imported")
    assert certificate["largest_difference"]["float64"] < 1e-9
    expected = theirs(oracle)
    assert expected[0].dtype == torch.float64 and expected[0].std() > 0.05
    close(ours(load(tmp_path / "imported")), expected)


def test_the_fields_of_an_albert_are_those_of_its_file(tmp_path):
    depths = {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 3}
    dropouts = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
    start = {"initializer_range": 0.05, "layer_norm_eps": 1e-7, "hidden_act": "gelu_new"}
    saved(tmp_path, "albert", **{**SMALL, "embedding_size": 4, **depths, **dropouts, **start})
    config = read_huggingface(tmp_path).model.config
    assert (config.d_model, config.d_embed, config.n_heads, config.n_layers) == (6, 4, 2, 12)
    assert (config.share, config.share_groups, config.share_inner) == ("all", 2, 3)
    assert (config.dropout, config.dropout_embedding, config.dropout_attention) == (0.2, 0.2, 0.3)
    assert (config.dropout_ffn, config.init, config.init_std) == (0, "truncated", 0.05)
    assert (config.norm_eps, config.gelu) == (1e-7, "tanh")


@pytest.mark.parametrize("name", ["bert", "albert"])
def test_heads_may_be_missing_but_that_of_tokens(tmp_path, name):
    masked = saved(tmp_path / "masked", name, kind="ForMaskedLM")
    model = read_huggingface(tmp_path / "masked").model
    assert (model.config.pooler, model.config.sentence_classes) == ("none", 0)
    close(ours(model), theirs(masked))
    oracle = saved(tmp_path / "pooled", name)
    leave_out(tmp_path / "pooled", "seq_rel|sop")
    model = read_huggingface(tmp_path / "pooled").model
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
    tokens, mask, segments = pairs()
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
    model = read_huggingface(tmp_path).model
    assert model.config.tie_embeddings == is_tied
    close(ours(model), theirs(oracle))


WORDS, NORM = "embeddings.word_embeddings.weight", "embeddings.LayerNorm"


def added(name, source):
    return lambda folder: change_weights(folder, lambda held: held.update({name: held[source] + 1}))


def changed(**fields):
    return lambda folder: change_json(folder / "config.json", **fields)


@pytest.mark.parametrize("name, damage, message", [
    ("bert", added("cls.predictions.decoder.bias", "cls.predictions.bias"), "differ in the we"),
    ("albert", added(WORDS, f"albert.{WORDS}"), f"hold albert.{WORDS} and {WORDS}"),
    ("bert", added(f"{NORM}.gamma", f"bert.{NORM}.weight"), f"hold {NORM}.gamma and {NORM}.w"),
    ("albert", added("albert.encoder.extra", "predictions.bias"), "hold encoder.extra, unk"),
    ("albert", changed(pruned_heads={"0": [1]}), r"pruned_heads = {'0': \[1\]}"),
    ("bert", changed(num_attention_heads=4), "num_attention_heads = 4 does not divide"),
    ("bert", changed(tie_word_embeddings=False), r"the weights lack .*decoder.weight"),
    ("albert", changed(num_hidden_groups=3), "num_hidden_groups = 3 is more than"),
    ("albert", changed(num_hidden_layers=18, num_hidden_groups=14), "does not divide num_hidden"),
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
    export_huggingface(TextModel(model, tokenizer), folder)
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


@pytest.mark.parametrize("name", ["albert/spiece.model", "bert/vocab.txt"])
def test_published_vocabularies_make_the_same_ids_in_transformers(real_data, tmp_path, name):
    tokenizer = load_tokenizer(real_data / "vocab" / name)
    for file, content in Bert().tokenizer_files(tokenizer, max_len=1 << 20).items():
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
    given = zip((".weight", ".bias"), factors, parts, strict=True)
    place = PROJECTION
    weights = {place + end: each * part for end, each, part in given if each is not None}
    leave_out_identity(weights)
    assert len(weights) == n_left
