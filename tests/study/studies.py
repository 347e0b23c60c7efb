"""Small studies, made once a run of pytest and asked by many tests, which copy what they alter."""

import json
import shutil
from pathlib import Path

import pytest

from sublayer.api.comparing import compare
from sublayer.reporting.files import report_study
from sublayer.study.definition import Options
from sublayer.study.stage_recipes import ScoredTask, StagePart
from sublayer.tasks.registry import TASKS


def compared(*arguments, **options):
    """Compare, and return the object that ``--json`` prints."""
    return compare(*arguments, **options).to_dict()


_SENTENCE = "the reed by the river bends and does not break while oaks fall"
WORDS = _SENTENCE.split(" ")
TINY = ["model.n_layers=1", "model.d_model=8", "model.n_heads=2", "data.context=16"]
TINY += ["train.batch_sequences=2"]
FFN = "model.ffn=gelu,swiglu"
LR = "optimizer.lr"
RATES = f"{LR}=5e-2,1e-7,4.99999e-2"
"""The first, one by which nothing is learned, and one that nobody can tell from the first."""
FAILING = f"{LR}=1e-3,1e-2,1e6"
TUNED = f"""
tune = {{ {LR} = [1e-3, 1e-2] }}
tune_by = "loss"
scale.cpu.recipe = "gpt"
arms = [{{ name = "gelu" }}, {{ name = "swiglu", set.model.ffn = "swiglu" }}]
"""
SAYS = "Sharing costs more where the model is wide."
ASKED = f"""
match = "none"
seeds = 3
margin = "9 bits per byte"
inspect = {{ what = "layers", tokens = 100 }}
hypothesis.says = "{SAYS}"
hypothesis.contrast = {{ "wide and shared" = 1, wide = -1, shared = -1, plain = 1 }}
[scale.cpu]
recipe = "gpt"
[scale.cpu.set]
model = {{ n_layers = 3, d_model = 8, n_heads = 2 }}
data.context = 16
train = {{ steps = 3, batch_sequences = 2, precision = "float32", threads = 1 }}
[[arms]]
name = "plain"
[[arms]]
name = "shared"
set = {{ model.share = "all" }}
[[arms]]
name = "wide"
set = {{ model.d_model = 16 }}
[[arms]]
name = "wide and shared"
set = {{ model.d_model = 16, model.share = "all" }}
"""


def settings_of(text: Path, *more: str) -> list[str]:
    fixed = ["train.steps=5", "train.precision=float32", "train.threads=1"]
    given = {each.partition("=")[0] for each in more}
    usual = [*TINY, f"data.path={text}", *fixed]
    return [*(each for each in usual if each.partition("=")[0] not in given), *more]


def write_text(path: Path) -> Path:
    path.write_text(" ".join(WORDS[(i * i + i // 7) % len(WORDS)] for i in range(2800)))
    return path


def files(folder: Path) -> dict[str, tuple[int, int]]:
    found = ((path, path.stat()) for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (its.st_size, its.st_mtime_ns) for path, its in found}


def values(result) -> list[list[float]]:
    return [arm["values"] for arm in result["arms"]]


def same_files(name: str, folder: Path | str, other: Path | str) -> bool:
    one, its = (
        {path.relative_to(place): path.read_bytes() for path in Path(place).rglob(name)}
        for place in (folder, other)
    )
    return bool(one) and one == its


def read_results(folder: Path):
    return json.loads((folder / "results.json").read_text())


def timeless(content):
    """Leave places, dates and the speed of the machine out of results.json."""
    for name in ("report", "reproduction", "same_quality", "plan"):
        del content[name]
    for arm in content["arms"]:
        for name in ("seconds", "training_seconds", "tokens_per_s", "peak_memory_bytes"):
            del arm[name]
    return content


class Studies:
    def __init__(self, workshop) -> None:
        self._once = workshop.once
        self.place = workshop.once("studies", _write)
        self.text = self.place / "river.txt"
        self.settings = settings_of(self.text)

    def plain(self) -> Path:
        return self._made("plain", self._compare(FFN))

    def failed(self) -> Path:
        """Three arms of three seeds, of which one fails everywhere."""
        return self._made("failed", self._compare(FAILING))

    def _compare(self, vary: str):
        return lambda out: compare("gpt", self.settings, vary=[vary], seeds=3, out=out)

    def tuned(self) -> Path:
        """Two arms of a study's file, tuned by the loss over two seeds, beyond the edge once."""
        return self._made("tuned", lambda out: report_study(*self.as_tuned(out)))

    def as_tuned(self, out: Path, **changes) -> tuple[list[str], list[str], Options]:
        asked = {"seeds": 1, "first_seed": 2, "tuning_seeds": 2, "extend": 1, **changes}
        return [str(self.place / "tuned.toml")], self.settings, Options(out=out, **asked)

    def decided(self) -> Path:
        """Three arms; the second is decided at its first look, the third never."""
        return self._made("decided", lambda out: report_study(*self.as_decided(out)))

    def as_decided(self, out: Path, **changes) -> tuple[list[str], list[str], Options]:
        plan = {"until": "decided", "seeds_at_most": 5, "match": "none", **changes}
        return ["gpt"], self.settings, Options(vary=(RATES,), out=out, **plan)

    def asked(self) -> Path:
        """Four arms with a hypothesis and a margin, whose layers are inspected."""
        return self._made("asked", lambda out: report_study(*self.as_asked(out)))

    def as_asked(self, out: Path) -> tuple[list[str], list[str], Options]:
        return [str(self.place / "asked.toml")], [f"data.path={self.text}"], Options(out=out)

    def _made(self, name: str, make) -> Path:
        def in_cache(folder: Path) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SUBLAYER_CACHE", str(self.place / "cache"))
                make(folder)

        return self._once(f"study-{name}", in_cache)


def _write(folder: Path) -> None:
    folder.mkdir()
    write_text(folder / "river.txt")
    (folder / "tuned.toml").write_text(TUNED)
    (folder / "asked.toml").write_text(ASKED)


def copied(study: Path, folder: str | Path) -> Path:
    return Path(shutil.copytree(study, folder))


def part_of(task: str, name: str = "") -> StagePart:
    about = TASKS[task]
    scored = ScoredTask(name=task, title=about.title, metrics=tuple(about.metrics))
    return StagePart(name=name or task, task=scored)
