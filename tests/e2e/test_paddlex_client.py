"""PaddleX's client of generative models, as PaddleOCR's pipelines use it: its requests, spoken here, and itself where it
is installed (pip install paddlex: skipped where it is not)."""

import base64
import json
import pathlib
import re
import urllib.request

import openai
import pytest

from vision_model import TEMPLATE, make_vision_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "models" / "demo.png"
TASKS = ["OCR:", "Table Recognition:", "Formula Recognition:", "Chart Recognition:", "Spotting:", "Seal Recognition:"]
TAILS = {"0.9B": "Assistant: ", "1.5": "Assistant:\n"}


def data_url(path):
    """Pictures come as JPEG data, or as PNG to servers of llama.cpp."""
    kind = "png" if path.suffix == ".png" else "jpeg"
    return f"data:image/{kind};base64," + base64.b64encode(path.read_bytes()).decode("ascii")


def read(client, backend, task, url, skip_special_tokens=True, limits=None, tokens=8192):
    """One request, with the fields that the client sends to a server of that kind."""
    fields = {"temperature": 1, "top_p": 0} if backend == "fastdeploy-server" else {"temperature": 0}
    extra = {"skip_special_tokens": skip_special_tokens}
    if limits and backend == "vllm-server":
        extra["mm_processor_kwargs"] = dict(zip(("min_pixels", "max_pixels"), limits))
    return client.chat.completions.create(
        model=client.models.list().data[0].id,
        max_completion_tokens=tokens,
        extra_body=extra,
        timeout=600,
        **fields,
        messages=[
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": task}]}
        ],
    )


def page_text(answer):
    return re.sub(r"\s+", " ", answer.choices[0].message.content).strip()


def test_a_page_is_read_the_same_by_every_backend_of_the_client(client):
    url = data_url(PAGE)
    fast = read(client, "fastdeploy-server", "OCR:", url, tokens=200)
    other = read(client, "vllm-server", "OCR:", url, tokens=200, limits=(3136, 1003520))
    assert page_text(fast) == page_text(other) and len(page_text(fast)) > 20
    assert fast.usage.prompt_tokens == other.usage.prompt_tokens


@pytest.mark.parametrize("release", TAILS)
def test_tasks_and_limits_of_each_release(start, tmp_path, release):
    template = TEMPLATE.replace('"Assistant: "', json.dumps(TAILS[release]))
    model = make_vision_model(tmp_path / "m", template=template)
    # The first has its limit from the operator. The file of the second says 100352, which spotting may exceed.
    limit, flags = 160000, ("--mm-processor-kwargs", '{"max_pixels": 160000}')
    if release != "0.9B":
        limit, flags = 1605632, ()
    server = start("--max-model-len", 1024, *flags, model=model)
    server.wait_ready()
    client = server.client()
    url = data_url(ROOT / "tests" / "data" / "media" / "scene_420.jpg")
    for task in TASKS:
        # A small picture grows to the lower limit: what spotting asks for is more than the others may have.
        spotting = task == "Spotting:"
        low, high = (112896, 160000) if spotting else (56448, 100352)
        answer = read(client, "vllm-server", task, url, not spotting, (low, high), tokens=4)
        assert answer.choices[0].finish_reason in ("stop", "length")
        text = f"<|begin|>User: {task}\n{TAILS[release]}"
        words = json.loads(post(server, "/tokenize", {"prompt": text}))["count"]
        cells = answer.usage.prompt_tokens - words - 2  # without the markers of the picture
        assert low // 784 <= cells <= high // 784
    with pytest.raises(openai.BadRequestError) as e:
        read(client, "vllm-server", "OCR:", url, limits=(11290, limit + 1), tokens=4)
    assert f"max_pixels must be from 784 to {limit}" in str(e.value)


def post(server, path, body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return reply.read()


def test_the_client_itself_reads_a_page(server, client):
    pytest.importorskip("paddlex", reason="PaddleX is not installed (pip install paddlex)")
    from paddlex.inference.models.common.genai import GenAIClient

    url = data_url(PAGE)
    for backend, fields in (("fastdeploy-server", {"temperature": 1, "top_p": 0}), ("vllm-server", {"temperature": 0})):
        genai = GenAIClient(backend, server.url + "/v1")
        answer = genai.create_chat_completion(
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "OCR:"}]}],
            max_completion_tokens=200,
            extra_body={"skip_special_tokens": True},
            **fields,
        )
        assert page_text(answer) == page_text(read(client, backend, "OCR:", url, tokens=200))
        genai.close()
