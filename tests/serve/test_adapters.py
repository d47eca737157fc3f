"""LoRA adapters: several in a batch, loaded and unloaded while the server runs, and after a lost rank."""
import array
import concurrent.futures
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest

from serving import BACKEND, MODEL, PROGRAM, RANKS, Server, Stream, eventually

with open(MODEL + "/config.json") as config:
    CONFIG = json.load(config)
HIDDEN, WIDTH = CONFIG["hidden_size"], CONFIG["intermediate_size"]
KEYS = CONFIG["num_key_value_heads"] * CONFIG["head_dim"]
MODULES = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.v_proj": (KEYS, HIDDEN), "mlp.down_proj": (HIDDEN, WIDTH)}


def write_adapter(folder, seed, rank=4, **config):
    """A random adapter in PEFT's format."""
    draw, tensors, data = random.Random(seed), {}, b""
    for layer in range(CONFIG["num_hidden_layers"]):
        for module, (rows, columns) in MODULES.items():
            for part, dims in (("A", (rank, columns)), ("B", (rows, rank))):
                values = array.array("f", (draw.gauss(0, 0.09) for _ in range(dims[0] * dims[1]))).tobytes()
                tensors[f"base_model.model.model.layers.{layer}.{module}.lora_{part}.weight"] = {
                    "dtype": "F32", "shape": dims, "data_offsets": [len(data), len(data) + len(values)]}
                data += values
    header = json.dumps(tensors).encode()
    os.mkdir(folder)
    with open(folder + "/adapter_model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj", "down_proj"]}
    with open(folder + "/adapter_config.json", "w") as file:
        json.dump({**settings, **config}, file)
    return folder


