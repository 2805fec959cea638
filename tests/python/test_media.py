"""Pictures and videos of chat() and generate()."""

import errno
import functools
import http.server
import json
import struct
import subprocess
import threading
import zlib

import numpy
import pytest
from conftest import MODEL, ROOT
from tern import SamplingParams
from tern.media import Media, _pieces_of
from tern.process import find_program

PICTURE = ROOT / "models" / "demo.png"
GREEDY = SamplingParams(temperature=0, max_tokens=40)
PROMPT = "<s>User: <|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>OCR:\nAssistant:\n"
TEXT = "Harbour Cafe"
MESSAGE = {"role": "user", "content": [{"type": "image", "image": b"abc"}, {"type": "image", "image": 3}]}


def test_a_picture_in_every_form(llm, tmp_path):
    picture = PICTURE.read_bytes()
    path = tmp_path / "with space.png"
    path.write_bytes(picture)

    def read(image):
        part = [{"type": "image", "image": image}, {"type": "text", "text": "OCR:"}]
        return llm.chat([{"role": "user", "content": part}], GREEDY)[0]

    answers = [read(picture), read(str(path)), read(path)]
    assert {x.outputs.text for x in answers} == {answers[0].outputs.text}
    assert answers[0].num_input_image_tokens > 0
    assert list(llm._media._folder.iterdir()) == []


def test_an_address_of_this_machine(llm):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=PICTURE.parent)
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/{PICTURE.name}"
        part = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "OCR:"}]
        (chatted,) = llm.chat([{"role": "user", "content": part}], GREEDY)
        (done,) = llm.generate({"prompt": PROMPT, "multimodal_data": {"image": [url]}}, GREEDY)
        server.shutdown()
    assert chatted.outputs.text.startswith(TEXT), chatted.error_msg
    assert done.outputs.text == chatted.outputs.text


def png_of(array):
    height, width, _ = array.shape
    rows = b"".join(b"\0" + row.tobytes() for row in array)
    parts = (b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(rows, 1), b"IEND")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in parts
    )


class Pil:
    """What the package uses of a PIL picture."""

    mode = "RGB"

    def __init__(self, array):
        self.array, self.size = array, array.shape[1::-1]

    def convert(self, mode):
        raise AssertionError("it is RGB")

    def crop(self, box):
        return Pil(self.array[box[1] : box[3], box[0] : box[2]])

    def tobytes(self):
        return self.array.tobytes()


def test_a_picture_beside_a_prompt(llm):
    for given in (PICTURE, [PICTURE.read_bytes()], str(PICTURE)):
        (output,) = llm.generate({"prompt": PROMPT, "multimodal_data": {"image": given, "video": []}}, GREEDY)
        assert output.outputs.text.startswith(TEXT), output.error_msg
        assert output.num_input_image_tokens > 0
    ids = output.prompt_token_ids
    placeholder = max(set(ids), key=ids.count)
    short = [x for i, x in enumerate(ids) if x != placeholder or ids[i - 1] != placeholder]
    for form in ({"prompt_token_ids": short}, {"prompt": short}, {"prompt_token_ids": ids}):
        (same,) = llm.generate([{**form, "multimodal_data": {"image": [PICTURE]}}], GREEDY)
        assert same.outputs.text == output.outputs.text and same.prompt_token_ids == ids
    assert list(llm._media._folder.iterdir()) == [] and llm._media.held == 0


def test_prompts_with_and_without_pictures(llm):
    pictured = {"prompt": PROMPT, "multimodal_data": {"image": [PICTURE]}}
    outputs = llm.generate(["1+1=", pictured, {"prompt": "1+1=", "multimodal_data": {"image": []}}, pictured], GREEDY)
    assert outputs[1].outputs.text == outputs[3].outputs.text and outputs[1].outputs.text.startswith(TEXT)
    assert outputs[0].outputs.text == outputs[2].outputs.text
    *_, last = llm.generate(["1+1=", pictured], GREEDY, stream=True)
    assert [x.outputs.text for x in last] == [x.outputs.text for x in outputs[:2]]


def test_pictures_and_placeholders_must_match(llm):
    wrong = {"prompt": "OCR:", "multimodal_data": {"image": [PICTURE]}}
    refused, fine = llm.generate([wrong, "1+1="], GREEDY)
    assert refused.error_code == 400 and "placeholders" in refused.error_msg and fine.error_code == 200


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        ({"prompt": "a", "images": []}, "images"),
        ({"prompt": "a", "multimodal_data": {"audio": [b""]}}, "audio"),
        ({"prompt": "a", "multimodal_data": {"video": [{"video": b"", "speed": 2}]}}, "speed"),
        ({"multimodal_data": {}}, '"prompt" or'),
        ({"prompt": "a", "multimodal_data": {"image": [3]}}, "a image is|a path"),
    ],
)
def test_what_no_prompt_has_is_named(llm, prompt, error):
    with pytest.raises((TypeError, ValueError), match=error):
        llm.generate(prompt)
    assert llm._media.held == 0


def test_what_went_before_a_wrong_picture_is_removed(tmp_path):
    media = Media(tmp_path)
    for ask in (lambda: media.parts({"image": [b"abc", 3]}), lambda: media.shape([MESSAGE, MESSAGE])):
        with pytest.raises(TypeError, match="a image is|a path"):
            ask()
    assert media.held == 0 and list(tmp_path.iterdir()) == []


def test_arrays_and_pil_pictures_make_the_same_file(tmp_path):
    array = numpy.random.default_rng(1).integers(0, 256, (500, 333, 3), numpy.uint8)
    media = Media(tmp_path)
    _, (one,) = media.parts({"image": [array]})
    _, (two,) = media.parts({"image": Pil(array)})
    data = one[0].read_bytes()
    assert data == two[0].read_bytes() and data.endswith(array.tobytes())
    assert media.held == 2 * len(data)
    media.remove([one, two])
    assert media.held == 0 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("height", "width"), [(1, 1), (37, 64), (64, 37), (1000, 1001)])
def test_an_array_reaches_the_model_as_it_is(tmp_path, height, width):
    """Against a PNG of the same pixels, as the program prepares them."""
    array = numpy.random.default_rng(1).integers(0, 256, (height, width, 3), numpy.uint8)
    raw, png = tmp_path / "raw", tmp_path / "png"
    raw.write_bytes(b"".join(_pieces_of(array[::-1][::-1], "image")))
    png.write_bytes(png_of(array))
    command = [find_program(), "preprocess", "--model", MODEL, raw, png]
    told = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()
    first, second = ({**json.loads(line), "file": None} for line in told)
    assert first == second and first["sha256"]


def test_a_video_keeps_its_settings(tmp_path):
    (part,), (file,) = Media(tmp_path).parts({"video": [{"video": b"bytes", "max_frames": 30, "fps": None}]})
    assert part == {"type": "video_url", "video_url": {"url": f"file://{file[0]}", "max_frames": 30}}
    assert file[0].read_bytes() == b"bytes"


def test_a_full_memory_sends_pictures_inside_requests(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "full")

    array = numpy.full((3, 5, 3), 7, numpy.uint8)
    monkeypatch.setattr("builtins.open", full)
    media = Media(tmp_path)
    parts, files = media.parts({"image": [b"abc", array, Pil(array)]})
    urls = [part["image_url"]["url"] for part in parts]
    assert urls[0] == "data:application/octet-stream;base64,YWJj" and urls[1] == urls[2]
    assert files == [] and media.held == 0
