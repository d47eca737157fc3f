"""A conversation at a terminal: line editing, history, commands, and replies that Ctrl-C ends. usage: test_chat.py PROGRAM MODEL"""
import contextlib
import errno
import json
import os
import pty
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import termios
import time
import unittest

PROGRAM, MODEL = sys.argv[1:3]
PATIENCE = 300
LEFT, UP, START, SEARCH, END_OF_INPUT, INTERRUPT, ERASE = "\x1b[D", "\x1b[A", "\x01", "\x12", "\x04", "\x03", "\x7f"
BEGINNING = "God created the heaven"


class Terminal:
    """The program at a pseudoterminal."""

    def __init__(self, folder, *options, command="--chat", n=4, **environment):
        self.text, self.seen = "", 0
        words = [PROGRAM, "run", MODEL, command, "--backend", "host", "--threads", "1", "-n", str(n), "-q", *options]
        words += ["--chat-template", folder + "/chat.jinja"] if command == "--chat" else []
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            variables = {"TERM": "xterm", "XDG_STATE_HOME": folder + "/state", "OPENBLAS_NUM_THREADS": "1", **environment}
            os.execvpe(PROGRAM, words, dict(os.environ, **variables))
        self.edits = environment.get("TERM") != "dumb" and "LD_LIBRARY_PATH" not in environment
        self.wait_prompt()

    def wait_prompt(self):
        """Waits until the program asks for a line; what it wrote before. libedit takes over the terminal a moment after its prompt."""
        written = self.wait("> ")
        end = time.monotonic() + PATIENCE
        while self.edits and termios.tcgetattr(self.fd)[3] & termios.ICANON:
            assert time.monotonic() < end, "libedit does not take over the terminal"
            time.sleep(0.005)
        return written

    def read(self, seconds):
        """Reads what there is; whether there is more to come."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self.fd, 65536)
        except OSError as error: # of a terminal that nobody has open
            assert error.errno == errno.EIO, error
            piece = b""
        self.text += piece.decode(errors="replace")
        return piece != b""

    def wait(self, what, seconds=PATIENCE):
        """Waits for a text behind what was waited for before."""
        end = time.monotonic() + seconds
        while (at := self.text.find(what, self.seen)) < 0:
            assert self.read(0.2) and time.monotonic() < end, f"no {what!r} in {self.text[self.seen:]!r}"
        before, self.seen = self.text[self.seen:at], at + len(what)
        return before

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def say(self, line):
        """Types a line; what the program writes until it asks for the next one. Marks of the terminal are left out."""
        self.type(line + "\r")
        return self.reply()

    def reply(self):
        written = self.wait("\n") + self.wait_prompt()
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", written)

    def end(self, keys=END_OF_INPUT):
        """The exit code after these keys."""
        self.type(keys)
        end = time.monotonic() + PATIENCE
        while self.read(0.2):
            assert time.monotonic() < end, f"the program does not end: {self.text[self.seen:]!r}"
        return os.waitstatus_to_exitcode(self.close())

    def close(self):
        """Ends the program if it lives, and returns how it ended."""
        if self.pid == 0:
            return 0
        pid, self.pid = self.pid, 0
        if self.read(0):
            os.kill(pid, signal.SIGKILL)
        os.close(self.fd)
        return os.waitpid(pid, 0)[1]


class Chat(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        with open(self.folder + "/chat.jinja", "w") as template: # the model continues the last message
            template.write("<|begin_of_text|>{{ messages[-1].content }}")

    def open(self, *options, **more):
        terminal = Terminal(self.folder, *options, **more)
        self.addCleanup(terminal.close)
        return terminal

    def saved(self, terminal):
        path = f"{self.folder}/talk{len(os.listdir(self.folder))}.json"
        self.assertIn(path, terminal.say("/save " + path))
        with open(path) as file:
            return [(message["role"], message["content"]) for message in json.load(file)["messages"]]

    def history(self):
        return self.folder + "/state/trireme/history"

    def test_editing(self):
        terminal = self.open()
        self.assertIn(BEGINNING, terminal.say("n the beginninx" + ERASE + "g" + START + "I")) # the first letter last
        self.assertEqual(self.saved(terminal), [("user", "In the beginning"), ("assistant", " " + BEGINNING)])
        terminal.say("caf\u00e9s" + LEFT + ERASE + "\u00e8") # whole characters
        self.assertEqual(self.saved(terminal)[2], ("user", "caf\u00e8s"))
        self.assertEqual(terminal.end(), 0)

    def test_history(self):
        terminal = self.open()
        self.assertIn(BEGINNING, terminal.say("In the beginning"))
        terminal.say("And God")
        self.assertIn(BEGINNING, terminal.say(UP + UP))
        self.assertEqual(stat.S_IMODE(os.stat(self.history()).st_mode), 0o600)
        self.assertEqual(terminal.end("/exit\r"), 0)
        os.chmod(self.history(), 0o644)
        terminal = self.open() # another program knows the lines of the first
        self.assertEqual(stat.S_IMODE(os.stat(self.history()).st_mode), 0o600)
        terminal.type(SEARCH + "begin")
        terminal.wait("In the beginning")
        terminal.type("\r")
        terminal.wait(BEGINNING)
        terminal.wait_prompt()
        self.assertEqual(self.saved(terminal)[0], ("user", "In the beginning"))
        self.assertEqual(terminal.end(), 0)

    def test_history_elsewhere(self):
        """Without the variable it is below the home folder; if that cannot be made or is a link, no history is kept."""
        terminal = self.open(XDG_STATE_HOME="", HOME=self.folder)
        terminal.say("And God")
        self.assertEqual(terminal.end(), 0)
        self.assertTrue(os.path.isfile(self.folder + "/.local/state/trireme/history"))
        os.makedirs(self.folder + "/state/trireme")
        os.symlink(self.folder + "/victim", self.history())
        terminal = self.open()
        self.assertIn("spake", terminal.say("And God"))
        self.assertIn("spake", terminal.say(UP)) # still in the program's memory
        self.assertEqual(terminal.end(), 0)
        self.assertFalse(os.path.exists(self.folder + "/victim"))

    def test_commands(self):
        terminal = self.open("--system", "Be brief.")
        for name in ("/help", "/clear", "/system TEXT", "/save FILE", "/retry", "/exit"):
            self.assertIn(name, terminal.say("/help"))
        self.assertIn("there is no message", terminal.say("/retry"))
        self.assertIn("there is no command /nothing", terminal.say("/nothing at all"))
        self.assertIn("/clear takes no argument", terminal.say("/clear x"))
        self.assertIn("needs the name", terminal.say("/save"))
        self.assertIn("cannot create", terminal.say("/save /nowhere/x"))
        self.assertIn("File exists", terminal.say(f"/save {self.folder}/chat.jinja"))
        terminal.say("In the beginning")
        talk = [("system", "Be brief."), ("user", "In the beginning"), ("assistant", " " + BEGINNING)]
        self.assertEqual(self.saved(terminal), talk)
        self.assertIn(BEGINNING, terminal.say("/retry"))
        self.assertEqual(self.saved(terminal), talk)
        terminal.say("/system Be long.")
        self.assertEqual(self.saved(terminal), [("system", "Be long.")] + talk[1:])
        terminal.say("/system")
        self.assertEqual(self.saved(terminal), talk[1:])
        terminal.say("/system Be.")
        terminal.say("/clear")
        self.assertEqual(self.saved(terminal), [("system", "Be.")])
        terminal.say(" /clear") # is said
        self.assertEqual([role for role, _ in self.saved(terminal)], ["system", "user", "assistant"])
        self.assertEqual(terminal.end("/exit\r"), 0)

    def test_retry(self):
        """Another seed gives another reply."""
        terminal = self.open("--temperature", "1", n=20)
        replies = {terminal.say("And")} | {terminal.say("/retry") for _ in range(3)}
        self.assertGreater(len(replies), 1)
        self.assertEqual(terminal.end(), 0)

    def test_lines(self):
        """A backslash at the end of a line joins it with the next one."""
        terminal = self.open()
        terminal.type("In the\\\r")
        terminal.wait(". ")
        self.assertTrue(terminal.say("beginning"))
        self.assertEqual(self.saved(terminal)[0], ("user", "In the\nbeginning"))
        self.assertEqual(terminal.end(), 0)

    def test_interrupt(self):
        for environment in ({}, {"TERM": "dumb"}):
            with self.subTest(environment):
                terminal = self.open("--ignore-eos", n=1000, **environment)
                terminal.type("And\r")
                terminal.wait("\n")
                terminal.wait(" ") # the reply has begun
                terminal.wait(" ")
                terminal.type(INTERRUPT)
                terminal.wait_prompt()
                talk = self.saved(terminal)
                self.assertEqual([role for role, _ in talk], ["user", "assistant"])
                self.assertLess(len(talk[1][1]), 3000) # of 1000 tokens, which have about 4000 characters
                self.assertGreater(len(talk[1][1]), 2)
                terminal.type("In the middle of a line") # which goes, and the program stays
                terminal.wait("line")
                terminal.type(INTERRUPT)
                terminal.wait_prompt()
                self.assertEqual(self.saved(terminal), talk)
                self.assertEqual(terminal.end(), 0)

    def test_end_of_a_line(self):
        """The terminal is as before when the program was ended in the middle of a line."""
        terminal = self.open()
        terminal.type("abc")
        terminal.wait("abc")
        os.kill(terminal.pid, signal.SIGTERM)
        self.assertEqual(terminal.end(""), -signal.SIGTERM)

    def test_without_libedit(self):
        """Lines are read as the terminal gives them."""
        os.mkdir(self.folder + "/lib")
        for name in ("libedit.so.2", "libedit.so.0"):
            with open(f"{self.folder}/lib/{name}", "w") as file:
                file.write("not a library")
        for environment in ({"LD_LIBRARY_PATH": self.folder + "/lib"}, {"TERM": "dumb"}):
            with self.subTest(environment):
                terminal = self.open(**environment)
                self.assertIn(BEGINNING, terminal.say("In the beginning"))
                self.assertIn("/retry", terminal.say("/help"))
                self.assertEqual(len(self.saved(terminal)), 2)
                self.assertFalse(os.path.exists(self.history()))
                self.assertEqual(terminal.end(), 0)

    def test_interactive(self):
        """Prompts have line editing, too, and no commands."""
        terminal = self.open(command="--interactive")
        self.assertIn(BEGINNING, terminal.say("n the beginning" + START + "I"))
        self.assertNotIn("list the commands", terminal.say("/help"))
        self.assertEqual(terminal.end(), 0)

    def test_no_terminal(self):
        """A line of a file is a message, whatever it begins and ends with."""
        with open(self.folder + "/chat.jinja", "w") as template:
            template.write("<|begin_of_text|>{{ raise_exception('<' ~ messages[-1].content ~ '>') }}")
        done = subprocess.run([PROGRAM, "run", MODEL, "--chat", "--backend", "host", "--chat-template", self.folder + "/chat.jinja", "-n", "4"],
                              input="/help\na\\\n", capture_output=True, text=True, timeout=PATIENCE,
                              env=dict(os.environ, XDG_STATE_HOME=self.folder + "/state"))
        self.assertIn("</help>", done.stderr)
        self.assertIn("<a\\>", done.stderr)
        self.assertEqual((done.returncode, done.stdout, os.path.exists(self.history())), (0, "", False))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
