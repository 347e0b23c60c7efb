"""A study on Slurm: left and joined, a run, the command, a node and the controller lost.

``python tests/cluster/slurm_study.py``, as root, with Debian's packages slurm-wlm and munge: starts
a controller and two nodes of one core each on this machine, with a configuration of its own in a
temporary folder, and stops them. Nothing listens beyond this machine.
"""

import getpass
import os
import secrets
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from small_study import check_equal, leave_and_join, refuse, trial, wait_until

SETTINGS = """
ClusterName=trial SlurmctldHost={host}(127.0.0.1) SlurmctldPort=16817 SlurmUser={user}
SlurmdUser={user} AuthType=auth/munge AuthInfo=socket={folder}/munge.socket CredType=cred/munge
CommunicationParameters=NoInAddrAny StateSaveLocation={folder}/state ReturnToService=2
SlurmdSpoolDir={folder}/spool-%n SlurmctldPidFile={folder}/slurmctld.pid KillWait=5
SlurmdPidFile={folder}/slurmd-%n.pid SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log ProctrackType=proctrack/linuxproc TaskPlugin=task/none
SelectType=select/cons_tres SelectTypeParameters=CR_Core_Memory SchedulerType=sched/backfill
AccountingStorageType=accounting_storage/none JobAcctGatherType=jobacct_gather/none
MpiDefault=none SlurmdTimeout=15 SlurmctldTimeout=15
"""
NODES = """
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port=17001 CPUs=1 RealMemory=2000
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port=17002 CPUs=1 RealMemory=2000
PartitionName=small Nodes=node1,node2 Default=YES MaxTime=1-00:00:00 State=UP
"""
CONFIGURATION = "\n".join(SETTINGS.split()) + NODES


def main():
    with trial() as folder:
        with slurm(folder / "slurm") as nodes:
            refuse(folder, "--on", "slurm:large")
            refuse(folder, "--on", "slurm", "train.threads=2")
            refuse(folder, "--on", "slurm", "model.d_ff=2000000")
            refuse(folder, "--on", "slurm", "train.precision=float32", "--device", "cuda")
            on = ["--on", "slurm:small", "--out", "there"]
            leave_and_join(folder, on, lambda: restart(nodes), lambda: lose(nodes["node2"]))
            show("sinfo", "--Node", "--format=%N %T %c %m")
        check_equal(folder)


def restart(nodes):
    """Kill the controller while jobs run and wait, and start it again."""
    show("squeue", "--format=%.4i %.48j %.8T %N")
    print("# the controller is killed, and started again", flush=True)
    nodes["slurmctld"].kill()
    nodes["slurmctld"].wait()
    nodes["slurmctld"] = subprocess.Popen(["slurmctld", "-D"], stderr=subprocess.DEVNULL)
    wait_until(lambda: output_of("squeue", "--noheader", check=False))


def lose(node):
    """Kill a node's daemon and all that it has started, as where a machine loses its power."""
    spool = Path(os.environ["SLURM_CONF"]).parent / "spool-node2"
    node.kill()
    # Each step has a socket node2_JOB.STEP in the spool of its node.
    jobs = {path.name.partition("_")[2].partition(".")[0] for path in spool.glob("node2_*")}
    marks = {f"SLURM_JOB_ID={job}".encode() for job in jobs}
    steps = tuple(f"slurmstepd: [{job}.".encode() for job in jobs)
    watching, own = [], []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (path / "cmdline").read_bytes().startswith(steps):
                watching.append(int(path.name))
            elif marks & {*(path / "environ").read_bytes().split(b"\0")}:
                own.append(int(path.name))
    for pid in (*watching, *own):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def output_of(*command, check=True, **more):
    done = subprocess.run(command, capture_output=True, text=True, check=check, **more)
    return done.stdout.strip()


def show(*command):
    print(f"$ {' '.join(command)}\n{output_of(*command)}\n", flush=True)


@contextmanager
def slurm(folder):
    (folder / "state").mkdir(parents=True)
    values = {"host": output_of("hostname", "-s"), "user": getpass.getuser(), "folder": folder}
    (folder / "slurm.conf").write_text(CONFIGURATION.format(**values))
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    folder.parent.chmod(0o755)
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    munge = ["munged", "--foreground", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munge += [f"--{name}-file={folder}/munge.{name}" for name in ("log", "pid", "seed")]
    commands = {"munge": munge, "slurmctld": ["slurmctld", "-D"]}
    commands |= {node: ["slurmd", "-D", "-N", node] for node in ("node1", "node2")}
    started = {}
    try:
        for name, command in commands.items():
            started[name] = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            time.sleep(name == "munge")
        idle = ("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N")
        wait_until(lambda: len(output_of(*idle, check=False).split()) == 2)
        yield started
    finally:
        for process in reversed(started.values()):
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
