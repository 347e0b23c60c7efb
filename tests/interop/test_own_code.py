"""Folders with a modelling file of their own: loaded by transformers, they are the model's."""

import json
import os
import re
import subprocess
import sys
import venv
from importlib.metadata import distribution
from importlib.util import find_spec

import pytest
import torch
import transformers
from packaging.requirements import Requirement

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import ConfigError
from sublayer.evaluation.probes import Requests
from sublayer.interop import own_code
from sublayer.interop.certificate import CertificateBatch
from sublayer.interop.family import task_of
from sublayer.interop.foreign_config import refused_fields
from sublayer.interop.huggingface import export_transformers, import_huggingface, read_huggingface
from sublayer.interop.own_code import check_code, export_own_code
from sublayer.loading import load
from sublayer.tasks.task import Task
from sublayer.text_model import Generation, TextModel
from tests.breadth import rows
from tests.encoders import random_model
from tests.interop.folders import change_json, check_refused, close, read_json
from tests.model.test_covering import CONTEXT, ROWS, VOCAB_SIZE

SIZES = {"n_layers": 4, "d_model": 8, "n_heads": 2, "d_ff": 6}
MACARON = {"block": "macaron", "dropout": 0.1}
CHARACTERS = {"positions": "learned-per-layer", "final_norm": "plain", "tie_embeddings": False}
SHARED = {"share": "all", "share_groups": 2, "d_embed": 6, "embedding_projection": "sum"}
TRANSLATOR = {"kind": "encoder-decoder", "block": "macaron", "positions": "sinusoidal"}
TRANSLATOR |= {"sinusoids": "fairseq", "first_position": 2, "embedding_scale": "sqrt"}
T5 = {"kind": "encoder-decoder", "norm": "rms", "positions": "relative", "bias": False}
T5 |= {"block": "macaron", "attention_scale": "none", "decoder_start": "pad"}
ENCODER = {"kind": "encoder", "segments": "second", "block": "macaron", "head": "transform"}
CASES = {
    "macaron": MACARON,
    "characters": {**CHARACTERS, "head_bias": True, "ffn": "relu"},
    "shared": {**MACARON, **SHARED},
    "two attentions of shared blocks": {"block": ["attention", "ffn", "attention"], "share": "all"},
    "today's": {
        **MACARON, "positions": "rotary", "norm": "rms", "n_kv_heads": 1, "qk_norm": "rms",
        "attention_gate": "head", "attention_window": 5, "window_pattern": "LG", "ffn": "swiglu",
    },
    "capped": {"positions": "rotary", "score_cap": 2.0, "sinks": True, "logit_cap": 3.0},
    "alibi": {"positions": "alibi", "n_heads": 3, "d_head": 4},
    "lstm": {"kind": "lstm"},
    "translator": TRANSLATOR,
    "t5": T5,
    "encoder": {**ENCODER, "sentence_classes": 1},
    "encoder in windows": {**ENCODER, "attention_window": 4, "pooler": "tanh", "head": "none"},
    "labels": {**ENCODER, "head": "none", "label_outputs": 3, "norm_order": "post"},
    "labels of a decoder": {**MACARON, "head": "none", "label_outputs": 3},
}  # fmt: skip
CAUSAL = [name for name, fields in CASES.items() if fields.get("kind", "decoder") == "decoder"]
CAUSAL.remove("labels of a decoder")
REFUSED = {"attention_window", "window_pattern", "position_pattern", "embedding_projection"}
REFUSED |= {"attention_gate", "qk_norm_place", "first_norm", "pooler"}
MASK = torch.arange(6) >= torch.tensor([0, 3])[:, None]


def config_of(fields):
    config = ModelConfig.model_validate({**SIZES, **fields})
    return resolve_model(config, vocab_size=VOCAB_SIZE, context=CONTEXT)


def model_of(fields, dtype=torch.float64):
    std = 0.1 if fields.get("norm") == "none" else 0.3
    return random_model({**SIZES, **fields}, VOCAB_SIZE, CONTEXT, std=std, dtype=dtype)


