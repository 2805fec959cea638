"""The .deb: its unit, its configuration, and what tools/deb.sh puts where, with a small tree in the program's place."""

import re
import shutil
import subprocess

import pytest
from facts import ROOT, flags, variables

DEBIAN = ROOT / "packaging/debian"


def unit():
    """{directive: [values]}; a directive may stand several times."""
    found = {}
    for line in (DEBIAN / "tern.service").read_text().splitlines():
        if line and line[0] not in "#[":
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


def settings():
    lines = (DEBIAN / "tern.yaml").read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def test_flags_of_the_configuration_and_variables_of_the_unit_exist():
    commented = re.findall(r"^# ([a-z-]+): ", (DEBIAN / "tern.yaml").read_text(), re.MULTILINE)
    assert "api-key-file" in commented
    assert set(settings()) | set(commented) <= set(flags())
    names = {word.split("=")[0] for word in unit()["Environment"][0].split()}
    assert names - {"XDG_CACHE_HOME"} <= variables()


def test_the_unit_waits_longer_than_the_server_drains():
    drain = int(settings()["timeout-graceful-shutdown"])
    assert drain > 0 and int(unit()["TimeoutStopSec"][0]) > drain
    assert unit()["ExecStart"] == ["/usr/bin/tern serve --config /etc/tern/tern.yaml"]


def test_the_unit_is_hardened():
    u = unit()
    for name in (
        "DynamicUser", "NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "MemoryDenyWriteExecute",
        "ProtectKernelModules", "ProtectKernelTunables", "ProtectControlGroups", "RestrictNamespaces", "RestrictSUIDSGID",
    ):  # fmt: skip
        assert u[name] == ["yes"], name
    assert u["CapabilityBoundingSet"] == [""] and u["ProtectSystem"] == ["strict"]
    assert "@system-service" in u["SystemCallFilter"][0]


def test_systemd_finds_no_fault_in_the_unit(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = (DEBIAN / "tern.service").read_text().replace("/usr/bin/tern", "/bin/true").replace("man:tern(1)", "man:true(1)")
    (tmp_path / "tern.service").write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / "tern.service"], capture_output=True, text=True, check=False
    )
    assert "tern.service" not in done.stderr, done.stderr


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is not installed")
    base = tmp_path_factory.mktemp("deb")
    tree = base / "tree"
    (tree / "share/man/man1").mkdir(parents=True)
    (tree / "share/man/man1/tern.1").write_text(".TH tern 1\n")
    (tree / "tern").write_text("#!/bin/sh\necho tern 1.2.3\n")
    (tree / "tern").chmod(0o755)
    for name in ("start_server", "stop_server"):
        (tree / name).symlink_to("tern")
    subprocess.run([ROOT / "tools/deb.sh", tree, base / "out"], check=True, capture_output=True)
    return base / "out/tern_1.2.3_amd64.deb"


def test_the_package_holds_program_unit_and_configuration(package):
    listed = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    rows = {line.split(" -> ")[0].split()[-1]: line for line in listed.splitlines()}
    for path in (
        "./usr/lib/tern/tern", "./usr/bin/tern", "./lib/systemd/system/tern.service", "./etc/tern/tern.yaml",
        "./usr/share/man/man1/tern.1.gz", "./usr/share/doc/tern/copyright",
    ):  # fmt: skip
        assert path in rows
    assert rows["./usr/bin/tern"].endswith("-> ../lib/tern/tern")
    assert all(" root/root " in row for row in rows.values())
    assert not [row for row in rows.values() if re.match(r"-.{4}w|-.{7}w", row)]


def test_the_package_says_what_it_needs(package):
    def field(name):
        return subprocess.run(["dpkg-deb", "-f", package, name], capture_output=True, text=True, check=True).stdout.strip()

    assert (field("Version"), field("Architecture"), field("Depends")) == ("1.2.3", "amd64", "libc6 (>= 2.28)")
    assert int(field("Installed-Size")) > 0
