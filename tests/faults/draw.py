"""Seeded faults over the syntax nodes of the package: drawn, found again after moves, applied.

Each fault names its kind, module, function, the code that it replaces and the replacement. Kinds
are drawn in turn, and within a kind every syntax node that can have it is equally likely, so that
a package has faults in proportion to its size.
"""

import ast
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

AXIS_METHODS = frozenset(
    {
        *("sum", "mean", "std", "var", "norm", "any", "all", "max", "min", "amax", "amin"),
        *("argmax", "argmin", "argsort", "sort", "topk", "cumsum", "softmax", "log_softmax"),
        *("logsumexp", "cat", "stack", "concatenate", "unsqueeze", "squeeze", "transpose"),
        *("size", "flatten", "chunk", "split", "unbind", "gather", "index_select", "narrow"),
    }
)
MASK_WORDS = ("mask", "visible", "keep", "kept", "padding", "valid", "is_")
OPPOSITES: dict[type[ast.cmpop], str] = {
    ast.Lt: ">",
    ast.LtE: ">=",
    ast.Gt: "<",
    ast.GtE: "<=",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}


@dataclass(frozen=True)
class Fault:
    """A fault: ``before`` is the ``nth`` such code, unparsed, in ``function`` of ``module``.

    ``function`` is the qualified name of a function or method, or the name that a statement of
    the module defines; ``drawn_line`` is the line at the commit where the fault was drawn.
    """

    number: int
    kind: str
    module: str
    function: str
    drawn_line: int
    before: str
    nth: int
    after: str


Place = tuple[ast.AST, tuple[ast.AST, ...]]
"""A node, and its parents from the module down."""


def draw(package: Path, seed: int, n_faults: int) -> list[Fault]:
    """Draw faults, the kinds in turn; no node is drawn twice."""
    random_numbers = random.Random(seed)
    candidates: dict[str, list[tuple[str, Place]]] = {kind: [] for kind in KINDS}
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package.parent).as_posix()
        for place in places(ast.parse(path.read_text(encoding="utf-8"))):
            for kind, replace in KINDS.items():
                if replace(*place, random.Random(0)) is not None:
                    candidates[kind].append((module, place))
    faults: list[Fault] = []
    drawn: set[int] = set()
    while len(faults) < n_faults:
        kind = list(KINDS)[len(faults) % len(KINDS)]
        module, (node, parents) = random_numbers.choice(candidates[kind])
        after = KINDS[kind](node, parents, random_numbers)
        function = _function_name(parents)
        if id(node) in drawn or after is None or not function:
            continue
        drawn.add(id(node))
        tree = parents[0]
        assert isinstance(tree, ast.Module)
        same = [each for each, _ in _alike(tree, function, ast.unparse(node))]
        faults.append(
            Fault(
                number=len(faults) + 1,
                kind=kind,
                module=module,
                function=function,
                drawn_line=_statement(node, parents).lineno,
                before=ast.unparse(node),
                nth=same.index(node),
                after=after,
            )
        )
    return faults


def locate(fault: Fault, project: Path) -> tuple[Path, Place] | None:
    """Find the code of a fault in its module, or in the only module where that function has it."""
    path = project / fault.module
    if path.exists():
        found = _nth(fault, path)
        if found is not None:
            return path, found
    elsewhere = [
        (other, found)
        for other in sorted((project / "sublayer").rglob("*.py"))
        if other != path and (found := _nth(fault, other)) is not None
    ]
    return elsewhere[0] if len(elsewhere) == 1 else None


def apply(fault: Fault, project: Path) -> Path:
    """Write a fault into the file that has its code; return that file."""
    found = locate(fault, project)
    if found is None:
        raise LookupError(f"fault {fault.number}: {fault.function} has no longer {fault.before!r}")
    path, (node, _) = found
    path.write_text(_replaced(path.read_text(encoding="utf-8"), node, fault.after), "utf-8")
    ast.parse(path.read_text(encoding="utf-8"))
    return path


def statement_of(place: Place) -> ast.stmt:
    """Return the statement before which a call shows that the code of a fault is reached."""
    node, parents = place
    return _statement(node, parents)


def is_in_function(place: Place) -> bool:
    """Tell whether a fault's code runs when a function is called, rather than on import."""
    return any(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in place[1])


def places(tree: ast.Module) -> Iterator[Place]:
    """Yield the nodes that are computed: no annotations, docstrings, decorators or f-strings."""
    yield from _below(tree, ())


