"""Videos, and the other vision architecture, through the whole server."""

import base64

import openai
import pytest

from vision_model import GOLDEN, ROOT, make_video_model
from tern_server import Server

VIDEOS = ROOT / "tests" / "data" / "video"
SHARED = ROOT.parent / "shared" / "data" / "video"


@pytest.fixture(scope="module")
def watching(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("watching")
    s = Server(
        tmp,
        "--limit-mm-per-prompt",
        '{"image": 100, "video": 100}',
        "--max-model-len",
        4096,
        "--mm-processor-kwargs",
        '{"video_min_pixels": 3136, "video_max_pixels": 50176, "image_max_pixels": 100352}',
        model=make_video_model(tmp / "model"),
    )
    s.wait_ready()
    yield s
    s.stop()


def data_url(path, mime):
    return f"data:{mime};base64,{base64.b64encode(path.read_bytes()).decode()}"


def video(path, **more):
    return {"type": "video_url", "video_url": {"url": data_url(path, "video/mp4")}, **more}


def ask(server, parts, **kw):
    return server.client().chat.completions.create(
        model="default",
        temperature=0,
        max_tokens=4,
        extra_body={"ignore_eos": True, "return_token_ids": True},
        messages=[{"role": "user", "content": parts}],
        **kw,
    )


@pytest.mark.parametrize("name", ["h264.mp4", "hevc.mp4", "vp9.webm", "vfr.mkv", "rotated.mp4"])
def test_videos_of_every_kind(watching, name):
    before = watching.metric("tern:videos_total")
    reply = ask(watching, [video(VIDEOS / name), {"type": "text", "text": "What happens?"}])
    details = reply.usage.prompt_tokens_details
    assert details.video_tokens > 0 and details.image_tokens == 0
    assert reply.usage.completion_tokens == 4
    assert "Video 1:<|VIDEO_START|>" in reply.choices[0].message.text_after_process
    assert watching.metric("tern:videos_total") == before + 1
    again = ask(watching, [video(VIDEOS / name), {"type": "text", "text": "What happens?"}])
    assert again.choices[0].message.completion_token_ids == reply.choices[0].message.completion_token_ids


def test_pictures_and_videos_are_counted_apart(watching):
    still = {"type": "image_url", "image_url": {"url": data_url(GOLDEN / "ernie4_5_vl_moe" / "one.0.png", "image/png")}}
    reply = ask(watching, [still, video(VIDEOS / "h264.mp4"), still, {"type": "text", "text": "?"}])
    details = reply.usage.prompt_tokens_details
    assert details.video_tokens > 0 and details.image_tokens > 0
    text = reply.choices[0].message.text_after_process
    assert text.index("Picture 1:") < text.index("Video 1:") < text.index("Picture 2:")


def test_fewer_frames_on_request_and_never_more_than_allowed(watching):
    tokens = [
        ask(watching, [video(VIDEOS / "h264.mp4", **kw)]).usage.prompt_tokens_details.video_tokens
        for kw in (dict(min_frames=2, max_frames=2), dict(min_frames=6, max_frames=6))
    ]
    assert tokens[1] == 3 * tokens[0], tokens
    with pytest.raises(openai.BadRequestError) as e:
        ask(watching, [video(VIDEOS / "h264.mp4", max_frames=10**6, min_frames=10**6)])
    assert e.value.body["param"] == "messages[0].content[0]"


@pytest.mark.parametrize("name", ["empty.mp4", "cases.tsv"])
def test_broken_videos_are_400(watching, name):
    with pytest.raises(openai.BadRequestError) as e:
        ask(watching, [{"type": "text", "text": "x"}, video(VIDEOS / name)])
    assert e.value.body["param"] == "messages[0].content[1]" and e.value.body["message"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared videos are not on this machine")
@pytest.mark.parametrize("name", ["nasa_13013.mp4", "h265_video.mp4"])
def test_shared_videos(watching, name):
    reply = ask(watching, [video(SHARED / name), {"type": "text", "text": "Describe it."}])
    assert reply.usage.prompt_tokens_details.video_tokens > 0
