"""One server for the whole suite, with the shipped model; README.md says which case of FastDeploy each test stands for."""

import pytest

from fd_requests import Api
from tern_server import Server

# Some cases send reasoning_max_tokens: the server is told to let fields without effect pass.
FLAGS = (
    "--enable-logprob",
    "--max-model-len",
    8192,
    "--max-num-seqs",
    64,
    "--max-num-batched-tokens",
    1024,
    "--no-enable-prefix-caching",
    "--limit-mm-per-prompt",
    '{"image": 100, "video": 100}',
    "--allow-inert-flags",
)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    s = Server(tmp_path_factory.mktemp("server"), *FLAGS)
    s.wait_ready()
    yield s
    s.stop()


@pytest.fixture(scope="session")
def api(server):
    return Api(server.url)


@pytest.fixture(scope="session")
def client(server):
    return server.client()


@pytest.fixture
def start(tmp_path):
    """start(*flags) -> a server of its own that is stopped at the end of the test."""
    servers = []

    def launch(*flags, **kw):
        servers.append(Server(tmp_path, *flags, **kw))
        return servers[-1].wait_ready()

    yield launch
    for s in servers:
        s.stop()
