"""Runs of any trainer, as tables, folders and arrays: what is read, refused and judged."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from tensorboardX import SummaryWriter

import sublayer
from sublayer.cli import main as cli
from sublayer.errors import DataError, SublayerError

SCORES = Path(__file__).parents[2] / "examples" / "scores"
SEEDS, ITEMS = 3, 72
VALUES = {
    arm: np.random.default_rng(7).normal(3.0, 0.1, (SEEDS, ITEMS))
    + np.random.default_rng(place).normal(-0.1 * place, 0.05, (SEEDS, ITEMS))
    for place, arm in enumerate(("base", "new"))
}
"""``[seed, item]`` by arm."""
RUNS = [*itertools.product(VALUES, range(SEEDS))]
MEANS = {arm: values.mean(1) for arm, values in VALUES.items()}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def rows(*columns, arms=VALUES):
    """Return the rows of a long table, of items where ``id`` is among its columns."""
    found = []
    for arm, seed, item in itertools.product(arms, range(SEEDS), range(ITEMS)):
        row = {"config": arm, "seed": seed, "id": item, "doc": item // 3, "step": 10}
        row |= {"loss": float(VALUES[arm][seed, item]), "run": f"{arm}_{seed}"}
        if "id" not in columns:
            row["loss"] = float(MEANS[arm][seed])
        if "id" in columns or item == 0:
            found.append({column: row[column] for column in columns})
    return found


def write(name, table):
    frame = pd.DataFrame(table)
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if ".json" in path.suffixes[0]:
        frame.to_json(path, orient="records", lines=path.suffix != ".json")
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if ".tsv" in name else ",")
    return str(path)


def write_ours():
    for arm, seed in RUNS:
        folder = Path(arm, f"seed-{seed}")
        folder.mkdir(parents=True)
        valid = {"step": 10, "bits_per_byte": MEANS[arm][seed]}
        (folder / "record.json").write_text(json.dumps({"valid": valid}))
    return list(VALUES)


def write_wandb():
    table = []
    for step in (5, 10):
        row = {"Step": step}
        for arm, seed in RUNS:
            value = MEANS[arm][seed] if step == 10 else 9.0
            row |= {f"{arm}-seed{seed} - loss{end}": value for end in ("", "__MIN", "__MAX")}
        table.append(row)
    return [write("wandb.csv", table)]


def write_events():
    for arm, seed in RUNS:
        with SummaryWriter(f"{arm}/version_{seed}") as writer:
            for step, value in ((5, 9.0), (10, MEANS[arm][seed])):
                writer.add_scalar("eval/loss", value, step)
    return ["base", "new", "--names", "{arm}/version_{seed}", "--value", "eval/loss"]


def write_harness():
    for arm, seed in RUNS:
        folder = Path("out", f"{arm}-seed{seed}")
        folder.mkdir(parents=True)
        text, same = "", {"doc": {"text": "\u2028"}, "filter": "none", "metrics": ["loss"]}
        for item, loss in enumerate(VALUES[arm][seed]):
            line = {"doc_id": item, "doc_hash": f"{item:064}", **same, "loss": loss}
            text += f"{json.dumps(line, ensure_ascii=False)}\n"
        (folder / "samples_mine_2026-11-29T03-09-35.456420.jsonl").write_text(text)
    return ["out"]


OF_RUNS = {
    "long": lambda: [write("a.csv", rows("config", "seed", "loss"))],
    "tsv, packed": lambda: [write("a.tsv.gz", rows("config", "seed", "loss"))],
    "JSON lines": lambda: [write("a.jsonl", rows("config", "seed", "loss"))],
    "parquet": lambda: [write("a.parquet", rows("config", "seed", "loss"))],
    "a file an arm": lambda: [
        *(write(f"{arm}/scores.csv", rows("seed", "loss", arms=[arm])) for arm in VALUES),
        *("--names", "{arm}/scores.csv"),
    ],
    "files of folders": lambda: [
        write(f"{arm}/seed{seed}.csv",
              [{"step": 5, "loss": 9}, {"step": 10, "loss": MEANS[arm][seed]}])
        for arm, seed in RUNS
    ],
    "arms as columns": lambda: [
        write("a.csv", {"seed": range(SEEDS), "": range(SEEDS), **MEANS}),
        *("--arm", "columns", "--lower-is-better"),
    ],
    "runs as columns": lambda: [
        write("a.csv", [{f"{arm}_{seed}": MEANS[arm][seed] for arm, seed in RUNS}]),
        *("--names", "{arm}_{seed}", "--lower-is-better"),
    ],
    "rows without a header": lambda: [
        *(str(np.savetxt(f"{arm}.csv", MEANS[arm]) or f"{arm}.csv") for arm in VALUES),
        *("--seed", "rows", "--lower-is-better"),
    ],
    "several steps": lambda: [
        write("a.csv", [{**row, "step": s, "loss": row["loss"] + 10 - s} for s in (5, 10)
                        for row in rows("config", "seed", "loss")]),
    ],
    "runs of this program": write_ours,
    "W&B": write_wandb,
    "TensorBoard": write_events,
}  # fmt: skip
OF_ITEMS = {
    "long": lambda: [write("a.csv", rows("config", "seed", "id", "loss"))],
    "quoted": lambda: [
        write("a.csv", [{**row, "note": 'a "word", two'} for row in
                        rows("config", "seed", "id", "loss")]),
        *("--value", "loss"),
    ],
    "seeds as columns": lambda: [
        *(write(f"{arm}.csv", {"id": range(ITEMS), **{f"seed{s}": own[s] for s in range(SEEDS)}})
          for arm, own in VALUES.items()),
        "--lower-is-better",
    ],
    "seeds × items": lambda: [
        *(str(np.savetxt(f"{arm}.csv", VALUES[arm], delimiter=",") or f"{arm}.csv")
          for arm in VALUES),
        *("--seed", "rows", "--item", "columns", "--lower-is-better"),
    ],
    "lm-evaluation-harness": write_harness,
}  # fmt: skip


def judged(words, capsys, *more):
    code = cli.main(["judge", *words, *more, "--json"])
    printed = capsys.readouterr()
    assert printed.out, printed.err
    found = json.loads(printed.out)
    assert code == found["exit_code"]
    return found


@pytest.mark.parametrize("name", OF_RUNS)
def test_runs_in_any_form_are_read_alike(name, capsys):
    found = judged(OF_RUNS[name](), capsys, "--margin", "0.5")
    assert [arm["name"] for arm in found["arms"]] == ["base", "new"]
    for arm in found["arms"]:
        assert arm["values"] == pytest.approx(list(MEANS[arm["name"]]), rel=1e-6)
    assert found["n_items"] is None and found["n_seeds"] == SEEDS


@pytest.mark.parametrize("name", OF_ITEMS)
def test_items_in_any_form_are_read_alike(name, capsys):
    found = judged(OF_ITEMS[name](), capsys)
    assert found["n_items"] == ITEMS
    for arm in found["arms"]:
        assert arm["values"] == pytest.approx(list(MEANS[arm["name"]]), rel=1e-6)
    frames = [pd.DataFrame(rows("seed", "id", "loss", arms=[arm])) for arm in VALUES]
    for given in (list(VALUES.values()), [VALUES], frames):
        asked = {} if given is frames else {"lower_is_better": True}
        [known], [same] = found["differences"], sublayer.judge(*given, **asked).comparisons
        assert same.low == pytest.approx(known["low"], rel=1e-6)


def test_two_runs_are_judged_over_items_as_a_paired_t_test_does(capsys):
    one = [write(f"{arm}.csv", rows("id", "loss", arms=[arm])[:ITEMS]) for arm in VALUES]
    found = judged(one, capsys)
    [difference] = found["differences"]
    expected = stats.ttest_rel(VALUES["new"][0], VALUES["base"][0])
    assert found["of_these_models"] and difference["p"] == pytest.approx(expected.pvalue, rel=0.02)
    ends = (difference["low"], difference["high"])
    assert ends == pytest.approx(expected.confidence_interval(), rel=0.01)


def test_the_verdict_is_the_exit_code(capsys):
    base, noise = np.arange(5) / 100, np.array([0.001, -0.002, 0.0, 0.002, -0.001])
    arms = {"base": base, "worse": base + 1 + noise, "same": base + noise}
    arms["better"] = base - 1 + noise
    table = [{"arm": arm, "seed": s, "loss": own[s]} for arm, own in arms.items() for s in range(5)]
    path = write("arms.csv", table)
    for words, code in (
        ("--margin 0.1", 0), ("--margin 0.1 --new same", 10), ("--new same", 11),
        ("--new worse", 12), ("--new better --higher-is-better", 12), ("--baseline better", 12),
        ("--new missing", 2),
    ):  # fmt: skip
        assert cli.main(["judge", path, *words.split()]) == code, words


def test_failed_runs_are_results_where_that_is_said(capsys):
    table = rows("config", "seed", "loss")
    table[-1]["loss"] = math.inf
    path = write("a.csv", table)
    assert cli.main(["judge", path]) == 2
    assert "line 7, column loss" in capsys.readouterr().err
    found = judged([path, "--nan-is-failed"], capsys)
    assert found["arms"][1]["failed"] == [False, False, True]
    assert found["differences"][0]["by_ranks"]


def test_seeds_and_items_of_all_are_judged_where_that_is_asked(capsys):
    table = [row for row in rows("config", "seed", "id", "loss") if row["id"] != 2 or row["seed"]]
    path = write("a.csv", [*table, {"config": "new", "seed": 9, "id": 0, "loss": 1.0}])
    assert cli.main(["judge", path]) == 2
    found = judged([path, "--common"], capsys)
    assert found["n_seeds"] == SEEDS and found["n_items"] == ITEMS - 1
    assert sum("left out" in line for line in found["read"]) == 2


def test_a_comparison_and_its_records_are_judged_as_tables_are(capsys):
    record = SCORES.parents[1] / "records" / "gelu-swiglu"
    found = judged([str(record)], capsys)
    results = json.loads((record / "results.json").read_text())
    assert found["n_items"] and found["metric"] == results["metric"]
    for arm, known in zip(found["arms"], results["arms"], strict=True):
        assert arm["values"] == pytest.approx(known["values"])
    further = record.with_name("albert-sentence")
    of_arms = json.loads((further / "results.json").read_text())["arms"]
    by_loss = judged([str(further), "--value", "loss"], capsys)["arms"]
    for arm, known in zip(by_loss, of_arms, strict=True):
        assert arm["values"] == pytest.approx(known["further"]["loss"]["values"])
    first, *_ = results["arms"]
    pairs = zip(first["seeds"], first["values"], strict=True)
    table = [{"arm": "mine", "seed": seed, "bits_per_byte": value - 1} for seed, value in pairs]
    write_ours()  # whose values are of validation
    assert cli.main(["judge", str(record), "new"]) == 2
    mixed = judged([str(record), write("mine.csv", table)], capsys, "--new", "mine")
    assert mixed["verdict"] == "better" and mixed["n_items"] is None


@pytest.mark.parametrize("suffix, found", [
    (".html", "new is better than base"), (".csv", "difference,new,base,,-"),
    (".md", "| new | "), (".tex", r"\begin{tabular}{lrrrrr}"),
])  # fmt: skip
def test_a_verdict_is_written_as_a_page_and_as_tables(suffix, found, capsys):
    words = [str(SCORES / "base.csv"), str(SCORES / "new.csv")]
    words += ["--html" if suffix == ".html" else "--table", f"out{suffix}"]
    assert cli.main(["judge", *words]) == 0
    assert found in Path(f"out{suffix}").read_text()
    assert cli.main(["judge", *words]) == 2  # nothing is overwritten
    if suffix == ".csv":
        capsys.readouterr()
        assert cli.main(["judge", "out.csv"]) == 0
        said = capsys.readouterr().out
        assert "not used: rows of differences" in said and found.split(",")[1] in said


@pytest.mark.parametrize("metric", ["p", "low"])
def test_numbers_stay_in_their_columns_where_a_metric_has_the_name_of_another(metric, capsys):
    path = write("a.csv", [{**row, metric: row.pop("loss")} for row in
                           rows("config", "seed", "loss")])  # fmt: skip
    found = judged([path, "--lower-is-better", "--value", metric, "--table", "b.csv"], capsys)
    lines = [line.split(",") for line in Path("b.csv").read_text().splitlines()]
    of_runs = [cells for cells in lines if cells[0] == "run"]
    assert [float(cells[4]) for cells in of_runs] == [v for arm in found["arms"]
                                                      for v in arm["values"]]  # fmt: skip
    assert all(cells[5:] == [""] * 4 for cells in of_runs)
    [difference], [known] = lines[-1:], found["differences"]
    numbers = [known[name] for name in ("mean", "low", "high", "p")]
    assert list(map(float, difference[4:8])) == pytest.approx(numbers)


def test_a_seed_without_items_is_refused_by_name_and_a_blank_step():
    row = list(MEANS["base"])
    with pytest.raises(DataError, match="a, seed 0"):
        sublayer.judge({arm: [[], row, row, row] for arm in "ab"}, lower_is_better=True)
    table = rows("config", "seed", "step", "loss")
    table[1]["step"] = None
    with pytest.raises(DataError, match="different steps"):
        sublayer.judge(table)


def test_binary_names_of_parquet_are_texts(capsys):
    table = [{**row, "config": row["config"].encode()} for row in rows("config", "seed", "loss")]
    found = judged([write("a.parquet", table)], capsys)
    assert [arm["name"] for arm in found["arms"]] == list(VALUES)


def test_a_nested_model_comes_after_the_one_that_it_lies_in(capsys):
    write_harness()
    for name in ("base-seed0", "base-seed0/a-seed0"):
        Path("model", name).parent.mkdir(parents=True, exist_ok=True)
    Path("out/base-seed0").rename("model/base-seed0")
    Path("out/new-seed0").rename("model/base-seed0/a-seed0")
    words = ["judge", "model", "--lower-is-better", "--names", "{arm}-seed{seed}"]
    cli.main([*words, "--json"])
    assert json.loads(capsys.readouterr().out)["baseline"] == "base"


def test_a_damaged_file_is_named_with_the_place_of_its_damage(capsys):
    sample = min(Path(*write_harness()).glob("*/samples_*"))
    sample.write_text('{"doc_id": 0, "metrics": 3}\n')
    Path("study").mkdir()
    Path("study/results.json").write_text("{}")
    Path("whole.json").write_text('[\n{"a": 1},\n{"a" 1}]')
    named = [{"config": ["x"] if n == 2 else "x", "seed": n, "loss": 1.0} for n in range(4)]
    Path("lists.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in named))
    for path, place in {
        "out": str(sample), "study": "study/results.json", "whole.json": "line 3 column 6",
        "lists.jsonl": "line 3",
    }.items():  # fmt: skip
        assert cli.main(["judge", path]) == 2
        assert place in capsys.readouterr().err


def test_what_an_option_cannot_name_is_said(capsys):
    path = write("a.csv", rows("config", "seed", "loss"))
    assert cli.main(["judge", path, "--seed", "files"]) == 2
    assert "--names" in capsys.readouterr().err
    sample = min(Path(*write_harness()).glob("*/samples_*"))
    sample.write_text('{"doc_id": 0}\n')
    assert cli.main(["judge", "out"]) == 2
    told = capsys.readouterr().err
    assert "--value" in told and "one of them" not in told


@pytest.mark.parametrize("scores", [
    [[1.0, 2.0, 3.0]], [{"a": [1.0, 2.0, 3.0]}], [[1.0, "2", 3.0], [1.0, 2.0, 3.0]],
    [], [{}], [[10**400] * 3] * 2, [MEANS["base"], "a.csv"], [pd.DataFrame(), [1.0]],
    [pd.Series([1.0, 2.0, 3.0], index=range(at, at + 3)) for at in (0, 1)],
    [[], []], [[1.0, 2.0, 3.0], [1.0, 2.0]], [[1.0], [2.0]], [[[1.0] * 9] * 3, [1.0, 2.0, 3.0]],
])  # fmt: skip
def test_arrays_without_a_verdict_are_refused(scores):
    with pytest.raises(SublayerError):
        sublayer.judge(*scores, lower_is_better=True)


@pytest.mark.parametrize("options", [
    {"margin": "0.1"}, {"look": 1.0, "looks": 2.5}, {"lower_is_better": "no"}, {"value": 3},
    {"common": "no"}, {"names": "{arm}"}, {"task": "arc"},
])  # fmt: skip
def test_options_of_another_type_or_without_effect_are_refused(options):
    with pytest.raises(SublayerError):
        sublayer.judge(*VALUES.values(), **{"lower_is_better": True, **options})
