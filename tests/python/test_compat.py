"""Scripts and command lines written for FastDeploy, over the package tern-fastdeploy."""

import os
import re
import signal
import subprocess
import sys
import urllib.request

from conftest import MODEL, ROOT

ENVIRONMENT = {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT / 'python' / 'compat'}"}

SCRIPT = """
from fastdeploy import LLM, SamplingParams
from fastdeploy.engine.request import RequestOutput
from fastdeploy.engine.sampling_params import SamplingParams as Same
from fastdeploy.entrypoints.llm import LLM as SameLLM

assert SamplingParams is Same and LLM is SameLLM
msg1 = [{"role": "user", "content": "1+1="}]
msg2 = [{"role": "user", "content": "3+4="}]
sampling_params = SamplingParams(top_p=0.95, max_tokens=640, temperature=0)
llm = LLM(model=MODEL, tensor_parallel_size=1, max_model_len=1024)
outputs = llm.chat([msg1, msg2], sampling_params)
for output in outputs:
    assert isinstance(output, RequestOutput)
    prompt = output.prompt
    generated_text = output.outputs.text
    print(generated_text)
"""


def test_a_documented_script():
    run = subprocess.run(
        [sys.executable, "-c", f"MODEL = {str(MODEL)!r}\n{SCRIPT}"],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["2", "7"]


PICTURES = """
import functools, http.server, threading, urllib.request
from fastdeploy.engine.sampling_params import SamplingParams
from fastdeploy.entrypoints.llm import LLM
from fastdeploy.input.ernie4_5_tokenizer import Ernie4_5Tokenizer

handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=FOLDER)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/demo.png"

tokenizer = Ernie4_5Tokenizer.from_pretrained(MODEL)
parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "OCR:"}]
messages = [{"role": "user", "content": parts}]
prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
images = [urllib.request.urlopen(url).read()]
llm = LLM(model=MODEL, tensor_parallel_size=1, max_model_len=8192, limit_mm_per_prompt={"image": 100},
          reasoning_parser="ernie-45-vl", engine_worker_queue_port=8888, graph_optimization_config={"use_cudagraph": False})
sampling_params = SamplingParams(temperature=0, max_tokens=40)
given = {"prompt": prompt, "multimodal_data": {"image": images, "video": []}}
for output in llm.generate(prompts=given, sampling_params=sampling_params):
    print(output.outputs.text.splitlines()[0], output.outputs.reasoning_content)
for output in llm.chat(messages=messages, chat_template_kwargs={"enable_thinking": False}, sampling_params=sampling_params):
    print(output.outputs.text.splitlines()[0])
"""


def test_a_script_with_pictures_and_a_tokenizer():
    run = subprocess.run(
        [sys.executable, "-c", f"MODEL, FOLDER = {str(MODEL)!r}, {str(MODEL.parent)!r}\n{PICTURES}"],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert [line.startswith("Harbour Cafe") for line in run.stdout.splitlines()] == [True, True], run.stdout


def test_the_servers_command_line():
    command = [sys.executable, "-m", "fastdeploy.entrypoints.openai.api_server", "--model", str(MODEL), "--port", "0"]
    command += ["--host", "127.0.0.1", "--max-num-seqs", "4"]
    server = subprocess.Popen(
        command, env={**os.environ, **ENVIRONMENT}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        for line in server.stdout:
            if found := re.search(r"Uvicorn running on (http://\S+)", line):
                break
        with urllib.request.urlopen(found[1] + "/health", timeout=10) as answer:
            assert answer.status == 200
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=30)
    assert server.returncode == 0


def test_the_command():
    words = "import sys; sys.argv[1:] = ['--help']; import fastdeploy; fastdeploy.main()"
    run = subprocess.run(
        [sys.executable, "-c", words], env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.startswith("Usage: fastdeploy COMMAND")


def test_it_refuses_to_stand_beside_the_real_one(tmp_path):
    made = tmp_path / "fastdeploy_gpu-2.3.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: fastdeploy-gpu\nVersion: 2.3.0\n")
    environment = {**os.environ, "PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:{tmp_path}"}
    run = subprocess.run(
        [sys.executable, "-c", "import fastdeploy"], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode != 0 and "fastdeploy-gpu is installed" in run.stderr
