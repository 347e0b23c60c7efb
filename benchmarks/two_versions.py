"""Measure whether this version is slower than another one, case by case. See README.md.

    git worktree add ../before COMMIT
    python benchmarks/two_versions.py ../before [--cases gpt bert ...] [--out FOLDER/NAME]

Each version builds a case by its own benchmarks, in a process of its own that waits for its turns,
so both run the same work in one run; the ratio of each round is of two turns next to each other.
"""

import argparse
import importlib
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
import torch

FLOOR = 0.97
"""A case is slower where the whole 95% CI of its ratio lies below."""
TURN_S = 1.0
STEPS = {
    "gpt": ("gpt", 0.1),
    "gpt-no-dropout": ("gpt", 0.0),
    "d256": ("d256", 0.1),
    "d256-no-dropout": ("d256", 0.0),
    "d512": ("d512", 0.1),
    "d512-no-dropout": ("d512", 0.0),
    "characters": ("char-t12", 0.2),
}
ENCODERS = {
    "bert": ("bert", 0.1),
    "bert-no-dropout": ("bert", 0.0),
    "albert": ("albert", 0.1),
    "albert-no-dropout": ("albert", 0.0),
}
GENERATION = {
    "generate-d192-b1": (192, 6, 4, 128, 1, 256),
    "generate-d192-b16": (192, 6, 4, 128, 16, 256),
    "generate-d256-b1": (256, 6, 4, 256, 1, 512),
    "generate-d256-b16": (256, 6, 4, 256, 16, 512),
    "generate-d512-b1": (512, 12, 8, 512, 1, 8192),
    "generate-d512-b16": (512, 12, 8, 512, 16, 8192),
}
SPANS = {"t5": 0.1, "t5-no-dropout": 0.0}
PREPARATION = {"prepare-bytes": "bytes", "prepare-bpe": "bpe"}
SAVING = "save"
TRANSLATION = ("translation", "beam-of-5")
CASES = (*STEPS, *ENCODERS, *GENERATION, *SPANS, SAVING, *PREPARATION, *TRANSLATION)
_PROMPT_TOKENS, _NEW_TOKENS = 16, 96
_SENTENCES, _LINES = 32, 64

Work = Callable[[int], object]
"""Does a number of pieces of work: steps, continuations, translations of all lines."""


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    torch.set_num_threads(options.threads)
    if options.serve is not None:
        _serve(build_case(options.serve, options))
        return
    from report import describe_conditions, keep

    asked = options.cases or _cases_of(options)
    rows = [measure_case(case, options) for case in asked]
    result = {
        "conditions": describe_conditions("cpu"),
        "before": _commit(options.before),
        "cases": rows,
    }
    table = _table(result)
    print(table)
    if options.out is not None:
        keep(result, table, options.out)


def build_case(case: str, options: argparse.Namespace) -> Work:
    """Build a case by the benchmarks of the version that is first on the path, in float32."""
    if case in STEPS:
        return _pretraining(*STEPS[case])
    if case in ENCODERS:
        return _encoder(*ENCODERS[case])
    if case in GENERATION:
        return _generation(*GENERATION[case])
    if case in SPANS:
        return _span_corruption(SPANS[case])
    if case in PREPARATION:
        return _preparation(options.text, PREPARATION[case])
    if case == SAVING:
        return _saving()
    if "beam" in case:
        return _beam(options.settings, options.run)
    return _translation(options.settings)


def _pretraining(size: str, dropout: float) -> Work:
    from contestants import OURS, Setup, our_step

    return _in_turn(our_step(Setup(OURS, size, dropout, "float32")))


def _encoder(family: Any, dropout: float) -> Work:
    from contestants import OURS
    from encoders import EncoderSetup, build_encoder_step

    setup = EncoderSetup(OURS, "d256", dropout, "float32", family=family)
    return _in_turn(build_encoder_step(setup))


