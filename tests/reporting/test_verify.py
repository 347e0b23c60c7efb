"""Sealed plans, and what `report --verify` says of folders that were altered."""

import hashlib
import json
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from sublayer.cli import main as cli
from sublayer.cli.studies import DEVIATES
from sublayer.errors import ConfigError
from sublayer.reporting.files import report_again, report_study
from sublayer.reporting.verify import _differing, _settings, verify_study
from tests.study.studies import copied, read_results

RUN = "arms/1-shared/seed-1"


def in_json(name: str, alter):
    def altered(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        alter(content)
        (folder / name).write_text(json.dumps(content))

    return altered


def in_plan(alter, *, is_sealed_again: bool = False):
    def altered(folder: Path) -> None:
        content = tomllib.loads((folder / "study.toml").read_text())
        alter(content)
        if is_sealed_again:  # as the page on verdicts says that the hash is made
            [seal] = content["seals"]
            del seal["hash"]
            text = json.dumps(seal, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            seal["hash"] = hashlib.sha256(text.encode()).hexdigest()
        (folder / "study.toml").write_text(tomli_w.dumps(content, multiline_strings=True))

    return altered


def alter_item(folder: Path, by: float = 0.0) -> None:
    path = folder / RUN / "items.npz"
    with np.load(path) as file:
        arrays = dict(file)
    nats = arrays["windows/nats"]
    nats[[0, 1]] = nats[[1, 0]] + by  # the sum of all stays as it was, or not
    np.savez_compressed(path, **arrays)


def alter_margin(plan) -> None:
    plan["asked"]["margin"] = 1e-3
    plan["about"]["question"]["margin"] = "0.001 bits per byte"


def alter_margin_and_seal(plan) -> None:
    alter_margin(plan)
    plan["seals"][0]["plan"]["margin"] = plan["asked"]["margin"]
    plan["seals"][0]["plan"]["margin_stated"] = plan["about"]["question"]["margin"]


def alter_recipe(plan) -> None:
    recipes = plan["asked"]["recipes"]
    recipes["shared"] = recipes["shared"].replace("batch_sequences = 2", "batch_sequences = 4")


def remove_seals(folder: Path) -> None:
    for path in folder.rglob("inputs.json"):
        in_json(path.name, lambda began: began.pop("plan"))(path.parent)
    in_plan(lambda plan: plan.pop("seals"))(folder)


RESULTS = {"results altered"}
RESEALED = {"plan sealed again", "results of another plan", "report of another plan"}
ALTERED = [
    (alter_item, {"item altered"}),
    (lambda folder: alter_item(folder, 20.0), {"item altered", *RESULTS}),
    (in_plan(alter_margin), {"margin altered", *RESULTS}),
    (in_plan(alter_margin_and_seal, is_sealed_again=True),
     {"margin altered and plan sealed again", *RESULTS, *RESEALED} - {"plan sealed again"}),
    (in_plan(lambda plan: plan["seals"][0].update(date="2020-01-01"), is_sealed_again=True),
     RESEALED),
    (in_plan(lambda plan: plan["seals"][0]["plan"].update(level=0.5)),
     {"seal altered", "level altered"}),
    (in_plan(lambda plan: plan.pop("seals")),
     {"seal removed", "results of another plan"}),
    (remove_seals, {"not sealed", "results of another plan", "run altered"}),
    (in_plan(alter_recipe), {"arms altered"}),
    (in_plan(lambda plan: plan.update(planned_seeds=2)), {"seeds altered", *RESULTS}),
    (in_plan(lambda plan: plan["about"].update(metric="loss")),
     {"primary metric altered", *RESULTS}),
    (in_plan(lambda plan: plan["inputs"]["wide"][0].update(digest="0" * 64)), {"texts altered"}),
    (in_json(f"{RUN}/record.json", lambda record: record["plan"].update(code="0")),
     {"code altered"}),
    (in_json(f"{RUN}/inputs.json", lambda began: began["plan"]["plan"].update(margin=1.0)),
     {"plan of a run altered"}),
    (in_json(f"{RUN}/test.json", lambda test: test.update(bits_per_byte=1.0)),
     {"score altered", *RESULTS}),
    (in_json("results.json", lambda it: it["differences"][0].update(verdict="better")), RESULTS),
    (lambda folder: shutil.rmtree(folder / RUN), {"run missing", *RESULTS}),
    (lambda folder: shutil.copytree(folder / RUN, folder / "arms/1-shared/seed-7"),
     {"run added", "run altered"}),
]  # fmt: skip


@pytest.mark.parametrize("alter, kinds", ALTERED)
def test_every_alteration_is_found_and_named(studies, settings, capsys, alter, kinds):
    folder = copied(studies.asked(), "moved")
    alter(folder)
    capsys.readouterr()
    assert cli.main(["report", "--verify", str(folder), "--json"]) == DEVIATES
    found = json.loads(capsys.readouterr().out)
    assert {each["kind"] for each in found["deviations"]} == kinds and not found["follows"]
    assert all(each["where"] and each["what"] for each in found["deviations"])


def test_an_unfinished_study_deviates_in_nothing_and_says_how_to_go_on(studies, settings, capsys):
    folder = copied(studies.asked(), "begun")
    (folder / "results.json").unlink()
    shutil.rmtree(folder / RUN)
    n_runs = len(list(folder.glob("arms/*/seed-*")))
    assert cli.main(["report", "--verify", str(folder)]) == cli.MISTAKE
    told = capsys.readouterr().err
    # Where this test made the study, its folder is left out.
    command = tomllib.loads((folder / "study.toml").read_text())["command"].rpartition("&& ")[2]
    assert f"{n_runs} of {n_runs + 1} planned runs" in told and command in told

    def add_seeds(plan) -> None:
        plan["seals"][0]["plan"].update(seeds=[0, 1, 2, 3, 4])

    added = copied(studies.plain(), "added")
    in_plan(add_seeds, is_sealed_again=True)(added)
    command = tomllib.loads((added / "study.toml").read_text())["command"]
    with pytest.raises(ConfigError, match="has not ended") as refused:
        verify_study(added)
    assert command in str(refused.value)


def test_changes_of_an_entry_are_told_by_its_whole_name_and_a_text_of_one_side_is_one():
    of_one, of_both = ({"data": {"path": dict.fromkeys(names, 1.0)}} for names in ("a", "ab"))
    assert list(_settings(of_one, of_both))
    arms = [{"name": name, "mean": 1.0, "values": [1.0]} for name in ("lr=0.1 wide", "lr=0.2")]
    others = [{**arm, "mean": 2.0, "values": [2.0]} for arm in arms]
    entries = [where[0] for where, *_ in _differing({"arms": arms}, {"arms": others})]
    assert entries == ["arms[lr=0.1 wide]"] * 2 + ["arms[lr=0.2]"] * 2


@pytest.mark.parametrize("name", ["asked", "plain", "failed", "tuned", "decided"])
def test_results_of_every_kind_of_study_follow_from_plan_and_items(studies, settings, name):
    verified = verify_study(copied(getattr(studies, name)(), "moved"))
    assert verified.follows and verified.values and verified.hash, verified.deviations


def test_more_seeds_are_an_addition_and_earlier_studies_stay_unsealed(studies, settings, capsys):
    folder = copied(studies.decided(), "decided")
    shutil.copytree(studies.tuned(), "tuned")
    before = tomllib.loads(Path("tuned/study.toml").read_text())["seals"]
    report_study(*studies.as_tuned(Path("tuned"), seeds=3, jobs=2))
    first, second = tomllib.loads(Path("tuned/study.toml").read_text())["seals"]
    assert [first] == before and second["former"] == first["hash"]
    began = json.loads(next(Path("tuned").glob("arms/*/*/seed-4/inputs.json")).read_text())
    assert began["plan"] == second
    assert cli.main(["report", "--verify", "tuned"]) == cli.DONE
    assert "seeds 2, now 2 to 4" in capsys.readouterr().out
    assert read_results(Path("tuned"))["plan"]["hash"] == first["hash"]
    remove_seals(folder)
    report_study(*studies.as_decided(folder))
    report_again(folder)
    page = (folder / "report.html").read_text()
    assert "</strong> not sealed; the comparison was begun by" in page
    assert read_results(folder)["plan"] is None
    assert cli.main(["report", "--verify", str(folder)]) == DEVIATES
    for words, message in ((["--out", "a.html"], "leave out --out"), ([], "is a run")):
        run = next(folder.glob("arms/*/seed-0"))
        assert cli.main(["report", "--verify", str(run), *words]) == cli.MISTAKE
        assert message in capsys.readouterr().err
