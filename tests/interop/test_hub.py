"""Models on the hub, a stub of it on loopback: uploaded, loaded, imported, offline, refused."""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from huggingface_hub.utils import close_session
from tokenizers import ByteLevelBPETokenizer

from sublayer.api.run import export, import_model, load
from sublayer.errors import CheckpointError, ConfigError
from sublayer.interop.exits import HubModel
from sublayer.model.model_folder import save_model
from sublayer.model.transformer import build
from tests.interop.tiny import config_of, tiny

NAME, EXPORT = "team/tiny", "Export of sublayer"


class Hub(BaseHTTPRequestHandler):
    """The endpoints of the hub that huggingface_hub calls; revisions are branches or commits."""

    def do_GET(self):
        kind, *rest = self.path.partition("?")[0].removeprefix("/api/models/").split("/")
        if self.path.startswith("/api/models/team/broken"):
            return None
        if self.path.startswith("/api/models/team/gated"):
            return self.answer({"error": "gated"}, 403, {"X-Error-Code": "GatedRepo"})
        commit = self.server.branches.get(rest[-1] if rest else "", rest[-1] if rest else "")
        if self.path.startswith("/api/models/") and f"{kind}/{rest[0]}" != NAME:
            return self.answer({"error": "none"}, 404, {"X-Error-Code": "RepoNotFound"})
        if self.path.startswith("/api/models/") and commit not in self.server.commits:
            return self.answer({"error": "none"}, 404, {"X-Error-Code": "RevisionNotFound"})
        if "/revision/" in self.path:
            return self.answer({"id": NAME, "sha": commit})
        if "/tree/" in self.path:
            files = self.server.commits[commit].items()
            rows = [{"type": "file", "path": name, "size": len(data)} for name, data in files]
            rows += [{"type": "directory", "path": "more", "size": 0}]
            for row in rows if "expand=true" in self.path.lower() else ():
                title = self.server.titles.get((commit, row["path"]), EXPORT)
                row["lastCommit"] = {"id": commit, "title": title, "date": "2026-01-01T00:00:00Z"}
            return self.answer([{**row, "oid": row["path"]} for row in rows])
        if "/resolve/" in self.path:
            commit, file = self.path.split("/resolve/")[1].split("/", 1)
            data = self.server.commits[commit][file]
            self.server.fetched.append(file)
            tag = hashlib.sha1(data).hexdigest()
            return self.answer(data, 200, {"ETag": f'"{tag}"', "X-Repo-Commit": commit})
        return self.answer({"error": "none"}, 404)

    do_HEAD = do_GET

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Authorization") == "Bearer reads-only":
            return self.answer({"error": "forbidden"}, 403)
        if self.path == "/api/repos/create":
            self.server.created.append(json.loads(body))
            if "main" not in self.server.branches:
                self.server.add({".gitattributes": b""})
            return self.answer({"url": f"{constants.ENDPOINT}/{NAME}"})
        if "/preupload/" in self.path:
            named = [file["path"] for file in json.loads(body)["files"]]
            rules = {"uploadMode": "regular", "shouldIgnore": False}
            return self.answer({"files": [{"path": name, **rules} for name in named]})
        branch = self.path.rsplit("/", 1)[1]
        if "/branch/" in self.path:
            self.server.branches.setdefault(branch, self.server.branches["main"])
        if "/commit/" in self.path and branch not in self.server.branches:
            return self.answer({"error": "none"}, 404, {"X-Error-Code": "RevisionNotFound"})
        if "/commit/" in self.path:
            head, *lines = map(json.loads, body.splitlines())
            files = {}
            for line in lines:
                content = line["value"].get("content")  # none of a deleted file
                files[line["value"]["path"]] = content and base64.b64decode(content)
            commit = self.server.add(files, branch, head["value"]["summary"])
            url = f"{constants.ENDPOINT}/{NAME}/commit/{commit}"
            return self.answer({"commitUrl": url, "commitOid": commit})
        return self.answer({})

    def answer(self, content, status=200, headers=None):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Serve a hub without models, which huggingface_hub takes for its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.commits, server.branches, server.fetched, server.created = {}, {}, [], []
    server.titles = {}

    def add(files, branch="main", title="of another"):
        """Commit files, of which None deletes one; keep the title of each file's last commit."""
        before = server.branches.get(branch)
        commit = hashlib.sha1(repr((before, sorted(files.items()))).encode()).hexdigest()
        kept = {**server.commits.get(before, {}), **files}
        server.commits[commit] = {name: data for name, data in kept.items() if data is not None}
        for name in server.commits[commit]:
            server.titles[commit, name] = title if name in files else server.titles[before, name]
        server.branches[branch] = commit
        return commit

    server.add = add
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    for name, value in {
        "ENDPOINT": endpoint, "HF_HUB_OFFLINE": False, "HF_HUB_CACHE": str(tmp_path / "cache"),
        "HUGGINGFACE_CO_URL_TEMPLATE": endpoint + "/{repo_id}/resolve/{revision}/{filename}",
    }.items():  # fmt: skip
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_TOKEN", "reads-and-writes")
    monkeypatch.chdir(tmp_path)
    close_session()
    yield server
    server.shutdown()
    server.server_close()
    close_session()


