"""Failures as exceptions, the log, and what cannot be copied."""

import copy
import logging
import pickle
import subprocess
import sys

import pytest
import trireme
from conftest import MODEL
from trireme import _c
from trireme.errors import _CLASSES, error_of


def test_every_status_has_a_class():
    assert set(_CLASSES) == set(_c.trm_status) - {_c.trm_status.OK}
    for status, kind in _CLASSES.items():
        error = error_of(status, "it broke")
        assert type(error) is kind and isinstance(error, trireme.TriremeError)
        assert (error.status, error.cause, str(error)) == (status, "it broke", "it broke")
        assert getattr(trireme, kind.__name__) is kind
    assert type(error_of(99, "later")) is trireme.InternalError


def test_they_are_usual_exceptions_too():
    assert issubclass(trireme.FileError, OSError)
    assert issubclass(trireme.InvalidArgumentError, ValueError)
    assert issubclass(trireme.OutOfMemoryError, MemoryError)


def test_errors_can_be_pickled():
    error = trireme.InvalidModelError("bad file")
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is trireme.InvalidModelError and copied.cause == "bad file"


def test_objects_cannot_be_copied():
    with trireme.Network() as network:
        for call in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot pickle or copy a Network: it is memory of this process"):
                call(network)
    with trireme.LLM(MODEL, max_context=32) as llm, pytest.raises(TypeError, match="open the model in the other process"):
        pickle.dumps(llm)


def test_the_log_goes_to_logging(caplog):
    def levels():
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "trireme"), trireme.LLM(MODEL, max_context=4096) as llm:
            assert llm.limits["max_context"] == 1024
        return {record.levelno for record in caplog.records if record.filename == "_library.py"}

    trireme.set_log_level(logging.DEBUG)
    assert logging.DEBUG in levels()
    assert "max_context is 4096, the model has 1024 tokens of context" in caplog.text
    trireme.set_log_level(logging.CRITICAL)
    assert levels() == set()
    trireme.set_log_level(logging.INFO)
    assert logging.DEBUG not in levels()


def run_python(code, **environment):
    import os

    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=600
    )


def test_a_process_may_end_with_open_objects():
    """Nothing is closed by hand: a model, a stream in the middle, an engine with contexts."""
    code = f"""
import numpy as np, trireme
llm = trireme.LLM({str(MODEL)!r})
stream = llm.stream("In the beginning")
print(next(stream))
network = trireme.Network()
network.mark_output(network.activation("relu", network.add_input("x", (2,)), name="y"))
engine = trireme.Engine.from_network(network)
contexts = [engine.create_context() for _ in range(3)]
print(contexts[0].run({{"x": np.ones(2, np.float32)}}))
tensor = trireme.default_world().empty((4,))
"""
    ended = run_python(code)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_types_without_ml_dtypes():
    code = """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np, trireme
with trireme.Network() as network:
    network.mark_output(network.activation("relu", network.add_input("x", (2,), "bf16"), name="y"))
    engine = trireme.Engine.from_network(network)
one, minus_one = 0x3F80, 0xBF80
y = engine.run({"x": np.array([one, minus_one], np.uint16)})["y"]
assert y.dtype == np.uint16 and list(y) == [one, 0]
"""
    ended = run_python(code)
    assert ended.returncode == 0, ended.stderr


def test_a_missing_library():
    ended = run_python("import trireme", TRIREME_LIBRARY="/nowhere/libtrireme.so")
    assert "ImportError: cannot load /nowhere/libtrireme.so" in ended.stderr
    assert "Set TRIREME_LIBRARY" in ended.stderr


def test_an_interrupt_cancels(llm):
    """Control-C in a call ends the call and its requests."""
    import _thread
    import threading

    threading.Timer(0.3, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        while True:
            llm.generate(["In the beginning"] * 16, ignore_eos=True)
    while llm.stats()["running"] > 0:
        pass
    assert llm.generate("And", max_tokens=1).finish_reason == "length"
