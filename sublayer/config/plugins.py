"""Plugins: rows of the user's own, loaded from the files and packages that the user names.

A plugin is code. Recipes, runs and models that use one list it by name and hash; reading them
executes nothing, and is refused unless the same plugin has been named.
"""

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, ClassVar

from sublayer.config.model import ModelConfig
from sublayer.config.optimizers import OptimizerTable
from sublayer.config.stacks import entries
from sublayer.errors import ConfigError, SublayerError, nearest_hint, one_line
from sublayer.files.storage import as_typed, describe_absence, write_file
from sublayer.system.terminal import note

GROUP = "sublayer.rows"
"""Entry points of installed packages with rows."""
LISTED, FOLDER = "plugins", "plugins"
"""Key of a file's plugins, and folder of a run's copies."""
_MODULE = "sublayer_plugin_"
_NAME = re.compile(r"[a-z0-9]+([-_.][a-z0-9]+)*")

Put = Callable[[dict[str, Any], str, Any], None]
"""Adds a row under a key of a table."""


class UnnamedPlugin(ConfigError):
    """A file needs a plugin that has not been named, or another one."""


class Row:
    """Base of the rows of plugins; ``sublayer.rows`` has one for each kind."""

    field: ClassVar[str]
    """Field that takes the row's name, such as ``model.ffn``."""
    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    """Methods that a row must define."""

    @classmethod
    def add_to(cls, put: Put) -> None:
        """Add the row to the tables of its kind."""

    @classmethod
    def try_out(cls) -> None:
        """Build and compute the row; raise ConfigError where it differs from its counts."""


@dataclass(frozen=True)
class Plugin:
    """A loaded plugin, with the content of its file."""

    name: str
    """Stem of its file, or name of its package."""
    path: Path
    content: bytes
    rows: dict[tuple[str, str], type[Row]] = field(default_factory=dict)
    """Its rows by field and name."""
    added: list[tuple[dict[str, Any], str]] = field(default_factory=list)
    """Tables and keys of its rows."""

    @cached_property
    def sha256(self) -> str:
        """Hash of its file."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def filename(self) -> str:
        """Name of its copies."""
        return f"{self.name}.py"

    @property
    def titles(self) -> str:
        """Settings that use its rows."""
        return " or ".join(f"{field} = {name}" for field, name in self.rows)

    def remove(self) -> None:
        """Remove its rows from all tables."""
        for table, key in self.added:
            del table[key]
        PLUGINS.pop(self.name, None)


PLUGINS: dict[str, Plugin] = {}
"""Loaded plugins, by name."""


def load_plugins(
    sources: Iterable[str | PathLike[str]], *, tries: bool = True
) -> tuple[Plugin, ...]:
    """Execute plugins, and add their rows to the tables of this process; once for each content.

    A source is a Python file, or an installed package with an entry point ``sublayer.rows``. With
    ``tries`` each row is built and computed once. Raises ConfigError, in one line, where a source
    is missing, raises, lacks a method, or has the name of another row.
    """
    loaded: dict[str, Plugin] = {}
    for given in sources:
        source = fspath(given)
        module, plugin = _find(source)
        same = loaded.get(plugin.name)
        if same is not None and same.content != plugin.content:
            raise ConfigError(f"--plugin {source} and {same.path} have the same name: rename one")
        before = PLUGINS.get(plugin.name)
        if before is not None and before.content == plugin.content:
            loaded[plugin.name] = before
            continue
        if before is not None:
            before.remove()
        PLUGINS[plugin.name] = loaded[plugin.name] = plugin
        try:
            with blaming(plugin):
                _add_rows(plugin, _execute(plugin, module))
                for row in plugin.rows.values() if tries else ():
                    row.try_out()
        except ConfigError:
            plugin.remove()
            raise
    return tuple(loaded.values())


def _find(source: str) -> tuple[str, Plugin]:
    """Find a plugin, with the name of its module."""
    if source.endswith(".py"):
        path = Path(source)
        if not path.is_file():
            raise ConfigError(f"--plugin {describe_absence(path)}: name a Python file")
        return f"{_MODULE}{path.stem}", Plugin(path.stem, path.resolve(), path.read_bytes())
    installed = {entry.dist.name: entry for entry in entry_points(group=GROUP) if entry.dist}
    spec = find_spec(installed[source].module) if source in installed else None
    if spec is None or spec.origin is None:
        raise ConfigError(
            f"--plugin {source} is neither a .py file nor an installed package whose entry point "
            f"{GROUP} names a module{nearest_hint(source, installed)}"
        )
    path = Path(spec.origin)
    return spec.name, Plugin(source, path, path.read_bytes())


def _execute(plugin: Plugin, name: str) -> ModuleType:
    """Import a package's module, or execute the content of a file as a module of this name."""
    if not name.startswith(_MODULE):
        return import_module(name)
    module = ModuleType(name)
    module.__file__ = str(plugin.path)
    sys.modules[name] = module  # classes are looked up there
    exec(compile(plugin.content, plugin.path, "exec"), vars(module))
    return module


