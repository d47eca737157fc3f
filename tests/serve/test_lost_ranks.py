"""Ranks that are killed, stopped or stuck are started again, and what was asked goes on."""
import concurrent.futures
import contextlib
import ctypes
import os
import shutil
import signal
import tempfile
import time
import unittest

from serving import BACKEND, BEGINNING, HOLDS, RANKS, Server, Stream, eventually, is_gone, long_body


@unittest.skipIf(RANKS < 2, "one rank")
class Launched(unittest.TestCase):
    """`mpirun -np N trireme serve` serves with N ranks, which are lost and started again as else, and ends with mpirun."""
    def serve(self, end):
        launcher = ["mpirun", "--allow-run-as-root", "--bind-to", "core", "--oversubscribe", "-np", str(RANKS)]
        server = Server(launcher=launcher, ranks=RANKS)
        try:
            workers = server.workers()
            self.assertEqual(len(workers), RANKS)
            if BACKEND == "host": # they share what there is, and not what one of them was bound to
                self.assertEqual(set().union(*map(os.sched_getaffinity, workers)), os.sched_getaffinity(0))
            self.assertEqual(server.complete(), BEGINNING)
            os.kill(workers[-1], signal.SIGKILL)
            server.wait_line("serving again")
            self.assertEqual(server.complete(), BEGINNING)
            workers = server.workers()
        finally:
            server.stop(end)
        eventually(lambda: self.assertEqual([pid for pid in workers if not is_gone(pid)], []))

    def test_ended(self):
        self.serve(signal.SIGTERM)

    def test_launcher_killed(self):
        self.serve(signal.SIGKILL)


@unittest.skipIf(RANKS < 2, "started without mpirun")
class Leftovers(unittest.TestCase):
    """Files of processes that were killed do not stay."""
    def folder(self, server):
        """Where Open MPI has the files of the server's job."""
        folders = [os.readlink(f"/proc/{server.process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{server.process.pid}/fd")]
        folders = [folder for folder in folders if folder.startswith("/dev/shm/trireme-serve-")]
        self.assertEqual(len(folders), 1)
        return folders[0]

    def launcher(self, server):
        with open(f"/proc/{server.workers()[0]}/stat") as stat:
            return int(stat.read().rsplit(")", 1)[1].split()[1])

    def files(self, folder):
        return {os.path.join(where, name) for where, folders, names in os.walk(folder) for name in folders + names}

    def test_launcher_killed(self):
        with Server() as server:
            folder = self.folder(server)
            before = self.files(folder)
            self.assertNotEqual(before, set())
            with open(f"/proc/{server.workers()[0]}/maps") as maps:
                self.assertNotIn("/dev/shm/vader", maps.read())
            os.kill(self.launcher(server), signal.SIGKILL)
            server.wait_line("serving again")
            after = self.files(folder)
            self.assertNotEqual(after, set())
            self.assertEqual({path for path in before & after if not os.path.isdir(path)}, set())
        self.assertFalse(os.path.exists(folder))

    def test_all_killed(self):
        with tempfile.TemporaryDirectory() as temporary:
            server = Server(environment={"TMPDIR": temporary})
            folder, workers, launcher = self.folder(server), server.workers(), self.launcher(server)
            for pid in server.process.pid, launcher, *workers:
                os.kill(pid, signal.SIGKILL)
            eventually(lambda: self.assertTrue(all(map(is_gone, workers))))
            server.stop()
            self.assertTrue(os.path.exists(folder))
            self.assertEqual(os.listdir(temporary), [])
            with Server() as server:
                self.assertFalse(os.path.exists(folder))
                self.assertEqual(server.complete(), BEGINNING)


@unittest.skipIf(RANKS < 2, "started without mpirun")
class HangingLaunchers(unittest.TestCase):
    """A start that hangs ends: the first one with an exit code, a later one in a new start."""
    def serve(self, hanging):
        """A server whose starts of these numbers hang."""
        folder = tempfile.mkdtemp()
        path = os.path.join(folder, "mpirun")
        with open(path, "w") as file:
            file.write(f"#!/bin/sh\necho >> {folder}/starts\n"
                       f"case $(wc -l < {folder}/starts) in {hanging}) exec sleep 1000;; esac\n"
                       'exec mpirun "$@"\n')
        os.chmod(path, 0o700)
        return Server("--mpirun", path, "--start-timeout", "5", ready=False), folder

    def test_first_start(self):
        server, folder = self.serve("1")
        self.assertEqual(server.request("GET", "/health")[0], 503)
        server.wait_line("hangs at its start: no progress for")
        self.assertEqual(server.process.wait(100), 6)
        server.stop()
        shutil.rmtree(folder)

    def test_restart(self):
        server, folder = self.serve("2")
        with server:
            server.wait_line("ready after")
            os.kill(server.workers()[0], signal.SIGKILL)
            server.wait_line("restarting it")
            self.assertEqual(server.complete(), BEGINNING)
            server.wait_line("hangs at its start: no progress for")
            self.assertEqual(server.metric("trireme_restarts_total"), 2)
        shutil.rmtree(folder)


