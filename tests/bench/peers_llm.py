#!/usr/bin/env python3
"""Llama-3-8B's shape with random bf16 weights: trireme beside llama.cpp and gpt-fast on one GPU, one after the other.

    peers_llm.py --build BUILD_FOLDER [--gguf FILE] [--gpt-fast FOLDER] [--works decode,prefill,batch,offload] [--table FILE] [--json FILE]

llama.cpp is the one in the Python package llama-cpp-python, built for CUDA (the package's documentation says how); its library is called as
its own llama-bench and llama-batched-bench call it, and nothing is drawn from the logits. FILE is made by make_gguf.py if it is
not there (16 GB; a folder in memory is best). gpt-fast is its repository (github.com/meta-pytorch/gpt-fast); it needs torch, which compiles for
minutes, and its figures are those of torch.compile as its generate.py asks for it. A peer that is not there is left out and said so.

decode: prompt of 128, 256 new tokens. prefill: prompts of 2048 and 8192 tokens. batch: 1, 8, 32 and 128 sequences with prompts of 128, the
rate of their next 127 tokens, and as "load" that of all 128 with the prompts' time: what a server could give at most that does this in turn.
offload: part of the layers on the GPU (-ngl), and trireme with a weight budget that takes no more memory, also with processors that compute a share; device_bytes tells how much each
takes, by nvidia-smi. llama.cpp computes with as many threads as this process has processors (taskset): nothing else may run on them.
What trireme does of the first three is taken from what table.py has written just before, where --table names it.
"""
import argparse
import ctypes
import datetime
import glob
import json
import os
import shutil
import site
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import types

import roofs
import table

SHAPE = "llama-3-8b"
PROMPT, TOKENS, STEPS = 128, 256, 127
PROMPTS, BATCHES = (2048, 8192), (1, 8, 32, 128)
OFFLOADS = ((16, "4900M"), (3, "0"))  # layers of llama.cpp on the GPU, trireme's budget


def say(**figure):
    print(json.dumps(figure), flush=True)


def device_bytes():
    if shutil.which("nvidia-smi") is None:
        return 0
    out = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]],
                         capture_output=True, text=True, check=False)
    return int(out.stdout.split()[0]) << 20 if out.returncode == 0 and out.stdout.split() else 0


class Watch:
    """The most device memory in use while it is open, less what was in use before."""

    def __enter__(self):
        self.before, self.most, self.over = device_bytes(), 0, threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def look(self):
        while not self.over.wait(0.2):
            self.most = max(self.most, device_bytes() - self.before)

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def processors():
    return len(os.sched_getaffinity(0))


def load_pip_cuda():
    """CUDA's libraries where they are pip's packages and on no search path."""
    for name in ("libcudart.so.*", "libcublasLt.so.*", "libcublas.so.*"):
        for file in sorted(f for folder in site.getsitepackages() for f in glob.glob(f"{folder}/nvidia/*/lib/{name}"))[-1:]:
            ctypes.CDLL(file, ctypes.RTLD_GLOBAL)


class Llama:
    """A model of llama.cpp, and contexts on it one at a time."""

    def __init__(self, file, gpu_layers):
        load_pip_cuda()
        import llama_cpp
        self.lib, self.context, self.before = llama_cpp, None, device_bytes()
        self.quiet = llama_cpp.llama_log_callback(lambda level, text, user: print(text.decode(errors="replace"), end="", file=sys.stderr) if level >= 3 else None)
        llama_cpp.llama_log_set(self.quiet, None)
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        began = time.monotonic()
        self.model = llama_cpp.llama_model_load_from_file(file.encode(), params)
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {file}")
        self.load_seconds = time.monotonic() - began

    def open(self, tokens, sequences, ubatch):
        """A context for `tokens` tokens of each sequence."""
        if self.context:
            self.lib.llama_free(self.context)
        params = self.lib.llama_context_default_params()
        params.n_ctx, params.n_seq_max, params.n_batch, params.n_ubatch = (tokens + 255) // 256 * 256 * sequences, sequences, max(2048, ubatch), ubatch
        params.n_threads = params.n_threads_batch = processors()
        params.kv_unified, params.no_perf = False, True
        self.context = self.lib.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit(f"llama.cpp has no context of {params.n_ctx} tokens")

    def clear(self):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)

    def batch(self, tokens):
        """tokens: (token, position, sequence, whether its logits are wanted)."""
        batch = self.lib.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, (token, position, sequence, wanted) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, position, 1, sequence, wanted
        return batch

    def decode(self, batch):
        if self.lib.llama_decode(self.context, batch) != 0:
            raise SystemExit("llama.cpp failed to decode")

    def prompts(self, length, sequences):
        """Seconds of the prompts, several in a batch where they fit."""
        listed = [((17 * s + 101 * i + 7) % 128000, i, s, i == length - 1) for s in range(sequences) for i in range(length)]
        batches = [self.batch(listed[at:at + 2048]) for at in range(0, len(listed), 2048)]
        began = time.monotonic()
        for batch in batches:
            self.decode(batch)
        self.lib.llama_synchronize(self.context)
        seconds = time.monotonic() - began
        for batch in batches:
            self.lib.llama_batch_free(batch)
        return seconds

    def steps(self, first, count, sequences):
        """Seconds of `count` steps of one token of each sequence from position `first` on."""
        batch = self.batch([(1000 + 37 * s, first, s, True) for s in range(sequences)])
        positions = [(ctypes.c_int32 * sequences)(*[first + i] * sequences) for i in range(count)]
        began = time.monotonic()
        for values in positions:
            ctypes.memmove(batch.pos, values, 4 * sequences)
            self.decode(batch)
            self.lib.llama_synchronize(self.context)
        seconds = time.monotonic() - began
        self.lib.llama_batch_free(batch)
        return seconds


