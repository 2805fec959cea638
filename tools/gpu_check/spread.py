"""Stages on several GPUs at a time (--gpus N): each is a process of its own with a folder of results of its own."""

import json
import os
import pathlib
import subprocess
import sys
import threading

# What needs a GPU for itself: it fills its memory, keeps it busy throughout, or its figures would not be its own. The
# longest first.
ALONE = ["memory-pictures", "memory-text", "wide", "sanitize", "control", "bench-steps", "bench-serving", "bench-dp", "profile"]
# The longest first; those behind take what is left.
ORDER = ["ops", "verify", "determinism", "replays", "faults", "serve"]
CASES = {"verify", "determinism", "replays"}  # read the reference cases, which a pack may have to make
TOGETHER = 3  # stages on the GPU that is shared
BESIDE = {"sanitize": "ops"}  # which waits at its end for what that one has seen


def devices(count):
    """Names of the GPUs to use, as CUDA_VISIBLE_DEVICES takes them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [n for n in visible.split(",") if n] or [str(i) for i in range(count)]
    if len(names) < count:
        raise ValueError(f"--gpus {count}, but CUDA_VISIBLE_DEVICES names {len(names)}")
    return names[:count]


class Spread:
    """`command(stage)`: the arguments of a process that runs that stage alone."""

    def __init__(self, names, gpus, out, table, command):
        self.names, self.gpus, self.out, self.table, self.command = names, gpus, out, table, command
        rank = {name: i for i, name in enumerate([*ALONE, *ORDER])}
        self.waiting = sorted(names, key=lambda n: rank.get(n, len(rank)))
        self.running, self.change = [], threading.Condition()  # running: (stage, gpu)

    def fits(self, name, gpu):
        here = [n for n, g in self.running if g == gpu]
        if not here:
            return name not in ALONE or gpu != self.gpus[0] or not self.shared_waiting()
        return name not in ALONE and not any(n in ALONE for n in here)

    def shared_waiting(self):
        return any(n not in ALONE for n in self.waiting)

    def take(self, gpu):
        """The next stage for this GPU; None when there will be none."""
        with self.change:
            while self.waiting:
                for name in self.waiting:
                    if self.fits(name, gpu):
                        self.waiting.remove(name)
                        self.running.append((name, gpu))
                        return name
                self.change.wait()
            return None

    def work(self, gpu):
        while (name := self.take(gpu)) is not None:
            try:
                self.run(name, gpu)
            finally:
                with self.change:
                    self.running.remove((name, gpu))
                    self.change.notify_all()

    def run(self, name, gpu):
        folder = self.out / "stages" / name
        folder.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu, "TERN_CHECK_OUT": str(folder), "FD_LOG_DIR": str(folder / "log")}
        seen = self.out / "stages" / BESIDE.get(name, name) / "kernels.txt"
        if name in BESIDE and (seen.exists() or BESIDE[name] in self.names):
            env["TERN_CHECK_KERNELS"] = str(seen)
        print(f"== {name} on GPU {gpu}", flush=True)
        with open(folder / "output.txt", "w") as log:
            subprocess.run(self.command(name), stdout=log, stderr=subprocess.STDOUT, env=env)
        record = self.record_of(folder, name)
        with self.change:
            self.table.put(name, record)
        print(f"   {name}: {record['passed']} passed, {record['failed']} failed, {record['seconds']} s", flush=True)

    def record_of(self, folder, name):
        path = folder / self.table.path.name
        stages = json.loads(path.read_text())["stages"] if path.exists() else {}
        said = (folder / "output.txt").read_text(errors="replace")[-600:]
        failure = dict(ok=False, name="ended early", detail=said)
        return stages.get(name) or dict(passed=0, failed=1, seconds=0.0, failures=[failure], figures={})

    def go(self):
        workers = [
            threading.Thread(target=self.work, args=(gpu,))
            for i, gpu in enumerate(self.gpus)
            for _ in range(TOGETHER if i == 0 else 1)
        ]
        for w in workers:
            w.start()
        for w in workers:
            w.join()


def run(names, args, places, table):
    if CASES & set(names) and "TERN_CHECK_CASES" not in os.environ:  # once, not in every stage
        os.environ["TERN_CHECK_CASES"] = str(places.golden()[0].parent)
    more = ["--memory-seconds", args.memory_seconds, "--hold-gb", args.hold_gb]
    more += (["--only", args.only] if args.only else []) + (["--quick"] if args.quick else [])
    here = str(pathlib.Path(__file__).resolve().parent)
    Spread(names, devices(args.gpus), places.out, table, lambda name: [sys.executable, here, *map(str, more), name]).go()
