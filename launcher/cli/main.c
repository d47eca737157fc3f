/* The program: chooses a command, reads its settings and runs it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

#include "base/error.h"
#include "launcher/cli/commands.h"
#include "launcher/cli/job/job.h"

const command commands_table[] = {
    {"run", COMMAND_RUN, command_run, "generate text with a model, or run an ONNX network once",
     "one model folder, ONNX or plan file",
     "usage: trireme run MODEL [options]\n       mpirun -np 4 trireme run MODEL [options]\n"
     "       trireme run NET.onnx|NET.plan --input x=in.npy --output y=out.npy [--expect y=ref.npy] [options]\n\n"
     "Continues prompts with a model: a Hugging Face folder, or org/name in the local Hugging Face cache. Prompts "
     "come\n"
     "from -p and -f in this order, otherwise from stdin. A single continuation is streamed.\n",
     "  trireme run configs/models/kjv-7m -p \"In the beginning\" -n 60\n"
     "  mpirun -np 2 trireme run ./llama-3-8b -f prompt.txt --temperature 0.7 --top-p 0.9\n"
     "  trireme run net.onnx --input x=in.npy --output y=out.npy\n"},
    {"serve", COMMAND_SERVE, command_serve, "serve models over OpenAI's HTTP API",
     "one ONNX or plan file, or one or more model folders",
     "usage: trireme serve [NAME=]MODEL... [--ranks 4] [options]\n       trireme serve NET.onnx|NET.plan [options]\n\n"
     "Serves a model over the HTTP API of OpenAI and Anthropic, with continuous batching. The ranks run as a separate\n"
     "job. If a rank is lost, the job is restarted and its requests continue where they were. Of several models,\n"
     "requests choose one by name; each is loaded when it is asked for.\n"
     "A network is served over KServe's HTTP protocol v2.\n",
     "  trireme serve configs/models/kjv-7m --port 8000\n"
     "  trireme serve ./llama-3-8b --ranks 4 --host 0.0.0.0 --api-keys keys.txt\n"
     "  trireme serve small=./qwen3-4b big=./llama-3-70b --ranks 4 --max-loaded-models 1\n"
     "  curl http://127.0.0.1:8000/v1/completions -d '{\"prompt\": \"In the beginning\", \"max_tokens\": 20}'\n"},
    {"serve-worker", COMMAND_SERVE_WORKER, command_serve_worker, NULL, "one model folder",
     "usage: trireme serve-worker MODEL [options]\n\nA rank of trireme serve, started by it.\n", ""},
    {"bench", COMMAND_BENCH, command_bench, "measure tokens per second, or the latency of an ONNX network",
     "one model folder, shape, ONNX or plan file",
     "usage: trireme bench MODEL|SHAPE [options]\n       mpirun -np 4 trireme bench SHAPE [options]\n"
     "       trireme bench NET.onnx|NET.plan [--shapes x:1x3x224x224] [options]\n\n"
     "Measures prompts and decoding of a model, or runs of an ONNX network with random or given inputs. A shape has\n"
     "random weights and needs no files. With --expect or --against, outputs are compared with references; the exit\n"
     "code is 1 if one differs.\n",
     "  trireme bench llama-3-8b --prompt-tokens 128 --tokens 256\n"
     "  mpirun -np 4 trireme bench llama-3-70b --batch 8 --profile --json\n"
     "  trireme bench net.onnx --shapes x:8x3x224x224 --profile\n"
     "  trireme bench net.plan --input x=in.npy --expect y=ref.npy --rtol 1e-2\n"},
    {"bench serve", COMMAND_BENCH_SERVE, command_bench_serve, "load a server and measure it",
     "one http://HOST:PORT or https://HOST:PORT",
     "usage: trireme bench serve http[s]://HOST:PORT [options]\n\n"
     "Sends streamed completions to any server that implements OpenAI's API and measures throughput and latency.\n",
     "  trireme bench serve http://127.0.0.1:8000 --concurrency 32 --requests 320\n"
     "  trireme bench serve http://127.0.0.1:8000 --rate 4 --spread --goal-first 500 --goal-token 50 --html "
     "load.html\n"},
    {"build", COMMAND_BUILD, command_build, "build an ONNX network into a plan file", "one ONNX file",
     "usage: trireme build NET.onnx -o NET.plan [--mesh tp=2] [options]\n\n"
     "Imports, partitions and plans a network for every rank of a mesh and writes one plan file. run, bench and "
     "inspect\n"
     "take it in place of the ONNX file. Weights stay in their files unless --embed-weights is given.\n",
     "  trireme build net.onnx -o net.plan --shapes x:8x3x224x224\n"
     "  trireme build net.onnx --min-shapes x:1x16 --shapes x:1x128 --max-shapes x:8x512\n"
     "  trireme build net.onnx --mesh tp=2 --embed-weights && mpirun -np 2 trireme bench net.plan\n"},
    {"refit", COMMAND_REFIT, command_refit, "replace the weights of a plan file", "one plan file",
     "usage: trireme refit NET.plan --weights NET.onnx|FOLDER -o NEW.plan [options]\n\n"
     "Takes weights by name from an ONNX file or a folder of safetensors. Types and dims must be those of the plan. A\n"
     "plan built with --refittable takes any values; another plan takes only the values it was built with.\n",
     "  trireme build net.onnx --refittable --strip-weights -o net.plan\n"
     "  trireme refit net.plan --weights trained.onnx -o trained.plan\n"},
    {"quantize", COMMAND_QUANTIZE, command_quantize, "write a model with quantized weights",
     "one model folder or ONNX file",
     "usage: trireme quantize MODEL --to fp8|fp8-block|int8|int4-128 -o FOLDER [options]\n"
     "       trireme quantize NET.onnx --to int8 --samples FOLDER -o NEW.onnx [options]\n\n"
     "Rounds the linear layers of a model in bf16, f16 or f32 to 8 or 4 bits and writes a folder in the format of\n"
     "compressed-tensors. With --samples it chooses numbers by what the layers get. The folder appears when it is\n"
     "complete. Of an ONNX file it makes one with inputs and weights of int8, by QuantizeLinear and "
     "DequantizeLinear.\n",
     "  trireme quantize ./llama-3-8b --to fp8 -o ./llama-3-8b-fp8\n"
     "  trireme quantize ./qwen3-8b --to int4-128 --samples text.txt --method awq,gptq -o ./qwen3-8b-int4\n"
     "  trireme quantize ./qwen3-8b --to int8 --samples text.txt --method smoothquant --text other.txt -o "
     "./qwen3-8b-int8\n"},
    {"compare", COMMAND_COMPARE, command_compare, "compare two runs of a network tensor by tensor",
     "one ONNX or plan file, model folder or shape, or folder written by --save",
     "usage: trireme compare NET --backend host,cuda [options]\n"
     "       trireme compare NET --ranks 1,2 [options]\n"
     "       trireme compare NET --save FOLDER [options]\n"
     "       trireme compare NET|FOLDER --against FOLDER | --expect y=out.npy [options]\n\n"
     "Runs a network (NET.onnx, NET.plan), or one prompt of a model, with the same inputs on several backends or "
     "numbers\n"
     "of ranks, or once against saved or given tensors. Compares every tensor that both sides have and names the "
     "first\n"
     "layer that differs. The first run is the reference. The exit code is 1 if a tensor differs.\n",
     "  trireme compare net.onnx --shapes x:8x3x224x224 --backend host,cuda --every-layer\n"
     "  trireme compare net.onnx --backend host,cuda --ranks 1,4 --mesh tp=4\n"
     "  trireme compare configs/models/kjv-7m --backend host,cuda --prompt-tokens 20\n"
     "  trireme compare net.onnx --save good && trireme compare net.onnx --against good --json\n"
     "  trireme compare net.onnx --input x=in.npy --expect y=out.npy --rtol 1e-3 --atol 1e-5\n"},
    {"inspect", COMMAND_INSPECT, command_inspect, "show a model, its network and memory, the system, the settings",
     "one model folder, shape, ONNX or plan file, or system, or config",
     "usage: trireme inspect MODEL|SHAPE|NET.onnx|NET.plan [options]\n       trireme inspect system\n"
     "       trireme inspect config\n\n"
     "Shows a model, its network after a stage of the build, or the memory plan of every rank; the machine and its\n"
     "libraries; or every setting and its origin.\n",
     "  trireme inspect configs/models/kjv-7m --after partition --ranks 2 --rank 1\n"
     "  trireme inspect llama-3-70b --ranks 4 --memory-plan --context 8192\n"
     "  trireme inspect net.onnx --after final\n"},
    {"completion", COMMAND_COMPLETION, command_completion, "print a completion script for bash, zsh or fish",
     "one of bash, zsh, fish", "usage: trireme completion bash|zsh|fish\n\nPrints a completion script.\n",
     "  trireme completion bash >~/.local/share/bash-completion/completions/trireme\n"},
};
const size_t commands_count = sizeof(commands_table) / sizeof(commands_table[0]);

static void print_help(FILE *out)
{
    fprintf(out, "Trireme runs large models on many GPUs, one process and one engine per GPU.\n\n"
                 "usage: trireme COMMAND [options]\n       mpirun -np N trireme COMMAND [options]\n\nCommands:\n");
    for (size_t i = 0; i < commands_count; i++) {
        if (commands_table[i].summary != NULL) {
            fprintf(out, "  %-12s %s\n", commands_table[i].name, commands_table[i].summary);
        }
    }
    fprintf(out, "\n'trireme help COMMAND' lists the options of a command.\n"
                 "Exit codes: 0 ok, 1 failure, 2 usage, 3 bad model or config, 4 no device or driver, 5 out of memory, "
                 "6 lost rank.\n");
}

static void print_command_help(const command *row)
{
    fputs(row->usage, stdout);
    if ((row->settings & (COMMAND_BENCH | COMMAND_INSPECT | COMMAND_COMPARE)) != 0) {
        printf("Shapes:");
        for (int32_t i = 0; trm_model_preset_name(i) != NULL; i++) {
            printf(" %s", trm_model_preset_name(i));
        }
        putchar('\n');
    }
    settings_print_help(stdout, row->settings);
    printf("\nExamples:\n%s", row->examples);
}

static trm_status load_plugins(const settings *all)
{
    for (int32_t i = 0; i < all->list_counts[SETTING_PLUGIN]; i++) {
        TRM_TRY(trm_plugin_load(all->lists[SETTING_PLUGIN][i]));
    }
    return TRM_OK;
}

static int run_command(const command *row, int argc, char **argv)
{
    bool everything = row->run == command_inspect && argc > 0 && strcmp(argv[0], "config") == 0;
    settings all;
    trm_status status = settings_load(&all, everything ? COMMAND_VISIBLE : row->settings, argc, argv);
    int code = 0;
    if (status == TRM_OK && settings_flag(&all, SETTING_HELP)) {
        print_command_help(row);
    } else if (status == TRM_OK && (all.n_operands < 1 || (all.n_operands > 1 && row->settings != COMMAND_SERVE))) {
        code = print_failure_once(trm_fail(TRM_ERROR_INVALID_ARGUMENT, "%s needs %s, found %d arguments", row->name,
                                           row->operand, all.n_operands));
    } else if (status != TRM_OK) {
        code = print_failure_once(status);
    } else {
        send_log_to_stderr(settings_flag(&all, SETTING_VERBOSE));
        status = load_plugins(&all);
        code = status == TRM_OK ? row->run(&all) : print_failure_once(status);
    }
    settings_fini(&all);
    return code;
}

static int dispatch(int argc, char **argv)
{
    bool help = argc > 2 && strcmp(argv[1], "help") == 0; /* help COMMAND */
    if (help) {
        argc--;
        argv++;
    }
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        print_version();
        return 0;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(name, "bench") == 0 && argc > 2 && strcmp(argv[2], "serve") == 0) {
        name = "bench serve"; /* the one command of two words */
        argc--;
        argv++;
    }
    const char *nearest = NULL;
    int32_t least = 3;
    for (size_t i = 0; i < commands_count; i++) {
        if (strcmp(name, commands_table[i].name) == 0 && help) {
            print_command_help(&commands_table[i]);
            return 0;
        }
        if (strcmp(name, commands_table[i].name) == 0) {
            return run_command(&commands_table[i], argc - 2, argv + 2);
        }
        int32_t distance = edit_distance(name, commands_table[i].name);
        if (distance < least && commands_table[i].summary != NULL) {
            least = distance;
            nearest = commands_table[i].name;
        }
    }
    if (*name == '\0') {
        print_help(stderr);
        return trm_status_exit_code(TRM_ERROR_INVALID_ARGUMENT);
    }
    return print_failure_once(
        nearest != NULL
            ? trm_fail(TRM_ERROR_INVALID_ARGUMENT, "unknown command %s, did you mean %s", name, nearest)
            : trm_fail(TRM_ERROR_INVALID_ARGUMENT, "unknown command %s, trireme --help lists all commands", name));
}

/* Output that was not written is a failure of the command. */
static int flush_output(int code)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == 0) {
        return print_failure(trm_fail(TRM_ERROR_IO, "cannot write to stdout: %s", strerror(errno)));
    }
    return code;
}

/* If the caller closed stdin, stdout or stderr, a file opened later would get its number: messages would overwrite
 * weights. Opens /dev/null in the wrong direction instead, so that reading and writing fail as on a closed stream. */
static void fill_closed_streams(void)
{
    static const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};
    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", modes[fd]) < 0) {
            return;
        }
    }
}

int main(int argc, char **argv)
{
    fill_closed_streams();
    setenv("HWLOC_HIDE_ERRORS", "2", 0); /* hwloc must not print about a missing /sys */
    send_log_to_stderr(false);
    return flush_output(dispatch(argc, argv));
}
