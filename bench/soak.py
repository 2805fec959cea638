#!/usr/bin/env python3
"""Minutes of load beyond what a server is set for: schemas, tools, plain chats, and clients that go away.

soak.py [--minutes 5] [--clients 32] [--vanish 0.1] [-- FLAGS OF tern serve]

Every finished answer is checked: a schema's by jsonschema, a forced call's arguments by the tool's parameters, a seeded plain
answer against what the same request gave on the idle server. At the end nothing may be left: no running or waiting
request, every cache block available, as many descriptors as after the warm-up, and memory within 1 % of what it was after
the first minute. Ends with one line of figures; status 1 when something is wrong.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tools" / "gpu_check"))
import jsonschema  # noqa: E402
import rows  # noqa: E402

from tern_server import Server  # noqa: E402

# Few grammars: each keeps up to four lexers that fill as requests overlap, and all have filled after a minute.
NUMBERS = 8
NOMINAL = 16  # --max-num-seqs of the server: what it is set for
# Few cache blocks: all have been touched after a minute, so that what grows later is no cache.
FLAGS = ("--max-num-seqs", NOMINAL, "--max-model-len", 1024, "--num-gpu-blocks-override", 256, "--tool-call-parser", "hermes",
         "--guided-decoding-disable-any-whitespace")  # fmt: skip
FORMS = ("plain", "schema", "tools", "regex")


def schema_of(number):
    """One of NUMBERS schemas."""
    fields = {f"f{number}_{i}": kind for i, kind in enumerate(({"type": "boolean"}, {"enum": ["red", "green", number]},
                                                               {"type": "integer", "minimum": 0, "maximum": 99}))}  # fmt: skip
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def body_of(form, number):
    body = {"messages": [{"role": "user", "content": f"Question {number}?"}], "stream": True, "temperature": 1.0,
            "seed": number, "max_tokens": 96}  # fmt: skip
    if form == "schema":
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema_of(number)}}
    if form == "tools":
        function = {"name": f"act{number % 5}", "parameters": schema_of(number)}
        body.update(tools=[{"type": "function", "function": function}], tool_choice="required", parallel_tool_calls=False)
    if form == "regex":
        body["guided_regex"] = f"{number}-[a-f]{{3,9}}"
    return body


class Answer:
    def __init__(self):
        self.content, self.arguments, self.finish, self.error = "", "", None, None

    def take(self, event):
        if "error" in event:
            self.error = event["error"]
            return
        for choice in event["choices"]:
            self.content += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls") or []:
                self.arguments += call["function"].get("arguments") or ""
            self.finish = choice.get("finish_reason") or self.finish


def ask(port, body, leave_after=None):
    """The streamed answer; None when this client went away after `leave_after` events."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer, events = Answer(), 0
        if response.status != 200:
            answer.error = f"{response.status} {response.read()[:200]!r}"
            return answer
        while line := response.readline():
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            if leave_after is not None and events >= leave_after:
                return None
            events += 1
            answer.take(json.loads(line[6:]))
        return answer
    finally:
        connection.close()


def wrong(form, number, answer, plain):
    """What is wrong with an answer, or None."""
    if answer.error:
        return f"error {answer.error}"
    if answer.finish is None:
        return "no finish_reason"
    if form == "plain":
        return None if answer.content == plain[number] else "another text than alone"
    if answer.finish == "length":
        return None
    try:
        if form == "schema":
            jsonschema.validate(json.loads(answer.content), schema_of(number))
        if form == "tools":
            jsonschema.validate(json.loads(answer.arguments), schema_of(number))
        if form == "regex" and not re.fullmatch(f"{number}-[a-f]{{3,9}}", answer.content):
            return f"no match: {answer.content!r}"
    except (ValueError, jsonschema.ValidationError) as error:
        return f"{error!r:.200}"
    return None


class Load:
    def __init__(self, port, vanish, plain):
        self.port, self.vanish, self.plain = port, vanish, plain
        self.counts = dict.fromkeys((*FORMS, "cut", "vanished"), 0)
        self.faults, self.lock, self.stop = [], threading.Lock(), threading.Event()

    def client(self, seed):
        rng = random.Random(seed)
        while not self.stop.is_set():
            form, number = rng.choice(FORMS), rng.randrange(NUMBERS)
            leave = rng.randrange(20) if rng.random() < self.vanish else None
            try:
                answer = ask(self.port, body_of(form, number), leave)
                fault = None if answer is None else wrong(form, number, answer, self.plain)
            except OSError as error:
                answer, fault = None, f"{error!r}"
            with self.lock:
                self.counts["vanished" if answer is None else "cut" if answer.finish == "length" else form] += 1
                if fault:
                    self.faults.append(f"{form} {number}: {fault}")


def metrics(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    return {line.split(" ")[0]: float(line.split(" ")[1]) for line in lines if not line.startswith("#") and "{" not in line}


def resident(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def idle_state(server, seconds=30):
    """Descriptors, and what of requests is left, once the server had `seconds` to come to rest."""
    deadline = time.monotonic() + seconds
    while True:
        m = metrics(server.port)
        left = m["fastdeploy:num_requests_running"] + m["fastdeploy:num_requests_waiting"]
        lost = m["fastdeploy:max_gpu_block_num"] - m["fastdeploy:available_gpu_block_num"]
        if left + lost == 0 or time.monotonic() > deadline:
            return len(os.listdir(f"/proc/{server.process.pid}/fd")), left, lost
        time.sleep(0.1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--clients", type=int, default=2 * NOMINAL)
    parser.add_argument("--vanish", type=float, default=0.1, help="share of requests whose client goes away")
    parser.add_argument("flags", nargs="*", help="further flags of tern serve, after --")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        server = Server(pathlib.Path(tmp), *FLAGS, *args.flags)
        server.wait_ready()
        plain = {n: ask(server.port, body_of("plain", n)).content for n in range(NUMBERS)}
        load = Load(server.port, args.vanish, plain)
        threads = [threading.Thread(target=load.client, args=(seed,)) for seed in range(args.clients)]
        for thread in threads:
            thread.start()
        warm_up = min(60, args.minutes * 20)
        time.sleep(warm_up)
        early, descriptors = resident(server.process.pid), len(os.listdir(f"/proc/{server.process.pid}/fd"))
        time.sleep(args.minutes * 60 - warm_up)
        late = resident(server.process.pid)
        load.stop.set()
        for thread in threads:
            thread.join()
        after, left, lost = idle_state(server)
        server.end()
    if left or lost:
        load.faults.append(f"{left:.0f} requests and {lost:.0f} blocks are left")
    if after > descriptors:
        load.faults.append(f"{after} descriptors, {descriptors} under load")
    if late > early * 1.01:
        load.faults.append(f"memory grew from {early:.1f} to {late:.1f} MiB")
    checked = sum(load.counts[form] for form in FORMS)
    rows.add(
        f"{args.clients} clients for {args.minutes:g} minutes at a server for {NOMINAL}, a tenth of which go away",
        "bench/soak.py",
        checked,
        "answers checked",
        note=f"{len(load.faults)} wrong; memory {early:.1f} MiB after a minute, {late:.1f} at the end; nothing left over"
        if not load.faults
        else f"{len(load.faults)} faults",
    )
    print(json.dumps({**load.counts, "MiB after a minute": round(early, 1), "MiB at the end": round(late, 1),
                      "descriptors": after, "wrong": len(load.faults)}))  # fmt: skip
    for fault in load.faults[:20]:
        print(fault)
    return 1 if load.faults else 0


if __name__ == "__main__":
    sys.exit(main())
