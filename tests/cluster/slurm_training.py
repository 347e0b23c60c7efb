"""The jobs of `docs/distributed.md`, on two nodes of Slurm: warned, requeued, the same."""

import os
import sys
import tempfile
from pathlib import Path

from slurm_study import output_of, show, slurm
from small_study import wait_until, write_text

PAGE = Path(__file__).parents[2] / "docs" / "distributed.md"
SETTINGS = [
    *("model.n_layers=2", "model.d_model=64", "model.n_heads=2", "model.dropout=0.1"),
    *("data.context=64", "train.checkpoint_steps=10", "train.precision=float32"),
]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        write_text(folder / "book.txt")
        with slurm(folder / "slurm"):
            os.environ["MASTER_ADDR"] = "127.0.0.1"
            run_job(folder, "train", "nodes", "scancel", "--signal=USR1")
            run_job(folder, "torchrun", "launched", "scancel", "--batch", "--signal=USR1")
        words = ["data.path=book.txt", "train.steps=200", "train.exact=true", "--out", "runs/alone"]
        output_of(sys.executable, "-m", "sublayer", "train", "gpt", *SETTINGS, *words, cwd=folder)
        places = (folder / "runs" / run / "model" for run in ("nodes", "launched", "alone"))
        nodes, launched, alone = ((at / "model.safetensors").read_bytes() for at in places)
        for run, own in (("nodes", nodes), ("launched", launched)):
            same = "the same" if own == alone else "OTHERS"
            print(f"runs/{run}, and the weights of one process: {same}")
        assert nodes == launched == alone


def run_job(folder, job, run, *warning):
    """Submit a job of the page, warn it once as Slurm does, and wait until its run is done."""
    (folder / f"{job}.sh").write_text(job_of_the_page(job))
    number = output_of("sbatch", "--parsable", "--mem-per-cpu=900", f"{job}.sh", cwd=folder)
    checkpoints = folder / "runs" / run / "checkpoints"
    wait_until(lambda: len(list(checkpoints.glob("step-*"))) >= 2)
    show("squeue", "--format=%.4i %.20j %.8T %.11l %N")
    show(*warning, number)
    log = folder / f"slurm-{number}.out"
    wait_until(lambda: "interrupted and saved" in log.read_text())
    wait_until(lambda: (folder / "runs" / run / "record.json").exists())
    wait_until(lambda: not output_of("squeue", "--noheader"))
    lines = log.read_text().replace(str(folder), "FOLDER").splitlines()
    print("\n".join(line for line in lines if "tokens/s" not in line), flush=True)


def job_of_the_page(name):
    blocks = [block.partition("```")[0] for block in PAGE.read_text().split("```text\n")[1:]]
    (job,) = (block for block in blocks if f"--job-name={name} " in block)
    assert job.startswith("#!/bin/bash") and "sublayer train gpt" in job
    train = f"sublayer train gpt {' '.join(SETTINGS)}"
    if "srun torchrun" in job:
        launcher = f"srun {sys.executable} -m torch.distributed.run"
        return job.replace("sublayer train gpt", train).replace("srun torchrun", launcher)
    return job.replace("sublayer train gpt", f"{sys.executable} -m {train}")


if __name__ == "__main__":
    main()
