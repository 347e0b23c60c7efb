"""Metrics follow from sums over items, and a digest tells what was scored."""

import numpy as np
import pytest

from sublayer.evaluation.items import Digest, FromItems, Items, ItemTable

NATS = np.array([1.0, 2.0, 4.0])
COUNTS = np.array([[1, 0], [0, 250], [10, 250]], dtype=np.uint8)
TABLE = ItemTable("a thing", "", {"nats": NATS, "counts": COUNTS}, None)


def test_items_are_added_once_or_as_often_as_they_were_drawn() -> None:
    sums = TABLE.sums()
    # 250 + 250 does not fit into the type of the counts.
    assert (float(sums["nats"]), sums["counts"].tolist()) == (7.0, [11.0, 500.0])
    drawn = TABLE.sums(np.array([0, 3, 1]))
    assert (float(drawn["nats"]), drawn["counts"].tolist()) == (10.0, [10.0, 1000.0])
    for name, column in TABLE.sums(np.ones(3, dtype=np.int64)).items():
        assert np.array_equal(column, sums[name])


def test_a_metric_is_the_value_of_its_tables_sums() -> None:
    mean = FromItems("things", lambda sums: float(sums["nats"]) / 3)
    assert mean.of(Items("test", "", {"things": TABLE})) == pytest.approx(7 / 3)
    assert mean.of(Items("test", "", {"others": TABLE})) is None


def digest_of(*parts: object, names: tuple[str, ...] = ("windows",)) -> str:
    digest = Digest(*names)
    for part in parts:
        digest.add(part)  # type: ignore[arg-type]
    return digest.hexdigest()


def test_the_digest_is_of_numbers_and_not_of_their_type() -> None:
    ids = np.arange(300)
    before = digest_of(ids)
    for dtype in (np.uint16, np.int32, ">i8"):
        assert digest_of(ids.astype(dtype)) == before
    assert digest_of(range(300)) == before
    assert digest_of(ids[::-1]) != before
    assert digest_of(ids, names=("pairs",)) != before


def test_where_one_item_ends_is_part_of_the_digest() -> None:
    assert digest_of([1, 2], [3]) != digest_of([1], [2, 3])
    assert digest_of([1], []) != digest_of([1])


def test_a_long_text_has_the_digest_of_its_parts_read_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = np.arange(1000, dtype=np.uint16)
    before = digest_of(ids)
    monkeypatch.setattr("sublayer.evaluation.items._CHUNK", 7)
    assert digest_of(ids) == before
