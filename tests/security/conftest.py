"""The server of the end-to-end tests, for tests that attack it."""

import importlib.util
import pathlib

_path = pathlib.Path(__file__).resolve().parents[1] / "e2e" / "conftest.py"
_spec = importlib.util.spec_from_file_location("end_to_end_server", _path)
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

Server = _module.Server
MODEL, TERN, free_port = _module.MODEL, _module.TERN, _module.free_port
start = _module.start
server = _module.server
