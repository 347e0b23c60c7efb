"""Export to CTranslate2 and its engine: small random models of each kind, and what is refused."""

import json
import re
import sys

import numpy as np
import pytest
import torch

import sublayer as package
from sublayer.api.run import export
from sublayer.data.tokenizers.base import ByteTokenizer, CharacterTokenizer
from sublayer.decode.beam import BeamSettings, search
from sublayer.decode.sample import GREEDY, Sampling, generate
from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.interop.ctranslate2 import NAME, export_ctranslate2, token_names, write
from sublayer.interop.engines import load_engine, open_engine
from sublayer.model.context import Layout, Queries
from sublayer.model.model_folder import save_model
from sublayer.text_model import TextModel
from tests.breadth import rows
from tests.encoders import random_model
from tests.interop.folders import read_json

VOCAB_SIZE, CONTEXT = 23, 24
_SIZES = {"n_layers": 2, "d_model": 16, "n_heads": 4, "d_ff": 24}
_ROTARY = {"positions": "rotary", "rotary_base": 50.0}
_LLAMA = {**_ROTARY, "norm": "rms", "ffn": "swiglu", "bias": False, "tie_embeddings": False}
_PARALLEL = {**_ROTARY, "block": "parallel"}
_GEMMA = {**_ROTARY, "norm": "rms", "norm_order": "around", "d_head": 6, "residual_scale": 0.4}
DECODERS = {
    "GPT-2": {},
    "GPT-1": {"norm_order": "post", "gelu": "exact", "softmax": "all"},
    "Llama, grouped": {**_LLAMA, "n_kv_heads": 2},
    "Llama, multi-query, wide heads": {**_LLAMA, "n_kv_heads": 1, "d_head": 6},
    "GPT-NeoX": {**_PARALLEL, "parallel_norm": "separate", "rotary_fraction": 0.5},
    "GPT-J": {**_PARALLEL, "rotary_layout": "interleaved", "head_bias": True},
    "Cohere": {**_PARALLEL, "norm_bias": False, "output_scale": 3.0, "ffn": "glu"},
    "parallel, norms of squares": {**_PARALLEL, "block": ["ffn*0.5+attention"], "norm": "rms"},
    "Gemma 2": {**_GEMMA, "logit_cap": 2.0, "ffn": "geglu", "embedding_scale": "sqrt"},
    "Qwen 3": {**_LLAMA, "qk_norm": "rms", "n_kv_heads": 2},
    "norms of queries, without gains": {**_ROTARY, "qk_norm": "layer", "embedding_norm": "plain",
                                        "norm_affine": False, "rotary_fraction": 0.5},
    "Granite": {**_LLAMA, "residual_scale": 0.3, "embedding_scale": 5.0, "attention_scale": 3.0},
    "SmolLM3": {**_LLAMA, "n_layers": 4, "position_pattern": "PPPN"},
    "ALiBi, six heads": {"positions": "alibi", "n_heads": 6, "d_model": 12},
    "shared": {"share": "all", "positions": "sinusoidal", "n_layers": 4, "share_groups": 2},
    "factorised": {"d_embed": 8, "positions": "none", "embedding_norm": "affine"},
    "steps": {"block": ["attention*0.5", "ffn:reglu*-2"], "norm_order": "post",
              "final_norm": "affine"},
    "without a final norm": {"final_norm": "none", "bias": {"query": True, "ffn": True}},
}  # fmt: skip
_TRANSLATOR = {"kind": "encoder-decoder", "ffn": "relu", "n_decoder_layers": 1}
_T5 = {"norm": "rms", "positions": "relative", "attention_scale": "none", "bias": False}
_T5 |= {"decoder_start": "pad", "relative_buckets": 8, "relative_distance": 6}
TRANSLATORS = {
    "fairseq": {"positions": "sinusoidal", "sinusoids": "fairseq", "first_position": 2,
                "embedding_scale": "sqrt"},
    "Marian": {"positions": "sinusoidal", "sinusoids": "marian", "norm_order": "post",
               "head_bias": True, "decoder_start": "pad"},
    "T5": {**_T5, "output_scale": "sqrt"},
    "T5 v1.1": {**_T5, "ffn": "geglu", "tie_embeddings": False, "d_head": 6},
    "BART": {"norm_order": "post", "embedding_norm": "affine"},
    "rotary, grouped": {**_LLAMA, "n_kv_heads": 2, "d_embed": 8},
}  # fmt: skip
_ENCODER = {"kind": "encoder", "head": "none", "embedding_norm": "affine", "norm_order": "post"}
ENCODERS = {
    "BERT": {**_ENCODER, "segments": "both", "pooler": "tanh", "embedding_scale": 3.0},
    "Macaron's segments": {**_ENCODER, "segments": "second", "embedding_norm": "none"},
    "DistilBERT": {**_ENCODER, "share": "all"},
    "pre-norm": {**_ENCODER, **_LLAMA, "norm_order": "pre", "qk_norm": "rms", "n_kv_heads": 2},
    "T5's": {**_ENCODER, "norm_order": "pre", "positions": "relative", "d_embed": 8},
}  # fmt: skip
MODELS = {**DECODERS, **{name: {**_TRANSLATOR, **row} for name, row in TRANSLATORS.items()}}
MODELS |= ENCODERS


