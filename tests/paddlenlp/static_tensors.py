"""Tensors as safetensors have them, (type, shape, bytes), and the codes of Paddle's weight_quantize, without NumPy."""

import json
import math
import struct

SIZES = {"BF16": 2, "F16": 2, "F32": 4, "I8": 1, "F8_E4M3": 1}


def read_safetensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    at = 8 + length
    return {
        name: (t["dtype"], t["shape"], data[at + t["data_offsets"][0] : at + t["data_offsets"][1]]) for name, t in header.items()
    }


def rows_of(tensor, begin, end):
    kind, shape, data = tensor
    row = len(data) // shape[0]
    return kind, [end - begin, *shape[1:]], data[begin * row : end * row]


def columns_of(tensor, begin, end):
    kind, (rows, cols), data = tensor
    size = SIZES[kind]
    parts = [data[(r * cols + begin) * size : (r * cols + end) * size] for r in range(rows)]
    return kind, [rows, end - begin], b"".join(parts)


def below(*tensors):
    return tensors[0][0], [sum(t[1][0] for t in tensors), *tensors[0][1][1:]], b"".join(t[2] for t in tensors)


def transposed(tensor):
    kind, (rows, cols), data = tensor
    size = SIZES[kind]
    out = bytearray(len(data))
    for c in range(cols):  # byte by byte of an element, a column at a time
        for b in range(size):
            out[c * rows * size + b : (c + 1) * rows * size : size] = data[c * size + b :: cols * size]
    return kind, [cols, rows], bytes(out)


def stacked(tensors):
    return tensors[0][0], [len(tensors), *tensors[0][1]], b"".join(t[2] for t in tensors)


def floats(tensor):
    kind, _, data = tensor
    if kind == "BF16":
        return list(struct.unpack(f"<{len(data) // 2}f", b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))))
    return list(struct.unpack(f"<{len(data) // SIZES[kind]}{'e' if kind == 'F16' else 'f'}", data))


def from_floats(kind, shape, values):
    if kind == "BF16":
        bits = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
        return kind, shape, struct.pack(f"<{len(values)}H", *((u + 0x7FFF + (u >> 16 & 1)) >> 16 for u in bits))
    return kind, shape, struct.pack(f"<{len(values)}{'e' if kind == 'F16' else 'f'}", *values)


def converted(tensor, kind):
    return tensor if tensor[0] == kind else from_floats(kind, tensor[1], floats(tensor))


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


# ---- weight-only codes


def quantized(tensor, bits, group=0):
    """Codes [n][k] and scales [groups][n] of a matrix [n, k], as weight_quantize makes them: scales in the type of the weights,
    codes to nearest, halves away from zero."""
    kind, (n, k), _ = tensor
    bound, width, values = (1 << bits - 1) - 1, group or k, floats(tensor)
    codes, scales = [], [[0.0] * n for _ in range(-(-k // width))]
    for r in range(n):
        row = values[r * k : (r + 1) * k]
        out = []
        for g in range(len(scales)):
            part = row[g * width : (g + 1) * width]
            scale = floats(from_floats(kind, [1], [float32(max(map(abs, part)) / bound)]))[0]
            scales[g][r] = scale
            for v in part:
                q = float32(v / scale)
                out.append(max(-bound, min(bound, math.copysign(math.floor(abs(q) + 0.5), q).__int__())))
        codes.append(out)
    return codes, scales


def packed(codes, bits, arch):
    """The bytes of weight_quantize: the appendix of the spec."""
    n, k = len(codes), len(codes[0])
    out = bytearray(n * k // (8 // bits))
    if arch < 75:
        order = (0, 2, 1, 3) if bits == 8 else (0, 2, 4, 6, 1, 3, 5, 7)
        for c in range(k):
            for j in range(n):  # column j of the file holds row `row` of the matrix
                row = j // len(order) * len(order) + order[j % len(order)]
                if bits == 8:
                    out[c * n + j] = codes[row][c] + 128
                else:
                    out[(c * n + j) // 2] |= (codes[row][c] + 8) << 4 * (j % 2)
        return bytes(out)
    for r in range(n):
        if bits == 8:
            for c in range(k):
                q = c % 16
                at = 16 * (c // 16) + (2 * q if q < 8 else 2 * (q - 8) + 1)
                out[at % 64 + 128 * (at // 64) + 64 * (r % 2) + 2 * k * (r // 2)] = codes[r][c] + 128
            continue
        for b in range(k // 2):
            q = b % 8
            t = 2 * q if q < 4 else 2 * (q - 4) + 1
            at = 16 * (b // 16) + 2 * t + b % 16 // 8
            place = at % 32 + 128 * (at // 32) + 32 * (r % 4) + 2 * k * (r // 4)
            out[place] = codes[r][2 * b] + 8 | (codes[r][2 * b + 1] + 8) << 4
    if bits == 4:
        for i in range(0, len(out), 4):
            for a, b in ((i, i + 2), (i + 1, i + 3)):
                out[a], out[b] = out[a] & 15 | (out[b] & 15) << 4, out[a] >> 4 | out[b] & 0xF0
    return bytes(out)
