"""Training where each process holds a part of weights, gradients and moments."""

from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError
from sublayer.files.checkpoints import checkpoint_path, saved_steps
from sublayer.files.tensor_parts import read_stored
from sublayer.loading import load
from sublayer.training.checkpoints.layout import stored_model, stored_training
from tests.made import MASKED, PAIR, SPAN, TRANSLATION
from tests.training.conftest import Notes
from tests.training.test_parallel import ADAFACTOR, AUXILIARY, LAMB, figures

FULL, OPTIMIZER = {"train.shard": "full"}, {"train.shard": "optimizer"}
ODD = {"model.d_model": 27, "model.n_heads": 3, "model.d_ff": 37, "model.ffn": "swiglu"}
"""Sides that neither two nor four processes divide."""
WAYS = {
    "plain": FULL,
    "auxiliary, recomputed": {**AUXILIARY, **FULL, "train.recompute": "blocks"},
    "shared": {**LAMB, **FULL},
    "shared in groups": {
        **LAMB,
        **OPTIMIZER,
        "model.share": "attention",
        "model.share_groups": 2,
        "model.n_layers": 4,
    },
    "lstm": {"model.kind": "lstm", "data.boundaries": "respect", **FULL},
    "masked": {**MASKED, "optimizer.kind": "lamb", "optimizer.lr": 1e-2, **FULL},
    "translation": {**TRANSLATION, "train.best_by": "bleu", **FULL},
    "span": {**SPAN, "optimizer.kind": "sgd", "optimizer.lr": 0.1, **OPTIMIZER},
    "pairs of a task": {**PAIR, "optimizer.lr": 1e-3, "objective.dropout": 0.0, **FULL},
    "ragged": {"train.batch_sequences": 5, **FULL},
    "odd": {"model.d_ff": 37, "model.ffn": "swiglu", **FULL},
    "odd, lamb": {**ODD, "optimizer.kind": "lamb", "optimizer.lr": 1e-2, **FULL},
    "odd, adafactor": {**ODD, **ADAFACTOR, **FULL},
    "shared, adafactor": {**ADAFACTOR, "model.share": "all", **OPTIMIZER},
    "span, adafactor": {**SPAN, **ADAFACTOR, **FULL},
    "scaled": {"model.ffn": "swiglu", "optimizer.parameter_scale": True, **OPTIMIZER},
}
"""``odd`` has maps of which two processes divide one side at most; ``ragged`` has steps of which
two processes compute different numbers of micro-batches."""
WAYS = {name: {"model.dropout": 0.0, **way} for name, way in WAYS.items()}
WHOLE = {name: {**way, "train.shard": "none"} for name, way in WAYS.items()}


@pytest.mark.slow
def test_parts_give_the_losses_and_weights_of_whole_copies_and_are_resumed_by_other_processes(
    tmp_path, asked, train_in
):
    train_in(1, asked(WHOLE, "whole"))
    train_in(2, asked(WAYS, "parts"))
    # What two processes wrote four read, what those wrote one.
    for n_processes, end in ((2, 9), (4, 17), (1, None)):
        train_in(n_processes, asked(WAYS, "moved", end))
    for name in WAYS:
        whole = tmp_path / "whole" / name
        for other in (tmp_path / "parts" / name, tmp_path / "moved" / name):
            for kind in ("train", "valid"):
                assert figures(other, kind) == pytest.approx(figures(whole, kind), rel=1e-4), name
            theirs, ours = (
                load_file(each / "model" / "model.safetensors") for each in (other, whole)
            )
            message = partial("{}, {}: {}".format, other.parent.name, name)
            for key, value in ours.items():
                assert_close(theirs[key], value, rtol=1e-2, atol=2e-3, msg=message)
        assert load(tmp_path / "parts" / name).config == load(whole).config


RELATIVE = [
    name
    for name, way in WAYS.items()
    if way.get("optimizer.kind") in ("lamb", "adafactor") or way.get("optimizer.parameter_scale")
]
"""Ways whose updates go by norms and means of whole matrices."""


@pytest.mark.slow
def test_updates_by_whole_matrices_are_those_of_one_process_but_for_rounding(
    tmp_path, asked, train_in
):
    # The gradient of the keys' bias is rounding alone, which these updates make as long as others.
    short = {"train.steps": 4, "train.evaluate_steps": 4, "model.bias": False}
    train_in(1, asked({name: {**WHOLE[name], **short} for name in RELATIVE}, "whole"))
    for size in (2, 4):
        train_in(size, asked({name: {**WAYS[name], **short} for name in RELATIVE}, str(size)))
        for name in RELATIVE:
            theirs, ours = (
                load_file(tmp_path / folder / name / "model" / "model.safetensors")
                for folder in (str(size), "whole")
            )
            message = partial("{} processes, {}: {}".format, size, name)
            for key, value in ours.items():
                assert_close(theirs[key], value, rtol=1e-5, atol=1e-6, msg=message)


@pytest.mark.slow
def test_each_process_draws_its_part_of_the_weights_that_one_process_draws(
    tmp_path, asked, train_in
):
    padded = {"model.zero_padding": True}
    ways = {**WAYS, "xavier": {"model.init": "xavier", **AUXILIARY, **FULL}}
    ways["translation"] = {**WAYS["translation"], **padded}
    begun = [{**told, "into": told["out"]} for told in asked(ways, "parts", 1)]
    train_in(2, begun)
    alone = [{**told, "into": f"{told['out']} alone"} for told in begun]
    train_in(1, alone)
    for parts, whole in zip(begun, alone, strict=True):
        for stored in (stored_model, stored_training):
            theirs, ours = (
                read_stored(stored(checkpoint_path(Path(each["into"]) / "checkpoints", 0)))
                for each in (parts, whole)
            )
            for name, value in ours.items():
                assert torch.equal(theirs[name], value), (parts["out"], name)


@pytest.mark.slow
def test_a_checkpoint_in_parts_is_a_model_and_has_the_same_bits_whoever_reads_it(
    tmp_path, asked, train_in
):
    begun = asked(WAYS, "parts", 9)
    train_in(2, begun)
    saved = {}
    for told in begun:
        root = Path(told["out"]) / "checkpoints"
        saved[told["out"]] = checkpoint = checkpoint_path(root, saved_steps(root)[-1])
        assert not stored_model(checkpoint).is_whole
        weights = read_stored(stored_model(checkpoint))
        loaded = load(checkpoint).state_dict()
        assert loaded.keys() == weights.keys()
        assert all(torch.equal(weights[key], value) for key, value in loaded.items())
    for n_processes in (1, 2, 4):
        again = tmp_path / str(n_processes)
        told_again = [
            {
                **told,
                "restore": str(saved[told["out"]]),
                "into": str(again / Path(told["out"]).name),
            }
            for told in begun
        ]
        train_in(n_processes, told_again)
        for out, checkpoint in saved.items():
            copy = again / Path(out).name / "checkpoints" / checkpoint.name
            for stored in (stored_model, stored_training):
                ours, theirs = read_stored(stored(checkpoint)), read_stored(stored(copy))
                assert ours.keys() == theirs.keys()
                assert all(torch.equal(theirs[key], value) for key, value in ours.items()), out


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"train.exact": True}, "train.shard = full contradicts train.exact = true"),
    ],
)
def test_what_cannot_be_trained_in_parts_is_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        load_recipe("gpt", {"train.shard": "full", **settings})


def test_one_process_is_told_that_it_divides_nothing(run):
    notes = Notes()
    run("alone", {"train.shard": "full", "train.steps": 2}, progress=notes)
    assert "train.shard = full divides nothing: there is one process" in notes.texts
