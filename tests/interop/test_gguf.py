"""GGUF: files of each architecture, as transformers reads them; tokenizers; refusals; tokens."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from sublayer.data.tokenizers.base import ByteTokenizer, CharacterTokenizer
from sublayer.data.tokenizers.sentencepiece import UnigramTokenizer
from sublayer.data.tokenizers.subword import SubwordTokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.gguf import _GPT2, _LLAMA3, NAME, describe_vocabulary, export_gguf
from sublayer.interop.huggingface import export_huggingface
from sublayer.model.transformer import build
from sublayer.text_model import Generation, TextModel
from tests.data.sentencepiece_files import EN, spm
from tests.interop.classes import EXPORTED
from tests.interop.folders import close, read_json
from tests.interop.tiny import resolved, with_random_vectors

gguf = pytest.importorskip("gguf")
SIZES = {"n_layers": 3, "d_model": 32, "n_heads": 4, "d_ff": 64, "max_len": 24, "init_std": 0.3}
GROUPED = {"tie_embeddings": False, "n_kv_heads": 2, "rotary_base": 500.0}
GEMMA = {**GROUPED, "d_head": 6, "attention_window": 5, "tie_embeddings": True}
FIELDS = {
    "gpt2": ("gpt2", {}), "llama": ("llama", {**GROUPED, "d_head": 6}),
    "qwen2": ("qwen2", GROUPED), "qwen3": ("qwen3", GROUPED),
    "gemma2": ("gemma2", {**GEMMA, "score_cap": 0.5, "logit_cap": 1.5}),
    "gemma3": ("gemma3_text", {**GEMMA, "window_pattern": "LLLLLG", "n_layers": 7,
                               "rotary_local_base": 50.0}),
    "gptneox": ("gpt_neox", {"rotary_base": 10_000.0, "tie_embeddings": False, "block": "parallel",
                             "parallel_norm": "separate"}),
    "olmo2": ("olmo2", {**GROUPED, "n_kv_heads": 4}),
    "smollm3": ("smollm3", {**GROUPED, "n_layers": 5, "position_pattern": "PPPN"}),
    "command-r": ("cohere", {**GROUPED, "tie_embeddings": True}),
    "granite": ("granite", {**GROUPED, "embedding_scale": 3.0, "residual_scale": 0.25,
                            "attention_scale": 2.0, "output_scale": 3.0}),
}  # fmt: skip
"""The class of a model of each architecture, and its fields over those of the class."""
NUMBERS = {
    "gpt2": {"attention.layer_norm_epsilon": np.float32(1e-5), "context_length": 24},
    "llama": {"rope.freq_base": 500.0, "rope.dimension_count": 6, "attention.head_count_kv": 2},
    "gemma2": {"attention.sliding_window": 5, "attn_logit_softcapping": 0.5},
    "gemma3": {"rope.freq_base_swa": 50.0, "rope.freq_base": 500.0, "attention.key_length": 6},
    "gptneox": {"use_parallel_residual": True, "rope.dimension_count": 4},
    "command-r": {"logit_scale": 0.25},
    "granite": {"attention.scale": 0.5, "embedding_scale": 3.0, "residual_scale": 0.25}
    | {"logit_scale": 3.0},
}  # fmt: skip
"""Numbers of these models in the files."""
OTHERS = {"smollm3": "llama", "granite": "llama", "gptneox": "bloom"}
"""Architectures whose tensors transformers reads by the rules of another."""
LINES = ["a cat sat, isn't it? 12 345", "  Zoë\n\n ÜBER 日本語 x1y2 ", "HELLO'S\t\r\n end"]


def made(name, tokenizer=None, vocab_size=40, **changes):
    of, fields = FIELDS[name]
    config = resolved({**EXPORTED[of][1], **SIZES, **fields, **changes}, vocab_size)
    model = with_random_vectors(build(config, seed=1)).float()
    return TextModel(model, tokenizer, generation=Generation(chat_templates={"default": "{{ x }}"}))


@pytest.mark.parametrize("name", FIELDS)
@torch.no_grad()
def test_transformers_computes_the_logits_of_the_model_from_the_tensors_of_a_file(tmp_path, name):
    import transformers
    from transformers import modeling_gguf_pytorch_utils as reading

    model = made(name)
    exported = export_gguf(model, tmp_path / "out")
    assert exported.certificate["file"]["largest_difference"] == 0.0
    reader = gguf.GGUFReader(tmp_path / "out" / NAME)
    assert reader.fields["general.architecture"].contents() == name
    expected = {f"{name}.{key}": value for key, value in NUMBERS.get(name, {}).items()}
    expected["tokenizer.chat_template"] = "{{ x }}"
    assert {key: reader.fields[key].contents() for key in expected} == expected
    export_huggingface(model, tmp_path / "class")
    described = read_json(tmp_path / "class" / "config.json")
    kind = getattr(transformers, described["architectures"][0])
    theirs = kind(kind.config_class.from_dict(described)).float().eval()
    rules = reading.TENSOR_PROCESSORS.get(OTHERS.get(name, name), reading.TensorProcessor)
    n_heads = theirs.config.num_attention_heads
    processor = rules(config={**theirs.config.to_dict(), "n_head": n_heads})
    names = reading.get_gguf_hf_weights_map(theirs, processor, model_type=name)
    parsed, read = {"tensors": {}}, {}
    for tensor in reader.tensors:
        weights = gguf.dequantize(tensor.data, tensor.tensor_type)
        done = processor.process(weights, tensor.name, parsed_parameters=parsed)
        if done.name is not None:
            read[names[done.name]] = torch.from_numpy(np.array(done.weights))
    missing, _ = theirs.load_state_dict(read | parsed["tensors"], strict=False)
    assert set(missing) <= {"lm_head.weight"}
    theirs.tie_weights()
    tokens = torch.randint(40, (2, 13), generator=torch.Generator().manual_seed(0))
    close(theirs(tokens).logits, model.model(tokens).logits, atol=2e-5)
    if name in ("llama", "gemma2", "gpt2"):
        found = reading.load_gguf_checkpoint(tmp_path / "out" / NAME)["config"]
        found = kind.config_class(**found).to_dict()
        same = ("hidden_size", "head_dim", "num_hidden_layers", "num_key_value_heads")
        for key in (*same, "tie_word_embeddings", "sliding_window", "rope_parameters"):
            assert found.get(key) == theirs.config.to_dict().get(key), key


@pytest.mark.parametrize("dtype, most", [("float16", 2e-3), ("bfloat16", 2e-2), ("q8_0", 2e-2)])
def test_narrow_files_are_within_their_rounding(tmp_path, dtype, most):
    exported = export_gguf(made("gpt2", d_ff=24), tmp_path / "out", dtype)
    assert 0.0 < exported.certificate["file"]["largest_difference"] < most
    assert read_json(tmp_path / "out" / "certificate.json") == exported.certificate
    tensors = gguf.GGUFReader(tmp_path / "out" / NAME).tensors
    types = {each.name.removeprefix("blk.0."): each.tensor_type.name for each in tensors}
    stored = {"float16": "F16", "bfloat16": "BF16", "q8_0": "Q8_0"}[dtype]
    assert types["attn_qkv.weight"] == stored and types["attn_norm.weight"] == "F32"
    # Rows of 24 are no multiple of 32.
    assert types["ffn_down.weight"] == ("F16" if dtype == "q8_0" else stored)


def test_weights_that_a_type_cannot_hold_and_unknown_types_are_refused(tmp_path):
    model = made("gpt2")
    with torch.no_grad():
        model.model.embedding.weight[0, 0] = 1e6
    with pytest.raises(CheckpointError, match=r"up to 1e\+06, does not fit .* --dtype bfloat16"):
        export_gguf(model, tmp_path / "out", "float16")
    with pytest.raises(ConfigError, match="'int4' is not a type of --to gguf: give float32"):
        export_gguf(model, tmp_path / "out", "int4")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name, changes, message", [
    ("gpt2", {"gelu": "exact"}, "llama.cpp's gpt2 cannot represent model.gelu = exact"),
    ("gpt2", {"ffn": "relu"}, "gpt2 cannot represent model.ffn = relu"),
    ("gpt2", {"norm_order": "post", "d_ff": 128}, "no architecture for GPT-1's class: it takes"),
    ("llama", {"attention_window": 5}, "llama cannot represent model.attention_window = 5"),
    ("llama", {"ffn": "geglu"}, "llama cannot represent model.ffn = geglu"),
    ("gemma2", {"logit_cap": "none"}, "gemma2 cannot represent model.logit_cap = none"),
    ("gemma2", {"window_pattern": "LLG"}, "represent model.window_pattern = LLG"),
    ("gemma2", {"attention_scale": 3.0}, r"represent model.attention_scale = 3\.0"),
    ("smollm3", {"position_pattern": "PN"}, "represent model.position_pattern = PN"),
    ("smollm3", {"bias": True}, "smollm3 cannot represent model.bias = true"),
    ("gptneox", {"gelu": "exact"}, "gptneox cannot represent model.gelu = exact"),
])  # fmt: skip
def test_models_that_llama_cpp_does_not_compute_are_refused(tmp_path, name, changes, message):
    with pytest.raises(ConfigError, match=message):
        export_gguf(made(name, **changes), tmp_path / "out")


def trained(pre_tokenizer, normalizer=None, **rules):
    library = Library(models.BPE(**rules))
    library.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        library.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    library.train_from_iterator(LINES * 5, trainer)
    return SubwordTokenizer(library)


def split(pattern):
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), level])


LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
DIGITS = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), LEVEL])


@pytest.mark.parametrize("pre_tokenizer, rules, name", [
    (LEVEL, {}, "gpt-2"), (split(_GPT2), {}, "gpt-2"), (DIGITS, {}, "smollm"),
    (split(_LLAMA3), {"ignore_merges": True}, "llama-bpe"), (split(_LLAMA3), {}, "dbrx"),
    (split(_LLAMA3.replace("{1,3}", "")), {}, "qwen2"),
])  # fmt: skip
def test_patterns_with_a_name_are_found_and_their_merges_make_the_ids(pre_tokenizer, rules, name):
    ours = trained(pre_tokenizer, **rules)
    fields = {key[15:]: each for key, each in describe_vocabulary(ours, 310).items()}
    tokens, merges = fields["tokens"], [tuple(merge.split(" ")) for merge in fields["merges"]]
    n_more = 310 - ours.vocab_size
    assert (fields["model"], fields["pre"], fields["eos_token_id"]) == ("gpt2", name, ours.end_id)
    assert fields["token_type"][0] == "CONTROL" and tokens[309] == "[PAD309]"
    assert fields["token_type"].count("UNUSED") == n_more and len(set(tokens)) == 310
    again = Library(models.BPE({token: id_ for id_, token in enumerate(tokens)}, merges, **rules))
    again.pre_tokenizer = pre_tokenizer
    for line in LINES:
        assert again.encode(line).ids == ours.encode(line.encode()).tolist()


def test_a_start_is_put_before_texts():
    ours = trained(LEVEL)
    ours = ours.replaced(reads_marks=None, roles={"start_id": "!"})
    for tokenizer, starts in ((ours, True), (trained(LEVEL), False)):
        fields = describe_vocabulary(tokenizer, 310)
        assert fields["tokenizer.ggml.add_bos_token"] is starts
        assert fields["tokenizer.ggml.bos_token_id"] == tokenizer.first_id


def sentencepiece(**rules):
    usual = {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity"}
    rules = {**usual, "remove_extra_whitespaces": False, **rules}
    return UnigramTokenizer(spm(EN, 330, **rules))


@pytest.mark.parametrize("make, message", [
    (lambda: CharacterTokenizer("abc"), r"\(characters\) with ids of its own"),
    (lambda: trained(split(r"\w+")), r"\(bpe\) with the pattern .w\+: it has bytes"),
    (lambda: trained(split(_GPT2), ignore_merges=True), "with the pattern 's"),
    (lambda: trained(pre_tokenizers.ByteLevel(add_prefix_space=True)), "with the pattern"),
    (lambda: trained(pre_tokenizers.Whitespace()), "not divided into bytes"),
    (lambda: trained(LEVEL, normalizers.NFKC()), "rules that change characters"),
    (lambda: SubwordTokenizer(Library(models.BPE({"a": 0}, [], byte_fallback=True))),
     r"\(bpe\) with merges of characters, .* tokenizer.model .* --to onnx takes any tokenizer"),
    (lambda: SubwordTokenizer(Library(models.Unigram([("<unk>", 0.0), ("a", -1.0)], 0))),
     r"\(unigram\) with a model of the kind Unigram: .*; --to onnx takes any tokenizer"),
    (lambda: sentencepiece(model_type="unigram"), "with a unigram model"),
    (lambda: sentencepiece(normalization_rule_name="nmt_nfkc"), "rules that change characters"),
    (lambda: sentencepiece(byte_fallback=False), "no pieces of bytes"),
])  # fmt: skip
def test_tokenizers_that_llama_cpp_has_not_are_refused_with_the_reason(make, message):
    with pytest.raises(ConfigError, match=message):
        describe_vocabulary(make(), 400)


def test_bytes_and_pieces_of_sentencepiece_are_described():
    tokens = describe_vocabulary(ByteTokenizer(), 256)["tokenizer.ggml.tokens"]
    assert tokens[ord(" ")] == "Ġ" and len(tokens) == 256
    ours = sentencepiece()
    fields = describe_vocabulary(ours, ours.vocab_size + 1)
    types = fields["tokenizer.ggml.token_type"]
    assert types.count("BYTE") == 256 and (types[0], types[-1]) == ("UNKNOWN", "UNUSED")
    assert fields["tokenizer.ggml.add_space_prefix"] is True


class Llama:
    """llama-cpp-python's interface, with the answers of a model of ours."""

    def __init__(self, path, **options):
        assert path.endswith(NAME) and options["n_ctx"] == 24

    def reset(self):
        pass

    def generate(self, tokens, temp):
        while temp == 0.0:
            following = TOLD.model(torch.tensor([tokens]))["vocabulary"][0, -1].argmax()
            tokens = [*tokens, int(following)]
            yield tokens[-1]

    def tokenize(self, line, *, add_bos, special):
        assert not add_bos and not special
        return TOLD.tokenizer.encode(line).tolist()


TOLD = made("gpt2", ByteTokenizer(), vocab_size=256)


def test_tokens_of_llama_cpp_are_compared_where_it_is_installed(tmp_path, monkeypatch):
    library = SimpleNamespace(Llama=Llama, __version__="0.3", __spec__=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "llama_cpp", library)
    lines = export_gguf(TOLD, tmp_path / "out").lines
    equal = "32 of 32 greedy tokens and ids of 1000 of 1000 lines are equal"
    assert lines[1] == f"llama_cpp 0.3: {equal}"
    assert "no end of a text" in lines[2]