class Adapters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp()
        cls.folders = [write_adapter(f"{cls.root}/{i}", i) for i in range(3)]

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root)

    def load(self, server, name, folder, **more):
        return server.request("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": folder, **more})[:2]

    def unload(self, server, name):
        return server.request("POST", "/v1/unload_lora_adapter", {"lora_name": name})[:2]

    def models(self, server):
        return {model["id"]: model for model in server.request("GET", "/v1/models")[1]["data"]}

    def complete(self, server, model):
        return server.complete(max_tokens=24, **({"model": model} if model else {}))

    def test_names_and_batches(self):
        base = os.path.basename(MODEL)
        with Server("--adapter", "zero=" + self.folders[0], "--adapter", "one=" + self.folders[1], "--max-adapters", "3") as server:
            plain = self.complete(server, None)
            self.assertEqual(self.complete(server, base), plain)
            texts = {None: plain, "zero": self.complete(server, "zero"), "one": self.complete(server, "one")}
            self.assertEqual(len(set(texts.values())), 3, texts)
            models = self.models(server)
            self.assertEqual(set(models), {base, "zero", "one"})
            self.assertEqual((models["one"]["parent"], models["one"]["root"]), (base, self.folders[1]))
            self.assertEqual(server.request("GET", "/v1/models/zero")[1], models["zero"])
            # A third one, which the server knows from then on alone.
            body = {"prompt": "In the beginning", "model": "two"}
            self.assertEqual(server.request("POST", "/v1/completions", body)[0], 404)
            self.assertEqual(self.load(server, "two", self.folders[2]), (200, "Success: LoRA adapter 'two' added successfully."))
            texts["two"] = self.complete(server, "two")
            self.assertEqual(len(set(texts.values())), 4)
            self.assertEqual(server.request("POST", "/v1/completions", body)[1]["model"], "two")
            # Together as alone, whoever is beside them; and what one has cached is not another's.
            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                asked = [[None, "zero", "one", "two"][i % 4] for i in range(24)]
                replies = list(pool.map(lambda model: self.complete(server, model), asked))
            self.assertEqual(replies, [texts[model] for model in asked])
            # In another one's place.
            self.assertEqual(self.load(server, "two", self.folders[0], load_inplace=True)[0], 200)
            self.assertEqual(self.complete(server, "two"), texts["zero"])
            # A lost rank comes back with all of them.
            os.kill(server.workers()[-1], signal.SIGKILL)
            server.wait_line("serving again")
            self.assertEqual([self.complete(server, model) for model in (None, "zero", "one")],
                             [texts[model] for model in (None, "zero", "one")])
            # The program, also beside quantized weights, which are near enough here, and beside weights that stream.
            for options in [], ["--weights", "int8-weights"], ["--weight-budget", "0%"], ["--speculate", "lookup"]:
                command = [PROGRAM, "run", MODEL, "--adapter", self.folders[1], "-p", "In the beginning", "-n", "24", "--backend", BACKEND]
                run = subprocess.run(command + options, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
                self.assertEqual(run.stdout.rstrip("\n"), texts["one"].rstrip("\n"), options)

    def test_loading_while_serving(self):
        with Server("--adapter", "zero=" + self.folders[0], "--max-adapters", "2") as server:
            with_zero = Stream(server, model="zero", max_tokens=300)
            undisturbed = with_zero.end()[0]
            stream = Stream(server, model="zero", max_tokens=300)
            self.assertEqual(self.load(server, "one", self.folders[1])[0], 200)
            text = self.complete(server, "one")
            status, body = self.load(server, "two", self.folders[2])
            self.assertEqual((status, "there is room for 2" in body["error"]["message"]), (400, True), body)
            self.assertEqual(self.unload(server, "zero"), (200, "Success: LoRA adapter 'zero' removed successfully."))
            self.assertEqual(server.request("POST", "/v1/completions", {"prompt": "x", "model": "zero"})[0], 404)
            self.assertEqual(stream.end()[0], undisturbed) # it keeps its adapter to its end
            eventually(lambda: self.assertEqual(self.load(server, "two", self.folders[2])[0], 200))
            self.assertEqual(self.complete(server, "one"), text)
            self.assertNotEqual(self.complete(server, "two"), text)

    def test_refusals(self):
        bad = {
            "dora": ({"use_dora": True}, "sets use_dora"),
            "biased": ({"bias": "all"}, "has bias all"),
            "shapes": ({"r": 3}, "has shape [4, 256], expected [3, 256]"),
            "saved": ({"modules_to_save": ["lm_head"]}, "sets modules_to_save"),
        }
        with Server("--max-adapters", "1", "--max-adapter-rank", "8") as server:
            for name, (config, cause) in bad.items():
                folder = write_adapter(f"{self.root}/{name}", 7, **config)
                status, body = self.load(server, name, folder)
                self.assertEqual((status, cause in body["error"]["message"]), (400, True), body)
            status, body = self.load(server, "large", write_adapter(f"{self.root}/large", 7, rank=16))
            self.assertEqual((status, "max_adapter_rank" in body["error"]["message"]), (400, True), body)
            status, body = self.load(server, "missing", self.root + "/missing")
            self.assertEqual((status, self.root + "/missing" in body["error"]["message"]), (400, True), body)
            self.assertEqual(self.load(server, "", self.folders[0])[0], 400)
            self.assertEqual(self.load(server, os.path.basename(MODEL), self.folders[0])[0], 400)
            self.assertEqual(server.request("POST", "/v1/load_lora_adapter", {"lora_name": "x"})[0], 400)
            self.assertEqual(self.unload(server, "missing")[0], 404)
            self.assertEqual(self.load(server, "good", self.folders[0])[0], 200) # no failure has taken a place
            status, body = self.load(server, "good", self.folders[0])
            self.assertEqual((status, "already been loaded" in body["error"]["message"]), (400, True), body)
        with Server() as server: # which has no room for any
            self.assertEqual(self.load(server, "zero", self.folders[0])[0], 404)
            self.assertEqual(self.unload(server, "zero")[0], 404)
        dora = f"{self.root}/dora"
        command = [PROGRAM, "serve", MODEL, "--adapter", "bad=" + dora, "--port", "0", "--backend", BACKEND, "--ranks", str(RANKS)]
        ended = subprocess.run(command, capture_output=True, text=True)
        self.assertIn("adapter bad cannot be loaded", ended.stderr)
        self.assertEqual(ended.returncode, 3, ended.stderr)
        ended = subprocess.run([PROGRAM, "run", MODEL, "--adapter", dora, "-p", "x", "--backend", BACKEND], capture_output=True, text=True)
        self.assertIn("sets use_dora", ended.stderr)
        self.assertEqual(ended.returncode, 3, ended.stderr)


if __name__ == "__main__":
    unittest.main()