def _generation(
    d_model: int, n_layers: int, n_heads: int, context: int, sequences: int, vocab_size: int
) -> Work:
    from contestants import Size
    from generate_speed import make_model, ours

    size = Size(d_model, n_layers, n_heads, context, sequences=sequences, vocab_size=vocab_size)
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(vocab_size, (sequences, _PROMPT_TOKENS), generator=generator)
    generate = ours(make_model(size))

    def run(count: int) -> None:
        for _ in range(count):
            generate(prompt, _NEW_TOKENS)

    return run


def _span_corruption(dropout: float) -> Work:
    from contestants import OURS, Setup
    from span_models import build_span_step

    return _in_turn(build_span_step(Setup(OURS, "d256", dropout, "float32")))


def _preparation(text: Path, tokenizer: str) -> Work:
    """Prepare the text in a process and a cache of its own, the tokenizer's training included."""
    program = importlib.import_module("text_preparation")._CHILD

    def run(count: int) -> None:
        for _ in range(count):
            with tempfile.TemporaryDirectory() as cache:
                subprocess.run(
                    [sys.executable, "-c", program, "text", str(text), tokenizer, "all"],
                    env={**os.environ, "SUBLAYER_CACHE": cache},
                    check=True,
                )

    return run


def _saving() -> Work:
    """Save a GPT of 6 layers and d 512, with the state of AdamW, while training waits."""
    version: Any = importlib.import_module("saving_speed")
    settings = {
        "model.n_layers": 6,
        "model.d_model": 512,
        "model.n_heads": 8,
        "data.context": 128,
        "data.corpus": "python",
        "train.steps": 100_000,
        "train.batch_sequences": 8,
        "train.precision": "float32",
        "train.save_in_background": False,
    }
    session = version.open_session(settings)
    session.train_step(0)
    state = version.LoopState()
    folder = Path(tempfile.mkdtemp())
    snapshots = version.Snapshots(folder, session.train_step, lambda folder: None)
    saving = getattr(snapshots, "saving", snapshots)  # a class apart in earlier versions

    def run(count: int) -> None:
        for _ in range(count):
            shutil.rmtree(folder, ignore_errors=True)
            state.step += 1
            saving.save(state)
            saving.wait()

    return run


def _translation(settings: Sequence[str]) -> Work:
    version: Any = importlib.import_module(
        "translation_speed"
    )  # whose names these are, here or there

    recipe = version.load_recipe("multi30k-tiny", [*settings, "train.precision=float32"]).recipe
    data = version.prepare_data(recipe)
    place = version._place()
    resolved = version.resolve(recipe, data, place, steps=10_000)
    return _in_turn(version.assemble(resolved, data, place).train_step)


def _beam(settings: Sequence[str], run: Path | None) -> Work:
    from translators import Translators

    assert run is not None
    values = dict(setting.split("=", 1) for setting in settings)
    lines = Path(values["data.test_source_path"]).read_text().splitlines()[:_LINES]
    translate = Translators(run, lines, torch.get_num_threads())._ours(_SENTENCES)

    def repeat(count: int) -> None:
        for _ in range(count):
            translate()

    return repeat


def _in_turn(take_step: Callable[[int], object]) -> Work:
    taken = 0

    def run(count: int) -> None:
        nonlocal taken
        for step in range(taken, taken + count):
            take_step(step)
        taken += count

    return run


def _serve(work: Work) -> None:
    """Answer each number of pieces that is asked for with the seconds that they took."""
    print("ready", flush=True)
    for line in sys.stdin:
        begun = time.perf_counter()
        work(int(line))
        print(time.perf_counter() - begun, flush=True)


