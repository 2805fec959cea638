"""The well-formed pictures, from a seed."""

import contextlib
import io
import struct

import numpy as np
from PIL import Image, ImageDraw

from .formats import bmp, bmp_rows, chunk, gif_frame, gif_screen, png

RNG = np.random.default_rng(20261121)


@contextlib.contextmanager
def seeded(seed):
    """Draws of another stream, so that pictures made later stay what they are."""
    global RNG
    before, RNG = RNG, np.random.default_rng(seed)
    yield
    RNG = before


def scene(w, h):
    """Something between a page and a photo: gradients, strokes, a little noise."""
    y, x = np.mgrid[0:h, 0:w]
    base = np.stack([x * 255 // max(w - 1, 1), y * 255 // max(h - 1, 1), (x * 3 + y * 5) % 256], -1)
    im = Image.fromarray(np.clip(base + RNG.integers(-12, 13, (h, w, 3)), 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(im)
    for i in range(6):
        a, b = (int(v) for v in RNG.integers(0, max(w, h), 2))
        draw.line((a % w, 0, b % w, h), fill=tuple(int(v) for v in RNG.integers(0, 256, 3)), width=1 + i % 3)
    return im


def noise(shape, top=256, dtype=np.uint8):
    return RNG.integers(0, top, shape).astype(dtype)


def saved(im, kind, **options):
    out = io.BytesIO()
    im.save(out, kind, **options)
    return out.getvalue()


def pngs():
    out = {}
    for lace in (False, True):
        tag = "_i" if lace else ""
        for depth in (1, 2, 4, 8, 16):
            kind = np.uint16 if depth == 16 else np.uint8
            out[f"gray{depth}{tag}.png"] = png(noise((13, 19), 1 << depth, kind), depth, 0, lace)
        for depth in (1, 2, 4, 8):
            n = 1 << depth
            plte = chunk(b"PLTE", noise(3 * n).tobytes())
            out[f"palette{depth}{tag}.png"] = png(noise((11, 21), n), depth, 3, lace, plte)
        for depth in (8, 16):
            kind, top = (np.uint16, 65536) if depth == 16 else (np.uint8, 256)
            out[f"gray_alpha{depth}{tag}.png"] = png(noise((9, 14, 2), top, kind), depth, 4, lace)
            out[f"rgb{depth}{tag}.png"] = png(noise((9, 14, 3), top, kind), depth, 2, lace)
            out[f"rgba{depth}{tag}.png"] = png(noise((9, 14, 4), top, kind), depth, 6, lace)
    for w, h in ((1, 1), (2, 1), (1, 5), (5, 3)):  # passes without pixels
        out[f"tiny_{w}x{h}_i.png"] = png(noise((h, w, 3)), 8, 2, True)
    out["gray16_small.png"] = png(noise((6, 9), 400, np.uint16), 16, 0)
    short = chunk(b"PLTE", noise(3 * 40).tobytes())
    out["palette_short.png"] = png(noise((8, 8), 60), 8, 3, False, short)
    clear = chunk(b"PLTE", noise(3 * 16).tobytes()) + chunk(b"tRNS", noise(9).tobytes())
    out["palette_trns.png"] = png(noise((8, 8), 16), 8, 3, False, clear)
    out["gray_trns.png"] = png(noise((8, 8)), 8, 0, False, chunk(b"tRNS", b"\0\x10"))
    out["rgb_trns.png"] = png(noise((8, 8, 3)), 8, 2, False, chunk(b"tRNS", b"\0\1\0\2\0\3"))
    out["scene.png"] = saved(scene(97, 61), "PNG")
    out["no_end.png"] = png(noise((7, 7, 3)), 8, 2, tail=b"")
    out["gamma.png"] = png(noise((7, 7, 3)), 8, 2, False, chunk(b"gAMA", struct.pack(">I", 45455)))
    return out


def jpegs():
    out, big = {}, scene(160, 112)
    for name, sampling in (("444", 0), ("422", 1), ("420", 2)):
        out[f"scene_{name}.jpg"] = saved(big, "JPEG", quality=85, subsampling=sampling)
        out[f"odd_{name}.jpg"] = saved(scene(37, 53), "JPEG", quality=60, subsampling=sampling)
        out[f"progressive_{name}.jpg"] = saved(scene(61, 45), "JPEG", quality=75, subsampling=sampling, progressive=True)
    out["gray.jpg"] = saved(scene(45, 33).convert("L"), "JPEG", quality=90)
    out["gray_progressive.jpg"] = saved(scene(45, 33).convert("L"), "JPEG", quality=40, progressive=True)
    out["rgb.jpg"] = saved(scene(45, 33), "JPEG", quality=90, keep_rgb=True)
    out["restart.jpg"] = saved(scene(80, 64), "JPEG", quality=80, restart_marker_rows=1)
    out["quality1.jpg"] = saved(scene(64, 64), "JPEG", quality=1)
    out["quality100.jpg"] = saved(scene(40, 40), "JPEG", quality=100, optimize=True)
    for w, h in ((1, 1), (7, 5), (8, 17), (300, 1), (1, 300), (3, 900)):
        out[f"size_{w}x{h}.jpg"] = saved(scene(w, h), "JPEG", quality=80, subsampling=2)
    cmyk = saved(Image.fromarray(noise((40, 52, 4)) // 8 + np.asarray(scene(52, 40).convert("CMYK")) // 2, "CMYK"), "JPEG")
    out["cmyk.jpg"] = cmyk
    at = cmyk.index(b"Adobe")
    out["ycck.jpg"] = cmyk[: at + 11] + b"\x02" + cmyk[at + 12 :]
    out["cmyk_plain.jpg"] = cmyk[: at - 4] + cmyk[at + 12 :]
    turned = scene(24, 15)
    for turn in range(1, 9):
        exif = Image.Exif()
        exif[0x112] = turn
        out[f"turn{turn}.jpg"] = saved(turned, "JPEG", quality=80, exif=exif)
    return out


def gifs():
    out, ramp = {}, bytes(v for i in range(256) for v in (i, i, i))
    colours = noise(768).tobytes()
    flat = noise((12, 17))
    out["plain.gif"] = gif_screen((17, 12), colours) + gif_frame(flat) + b";"
    out["interlaced.gif"] = gif_screen((17, 12), colours) + gif_frame(flat, interlaced=True) + b";"
    out["ramp.gif"] = gif_screen((17, 12), ramp) + gif_frame(flat) + b";"
    out["no_palette.gif"] = gif_screen((17, 12)) + gif_frame(flat) + b";"
    out["local.gif"] = gif_screen((17, 12), ramp) + gif_frame(flat, palette=colours) + b";"
    out["offset.gif"] = gif_screen((30, 25), colours) + gif_frame(flat, at=(5, 7)) + b";"
    out["offset_clear.gif"] = gif_screen((30, 25), colours) + gif_frame(flat, at=(5, 7), transparent=9) + b";"
    out["over_screen.gif"] = gif_screen((10, 10), colours) + gif_frame(flat, at=(4, 3)) + b";"
    out["animated.gif"] = gif_screen((17, 12), colours) + gif_frame(flat) + gif_frame(noise((12, 17)), transparent=3) + b";"
    out["small_palette.gif"] = gif_screen((9, 9), colours[:12]) + gif_frame(noise((9, 9), 4), bits=2) + b";"
    out["beyond_palette.gif"] = gif_screen((9, 9), colours[:12]) + gif_frame(noise((9, 9), 16), bits=4) + b";"
    out["no_trailer.gif"] = gif_screen((17, 12), colours) + gif_frame(flat)
    out["scene.gif"] = saved(scene(90, 60).convert("P", palette=Image.Palette.ADAPTIVE), "GIF")
    return out


def webps():
    im, clear = scene(75, 50), scene(41, 33).convert("RGBA")
    clear.putalpha(Image.fromarray(noise((33, 41))))
    out = {
        "lossy.webp": saved(im, "WEBP", quality=70),
        "lossy_low.webp": saved(scene(64, 48), "WEBP", quality=5),
        "lossless.webp": saved(im.resize((40, 30)), "WEBP", lossless=True),
        "lossy_alpha.webp": saved(clear, "WEBP", quality=60),
        "lossless_alpha.webp": saved(clear, "WEBP", lossless=True, exact=True),
        "tiny_1x1.webp": saved(scene(1, 1), "WEBP"),
        "tall_3x200.webp": saved(scene(3, 200), "WEBP", quality=80),
        "lossless_palette.webp": saved(
            scene(33, 20).convert("P", palette=Image.Palette.ADAPTIVE, colors=6).convert("RGB"), "WEBP", lossless=True
        ),
    }
    frames = [scene(40, 30) for _ in range(3)]
    out["animated.webp"] = saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], quality=60)
    out["animated_alpha.webp"] = saved(clear, "WEBP", save_all=True, append_images=[clear.transpose(0)], lossless=True)
    return out


def bmps():
    out = {}
    quads = lambda n: b"".join(noise(3).tobytes() + b"\0" for _ in range(n))
    grays = b"".join(bytes((i, i, i, 0)) for i in range(256))
    out["index1.bmp"] = bmp(bmp_rows(noise((7, 13), 2), 1), 1, (13, 7), quads(2))
    out["bilevel.bmp"] = bmp(bmp_rows(noise((7, 13), 2), 1), 1, (13, 7), b"\0\0\0\0\xff\xff\xff\0")
    out["index4.bmp"] = bmp(bmp_rows(noise((7, 13), 16), 4), 4, (13, 7), quads(16))
    out["index8.bmp"] = bmp(bmp_rows(noise((7, 13)), 8), 8, (13, 7), quads(256))
    out["index8_few.bmp"] = bmp(bmp_rows(noise((7, 13), 20), 8), 8, (13, 7), quads(20), colours=20)
    out["gray8.bmp"] = bmp(bmp_rows(noise((7, 13)), 8), 8, (13, 7), grays)
    out["rgb555.bmp"] = bmp(bmp_rows(noise((7, 13), 65536, np.uint16), 16), 16, (13, 7))
    out["rgb24.bmp"] = bmp(bmp_rows(noise((7, 13, 3)), 24), 24, (13, 7))
    out["rgb24_down.bmp"] = bmp(bmp_rows(noise((7, 13, 3)), 24), 24, (13, -7))
    out["rgb32.bmp"] = bmp(bmp_rows(noise((7, 13, 4)), 32), 32, (13, 7))
    masks = lambda *m: struct.pack(f"<{len(m)}I", *m)
    out["rgb565.bmp"] = bmp(
        bmp_rows(noise((7, 13), 65536, np.uint16), 16), 16, (13, 7), compression=3, masks=masks(0xF800, 0x7E0, 0x1F)
    )
    for i, m in enumerate(
        [
            (0xFF0000, 0xFF00, 0xFF, 0xFF000000),
            (0xFF, 0xFF00, 0xFF0000, 0xFF000000),
            (0xFF000000, 0xFF0000, 0xFF00, 0xFF),
            (0xFF000000, 0xFF0000, 0xFF00, 0),
            (0, 0, 0, 0),
        ]
    ):
        out[f"fields32_{i}.bmp"] = bmp(bmp_rows(noise((7, 13, 4)), 32), 32, (13, 7), compression=3, header=108, masks=masks(*m))
    out["os2.bmp"] = bmp(bmp_rows(noise((7, 13), 16), 4), 4, (13, 7), noise(48).tobytes(), header=12)
    out["os2_24.bmp"] = bmp(bmp_rows(noise((7, 13, 3)), 24), 24, (13, 7), header=12)
    for w in range(1, 12):  # rows shorter than what the vector code reads at once
        out[f"tiny_{w}x3.bmp"] = bmp(bmp_rows(noise((3, w, 3)), 24), 24, (w, 3))
    # 6 x 3: a run, a literal with padding, a jump, ends of rows.
    rle8 = b"\4\7\2\3\0\0" + b"\0\5\1\2\3\4\5\0\1\x09\0\0" + b"\0\2\2\0\4\6\0\1"
    out["rle8.bmp"] = bmp(rle8, 8, (6, 3), quads(256), compression=1)
    rle4 = b"\6\x12\0\0" + b"\0\4\x12\x34\2\x56\0\0" + b"\6\x77\0\1"
    out["rle4.bmp"] = bmp(rle4, 4, (6, 3), quads(16), compression=2)
    return out


def all_pictures():
    return {**pngs(), **jpegs(), **gifs(), **webps(), **bmps()}
