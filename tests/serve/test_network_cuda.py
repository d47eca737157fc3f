#!/usr/bin/env python3
"""Shared memory of CUDA, on a GPU: registered over gRPC with NVIDIA's tritonclient and over HTTP, used at offsets, joined, beside other
inputs, unregistered while requests run, and left by clients that were killed.

Usage: test_network_cuda.py TRIREME NET.onnx     (NET as for test_network_grpc.py; set CUDART if libcudart is not found)"""
import base64
import concurrent.futures
import ctypes
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import numpy as np

IDS = np.arange(1, 7, dtype=np.int64).reshape(2, 3)
MASK = np.ones_like(IDS)
NAMES = ("input_ids", "attention_mask")


class Cuda:
    """The calls of the runtime that tritonclient.utils.cuda_shared_memory makes."""

    def __init__(self):
        places = [os.environ.get("CUDART", ""), *(f"{p}/nvidia/*/lib/libcudart.so.*" for p in sys.path), "/usr/local/cuda*/lib64/libcudart.so.*"]
        self.library = ctypes.CDLL([f for p in places for f in sorted(glob.glob(p))][0])

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        assert code == 0, (name, code)

    def allocate(self, size):
        pointer = ctypes.c_void_p()
        self.call("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value

    def handle(self, pointer):
        handle = ctypes.create_string_buffer(64)
        self.call("cudaIpcGetMemHandle", handle, ctypes.c_void_p(pointer))
        return handle.raw

    def put(self, pointer, values):
        values = np.ascontiguousarray(values)
        self.call("cudaMemcpy", ctypes.c_void_p(pointer), ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes), 4)

    def get(self, pointer, dtype, shape):
        values = np.zeros(shape, dtype)
        self.call("cudaMemcpy", ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(pointer), ctypes.c_size_t(values.nbytes), 4)
        return values


if sys.argv[1:] == ["own"]:  # a client that will be killed: memory with both inputs, whose handle it prints
    cuda = Cuda()
    memory = cuda.allocate(4096)
    cuda.put(memory, np.concatenate([IDS, MASK]))
    print(base64.b64encode(cuda.handle(memory)).decode(), flush=True)
    time.sleep(600)

import tritonclient.grpc as triton  # noqa: E402
import tritonclient.utils.shared_memory as shared  # noqa: E402

from networks import CONFIG, Server, failure, put  # noqa: E402

program, network = sys.argv[1:3]
cuda = Cuda()


def plain(ids=IDS):
    found = []
    for name, values in zip(NAMES, (ids, np.ones_like(ids))):
        tensor = triton.InferInput(name, list(ids.shape), "INT64")
        tensor.set_data_from_numpy(values)
        found.append(tensor)
    return found


def placed(region, rows=2, offset=0):
    """Inputs one after the other in a region, behind each other an output's place."""
    size = rows * 24
    found = []
    for i, name in enumerate(NAMES):
        tensor = triton.InferInput(name, [rows, 3], "INT64")
        tensor.set_shared_memory(region, size, offset + i * size)
        found.append(tensor)
    return found


def wanted(region, size, offset):
    output = triton.InferRequestedOutput("pooler_output")
    output.set_shared_memory(region, size, offset)
    return [output]


def over_http(port, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}{path}", data), timeout=30) as reply:
            text = reply.read()
            return reply.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["error"]


def check_places(client, memory, expected):
    """Inputs and outputs at offsets, alone and beside inputs in messages and in system memory."""
    cuda.put(memory + 256, np.concatenate([IDS, MASK]))
    result = client.infer("a", placed("all", offset=256), outputs=wanted("all", expected.nbytes, 512))
    assert result.get_output("pooler_output").parameters["shared_memory_byte_size"].int64_param == expected.nbytes
    assert np.allclose(cuda.get(memory + 512, np.float32, expected.shape), expected, atol=1e-5)
    odd = 1027  # an output at an address that is aligned to nothing
    client.infer("a", plain(), outputs=wanted("all", expected.nbytes, odd))
    assert np.allclose(cuda.get(memory + odd, np.float32, expected.shape), expected, atol=1e-5)
    assert np.allclose(client.infer("a", placed("all", offset=256)).as_numpy("pooler_output"), expected, atol=1e-5)
    mixed = [placed("all", offset=256)[0], plain()[1]]
    assert np.allclose(client.infer("a", mixed).as_numpy("pooler_output"), expected, atol=1e-5)
    key = f"/trireme_test_cuda_{os.getpid()}"
    region = shared.create_shared_memory_region("system", key, 4096)
    try:
        shared.set_shared_memory_region(region, [IDS, MASK])
        client.register_system_shared_memory("system", key, 4096)
        for inputs in ([placed("all", offset=256)[0], placed("system")[1]], [placed("system")[0], placed("all", offset=256)[1]]):
            result = client.infer("a", inputs, outputs=wanted("system", expected.nbytes, 1024))
            assert np.allclose(shared.get_contents_as_numpy(region, np.float32, expected.shape, 1024), expected, atol=1e-5)
        failure("registered already", client.register_cuda_shared_memory, "system", base64.b64encode(cuda.handle(memory)), 0, 64)
        client.unregister_cuda_shared_memory("system")  # of the other kind
        assert "system" in client.get_system_shared_memory_status().regions
        client.unregister_system_shared_memory()
        assert "all" in client.get_cuda_shared_memory_status().regions
    finally:
        shared.destroy_shared_memory_region(region)


