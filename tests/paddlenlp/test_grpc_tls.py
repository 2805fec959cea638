"""--ssl-certfile on the gRPC port: the table of tests/security/test_tls.py for it, real clients, and certificates that change."""

import contextlib
import re
import shutil
import signal
import socket
import ssl
import urllib.request

import grpc
import pytest
import tritonclient.grpc as triton
from certificates import Authority
from grpc_client import payload, request
from pn_server import PaddleNlpServer, free_ports
from tern_server import MODEL, wait_for
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as stubs

if shutil.which("openssl") is None:
    pytest.skip("no openssl to make certificates with", allow_module_level=True)

# gRPC closes without an alert; a client that has nothing to offer raises another error.
REFUSED = (ssl.SSLEOFError, ConnectionResetError)
MESSAGE = {"req_id": "r", "text": "x", "max_dec_len": 1}


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("ca"))
    authority.sign("server")
    authority.sign("rsa", key="rsa:2048")
    authority.sign("client", extension="extendedKeyUsage=clientAuth")
    authority.sign("expired", end="20210101000000Z")
    authority.sign("elsewhere", extension="subjectAltName=DNS:elsewhere.example")
    return authority


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("other"), "other")
    authority.sign("client", extension="extendedKeyUsage=clientAuth")
    return authority


@pytest.fixture
def launch(tmp_path):
    servers = []

    def run(*flags, **variables):
        servers.append(PaddleNlpServer(tmp_path, *flags, **variables))
        return servers[-1].wait_ready()  # its health port speaks no TLS

    yield run
    for server in servers:
        server.end()


@pytest.fixture(scope="module")
def server(ca, tmp_path_factory):
    """With a key of RSA: ciphers of old servers would have a chance."""
    flags = ["--ssl-certfile", ca.folder / "rsa.pem", "--ssl-keyfile", ca.folder / "rsa.key"]
    s = PaddleNlpServer(tmp_path_factory.mktemp("server"), *flags).wait_ready()
    yield s
    s.end()


def credentials(ca, name=None):
    key = (ca.folder / f"{name}.key").read_bytes() if name else None
    chain = (ca.folder / f"{name}.pem").read_bytes() if name else None
    return grpc.ssl_channel_credentials(ca.file.read_bytes(), key, chain)


def ask(port, given):
    """Whether an answer comes; None: the connection does not."""
    with grpc.secure_channel(f"127.0.0.1:{port}", given, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        try:
            answers = list(stubs.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([request(MESSAGE)]), timeout=20))
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE, error
            return None
        return payload(answers[-1].infer_response)[0]["is_end"] == 1


def shake(port, ca, version=None, ciphers=None, alpn=("h2",), certificate=None):
    """Version, cipher and protocol of a handshake, by Python's OpenSSL; the server's first frame has come."""
    context = ssl.create_default_context(cafile=str(ca.file))
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if ciphers is not None:
        context.set_ciphers(ciphers + ":@SECLEVEL=0")
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if certificate is not None:
        context.load_cert_chain(certificate)
    with socket.create_connection(("127.0.0.1", port), 20) as raw:
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as s:
            s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
            assert s.recv(9)[3:4] == b"\x04", "its settings"
            return s.version(), s.cipher()[0], s.selected_alpn_protocol()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1], ids=lambda v: v.name)
def test_old_protocols_are_refused(server, ca, version):
    with pytest.raises(REFUSED):
        shake(server.grpc_port, ca, version, "ALL")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda v: v.name)
def test_new_protocols_are_spoken(server, ca, version):
    spoken, cipher, protocol = shake(server.grpc_port, ca, version)
    assert spoken == version.name.replace("_", ".") and protocol == "h2" and "GCM" in cipher


@pytest.mark.parametrize("cipher", ["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"])
def test_good_ciphers_are_taken(server, ca, cipher):
    assert shake(server.grpc_port, ca, ssl.TLSVersion.TLSv1_2, cipher)[1] == cipher


WEAK = ["AES128-GCM-SHA256", "AES128-SHA", "ECDHE-RSA-AES128-SHA", "ECDHE-RSA-AES128-SHA256", "DHE-RSA-AES128-GCM-SHA256"]


@pytest.mark.parametrize("cipher", [*WEAK, "NULL-SHA256", "AECDH-AES128-SHA"])
def test_weak_ciphers_are_refused(server, ca, cipher):
    with pytest.raises(REFUSED):
        shake(server.grpc_port, ca, ssl.TLSVersion.TLSv1_2, cipher)


