"""Two ranks, one process each, started by mpirun and as torchrun starts them."""

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = [sys.executable, str(Path(__file__).with_name("rank.py"))]
DEADLINE = 600


def by_mpirun(what):
    options = ["-np", "2", "--bind-to", "none"]
    environment = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    ended = subprocess.run(
        [shutil.which("mpirun"), *options, *SCRIPT, what],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def free_ports():
    """A port that is free with the next one, which ranks meet at. Not among those that the system gives away."""
    for n in itertools.count(os.getpid(), 101):
        port = 10000 + 2 * n % 22000
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("", port))
            other.bind(("", port + 1))
            return port


def by_torchrun(what):
    port = free_ports()
    ranks = []
    for rank in range(2):
        environment = {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        ranks.append(
            subprocess.Popen(
                [*SCRIPT, what],
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):
            for rank in ranks:  # the others may wait for the one that failed
                rank.kill()
        time.sleep(0.05)
    ends = [rank.communicate() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], ends
    assert ends[1][0] == ""
    return ends[0][0]


@pytest.mark.parametrize("launch", [by_mpirun, by_torchrun])
@pytest.mark.parametrize("what", ["llm", "async"])
def test_text_is_that_of_one_rank(launch, what, llm):
    prompts = ["In the beginning God", "And God said"]
    expected = [output.text for output in llm.generate(prompts, max_tokens=16)]
    assert launch(what) == "".join(text + "\n" for text in expected)


@pytest.mark.parametrize("launch", [by_mpirun, by_torchrun])
def test_networks_and_collectives(launch):
    assert launch("engine") == "[3.0, 3.0, 3.0] [0, 1] [7]\n"


def test_a_lost_rank_is_an_exception():
    assert by_torchrun("lost") == "lost: LOST_RANK\n"
