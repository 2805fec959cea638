"""Files that must end in a fixed error, or decode, and disturb nobody. Each with its expected outcome:
ok, corrupt, too_large or unsupported."""

import struct
import zlib

import numpy as np

from .formats import bmp, bmp_rows, chunk, gif_frame, gif_screen, lzw_literal, png, sub_blocks
from .pictures import noise, saved, scene, seeded
from .tiffs import plain, tiff


def segments(jpeg):
    """(marker, start, end) of the segments up to the scan's data."""
    at, out = 2, []
    while at < len(jpeg):
        marker, size = jpeg[at + 1], struct.unpack(">H", jpeg[at + 2 : at + 4])[0]
        out.append((marker, at, at + 2 + size))
        at += 2 + size
        if marker == 0xDA:
            return out


def put(data, at, what):
    return data[:at] + what + data[at + len(what) :]


def jpeg_cases():
    base = saved(scene(40, 32), "JPEG", quality=70)
    parts = segments(base)
    where = {}
    for marker, start, end in parts:
        where.setdefault(marker, (start, end))
    sof, dht, dqt, sos = where[0xC0], where[0xC4], where[0xDB], where[0xDA]
    yield "jpeg_signature_only.jpg", base[:3], "corrupt"
    for name, (start, end) in (("app0", where[0xE0]), ("dqt", dqt), ("sof", sof), ("dht", dht), ("sos", sos)):
        yield f"jpeg_cut_before_{name}.jpg", base[:start], "corrupt" if start > 2 else "unsupported"
        yield f"jpeg_cut_in_{name}_length.jpg", base[: start + 3], "corrupt"
        yield f"jpeg_cut_in_{name}.jpg", base[: (start + end) // 2], "corrupt"
    yield "jpeg_cut_after_sos.jpg", base[: sos[1]], "corrupt"
    yield "jpeg_cut_in_data.jpg", base[: (sos[1] + len(base)) // 2], "corrupt"
    yield "jpeg_no_end.jpg", base[:-2], "corrupt"
    yield "jpeg_0xN.jpg", put(base, sof[0] + 7, b"\0\0"), "corrupt"
    yield "jpeg_Nx0.jpg", put(base, sof[0] + 5, b"\0\0"), "corrupt"
    yield "jpeg_65535x65535.jpg", put(base, sof[0] + 5, b"\xff\xff\xff\xff"), "corrupt"
    yield "jpeg_60000x60000.jpg", put(base, sof[0] + 5, struct.pack(">HH", 60000, 60000)), "too_large"
    yield "jpeg_says_taller.jpg", put(base, sof[0] + 5, struct.pack(">H", 3000)), "ok"
    yield "jpeg_says_smaller.jpg", put(base, sof[0] + 5, struct.pack(">HH", 8, 8)), "ok"
    yield "jpeg_12_bit.jpg", put(base, sof[0] + 4, b"\x0c"), "corrupt"
    yield "jpeg_sampling_0.jpg", put(base, sof[0] + 11, b"\0"), "corrupt"
    yield "jpeg_sampling_5x5.jpg", put(base, sof[0] + 11, b"\x55"), "corrupt"
    yield "jpeg_lossless.jpg", put(base, sof[0] + 1, b"\xc3"), "corrupt"
    yield "jpeg_two_frames.jpg", base[: sof[1]] + base[sof[0] : sof[1]] + base[sof[1] :], "corrupt"
    yield "jpeg_no_quantisation.jpg", base[: dqt[0]] + base[sof[0] :], "corrupt"
    yield "jpeg_bad_huffman.jpg", put(base, dht[0] + 5, b"\xff" * 16), "corrupt"
    yield "jpeg_segment_length_0.jpg", put(base, where[0xE0][0] + 2, b"\0\0"), "ok"
    gray = saved(scene(16, 16).convert("L"), "JPEG")
    _, start, end = next(p for p in segments(gray) if p[0] == 0xC0)
    two = gray[:end] + b"\2\x11\0" + gray[end:]
    two = put(put(two, start + 2, b"\0\x0e"), start + 9, b"\2")
    yield "jpeg_two_components.jpg", two, "unsupported"
    flips = bytearray(base)
    for i in range(sos[1] + 20, len(base) - 2, 17):
        flips[i] = flips[i] ^ 0x55 if flips[i] != 0xFF and flips[i] ^ 0x55 != 0xFF else flips[i]
    yield "jpeg_noise_in_data.jpg", bytes(flips), "ok"
    yield "jpeg_trailing_html.jpg", base + b"<script>alert(1)</script>" * 20, "ok"
    progressive = saved(scene(24, 24), "JPEG", quality=60, progressive=True)
    at = progressive.rindex(b"\xff\xda")
    yield "jpeg_300_scans.jpg", progressive[:at] + progressive[at:-2] * 300 + b"\xff\xd9", "too_large"
    yield "jpeg_progressive_cut.jpg", progressive[: len(progressive) // 2], "corrupt"


def png_cases():
    base = png(noise((12, 15, 3)), 8, 2)
    idat = base.index(b"IDAT")
    for name, at in (
        ("signature", 8),
        ("length", 11),
        ("name", 14),
        ("width", 18),
        ("height", 22),
        ("depth", 25),
        ("crc", 31),
        ("idat_length", idat - 1),
        ("idat", idat + 40),
    ):
        yield f"png_cut_in_{name}.png", base[:at], "corrupt"
    yield "png_0xN.png", png(noise((4, 4, 3)), 8, 2, size=(0, 4)), "corrupt"
    yield "png_Nx0.png", png(noise((4, 4, 3)), 8, 2, size=(4, 0)), "corrupt"
    yield "png_60000x60000.png", png(noise((4, 4, 3)), 8, 2, size=(60000, 60000)), "too_large"
    yield "png_2147483647.png", png(noise((4, 4, 3)), 8, 2, size=(2**31 - 1, 2**31 - 1)), "too_large"
    yield "png_1x100000.png", png(noise((4, 1, 3)), 8, 2, size=(1, 100000)), "too_large"
    yield "png_says_taller.png", png(noise((4, 4, 3)), 8, 2, size=(4, 9000)), "corrupt"
    yield "png_says_smaller.png", png(noise((9, 9, 3)), 8, 2, size=(9, 3)), "ok"
    yield "png_bad_header_crc.png", put(base, 29, b"\0\0\0\0"), "corrupt"
    yield (
        "png_depth_3.png",
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 3, 0, 0, 0, 0)) + base[33:],
        "corrupt",
    )
    yield (
        "png_colour_5.png",
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 5, 0, 0, 0)) + base[33:],
        "corrupt",
    )
    yield "png_no_idat.png", base[:33] + chunk(b"IEND", b""), "corrupt"
    yield "png_first_chunk_wrong.png", base[:8] + chunk(b"tEXt", b"a\0b" * 5) + base[8:], "corrupt"
    yield "png_no_palette.png", png(noise((4, 4), 4), 8, 3), "corrupt"
    yield "png_bad_zlib.png", base[:33] + chunk(b"IDAT", b"\x78\x9c" + b"\xff" * 40) + chunk(b"IEND", b""), "corrupt"
    yield (
        "png_bad_filter.png",
        base[:33] + chunk(b"IDAT", zlib.compress(b"\x09" + b"\0" * 45 + (b"\0" * 46) * 11)) + chunk(b"IEND", b""),
        "corrupt",
    )
    bomb = chunk(b"zTXt", b"a\0\0" + zlib.compress(b"\0" * (4 << 20), 9)) + chunk(
        b"iCCP", b"a\0\0" + zlib.compress(b"\0" * (4 << 20), 9)
    )
    yield "png_text_bomb.png", base[:33] + bomb + base[33:], "ok"
    yield (
        "png_idat_bomb.png",
        png(np.zeros((4, 4), np.uint8), 8, 0)[:33] + chunk(b"IDAT", zlib.compress(b"\0" * (8 << 20), 9)),
        "ok",
    )
    yield "png_1000_empty_chunks.png", base[:33] + chunk(b"teSt", b"") * 1000 + base[33:], "ok"
    yield "png_chunk_length_lies.png", base[:33] + struct.pack(">I", 0x7FFFFFFF) + base[37:], "corrupt"
    yield "png_then_zip.png", base + b"PK\3\4" + b"\0" * 64, "ok"


