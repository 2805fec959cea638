"""A hub on loopback that speaks the protocols of Hugging Face, ModelScope and AI Studio, as much of them as their own
clients need to fetch a model. What it does wrong on purpose is set in its `faults`; what it was asked stands in `asked`."""

import contextlib
import hashlib
import http.server
import json
import re
import threading
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit


def git_sha1(body):
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


def sha256(body):
    return hashlib.sha256(body).hexdigest()


def lfs_pointer(body):
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(body)}\nsize {len(body)}\n".encode()


def is_lfs(path):
    return path.endswith((".safetensors", ".bin"))


class Asked(NamedTuple):
    method: str
    path: str  # with its query
    range: str | None
    token: str | None
    store: bool  # of the server that has the bytes, not of the hub itself


class Faults:
    """By path of a file; lists are used up, a value per answer."""

    def __init__(self):
        self.cut = {}  # bytes after which the connection ends
        self.status = {}  # an answer of this status instead
        self.headers = {}  # headers of such an answer
        self.swap = {}  # other bytes, for good
        self.length = {}  # another Content-Length, for good
        self.tag = {}  # another digest in the headers of Hugging Face, for good
        self.commit = {}  # another commit in the headers of Hugging Face, for good
        self.hold = {}  # bytes after which the answer waits until `release` is set
        self.no_ranges = False
        self.redirect = None  # where the bytes of large files are said to lie
        self.api = []  # statuses of answers about a repository
        self.release = threading.Event()


class Hub:
    """`url`: the hub; `store`: another server, to which Hugging Face redirects for the bytes of large files."""

    def __init__(self):
        self.repos = {}  # name: {revision or commit: {path: bytes}}
        self.commits = {}  # (name, revision): commit
        self.tags = set()  # revisions that are tags, for AI Studio
        self.asked, self.faults, self.token = [], Faults(), None
        self.page_size = None  # most files of a page of AI Studio
        self.servers = [self.serve(store) for store in (False, True)]
        self.url, self.store = (f"http://127.0.0.1:{server.server_port}" for server in self.servers)

    def serve(self, store):
        handler = type("BoundHandler", (Handler,), {"hub": self, "store": store})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    def close(self):
        self.faults.release.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def publish(self, name, files, revisions=("main", "master")):
        """Files of a new commit, to which the revisions then point; gives the commit."""
        commit = hashlib.sha1(json.dumps([(k, sha256(v)) for k, v in files.items()]).encode()).hexdigest()
        self.repos.setdefault(name, {})[commit] = dict(files)
        for revision in revisions:
            self.commits[name, revision] = commit
        return commit

    def commit_of(self, name, revision):
        return revision if revision in self.repos.get(name, {}) else self.commits.get((name, revision))

    def fetched(self, path):
        """The GETs of a file's bytes, whichever protocol."""
        return [a for a in self.asked if a.method == "GET" and unquote(a.path).split("?ref")[0].endswith(path)]

    def environment(self):
        return {
            "HF_ENDPOINT": self.url,
            "MODELSCOPE_ENDPOINT": self.url,
            "AISTUDIO_ENDPOINT": self.url,
            "STUDIO_GIT_HOST": self.url,
        }