def _below(node: ast.AST, parents: tuple[ast.AST, ...]) -> Iterator[Place]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                continue
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue  # a docstring
            if isinstance(child, ast.Import | ast.ImportFrom):
                continue
            yield child, (*parents, node)
            yield from _below(child, (*parents, node))


def _function_name(parents: tuple[ast.AST, ...]) -> str:
    names = []
    for each in parents:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(each.name)
        elif isinstance(each, ast.Assign | ast.AnnAssign) and len(names) < 2:
            target = each.targets[0] if isinstance(each, ast.Assign) else each.target
            if isinstance(target, ast.Name) and not _has_function(parents, each):
                names.append(target.id)
    return ".".join(names)


def _has_function(parents: tuple[ast.AST, ...], until: ast.AST) -> bool:
    before = parents[: parents.index(until)]
    return any(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in before)


def _alike(tree: ast.Module, function: str, before: str) -> list[Place]:
    return [
        (node, parents)
        for node, parents in places(tree)
        if isinstance(node, ast.expr | ast.stmt)
        and _function_name(parents) == function
        and ast.unparse(node) == before
    ]


def _nth(fault: Fault, path: Path) -> Place | None:
    text = path.read_text(encoding="utf-8")
    if fault.function.rpartition(".")[2] not in text:
        return None
    alike = _alike(ast.parse(text), fault.function, fault.before)
    return alike[fault.nth] if fault.nth < len(alike) else None


def _statement(node: ast.AST, parents: tuple[ast.AST, ...]) -> ast.stmt:
    statement: ast.stmt | None = None
    for each, parent in zip((*parents, node), (None, *parents), strict=False):
        is_elif = isinstance(each, ast.If) and isinstance(parent, ast.If) and each in parent.orelse
        if isinstance(each, ast.stmt) and not is_elif:
            statement = each
    assert statement is not None
    return statement


def _replaced(text: str, node: ast.AST, after: str) -> str:
    assert isinstance(node, ast.expr | ast.stmt)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    lines = text.encode().splitlines(keepends=True)
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    put = after if isinstance(node, ast.stmt) else f"({after})"
    return (text.encode()[:start] + put.encode() + text.encode()[end:]).decode()


Replace = Callable[[ast.AST, tuple[ast.AST, ...], random.Random], str | None]


def _sign(node: ast.AST, parents: tuple[ast.AST, ...], numbers: random.Random) -> str | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return ast.unparse(node.operand)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        texts = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)
        if any(isinstance(side, texts) or _is_text(side) for side in (node.left, node.right)):
            return None
        sign = "-" if isinstance(node.op, ast.Add) else "+"
        return f"({ast.unparse(node.left)}) {sign} ({ast.unparse(node.right)})"
    return None


def _off_by_one(node: ast.AST, parents: tuple[ast.AST, ...], numbers: random.Random) -> str | None:
    parent = parents[-1]
    counts = isinstance(parent, ast.BinOp | ast.Slice | ast.Compare | ast.AugAssign | ast.Subscript)
    in_range = isinstance(parent, ast.Call) and ast.unparse(parent.func) in ("range", "max", "min")
    if not isinstance(node, ast.Constant) or type(node.value) is not int:
        return None
    return str(node.value + numbers.choice((1, -1))) if counts or in_range else None


def _direction(node: ast.AST, parents: tuple[ast.AST, ...], numbers: random.Random) -> str | None:
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return None
    opposite = OPPOSITES[type(node.ops[0])]
    return f"({ast.unparse(node.left)}) {opposite} ({ast.unparse(node.comparators[0])})"


def _polarity(node: ast.AST, parents: tuple[ast.AST, ...], numbers: random.Random) -> str | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert | ast.Not):
        return ast.unparse(node.operand)
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    is_read = isinstance(getattr(node, "ctx", None), ast.Load)
    if is_read and any(word in name for word in MASK_WORDS):
        if isinstance(parents[-1], ast.If | ast.IfExp | ast.BoolOp):
            return f"not {ast.unparse(node)}"
        if "mask" in name and isinstance(parents[-1], ast.Call) and node in parents[-1].args:
            return f"~{ast.unparse(node)}"
    return None