def served(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_export_to_the_hub_is_a_commit_that_loads_pinned_and_offline(hub, monkeypatch, capsys):
    model = build(config_of("gpt2"), seed=0).eval()
    save_model(Path("run"), model, {})
    found = export("run", to=f"hub:{NAME}")
    first = hub.branches["main"]
    assert found["model"] == f"hub:{NAME}@{first}" and hub.created[0]["organization"] == "team"
    assert hub.commits[first].keys() >= {"certificate.json", "config.json", "model.safetensors"}
    assert f"from_pretrained({NAME!r})" in str(found)
    with torch.no_grad():
        model.embedding.weight.add_(1.0)
    save_model(Path("other"), model, {})
    export("other", to=f"hub:{NAME}@trial")
    assert hub.branches["main"] == first != hub.branches["trial"]
    pinned, newest = load(f"hub:{NAME}@{first}"), load(f"hub:{NAME}@trial", dtype=torch.float64)
    assert pinned.path.name == first and newest.path.name == hub.branches["trial"]
    torch.testing.assert_close(newest.embedding.weight, pinned.embedding.weight.double() + 1.0)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.fetched.clear()
    torch.testing.assert_close(load(f"hub:{NAME}@trial").state_dict()["embedding.weight"],
                               newest.embedding.weight.float())  # fmt: skip
    with pytest.raises(CheckpointError, match=f"hub:{NAME}@v2 cannot be fetched .*--revision v2"):
        load(f"hub:{NAME}@v2")
    with pytest.raises(ConfigError, match="cannot be written .*export to a folder"):
        export("run", to=f"hub:{NAME}")
    assert hub.fetched == [] and "reads-and-writes" not in "".join(capsys.readouterr())


def test_files_of_an_earlier_export_are_deleted_and_those_of_others_stay(hub):
    recipe = {"positions": "learned-per-layer", "max_len": 16}
    model = build(config_of("gpt2").model_copy(update=recipe), seed=0).eval()
    save_model(Path("own"), model, {})
    save_model(Path("run"), build(config_of("gpt2"), seed=0).eval(), {})
    found = export("own", to=f"hub:{NAME}")
    assert "deleted" not in str(found)
    again = load(f"hub:{NAME}")
    torch.testing.assert_close(again.state_dict(), model.state_dict(), rtol=0, atol=0)
    mine = {"README.md": b"mine", "generation_config.json": b"{}", "modeling_other.py": b""}
    hub.add({**mine, "tokenizer.json": b"old", "more/shard": b""}, title=EXPORT)
    hub.add({"tokenizer.json": b"mine", "modeling_other.py": b"mine"})
    found = export("run", to=f"hub:{NAME}")
    assert "deleted, of an earlier export: modeling_sublayer.py, more/shard" in str(found)
    files = hub.commits[hub.branches["main"]]
    assert files["tokenizer.json"] == files["modeling_other.py"] == b"mine"
    assert not {"modeling_sublayer.py", "more/shard"} & files.keys() and ".gitattributes" in files
    assert "deleted" not in str(export("run", to=f"hub:{NAME}@trial"))


def test_an_import_keeps_the_commit_and_fetches_no_code(hub):
    files = served(tiny("gpt2").save(Path("theirs"))) | {"chat_template.jinja": b"{{ messages }}"}
    unread = ("own.py", "pytorch_model.bin", "consolidated.safetensors", "unet/a.safetensors")
    commit = hub.add({**files, **dict.fromkeys(unread, b"unread")}, "v1")
    for place, source in {"pinned": f"hub:{NAME}@v1", "second": f"hub:{NAME}@{commit}"}.items():
        found = import_model("huggingface", source, out=place)
        assert found["certificate"]["source"] == f"hub:{NAME}@{commit}"
        assert f"source: hub:{NAME}@{commit}" in str(found)
    assert set(hub.fetched) == set(files)
    hub.add(files)
    assert import_model("huggingface", NAME)["model"] == "runs/tiny"


def test_a_tokenizer_class_that_asks_to_run_code_is_not_run(hub, monkeypatch):
    folder = tiny("gpt2", vocab_size=256).save(Path("theirs"))
    library = ByteLevelBPETokenizer()
    library.train_from_iterator([], vocab_size=256, show_progress=False)
    library.save(str(folder / "tokenizer.json"))
    (folder / "own.py").write_text(f"open({str(Path('ran').resolve())!r}, 'w')")
    named = {"tokenizer_class": "AutoProcessor", "auto_map": {"AutoProcessor": "own.Own"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    found = import_model("huggingface", folder, out="imported")
    assert not found["certificate"]["tokenizer_ids"]["checked"] and not Path("ran").exists()


def test_what_the_hub_lacks_or_forbids_and_names_of_another_form_are_refused(hub, monkeypatch):
    save_model(Path("run"), build(config_of("gpt2"), seed=0).eval(), {})
    with pytest.raises(CheckpointError, match="the Hugging Face hub has no public model team/none"):
        load("hub:team/none")
    with pytest.raises(CheckpointError, match="only to those who accept its terms"):
        load("hub:team/gated")
    with pytest.raises(CheckpointError, match="there is no folder team/none, and the Hugging Face"):
        import_model("huggingface", "team/none")
    with pytest.raises(
        CheckpointError, match="fetched from the Hugging Face hub .*`hf download te"
    ):
        load("hub:team/broken")
    with pytest.raises(CheckpointError, match="hub:team/none is read by `sublayer import"):
        export("hub:team/none", "out")
    hub.add({"config.json": b"{}"})
    with pytest.raises(CheckpointError, match=f"{NAME} has no revision v2 on .*the whole id"):
        load(f"hub:{NAME}@v2")
    commits = dict(hub.commits)
    for text in ("hub:", "hub:a/b/c", "hub:../a", "hub:a@"):
        assert HubModel.parse(text) is None
        with pytest.raises(ConfigError, match="is not accepted: give .* or hub:OWNER/NAME"):
            export("run", to=text)
    with pytest.raises(ConfigError, match=f"DIR has no effect with .*hub:{NAME}"):
        export("run", "out", to=f"hub:{NAME}")
    with pytest.raises(ConfigError, match="DIR is missing"):
        export("run")
    with pytest.raises(ConfigError, match="average has no effect"):
        load(f"hub:{NAME}", average=2)
    monkeypatch.setenv("HF_TOKEN", "reads-only")
    with pytest.raises(ConfigError, match=f"hub:{NAME} cannot be written .*log in by") as caught:
        export("run", to=f"hub:{NAME}")
    said = str(caught.value)
    assert "reads-only" not in said and "\n" not in said and hub.commits == commits
