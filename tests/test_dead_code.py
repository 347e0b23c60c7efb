"""Whatever the package defines, the package uses, but for what others call."""

import ast
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PYDANTIC = {"field_validator", "model_validator"}
CALLED_BY_OTHERS = {
    "__getattr__": "Python, for the public names of `sublayer`",
    "__dir__": "Python, for the public names of `sublayer`",
    "_repr_html_": "notebooks, which show what a cell ends with",
    "encode_target": "who scores translations of their own; the twin of `encode_source`",
    "read_huggingface": "who reads a foreign folder without keeping a copy of it",
    "read_study_items": "who judges a kept study by what each test item scored",
    "sacre_bleu": "who scores translations of their own; the twin of `tokenized_bleu`",
    "reset_parameters": "PyTorch's LSTM, as it is built",
    "writable": "what prints on a stream",
}
"""Names that nothing here refers to, and who does."""


def definitions(tree: ast.Module) -> Iterator[str]:
    """Functions, classes and constants of a module, and the methods of its classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield node.name
            yield from methods(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (each.id for each in targets if isinstance(each, ast.Name))


def methods(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and not is_special(each.name):
            used = {part.id for part in ast.walk(each) if isinstance(part, ast.Name)}
            if not used & PYDANTIC:
                yield each.name


def is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def uses(tree: ast.Module) -> Iterator[str]:
    """Names that are read, imported, or looked up by their text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A class may be named with its module, as ``module:class``.
            yield node.value.rpartition(":")[2]


def unused(sources: dict[str, str], exempt: set[str]) -> list[str]:
    trees = {name: ast.parse(source) for name, source in sources.items()}
    known = {use for tree in trees.values() for use in uses(tree)} | exempt
    return [
        f"{module}: {name}"
        for module, tree in trees.items()
        for name in definitions(tree)
        if name not in known
    ]


def test_whatever_is_defined_is_used() -> None:
    package = PROJECT / "sublayer"
    sources = {
        path.relative_to(PROJECT).as_posix(): path.read_text()
        for path in sorted(package.rglob("*.py"))
    }
    assert unused(sources, set(CALLED_BY_OTHERS)) == []


def test_what_nothing_uses_is_found() -> None:
    one = (
        "from two import used\n"
        "LEFT = 1\n"
        "def left(): return used()\n"
        "class Kept:\n"
        "    def __len__(self): return 0\n"
        "    def lost(self): return self.found\n"
        "    @field_validator('x')\n"
        "    def checked(cls): return cls\n"
        "    def found(self): return getattr(self, 'by_name')\n"
        "    def by_name(self): return Kept\n"
    )
    two = "def used(): return 1\ndef exempt(): return 2\n"
    assert unused({"one": one, "two": two}, {"exempt"}) == [
        "one: LEFT",
        "one: left",
        "one: lost",
    ]


def test_what_is_exempt_is_defined_and_not_used() -> None:
    trees = [ast.parse(path.read_text()) for path in (PROJECT / "sublayer").rglob("*.py")]
    used = {use for tree in trees for use in uses(tree)}
    sources = {"": "\n".join(ast.unparse(tree) for tree in trees)}
    assert set(CALLED_BY_OTHERS) & used == set()
    assert all(f"def {name}(" in sources[""] for name in CALLED_BY_OTHERS)
