"""``init.layers`` of models with two stacks: the first blocks of both, and what is outside them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from sublayer.errors import ConfigError
from sublayer.model.transformer import Transformer
from tests.training.test_warm_start import make_model, start

TWO: dict[str, Any] = {"kind": "encoder-decoder"}


def two_stacks(seed: int, n_layers: int = 3, n_decoder_layers: int = 2, **fields: Any) -> Any:
    return make_model(
        seed, **{**TWO, "n_layers": n_layers, "n_decoder_layers": n_decoder_layers, **fields}
    )


def is_of_later_block(name: str, n_taken: int, *, has_tables: bool) -> bool:
    """Return whether a tensor is of a block of its own, or its positions, beyond the first."""
    words = name.removeprefix("source.").split(".")
    if words[:1] in (["encoder"], ["decoder"]):  # encoder.sublayers.PLACE.LAYER
        return int(words[3]) >= n_taken
    return has_tables and words[:2] == ["positions", "tables"] and int(words[2]) >= n_taken


def split(model: Transformer, n_taken: int) -> tuple[dict[str, Any], dict[str, Any]]:
    has_tables = model.config.positions == "learned-per-layer"
    taken, fresh = {}, {}
    for name, value in model.state_dict().items():
        is_later = is_of_later_block(name, n_taken, has_tables=has_tables)
        (fresh if is_later else taken)[name] = value
    return taken, fresh


def assert_taken(model: Transformer, drawn: Transformer, source: Transformer, n: int) -> None:
    """Check that the first blocks and all outside are the source's, and the others as drawn."""
    taken, fresh = split(model, n)
    assert taken and fresh
    theirs, as_drawn = source.state_dict(), drawn.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in taken.items())
    assert all(torch.equal(value, as_drawn[name]) for name, value in fresh.items())
    # Seeds differ, so that to be equal is to be taken.
    weights = [name for name in taken if name.endswith("projection.weight")]
    assert all(not torch.equal(theirs[name], as_drawn[name]) for name in weights)


@pytest.mark.parametrize("positions", ["learned", "learned-per-layer", "relative", "sinusoidal"])
@pytest.mark.parametrize("n_taken", [0, 1, 2])
def test_the_first_blocks_of_both_stacks_are_taken(
    positions: str, n_taken: int, tmp_path: Path
) -> None:
    model, drawn = (two_stacks(1, positions=positions) for _ in range(2))
    source = two_stacks(2, positions=positions)
    notes = start(model, source, tmp_path / "run", layers=n_taken)
    said = f"{3 - n_taken} of 3 encoder blocks"
    if n_taken < 2:
        said += f" and {2 - n_taken} of 2 decoder blocks"
    assert notes == [f"starts fresh: {said} (init.layers = {n_taken})"]
    assert_taken(model, drawn, source, n_taken)


def test_tables_of_relative_positions_are_outside_the_blocks(tmp_path: Path) -> None:
    model, source = (two_stacks(seed, positions="relative") for seed in (1, 2))
    start(model, source, tmp_path / "run", layers=0)
    tables = [name for name in model.state_dict() if name.endswith("positions.table.weight")]
    assert tables == ["positions.table.weight", "source.positions.table.weight"]
    for name in tables:
        assert torch.equal(model.state_dict()[name], source.state_dict()[name])


@pytest.mark.parametrize("positions", ["learned", "learned-per-layer", "relative"])
def test_stacks_may_have_other_numbers_of_blocks_than_the_start(
    positions: str, tmp_path: Path
) -> None:
    model, drawn = (two_stacks(1, 2, 4, positions=positions) for _ in range(2))
    source = two_stacks(2, 3, 1, positions=positions)
    assert start(model, source, tmp_path / "run", layers=1) == [
        "starts fresh: 1 of 2 encoder blocks and 3 of 4 decoder blocks (init.layers = 1)"
    ]
    assert_taken(model, drawn, source, 1)


def test_blocks_of_either_stack_that_share_the_first_one_s_weights_are_taken_too(
    tmp_path: Path,
) -> None:
    model, source = (two_stacks(seed, share="all", positions="relative") for seed in (1, 2))
    assert start(model, source, tmp_path / "run", layers=1) == []
    theirs = source.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in model.state_dict().items())


def test_blocks_of_another_group_start_fresh(tmp_path: Path) -> None:
    fields = {"share": "all", "share_groups": 2}
    model, drawn = (two_stacks(1, 4, 2, **fields) for _ in range(2))
    source = two_stacks(2, 4, 2, **fields)
    assert start(model, source, tmp_path / "run", layers=1) == [
        "starts fresh: 2 of 4 encoder blocks and 1 of 2 decoder blocks (init.layers = 1)"
    ]
    # Each stack has two sets of weights, named by their group.
    assert_taken(model, drawn, source, 1)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ((3, 3), (3, 2), "the 2 blocks of the decoder of the model of {run}"),
        ((3, 3), (2, 3), "the 2 blocks of the encoder of the model of {run}"),
        ((2, 3), (3, 3), "the 2 blocks of the encoder of the recipe"),
        ((3, 1), (3, 3), "the 1 block of the decoder of the recipe"),
    ],
)
def test_more_blocks_than_a_stack_has_are_refused(
    ours: tuple[int, int], theirs: tuple[int, int], said: str, tmp_path: Path
) -> None:
    model, source, run = two_stacks(1, *ours), two_stacks(2, *theirs), tmp_path / "run"
    with pytest.raises(ConfigError) as refused:
        start(model, source, run, layers=3)
    assert str(refused.value) == f"init.layers = 3 is more than {said.format(run=run)}"
