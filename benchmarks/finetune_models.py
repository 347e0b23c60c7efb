"""The contestants in fine-tuning: our own step and predictions, and transformers' classifier.

The same terms: a BERT of 4 blocks and 256 features with a vocabulary of 8,000, its classifier,
dropout places, clipping at norm 1, AdamW, 32 examples a step, threads. The peer has its examples as
transformers' Trainer batches them: in memory, grouped by length with its own sampler, each batch
padded to its longest.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from contestants import OURS, Setup, Step, adamw, autocast
from products import precisions
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from turns import Contestant

import sublayer
from sublayer.config.finetune import load_finetune
from sublayer.config.recipe import Recipe, ResolvedRecipe
from sublayer.data.tasks.batches import TaskSplit, of_tasks
from sublayer.model.estimates import Precision
from sublayer.runs.session import Place, assemble, prepare_data, resolve
from sublayer.training.world import World

PEER = "transformers BERT"
TASK = "sst2"
N_EXAMPLES = 32
CONTEXT = 64
VOCAB_SIZE = 8_000
D_MODEL, N_LAYERS, N_HEADS = 256, 4, 4
BATCHES = (8, 32)
"""Sentences that the peer predicts together; 8 is its Trainer's default."""
_RECIPE = f"""\
title = "a BERT of five million parameters"
[model]
kind = "encoder"
n_layers = {N_LAYERS}
d_model = {D_MODEL}
n_heads = {N_HEADS}
norm_order = "post"
norm_eps = 1e-12
embedding_norm = "affine"
segments = "both"
pooler = "tanh"
init = "truncated"
[data]
tokenizer = "wordpiece"
vocab_size = {VOCAB_SIZE}
context = {CONTEXT}
"""


@dataclass(frozen=True)
class FinetuneSetup(Setup):
    """Training step of one contestant."""

    data: str = ""
    """The folder of the task's files."""
    recipe: str = ""
    """Our recipe's file."""


def write_recipe(folder: Path) -> Path:
    """Write the recipe of the model."""
    path = folder / "bert.toml"
    path.write_text(_RECIPE)
    return path


def finetune_setups(data: Path, recipe: Path, dropout: float) -> list[FinetuneSetup]:
    """List the ways in which the contestants may run; the best one of each counts."""
    return [
        FinetuneSetup(name, "", dropout, precision, variant, data=str(data), recipe=str(recipe))
        for precision in precisions(D_MODEL)
        for name, variant in ((OURS, ""), (PEER, "sdpa"))
    ]


def build_finetune_step(setup: FinetuneSetup) -> Step:
    """Build a contestant's model, optimizer and data, and return what takes one optimizer step."""
    if setup.contestant == PEER:
        return BertStep(setup)
    given = finetune_recipe(setup)
    data = prepare_data(given)
    place = _place()
    return assemble(resolve(given, data, place), data, place).train_step


def finetune_recipe(setup: FinetuneSetup) -> Recipe:
    """Return the recipe that this project runs."""
    settings = {
        "model.dropout": setup.dropout,
        "train.steps": 10_000,
        "train.batch_sequences": N_EXAMPLES,
        "train.precision": setup.precision,
        "train.threads": torch.get_num_threads(),
    }
    return load_finetune(setup.recipe, [TASK], setup.data, settings).loaded.recipe


def resolved_recipe(setup: FinetuneSetup) -> ResolvedRecipe:
    """Return the recipe that this project runs, resolved."""
    given = finetune_recipe(setup)
    return resolve(given, prepare_data(given), _place())


def training_split(setup: FinetuneSetup) -> TaskSplit:
    """Return the training examples."""
    return of_tasks(prepare_data(finetune_recipe(setup)).train)


def _place() -> Place:
    return Place(torch.device("cpu"), World(rank=0, size=1))


