"""TERN_FAULT: what becomes of open requests, of /health and of the process when the device fails or hangs."""

import threading
import time

from server import Server, ServerError

OPEN = 8
WATCHDOG = 4
GRACE = 10


def watch_health(server, seen, over):
    while not over.is_set() and server.process.poll() is None:
        try:
            status, body = server.get("/health", timeout=2)
            seen.append((time.monotonic(), status, body[:200]))
        except OSError:
            pass
        time.sleep(0.02)


def open_requests(server, count, tokens):
    """Threads whose requests run long; results appear in the list as ("text", ..) or ("error", .., when)."""
    results = [None] * count

    def one(i):
        try:
            if i % 2:
                text, _ = server.stream(f"Sort these words: pear, fig, plum {i}", tokens, ignore_eos=True)
                results[i] = ("text", len(text), time.monotonic())
            else:
                ids = server.ids([1, 300 + i], tokens, timeout=120)
                results[i] = ("text", len(ids), time.monotonic())
        except (ServerError, OSError, ValueError) as e:
            results[i] = ("error", f"{type(e).__name__}: {e}", time.monotonic())
        except Exception as e:  # a cut connection
            results[i] = ("cut", f"{type(e).__name__}: {e}", time.monotonic())

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    return threads, results


def one_fault(run, fault, wait, dtype="bfloat16", flags=()):
    env = {"TERN_FAULT": fault} if fault else {}
    name = fault or "none"
    with Server(
        run,
        run.places.model(),
        "--dtype",
        dtype,
        "--max-model-len",
        2048,
        "--max-num-seqs",
        16,
        "--watchdog-timeout",
        WATCHDOG,
        *flags,
        env=env,
        name=name,
    ) as server:
        server.ready()
        seen, over = [], threading.Event()
        health = threading.Thread(target=watch_health, args=(server, seen, over))
        health.start()
        began = time.monotonic()
        threads, results = open_requests(server, OPEN, 1500)
        ended = None
        while time.monotonic() - began < wait:
            if server.process.poll() is not None:
                ended = time.monotonic()
                break
            time.sleep(0.01)
        over.set()
        if ended is None:
            server.process.kill()
        for t in threads:
            t.join(20)
        health.join(20)
        run.check(ended is not None, f"{name}: the process ends", f"still there after {wait} s")
        run.check(
            server.process.returncode not in (0, None) and ended is not None,
            f"{name}: status is not 0",
            server.process.returncode,
        )
        told = [r for r in results if r and r[0] == "error" and "Connection" not in r[1] and "Incomplete" not in r[1]]
        run.check(len(told) == OPEN, f"{name}: open requests get an error", f"{len(told)} of {OPEN}: {results}")
        sick = [s for s in seen if s[1] != 200]
        run.check(bool(sick), f"{name}: /health says so", f"{len(seen)} answers, last {seen[-1:]}")
        first = min([s[0] for s in sick] + [r[2] for r in told], default=None)
        if first is not None and ended is not None:
            run.check(ended - first <= GRACE, f"{name}: ends within {GRACE} s", f"{ended - first:.1f} s")
            run.figure(
                f"{name}",
                f"seen after {first - began:.1f} s, ended {ended - first:.1f} s later with status {server.process.returncode}",
            )
        lines = [x for x in server.text().splitlines() if "error" in x.lower() or "fault" in x.lower() or "watchdog" in x.lower()]
        run.check(bool(lines), f"{name}: the log names it", server.text()[-300:])


def faults(run):
    one_fault(run, "trap@40", 30)
    one_fault(run, "hang@40", 30 + WATCHDOG)
    # Without a fault the same load ends well: the checks above can tell.
    with Server(
        run, run.places.model(), "--max-model-len", 2048, "--max-num-seqs", 16, "--watchdog-timeout", WATCHDOG, name="healthy"
    ) as server:
        server.ready()
        threads, results = open_requests(server, OPEN, 300)
        for t in threads:
            t.join(120)
        run.check(all(r and r[0] == "text" for r in results), "no fault: requests end well", results)
        run.check(server.get("/health")[0] == 200, "no fault: healthy")
        run.check(server.stop() == 0, "no fault: status 0", server.process.returncode)
