"""Tiny runs of every kind of objective, made once by the first test of any process that asks.

All are the recipe ``gpt`` with a few settings over it. A test that alters a run copies it.
"""

import numpy as np
from filelock import FileLock

from sublayer.config.load import load_recipe
from sublayer.runs.run import train_run
from sublayer.training.log import SilentProgress
from tests.stories import write_stories
from tests.task_files import write_copa, write_rte, write_squad, write_sst2, write_stsb

_SENTENCE = "the cat sat on a mat and saw another dog run over green fields while it rained all day"
WORDS = (*_SENTENCE.split(), "long")
TINY = {"model.n_layers": 2, "model.d_model": 24, "model.n_heads": 2, "model.dropout": 0.1}
TINY |= {"data.context": 32, "train.steps": 24, "train.batch_sequences": 6}
TINY |= {"train.micro_batch_sequences": 2, "train.evaluate_steps": 6, "train.checkpoint_steps": 4}
TINY |= {"train.log_steps": 3, "train.precision": "float32", "train.threads": 1}
TINY |= {"optimizer.lr": 1e-2}
LSTM = {"model.kind": "lstm"}
CHARACTER = {"model.positions": "learned-per-layer", "objective.auxiliary": "layers"}
CHARACTER |= {"objective.targets": 2, "data.tokenizer": "characters"}
"""A decoder of characters with positions in every layer and auxiliary losses."""
MASKED = {"model.kind": "encoder", "model.segments": "both", "model.head": "transform"}
MASKED |= {"model.pooler": "tanh", "model.sentence_classes": 2, "objective.kind": "masked"}
MASKED |= {"objective.masking": "word", "objective.sentence": "sop", "data.sentences": "lines"}
MASKED |= {"data.tokenizer": "wordpiece", "data.vocab_size": 90}
TRANSLATION = {"model.kind": "encoder-decoder", "objective.kind": "translation"}
TRANSLATION |= {"objective.label_smoothing": 0.1, "data.source_language": "en"}
TRANSLATION |= {"data.target_language": "de", "data.tokenizer": "word-bpe", "data.vocab_size": 120}
SPAN = {"model.kind": "encoder-decoder", "model.decoder_start": "pad", "objective.kind": "span"}
SPAN |= {"objective.z_loss": 1e-3, "objective.chunk_tokens": 500, "data.tokenizer": "unigram"}
SPAN |= {"data.vocab_size": 90, "data.sentinels": 20, "data.windows": "shuffled"}
"""An encoder-decoder that fills gaps; one document is long."""
PAIR = {"model.kind": "encoder", "model.segments": "both", "model.pooler": "tanh"}
PAIR |= {"objective.kind": "supervised", "objective.orders": "random", "data.tasks": "stsb"}
PAIR |= {"data.tokenizer": "wordpiece", "data.vocab_size": 90}
TRAVERSAL = {"objective.kind": "supervised", "objective.format": "traversal"}
TRAVERSAL |= {"objective.language_weight": 0.5, "data.tasks": "copa", "data.tokenizer": "unigram"}
TRAVERSAL |= {"data.vocab_size": 90}
QUESTIONS = {"model.kind": "encoder", "model.segments": "both", "objective.kind": "supervised"}
QUESTIONS |= {"objective.doc_stride": 4, "data.tasks": "squad", "data.tokenizer": "wordpiece"}
QUESTIONS |= {"data.vocab_size": 90}
TEXT = {"model.kind": "encoder-decoder", "model.decoder_start": "pad"}
TEXT |= {"model.positions": "relative", "objective.kind": "supervised", "objective.format": "text"}
TEXT |= {"objective.target_length": 8, "data.tasks": {"sst2": 1.0, "rte": 2.0}}
TEXT |= {"data.tokenizer": "unigram", "data.vocab_size": 90}
KINDS = {"causal": {}, "lstm": LSTM, "character": CHARACTER, "masked": MASKED}
KINDS |= {"translation": TRANSLATION, "span": SPAN, "pair": PAIR, "traversal": TRAVERSAL}
KINDS |= {"questions": QUESTIONS, "text": TEXT}


class Workshop:
    """The texts and runs of one run of pytest, below a folder that its processes share."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.once("texts", self._write_texts)

    def path(self, settings):
        names = {"masked": "stories", "translation": "pairs.tsv", "supervised": "tasks"}
        return self.folder / "texts" / names.get(settings.get("objective.kind", ""), "words.txt")

    def recipe(self, settings, **more):
        tiny = {**TINY, "data.path": str(self.path(settings))}
        if settings.get("model.kind") == "lstm":
            del tiny["model.n_heads"]
        return load_recipe("gpt", tiny).vary({**settings, **more})

    def run(self, kind):
        def train(folder):
            train_run(self.recipe(KINDS[kind]), folder, progress=SilentProgress())

        return self.once(f"run-{kind}", train)

    def once(self, name, make):
        """Give the folder of a name, made where it is missing by whichever process is first."""
        with FileLock(self.folder / f"{name}.lock"):
            if not (self.folder / f"{name}.done").exists():
                make(self.folder / name)
                (self.folder / f"{name}.done").touch()
        return self.folder / name

    def _write_texts(self, folder):
        (folder / "stories").mkdir(parents=True)
        write_stories(folder / "stories")
        words = np.random.default_rng(7).choice(WORDS, 12000)
        (folder / "words.txt").write_text(" ".join(words))
        rng = np.random.default_rng(8)
        lines = [rng.choice(WORDS, rng.integers(1, 9)).tolist() for _ in range(400)]
        pairs = (f"{' '.join(words)}\t{' '.join(reversed(words))}\n" for words in lines)
        (folder / "pairs.tsv").write_text("".join(pairs))
        write_squad(write_rte(write_copa(write_stsb(write_sst2(folder / "tasks")))))
