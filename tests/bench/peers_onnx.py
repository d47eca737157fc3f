"""ResNet-50, ViT-B/16 and BERT-base with random weights: trireme beside torch and onnxruntime on one GPU, in turn.

First every peer is made ready, many at a time, each batch in a process of its own that then waits: torch.compile needs
minutes of processors and next to nothing of the GPU. What it times while it chooses kernels, it times alone, under a
lock. Then each is measured, one at a time: trireme, peers, and again.

Latencies are of one run after another, each waited for, inputs on the device; the median of those that fit into
--seconds, and of the rounds. Every torch mode is captured as one CUDA graph and replayed, so that Python costs it
nothing: `graph` is plain torch, the others are modes of torch.compile. usage: peers_onnx.py --help
(needs torch, torchvision, transformers, onnx, onnxscript; onnxruntime where it has a GPU)"""
import argparse
import concurrent.futures
import contextlib
import json
import lzma
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import warnings

warnings.filterwarnings("ignore")
def sample(name, n):
    """Inputs of `n` samples, by name."""
    import torch
    if name == "bert":
        return {"input_ids": torch.randint(0, 30000, (n, 128)),
                "attention_mask": torch.ones(n, 128, dtype=torch.int64)}
    return {"x" if name == "resnet50" else "pixel_values": torch.rand(n, 3, 224, 224)}


def make_network(name, attention="sdpa"):
    import torch
    torch.manual_seed(0)
    if name == "resnet50":
        import torchvision
        net = torchvision.models.resnet50(weights=None)
        for layer in net.modules():  # as after training: statistics that are not 0 and 1
            if isinstance(layer, torch.nn.BatchNorm2d):
                layer.running_mean.normal_(0, 0.1)
                layer.running_var.uniform_(0.5, 1.5)
                layer.bias.data.normal_(0, 0.1)
        return net
    import transformers
    if name == "vit":
        if attention == "sdpa":  # transformers makes a mask of ones, with which torch has no fused attention
            from transformers.integrations.sdpa_attention import sdpa_attention_forward
            attention = "sdpa_without_mask"
            transformers.AttentionInterface.register(
                attention, lambda layer, q, k, v, mask, **rest: sdpa_attention_forward(layer, q, k, v, None, **rest))
        config = transformers.ViTConfig(num_labels=1000, attn_implementation=attention)
        return logits_of(transformers.ViTForImageClassification(config), "pixel_values")
    if name == "bert":
        config = transformers.BertConfig(num_labels=2, attn_implementation=attention)
        return logits_of(transformers.BertForSequenceClassification(config), "input_ids", "attention_mask")
    raise SystemExit(f"unknown network {name}, expected resnet50, vit or bert")


def logits_of(net, *names):
    """A module with the inputs of these names that gives a tensor instead of a record of tensors."""
    import torch

    class ViT(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, pixel_values):
            return self.net(pixel_values=pixel_values).logits

    class Bert(ViT):
        def forward(self, input_ids, attention_mask):
            return self.net(input_ids=input_ids, attention_mask=attention_mask).logits

    return (ViT if names == ("pixel_values",) else Bert)()


def cast(inputs, dtype, device):
    return {k: (v.to(dtype) if v.is_floating_point() else v).to(device) for k, v in inputs.items()}


TYPES = ("f16", "bf16", "tf32", "f32")


def torch_type(kind):
    import torch
    return {"f16": torch.float16, "bf16": torch.bfloat16}.get(kind, torch.float32)


def model_path(options, name, kind):
    suffix = {"f16": "float16", "bf16": "bfloat16"}.get(kind, "float32")
    return os.path.join(options.models, f"{name}-{suffix}.onnx")


def model_files(options, name, kind):
    """What onnxruntime may choose from: a traced model of opset 17, all of whose operators it has on GPUs, transformers
    as its own optimizer leaves them; and the model itself if it is no newer."""
    path = model_path(options, name, kind)
    traced = path.replace(".onnx", "-optimized.onnx")
    return [traced] if options.opset > 17 else [path, traced]


def export(name, kind, path, exporter, opset):
    """Writes the network with a dynamic batch; torch's new exporter keeps attention whole from opset 23 on."""
    import torch
    dtype = torch_type(kind)
    net = make_network(name, "eager" if exporter == "torchscript" else "sdpa").eval().to(dtype)
    inputs = cast(sample(name, 2), dtype, "cpu")
    if exporter == "dynamo":
        batch = torch.export.Dim("batch", min=1, max=256)
        torch.onnx.export(net, tuple(inputs.values()), path, dynamo=True, opset_version=opset, input_names=list(inputs),
                          output_names=["y"], dynamic_shapes={k: {0: batch} for k in inputs}, external_data=False,
                          verbose=False)
    else:
        torch.onnx.export(net, tuple(inputs.values()), path, dynamo=False, opset_version=min(opset, 18),
                          input_names=list(inputs), output_names=["y"],
                          dynamic_axes={k: {0: "batch"} for k in [*inputs, "y"]})


