"""Rows of files in, the same rows with their answers out."""

import csv
import io
import json

import pyarrow
import pyarrow.parquet
import pytest

from tests.commands.reviews import reviews, write_csv

ROWS = reviews(20, seed=7)
ADDED = ["prediction", "p_bad", "p_good"]


def table(text: str, delimiter: str = ",") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), delimiter=delimiter))


def test_answers_do_not_depend_on_the_batch(sublayer, reviewer, here):
    write_csv(here / "new.csv", ROWS)
    found = [table(sublayer("predict", reviewer, "new.csv", "--batch", n).out) for n in (1, 7, 64)]
    for row, *others in zip(*found, strict=True):
        for other in others:
            assert other["prediction"] == row["prediction"]
            assert float(other["p_good"]) == pytest.approx(float(row["p_good"]), abs=2e-6)


def test_bfloat16_answers_nearly_the_same(sublayer, reviewer, here):
    write_csv(here / "new.csv", ROWS)
    whole, rounded = (
        [float(row["p_good"]) for row in table(sublayer("predict", reviewer, *words).out)]
        for words in (("new.csv",), ("new.csv", "--precision", "bfloat16"))
    )
    assert rounded == pytest.approx(whole, abs=0.02)
    assert rounded != whole


def test_a_semicolon_stays_one_and_quotes_around_fields_too(sublayer, reviewer, here):
    rows = [{**ROWS[0], "note": 'say "a; b"\nand more'}, {**ROWS[1], "note": ""}]
    with (here / "new.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=";")
        writer.writeheader()
        writer.writerows(rows)
    found = table(sublayer("predict", reviewer, "new.csv").out, ";")
    assert [{name: row[name] for name in rows[0]} for row in found] == rows


def test_quotes_in_tsv_stay_text(sublayer, reviewer, here):
    review = 'The "great film" is superb.'
    (here / "new.tsv").write_text(f'review\tnote\n{review}\t"\n')
    lines = sublayer("predict", reviewer, "new.tsv").out.splitlines()
    assert lines[0].split("\t") == ["review", "note", *ADDED]
    assert lines[1].split("\t")[:3] == [review, '"', "good"]


@pytest.mark.parametrize("name", ["new.jsonl", "new.json"])
def test_json_keeps_its_values_and_has_probabilities_by_label(sublayer, reviewer, here, name):
    rows = [{"n": number, "tags": ["ü"], **row} for number, row in enumerate(ROWS)]
    text = "\n".join(json.dumps(row) for row in rows)
    (here / name).write_text(json.dumps(rows) if name == "new.json" else text)
    out = sublayer("predict", reviewer, name).out
    found = json.loads(out) if name == "new.json" else list(map(json.loads, out.splitlines()))
    for row, answered in zip(rows, found, strict=True):
        assert {key: answered[key] for key in row} == row
        assert answered["prediction"] == row["stars"]
        assert set(answered["probabilities"]) == {"bad", "good"}


def test_parquet_keeps_its_types(sublayer, reviewer, here):
    columns = {
        "review": [row["review"] for row in ROWS],
        "seen": pyarrow.array(range(20), pyarrow.int16()),
    }
    before = pyarrow.table(columns)
    pyarrow.parquet.write_table(before, here / "new.parquet")
    result = sublayer("predict", reviewer, "new.parquet", "--out", "answered.parquet")
    assert result.code == 0, result.err
    after = pyarrow.parquet.read_table(here / "answered.parquet")
    assert after.select(["review", "seen"]).equals(before)
    assert after["prediction"].to_pylist() == [row["stars"] for row in ROWS]
    assert after.schema.field("p_good").type == pyarrow.float64()


def test_a_row_without_a_text_is_kept_counted_and_not_answered(sublayer, reviewer, here):
    write_csv(here / "new.csv", [ROWS[0], {**ROWS[1], "review": " "}, ROWS[2]])
    result = sublayer("predict", reviewer, "new.csv")
    found = table(result.out)
    assert [row["prediction"] for row in found] == [ROWS[0]["stars"], "", ROWS[2]["stars"]]
    assert found[1]["review"] == " "
    assert found[1]["p_good"] == ""
    assert "not answered, for a text of theirs is empty: 1 of 3 rows" in result.err


def test_columns_that_are_there_are_not_taken(sublayer, reviewer, here):
    write_csv(here / "new.csv", [{**row, "prediction": "mine", "p_bad": "x"} for row in ROWS])
    found = table(sublayer("predict", reviewer, "new.csv").out)
    assert found[0]["prediction"] == "mine"
    assert found[0]["prediction_2"] == ROWS[0]["stars"]
    assert found[0]["p_bad"] == "x"


def test_a_column_may_be_called_otherwise(sublayer, reviewer, here):
    write_csv(here / "new.csv", [{"said": row["review"]} for row in ROWS])
    refused = sublayer("predict", reviewer, "new.csv")
    assert refused.code == 2
    assert "new.csv has no column 'review': it has said" in refused.err
    found = table(sublayer("predict", reviewer, "new.csv", "--text", "said").out)
    assert [row["prediction"] for row in found] == [row["stars"] for row in ROWS]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("review\n", "new.csv has no rows"),
        ("", "new.csv is empty"),
        ("review,film\na,b,c\n", "new.csv:2 has more than 2 fields"),
        ("review\n\xff", "is not UTF-8"),
    ],
)
def test_what_is_no_table_is_said(sublayer, reviewer, here, content, message):
    (here / "new.csv").write_bytes(content.encode("latin-1"))
    refused = sublayer("predict", reviewer, "new.csv")
    assert refused.code == 2
    assert message in refused.err