def _axis(node: ast.AST, parents: tuple[ast.AST, ...], numbers: random.Random) -> str | None:
    try:
        value = ast.literal_eval(node) if isinstance(node, ast.UnaryOp | ast.Constant) else None
    except ValueError:
        return None
    if type(value) is not int or not -4 <= value <= 4 or isinstance(parents[-1], ast.UnaryOp):
        return None
    parent = parents[-1]
    is_named = isinstance(parent, ast.keyword) and parent.arg in ("dim", "axis")
    is_given = (
        isinstance(parent, ast.Call)
        and isinstance(parent.func, ast.Attribute)
        and parent.func.attr in AXIS_METHODS
    )
    is_shape = isinstance(parent, ast.Subscript) and ast.unparse(parent.value).endswith("shape")
    other = {0: 1, 1: 0, -1: 0}.get(value, value - 1)
    return str(other) if is_named or is_given or is_shape else None


def _term(node: ast.AST, parents: tuple[ast.AST, ...], numbers: random.Random) -> str | None:
    if isinstance(node, ast.BoolOp):
        left_out = numbers.randrange(len(node.values))
        rest = [f"({ast.unparse(v)})" for i, v in enumerate(node.values) if i != left_out]
        return (" and " if isinstance(node.op, ast.And) else " or ").join(rest)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
        if isinstance(node.left, ast.List) or _is_text(node.left):
            return None
        return ast.unparse(node.left)
    return None


def _arguments(node: ast.AST, parents: tuple[ast.AST, ...], numbers: random.Random) -> str | None:
    if not isinstance(node, ast.Call) or len(node.args) < 2:
        return None
    if any(isinstance(each, ast.Starred) for each in node.args[:2]):
        return None
    first, second, *rest = (ast.unparse(each) for each in node.args)
    if first == second or ast.unparse(node.func) in ("isinstance", "getattr", "hasattr", "cast"):
        return None
    named = [ast.unparse(each) for each in node.keywords]
    return f"{ast.unparse(node.func)}({', '.join([second, first, *rest, *named])})"


def _passed_on(node: ast.AST, parents: tuple[ast.AST, ...], numbers: random.Random) -> str | None:
    if not isinstance(node, ast.Call) or not node.keywords:
        return None
    left_out = numbers.randrange(len(node.keywords))
    named = [ast.unparse(each) for i, each in enumerate(node.keywords) if i != left_out]
    return f"{ast.unparse(node.func)}({', '.join([*map(ast.unparse, node.args), *named])})"


def _swallowed(node: ast.AST, parents: tuple[ast.AST, ...], numbers: random.Random) -> str | None:
    catches = any(isinstance(each, ast.ExceptHandler) for each in parents)
    return "pass" if isinstance(node, ast.Raise) and catches else None


def _check(node: ast.AST, parents: tuple[ast.AST, ...], numbers: random.Random) -> str | None:
    if isinstance(node, ast.If) and not node.orelse and len(node.body) == 1:
        is_elif = isinstance(parents[-1], ast.If) and node in parents[-1].orelse
        leaves = isinstance(node.body[0], ast.Raise | ast.Return | ast.Continue)
        return "pass" if leaves and not is_elif else None
    return None


def _reversed(node: ast.AST, parents: tuple[ast.AST, ...], numbers: random.Random) -> str | None:
    parent = parents[-1]
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "sorted":
        return f"{ast.unparse(node)}[::-1]"
    if isinstance(parent, ast.For | ast.comprehension) and node is parent.iter:
        return f"list({ast.unparse(node)})[::-1]"
    is_display = isinstance(node, ast.List | ast.Tuple) and isinstance(node.ctx, ast.Load)
    if is_display and len(node.elts) > 1 and not isinstance(parent, ast.Compare | ast.Subscript):
        if isinstance(parent, ast.Call) and ast.unparse(parent.func) == "isinstance":
            return None
        if len({ast.unparse(each) for each in node.elts}) > 1:
            values = ", ".join(ast.unparse(each) for each in reversed(node.elts))
            return f"[{values}]" if isinstance(node, ast.List) else f"({values})"
    return None


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


KINDS: dict[str, Replace] = {
    "sign": _sign,
    "off by one": _off_by_one,
    "direction of a comparison": _direction,
    "polarity": _polarity,
    "axis": _axis,
    "dropped term": _term,
    "swapped arguments": _arguments,
    "value not passed on": _passed_on,
    "swallowed exception": _swallowed,
    "check left out": _check,
    "reversed order": _reversed,
}
