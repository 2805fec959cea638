"""packaging/Dockerfile and the OCI archive that tools/image.sh makes of it."""

import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile

import pytest
from facts import ROOT, flags, variables

sys.path.insert(0, str(ROOT / "tools"))
import oci_image

DOCKERFILE = (ROOT / "packaging/Dockerfile").read_text()


def test_the_container_is_not_root_and_says_when_it_is_ready():
    config = oci_image.settings(DOCKERFILE)
    assert config["User"] == "10001:10001" and config["StopSignal"] == "SIGTERM"
    assert config["Healthcheck"]["Test"] == ["CMD", "tern", "health", "--quiet"]
    assert config["Healthcheck"]["StartPeriod"] == 30 * 60 * 10**9 and config["Healthcheck"]["Retries"] == 6
    assert config["ExposedPorts"] == {"8000/tcp": {}} and flags()["port"] == "8000"  # what tern health asks


def test_its_command_and_variables_exist():
    config = oci_image.settings(DOCKERFILE)
    assert config["Entrypoint"] == ["tern"] and config["Cmd"][0] == "serve"
    assert {word.removeprefix("--") for word in config["Cmd"] if word.startswith("--")} <= set(flags())
    assert {entry.split("=")[0] for entry in config["Env"]} - {"PATH"} <= variables()


def test_an_instruction_that_image_sh_would_leave_out_is_refused():
    for text, said in (("FROM x\nADD a b\n", "ADD"), ("RUN true\n", "FROM"), ("FROM x\nCMD tern serve\n", "JSON")):
        with pytest.raises(oci_image.Failure, match=said):
            oci_image.settings(text)


def test_the_archive_holds_what_its_digests_say(tmp_path):
    root = tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/tern").write_text("program")
    (root / "usr/bin/tern").chmod(0o755)
    (root / "bin").symlink_to("usr/bin")
    files = [tmp_path / "one.tar", tmp_path / "two.tar"]
    for file in files:
        done = subprocess.run(
            [sys.executable, ROOT / "tools/oci_image.py", "pack", ROOT / "packaging/Dockerfile", root, file], check=False
        )
        assert done.returncode == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    with tarfile.open(files[0]) as archive:
        blobs = {name: archive.extractfile(name).read() for name in archive.getnames()}
    for name, data in blobs.items():
        if name.startswith("blobs/"):
            assert name == "blobs/sha256/" + hashlib.sha256(data).hexdigest()

    def blob(entry):
        data = blobs["blobs/" + entry["digest"].replace(":", "/")]
        assert len(data) == entry["size"]
        return data

    manifest = json.loads(blob(json.loads(blobs["index.json"])["manifests"][0]))
    raw = gzip.decompress(blob(manifest["layers"][0]))
    config = json.loads(blob(manifest["config"]))
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(raw).hexdigest()]
    assert config["config"] == oci_image.settings(DOCKERFILE)
    with tarfile.open(fileobj=io.BytesIO(raw)) as layer:
        assert layer.getmember("usr/bin/tern").mode & 0o777 == 0o755 and layer.getmember("bin").linkname == "usr/bin"


def test_image_sh_says_what_is_missing(tmp_path):
    done = subprocess.run(
        [ROOT / "tools/image.sh"], capture_output=True, text=True, check=False,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DIST": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert re.search(r"needs root|apt-get install debootstrap|make dist makes it", done.stderr)
