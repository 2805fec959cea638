"""Long pressure at --gpu-memory-utilization 0.95 beside another process: no failure, and the driver's free memory stays."""

import pathlib
import random
import struct
import subprocess
import sys
import threading
import time
import zlib

import models
from server import Server, ServerError

SLACK = 64 << 20
UTILIZATION = 0.95


class Holder:
    """hold.py as a child; on a CPU nothing is held and nothing is measured."""

    def __init__(self, run, *leave, gigabytes=None):
        self.lock, self.child = threading.Lock(), None
        if not run.places.on_gpu:
            return
        self.child = subprocess.Popen(
            [
                sys.executable,
                str(pathlib.Path(__file__).with_name("hold.py")),
                str(run.args.hold_gb if gigabytes is None else gigabytes),
                *map(str, leave),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self.child.stdout.readline().strip() != "holds":
            raise ServerError("the other process got no memory")

    def free(self):
        """(free, total) bytes as the driver counts them."""
        if self.child is None:
            return 0, 0
        with self.lock:
            self.child.stdin.write("\n")
            self.child.stdin.flush()
            return tuple(map(int, self.child.stdout.readline().split()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child is not None:
            self.child.stdin.close()
            self.child.wait(20)


class Pressure:
    """Threads that send requests made by `make(random)` until the time is over."""

    def __init__(self, run, server, holder, requests):
        self.run, self.server, self.holder, self.requests = run, server, holder, requests
        self.over, self.lock = threading.Event(), threading.Lock()
        self.done, self.faults, self.samples = {}, [], []

    def worker(self, number):
        chosen = random.Random(number)
        while not self.over.is_set():
            name, ask = chosen.choice(self.requests)
            try:
                ask(self.server, chosen)
                with self.lock:
                    self.done[name] = self.done.get(name, 0) + 1
            except Exception as e:
                if self.over.is_set() and self.server.process.poll() is None and isinstance(e, OSError):
                    return
                with self.lock:
                    self.faults.append(f"{name}: {type(e).__name__}: {str(e)[:300]}")
                if len(self.faults) > 20 or self.server.process.poll() is not None:
                    self.over.set()

    def go(self, seconds, threads):
        self.samples.append(self.holder.free()[0])
        began = time.monotonic()
        workers = [threading.Thread(target=self.worker, args=(i,)) for i in range(threads)]
        for w in workers:
            w.start()
        while time.monotonic() - began < seconds and not self.over.is_set():
            self.samples.append(self.holder.free()[0])
            time.sleep(0.25)
        self.over.set()
        for w in workers:
            w.join(240)
        self.samples.append(self.holder.free()[0])
        check, figure = self.run.check, self.run.figure
        check(not self.faults, "no request fails", f"{len(self.faults)}: {self.faults[:3]}")
        check(self.server.process.poll() is None, "the server lives", self.server.text()[-500:])
        for name, _ in self.requests:
            check(self.done.get(name, 0) > 0, f"{name} served", self.done)
        figure("requests", self.done)
        if self.holder.child is not None:
            spread = max(self.samples) - min(self.samples)
            moved = [i for i in range(1, len(self.samples)) if abs(self.samples[i] - self.samples[i - 1]) > SLACK / 2]
            if moved:  # a sample every quarter of a second
                figure(
                    "free memory moved",
                    ", ".join(f"{(self.samples[i] - self.samples[i - 1]) / 1e6:+.0f} MB at sample {i}" for i in moved[:8]),
                )
            check(spread <= SLACK, "the driver's free memory stays within 64 MB", f"{spread / 1e6:.1f} MB")
            figure(
                "free memory",
                f"{self.samples[0] / 1e9:.2f} GB when ready, {spread / 1e6:.2f} MB between extremes of "
                f"{len(self.samples)} samples",
            )
        allocations = self.server.metric("tern:late_allocations_total")
        check(allocations == 0, "no allocation after ready", f"{allocations} (None: the figure is missing)")


def small(run):
    """On a CPU the reference cases take the place of published shapes: to try the stage itself."""
    return not run.places.on_gpu


def check_budget(run, server, holder):
    free, total = holder.free()
    if total:
        used = (total - free) / total
        run.check(
            UTILIZATION - 0.03 <= used <= UTILIZATION + 0.01,
            "memory in use when ready, the other process included",
            f"{used:.3f} of {total / 1e9:.1f} GB",
        )
        run.figure("in use when ready", f"{used:.3f} of {total / 1e9:.1f} GB")


def text(run):
    if small(run):
        folder = models.from_case(run.places.case("qwen3"), run.places.fresh("qwen3"))
        vocab, longest, flags = 512, 2048, []
    else:
        folder, config = models.published(run.places, "qwen3-8b", run.places.fresh("qwen3-8b"))
        vocab, longest, flags = config["vocab_size"], 32768, ["--load-choices", "dummy"]

    def ids(chosen, n):
        first = chosen.randrange(11, vocab)
        return [(first + 7 * i * i) % (vocab - 11) + 11 for i in range(n)]

    def whole(server, chosen):
        server.complete(ids(chosen, longest - 40), 16)

    def many(server, chosen):
        server.complete(ids(chosen, 300), 120, n=8, temperature=1.0, top_p=0.9, repetition_penalty=1.05)

    def scored(server, chosen):
        server.complete(ids(chosen, 700), 60, logprobs=20, temperature=0.7)

    def prompt_scored(server, chosen):
        server.complete(ids(chosen, 900), 4, prompt_logprobs=5)

    def short(server, chosen):
        server.complete(ids(chosen, chosen.randrange(1, 400)), chosen.randrange(1, 300), temperature=0.8, min_p=0.05)

    with (
        Holder(run) as holder,
        Server(
            run,
            folder,
            "--max-model-len",
            longest,
            "--max-num-seqs",
            16 if small(run) else 192,
            "--gpu-memory-utilization",
            UTILIZATION,
            "--enable-logprob",
            *flags,
        ) as server,
    ):
        server.ready(240)
        check_budget(run, server, holder)
        Pressure(
            run,
            server,
            holder,
            [("longest", whole), ("n", many), ("log-probs", scored), ("prompt log-probs", prompt_scored), ("short", short)],
        ).go(run.args.memory_seconds, 12 if small(run) else 96)
        run.check(server.stop() == 0, "ends with status 0", server.text()[-300:])


def png(width, height, seed):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    row = b"\0" + bytes((x * 3 + seed) % 256 for x in range(width * 3))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(row * height, 1))
        + chunk(b"IEND", b"")
    )


def pictures(run):
    if small(run):
        folder, flags = models.from_case(run.places.case("paddleocr_vl"), run.places.fresh("paddleocr_vl")), []
        longest, sizes = 4096, [(224, 168), (56, 56)]
    else:
        folder, config = models.published(run.places, "paddleocr-vl-0.9b", run.places.fresh("paddleocr-vl"))
        models.picture_folder(folder, config)
        flags, longest = ["--load-choices", "dummy"], 16384
        sizes = [(2000, 1400), (1680, 1680), (28, 56), (640, 480), (3000, 900)]

    def parts(chosen, count):
        content = []
        for _ in range(count):
            content += [
                models.picture(png(*chosen.choice(sizes), chosen.randrange(256))),
                models.words([chosen.randrange(20, 400)]),
            ]
        return content

    def one(server, chosen):
        server.chat(parts(chosen, 1), 40, ignore_eos=True)

    def largest(server, chosen):
        server.chat([models.picture(png(*sizes[0], chosen.randrange(256))), models.words([30])], 8, ignore_eos=True)

    def several(server, chosen):
        server.chat(parts(chosen, 3), 24, ignore_eos=True, n=2, temperature=0.8)

    def scored(server, chosen):
        server.chat([models.words(range(20, 320))], 80, ignore_eos=True, logprobs=True, top_logprobs=10)

    # 40,000 blocks, the most that are taken (fastdeploy.md 6.1), are 47 GB of this model: what a large GPU has beyond is held, too.
    with (
        Holder(run, 50) as holder,
        Server(
            run,
            folder,
            "--max-model-len",
            longest,
            "--max-num-seqs",
            16 if small(run) else 128,
            "--gpu-memory-utilization",
            UTILIZATION,
            "--enable-logprob",
            "--limit-mm-per-prompt",
            '{"image": 100, "video": 100}',
            *flags,
        ) as server,
    ):
        server.ready(240)
        check_budget(run, server, holder)
        Pressure(run, server, holder, [("largest", largest), ("one", one), ("several", several), ("log-probs", scored)]).go(
            run.args.memory_seconds, 8 if small(run) else 48
        )
        run.check(server.stop() == 0, "ends with status 0", server.text()[-300:])
