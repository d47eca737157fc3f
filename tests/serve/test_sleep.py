"""Ranks that give their memory back until they are woken."""
import concurrent.futures
import os
import shutil
import signal
import tempfile
import time
import unittest

from serving import HOLDS, MODEL, RANKS, Server, eventually, fall_asleep, long_body, write_temporary


class Sleep(unittest.TestCase):
    def ask(self, server, method, path):
        return server.request(method, path)[:2]

    def test_sleep(self):
        keys = write_temporary("secret")
        with Server("--sleep-mode", "--api-keys", keys) as server:
            self.assertEqual(self.ask(server, "POST", "/sleep")[0], 401)
            self.assertEqual(server.request("GET", "/health")[0], 200)
        os.unlink(keys)
        with Server("--sleep-mode", *HOLDS) as server:
            beginning = server.complete()
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                with server.held():
                    reply = pool.submit(server.request, "POST", "/v1/completions", long_body(n=4, max_tokens=100))
                    server.wait_metric("trireme_requests_live", 4)
                    status, body = self.ask(server, "POST", "/sleep?level=1") # not while there is work
                    self.assertEqual((status, "4 live" in body["error"]["message"]), (409, True), body)
                self.assertEqual(reply.result()[0], 200)
            server.wait_metric("trireme_requests_live", 0)
            for _ in range(2):
                began = time.monotonic()
                for _ in range(2): # a second time nothing happens
                    fall_asleep(server)
                asleep = time.monotonic() - began
                self.assertEqual(server.workers(), [])
                self.assertEqual(self.ask(server, "GET", "/is_sleeping"), (200, {"is_sleeping": True}))
                self.assertEqual(self.ask(server, "GET", "/health"), (503, {"status": "sleeping"}))
                self.assertEqual(self.ask(server, "GET", "/live"), (200, {"status": "sleeping"}))
                status, body, _ = server.request("POST", "/v1/completions", {"prompt": "x"})
                self.assertEqual((status, "asleep" in body["error"]["message"]), (503, True))
                began = time.monotonic()
                for _ in range(2):
                    self.assertEqual(self.ask(server, "POST", "/wake_up")[0], 200)
                eventually(lambda: self.assertFalse(self.ask(server, "GET", "/is_sleeping")[1]["is_sleeping"]))
                self.assertEqual(server.complete(), beginning) # waits for the ranks
                print(f"{RANKS} ranks: asleep after {asleep:.2f} s, a reply {time.monotonic() - began:.2f} s after waking")
                self.assertEqual(len(server.workers()), RANKS)
            self.assertEqual(server.metric("trireme_restarts_total"), 0)
            os.kill(server.workers()[-1], signal.SIGKILL) # ranks that were woken are as well started again
            server.wait_line("serving again", count=3) # twice after waking
            self.assertEqual(server.complete(), beginning)
            fall_asleep(server)
        with Server() as server: # which ended well asleep; without the flag there is no sleep
            self.assertEqual(self.ask(server, "POST", "/sleep")[0], 404)
            self.assertEqual(server.complete(), beginning)

    def test_lost_while_asleep(self):
        """A wake that fails three times ends the server as a job does that cannot be started again."""
        folder = tempfile.mkdtemp()
        model = folder + "/model"
        shutil.copytree(MODEL, model)
        server = Server("--sleep-mode", model=model)
        fall_asleep(server)
        shutil.rmtree(folder)
        self.assertEqual(self.ask(server, "POST", "/wake_up")[0], 200)
        self.assertEqual(server.process.wait(600), 3)
        server.stop()


if __name__ == "__main__":
    unittest.main()
