"""Translators: a run here, transformers' M2M100 and CTranslate2 with its weights, in float32."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from turns import Contestant

from sublayer.decode.beam import BeamSettings, tokenizer_of, translate_lines
from sublayer.interop.huggingface import export_huggingface
from sublayer.loading import load
from sublayer.text_model import TextModel

OURS, PEER, CEILING = "sublayer", "transformers M2M100", "CTranslate2"
BEAM, MORE, SHARE = 5, 10.0, 1.2
SENTENCES = (32, 64)

Rows = list[list[int]]


class Translators:
    """Contestants over the same lines, longest first; ``found`` has their last translations."""

    def __init__(self, run: Path, lines: Sequence[str], threads: int) -> None:
        model = load(run)
        tokenizer = tokenizer_of(model)
        self.model, self.lines, self.found = model, list(lines), dict[str, Rows]()
        assert tokenizer.sep_id is not None and tokenizer.pad_id is not None, "it translates"
        self.end, self.pad = tokenizer.sep_id, tokenizer.pad_id
        self.sources = [
            [*ids.tolist(), self.end] for ids in tokenizer.encode_many([x.encode() for x in lines])
        ]
        self.order = sorted(range(len(self.sources)), key=lambda index: -len(self.sources[index]))
        self.threads = threads
        self.peer = m2m100(model).eval()

    def contestants(self) -> list[Contestant]:
        """List all, CTranslate2 where it is installed, for several numbers of sentences."""
        makers: dict[str, Callable[[int], Callable[[], Rows]]] = {
            OURS: self._ours,
            PEER: self._transformers,
        }
        if (ceiling := self._ceiling()) is not None:
            makers[CEILING] = ceiling
        return [
            Contestant(name, f"{n} sentences", self._turn(name, make(n)))
            for name, make in makers.items()
            for n in SENTENCES
        ]

    def agreement(self, name: str) -> float:
        """Give the share of lines that a contestant translates as we do."""
        pairs = zip(self.found[OURS], self.found[name], strict=True)
        return sum(one == other for one, other in pairs) / len(self.lines)

    def _turn(self, name: str, translate: Callable[[], Rows]) -> Callable[[int], int]:
        def run(_: int) -> int:
            self.found[name] = translate()
            return len(self.lines)

        return run

    def _ours(self, sentences: int) -> Callable[[], Rows]:
        settings = BeamSettings(BEAM, max_length_ratio=SHARE, max_length_offset=MORE)

        def translate() -> Rows:
            found = translate_lines(
                self.model,
                self.lines,
                settings,
                sentences=sentences,
                window=len(self.lines),
                are_words=True,
            )
            return [each.ids.tolist() for each in found]

        return translate

    def _transformers(self, sentences: int) -> Callable[[], Rows]:
        @torch.inference_mode()
        def translate() -> Rows:
            found: Rows = [[] for _ in self.sources]
            for start in range(0, len(self.order), sentences):
                chosen = self.order[start : start + sentences]
                source, mask = _padded([self.sources[index] for index in chosen], self.pad)
                ids = self.peer.generate(
                    source,
                    attention_mask=mask,
                    num_beams=BEAM,
                    length_penalty=1.0,
                    early_stopping=True,
                    max_new_tokens=int(SHARE * source.shape[1] + MORE) + 1,
                    min_new_tokens=1,
                    do_sample=False,
                    decoder_start_token_id=self.end,
                    eos_token_id=self.end,
                    pad_token_id=self.pad,
                )
                for index, row in zip(chosen, ids.tolist(), strict=True):
                    words = row[1:]
                    found[index] = words[: words.index(self.end)] if self.end in words else words
            return found

        return translate

    def _ceiling(self) -> Callable[[int], Callable[[], Rows]] | None:
        try:
            import ctranslate2
        except ModuleNotFoundError:
            return None
        with tempfile.TemporaryDirectory() as folder:
            _convert(self.peer, self.end, self.pad, Path(folder) / "model")
            translator = ctranslate2.Translator(
                str(Path(folder) / "model"),
                device="cpu",
                compute_type="float32",
                intra_threads=self.threads,
            )
        longest = int(SHARE * max(map(len, self.sources)) + MORE)
        sources = [[str(id_) for id_ in self.sources[index]] for index in self.order]

        def make(sentences: int) -> Callable[[], Rows]:
            def translate() -> Rows:
                done = translator.translate_batch(
                    sources,
                    beam_size=BEAM,
                    length_penalty=1.0,
                    max_decoding_length=longest,
                    min_decoding_length=1,
                    max_batch_size=sentences,
                    batch_type="examples",
                    max_input_length=0,
                )
                found: Rows = [[] for _ in sources]
                for index, result in zip(self.order, done, strict=True):
                    found[index] = [int(name) for name in result.hypotheses[0]]
                return found

            return translate

        return make


def m2m100(model: TextModel) -> Any:
    """Give transformers' model with the weights of one of ours."""
    from transformers import M2M100ForConditionalGeneration

    with tempfile.TemporaryDirectory() as folder:
        export_huggingface(model, Path(folder) / "model")
        return M2M100ForConditionalGeneration.from_pretrained(Path(folder) / "model")


def _convert(peer: Any, end: int, pad: int, folder: Path) -> None:
    """Write transformers' model for CTranslate2, its tokens named by their numbers."""
    from ctranslate2.converters.transformers import M2M100Loader

    loader = M2M100Loader()
    spec = loader.get_model_spec(peer)
    names = [str(number) for number in range(peer.config.vocab_size)]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.bos_token = spec.config.eos_token = spec.config.decoder_start_token = str(end)
    spec.config.unk_token = str(pad)
    spec.validate()
    spec.optimize(quantization="float32")
    folder.mkdir()
    spec.save(str(folder))


def _padded(rows: Rows, pad: int) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows))
    tokens = torch.full((len(rows), width), pad)
    for place, row in enumerate(rows):
        tokens[place, : len(row)] = torch.tensor(row)
    return tokens, (tokens != pad).long()