def built(name, tokenizer=None, **changes):
    fields = {**_SIZES, **MODELS[name], **changes}
    return TextModel(random_model(fields, VOCAB_SIZE, CONTEXT, dtype=torch.float32), tokenizer)


@pytest.mark.parametrize("name", rows(MODELS, 12))
def test_a_model_goes_out_with_its_numbers_and_greedy_tokens(tmp_path, name):
    model = built(name)
    certificate = export_ctranslate2(model, tmp_path / "out").certificate
    largest = max(1.0, certificate["largest_logit"])
    assert certificate["largest_difference"]["float32"] < 5e-6 * largest
    if "greedy" in certificate:
        assert certificate["greedy"]["equal"] == certificate["greedy"]["prompts"]
    assert read_json(tmp_path / "out" / "certificate.json") == certificate
    assert open_engine(tmp_path / "out", NAME, "cpu").model.config == model.model.config


REFUSED = {
    "block = macaron": {"block": "macaron"},
    "block = parallel": {"kind": "encoder", "block": "parallel", "head": "none"},
    "kind = lstm": {"kind": "lstm"},
    "rotary_layout = halves-clockwise": {**_ROTARY, "rotary_layout": "halves-clockwise"},
    "norm = none": {"norm": "none"},
    "norm = dyt": {"norm": "dyt"},
    "norm_order = after": {"norm_order": "after"},
    "norm_order = around": {**_TRANSLATOR, "norm_order": "around"},
    "positions = relative": {"positions": "relative"},
    "positions = alibi": {**_TRANSLATOR, "positions": "alibi"},
    "positions = learned-per-layer": {"positions": "learned-per-layer"},
    "attention_window = 5": {"attention_window": 5},
    "score_cap = 2": {"score_cap": 2.0},
    "sinks = true": {"sinks": True},
    "attention_gate = head": {"attention_gate": "head"},
    "value_residual = fixed": {"value_residual": "fixed"},
    "qk_norm = l2": {"qk_norm": "l2"},
    "qk_norm_over = all": {"qk_norm": "rms", "qk_norm_over": "all"},
    "swish_beta = 2.0": {"ffn": "swish", "swish_beta": 2.0},
    "ffn = relu2": {"ffn": "relu2"},
    "head = transform": {"head": "transform"},
    "embedding_projection = sum": {"d_embed": 8, "embedding_projection": "sum"},
    "position_pattern = NP": {**_ROTARY, "position_pattern": "NP"},
    "label_outputs = 3": {"head": "none", "label_outputs": 3},
}


