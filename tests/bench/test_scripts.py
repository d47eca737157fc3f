"""The scripts of this folder where there is no GPU: the roofs, the table and the peers with programs that stand in for ours, the GGUF file,
the pictures."""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import roofs  # noqa: E402

MACHINE = {"read_bytes_per_second": 4.55e12, "host_bytes_per_second": 55e9, "peer_bytes_per_second": 3e11, "product_flops": 7.5e14}


def report(**more):
    figure = {"min": 99.0, "median": 100.0, "max": 101.0}
    profile = [("model.embed_tokens", "embedding", 1, 0.003), ("model.layers.*.self_attn.q_proj", "matmul", 32, 0.4),
               ("model.layers.*.mlp.activation", "matmul_glu", 32, 1.7), ("logits", "matmul", 1, 0.24)]
    return {"model": "llama-3-8b", "batch": 1, "prompt_tokens": 128, "generated_tokens": 256, "decode_tokens_per_second": figure,
            "prefill_tokens_per_second": figure, "decode_step_seconds": {"median": 0.01}, "first_token_seconds": {"median": 0.02}, "load_seconds": 1.5,
            "device_bytes_per_rank": 1 << 34,
            "profile": [{"layer": name, "kind": kind, "kernel": "k", "layers": n, "milliseconds": ms, "order": i}
                        for i, (name, kind, n, ms) in enumerate(profile)], **more}