# ---- a peer in a process of its own --------------------------------------------------------------------------


def median_ms(run, seconds):
    times, began = [], time.perf_counter()
    while time.perf_counter() - began < 0.1:  # clocks that go up
        run()
    began = time.perf_counter()
    while len(times) < 20 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
        if time.perf_counter() - began > 20 * seconds:
            break
    return statistics.median(times)


def time_kernels_alone(lock_path):
    """Makes inductor's own timing of kernels wait for that of other processes."""
    import fcntl
    from torch._inductor.runtime import benchmarking
    lock, depth = open(lock_path, "w"), [0]

    def alone(function):
        def locked(*args, **kwargs):
            if depth[0] == 0:
                fcntl.flock(lock, fcntl.LOCK_EX)
            depth[0] += 1
            try:
                return function(*args, **kwargs)
            finally:
                depth[0] -= 1
                if depth[0] == 0:
                    fcntl.flock(lock, fcntl.LOCK_UN)
        return locked

    for cls in vars(benchmarking).values():
        if isinstance(cls, type) and issubclass(cls, benchmarking.Benchmarker):
            for name in ("benchmark", "benchmark_gpu"):
                if name in vars(cls):
                    setattr(cls, name, alone(vars(cls)[name]))


def start_compilers():
    """Starts inductor's pool of compilers, which yield to what times kernels; the calls that wait for it and end it.

    Kernels there are before it is ready are compiled by threads of this process, which is slow. The pool compiles with
    torch's ptxas, and Triton's cache is looked up by the version of ptxas: with another one this process would find
    nothing there and compile each kernel again, one after another, when it times it. (Names of torch 2.11.)"""
    from torch._inductor.async_compile import AsyncCompile, shutdown_compile_workers
    from torch._inductor.runtime.compile_tasks import _set_triton_ptxas_path
    _set_triton_ptxas_path()
    os.setpriority(os.PRIO_PROCESS, AsyncCompile.process_pool().process.pid, 10)
    AsyncCompile.use_process_pool()
    return AsyncCompile.wait_pool_ready, shutdown_compile_workers


def ready_torch(task):
    import torch
    device, mode = task["device"], task["mode"]
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = task["type"] == "tf32"
    compiling = device == "cuda" and mode != "graph"
    if compiling:
        wait_for_compilers, end_compilers = start_compilers()
    dtype = torch_type(task["type"])
    net = make_network(task["network"]).eval().to(dtype).to(device)
    inputs = tuple(cast(sample(task["network"], task["batch"]), dtype, device).values())
    if task["network"] == "resnet50":
        net = net.to(memory_format=torch.channels_last)
        inputs = tuple(x.to(memory_format=torch.channels_last) for x in inputs)
    call = net
    if mode != "graph":
        if compiling:
            time_kernels_alone(task["lock"])
            wait_for_compilers()
        if task["artifacts"] and os.path.exists(task["artifacts"]):
            with lzma.open(task["artifacts"]) as saved:
                torch.compiler.load_cache_artifacts(saved.read())
        # Its own graphs would add the time of guards and copies: what is compiled is captured below.
        call = torch.compile(net, mode="max-autotune-no-cudagraphs" if mode == "max-autotune" else mode)
    call(*inputs)
    if mode != "graph" and task["artifacts"] and not os.path.exists(task["artifacts"]):
        saved = torch.compiler.save_cache_artifacts()
        if saved is not None:
            with lzma.open(task["artifacts"] + ".part", "wb") as out:
                out.write(saved[0])
            os.rename(task["artifacts"] + ".part", task["artifacts"])
    if device != "cuda":
        return lambda: call(*inputs)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call(*inputs)
    torch.cuda.synchronize()
    if compiling:
        end_compilers()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(*inputs)

    def once():
        graph.replay()
        torch.cuda.synchronize()

    once()
    return once


def optimize(path, to, network):
    """What onnxruntime's own optimizer of transformers makes of a traced model; counts of what it fused."""
    from onnxruntime.transformers import optimizer
    made = optimizer.optimize_model(path, model_type=network, num_heads=12, hidden_size=768, opt_level=0, use_gpu=True)
    made.save_model_to_file(to)
    return {k: v for k, v in made.get_fused_operator_statistics().items() if v > 0}


