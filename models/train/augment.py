"""What befalls a picture between the typesetter and the model, on the GPU for a whole chunk at once.

Stage 1 turns, stretches and blurs the ink and writes it in 8x8 blocks; there noise and JPEG quantisation act. Stage 2 resizes
(bicubic, a = -0.5) into patches, colours them, rounds to 8 bits and normalises. Ink is 0 to 1 throughout.
"""

import math
import torch
import triton
import triton.language as tl

LUMA = [
    16,
    11,
    10,
    16,
    24,
    40,
    51,
    61,
    12,
    12,
    14,
    19,
    26,
    58,
    60,
    55,
    14,
    13,
    16,
    24,
    40,
    57,
    69,
    56,
    14,
    17,
    22,
    29,
    51,
    87,
    80,
    62,
    18,
    22,
    37,
    56,
    68,
    109,
    103,
    77,
    24,
    35,
    55,
    64,
    81,
    104,
    113,
    92,
    49,
    64,
    78,
    87,
    103,
    121,
    120,
    101,
    72,
    92,
    95,
    98,
    112,
    100,
    103,
    99,
]


def dct_matrix(device):
    """[64, 64]: the coefficients of a flat 8x8 block are this matrix times it."""
    k, n = torch.arange(8, device=device)[:, None], torch.arange(8, device=device)[None]
    d = torch.cos(math.pi * (2 * n + 1) * k / 16) * torch.where(k == 0, math.sqrt(1 / 8), 0.5)
    return torch.kron(d, d)


@triton.jit
def pixel(flat, base, h, w, y, x, live):
    """Ink at whole pixels of pictures stored in 8x8 blocks; outside 0."""
    inside = live & (y >= 0) & (y < h) & (x >= 0) & (x < w)
    return tl.load(flat + base + ((y >> 3) * (w >> 3) + (x >> 3)) * 64 + (y & 7) * 8 + (x & 7), mask=inside, other=0).to(
        tl.float32
    )


@triton.jit
def bilinear(flat, base, h, w, y, x, live):
    fy0, fx0 = tl.floor(y), tl.floor(x)
    fy, fx, y0, x0 = y - fy0, x - fx0, fy0.to(tl.int32), fx0.to(tl.int32)
    top = pixel(flat, base, h, w, y0, x0, live) * (1 - fx) + pixel(flat, base, h, w, y0, x0 + 1, live) * fx
    low = pixel(flat, base, h, w, y0 + 1, x0, live) * (1 - fx) + pixel(flat, base, h, w, y0 + 1, x0 + 1, live) * fx
    return top * (1 - fy) + low * fy


@triton.jit
def cubic(t):
    t = tl.abs(t)
    return tl.where(t < 1, (1.5 * t - 2.5) * t * t + 1, tl.where(t < 2, ((-0.5 * t + 2.5) * t - 4) * t + 2, 0.0))