class BertStep:
    """A plain training step of transformers' classifier on examples in memory."""

    def __init__(self, setup: FinetuneSetup) -> None:
        from transformers.trainer_pt_utils import LengthGroupedSampler

        self.setup = setup
        torch.manual_seed(0)
        self.model = _bert(setup).train()
        self.optimizer = adamw(self.model)
        split = training_split(setup)
        encoded, tokenizer = split.encoded, split.tokenizer
        cls_id, sep_id = tokenizer.cls_id, tokenizer.sep_id
        assert cls_id is not None and sep_id is not None, "a vocabulary of WordPiece"
        self.ids = []
        for row in range(len(encoded)):
            (text,) = encoded.texts_of(row)
            self.ids.append(torch.tensor([cls_id, *text[: CONTEXT - 2].tolist(), sep_id]))
        self.labels = torch.as_tensor(encoded.labels).long()
        sampler: Any = LengthGroupedSampler(N_EXAMPLES, lengths=list(map(len, self.ids)))
        self.order = _batched(list(sampler))

    def __call__(self, step: int) -> Tensor:
        """Take one step and return its loss."""
        chosen = self.order[step % len(self.order)]
        ids = [self.ids[each] for each in chosen]
        mask = pad_sequence([torch.ones_like(each) for each in ids], batch_first=True)
        batch = {
            "input_ids": pad_sequence(ids, batch_first=True),
            "attention_mask": mask,
            "labels": self.labels[list(chosen)],
        }
        with autocast(self.setup):
            loss: Tensor = self.model(**batch).loss
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def n_tokens(self, step: int) -> int:
        return sum(len(self.ids[each]) for each in self.order[step % len(self.order)])


def _batched(order: list[int]) -> list[tuple[int, ...]]:
    starts = range(0, len(order), N_EXAMPLES)
    return [tuple(order[start : start + N_EXAMPLES]) for start in starts]


def _bert(setup: FinetuneSetup) -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=D_MODEL,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=N_HEADS,
        intermediate_size=4 * D_MODEL,
        max_position_embeddings=CONTEXT,
        # The same function as ours, in one kernel.
        hidden_act="gelu_pytorch_tanh",
        hidden_dropout_prob=setup.dropout,
        attention_probs_dropout_prob=setup.dropout,
    )
    config._attn_implementation = setup.variant
    return BertForSequenceClassification(config)


class Predictor(Protocol):
    """Classifier of sentences, by the index of their label."""

    def __call__(self, sentences: list[str]) -> list[int]: ...


def our_predictor(run: Path, precision: Precision) -> Predictor:
    """Load our model as a user does."""
    model = sublayer.load(run, dtype=getattr(torch, precision))
    assert model.task is not None, "the run was fine-tuned"
    (task,) = model.task.tasks

    def predict(sentences: list[str]) -> list[int]:
        return [task.labels.index(str(each.label)) for each in model.predict(sentences)]

    return predict


def peer_predictor(folder: Path, batch: int, setup: Setup) -> Predictor:
    """Load the exported model in transformers, which predicts as its Trainer does, in order."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)

    @torch.inference_mode()
    def predict(sentences: list[str]) -> list[int]:
        found: list[int] = []
        for start in range(0, len(sentences), batch):
            chosen = sentences[start : start + batch]
            inputs = tokenizer(chosen, padding=True, truncation=True, return_tensors="pt")
            with autocast(setup):
                logits = model(**inputs).logits
            found += logits.argmax(-1).tolist()
        return found

    return predict


def predictors(run: Path, exported: Path, sentences: list[str]) -> list[Contestant]:
    """Return who predicts the sentences: ours, and the peer's ways to do it."""

    def contestant(name: str, setup: str, predict: Predictor) -> Contestant:
        def work(count: int) -> int:
            for _ in range(count):
                predict(sentences)
            return count * len(sentences)

        return Contestant(name, setup, work)

    found = []
    for precision in precisions(D_MODEL):
        found.append(contestant(OURS, precision, our_predictor(run, precision)))
        for batch in BATCHES:
            peer = peer_predictor(exported, batch, Setup(PEER, "", 0.0, precision))
            found.append(contestant(PEER, f"{precision}, batch {batch}", peer))
    return found


def same_answers(run: Path, exported: Path, sentences: list[str]) -> float:
    """Return the fraction of sentences that both answer alike in float32."""
    ours = our_predictor(run, "float32")(sentences)
    peers = peer_predictor(exported, 32, Setup(PEER, "", 0.0, "float32"))(sentences)
    return sum(own == other for own, other in zip(ours, peers, strict=True)) / len(sentences)