def gif_cases():
    colours, flat = noise(768).tobytes(), noise((12, 17))
    screen = gif_screen((17, 12), colours)
    whole = screen + gif_frame(flat) + b";"
    for name, at in (
        ("version", 5),
        ("screen", 9),
        ("palette", 200),
        ("before_frame", 781),
        ("descriptor", 786),
        ("code_size", 791),
        ("pixels", 860),
    ):
        yield f"gif_cut_in_{name}.gif", whole[:at], "corrupt" if at > 5 else "unsupported"
    yield "gif_trailer_only.gif", screen + b";", "corrupt"
    yield "gif_0xN_frame.gif", screen + gif_frame(flat, size=(0, 12)) + b";", "corrupt"
    yield "gif_screen_65535.gif", gif_screen((65535, 65535), colours) + gif_frame(flat) + b";", "too_large"
    yield "gif_frame_far_out.gif", screen + gif_frame(flat, at=(65535, 65535)) + b";", "too_large"
    yield "gif_screen_0x0.gif", gif_screen((0, 0), colours) + gif_frame(flat) + b";", "ok"
    yield "gif_says_taller.gif", screen + gif_frame(flat, size=(17, 900)) + b";", "corrupt"
    yield (
        "gif_code_size_13.gif",
        screen + b"," + struct.pack("<HHHHB", 0, 0, 17, 12, 0) + b"\x0d" + sub_blocks(b"\0" * 99),
        "corrupt",
    )
    yield "gif_bad_code.gif", screen + gif_frame(flat, data=b"\xff" * 90) + b";", "corrupt"
    early = lzw_literal(flat.ravel()[:20], 8)
    yield "gif_ends_early.gif", screen + gif_frame(flat, data=early) + b";", "corrupt"
    yield "gif_1000_frames.gif", whole[:-1] + gif_frame(noise((1, 1)), bits=8) * 1000, "ok"
    yield "gif_endless_extensions.gif", screen + b"!\xfe\3abc\0" * 1000, "corrupt"
    yield "gif_png_inside.gif", b"GIF89a" + png(noise((4, 4, 3)), 8, 2), "corrupt"


