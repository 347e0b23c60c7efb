"""Time and memory of an import from transformers, beside reading and checking alone. See README.md.

python benchmarks/import_speed.py                    # 400 MB of bfloat16 in shards
python benchmarks/import_speed.py --megabytes 1000
"""

import argparse
import multiprocessing
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from options import note
from report import RESULTS, describe_conditions, heading, keep, result_name

AIM, AIM_MEMORY = 1.3, 2.0
"""Time of an import over that of reading and checking; peak of reading over the model's size."""
WIDTH, VOCABULARY, CONTEXT = 1024, 16_384, 512
KINDS = ("start", "read", "read and check", "import")


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=400, help="size of the weights")
    parser.add_argument("--shard-megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="where results are kept, without the suffix")
    options = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "published"
        write = spawn.Process(target=_write, args=(folder, options))
        write.start()
        write.join()
        for _ in range(options.rounds):
            measured = {}
            for kind in KINDS:
                shutil.rmtree(Path(place) / "imported", ignore_errors=True)
                with spawn.Pool(1) as pool:
                    measured[kind] = pool.apply(_measure, (kind, folder))
            rounds.append(measured)
            note(f"{measured}")
    result = {"conditions": describe_conditions("cpu"), "megabytes": options.megabytes}
    result["rounds"] = rounds
    table = _markdown(result)
    keep(result, table, options.out or RESULTS / result_name("cpu", "import"))
    print(table)


def _write(folder: Path, options: argparse.Namespace) -> None:
    """Write a GPT-2 of random weights in bfloat16, in shards."""
    import torch
    import transformers

    n_layers = round((options.megabytes * 1e6 / 2 - WIDTH * VOCABULARY) / (12 * WIDTH**2))
    config = transformers.GPT2Config(
        n_embd=WIDTH, n_head=16, n_layer=n_layers, vocab_size=VOCABULARY, n_positions=CONTEXT
    )
    torch.set_default_dtype(torch.bfloat16)
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(folder, max_shard_size=f"{options.shard_megabytes}MB")


def _measure(kind: str, folder: Path) -> dict[str, float]:
    """Return the seconds of a task, its process's peak bytes, and the bytes of its model."""
    import transformers  # noqa: F401

    from sublayer.interop.certificate import certify
    from sublayer.interop.huggingface import _read, import_huggingface

    begun, size = time.perf_counter(), 0.0
    if kind == "import":
        import_huggingface(folder, folder.parent / "imported")
    elif kind != "start":
        read, family, settings, tensors, _ = _read(folder)
        size = sum(parameter.nbytes for parameter in read.model.parameters())
        if kind == "read and check":
            assert settings is not None, "the folder is of a class"
            oracle = family.oracle(read.model.config)
            certify(read.model, settings.computed, tensors, oracle)
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak *= 1 if sys.platform == "darwin" else 1024
    return {"seconds": seconds, "peak": peak, "model": size}


def _markdown(result: dict[str, Any]) -> str:
    best = {kind: min(r[kind]["seconds"] for r in result["rounds"]) for kind in KINDS}
    peaks = {kind: max(r[kind]["peak"] for r in result["rounds"]) for kind in KINDS}
    size = result["rounds"][0]["read"]["model"]
    lines = [
        f"{heading(result)}; {result['megabytes']:,} MB of bfloat16, {size / 1e6:,.0f} MB here: "
        f"the fastest of {len(result['rounds'])} rounds, the highest peak.",
        "",
        "| task | s | peak memory beyond a process that only starts | of the model's size |",
        "| --- | ---: | ---: | ---: |",
    ]
    for kind in KINDS[1:]:
        memory = peaks[kind] - peaks["start"]
        lines.append(
            f"| {kind} | {best[kind]:.1f} | {memory / 1e6:,.0f} MB | {memory / size:.2f} |"
        )
    ratio = best["import"] / best["read and check"]
    aims = f"An import takes {ratio:.2f} times as long as reading and checking (aim {AIM}); "
    return "\n".join([*lines, "", f"{aims}reading is to take less than {AIM_MEMORY} models."])


if __name__ == "__main__":
    main()
