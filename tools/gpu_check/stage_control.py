"""Sleep, wake and other weights on the device: what the driver says is given back, and answers that stay as they were."""

import json

import models
import weights
from server import Server, together
from stage_memory import SLACK, Holder

ROUNDS = 9
LEAST = 0.95  # of a tag's bytes must come back
BLOCK = 64  # tokens
SEQUENCES = 32
TAGS = ("weight", "kv_cache", "weight,kv_cache")


def folder_of(run):
    """(folder, its configuration, bytes of its weights)"""
    if not run.places.on_gpu:
        folder = models.from_case(run.places.case("qwen3"), run.places.fresh("qwen3"))
        return (
            folder,
            json.loads((folder / "config.json").read_text()),
            sum(p.stat().st_size for p in folder.glob("*.safetensors")),
        )
    folder = run.places.fresh("qwen3-0.6b")
    size = weights.write(run.places.root / "bench" / "shapes" / "qwen3-0.6b", folder)
    return folder, json.loads((folder / "config.json").read_text()), size


def cache_bytes(server, config):
    heads, dim = config["num_key_value_heads"], config["head_dim"]
    block = 2 * 2 * BLOCK * heads * dim * config["num_hidden_layers"]  # keys and values in bfloat16
    return server.metric("fastdeploy:max_gpu_block_num") * block


def control(run):
    folder, config, size = folder_of(run)
    prompts = [[11 + (i * 37 + j * j) % 400 for j in range(20 + i)] for i in range(SEQUENCES)]  # all shorter than a block
    blocks = 8000 if run.places.on_gpu else 200
    flags = ["--num-gpu-blocks-override", blocks, "--max-model-len", 1024, "--max-num-seqs", SEQUENCES]
    with Holder(run, gigabytes=0) as holder, Server(run, folder, *flags) as server:
        server.ready()

        def answers():
            return [server.ids(prompts[0], 64), *together(lambda p: server.ids(p, 16), prompts, SEQUENCES)]

        def same():
            return server.ids(prompts[0], 64) == want

        want = answers()[0]
        sizes = {"weight": size, "kv_cache": cache_bytes(server, config)}
        awake, shares = holder.free()[0], []
        for i in range(ROUNDS):
            tags = TAGS[i % len(TAGS)]
            before = holder.free()[0]
            server.post(f"/v1/sleep?tags={tags}")
            given = holder.free()[0] - before
            run.check(server.get("/health")[0] == 304, "asleep: /health", i)
            shares.append(given / sum(sizes[t] for t in tags.split(",")))
            run.check(shares[-1] >= LEAST or not run.places.on_gpu, f"memory of {tags} given back", f"{shares[-1]:.3f}")
            server.post("/v1/wakeup")
            run.check(same(), f"the same answer after {tags}")
            together(lambda p: server.ids(p, 16), prompts, SEQUENCES)
            left = holder.free()[0] - awake
            run.check(abs(left) <= SLACK, f"memory after {tags} is as before", f"{left / 1e6:+.1f} MB")
        for i in range(3):
            server.post("/v1/pause")
            server.post("/v1/update_weights", version=str(i))
            server.post("/v1/resume")
            run.check(same(), "the same answer after an update with the same weights")
        run.figure("shares given back", ", ".join(f"{t} {s:.3f}" for t, s in zip(TAGS, shares)))
        graphs = server.metric("tern:graph_steps_total") / max(server.metric("tern:steps_total"), 1)
        run.check(graphs >= 0.9 or not run.places.on_gpu, "steps are replayed throughout", f"{graphs:.2f}")
        run.check(server.stop() == 0, "ends with status 0", server.text()[-300:])
