"""What a call costs beyond the same in C. Printed, not asserted: machines are busy."""

import os
import subprocess
import time

import numpy as np
import trireme

CALLS, ROUNDS = 5000, 7


def test_a_run_of_one_layer(capsys):
    in_c = float(subprocess.run([os.environ["TRIREME_CALLS"]], check=True, capture_output=True, text=True).stdout)
    x = np.array([[1, -2, 3, -4]], np.float32)
    with trireme.Network() as network:
        network.mark_output(network.activation("relu", network.add_input("x", (1, 4)), name="y"))
        with trireme.Engine.from_network(network) as engine, engine.create_context() as context:
            best = float("inf")
            for _ in range(ROUNDS):
                began = time.perf_counter()
                for _ in range(CALLS):
                    y = context.run({"x": x})["y"]
                best = min(best, (time.perf_counter() - began) / CALLS * 1e6)
    assert list(y[0]) == [1, 0, 3, 0]
    with capsys.disabled():
        print(f"\na run of one layer: {best:.2f} us in Python, {in_c:.2f} us in C, {best - in_c:.2f} us more")
