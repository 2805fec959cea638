"""Qwen2.5-VL through the whole server: pictures, videos whose frames share rows of patches, and both at once."""

import pytest

from test_videos import VIDEOS, ask, data_url, video
from vision_model import GOLDEN, make_qwen_model
from tern_server import Server

CASE = GOLDEN / "qwen2_5_vl"


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("qwen")
    s = Server(
        tmp,
        "--limit-mm-per-prompt",
        '{"image": 100, "video": 100}',
        "--max-model-len",
        4096,
        model=make_qwen_model(tmp / "model"),
    )
    s.wait_ready()
    yield s
    s.stop()


def picture(name):
    return {"type": "image_url", "image_url": {"url": data_url(CASE / name, "image/png")}}


def ids(reply):
    return reply.choices[0].message.completion_token_ids


def test_pictures(qwen):
    parts = [picture("two.0.png"), picture("two.1.png"), {"type": "text", "text": "Which is wider?"}]
    reply = ask(qwen, parts)
    # 64 x 64 and 200 x 60 pixels in cells of 16 x 16.
    assert reply.usage.prompt_tokens_details.image_tokens == 4 * 4 + 12 * 4
    assert "<|vision_start|><|image_pad|>" in reply.choices[0].message.text_after_process
    # The same picture alone and again, from the caches or not, in another conversation: the same answer.
    alone = ids(ask(qwen, [picture("one.0.png"), {"type": "text", "text": "?"}]))
    assert ids(ask(qwen, parts)) == ids(reply)
    assert ids(ask(qwen, [picture("one.0.png"), {"type": "text", "text": "?"}])) == alone


@pytest.mark.parametrize("name", ["h264.mp4", "vp9.webm"])
def test_videos(qwen, name):
    tokens = [
        ask(qwen, [video(VIDEOS / name, **kw)]).usage.prompt_tokens_details.video_tokens
        for kw in (dict(min_frames=4, max_frames=4), dict(min_frames=8, max_frames=8))
    ]
    assert tokens[1] == 2 * tokens[0] > 0, tokens
    parts = [video(VIDEOS / name), picture("tall.0.png"), {"type": "text", "text": "What happens?"}]
    reply = ask(qwen, parts)
    details = reply.usage.prompt_tokens_details
    assert details.video_tokens > 0 and details.image_tokens == 3 * 13
    assert reply.usage.completion_tokens == 4
    assert ids(ask(qwen, parts)) == ids(reply)
