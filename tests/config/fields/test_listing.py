import json
import re
import tomllib
from typing import Any

import pytest

from sublayer.config.architecture.feedforward import FFNS
from sublayer.config.fields.catalog import HEADINGS, TABLES, keys
from sublayer.config.fields.listing import FieldRow, field_rows, json_schema
from sublayer.config.layering.sources import FILE_ONLY, find_source, read_toml, shipped_recipes
from sublayer.config.optimizers.kinds import OPTIMIZERS
from tests.breadth import rows

PURE = (
    "_std",
    "base",
    "beta",
    "betas",
    "decay",
    "eps",
    "exponent",
    "first_position",
    "loss",
    "lr",
    "momentum",
    "norm",
    "penalty",
    "power",
    "ratio",
    "seed",
    "threshold",
    "weight",
)

"""Ends of the names of numbers that count nothing."""


def row(key: str) -> FieldRow:
    table, _, name = key.rpartition(".")
    return next(each for each in field_rows() if (each.table, each.name) == (table, name))


def test_every_field_is_listed_once_with_type_and_description():
    rows = field_rows()
    assert [".".join(filter(None, (each.table, each.name))) for each in rows] == [
        *HEADINGS,
        *keys(),
    ]
    assert all(each.description and each.type and each.default for each in rows)


@pytest.mark.parametrize("table", ["model", "optimizer"])
def test_a_table_lists_its_own_fields(table: str):
    assert {each.table for each in field_rows(table)} == {table}


def test_a_row_says_what_a_field_takes_and_when_it_counts():
    assert row("model.d_ff").default == "derived: 4 * d_model"
    assert row("model.d_ff").unit == "features"
    assert row("model.d_ff").used_when == "model.kind is not lstm; the block has an ffn entry"
    assert "macaron" in row("model.d_ff").set_by
    assert row("model.n_layers").type == "a whole number, at least 1, at most 1,000"
    assert row("model.norm").type == "one of layer, rms, none"
    assert row("model.rotary_base").used_when == "model.positions is rotary"
    assert row("train.tokens").default == "unset"
    assert row("model.share").used_when == "model.kind is not lstm"
    assert row("model.bias").used_when == ""


def said_by_kind(text: str, separator: str) -> dict[str, str]:
    """Return what a text such as ``sgd: 0.1, adam and adamw: 0.0003`` says of each kind."""
    said = {}
    for part in text.split(separator):
        kinds, _, words = part.partition(": ")
        said.update(dict.fromkeys(kinds.split(" and "), words))
    return said


def test_a_union_says_what_each_kind_takes():
    assert row("optimizer.kind").default == "'adamw'"
    assert row("optimizer.kind").type == f"one of {', '.join(OPTIMIZERS)}"
    said = row("optimizer.kind").description.rstrip(".")
    assert re.split(", | or ", said) == list(OPTIMIZERS)
    rates = said_by_kind(row("optimizer.lr").default, ", ")
    assert set(rates) == set(OPTIMIZERS)
    assert rates["sgd"] == "0.1"
    assert rates["adam"] == rates["adamw"] == "0.0003"
    assert rates["lamb"] == "0.00176"
    assert rates["adafactor"] == "0.01"
    assert re.match(r"optimizer\.kind is sgd\b", row("optimizer.momentum").used_when)
    decay = row("optimizer.weight_decay").description
    assert re.match("sgd and adam[^:]*: L2", decay)
    assert re.search("adamw and lamb[^:]*: Decoupled", decay)


def test_numbers_have_a_unit_or_are_pure():
    names = {row.name for row in field_rows() if "number" in row.type and not row.unit}
    assert [name for name in names if not name.endswith(PURE)] == []
    assert [end for end in PURE if not any(name.endswith(end) for name in names)] == []


def test_the_schema_describes_every_table_and_is_json():
    schema = json.loads(json.dumps(json_schema()))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(schema["properties"]) == {*FILE_ONLY, *HEADINGS, *TABLES}
    assert schema["additionalProperties"] is False
    model = schema["$defs"]["ModelConfig"]
    assert model["additionalProperties"] is False
    assert model["properties"]["ffn"]["enum"] == list(FFNS)
    assert "Unit: features." in model["properties"]["d_ff"]["description"]


def test_the_schema_has_only_the_keywords_of_its_draft():
    known = {
        "$schema",
        "$defs",
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "default",
        "description",
        "enum",
    }
    known |= {
        "exclusiveMaximum",
        "exclusiveMinimum",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
    }
    known |= {"prefixItems", "properties", "title", "type"}

    def keywords(node: object, is_schema: bool = True) -> set[str]:
        if isinstance(node, list):
            return set().union(*(keywords(each) for each in node))
        if not isinstance(node, dict):
            return set()
        names = set(node) if is_schema else set()
        for name, content in node.items():
            if not is_schema or name not in ("default", "enum", "const"):
                names |= keywords(
                    content, is_schema=not (is_schema and name in ("properties", "$defs"))
                )
        return names

    assert keywords(json_schema()) <= known


def test_a_union_table_may_leave_out_its_kind():
    optimizer = json_schema()["properties"]["optimizer"]
    assert len(optimizer["anyOf"]) == len(OPTIMIZERS)
    assert "discriminator" not in optimizer
    assert "required" not in json_schema()["$defs"]["SgdConfig"]


TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


def fits(value: Any, rule: dict[str, Any], schema: dict[str, Any]) -> bool:
    if "$ref" in rule:
        return fits(value, schema["$defs"][rule["$ref"].rpartition("/")[2]], schema)
    if "anyOf" in rule:
        return any(fits(value, each, schema) for each in rule["anyOf"])
    if rule.get("type") == "null" or not isinstance(value, TYPES[rule["type"]]):
        return False
    if "enum" in rule and value not in rule["enum"]:
        return False
    if "properties" in rule:
        known = rule["properties"]
        return all(
            name in known and fits(content, known[name], schema) for name, content in value.items()
        )
    return value >= rule.get("minimum", value) if isinstance(value, int | float) else True


@pytest.mark.parametrize("name", rows(shipped_recipes(), 3))
def test_every_shipped_recipe_fits_the_schema(name: str):
    schema = json_schema()
    assert fits(read_toml(find_source(name).path), schema, schema)


@pytest.mark.parametrize(
    "text", ["[model]\nn_layer = 3", "[model]\nffn = 'swigul'", "[optimizer]\nmomentum = 'a'"]
)
def test_the_schema_refuses_what_loading_refuses(text: str):
    schema = json_schema()
    assert fits({"model": {"n_layers": 3}}, schema, schema)
    assert not fits(tomllib.loads(text), schema, schema)


def test_the_list_of_fields_names_every_shipped_recipe():
    assert set(shipped_recipes()) == {name for each in field_rows() for name in each.set_by}
