"""The job of the page on several processes, on two nodes of Slurm: warned, queued again, the same.

``python tests/cluster/slurm_training.py``, as ``slurm_study.py``.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from slurm_study import show, slurm
from small_study import wait_until, write_text

PAGE = Path(__file__).parents[2] / "docs" / "distributed.md"
SETTINGS = [
    *("model.n_layers=2", "model.d_model=64", "model.n_heads=2", "model.dropout=0.1"),
    *("data.context=64", "train.checkpoint_steps=10", "train.precision=float32"),
]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        write_text(folder / "river.txt")
        (folder / "river.txt").rename(folder / "book.txt")
        job = job_of_the_page()
        (folder / "job.sh").write_text(job)
        with slurm(folder / "slurm"):
            os.environ["MASTER_ADDR"] = "127.0.0.1"
            submitted = subprocess.run(
                ["sbatch", "--parsable", "--mem-per-cpu=900", "job.sh"],
                cwd=folder,
                capture_output=True,
                text=True,
                check=True,
            )
            number = submitted.stdout.strip()
            checkpoints = folder / "runs" / "nodes" / "checkpoints"
            wait_until(lambda: len(list(checkpoints.glob("step-*"))) >= 2)
            show("squeue", "--format=%.4i %.20j %.8T %N")
            show("scancel", "--signal=USR1", number)
            log = folder / f"slurm-{number}.out"
            wait_until(lambda: "interrupted and saved" in log.read_text())
            wait_until(lambda: (folder / "runs" / "nodes" / "record.json").exists())
            lines = log.read_text().replace(str(folder), "FOLDER").splitlines()
            print("\n".join(line for line in lines if "tokens/s" not in line), flush=True)
        train_alone(folder)
        ours, theirs = (
            (folder / "runs" / run / "model" / "model.safetensors").read_bytes()
            for run in ("nodes", "alone")
        )
        print(f"the weights of one process: {'the same' if ours == theirs else 'OTHERS'}")
        assert ours == theirs


def job_of_the_page() -> str:
    """Take the job from the page, for this Python, with a model that is small."""
    blocks = PAGE.read_text().split("```text\n")[1:]
    (job,) = [block.partition("```")[0] for block in blocks if block.startswith("#!/bin/bash")]
    command = f"{sys.executable} -m sublayer train gpt {' '.join(SETTINGS)}"
    assert "sublayer train gpt" in job
    return job.replace("sublayer train gpt", command)


def train_alone(folder: Path) -> None:
    settings = ["data.path=book.txt", "train.steps=200", "train.exact=true"]
    words = ["train", "gpt", *SETTINGS, *settings, "--out", "runs/alone"]
    subprocess.run(
        [sys.executable, "-m", "sublayer", *words], cwd=folder, check=True, capture_output=True
    )


if __name__ == "__main__":
    main()