def _add_rows(plugin: Plugin, module: ModuleType) -> None:
    """Add the rows of a module: its public classes that derive from a base of ``sublayer.rows``."""

    def put(table: dict[str, Any], key: str, value: Any) -> None:
        if key in table:
            raise ConfigError(f"{row.field} = {key} is a row of sublayer itself: rename yours")
        table[key] = value
        plugin.added.append((table, key))

    classes = [
        value
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Row) and not name.startswith("_")
    ]
    for row in (row for row in classes if not row.__module__.startswith("sublayer.")):
        name = getattr(row, "name", None)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(
                f"{row.__name__}.name = {name!r} must be a text of lower-case letters, digits, "
                "dots, hyphens and underscores"
            )
        theirs = ("sublayer.", "torch.", "builtins")
        own = [base for base in row.__mro__ if not base.__module__.startswith(theirs)]
        for method in row.needs:
            if not any(method in vars(base) for base in own):
                raise ConfigError(f"{row.__name__} lacks the method {method}")
        for other in PLUGINS.values():
            if (row.field, name) in other.rows:
                raise ConfigError(f"{row.field} = {name} is a row of {other.name} too: rename one")
        row.add_to(put)
        plugin.rows[row.field, name] = row
    if not plugin.rows:
        raise ConfigError(f"it has no class that derives from a base of {GROUP}")


@contextmanager
def blaming(plugin: Plugin | None = None) -> Iterator[None]:
    """Raise ConfigError, in one line, for an error of a plugin's code, with its place.

    Without ``plugin`` an error is a plugin's if it passed through its file.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        loaded = {str(each.path): each for each in PLUGINS.values()}
        frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename in loaded]
        is_told = isinstance(error, SublayerError)
        if plugin is None and (is_told or not frames):
            raise
        name = plugin.name if plugin else loaded[frames[-1].filename].name
        place = f"line {frames[-1].lineno}, in {frames[-1].name}: " if frames else ""
        fault = str(error) if is_told else f"{place}{type(error).__name__}: {error}"
        raise ConfigError(one_line(f"plugin {name}: {fault}")) from error


def used_plugins(model: ModelConfig, optimizer: OptimizerTable | None = None) -> tuple[Plugin, ...]:
    """Return the plugins whose rows a model or an optimizer uses."""
    if not PLUGINS:
        return ()
    used = {("model.ffn", model.ffn), ("model.norm", model.norm)}
    used.add(("model.positions", model.positions))
    for entry in entries(model):
        used |= {("model.block", entry.name), ("model.ffn", entry.variant or "")}
    if optimizer is not None:
        used.add(("optimizer.kind", optimizer.kind))
    return tuple(plugin for plugin in PLUGINS.values() if used & plugin.rows.keys())


_IDLE: ContextVar[dict[str, Plugin]] = ContextVar("idle")
"""Plugins that the current command names, and of which it has used no row yet."""


@contextmanager
def naming(sources: Iterable[str | PathLike[str]]) -> Iterator[None]:
    """Load the plugins that a command names, and note at its end those without effect."""
    idle = {plugin.name: plugin for plugin in load_plugins(sources)}
    token = _IDLE.set(idle)
    try:
        yield
        for plugin in idle.values():
            note(f"--plugin {plugin.path} has had no effect: nothing here uses {plugin.titles}")
    finally:
        _IDLE.reset(token)


def mark_used(plugins: Iterable[Plugin]) -> None:
    """Count plugins as used by the current command."""
    for plugin in plugins:
        _IDLE.get({}).pop(plugin.name, None)


def refuse_idle() -> None:
    """Raise ConfigError for a plugin that a command names, and that no loaded recipe uses."""
    for plugin in _IDLE.get({}).values():
        raise ConfigError(
            f"--plugin {plugin.path} has no effect without {plugin.titles}: give the setting, or "
            "leave the plugin out"
        )


def listed(plugins: Iterable[Plugin]) -> list[dict[str, str]]:
    """Return the names and hashes of plugins, as files list them."""
    return [{"name": plugin.name, "sha256": plugin.sha256} for plugin in plugins]


def keep_plugins(folder: Path, plugins: Iterable[Plugin]) -> None:
    """Write the files of plugins into a folder. Raises OSError."""
    for plugin in plugins:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / plugin.filename, plugin.content)


def check_listed(written: Any, origin: str) -> None:
    """Raise UnnamedPlugin where a plugin that a file lists is not loaded, or another one is.

    ``origin`` names the file, or ``run`` and its folder; a copy near it is named in the error.
    """
    for row in written if isinstance(written, list) else ():
        given: Mapping[str, Any] = row if isinstance(row, Mapping) else {}
        name, wanted = str(given.get("name")), str(given.get("sha256"))
        plugin = PLUGINS.get(name)
        if plugin is not None and plugin.sha256 == wanted:
            mark_used([plugin])
            continue
        place = Path(origin.removeprefix("run ").removeprefix("recipe "))
        folders = [near / part for near in (place, place.parent) for part in (FOLDER, "")]
        copies = [folder / f"{name}.py" for folder in folders]
        copy = next((as_typed(str(path)) for path in copies if path.is_file()), f"{name}.py")
        if plugin is None:
            raise UnnamedPlugin(
                f"{origin} uses the plugin {name}, which is code and runs only if you name it: add "
                f"--plugin {copy}"
            )
        raise UnnamedPlugin(
            f"{origin} uses another plugin {name} (SHA-256 {wanted[:12]}) than {plugin.path} "
            f"({plugin.sha256[:12]}): add --plugin {copy} instead"
        )
