"""Small commands for a shell: complete, tokenizer, collect-env, completion."""

import ast
import json
import os
import re
import shutil
import subprocess

import pytest
from tern_server import MODEL, ROOT, TERN, Server


def tern(*args, status=0, **env):
    done = subprocess.run(
        [TERN, *map(str, args)], capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **env}
    )
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def test_complete_goes_on_with_a_text(tmp_path):
    server = Server(tmp_path, "--max-num-seqs", "4").wait_ready()
    try:
        url = server.url + "/v1"
        asked = {"model": "default", "prompt": "Once", "max_tokens": 12, "temperature": 0}
        wanted = server.client().completions.create(**asked).choices[0].text
        got = tern("complete", "--url", url, "-q", "Once", "--max-tokens", "12", "--temperature", "0")
        assert got == wanted + "\n"
        done = subprocess.run(
            [TERN, "complete", "--url", url, "--max-tokens", "12", "--temperature", "0"],
            input="Once\nOnce\n", capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.stdout == (wanted + "\n") * 2  # each line stands alone
    finally:
        server.stop()
    assert "no answer from" in tern("complete", "--url", url, "-q", "x", status=1)


def test_tokenizer(tmp_path):
    ids = json.loads(tern("tokenizer", "-m", MODEL, "-e", "Hello, tern").split("Encoded tokens: ")[1])
    assert len(ids) > 1
    assert "Decoded text: Hello, tern\n" in tern("tokenizer", "--model_name_or_path", MODEL, "-d", json.dumps(ids))
    assert "Decoded text: Hello, tern\n" in tern("tokenizer", "-m", MODEL, "-d", " ".join(map(str, ids)))
    size = int(tern("tokenizer", "-m", MODEL, "-vs").split(": ")[1])
    info = json.loads(tern("tokenizer", "-m", MODEL, "-i"))
    assert info["vocab_size"] == size and info["special_tokens"]["eos_token"]
    assert {"model_name", "tokenizer_type", "model_max_length"} < set(info) and info["special_token_ids"]["eos_token_id"] >= 0
    file = tmp_path / "vocabulary.json"
    assert str(file) in tern("tokenizer", "-m", MODEL, "-ve", file)
    vocabulary = json.loads(file.read_text())
    assert len(vocabulary) <= size and sorted(vocabulary.values()) == list(vocabulary.values())
    plain = tmp_path / "new" / "vocabulary.txt"
    assert f"Total tokens: {len(vocabulary)}" in tern("tokenizer", "-m", MODEL, "-ve", plain, "-mm")
    lines = [line.split("\t", 1) for line in plain.read_text().splitlines()]
    assert [int(number) for number, _ in lines] == list(vocabulary.values())
    assert {ast.literal_eval(token) for _, token in lines} == set(vocabulary)
    assert "one of --encode" in tern("tokenizer", "-m", MODEL, status=2)
    assert "has no id 99999999" in tern("tokenizer", "-m", MODEL, "-d", "99999999", status=2)
    assert "no list of token ids" in tern("tokenizer", "-m", MODEL, "-d", "1 x", status=2)
    assert "cannot write" in tern("tokenizer", "-m", MODEL, "-ve", tmp_path / "vocabulary.json" / "x", status=1)


def test_collect_env_hides_secrets():
    out = tern(
        "collect-env",
        FD_API_KEY="s3cret-1", HF_TOKEN="s3cret-2", FD_MODEL_CACHE="/models", HTTPS_PROXY="http://me:s3cret-3@proxy:80/",
    )  # fmt: skip
    assert "s3cret" not in out and "FD_API_KEY" in out and "http://***@proxy:80/" in out
    assert "/models" in out and "Tern version" in out and "Libc version" in out and "libcurl.so.4" in out


def test_collect_env_tells_what_is_installed(tmp_path):
    compiler = tmp_path / "gcc"
    compiler.write_text("#!/bin/sh\necho 'gcc (Made up) 42.1'\necho more\n")
    compiler.chmod(0o755)
    broken = tmp_path / "clang"
    broken.write_text("#!/bin/sh\necho 'clang version 1'\nexit 3\n")
    broken.chmod(0o755)
    package = tmp_path / "numpy_of_a_test-7.5.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy-of-a-test\nVersion: 7.5\n")
    out = tern("collect-env", PATH=f"{tmp_path}:{os.environ['PATH']}", PYTHONPATH=str(tmp_path))
    lines = {name.strip(): value for name, _, value in (line.partition(": ") for line in out.splitlines())}
    assert lines["GCC version"] == "(Made up) 42.1" and lines["Clang version"] == "Could not collect"
    assert re.match(r"3\.\d+\.\d+.*bit runtime\)$", lines["Python version"])
    assert "[pip3] numpy-of-a-test==7.5" in out


def test_bash_completes_commands_and_flags(tmp_path):
    file = tmp_path / "completion"
    file.write_text(tern("completion", "bash"))
    script = f"""
      source {file}
      COMP_WORDS=({TERN} run-b); COMP_CWORD=1; _tern; echo "${{COMPREPLY[*]}}"
      COMP_WORDS=({TERN} serve --max-num-s); COMP_CWORD=2; _tern; echo "${{COMPREPLY[*]}}"
      COMP_WORDS=({TERN} chat --sys); COMP_CWORD=2; _tern; echo "${{COMPREPLY[*]}}"
      COMP_WORDS=({TERN} bench thr); COMP_CWORD=2; _tern; echo "${{COMPREPLY[*]}}"
      COMP_WORDS=({TERN} bench latency --num-iters-w); COMP_CWORD=3; _tern; echo "${{COMPREPLY[*]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == [
        "run-batch", "--max-num-seqs", "--system-prompt", "throughput", "--num-iters-warmup",
    ], done.stderr  # fmt: skip


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_parse(shell, tmp_path):
    text = tern("completion", shell)
    assert "run-batch" in text and "@" not in text.replace("$@", "").replace('"$@"', "").replace("[@]", "")
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = tmp_path / "script"
    file.write_text(text)
    subprocess.run([shell, "-n", str(file)], check=True, timeout=30)


def test_an_unknown_shell_is_refused():
    assert "tcsh" in tern("completion", "tcsh", status=2)


def test_the_man_page_says_what_help_and_flags_say():
    page = tern("man-page").replace("\\-", "-")
    commands = re.findall(r"^  (\S+)  ", tern("--help"), re.MULTILINE)
    flags = re.findall(r"^\| `(--[a-z0-9-]+)`", (ROOT / "docs" / "flags.md").read_text(), re.MULTILINE)
    assert len(commands) > 20 and len(flags) > 150
    for name in commands + flags:
        assert re.search(rf"^\.B {re.escape(name)}\b", page, re.MULTILINE), name
    words = tern("completion", "bash").split("compgen -W '")[1].split("'")[0].split()
    assert set(commands) <= set(words)
    if shutil.which("man"):
        file = subprocess.run(["man", "-l", "-"], input=tern("man-page"), capture_output=True, text=True, timeout=60, check=False)
        assert "--max-num-seqs" in file.stdout
