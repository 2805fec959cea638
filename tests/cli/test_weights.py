"""What the program says about weights: an output layer that config.json and the files disagree about."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TERN = os.environ.get("TERN", str(ROOT / "build" / "release" / "tern"))
GOLDEN = ROOT / "tests" / "data" / "golden"


def tern(*arguments):
    done = subprocess.run(
        [TERN, *map(str, arguments)], capture_output=True, text=True, timeout=60, env=os.environ | {"FD_LOG_DIR": "/nonexistent"}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name,tied", [("llama3", False), ("llama_tied", True)])
def test_inspect_and_dry_run_say_which_output_layer_is_used(tmp_path, name, tied):
    folder = tmp_path / name
    shutil.copytree(GOLDEN / name, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    inspected = json.loads(tern("inspect", folder, "--json"))
    dry = json.loads(tern("serve", "--model", folder, "--dry-run"))
    assert inspected["tied_embeddings"] is dry["model"]["tied_embeddings"] is tied
    notes = [w for w in dry["warnings"] if "tie_word_embeddings" in w]
    assert inspected["notes"] == notes and len(notes) == (0 if tied else 1)
    assert ("note " in tern("inspect", folder)) is not tied
    # The config that says what is so: no line.
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": tied}))
    assert json.loads(tern("inspect", folder, "--json"))["notes"] == []
