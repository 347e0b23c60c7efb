"""The Python of the docs and the notebook runs in order, and says all public names."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sublayer
from tests.commands.reviews import reviews, write_csv

PROJECT = Path(__file__).resolve().parent.parent
PAGE = PROJECT / "docs" / "python.md"
NOTEBOOK = PROJECT / "examples" / "first-hour.ipynb"
SENTENCES = (
    "It was a bright cold day, and the clocks were striking.",
    "Nobody knew why the harbour was empty.",
    "She read the letter twice and said nothing.",
)
SMALLER = {
    '"model.d_model": 64, "train.steps": 200': (
        '"model.d_model": 16, "train.steps": 2, '
        '"train.batch_sequences": 2, "train.threads": 1, "train.precision": "float32"'
    ),
    '{"data.path": "book.txt", "train.minutes": 2}': (
        '{"data.path": "book.txt", "data.vocab_size": 150, "train.steps": 2, '
        '"train.batch_sequences": 2, "train.threads": 1, "train.precision": "float32"}'
    ),
    '{"train.epochs": 1}': (
        '{"model.n_layers": 1, "model.d_model": 16, "model.n_heads": 2, "train.steps": 2, '
        '"train.threads": 1, "train.precision": "float32"}'
    ),
    '"train.minutes": 2, "optimizer.warmup_share"': (
        '"data.vocab_size": 100, "train.steps": 2, "train.batch_tokens": 512, '
        '"train.threads": 1, "train.precision": "float32", "optimizer.warmup_share"'
    ),
}


def run_python(code: str, folder: Path) -> str:
    environment = {"SUBLAYER_CACHE": str(folder / "cache"), "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def cells() -> list[str]:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_the_page_has_every_public_name():
    prose = re.sub(r"^```.*?^```$", "", PAGE.read_text(), flags=re.M | re.S)
    code = " ".join(re.findall(r"`([^`\n]+)`", prose))
    named = set(re.findall(r"[A-Za-z_]+", code))
    assert sorted(set(sublayer.__all__) - named - {"__version__"}) == []


def test_the_python_of_the_page_runs_in_order(tmp_path: Path):
    for name in ("book.txt", "train.en", "train.de"):
        (tmp_path / name).write_text("\n".join(SENTENCES * 200))
    write_csv(tmp_path / "my.csv", reviews(40))
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.M | re.S))
    for whole, small in SMALLER.items():
        assert whole in code
        code = code.replace(whole, small)
    shown = run_python(code, tmp_path)
    assert shown.splitlines()[-1] == "--stride 0 is too small: give at least 1"


@pytest.mark.pages
def test_the_cells_of_the_notebook_run_in_order(tmp_path: Path):
    code = "\n".join(cells())
    assert "steps = 300" in code
    code = code.replace("steps = 300", "steps = 3")
    run_python(code, tmp_path)


def test_the_notebook_is_kept_as_it_ran():
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    shown = [output for cell in code for output in cell["outputs"]]
    assert any("text/html" in output.get("data", {}) for output in shown)
    text = json.dumps(notebook)
    assert not re.search(r"/(?:home|root|tmp|work)/", text)
