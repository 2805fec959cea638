"""tern ocr: in this process, and against a server."""

import base64
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import zlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TERN = os.environ.get("TERN", str(ROOT / "build" / "release" / "tern"))
MODEL = ROOT / "models" / "tern-demo-ocr"
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from vision_model import make_vision_model  # noqa: E402


def tern(*args, timeout=120, **kw):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("FD_", "TERN_", "ENABLE_V1"))}
    return subprocess.run([TERN, *map(str, args)], capture_output=True, text=True, timeout=timeout, env=env, **kw)


def png(width, height, value):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = b"".join(b"\0" + bytes([value]) * width for _ in range(height))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


@pytest.fixture(scope="module")
def sees(tmp_path_factory):
    return make_vision_model(tmp_path_factory.mktemp("ocr") / "sees")


@pytest.fixture
def files(tmp_path):
    for i in range(4):
        (tmp_path / f"{i}.png").write_bytes(png(90 + 30 * i, 60, 40 * i))
    (tmp_path / "broken.png").write_bytes(png(90, 60, 1)[:60])
    return tmp_path


def test_json_lines_in_the_order_of_the_files(sees, files):
    names = [files / "3.png", files / "0.png", files / "2.png", files / "1.png"]
    result = tern("ocr", *names, "--model", sees, "--json", "--max-tokens", 5, cwd=files)
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["file"] for line in lines] == [str(n) for n in names]
    assert all(line["image_tokens"] > 0 and 0 < line["completion_tokens"] <= 5 and line["seconds"] > 0 for line in lines)
    assert lines[0]["image_tokens"] > lines[1]["image_tokens"]
    assert not (files / "log").exists()


def test_unreadable_files_are_named_and_others_go_on(sees, files):
    names = [files / "0.png", files / "broken.png", files / "nothing.png", files, files / "1.png"]
    result = tern("ocr", *names, "--model", sees, "--max-tokens", 3)
    assert result.returncode == 1
    for bad in names[1:4]:
        assert f"tern: {bad}: " in result.stderr
    assert "terminate called" not in result.stderr
    assert [line for line in result.stdout.splitlines() if line.startswith("==>")] == [
        f"==> {names[0]} <==",
        f"==> {names[4]} <==",
    ]
    as_json = tern("ocr", *names, "--model", sees, "--max-tokens", 3, "--json")
    assert as_json.returncode == 1
    assert ["error" in json.loads(line) for line in as_json.stdout.splitlines()] == [False, True, True, True, False]


@pytest.mark.parametrize(
    "args, status",
    [
        ([], 2),
        (["--model", "x"], 2),
        (["a.png", "--model", "x", "--server", "http://h"], 2),
        (["a.png", "--parallel", "0"], 2),
        (["a.png", "--server", "ftp://h"], 2),
        (["a.png", "--model", "/nowhere"], 1),
    ],
)
def test_mistakes(args, status, tmp_path):
    result = tern("ocr", *args, cwd=tmp_path)
    assert result.returncode == status, result.stderr
    assert result.stderr.startswith("tern: ")


def test_a_model_of_text_cannot_read(files):
    text = ROOT / "tests" / "data" / "golden" / "ernie4_5"
    result = tern("ocr", files / "0.png", "--model", text)
    assert result.returncode != 0 and "text only" in result.stderr


def test_against_a_server(sees, files, tmp_path):
    log = tmp_path / "server.txt"
    with open(log, "wb") as out:
        server = subprocess.Popen(
            [TERN, "serve", "--model", str(sees), "--host", "127.0.0.1", "--port", "0", "--api-key", "k"],
            stdout=out,
            stderr=out,
            env={**os.environ, "FD_LOG_DIR": str(tmp_path / "log")},
        )
    try:
        while "running on" not in log.read_text():
            assert server.poll() is None, log.read_text()
        url = re.search(r"running on (http://\S+)", log.read_text()).group(1)
        here = tern("ocr", files / "0.png", "--model", sees, "--max-tokens", 6)
        there = tern("ocr", files / "0.png", "--server", url, "--api-key", "k", "--max-tokens", 6)
        assert there.returncode == 0 and there.stdout == here.stdout
        refused = tern("ocr", files / "0.png", "--server", url)
        assert refused.returncode == 1 and "401" in refused.stderr
    finally:
        server.terminate()
        server.wait(20)
    gone = tern("ocr", files / "0.png", "--server", url)
    assert gone.returncode == 1


SAMPLE = ROOT / "models" / "heldout_pictures.jsonl"


@pytest.mark.skipif(not (SAMPLE.exists() and MODEL.is_dir()), reason="the model that ships is not there")
def test_the_shipped_model_reads(tmp_path):
    wrong = letters = 0
    names, wanted = [], []
    for i, line in enumerate(SAMPLE.read_text().splitlines()):
        case = json.loads(line)
        if case["prompt"] != "OCR:":
            continue
        names.append(tmp_path / str(i))
        names[-1].write_bytes(base64.b64decode(case["image"]))
        wanted.append(case["answer"])
    result = tern("ocr", *names, "--json", "--model", MODEL)
    assert result.returncode == 0, result.stderr
    for line, text in zip(result.stdout.splitlines(), wanted, strict=True):
        letters += len(text)
        wrong += distance(json.loads(line)["text"], text)
    assert wrong <= 0.03 * letters, f"{wrong} of {letters} characters wrong"


@pytest.mark.skipif(not (ROOT / "models" / "demo.png").exists(), reason="models/demo.png is not there")
def test_the_picture_of_make_run():
    picture = ROOT / "models" / "demo.png"
    result = tern("ocr", picture, "--model", MODEL)
    if (ROOT / "build") in pathlib.Path(TERN).resolve().parents:  # a program of this checkout finds its model
        assert tern("ocr", picture).stdout == result.stdout
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == (ROOT / "models" / "demo.txt").read_text().strip()


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]
