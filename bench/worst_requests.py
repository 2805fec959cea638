#!/usr/bin/env python3
"""Memory and time of the worst request of each kind, as a Markdown table.

worst_requests.py TERN [TERN ...]     one column pair per program, such as one before and one after a change
"""

import argparse
import contextlib
import importlib.util
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "security"))
sys.path.insert(0, str(ROOT / "tools" / "gpu_check"))
import rows  # noqa: E402
from attack import MB, connect, head, peak, post, reset_peak  # noqa: E402

_spec = importlib.util.spec_from_file_location("end_to_end_server", ROOT / "tests" / "e2e" / "conftest.py")
e2e = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(e2e)

SIZE = 24 * MB


def filled(before, part, after, size=SIZE):
    return (before + ",".join([part] * ((size - len(before) - len(after)) // (len(part) + 1))) + after).encode()


def chat(content, more=""):
    return ('{"messages":[{"role":"user","content":' + content + '}],"max_tokens":2' + more + "}").encode()


BODIES = {
    "24 MiB of `1,` as a prompt": ("/v1/completions", lambda: filled('{"prompt":[', "1", "]}")),
    "24 MiB of `[],`": ("/v1/completions", lambda: filled('{"prompt":[', "[]", "]}")),
    '24 MiB of `{"":0},` as messages': ("/v1/chat/completions", lambda: filled('{"messages":[', '{"":0}', "]}")),
    "8 MiB of digits as a chat": ("/v1/chat/completions", lambda: chat('"' + "7" * (SIZE // 3) + '"')),
    "24 MiB of words to /tokenize": ("/tokenize", lambda: b'{"prompt":"' + b"word " * (SIZE // 5) + b'"}'),
    "24 MiB data: URL, no picture": (
        "/v1/chat/completions",
        lambda: chat('[{"type":"image_url","image_url":{"url":"data:image/png;base64,' + "A" * SIZE + '"}}]'),
    ),
    "1,024 bad words": (
        "/v1/completions",
        lambda: b'{"prompt":[5],"max_tokens":1,"bad_words":' + filled("[", '"two words"', "]", 1023 * 12) + b"}",
    ),
    "2,000 tokens, n 128": ("/v1/completions", lambda: filled('{"n":128,"max_tokens":1,"prompt":[', "5", "]}", 4030)),
}


def unfinished(server):
    with contextlib.ExitStack() as stack:
        for _ in range(16):
            c = stack.enter_context(connect(server))
            with contextlib.suppress(OSError):
                c.sendall(head("/v1/completions", 60 * MB))
                for _ in range(40):
                    c.sendall(b" " * MB)


def measure(program):
    e2e.TERN = program
    found = {}
    for name, (path, make) in BODIES.items():
        with tempfile.TemporaryDirectory() as tmp:
            s = e2e.Server(pathlib.Path(tmp), "--max-num-seqs", 4, "--max-model-len", 2048, "--max-body-bytes", 64 * MB)
            try:
                s.wait_ready()
                body = make()
                before = reset_peak(s.process.pid)
                begin = time.monotonic()
                try:
                    status = post(s, path, body, timeout=180)[0]
                except OSError:
                    status = "none"
                seconds = time.monotonic() - begin
                found[name] = (f"{max(0, peak(s.process.pid) - before) / MB:,.0f} MiB", f"{seconds:.2f} s", status)
            finally:
                s.process.kill()
                s.process.wait()
    with tempfile.TemporaryDirectory() as tmp:
        s = e2e.Server(pathlib.Path(tmp), "--max-num-seqs", 4, "--max-model-len", 2048, "--max-body-bytes", 64 * MB)
        try:
            s.wait_ready()
            before = reset_peak(s.process.pid)
            begin = time.monotonic()
            unfinished(s)
            found["sixteen unfinished bodies of 40 MiB"] = (
                f"{(peak(s.process.pid) - before) / MB:,.0f} MiB",
                f"{time.monotonic() - begin:.2f} s",
                "",
            )
        finally:
            s.process.kill()
            s.process.wait()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+")
    programs = [str(pathlib.Path(p).resolve()) for p in parser.parse_args().programs]
    columns = [measure(p) for p in programs]  # rows are of the last one
    for name, (memory, seconds, status) in columns[-1].items():
        note = seconds + (f", status {status}" if status else "")
        what = f"memory above that of the idle server: {name}"
        rows.add(what, "bench/worst_requests.py", float(memory.split()[0].replace(",", "")), "MiB", note=note)
    print("| Request |" + "".join(f" {pathlib.Path(p).name}: memory | time | status |" for p in programs))
    print("|---|" + "---|---|---|" * len(programs))
    for name in columns[0]:
        print(f"| {name} |" + "".join(f" {a} | {b} | {c} |" for a, b, c in (one[name] for one in columns)))


if __name__ == "__main__":
    main()
