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
PAIRS = [
    ("the cat", " sat"),
    ("the cat", " ran"),
    ("", "on the mat"),
    ("a prompt that is longer than all of the context", " and so on"),
]


def model_of(kind: str):
    fields = {} if kind == "lstm" else {"n_heads": 2}
    config = resolve_model(
        ModelConfig(kind=kind, n_layers=1, d_model=8, **fields), vocab_size=256, context=CONTEXT
    )
    model = build(config, seed=0).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.5, generator=generator)
    model.tokenizer = train_tokenizer("bytes", ())
    return model


@torch.no_grad()
def log_p(model, ids: list[int], first: int) -> tuple[float, bool]:
    """Read each token behind at most the context, one at a time."""
    total, is_greedy = 0.0, True
    for place in range(first, len(ids)):
        before = torch.tensor([ids[:place]])
        logits = model(before).logits[0, -1].log_softmax(-1)
        total += float(logits[ids[place]])
        is_greedy = is_greedy and int(logits.argmax()) == ids[place]
    return total, is_greedy


@pytest.mark.parametrize("kind", ["decoder", "lstm"])
def test_continuations_are_scored_as_one_by_one(kind: str):
    model = model_of(kind)
    requests = Requests(model, CONTEXT, "it")
    greedy = requests.written("the cat", {"max_gen_toks": 1}).encode()
    pairs = [*PAIRS, ("the cat", chr(greedy[0]))] if len(greedy) == 1 else PAIRS
    found = requests.likelihoods(pairs)
    for (prompt, text), (value, is_greedy) in zip(pairs, found, strict=True):
        ids = list((prompt + text).encode())
        first = len(prompt.encode()) or 1  # bytes mark no end of a document
        # What the context holds, the last token not being read.
        cut = max(0, len(ids) - 1 - CONTEXT)
        expected, expected_greedy = log_p(model, ids[cut:], first - cut)
        assert value == pytest.approx(expected, abs=1e-9)
        assert is_greedy == expected_greedy


def test_whole_texts_have_every_token_once_and_a_full_last_window():
    model = model_of("decoder")
    text = "it was a long text of bytes"
    ids = list(text.encode())
    n = len(ids)
    expected, first = 0.0, 1
    while first < n:
        stop = min(first + CONTEXT, n)
        start = max(0, min(first - 1, stop - 1 - CONTEXT))
        expected += log_p(model, ids[start:stop], first - start)[0]
        first = stop
    assert (n - 1) % CONTEXT, "the last window is not full by itself"
    assert Requests(model, CONTEXT, "it").wholes([text, "a"]) == [
        pytest.approx(expected, abs=1e-9),
        0.0,
    ]


def test_a_prompt_is_continued_up_to_a_stop():
    model = model_of("decoder")
    requests = Requests(model, CONTEXT, "it")
    ids = list(b"the cat")
    for _ in range(5):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    whole = bytes(ids[7:]).decode(errors="replace")
    assert requests.written("the cat", {"max_gen_toks": 5, "until": []}) == whole
    assert (
        requests.written("the cat", {"max_gen_toks": 5, "until": [whole[2]]})
        == (whole[: whole.index(whole[2])])
    )
    with pytest.raises(ConfigError, match="asks for beams"):
        requests.written("the cat", {"beams": 2})
    with pytest.raises(ConfigError, match="a prompt is empty"):
        requests.written("", {})


def test_the_harness_asks_a_saved_model(tmp_path, monkeypatch):
    model = model_of("decoder").float()
    save_model(tmp_path / "model", model, {"tokenizer.json": model.tokenizer.serialize()})
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", None)
    with pytest.raises(ConfigError, match="pip install 'sublayer\\[harness\\]'"):
        sublayer.harness_model(tmp_path / "model")
    stand_in = ModuleType("lm_eval.api.model")
    stand_in.LM = type("LM", (), {})
    for name in ("lm_eval", "lm_eval.api"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", stand_in)
    harness = sublayer.harness_model(tmp_path / "model", device="cpu")
    assert isinstance(harness, stand_in.LM)
    requests = Requests(model, CONTEXT, "it")
    asked = [SimpleNamespace(args=pair) for pair in PAIRS]
    assert harness.loglikelihood(asked) == requests.likelihoods(PAIRS)
    texts = [SimpleNamespace(args=("some text",))]
    assert harness.loglikelihood_rolling(texts) == requests.wholes(["some text"])
    prompts = [SimpleNamespace(args=("the cat", {"until": ["\n"], "max_gen_toks": 3}))]
    assert harness.generate_until(prompts) == [
        requests.written("the cat", {"until": ["\n"], "max_gen_toks": 3})
    ]
    assert harness.tokenizer_name == model.tokenizer.fingerprint
