"""Pictures through the routes of pooling models: the vector of a prompt that shows some is what the generating model, whose
pictures the reference cases hold, draws its next token from; ERNIE's reward model scores that vector."""

import concurrent.futures
import json
import struct

import numpy
import pytest
from several import post
from test_pictures import data_url, picture, png, text
from tern_server import Server
from vision_model import GOLDEN, make_video_model

FLAGS = ["--device", "cpu", "--dtype", "float32", "--max-model-len", "1024", "--limit-mm-per-prompt", '{"image": 4}']
PICTURES = [p.read_bytes() for p in sorted((GOLDEN / "ernie4_5_vl_moe").glob("*.png"))[:3]]


def tensors(file):
    """Header and data of a safetensors file."""
    raw = file.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def bf16(values):
    """The same, cut to bfloat16: its bytes, and what they are in float32."""
    bits = numpy.asarray(values, numpy.float32).view(numpy.uint32) >> 16
    return bits.astype("<u2").tobytes(), (bits.astype(numpy.uint32) << 16).view(numpy.float32)


def add_head(folder):
    """Makes a reward model of it: another name, and a head of weights that this returns."""
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["Ernie4_5_VLMoeForProcessRewardModel"]
    (folder / "config.json").write_text(json.dumps(config))
    head, data = tensors(folder / "model.safetensors")
    width, dice, weights = config["text_config"]["hidden_size"], numpy.random.default_rng(7), {}
    for name, rows, columns in (("up_gate_proj", 2 * width, width), ("down_proj", 1, width)):
        raw, weights[name] = bf16(dice.standard_normal((rows, columns)) / width**0.5)
        offsets = [len(data), len(data) + len(raw)]
        head[f"rm_head.{name}.weight"] = {"dtype": "BF16", "shape": [rows, columns], "data_offsets": offsets}
        data += raw
    text = json.dumps(head).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return weights


def score_of(vector, weights):
    gate, up = numpy.split(weights["up_gate_proj"] @ vector, 2)
    return weights["down_proj"] @ (gate / (1 + numpy.exp(-gate)) * up)


class Models:
    """The three servers: what generates, the same as embeddings, and the reward model over it."""

    def __init__(self, folder):
        plain, reward = make_video_model(folder / "model"), make_video_model(folder / "reward")
        self.weights = add_head(reward)
        head, data = tensors(plain / "model.safetensors")
        about = head["model.embed_tokens.weight"]
        raw = numpy.frombuffer(data[slice(*about["data_offsets"])], "<u2").astype(numpy.uint32) << 16
        self.embeddings = raw.view(numpy.float32).reshape(about["shape"])  # the rows of the logits, too
        self.generates = Server(folder, *FLAGS, "--enable-logprob", model=plain)
        self.embeds = Server(folder, *FLAGS, "--convert", "embed", model=plain)
        self.scores = Server(folder, *FLAGS, model=reward)
        self.all = [self.generates, self.embeds, self.scores]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    m = Models(tmp_path_factory.mktemp("models"))
    for server in m.all:
        server.wait_ready()
    yield m
    for server in m.all:
        server.stop()


def conversation(*pictures):
    return [{"role": "user", "content": [text("Look: "), *(picture(data_url(p)) for p in pictures), text("How many?")]}]


def vector(models, messages, **more):
    status, answer = post(models.embeds, "/v1/embeddings", messages=messages, normalize=False, add_generation_prompt=True, **more)
    assert status == 200, answer
    return numpy.array(answer["data"][0]["embedding"], numpy.float32), answer["usage"]


@pytest.mark.parametrize("count", [1, 2])
def test_a_vector_is_what_the_next_token_is_drawn_from(models, count):
    messages = conversation(*PICTURES[:count])
    values, usage = vector(models, messages)
    logits = (models.embeddings @ values).astype(numpy.float64)
    logprobs = logits - logits.max()
    logprobs -= numpy.log(numpy.exp(logprobs).sum())
    ask = dict(messages=messages, max_tokens=1, temperature=0, logprobs=True, top_logprobs=5, return_token_ids=True)
    status, chat = post(models.generates, "/v1/chat/completions", **ask)
    assert status == 200, chat
    (token,) = chat["choices"][0]["message"]["completion_token_ids"]
    assert token == logprobs.argmax()
    top = [entry["logprob"] for entry in chat["choices"][0]["logprobs"]["content"][0]["top_logprobs"]]
    assert numpy.allclose(top, numpy.sort(logprobs)[::-1][: len(top)], atol=1e-4)
    assert usage["prompt_tokens"] == chat["usage"]["prompt_tokens"] > 20


@pytest.mark.parametrize("route", ["/v1/reward", "/v1/chat/reward"])
def test_the_reward_model_scores_it(models, route):
    seen = []
    for pictures in (PICTURES[:1], PICTURES[1:2], PICTURES[:2], PICTURES[:2]):
        messages = conversation(*pictures)
        values, usage = vector(models, messages)
        status, answer = post(models.scores, route, messages=messages, add_generation_prompt=True)
        assert status == 200, answer
        (one,) = answer["data"]
        assert one["object"] == "reward" and answer["usage"] == usage
        assert numpy.allclose(one["score"], score_of(values, models.weights), atol=1e-4), (one, usage)
        seen.append(one["score"])
    assert seen[2] == seen[3], "hits of the caches change no bit"
    assert len({tuple(s) for s in seen}) == 3, "another picture has another score"


def test_many_at_once_and_a_bad_one_among_them(models):
    good, bad = conversation(PICTURES[0], png(64, 48)), conversation(PICTURES[0], b"no picture")

    def score(messages):
        return post(models.scores, "/v1/reward", messages=messages)

    want = score(good)[1]["data"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(score, [good, bad] * 8))
    assert [status for status, _ in got] == [200, 400] * 8
    assert all(answer["data"] == want for status, answer in got if status == 200)


def test_the_mean_does_not_depend_on_the_steps(tmp_path):
    """The tokens of a picture go in one step, those around it in any."""
    folder, seen = make_video_model(tmp_path / "model"), []
    for budget in (64, 1024):
        server = Server(tmp_path, *FLAGS, "--convert", "embed", "--max-num-batched-tokens", budget, "--max-num-seqs", 4,
                        "--override-pooler-config", '{"pooling_type": "MEAN"}', model=folder)  # fmt: skip
        try:
            server.wait_ready()
            for pictures in (PICTURES[:1], PICTURES[:2], PICTURES[:1]):
                messages = [{"role": "user", "content": "Look closely. " * 12}, *conversation(*pictures)]
                status, answer = post(server, "/v1/embeddings", messages=messages)
                assert status == 200 and answer["usage"]["prompt_tokens"] > 3 * 64, answer
                seen.append(answer["data"][0]["embedding"])
        finally:
            server.end()
    assert seen[:3] == seen[3:]
    assert seen[0] == seen[2] != seen[1]
