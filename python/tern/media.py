"""Pictures and videos of a conversation: from Python objects to files in a private folder in memory."""

from __future__ import annotations

import base64
import itertools
import os
import pathlib
import struct
from urllib.parse import quote

_KINDS = {"image": "image_url", "video": "video_url"}


def _bmp(pixels):
    """A BMP of an array of height x width x 3 bytes (red, green, blue)."""
    import numpy

    array = numpy.ascontiguousarray(pixels)
    if array.dtype != numpy.uint8 or array.ndim != 3 or array.shape[2] != 3:
        raise TypeError(f"a picture as an array has shape (height, width, 3) and dtype uint8, not {array.shape} {array.dtype}")
    height, width, _ = array.shape
    row = (width * 3 + 3) // 4 * 4
    rows = numpy.zeros((height, row), numpy.uint8)
    rows[:, : width * 3] = array[::-1, :, ::-1].reshape(height, width * 3)
    head = struct.pack("<2sIHHI", b"BM", 54 + row * height, 0, 0, 54)
    return head + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, row * height, 0, 0, 0, 0) + rows.tobytes()


def _bytes_of(thing, kind):
    if isinstance(thing, (bytes, bytearray, memoryview)):
        return bytes(thing)
    if isinstance(thing, dict) and kind == "video" and "video" in thing:
        return _bytes_of(thing["video"], kind)
    if isinstance(thing, (os.PathLike, str)):
        return pathlib.Path(thing).read_bytes()
    if kind == "image" and hasattr(thing, "convert") and hasattr(thing, "tobytes"):  # PIL, without importing it
        picture = thing if thing.mode == "RGB" else thing.convert("RGBA" if "A" in thing.getbands() else "RGB")
        if picture.mode == "RGB":
            return _bmp_of_rgb(picture)
        from io import BytesIO

        out = BytesIO()
        picture.save(out, "PNG", compress_level=0)
        return out.getvalue()
    if kind == "image" and hasattr(thing, "__array_interface__"):
        return _bmp(thing)
    raise TypeError(
        f"a {kind} is a path, a URL, bytes{', a PIL picture or an array' if kind == 'image' else ''}, not {type(thing)}"
    )


def _bmp_of_rgb(picture):
    from io import BytesIO

    out = BytesIO()
    picture.save(out, "BMP")
    return out.getvalue()


class Media:
    """`folder`: where files go, which the server may read; None: they travel inside the request."""

    def __init__(self, folder):
        self._folder = folder
        self._names = itertools.count(1)

    def shape(self, messages):
        """The conversation with objects replaced by URLs, and the files made for it."""
        files = []
        return [self._message(message, files) for message in messages], files

    def _message(self, message, files):
        content = message.get("content")
        if not isinstance(content, list):
            return message
        return {**message, "content": [self._part(part, files) for part in content]}

    def _part(self, part, files):
        kind = part.get("type")
        if kind not in _KINDS or part.get(kind) is None:
            return part
        thing, key = part[kind], _KINDS[kind]
        if isinstance(thing, str) and thing.partition(":")[0] in ("http", "https", "data", "file"):
            url = thing
        else:
            url = self._place(_bytes_of(thing, kind), files)
        return {"type": key, key: {"url": url}}

    def _place(self, data, files):
        if self._folder is None:
            return "data:application/octet-stream;base64," + base64.b64encode(data).decode()
        path = self._folder / str(next(self._names))
        path.write_bytes(data)
        files.append(path)
        return "file://" + quote(str(path))


def remove(files):
    for path in files:
        try:
            path.unlink()
        except OSError:
            pass
