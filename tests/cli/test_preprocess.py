"""tern preprocess: sizes, tokens, hashes and patches of pictures. TERN names the program."""

import array
import ast
import hashlib
import json
import struct

import test_cli

MEDIA = test_cli.ROOT / "tests" / "data" / "media"
VIDEOS = test_cli.ROOT / "tests" / "data" / "video"


def model(folder, preprocessor=None):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(
        json.dumps(
            {"architectures": ["PaddleOCRVLForConditionalGeneration"], "image_token_id": 5, "vision_config": {"patch_size": 14}}
        )
    )
    (folder / "preprocessor_config.json").write_text(
        json.dumps(preprocessor or {"min_pixels": 3136, "max_pixels": 200000, "image_mean": [0.5] * 3, "image_std": [0.5] * 3})
    )
    return folder


def test_a_line_per_file_in_order(tmp_path):
    files = [MEDIA / name for name in ("scene.png", "cmyk.jpg", "gray16.png", "lossy.webp", "plain.gif", "rgb24.bmp")]
    result = test_cli.tern("preprocess", "--model", model(tmp_path / "m"), *files)
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["file"] for line in lines] == [str(f) for f in files]
    for line in lines:
        t, h, w = line["grid"]
        assert t == 1 and line["tokens"] == h * w // 4 and line["size"] == [14 * w, 14 * h]
        assert len(line["sha256"]) == 64 and line["kind"] == "image"


def test_patches_are_those_of_the_hashed_bytes(tmp_path):
    out = tmp_path / "out"
    result = test_cli.tern("preprocess", "--model", model(tmp_path / "m"), MEDIA / "scene.png", "--out", out)
    assert result.returncode == 0, result.stderr
    line = json.loads(result.stdout)
    raw = (out / "scene.png.npy").read_bytes()
    assert raw[:8] == b"\x93NUMPY\x01\x00"
    size = struct.unpack("<H", raw[8:10])[0]
    header = ast.literal_eval(raw[10 : 10 + size].decode())
    assert (10 + size) % 64 == 0 and header["descr"] == "<f4" and not header["fortran_order"]
    _, h, w = line["grid"]
    assert header["shape"] == (h * w, 588)
    values = array.array("f", raw[10 + size :])
    assert len(values) == h * w * 588
    # Back to bytes: raster patches, mean and deviation of a half.
    rgb = bytearray(14 * h * 14 * w * 3)
    for patch in range(h * w):
        for c in range(3):
            for y in range(14):
                for x in range(14):
                    value = round((values[patch * 588 + c * 196 + y * 14 + x] * 0.5 + 0.5) * 255)
                    rgb[((patch // w * 14 + y) * 14 * w + patch % w * 14 + x) * 3 + c] = value
    assert hashlib.sha256(rgb).hexdigest() == line["sha256"]


def test_bfloat16_and_equal_names(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.png").write_bytes((MEDIA / "scene.png").read_bytes())
    result = test_cli.tern(
        "preprocess",
        "--model",
        model(tmp_path / "m"),
        tmp_path / "a" / "x.png",
        tmp_path / "b" / "x.png",
        "--out",
        tmp_path / "out",
        "--dtype",
        "bfloat16",
    )
    assert result.returncode == 0, result.stderr
    first, second = (tmp_path / "out" / name for name in ("x.png.npy", "x.png.2.npy"))
    assert first.read_bytes() == second.read_bytes() and b"'<u2'" in first.read_bytes()[:128]


def test_a_bad_file_is_named_and_the_others_go_on(tmp_path):
    broken = tmp_path / "broken.jpg"
    broken.write_bytes((MEDIA / "scene_420.jpg").read_bytes()[:300])
    result = test_cli.tern("preprocess", "--model", model(tmp_path / "m"), broken, tmp_path / "none.png", MEDIA / "scene.png")
    assert result.returncode == 1
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert "cut short" in lines[0]["error"] or "damaged" in lines[0]["error"]
    assert lines[1]["error"] == "the file cannot be read"
    assert lines[2]["tokens"] > 0


def test_mistakes_are_one_line(tmp_path):
    assert "no model folder" in test_cli.one_line(test_cli.tern("preprocess", "--model", tmp_path / "none", "x.png"), 1)
    text_model = tmp_path / "text"
    text_model.mkdir()
    (text_model / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    assert "takes no pictures" in test_cli.one_line(test_cli.tern("preprocess", "--model", text_model, "x.png"), 1)
    bad = model(tmp_path / "bad", {"min_pixels": "many"})
    assert "min_pixels must be an integer" in test_cli.one_line(test_cli.tern("preprocess", "--model", bad, "x.png"), 2)


def test_phones_and_transparent_pictures_as_the_server_reads_them(tmp_path):
    files = [MEDIA / name for name in ("turn1.jpg", "turn6.jpg", "ink_clear.png", "rgb_lzw.tif")]
    folder = model(tmp_path / "m")
    upright = test_cli.tern("preprocess", "--model", folder, *files)
    lying = test_cli.tern("preprocess", "--model", folder, "--no-exif", *files)
    assert upright.returncode == lying.returncode == 0, upright.stderr + lying.stderr
    upright, lying = ([json.loads(line) for line in out.stdout.splitlines()] for out in (upright, lying))
    assert [a == b for a, b in zip(upright, lying)] == [True, False, True, True]
    assert upright[1]["size"] == upright[0]["size"][::-1]


def test_videos_are_known_by_their_content(tmp_path):
    folder = tmp_path / "qwen"
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["Qwen2_5_VLForConditionalGeneration"],
                "image_token_id": 5,
                "video_token_id": 6,
                "vision_start_token_id": 7,
                "vision_end_token_id": 8,
                "vision_config": {"patch_size": 14},
            }
        )
    )
    names = ["h264.avi", "h264.mp4", "vp8.webm", "vfr.mkv"]
    result = test_cli.tern("preprocess", "--model", folder, *[VIDEOS / name for name in names], MEDIA / "hostile" / "avif.avif")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line.get("kind") for line in lines[:-1]] == ["video"] * len(names), result.stdout + result.stderr
    assert "AVIF" in lines[-1]["error"]
