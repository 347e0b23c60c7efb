"""ONNX files: ONNX Runtime's outputs of random models, padded and cached, are those of ours."""

import pytest
import torch

from sublayer.api.run import load
from sublayer.api.writing import generate as generate_text
from sublayer.decode.sample import GREEDY, Sampling, generate
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.engines import certify, open_engine
from sublayer.interop.onnx import OnnxFile, OnnxReader, export_onnx
from sublayer.model.transformer import build
from sublayer.text_model import TextModel
from tests.encoders import random_model
from tests.interop.engine_models import MODELS, REFUSED, built, check_exported
from tests.interop.folders import read_json
from tests.interop.tiny import with_random_vectors
from tests.model.test_covering import ROWS

ALLOWED = 2e-5


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    """A model of today's parts, and its exported folder."""
    folder = tmp_path_factory.mktemp("onnx") / "gemma"
    check_exported(built("gemma"), folder, export_onnx, ALLOWED)
    return built("gemma").model, folder


def test_a_row_read_token_by_token_has_our_logits(gemma):
    """The file was traced for several rows and tokens, behind a past."""
    model, folder = gemma
    tokens = torch.randint(23, (1, 13), generator=torch.Generator().manual_seed(0))
    reader = OnnxReader(OnnxFile(folder / "model.onnx"), 1, {})
    read = [reader.read(tokens[:, place : place + 1])["logits"] for place in range(13)]
    torch.testing.assert_close(torch.cat(read, 1), model(tokens).logits, rtol=0, atol=2e-5)


def test_a_file_has_a_slot_for_each_executed_attention(gemma):
    file = OnnxFile(gemma[1] / "model.onnx")
    parts = [f"{slot}.{part}" for slot in range(2) for part in ("key", "value")]
    names = ["input_ids", "attention_mask", *(f"past_key_values.{part}" for part in parts)]
    assert list(file.shapes) == names
    assert file.shapes["past_key_values.1.key"] == ["batch", 4, "past_length", 6]
    assert file.shapes["attention_mask"] == ["batch", "total_length"]


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(0.8, top_k=7)], ids=["greedy", "drawn"])
def test_the_engine_continues_prompts_as_we_do(gemma, sampling):
    model, folder = gemma
    prompts = torch.randint(23, (3, 4), generator=torch.Generator().manual_seed(0))
    engine = open_engine(folder, "onnx").model
    ours, found = ([*generate(each, prompts, 20, sampling, seed=3)] for each in (model, engine))
    assert torch.equal(torch.stack(found), torch.stack(ours))


@pytest.mark.all
def test_an_lstm_continues_beyond_its_context(made):
    asked = {"tokens": 40, "temperature": 0.0}
    found = generate_text(made("lstm"), "the ", **asked, engine="onnx").texts
    assert found == generate_text(made("lstm"), "the ", **asked).texts


def test_outputs_of_other_weights_are_refused(gemma):
    model, folder = gemma
    other = with_random_vectors(build(model.config, seed=2))
    with pytest.raises(CheckpointError, match="outputs differ from onnx's"):
        certify(TextModel(other), folder, "onnx", "float32")


def test_ends_that_follow_a_search_are_refused_by_the_field(tmp_path):
    with pytest.raises(ConfigError, match=r"model\.span_head = joint"):
        export_onnx(built("segments", span_head="joint"), tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


@pytest.mark.all
@pytest.mark.parametrize("name", [*REFUSED, *[*MODELS][::4]])
def test_onnx_runtime_computes_our_outputs(name, tmp_path):
    check_exported(built(name), tmp_path / "onnx", export_onnx, ALLOWED)


@pytest.mark.all
@pytest.mark.parametrize("row", ROWS[::8], ids=range(len(ROWS[::8])))
def test_it_computes_those_of_combinations_of_settings(row, tmp_path):
    sizes = {"n_layers": 4, "d_model": 8, "n_heads": 2, "d_ff": 6, "max_len": 20}
    model = random_model({**sizes, **row}, 23, 20, std=0.2, seed=0, dtype=torch.float32)
    check_exported(TextModel(model), tmp_path / "onnx", export_onnx, ALLOWED)


@pytest.mark.all
def test_a_model_with_heads_for_tasks_continues_no_text(made, sublayer, tmp_path):
    folder = tmp_path / "onnx"
    found = sublayer("export", made("traversal"), folder, "--to", "onnx", "--json").found()
    assert found["certificate"]["checked"] and "greedy" not in found["certificate"]
    tokens, engine = torch.zeros(1, 1, dtype=torch.long), open_engine(folder, "onnx").model
    with pytest.raises(ConfigError, match="heads for tasks"):
        next(generate(engine, tokens, 1, GREEDY))


def test_plain_weights_say_what_each_tensor_is_and_when_it_is_used(made, sublayer, tmp_path):
    from safetensors.torch import load_file

    folder, run = tmp_path / "plain", load(made("causal"))
    assert sublayer("export", made("causal"), folder, "--to", "safetensors").code == 0
    tensors, described = load_file(folder / "model.safetensors"), read_json(folder / "weights.json")
    expected = run.model.state_dict()
    assert tensors.keys() == described["tensors"].keys() == expected.keys()
    assert all(torch.equal(tensors[name], expected[name]) for name in expected)
    assert described["tensors"]["embedding.weight"]["role"] == "embedding"
    attention, ffn = described["order"]["decoder"][1]
    assert described["tensors"][f"{attention}.function.projection.weight"]["shape"] == [3, 24, 24]
    assert f"{ffn}.function.output.weight" in tensors
    again = load(folder)
    prompt = torch.arange(7)[None]
    assert torch.equal(again.model(prompt).logits, run.model(prompt).logits)
