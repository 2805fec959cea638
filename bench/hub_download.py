#!/usr/bin/env python3
"""The rate of `tern pull` from a hub on loopback, digests included, beside the slower of two things alone: curl, which fetches
the same file from the same server, and SHA-256 by OpenSSL over memory. Hugging Face's protocol; the bytes go out by sendfile.

  hub_download.py [--tern build/release/tern] [--mib 1024] [--files 1] [--turns 5]

All three take turns, and the ratio is the median of those of the turns: what else the machine does then meets all of them.
"""

import argparse
import hashlib
import http.server
import json
import multiprocessing
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "gpu_check"))
import rows  # noqa: E402

COMMIT = "0123456789" * 4


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    folder: pathlib.Path
    digests: dict

    def log_message(self, *_):
        pass

    def send_head(self, size, **headers):
        self.send_response(200)
        for name, value in {"Content-Length": size, **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.flush()

    def do_GET(self):
        if self.path.startswith("/api/"):
            body = json.dumps({"sha": COMMIT, "siblings": [{"rfilename": name} for name in self.digests]}).encode()
            self.send_head(len(body))
            return self.wfile.write(body)
        name = self.path.rsplit("/", 1)[-1]
        with open(self.folder / name, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self.send_head(size, ETag=f'"{self.digests[name]}"', X_Repo_Commit=COMMIT)
            if self.command == "GET":
                self.connection.sendfile(file)

    do_HEAD = do_GET


def make_files(folder, files, size):
    """Weights of random bytes and a config.json; what each has as its digest."""
    chunk, digests = os.urandom(1 << 20), {}
    for i in range(files):
        whole = hashlib.sha256()
        name = f"model-{i + 1:05}-of-{files:05}.safetensors"
        with open(folder / name, "wb") as out:
            for _ in range(size >> 20):
                out.write(chunk)
                whole.update(chunk)
        digests[name] = whole.hexdigest()
    (folder / "config.json").write_text("{}")
    digests["config.json"] = hashlib.sha256(b"{}").hexdigest()
    return digests


def seconds(run):
    start = time.monotonic()
    run()
    return time.monotonic() - start


def digest_alone(size):
    piece, whole = os.urandom(256 << 10), hashlib.sha256()
    for _ in range(size // len(piece)):
        whole.update(piece)


def measure(args, folder, url, digests):
    size = args.files * args.mib << 20
    weights = [name for name in digests if name.endswith(".safetensors")]
    names = [word for name in weights for word in ("-o", folder / "got" / name, f"{url}/some/model/resolve/{COMMIT}/{name}")]
    environment = {**os.environ, "FD_MODEL_CACHE": str(folder / "got"), "FD_MODEL_SOURCE": "HUGGINGFACE", "HF_ENDPOINT": url}
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    ways = {
        "curl": lambda: subprocess.run(["curl", "-sS", "--fail", *names], **quiet),
        "SHA-256": lambda: digest_alone(size),
        "tern": lambda: subprocess.run([args.tern, "pull", "some/model"], env=environment, **quiet),
    }
    rates = {name: [] for name in ways}
    for _ in range(args.turns):
        for name, run in ways.items():
            shutil.rmtree(folder / "got", ignore_errors=True)
            (folder / "got").mkdir()
            rates[name].append(size / seconds(run) / 1e6)
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tern", default=str(ROOT / "build" / "release" / "tern"))
    parser.add_argument("--mib", type=int, default=1024, help="of each file")
    parser.add_argument("--files", type=int, default=1)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--folder", help="on the disk to write to (default: the system's for temporary files)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as made:
        folder = pathlib.Path(made)
        digests = make_files(folder, args.files, args.mib << 20)
        handler = type("BoundHub", (Hub,), {"folder": folder, "digests": digests})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        process = multiprocessing.get_context("fork").Process(target=server.serve_forever, daemon=True)
        process.start()
        try:
            rates = measure(args, folder, f"http://127.0.0.1:{server.server_port}", digests)
        finally:
            process.kill()
            process.join()
    for name, figures in rates.items():
        print(f"{name}: {statistics.median(figures):.0f} MB/s, median of {', '.join(f'{f:.0f}' for f in figures)}")
    slower = min("curl", "SHA-256", key=lambda name: statistics.median(rates[name]))
    shares = [ours / min(curl, sha) for ours, curl, sha in zip(rates["tern"], rates["curl"], rates["SHA-256"])]
    share = statistics.median(shares)
    print(f"{share:.2f} of the slower of curl and SHA-256 alone in the same turn: {', '.join(f'{s:.2f}' for s in shares)}")
    number = f"{args.files} file{'s' if args.files > 1 else ''} of {args.mib} MiB"
    rows.add(
        f"tern pull from loopback with SHA-256, {number}", "bench/hub_download.py", round(statistics.median(rates["tern"])), "MB/s",
        reference=f"{slower} alone, same run", reference_value=round(statistics.median(rates[slower])), reference_unit="MB/s",
        ratio=round(share, 3), note=f"the slower of curl and SHA-256; medians of {args.turns} turns",
    )  # fmt: skip


if __name__ == "__main__":
    main()