def written(folder, fields, dtype=torch.float64, **more):
    """Write a model as code, and load it as anyone does; return both."""
    model = model_of(fields, dtype)
    export_own_code(TextModel(model, **more), folder, "for a test")
    auto = next(iter(read_json(folder / "config.json")["auto_map"]))
    kind = getattr(transformers, auto)
    return model, kind.from_pretrained(folder, trust_remote_code=True)


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
    """Let transformers keep its copies of code in a folder of the test."""
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))


def is_written(fields):
    refused = refused_fields(config_of(fields), own_code.TABLE)
    assert {re.match(r"model\.(\w+)", each)[1] for each in refused} <= REFUSED
    return not refused


COVERED = [row for row in ({**each, "value_residual": "none"} for each in ROWS) if is_written(row)]


def answers(model):
    """Return the outputs of a model that its class of transformers has, too."""
    outputs = CertificateBatch.draw(model.config).ours(model)
    return {name: each for name, each in outputs.items() if name != "sentence_logits"}


@pytest.mark.parametrize("row", [*CASES.values(), *rows(COVERED, 6)])
@torch.inference_mode()
def test_logits_and_tokens_are_the_models_which_is_read_back_to_the_bit(tmp_path, row):
    model = model_of(row, torch.float32)
    certificate = export_own_code(TextModel(model), tmp_path / "out", "for a test")
    largest = max(1.0, certificate["largest_logit"])
    assert certificate["largest_difference"]["float64"] < 1e-9 * largest
    assert certificate["largest_difference"]["float32"] < 5e-6 * largest
    is_generating = model.config.kind != "encoder" and not model.config.label_outputs
    assert ("greedy_tokens" in certificate) == is_generating
    (tmp_path / "out" / own_code.FILE).write_text("raise SystemExit('it was run')")
    certificate = import_huggingface(tmp_path / "out", tmp_path / "in")
    assert not certificate["checked"] and "never run" in certificate["reason"]
    expected, found = answers(model), answers(load(tmp_path / "in").model)
    assert expected.keys() == found.keys()
    for name, each in expected.items():
        assert torch.equal(found[name], each), name


