"""download_model.py and the fetch of static models (docs/spec/paddlenlp-server.md 5.4): a list on loopback."""

import hashlib
import http.server
import os
import pathlib
import resource
import signal
import subprocess
import sys
import threading
from typing import ClassVar

import pytest
from tern_server import TERN, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Files(http.server.BaseHTTPRequestHandler):
    """A list of files on loopback; `cut` closes the connection in the middle of a body, once per path; `hold` stops there
    until the client is gone, once per path too."""

    content: ClassVar[dict] = {}
    cut: ClassVar[set] = set()
    hold: ClassVar[set] = set()
    asked: ClassVar[list] = []

    def do_GET(self):
        path = self.path.lstrip("/")
        Files.asked.append((path, self.headers.get("Range")))
        if path not in Files.content:
            return self.send_error(404)
        body, first = Files.content[path], 0
        if self.headers.get("Range"):
            first = int(self.headers["Range"].split("=")[1].rstrip("-"))
            if first >= len(body):
                return self.send_error(416)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - first))
        self.end_headers()
        part = body[first:]
        if path in Files.cut:
            Files.cut.discard(path)
            part = part[: len(part) // 2]
        if path in Files.hold:
            Files.hold.discard(path)
            self.wfile.write(part[: len(part) // 2])
            self.connection.recv(1)
            return
        self.wfile.write(part)

    def log_message(self, *_):
        pass


NAME = "Qwen/tiny/weight_only_int8"


@pytest.fixture
def files(tmp_path):
    Files.content, Files.cut, Files.hold, Files.asked = {}, set(), set(), []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def publish(part="model", tag="3.0.0.b4", wrong=(), **content):
    base = f"{tag}/{NAME}/{part}/"
    lines = []
    for name, body in content.items():
        path = name.replace("__", "/").replace("_dot_", ".")
        Files.content[base + path] = body
        lines.append(f"{path}:{hashlib.md5(body + (b'x' if name in wrong else b'')).hexdigest()}")
    Files.content[base + "file_list.txt"] = ("\n".join(lines) + "\n\n").encode()
    return base


def download(url, folder, *arguments, name=NAME, program=None, **variables):
    program = program or [TERN, "download_model"]
    return subprocess.run([*program, "-m", name, "-d", str(folder), *arguments], capture_output=True, text=True,
                          env={**os.environ, "PADDLENLP_STATIC_MODEL_URL": url, **variables}, timeout=60, check=False)  # fmt: skip


def test_a_download_as_the_page_writes_it(files, tmp_path):
    publish(config_dot_json=b"{}", rank_0__model_dot_pdiparams=os.urandom(200_000))
    tool = [sys.executable, str(ROOT / "tools" / "download_model.py")]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tern").symlink_to(TERN)
    done = download(files, tmp_path / "m", "--nnodes", "1", program=tool, PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m" / NAME / "rank_0" / "model.pdiparams").stat().st_size == 200_000
    Files.asked.clear()
    assert download(files, tmp_path / "m").returncode == 0
    assert len(Files.asked) == 1  # the list; what is there is left unread
    (tmp_path / "m" / NAME / "config.json").write_text("other")
    assert download(files, tmp_path / "m", MD5_CHECK="1").returncode == 0
    assert (tmp_path / "m" / NAME / "config.json").read_text() == "{}"


def test_parts_of_several_nodes_and_the_draft(files, tmp_path):
    for part in ("node1", "node2", "mtp"):
        publish(part=part, what=part.encode())
    assert download(files, tmp_path / "a", "-n", "2").returncode == 0
    assert (tmp_path / "a" / NAME / "what").read_text() == "node1"
    assert download(files, tmp_path / "b", "-n", "2", "-M", "slave", "-s", str(tmp_path / "draft")).returncode == 0
    assert (tmp_path / "b" / NAME / "what").read_text() == "node2" and (tmp_path / "draft" / "what").read_text() == "mtp"


def test_a_cut_connection_goes_on_where_it_was(files, tmp_path):
    body = os.urandom(400_000)
    base = publish(big=body)
    Files.cut = {base + "big"}
    assert download(files, tmp_path / "m").returncode == 0
    assert (tmp_path / "m" / NAME / "big").read_bytes() == body
    assert (base + "big", "bytes=200000-") in Files.asked


def test_what_a_killed_run_left_is_continued(files, tmp_path):
    body = os.urandom(100_000)
    base = publish(big=body, bad=b"abc")
    folder = tmp_path / "m" / NAME
    folder.mkdir(parents=True)
    (folder / "big.part").write_bytes(body[:60_000])
    (folder / "bad.part").write_bytes(b"zz")  # of another file: fetched anew
    assert download(files, tmp_path / "m").returncode == 0
    assert (folder / "big").read_bytes() == body and (folder / "bad").read_bytes() == b"abc"
    assert (base + "big", "bytes=60000-") in Files.asked


def test_a_wrong_sum_fails_the_run_and_the_rest_goes_on(files, tmp_path):
    base = publish(wrong=("first",), first=b"1", second=b"2")
    done = download(files, tmp_path / "m")
    assert done.returncode == 1 and f"[×] Failed: {files}/{base}first" in done.stdout
    assert not (tmp_path / "m" / NAME / "first").exists() and not list((tmp_path / "m" / NAME).glob("*.part"))
    assert (tmp_path / "m" / NAME / "second").read_bytes() == b"2"


@pytest.mark.parametrize("path", ["../out", "/etc/x", "a/../../out", "./x", "a//b"])
def test_paths_that_lead_out_are_refused(files, tmp_path, path):
    base = f"3.0.0.b4/{NAME}/model/"
    Files.content[base + "file_list.txt"] = f"{path}:{'0' * 32}\n".encode()
    done = download(files, tmp_path / "m")
    assert done.returncode == 1 and "not below the model's folder" in done.stderr


def test_a_link_that_leads_out_is_refused(files, tmp_path):
    publish(sub__x=b"1")
    (tmp_path / "m" / NAME).mkdir(parents=True)
    (tmp_path / "m" / NAME / "sub").symlink_to(tmp_path)
    assert download(files, tmp_path / "m").returncode != 0 and not (tmp_path / "x").exists()
    publish(sub__deep__x=b"1")
    done = download(files, tmp_path / "m")
    assert done.returncode != 0 and "leads out of" in done.stderr and not (tmp_path / "deep").exists()


def popen(url, folder, **keys):
    return subprocess.Popen([TERN, "download_model", "-m", NAME, "-d", str(folder)], stdout=subprocess.PIPE, text=True,
                            env={**os.environ, "PADDLENLP_STATIC_MODEL_URL": url}, **keys)  # fmt: skip


def test_a_killed_download_lets_the_next_one_go_on(files, tmp_path):
    body = os.urandom(400_000)
    base = publish(big=body)
    Files.hold = {base + "big"}
    part = tmp_path / "m" / NAME / "big.part"
    first = popen(files, tmp_path / "m")
    wait_for(lambda: part.exists() and part.stat().st_size == 200_000)
    second = popen(files, tmp_path / "m")  # it waits for the lock of the first
    assert "this one waits for it" in second.stdout.readline()
    first.kill()
    first.wait()
    assert second.wait(60) == 0
    for run in (first, second):
        run.stdout.close()
    assert part.with_suffix("").read_bytes() == body and (base + "big", "bytes=200000-") in Files.asked


def test_a_disk_that_takes_no_more(files, tmp_path):
    body = os.urandom(300_000)
    base = publish(big=body, small=b"1")

    def limit():  # a write beyond it fails, as on a full disk
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    full = popen(files, tmp_path / "m", preexec_fn=limit, restore_signals=False)
    out, _ = full.communicate(timeout=60)
    folder = tmp_path / "m" / NAME
    assert full.returncode == 1 and f"[×] Failed: {files}/{base}big" in out
    assert not (folder / "big").exists() and (folder / "small").read_bytes() == b"1"
    assert download(files, tmp_path / "m").returncode == 0  # with room it goes on
    assert (folder / "big").read_bytes() == body and (base + "big", "bytes=100000-") in Files.asked


def test_two_at_once_take_turns(files, tmp_path):
    publish(big=os.urandom(3_000_000))
    runs = [popen(files, tmp_path / "m") for _ in range(2)]
    assert [run.wait(60) for run in runs] == [0, 0]
    for run in runs:
        run.stdout.close()
    assert sum(path.endswith("/big") for path, _ in Files.asked) == 1


def test_from_a_folder_and_what_is_not_there(files, tmp_path):
    place = tmp_path / "static" / "3.0.0.b4" / NAME / "model"
    place.mkdir(parents=True)
    (place / "a b").write_bytes(b"1")
    (place / "file_list.txt").write_text(f"a b:{hashlib.md5(b'1').hexdigest()}\n")
    assert download(f"file://{tmp_path}/static", tmp_path / "m").returncode == 0
    assert (tmp_path / "m" / NAME / "a b").read_bytes() == b"1"
    gone = download(files, tmp_path / "m")
    assert (
        gone.returncode == 1
        and f"Failed to download file list from URL: {files}/3.0.0.b4/{NAME}/model/file_list.txt" in gone.stderr
    )
    unknown = download(files, tmp_path / "m", name="gpt2")
    assert unknown.returncode == 2 and "gpt2 is not in the supported list" in unknown.stderr
    none = download(files, tmp_path / "m", "-n", "0")
    assert none.returncode == 2 and "Invalid nnodes: 0. nnodes must be >= 1." in none.stderr
