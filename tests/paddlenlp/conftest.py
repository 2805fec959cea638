"""A server for the whole suite, and servers of a test's own."""

import pytest
from pn_server import PaddleNlpServer, exported_model


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("paddlenlp")
    model = exported_model(tmp / "model", infer_model_max_seq_len=512, paddlenlp_version="3.0.0.b4")
    s = PaddleNlpServer(tmp, model=model)
    s.wait_ready()
    yield s
    s.end()


@pytest.fixture
def start(tmp_path):
    servers = []

    def launch(*flags, **kw):
        servers.append(PaddleNlpServer(tmp_path, *flags, **kw))
        return servers[-1]

    yield launch
    for s in servers:
        s.end()
