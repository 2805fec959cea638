"""What the originals compute: Pillow's decoding and resizing, NumPy's normalisation, the models' resize rules."""

import hashlib
import io
import math

import numpy as np
from PIL import Image, ImageOps

FILTERS = {"lanczos": Image.Resampling.LANCZOS, "bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
HALF = ((0.5,) * 3, (0.5,) * 3)
# name: (resize rule, normalisation, constants, order, temporal)
MODELS = {
    "ernie": ("ernie", "float", CLIP, "blocks", 1),
    "paddleocr": ("paddleocr", "double", HALF, "raster", 1),
    "qwen": ("qwen", "double", CLIP, "blocks", 2),
    "folded": ("qwen", "folded", CLIP, "blocks", 1),
}


def sha(data):
    return hashlib.sha256(data).hexdigest()


def opened(data):
    im = Image.open(io.BytesIO(data))
    im.load()
    return im


def composed(data):
    """What FastDeploy hands to its processors: transparent pictures on white, all upright, as RGB."""
    im = opened(data)
    if im.mode in ("RGBA", "LA") and im.convert("RGBA").getchannel("A").getextrema()[0] < 255:
        ground = Image.new("RGB", im.size, (255, 255, 255))
        ground.paste(im, (0, 0), im)  # without the Exif data of `im`
        im = ground
    return ImageOps.exif_transpose(im).convert("RGB")


def smart_resize(rule, w, h, low, high, factor=28, keep=False):
    """(w, h), or None where the original raises an error."""
    if rule == "paddleocr":
        if h < factor:
            w, h = round(w * factor / h), factor
        if w < factor:
            h, w = round(h * factor / w), factor
    if max(w, h) / min(w, h) > 200:
        if rule != "ernie":
            return None
        short = max(factor, round(min(w, h) / factor) * factor)
        long = math.floor(short * 200 / factor) * factor
        w, h = (short, long) if h > w else (long, short)
    hb, wb = max(factor, round(h / factor) * factor), max(factor, round(w / factor) * factor)
    if hb * wb > high:
        b = math.sqrt(h * w / high)
        hb, wb = math.floor(h / b / factor) * factor, math.floor(w / b / factor) * factor
        if keep:
            hb, wb = max(factor, hb), max(factor, wb)
    elif hb * wb < low:
        b = math.sqrt(low / (h * w))
        hb, wb = math.ceil(h * b / factor) * factor, math.ceil(w * b / factor) * factor
    if min(hb, wb) < factor or (rule == "ernie" and not low <= hb * wb <= high):
        return None
    return wb, hb


def normalised(x, rule, constants):
    mean, std = (np.array(v, np.float32) for v in constants)
    if rule == "float":
        return (x.astype(np.float32) * np.float32(1 / 255) - mean) / std
    if rule == "double":
        return ((x.astype(np.float64) * (1 / 255)).astype(np.float32) - mean) / std
    unfold = np.float32(1.0 / (1 / 255))
    return (x.astype(np.float32) - mean * unfold) / (std * unfold)


def patches(rgb, model):
    """rgb: [h, w, 3] uint8, sides multiples of 28; float32 [patches, 3 * temporal * 14 * 14]."""
    _, rule, constants, order, temporal = MODELS[model]
    v = normalised(rgb, rule, constants).transpose(2, 0, 1)
    c, h, w = v.shape
    gh, gw = h // 14, w // 14
    if order == "raster":
        v = v.reshape(c, gh, 14, gw, 14).transpose(1, 3, 0, 2, 4)
    else:
        v = v.reshape(c, gh // 2, 2, 14, gw // 2, 2, 14).transpose(1, 4, 2, 5, 0, 3, 6)
    v = v.reshape(gh * gw, c, 1, 14, 14).repeat(temporal, 2)
    return np.ascontiguousarray(v.reshape(gh * gw, -1), np.float32)


def to_bf16(v):
    u = v.view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype("<u2")


def resized(rgb, w, h, name):
    return rgb.resize((w, h), FILTERS[name])


def turned_by_pillow(data):
    """Its decoder of TIFF applies the orientation itself."""
    im = Image.open(io.BytesIO(data))  # not loaded: that takes the tag away
    return im.format == "TIFF" and im.tag_v2.get(0x112, 1) != 1


def rows_of(name, data, sizes=(), models=()):
    """Lines of the table for one picture: decode, resize and patches."""
    im = opened(data)
    rgb = im.convert("RGB")
    if not turned_by_pillow(data):
        mode = {"PA": "P", "I;16B": "I;16"}.get(im.mode, im.mode)  # what our decoder makes of them
        same = im.mode == mode and mode not in ("1", "P")
        yield ("decode", name, mode, *im.size, sha(im.tobytes()) if same else "-", sha(rgb.tobytes()))
    whole = composed(data)
    yield ("composed", name, *whole.size, sha(whole.tobytes()))
    for kind, w, h in sizes:
        yield ("resize", name, kind, w, h, sha(resized(rgb, w, h, kind).tobytes()))
    for model, low, high in models:
        size = smart_resize(MODELS[model][0], *im.size, low, high)
        if size is None:
            yield ("patches", name, model, low, high, 0, 0, "-", "-")
            continue
        v = patches(np.asarray(resized(rgb, *size, "bicubic")), model)
        yield ("patches", name, model, low, high, *size, sha(v.tobytes()), sha(to_bf16(v).tobytes()))