def check_pinned(client, expected):
    """Regions of the system that the GPU copies from: with all their pages there, with an offset that is no page's, shrunk, registered again."""
    key, size, at = f"/trireme_test_pin_{os.getpid()}", 1 << 20, 12304
    region = shared.create_shared_memory_region("pinned", key, size)
    try:
        client.register_system_shared_memory("sparse", key, size)
        shared.set_shared_memory_region(region, [IDS, MASK], at)
        assert np.allclose(client.infer("a", placed("sparse", offset=at)).as_numpy("pooler_output"), expected, atol=1e-5)  # read by the CPU
        shared.set_shared_memory_region(region, [np.zeros(size, np.uint8)])
        for turn in range(2):
            client.register_system_shared_memory("part", key, size - 100, 100)
            for k in range(6):
                ids = IDS + k % 2
                shared.set_shared_memory_region(region, [ids, MASK], at)
                wanted_now = client.infer("a", plain(ids)).as_numpy("pooler_output")
                for inputs in (placed("sparse", offset=at), placed("part", offset=at - 100), [placed("part", offset=at - 100)[0], placed("all", offset=256)[1]]):
                    result = client.infer("a", inputs, outputs=wanted("sparse", expected.nbytes, 4000))
                    assert np.allclose(shared.get_contents_as_numpy(region, np.float32, expected.shape, 4000), wanted_now, atol=1e-5)
            client.unregister_system_shared_memory("part")
        os.truncate(f"/dev/shm{key}", 8)
        failure("shorter", client.infer, "a", placed("sparse", offset=at))
        assert np.allclose(client.infer("a", plain()).as_numpy("pooler_output"), expected, atol=1e-5)
        client.unregister_system_shared_memory()
    finally:
        shared.destroy_shared_memory_region(region)


def check_refusals(client, port, memory, handle):
    short = triton.InferInput("input_ids", [2, 3], "INT64")
    short.set_shared_memory("all", 40)
    failure("too few", client.infer, "a", placed("all", offset=4096 - 48))
    failure("too few", client.infer, "a", plain(), outputs=wanted("all", 128, 4000))
    failure("needs 128 bytes", client.infer, "a", plain(), outputs=wanted("all", 64, 0))
    failure("expected 48", client.infer, "a", [short])
    failure("registered already", client.register_cuda_shared_memory, "all", handle, 0, 4096)
    failure("device_id is 1", client.register_cuda_shared_memory, "b", handle, 1, 4096)
    failure("expected at least", client.register_cuda_shared_memory, "b", handle, 0, 1 << 40)
    for bad in (bytes(64), b"\xff" * 64, os.urandom(64)):
        failure("cannot open the memory", client.register_cuda_shared_memory, "b", base64.b64encode(bad), 0, 64)
    failure("has 63 bytes", client.register_cuda_shared_memory, "b", base64.b64encode(bytes(63)), 0, 64)
    status, text = over_http(port, "/v2/cudasharedmemory/region/b/register", {"raw_handle": {"b64": "x"}, "device_id": 0, "byte_size": 8})
    assert status == 400 and "raw_handle" in text, text
    status, text = over_http(port, "/v2/cudasharedmemory/region/b/register", {"raw_handle": {"b64": "A" * 88}, "device_id": 0, "byte_size": -8})
    assert status == 400 and "byte_size" in text, text


def check_http(port, client, memory, handle, expected):
    body = {"raw_handle": {"b64": handle.decode()}, "device_id": 0, "byte_size": 4096}
    odd = "a%20b%2Fc%C3%A9"
    assert over_http(port, f"/v2/cudasharedmemory/region/{odd}/register", body) == (200, None)
    status, regions = over_http(port, f"/v2/cudasharedmemory/region/{odd}/status")
    assert (status, regions) == (200, [{"name": "a b/c\u00e9", "device_id": 0, "byte_size": 4096}]), regions
    assert "a b/c\u00e9" in client.get_cuda_shared_memory_status().regions
    cuda.put(memory, np.concatenate([IDS, MASK]))
    place = lambda size, offset: {"shared_memory_region": "a b/c\u00e9", "shared_memory_byte_size": size, "shared_memory_offset": offset}
    request = {"inputs": [{"name": n, "shape": [2, 3], "datatype": "INT64", "parameters": place(48, 48 * i)} for i, n in enumerate(NAMES)],
               "outputs": [{"name": "pooler_output", "parameters": place(expected.nbytes, 256)}]}
    status, reply = over_http(port, "/v2/models/a/infer", request)
    assert status == 200 and "data" not in reply["outputs"][0], reply
    assert np.allclose(cuda.get(memory + 256, np.float32, expected.shape), expected, atol=1e-5)
    assert "cuda_shared_memory" in over_http(port, "/v2")[1]["extensions"]
    assert over_http(port, f"/v2/cudasharedmemory/region/{odd}/unregister", {}) == (200, None)
    assert over_http(port, f"/v2/cudasharedmemory/region/{odd}/status")[0] == 400