def test_only_http2_is_spoken_above_it(server, ca):
    for offered in (("http/1.1",), ()):
        with pytest.raises((OSError, AssertionError)):
            shake(server.grpc_port, ca, alpn=offered)


def test_real_clients(server, ca, other):
    assert ask(server.grpc_port, credentials(ca))
    assert ask(server.grpc_port, credentials(other)) is None
    with pytest.raises(grpc.RpcError):
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
            stubs.GRPCInferenceServiceStub(channel).ServerLive(pb.ServerLiveRequest(), timeout=5)
    client = triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}", ssl=True, root_certificates=str(ca.file))
    assert client.is_server_live() and client.is_server_ready()
    client.close()


def test_clients_check_the_name(launch, ca):
    s = launch("--ssl-certfile", ca.folder / "elsewhere.both.pem")
    assert ask(s.grpc_port, credentials(ca)) is None
    options = [("grpc.ssl_target_name_override", "elsewhere.example")]
    with grpc.secure_channel(f"127.0.0.1:{s.grpc_port}", credentials(ca), options=options) as channel:
        assert stubs.GRPCInferenceServiceStub(channel).ServerLive(pb.ServerLiveRequest(), timeout=20).live


@pytest.mark.parametrize("asked", [1, 2])
def test_certificates_of_clients(launch, ca, other, asked):
    s = launch("--ssl-certfile", ca.folder / "server.both.pem", "--ssl-cert-reqs", asked, "--ssl-ca-certs", ca.file)
    assert ask(s.grpc_port, credentials(ca, "client"))
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        shake(s.grpc_port, ca, version, certificate=ca.folder / "client.both.pem")
        for wrong in (other.folder / "client.both.pem", ca.folder / "expired.both.pem"):
            with pytest.raises((OSError, AssertionError)):
                shake(s.grpc_port, ca, version, certificate=wrong)
    assert ask(s.grpc_port, credentials(ca)) is (True if asked == 1 else None)
    assert ask(s.grpc_port, credentials(ca, "client"))


def lines(server):
    return (server.logs / "fastdeploy.log").read_text()


def test_bad_handshakes_are_counted_and_do_not_fill_the_log(launch, ca):
    (port,) = free_ports(1)
    flags = ["--paddlenlp", "--model", MODEL, "--port", port, "--ssl-certfile", ca.folder / "server.both.pem"]
    s = launch(*flags, command="serve")
    context = ssl.create_default_context(cafile=str(ca.file))

    def failed():
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/metrics", context=context, timeout=20) as reply:
            text = reply.read().decode()
        return float(re.search(r"^tern:tls_handshakes_failed_total (\S+)", text, re.MULTILINE)[1])

    assert failed() == 0
    for _ in range(10):
        with socket.create_connection(("127.0.0.1", s.grpc_port), 20) as raw:
            raw.settimeout(20)
            raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 20)
            with contextlib.suppress(ConnectionResetError):
                while raw.recv(4096):
                    pass
    wait_for(lambda: failed() == 10)
    assert [line for line in lines(s).splitlines() if "Handshake failed" in line] == [], "anybody could fill it"
    assert ask(s.grpc_port, credentials(ca))


def test_certificates_change(launch, ca, other, tmp_path):
    shutil.copy(ca.folder / "server.both.pem", tmp_path / "shown.pem")
    s = launch("--ssl-certfile", tmp_path / "shown.pem")
    assert ask(s.grpc_port, credentials(ca))
    other.sign("server")
    shutil.copy(other.folder / "server.both.pem", tmp_path / "shown.pem")
    s.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "was read again" in lines(s))
    assert ask(s.grpc_port, credentials(ca)) is None
    assert ask(s.grpc_port, credentials(other))
    (tmp_path / "shown.pem").write_text("nothing")
    s.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "the certificate of before is still shown" in lines(s))
    assert ask(s.grpc_port, credentials(other))


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"], ids=["silent", "begun"])
def test_slow_handshakes_have_a_deadline(launch, ca, sent):
    s = launch("--ssl-certfile", ca.folder / "server.both.pem", "--header-timeout", 1)
    with socket.create_connection(("127.0.0.1", s.grpc_port), 20) as raw:
        raw.settimeout(20)
        raw.sendall(sent)
        assert raw.recv(1) == b""
    assert ask(s.grpc_port, credentials(ca))