@pytest.mark.parametrize("field", rows(REFUSED, 9))
def test_what_its_specs_cannot_say_is_refused_by_field(tmp_path, field):
    fields = {**_SIZES, **REFUSED[field]}
    if fields.get("kind") == "lstm":
        fields = {"kind": "lstm", "n_layers": 2, "d_model": 16}
    model = TextModel(random_model(fields, VOCAB_SIZE, CONTEXT))
    with pytest.raises(ConfigError, match=f"cannot represent .*model.{re.escape(field)}"):
        export_ctranslate2(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_quantised_weights_drift_by_a_measured_amount(tmp_path):
    model = built("Llama, grouped", CharacterTokenizer("".join(map(chr, range(97, 119)))))
    exported = export_ctranslate2(model, tmp_path / "out", dtype="int8")
    certificate = exported.certificate
    assert 0 < certificate["largest_difference"]["int8"] < 2
    assert 0 < abs(certificate["drift"]["bits"]) < 1
    assert certificate["drift"]["text"] == "46 tokens that the model samples"
    assert certificate["drift"]["per"] == "byte"
    assert any(line.startswith("drift: ") for line in exported.lines)
    for dtype in ("float16", "int4"):
        with pytest.raises(ConfigError, match=f"computes no {dtype} on this machine, but .*int8"):
            write(model, tmp_path, dtype)
    folder = tmp_path / "out" / "sublayer.json"
    folder.write_text(folder.read_text().replace('"int8"', '"float16"'))
    with pytest.raises(ConfigError, match="computes no float16"):
        open_engine(tmp_path / "out", NAME, "cpu")


def test_other_weights_than_the_models_are_not_written(tmp_path, monkeypatch):
    model = built("GPT-2")

    def damaged(text_model, folder, dtype):
        write(built("GPT-2", init_std=0.5), folder, dtype)

    monkeypatch.setattr("sublayer.interop.ctranslate2.write", damaged)
    with torch.no_grad():
        model.model.embedding.weight.mul_(1.1)
    with pytest.raises(CheckpointError, match="logits differ from ctranslate2's by"):
        export_ctranslate2(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_every_id_has_one_name():
    assert token_names(ByteTokenizer(), 258)[-2:] == ["<256>", "<257>"]
    assert token_names(ByteTokenizer(), 256)[97:99] == ["a", "b"]
    assert token_names(None, 3) == ["<0>", "<1>", "<2>"]
    assert token_names(CharacterTokenizer("a▁ b"), 6)[1:] == ["a", "▁", "▁<3>", "b", "<5>"]


@torch.inference_mode()
def test_beams_and_samples_of_the_engine(tmp_path):
    """Search as ours does: hypotheses, scores by either rule, lengths, several at a time."""
    for name in ("Marian", "T5"):
        model = built(name, head_bias=True)
        with torch.no_grad():
            # The end is likely, and padding never: its share is the only difference.
            model.model.head.bias.zero_()[0] = 2.0
            model.model.head.bias[1] = -30.0
        other = load_engine(model, NAME, "cpu")
        generator = np.random.default_rng(1)
        sources = [generator.integers(2, VOCAB_SIZE, n) for n in (9, 7, 7, 4, 1)]
        ids = {"end_id": 0, "pad_id": 1, "start_id": 0}
        for rule, penalty, beam in (("fairseq", 0.0, 3), ("gnmt", 0.6, 3), ("fairseq", 1.0, 1)):
            settings = BeamSettings(beam, rule, penalty, 1.0, 6.0)
            found = [
                dict(search(each, sources, settings, **ids, sentences=n))
                for each, n in ((model.model, 5), (other.model, 5), (other.model, 2))
            ]
            for number, ours in found[0].items():
                for theirs in (found[1][number], found[2][number]):
                    assert [*theirs[0].ids] == [*ours[0].ids]
                    assert len(theirs) <= beam
    decoder = built("Llama, grouped")
    other = load_engine(decoder, NAME, "cpu")
    prompts = torch.randint(2, VOCAB_SIZE, (3, 4))
    greedy = [torch.stack([*generate(m.model, prompts, 9, GREEDY)]) for m in (decoder, other)]
    assert torch.equal(*greedy)
    drawn = [next(generate(other.model, prompts, 1, Sampling(1.0, 3, 0.9), seed=n)) for n in (1, 1)]
    assert all(token in range(VOCAB_SIZE) for each in drawn for token in each.tolist())
    # A caller that stops leaves no thread behind.
    steps = generate(other.model, prompts, 20, GREEDY)
    next(steps)
    steps.close()
    with pytest.raises(
        ConfigError, match="cannot slide beyond the context of 24: give --tokens 21"
    ):
        next(generate(other.model, prompts, 22, GREEDY))


@torch.inference_mode()
def test_documents_of_a_row_are_read_apart(tmp_path):
    model = built("BERT")
    other = load_engine(model, NAME, "cpu").model
    tokens = torch.randint(VOCAB_SIZE, (2, 9))
    numbers = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2, 2], [0, 0, 0, 0, 0, 1, 1, -1, -1]])
    segments = torch.randint(2, (2, 9))
    layout = Layout.bidirectional(tokens, numbers >= 0, numbers)
    places = Queries(torch.tensor([[0, 3], [0, 5]]))
    for queries in (None, places):
        ours, theirs = (
            each.hidden(tokens, layout, segments=segments, queries=queries).final
            for each in (model.model, other)
        )
        is_real = slice(None) if queries is not None else numbers >= 0
        torch.testing.assert_close(theirs[is_real], ours[is_real], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(other.pool(ours), model.model.pool(ours))


def test_commands_answer_alike_by_the_engine(made, tmp_path, capsys):
    run = made("causal")
    asked = {"tokens": 12, "temperature": 0.0, "stop": ["zz"]}
    texts = package.generate(run, "the ", **asked).texts
    assert package.generate(run, "the ", **asked, engine=NAME).texts == texts
    plain = {"tokens": 12, "temperature": 0.0}
    assert (
        package.generate(run, "the ", **plain, engine=NAME).texts
        == package.generate(run, "the ", **plain).texts
    )
    assert "converted for ctranslate2 in a temporary folder" in capsys.readouterr().err
    export(run, tmp_path / "out", to=NAME)
    shown = []
    again = package.generate(tmp_path / "out", "the ", **asked, engine=NAME, show=shown.append)
    assert again.texts == texts and "".join(shown) == f"the {texts[0]}"
    sampled = package.generate(tmp_path / "out", "the ", tokens=5, n=3, top_k=4, engine=NAME)
    assert len(sampled.texts) == 3 and "draws differ" in capsys.readouterr().err
    lines = ["the cat sat on a mat", "", "a dog", "rained all day long"]
    told = [
        package.translate(made("translation"), lines, beam=beam, engine=engine).texts
        for beam in (1, 4)
        for engine in (None, NAME)
    ]
    assert told[0] == told[1] and told[2] == told[3]
    vectors = [package.embed(made("masked"), lines, engine=engine) for engine in (None, NAME)]
    np.testing.assert_allclose(*vectors, atol=1e-4)
    for kind, row in (("pair", ("a dog runs", "a cat")), ("text", {"sentence": "a dog runs"})):
        task = "sst2" if kind == "text" else None
        ours, theirs = (
            package.predict(made(kind), [row], task=task, engine=engine) for engine in (None, NAME)
        )
        assert str(ours[0].label)[:5] == str(theirs[0].label)[:5]


MISTAKES = {
    "window exact has no effect with engine": ("generate", "causal", {"window": "exact"}),
    "bfloat16 has no effect with engine": ("generate", "causal", {"precision": "bfloat16"}),
    "cannot slide beyond the context of 32": ("generate", "causal", {"tokens": 40}),
    "engine ctranslate2 needs a decoder": ("generate", "text", {}),
    "gives the states of an encoder, not of a decoder": ("embed", "causal", {}),
    "cannot represent model.label_outputs = 1": ("predict", "traversal", {}),
    "writes answers greedily, or by a beam": ("predict", "text", {"top_k": 2, "task": "sst2"}),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_what_the_engine_lacks_is_refused_by_name(made, message):
    command, kind, options = MISTAKES[message]
    given = "the " if command == "generate" else ["a dog"]
    with pytest.raises(ConfigError, match=message):
        getattr(package, command)(made(kind), given, engine=NAME, **options)


def test_a_folder_of_an_engine_needs_it_and_its_library(tmp_path, monkeypatch):
    model = built("GPT-2", CharacterTokenizer("abc"))
    export_ctranslate2(model, tmp_path / "out")
    with pytest.raises(ConfigError, match="--average 2 has no effect on"):
        load_engine(tmp_path / "out", NAME, average=2)
    described = json.loads((tmp_path / "out" / "sublayer.json").read_text())
    (tmp_path / "out" / "sublayer.json").write_text(json.dumps({**described, "engine": "onnx"}))
    with pytest.raises(CheckpointError, match="is exported for onnx: give --engine onnx"):
        load_engine(tmp_path / "out", NAME)
    save_model(tmp_path / "model", model.model, {})
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(DataError, match=re.escape("pip install 'sublayer[ctranslate2]'")):
        export(tmp_path / "model", tmp_path / "refused", to=NAME)
