import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import sublayer


@pytest.mark.parametrize(
    ("module", "slow_ones"),
    [
        ("sublayer", {"torch", "pydantic", "numpy"}),
        ("sublayer.runs.run", {"scipy.stats", "matplotlib", "tensorboardX", "torch._dynamo"}),
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


def test_every_library_that_is_imported_is_declared():
    folder = Path(sublayer.__file__).parent
    project = tomllib.loads((folder.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = [
        *project["dependencies"],
        *(row for key in extras if key != "dev" for row in extras[key]),
    ]
    names = {canonical_name(re.match(r"[\w.-]+", row)[0]) for row in declared}
    known = packages_distributions()
    imported = {name for path in folder.rglob("*.py") for name in imports(path)}
    # compression is Python's own from 3.14 on.
    libraries = {
        canonical_name(distribution)
        for name in imported - sys.stdlib_module_names - {"sublayer", "_typeshed", "compression"}
        for distribution in known.get(name, [name])
    }
    # jinja2 brings MarkupSafe; where transformers is installed, it checks exports.
    assert libraries - names == {"markupsafe", "transformers"}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names):
                yield from (each.name.partition(".")[0] for each in names)
            case ast.ImportFrom(module, _, 0):
                yield module.partition(".")[0]
            case ast.Call(ast.Name("import_module" | "extra_module"), [ast.Constant(name), *_]):
                yield name.partition(".")[0]


def canonical_name(distribution):
    return re.sub(r"[-_.]+", "-", distribution).lower()


def test_types_are_handed_on_to_who_installs_the_package():
    assert (Path(sublayer.__file__).parent / "py.typed").is_file()


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
