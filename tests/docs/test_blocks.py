"""Blocks of the site's pages do what the pages say. Those of one language run: the other languages have the same."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
from site_pages import ROOT, SITE, missing_lines, read_blocks
from tern_server import TERN

RUNNING = re.compile(rb"unning on (?:https?://\S+:(\d+)|unix:) ?")
PORT = "8180"  # what pages say; a free one takes its place
PAGES = [p for p in sorted((SITE / "en").glob("*.md")) if any(b.mark for b in read_blocks(p.read_text()))]


class Place:
    """A folder that looks as the repository does from where pages are followed, and the servers that were started there."""

    def __init__(self, folder):
        self.folder, self.servers = folder, {}
        for name in ("models", "python"):
            (folder / name).symlink_to(ROOT / name)
        path = [str(pathlib.Path(TERN).resolve().parent), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]
        self.env = os.environ | {
            "PATH": os.pathsep.join(path),
            "TERN": str(pathlib.Path(TERN).resolve()),
            "PYTHONPATH": os.pathsep.join(str(ROOT / "python" / part) for part in (".", "compat")),
            "FD_LOG_DIR": str(folder / "log"),
        }

    def serve(self, command):
        """The port of a server that `command` starts, or has started."""
        if command not in self.servers:
            output = self.folder / f"server-{len(self.servers)}.txt"
            with open(output, "wb") as out:
                process = subprocess.Popen(
                    ["bash", "-ec", command.replace(PORT, "0")],
                    stdout=out,
                    stderr=out,
                    cwd=self.folder,
                    env=self.env,
                    start_new_session=True,
                )
            self.servers[command] = process, output
        process, output = self.servers[command]
        deadline = time.monotonic() + 60
        while not (said := RUNNING.search(output.read_bytes())):
            assert process.poll() is None and time.monotonic() < deadline, f"{command}\n{output.read_text()}"
            time.sleep(0.01)
        return (said[1] or b"").decode()

    def run(self, block, port):
        command = (
            ["bash", "-ec", "set -o pipefail\n" + block.text] if block.language == "sh" else [sys.executable, "-c", block.text]
        )
        command[-1] = command[-1].replace(PORT, port) if port else command[-1]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"line {block.line}: {block.text}\n{done.stdout}"
        return done.stdout

    def end(self):
        for process, _ in self.servers.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("place"))
    yield place
    place.end()


def commands(text):
    """The commands of a block, lines that go on joined."""
    return [line for line in re.sub(r"\\\n\s*", "", text).splitlines() if line.strip()]


def follow(place, blocks):
    port, output = None, ""
    for block in blocks:
        if block.mark == "serve":
            port = place.serve(block.text)
        elif block.mark == "run":
            output = place.run(block, port)
        elif block.mark == "check":
            for command in commands(block.text):
                place.run(type(block)("run", "sh", command + " --dry-run", block.line), None)
        elif block.mark == "prints":
            missing = missing_lines(block.text, output)
            assert not missing, f"line {block.line}: {missing} not in\n{output}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_do_what_the_page_says(place, page):
    follow(place, read_blocks(page.read_text()))


@pytest.mark.parametrize(
    "text",
    [
        "<!-- run -->\n```sh\nfalse | true\n```\n",
        "<!-- run -->\n```python\nraise ValueError\n```\n",
        "<!-- check -->\n```sh\ntern serve --model models/tern-demo-ocr \\\n  --no-such-flag 1\n```\n",
        "<!-- run -->\n```sh\necho one\n```\n<!-- prints -->\n```text\ntwo\n```\n",
        "<!-- serve -->\n```sh\ntern serve --model no-such-folder --port 8180\n```\n",
    ],
)
def test_a_block_that_does_not_hold_fails(place, text):
    with pytest.raises(AssertionError):
        follow(place, read_blocks(text))
