"""The ports' TLS, as testssl looks at it: protocols, ciphers, certificates of both sides, files that cannot be used."""

import pathlib
import shutil
import socket
import ssl
import subprocess

import pytest
from certificates import Authority, openssl
from tern_server import MODEL, TERN, Server, wait_for

if shutil.which("openssl") is None:
    pytest.skip("no openssl to make certificates with", allow_module_level=True)

GET = b"GET /health HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("ca"))
    authority.sign("server")
    authority.sign("rsa", key="rsa:2048")
    authority.sign("client", extension="extendedKeyUsage=clientAuth")
    authority.sign("expired", end="20210101000000Z")
    authority.sign("future", start="20800101000000Z")
    authority.sign("elsewhere", extension="subjectAltName=DNS:elsewhere.example")
    return authority


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("other"), "other")
    authority.sign("client", extension="extendedKeyUsage=clientAuth")
    return authority


@pytest.fixture(scope="module")
def server(ca, tmp_path_factory):
    """With a key of RSA: ciphers of old servers would have a chance."""
    flags = ["--ssl-certfile", ca.folder / "rsa.pem", "--ssl-keyfile", ca.folder / "rsa.key"]
    s = Server(tmp_path_factory.mktemp("server"), *flags, trust=ca.file).wait_ready()
    yield s
    s.stop()


def client(ca, version=None, ciphers=None, certificate=None):
    context = ssl.create_default_context(cafile=str(ca.file))
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if ciphers is not None:
        context.set_ciphers(ciphers + ":@SECLEVEL=0")
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


def ask(port, context, name="127.0.0.1", session=None):
    """Version, cipher and status of one request; the end must be said (close_notify)."""
    with socket.create_connection(("127.0.0.1", port), 30) as raw:
        with context.wrap_socket(raw, server_hostname=name, suppress_ragged_eofs=False, session=session) as s:
            s.sendall(GET)
            answer = b""
            while piece := s.recv(65536):
                answer += piece
            return s.version(), s.cipher()[0], answer.split(b"\r\n")[0]


def failures(server):
    return server.metric("tern:tls_handshakes_failed_total")


OLD = [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", OLD, ids=lambda v: v.name)
def test_old_protocols_are_refused(server, ca, version):
    before = failures(server)
    with pytest.raises(ssl.SSLError) as error:
        ask(server.port, client(ca, version, "ALL"))
    assert "PROTOCOL_VERSION" in str(error.value).upper().replace(" ", "_"), "the server says so, not this client"
    wait_for(lambda: failures(server) == before + 1)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda v: v.name)
def test_new_protocols_are_spoken(server, ca, version):
    spoken, _, status = ask(server.port, client(ca, version))
    assert spoken == version.name.replace("_", ".") and status == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("cipher", ["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305"])
def test_good_ciphers_are_taken(server, ca, cipher):
    assert ask(server.port, client(ca, ssl.TLSVersion.TLSv1_2, cipher))[1] == cipher


@pytest.mark.parametrize(
    "cipher",
    [
        "AES128-GCM-SHA256",  # no forward secrecy
        "AES256-SHA256",
        "AES128-SHA",
        "DHE-RSA-AES128-GCM-SHA256",
        "ECDHE-RSA-AES128-SHA",  # CBC
        "ECDHE-RSA-AES256-SHA384",
        "ECDHE-RSA-AES128-SHA256",
        "NULL-SHA256",  # no secrecy
        "ECDHE-RSA-NULL-SHA",
        "AECDH-AES128-SHA",  # no certificate
        "ADH-AES128-GCM-SHA256",
        "ECDHE-RSA-CAMELLIA128-SHA256",
        "AES128-CCM8",
    ],
)
def test_weak_ciphers_are_refused(server, ca, cipher):
    try:
        context = client(ca, ssl.TLSVersion.TLSv1_2, cipher)
    except ssl.SSLError:
        pytest.skip("this client's OpenSSL does not have it")
    with pytest.raises(ssl.SSLError) as error:
        ask(server.port, context)
    assert "HANDSHAKE_FAILURE" in str(error.value).upper().replace(" ", "_")


