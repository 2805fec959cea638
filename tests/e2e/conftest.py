"""One server with the shipped model for the whole suite, and servers of a test's own."""

import pytest

import several
from tern_server import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    s = Server(tmp_path_factory.mktemp("server"), "--max-num-seqs", 64, "--enable-logprob", "--max-model-len", 2048)
    s.wait_ready()
    yield s
    s.stop()


@pytest.fixture
def start(tmp_path):
    """start(*flags) -> a Server of its own that is stopped at the end of the test."""
    servers = []

    def launch(*flags, **kw):
        servers.append(Server(tmp_path, *flags, **kw))
        return servers[-1]

    yield launch
    for s in servers:
        s.end()


@pytest.fixture
def start_cpu(tmp_path):
    """start_cpu(*flags, env=None) -> a Server on a CPU, in float32, that is ready and may have more ranks than cores."""
    servers = several.Servers(tmp_path)
    yield servers.launch
    servers.end()


@pytest.fixture
def client(server):
    return server.client()
