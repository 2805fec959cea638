#!/usr/bin/env python3
"""Scores a running server on the held-out prompts through its chat completions: exact match, greedy, per task.

Needs nothing but the standard library. With heldout_sample.jsonl it also counts answers equal to the reference's own.
"""

import argparse, collections, gzip, json, sys, urllib.request
from concurrent.futures import ThreadPoolExecutor


def read(path):
    with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as f:
        return [json.loads(line) for line in f]


def ask(url, model, messages, timeout):
    body = dict(model=model, messages=messages, temperature=0, max_tokens=128)
    request = urllib.request.Request(
        url.rstrip("/") + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=timeout) as r:
        return json.load(r)["choices"][0]["message"]["content"]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("url", help="for example http://127.0.0.1:8000")
    ap.add_argument("prompts", help="models/heldout_sample.jsonl, or what `tasks.py held_out --out FILE` wrote")
    ap.add_argument("--model", default="tern-demo-ocr", help="model name in the requests (default %(default)s)")
    ap.add_argument("--count", type=int, default=0, help="only the first so many prompts; all when 0")
    ap.add_argument("--threads", type=int, default=8, help="requests in flight (default %(default)s)")
    ap.add_argument("--timeout", type=float, default=60, help="seconds for one request (default %(default)s)")
    ap.add_argument("--at-least", type=float, default=0.0, help="exit with status 1 below this exact match (default %(default)s)")
    a = ap.parse_args()
    rows = read(a.prompts)
    rows = rows[: a.count] if a.count else rows
    with ThreadPoolExecutor(a.threads) as pool:
        answers = list(pool.map(lambda r: ask(a.url, a.model, r["messages"], a.timeout), rows))
    right, same = collections.defaultdict(list), [x == r["model_answer"] for r, x in zip(rows, answers) if "model_answer" in r]
    for r, x in zip(rows, answers):
        right[r["task"]].append(x == r["answer"])
        if x != r["answer"]:
            print("wrong:", r["id"], repr(r["messages"][-1]["content"]), "->", repr(x), "not", repr(r["answer"]))
    for task, v in right.items():
        print(f"{task:10} {sum(v):4}/{len(v):4} {sum(v) / len(v):.4f}")
    score = sum(map(sum, right.values())) / len(rows)
    print(
        f"exact match {score:.4f} of {len(rows)}" + (f"; equal to the reference's answer {sum(same)}/{len(same)}" if same else "")
    )
    sys.exit(score < a.at_least)


if __name__ == "__main__":
    main()
