"""TIFFs: what Pillow writes, in every compression, and what it only reads, written by hand."""

import struct

import numpy as np
from PIL import Image

from .pictures import noise, saved, scene, seeded

TYPES = {"B": 1, "H": 3, "I": 4, "Q": 16}


def tiff(tags, chunks, order="<", big=False, tiles=False):
    """A file with one directory. tags: {number: (type letter, values)}; chunks: strips or tiles, in the file's order."""
    head = (b"II" if order == "<" else b"MM") + struct.pack(
        order + ("HHHQ" if big else "HI"), *((43, 8, 0, 16) if big else (42, 8))
    )
    width, field = (8, "Q") if big else (4, "I")
    size = lambda count: (8 if big else 2) + count * (20 if big else 12) + width
    tags = dict(tags)
    tags[324 if tiles else 273] = (field, [0] * len(chunks))
    tags[325 if tiles else 279] = (field, [len(c) for c in chunks])
    at = len(head) + size(len(tags))
    outside = b""
    packed = lambda kind, values: struct.pack(order + kind * len(values), *values)
    for kind, values in tags.values():
        if len(packed(kind, values)) > width:
            outside += packed(kind, values)
    start = at + len(outside)
    offsets, pixels = [], b""
    for c in chunks:
        offsets.append(start + len(pixels))
        pixels += c
    tags[324 if tiles else 273] = (field, offsets)
    entries, outside = b"", b""
    for number, (kind, values) in sorted(tags.items()):
        data = packed(kind, values)
        if len(data) > width:
            place = struct.pack(order + field, at + len(outside))
            outside += data
        else:
            place = data.ljust(width, b"\0")
        entries += struct.pack(order + "HH" + field, number, TYPES[kind], len(values)) + place
    return head + struct.pack(order + ("Q" if big else "H"), len(tags)) + entries + b"\0" * width + outside + pixels


