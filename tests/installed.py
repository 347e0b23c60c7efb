"""Install the built wheel into an empty environment, and use it there as a user does.

``python tests/installed.py lowest`` installs the lowest versions that pyproject.toml allows,
``tested`` those of constraints.txt, ``newest`` the newest (of torch the tested one); for each
Python named behind it, as in ``tested 3.11 3.12``, or for the one that runs this. It needs a
package index, and 8 GB of disk where that has torch for GPUs alone.
"""

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
TINY = "model.n_layers=1 model.d_model=16 train.steps=10 train.batch_tokens=256"
COMMANDS = f"""
train gpt data.path=book.txt.zst {TINY} --out run
evaluate run --path new.txt --json
generate run --prompt river --tokens 5
inspect paths run --tokens 64 --out paths.svg
compare gpt data.path=book.txt {TINY} --vary model.ffn=gelu,swiglu --seeds 3 --out study
report study
export run exported
import huggingface exported --out imported
evaluate imported --path new.txt --json
train t5-mini data.path=book.txt {TINY} model.n_heads=2 data.sentinels=8 data.vocab_size=64 --out t5
export t5 exported-t5
import huggingface exported-t5 --out imported-t5
generate imported-t5 --prompt river<extra_id_0>
finetune gpt rows.csv --text review --label stars {TINY} --out tuned
predict tuned new.csv --out answered.csv
""".strip().splitlines()
PROGRAM = """
from pathlib import Path

import sublayer

run = sublayer.train("gpt", {"train.steps": 2}, out="run")
path: Path = run.path
run.path.upper()  # type: ignore[attr-defined]
sublayer.load(run, device=1)  # type: ignore[arg-type]
try:
    print(sublayer.evaluate(run)["loss"])
except sublayer.DataError as error:
    raise SystemExit(str(error)) from error
"""
"""Where mypy takes a type for Any, it complains of the first comment that it ignores nothing."""
WRITE_ZSTD = """
from pathlib import Path
from sublayer.files.lines import zstd
data = Path("book.txt").read_bytes()
Path("book.txt.zst").write_bytes(zstd.compress(data[:999]) + zstd.compress(data[999:]))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", choices=("lowest", "tested", "newest"))
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", help="3.12, or a path")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sublayer-installed-") as name:
        folder = Path(name)
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--wheel-dir", folder, PROJECT], check=True)
        [wheel] = folder.glob("*.whl")
        constraints = folder / "constraints.txt"
        constraints.write_text("\n".join(bounds(asked.versions)) + "\n")
        for python in asked.pythons or [sys.executable]:
            interpreter = find(python)
            if interpreter is None:
                print(f"Python {python}: skipped, as it is not here")
                continue
            place = folder / f"use-{python.replace('/', '-')}"
            install(interpreter, place / "environment", wheel, constraints)
            use(place / "environment", place)
            check_types(place / "environment", place)
            print(f"Python {python}: all {len(COMMANDS)} commands and mypy --strict passed")
            shutil.rmtree(place)


def bounds(versions):
    if versions == "lowest":
        project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
        names = project["dependencies"]
        return [re.sub(r"\[.*?\]", "", each).replace(">=", "==") for each in names]
    tested = (PROJECT / "constraints.txt").read_text().splitlines()
    return [line for line in tested if versions == "tested" or line.startswith("torch")]


def find(python):
    root = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    pyenvs = sorted(root.glob(f"versions/{python}.*/bin/python"))
    for each in (python, f"python{python}", *map(str, pyenvs)):
        path = shutil.which(each)
        if path and not subprocess.run([path, "-c", ""], capture_output=True).returncode:
            return path
    return None


def install(interpreter, environment, wheel, constraints):
    subprocess.run([interpreter, "-m", "venv", environment], check=True)
    pip = [environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", wheel, "--constraint", constraints], check=True)
    subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)


def use(environment, folder):
    words = ["river", "stone", "letter", "garden", "winter", "lamp", "bread", "window"]
    line = "The {} by the {} was {}.".format
    lines = [line(words[i % 8], words[i * i % 7], words[i % 5]) for i in range(900)]
    (folder / "book.txt").write_text("\n".join(lines))
    (folder / "new.txt").write_text("\n".join(lines[:20]))
    stars = [f"a {('dull', 'fine')[i % 2]} film {i},{('bad', 'good')[i % 2]}" for i in range(90)]
    (folder / "rows.csv").write_text("\n".join(["review,stars", *stars]) + "\n")
    (folder / "new.csv").write_text("review\na fine one\na dull one\n")
    run(environment, folder, ["-c", WRITE_ZSTD])
    printed = [run(environment, folder, ["-m", "sublayer", *line.split()]) for line in COMMANDS]
    pairs = zip(COMMANDS, printed, strict=True)
    losses = [json.loads(text)["loss"] for line, text in pairs if line.endswith("--json")]
    assert len(losses) == 2 and abs(losses[0] - losses[1]) < 1e-6, losses
    assert list(folder.glob("run/tensorboard/events.out.tfevents.*"))
    assert "swiglu" in (folder / "study" / "report.html").read_text()
    with (folder / "answered.csv").open() as file:
        assert [row["prediction"] in ("bad", "good") for row in csv.DictReader(file)] == [True] * 2


def check_types(environment, folder):
    (folder / "program.py").write_text(PROGRAM)
    python = environment / "bin" / "python"
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "program.py"]
    subprocess.run(mypy, cwd=folder, env=outside(folder), check=True)


def run(environment, folder, arguments):
    command, place = [environment / "bin" / "python", *arguments], {"cwd": folder}
    ended = subprocess.run(command, **place, env=outside(folder), capture_output=True, text=True)
    if ended.returncode:
        sys.exit(f"{' '.join(arguments)} failed:\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def outside(folder):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "SUBLAYER_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}


if __name__ == "__main__":
    main()