@contextlib.contextmanager
def running_hub():
    hub = Hub()
    try:
        yield hub
    finally:
        hub.close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub
    store: bool
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer()

    do_HEAD = do_GET

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_json({})

    def answer(self):
        hub, url = self.hub, urlsplit(self.path)
        self.query = {key: values[0] for key, values in parse_qs(url.query).items()}
        hub.asked.append(Asked(self.command, self.path, self.headers.get("Range"), self.headers.get("Authorization"), self.store))
        routes = [
            (r"/api/models/([^/]+/[^/]+)/revision/([^/]+)", self.hf_info),
            (r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", self.hf_tree),
            (r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.hf_file),
            (r"/content/([^/]+/[^/]+)/([^/]+)/(.+)", self.content),
            (r"/api/v1/models/([^/]+/[^/]+)/repo/files", self.ms_files),
            (r"/api/v1/models/([^/]+/[^/]+)/repo", self.ms_file),
            (r"/api/v1/models/([^/]+/[^/]+)/revisions", self.ms_revisions),
            (r"/api/v1/models/([^/]+/[^/]+)", self.ms_info),
            (r"/api/v1/repos/([^/]+/[^/]+)/tags/([^/]+)", self.ai_tag),
            (r"/api/v1/repos/([^/]+/[^/]+)/git/trees/([^/]+)", self.ai_tree),
            (r"/api/v1/repos/([^/]+/[^/]+)/contents/(.+)", self.ai_contents),
            (r"/api/v1/repos/([^/]+/[^/]+)/media/(.+)", self.ai_media),
        ]
        for pattern, serve in routes:
            if found := re.fullmatch(pattern, url.path):
                if hub.token and serve != self.content and (self.headers.get("Authorization") or "").split()[-1:] != [hub.token]:
                    return self.send_status(401)
                if serve in (self.hf_info, self.ms_files, self.ai_tree) and hub.faults.api:
                    return self.send_status(hub.faults.api.pop(0))
                with contextlib.suppress(ConnectionError):
                    return serve(*(unquote(group) for group in found.groups()))
        return self.send_status(404)

    # Answers.
    def send_status(self, status, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def send_json(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_bytes(self, path, body, headers):
        faults = self.hub.faults
        if self.command == "GET" and faults.status.get(path):
            return self.send_status(faults.status[path].pop(0), **faults.headers.get(path, {}))
        body = faults.swap.get(path, body)
        length, first, status = len(body), 0, 200
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if wanted and not faults.no_ranges:
            first = int(wanted[1])
            last = min(int(wanted[2]) if wanted[2] else length - 1, length - 1)
            if first >= length:
                return self.send_status(416, **{"Content-Range": f"bytes */{length}"})
            status, body = 206, body[first : last + 1]
            headers["Content-Range"] = f"bytes {first}-{last}/{length}"
        self.send_response(status)
        told = faults.length.get(path, len(body))
        for name, value in {**headers, "Content-Length": str(told), "Accept-Ranges": "bytes"}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.send_body(path, body, told)

    def send_body(self, path, body, told):
        faults = self.hub.faults
        if faults.cut.get(path):
            body, self.close_connection = body[: faults.cut[path].pop(0)], True
        if path in faults.hold:
            part = faults.hold.pop(path)
            self.wfile.write(body[:part])
            faults.release.wait(30)
            body = body[part:]
        self.wfile.write(body)
        if told != len(body):
            self.close_connection = True

    def files_at(self, name, revision):
        commit = self.hub.commit_of(name, revision)
        return commit, self.hub.repos[name][commit] if commit else None

    # Hugging Face.
    def hf_info(self, name, revision):
        commit, files = self.files_at(name, revision)
        if files is None:
            return self.send_status(404, **{"X-Error-Code": "RevisionNotFound"})
        self.send_json({"id": name, "modelId": name, "sha": commit, "siblings": [{"rfilename": path} for path in files]})

    def hf_tree(self, name, revision):
        _, files = self.files_at(name, revision)
        if files is None:
            return self.send_status(404)
        entries = []
        for path, body in files.items():
            entry = {"type": "file", "path": path, "size": len(body), "oid": git_sha1(body)}
            if is_lfs(path):
                entry["lfs"] = {"oid": sha256(body), "size": len(body), "pointerSize": len(lfs_pointer(body))}
            entries.append(entry)
        self.send_json(entries)

    def hf_file(self, name, revision, path):
        commit, files = self.files_at(name, revision)
        if files is None or path not in files:
            return self.send_status(404, **{"X-Error-Code": "EntryNotFound"})
        body = files[path]
        commit = self.hub.faults.commit.get(path, commit)
        digest = self.hub.faults.tag.get(path, sha256(body) if is_lfs(path) else git_sha1(body))
        if not is_lfs(path):
            return self.send_bytes(path, body, {"X-Repo-Commit": commit, "ETag": f'"{digest}"'})
        where = self.hub.faults.redirect or f"{self.hub.store}/content/{name}/{commit}/{path}"
        self.send_status(302, **{"Location": where, "X-Repo-Commit": commit,
                                 "X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(body))})  # fmt: skip

    def content(self, name, commit, path):
        self.send_bytes(path, self.hub.repos[name][commit][path], {"ETag": '"of-the-store"'})

    # ModelScope.
    def ms_files(self, name):
        commit, files = self.files_at(name, self.query.get("Revision", "master"))
        if files is None:
            return self.send_status(404)
        listed = [
            {"Type": "blob", "Path": path, "Name": path.rsplit("/", 1)[-1], "Size": len(body), "Sha256": sha256(body),
             "IsLFS": is_lfs(path), "Revision": commit, "Mode": "33188", "CommittedDate": 1}
            for path, body in files.items()
        ]  # fmt: skip
        self.send_json({"Code": 200, "Success": True, "Message": "success", "Data": {"Files": listed}})

    def ms_file(self, name):
        _, files = self.files_at(name, self.query.get("Revision", "master"))
        path = self.query.get("FilePath")
        if files is None or path not in files:
            return self.send_status(404)
        self.send_bytes(path, files[path], {"ETag": f'"{sha256(files[path])}"'})

    def ms_revisions(self, name):
        known = [{"Revision": r, "CreatedAt": 1} for (n, r) in self.hub.commits if n == name]
        self.send_json({"Code": 200, "Success": True, "Data": {"RevisionMap": {"Branches": known, "Tags": []}}})

    def ms_info(self, name):
        if name not in self.hub.repos:
            return self.send_status(404)
        self.send_json({"Code": 200, "Success": True, "Data": {"Name": name.split("/")[1], "Path": name.split("/")[0]}})

    # AI Studio.
    def ai_tag(self, name, revision):
        if revision not in self.hub.tags or (name, revision) not in self.hub.commits:
            return self.send_status(404)
        self.send_json({"name": revision, "commit": {"sha": self.hub.commits[name, revision]}})

    def ai_entries(self, files):
        """As git has them: of a file of LFS, the pointer."""
        stored = {path: lfs_pointer(body) if is_lfs(path) else body for path, body in files.items()}
        return [{"path": p, "mode": "100644", "type": "blob", "size": len(b), "sha": git_sha1(b)} for p, b in stored.items()]

    def ai_tree(self, name, revision):
        commit, files = self.files_at(name, revision)
        if files is None:
            return self.send_status(404)
        size = self.hub.page_size or int(self.query.get("per_page", 1000))
        page = int(self.query.get("page", 1))
        entries = self.ai_entries(files)
        self.send_json({"sha": commit, "url": f"{self.hub.url}/api/v1/repos/{name}/git/trees/{commit}", "page": page, "total_count": len(entries),
                        "tree": entries[(page - 1) * size : page * size], "truncated": page * size < len(entries)})  # fmt: skip

    def ai_contents(self, name, path):
        commit, files = self.files_at(name, self.query.get("ref", "master"))
        if files is None or path not in files:
            return self.send_status(404)
        body = files[path]
        self.send_json({"name": path.rsplit("/", 1)[-1], "path": path, "type": "file", "size": len(body),
                        "sha": git_sha1(body), "last_commit_sha": commit, "Sha256": sha256(body)})  # fmt: skip

    def ai_media(self, name, path):
        _, files = self.files_at(name, self.query.get("ref", "master"))
        if files is None or path not in files:
            return self.send_status(404)
        self.send_bytes(path, files[path], {})
