"""What harnesses ask of a decoder: equal to reading every text alone, token by token."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

import sublayer
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import ConfigError
from sublayer.evaluation.requests import Requests
from sublayer.model.build import build
from sublayer.model.model_folder import save_model

CONTEXT = 12
LONG = "a prompt that is longer than all of the context"
PAIRS = [("the cat", " sat"), ("the cat", " ran"), ("", "on the mat"), (LONG, " and so on")]


def model_of(kind):
    fields = {} if kind == "lstm" else {"n_heads": 2}
    config = ModelConfig(kind=kind, n_layers=1, d_model=8, **fields)
    model = build(resolve_model(config, vocab_size=256, context=CONTEXT), seed=0).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.5, generator=generator)
    model.tokenizer = train_tokenizer("bytes", ())
    return model


@torch.no_grad()
def log_p(model, ids, first):
    """Read each token behind at most the context, one at a time."""
    total, is_greedy = 0.0, True
    for place in range(first, len(ids)):
        logits = model(torch.tensor([ids[:place]])).logits[0, -1].log_softmax(-1)
        total += float(logits[ids[place]])
        is_greedy = is_greedy and int(logits.argmax()) == ids[place]
    return total, is_greedy


@pytest.mark.parametrize("kind", ["decoder", "lstm"])
def test_continuations_are_scored_as_one_by_one(kind):
    model = model_of(kind)
    requests = Requests(model, CONTEXT, "it")
    greedy = int(model(torch.tensor([list(b"the cat")])).logits[0, -1].argmax())
    assert greedy < 128, "its text is one token"
    pairs = [*PAIRS, ("the cat", chr(greedy))]
    for (prompt, text), found in zip(pairs, requests.likelihoods(pairs), strict=True):
        ids = list((prompt + text).encode())
        first = len(prompt.encode()) or 1  # bytes mark no end of a document
        # What the context holds, the last token not being read.
        cut = max(0, len(ids) - 1 - CONTEXT)
        expected, is_greedy = log_p(model, ids[cut:], first - cut)
        assert found == (pytest.approx(expected, abs=1e-9), is_greedy)


def test_whole_texts_have_every_token_once_and_a_full_last_window():
    model, text = model_of("decoder"), "it was a long text of bytes"
    ids = list(text.encode())
    # 26 tokens behind the first: 12, 12, and 2 that are read behind ten others.
    expected = sum(
        log_p(model, ids[start : stop + 1], first - start)[0]
        for start, first, stop in ((0, 1, 12), (12, 13, 24), (14, 25, 26))
    )
    found = Requests(model, CONTEXT, "it").wholes([text, "a"])
    assert found == [pytest.approx(expected, abs=1e-9), 0.0]


def test_a_prompt_is_continued_up_to_a_stop():
    model = model_of("decoder")
    requests = Requests(model, CONTEXT, "it")
    ids = list(b"the cat")
    for _ in range(5):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    whole = bytes(ids[7:]).decode(errors="replace")
    assert requests.written("the cat", {"max_gen_toks": 5, "until": []}) == whole
    stopped = requests.written("the cat", {"max_gen_toks": 5, "until": [whole[2]]})
    assert stopped == whole[: whole.index(whole[2])]
    for prompt, settings, message in (("the cat", {"beams": 2}, "beams"), ("", {}, "empty")):
        with pytest.raises(ConfigError, match=message):
            requests.written(prompt, settings)


def test_the_harness_asks_a_saved_model(tmp_path, monkeypatch):
    model = model_of("decoder").float()
    save_model(tmp_path / "model", model, {"tokenizer.json": model.tokenizer.serialize()})
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", None)
    with pytest.raises(ConfigError, match=r"sublayer\[harness\]"):
        sublayer.harness_model(tmp_path / "model")
    stand_in = ModuleType("lm_eval.api.model")
    stand_in.LM = type("LM", (), {})
    for name in ("lm_eval", "lm_eval.api"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", stand_in)
    harness = sublayer.harness_model(tmp_path / "model", device="cpu")
    assert isinstance(harness, stand_in.LM)
    requests, settings = Requests(model, CONTEXT, "it"), {"until": ["\n"], "max_gen_toks": 3}
    asked = [SimpleNamespace(args=pair) for pair in PAIRS]
    assert harness.loglikelihood(asked) == requests.likelihoods(PAIRS)
    texts = [SimpleNamespace(args=("some text",))]
    assert harness.loglikelihood_rolling(texts) == requests.wholes(["some text"])
    prompts = [SimpleNamespace(args=("the cat", settings))]
    assert harness.generate_until(prompts) == [requests.written("the cat", settings)]
    assert harness.tokenizer_name == model.tokenizer.fingerprint
