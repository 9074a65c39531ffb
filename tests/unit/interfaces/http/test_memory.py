"""What a server keeps in its memory."""

from __future__ import annotations

import subprocess
import sys

STARTING = """
import os, socket
from headwater.interfaces.http.server import HttpServer
from headwater.base.errors import HeadwaterError
with socket.create_server(("127.0.0.1", 0)) as taken:
    try:
        HttpServer().start(None, "127.0.0.1", taken.getsockname()[1])
    except HeadwaterError as error:
        print(error.code)
import pyarrow
print(pyarrow.default_memory_pool().backend_name, "ARROW_DEFAULT_MEMORY_POOL" in os.environ)
"""


def test_arrow_keeps_nothing_for_threads_in_a_server_and_its_children_choose_for_themselves() -> None:
    done = subprocess.run([sys.executable, "-c", STARTING], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["HW-H01", "system False"]
