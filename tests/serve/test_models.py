"""Several models in one server: chosen by name, loaded on demand, unloaded for others, and apart from each other."""
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from serving import BACKEND, BEGINNING, HOLDS, MODEL, PROGRAM, RANKS, Server, Stream, eventually, long_body, of_front_end
from test_adapters import write_adapter


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp()
        shutil.copytree(MODEL, cls.root + "/other") # of the same weights, and nevertheless other texts
        with open(MODEL + "/config.json") as config, open(cls.root + "/other/config.json", "w") as other:
            json.dump({**json.load(config), "rope_theta": 100.0}, other)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root)

    def serve(self, *options, second=None, **more):
        return Server(*options, "second=" + (second or self.root + "/other"), model="first=" + MODEL, ready=False, **more)

    def states(self, server):
        return server.request("GET", "/health")[1]["models"]

    def listed(self, server):
        return {model["id"]: model for model in server.request("GET", "/v1/models")[1]["data"]}

    def complete(self, server, model, **more):
        return server.request("POST", "/v1/completions", {"model": model, "prompt": "And", "max_tokens": 24, "temperature": 0,
                                                          "ignore_eos": True, **more})[:2]

    def text(self, server, model, **more):
        status, reply = self.complete(server, model, **more)
        self.assertEqual((status, reply.get("model")), (200, model), reply)
        return reply["choices"][0]["text"]

    def test_on_demand(self):
        """Models come when they are asked for, and the least recently used one leaves."""
        with Server() as server:
            alone = server.complete("And", max_tokens=24, ignore_eos=True)
        with self.serve("third=" + MODEL, "--max-loaded-models", "2") as server:
            self.assertEqual(server.workers(), []) # nothing is loaded yet
            self.assertEqual(self.states(server), {"first": "unloaded", "second": "unloaded", "third": "unloaded"})
            self.assertEqual(server.request("GET", "/live")[1], {"status": "ready"})
            self.assertEqual(self.text(server, "first"), alone)
            self.assertEqual(self.states(server), {"first": "loaded", "second": "unloaded", "third": "unloaded"})
            other = self.text(server, "second")
            self.assertNotEqual(other, alone)
            self.assertEqual(self.complete(server, MODEL)[1]["model"], "first") # by its folder, as with one model; used later than the second
            self.assertEqual(self.text(server, "third"), alone)
            self.assertEqual(self.states(server), {"first": "loaded", "second": "unloaded", "third": "loaded"})
            eventually(lambda: self.assertEqual(len(server.workers()), 2 * RANKS))
            self.assertEqual(self.text(server, "second"), other)
            self.assertEqual(self.states(server)["first"], "unloaded")
            status, reply, _ = server.request("POST", "/v1/chat/completions", {
                "model": "third", "messages": [{"role": "user", "content": "And"}], "max_tokens": 4})
            self.assertEqual((status, reply["model"]), (200, "third"))
            status, reply, _ = server.request("POST", "/tokenize", {"model": "second", "prompt": "And"})
            self.assertEqual((status, reply["count"]), (200, 2))
            self.assertEqual({name: model["status"]["value"] for name, model in self.listed(server).items()},
                             {"first": "unloaded", "second": "loaded", "third": "loaded"})
            self.assertEqual(server.request("GET", "/v1/models/second")[1]["root"], self.root + "/other")
            self.check_metrics(server)

    def check_metrics(self, server):
        server.wait_metric(r'vllm:request_success_total\{model_name="first",finished_reason="length"\}', 2)
        text = server.request("GET", "/metrics")[1]
        heads = re.findall(r"^# HELP (\S+)", text, re.M)
        self.assertEqual(len(heads), len(set(heads)))
        current = None
        for line in text.splitlines(): # every metric stands together, below its head
            name = line.split(" ")[2] if line[0] == "#" else re.match(r"[\w:]+", line).group(0)
            current = name if line.startswith("# HELP") else current
            self.assertTrue(name == current or re.fullmatch(re.escape(current) + "_(bucket|sum|count)", name), line)
        for model in ("first", "second", "third"):
            self.assertEqual(len(re.findall(r'^vllm:generation_tokens_total\{model_name="%s"\}' % model, text, re.M)), 1)
        self.assertEqual(len(re.findall(r"^trireme_connections\b", text, re.M)), 1)

    def test_unknown(self):
        """Names stand for what the command line named, and are no paths."""
        with self.serve() as server:
            for name in ("", "third", "First", "../kjv-7m", os.path.dirname(MODEL) + "/./kjv-7m", self.root, "/etc/passwd", "second=" + MODEL):
                status, reply = self.complete(server, name)
                self.assertEqual((status, reply["error"]["code"], reply["error"]["param"]), (404, "model_not_found", "model"), name)
                self.assertEqual(server.request("POST", "/tokenize", {"model": name, "prompt": "x"})[0], 404)
            self.assertEqual(server.request("GET", "/v1/models/third")[0], 404)
            status, reply, _ = server.request("POST", "/v1/completions", {"prompt": "x"})
            self.assertEqual((status, "first" in reply["error"]["message"] or "/v1/models" in reply["error"]["message"]), (400, True), reply)
            self.assertEqual(server.request("POST", "/v1/completions", {"prompt": "x", "model": 7})[0], 400)
            self.assertEqual(server.request("POST", "/v1/completions", "{")[0], 400)
            self.assertEqual(server.workers(), [])

    def refused(self, *arguments):
        return subprocess.run([PROGRAM, "serve", *arguments, "--backend", BACKEND, "--port", "0"], capture_output=True, text=True, timeout=60)

    @of_front_end
    def test_command_lines(self):
        adapter = f"x={self.root}/x"
        for arguments, code, cause in (
                ((MODEL, MODEL), 2, "both named kjv-7m"), (("a=" + MODEL, "a=" + MODEL), 2, "both named a"),
                (("a=" + MODEL, "b=" + MODEL, "--served-name", "c"), 2, "served-name"),
                (("a=" + MODEL, "b=" + MODEL, "--chat-template", "x"), 2, "chat-template"),
                (("a=" + MODEL, "--served-name", "c"), 2, "name it once"),
                (("=" + MODEL,), 2, "NAME=MODEL"), (("a=",), 2, "NAME=MODEL"), (("a" * 201 + "=" + MODEL,), 2, "NAME=MODEL"),
                (("a=" + MODEL, "b=net.onnx"), 2, "served alone"), (("a=" + MODEL, "b=/nowhere"), 3, "/nowhere"),
                (("a=" + MODEL, "b=" + MODEL, "--adapter", adapter), 2, "MODEL:NAME=FOLDER"),
                (("a=" + MODEL, "b=" + MODEL, "--adapter", "a:b=" + MODEL), 2, "has the name of model b"),
                (("a=" + MODEL, "b=" + MODEL, "--adapter", "a:" + adapter, "--adapter", "b:" + adapter), 2, "or of its adapter"),
                ((), 2, "found 0 arguments")):
            ended = self.refused(*arguments)
            self.assertEqual((ended.returncode, cause in ended.stderr), (code, True), (arguments, ended.stderr))
        with Server(model="one=" + MODEL) as server: # a single one is as ever
            self.assertEqual(list(self.listed(server)), ["one"])
            self.assertEqual(server.request("GET", "/health")[:2], (200, {"status": "ok"}))
            self.assertEqual(server.complete(), BEGINNING)

    def test_turns(self):
        """A model with requests stays until they end; those that come later wait, so that the other one gets its turn."""
        with self.serve("--keep-alive", "0.2", *HOLDS) as server:
            expected = self.text(server, "first", max_tokens=200)
            stream = Stream(server, model="first", max_tokens=200)
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                workers = server.workers()
                for pid in workers:
                    os.kill(pid, signal.SIGSTOP)
                second = pool.submit(self.text, server, "second")
                silent = pool.submit(self.comments, server, "second")
                eventually(lambda: self.assertGreater(server.metric(r'trireme_requests_live\{model_name="second"\}'), 1))
                # What comes before the model is to leave would still run on it.
                eventually(lambda: self.assertEqual(self.states(server)["first"], "unloading"))
                late = pool.submit(self.text, server, "first")
                eventually(lambda: self.assertEqual(server.metric(r'trireme_requests_live\{model_name="first"\}'), 2))
                time.sleep(1)
                self.assertEqual(self.states(server), {"first": "unloading", "second": "unloaded"})
                self.assertEqual(server.workers(), workers)
                for pid in workers:
                    os.kill(pid, signal.SIGCONT)
                self.assertEqual(stream.end()[0], expected)
                text = second.result()
                self.assertEqual(late.result(), expected[:len(late.result())])
                self.assertGreaterEqual(silent.result(), 2)
            lines = [line for line in server.lines if re.search("model (first|second): (ready|unloaded)", line)]
            self.assertEqual([re.search(r"model (.*?: \w+)", line).group(1) for line in lines],
                             ["first: ready", "first: unloaded", "second: ready", "second: unloaded", "first: ready"])
            self.assertEqual(self.text(server, "second"), text)

    def comments(self, server, model):
        """The comments before the first token of a stream."""
        stream = Stream(server, model=model, max_tokens=4)
        stream.end()
        return stream.data.split(b"data: {")[0].count(b"\n:")

    def test_patience(self):
        """A request waits for its model no longer than for a start."""
        with self.serve("--start-timeout", "4", *HOLDS) as server:
            self.text(server, "first")
            stream = Stream(server, model="first")
            for pid in server.workers():
                os.kill(pid, signal.SIGSTOP)
            began = time.monotonic()
            status, reply = self.complete(server, "second")
            self.assertEqual(status, 503, reply)
            self.assertIn("model second was not loaded within 4 s", reply["error"]["message"])
            self.assertGreater(time.monotonic() - began, 3.9)
            for pid in server.workers():
                os.kill(pid, signal.SIGCONT)
            stream.end()
            self.text(server, "second")

    def test_apart(self):
        """The loss of a model's ranks is no concern of the other."""
        with self.serve("--max-loaded-models", "2") as server:
            expected = self.text(server, "first", max_tokens=400)
            before = server.workers()
            text = self.text(server, "second")
            stream = Stream(server, model="first", max_tokens=400)
            os.kill([pid for pid in server.workers() if pid not in before][-1], signal.SIGKILL)
            server.wait_line("model second: the job is lost")
            self.assertEqual(self.text(server, "second"), text)
            self.assertEqual(stream.end()[0], expected)
            self.assertEqual([pid for pid in server.workers() if pid in before], before)
            self.assertEqual(server.metric(r'trireme_restarts_total\{model_name="first"\}'), 0)
            self.assertEqual(server.metric(r'trireme_restarts_total\{model_name="second"\}'), 1)

    def test_broken(self):
        """A model that cannot be loaded says why, and is tried again; the others serve."""
        broken = self.root + "/broken"
        shutil.copytree(self.root + "/other", broken)
        with self.serve(second=broken) as server:
            text = self.text(server, "second")
            self.text(server, "first")
            weights = broken + "/model-00001-of-00002.safetensors"
            os.rename(weights, weights + ".away")
            for _ in range(2):
                status, reply = self.complete(server, "second")
                self.assertEqual(status, 503)
                self.assertRegex(reply["error"]["message"], "cannot load model second: .*broken")
                server.wait_line("cannot load model second: .*broken")
                self.assertEqual(self.states(server)["second"], "unloaded")
                self.text(server, "first")
            os.rename(weights + ".away", weights)
            self.assertEqual(self.text(server, "second"), text)

    def test_sleep(self):
        with self.serve("--sleep-mode") as server:
            ask = lambda method, path: server.request(method, path)[:2]
            text = self.text(server, "first")
            eventually(lambda: self.assertEqual(ask("POST", "/sleep?model=first")[0], 200))
            self.assertEqual(server.workers(), [])
            self.assertEqual(self.states(server), {"first": "sleeping", "second": "unloaded"})
            status, reply = self.complete(server, "first")
            self.assertEqual((status, "asleep" in reply["error"]["message"]), (503, True))
            self.text(server, "second") # which is not asleep
            self.assertEqual(ask("GET", "/is_sleeping?model=first")[1], {"is_sleeping": True})
            self.assertEqual(ask("GET", "/is_sleeping")[1], {"is_sleeping": False})
            self.assertEqual(ask("POST", "/sleep?model=third")[0], 404)
            self.assertEqual(ask("POST", "/wake_up?model=first")[0], 200) # and with a name it is loaded
            eventually(lambda: self.assertEqual(self.states(server), {"first": "loaded", "second": "unloaded"}))
            self.assertEqual(self.text(server, "first"), text)
            eventually(lambda: self.assertEqual(ask("POST", "/sleep")[0], 200))
            self.assertEqual(ask("GET", "/health"), (503, {"status": "sleeping", "models": {"first": "sleeping", "second": "sleeping"}}))
            self.assertEqual(self.complete(server, "second")[0], 503)
            self.assertEqual(ask("POST", "/wake_up")[0], 200)
            self.assertEqual(self.states(server), {"first": "unloaded", "second": "unloaded"})
            self.assertEqual(self.text(server, "first"), text)

    def test_adapters(self):
        adapters = [write_adapter(f"{self.root}/adapter{i}", i) for i in range(2)]
        with self.serve("--adapter", f"second:verse={adapters[0]}", "--max-adapters", "2") as server:
            self.assertEqual(self.listed(server)["verse"]["parent"], "second")
            adapted = self.text(server, "verse") # loads its model
            self.assertEqual(self.states(server), {"first": "unloaded", "second": "loaded"})
            self.assertNotEqual(adapted, self.text(server, "second"))
            load = lambda **body: server.request("POST", "/v1/load_lora_adapter", body)[:2]
            self.assertEqual(load(lora_name="song", lora_path=adapters[1])[0], 400) # of which model?
            self.assertEqual(load(model="second", lora_name="first", lora_path=adapters[1])[0], 400)
            self.assertEqual(load(model="second", lora_name="song", lora_path=adapters[1])[0], 200)
            song = self.text(server, "song")
            self.assertNotIn(song, (adapted, self.text(server, "second")))
            self.text(server, "first")
            self.assertEqual(load(model="first", lora_name="song", lora_path=adapters[1])[0], 400)
            self.assertEqual(self.text(server, "song"), song) # both return with their model
            self.assertEqual(self.text(server, "verse"), adapted)
            self.assertEqual(server.request("POST", "/v1/unload_lora_adapter", {"lora_name": "song"})[0], 200)
            self.assertEqual(self.complete(server, "song")[0], 404)

    def test_draining(self):
        """Requests that wait for a model do not hold up the end."""
        server = self.serve(*HOLDS)
        self.text(server, "first")
        stream = Stream(server, model="first", max_tokens=200)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            workers = server.workers()
            for pid in workers:
                os.kill(pid, signal.SIGSTOP)
            waiting = pool.submit(self.complete, server, "second")
            eventually(lambda: self.assertEqual(server.metric(r'trireme_requests_live\{model_name="second"\}'), 1))
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(waiting.result()[0], 503)
            for pid in workers:
                os.kill(pid, signal.SIGCONT)
            stream.end()
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
