"""A small study, made here and on a cluster, and what of both must be the same to the bit."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

WORDS = ["the", "reed", "by", "the", "river", "bends", "and", "does", "not", "break"]
STUDY = """
gpt data.path=river.txt model.n_layers=2 model.d_model=32 model.n_heads=2 data.context=32
train.batch_sequences=8 train.steps=300 train.checkpoint_steps=30 train.threads=1
--vary model.ffn=gelu,swiglu --seeds 4
"""
TIMES_AND_PLACES = {"command", "date", "environment", "peak_memory_bytes", "report", "seconds"}
TIMES_AND_PLACES |= {"tokens_per_s", "training_seconds", "hash", "sealed"}


@contextmanager
def trial():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        write_text(folder / "river.txt")
        assert Command(folder, "--out", "here", is_quiet=True).wait() == 0
        yield folder


def write_text(path):
    draw = random.Random(5)
    path.write_text("\n".join(" ".join(draw.choices(WORDS, k=12)) + "." for _ in range(4000)))


class Command:
    """A ``sublayer compare`` in the folder of the trial, whose lines are printed as they come."""

    def __init__(self, folder, *words, is_quiet=False):
        given = {word.partition("=")[0] for word in words if "=" in word}
        own = [word for word in STUDY.split() if word.partition("=")[0] not in given]
        line = ["sublayer", "compare", *own, *words]
        print(f"$ {' '.join(line)}", flush=True)
        found = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        paths = {"PYTHONPATH": os.pathsep.join(found), "SUBLAYER_CACHE": f"{folder}/cache"}
        more = {"cwd": folder, "env": os.environ | paths, "stderr": subprocess.STDOUT}
        self._folder, self._is_quiet = folder, is_quiet
        line = [sys.executable, "-m", *line]
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, **more)
        self.lines = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait(self):
        code = self.process.wait()
        self._reader.join()
        print(f"exit code {code}", flush=True)
        return code

    def wait_for(self, pattern, n_times=1):
        """Wait until so many of its lines match; raise where it ends before."""
        while sum(bool(re.search(pattern, line)) for line in list(self.lines)) < n_times:
            if self.process.poll() is not None:
                raise SystemExit("\n".join([*self.lines, f"it ended without {pattern!r}"]))
            time.sleep(0.1)

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.decode().rstrip().replace(str(self._folder), "FOLDER"))
            if not self._is_quiet:
                print(self.lines[-1], flush=True)


def refuse(folder, *words):
    """Ask for what there is not: the command must end with a line, and leave nothing."""
    command = Command(folder, *words, "--out", "refused", is_quiet=True)
    assert command.wait() == 2, command.lines
    print(command.lines[-1], flush=True)
    assert not (folder / "refused").exists()


def leave_and_join(folder, on, show, lose):
    """Leave the study, join it, kill a run and then the command, join it again, and lose a node."""
    first = Command(folder, *on)
    first.wait_for(r"^\[1/")
    first.wait_for(r": on ", 3)
    print("^C", flush=True)
    first.process.send_signal(signal.SIGINT)
    assert first.wait() == 130
    show()
    second = Command(folder, *on)
    second.wait_for(": joined")
    second.wait_for(r": on ")
    print("# the process of a run is killed", flush=True)
    os.kill(wait_until(lambda: workers(folder))[0], signal.SIGKILL)
    second.wait_for("; tried again")
    print("# the command is killed", flush=True)
    second.process.kill()
    assert second.wait() == -signal.SIGKILL
    third = Command(folder, *on)
    third.wait_for(": joined")
    third.wait_for(r": on ", 2)
    wait_until(lambda: list((folder / "there").glob("arms/*/*/checkpoints/step-*")))
    print("# one of the two nodes is lost", flush=True)
    lose()
    assert third.wait() == 0


def workers(folder):
    """Return the processes that make runs of the study, which have written a checkpoint."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes().decode().rstrip("\0").split("\0")
            run = words[-1].partition("/there/cluster/runs/")[2]
            has_saved = run and list((folder / "there" / run).glob("checkpoints/step-*"))
            if has_saved and len(words) > 4 and "sublayer.study.jobs.worker" in words[3]:
                found.append(int(path.name))
    return found


def wait_until(is_so):
    while not (found := is_so()):
        time.sleep(0.1)
    return found


def check_equal(folder):
    paths = [folder / name / "results.json" for name in ("here", "there")]
    one, other = (dict(_values(json.loads(path.read_text()))) for path in paths)
    differing = [key for key in one.keys() | other.keys() if one.get(key) != other.get(key)]
    if differing:
        raise SystemExit(f"{len(differing)} values differ, {sorted(differing)[:5]} first")
    print(f"{len(one):,} values of here/results.json and there/results.json: the same")
    for name in ("model.safetensors", "test.json", "items.npz"):
        studies = (folder / "here", folder / "there")
        here, there = ({p.relative_to(s): p.read_bytes() for p in s.rglob(name)} for s in studies)
        if not here or here != there:
            raise SystemExit(f"{name} differs")
        print(f"{len(here)} files {name}: the same bytes")


def _values(content, place=""):
    if isinstance(content, dict):
        for key in content.keys() - TIMES_AND_PLACES:
            yield from _values(content[key], f"{place}.{key}")
    elif isinstance(content, list):
        own = [each for each in content if "made on a cluster" not in str(each)[:80]]
        for number, value in enumerate(own):
            yield from _values(value, f"{place}.{number}")
    else:
        yield place, content
