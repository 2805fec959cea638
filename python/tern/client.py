"""HTTP over the program's Unix socket: the connections of one call, one per thread."""

from __future__ import annotations

import http.client
import json
import socket
import threading


class _Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


class Client:
    """`died()` makes the exception for a program that is gone."""

    def __init__(self, path, died):
        self._path, self._died = path, died
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._open = set()
        self._closed = False

    def ready(self):
        try:
            return self.get("/health")[0] == 200
        except OSError:
            return False

    def get(self, path):
        """Status and bytes. Errors: those of the socket."""
        connection = _Connection(self._path)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def post(self, path, body):
        """Status and the answer's value."""
        connection = self._connection()
        try:
            answer = self._send(connection, path, body)
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, AttributeError, ValueError) as error:
            self._drop(connection)
            raise self._died() from error
        except BaseException:
            self._drop(connection)
            raise

    def stream(self, path, body):
        """The values of a stream's events. A refused request: one value {"error": ...}."""
        connection = self._connection()
        whole = False
        try:
            answer = self._send(connection, path, body)
            if answer.status != 200:
                yield json.loads(answer.read())
                whole = True
                return
            for line in answer:
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])
                elif line.startswith(b"data: [DONE]"):
                    whole = True
            if not whole:
                raise self._died()
        except (OSError, http.client.HTTPException, AttributeError, ValueError) as error:
            raise self._died() from error
        finally:
            if not whole:
                self._drop(connection)  # the server aborts what nobody reads

    def close(self):
        """Closes every connection, from any thread: the server aborts what was asked over them."""
        with self._lock:
            self._closed = True
            for connection in self._open:
                if connection.sock is not None:
                    try:
                        connection.sock.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass

    def _connection(self):
        found = getattr(self._mine, "connection", None)
        if found is None:
            found = self._mine.connection = _Connection(self._path)
            with self._lock:
                if self._closed:
                    raise ConnectionAbortedError("the call has ended")
                self._open.add(found)
        return found

    def _drop(self, connection):
        connection.close()
        with self._lock:
            self._open.discard(connection)
        if getattr(self._mine, "connection", None) is connection:
            self._mine.connection = None

    @staticmethod
    def _send(connection, path, body):
        data = json.dumps(body).encode()
        try:
            connection.request("POST", path, data, {"Content-Type": "application/json"})
            return connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            # The server had closed a connection that rested for long; a request it has not answered may be sent again.
            connection.close()
            connection.request("POST", path, data, {"Content-Type": "application/json"})
            return connection.getresponse()
