"""What ``evaluate``, ``inspect`` and ``export`` make of a translator and of its checkpoints."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from sublayer.errors import ConfigError
from sublayer.interop.huggingface.exchange import read_huggingface
from sublayer.loading import load
from sublayer.training.metrics import METRICS, read_metrics
from tests.commands.results import Result, Sublayer
from tests.commands.translate.corpus import write_lines

MEASURES = ("bleu", "sacrebleu", "chrf")


def evaluate_test(sublayer: Sublayer, run: Path, *options: object) -> Result:
    return sublayer("evaluate", run, "--split", "test", *options)


def checkpoints(run: Path) -> list[Path]:
    """Return the folders of a run's checkpoints, the oldest first."""
    return sorted((run / "checkpoints").glob("step-*"))


def test_a_run_is_scored_on_its_own_splits(sublayer: Sublayer, translator: Path) -> None:
    found = evaluate_test(sublayer, translator, "--json").found()
    for name in MEASURES:
        assert 30 < found[name] <= 100
    words = "nrefs:1|case:mixed|eff:no|tok:none|smooth:none|version:"
    assert found["signature"]["bleu"].startswith(words)
    assert len(found["translations"]) == found["lines"]
    assert re.search(r"^chrF of text ", evaluate_test(sublayer, translator).out, re.MULTILINE)
    split = evaluate_test(sublayer, translator, "--compounds").out
    assert "BLEU, compounds split" in split
    assert split.splitlines()[-1].startswith("with compounds split BLEU is inflated")


def test_a_run_is_tested_against_another_and_against_a_file(
    sublayer: Sublayer, translator: Path, tmp_path: Path
) -> None:
    earliest = checkpoints(translator)[0]
    found = evaluate_test(sublayer, translator, "--against", earliest, "--json").found()
    alone = evaluate_test(sublayer, earliest, "--json").found()
    against_run = found["against"]["measures"]
    for name in MEASURES:
        paired = against_run[name]
        assert paired["value"] == pytest.approx(found[name])
        assert paired["other"] == pytest.approx(alone[name])
        assert 0 < paired["p_randomisation"] <= 1
        assert "p_bootstrap" not in paired
    theirs = tmp_path / "theirs.de"
    write_lines(theirs, alone["translations"])
    found = evaluate_test(sublayer, translator, "--against", theirs, "--json").found()
    of_text = {name: against_run[name] for name in ("sacrebleu", "chrf")}
    assert found["against"]["measures"] == of_text
    shown = evaluate_test(sublayer, translator, "--against", theirs).out
    assert f"against {theirs}" in shown
    assert "randomisation" in shown


def test_the_best_checkpoint_is_that_of_the_best_greedy_translations(
    sublayer: Sublayer, translator: Path
) -> None:
    lines = read_metrics(translator / METRICS)
    bleu = {line["step"]: line["bleu"] for line in lines if line["kind"] == "valid"}
    highest = max(bleu.values())
    record = json.loads((translator / "record.json").read_text())
    best = record["valid"]
    first_best = max(bleu, key=lambda step: bleu[step])
    assert best["step"] == first_best
    assert best["bleu"] == highest > 0
    limits = ("--max-length-ratio", 2, "--max-length-offset", 10)
    greedy = sublayer("evaluate", translator, "--beam", 1, *limits, "--split", "valid", "--json")
    assert greedy.found()["bleu"] == pytest.approx(highest, abs=1e-9)


def test_the_newest_checkpoints_are_averaged(
    sublayer: Sublayer, translator: Path, tmp_path: Path
) -> None:
    parts = [load(path).state_dict() for path in checkpoints(translator)]
    averaged = load(translator, average=len(parts)).state_dict()
    for name, value in averaged.items():
        total = sum(part[name].double() for part in parts)
        mean = total / len(parts)
        assert (value - mean).abs().max() < 1e-6
    for command in (("evaluate", translator), ("export", translator, tmp_path / "out")):
        code, _, err = sublayer(*command, "--average", 9)
        assert code == 2
        assert "of which 9 cannot be averaged" in err


def test_a_best_checkpoint_that_is_old_is_not_averaged(translator: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(translator, run)
    third_newest = checkpoints(run)[-3]
    shutil.copytree(third_newest, third_newest.with_name("step-00000001"))
    assert load(run, average=3).state_dict().keys()
    with pytest.raises(ConfigError, match="has 3 newest checkpoint"):
        load(run, average=4)


def test_what_is_exported_may_be_averaged(
    sublayer: Sublayer, translator: Path, tmp_path: Path
) -> None:
    assert sublayer("export", translator, tmp_path / "one").code == 0
    assert sublayer("export", translator, tmp_path / "mean", "--average", 2).code == 0
    averaged = load(translator, average=2).state_dict()
    one = read_huggingface(tmp_path / "one").state_dict()
    mean = read_huggingface(tmp_path / "mean").state_dict()
    for name, value in averaged.items():
        assert torch.equal(mean[name], value)
    are_equal = [torch.equal(one[name], value) for name, value in averaged.items()]
    assert not all(are_equal)


def inspect_splitting(sublayer: Sublayer, run: Path, *options: object) -> dict[str, Any]:
    """Return what was measured of the run, and of what."""
    found = sublayer("inspect", "splitting", run, *options, "--json").found()
    measured: dict[str, Any] = found["runs"][0]
    return measured


def test_both_stacks_are_inspected_and_of_a_text_the_encoder(
    sublayer: Sublayer, translator: Path
) -> None:
    assert "whose blocks read two texts" in sublayer("inspect", "layers", translator).err
    encoder, decoder = inspect_splitting(sublayer, translator)["layers"]
    assert (encoder["stack"], encoder["layer"]) == ("encoder", 1)
    assert (decoder["stack"], decoder["layer"]) == ("decoder", 1)
    folder = translator.parent
    of_text = inspect_splitting(sublayer, translator, "--path", folder / "a.en")
    stacks = [layer["stack"] for layer in of_text["layers"]]
    assert stacks == ["encoder"]
    assert of_text["tokens"] > 300
    few = inspect_splitting(sublayer, translator, "--tokens", 20)
    assert 1 < few["tokens"] < 40


def test_tokens_are_followed_through_both_stacks_and_of_a_text_through_the_encoder(
    sublayer: Sublayer, translator: Path, tmp_path: Path
) -> None:
    found = sublayer("inspect", "paths", translator, "--json").found()["runs"][0]
    assert found["split"] == "valid"
    encoder, decoder = found["stacks"]
    assert (encoder["stack"], decoder["stack"]) == ("encoder", "decoder")
    assert [step["kind"] for step in decoder["steps"]][:3] == ["attention", "cross", "ffn"]
    lines = tmp_path / "lines"
    lines.write_text("\nthe cat sees a dog\nthe dog runs\n")
    found = sublayer("inspect", "paths", translator, "--path", lines, "--json").found()["runs"][0]
    assert (found["split"], found["sources"]) == (None, [str(lines)])
    (encoder,) = found["stacks"]
    assert encoder["stack"] == "encoder"
    # The first line that has tokens, and its end.
    assert len(encoder["tokens"]) == encoder["read"] >= 6
    assert encoder["tokens"][0].startswith("t")
    assert encoder["tokens"][-1] == "[SEP]"
