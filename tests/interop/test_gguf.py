"""GGUF: files of each architecture, read by transformers; tokenizers; refusals; llama.cpp's tokens."""

import json
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
from sublayer.interop.gguf import _GPT2, _LLAMA3, ARCHITECTURES, NAME, describe_vocabulary, export_gguf
from sublayer.interop.huggingface import export_huggingface
from sublayer.model.transformer import build
from sublayer.text_model import TextModel
from tests.data.sentencepiece_files import EN, spm
from tests.interop.folders import close, read_json
from tests.interop.tiny import resolved, with_random_vectors

gguf = pytest.importorskip("gguf")
SIZES = {"n_layers": 3, "d_model": 32, "n_heads": 4, "d_ff": 64, "max_len": 24, "init_std": 0.3}
LLAMA = {**SIZES, "positions": "rotary", "norm": "rms", "ffn": "swiglu", "bias": False}
LLAMA |= {"tie_embeddings": False, "n_kv_heads": 2, "rotary_base": 500.0, "d_head": 6}
WHOLE = {**LLAMA, "n_kv_heads": 4, "d_head": 8}
INPUTS = {"query": True, "key": True, "value": True}
GEMMA = {**LLAMA, "ffn": "geglu", "norm_order": "around", "embedding_scale": "sqrt"}
GEMMA |= {"attention_window": 5, "tie_embeddings": True}
NEOX = {**SIZES, "positions": "rotary", "rotary_fraction": 0.5, "tie_embeddings": False}
FIELDS = {
    "gpt2": {**SIZES, "positions": "learned"},
    "llama": LLAMA,
    "qwen2": {**LLAMA, "d_head": 8, "bias": INPUTS},
    "qwen3": {**LLAMA, "qk_norm": "rms"},
    "gemma2": {**GEMMA, "score_cap": 0.7, "logit_cap": 1.5, "window_pattern": "LG"},
    "gemma3": {**GEMMA, "window_pattern": "LLLLLG", "n_layers": 7, "qk_norm": "rms"}
    | {"rotary_local_base": 50.0},
    "gptneox": {**NEOX, "block": "parallel", "parallel_norm": "separate"},
    "olmo2": {**WHOLE, "norm_order": "after", "qk_norm": "rms", "qk_norm_over": "all"},
    "smollm3": {**LLAMA, "d_head": 8, "n_layers": 5, "position_pattern": "PPPN"},
    "command-r": {**WHOLE, "block": "parallel", "norm": "layer", "norm_bias": False}
    | {"rotary_layout": "interleaved", "output_scale": 4.0, "tie_embeddings": True},
    "granite": {**LLAMA, "d_head": 8, "embedding_scale": 3.0, "residual_scale": 0.22}
    | {"attention_scale": 2.5, "output_scale": 3.0},
}  # fmt: skip
"""Fields of a model of each architecture."""
OTHERS = {"smollm3": "llama", "granite": "llama", "gptneox": "bloom"}
"""Architectures whose tensors transformers reads by the rules of another."""
LINES = ["a cat sat, isn't it? 12 345", "  Zoë\n\n ÜBER 日本語 x1y2 ", "HELLO'S\t\r\n end"]


def made(name, tokenizer=None, vocab_size=40, **changes):
    config = resolved({**FIELDS[name], **changes}, vocab_size)
    return TextModel(with_random_vectors(build(config, seed=1)).float(), tokenizer)


def fields_of(path):
    return {key: each.contents() for key, each in gguf.GGUFReader(path).fields.items()}


def class_of(folder):
    """Build transformers' class of a folder, without its weights."""
    import transformers

    described = read_json(folder / "config.json")
    kind = getattr(transformers, described["architectures"][0])
    return kind(kind.config_class.from_dict(described)).float().eval()


@pytest.mark.parametrize("name", FIELDS)
@torch.no_grad()
def test_transformers_computes_the_logits_of_the_model_from_the_tensors_of_a_file(tmp_path, name):
    from transformers import modeling_gguf_pytorch_utils as reading

    model, out = made(name), tmp_path / "out"
    exported = export_gguf(model, out)
    assert exported.certificate["file"]["largest_difference"] == 0.0
    assert exported.class_name == f"llama.cpp's {name}"
    export_huggingface(model, tmp_path / "class")
    theirs = class_of(tmp_path / "class")
    kind = reading.TENSOR_PROCESSORS.get(OTHERS.get(name, name), reading.TensorProcessor)
    described = {**theirs.config.to_dict(), "n_head": theirs.config.num_attention_heads}
    processor = kind(config=described)
    names = reading.get_gguf_hf_weights_map(theirs, processor, model_type=name)
    parsed, read = {"tensors": {}}, {}
    for tensor in gguf.GGUFReader(out / NAME).tensors:
        shape = tuple(map(int, reversed(tensor.shape)))
        weights = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        done = processor.process(weights, tensor.name, parsed_parameters=parsed)
        if done.name is not None:
            read[names[done.name]] = torch.from_numpy(np.ascontiguousarray(done.weights))
    read |= parsed["tensors"]
    missing, _ = theirs.load_state_dict(read, strict=False)
    assert set(missing) <= {"lm_head.weight"}
    theirs.tie_weights()
    tokens = torch.randint(40, (2, 13), generator=torch.Generator().manual_seed(0))
    close(theirs(tokens).logits, model.model(tokens).logits, atol=2e-5)


