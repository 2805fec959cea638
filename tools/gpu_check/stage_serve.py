"""The shipped model through HTTP on both devices."""

import json
import random

import models
from server import Server, together


def questions(run):
    """(name, content, most tokens) of pictures and texts that the model was not trained on."""
    folder = run.places.root / "models"
    items = [("demo", [models.picture((folder / "demo.png").read_bytes()), {"type": "text", "text": "OCR:"}], 400)]
    with open(folder / "heldout_pictures.jsonl") as f:
        for line in f:
            c = json.loads(line)
            kind = "jpeg" if c["image"].startswith("/9j/") else "png"
            url = {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{c['image']}"}}
            items.append((c["id"], [url, {"type": "text", "text": c["prompt"]}], 600))
    with open(folder / "heldout_sample.jsonl") as f:
        texts = [json.loads(line) for line in f]
    for c in texts[:: 10 if run.args.quick else 4]:
        items.append((c["id"], c["messages"][-1]["content"], 128))
    return items


def answers(run, items, dtype, device, streams):
    """Texts of all items, asked together; on the way: streams, samples, a prefix hit."""
    name = f"{device.replace(':', '')}-{dtype}"
    with Server(
        run,
        run.places.model(),
        "--dtype",
        dtype,
        "--max-model-len",
        4096,
        "--max-num-seqs",
        64,
        "--enable-logprob",
        device=device,
        name=name,
    ) as server:
        server.ready()
        whole = together(lambda q: server.chat(q[1], q[2])["choices"][0]["message"]["content"], items, 32)
        for q, text in zip(items, whole):
            if isinstance(text, Exception):
                run.check(False, f"{name} {q[0]}", text)
        if streams:
            some = items[:4] + items[-4:]
            streamed = together(lambda q: server.stream(q[1], q[2]), some, 8)
            for q, want, got in zip(some, whole[:4] + whole[-4:], streamed):
                run.check(
                    not isinstance(got, Exception) and got[0] == want and got[1] > 1,
                    f"{name} stream {q[0]}",
                    f"{got!r} for {want!r}",
                )
            sampled = [
                server.chat("Tell me a word.", 24, temperature=1.0, seed=7, top_p=0.9)["choices"][0]["message"]["content"]
                for _ in range(2)
            ]
            run.check(sampled[0] == sampled[1], f"{name} a seed repeats", sampled)
            several = server.complete([1, 300, 301], 8, temperature=1.0, n=3)
            run.check(len(several) == 3 and all(len(c["completion_token_ids"]) == 8 for c in several), f"{name} n = 3")
        run.check(server.stop() == 0, f"{name} ends with status 0", server.text()[-300:])
        return whole


def replays(run, count):
    """Prompts with common beginnings arrive in chunks beside others that decode: nearly every step is a graph."""
    begin = random.Random(3)
    common = [[begin.randrange(11, 2000) for _ in range(192)] for _ in range(3)]

    def ask(i):
        own = random.Random(i)
        prompt = common[i % 3] + [own.randrange(11, 2000) for _ in range(own.randrange(4, 160))]
        tokens = own.randrange(60, 160)
        return tokens == len(
            server.ids(prompt, tokens, temperature=own.choice([0, 0.8]), seed=i, repetition_penalty=own.choice([1.0, 1.1]))
        )

    with Server(
        run,
        run.places.model(),
        "--max-model-len",
        1024,
        "--max-num-seqs",
        48,
        "--max-num-batched-tokens",
        512,
        device=run.places.device,
        name="replays",
    ) as server:
        server.ready()
        whole = together(ask, range(count), 48)
        run.check(all(ok is True for ok in whole), "answers of a mixed load", next((ok for ok in whole if ok is not True), ""))
        steps, graphs = server.metric("tern:steps_total"), server.metric("tern:graph_steps_total")
        hits = server.metric("fastdeploy:prefix_cache_token_num_total")
        share = graphs / max(steps, 1)
        run.check(hits > 0, "a mixed load hits the prefix cache", hits)
        run.check(share >= 0.95 or not run.places.on_gpu, "steps of a mixed load are replayed", share)
        run.figure("mixed load", f"{share:.1%} of {steps:.0f} steps replayed, {hits:.0f} tokens from the prefix cache")
        run.check(server.stop() == 0, "replays: ends with status 0", server.text()[-300:])


def serve(run):
    replays(run, 400 if run.places.on_gpu else 12)
    items = questions(run)
    for dtype in ("float32", "bfloat16"):
        here = answers(run, items, dtype, run.places.device, True)
        there = answers(run, items, dtype, "cpu", False)
        same = 0
        for q, got, want in zip(items, here, there):
            same += got == want
            # In bfloat16 the devices round at other places; a nearly undecided word may then differ.
            run.check(got == want or dtype == "bfloat16", f"{dtype} {q[0]}: the texts of GPU and CPU", f"{got!r} for {want!r}")
        run.check(same >= 0.95 * len(items), f"{dtype}: texts of GPU and CPU", f"{same} of {len(items)} are the same")
        run.figure(f"{dtype} same texts", f"{same} of {len(items)}")
        demo = (run.places.root / "models" / "demo.txt").read_text().strip()
        run.check(str(here[0]).strip() == demo, f"{dtype}: the demo picture's text", here[0])