def check_joined(client, expected):
    """Requests that are joined, each in a region of its own, which another thread unregisters meanwhile."""
    row = expected[0].nbytes

    def run(i):
        memory = cuda.allocate(1 << 21)
        client.register_cuda_shared_memory(f"r{i}", base64.b64encode(cuda.handle(memory)), 0, 1 << 21)
        for k in range(30):
            at = (i + k) % 2
            cuda.put(memory, np.concatenate([IDS[at : at + 1], MASK[:1]]))
            client.infer("a", placed(f"r{i}", rows=1), outputs=wanted(f"r{i}", row, 64))
            assert np.allclose(cuda.get(memory + 64, np.float32, (16,)), expected[at], atol=1e-5), (i, k)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            calls = [pool.submit(client.infer, "a", placed(f"r{i}", rows=1)) for _ in range(20)]
            client.unregister_cuda_shared_memory(f"r{i}")
        for call in calls:
            assert call.exception() is None or "not registered" in str(call.exception()), call.exception()

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for _ in pool.map(run, range(16)):
            pass
    assert any(b.batch_size > 1 for b in client.get_inference_statistics("a").model_stats[0].batch_stats)


def check_killed(client, expected):
    """A client is killed after its memory was registered, in the midst of requests, and one before."""
    def start():
        process = subprocess.Popen([sys.executable, __file__, "own"], stdout=subprocess.PIPE, text=True)
        return process, process.stdout.readline().strip().encode()

    process, handle = start()
    client.register_cuda_shared_memory("dead", handle, 0, 4096)
    assert np.allclose(client.infer("a", placed("dead")).as_numpy("pooler_output"), expected, atol=1e-5)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(client.infer, "a", placed("dead")) for _ in range(200)]
        process.send_signal(signal.SIGKILL)
        process.wait()
        for call in calls:
            assert np.allclose(call.result().as_numpy("pooler_output"), expected, atol=1e-5)
    assert np.allclose(client.infer("a", placed("dead")).as_numpy("pooler_output"), expected, atol=1e-5)
    client.unregister_cuda_shared_memory("dead")
    process, handle = start()
    process.kill()
    process.wait()
    time.sleep(1)
    failure("cannot open the memory", client.register_cuda_shared_memory, "late", handle, 0, 4096)
    assert np.allclose(client.infer("a", plain()).as_numpy("pooler_output"), expected, atol=1e-5)


with tempfile.TemporaryDirectory() as folder:
    put(folder, "a", CONFIG.replace("KIND_CPU", "KIND_AUTO"), network, 1)
    os.environ["TRM_TEST_BACKEND"] = "cuda"
    with Server(program, folder, "--grpc-port=0", "--shared-memory") as server:
        client = triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        until = time.monotonic() + 120
        while not client.is_server_ready():
            assert time.monotonic() < until
            time.sleep(0.05)
        expected = client.infer("a", plain()).as_numpy("pooler_output")
        assert "cuda_shared_memory" in client.get_server_metadata().extensions
        memory = cuda.allocate(4096)
        handle = base64.b64encode(cuda.handle(memory))
        client.register_cuda_shared_memory("all", handle, 0, 4096)
        client.register_cuda_shared_memory("again", handle, 0, 2048)
        regions = client.get_cuda_shared_memory_status().regions
        assert (regions["all"].byte_size, regions["all"].device_id, regions["again"].byte_size) == (4096, 0, 2048), regions
        client.unregister_cuda_shared_memory("again")
        for name, check in (("places", lambda: check_places(client, memory, expected)), ("pinned", lambda: check_pinned(client, expected)), ("refusals", lambda: check_refusals(client, server.port, memory, handle)),
                            ("http", lambda: check_http(server.port, client, memory, handle, expected)), ("joined", lambda: check_joined(client, expected)),
                            ("killed", lambda: check_killed(client, expected))):
            check()
            print(name, "ok", flush=True)
        client.unregister_cuda_shared_memory()
        failure("not registered", client.infer, "a", placed("all"))
        client.close()
print("ok")
