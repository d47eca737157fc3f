"""What the tests of the Python package share. CTest sets the environment; see CMakeLists.txt."""

import os
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2]
MODEL = SOURCE / "configs" / "models" / "kjv-7m"
GOLDENS = SOURCE / "tests" / "goldens" / "onnx"
PROGRAM = os.environ.get("TRIREME_PROGRAM", "trireme")


@pytest.fixture(scope="session")
def llm():
    import trireme

    with trireme.LLM(MODEL, embeddings=True) as opened:
        yield opened
