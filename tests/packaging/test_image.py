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
import package_sizes

DOCKERFILE = (ROOT / "packaging/Dockerfile").read_text()
CUDA = (ROOT / "packaging/Dockerfile.cuda").read_text()


@pytest.mark.parametrize("text", [DOCKERFILE, CUDA])
def test_the_container_is_not_root_and_says_when_it_is_ready(text):
    config = oci_image.settings(text)
    assert config["User"] == "10001:10001" and config["StopSignal"] == "SIGTERM"
    assert config["Healthcheck"]["Test"] == ["CMD", "tern", "health", "--quiet"]
    assert config["Healthcheck"]["StartPeriod"] == 30 * 60 * 10**9 and config["Healthcheck"]["Retries"] == 6
    assert config["ExposedPorts"] == {"8000/tcp": {}} and flags()["port"] == "8000"  # what tern health asks


@pytest.mark.parametrize("text", [DOCKERFILE, CUDA])
def test_its_command_and_variables_exist(text):
    config = oci_image.settings(text)
    assert config["Entrypoint"] == ["tern"] and config["Cmd"][0] == "serve"
    assert {word.removeprefix("--") for word in config["Cmd"] if word.startswith("--")} <= set(flags())
    names = {entry.split("=")[0] for entry in config["Env"]} - {"PATH"}
    assert {name for name in names if not name.startswith("NVIDIA_")} <= variables()


def test_the_image_for_gpus_has_cublas_where_the_program_looks():
    commands = "".join(rest for word, rest in oci_image.instructions(CUDA) if word == "RUN")
    pinned = re.search(r"--target /usr/lib/tern (nvidia-cublas==\S+)", commands)[1]
    assert pinned in (ROOT / "tools/cuda_toolchain.sh").read_text().split("(", 1)[1].replace(")", " ").split()
    # Beside the program: FOLDER/nvidia/cu13/lib (src/cuda/runtime/libraries.cc).
    assert "cu" + pinned.split("==")[1].split(".")[0] in (ROOT / "src/cuda/runtime/libraries.cc").read_text()
    config, plain = oci_image.settings(CUDA), oci_image.settings(DOCKERFILE)
    added = {"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"}
    assert set(config.pop("Env")) == set(plain.pop("Env")) | added and config == plain


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

    entry = json.loads(blobs["index.json"])["manifests"][0]
    assert entry["annotations"] == {"org.opencontainers.image.ref.name": "tern"}
    manifest = json.loads(blob(entry))
    raw = gzip.decompress(blob(manifest["layers"][0]))
    config = json.loads(blob(manifest["config"]))
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(raw).hexdigest()]
    assert config["config"] == oci_image.settings(DOCKERFILE)
    with tarfile.open(fileobj=io.BytesIO(raw)) as layer:
        assert layer.getmember("usr/bin/tern").mode & 0o777 == 0o755 and layer.getmember("bin").linkname == "usr/bin"


def test_sizes_are_weighed(tmp_path, monkeypatch, capsys):
    rows = tmp_path / "rows.jsonl"
    monkeypatch.setenv("RESULTS", str(rows))
    monkeypatch.delenv("TERN_RESULTS", raising=False)
    wheel = tmp_path / "tern-1-py3-none-manylinux_2_28_x86_64.whl"
    with open(wheel, "wb") as file:
        file.truncate(60_000_001)
    assert "60 MB at most" in package_sizes.weigh(wheel)
    image, root = tmp_path / "tern-cuda-image.tar", tmp_path / "root"
    root.mkdir()
    image.write_bytes(b"x" * 100_000)
    (root / "one").write_bytes(b"x" * 2_000_000)
    (root / "same").hardlink_to(root / "one")
    (root / "link").symlink_to("one")
    assert package_sizes.weigh(image, root) is None
    assert "nothing that make dist" in package_sizes.weigh(tmp_path / "other")
    made = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [row["measured"] for row in made] == [60.0, 2.0] and made[1]["note"] == "0.1 MB packed"
    assert [row["reference_value"] for row in made] == [60, 1500]
    names = {
        "tern_0.1.0_amd64.deb": "Debian package",
        "tern_cuda-0.1.0-py3-none-x.whl": "wheel of the CUDA side, without NVIDIA's",
    }
    names |= {"tern-0.1.0-linux-x86_64.tar.gz": "archive", "tern-image.tar": "image for CPUs"}
    assert {name: package_sizes.kind(name)[0] for name in names} == names


@pytest.mark.parametrize("option", [[], ["--cuda"]])
def test_image_sh_says_what_is_missing(tmp_path, option):
    done = subprocess.run(
        [ROOT / "tools/image.sh", *option], capture_output=True, text=True, check=False,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DIST": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert re.search(r"needs root|apt-get install debootstrap|make dist makes it", done.stderr)
