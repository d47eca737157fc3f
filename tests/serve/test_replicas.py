"""Several jobs of the model behind one server."""
import concurrent.futures
import os
import re
import shutil
import signal
import tempfile
import time
import unittest

from serving import BACKEND, BEGINNING, HOLDS, MODEL, RANKS, Server, eventually, fall_asleep, is_gone, long_body, of_front_end, write_temporary


@unittest.skipIf(BACKEND == "cuda" and RANKS < 2, "one GPU")
class Replicas(unittest.TestCase):
    """Two jobs of the model behind one server, on GPUs of half as many ranks each."""
    RANKS = RANKS // 2 if BACKEND == "cuda" else RANKS
    BODIES = [{"prompt": f"And the LORD spake unto {name}", "max_tokens": 60, "ignore_eos": True, "seed": i, "n": 1 + i % 2,
               "temperature": 0.4 * (i % 3)} for i, name in enumerate(["Moses", "Aaron", "Joshua", "Gad", "the king", "his people"])]
    OPTIONS = ("--batch-invariant",) if BACKEND == "cuda" else () # else sums depend on the number of rows

    def texts(self, server, disturb=lambda: None):
        with concurrent.futures.ThreadPoolExecutor(len(self.BODIES)) as pool:
            replies = [pool.submit(server.request, "POST", "/v1/completions", body) for body in self.BODIES]
            disturb()
            results = [reply.result() for reply in replies]
        self.assertEqual([status for status, _, _ in results], [200] * len(self.BODIES), results)
        return [[choice["text"] for choice in reply["choices"]] for _, reply, _ in results]

    def serving(self, server):
        status, reply, _ = server.request("GET", "/health")
        return status, reply.get("replicas_serving")

    def steps(self, server, replica):
        return server.metric('trireme_rank_steps_total.*replica="%d",rank="0".*' % replica)

    def starting(self, server):
        """How many replicas each rank's job was started beside: those divide what memory is free."""
        counts = []
        for pid in server.workers():
            with open(f"/proc/{pid}/environ") as environment:
                counts += re.findall(r"\0TRIREME_SERVE_STARTING=(\d+)", "\0" + environment.read())
        return sorted(counts)

    def thread_states(self, pid):
        states = set()
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/stat") as stat:
                states.add(stat.read().rsplit(")", 1)[1].split()[0])
        return states

    def test_share(self):
        """Requests are divided, texts are those of one job, and a prompt goes where its beginning is known."""
        with Server(*self.OPTIONS, ranks=self.RANKS) as server:
            expected = self.texts(server)
            one = server.metric("trireme_cache_blocks")
        with Server("--replicas", "2", *self.OPTIONS, ranks=self.RANKS) as server:
            self.assertEqual(len(server.workers()), 2 * self.RANKS)
            self.assertEqual(self.texts(server), expected)
            self.assertEqual(self.serving(server), (200, 2))
            if BACKEND == "host": # a GPU's memory decides elsewhere
                server.wait_metric("trireme_cache_blocks", 2 * one)
            server.wait_metric("trireme_requests_live", 0)
            for replica in range(2): # one of 60 tokens at least
                eventually(lambda: self.assertGreaterEqual(self.steps(server, replica), 60))
            cached = []
            for _ in range(5): # replicas with nothing to do take turns where no beginning is known
                status, reply, _ = server.request("POST", "/v1/completions", long_body(prompt="And it came to pass " * 20, max_tokens=1))
                self.assertEqual(status, 200)
                cached.append(reply["usage"]["prompt_tokens_details"]["cached_tokens"])
            self.assertEqual(cached[0], 0)
            self.assertGreater(min(cached[1:]), 32)
            for name in "Ruth", "Job", "Esther": # conversations: the text so far, and more
                text = f"And the word of {name}"
                for turn in range(3):
                    status, reply, _ = server.request("POST", "/v1/completions", long_body(prompt=text, max_tokens=100))
                    if turn > 0:
                        self.assertGreater(reply["usage"]["prompt_tokens_details"]["cached_tokens"], 32)
                    text += reply["choices"][0]["text"]

    def test_killed(self):
        """What a lost replica had goes on at the other, and the server is ready all the time."""
        with Server("--replicas", "2", *self.OPTIONS, ranks=self.RANKS) as server:
            expected = self.texts(server)
            self.assertEqual(self.starting(server), ["2"] * 2 * self.RANKS)
            for turn in range(2):
                before = server.metric("vllm:generation_tokens_total")
                states = []

                def disturb():
                    while server.metric("vllm:generation_tokens_total") < before + 60:
                        time.sleep(0.002) # the ranks want the processors
                    victims = server.workers()
                    self.assertEqual(len(victims), 2 * self.RANKS)
                    os.kill(victims[-1 if turn else 0], signal.SIGKILL)
                    server.wait_line(r"replica \d is lost", count=turn + 1)
                    states.append(self.serving(server))

                self.assertEqual(self.texts(server, disturb), expected)
                self.assertEqual(states[0][0], 200)
                server.wait_line(r"replica \d is serving again", count=turn + 1)
                server.wait_metric("trireme_restarts_total", turn + 1)
                eventually(lambda: self.assertEqual(self.serving(server), (200, 2)))
                if turn == 0: # alone, while the other has its memory
                    self.assertEqual(self.starting(server), ["1"] * self.RANKS + ["2"] * self.RANKS)
            self.assertEqual(server.request("GET", "/health")[1], {"status": "ok", "replicas": 2, "replicas_serving": 2})
            for turn in range(5):
                os.kill(server.process.pid, signal.SIGSTOP) # so that it sees both losses at once
                eventually(lambda: self.assertEqual(self.thread_states(server.process.pid), {"T"}))
                victims = server.workers()
                for pid in victims:
                    os.kill(pid, signal.SIGKILL)
                eventually(lambda: self.assertTrue(all(is_gone(pid) for pid in victims)))
                os.kill(server.process.pid, signal.SIGCONT)
                server.wait_line(r"replica \d is serving again", count=4 + 2 * turn)
                starting = self.starting(server)
                if starting != ["1"] * 2 * self.RANKS: # else it was stopped between its looks at one and at the other
                    break
            # The launcher of one may be so late to end that the other has its memory by then.
            self.assertIn(starting, (["2"] * 2 * self.RANKS, ["1"] * self.RANKS + ["2"] * self.RANKS))
            self.assertEqual(self.texts(server), expected)

    def test_given_up(self):
        """A replica that cannot be started again is tried now and then; the server ends with the last one."""
        folder = tempfile.mkdtemp()
        model = folder + "/model"
        shutil.copytree(MODEL, model)
        server = Server("--replicas", "2", model=model, ranks=self.RANKS)
        try:
            shutil.move(model, folder + "/away")
            first = server.workers()
            os.kill(first[0], signal.SIGKILL)
            server.wait_line(r"replica \d is lost: .*; restarting it in 60 s")
            eventually(lambda: self.assertEqual(self.serving(server), (200, 1)))
            self.assertEqual(server.complete(), BEGINNING)
            os.kill([pid for pid in first if pid in server.workers()][0], signal.SIGKILL)
            self.assertEqual(server.process.wait(600), 3)
        finally:
            server.stop()
            shutil.rmtree(folder)

    @unittest.skipIf(BACKEND == "cuda" or RANKS > 1, "needs no GPU, and has two ranks however many others have")
    def test_launcher_gone(self):
        """A replica that cannot be started as a process is no loss of the others."""
        launcher = write_temporary('#!/bin/sh\nexec mpirun "$@"\n')
        os.chmod(launcher, 0o700)
        with Server("--replicas", "2", "--mpirun", launcher, ranks=2) as server:
            os.unlink(launcher)
            os.kill(server.workers()[-1], signal.SIGKILL)
            server.wait_line(r"replica \d is lost: cannot start .*No such file")
            eventually(lambda: self.assertEqual(self.serving(server), (200, 1)))
            self.assertEqual(server.complete(), BEGINNING)

    @unittest.skipIf(BACKEND == "cuda" or RANKS > 1, "needs no GPU, and has two ranks however many others have")
    def test_one_after_another(self):
        """A replica that is lost while another loads is started when that has its memory."""
        folder = tempfile.mkdtemp()
        gate, begun = f"{folder}/gate", f"{folder}/begun"
        launcher = write_temporary(f'#!/bin/sh\n[ -e {gate} ] && echo >> {begun}\nwhile [ -e {gate} ]; do sleep 0.1; done\nexec mpirun "$@"\n')
        os.chmod(launcher, 0o700)
        try:
            with Server("--replicas", "2", "--mpirun", launcher, ranks=2) as server:
                first = server.workers()
                open(gate, "w").close()
                os.kill(first[0], signal.SIGKILL)
                eventually(lambda: self.assertTrue(os.path.exists(begun))) # its next job, which waits
                os.kill([pid for pid in first if pid in server.workers()][0], signal.SIGKILL)
                server.wait_line(r"replica \d is lost", count=2)
                time.sleep(1) # in which the other one's does not begin
                with open(begun) as lines:
                    self.assertEqual(len(lines.readlines()), 1)
                os.unlink(gate)
                server.wait_line(r"replica \d is serving again", count=2)
                self.assertEqual(self.starting(server), ["1"] * 4)
                self.assertEqual(server.complete(), BEGINNING)
        finally:
            shutil.rmtree(folder)

    def test_divided_again(self):
        """What waits goes to a replica that serves again."""
        options = ["--replicas", "2", "--sequences", "1", "--max-requests", "6", *HOLDS]
        with Server(*options, ranks=self.RANKS) as server, concurrent.futures.ThreadPoolExecutor(12) as pool:
            with server.held(): # the other one all the time
                replies = [pool.submit(server.request, "POST", "/v1/completions", long_body(max_tokens=100)) for _ in range(12)]
                server.wait_metric("trireme_requests_live", 12)
                os.kill(server.workers()[0], signal.SIGKILL)
                server.wait_line(r"replica \d is lost")
                server.wait_line(r"replica \d is serving again")
                eventually(lambda: self.assertGreater(sum(reply.done() for reply in replies), 1))
            self.assertEqual([reply.result()[0] for reply in replies], [200] * 12)

    def test_sleep(self):
        with Server("--replicas", "2", "--sleep-mode", ranks=self.RANKS) as server:
            for lost in range(2): # all serve; one is being started again
                if lost:
                    os.kill(server.workers()[0], signal.SIGKILL)
                    server.wait_line(r"replica \d is lost")
                fall_asleep(server)
                self.assertEqual(server.workers(), [])
                eventually(lambda: self.assertEqual(self.serving(server), (503, 0)))
                for _ in range(5): # requests are taken from the answer on, whether the dispatcher has begun to wake or not
                    self.assertEqual(server.request("POST", "/wake_up")[0], 200)
                    self.assertEqual(server.complete(), BEGINNING)
                eventually(lambda: self.assertEqual(self.serving(server), (200, 2)))

    @of_front_end
    def test_device(self):
        with self.assertRaises(AssertionError) as caught:
            Server("--replicas", "2", "--device", "0")
        self.assertIn("device is 0 (--device), but each of 2 replicas needs its own GPUs", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
