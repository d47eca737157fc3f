"""Hugging Face accelerate's CPU offload beside bench_streaming: a Llama of the same shape whose weights all come from host memory.

    python3 peers_offload.py [--layers 32] [--tokens 5]

Needs torch, transformers and accelerate, and a GPU; without one of them it says so and ends with 77. Weights are random. The rate is of the bytes of the layers and
the head, which every step needs; of the embedding a step reads rows.
"""
import argparse
import sys
import time


def need(name):
    try:
        return __import__(name)
    except ImportError:
        print(f"{name} is not installed: nothing was measured")
        sys.exit(77)


def build(torch, layers):
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(hidden_size=4096, intermediate_size=14336, num_hidden_layers=layers, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256,
                         max_position_embeddings=8192, rope_theta=500000.0, torch_dtype=torch.bfloat16)
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            made = (torch.randn(parameter.shape, device="cuda", dtype=torch.bfloat16) * 0.02).cpu()
            setattr(module, name, torch.nn.Parameter(made, requires_grad=False))
    rotary = type(model.model.rotary_emb)(config=config) # its buffers are computed, not loaded
    model.model.rotary_emb = rotary
    return model.eval()


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--layers", type=int, default=32)
    arguments.add_argument("--tokens", type=int, default=5)
    options = arguments.parse_args()
    torch, transformers = need("torch"), need("transformers")
    accelerate = need("accelerate")
    if not torch.cuda.is_available():
        print("there is no GPU: nothing was measured")
        sys.exit(77)
    began = time.monotonic()
    model = build(torch, options.layers)
    size = sum(p.numel() * p.element_size() for p in model.parameters()) - model.model.embed_tokens.weight.numel() * 2
    torch.cuda.empty_cache()
    accelerate.cpu_offload(model, execution_device=0)
    print(f"accelerate {accelerate.__version__}, transformers {transformers.__version__}, torch {torch.__version__}: {size / 1e9:.2f} GB a step, "
          f"made in {time.monotonic() - began:.1f} s")
    tokens, past, times = torch.arange(16, device="cuda").unsqueeze(0), None, []
    with torch.no_grad():
        for _ in range(options.tokens):
            torch.cuda.synchronize()
            began = time.monotonic()
            out = model(input_ids=tokens, past_key_values=past, use_cache=True)
            past, tokens = out.past_key_values, out.logits[:, -1:].argmax(-1).to("cuda")
            torch.cuda.synchronize()
            times.append(time.monotonic() - began)
    step = sorted(times[1:])[(len(times) - 1) // 2]
    print(f"{step * 1e3:.1f} ms a step, {1 / step:.3f} tokens per second, {size / step / 1e9:.2f} GB/s, {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB at most")


if __name__ == "__main__":
    main()
