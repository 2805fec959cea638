"""Clients that are installed by hand: LangChain and instructor (Python), Vercel's AI SDK (Node)."""

import os
import pathlib
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent


@pytest.fixture
def base_url(start):
    server = start(
        "--tool-call-parser", "hermes", "--max-model-len", 2048, "--guided-decoding-disable-any-whitespace"
    ).wait_ready()  # fmt: skip
    return server.url + "/v1"


def models():
    from typing import Literal

    import pydantic

    class Item(pydantic.BaseModel):
        """An item."""

        kind: Literal["book", "pen"]
        count: int = pydantic.Field(ge=1, le=50)
        paid: bool

    return Item


def test_langchain(base_url):
    langchain_openai = pytest.importorskip("langchain_openai", reason="pip install langchain-openai")
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool

    item = models()
    llm = langchain_openai.ChatOpenAI(base_url=base_url, api_key="x", model="default", temperature=1, max_tokens=300, seed=3)
    for method in ("json_schema", "function_calling"):
        assert isinstance(llm.with_structured_output(item, method=method).invoke("give me one"), item)

    @tool
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    for choice in ("any", "add"):
        answer = llm.bind_tools([add], tool_choice=choice, parallel_tool_calls=False).invoke("add")
        assert [call["name"] for call in answer.tool_calls] == ["add"]
    result = ToolMessage(content="5", tool_call_id=answer.tool_calls[0]["id"])
    assert llm.bind_tools([add]).invoke([HumanMessage("add"), answer, result]).response_metadata["finish_reason"] in (
        "stop",
        "length",
    )
    joined = None
    for chunk in llm.bind_tools([add], tool_choice="any", parallel_tool_calls=False).stream("add"):
        joined = chunk if joined is None else joined + chunk
    assert [call["name"] for call in joined.tool_calls] == ["add"]


def test_instructor(base_url):
    instructor = pytest.importorskip("instructor", reason="pip install instructor")
    import openai

    item = models()
    say = dict(model="default", messages=[{"role": "user", "content": "one"}], temperature=1, max_tokens=300, seed=5)
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(openai.OpenAI(base_url=base_url, api_key="x"), mode=mode)
        assert isinstance(client.chat.completions.create(response_model=item, max_retries=1, **say), item)
        last = None
        for last in client.chat.completions.create_partial(response_model=item, **say):
            pass
        assert last.kind in ("book", "pen") and 1 <= last.count <= 50


def test_vercel_ai(base_url, tmp_path):
    """TERN_NODE_MODULES: a folder in which `npm install ai @ai-sdk/openai-compatible zod` has run."""
    folder = os.environ.get("TERN_NODE_MODULES")
    if not folder or not shutil.which("node"):
        pytest.skip("TERN_NODE_MODULES names no folder with Vercel's AI SDK")
    shutil.copy(HERE / "vercel_ai.mjs", pathlib.Path(folder) / "tern_vercel_ai.mjs")
    done = subprocess.run(["node", "tern_vercel_ai.mjs", base_url], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
