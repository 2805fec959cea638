"""Pictures that are transparent, lie on their side, or both, in every format that can say so."""

import struct

import numpy as np
from PIL import Image

from .formats import chunk, png
from .pictures import noise, saved, scene, seeded

XMP = '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF><rdf:Description tiff:Orientation="{}"/></rdf:RDF></x:xmpmeta>'


def exif_of(turn):
    exif = Image.Exif()
    exif[0x112] = turn
    return exif


def long_exif(turn):
    """The tag as a LONG, in big-endian order."""
    return b"Exif\0\0MM\0*" + struct.pack(">IHHHII", 8, 1, 0x112, 4, 1, turn) + b"\0\0\0\0"


def all_upright():
    with seeded(20261127):
        return made()


def made():
    out = {}
    page = scene(26, 17)
    clear = Image.fromarray(np.dstack([np.asarray(page), noise((17, 26))]), "RGBA")
    opaque = Image.fromarray(np.dstack([np.asarray(page), np.full((17, 26), 255, np.uint8)]), "RGBA")
    ink = np.zeros((17, 26, 4), np.uint8)  # black on a transparent ground whose colour is black, too
    ink[4:12, 3:20, 3] = noise((8, 17))
    out["ink_clear.png"] = saved(Image.fromarray(ink, "RGBA"), "PNG")
    out["opaque_alpha.png"] = saved(opaque, "PNG")
    out["opaque_gray_alpha.png"] = saved(opaque.convert("LA"), "PNG")
    for turn in (2, 5, 6, 7):
        out[f"turn{turn}_clear.png"] = saved(clear, "PNG", exif=exif_of(turn))
        out[f"turn{turn}_opaque.png"] = saved(opaque, "PNG", exif=exif_of(turn))
        out[f"turn{turn}_clear.webp"] = saved(clear, "WEBP", lossless=True, exact=True, exif=exif_of(turn))
        out[f"turn{turn}_opaque.webp"] = saved(page, "WEBP", lossless=True, exif=exif_of(turn))
    for mode in ("1", "L", "LA", "I;16"):
        im = Image.fromarray(noise((17, 26), 600, np.uint16)) if mode == "I;16" else opaque.convert(mode)
        out[f"turn6_{mode.replace(';', '').lower()}.png"] = saved(im, "PNG", exif=exif_of(6))
    turned = chunk(b"eXIf", exif_of(8).tobytes()[6:])
    clear_palette = chunk(b"PLTE", noise(3 * 16).tobytes()) + chunk(b"tRNS", bytes(range(0, 256, 16)))
    out["turn8_palette_trns.png"] = png(noise((8, 11), 16), 8, 3, False, clear_palette + turned)
    out["turn8_rgb_trns.png"] = png(noise((8, 11, 3)), 8, 2, False, chunk(b"tRNS", b"\0\1\0\2\0\3") + turned)
    out["turn6_cmyk.jpg"] = saved(page.convert("CMYK"), "JPEG", exif=exif_of(6))
    out["turn6_gray.jpg"] = saved(page.convert("L"), "JPEG", exif=exif_of(6))
    out["turn6_long.jpg"] = saved(page, "JPEG", exif=long_exif(6))
    out["turn9.jpg"] = saved(page, "JPEG", exif=exif_of(9), xmp=XMP.format(6).encode())
    out["turn6_xmp.jpg"] = saved(page, "JPEG", xmp=XMP.format(6).encode())
    out["turn8_xmp.webp"] = saved(page, "WEBP", lossless=True, xmp=XMP.format(8).encode())
    text = b"XML:com.adobe.xmp\0\0\0\0\0" + XMP.format(3).encode()
    out["turn3_xmp.png"] = png(noise((8, 11, 3)), 8, 2, False, chunk(b"iTXt", text))
    out["clear.gif"] = saved(Image.fromarray(noise((9, 14), 20), "P"), "GIF", transparency=3)
    return out
