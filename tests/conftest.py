"""Shared by every test: shapes checked at run time, one thread, no network, and the real data."""

import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

from tests.shapes import check_again, check_shapes

PROJECT = Path(__file__).resolve().parent.parent
check_shapes(PROJECT)

import hypothesis
import pytest
import torch

from sublayer.cli.main import main
from sublayer.config.plugins import PLUGINS
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.system import terminal
from sublayer.system.terminal import HeardStages, say_nothing
from tests.breadth import TRIES_ALL
from tests.commands.results import Result
from tests.made import Workshop
from tests.stories import write_stories

torch.set_num_threads(1)
# The same examples every time, so that a change is judged by the change; TESTS_ALL=1 draws
# others. An example that takes long shows a busy machine, not a fault.
patient = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
patient |= {"derandomize": not TRIES_ALL, "print_blob": True}
hypothesis.settings.register_profile("patient", **patient)
hypothesis.settings.load_profile("patient")


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") is not None and not torch.cuda.is_available():
        pytest.skip("no CUDA GPU here")


@pytest.fixture(autouse=True)
def _checked_shapes():
    check_again()


@pytest.fixture(autouse=True)
def _no_plugins():
    yield
    for plugin in [*PLUGINS.values()]:
        plugin.remove()


@pytest.fixture(scope="session", autouse=True)
def _untimed_stages():
    """Leave out the lines of stages, which are there or not as the machine is slow or quick."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal, "_choose", lambda: HeardStages(say_nothing, terminal.print_line))
        yield


@pytest.fixture(scope="session")
def real_data():
    """The folder of real texts, from SUBLAYER_TEST_DATA or beside the project; else skip."""
    folder = Path(os.environ.get("SUBLAYER_TEST_DATA", PROJECT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no folder of real texts at {folder}; name one in SUBLAYER_TEST_DATA")
    return folder


@pytest.fixture(scope="session")
def stories_path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stories")
    write_stories(folder)
    return folder


@pytest.fixture(scope="session")
def stories(stories_path):
    return [path.read_text().splitlines() for path in sorted(stories_path.iterdir())]


@pytest.fixture(scope="session", params=["unigram", "wordpiece"])
def words(request, stories):
    """Tokenizers that show where words begin, so small that most words have several pieces."""
    text = "\n".join(map("\n".join, stories)).encode()
    return train_tokenizer(request.param, [text], vocab_size=90)


@pytest.fixture(scope="session")
def workshop(tmp_path_factory):
    """Texts and runs that all processes of this run of pytest share."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    return Workshop(folder / "made")


@pytest.fixture(scope="session")
def made(workshop):
    """Finished runs by their kind (``tests/made.py``), which nothing alters."""
    return workshop.run


@pytest.fixture(scope="session")
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def sublayer(capsys, own_cache):
    def run(*words):
        capsys.readouterr()  # of what made the files
        return Result(main([str(word) for word in words]), *capsys.readouterr())

    return run


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


@pytest.fixture
def site(tmp_path):
    """A folder, and the address under which a server here serves it."""
    folder = tmp_path / "site"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
