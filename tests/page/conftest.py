"""The page of a running server, in a Chromium without a window."""

import json
import os
import pathlib

import pytest
from browser import Browser, find_chromium
from tern_server import MODEL, Server


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium: apt-get install chromium-headless-shell (or chromium), or name one in CHROMIUM")
    made = Browser(program, tmp_path_factory.mktemp("chromium"))
    yield made
    made.end()


@pytest.fixture
def page(browser):
    """page(url, **how it looks) -> a tab that is closed at the end of the test, in which nothing may have gone wrong."""
    pages = []

    def open_page(url, ready="config !== null", **look):
        made = browser.page(**look)
        pages.append(made)
        made.open(url)
        if ready:
            made.wait(ready)
        return made

    yield open_page
    problems = [problem for made in pages for problem in made.problems()]
    for made in pages:
        made.close()
    assert problems == []


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """Where pictures of the page are put: the folder PAGE_PICTURES, if it is named."""
    folder = pathlib.Path(os.environ.get("PAGE_PICTURES") or tmp_path_factory.mktemp("pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def launch(tmp_path_factory):
    """launch(*flags, **how) -> a Server of the shipped model; all end with the session."""
    servers = []

    def make(*flags, **how):
        servers.append(Server(tmp_path_factory.mktemp("server"), "--max-model-len", 4096, *flags, **how))
        return servers[-1].wait_ready()

    yield make
    for server in servers:
        server.end()


@pytest.fixture(scope="session")
def scripted(launch, tmp_path_factory):
    """scripted(answers, *flags): a server that says what a script says."""

    def make(answers, *flags, **how):
        folder = tmp_path_factory.mktemp("script")
        (folder / "answers.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
        return launch("--scripted", folder / "answers.jsonl", *flags, **how)

    return make


@pytest.fixture(scope="session")
def model_server(launch):
    return launch()


@pytest.fixture(scope="session")
def text_model(tmp_path_factory):
    """A folder that says it is a model of text; its answers come from a script."""
    folder = tmp_path_factory.mktemp("text") / "a-text-model"
    folder.mkdir()
    config = json.loads((MODEL / "config.json").read_text())
    for name in ("vision_config", "rope_scaling", "model_type", "text_config"):
        config.pop(name, None)
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForCausalLM"]}))
    for file in MODEL.iterdir():
        if file.name not in ("config.json", "preprocessor_config.json"):
            (folder / file.name).symlink_to(file)
    return folder
