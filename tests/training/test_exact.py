"""The same bits on any number of processes."""

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from sublayer.objective.translation import scores
from sublayer.objective.translation.family import GREEDY
from sublayer.objective.translation.scores import translate_pairs as found
from sublayer.runs.resolution import resolve
from sublayer.runs.session import Place, assemble, prepare_data
from sublayer.training.processes.world import World
from tests.made import MASKED, PAIR, QUESTIONS, SPAN, TEXT, TRANSLATION
from tests.training.test_parallel import AUXILIARY, LAMB, figures

WAYS = {
    "plain": {},
    "bfloat16": {"train.precision": "bfloat16"},
    "auxiliary": {**AUXILIARY, "train.recompute": "blocks"},
    "shared": LAMB,
    "lstm": {"model.kind": "lstm", "data.boundaries": "respect"},
    "masked": {**MASKED, "optimizer.kind": "lamb", "optimizer.lr": 1e-2},
    "translation": {**TRANSLATION, "train.best_by": "bleu"},
    "span": {**SPAN, "optimizer.kind": "adafactor"},
    "pairs of a task": PAIR,
    "questions": QUESTIONS,
    "tasks as text": {**TEXT, "data.tasks": ["sst2", "rte"]},
}
EXACT = {"model.dropout": 0.2, "train.exact": True}
# Seven parts: no power of two, and no multiple of the processes.
EXACT |= {"train.batch_sequences": 7, "train.micro_batch_sequences": 1}
WAYS = {name: {**way, **EXACT} for name, way in WAYS.items()}


def weights_of(folder):
    return hashlib.sha256((folder / "model" / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.slow
def test_resumed_on_other_numbers_of_processes_each_kind_has_the_bits_of_an_unbroken_run(
    tmp_path, asked, train_in
):
    train_in(2, asked(WAYS, "unbroken"))
    for n_processes, end in ((4, 10), (1, 17), (2, None)):
        train_in(n_processes, asked(WAYS, "broken", end))
    for name in WAYS:
        unbroken, broken = tmp_path / "unbroken" / name, tmp_path / "broken" / name
        assert weights_of(broken) == weights_of(unbroken), name
        for kind in ("train", "valid"):
            assert figures(broken, kind) == figures(unbroken, kind), name


class Together:
    """Processes as threads of this one, which give each other their rows."""

    def __init__(self, rank, size, rows, barrier):
        self.rank, self.size, self.rows, self.barrier = rank, size, rows, barrier

    def own(self, n):
        return range(self.rank, n, self.size)

    def gather(self, rows, n):
        for index, row in zip(self.own(n), rows, strict=True):
            self.rows[index] = row
        self.barrier.wait()
        return [self.rows[index] for index in range(n)]


def test_pairs_are_translated_in_groups_that_no_number_of_processes_changes(
    tiny, pairs_path, monkeypatch
):
    monkeypatch.setattr(scores, "_GROUP", 50)
    loaded = tiny({**TRANSLATION, "data.path": str(pairs_path)})
    data = prepare_data(loaded.recipe)
    place = Place(torch.device("cpu"), World(rank=0, size=1))
    model = assemble(resolve(loaded.recipe, data, place), data, place).train_step.objective.model
    pairs = data.train.pairs[:170]
    searched = []
    monkeypatch.setattr(
        scores,
        "translate_pairs",
        lambda model, pairs, settings: searched.append(len(pairs)) or found(model, pairs, settings),
    )
    alone = scores.translate_ids_exactly(model.eval(), pairs, GREEDY)
    assert searched == [50, 50, 50, 20]
    rows, barrier = {}, threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        given = [Together(rank, 2, rows, barrier) for rank in range(2)]
        both = pool.map(
            lambda each: scores.translate_ids_exactly(model, pairs, GREEDY, each), given
        )
        for other in both:
            assert [ids.tolist() for ids in other] == [ids.tolist() for ids in alone]
    assert sorted(searched[4:]) == [20, 50, 50, 50]
    plain = scores.translate_ids(model, pairs, GREEDY)
    assert [ids.tolist() for ids in plain] == [ids.tolist() for ids in alone]