def test_protocols_above_it(server, ca):
    context = client(ca)
    for offered, chosen in ((["h2", "http/1.1"], "http/1.1"), (["http/1.0"], "http/1.0")):
        context.set_alpn_protocols(offered)
        with socket.create_connection(("127.0.0.1", server.port), 30) as raw:
            with context.wrap_socket(raw, server_hostname="127.0.0.1") as s:
                assert s.selected_alpn_protocol() == chosen
    context.set_alpn_protocols(["h2"])
    with pytest.raises(ssl.SSLError):
        ask(server.port, context)


def test_a_session_is_taken_up_again(server, ca):
    context = client(ca, ssl.TLSVersion.TLSv1_2)
    with socket.create_connection(("127.0.0.1", server.port), 30) as raw:
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as s:
            session = s.session
            assert not s.session_reused
    with socket.create_connection(("127.0.0.1", server.port), 30) as raw:
        with context.wrap_socket(raw, server_hostname="127.0.0.1", session=session) as s:
            assert s.session_reused


@pytest.mark.parametrize("name, says", [("expired", "has expired on 2021-01-01"), ("future", "is not valid before 2080-01-01")])
def test_a_certificate_out_of_its_time_is_said_and_refused(start, ca, name, says):
    s = start("--ssl-certfile", ca.folder / f"{name}.both.pem")
    port = s.port
    assert says in s.text()
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(port, client(ca))


def test_clients_check_authority_and_name(server, start, ca, other):
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(server.port, client(other))
    s = start("--ssl-certfile", ca.folder / "elsewhere.both.pem")
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(s.port, client(ca))
    assert ask(s.port, client(ca), "elsewhere.example")[2] == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda v: v.name)
@pytest.mark.parametrize("asked", [1, 2])
def test_certificates_of_clients(start, ca, other, version, asked):
    s = start("--ssl-certfile", ca.folder / "server.both.pem", "--ssl-cert-reqs", asked, "--ssl-ca-certs", ca.file)
    good = client(ca, version, certificate=ca.folder / "client.both.pem")
    for _ in range(2):
        assert ask(s.port, good)[2] == b"HTTP/1.1 200 OK"
    for wrong in (other.folder / "client.both.pem", ca.folder / "expired.both.pem"):
        with pytest.raises(OSError):
            ask(s.port, client(ca, version, certificate=wrong))
    if asked == 1:
        assert ask(s.port, client(ca, version))[2] == b"HTTP/1.1 200 OK"
    else:
        with pytest.raises(OSError):
            ask(s.port, client(ca, version))
    assert ask(s.port, good)[2] == b"HTTP/1.1 200 OK"


def test_openssl_is_loaded_with_a_certificate_alone(server, start):
    def maps(s):
        return pathlib.Path(f"/proc/{s.process.pid}/maps").read_text()

    assert "libssl" in maps(server) and "libssl" not in maps(start().wait_ready())