def riff(*chunks):
    body = b"WEBP" + b"".join(n + struct.pack("<I", len(d)) + d + b"\0" * (len(d) % 2) for n, d in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_cases():
    lossy, lossless = saved(scene(30, 20), "WEBP", quality=60), saved(scene(30, 20), "WEBP", lossless=True)
    yield "webp_signature_only.webp", lossy[:12], "corrupt"
    for name, data in (("lossy", lossy), ("lossless", lossless)):
        yield f"webp_{name}_cut_in_chunk_header.webp", data[:18], "corrupt"
        yield f"webp_{name}_cut_in_frame_header.webp", data[:23], "corrupt"
        yield f"webp_{name}_cut_in_data.webp", data[: len(data) // 2], "corrupt"
    yield "webp_riff_size_lies.webp", put(lossy, 4, struct.pack("<I", 0x7FFFFFF0)), "corrupt"
    yield "webp_chunk_size_lies.webp", put(lossy, 16, struct.pack("<I", 0x7FFFFFF0)), "corrupt"
    yield "webp_0xN.webp", put(lossy, 26, b"\0\0"), "corrupt"
    canvas = b"\x02\0\0\0" + (16383).to_bytes(3, "little") * 2
    yield "webp_canvas_16384.webp", riff((b"VP8X", canvas), (b"ANIM", b"\0" * 6)), "too_large"
    yield "webp_no_frame.webp", riff((b"VP8X", b"\x10\0\0\0" + b"\x0f\0\0" * 2)), "corrupt"
    yield "webp_bad_lossless.webp", riff((b"VP8L", b"\x2f" + b"\xff\xc3\x0f\x00" + b"\xff" * 50)), "corrupt"
    small = saved(scene(1, 1), "WEBP", lossless=True)[12:]
    frame = b"\0" * 12 + (100).to_bytes(3, "little") + b"\0"
    head = b"\x02\0\0\0" + b"\0" * 6
    many = [(b"ANMF", frame + small)] * 1001
    yield "webp_1001_frames.webp", riff((b"VP8X", head), (b"ANIM", b"\0" * 6), *many), "too_large"
    yield (
        "webp_frame_outside.webp",
        riff((b"VP8X", head), (b"ANIM", b"\0" * 6), (b"ANMF", b"\x40" + frame[1:] + small)),
        "corrupt",
    )


def bmp_cases():
    rows = bmp_rows(noise((6, 7, 3)), 24)
    base = bmp(rows, 24, (7, 6))
    for name, at in (("file_header", 10), ("offset", 13), ("size", 16), ("width", 20), ("masks", 50), ("pixels", 90)):
        yield f"bmp_cut_in_{name}.bmp", base[:at], "corrupt"
    yield "bmp_0xN.bmp", bmp(rows, 24, (0, 6)), "corrupt"
    yield "bmp_Nx0.bmp", bmp(rows, 24, (7, 0)), "corrupt"
    yield "bmp_2147483647.bmp", bmp(rows, 24, (2**31 - 1, 2**31 - 1)), "too_large"
    yield "bmp_most_negative.bmp", bmp(rows, 24, (7, -(2**31))), "too_large"
    yield "bmp_says_taller.bmp", bmp(rows, 24, (7, 60)), "corrupt"
    yield "bmp_3_bits.bmp", bmp(rows, 3, (7, 6)), "unsupported"
    yield "bmp_jpeg_inside.bmp", bmp(rows, 24, (7, 6), compression=4), "unsupported"
    yield "bmp_header_41.bmp", put(base, 14, b"\x29"), "unsupported"
    yield "bmp_odd_masks.bmp", bmp(rows, 32, (3, 2), compression=3, masks=struct.pack("<III", 1, 2, 4)), "unsupported"
    yield "bmp_palette_missing.bmp", bmp(b"", 8, (7, 6), b"\0" * 40), "corrupt"
    yield "bmp_palette_huge.bmp", bmp(b"\0" * 99, 8, (7, 6), colours=2**31), "unsupported"
    yield "bmp_offset_outside.bmp", bmp(rows, 24, (7, 6), offset=2**31), "corrupt"
    quads = noise(1024).tobytes()
    yield "bmp_rle_runs_over.bmp", bmp(b"\xff\1\0\0\xff\2\0\0\xff\3\0\1", 8, (6, 3), quads, compression=1), "ok"
    yield "bmp_rle_ends_early.bmp", bmp(b"\4\1\0\1", 8, (6, 3), quads, compression=1), "corrupt"
    yield "bmp_rle_cut.bmp", bmp(b"\0\5\1\2", 8, (6, 3), quads, compression=1), "corrupt"
    yield "bmp_rle_jumps_out.bmp", bmp(b"\0\2\xff\xff\4\1", 8, (6, 3), quads, compression=1), "ok"


def other_cases():
    yield "empty", b"", "unsupported"
    yield "one_byte", b"\xff", "unsupported"
    yield "bm_only", b"BM", "corrupt"
    yield "text.png", b"this is no picture\n" * 20, "unsupported"
    yield "vector.svg", b'<svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>', "unsupported"
    yield "page.pdf", b"%PDF-1.7\n" + saved(scene(8, 8), "JPEG"), "unsupported"
    yield "riff_wave.webp", b"RIFF\x24\0\0\0WAVEfmt " + b"\0" * 40, "unsupported"
    yield "tiff.tif", saved(scene(8, 8), "TIFF"), "ok"
    yield "png_named_jpg.jpg", png(noise((1, 1, 3)), 8, 2), "ok"
    yield "one_pixel.gif", gif_screen((1, 1), noise(768).tobytes()) + gif_frame(noise((1, 1))) + b";", "ok"


def without(data, tag):
    """The TIFF with one tag renamed to one that nobody knows."""
    at = 10
    for i in range(struct.unpack("<H", data[8:10])[0]):
        if struct.unpack("<H", data[at + 12 * i : at + 12 * i + 2])[0] == tag:
            return put(data, at + 12 * i, struct.pack("<H", 65000))
    raise ValueError(tag)


def tiff_cases():
    page = noise((37, 45, 3))
    base = plain(page, 2, rows=8)
    yield "tiff_header_only.tif", base[:8], "corrupt"
    yield "tiff_cut_in_directory.tif", base[:60], "corrupt"
    yield "tiff_cut_in_pixels.tif", base[:-200], "corrupt"
    yield "tiff_directory_outside.tif", put(base, 4, struct.pack("<I", 0x7FFFFFF0)), "corrupt"
    yield "tiff_no_width.tif", without(base, 256), "corrupt"
    yield "tiff_no_places.tif", without(base, 273), "corrupt"
    yield "tiff_60000x60000.tif", plain(page, 2, tags={256: ("I", [60000]), 257: ("I", [60000])}), "too_large"
    yield "tiff_0xN.tif", plain(page, 2, tags={256: ("I", [0])}), "corrupt"
    yield "tiff_4294967295.tif", plain(page, 2, tags={256: ("I", [4294967295])}), "too_large"
    yield "tiff_no_rows_per_strip.tif", plain(page, 2, tags={278: ("I", [0])}), "corrupt"
    yield "tiff_offset_outside.tif", plain(page, 2, rows=37, tags={}).replace(page.tobytes(), page.tobytes()[:300]), "corrupt"
    yield "tiff_200_bits.tif", plain(page, 2, tags={258: ("H", [200] * 3)}), "unsupported"
    yield "tiff_mixed_bits.tif", plain(page, 2, tags={258: ("H", [8, 16, 8])}), "unsupported"
    yield "tiff_60000_samples.tif", plain(page, 2, tags={277: ("H", [60000])}), "unsupported"
    yield "tiff_palette_missing.tif", plain(noise((9, 9)), 3), "corrupt"
    yield "tiff_lab.tif", plain(page, 8), "unsupported"
    yield "tiff_float.tif", plain(noise((9, 9)), 1, tags={339: ("H", [3])}), "unsupported"
    yield "tiff_webp_inside.tif", plain(page, 2, tags={259: ("H", [50001])}), "unsupported"
    yield "tiff_old_jpeg.tif", plain(page, 6, tags={259: ("H", [6])}), "unsupported"
    yield "tiff_lzw_of_noise.tif", plain(page, 2, tags={259: ("H", [5])}), "corrupt"
    yield "tiff_deflate_of_noise.tif", plain(page, 2, tags={259: ("H", [8])}), "corrupt"
    yield "tiff_jpeg_of_noise.tif", plain(page, 2, tags={259: ("H", [7])}), "corrupt"
    bomb = zlib.compress(bytes(9 * 9), 9)
    one = {256: ("I", [9]), 257: ("I", [9]), 258: ("H", [8]), 259: ("H", [8]), 262: ("H", [1]), 277: ("H", [1])}
    yield "tiff_deflate_too_short.tif", tiff({**one, 278: ("I", [9])}, [zlib.compress(bytes(40), 9)]), "corrupt"
    yield "tiff_deflate_bomb.tif", tiff({**one, 278: ("I", [9])}, [zlib.compress(bytes(1 << 20), 9)]), "ok"
    tile = {322: ("I", [65535]), 323: ("I", [65535])}
    yield "tiff_tile_65535.tif", tiff({**one, **tile}, [bomb], tiles=True), "too_large"
    yield "tiff_tile_0.tif", tiff({**one, 322: ("I", [0]), 323: ("I", [16])}, [bomb], tiles=True), "corrupt"
    many = {256: ("I", [3000]), 257: ("I", [3000]), 322: ("I", [1]), 323: ("I", [1])}
    yield "tiff_9_million_tiles.tif", tiff({**one, **many}, [bomb], tiles=True), "unsupported"
    yield "jpeg2000.jp2", b"\0\0\0\x0cjP  \r\n\x87\n" + b"\0" * 40, "unsupported"
    yield "avif.avif", b"\0\0\0\x20ftypavif" + b"\0" * 40, "unsupported"
    yield "icon.ico", b"\0\0\1\0\1\0\x10\x10" + b"\0" * 40, "unsupported"
    yield "plain.ppm", b"P6\n2 2\n255\n" + b"abcdefghijkl", "unsupported"


def all_cases():
    for group in (jpeg_cases, png_cases, gif_cases, webp_cases, bmp_cases, other_cases):
        yield from group()
    with seeded(20261128):
        yield from tiff_cases()