@pytest.mark.parametrize("name, config_of", [("llama", "LlamaConfig"), ("gemma2", "Gemma2Config"),
    ("qwen2", "Qwen2Config"), ("gpt2", "GPT2Config")])  # fmt: skip
def test_transformers_reads_the_numbers_of_a_file(tmp_path, name, config_of):
    import transformers
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    model = made(name)
    export_gguf(model, tmp_path / "out")
    export_huggingface(model, tmp_path / "class")
    read = getattr(transformers, config_of)(**load_gguf_checkpoint(tmp_path / "out" / NAME)["config"])
    expected = class_of(tmp_path / "class").config
    same = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    same += ("max_position_embeddings", "intermediate_size", "head_dim", "sliding_window")
    for key in (*same, "tie_word_embeddings", "rope_parameters"):
        assert getattr(read, key, None) == getattr(expected, key, None), key


def test_files_have_the_numbers_that_llama_cpp_asks_for(tmp_path):
    for name in ("granite", "gemma2", "gptneox", "command-r", "gemma3"):
        export_gguf(made(name), tmp_path / name)
    granite = fields_of(tmp_path / "granite" / NAME)
    scales = ("attention.scale", "embedding_scale", "residual_scale", "logit_scale")
    found = [granite[f"granite.{name}"] for name in scales]
    assert found == pytest.approx([0.4, 3.0, 0.22, 3.0])
    gemma = fields_of(tmp_path / "gemma2" / NAME)
    assert gemma["gemma2.attention.sliding_window"] == 5
    assert gemma["gemma2.attn_logit_softcapping"] == pytest.approx(0.7)
    neox = fields_of(tmp_path / "gptneox" / NAME)
    assert neox["gptneox.use_parallel_residual"] is True
    assert neox["gptneox.rope.dimension_count"] == 4
    assert fields_of(tmp_path / "command-r" / NAME)["command-r.logit_scale"] == 0.25
    assert fields_of(tmp_path / "gemma3" / NAME)["gemma3.rope.freq_base_swa"] == 50.0


@pytest.mark.parametrize("dtype, most", [("float16", 2e-3), ("bfloat16", 2e-2), ("q8_0", 2e-2)])
def test_narrow_files_are_within_their_rounding(tmp_path, dtype, most):
    exported = export_gguf(made("llama"), tmp_path / "out", dtype)
    assert 0.0 < exported.certificate["file"]["largest_difference"] < most
    types = {each.name: each.tensor_type.name for each in gguf.GGUFReader(tmp_path / "out" / NAME).tensors}
    stored = {"float16": "F16", "bfloat16": "BF16", "q8_0": "Q8_0"}[dtype]
    assert types["blk.0.attn_q.weight"] == stored and types["blk.0.attn_norm.weight"] == "F32"
    # Rows of 24 are no multiple of 32.
    assert types["blk.0.attn_output.weight"] == ("F16" if dtype == "q8_0" else stored)
    assert json.loads((tmp_path / "out" / "certificate.json").read_text()) == exported.certificate


