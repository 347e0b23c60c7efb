"""A study on Slurm, left and joined, one job's node lost in the middle: the same bits.

``python tests/cluster/slurm_study.py``, as root, with Debian's packages slurm-wlm and munge: starts
a controller and two nodes of one core each on this machine, with a configuration of its own in a
temporary folder, and stops them. Nothing listens beyond this machine.
"""

import getpass
import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from small_study import Command, check_equal, leave_and_join, refuse, wait_until, write_text

CONFIGURATION = """
ClusterName=trial
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=16817
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
CommunicationParameters=NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=15
SlurmctldTimeout=15
KillWait=5
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port=17001 CPUs=1 RealMemory=2000
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port=17002 CPUs=1 RealMemory=2000
PartitionName=small Nodes=node1,node2 Default=YES MaxTime=1-00:00:00 State=UP
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        write_text(folder / "river.txt")
        assert Command(folder, "--out", "here", is_quiet=True).wait() == 0
        with slurm(folder / "slurm") as nodes:
            refuse(folder, "--on", "slurm:large")
            refuse(folder, "--on", "slurm", "train.threads=2")
            refuse(folder, "--on", "slurm", "model.d_ff=2000000")
            refuse(folder, "--on", "slurm", "train.precision=float32", "--device", "cuda")
            on = ["--on", "slurm:small", "--out", "there"]
            queue = partial(show, "squeue", "--format=%.4i %.40j %.8T %N")
            leave_and_join(folder, on, queue, lambda: lose(nodes["node2"]))
            show("sinfo", "--Node", "--format=%N %T %c %m")
        check_equal(folder, "here", "there")


def lose(node: subprocess.Popen[bytes]) -> None:
    """Kill a node's daemon and all that it has started, as where a machine loses its power."""
    spool = Path(os.environ["SLURM_CONF"]).parent / "spool-node2"
    node.kill()
    # Each step has a socket node2_JOB.STEP in the spool of its node.
    jobs = {path.name.partition("_")[2].partition(".")[0] for path in spool.glob("node2_*")}
    for pid in _processes_of(jobs):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _processes_of(jobs: set[str]) -> Iterator[int]:
    """Yield the processes of jobs, those that watch over their steps first."""
    marks = [f"SLURM_JOB_ID={job}".encode() for job in jobs]
    steps = [f"slurmstepd: [{job}.".encode() for job in jobs]
    own = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any((path / "cmdline").read_bytes().startswith(step) for step in steps):
                yield int(path.name)
            elif any(mark in (path / "environ").read_bytes().split(b"\0") for mark in marks):
                own.append(int(path.name))
    yield from own


def show(*command: str) -> None:
    """Print what a command of Slurm prints."""
    print(f"$ {' '.join(command)}", flush=True)
    print(subprocess.run(command, capture_output=True, text=True, check=True).stdout, flush=True)


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Run a controller and two nodes, with their files in a folder."""
    (folder / "state").mkdir(parents=True)
    host = subprocess.run(["hostname", "-s"], capture_output=True, text=True, check=True)
    values = {"host": host.stdout.strip(), "user": getpass.getuser(), "folder": folder}
    (folder / "slurm.conf").write_text(CONFIGURATION.format(**values))
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    folder.parent.chmod(0o755)
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    munge = ["munged", "--foreground", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munge += [f"--{name}-file={folder}/munge.{name}" for name in ("log", "pid", "seed")]
    started = {"munge": subprocess.Popen(munge, stderr=subprocess.DEVNULL)}
    try:
        time.sleep(1)
        started["slurmctld"] = subprocess.Popen(["slurmctld", "-D"], stderr=subprocess.DEVNULL)
        for node in ("node1", "node2"):
            command = ["slurmd", "-D", "-N", node]
            started[node] = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_until(lambda: _count_idle() == 2)
        yield started
    finally:
        for process in reversed(started.values()):
            process.terminate()
            process.wait()


def _count_idle() -> int:
    command = ["sinfo", "--noheader", "--Node", "--states=idle", "--format=%N"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return len(done.stdout.split())


if __name__ == "__main__":
    main()
