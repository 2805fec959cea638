"""The page as a file: what the program sends is what the parts make, and the tool that joins them refuses what it cannot join."""

import gzip
import http.client
import subprocess
import sys

import pytest
from tern_server import ROOT

TOOL = ROOT / "tools" / "embed_page.py"
PARTS = ROOT / "src" / "serve" / "page" / "ui"


def embed(folder, out, *more):
    return subprocess.run([sys.executable, TOOL, folder, out, *more], check=False, capture_output=True, text=True)


def test_the_program_holds_the_parts(model_server, tmp_path):
    embed(PARTS, tmp_path / "a.cc", "--html", tmp_path / "a.html").check_returncode()
    embed(PARTS, tmp_path / "b.cc").check_returncode()
    assert (tmp_path / "a.cc").read_bytes() == (tmp_path / "b.cc").read_bytes()
    connection = http.client.HTTPConnection("127.0.0.1", model_server.port, timeout=20)
    connection.request("GET", "/", headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    body = answer.read()
    assert answer.headers["content-encoding"] == "gzip" and len(body) <= 150 * 1024
    assert gzip.decompress(body) == (tmp_path / "a.html").read_bytes()
    connection.request("GET", "/", headers={"Accept-Encoding": "gzip", "If-None-Match": answer.headers["etag"]})
    again = connection.getresponse()
    assert again.status == 304 and again.read() == b""


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"index.html": "<p>"}, "names no style"),
        ({"index.html": '<link rel="stylesheet" href="a.css">\n', "a.css": ""}, "names no script"),
        ({"a.css": "</style>"}, "would end it"),
        ({"a.js": "</SCRIPT>"}, "would end it"),
        ({"a.js": "<!--"}, "would end it"),
        ({"left.js": ""}, "does not name left.js"),
    ],
)
def test_what_cannot_be_joined(tmp_path, files, problem):
    whole = {"index.html": '<link rel="stylesheet" href="a.css">\n<script src="a.js"></script>\n', "a.css": "", "a.js": ""}
    parts = tmp_path / "parts"
    parts.mkdir()
    for name, text in ({**whole, **files} if "index.html" not in files else files).items():
        (parts / name).write_text(text)
    done = embed(parts, tmp_path / "out.cc")
    assert done.returncode != 0 and problem in done.stderr and not (tmp_path / "out.cc").exists()
