"""Small writers of picture files that Pillow does not write itself: every PNG variant, bitmaps, GIFs byte by byte."""

import struct
import zlib

import numpy as np

ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(name, data, crc=None):
    crc = zlib.crc32(name + data) if crc is None else crc
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", crc)


def pack_bits(samples, depth):
    """Rows of samples (uint8 or uint16, [h, w * channels]) to PNG's bytes."""
    if depth == 16:
        return samples.astype(">u2").view(np.uint8).reshape(samples.shape[0], -1)
    if depth == 8:
        return samples.astype(np.uint8)
    bits = (samples[..., None] >> np.arange(depth - 1, -1, -1)) & 1
    return np.packbits(bits.reshape(samples.shape[0], -1).astype(np.uint8), axis=1)


def filtered(rows, bpp, kinds):
    """PNG's filters, cycled through."""
    out, before = bytearray(), np.zeros(rows.shape[1], np.int32)
    for y, row in enumerate(rows.astype(np.int32)):
        kind = kinds[y % len(kinds)]
        left = np.concatenate([np.zeros(bpp, np.int32), row])[: len(row)]
        corner = np.concatenate([np.zeros(bpp, np.int32), before])[: len(row)]
        p = left + before - corner
        pa, pb, pc = abs(p - left), abs(p - before), abs(p - corner)
        paeth = np.where((pa <= pb) & (pa <= pc), left, np.where(pb <= pc, before, corner))
        guess = [0, left, before, (left + before) // 2, paeth][kind]
        out += bytes([kind]) + ((row - guess) & 255).astype(np.uint8).tobytes()
        before = row
    return bytes(out)


def png(samples, depth, colour, interlaced=False, extra=b"", kinds=(0, 1, 2, 3, 4), size=None, tail=None):
    """samples: [h, w] or [h, w, channels]; colour: PNG's colour type; size: the (w, h) that the header tells."""
    h, w = samples.shape[:2]
    channels = 1 if samples.ndim == 2 else samples.shape[2]
    bpp = max(1, channels * depth // 8)
    passes = ADAM7 if interlaced else [(0, 0, 1, 1)]
    raw = b""
    for x0, y0, dx, dy in passes:
        part = samples[y0::dy, x0::dx]
        if part.size:
            raw += filtered(pack_bits(part.reshape(part.shape[0], -1), depth), bpp, kinds)
    tw, th = size or (w, h)
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", tw, th, depth, colour, 0, 0, int(interlaced)))
    end = chunk(b"IEND", b"") if tail is None else tail
    return b"\x89PNG\r\n\x1a\n" + head + extra + chunk(b"IDAT", zlib.compress(raw, 9)) + end


def bmp(rows, bits, size, palette=b"", header=40, compression=0, masks=b"", colours=0, offset=None):
    """rows: the pixel bytes as they stand in the file; size: (w, h), h negative for top-down."""
    w, h = size
    if header == 12:
        info = struct.pack("<IHHHH", 12, w, h, 1, bits)
    else:
        info = struct.pack("<IiiHHIIiiII", 40, w, h, 1, bits, compression, len(rows), 2835, 2835, colours, 0)
        info = struct.pack("<I", header) + info[4:] + (masks if header > 40 else b"").ljust(header - 40, b"\0")
    after = masks if header == 40 else b""
    at = 14 + len(info) + len(after) + len(palette) if offset is None else offset
    body = info + after + palette + rows
    return b"BM" + struct.pack("<IHHI", 14 + len(body), 0, 0, at) + body


def bmp_rows(samples, bits):
    """[h, w] indices, uint16 pixels or [h, w, bytes], bottom-up with padding."""
    out = b""
    for row in samples[::-1]:
        if bits < 8:
            data = pack_bits(row[None], bits).tobytes()
        elif bits == 16:
            data = row.astype("<u2").tobytes()
        else:
            data = row.astype(np.uint8).tobytes()
        out += data.ljust((len(data) + 3) // 4 * 4, b"\0")
    return out


def lzw_literal(indices, bits):
    """GIF's LZW with a clear code often enough that the code size never grows."""
    clear, width = 1 << bits, bits + 1
    codes, room = [], (1 << bits) - 3
    for i, v in enumerate(indices):
        if i % max(room, 1) == 0:
            codes.append(clear)
        codes.append(int(v))
    codes.append(clear + 1)
    acc = n = 0
    out = bytearray()
    for c in codes:
        acc |= c << n
        n += width
        while n >= 8:
            out.append(acc & 255)
            acc >>= 8
            n -= 8
    if n:
        out.append(acc & 255)
    return bytes(out)


def sub_blocks(data):
    return b"".join(bytes([len(data[i : i + 255])]) + data[i : i + 255] for i in range(0, len(data), 255)) + b"\0"


def gif_screen(size, palette=None, version=b"GIF89a"):
    flags = 0 if palette is None else 0x80 | (len(palette) // 3).bit_length() - 2
    return version + struct.pack("<HHBBB", *size, flags, 0, 0) + (palette or b"")


def gif_frame(indices, at=(0, 0), palette=None, interlaced=False, transparent=None, bits=8, size=None, data=None):
    h, w = indices.shape
    if interlaced:
        indices = np.concatenate([indices[a::b] for a, b in ((0, 8), (4, 8), (2, 4), (1, 2))])
    flags = (0x40 if interlaced else 0) | (0 if palette is None else 0x80 | (len(palette) // 3).bit_length() - 2)
    control = b"" if transparent is None else b"!\xf9\x04\x01\x0a\0" + bytes([transparent]) + b"\0"
    tw, th = size or (w, h)
    body = lzw_literal(indices.ravel(), bits) if data is None else data
    return control + b"," + struct.pack("<HHHHB", *at, tw, th, flags) + (palette or b"") + bytes([bits]) + sub_blocks(body)
