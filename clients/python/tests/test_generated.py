"""The client that ``restive generate python`` writes: mypy accepts it with all strict options, for
the bookshop and for hostile names, and it works against the real server."""

import asyncio
import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from harness import KEY, Server

HERE = pathlib.Path(__file__).parent
folder = tempfile.mkdtemp(prefix="restive-generated-")
use = None
server = None


def generate(name, *arguments):
    command = [os.environ["RESTIVE_BIN"], "generate", "python", *arguments]
    subprocess.run([*command, "--out", f"{name}.py"], cwd=folder, check=True)


def setUpModule():
    global server, use
    generate("bookshop")
    root = pathlib.Path(os.environ["RESTIVE_VECTORS"]).parent.parent
    hostile = root / "crates/restive/tests/e2e/generated/hostile.toml"
    generate("hostile", "--schema", str(hostile))
    sys.path[:0] = [folder]
    use = importlib.import_module("generated_use")
    importlib.import_module("hostile")
    server = Server()


def tearDownModule():
    if server:
        server.kill()


class Generated(unittest.TestCase):
    def test_mypy_accepts_the_module_and_finds_mistakes_in_its_use(self):
        package = importlib.import_module("restive_client").__path__[0]
        where = os.pathsep.join([folder, str(pathlib.Path(package).parent)])
        mypy = [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.10"]
        files = [str(HERE / "generated_use.py"), f"{folder}/hostile.py"]
        result = subprocess.run(
            [*mypy, "--warn-unused-ignores", "--cache-dir", f"{folder}/mypy", *files],
            env={**os.environ, "MYPYPATH": where},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_every_operation_works_against_the_real_server(self):
        expected = {
            "titles": ["C", "B", "A"],
            "price": 12.5,
            "bounded": ["A"],
            "unpriced": ["C"],
            "rating": [5, True],
            "status": ["created", "cancelled", "late"],
            "open": 0,
            "found": True,
            "polled": "hello",
        }
        self.assertEqual(use.use(server.url, KEY), expected)
        self.assertEqual(asyncio.run(use.use_async(server.url, KEY)), ["A", "B", "paid"])

    def test_messages_are_told_apart_by_their_type(self):
        use.use(server.url, KEY)
        self.assertEqual(use.first_message(server.url, KEY), "A")


if __name__ == "__main__":
    unittest.main()
