"""The hubs' own clients download from the hub of these tests, which shows that it speaks as they expect. They are not
installed by tools/setup.sh: TERN_HUB_CLIENTS names a Python that has huggingface_hub, modelscope and aistudio-sdk."""

import os
import pathlib
import subprocess

import pytest

PYTHON = os.environ.get("TERN_HUB_CLIENTS")
SCRIPTS = {
    "HUGGINGFACE": "from huggingface_hub import snapshot_download as get\nprint(get('some/model', local_dir=where))",
    "MODELSCOPE": "from modelscope import snapshot_download as get\nprint(get('some/model', revision='master', local_dir=where))",
    "AISTUDIO": "from aistudio_sdk.snapshot_download import snapshot_download as get\n"
    "print(get(repo_id='some/model', revision='master', local_dir=where))",
}


@pytest.mark.skipif(not PYTHON, reason="TERN_HUB_CLIENTS names no Python that has the hubs' own clients")
@pytest.mark.parametrize("source", SCRIPTS)
def test_the_hubs_own_client_downloads_from_this_hub(source, hub, model_files, tmp_path):
    hub.publish("some/model", model_files)
    where = tmp_path / "there"
    keep = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    done = subprocess.run(
        [PYTHON, "-c", f"where = {str(where)!r}\n{SCRIPTS[source]}"],
        env={**keep, **hub.environment()}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    for path, body in model_files.items():
        assert pathlib.Path(where, path).read_bytes() == body, path