@contextlib.contextmanager
def alone(lock_path):
    """One process at a time."""
    import fcntl
    with open(lock_path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def open_session(task, path, captured, channels_last):
    """A call that runs the model at the task's batch, inputs and outputs on the device."""
    import numpy
    import onnx
    import onnxruntime
    provider = {"use_tf32": int(task["type"] == "tf32"), "enable_cuda_graph": int(captured),
                "prefer_nhwc": int(channels_last), "cudnn_conv_algo_search": "EXHAUSTIVE",
                "cudnn_conv_use_max_workspace": 1}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    graph = onnx.load(path).graph
    for name in {d.dim_param for i in graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}:
        options.add_free_dimension_override_by_name(name, task["batch"])  # so no run computes shapes
    device = task["device"]
    providers = [("CUDAExecutionProvider", provider)] if device == "cuda" else ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(path, options, providers=providers)
    make, binding = onnxruntime.OrtValue, session.io_binding()
    dtype = numpy.float16 if task["type"] == "f16" else numpy.float32
    for key, value in cast(sample(task["network"], task["batch"]), torch_type(task["type"]), "cpu").items():
        binding.bind_ortvalue_input(key, make.ortvalue_from_numpy(value.numpy(), device, 0))
    for output in session.get_outputs():
        shape = [d if isinstance(d, int) else task["batch"] for d in output.shape]
        binding.bind_ortvalue_output(output.name, make.ortvalue_from_shape_and_type(shape, dtype, device, 0))

    def once():
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return once


def ready_onnxruntime(task):
    """The fastest of what it can do: files of both exporters, graph captured or not, channels last or first."""
    import onnxruntime
    if task["device"] == "cuda" and "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise RuntimeError("onnxruntime has no CUDA provider here")
    onnxruntime.set_default_logger_severity(3)
    for path in task["files"]:
        while not os.path.exists(path) and not os.path.exists(path + ".failed"):
            time.sleep(0.2)
    best, failures = None, []
    ways = [(path, last) for path in task["files"] if os.path.exists(path)
            for last in ((False, True) if task["network"] == "resnet50" else (False,))]
    for captured in (True, False):  # not captured is slower: only where nothing can be
        for path, channels_last in ways if best is None else ():
            what = os.path.basename(path) + " channels last" * channels_last + " captured" * captured
            try:
                once = open_session(task, path, captured, channels_last)
                with alone(task["lock"]):
                    for _ in range(3):
                        once()
                    took = median_ms(once, 0.05)
            except Exception as error:
                failures.append(f"{what}: {str(error)[:160]}")
                continue
            if best is None or took < best[0]:
                best = (took, once, what)
    if best is None:
        raise RuntimeError("; ".join(failures) or "no model")
    task["note"] = f"{best[2]} ({best[0]:.3f} ms)" + "".join("; not " + f for f in failures)
    return best[1]


def make_file(task):
    """The ONNX file of a task, whole or not at all."""
    path = task["path"]
    try:
        if task["mode"] == "export":
            export(task["network"], task["type"], path + ".part", task["exporter"], task["opset"])
        else:
            export(task["network"], task["type"], path + ".traced", "torchscript", 17)
            if task["network"] == "resnet50":
                os.rename(path + ".traced", path + ".part")
            else:
                task["note"] = str(optimize(path + ".traced", path + ".part", task["network"]))
        os.rename(path + ".part", path)
    except BaseException:
        open(path + ".failed", "w").close()
        raise


def worker(task):
    """Makes a peer ready, says so, then measures whenever a line of standard input asks it to."""
    talk = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    began, answer, once = time.perf_counter(), {}, None
    try:
        if task["mode"] in ("export", "optimize"):
            make_file(task)
        else:
            import torch
            torch.set_grad_enabled(False)
            once = (ready_onnxruntime if task["mode"] == "onnxruntime" else ready_torch)(task)
    except Exception as error:  # a peer that cannot do a case does not end the others
        answer["error"] = f"{type(error).__name__}: {str(error)[:300]}"
    print(json.dumps({**answer, "note": task.get("note", ""), "seconds": time.perf_counter() - began}), file=talk)
    for line in sys.stdin if once is not None else ():
        print(json.dumps({"ms": median_ms(once, float(line))}), file=talk)


class Peer:
    """A worker process. It ends when its standard input is closed."""

    def __init__(self, task):
        self.task, self.answer, self.process = task, None, None

    def prepare(self, deadline):
        """Whether it became ready in time."""
        if time.perf_counter() > deadline:
            self.answer = {"error": "not begun in time"}
            return
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker", json.dumps(self.task)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        start_new_session=True)
        late = threading.Timer(max(deadline - time.perf_counter(), 0.1), self.kill)
        late.start()
        line = self.process.stdout.readline()
        late.cancel()
        self.answer = json.loads(line) if line else {"error": "not ready in time"}
        if "error" in self.answer or self.task["compile_only"] or self.task["mode"] in ("export", "optimize"):
            self.kill()

    def measure(self, seconds):
        """Milliseconds, or None if the process has ended."""
        with contextlib.suppress(OSError):
            self.process.stdin.write(f"{seconds}\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        return json.loads(line)["ms"] if line else None

    def kill(self):
        """The process and the compilers that it started."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


# ---- measuring -----------------------------------------------------------------------------------------------


def with_trireme(options, name, kind, batch):
    inputs = sample(name, batch)
    shapes = ",".join(f"{k}:{'x'.join(map(str, v.shape))}" for k, v in inputs.items())
    command = [options.trireme, "bench", model_path(options, name, kind), "--backend", options.backend, "--shapes",
               shapes, "--duration", str(options.seconds), "--json", "--warm-up", "0.1",
               *options.trireme_options.split()]
    command += ["--tf32"] if kind == "tf32" else []
    command += ["--profile"] if options.profile else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    made = json.loads(done.stdout)
    made["ready_seconds"] = made["import_seconds"] + made["build_seconds"] + made["tune_seconds"]
    return made


def measure_case(options, row, peers):
    """Fills in the times of a row: every program once per round, in turn."""
    times = {}
    for turn in range(options.rounds):
        if options.trireme and "error" not in row:
            try:
                made = with_trireme(options, row["network"], row["type"], row["batch"])
            except (OSError, RuntimeError, ValueError) as error:
                row["error"] = str(error)[:300]
            else:
                times.setdefault("trireme", []).append(made["latency_ms"]["p50"])
                row["build_s" if turn == 0 else "build_again_s"] = round(made["ready_seconds"], 2)
            if options.profile and "error" not in row:
                with open(f"{options.profile}/{row['network']}-{row['type']}-{row['batch']}.json", "w") as out:
                    json.dump(made, out)
        for peer in peers:
            ms = peer.measure(options.seconds)
            if ms is not None:
                times.setdefault(peer.task["mode"], []).append(ms)
    for mode, found in times.items():
        row[mode + "_ms"] = round(statistics.median(found), 4)


def print_table(rows, columns):
    print("| network | type | batch | " + " | ".join(c + ", ms" for c in columns) + " | build, s | again, s |")
    print("|---|---|---|" + "---|" * (len(columns) + 2))
    for row in rows:
        cells = [str(row.get(c + "_ms", "–")) for c in columns]
        cells += [str(row.get(c, "–")) for c in ("build_s", "build_again_s")]
        print(f"| {row['network']} | {row['type']} | {row['batch']} | " + " | ".join(cells) + " |")


def peer_task(options, common, case, mode):
    name, kind, batch = case
    kept = options.artifacts and os.path.join(os.path.abspath(options.artifacts), f"{mode}-{name}-{kind}-{batch}.xz")
    return {**common, "network": name, "type": kind, "batch": batch, "mode": mode, "artifacts": kept,
            "path": model_path(options, name, kind), "files": model_files(options, name, kind)}


def use_torch_cache(options):
    """Environment of the processes that compile: what is made and what was timed is kept in one folder."""
    folder = os.path.abspath(options.torch_cache)
    options.artifacts = options.artifacts or os.path.join(folder, "artifacts")
    os.makedirs(options.artifacts, exist_ok=True)
    os.environ.update(TORCHINDUCTOR_CACHE_DIR=os.path.join(folder, "inductor"), TORCHINDUCTOR_FX_GRAPH_CACHE="1",
                      TORCHINDUCTOR_AUTOGRAD_CACHE="1", TRITON_CACHE_DIR=os.path.join(folder, "triton"))
    # Kernels that need more shared memory than there is are left out before they are compiled, not after.
    os.environ.setdefault("TORCHINDUCTOR_MAX_AUTOTUNE_PRUNE_CHOICES_BASED_ON_SHARED_MEM", "1")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="resnet50,bert,vit")
    parser.add_argument("--types", default="f16,tf32", help="of " + ", ".join(TYPES))
    parser.add_argument("--batches", default="1,64,8")
    parser.add_argument("--peers", default="max-autotune,graph,onnxruntime",
                        help="of graph, onnxruntime and modes of torch.compile; MODE@NETWORK-TYPE-BATCH for one case")
    parser.add_argument("--trireme", default="trireme", help="the program; empty for peers alone")
    parser.add_argument("--trireme-options", default="", help="more options of trireme bench")
    parser.add_argument("--backend", default="cuda", choices=["cuda", "host"], help="host: to try this program out")
    parser.add_argument("--exporter", default="dynamo", choices=["dynamo", "torchscript"])
    parser.add_argument("--opset", type=int, default=23)
    parser.add_argument("--models", default=".", help="folder for the ONNX files; those that are there are used")
    parser.add_argument("--artifacts", help="folder for what torch.compile made: kept, and used where it is there")
    parser.add_argument("--torch-cache", help="folder for all that torch.compile makes, also of cases that are not ready "
                        "in time: a later call goes on from there, on another machine, too; --artifacts are in it")
    parser.add_argument("--compile-only", action="store_true", help="make peers ready, as far as they are in time, and "
                        "measure nothing")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) * 5 // 8),
                        help="peers made ready at a time")
    parser.add_argument("--prepare", type=float, default=1e6, help="peers not ready after so many seconds are left out")
    parser.add_argument("--budget", type=float, default=1e6, help="begin no case after so many seconds")
    parser.add_argument("--profile", help="folder for the time of each layer of trireme")
    parser.add_argument("--json", help="file for the results")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse_options()
    if options.worker:
        return worker(json.loads(options.worker))
    began = time.perf_counter()
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(max(2, 2 * (os.cpu_count() or 2) // options.jobs)))
    names, kinds, modes = (x.split(",") for x in (options.networks, options.types, options.peers))
    modes = [m for m in modes if m]
    columns = list(dict.fromkeys(m.split("@")[0] for m in modes))
    cases = [(n, k, b) for k in kinds for b in map(int, options.batches.split(",")) for n in names]
    device = "cuda" if options.backend == "cuda" else "cpu"
    lock = f"peers{os.environ.get('CUDA_VISIBLE_DEVICES', '')}.lock"
    if options.torch_cache:
        use_torch_cache(options)
    common = {"device": device, "compile_only": options.compile_only, "lock": os.path.join(os.path.abspath(options.models), lock),
              "exporter": options.exporter, "opset": options.opset}
    used = not options.compile_only and (options.trireme or "onnxruntime" in columns)
    exports = {model_path(options, n, k): (n, k) for n, k, _ in cases} if used else {}
    exports = [Peer({**common, "network": n, "type": k, "mode": "optimize" if i > 0 else "export", "path": file})
               for n, k in exports.values()
               for i, file in enumerate(dict.fromkeys([model_path(options, n, k), *model_files(options, n, k)]))
               if not os.path.exists(file) and (i == 0 or "onnxruntime" in columns)]
    peers = {case: [Peer(peer_task(options, common, case, mode)) for mode in columns
                    if mode in modes or f"{mode}@{case[0]}-{case[1]}-{case[2]}" in modes] for case in cases}
    deadline = began + options.prepare
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = exports + [p for case in cases for p in peers[case]]
        order = {"export": 0, "optimize": 0, "max-autotune": 1, "onnxruntime": 2, "graph": 4}  # the longest first
        # max-autotune tries 500 kernels for ResNet-50, far fewer for the others
        waiting.sort(key=lambda p: (order.get(p.task["mode"], 3), p.task["network"] != "resnet50"))
        waiting = [pool.submit(p.prepare, deadline) for p in waiting]
        concurrent.futures.wait(waiting)
    for peer in [*exports, *(p for case in cases for p in peers[case])]:
        task = peer.task
        print(f"{task['mode']} {task['network']} {task['type']} {task.get('batch', '')}: " +
              (peer.answer.get("error") or f"ready in {peer.answer['seconds']:.1f} s {peer.answer['note']}"), flush=True)
    print(f"prepared in {time.perf_counter() - began:.1f} s", flush=True)
    if options.compile_only:
        return
    rows = []
    for case in cases:
        row = dict(zip(("network", "type", "batch"), case))
        if time.perf_counter() - began > options.budget:
            break
        ready = [p for p in peers[case] if "error" not in p.answer]
        with alone(common["lock"]):  # of other calls of this program, too, which may make peers ready
            measure_case(options, row, ready)
        for peer in ready:
            peer.kill()
        rows.append(row)
        print(json.dumps(row), flush=True)
    for case in cases:
        for peer in peers[case]:
            peer.kill()
    if options.json:
        with open(options.json, "w") as out:
            json.dump(rows, out, indent=1)
    print_table(rows, ["trireme"] * bool(options.trireme) + columns)


if __name__ == "__main__":
    main()
