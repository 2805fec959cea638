"""HTTP over the program's Unix socket: many requests at once from one thread."""

from __future__ import annotations

import json
import selectors
import socket
import threading


class _Broken(Exception):
    """There is no connection, it ended inside an answer, or what came is no answer."""


def _parsed(data):
    try:
        return json.loads(data)
    except ValueError as error:
        raise _Broken("no JSON") from error


class _Connection:
    """One connection and the answer that comes over it."""

    def __init__(self, path):
        self.used = False  # for an answer before this one
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.connect(path)
        except OSError as error:
            self.sock.close()
            raise _Broken(str(error)) from error

    def begin(self, number, data):
        self.number, self.request, self.left = number, data, memoryview(data)
        self._buffer, self._status, self._length, self._body, self.complete = bytearray(), None, None, bytearray(), False
        self._keep, self._seen = True, 0

    def send(self):
        """True when all of the request has been sent."""
        while self.left:
            try:
                self.left = self.left[self.sock.send(self.left) :]
            except BlockingIOError:
                return False
            except OSError:
                self.left = self.left[:0]  # the answer, or the end of the connection, says what happened
        return True

    def receive(self):
        """Reads what is there; false: the other side has closed."""
        try:
            data = self.sock.recv(1 << 18)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        self._buffer += data
        if self._status is None:
            self._read_head()
        if self._status is not None and not self.complete:
            self._read_body()
        return True

    @property
    def begun(self):
        return self._status is not None or bool(self._buffer)

    @property
    def status(self):
        return self._status

    @property
    def reusable(self):
        return self.complete and self._keep and not self.left

    def value(self):
        return _parsed(self._body)

    def body(self):
        return bytes(self._body)

    def lines(self):
        """The whole lines of the body that have not been given yet."""
        end = self._body.rfind(b"\n") + 1
        if end == 0:
            return []
        lines = bytes(self._body[:end]).split(b"\n")
        del self._body[:end]
        return lines

    def _read_head(self):
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        first, *rest = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        fields = {}
        for line in rest:
            name, _, value = line.partition(":")
            fields[name.strip().lower()] = value.strip().lower()
        version, _, code = first.partition(" ")
        if not version.startswith("HTTP/1.") or not code[:3].isdigit():
            raise _Broken(first)
        self._status = int(code[:3])
        self._keep = fields.get("connection") != "close"
        if "chunked" in fields.get("transfer-encoding", ""):
            self._length = -1
        elif "content-length" in fields:
            self._length = _number(fields["content-length"], 10)
        else:
            raise _Broken("an answer without a length")

    def _read_body(self):
        buffer = self._buffer
        if self._length >= 0:
            self._seen += len(buffer)
            self._body += buffer
            buffer.clear()
            self.complete = self._seen >= self._length
            return
        at = 0
        while not self.complete:
            end = buffer.find(b"\r\n", at)
            if end < 0:
                break
            size = _number(buffer[at:end].partition(b";")[0], 16)
            if len(buffer) < end + 4 + size:
                break
            self._body += buffer[end + 2 : end + 2 + size]
            at = end + 4 + size
            self.complete = size == 0
        del buffer[:at]


def _number(text, base):
    try:
        return int(text, base)
    except ValueError as error:
        raise _Broken("no length") from error


def _request(method, path, body):
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
    if body is None:
        return (head + "\r\n").encode()
    data = json.dumps(body).encode()
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


class Client:
    """The connections of one call. `died()` makes the exception for a program that is gone."""

    def __init__(self, path, died):
        self._path, self._died = path, died
        self._lock = threading.Lock()
        self._open = set()
        self._closed = False

    def ready(self):
        try:
            return self.get("/health")[0] == 200
        except _Broken:
            return False

    def get(self, path):
        """Status and bytes."""
        connection = _Connection(self._path)
        try:
            connection.begin(0, _request("GET", path, None))
            connection.send()
            while not connection.complete:
                if not connection.receive():
                    raise _Broken("closed")
            return connection.status, connection.body()
        finally:
            connection.sock.close()

    def run(self, bodies, most, may_begin, stream=False):
        """Posts `bodies` (pairs of path and value, taken when their turn comes), at most `most` at once and while `may_begin(how
        many are open)`; yields (number, status, value) as answers come. With `stream` (number, None, value) for every
        event, then (number, status, None); a refused request: its answer as an event.
        """
        bodies, free, known = enumerate(bodies), [], {}
        waiting = selectors.DefaultSelector()
        try:
            more = True
            while more or known:
                while more and len(known) < most and may_begin(len(known)):
                    number, one = next(bodies, (None, None))
                    more = number is not None
                    if more:
                        request = _request("POST", *one)
                        connection = free.pop() if free else self._connect()
                        connection.begin(number, request)
                        self._start(waiting, connection, known)
                for key, _ in waiting.select() if known else []:
                    yield from self._serve(waiting, key.data, known, free, stream)
        except _Broken as error:
            if not self._closed:
                raise self._died() from error
        finally:
            waiting.close()
            with self._lock:
                for connection in self._open:
                    connection.sock.close()  # the server aborts what nobody reads
                self._open.clear()

    def close(self):
        """Ends run(), from any thread."""
        with self._lock:
            self._closed = True
            for connection in self._open:
                try:
                    connection.sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def _connect(self):
        connection = _Connection(self._path)
        connection.sock.setblocking(False)
        with self._lock:
            self._open.add(connection)
            if self._closed:
                raise _Broken("the call has ended")
        return connection

    @staticmethod
    def _start(waiting, connection, known):
        known[connection.number] = connection
        wanted = selectors.EVENT_READ if connection.send() else selectors.EVENT_READ | selectors.EVENT_WRITE
        waiting.register(connection.sock, wanted, connection)

    def _serve(self, waiting, connection, known, free, stream):
        if connection.left and connection.send():
            waiting.modify(connection.sock, selectors.EVENT_READ, connection)
        if not connection.receive():
            self._again(waiting, connection, known)
            return
        number = connection.number
        if stream and connection.status == 200:
            for line in connection.lines():
                if line.startswith(b"data: {"):
                    yield number, None, _parsed(line[6:])
        if not connection.complete:
            return
        waiting.unregister(connection.sock)
        del known[number]
        value = None
        if not stream or connection.status != 200:
            value = connection.value()
        if connection.reusable:
            connection.used = True
            free.append(connection)
        else:
            self._drop(connection)
        if stream and value is not None:
            yield number, None, value
            value = None
        yield number, connection.status, value

    def _again(self, waiting, connection, known):
        """The server had closed a connection that rested; a request that it has not answered is sent again."""
        waiting.unregister(connection.sock)
        del known[connection.number]
        self._drop(connection)
        if connection.begun or not connection.used:
            raise _Broken("closed")
        fresh = self._connect()
        fresh.begin(connection.number, connection.request)
        self._start(waiting, fresh, known)

    def _drop(self, connection):
        connection.sock.close()
        with self._lock:
            self._open.discard(connection)