def test_every_file_is_formatted_and_short_and_needs_torch_and_transformers_alone(tmp_path):
    for number, row in enumerate([*CASES.values(), *COVERED]):
        config = config_of(row)
        code = own_code.Code(config.model_copy(update=own_code.required_fields(config)))
        text = code.write({"eos_token_id": 2})
        assert text.count("\n") <= 400
        needed = {*re.findall(r"^ *(?:import|from) (\w+)", text, re.MULTILINE)}
        assert needed - sys.stdlib_module_names == {"torch", "transformers"}
        (tmp_path / f"file_{number}.py").write_text(text)
    options = ["--isolated", "--line-length", "100", "--no-cache", str(tmp_path)]
    for command in (["format", "--check", "--diff"], ["check", "--select", "E,F,I,B,UP,ANN"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *options], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[:3000]


def best_of_beam(logits, ids, n_tokens, width=3):
    """Search without ends and without a cache: the best continuation of a text."""
    totals, texts = torch.zeros(1), ids[None]
    for _ in range(n_tokens):
        scores = totals[:, None] + logits(texts)[:, -1].log_softmax(-1)
        totals, chosen = scores.flatten().topk(width)
        texts = torch.cat([texts[chosen // VOCAB_SIZE], chosen[:, None] % VOCAB_SIZE], dim=1)
    return texts[0, len(ids) :]


@pytest.mark.parametrize("name", CAUSAL)
@torch.inference_mode()
def test_padded_prompts_are_continued_greedily_and_by_beams(tmp_path, name):
    model, theirs = written(tmp_path / "out", CASES[name])
    prompts = torch.randint(3, VOCAB_SIZE, (2, 6), generator=torch.Generator().manual_seed(1))
    rules = {"do_sample": False, "max_new_tokens": 5, "pad_token_id": 0}
    for width in (1, 3):
        given = {"attention_mask": MASK.long(), "num_beams": width}
        found = theirs.generate(prompts, **given, **rules)[:, 6:]
        for row, mask, ids in zip(prompts, MASK, found, strict=True):
            assert torch.equal(best_of_beam(lambda x: model(x).logits, row[mask], 5, width), ids)
    for mask in (MASK, MASK.flip(1)):
        logits = theirs(prompts, attention_mask=mask.long()).logits
        close(logits[mask], model(prompts, mask).logits[mask])


@pytest.mark.parametrize("name", ["translator", "t5"])
@torch.inference_mode()
def test_translations_are_the_models(tmp_path, name):
    model, theirs = written(tmp_path / "out", CASES[name])
    sources = torch.randint(3, VOCAB_SIZE, (2, 6), generator=torch.Generator().manual_seed(1))
    mask = MASK.flip(1)
    theirs.generation_config.eos_token_id = None
    start = torch.tensor([theirs.config.decoder_start_token_id])
    for width in (1, 3):
        given = {"attention_mask": mask.long(), "num_beams": width, "max_new_tokens": 5}
        found = theirs.generate(sources, do_sample=False, **given)[:, 1:]
        for row, real, ids in zip(sources, mask, found, strict=True):
            source = row[real][None]

            def logits(target, source=source):
                return model(source.expand(len(target), -1), target=target).logits

            assert torch.equal(best_of_beam(logits, start, 5, width), ids)


@pytest.mark.parametrize("name", ["macaron", "shared", "translator", "encoder", "lstm", "labels"])
def test_it_learns_and_is_saved_again(tmp_path, name):
    _, theirs = written(tmp_path / "out", CASES[name], torch.float32)
    tokens = torch.randint(3, VOCAB_SIZE, (2, 6), generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 2]) if name == "labels" else tokens
    loss = theirs.train()(tokens, labels=labels).loss
    loss.backward()
    without = [each for each, value in theirs.named_parameters() if value.grad is None]
    assert not without and loss.isfinite()
    theirs.eval().save_pretrained(tmp_path / "again")
    files = (tmp_path / each / own_code.FILE for each in ("out", "again"))
    assert next(files).read_text() == next(files).read_text()
    again = type(theirs).from_pretrained(tmp_path / "again")
    close(dict(again.named_parameters()), dict(theirs.named_parameters()), atol=0)
    if theirs.supports_gradient_checkpointing:
        theirs.activation_checkpointing_enable()
        theirs.train()(tokens, labels=labels).loss.backward()


def test_only_eager_attention_takes_caps_and_only_sdpa_besides_takes_biases(tmp_path):
    for name in ("macaron", "alibi"):
        model, theirs = written(tmp_path / name, CASES[name])
        tokens = torch.arange(8)[None]
        for each in ("sdpa", "eager"):
            theirs.set_attn_implementation(each)
            close(theirs(tokens).logits, model(tokens).logits)
    with pytest.raises(ValueError, match="flex_attention"):
        theirs.set_attn_implementation("flex_attention")
    assert written(tmp_path / "capped", CASES["capped"])[1].config._attn_implementation == "eager"
    outputs = theirs(torch.arange(8)[None], output_hidden_states=True, output_attentions=True)
    assert len(outputs.hidden_states) == 5 and len(outputs.attentions) == 4


def test_a_tokenizer_and_settings_of_generation_go_with_the_code(tmp_path):
    templates = {"default": "{{ messages[0].content }}!"}
    kept = Generation((5, 6), {"repetition_penalty": 9.0, "do_sample": True}, templates)
    tokenizer = train_tokenizer("bytes", [])
    model = random_model({**SIZES, **MACARON}, tokenizer.vocab_size, CONTEXT, std=0.4)
    model = TextModel(model, tokenizer, generation=kept)
    exported = export_transformers(model, tmp_path / "out")
    assert exported.class_name == "SublayerForCausalLM" and exported.has_tokenizer
    assert "model.block" in exported.certificate["code"]
    assert exported.certificate["tokenizer_ids"]["equal"] > 15
    assert "trust_remote_code=True" in exported.following
    auto = transformers.AutoTokenizer
    theirs = auto.from_pretrained(tmp_path / "out", trust_remote_code=True)
    assert theirs("hé").input_ids == list("hé".encode())
    said = theirs.apply_chat_template([{"role": "user", "content": "hé"}], tokenize=False)
    assert said == "hé!"
    auto = transformers.AutoModelForCausalLM
    settings = auto.from_pretrained(tmp_path / "out", trust_remote_code=True).generation_config
    assert (settings.eos_token_id, settings.max_length) == ([5, 6], CONTEXT)
    assert (settings.repetition_penalty, settings.do_sample) == (9.0, True)
    again = read_huggingface(tmp_path / "out")
    assert again.generation == kept
    assert again.tokenizer.encode("hé".encode()).tolist() == list("hé".encode())


@pytest.mark.parametrize("kind, labels", [("classes", ("no", "yes")), ("number", ())])
def test_a_task_and_its_scale_are_read_back(tmp_path, kind, labels):
    model = model_of({**ENCODER, "head": "none", "pooler": "tanh", "label_outputs": 1})
    spec = task_of(kind, labels, model.config, numbers=(0.0, 5.0))
    export_own_code(TextModel(model, None, spec), tmp_path / "out", "for a test")
    import_huggingface(tmp_path / "out", tmp_path / "in")
    again, batch = load(tmp_path / "in"), CertificateBatch.draw(model.config)
    assert again.task == spec
    found = batch.ours(again.model, spec.tasks[0])["label_logits"]
    close(found, batch.ours(model, spec.tasks[0])["label_logits"])


def test_models_that_code_cannot_represent_are_refused_by_field(tmp_path):
    refused = {
        "model.value_residual = fixed": {"value_residual": "fixed"},
        "model.block = ": {"block": ["ffn"]},
        "model.attention_window = 4": {**TRANSLATOR, "attention_window": 4},
        "model.position_pattern = PN": {"positions": "alibi", "position_pattern": "PN"},
        "model.span_head = joint": {"kind": "encoder", "span_head": "joint", "head": "none"},
    }
    for words, fields in refused.items():
        with pytest.raises(ConfigError, match=words) as caught:
            export_own_code(TextModel(model_of(fields)), tmp_path / "out", "for a test")
        assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()
    choice = Task("copa", "COPA", "superglue", "choice", ("premise",), ("accuracy",))
    with pytest.raises(ConfigError, match="COPA is answered from several rows"):
        check_code(model_of({**MACARON, "label_outputs": 1}).config, choice)


def test_what_transformers_saves_again_is_read_and_other_tables_are_refused(tmp_path):
    model, theirs = written(tmp_path / "out", TRANSLATOR, torch.float32)
    theirs.save_pretrained(tmp_path / "again")
    found = read_huggingface(tmp_path / "again").model
    close(found.state_dict(), model.state_dict(), atol=0)
    described = read_json(tmp_path / "again" / "config.json")
    table, file = described["sublayer"], tmp_path / "again" / "config.json"
    for changes, message in {
        ("n_layers", 5): "the weights lack encoder.blocks.4",
        ("n_layers", 3): "the weights hold .*, unknown to the model's table",
        ("d_ff", 7): r"shape \[6, 8\], but config.json gives \[7, 8\]",
        ("value_residual", "fixed"): "code cannot represent model.value_residual = fixed",
        ("d_ff", "six"): "config.json: model.d_ff: ",
    }.items():
        changed = {**table, "model": {**table["model"], **dict([changes])}}
        change_json(file, sublayer=changed)
        check_refused(tmp_path / "again", message)
    for changes in ({"sublayer": None}, {"sublayer": table, "model_type": "own"}):
        change_json(file, **changes)
        check_refused(tmp_path / "again", "auto_map.*never run")


CLEAN = """
import json, sys
from importlib.util import find_spec
from pathlib import Path
import torch, transformers
assert find_spec("sublayer") is None
for folder in map(Path, sys.argv[1:]):
    auto = next(iter(json.loads((folder / "config.json").read_text())["auto_map"]))
    model = getattr(transformers, auto).from_pretrained(folder, trust_remote_code=True)
    tokens = torch.arange(8)[None]
    given = {"decoder_input_ids": tokens.flip(1)} if model.config.is_encoder_decoder else {}
    output = model(tokens, **given)
    torch.save(output.get("logits", output[0]), folder / "out.pt")
"""


def make_clean(place):
    """Make an environment of torch, transformers and what they require; return its Python."""
    venv.create(place, symlinks=True)
    [packages] = place.glob("lib/python*/site-packages")
    wanted, linked = ["torch", "transformers"], set()
    while wanted:
        found = distribution(wanted.pop())
        if found.name in linked:
            continue
        linked.add(found.name)
        for top in sorted({file.parts[0] for file in found.files} - {"..", "__pycache__"}):
            if not (packages / top).exists():
                (packages / top).symlink_to(found.locate_file(top))
        required = map(Requirement, found.requires or ())
        wanted += [r.name for r in required if not r.marker or r.marker.evaluate({"extra": ""})]
    return place / "bin" / "python"


@pytest.mark.all
def test_they_load_where_there_are_torch_and_transformers_alone(tmp_path):
    expected = {}
    for name, fields in CASES.items():
        folder = tmp_path / name.replace(" ", "-")
        _, theirs = written(folder, fields)
        tokens = torch.arange(8)[None]
        given = {"decoder_input_ids": tokens.flip(1)} if theirs.config.is_encoder_decoder else {}
        output = theirs(tokens, **given)
        expected[folder] = output.get("logits", output[0]).detach()
    command = [make_clean(tmp_path / "clean"), "-I", "-c", CLEAN, *expected]
    home = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "PATH": os.environ["PATH"]}
    done = subprocess.run(command, env=home, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for folder, logits in expected.items():
        close(torch.load(folder / "out.pt"), logits)


TEXT = "the cat sat on a mat and a dog ran to the river where an old man slept"
WORDS = TEXT.split()
QUESTIONS = [
    {"question": " ".join(WORDS[i : i + 4]), "answers": [*WORDS[i + 4 : i + 7]], "label": i % 3}
    for i in range(9)
]
TEXTS = [{"text": " ".join(WORDS * n)} for n in (1, 2, 5)]
CHOICES = {"output_type": "multiple_choice", "doc_to_text": "{{question}}"}
CHOICES |= {"doc_to_choice": "{{answers}}", "doc_to_target": "label"}
ROLLING = {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}"}
TASKS = {
    "own_choices": (QUESTIONS, {**CHOICES, "metric_list": [{"metric": "acc"}]}),
    "own_texts": (TEXTS, {**ROLLING, "metric_list": [{"metric": "bits_per_byte"}]}),
}


@pytest.mark.all
@pytest.mark.skipif(find_spec("lm_eval") is None, reason="lm-evaluation-harness is not installed")
def test_the_harness_gives_an_export_the_models_own_scores(tmp_path):
    tokenizer = train_tokenizer("bpe", [TEXT.encode()] * 9, vocab_size=290)
    model = random_model({**SIZES, **MACARON}, tokenizer.vocab_size, 24, std=0.4)
    model = TextModel(model, tokenizer)
    export_own_code(model, tmp_path / "out", "for a test")
    for name, (examples, settings) in TASKS.items():
        data = tmp_path / f"{name}.jsonl"
        data.write_text("".join(json.dumps(each) + "\n" for each in examples))
        task = {"task": name, "dataset_path": "json", "test_split": "test", **settings}
        task["dataset_kwargs"] = {"data_files": {"test": str(data)}}
        (tmp_path / f"{name}.yaml").write_text(json.dumps(task))
    command = [sys.executable, "-m", "lm_eval", "--model", "hf", "--tasks", ",".join(TASKS)]
    arguments = f"pretrained={tmp_path / 'out'},trust_remote_code=True,dtype=float64"
    command += ["--model_args", arguments]
    command += ["--device", "cpu", "--batch_size", "4", "--include_path", str(tmp_path)]
    command += ["--output_path", str(tmp_path / "scores"), "--log_samples"]
    home = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=home, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {}
    for name in TASKS:
        [samples] = tmp_path.glob(f"scores/*/samples_{name}_*.jsonl")
        lines = sorted(map(json.loads, samples.read_text().splitlines()), key=lambda x: x["doc_id"])
        found[name] = [each[0] for line in lines for each in line["resps"]]
    requests = Requests(model, 24, "it")
    pairs = [(row["question"], f" {answer}") for row in QUESTIONS for answer in row["answers"]]
    expected = [log_p for log_p, _ in requests.likelihoods(pairs)]
    close([float(log_p) for log_p, _ in found["own_choices"]], expected, atol=1e-6)
    whole = requests.wholes([row["text"] for row in TEXTS])
    close([float(log_p) for log_p in found["own_texts"]], whole, atol=1e-6)
