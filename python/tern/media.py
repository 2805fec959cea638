"""Pictures and videos of a prompt: from Python objects to files in a private folder in memory."""

from __future__ import annotations

import base64
import contextlib
import errno
import itertools
import os
import pathlib
import struct
import threading
from urllib.parse import quote

_KINDS = {"image": "image_url", "video": "video_url"}
# What the server reads beside a video's address.
_VIDEO_SETTINGS = {"fps", "min_frames", "max_frames", "target_frames", "frames_sample", "min_pixels", "max_pixels"}


def _tiff_head(width, height):
    """What stands before the pixels of an uncompressed TIFF: red, green, blue; rows from the top without padding."""
    short, long = 3, 4
    entries = [(256, long, width), (257, long, height), (258, short, None), (259, short, 1), (262, short, 2)]
    entries += [(273, long, None), (277, short, 3), (278, long, height), (279, long, width * height * 3), (284, short, 1)]
    bits = 8 + 2 + 12 * len(entries) + 4
    head = struct.pack("<2sHIH", b"II", 42, 8, len(entries))
    for tag, kind, value in entries:
        count = 3 if tag == 258 else 1  # bits of each channel do not fit into the entry
        head += struct.pack("<HHII", tag, kind, count, {258: bits, 273: bits + 8}.get(tag, value))
    return head + struct.pack("<IHHHH", 0, 8, 8, 8, 0)


def _tiff_of_array(pixels):
    """A file, in pieces, of an array of height x width x 3 bytes (red, green, blue)."""
    import numpy

    array = numpy.ascontiguousarray(pixels)
    if array.dtype != numpy.uint8 or array.ndim != 3 or array.shape[2] != 3:
        raise TypeError(f"a picture as an array has shape (height, width, 3) and dtype uint8, not {array.shape} {array.dtype}")
    return [_tiff_head(array.shape[1], array.shape[0]), array.data]


def _tiff_of_picture(picture):
    """A file, in pieces, of a PIL picture of mode RGB."""
    width, height = picture.size
    yield _tiff_head(width, height)
    rows = max(1, (256 << 10) // max(1, 3 * width))  # a part at a time stays in the cache
    for top in range(0, height, rows):
        yield picture.crop((0, top, width, min(top + rows, height))).tobytes()


def _pieces_of(thing, kind):
    """The bytes of a file, in pieces."""
    if isinstance(thing, (bytes, bytearray, memoryview)):
        return [thing]
    if isinstance(thing, (os.PathLike, str)):
        return [pathlib.Path(thing).read_bytes()]
    if kind == "image" and hasattr(thing, "convert") and hasattr(thing, "tobytes"):  # PIL, without importing it
        picture = thing if thing.mode == "RGB" else thing.convert("RGBA" if "A" in thing.getbands() else "RGB")
        if picture.mode == "RGB":
            return _tiff_of_picture(picture)
        from io import BytesIO

        out = BytesIO()
        picture.save(out, "PNG", compress_level=0)
        return [out.getbuffer()]
    if kind == "image" and hasattr(thing, "__array_interface__"):
        return _tiff_of_array(thing)
    raise TypeError(
        f"a {kind} is a path, a URL, bytes{', a PIL picture or an array' if kind == 'image' else ''}, not {type(thing)}"
    )


def _settings_of(thing, kind):
    """A video may stand in a dict beside its settings, as FastDeploy takes it."""
    if kind != "video" or not isinstance(thing, dict):
        return thing, {}
    settings = {name: value for name, value in thing.items() if name != "video"}
    if "video" not in thing:
        raise ValueError('a video that is a dict has "video"')
    if unknown := sorted(set(settings) - _VIDEO_SETTINGS):
        raise ValueError(f"a video has no setting {', '.join(unknown)}; there are {', '.join(sorted(_VIDEO_SETTINGS))}")
    return thing["video"], {name: value for name, value in settings.items() if value is not None}


class Media:
    """`folder`: where files go, which the server may read; None: they travel inside the request."""

    def __init__(self, folder):
        self._folder = folder
        self._names = itertools.count(1)
        self._lock = threading.Lock()
        self.held = 0  # bytes of files

    def shape(self, messages):
        """The conversation with objects replaced by URLs, and the files made for it."""
        files = []
        with self._all_or_none(files):
            return [self._message(message, files) for message in messages], files

    def parts(self, data):
        """{"image": [...], "video": [...]} as parts of a message, and the files made for them."""
        files, parts = [], []
        if unknown := sorted(set(data) - set(_KINDS)):
            raise ValueError(f'multimodal_data has "image" and "video", not {", ".join(unknown)}')
        with self._all_or_none(files):
            for kind in _KINDS:
                things = data.get(kind)
                if things is None:
                    continue
                for thing in things if isinstance(things, (list, tuple)) else [things]:
                    parts.append(self._part({"type": kind, kind: thing}, files))
        return parts, files

    @contextlib.contextmanager
    def _all_or_none(self, files):
        try:
            yield
        except BaseException:
            self.remove(files)
            raise

    def _message(self, message, files):
        content = message.get("content")
        if not isinstance(content, list):
            return message
        return {**message, "content": [self._part(part, files) for part in content]}

    def _part(self, part, files):
        kind = part.get("type")
        if kind not in _KINDS or part.get(kind) is None:
            return part
        (thing, settings), key = _settings_of(part[kind], kind), _KINDS[kind]
        if isinstance(thing, str) and thing.partition(":")[0] in ("http", "https", "data", "file"):
            url = thing
        else:
            url = self._place(lambda: _pieces_of(thing, kind), files)
        return {"type": key, key: {"url": url, **settings}}

    def _place(self, pieces, files):
        """`pieces()` gives the bytes, more than once."""
        if self._folder is None:
            return _inline(pieces())
        path = self._folder / str(next(self._names))
        size = 0
        files.append((path, size))
        try:
            with open(path, "wb", buffering=0) as file:
                for piece in pieces():
                    left = memoryview(piece).cast("B")
                    size += len(left)
                    while left:
                        left = left[file.write(left) :]
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self.remove([files.pop()])  # a small /dev/shm, as containers have: it travels inside the request
            return _inline(pieces())
        files[-1] = (path, size)
        with self._lock:
            self.held += size
        return "file://" + quote(str(path))

    def remove(self, files):
        for path, size in files:
            with self._lock:
                self.held -= size
            try:
                path.unlink()
            except OSError:
                pass


def _inline(pieces):
    return "data:application/octet-stream;base64," + base64.b64encode(b"".join(pieces)).decode()
