"""What is frozen stays as it is to the bit, all else moves, and nothing is kept of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sublayer.config.freezing import Frozen
from sublayer.config.objectives.kinds import NEXT_TOKEN
from sublayer.config.optimizers.kinds import OPTIMIZERS
from sublayer.errors import ConfigError, Interrupted
from sublayer.estimate.frozen import n_frozen_parameters, n_frozen_states
from sublayer.estimate.optimizer_states import n_states
from sublayer.training.freezing import frozen_parameters
from tests.made import MASKED, SPAN
from tests.training.conftest import Notes
from tests.training.test_resume import SignalAt, results
from tests.training.test_warm_start import make_model

Run = Callable[..., Any]

LEARNED = {"model.positions": "learned"}
OF_TOKENIZER = ("data.tokenizer", "data.vocab_size", "data.sentinels")
"""What a start brings."""
CASES: dict[str, tuple[dict[str, Any], Any, tuple[str, ...]]] = {
    "embeddings": (LEARNED, "embeddings", ("embedding.", "positions.")),
    "blocks": (
        {**LEARNED, "model.positions": "learned-per-layer"},
        "layers:1",
        ("decoder.sublayers.0.0.", "decoder.sublayers.1.0."),
    ),
    "both, of shared blocks": (
        {**LEARNED, "model.share": "all"},
        ["embeddings", "layers:2"],
        ("embedding.", "positions.", "decoder."),
    ),
    "an encoder's embeddings": (
        {**MASKED, "model.d_embed": 12, "model.embedding_norm": True},
        "embeddings",
        ("embedding.", "positions.", "segment_table.", "embedding_norm."),
    ),
    "an lstm's embeddings and first layer": (
        {"model.kind": "lstm", "model.d_embed": 12},
        ["embeddings", "layers:1"],
        ("embedding.", "lstm.sublayers.0.0."),
    ),
    "both sides' embeddings": (
        {**SPAN, "model.tie_embeddings": False},
        "embeddings",
        ("embedding.", "positions.", "source.positions."),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_what_is_frozen_stays_to_the_bit_and_all_else_moves(
    run: Run, tmp_path: Path, case: str
) -> None:
    settings, freeze, prefixes = CASES[case]
    short = {**settings, "train.steps": 4, "optimizer.weight_decay": 0.1}
    run("start", short)
    kept_settings = {name: value for name, value in short.items() if name not in OF_TOKENIZER}
    started = {**kept_settings, "init.run": str(tmp_path / "start"), "init.freeze": freeze}
    notes = Notes()
    run("end", started, progress=notes)
    before, after = (
        load_file(tmp_path / name / "model" / "model.safetensors") for name in ("start", "end")
    )
    kept = {name for name, value in before.items() if torch.equal(value, after[name])}
    assert kept == {name for name in before if name.startswith(prefixes)}
    (line,) = [text for text in notes.texts if text.startswith("stays as it is")]
    n_kept = sum(before[name].numel() for name in kept)
    assert f"{n_kept:,} parameters of {sum(each.numel() for each in before.values()):,}" in line
    states = load_file(tmp_path / "end" / "checkpoints" / "step-00000004" / "training.safetensors")
    named = {name.partition("/")[2].removeprefix("model.") for name in states}
    assert named & set(before) == set(before) - kept


@pytest.mark.slow
def test_a_frozen_run_resumed_equals_an_unbroken_one(run: Run, tmp_path: Path) -> None:
    run("start")
    settings = {
        "init.run": str(tmp_path / "start"),
        "init.freeze": ["embeddings", "layers:1"],
    }
    run("whole", settings)
    with pytest.raises(Interrupted):
        run("broken", settings, progress=SignalAt(11))
    run("broken", settings, resume=True)
    assert results(tmp_path / "broken") == results(tmp_path / "whole")


@pytest.mark.slow
def test_a_run_that_has_nothing_left_to_train_is_refused(run: Run, tmp_path: Path) -> None:
    bare = {"model.norm": "none", "train.steps": 4}
    run("start", bare)
    settings = {**bare, "init.run": str(tmp_path / "start")}
    with pytest.raises(ConfigError, match="nothing to train beside embeddings and the first 2"):
        run("end", {**settings, "init.freeze": ["embeddings", "layers:2"]})


@pytest.mark.parametrize("positions", ["learned", "learned-per-layer", "relative", "sinusoidal"])
@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "decoder"},
        {"kind": "encoder", "segments": "both", "embedding_norm": True, "d_embed": 4},
        {"kind": "encoder", "share": "all", "share_groups": 3, "block": "macaron"},
        {"kind": "encoder-decoder", "embedding_norm": True},
        {"kind": "lstm", "d_embed": 4},
    ],
)
@pytest.mark.parametrize("frozen", [Frozen(True), Frozen(False, 1), Frozen(True, 3)], ids=str)
def test_the_parameters_that_are_said_to_be_frozen_are(
    positions: str, fields: dict[str, Any], frozen: Frozen
) -> None:
    model = make_model(1, positions=positions, **fields)
    if frozen.n_layers and len(model.stacks) > 1:
        return
    found = {id(each): each.numel() for each in frozen_parameters(model, frozen)}
    assert sum(found.values()) == n_frozen_parameters(model.config, frozen)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_all_blocks_and_embeddings_keep_no_state_but_that_of_the_rest(kind: str) -> None:
    config = make_model(1, tie_embeddings=True).config
    optimizer = OPTIMIZERS[kind]()
    frozen = Frozen(embeddings=True, n_layers=3)
    # What is left is the final norm's gain and offset, and the bias of the output.
    left = (2 * 8 + 9) * optimizer.states_per_parameter
    assert n_states(config, NEXT_TOKEN, optimizer, frozen) == left
    assert n_frozen_states(config, frozen, optimizer) > 0 or kind == "sgd"