def llama_generate(llama, prompt, steps, sequences, repeat):
    """Medians of prompt and step seconds, after a run that is not counted."""
    llama.open(prompt + steps, sequences, 2048 if sequences > 1 else 512)
    times = []
    for _ in range(repeat + 1):
        llama.clear()
        times.append((llama.prompts(prompt, sequences), llama.steps(prompt, steps, sequences) / steps))
    return [statistics.median(t[i] for t in times[1:]) for i in range(2)]


def batch_figures(batch, prompt, step):
    """Of seconds for the prompts and for a step."""
    yield {"work": f"batch {batch}", "value": batch / step, "step_ms": step * 1e3, "prompts_per_second": batch * PROMPT / prompt}
    yield {"work": f"load {batch}", "value": batch * (STEPS + 1) / (prompt + STEPS * step)}


def llama_worker(options):
    llama = Llama(options.gguf, options.gpu_layers)
    if "decode" in options.works:
        prompt, step = llama_generate(llama, PROMPT, TOKENS - 1, 1, options.repeat)
        say(work="decode", value=1 / step, step_ms=step * 1e3, first_ms=(prompt + step) * 1e3, load_seconds=llama.load_seconds)
    for length in PROMPTS if "prefill" in options.works else ():
        found = {}
        for ubatch in (512, 2048):
            llama.open(length, 1, ubatch)
            times = []
            for _ in range(options.repeat + 1):
                llama.clear()
                times.append(llama.prompts(length, 1))
            found[ubatch] = length / statistics.median(times[1:])
        best = max(found, key=found.get)
        say(work=f"prefill {length}", value=found[best], ubatch=best, by_ubatch=found)
    for batch in BATCHES if "batch" in options.works else ():
        prompt, step = llama_generate(llama, PROMPT, STEPS, batch, options.repeat)
        for figure in batch_figures(batch, prompt, step):
            say(**figure)
    if "offload" in options.works:
        prompt, step = llama_generate(llama, PROMPT, 8, 1, 1)
        say(work=f"offload {options.gpu_layers}", value=1 / step, step_ms=step * 1e3, prompt_seconds=prompt, device_bytes=device_bytes() - llama.before,
            off_device=left_bytes(options.gpu_layers), threads=processors())


def gpt_fast_worker(options):
    import torch
    sys.path.insert(0, options.gpt_fast)
    sys.modules["tokenizer"] = types.SimpleNamespace(get_tokenizer=None)  # it needs packages, and prompts here are random tokens
    import generate
    from model import ModelArgs, Transformer
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Transformer(ModelArgs.from_name(SHAPE)).eval()
    torch.set_default_dtype(torch.float32)
    generate.decode_one_token = torch.compile(generate.decode_one_token, mode="reduce-overhead", fullgraph=True)
    with torch.no_grad():
        if "decode" in options.works:
            gpt_fast_decode(torch, generate, model, options)
        generate.prefill = torch.compile(generate.prefill, fullgraph=True, dynamic=True)
        for length in PROMPTS if "prefill" in options.works else ():
            with torch.device("cuda"):
                model.setup_caches(max_batch_size=1, max_seq_length=length)
            prompt, positions = torch.randint(0, 1024, (1, length), device="cuda"), torch.arange(0, length, device="cuda")
            times = []
            for _ in range(options.repeat + 2):
                torch.cuda.synchronize()
                began = time.monotonic()
                generate.prefill(model, prompt, positions, temperature=0.8, top_k=200)
                torch.cuda.synchronize()
                times.append(time.monotonic() - began)
            say(work=f"prefill {length}", value=length / statistics.median(times[2:]), compile_seconds=times[0])