def plain(samples, photometric, bits=8, order="<", extra=(), tags=None, rows=5, **options):
    """Uncompressed strips of `rows` rows. samples: [h, w] or [h, w, n]."""
    h, w = samples.shape[:2]
    n = samples.shape[2] if samples.ndim == 3 else 1
    if bits < 8:
        pad = -w % (8 // bits)
        flat = np.pad(samples, ((0, 0), (0, pad))).reshape(h, -1, 8 // bits)
        data = sum(flat[..., i].astype(np.uint8) << (8 - bits * (i + 1)) for i in range(8 // bits)).astype(np.uint8)
    else:
        data = samples.astype(order + ("u2" if bits == 16 else "u1"))
    strips = [np.ascontiguousarray(data[y : y + rows]).tobytes() for y in range(0, h, rows)]
    all_tags = {
        256: ("I", [w]),
        257: ("I", [h]),
        258: ("H", [bits] * n),
        259: ("H", [1]),
        262: ("H", [photometric]),
        277: ("H", [n]),
        278: ("I", [rows]),
        284: ("H", [1]),
    }
    if extra:
        all_tags[338] = ("H", list(extra))
    all_tags.update(tags or {})
    return tiff(all_tags, strips, order, **options)


def colour_map(bits):
    return {320: ("H", [int(v) for v in noise(3 << bits, 65536, np.uint16)])}


def by_pillow():
    out, page = {}, scene(61, 43)
    ink = page.convert("L").point(lambda v: 255 * (v > 140)).convert("1")
    for name, kind in (
        ("raw", "raw"),
        ("lzw", "tiff_lzw"),
        ("deflate", "tiff_adobe_deflate"),
        ("old_deflate", "tiff_deflate"),
        ("packbits", "packbits"),
        ("jpeg", "jpeg"),
    ):
        out[f"rgb_{name}.tif"] = saved(page, "TIFF", compression=kind)
    for name, kind in (("rle", "tiff_ccitt"), ("g3", "group3"), ("g4", "group4"), ("raw", "raw")):
        out[f"ink_{name}.tif"] = saved(ink, "TIFF", compression=kind)
    out["ink_white.tif"] = saved(ink, "TIFF", compression="group4", tiffinfo={262: 0})
    out["lzw_predictor.tif"] = saved(page, "TIFF", compression="tiff_lzw", tiffinfo={317: 2})
    out["many_strips.tif"] = saved(page, "TIFF", compression="tiff_lzw", tiffinfo={278: 4}, strip_size=61 * 3 * 4)
    out["gray_jpeg.tif"] = saved(page.convert("L"), "TIFF", compression="jpeg")
    out["cmyk_jpeg.tif"] = saved(page.convert("CMYK"), "TIFF", compression="jpeg")
    out["palette_lzw.tif"] = saved(page.convert("P", palette=Image.Palette.ADAPTIVE), "TIFF", compression="tiff_lzw")
    out["pages.tif"] = saved(page.crop((0, 0, 20, 10)), "TIFF", save_all=True, append_images=[page.crop((5, 5, 30, 40))])
    out["big.tif"] = saved(page.crop((0, 0, 20, 10)), "TIFF", big_tiff=True)
    rgba = Image.fromarray(noise((9, 14, 4)), "RGBA")
    out["rgba_lzw.tif"] = saved(rgba, "TIFF", compression="tiff_lzw")
    return out


def in_planes():
    planes = noise((3, 9, 14))
    tags = {
        256: ("I", [14]),
        257: ("I", [9]),
        258: ("H", [8] * 3),
        259: ("H", [1]),
        262: ("H", [2]),
        277: ("H", [3]),
        278: ("I", [9]),
        284: ("H", [2]),
    }
    return tiff(tags, [p.tobytes() for p in planes])


def in_tiles():
    tiles = np.pad(noise((37, 45, 3)), ((0, 11), (0, 3), (0, 0)))
    tags = {
        256: ("I", [45]),
        257: ("I", [37]),
        258: ("H", [8] * 3),
        259: ("H", [1]),
        262: ("H", [2]),
        277: ("H", [3]),
        284: ("H", [1]),
        322: ("I", [16]),
        323: ("I", [16]),
    }
    return tiff(
        tags,
        [np.ascontiguousarray(tiles[y : y + 16, x : x + 16]).tobytes() for y in range(0, 48, 16) for x in range(0, 48, 16)],
        tiles=True,
    )


def by_hand():
    out = {}
    for order, tag in (("<", ""), (">", "_mm")):
        for bits in (1, 2, 4, 8):
            out[f"gray{bits}{tag}.tif"] = plain(noise((13, 19), 1 << bits), 1, bits, order)
            out[f"white{bits}{tag}.tif"] = plain(noise((13, 19), 1 << bits), 0, bits, order)
            out[f"palette{bits}{tag}.tif"] = plain(noise((11, 21), 1 << bits), 3, bits, order, tags=colour_map(bits))
        out[f"gray16{tag}.tif"] = plain(noise((13, 19), 65536, np.uint16) // 100, 1, 16, order)
        out[f"rgb16{tag}.tif"] = plain(noise((9, 14, 3), 65536, np.uint16), 2, 16, order)
        out[f"rgba16{tag}.tif"] = plain(noise((9, 14, 4), 65536, np.uint16), 2, 16, order, (2,))
        out[f"cmyk16{tag}.tif"] = plain(noise((9, 14, 4), 65536, np.uint16), 5, 16, order)
    out["white16.tif"] = plain(noise((13, 19), 65536, np.uint16) // 100, 0, 16)
    out["gray_alpha.tif"] = plain(noise((9, 14, 2)), 1, extra=(2,))
    out["palette_alpha.tif"] = plain(noise((9, 14, 2)), 3, extra=(2,), tags=colour_map(8))
    out["palette_more.tif"] = plain(noise((9, 14, 2)), 3, extra=(0,), tags=colour_map(8))
    out["cmyk.tif"] = plain(noise((9, 14, 4)), 5)
    out["cmyk_more.tif"] = plain(noise((9, 14, 5)), 5, extra=(0,))
    out["rgba_unnamed.tif"] = plain(noise((9, 14, 4)), 2)
    for name, extra in (
        ("more", (0,)),
        ("multiplied", (1,)),
        ("alpha", (2,)),
        ("corel", (999,)),
        ("alpha_more", (2, 0)),
        ("multiplied_more", (1, 0, 0)),
        ("two_more", (0, 0)),
    ):
        out[f"rgb_{name}.tif"] = plain(noise((9, 14, 3 + len(extra))), 2, extra=extra)
    out["multiplied16.tif"] = plain(noise((9, 14, 4), 65536, np.uint16), 2, 16, extra=(1,))
    out["fill_order.tif"] = plain(noise((13, 19), 2), 1, 1, tags={266: ("H", [2])})
    out["bigtiff.tif"] = plain(noise((9, 14, 3)), 2, big=True)
    out["planes.tif"] = in_planes()
    out["tiles.tif"] = in_tiles()
    for turn in (1, 3, 6, 8):
        out[f"turn{turn}.tif"] = plain(noise((9, 14, 3)), 2, tags={274: ("H", [turn])})
        out[f"turn{turn}_alpha.tif"] = plain(noise((9, 14, 4)), 2, extra=(2,), tags={274: ("H", [turn])})
    return out


def all_tiffs():
    with seeded(20261126):
        return {**by_pillow(), **by_hand()}
