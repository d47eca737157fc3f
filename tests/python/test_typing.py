"""The package passes mypy --strict."""

import subprocess
import sys

from conftest import SOURCE


def test_mypy(tmp_path):
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "trireme", "generate.py"]
    ended = subprocess.run(command, cwd=SOURCE / "python", capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout
