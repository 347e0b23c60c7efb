"""Probes: what is asked of each example, and models that know all, nothing, or too little."""

import json
import shutil

import numpy as np
import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.probes.probe import Settings
from sublayer.evaluation.probes.scoring import ask, check_model, read_probes
from sublayer.evaluation.probes.table import PROBES
from sublayer.model.build import build
from sublayer.tasks.example import Example
from sublayer.tasks.registry import TASKS
from tests.breadth import rows

COLA = "a\t{label}\t\t{sentence}"


def write_tasks(folder):
    """Write small files of all probes' tasks, whose right answers a model can learn by heart."""

    def put(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    right = [f"the {n} came home early" for n in ("cat", "dog", "girl", "boy")]
    wrong = [f"early the home {n} came" for n in ("cat", "dog", "girl", "boy")]
    judged = [COLA.format(label=1, sentence=each) for each in right]
    judged += [COLA.format(label=0, sentence=each) for each in wrong]
    put(folder / "CoLA" / "train.tsv", "\n".join(judged) + "\n")
    put(folder / "CoLA" / "dev.tsv", "\n".join(judged[1:4] + judged[5:8]) + "\n")
    lines = ["sentence\tlabel", "a fine film\t1", "a dull film\t0", "a fine plot\t1"]
    lines += ["a dull plot\t0"]
    put(folder / "SST-2" / "dev.tsv", "\n".join(lines) + "\n")
    put(folder / "SST-2" / "train.tsv", "\n".join(lines) + "\n")
    passages = []
    for number, (animal, place) in enumerate((("cow", "barn"), ("fox", "wood"))):
        passages.append(
            {
                "id": f"middle{number}.txt",
                "article": f"The {animal} lives in the {place}.",
                "questions": [f"The {animal} lives in the _ .", f"Who lives in the {place}?"],
                "options": [["sea", place, "sky", "house"], ["ant", "bee", animal, "owl"]],
                "answers": ["B", "C"],
            }
        )
    put(
        folder / "race" / "race_dev_middle.jsonl",
        "".join(json.dumps(each) + "\n" for each in passages),
    )
    wsc = []
    text = "The cup fell on the rug because it was heavy."
    for noun, index, label in (("The cup", 0, True), ("the rug", 4, False)):
        wsc.append(
            {
                "text": text,
                "target": {
                    "span1_text": noun,
                    "span1_index": index,
                    "span2_text": "it",
                    "span2_index": 7,
                },
                "idx": len(wsc),
                "label": label,
            }
        )
    wsc.append({**wsc[0], "text": "The cup is here and I took it", "idx": 2})
    wsc[-1]["target"] = {**wsc[0]["target"], "span2_index": 7}
    put(folder / "WSC" / "val.jsonl", "".join(json.dumps(each) + "\n" for each in wsc))
    put(folder / "WSC" / "train.jsonl", "".join(json.dumps(each) + "\n" for each in wsc[:2]))
    dpr = "Ann told Eve that she won.\nshe\nAnn,Eve\nAnn\n\n"
    put(folder / "DPR" / "test.c.txt", dpr)
    put(folder / "DPR" / "train.c.txt", dpr)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tasks(tmp_path_factory.mktemp("probes"))


@pytest.fixture(scope="module")
def probes(folder):
    return read_probes(list(PROBES), str(folder))


def texts(probes) -> dict[str, list[tuple[str, str]]]:
    """Return the right prompt and text of each example, by probe."""
    found = {}
    for each in probes:
        own = []
        for example, queries in zip(each.items.examples, each.items.queries, strict=True):
            if each.probe.name == "cola":
                own += [(queries[0].prompt, queries[0].text)] if example.label else []
            else:
                query = queries[int(example.label or 0)]
                own.append((query.prompt, query.text))
        found[each.probe.name] = own
    return found


def test_queries_are_those_of_the_paper(probes) -> None:
    asked = texts(probes)
    assert asked["sst2"][0] == ("a fine film very", " positive")
    assert asked["race"][0] == ("The cow lives in the barn. The cow lives in the", " barn")
    assert asked["race"][1] == ("The cow lives in the barn. Who lives in the barn?", " cow")
    assert asked["winograd"][0] == (
        "The cup fell on the rug because the cup",
        " was heavy.",
    )
    assert asked["dpr"] == [("Ann told Eve that Ann", " won.")]
    [winograd] = [each for each in probes if each.probe.name == "winograd"]
    # What training and development both have is asked once; one row has no second candidate.
    assert winograd.items.left_out == {"its candidates are not two, of which one is right": 1}


def model_of(tokenizer, **fields):
    config = resolve_model(
        ModelConfig(**{"n_layers": 2, "d_model": 32, **_heads(fields), **fields}),
        vocab_size=tokenizer.vocab_size,
        context=64,
    )
    model = build(config, seed=0)
    model.tokenizer = tokenizer
    return model


def _heads(fields):
    return {} if fields.get("kind") == "lstm" else {"n_heads": 2}


@pytest.fixture(scope="module")
def words(folder):
    corpus = [path.read_bytes() for path in sorted(folder.glob("*/*"))]
    return train_tokenizer("bpe", corpus, vocab_size=400)


@pytest.mark.parametrize(("kind", "rate"), rows([("decoder", 5e-3), ("lstm", 2e-2)], 1))
def test_a_model_that_knows_the_answers_by_heart_scores_1(kind, rate, probes, words) -> None:
    model = model_of(words)
    if kind == "lstm":
        model = model_of(words, kind="lstm", n_layers=1, d_model=64)
    whole = {prompt + text: None for own in texts(probes).values() for prompt, text in own}
    ids = [torch.from_numpy(words.encode(row.encode()).astype(np.int64)) for row in whole]
    padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    targets = torch.nn.utils.rnn.pad_sequence([row[1:] for row in ids], True, -1)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(200):
        logits = model(padded[:, :-1]).logits.flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, targets.flatten(), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    scores = {each.name: each for each in ask(model, probes, 64)}
    assert {name: each.value for name, each in scores.items()} == pytest.approx(
        dict.fromkeys(PROBES, 1.0)
    )
    assert scores["sst2"].normalised == pytest.approx(0.5 / 0.432)
    assert scores["winograd"].normalised is None


def test_a_uniform_model_scores_at_chance(probes, words) -> None:
    model = model_of(words)
    with torch.no_grad():
        model.embedding.weight.zero_()  # of equal logits
    scores = {each.name: each for each in ask(model.eval(), probes, 64)}
    assert scores["cola"].value == 0.0 and scores["sst2"].value == 0.5
    assert scores["sst2"].normalised == 0.0


def test_the_threshold_is_chosen_by_the_training_part_alone(folder, words, tmp_path) -> None:
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    lines = (other / "CoLA" / "dev.tsv").read_text().splitlines()
    turned = [line.replace("\t1\t", "\tx\t").replace("\t0\t", "\t1\t") for line in lines]
    (other / "CoLA" / "dev.tsv").write_text(
        "\n".join(line.replace("\tx\t", "\t0\t") for line in turned) + "\n"
    )
    model = model_of(words).eval()
    [own] = ask(model, read_probes(["cola"], str(folder)), 64)
    [turned_score] = ask(model, read_probes(["cola"], str(other)), 64)
    assert own.notes[0] == turned_score.notes[0]
    assert turned_score.value == pytest.approx(-own.value)


def test_words_of_several_tokens_are_scored_whole_and_said(folder, words) -> None:
    settings = Settings(words=("uncommonly bad", "fine"))
    [score] = ask(model_of(words).eval(), read_probes(["sst2"], str(folder), settings), 64)
    assert any("'uncommonly bad' is" in note for note in score.notes)


def test_unknown_probes_and_missing_files_are_refused(folder, tmp_path) -> None:
    for names, said in ((["cola", "sst3"], "sst3 is no probe"), (["cola"] * 2, "named twice")):
        with pytest.raises(ConfigError, match=said):
            read_probes(names, str(folder))
    with pytest.raises(DataError, match="no files of CoLA"):
        read_probes(["cola"], str(tmp_path))
    (tmp_path / "CoLA").mkdir()
    shutil.copy(folder / "CoLA" / "dev.tsv", tmp_path / "CoLA")
    with pytest.raises(DataError, match="no training part of CoLA"):
        read_probes(["cola"], str(tmp_path))


def test_encoders_and_translators_predict_no_text(words) -> None:
    with pytest.raises(ConfigError, match="is an encoder, which predicts no text"):
        check_model(model_of(words, kind="encoder"), "runs/a")
    with pytest.raises(ConfigError, match="has no sentinels"):
        check_model(model_of(words, kind="encoder-decoder"), "runs/a")


def test_thresholds_equal_a_slow_search() -> None:
    rng = np.random.default_rng(3)
    probe = PROBES["cola"]
    assert probe.threshold is not None
    for _ in range(30):
        scores = np.round(rng.normal(size=12), 1)
        labels = rng.integers(0, 2, 12)
        examples = [
            Example(str(n), {"sentence": ""}, label=int(label)) for n, label in enumerate(labels)
        ]
        found = probe.threshold([[np.array([-each])] for each in scores], examples)

        def matthews(threshold: float, scores=scores, labels=labels) -> float:
            said = scores >= threshold
            if said.all() or not said.any() or labels.all() or not labels.any():
                return 0.0
            return float(np.corrcoef(said, labels)[0, 1])

        best = max(matthews(each) for each in [-np.inf, *scores])
        assert matthews(found) == pytest.approx(max(best, 0.0), abs=1e-12) or best < 0
    assert TASKS["cola"].metrics == ("matthews",)
