"""packaging/install, the ./install of the tarball, with a program that only says its version."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "tern-1-linux-x86_64"
    (folder / "model").mkdir(parents=True)
    (folder / "tern").write_text("#!/bin/sh\necho tern 1\n")
    (folder / "tern").chmod(0o755)
    (folder / "share/man/man1").mkdir(parents=True)
    (folder / "share/man/man1/tern.1").write_text("")
    for name in ("start_server", "stop_server", "fastdeploy"):
        (folder / name).symlink_to("tern")
    shutil.copy(ROOT / "packaging/install", folder)
    return folder


def install(folder, *args, home=None):
    env = {**os.environ, **({"HOME": str(home)} if home else {})}
    return subprocess.run(
        [folder / "install", *map(str, args)], check=False, capture_output=True, text=True, env=env, cwd=folder.parent
    )


def test_installs_replaces_and_removes(folder, tmp_path):
    to = tmp_path / "prefix"
    for _ in range(2):
        done = install(folder, "--prefix", to)
        assert done.returncode == 0, done.stderr
        assert f"serve --model {to}/lib/tern/model" in done.stdout
        assert sorted(p.name for p in (to / "bin").iterdir()) == ["fastdeploy", "start_server", "stop_server", "tern"]
        assert subprocess.run([to / "bin/tern"], check=False, capture_output=True).stdout == b"tern 1\n"
        assert sorted(p.name for p in (to / "lib").iterdir()) == ["tern"]
        assert (to / "share/man/man1/tern.1").is_file()
    assert not (to / "lib/tern/install").exists()
    assert install(folder, "--remove", "--prefix", to).returncode == 0
    assert [p for p in to.rglob("*") if not p.is_dir()] == [] and not (to / "lib/tern").exists()


def test_files_of_others_are_left_alone(folder, tmp_path):
    to = tmp_path / "prefix"
    (to / "bin").mkdir(parents=True)
    (to / "bin/start_server").write_text("another program")
    for args in ((), ("--remove",)):
        done = install(folder, "--prefix", to, *args)
        assert done.returncode == 1 and "start_server is there and is not Tern's" in done.stderr
    assert [p.name for p in to.rglob("*") if p.is_file()] == ["start_server"]


def test_fastdeploys_own_command_stays(folder, tmp_path):
    own = tmp_path / "prefix/bin/fastdeploy"
    own.parent.mkdir(parents=True)
    own.write_text("FastDeploy")
    for args in ((), ("--remove",)):
        assert install(folder, "--prefix", tmp_path / "prefix", *args).returncode == 0
        assert own.read_text() == "FastDeploy"


def test_a_relative_prefix_and_wrong_arguments(folder):
    assert install(folder, "--prefix", "here").returncode == 0
    assert (folder.parent / "here/bin/tern").resolve() == folder.parent / "here/lib/tern/tern"
    done = install(folder, "--prefxi", "here")
    assert done.returncode == 1 and "unknown argument --prefxi" in done.stderr


def test_a_program_that_does_not_start_is_not_installed(folder, tmp_path):
    (folder / "tern").write_text("#!/bin/sh\nexit 1\n")
    done = install(folder, "--prefix", tmp_path / "prefix")
    assert done.returncode == 1 and "glibc 2.28" in done.stderr
    assert not (tmp_path / "prefix").exists()


def test_the_check_of_packages_counts_what_fails_and_knows_its_parts(tmp_path):
    def run(*parts):
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DIST": str(tmp_path)}
        command = [ROOT / "tools/dist_check.sh", *parts]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=60)

    done = run("glibc", "archive")
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "0 passed, 3 failed"
    done = run("wheel")
    assert done.returncode == 2 and "there is no part wheel" in done.stderr
