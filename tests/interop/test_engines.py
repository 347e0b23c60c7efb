"""Engines: commands answer by each as without, folders keep what ends a text, refusals by name."""

import json

import numpy as np
import pytest
import torch

import sublayer as package
from sublayer.api.run import export
from sublayer.data.tokenizers.base import CharacterTokenizer
from sublayer.decode.sample import GREEDY, continue_prompt
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.engines import export_engine, load_engine, open_engine
from sublayer.text_model import Generation, TextModel
from tests.encoders import random_model
from tests.interop.folders import read_json

LINES = ["the cat sat on a mat", "", "a dog", "rained all day long"]
ROWS = {
    "pair": ({"sentence1": "a dog runs", "sentence2": "a cat"},),
    "text": ({"sentence": "a dog runs"}, {"sentence": "the cat sat"}),
}


@pytest.fixture(scope="module", params=["ctranslate2", pytest.param("onnx", marks=pytest.mark.all)])
def engine(request):
    return request.param


@pytest.fixture(scope="module")
def exported(engine, made, tmp_path_factory):
    """Folders of runs for an engine, each written once, by their kind."""
    root = tmp_path_factory.mktemp(engine)

    def folder(kind):
        if not (root / kind).exists():
            export(made(kind), root / kind, to=engine)
        return root / kind

    return folder


def test_generate_continues_by_an_engine_as_without(engine, exported, made, sublayer):
    words = ("--prompt", "the ", "--tokens", 12, "--temperature", 0, "--json")
    for more in ((), ("--stop", "zz")):
        expected = sublayer("generate", made("causal"), *words, *more).found()["texts"]
        found = sublayer("generate", exported("causal"), *words, *more, "--engine", engine)
        assert found.found()["texts"] == expected
    shown = []
    asked = {"tokens": 12, "temperature": 0.0, "engine": engine}
    [text] = package.generate(exported("causal"), "the ", **asked, show=shown.append).texts
    assert "".join(shown) == f"the {text}" and [text] == expected
    drawn = package.generate(exported("causal"), "the ", tokens=5, n=3, top_k=4, engine=engine)
    assert len(drawn.texts) == 3
    converted = sublayer("generate", made("causal"), *words, "--engine", engine)
    assert converted.found()["texts"] == expected
    assert f"converted for {engine} in a temporary folder" in converted.err


def test_translate_finds_the_same_by_an_engine(engine, exported, made):
    runs = ((made("translation"), {}), (exported("translation"), {"engine": engine}))
    for beam in (1, 4):
        found = [package.translate(run, LINES, beam=beam, **by).texts for run, by in runs]
        assert found[0] == found[1]


def test_embed_gives_the_vectors_of_an_engine(engine, exported, made, sublayer, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(LINES))
    for run, name, by in (
        (made("masked"), "ours.npy", ()),
        (exported("masked"), "theirs.npy", ("--engine", engine)),
    ):
        assert sublayer("embed", run, lines, "--out", tmp_path / name, *by).code == 0
    vectors = [np.load(tmp_path / name) for name in ("ours.npy", "theirs.npy")]
    np.testing.assert_allclose(*vectors, atol=1e-4)


@pytest.mark.parametrize("kind", ROWS)
def test_predict_answers_by_an_engine_as_without(engine, exported, made, sublayer, tmp_path, kind):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS[kind]))
    task = ("--task", "sst2") if kind == "text" else ()
    ours, theirs = (
        [*map(json.loads, sublayer("predict", run, rows, *task, *by, "--json").out.splitlines())]
        for run, by in ((made(kind), ()), (exported(kind), ("--engine", engine)))
    )
    assert len(ours) == len(ROWS[kind])
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        assert all(
            other[name] == (pytest.approx(value, abs=1e-4) if isinstance(value, float) else value)
            for name, value in one.items()
        )


def test_a_text_ends_at_every_end_that_an_import_kept(engine, tmp_path):
    letters = CharacterTokenizer("".join(map(chr, range(97, 119))))
    fields = {"n_layers": 1, "d_model": 8, "n_heads": 2}
    generation = Generation((5,), {"top_k": 3}, {"default": "{{ messages }}"})
    model = TextModel(
        random_model(fields, 23, 24, dtype=torch.float32), letters, generation=generation
    )
    with torch.no_grad():
        # The letter e is an end, and likely.
        model.model.embedding.weight[5] *= 1.5
    export_engine(model, tmp_path / "out", name=engine)
    again = open_engine(tmp_path / "out", engine, "cpu")
    assert again.generation == generation and again.end_ids == {5}
    for stops in ([], ["zz"]):
        texts = [
            continue_prompt(each, tmp_path, "abc", GREEDY, n_tokens=18, stops=stops)
            for each in (model, again)
        ]
        assert texts[0][:2] == texts[1][:2]
        assert texts[0][1] < 18 and "e" not in texts[0][0][0]


MISTAKES = {
    "window exact has no effect with engine": ("generate", "causal", {"window": "exact"}),
    "bfloat16 has no effect with engine": ("generate", "causal", {"precision": "bfloat16"}),
    "slide beyond the context of 32: give tokens 29": ("generate", "causal", {"tokens": 40}),
    "needs a decoder": ("generate", "text", {}),
    "gives the states of an encoder, not of a decoder": ("embed", "causal", {}),
    "writes answers greedily, or by a beam": ("predict", "text", {"top_k": 2, "task": "sst2"}),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_what_an_engine_lacks_is_refused_by_name(engine, exported, message):
    command, kind, options = MISTAKES[message]
    given = "the " if command == "generate" else ["a dog"]
    with pytest.raises(ConfigError, match=message):
        getattr(package, command)(exported(kind), given, engine=engine, **options)


def test_a_folder_of_one_engine_is_not_anothers(engine, exported):
    with pytest.raises(ConfigError, match="--average 2 has no effect on"):
        load_engine(exported("causal"), engine, average=2)
    other = "onnx" if engine == "ctranslate2" else "ctranslate2"
    with pytest.raises(CheckpointError, match=f"is exported for {engine}: give --engine {engine}"):
        load_engine(exported("causal"), other)
    for ask in (package.load, lambda run: package.generate(run, "the ")):
        with pytest.raises(CheckpointError, match=f"exported for {engine}: give .*engine {engine}"):
            ask(exported("causal"))
    assert read_json(exported("causal") / "certificate.json")["checked"]
