"""fairseq's checkpoints with something wrong: one line of error, or a model; nothing is run."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sublayer.interop.fairseq.fairseq_file import read_checkpoint
from tests.at_length import at_length
from tests.interop import fairseq_checkpoints
from tests.interop.fairseq_checkpoints import (
    PLAIN,
    as_fork,
    as_newest,
    draw,
    save_fork,
    save_newest,
)
from tests.interop.test_hostile_folders import run

quiet = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
thorough = at_length(1000, suppress_health_check=[HealthCheck.function_scoped_fixture])


def nested() -> list[Any]:
    """Build a list that holds itself, and ten levels of a hundred times the list below."""
    value: list[Any] = []
    value.append(value)
    laughs: Any = "x"
    for _ in range(10):
        laughs = [laughs] * 100
    return [value, laughs]


TENSORS = [
    torch.zeros(3),
    torch.zeros(()),
    torch.zeros(0),
    torch.zeros(2, 2).to_sparse(),
    [torch.ones(2)],
]
VALUES = st.one_of(
    st.sampled_from(TENSORS),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    st.sampled_from(
        [0, -1, 1, 3, 2**31, 2**63, 10**12, 10**30, 10**5000, 0.5, "relu", "mish", (), {}, {1: 2}]
    ),
    st.lists(st.integers() | st.text(max_size=3), max_size=3),
)
FIELDS = [
    *sorted(vars(fairseq_checkpoints.settings(PLAIN))),
    *(
        "macaron",
        "activation_fn",
        "act_fn",
        "encoder",
        "decoder",
        "activation_dropout",
        "no_scale_embedding",
    ),
    *("source_lang", "layernorm_embedding", "quant_noise_pq"),
]


# What is read by its truth or compared, where a tensor is neither true nor equal.
COMPARED = ("macaron", "activation_fn", "act_fn", "activation_dropout", "adaptive_softmax_cutoff")


def check(place: Path, save: Callable[[Path], None]) -> None:
    """Import a checkpoint: a model, or one line of error and nothing left."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    save(place / "model.pt")
    code, err = run(
        "import", "fairseq", str(place / "model.pt"), "--out", str(place / "new" / "ours")
    )
    if code:
        assert code == 2, err
        assert err.strip().splitlines()[-1].startswith("error: "), err
        assert sorted(path.name for path in place.iterdir()) == ["model.pt"]


def with_settings(changes: dict[str, Any], is_old: bool) -> Callable[[Path], None]:
    weights, given = draw(PLAIN), fairseq_checkpoints.settings(PLAIN, **changes)
    if is_old:
        return lambda path: save_fork(path, as_fork(weights), given)
    return lambda path: save_newest(path, as_newest(weights), given)


@pytest.mark.parametrize("field", ["dropout", "lr", "macaron"])
def test_lists_without_end_are_refused(tmp_path: Path, field: str) -> None:
    for number, value in enumerate(nested()):
        check(tmp_path / f"{number}", with_settings({field: value}, True))


def test_an_optimizer_without_end_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    content = {"args": fairseq_checkpoints.settings(PLAIN), "model": as_newest(draw(PLAIN))}
    torch.save({**content, "last_optimizer_state": [*nested(), torch.ones(2)]}, path)
    assert read_checkpoint(path).n_optimizer == 1


fields = st.sampled_from(FIELDS) | st.sampled_from(COMPARED)
altered = given(st.dictionaries(fields, VALUES, min_size=1, max_size=3), st.booleans())


@quiet
@altered
def test_altered_settings_are_refused_in_a_line_or_read(
    tmp_path: Path, changes: dict[str, Any], is_old: bool
) -> None:
    check(tmp_path / "case", with_settings(changes, is_old))


@pytest.mark.slow
@thorough
@altered
def test_many_altered_settings_are_refused_in_a_line_or_read(
    tmp_path: Path, changes: dict[str, Any], is_old: bool
) -> None:
    check(tmp_path / "case", with_settings(changes, is_old))


def expanded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.new_zeros(1).expand(10**6, 10**6)


CHANGES: list[Callable[[torch.Tensor], Any]] = [
    expanded,
    lambda each: each.new_zeros(()),
    lambda each: each.new_zeros(0),
    lambda each: each.to_sparse(),
    lambda each: each.to(torch.int32),
    lambda each: each.to(torch.complex64),
    lambda each: each.to(torch.float8_e4m3fn),
    lambda each: each * torch.nan,
    lambda each: each.half(),
    lambda each: each.bfloat16(),
    lambda each: each[None],
    lambda each: each.bool(),
    lambda each: "x",
    lambda each: None,
    lambda each: [each],
    lambda each: each.to("meta"),
]


@quiet
@given(st.data())
def test_altered_tensors_are_refused_in_a_line_or_read(tmp_path: Path, data: st.DataObject) -> None:
    weights = as_newest(draw(PLAIN))
    for name in data.draw(
        st.lists(st.sampled_from(sorted(weights)), min_size=1, max_size=2, unique=True)
    ):
        weights[name] = data.draw(st.sampled_from(CHANGES))(weights[name])
    settings_ = fairseq_checkpoints.settings(PLAIN)
    check(tmp_path / "case", lambda path: save_newest(path, weights, settings_))


@quiet
@given(st.data(), st.booleans())
@pytest.mark.slow
def test_damaged_checkpoints_are_refused_in_a_line(
    tmp_path: Path, data: st.DataObject, is_old: bool
) -> None:
    def save(path: Path) -> None:
        with_settings({}, is_old)(path)
        whole = bytearray(path.read_bytes())
        if data.draw(st.booleans()):
            whole = whole[: data.draw(st.integers(0, len(whole) - 1))]
        else:
            for _ in range(data.draw(st.integers(1, 5))):
                whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(whole)

    check(tmp_path / "case", save)
