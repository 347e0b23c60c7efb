import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import sublayer


@pytest.mark.parametrize(
    ("module", "slow_ones"),
    [
        ("sublayer", {"torch", "pydantic", "numpy"}),
        pytest.param(
            "sublayer.runs.run",
            {"scipy.stats", "matplotlib", "tensorboardX", "torch._dynamo"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_is_slow_to_import_waits_until_it_is_needed(module: str, slow_ones: set[str]):
    code = f"import sys, {module}; print({slow_ones} & set(sys.modules))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "set()"


def test_the_version_is_that_of_the_distribution():
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())[
        "project"
    ]
    assert sublayer.__version__ == project["version"]
    shown = subprocess.run(
        [sys.executable, "-m", "sublayer", "--version"], capture_output=True, text=True, check=True
    )
    assert shown.stdout == f"sublayer {project['version']}\n"


@pytest.mark.slow
def test_public_functions_can_be_called_whichever_module_was_imported_first():
    code = """
import sublayer
functions = [sublayer.load, sublayer.from_recipe, sublayer.train, sublayer.compare]
import sublayer.loading, sublayer.training.loop as loop
assert loop.__name__ == "sublayer.training.loop"
for function in [*functions, sublayer.load, sublayer.from_recipe, sublayer.train, sublayer.compare]:
    try:
        function()
    except TypeError as error:
        print(str(error).partition(" missing ")[0])
"""
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert answer.stderr == ""
    assert answer.stdout.split() == ["load()", "from_recipe()", "train()", "compare()"] * 2


def test_public_names_are_listed_and_others_are_refused():
    assert set(sublayer.__all__) <= set(dir(sublayer))
    assert [name for name in sublayer.__all__ if not hasattr(sublayer, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sublayer.nothing  # noqa: B018


def test_no_public_name_is_that_of_a_package():
    folder = Path(sublayer.__file__).parent
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    modules = {path.stem for path in folder.glob("*.py")}
    assert sorted(set(sublayer.__all__) & (packages | modules)) == []