class Version:
    """The parent's side of a process that runs a case of one version."""

    def __init__(self, root: Path, case: str, options: argparse.Namespace) -> None:
        files = {"--run": options.run, "--text": options.text}
        run = [part for name, path in files.items() if path for part in (name, str(path))]
        command = [sys.executable, "-P", str(Path(__file__).resolve()), str(options.before)]
        command += [*options.settings, "--serve", case, "--threads", str(options.threads), *run]
        path = os.pathsep.join([str(root), str(root / "benchmarks")])
        self._process = subprocess.Popen(
            command,
            cwd=root,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def seconds(self, count: int) -> float:
        """Return the seconds that so many pieces of work take."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a version ended with code {self._process.wait()}")
        return line


def measure_case(case: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a case in both versions by turns; return the seconds of a piece of work in each round."""
    versions = {
        "before": Version(options.before, case, options),
        "after": Version(_root(), case, options),
    }
    for version in versions.values():
        version.seconds(1)
    slowest = max(version.seconds(1) for version in versions.values())
    n_pieces = max(1, round(TURN_S / slowest))
    seconds: dict[str, list[float]] = {name: [] for name in versions}
    for index in range(options.rounds):
        order = ("before", "after") if index % 2 else ("after", "before")
        for name in order:
            seconds[name].append(versions[name].seconds(n_pieces) / n_pieces)
    for version in versions.values():
        version.close()
    row = {"case": case, "pieces_a_turn": n_pieces, **seconds, **ratio(**seconds)}
    low, high = row["interval"]
    print(f"{case}: {row['ratio']:.3f} ({low:.3f} to {high:.3f})", file=sys.stderr, flush=True)
    return row


def ratio(before: Sequence[float], after: Sequence[float]) -> dict[str, Any]:
    """Compute how many times the speed of before is reached, from pairs of turns.

    ``median`` is of the speeds' medians; ``ratio`` is the geometric mean over rounds and
    ``interval`` its 95 % t interval.
    """
    logs = np.log(np.asarray(before)) - np.log(np.asarray(after))
    half = scipy.stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
    mean = float(logs.mean())
    return {
        "median": float(np.median(before) / np.median(after)),
        "ratio": math.exp(mean),
        "interval": [math.exp(mean - half), math.exp(mean + half)],
    }


def _table(result: dict[str, Any]) -> str:
    from report import heading

    n_rounds = len(result["cases"][0]["after"])
    lines = [
        f"{heading(result)}; against {result['before']}, {n_rounds} rounds",
        "",
        "| case | times as fast, of medians | mean of rounds, 95% CI | slower |",
        "| --- | ---: | ---: | --- |",
    ]
    for row in result["cases"]:
        low, high = row["interval"]
        slower = "**yes**" if high < FLOOR else "no"
        interval = f"{row['ratio']:.3f} ({low:.3f} to {high:.3f})"
        lines.append(f"| {row['case']} | {row['median']:.3f} | {interval} | {slower} |")
    return "\n".join([*lines, ""])


def _cases_of(options: argparse.Namespace) -> list[str]:
    """List all cases that have data: preparation a text, translation settings, the beam a run."""
    training, beam = TRANSLATION
    cases = [*STEPS, *ENCODERS, *GENERATION, *SPANS, SAVING]
    if options.text is not None:
        cases += PREPARATION
    if options.settings:
        cases += [training, beam] if options.run is not None else [training]
    return cases


def _commit(root: Path) -> str:
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _root() -> Path:
    return Path(__file__).resolve().parent.parent


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure whether this version is slower than another one.",
        epilog="example: python benchmarks/two_versions.py ../before --cases gpt bert",
    )
    parser.add_argument("before", type=Path, help="the other version: a folder with its checkout")
    parser.add_argument(
        "settings", nargs="*", help="KEY=VALUE for multi30k-tiny, such as data.source_path=train.en"
    )
    parser.add_argument("--run", type=Path, help="a translator's run, for the beam")
    parser.add_argument("--text", type=Path, help="a text file, for preparation")
    parser.add_argument(
        "--cases",
        nargs="+",
        choices=CASES,
        metavar="CASE",
        help=f"of {', '.join(CASES)}; all that there is data for, unless given",
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, help="where results are kept, without the suffix")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    options.before = options.before.resolve()
    return options


if __name__ == "__main__":
    main()
