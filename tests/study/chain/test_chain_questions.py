"""What a study with stages asks: a margin of its column, a hypothesis about its arms, looks."""

import json
import shutil

import pytest

from sublayer import cli
from sublayer.study.from_folder import results_of_folder
from tests.study.chain.chains import words, write_chain

SAYS = "Texts help as much as pre-training."
ARMS = [
    {"name": "full"},
    {"name": "no texts", "finetune": {"objective": {"language_weight": 0.0}}},
    {"name": "fresh", "pretrain": False},
    {"name": "neither", "pretrain": False, "finetune": {"objective": {"language_weight": 0.0}}},
]
CONTRAST = {"full": 1.0, "no texts": -1.0, "fresh": -1.0, "neither": 1.0}
QUESTION = {
    "arms": ARMS,
    "stages": [{"tasks": "sst2"}],
    "averages": {},
    "finetunings": 1,
    "margin": "99 points",
    "margin_reason": "for the test",
    "hypothesis": {"says": SAYS, "contrast": CONTRAST},
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chain")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
        yield write_chain(folder, **QUESTION)


@pytest.fixture(scope="module")
def done(study):
    out = study.parent / "out"
    assert cli.main(words(study, "--out", str(out))) == 0
    return out


@pytest.mark.slow
def test_a_chain_answers_its_hypothesis_within_its_margin(done):
    results = json.loads((done / "results.json").read_text())
    means = {arm["name"]: arm["mean"] for arm in results["arms"]}
    *others, found = results["differences"]
    assert [each["arm"] for each in others] == ["no texts", "fresh", "neither"]
    assert found["baseline"] == ""
    expected = sum(weight * means[arm] for arm, weight in CONTRAST.items())
    assert found["mean"] == pytest.approx(expected, abs=1e-9)
    assert (results["margin"], results["margin_reason"]) == (0.99, "for the test")
    assert results["hypothesis"] == {"says": SAYS, "arm": found["arm"], "baseline": ""}
    assert results["looks"] == [3]
    assert SAYS in (done / "report.html").read_text()
    again = results_of_folder(done)
    assert [each.mean for each in again.differences] == [
        each["mean"] for each in results["differences"]
    ]
    assert [each.verdict for each in again.differences] == [
        each["verdict"] for each in results["differences"]
    ]


@pytest.mark.slow
def test_a_chain_that_is_not_finished_has_no_verdict_yet(done, tmp_path):
    copy = shutil.copytree(done, tmp_path / "copy")
    shutil.rmtree(sorted(copy.glob("stages/sst2-*"))[0] / "seed-1000")
    results = results_of_folder(copy)
    assert {each.verdict for each in results.differences} == {"no verdict"}
    assert all(each.low is None for each in results.differences)
    assert any(each.mean is not None for each in results.differences)


@pytest.mark.slow
def test_a_chain_goes_on_with_the_margin_that_it_began_with(done, study, capsys):
    before = {path: path.stat().st_mtime_ns for path in done.rglob("*") if path.is_file()}
    assert cli.main(words(study, "--out", str(done), "--margin", "5 points")) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "was begun with a margin of 99, not a margin of 5" in said and "--margin 99" in said
    after = {path: path.stat().st_mtime_ns for path in done.rglob("*") if path.is_file()}
    # Another command holds the folder while it looks, and leaves nothing behind.
    assert {path for path in after if path.name[0] != "."} == {
        path for path in before if path.name[0] != "."
    }
    assert all(after[path] == before[path] for path in before if path.name[0] != ".")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"margin": "0.1 bits per byte"}, "told in points, not in bits per byte"),
        ({"margin": "-1 points"}, "margin = -1 points is not above 0"),
        (
            {"hypothesis": {"says": "x", "contrast": {"full": 1.0, "none": -1.0}}},
            "the hypothesis is about none, which is not an arm: there are full, no texts, fresh",
        ),
        (
            {"hypothesis": {"says": "x", "contrast": {"full": 1.0, "fresh": -2.0}}},
            "add up to -1: give arms weights that add up to 0",
        ),
        ({"also": ["rte"]}, "also = 'rte' is not"),
        ({"seeds": 2}, "--seeds 2 says too little of how far seeds spread"),
        ({"seeds": 1, "finetunings": 2}, "--finetunings 2 says too little of how far they spread"),
        ({"tune_finetune": {"optimizer.lr": [0.1, 0.2]}, "finetunings": 1000}, "between 1 and 999"),
    ],
)
def test_a_question_that_does_not_fit_a_chain_is_refused_before_anything_is_trained(
    changes, said, study, tmp_path, capsys
):
    path = write_chain(tmp_path, **{**QUESTION, **changes})
    out = tmp_path / "out"
    assert cli.main(words(path, "--out", str(out))) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert not list(out.glob("stages/*"))


@pytest.mark.parametrize(
    "words_of",
    [
        ["--until", "decided", "--seeds-at-most", "5"],
        ["--first-seed", "3"],
        ["--tuning-seeds", "2"],
        ["--extend", "1"],
    ],
)
def test_what_is_of_single_trainings_is_refused_of_a_chain(words_of, study, tmp_path, capsys):
    assert cli.main(words(study, *words_of, "--out", str(tmp_path / "out"))) == 2
    assert f"{words_of[0]} is of studies without stages" in capsys.readouterr().err