def serving_case(prompt, concurrency, rate):
    spread = {"mean": 5.0, "p50": 4.0, "p90": 6.0, "p99": 9.0}
    return {"prompt": prompt, "output": 128, "concurrency": concurrency, "step_tokens": 0, "prefill_chunk": 0, "requests": 9,
            "seconds": 1.0, "output_rate": rate, "token_rate": 2 * rate, "device_percent": 99.0, "preemptions": 0, "ttft_ms": spread,
            "itl_ms": spread, "steps": []}


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, name, text, mode=0o644):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(path, mode)
        return path

    def stand_in(self, name, reply, code=0):
        self.file(name, f"#!/bin/sh\ncat <<'END'\n{json.dumps(reply)}\nEND\nexit {code}\n", 0o755)

    def script(self, name, *arguments, code=0):
        out = subprocess.run([sys.executable, os.path.join(HERE, name), *arguments], capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(out.returncode, code, out.stderr)
        return out

    def test_serving_picture(self):
        cases = [serving_case(prompt, n, 240.0 * n) for prompt in (128, 1024) for n in (8, 1, 32)]
        table = self.file("table.json", json.dumps({"model": "preset:llama-3-8b", "ranks": 1, "cases": cases}))
        machine = self.file("machine.json", json.dumps(MACHINE))
        for arguments, lines in (((table,), 6), ((table, machine), 8)):
            drawn = xml.dom.minidom.parseString(self.script("serving_picture.py", *arguments).stdout)
            self.assertEqual(sum(len(line.getAttribute("points").split()) == 3 for line in drawn.getElementsByTagName("polyline")), lines)
        rows = self.script("serving_picture.py", "--rows", table).stdout.splitlines()
        self.assertEqual(len(rows), 6)
        self.assertIn("| 128/128 | 8 | 1,920 | 3,840 | 4 / 6 / 9 | 4.00 / 6.00 / 9.00 | 99.0 % | 9 |", rows)
        self.script("serving_picture.py", code=1)

    def test_roofs(self):
        self.assertAlmostEqual(roofs.step_bytes("llama-3-8b") / 1e9, 15.01, places=2)
        self.assertAlmostEqual(roofs.decode_rate(MACHINE, "llama-3-8b"), 303, delta=1)
        self.assertAlmostEqual(roofs.decode_rate(MACHINE, "llama-3-8b", 4), 1050, delta=5)
        self.assertAlmostEqual(roofs.decode_rate(MACHINE, "llama-3.2-1b"), 1841, delta=2)
        self.assertAlmostEqual(roofs.prompt_rate(MACHINE, "llama-3-8b", 2048), 53150, delta=20)
        self.assertAlmostEqual(roofs.serving_rate(MACHINE, "llama-3-8b", 128, 128, 1), 302.5, delta=1) # a step alone
        self.assertAlmostEqual(roofs.serving_rate(MACHINE, "llama-3-8b", 128, 128, 256), 26110, delta=100) # two tokens' products
        self.assertAlmostEqual(roofs.serving_rate(MACHINE, "llama-3-8b", 128, 128, 1, 4), 1050, delta=5) # a step alone, with its sums
        # A token of the cache: keys and values of 8 heads of 128 in 32 layers.
        self.assertEqual(roofs.step_bytes("llama-3-8b", 3, 10) - roofs.step_bytes("llama-3-8b"), 30 * 131072)
        # With enough sequences the products bound a step, not the memory.
        self.assertAlmostEqual(roofs.decode_rate(MACHINE, "llama-3-8b", 1, 4096), MACHINE["product_flops"] / roofs.step_flops("llama-3-8b"), delta=1)

    def test_table(self):
        self.stand_in("bench_roof", [MACHINE])
        self.stand_in("trireme", report())
        file = os.path.join(self.folder, "table.json")
        self.script("table.py", "--build", self.folder, "--gpus", "1", "--json", file)
        with open(file, encoding="utf-8") as text:
            table = json.load(text)
        rows = {(row["name"], row["gpus"]): row for row in table["rows"]}
        self.assertEqual(len(rows), len(table["rows"]))
        one = rows["llama-3-8b decode", 1]
        self.assertEqual((one["value"], one["reached"]), (100.0, False))
        self.assertAlmostEqual(one["of_roof"], 100 / roofs.decode_rate(MACHINE, "llama-3-8b", context=256))
        self.assertNotIn("value", rows["llama-3-8b decode", 4])
        self.assertIn("needs 4 GPUs", rows["llama-3-8b decode", 4]["not_run"])

    def test_table_of_a_program_that_fails(self):
        self.stand_in("bench_roof", [MACHINE])
        self.stand_in("trireme", {}, 3)
        out = self.script("table.py", "--build", self.folder, "--gpus", "2", "--ranks", "1", "--only", "1b", code=1)
        row, = json.loads(out.stdout)["rows"]
        self.assertIn("ended with 3", row["failed"])

    def test_sweep(self):
        model = {"hidden": 4096, "intermediate": 14336, "layers": 32, "heads": 32, "kv_heads": 8, "head_dim": 128, "vocab": 128256, "context_length": 2048}
        self.stand_in("trireme", report(model=model))
        file = os.path.join(self.folder, "sweep.json")
        arguments = ["--trireme", os.path.join(self.folder, "trireme"), "--shapes", "one,two", "--batches", "1,8,4096", "--contexts", "1000,4000", "--tokens", "24"]
        self.script("sweep.py", *arguments, "--json", file)
        with open(file, encoding="utf-8") as text:
            rows = json.load(text)
        # Longer than the model's context, or more than fits, is left out.
        self.assertEqual([(row["shape"], row["batch"], row["context"]) for row in rows],
                         [(shape, batch, 1000) for shape in ("one", "two") for batch in (1, 8)])
        # 100 tokens a second in steps of 10 ms: one sequence in a step, whatever was asked for.
        self.assertEqual([row["sequences"] for row in rows], [1.0] * 4)
        self.assertAlmostEqual(rows[0]["share"], roofs.step_bytes("llama-3-8b", 1, 1012) / 4.55e12 / 0.01)
        self.stand_in("trireme", {"model": model}, 3)
        self.script("sweep.py", *arguments, code=1)

    def test_peers(self):
        self.stand_in("bench_roof", [MACHINE])
        self.stand_in("trireme", report(streaming={"unpacked": 8000000000, "compression_ratio": 1.5}))
        out = self.script("peers_llm.py", "--build", self.folder)
        rows = {row["work"]: row for row in json.loads(out.stdout)["rows"]}
        self.assertIn("left out llama.cpp", out.stderr)
        self.assertAlmostEqual(rows["offload 16"]["of_roof"], 100 / (55e9 / 8e9))
        # 8 prompts of 128 tokens at 100 a second, then 127 steps of 10 ms.
        self.assertAlmostEqual(rows["load 8"]["value"], 8 * 128 / (8 * 128 / 100 + 127 * 0.01))
        self.assertLess(rows["load 8"]["roof"], rows["batch 8"]["roof"])
        file = os.path.join(self.folder, "table.json")
        self.script("table.py", "--build", self.folder, "--gpus", "1", "--json", file)
        self.stand_in("trireme", {}, 1)
        again = {row["work"]: row for row in json.loads(self.script("peers_llm.py", "--build", self.folder, "--table", file).stdout)["rows"]}
        self.assertEqual(set(again), {work for work in rows if "offload" not in work})
        for work in ("decode", "prefill 8192", "load 1", "load 128"):
            self.assertAlmostEqual(again[work]["value"], rows[work]["value"], msg=work)

    def test_peers_serving(self):
        figure = {"mean": 5.0, "p50": 4.0, "p90": 6.0, "p99": 9.0}
        load = {"requests": 3, "failed": 0, "seconds": 1.0, "output_tokens_per_second": 128.0, "tokens_per_second": 256.0, "first_token_ms": figure,
                "between_pieces_ms": figure, "per_token_ms": figure}
        stand_in = f"""#!{sys.executable}
import http.server, json, sys
if sys.argv[1] == "bench":
    load = {load!r}
    load["failed"] = int("32" in sys.argv)
    print(json.dumps(load))
    sys.exit(0)
asked = 0
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global asked
        self.send_response(200)
        self.end_headers()
        if self.path == "/metrics": # nine tenths of the time of what it calls steps
            asked += 1
            for name, seconds in ("step", 2.0 * asked), ("step_device", 1.8 * asked):
                self.wfile.write(b'trireme_%s_seconds_total{{model_name="m"}} %.3f\\n' % (name.encode(), seconds))
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Health).serve_forever()
"""
        program = self.file("both", stand_in, 0o755)
        machine, file = self.file("machine.json", json.dumps([MACHINE])), os.path.join(self.folder, "serving.json")
        arguments = ["--trireme", program, "--model", "folder", "--llama-server", program, "--gguf", "file", "--roof", machine, "--json", file]
        self.script("peers_serving.py", *arguments, "--loads", "128/128@1x3,128/128@8x24")
        with open(file, encoding="utf-8") as text:
            rows = json.load(text)["rows"]
        self.assertEqual([(row["engine"], row["concurrency"]) for row in rows], [(engine, n) for engine in ("trireme", "llama-server") for n in (1, 8)])
        self.assertAlmostEqual(rows[0]["roof"], roofs.serving_rate(MACHINE, "llama-3-8b", 128, 128, 1))
        self.assertEqual([row["at_work"] and round(row["at_work"], 3) for row in rows], [0.9, 0.9, None, None])
        self.script("peers_serving.py", "--trireme", program, "--model", "folder", "--roof", machine, "--json", file, "--ranks", "4",
                    "--loads", "128/128@8x24")
        with open(file, encoding="utf-8") as text:
            row = json.load(text)["rows"][0]
        self.assertEqual((row["ranks"], row["roof"]), (4, roofs.serving_rate(MACHINE, "llama-3-8b", 128, 128, 8, 4)))
        out = self.script("peers_serving.py", *arguments, "--loads", "128/128@1x3,128/128@32x96", code=1)
        self.assertIn("llama-server 128/128@32: 1 of 96 requests failed", out.stdout)
        out = self.script("peers_serving.py", "--trireme", "/bin/false", "--model", "folder", "--loads", "128/128@1x3", code=1)
        self.assertIn("trireme is not ready", out.stdout)
        self.script("peers_serving.py", "--trireme", program, "--loads", "128", code=2)

    def test_gguf(self):
        file = os.path.join(self.folder, "model.gguf")
        roofs_of_a_small_one = "import roofs; roofs.SHAPES['llama-3-8b'] = (64, 96, 2, 4, 2, 16, 300); import make_gguf; make_gguf.POOL = 4096; make_gguf.main()"
        subprocess.run([sys.executable, "-c", roofs_of_a_small_one, file, "--tokenizer"], cwd=HERE, check=True, timeout=600)
        with open(file, "rb") as data:
            content = data.read()
        magic, version, tensors, keys = struct.unpack_from("<4sIQQ", content)
        self.assertEqual((magic, version, tensors, keys), (b"GGUF", 3, 3 + 9 * 2, 20))
        at = 24

        def text():
            nonlocal at
            length, = struct.unpack_from("<Q", content, at)
            at += 8 + length
            return content[at - length:at].decode()

        def value(kind):
            nonlocal at
            if kind == 9:
                element, n = struct.unpack_from("<IQ", content, at)
                at += 12
                return [value(element) for _ in range(n)]
            if kind == 8:
                return text()
            at += 4
            return struct.unpack_from({4: "<I", 5: "<i", 6: "<f"}[kind], content, at - 4)[0]

        known = {}
        for _ in range(keys):
            key, kind = text(), struct.unpack_from("<I", content, at)[0]
            at += 4
            known[key] = value(kind)
        self.assertEqual((known["llama.block_count"], known["general.architecture"]), (2, "llama"))
        tokens = known["tokenizer.ggml.tokens"]
        self.assertEqual((len(tokens), len(set(tokens)), known["tokenizer.ggml.token_type"][:3]), (300, 300, [3, 3, 1]))
        self.assertEqual(known["tokenizer.ggml.merges"], [f"{token[0]} {token[1]}" for token in tokens if len(token) == 2])
        places = {}
        for _ in range(tensors):
            name, n = text(), struct.unpack_from("<I", content, at)[0]
            dims = struct.unpack_from(f"<{n}Q", content, at + 4)
            kind, offset = struct.unpack_from("<IQ", content, at + 4 + 8 * n)
            at += 16 + 8 * n
            places[name] = (dims, kind, offset)
        start = (at + 31) // 32 * 32
        self.assertEqual(places["blk.1.ffn_down.weight"][:2], ((96, 64), 30))
        self.assertEqual(places["output_norm.weight"][:2], ((64,), 0))
        self.assertTrue(all(offset % 32 == 0 for _, _, offset in places.values()))
        norm = start + places["blk.1.ffn_norm.weight"][2]
        self.assertEqual(struct.unpack_from("<64f", content, norm), (1.0,) * 64)
        self.assertEqual(len(content), start + places["blk.1.ffn_down.weight"][2] + 2 * 96 * 64)

    def test_pictures(self):
        self.stand_in("bench_roof", [MACHINE])
        self.stand_in("trireme", report())
        table = os.path.join(self.folder, "table.json")
        self.script("table.py", "--build", self.folder, "--gpus", "1", "--json", table)
        peers = self.file("peers.json", json.dumps({"rows": [{"engine": "llama.cpp", "work": work, "value": 24000.0} for work in ("prefill 2048", "load 8", "offload 0")]}))
        profile = self.file("profile.json", json.dumps(report()))
        roofline = self.script("performance_picture.py", "roofline", table, peers).stdout
        timeline = self.script("performance_picture.py", "timeline", table, profile, profile).stdout
        for picture in (roofline, timeline):
            xml.dom.minidom.parseString(picture)
        self.assertEqual(roofline.count("<title>llama.cpp, "), 1)  # loads and offloads are no whole steps under these roofs
        self.assertIn("llama.cpp, prefill 2048", roofline)
        self.assertIn("q_proj 12.5", timeline)  # 0.4 ms of 32 layers


if __name__ == "__main__":
    unittest.main()
