"""Decoders of transformers, by class: in and out; the options of formats."""

import dataclasses

import pytest

from sublayer.api.run import export
from sublayer.errors import ConfigError
from sublayer.interop.exits import EXITS
from sublayer.interop.huggingface import export_huggingface
from tests.interop.folders import read_json
from tests.interop.test_classes import built


def test_a_class_is_named_or_refused_and_a_format_takes_only_its_options(tmp_path, monkeypatch):
    model, out = built("gpt2"), tmp_path / "exported"
    export_huggingface(model, out, "GPT2LMHeadModel")
    assert read_json(out / "config.json")["architectures"] == ["GPT2LMHeadModel"]
    for name, message in {
        "GPT-1": r"GPT-1.s class cannot represent model.d_ff = 5, model.norm_order = pre",
        "BERT": r"BERT's class cannot represent model.kind = decoder",
        "GPT-3": r"--class 'GPT-3' is not a known class: give GPT-2, GPT-1",
    }.items():
        with pytest.raises(ConfigError, match=message):
            export_huggingface(model, tmp_path / "refused", name)
    plain = dataclasses.replace(EXITS["transformers"], options=())
    monkeypatch.setitem(EXITS, "transformers", plain)
    with pytest.raises(ConfigError, match="class_name has no effect with to transformers"):
        export(tmp_path, tmp_path / "refused", class_name="GPT-2")
