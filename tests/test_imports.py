"""No files of the package import each other in a circle, not even for their types alone."""

import ast
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


def read_package() -> dict[str, str]:
    """Return the text of each file of the package by the name of its module."""
    texts = {}
    for path in (PROJECT / "sublayer").rglob("*.py"):
        parts = path.relative_to(PROJECT).with_suffix("").parts
        texts[".".join(parts).removesuffix(".__init__")] = path.read_text()
    return texts


def imported(text: str, modules: Mapping[str, str]) -> set[str]:
    """Return the modules that a file imports, wherever in it: at its top, for types, late."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            for each in node.names:
                member = f"{node.module}.{each.name}"
                found.add(member if member in modules else str(node.module))
    return found & set(modules)


def find_circle(texts: Mapping[str, str]) -> list[str]:
    """Return modules of which each imports the one before it, the first of them the last's."""
    imports = {module: imported(text, texts) - {module} for module, text in texts.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []


def test_no_files_import_each_other():
    texts = read_package()
    assert "sublayer.model.layers.attention" in imported(
        texts["sublayer.model.layers.block"], texts
    )
    assert not find_circle(texts)


def test_a_circle_is_found_where_one_import_is_for_types_alone():
    texts = {
        "package.first": "from package import second",
        "package.second": "import math\nfrom package.third import name",
        "package.third": "if TYPE_CHECKING:\n    from package.first import Name",
    }
    circle = find_circle(texts)
    assert set(circle) == set(texts)
    assert circle[0] == circle[-1]


def test_a_circle_is_found_where_one_import_is_late():
    texts = {
        "package.first": "def compute():\n    import package.second",
        "package.second": "from package.first import compute",
    }
    assert set(find_circle(texts)) == set(texts)
    assert not find_circle({**texts, "package.second": ""})
