"""The page at / in a real browser: headless Chromium (CHROMIUM), driven over the pipe of its DevTools protocol."""
import concurrent.futures
import fcntl
import http.client
import http.server
import json
import os
import select
import shutil
import signal
import tempfile
import threading
import time
import unittest

from serving import BEGINNING, HOLDS, MODEL, RANKS, Server, eventually, temporary_file

CHROMIUM = os.environ["CHROMIUM"]
PATIENCE = 240 # seconds that an answer of the browser may take beside other work


def pipe():
    """Both ends beyond the descriptors 3 and 4, which the browser's ends become."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high


class Page:
    """A tab with the server's page. What it asks for and what its scripts fail at is kept."""

    def __init__(self, server):
        self.rest, self.calls, self.session, self.urls, self.errors = b"", 0, None, [], []
        self.profile = tempfile.mkdtemp()
        browser_in, self.to_browser = pipe()
        self.from_browser, browser_out = pipe()
        quiet = os.open(os.devnull, os.O_RDWR)
        self.pid = os.posix_spawnp(
            CHROMIUM, [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
                       "--user-data-dir=" + self.profile, "about:blank"], os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, ours, theirs) for ours, theirs in ((quiet, 1), (quiet, 2), (browser_in, 3), (browser_out, 4))])
        for end in (browser_in, browser_out, quiet):
            os.close(end)
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Runtime", "Log", "Network", "Page"):
                self.call(domain + ".enable")
            self.call("Page.navigate", url=server.url + "/")
        except BaseException:
            self.close()
            raise

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.to_browser)
        os.close(self.from_browser)
        shutil.rmtree(self.profile, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def call(self, method, **parameters):
        self.calls += 1
        message = dict({"id": self.calls, "method": method, "params": parameters}, **({"sessionId": self.session} if self.session else {}))
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while True:
            reply = self.receive(end - time.monotonic())
            if reply.get("id") == self.calls:
                assert "error" not in reply, reply
                return reply["result"]

    def receive(self, seconds):
        while b"\0" not in self.rest:
            assert select.select([self.from_browser], [], [], max(seconds, 0))[0], "the browser does not answer"
            piece = os.read(self.from_browser, 65536)
            assert piece, "the browser has ended"
            self.rest += piece
        line, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(line)
        event, values = message.get("method"), message.get("params", {})
        if event == "Network.requestWillBeSent":
            self.urls.append(values["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.errors.append(values["exceptionDetails"])
        elif event == "Log.entryAdded" and values["entry"]["level"] == "error" and values["entry"]["source"] != "network":
            self.errors.append(values["entry"])
        return message

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def text(self, selector):
        return self.value(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)")

    def wait_text(self, selector, expected):
        eventually(lambda: unittest.TestCase().assertEqual(self.text(selector), expected))

    def press(self, selector):
        """A click where the element is, as a hand does it: one that something else covers is not reached."""
        at = self.value(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView(); const r = e.getBoundingClientRect();"
                        " return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

    def write(self, selector, text):
        self.value(f"document.querySelector({json.dumps(selector)}).focus()")
        self.value(f"document.querySelector({json.dumps(selector)}).select?.()")
        self.call("Input.insertText", text=text)

    def enter(self):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r" if kind == "keyDown" else "")

    def set(self, **parameters):
        for name, text in parameters.items():
            self.write("#" + name, str(text))
            self.value(f"document.getElementById({json.dumps(name)}).blur()") # a change event comes when it is left


class Proxy(http.server.ThreadingHTTPServer):
    """Hands on to the server what is below /models/, as nginx does in `location /models/ { proxy_pass http://server/; }`."""

    def __init__(self, server):
        proxy, port = self, server.port
        self.others = [] # paths that are not below

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                if not self.path.startswith("/models/"):
                    proxy.others.append(self.path)
                    return self.send_error(404)
                to = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                to.request(self.command, self.path[len("/models"):], body, {"Content-Type": "application/json"})
                reply = to.getresponse()
                self.send_response(reply.status)
                self.send_header("Content-Type", reply.headers["Content-Type"])
                self.end_headers() # the reply ends with the connection
                while piece := reply.read1():
                    self.wfile.write(piece)
                to.close()

            do_POST = do_GET

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/models"

    def handle_error(self, *_):
        """A browser may go in the middle of a reply."""

    def __enter__(self):
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.thread.join()
        self.server_close()


class Browsing(unittest.TestCase):
    def opened(self, server, *, ready=True):
        page = Page(server)
        self.addCleanup(lambda: self.assertEqual(page.errors, []))
        self.addCleanup(lambda: self.assertEqual([url for url in page.urls if not url.startswith((server.url, "data:"))], []))
        if ready:
            page.wait_text("#model", ["kjv-7m"])
            page.wait_text("#state", ["ready"])
        return page

    def test_below_a_path(self):
        with Server() as server, Proxy(server) as proxy, self.opened(proxy) as page:
            page.set(temperature=0, max_tokens=8)
            page.write("#text", "In the beginning")
            page.enter()
            page.wait_text(".model .text", [BEGINNING])
            eventually(lambda: self.assertEqual(len(page.text("#ranks tr")), RANKS + 1))
            self.assertEqual(proxy.others, [])

    def test_models(self):
        """Of several models one is chosen, and its figures are shown."""
        with Server("other=" + MODEL, model="kjv-7m=" + MODEL, ready=False) as server, self.opened(server, ready=False) as page:
            page.wait_text("#models option", ["kjv-7m", "other"])
            page.wait_text("#state", ["unloaded"])
            page.value("(list => { list.value = 'other'; list.dispatchEvent(new Event('change')); })(document.getElementById('models'))")
            page.wait_text("#limits", ["other, contexts of up to 1024 tokens"])
            page.set(temperature=0, max_tokens=8)
            page.write("#text", "In the beginning")
            page.enter()
            page.wait_text(".model .text", [BEGINNING])
            page.wait_text("#state", ["loaded"])
            self.assertEqual(server.request("GET", "/health")[1]["models"], {"kjv-7m": "unloaded", "other": "loaded"})

    def test_chat(self):
        with Server() as server, self.opened(server) as page:
            self.assertIn("1024 tokens", page.text("#limits")[0])
            page.set(temperature=0, max_tokens=8)
            page.write("#text", "In the beginning")
            page.enter()
            page.wait_text(".model .text", [BEGINNING])
            eventually(lambda: self.assertRegex(page.text(".model .note")[0], r"^8 tokens, first after \d+ ms, [\d.]+ tokens/s"))
            self.assertEqual(page.text(".you .text"), ["In the beginning"])
            page.write("#text", "And God")
            page.press("#send")
            eventually(lambda: self.assertEqual(page.text("#send"), ["Send"]) or self.assertRegex(page.text(".model .note")[1], "^8 tokens"))
            expected = server.request("POST", "/v1/chat/completions", {"temperature": 0, "max_tokens": 8, "messages": [
                {"role": "user", "content": "In the beginning"}, {"role": "assistant", "content": BEGINNING},
                {"role": "user", "content": "And God"}]})[1]["choices"][0]["message"]["content"]
            self.assertEqual(page.text(".model .text")[1], expected) # the model was told of what went before
            page.press(".model .note button:last-child") # the first answer again: what came behind it goes
            page.wait_text(".model .text", [BEGINNING])
            page.press("#clear")
            page.wait_text(".said", [])
            # what is set is there again when the page is
            page.call("Page.reload")
            page.wait_text("#state", ["ready"])
            self.assertEqual(page.value("[temperature.value, max_tokens.value, top_p.value]"), ["0", "8", ""])

    def test_engine(self):
        """The live view: the ranks, what runs, and curves that grow."""
        with Server() as server, self.opened(server) as page:
            eventually(lambda: self.assertEqual(len(page.text("#ranks tr")), RANKS + 1))
            ended = threading.Event()

            def load():
                while not ended.is_set():
                    server.complete("And", max_tokens=300, ignore_eos=True)

            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                loading = pool.submit(load)
                try:
                    eventually(lambda: self.assertEqual(page.text("#m_running"), ["1"]))
                    eventually(lambda: self.assertGreater(float(page.text("#m_speed")[0]), 0))
                    eventually(lambda: self.assertRegex(page.text("#cache_now")[0], r"^[1-9][\d.]* % of \d+ blocks$"))
                    eventually(lambda: self.assertGreater(len((page.value("speed.getAttribute('points')") or "").split()), 1))
                finally:
                    ended.set()
                loading.result()
            rows = dict(page.value("[...facts.rows].map(r => [...r.cells].map(c => c.textContent))"))
            for name in ("step", "first token"):
                self.assertRegex(rows[name], r"^[\d.]+ ms$")
            self.assertEqual(rows["preemptions, restarts"], "0, 0")

    def test_stop(self):
        with Server(*HOLDS) as server, self.opened(server) as page:
            page.value("document.getElementById('mode').value = 'text'")
            page.set(max_tokens=1000)
            for way in ("#send", "#clear"):
                runs = False
                while not runs: # a busy browser may show the first words when all have been said
                    page.write("#text", "And")
                    page.press("#send")
                    eventually(lambda: self.assertTrue(page.text(".model .text")[-1]))
                    with server.held():
                        eventually(lambda: self.assertEqual(page.text("#send") == ["Send"], server.metric("trireme_requests_live") == 0))
                        runs = server.metric("trireme_requests_live") == 1
                        if runs:
                            page.press(way)
                            server.wait_metric("trireme_requests_live", 0)
                            page.wait_text("#send", ["Send"])
                if way == "#send":
                    eventually(lambda: self.assertRegex(page.text(".model .note")[-1], "^stopped"))
            page.wait_text(".said", [])

    def test_refused(self):
        """What the server says of a wrong request is shown, and the talk goes on without it."""
        with Server() as server, self.opened(server) as page:
            page.set(max_tokens=8, temperature=-1)
            page.write("#text", "In the beginning")
            page.press("#send")
            eventually(lambda: self.assertIn("temperature", "".join(page.text(".model .note.bad"))))
            page.set(temperature=0)
            page.write("#text", "In the beginning")
            page.press("#send")
            eventually(lambda: self.assertEqual(page.text(".model .text")[1:], [BEGINNING]))

    def test_markup(self):
        """What is said is text, whatever it looks like."""
        with Server() as server, self.opened(server) as page:
            page.set(max_tokens=1)
            page.write("#text", "<img src=x onerror='window.harmed = 1'><script>window.harmed = 1</script> `a < b`")
            page.press("#send")
            eventually(lambda: self.assertIn("<script>", page.text(".you .text")[0]))
            self.assertEqual(page.value("[window.harmed === undefined, document.querySelectorAll('.said img, .said script').length]"), [True, 0])
            self.assertEqual(page.text(".you code"), ["a < b"])

    def test_key(self):
        with temporary_file("secret\n") as keys, Server("--api-keys", keys) as server, self.opened(server, ready=False) as page:
            eventually(lambda: self.assertFalse(page.value("document.getElementById('locked').hidden")))
            page.set(key="secret")
            page.wait_text("#model", ["kjv-7m"])
            page.set(max_tokens=8, temperature=0)
            page.write("#text", "In the beginning")
            page.press("#send")
            eventually(lambda: self.assertEqual(page.text(".model .text"), [BEGINNING]))

    def test_states(self):
        """Ranks that are killed, and a server that goes."""
        with Server() as server, self.opened(server) as page:
            for pid in server.workers()[:1]:
                os.kill(pid, signal.SIGKILL)
            eventually(lambda: self.assertIn("0, 1", page.text("#facts td")))
            page.wait_text("#state", ["ready"])
            server.stop()
            page.wait_text("#state", ["not reached"])


if __name__ == "__main__":
    unittest.main()
