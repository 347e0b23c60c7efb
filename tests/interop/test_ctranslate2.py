"""Export to CTranslate2 and its engine: small random models of each kind, and what is refused."""

import re
import sys

import numpy as np
import pytest
import torch

from sublayer.data.tokenizers.base import ByteTokenizer, CharacterTokenizer
from sublayer.decode.beam import BeamSettings, search
from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.interop.ctranslate2 import NAME, export_ctranslate2, token_names
from sublayer.interop.engines import certify, load_engine, open_engine, write_folder
from sublayer.model.context import Layout, Queries
from tests.breadth import rows
from tests.interop.classes import VOCAB_SIZE
from tests.interop.engine_models import MODELS, REFUSED, built, check_exported
from tests.interop.folders import read_json


@pytest.mark.parametrize("name", rows(MODELS, 12))
def test_a_model_goes_out_with_its_numbers_and_greedy_tokens(tmp_path, name):
    model = built(name)
    certificate = check_exported(model, tmp_path / "out", export_ctranslate2, 5e-6)
    assert read_json(tmp_path / "out" / "certificate.json") == certificate
    assert open_engine(tmp_path / "out", NAME, "cpu").model.config == model.model.config


@pytest.mark.parametrize("name", rows(REFUSED, 9))
def test_what_its_specs_cannot_say_is_refused_by_field(tmp_path, name):
    with pytest.raises(ConfigError, match="ctranslate2 cannot represent model") as caught:
        export_ctranslate2(built(name), tmp_path / "out")
    assert set(re.findall(r"model\.(\w+) =", str(caught.value))) == {*REFUSED[name][1].split()}
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
            write_folder(model, tmp_path, NAME, dtype)
    folder = tmp_path / "out" / "sublayer.json"
    folder.write_text(folder.read_text().replace('"int8"', '"float16"'))
    with pytest.raises(ConfigError, match="computes no float16"):
        open_engine(tmp_path / "out", NAME, "cpu")


def test_outputs_of_other_weights_are_refused(tmp_path):
    model = built("gpt2")
    write_folder(model, tmp_path, NAME)
    with torch.no_grad():
        model.model.embedding.weight.mul_(1.1)
    with pytest.raises(CheckpointError, match="logits differ from ctranslate2's by"):
        certify(model, tmp_path, NAME, "float32")


def test_every_id_has_one_name():
    assert token_names(ByteTokenizer(), 258)[-2:] == ["<256>", "<257>"]
    assert token_names(ByteTokenizer(), 256)[97:99] == ["a", "b"]
    assert token_names(None, 3) == ["<0>", "<1>", "<2>"]
    assert token_names(CharacterTokenizer("a▁ b"), 6)[1:] == ["a", "▁", "▁<3>", "b", "<5>"]


@torch.inference_mode()
def test_beams_of_the_engine(tmp_path):
    """Search as ours does: hypotheses, scores by either rule, lengths, several at a time."""
    for name in ("marian", "t5"):
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


@torch.inference_mode()
def test_documents_of_a_row_are_read_apart(tmp_path):
    model = built("segments")
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


def test_an_export_needs_the_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(DataError, match=re.escape("pip install 'sublayer[ctranslate2]'")):
        export_ctranslate2(built("gpt2"), tmp_path / "refused")