def test_weights_that_a_type_cannot_hold_and_unknown_types_are_refused(tmp_path):
    model = made("llama")
    with torch.no_grad():
        model.model.embedding.weight[0, 0] = 1e6
    with pytest.raises(CheckpointError, match="up to 1e\\+06, does not fit .* give --dtype bfloat16"):
        export_gguf(model, tmp_path / "out", "float16")
    with pytest.raises(ConfigError, match="--dtype 'int4' is not a type of --to gguf: give float32"):
        export_gguf(model, tmp_path / "out", "int4")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name, changes, message", [
    ("gpt2", {"gelu": "exact"}, "llama.cpp's gpt2 cannot represent model.gelu = exact"),
    ("gpt2", {"ffn": "relu"}, "gpt2 cannot represent model.ffn = relu"),
    ("llama", {"attention_window": 5}, "llama cannot represent model.attention_window = 5"),
    ("llama", {"ffn": "geglu"}, "llama cannot represent model.ffn = geglu"),
    ("gemma2", {"logit_cap": "none"}, "gemma2 cannot represent model.logit_cap = none"),
    ("gemma2", {"window_pattern": "LLG"}, "represent model.window_pattern = LLG"),
    ("gemma2", {"attention_scale": 3.0}, "represent model.attention_scale = 3.0"),
    ("smollm3", {"position_pattern": "PN"}, "represent model.position_pattern = PN"),
    ("gptneox", {"gelu": "exact"}, "gptneox cannot represent model.gelu = exact"),
    ("gpt2", {"norm_order": "post"}, "no architecture for GPT-1's class: it takes decoders of gpt2"),
])  # fmt: skip
def test_models_that_llama_cpp_does_not_compute_are_refused_by_field(tmp_path, name, changes, message):
    with pytest.raises(ConfigError, match=message):
        export_gguf(made(name, **changes), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def trained(pre_tokenizer, **rules):
    library = Library(models.BPE(**rules))
    library.pre_tokenizer = pre_tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator(LINES * 5, trainer)
    return library


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
    library = trained(pre_tokenizer, **rules)
    ours = SubwordTokenizer(library)
    fields = {key[15:]: each for key, each in describe_vocabulary(ours, 310).items()}
    assert (fields["model"], fields["pre"], len(fields["tokens"])) == ("gpt2", name, 310)
    assert fields["token_type"] == ["CONTROL", *["NORMAL"] * 299, *["UNUSED"] * 10]
    assert fields["eos_token_id"] == ours.end_id == 0 and fields["tokens"][309] == "[PAD309]"
    again = Library(
        models.BPE(
            {token: id_ for id_, token in enumerate(fields["tokens"])},
            [tuple(merge.split(" ")) for merge in fields["merges"]],
            **rules,
        )
    )
    again.pre_tokenizer = pre_tokenizer
    for line in LINES:
        assert again.encode(line).ids == ours.encode(line.encode()).tolist()


def with_rules(library, **rules):
    for key, value in rules.items():
        setattr(library, key, value)
    return SubwordTokenizer(library)


def sentencepiece(**rules):
    rules = {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity"} | rules
    return UnigramTokenizer(spm(EN, 330, remove_extra_whitespaces=False, **rules))


@pytest.mark.parametrize("make, message", [
    (lambda: CharacterTokenizer("abc"), r"\(characters\) with ids of its own"),
    (lambda: SubwordTokenizer(trained(split(r"\w+"))), r"\(bpe\) with the pattern .w\+: it has bytes"),
    (lambda: SubwordTokenizer(trained(split(_GPT2), ignore_merges=True)), "the pattern 's"),
    (lambda: SubwordTokenizer(trained(pre_tokenizers.ByteLevel(add_prefix_space=True))), "the pattern"),
    (lambda: SubwordTokenizer(trained(pre_tokenizers.Whitespace())), "not divided into bytes"),
    (lambda: with_rules(trained(LEVEL), normalizer=normalizers.NFKC()), "that change characters"),
    (lambda: sentencepiece(model_type="unigram"), "with a unigram model"),
    (lambda: sentencepiece(normalization_rule_name="nmt_nfkc"), "that change characters"),
    (lambda: sentencepiece(byte_fallback=False), "no pieces of bytes"),
])  # fmt: skip
def test_tokenizers_that_llama_cpp_has_not_are_refused_with_the_reason(make, message):
    with pytest.raises(ConfigError, match=message):
        describe_vocabulary(make(), 400)


def test_bytes_and_pieces_of_sentencepiece_are_described():
    fields = describe_vocabulary(ByteTokenizer(), 256)
    assert fields["tokenizer.ggml.tokens"][ord(" ")] == "Ġ" and len(fields["tokenizer.ggml.tokens"]) == 256
    ours = sentencepiece()
    fields = describe_vocabulary(ours, ours.vocab_size + 1)
    types = fields["tokenizer.ggml.token_type"]
    assert types.count("BYTE") == 256 and types[0] == "UNKNOWN" and types[-1] == "UNUSED"
    assert fields["tokenizer.ggml.add_space_prefix"] is True
    assert len(fields["tokenizer.ggml.scores"]) == len(types) - 1


class Llama:
    """llama-cpp-python's interface, with the answers of a model of ours."""

    def __init__(self, path, **options):
        assert path.endswith(NAME) and options["logits_all"]

    def reset(self):
        self.scores = None

    def eval(self, row):
        self.scores = TOLD.model(torch.tensor([row]))["vocabulary"][0].numpy()

    def generate(self, tokens, temp):
        tokens = list(tokens)
        while temp == 0.0:
            tokens.append(int(TOLD.model(torch.tensor([tokens]))["vocabulary"][0, -1].argmax()))
            yield tokens[-1]

    def tokenize(self, line, *, add_bos, special):
        assert not add_bos and not special
        return TOLD.tokenizer.encode(line).tolist()[: 1 + (b"DOG" not in line and len(line))]


TOLD = made("gpt2", ByteTokenizer(), vocab_size=256)


def test_tokens_of_llama_cpp_are_compared_where_it_is_installed(tmp_path, monkeypatch):
    library = SimpleNamespace(Llama=Llama, __version__="0.3", __spec__=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "llama_cpp", library)
    exported = export_gguf(TOLD, tmp_path / "out")
    found = exported.certificate["llama.cpp"]
    assert found["largest_difference"] == 0.0 and found["greedy_tokens"] == "32 of 32"
    assert exported.lines[1].startswith("llama_cpp 0.3: 32 of 32 greedy tokens and ids of 1000 of 1000")
    assert "no end of a text" in exported.lines[2]


def test_llama_cpp_itself_gives_the_same_tokens(tmp_path):
    pytest.importorskip("llama_cpp")
    for name in FIELDS:
        found = export_gguf(made(name), tmp_path / name).certificate["llama.cpp"]
        assert found["largest_difference"] < 0.02, name
