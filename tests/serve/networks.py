"""Servers of networks, for the tests with tritonclient."""
import os
import re
import shutil
import signal
import subprocess
import threading

from tritonclient.utils import InferenceServerException

CONFIG = """max_batch_size: 4
input [ { name: "input_ids" data_type: TYPE_INT64 dims: [ 3 ] } ]
output [ { name: "pooler_output" data_type: TYPE_FP32 dims: [ 16 ] } ]
parameters { key: "min_shapes" value: { string_value: "input_ids:1x3,attention_mask:1x3" } }
parameters { key: "max_shapes" value: { string_value: "input_ids:4x3,attention_mask:4x3" } }
dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 2000 }
instance_group [ { count: 2 kind: KIND_CPU } ]
"""


def put(folder, name, config, network, version):
    """Puts a network into a repository."""
    os.makedirs(f"{folder}/{name}/{version}", exist_ok=True)
    if os.path.exists(f"{folder}/{name}/config.pbtxt"):
        os.remove(f"{folder}/{name}/config.pbtxt")
    if config is not None:
        with open(f"{folder}/{name}/config.pbtxt", "w") as file:
            file.write(config)
    source = os.path.dirname(network)
    for file in os.listdir(source):
        if file.startswith("model") or file.endswith(".data"):
            shutil.copy(f"{source}/{file}", f"{folder}/{name}/{version}/{file}")


def failure(part, function, *arguments, **named):
    """The call must fail with a message that has this part."""
    try:
        function(*arguments, **named)
    except InferenceServerException as error:
        assert part in str(error), error
        return error
    raise AssertionError(f"no failure with {part}")


class Server:
    def __init__(self, program, operand, *options):
        self.process = subprocess.Popen([program, "serve", operand, f"--backend={os.environ.get('TRM_TEST_BACKEND', 'host')}", "--port=0", "--quiet", *options], stderr=subprocess.PIPE, text=True)
        self.lines = []
        self.port = self.grpc_port = 0
        while self.port == 0 or ("--grpc-port=0" in options and self.grpc_port == 0):
            line = self.process.stderr.readline()
            assert line, f"the server ended: {self.lines}"
            self.lines.append(line)
            found = re.search(r"listening on (https?|grpcs?)://127\.0\.0\.1:(\d+)", line)
            if found and found.group(1).startswith("grpc"):
                self.grpc_port = int(found.group(2))
            elif found:
                self.port = int(found.group(2))
        threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(30)
            if kind is not None:
                print("".join(self.lines))
            assert kind is not None or code == 0, (code, self.lines)
        finally:
            self.process.kill()
