#!/usr/bin/env python3
"""Scores a running server: it reads the held-out pictures through chat completions (data: URLs), and answers the text tasks.

Prints a row for each kind of picture with its character error rate and bar, and ends with status 1 when a bar is missed.
The pictures are those that render_heldout.py wrote; ../heldout_pictures.jsonl is a small sample of them.
"""

import argparse, collections, concurrent.futures, glob, gzip, http.client, json, os, sys, threading, time, urllib.parse
from ocr_score import Table


class Client:
    """Chat completions over one connection for each thread."""

    def __init__(self, url, model, timeout):
        self.url, self.model, self.timeout, self.local = urllib.parse.urlsplit(url), model, timeout, threading.local()

    def ask(self, messages, most):
        body = json.dumps(dict(model=self.model, messages=messages, temperature=0, max_tokens=most, skip_special_tokens=False))
        for attempt in range(2):  # a kept connection may have been closed
            c = getattr(self.local, "c", None) or (
                http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
            )(self.url.hostname, self.url.port, timeout=self.timeout)
            self.local.c = c
            try:
                c.request("POST", self.url.path.rstrip("/") + "/v1/chat/completions", body, {"Content-Type": "application/json"})
                r = c.getresponse()
                data = r.read()
                break
            except (http.client.HTTPException, ConnectionError):
                c.close()
                self.local.c = None
                if attempt:
                    raise
        if r.status != 200:
            raise SystemExit(f"status {r.status}: {data[:300]!r}")
        return json.loads(data)["choices"][0]["message"]["content"] or ""


def picture_message(case):
    kind = "jpeg" if case["image"].startswith("/9j/") else "png"
    return [
        dict(
            role="user",
            content=[
                dict(type="image_url", image_url=dict(url=f"data:image/{kind};base64,{case['image']}")),
                dict(type="text", text=case["prompt"]),
            ],
        )
    ]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("url", help="for example http://127.0.0.1:8000")
    ap.add_argument(
        "--pictures", nargs="*", default=["build/heldout"], help="folders or .jsonl files of pictures (default build/heldout)"
    )
    ap.add_argument("--rows", help="only these rows, with commas between")
    ap.add_argument("--count", type=int, default=0, help="only the first so many pictures of a row")
    ap.add_argument("--text", help="prompts of the text tasks: models/heldout_sample.jsonl, or what `tasks.py held_out` wrote")
    ap.add_argument("--text-bar", type=float, default=0.93, help="least exact match of the text tasks (default %(default)s)")
    ap.add_argument("--model", default="tern-demo-ocr", help="model name in the requests (default %(default)s)")
    ap.add_argument("--threads", type=int, default=32, help="requests in flight (default %(default)s)")
    ap.add_argument("--timeout", type=float, default=300, help="seconds for one request (default %(default)s)")
    ap.add_argument("--show-errors", type=int, default=0, help="wrong readings to print for each row")
    ap.add_argument("--out", help="file for the scores as JSON")
    a = ap.parse_args()
    cases = collections.defaultdict(list)
    for path in a.pictures:
        for file in sorted(glob.glob(os.path.join(path, "*.jsonl"))) if os.path.isdir(path) else [path]:
            with open(file) as f:
                for text in f:
                    c = json.loads(text)
                    if not a.count or len(cases[c["row"]]) < a.count:
                        cases[c["row"]].append(c)
    client, table, met, results = Client(a.url, a.model, a.timeout), Table(), True, {}
    with concurrent.futures.ThreadPoolExecutor(a.threads) as pool:
        for row, part in cases.items():
            if a.rows and row not in a.rows.split(","):
                continue
            start, wrong = time.time(), 0
            for c, got in zip(part, pool.map(lambda c: client.ask(picture_message(c), len(c["answer"]) + 100), part)):
                answer = c["answer"]
                if row == "otsl":
                    answer, got = (t.replace("<nl>", "\n").replace("<fcel>", "|") for t in (answer, got))
                table.add(row, answer, got)
                if answer != got and wrong < a.show_errors:
                    wrong += 1
                    print("wrong:", c["id"], c["size"], "px\n  ", repr(answer), "\n  ", repr(got))
            print(f"{row}: {time.time() - start:.1f} s", file=sys.stderr, flush=True)
        table.print()
        met &= table.met()
        results["pictures"] = table.scores()
        if a.text:
            with gzip.open(a.text, "rt") if a.text.endswith(".gz") else open(a.text) as f:
                rows = [json.loads(x) for x in f]
            right = collections.defaultdict(list)
            for r, got in zip(rows, pool.map(lambda r: client.ask(r["messages"], 128), rows)):
                right[r["task"]].append(got == r["answer"])
            score = sum(map(sum, right.values())) / len(rows)
            print(
                f"text tasks {100 * score:.2f}% of {len(rows)} exact, bar {100 * a.text_bar:.0f}% {'met' if score >= a.text_bar else 'MISSED'}:",
                ", ".join(f"{k} {sum(v)}/{len(v)}" for k, v in right.items()),
            )
            met &= score >= a.text_bar
            results["text"] = dict(exact_match=score, per_task={k: [sum(v), len(v)] for k, v in right.items()})
    if a.out:
        with open(a.out, "w") as f:
            json.dump(results, f, indent=1)
            f.write("\n")
    sys.exit(not met)


if __name__ == "__main__":
    main()