def gpt_fast_decode(torch, generate, model, options):
    prompt, times = torch.randint(0, 1024, (PROMPT,), device="cuda"), []
    for _ in range(options.repeat + 2):  # the first compiles, the second captures
        seconds = []
        for tokens in (2, TOKENS):  # what is common to both is the prompt
            torch.cuda.synchronize()
            began = time.monotonic()
            generate.generate(model, prompt, TOKENS if not times else tokens, 1, interactive=False, draft_model=None, temperature=0.8, top_k=200)
            torch.cuda.synchronize()
            seconds.append(time.monotonic() - began)
        times.append(seconds)
    step = statistics.median(t[1] - t[0] for t in times[2:]) / (TOKENS - 2)
    say(work="decode", value=1 / step, step_ms=step * 1e3, as_it_counts=TOKENS / statistics.median(t[1] for t in times[2:]), compile_seconds=times[0][0])


def start_worker(name, options, works, seconds, *more):
    """The figures of a worker, a process of its own; those it gave before its time was over."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as talk:
        command = [sys.executable, os.path.abspath(__file__), "--worker", name, "--works", works, "--repeat", str(options.repeat), "--build", options.build, *more]
        ended = "done"
        try:
            code = subprocess.run(command, stdout=out, stderr=talk, timeout=seconds, check=False).returncode
            if code != 0:
                talk.seek(0)
                ended = f"ended with {code}: {(talk.read().strip() or 'no word').splitlines()[-1]}"
        except subprocess.TimeoutExpired:
            ended = f"not done after {seconds} s"
        out.seek(0)
        figures = [json.loads(line) for line in out.read().splitlines() if line.startswith("{")]
    if ended != "done":
        print(f"{name} ({works}): {ended}", file=sys.stderr, flush=True)
    return figures


def left_bytes(gpu_layers):
    """Of weights that a step reads and llama.cpp leaves in host memory: the head is the last layer that it counts."""
    return 2 * min(33 - gpu_layers, 32) * roofs.layer_weights(SHAPE) + (2 * 4096 * 128256 if gpu_layers == 0 else 0)


def trireme_figure(options, work, shape, prompt, tokens, batch=1, more=()):
    kind = "prefill" if work.startswith("prefill") else "decode"
    command = table.bench_command(os.path.join(options.build, "trireme"), kind, shape, prompt, tokens, batch, options.repeat, more)
    with Watch() as watch:
        report = json.loads(table.run(command, 120))
    streaming = report.get("streaming", {})
    return {"work": work, "off_device": streaming.get("unpacked", 0), "hosted": streaming.get("hosted", 0), "packed": streaming.get("compression_ratio"), "value": table.bench_value(report, kind)["median"], "step_ms": report["decode_step_seconds"]["median"] * 1e3,
            "prompts_per_second": report["prefill_tokens_per_second"]["median"], "first_ms": report["first_token_seconds"]["median"] * 1e3,
            "device_bytes": watch.most, "planned_bytes": report["device_bytes_per_rank"], "load_seconds": report["load_seconds"]}


def table_figures(options):
    """trireme's of the table's rows."""
    with open(options.table, encoding="utf-8") as file:
        rows = [row for row in json.load(file)["rows"] if row["gpus"] == 1 and "8b" in row["name"] and "value" in row]
    for row in rows:
        words = row["name"].split()
        if "prompt" in words:
            yield {"work": f"prefill {words[-1]}", "value": row["value"]}
            continue
        batch = int(words[-2]) if words[-1] == "sequences" else 1
        if batch == 1:
            yield {"work": "decode", "value": row["value"], "step_ms": row["step_ms"], "first_ms": row["first_token_ms"], "load_seconds": row["load_seconds"]}
        yield from batch_figures(batch, batch * PROMPT / row["prompts_per_second"], row["step_ms"] * 1e-3)


def trireme_figures(options):
    wanted = []
    if options.table:
        yield from (figure for figure in table_figures(options) if figure["work"].replace("load", "batch").split()[0] in options.works)
    if "decode" in options.works and not options.table:
        wanted.append(("decode", SHAPE, PROMPT, TOKENS))
    if "prefill" in options.works and not options.table:
        wanted += [(f"prefill {length}", SHAPE if length < 8192 else "llama-3.1-8b", length, 1) for length in PROMPTS]
    if "batch" in options.works and not options.table:
        wanted += [(f"batch {batch}", SHAPE, PROMPT, STEPS + 1, batch) for batch in BATCHES]
    if "offload" in options.works:
        wanted += [(f"offload {layers}", SHAPE, PROMPT, 9, 1, ("--weight-budget", budget)) for layers, budget in OFFLOADS]
        wanted += [(f"offload {layers} processors", SHAPE, PROMPT, 17, 1, ("--weight-budget", budget, "--host-compute", "auto")) for layers, budget in OFFLOADS]
    for row in wanted:
        try:
            figure = trireme_figure(options, *row)
            yield figure
            if row[0].startswith("batch"):
                yield list(batch_figures(row[4], row[4] * PROMPT / figure["prompts_per_second"], figure["step_ms"] * 1e-3))[1]
        except (RuntimeError, OSError, ValueError, KeyError) as error:
            print(f"trireme ({row[0]}): {error}", file=sys.stderr, flush=True)


def collect(options):
    """Figures of every engine that is there."""
    for flag, name in ((options.gguf, "llama.cpp: no --gguf"), (options.gpt_fast, "gpt-fast: no --gpt-fast")):
        if not flag:
            print(f"left out {name}", file=sys.stderr)
    figures = {"trireme": list(trireme_figures(options))}
    if options.gguf:
        if not os.path.exists(options.gguf):
            subprocess.run([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "make_gguf.py"), options.gguf, "--shape", SHAPE], check=True)
        resident = ",".join(w for w in options.works.split(",") if w != "offload")
        figures["llama.cpp"] = start_worker("llama", options, resident, 180, "--gguf", options.gguf, "--gpu-layers", "99") if resident else []
        for layers, _ in OFFLOADS if "offload" in options.works else ():
            figures["llama.cpp"] += start_worker("llama", options, "offload", 120, "--gguf", options.gguf, "--gpu-layers", str(layers))
    if options.gpt_fast:
        for work in ("decode", "prefill"):
            if work in options.works:
                figures.setdefault("gpt-fast", []).extend(start_worker("gpt-fast", options, work, options.compile_seconds, "--gpt-fast", options.gpt_fast))
    return figures


def roof_of(machine, figure):
    kind, _, count = figure["work"].partition(" ")
    if kind == "prefill":
        return roofs.prompt_rate(machine, SHAPE, int(count))
    if kind == "offload":  # what is not on the GPU comes over the link as it is
        return machine["host_bytes_per_second"] / figure["off_device"]
    if kind == "load":
        prompts = int(count) * roofs.prompt_flops(SHAPE, PROMPT) / machine["product_flops"]
        return int(count) * (STEPS + 1) / (prompts + STEPS * int(count) / roof_of(machine, {"work": f"batch {count}"}))
    tokens = TOKENS if kind == "decode" else STEPS
    return roofs.decode_rate(machine, SHAPE, 1, int(count or 1), PROMPT + tokens // 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="folder with trireme and bench_roof (or tests/bench/bench_roof)")
    parser.add_argument("--gguf", help="llama.cpp's model")
    parser.add_argument("--gpt-fast", help="gpt-fast's folder")
    parser.add_argument("--works", default="decode,prefill,batch,offload")
    parser.add_argument("--table", help="what table.py has written")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--compile-seconds", type=int, default=240, help="limit of a gpt-fast process")
    parser.add_argument("--json")
    parser.add_argument("--worker", choices=("llama", "gpt-fast"), help=argparse.SUPPRESS)
    parser.add_argument("--gpu-layers", type=int, default=99, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return (llama_worker if options.worker == "llama" else gpt_fast_worker)(options)
    inner = os.path.join(options.build, "tests", "bench", "bench_roof")
    machine = roofs.measure(inner if os.path.exists(inner) else os.path.join(options.build, "bench_roof"))
    figures = collect(options)
    rows = []
    for engine, found in figures.items():
        for figure in found:
            own = [f["value"] for f in figures["trireme"] if f["work"] == figure["work"]]
            roof = roof_of(machine, figure)
            rows.append({"engine": engine, **figure, "roof": roof, "of_roof": figure["value"] / roof, "trireme_is": own[0] / figure["value"] if own else None})
    rows.sort(key=lambda row: row["work"])
    for row in rows:
        more = "" if row["trireme_is"] is None or row["engine"] == "trireme" else f"trireme {row['trireme_is']:.2f} x"
        print(f"{row['work']:<20} {row['engine']:<10} {row['value']:>10.1f} tok/s {100 * row['of_roof']:>6.1f} % of {row['roof']:>8.1f}  {more}", file=sys.stderr)
    report = {"date": datetime.date.today().isoformat(), "commit": table.commit(), "shape": SHAPE, "machine": machine, "rows": rows}
    with (open(options.json, "w", encoding="utf-8") if options.json else sys.stdout) as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
