"""ResNet-50, ViT-B/16 and BERT-base with random weights: trireme beside torch.compile and onnxruntime on one GPU, in turn.

Latencies are of one run after another, each waited for, inputs on the device; the median of those that fit into
--seconds. torch's are of torch.compile(mode="max-autotune"), which replays CUDA graphs. usage: peers_onnx.py --help
(needs torch, torchvision, transformers, onnx, onnxscript; onnxruntime where it has a GPU)"""
import argparse
import json
import os
import statistics
import subprocess
import sys
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


def make_network(name):
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
        return logits_of(transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000)), "pixel_values")
    if name == "bert":
        return logits_of(transformers.BertForSequenceClassification(transformers.BertConfig(num_labels=2)), "input_ids",
                         "attention_mask")
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


def export(name, dtype, path, exporter, opset):
    """Writes the network with a dynamic batch; torch's new exporter keeps attention whole from opset 23 on."""
    import torch
    net = make_network(name).eval().to(dtype)
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


def median_ms(run, seconds):
    times, began = [], time.perf_counter()
    while len(times) < 20 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
        if time.perf_counter() - began > 20 * seconds:
            break
    return statistics.median(times)


def with_torch(name, dtype, tf32, batch, seconds, mode):
    import torch
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    net = make_network(name).eval().to(dtype).cuda()
    if name == "resnet50" and mode != "eager":
        net = net.to(memory_format=torch.channels_last)
    inputs = tuple(cast(sample(name, batch), dtype, "cuda").values())
    if name == "resnet50" and mode != "eager":
        inputs = tuple(x.to(memory_format=torch.channels_last) for x in inputs)
    began = time.perf_counter()
    with torch.inference_mode():
        call = net if mode in ("eager", "graph") else torch.compile(net, mode=mode)
        for _ in range(5):
            call(*inputs)
        torch.cuda.synchronize()
        built = time.perf_counter() - began

        if mode == "graph":
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                call(*inputs)

        def once():
            graph.replay() if mode == "graph" else call(*inputs)
            torch.cuda.synchronize()

        return median_ms(once, seconds), built


def with_onnxruntime(path, name, dtype, batch, seconds):
    import onnxruntime
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return None, None
    began = time.perf_counter()
    session = onnxruntime.InferenceSession(path, providers=["CUDAExecutionProvider"])
    inputs = cast(sample(name, batch), dtype, "cpu")
    binding = session.io_binding()
    for key, value in inputs.items():
        binding.bind_ortvalue_input(key, onnxruntime.OrtValue.ortvalue_from_numpy(value.numpy(), "cuda", 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda")
    session.run_with_iobinding(binding)
    built = time.perf_counter() - began

    def once():
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return median_ms(once, seconds), built


def with_trireme(program, path, name, tf32, batch, seconds, extra):
    shapes = ",".join(f"{k}:{'x'.join(map(str, v.shape))}" for k, v in sample(name, batch).items())
    command = [program, "bench", path, "--backend", "cuda", "--shapes", shapes, "--duration", str(seconds), "--json",
               "--warm-up", "0.1", *extra]
    if tf32:
        command.append("--tf32")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stderr.strip(), file=sys.stderr)
        return None
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", default="resnet50,vit,bert")
    parser.add_argument("--types", default="f16,tf32,f32", help="of f16, bf16, tf32, f32")
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--peers", default="trireme,torch,onnxruntime")
    parser.add_argument("--trireme", default="trireme", help="the program")
    parser.add_argument("--trireme-options", default="", help="more options of trireme bench")
    parser.add_argument("--mode", default="max-autotune", help="of torch.compile; or eager, or graph: eager captured as a CUDA graph")
    parser.add_argument("--exporter", default="dynamo", choices=["dynamo", "torchscript"])
    parser.add_argument("--opset", type=int, default=23)
    parser.add_argument("--models", default=".", help="folder for the ONNX files; those that are there are used")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--budget", type=float, default=1e9, help="begin nothing new after so many seconds")
    parser.add_argument("--profile", action="store_true", help="write each layer's time into profile-*.json")
    parser.add_argument("--json", help="file for the results")
    options = parser.parse_args()
    import torch
    began, rows = time.perf_counter(), []
    types = {"f16": (torch.float16, False), "bf16": (torch.bfloat16, False), "tf32": (torch.float32, True),
             "f32": (torch.float32, False)}
    for name in options.networks.split(","):
        for kind in options.types.split(","):
            dtype, tf32 = types[kind]
            path = os.path.join(options.models, f"{name}-{str(dtype)[6:]}.onnx")
            if options.peers != "torch" and not os.path.exists(path) and time.perf_counter() - began < options.budget:
                start = time.perf_counter()
                export(name, dtype, path, options.exporter, options.opset)
                print(f"exported {path} in {time.perf_counter() - start:.1f} s", flush=True)
            for batch in map(int, options.batches.split(",")):
                row = {"network": name, "type": kind, "batch": batch}
                for peer in options.peers.split(","):
                    if time.perf_counter() - began > options.budget:
                        continue
                    try:
                        if peer == "torch":
                            ms, built = with_torch(name, dtype, tf32, batch, options.seconds, options.mode)
                        elif peer == "onnxruntime":
                            ms, built = with_onnxruntime(path, name, dtype, batch, options.seconds)
                        else:
                            more = options.trireme_options.split() + (["--profile"] if options.profile else [])
                            made = with_trireme(options.trireme, path, name, tf32, batch, options.seconds, more)
                            if made is None:
                                continue
                            ms, built = made["latency_ms"]["p50"], made["build_seconds"] + made["tune_seconds"]
                            if options.profile:
                                with open(f"profile-{name}-{kind}-{batch}.json", "w") as out:
                                    json.dump(made, out)
                        if ms is not None:
                            row[peer + "_ms"], row[peer + "_build_s"] = round(ms, 4), round(built, 2)
                    except Exception as error:  # a peer that cannot do a case does not end the others
                        print(f"{peer} {name} {kind} {batch}: {type(error).__name__}: {str(error)[:300]}",
                              file=sys.stderr)
                    if "torch" in sys.modules and peer == "torch":
                        torch._dynamo.reset()
                        torch.cuda.empty_cache()
                rows.append(row)
                print(json.dumps(row), flush=True)
    if options.json:
        with open(options.json, "w") as out:
            json.dump(rows, out, indent=1)
    print("| network | type | batch | " + " | ".join(p + ", ms" for p in options.peers.split(",")) + " |")
    print("|---|---|---|" + "---|" * len(options.peers.split(",")))
    for row in rows:
        cells = [str(row.get(p + "_ms", "")) for p in options.peers.split(",")]
        print(f"| {row['network']} | {row['type']} | {row['batch']} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
