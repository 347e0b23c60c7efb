"""Batches that are too little for the processes, known before anything is read."""

import pytest

from sublayer.config.batch_shares import check_shares
from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError


def check(n_processes, *settings, is_gpu=False):
    recipe = load_recipe("gpt", ["data.path=none.txt", "data.context=64", *settings]).recipe
    check_shares(recipe, n_processes, is_gpu=is_gpu)


@pytest.mark.parametrize(
    ("n_processes", "settings", "line"),
    [
        (
            5,
            ["train.batch_sequences=4"],
            "train.batch_sequences = 4 is less than the 5 processes: start fewer, or give "
            "train.batch_sequences=5 or more",
        ),
        (
            5,
            ["train.batch_tokens=256"],
            "train.batch_tokens = 256, 4 windows, is less than the 5 processes: start fewer, or "
            "give train.batch_tokens=320 or more",
        ),
        (
            3,
            ["train.batch_sequences=12", "train.exact=true", "train.micro_batch_sequences=6"],
            "train.exact divides a step into 2 micro-batches, less than the 3 processes: start "
            "fewer, or give train.micro_batch_sequences=4",
        ),
    ],
)
def test_too_little_is_refused_with_what_would_be_enough(n_processes, settings, line):
    with pytest.raises(ConfigError) as refusal:
        check(n_processes, *settings)
    assert str(refusal.value) == line
    remedy = line.split("give ")[1].removesuffix(" or more")
    mended = [each for each in settings if each.split("=")[0] != remedy.split("=")[0]]
    check(n_processes, *mended, remedy)


@pytest.mark.parametrize("is_gpu", [False, True])
def test_one_process_and_batches_that_do_not_divide_evenly_are_taken(is_gpu):
    check(1, "train.batch_sequences=1", "train.exact=true", is_gpu=is_gpu)
    check(4, "train.batch_sequences=7", is_gpu=is_gpu)
    check(4, "train.batch_sequences=7", "train.exact=true", is_gpu=is_gpu)
