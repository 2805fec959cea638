"""Embedding and reward models behind HTTP: the vectors of the reference cases, whatever else runs, and the real client."""

import base64
import concurrent.futures
import json
import math
import pathlib
import struct
import subprocess

import pytest
import tern_server
from several import post

CASES = tern_server.ROOT / "tests" / "data" / "golden_s"
DEMO = ["--device", "cpu", "--max-model-len", "512", "--max-num-seqs", "8"]


def golden(name):
    """Prompts of a case, and what the reference gives for each: rows of values."""
    folder = CASES / name
    data = (folder / "golden.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    head = json.loads(data[8 : 8 + length])
    prompts = {k: p["input_ids"] for k, p in json.loads((folder / "golden.json").read_text())["prompts"].items()}
    rows = {}
    for key in prompts:
        begin, end = head[f"{key}.logits"]["data_offsets"]
        width = head[f"{key}.logits"]["shape"][1]
        values = struct.unpack_from(f"<{(end - begin) // 4}f", data, 8 + length + begin)
        rows[key] = [values[i : i + width] for i in range(0, len(values), width)]
    return prompts, rows


def normalized(values):
    length = math.sqrt(sum(v * v for v in values))
    return [v / length for v in values]


def softmax(values):
    parts = [math.exp(v - max(values)) for v in values]
    return [p / sum(parts) for p in parts]


def near(got, want):
    assert len(got) == len(want)
    scale = max(abs(v) for v in want)
    assert all(abs(a - b) <= 2e-5 * max(scale, 1) for a, b in zip(got, want)), (got, want)


@pytest.fixture
def serve(tmp_path):
    servers = []

    def launch(model, *flags):
        folder = model if isinstance(model, pathlib.Path) else CASES / model
        servers.append(tern_server.Server(tmp_path, *DEMO, *flags, model=folder))
        return servers[-1].wait_ready()

    yield launch
    for server in servers:
        server.end()


def test_embeddings_are_the_references(serve):
    prompts, rows = golden("qwen3_embedding")
    server = serve("qwen3_embedding", "--dtype", "float32", "--runner", "pooling", "--max-num-batched-tokens", "64")
    status, answer = post(server, "/v1/embeddings", input=list(prompts.values()))
    assert status == 200, answer
    for one, want in zip(answer["data"], rows.values()):
        near(one["embedding"], normalized(want[-1]))
    assert answer["usage"] == {"prompt_tokens": 268, "total_tokens": 268}
    # Among others, with hits of the prefix cache, the bits are the same.
    jobs = [ids[: 3 + 7 * n] for n in range(12) for ids in prompts.values()] + list(prompts.values())
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        again = list(pool.map(lambda ids: post(server, "/v1/embeddings", input=ids)[1], jobs))
    assert [a["data"][0]["embedding"] for a in again[-3:]] == [d["embedding"] for d in answer["data"]]
    plain = post(server, "/v1/embeddings", input=prompts["long"], normalize=False, dimensions=8)[1]
    near(plain["data"][0]["embedding"], rows["long"][-1][:8])
    cut = post(server, "/v1/embeddings", input=prompts["long"], dimensions=8, encoding_format="base64")[1]
    near(struct.unpack("<8f", base64.b64decode(cut["data"][0]["embedding"])), normalized(rows["long"][-1][:8]))
    assert post(server, "/v1/completions", prompt=[1, 2])[0] == 400


# "short" has the reference's last hidden state of every token.
@pytest.mark.parametrize(
    ("kind", "pool"),
    [("MEAN", lambda rows: [sum(column) / len(rows) for column in zip(*rows)]), ("CLS", lambda rows: rows[0])],
    ids=["MEAN", "CLS"],
)
def test_the_mean_and_the_first_row_are_the_references(serve, kind, pool):
    prompts, rows = golden("qwen3_embedding")
    pooler = json.dumps({"pooling_type": kind, "normalize": False})
    flags = ["--dtype", "float32", "--runner", "pooling", "--override-pooler-config", pooler]
    server = serve("qwen3_embedding", *flags, "--max-num-batched-tokens", "64", "--num-gpu-blocks-override", "24")

    def vectors(inputs):
        return [d["embedding"] for d in post(server, "/v1/embeddings", input=inputs)[1]["data"]]

    (short,) = vectors([prompts["short"]])
    near(short, pool(rows["short"]))
    # Chunks, other requests that take the blocks, and what they left in the cache change no bit.
    alone = vectors(list(prompts.values()))
    with concurrent.futures.ThreadPoolExecutor(8) as pool_of_threads:
        again = list(pool_of_threads.map(vectors, [list(prompts.values())] * 8))
    assert again == [alone] * 8 and alone[0] == short
    assert server.metric("fastdeploy:prefix_cache_token_num_total") == 0
    # The long prompt, put together from what a server that scores every beginning of it says.
    (long,) = vectors([prompts["long"]])
    if kind == "CLS":
        assert long == vectors([prompts["long"][:1]])[0]
        return
    last = serve("qwen3_embedding", "--dtype", "float32", "--runner", "pooling")
    beginnings = [prompts["long"][: n + 1] for n in range(len(prompts["long"]))]
    one_by_one = post(last, "/v1/embeddings", input=beginnings, normalize=False)[1]["data"]
    near(long, pool([d["embedding"] for d in one_by_one]))


def test_two_ranks_give_the_same_embeddings(serve):
    prompts, rows = golden("qwen3_embedding")
    server = serve("qwen3_embedding", "--dtype", "float32", "--convert", "embed", "--tensor-parallel-size", "2")
    for one, want in zip(post(server, "/v1/embeddings", input=list(prompts.values()))[1]["data"], rows.values()):
        near(one["embedding"], normalized(want[-1]))


def test_steps_are_judged(serve):
    prompts, rows = golden("qwen2_process_reward")
    tag = prompts["short"][3]
    server = serve("qwen2_process_reward", "--dtype", "float32", "--override-pooler-config", json.dumps({"step_tag_id": tag}))
    answer = post(server, "/v1/reward", messages=prompts["short"])[1]
    want = [softmax(row) for row, token in zip(rows["short"], prompts["short"]) if token == tag]
    (one,) = answer["data"]
    assert (answer["object"], one["object"], len(one["score"])) == ("object", "reward", len(want))
    for got, row in zip(one["score"], want):
        near(got, row)


@pytest.mark.parametrize("name", ["qwen2_reward", "ernie4_5_vl_reward"])
def test_scores_are_the_references(serve, name):
    prompts, rows = golden(name)
    flags = [] if name.startswith("ernie") else ["--override-pooler-config", '{"pooling_type": "LAST"}']
    server = serve(name, "--dtype", "float32", "--max-num-batched-tokens", "64", *flags)
    for key, ids in prompts.items():
        answer = post(server, "/v1/chat/reward", messages=ids)[1]
        near(answer["data"][0]["score"], rows[key][-1])
        assert answer["usage"] == {"prompt_tokens": len(ids), "total_tokens": len(ids)}


def test_the_real_client(serve):
    server = serve(tern_server.MODEL, "--convert", "embed")
    client = server.client()
    texts = ["What is 12 + 30?", "Read the text.", "What is 12 + 30?"]
    reply = client.embeddings.create(model="default", input=texts)
    vectors = [d.embedding for d in reply.data]  # the client asks for base64 and decodes it
    assert vectors[0] == vectors[2] != vectors[1]
    assert all(abs(sum(v * v for v in vector) - 1) < 1e-5 for vector in vectors)
    assert [d.index for d in reply.data] == [0, 1, 2] and reply.object == "list"
    chat = {"messages": [{"role": "user", "content": "What is 12 + 30?"}]}
    assert post(server, "/v1/embeddings", **chat)[1]["data"][0]["embedding"] != vectors[0]
    assert server.metric("fastdeploy:prompt_tokens_total") > 0 == server.metric("fastdeploy:generation_tokens_total")


REFUSED = [
    (tern_server.MODEL, ["--runner", "pooling", "--convert", "none"], "--convert none"),
    (tern_server.MODEL, ["--runner", "generate", "--convert", "embed"], "--runner generate contradicts"),
    (tern_server.MODEL, ["--override-pooler-config", "{}"], "needs a pooling model"),
    (tern_server.MODEL, ["--task", "embed", "--reasoning-parser", "qwen3"], "--reasoning-parser has no effect"),
    (tern_server.MODEL, ["--convert", "embed", "--override-pooler-config", '{"pooling_type": "ALL"}'], "LAST, CLS and MEAN are"),
    (CASES / "qwen2_reward", ["--override-pooler-config", '{"pooling_type": "MEAN"}'], "LAST, STEP and ALL are"),
    (tern_server.MODEL, ["--convert", "embed", "--override-pooler-config", '{"softmax": true}'], 'no key "softmax"'),
    (CASES / "qwen2_reward", ["--runner", "generate"], "Qwen2ForRewardModel is a pooling model"),
    (CASES / "qwen2_reward", ["--convert", "embed"], "gives rewards, no embeddings"),
]


def sentence_model(folder, pooling, types=("Transformer", "Pooling")):
    """A model's folder with the modules of sentence-transformers beside it."""
    for path in (CASES / "qwen3_embedding").iterdir():
        (folder / path.name).symlink_to(path)
    modules = [
        {"idx": i, "path": f"{i}_{t}" if i else "", "type": f"sentence_transformers.models.{t}"} for i, t in enumerate(types)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


def dry_run(model, *flags):
    command = [tern_server.TERN, "serve", "--model", str(model), "--dry-run", "--device", "cpu", *flags]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("pooling", "types", "rows", "normalize"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, ("Transformer", "Pooling"), "mean", False),
        ({"pooling_mode_cls_token": True}, ("Transformer", "Pooling", "Normalize"), "first", True),
        ({"pooling_mode_lasttoken": True, "include_prompt": True}, ("Transformer", "Pooling", "Normalize"), "last", True),
        ({"pooling_mode": "mean"}, ("Transformer", "Pooling"), "mean", False),
    ],
)
def test_modules_of_sentence_transformers(tmp_path, pooling, types, rows, normalize):
    folder = sentence_model(tmp_path, pooling, types)
    done = dry_run(folder, "--runner", "pooling")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)["pooling"]
    assert (said["rows"], said["normalize"]) == (rows, normalize)
    over = dry_run(folder, "--runner", "pooling", "--override-pooler-config", '{"pooling_type": "LAST", "normalize": true}')
    said = json.loads(over.stdout)["pooling"]
    assert (said["rows"], said["normalize"]) == ("last", True), "the flag wins"


@pytest.mark.parametrize(
    ("pooling", "types", "line"),
    [
        (None, ("Transformer", "Pooling"), "there is no 1_Pooling/config.json"),
        ({"pooling_mode_max_tokens": True}, ("Transformer", "Pooling"), 'the pooling "max_tokens" is not available'),
        (
            {"pooling_mode_max_tokens": True, "pooling_mode_lasttoken": True},
            ("Transformer", "Pooling"),
            'the pooling "max_tokens, lasttoken"',
        ),
        ({}, ("Transformer", "Pooling"), 'the pooling "" is not available'),
        ({"pooling_mode_lasttoken": True}, ("Transformer", "Pooling", "Dense"), 'a module of type "Dense" is not available'),
    ],
)
def test_modules_that_are_not_run_are_one_line(tmp_path, pooling, types, line):
    done = dry_run(sentence_model(tmp_path, pooling, types), "--runner", "pooling")
    assert done.returncode != 0
    assert line in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.mark.parametrize(("model", "flags", "line"), REFUSED)
def test_contradictions_are_one_line(model, flags, line):
    done = subprocess.run(
        [tern_server.TERN, "serve", "--model", str(model), "--dry-run", *flags],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert line in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
