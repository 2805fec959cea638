"""One LLM with the model of the repository for the suite."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
MODEL = ROOT / "models" / "tern-demo-ocr"
FLAGS = {"max_num_seqs": 16, "max_model_len": 1024, "num_gpu_blocks_override": 400, "max_logprobs": 5}


@pytest.fixture(scope="session")
def logs(tmp_path_factory):
    return str(tmp_path_factory.mktemp("log"))


@pytest.fixture(autouse=True)
def log_folder(monkeypatch, logs):
    monkeypatch.setenv("FD_LOG_DIR", logs)


@pytest.fixture(scope="session")
def llm(logs):
    import os

    from tern import LLM

    os.environ["FD_LOG_DIR"] = logs
    with LLM(MODEL, enable_logprob=True, **FLAGS) as made:
        yield made