def one_line(folder, *flags):
    command = [TERN, "serve", "--model", str(MODEL), "--port", "0", *map(str, flags)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder)
    assert done.returncode != 0 and len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    "flags, says",
    [
        (["--ssl-certfile", "none.pem"], "--ssl-certfile none.pem: No such file or directory"),
        (["--ssl-certfile", "."], "--ssl-certfile .: it is no regular file"),
        (["--ssl-certfile", "server.key"], "--ssl-certfile server.key: there is no certificate in it"),
        (["--ssl-certfile", "server.pem"], "--ssl-certfile server.pem: there is no private key in it"),
        (["--ssl-certfile", "server.pem", "--ssl-keyfile", "none"], "--ssl-keyfile none: No such file"),
        (["--ssl-certfile", "server.pem", "--ssl-keyfile", "client.key"], "it is not the key of the certificate in --ssl-certfile server.pem"),
        (["--ssl-certfile", "server.pem", "--ssl-keyfile", "rsa.key"], "it is not the key of the certificate in --ssl-certfile server.pem"),
        (["--ssl-certfile", "server.pem", "--ssl-keyfile", "locked.key"], "--ssl-keyfile locked.key: the key is encrypted"),
        (["--ssl-certfile", "weak.both.pem"], "key too small"),
        (["--ssl-certfile", "cut.pem"], "cut.pem: a certificate of the chain cannot be read"),
        (["--ssl-keyfile", "server.key"], "--ssl-keyfile says nothing without --ssl-certfile"),
        (["--ssl-ca-certs", "ca.pem"], "--ssl-ca-certs says nothing without --ssl-certfile"),
        (["--ssl-cert-reqs", "2"], "--ssl-cert-reqs says nothing without --ssl-certfile"),
        (["--ssl-certfile", "server.both.pem", "--ssl-ca-certs", "ca.pem"], "--ssl-ca-certs says nothing without --ssl-cert-reqs 1 or 2"),
        (["--ssl-certfile", "server.both.pem", "--ssl-cert-reqs", "2"], "--ssl-cert-reqs 2 needs --ssl-ca-certs"),
        (["--ssl-certfile", "server.both.pem", "--ssl-cert-reqs", "2", "--ssl-ca-certs", "ca.key"], "--ssl-ca-certs ca.key: there is no certificate in it"),
        (["--ssl-certfile", "server.both.pem", "--ssl-cert-reqs", "3"], "--ssl-cert-reqs"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_files_that_cannot_be_used_end_the_start_with_one_line(ca, flags, says):
    folder = ca.folder
    if not (folder / "locked.key").exists():
        openssl("pkey", "-in", "server.key", "-aes128", "-passout", "pass:secret", "-out", "locked.key", folder=folder)
        ca.sign("weak", key="rsa:1024")
        whole = (folder / "server.pem").read_text()
        (folder / "cut.pem").write_text(whole + whole[: len(whole) // 2] + "\n" + (folder / "server.key").read_text())
    assert says in one_line(folder, *flags)


def test_a_unix_socket_speaks_no_tls(ca, tmp_path):
    command = [TERN, "serve", "--model", str(MODEL), "--uds", "s", "--ssl-certfile", str(ca.folder / "server.both.pem")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode != 0 and "a Unix socket speaks no TLS" in done.stderr


def test_a_key_that_others_may_read_is_named(start, ca, tmp_path):
    key = tmp_path / "key"
    shutil.copy(ca.folder / "server.key", key)
    key.chmod(0o644)
    s = start("--ssl-certfile", ca.folder / "server.pem", "--ssl-keyfile", key, trust=ca.file).wait_ready()
    assert f"--ssl-keyfile {key}: others than its owner may read or change it (mode 0644)" in s.text()


def test_own_clients(server, ca, other):
    def tern(*arguments):
        return subprocess.run([TERN, *map(str, arguments)], capture_output=True, text=True, timeout=120)

    chat = ["chat", "--url", server.url + "/v1", "-q", "hi", "--max-tokens", 4]
    bench = ["bench", "serve", "--url", server.url, "--requests", 8, "--concurrency", 4, "--input-len", 8, "--output-len", 8]
    assert tern(*chat, "--ca-file", ca.file).returncode == 0
    load = tern(*bench, "--ca-file", ca.file)
    assert load.returncode == 0 and "requests 8, failed 0" in load.stdout, load.stdout + load.stderr
    for command in (chat, bench):
        refused = tern(*command, "--ca-file", other.file)
        assert refused.returncode != 0 and "certificate" in refused.stdout + refused.stderr
    assert "--ca-file says nothing" in tern("bench", "serve", "--url", "http://127.0.0.1:1", "--ca-file", ca.file).stderr
