"""Pictures through the whole server, with the real `openai` client."""

import base64
import concurrent.futures
import functools
import http.server
import json
import pathlib
import socket
import socketserver
import struct
import threading
import time
import urllib.request
import zlib

import openai
import pytest

from vision_model import CASE, ROOT, make_vision_model
from tern_server import Server, wait_for

LIMITS = '{"image": 100, "video": 100}'
PICTURES = sorted(CASE.glob("*.png"))


def data_url(data, mime="image/png"):
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def picture(url, **more):
    return {"type": "image_url", "image_url": {"url": url}, **more}


def text(words):
    return {"type": "text", "text": words}


def png(width, height, value=128):
    """A grey picture of one colour."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = b"".join(b"\0" + bytes([value]) * width for _ in range(height))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def ask(client, parts, **kw):
    kw = {"model": "default", "temperature": 0, "max_tokens": 4, "extra_body": {"ignore_eos": True}, **kw}
    return client.chat.completions.create(messages=[{"role": "user", "content": parts}], **kw)


def fault(client, parts, **kw):
    with pytest.raises(openai.BadRequestError) as e:
        ask(client, parts, **kw)
    return e.value.body


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        self.server.seen.append(self.path)
        if self.path == "/slow.png":
            self.server.left.wait(20)
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "http://169.254.169.254/latest/meta-data")
            self.end_headers()
            return
        super().do_GET()


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    """A web server on the loopback address: .url, .seen (paths asked for), .folder."""
    folder = tmp_path_factory.mktemp("web")
    (folder / "one.png").write_bytes(PICTURES[0].read_bytes())
    handler = functools.partial(Handler, directory=str(folder))

    class Threaded(socketserver.ThreadingMixIn, http.server.HTTPServer):
        daemon_threads = True
        block_on_close = False

    with Threaded(("127.0.0.1", 0), handler) as server:
        server.seen, server.folder, server.left = [], folder, threading.Event()
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_vision_model(tmp_path_factory.mktemp("model") / "sees")


@pytest.fixture(scope="module")
def seeing(tmp_path_factory, model, web):
    """The server that may ask the web server above and read files below one folder."""
    tmp = tmp_path_factory.mktemp("seeing")
    (tmp / "files").mkdir()
    (tmp / "files" / "a b.png").write_bytes(PICTURES[0].read_bytes())
    (tmp / "secret.png").write_bytes(PICTURES[0].read_bytes())
    (tmp / "files" / "out.png").symlink_to(tmp / "secret.png")
    s = Server(
        tmp,
        "--limit-mm-per-prompt",
        LIMITS,
        "--max-model-len",
        4096,
        "--max-num-seqs",
        16,
        "--allowed-media-domains",
        f"127.0.0.1:{web.server_port}",
        "--allowed-local-media-path",
        tmp / "files",
        "--max-processor-cache",
        0.1,
        "--media-fetch-tries",
        1,
        model=model,
    )
    s.folder = tmp
    s.wait_ready()
    yield s
    s.stop()


@pytest.fixture
def client(seeing):
    return seeing.client()


def test_a_picture_by_data_url(client):
    reply = ask(client, [picture(data_url(PICTURES[0].read_bytes())), text("OCR:")])
    details = reply.usage.prompt_tokens_details
    assert reply.usage.completion_tokens == 4
    assert details.image_tokens > 0 and details.video_tokens == 0
    assert reply.usage.prompt_tokens > details.image_tokens
    plain = client.chat.completions.create(model="default", max_tokens=1, messages=[{"role": "user", "content": "OCR:"}])
    assert plain.usage.prompt_tokens == reply.usage.prompt_tokens - details.image_tokens - 2  # and two markers
    assert plain.usage.prompt_tokens_details.image_tokens == 0


def test_every_way_to_the_same_picture_gives_the_same_answer(client, seeing, web):
    data = PICTURES[0].read_bytes()
    ways = [data_url(data), data_url(data, "text/plain"), web.url + "/one.png", f"file://{seeing.folder}/files/a%20b.png"]
    answers = {ask(client, [picture(url), text("OCR:")], max_tokens=12).choices[0].message.content for url in ways}
    assert len(answers) == 1
    other = ask(client, [picture(data_url(png(300, 200))), text("OCR:")], max_tokens=12).choices[0].message.content
    assert other not in answers
    as_string = {"type": "image_url", "image_url": ways[0]}
    assert ask(client, [as_string, text("OCR:")], max_tokens=12).choices[0].message.content in answers


def test_the_same_picture_hits_both_caches(client, seeing):
    parts = [picture(data_url(png(560, 168, 77))), text("what is written here? " * 8)]
    before = {m: seeing.metric(m) for m in ("tern:encoder_cache_hits_total", "tern:processor_cache_hits_total")}
    first, second = ask(client, parts), ask(client, parts)
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    cached = second.usage.prompt_tokens_details.cached_tokens
    assert cached >= 64 and cached % 64 == 0
    assert first.choices[0].message.content == second.choices[0].message.content
    elsewhere = [text("again: "), *parts]
    assert ask(client, elsewhere).usage.prompt_tokens_details.image_tokens == first.usage.prompt_tokens_details.image_tokens
    assert seeing.metric("tern:processor_cache_hits_total") > before["tern:processor_cache_hits_total"]
    # Other pixels behind equal token ids are another prompt.
    other = ask(client, [picture(data_url(png(560, 168, 78))), parts[1]])
    assert other.usage.prompt_tokens == first.usage.prompt_tokens
    assert other.usage.prompt_tokens_details.cached_tokens == 0


def test_equal_token_counts_of_other_shapes_do_not_mix(client):
    wide, tall = ([picture(data_url(png(*size, 90))), text("x" * 90)] for size in ((560, 168), (168, 560)))
    a, b = ask(client, wide), ask(client, tall)
    assert a.usage.prompt_tokens == b.usage.prompt_tokens
    assert b.usage.prompt_tokens_details.cached_tokens == 0


def test_uuid_brings_a_picture_back(client):
    data = png(120, 90, 200)
    first = ask(client, [picture(data_url(data), uuid="my picture"), text("OCR:")])
    again = ask(client, [{"type": "image_url", "image_url": None, "uuid": "my picture"}, text("OCR:")])
    assert again.choices[0].message.content == first.choices[0].message.content
    assert again.usage.prompt_tokens_details.image_tokens == first.usage.prompt_tokens_details.image_tokens
    body = fault(client, [{"type": "image_url", "uuid": "never seen"}])
    assert body["message"] == "Missing item 0 not found in processor cache"


def test_uuid_without_a_cache(start, model):
    s = start("--max-processor-cache", 0, model=model).wait_ready()
    body = fault(s.client(), [{"type": "image_url", "uuid": "x"}])
    assert body["message"] == "Missing items cannot be retrieved without processor cache."


def test_a_hundred_pictures_in_one_request(client):
    parts = [picture(data_url(png(60 + i % 7 * 28, 60, i))) for i in range(100)]
    reply = ask(client, [*parts, text("OCR:")])
    assert reply.usage.prompt_tokens_details.image_tokens >= 400
    body = fault(client, [*parts, parts[0], text("OCR:")])
    assert body["message"] == "Too many image items in prompt, got 101 but limit is 100"


def test_samples_and_streams(client):
    parts = [picture(data_url(png(100, 100, 9))), text("OCR:")]
    reply = ask(client, parts, n=3, temperature=1.0, seed=4)
    assert len(reply.choices) == 3 and reply.usage.completion_tokens == 12
    usage = [c.usage for c in ask(client, parts, stream=True, stream_options={"include_usage": True}) if c.usage]
    assert usage[-1].prompt_tokens_details.image_tokens == reply.usage.prompt_tokens_details.image_tokens


def test_tokenize_counts_pictures(seeing, client):
    messages = [{"role": "user", "content": [picture(data_url(png(280, 140))), text("OCR:")]}]
    request = urllib.request.Request(
        seeing.url + "/tokenize", json.dumps({"messages": messages}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as r:
        counted = json.load(r)
    reply = ask(client, messages[0]["content"])
    assert counted["count"] == reply.usage.prompt_tokens == len(counted["tokens"])


BROKEN = {
    "text": b"this is no picture",
    "empty": b"",
    "truncated": PICTURES[0].read_bytes()[:700],
    "bomb": b"\x89PNG\r\n\x1a\n"
    + struct.pack(">I", 13)
    + b"IHDR"
    + struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    + b"\0" * 40,
}


def test_broken_pictures_are_400_and_disturb_nobody(seeing, client):
    good = data_url(PICTURES[0].read_bytes())
    stream = ask(seeing.client(), [picture(good), text("OCR:")], stream=True, max_tokens=1500)
    chunks = iter(stream)
    next(chunks)
    for name, data in BROKEN.items():
        body = fault(client, [text("x"), picture(good), picture(data_url(data))])
        assert body["param"] == "messages[0].content[2]", (name, body)
        assert body["code"] == "invalid_value" and body["message"], name
    for url in ("data:image/png;base64,%%%", "ftp://example.org/a.png", "http://", "nonsense", "file:///etc/passwd"):
        assert fault(client, [picture(url)])["param"] == "messages[0].content[0]", url
    assert sum(1 for _ in chunks) > 1000, "another client's answer went on"


@pytest.mark.parametrize("where", ["../secret.png", "out.png", "nothing.png", "%2e%2e/secret.png"])
def test_files_outside_stay_outside(client, seeing, where):
    inside = fault(client, [picture(f"file://{seeing.folder}/files/{where}")])
    assert inside["param"] == "messages[0].content[0]"
    assert "secret" not in inside["message"]


def test_files_are_refused_without_the_flag(start, model):
    s = start(model=model).wait_ready()
    assert fault(s.client(), [picture(f"file://{PICTURES[0]}")])["param"] == "messages[0].content[0]"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/one.png",
        "http://localhost:{port}/one.png",
        "http://2130706433:{port}/one.png",
        "http://0x7f.1:{port}/one.png",
        "http://[::ffff:127.0.0.1]:{port}/one.png",
        "http://[::1]:{port}/one.png",
        "http://user@127.0.0.1:{port}/one.png",
        "http://127.0.0.1",
        "http://169.254.169.254/latest/meta-data",
        "http://0.0.0.0:{port}/one.png",
        "http://10.0.0.1/",
        "http://017700000001:{port}/one.png",
    ],
)
def test_private_addresses_are_never_asked(closed, web, url):
    before = len(web.seen)
    body = fault(closed.client(), [picture(url.format(port=web.server_port))])
    assert body["param"] == "messages[0].content[0]"
    assert len(web.seen) == before, "somebody was asked"


@pytest.fixture(scope="module")
def closed(tmp_path_factory, model):
    s = Server(tmp_path_factory.mktemp("closed"), "--media-fetch-tries", 1, model=model)
    s.wait_ready()
    yield s
    s.stop()


def test_redirects_are_checked_again(client, web):
    assert fault(client, [picture(web.url + "/away")])["param"] == "messages[0].content[0]"
    assert web.seen[-1] == "/away"


def test_missing_and_slow_hosts(client, seeing, web):
    assert fault(client, [picture(web.url + "/nothing.png")])["param"] == "messages[0].content[0]"
    # While one client waits for a slow host, text and pictures of others go past; the client that leaves is forgotten.
    body = json.dumps({"messages": [{"role": "user", "content": [picture(web.url + "/slow.png")]}]}).encode()
    s = socket.create_connection(("127.0.0.1", seeing.port))
    s.sendall(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(body)
        + body
    )
    wait_for(lambda: "/slow.png" in web.seen)
    begin = time.monotonic()
    ask(client, [picture(data_url(png(90, 90, 3))), text("x")])
    client.chat.completions.create(model="default", max_tokens=2, messages=[{"role": "user", "content": "hi"}])
    assert time.monotonic() - begin < 10
    s.close()
    web.left.set()


def test_many_clients_with_pictures(seeing):
    expected = {}

    def one(i):
        reply = ask(seeing.client(), [picture(data_url(png(100 + 28 * (i % 5), 84, 40 + i % 5))), text(f"{i % 5}")])
        return i % 5, reply.choices[0].message.content

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for key, answer in pool.map(one, range(40)):
            assert expected.setdefault(key, answer) == answer


def test_videos_are_refused_by_a_model_of_pictures(client):
    body = fault(client, [{"type": "video_url", "video_url": {"url": data_url(b"x", "video/mp4")}}])
    assert body["param"] == "messages[0].content[0]"


def test_vision_metrics(seeing, client):
    before = seeing.metric("tern:images_total")
    ask(client, [picture(data_url(png(200, 60, 201))), text("x")])
    assert seeing.metric("tern:images_total") == before + 1
    for name in (
        "tern:vision_tower_milliseconds_total",
        "tern:media_preprocess_milliseconds_total",
        "tern:vision_tower_patches_total",
    ):
        assert seeing.metric(name) > 0
    assert seeing.metric("tern:media_waiting") == 0


def test_text_only_deployment(start, model):
    s = start("--deploy-modality", "text", model=model).wait_ready()
    reply = s.client().chat.completions.create(model="default", max_tokens=2, messages=[{"role": "user", "content": "hi"}])
    assert reply.usage.completion_tokens >= 1
    body = fault(s.client(), [picture(data_url(png(30, 30)))])
    assert "takes text only" in body["message"]


SHARED = pathlib.Path(ROOT).parent / "shared" / "data" / "images"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared pictures are not on this machine")
def test_real_pictures(client):
    files = [f for f in sorted(SHARED.iterdir()) if f.suffix in (".png", ".jpg", ".gif", ".webp") and f.name != "truncated.jpg"]
    parts = [picture(data_url(files[i % len(files)].read_bytes())) for i in range(30)]
    reply = ask(client, [*parts, text("OCR:")])
    assert reply.usage.prompt_tokens_details.image_tokens > 100
    body = fault(client, [picture(data_url((SHARED / "truncated.jpg").read_bytes()))])
    assert body["param"] == "messages[0].content[0]"
