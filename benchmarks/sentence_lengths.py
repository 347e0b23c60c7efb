"""Accuracy of guessing the order of two texts, or whether one follows, from their lengths.

    python benchmarks/sentence_lengths.py albert-small 'data.path=books/*.txt' data.documents=file

A rule of nothing but both lengths is learned from the training split's pairs, made as a run of the
recipe makes them, and judges those of the test split, made as runs are scored. A model that scores
no more has learned no more of a task than the published way of cutting texts gives away: the last
sentence of a chunk goes beyond its end and is cut, so that the second text is the longer one.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sublayer.config.load import load_recipe
from sublayer.config.objective import MaskedObjective
from sublayer.data.prepare import prepare
from sublayer.data.sentence_pairs import PairRule, make_pairs
from sublayer.data.store import Split
from sublayer.errors import SublayerError
from sublayer.objective.masked import PairScore, pair_settings

_WIDTH = 4
"""Tokens of a class of lengths."""
_PASSES = 20
Ints = NDArray[np.int64]


def judged_by_lengths(train: Split, test: Split, rule: PairRule) -> PairScore:
    """Learn from ``_PASSES`` passes over the training split, and judge one over the test split."""
    longest = rule.max_len // _WIDTH + 1
    votes = np.zeros((longest, longest), dtype=np.int64)
    for epoch in range(_PASSES):
        a_length, b_length, label = _pairs(train, rule, epoch)
        np.add.at(votes, (a_length, b_length), 2 * label - 1)
    scored = replace(rule, alone="drop", negatives="anywhere")
    a_length, b_length, label = _pairs(test, scored, 0)
    said = votes[a_length, b_length] > 0
    return PairScore(len(label), int((said == label).sum()), len(label))


def _pairs(split: Split, rule: PairRule, epoch: int) -> tuple[Ints, Ints, Ints]:
    """Return the classes of both lengths and the labels of a pass, of labelled pairs."""
    assert split.sentence_starts is not None, "the text was stored as sentences"
    pairs = make_pairs(
        split.sentence_starts, split.document_starts, len(split.ids), rule, seed=0, epoch=epoch
    )
    known = pairs.label >= 0
    lengths = (pairs.a_length[known] // _WIDTH, pairs.b_length[known] // _WIDTH)
    return lengths[0], lengths[1], pairs.label[known].astype(np.int64)


def main() -> None:
    """Print, and keep, what lengths alone tell of both tasks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("recipe")
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    recipe = load_recipe(options.recipe, options.settings).recipe
    objective = recipe.objective
    if not isinstance(objective, MaskedObjective):
        raise SystemExit(f"{options.recipe} has no pairs of texts: it is {objective.kind}")
    prepared = prepare(recipe.data)
    train, test = prepared.train, prepared.test
    assert test is not None, "a test split was asked for"
    found = []
    for task in ("sop", "nsp"):
        settings = pair_settings(objective, train.tokenizer, context=recipe.data.context)
        rule = replace(settings.pairs, task=task, negatives="anywhere")
        score = judged_by_lengths(train, test, rule)
        row = {
            "command": [options.recipe, *options.settings],
            "task": task,
            "pairs": score.n_pairs,
            "accuracy": score.accuracy,
            "interval": score.interval,
        }
        print(json.dumps(row))
        found.append(row)
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except SublayerError as error:
        raise SystemExit(f"error: {error}") from None
