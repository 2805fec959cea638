#!/usr/bin/env python3
"""What tools/image.sh needs of a Dockerfile and of an OCI archive.

oci_image.py commands DOCKERFILE       the steps that change the file system: COPY and RUN, a line of JSON each
oci_image.py pack DOCKERFILE ROOT FILE  ROOT as an image with one layer, with the Dockerfile's settings;
                                       its name is tern, of Dockerfile.cuda tern-cuda
"""

import gzip
import hashlib
import io
import json
import pathlib
import re
import shlex
import sys
import tarfile

KNOWN = {"FROM", "COPY", "RUN", "ENV", "EXPOSE", "USER", "WORKDIR", "HEALTHCHECK", "ENTRYPOINT", "CMD", "STOPSIGNAL"}
UNITS = {"s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
EPOCH = "1970-01-01T00:00:00Z"


class Failure(Exception):
    pass


def instructions(text):
    """[(word, rest)] of a Dockerfile."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    out = []
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            if word not in KNOWN:
                raise Failure(f"{word} is no instruction that this program knows")
            out.append((word, " ".join(rest.split())))
    if not out or out[0][0] != "FROM":
        raise Failure("the file does not begin with FROM")
    return out


def words_of(rest, word):
    try:
        return json.loads(rest)
    except ValueError:
        raise Failure(f"{word} wants a JSON list") from None


def healthcheck(rest):
    options, _, command = rest.partition("CMD ")
    found = {"Test": ["CMD", *words_of(command, "HEALTHCHECK")]}
    names = {"interval": "Interval", "timeout": "Timeout", "start-period": "StartPeriod", "retries": "Retries"}
    for name, value in re.findall(r"--([a-z-]+)=(\S+)", options):
        found[names[name]] = int(value) if name == "retries" else int(value[:-1]) * UNITS[value[-1]]
    return found


def settings(text):
    """The part `config` of an image's description."""
    config = {"Env": [f"PATH={PATH}"]}
    for word, rest in instructions(text):
        if word == "ENV":
            config["Env"] += shlex.split(rest)
        elif word == "EXPOSE":
            config["ExposedPorts"] = {f"{port}/tcp": {} for port in rest.split()}
        elif word in ("ENTRYPOINT", "CMD"):
            config[word.capitalize()] = words_of(rest, word)
        elif word == "USER":
            config["User"] = rest
        elif word == "WORKDIR":
            config["WorkingDir"] = rest
        elif word == "STOPSIGNAL":
            config["StopSignal"] = rest
        elif word == "HEALTHCHECK":
            config["Healthcheck"] = healthcheck(rest)
    return config


def layer(root):
    """(gzip bytes, digest of the tar inside); the same tree makes the same bytes."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            info = tar.gettarinfo(path, path.relative_to(root).as_posix())
            if info is None:  # a socket
                continue
            info.mtime, info.uname, info.gname = 0, "", ""
            if info.isreg():
                with open(path, "rb") as file:
                    tar.addfile(info, file)
            else:
                tar.addfile(info)
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0) as out:
        out.write(raw.getbuffer())
    return packed.getvalue(), hashlib.sha256(raw.getbuffer()).hexdigest()


def pack(text, root, file, name="tern"):
    blobs = {}

    def blob(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    data, inside = layer(root)
    config = {
        "created": EPOCH,
        "architecture": "amd64",
        "os": "linux",
        "config": settings(text),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{inside}"]},
        "history": [{"created": EPOCH, "created_by": "tools/image.sh"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [blob(data, "layer.v1.tar+gzip")],
    }
    entry = {**blob(json.dumps(manifest).encode(), "manifest.v1+json"), "platform": {"architecture": "amd64", "os": "linux"}}
    entry["annotations"] = {"org.opencontainers.image.ref.name": name}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode(), **blobs}
    with tarfile.open(file, "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("commands", "pack"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        text = pathlib.Path(sys.argv[2]).read_text()
        if sys.argv[1] == "pack":
            pack(text, pathlib.Path(sys.argv[3]), sys.argv[4], "tern" + pathlib.Path(sys.argv[2]).suffix.replace(".", "-"))
        else:
            for word, rest in instructions(text):
                if word in ("COPY", "RUN"):
                    print(json.dumps([word, rest]))
    except Failure as failure:
        print(f"oci_image: {sys.argv[2]}: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
