#!/usr/bin/env python3
"""Makes tests/data/video: small videos that say in their pixels which frame they show, and tables of what NumPy's and
Pillow's rules make of them.

    python3 -m venv /tmp/v && /tmp/v/bin/pip install av pillow==12.3.0 numpy
    /tmp/v/bin/python tools/make_video_cases.py [--font Roboto-Regular.ttf]

The files are committed: encoders of another version may write other bytes."""

import argparse
import fractions
import hashlib
import pathlib
import random
import struct

import av
import numpy as np
import PIL
from PIL import Image, ImageDraw, ImageFont, features

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "video"
FONT = "/usr/share/fonts/truetype/roboto/unhinted/RobotoTTF/Roboto-Regular.ttf"
W, H, BLOCK = 128, 64, 16


def picture(index):
    """Bit b of the index is the brightness of block b of the lower half; the upper half is a colour that moves."""
    y, x = np.mgrid[0:H, 0:W]
    rgb = np.stack([x * 2, y * 3 + 30, (x + 5 * index) % 256], axis=-1).astype(np.uint8)
    for bit in range(8):
        rgb[H // 2 :, bit * BLOCK : (bit + 1) * BLOCK] = 235 if index >> bit & 1 else 20
    return rgb


def encode(name, codec, count, rate=25, times=None, options=None, gop=12, container_options=None):
    with av.open(str(OUT / name), "w", options=container_options or {}) as out:
        stream = out.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = W, H, "yuv420p"
        stream.gop_size = gop
        stream.options = options or {}
        stream.codec_context.thread_count = 1
        if times:
            stream.codec_context.time_base = stream.time_base = fractions.Fraction(1, 1000)
        for i in range(count):
            frame = av.VideoFrame.from_ndarray(picture(i), format="rgb24")
            frame.time_base = fractions.Fraction(1, 1000) if times else fractions.Fraction(1, rate)
            frame.pts = times[i] if times else i
            for packet in stream.encode(frame):
                out.mux(packet)
        for packet in stream.encode(None):
            out.mux(packet)


def boxes(data, path, start=0, end=None):
    """Places of the MP4 box named by `path` (a list of types)."""
    at, end = start, len(data) if end is None else end
    while at + 8 <= end:
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        if kind == path[0]:
            if len(path) == 1:
                yield at, size
            else:
                yield from boxes(data, path[1:], at + 8, at + size)
        at += max(size, 8)


def variants():
    whole = (OUT / "h264.mp4").read_bytes()
    at, size = next(boxes(whole, [b"moov", b"trak", b"tkhd"]))
    matrix = at + 8 + 40
    turned = bytearray(whole)
    turned[matrix : matrix + 36] = struct.pack(">9i", 0, 1 << 16, 0, -(1 << 16), 0, 0, H << 16, 0, 1 << 30)
    (OUT / "rotated.mp4").write_bytes(turned)
    (OUT / "truncated.mp4").write_bytes(whole[: len(whole) * 7 // 10])
    lying = bytearray(whole)
    entry = next(boxes(whole, [b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stsd"]))[0] + 16
    lying[entry + 8 + 24 : entry + 8 + 28] = struct.pack(">HH", 60000, 60000)
    lying[at + size - 8 : at + size] = struct.pack(">II", 60000 << 16, 60000 << 16)
    (OUT / "lying.mp4").write_bytes(lying)
    # Single pictures of an all-key video, spoilt one by one.
    spoilt = bytearray((OUT / "keys.mp4").read_bytes())
    with av.open(str(OUT / "keys.mp4")) as source:
        packets = [(p.pos, p.size) for p in source.demux(video=0) if p.size]
    for index in (0, 9, 10, 19):
        pos, size = packets[index]
        spoilt[pos : pos + size] = bytes(size)
    (OUT / "spoilt.mp4").write_bytes(spoilt)
    with av.open(str(OUT / "empty.mp4"), "w") as out:
        stream = out.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = W, H, "yuv420p"
        out.start_encoding()


def facts():
    for path in sorted(OUT.glob("*.*")):
        if path.suffix not in (".mp4", ".webm", ".mkv", ".avi"):
            continue
        try:
            with av.open(str(path)) as source:
                stream = source.streams.video[0]
                rate = stream.average_rate
                count = sum(1 for p in source.demux(stream) if p.size)
            yield ("facts", path.name, path.stat().st_size, count, float(rate) if rate else 0)
        except Exception as error:  # what another reader makes of a broken file is only a note
            yield ("note", path.name, path.stat().st_size, type(error).__name__, "-")


def choice_rows():
    """Frame choice of models-ernie-paddleocr.md 5.7, written with NumPy."""
    draw = random.Random(3)
    videos = [
        (1, 25.0),
        (15, 25.0),
        (16, 30.0),
        (200, 25.0),
        (390, 30000 / 1001),
        (325, 25.0),
        (1000, 23.976),
        (9000, 50.0),
        (100, 1.0),
        (181, 2.0),
        (7, 0.5),
        (33, 3.3),
    ]
    videos += [(draw.randint(1, 5000), draw.choice([10.0, 15.0, 24.0, 29.97, 60.0])) for _ in range(20)]
    for frames, rate in videos:
        for fps, low, high, target in ((2, 16, 180, -1), (1, 4, 16, -1), (3, 1, 500, -1), (-1, 16, 180, 8), (-1, 1, 180, 33)):
            for how in ("leading", "middle"):
                duration = frames / rate
                n, goal = int(duration * fps), target
                if target <= 0 and n < low:
                    goal = low
                elif target <= 0 and n > high:
                    goal = high
                if goal > 0:
                    m = min(goal, frames)
                    edges = np.linspace(0, frames, m + 1).astype(int)
                    chosen = [a if how == "leading" else (a + b - 1) // 2 for a, b in zip(edges[:-1], edges[1:])]
                else:
                    delta = 1 / fps
                    times = np.arange(0, duration, delta) + (delta / 2 if how == "middle" else 0)
                    chosen = [int(v) for v in np.around(times * rate) if v < frames]
                text = ",".join(str(int(v)) for v in chosen)
                digest = hashlib.sha256(text.encode()).hexdigest()[:16]
                yield (
                    "choose",
                    frames,
                    repr(rate),
                    fps,
                    low,
                    high,
                    target,
                    how,
                    len(chosen),
                    digest,
                    text if len(text) < 60 else "-",
                )


def time_text(seconds):
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    return f"time: {int(hours):02d}:{int(minutes):02d}:{rest:05.2f}"


def stamp_rows(font_file):
    """A gradient with the time on it, as Pillow draws it."""
    draw = random.Random(11)
    # Below 9 pixels of font size the auto-hinter of FreeType differs between releases, by a few pixels.
    sizes = [
        (128, 64),
        (99, 300),
        (180, 320),
        (320, 180),
        (480, 270),
        (640, 360),
        (854, 480),
        (1280, 720),
        (9, 9),
        (90, 90),
        (100, 109),
        (1080, 1920),
        (333, 257),
    ]
    for w, h in sizes:
        for seconds in (0.0, 1.234, 59.999, 3725.5, round(draw.uniform(0, 36000), 3)):
            y, x = np.mgrid[0:h, 0:w]
            rgb = np.stack([(x * 3 + y) % 256, (x + y * 5) % 256, (x * y) % 256], axis=-1).astype(np.uint8)
            image = Image.fromarray(rgb)
            size = int(0.1 * min(w, h))
            if size > 0:
                font = ImageFont.truetype(font_file, size, layout_engine=ImageFont.Layout.BASIC)
                ImageDraw.Draw(image).text(
                    (0, 0),
                    time_text(seconds),
                    font=font,
                    fill=(0, 0, 0),
                    stroke_width=int(0.1 * size),
                    stroke_fill=(255, 255, 255),
                )
            if (w, h) != (128, 64):
                yield ("stamp", w, h, repr(seconds), time_text(seconds), hashlib.sha256(image.tobytes()).hexdigest())
            if (w, h) in ((480, 270), (128, 64)) and seconds == 3725.5:
                image.crop((0, 0, min(w, 300), min(h, 40))).save(OUT / f"stamp_{w}x{h}.png", optimize=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--font", default=FONT)
    parser.add_argument("--tables-only", action="store_true")
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    if not args.tables_only:
        plain = {"x264-params": "bframes=2", "refs": "2", "sc_threshold": "0", "crf": "28"}
        encode("h264.mp4", "libx264", 60, options=plain, container_options={"movflags": "faststart"})
        encode("hevc.mp4", "libx265", 30, options={"x265-params": "log-level=none:bframes=2:keyint=10:crf=30"})
        encode("vp9.webm", "libvpx-vp9", 40, options={"crf": "40", "b": "0", "auto-alt-ref": "1", "lag-in-frames": "12"})
        encode("vp8.webm", "libvpx", 20, options={"crf": "20", "b": "200k", "auto-alt-ref": "0"})
        gaps = random.Random(5)
        times = np.cumsum([0] + [gaps.choice([10, 40, 40, 100, 333]) for _ in range(49)]).tolist()
        encode("vfr.mkv", "libx264", 50, times=times, options=plain)
        encode("keys.mp4", "libx264", 20, options={"crf": "32"}, gop=1, container_options={"movflags": "faststart"})
        encode("h264.avi", "libx264", 30, options={"bf": "0", "crf": "30"})
        encode("mpeg4.avi", "mpeg4", 5)
        variants()
    with open(OUT / "cases.tsv", "w") as out:
        out.write(
            f"# Made by tools/make_video_cases.py: PyAV {av.__version__}, NumPy {np.__version__}, Pillow {PIL.__version__} "
            f"(FreeType {features.version('freetype2')}).\n"
        )
        for rows in (facts(), choice_rows(), stamp_rows(args.font)):
            for row in rows:
                out.write("\t".join(str(v) for v in row) + "\n")
    print(sum(p.stat().st_size for p in OUT.iterdir()), "bytes")


if __name__ == "__main__":
    main()