class LostRanks(unittest.TestCase):
    def texts(self, server, disturb):
        bodies = [{"prompt": f"And the LORD spake unto {name}", "max_tokens": 100, "ignore_eos": True, "seed": i,
                   "temperature": 0 if i % 2 else 0.9, "frequency_penalty": 0.3 * (i % 3)}
                  for i, name in enumerate(["Moses", "Aaron", "Joshua", "Gad", "the king", "his people"] * 2)]
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            replies = [pool.submit(server.request, "POST", "/v1/completions", body) for body in bodies]
            disturb()
            results = [reply.result() for reply in replies]
        self.assertEqual([status for status, _, _ in results], [200] * len(bodies), results)
        return [body["choices"][0]["text"] for _, body, _ in results]

    def lose(self, sign, *options, turns=RANKS):
        if BACKEND == "cuda": # where else sums depend on the number of rows, and with them a choice now and then
            options += "--batch-invariant",
        with Server(*options) as server:
            expected = self.texts(server, lambda: None)
            for turn in range(turns):
                before = server.metric("vllm:generation_tokens_total")

                def disturb():
                    while server.metric("vllm:generation_tokens_total") < before + 100:
                        time.sleep(0.002) # the ranks want the processors
                    victims = server.workers()
                    self.assertEqual(len(victims), RANKS)
                    self.began = time.monotonic()
                    os.kill(victims[turn % RANKS], sign)
                    server.wait_line("the job is lost", count=turn + 1)
                    self.noticed = time.monotonic() - self.began

                self.assertEqual(self.texts(server, disturb), expected)
                server.wait_line("serving again", count=turn + 1) # all replies may have been there before
                server.wait_metric("trireme_restarts_total", turn + 1)
                yield server

    def test_killed(self):
        times = []
        for server in self.lose(signal.SIGKILL, *HOLDS, turns=max(RANKS, 4)): # no beat that stays away tells of it
            times.append((self.noticed, server.metric("trireme_last_recovery_seconds"), server.start_seconds))
            print("%d ranks, killed: noticed after %.3f s, serving again after %.2f s, at first after %.2f s" % (RANKS, *times[-1]))
        in_time = [noticed < 1 and again < first + 2 for noticed, again, first in times]
        # On the host processors may be busy now and then; a GPU's machine is its own.
        self.assertTrue(all(in_time) if BACKEND == "cuda" else any(in_time), times)

    def test_stopped(self):
        for server in self.lose(signal.SIGSTOP, "--heartbeat-timeout", "0.8"): # the default
            print(f"stopped: noticed after {self.noticed:.3f} s")
            if BACKEND == "cuda": # 0.8 s since the last beat; on the host the front end waits for a processor as well
                self.assertLess(self.noticed, 1.5)

    def test_stuck(self):
        """The thread of a rank that makes steps stands still while its others live: in a step, and while there is none."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.ptrace.argtypes, libc.ptrace.restype = [ctypes.c_long] * 4, ctypes.c_long

        def hold(pid): # PTRACE_SEIZE and PTRACE_INTERRUPT stop one thread, not the process
            for request in 0x4206, 0x4207:
                self.assertEqual(libc.ptrace(request, pid, 0, 0), 0, os.strerror(ctypes.get_errno()))

        with Server("--step-timeout", "4", "--heartbeat-timeout", "600") as server:
            for turn in range(2 * RANKS):
                rank = server.workers()[turn // 2]
                if turn % 2 == 0:
                    stream = Stream(server, prompt="And the LORD", max_tokens=300)
                began = time.monotonic()
                hold(rank)
                server.wait_line("the job is lost: rank . has not (finished|polled for) a step for 4", seconds=60, count=turn + 1)
                print(f"stuck: noticed after {time.monotonic() - began:.3f} s")
                if RANKS == 1 or (turn % 2 == 1 and turn > 1): # rank 0 does not wait for others while it has no work
                    told = [line for line in server.lines if "the job is lost" in line][-1]
                    self.assertIn(f"rank {turn // 2} has not", told)
                os.waitpid(rank, 0x40000000) # __WALL: a process that is traced ends with its tracer's knowledge
                server.wait_line("serving again", count=turn + 1)
                if turn % 2 == 0:
                    self.assertEqual(stream.end()[1]["completion_tokens"], 300)
                server.wait_metric("trireme_requests_live", 0)

    def test_killed_while_idle(self):
        with Server() as server:
            for rank in range(RANKS):
                os.kill(server.workers()[rank], signal.SIGKILL)
                server.wait_line("serving again", count=rank + 1)
                self.assertEqual(server.complete(), BEGINNING)

    def test_order(self):
        """Requests go on in the order in which they came."""
        def prompt(i): # begins with the one before, which is found in the cache if that has run
            return " ".join(["And the LORD said."] * 10 * (i + 1))

        with Server("--sequences", "1", *HOLDS) as server, concurrent.futures.ThreadPoolExecutor(5) as pool:
            with contextlib.ExitStack() as hold:
                first = None
                while first is None or first.has_ended(): # on a busy machine it may have ended before the ranks are held
                    hold.close()
                    first = Stream(server, prompt=prompt(0), max_tokens=300)
                    hold.enter_context(server.held())
                replies = []
                for i in range(1, 5):
                    replies.append(pool.submit(server.request, "POST", "/v1/completions", long_body(prompt=prompt(i), max_tokens=20)))
                    server.wait_metric("trireme_requests_live", i + 1)
                os.kill(server.workers()[-1], signal.SIGKILL)
            usages = [first.end()[1]] + [reply.result()[1]["usage"] for reply in replies]
            server.wait_metric("trireme_restarts_total", 1)
            for before, usage in zip(usages, usages[1:]):
                self.assertGreater(before["prompt_tokens"], 32)
                self.assertGreaterEqual(usage["prompt_tokens_details"]["cached_tokens"], before["prompt_tokens"] - 32, usages)

    def test_stream_pauses(self):
        with Server() as server:
            expected = server.complete("And the LORD", max_tokens=200, ignore_eos=True)
            victim = server.workers()[-1]
            stream = Stream(server, prompt="And the LORD", max_tokens=200)
            os.kill(victim, signal.SIGKILL)
            self.assertEqual(stream.end()[0], expected)
            server.wait_metric("trireme_restarts_total", 1)


if __name__ == "__main__":
    unittest.main()