@triton.jit
def warp_kernel(src, imgi, imgf, block, out, blocks, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    b, e = i // 64, i % 64
    live = b < blocks
    n = tl.load(block + b, mask=live, other=0).to(tl.int32)
    y = tl.load(block + blocks + b, mask=live, other=0).to(tl.int32) * 8 + e // 8
    x = tl.load(block + 2 * blocks + b, mask=live, other=0).to(tl.int32) * 8 + e % 8
    base, h, w = (
        tl.load(imgi + n * 6, mask=live, other=0),
        tl.load(imgi + n * 6 + 1, mask=live, other=8),
        tl.load(imgi + n * 6 + 2, mask=live, other=8),
    )
    f = imgf + n * 16
    cos, sin = tl.load(f, mask=live, other=0), tl.load(f + 1, mask=live, other=0)
    sx, sy, blur = tl.load(f + 2, mask=live, other=1), tl.load(f + 3, mask=live, other=1), tl.load(f + 4, mask=live, other=0)
    cy, cx = (h - 1) * 0.5, (w - 1) * 0.5
    dy, dx = y - cy, x - cx
    ys, xs = (cos * dy - sin * dx) * sy + cy, (sin * dy + cos * dx) * sx + cx
    ink = bilinear(src, base, h, w, ys, xs, live) * 2
    ink += bilinear(src, base, h, w, ys + blur, xs + 0.4 * blur, live) + bilinear(
        src, base, h, w, ys - blur, xs - 0.4 * blur, live
    )
    ink += bilinear(src, base, h, w, ys - 0.4 * blur, xs + blur, live) + bilinear(
        src, base, h, w, ys + 0.4 * blur, xs - blur, live
    )
    tl.store(out + i, ink * (1.0 / 6 / 255), mask=live)


@triton.jit
def resize_kernel(ink, imgi, patch, out, patches, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    p, e = i // 196, i % 196
    live = p < patches
    n = tl.load(patch + p, mask=live, other=0).to(tl.int32)
    y = tl.load(patch + patches + p, mask=live, other=0).to(tl.int32) * 14 + e // 14
    x = tl.load(patch + 2 * patches + p, mask=live, other=0).to(tl.int32) * 14 + e % 14
    base, h, w = (
        tl.load(imgi + n * 6, mask=live, other=0),
        tl.load(imgi + n * 6 + 1, mask=live, other=8),
        tl.load(imgi + n * 6 + 2, mask=live, other=8),
    )
    rows, columns = tl.load(imgi + n * 6 + 3, mask=live, other=2), tl.load(imgi + n * 6 + 4, mask=live, other=2)
    ys, xs = (y + 0.5) * (h.to(tl.float32) / (rows * 14)) - 0.5, (x + 0.5) * (w.to(tl.float32) / (columns * 14)) - 0.5
    fy0, fx0 = tl.floor(ys), tl.floor(xs)
    fy, fx, y0, x0 = ys - fy0, xs - fx0, fy0.to(tl.int32), fx0.to(tl.int32)
    total = fy * 0
    for j in tl.static_range(-1, 3):
        yy = tl.minimum(tl.maximum(y0 + j, 0), h - 1)
        row = fy * 0
        for k in tl.static_range(-1, 3):
            row += pixel(ink, base, h, w, yy, tl.minimum(tl.maximum(x0 + k, 0), w - 1), live) * cubic(fx - k)
        total += row * cubic(fy - j)
    tl.store(out + i, total, mask=live)


def stage1(src, imgi, imgf, block, dct, luma):
    """src uint8 [S] in blocks to degraded ink [S / 64, 64], float32."""
    blocks = block.shape[1]
    ink = torch.empty(blocks, 64, device=src.device)
    warp_kernel[(triton.cdiv(blocks * 64, 512),)](src, imgi, imgf, block, ink, blocks, SIZE=512)
    contrast = ((imgf[:, 7:10] - imgf[:, 10:13]).abs() @ imgf.new_tensor([0.299, 0.587, 0.114])).clamp(min=40)
    n = block[0].int()
    noise, jpeg = (imgf[:, 5] / contrast)[n, None], (imgf[:, 6] / contrast)[n, None]
    ink.addcmul_(torch.randn_like(ink), noise)
    q = luma * jpeg + 1e-3
    c = torch.round((ink - 0.5) @ dct.T / q).mul_(q)
    return torch.where(jpeg > 0, c @ dct + 0.5, ink)


def stage2(ink, imgi, imgf, patch):
    """Degraded ink to normalised pixels [P, 3 * 196] of the patches, bfloat16."""
    patches = patch.shape[1]
    out = torch.empty(patches, 196, device=ink.device)
    resize_kernel[(triton.cdiv(patches * 196, 512),)](ink, imgi, patch, out, patches, SIZE=512)
    n = patch[0].int()
    f, size, i = imgf[n], imgi[n, 3:5].float() * 14, torch.arange(196, device=ink.device)
    y, x = patch[1].float()[:, None] * 14 + i // 14, patch[2].float()[:, None] * 14 + i % 14
    shade = f[:, 13:14] * (y / size[:, :1] - 0.5) + f[:, 14:15] * (x / size[:, 1:] - 0.5)
    grain = (shade * 120).addcmul_(torch.randn_like(out), f[:, 5:6] * 0.5)
    fg, bg = f[:, 7:10, None], f[:, 10:13, None]
    rgb = (fg - bg) * out[:, None]
    rgb.add_(bg).add_(grain[:, None]).round_().clamp_(0, 255)
    return rgb.mul_(2 / 255).sub_(1).flatten(1).to(torch.bfloat16)
