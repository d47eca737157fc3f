/* The table of settings and the way their values are found. */
#include "launcher/cli/settings.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include <trireme/engine.h>

#include "launcher/cli/report.h"
#include "launcher/serve/router.h"

#define ALL          COMMAND_ALL
#define ANY          (COMMAND_RUN | COMMAND_BENCH | COMMAND_INSPECT | COMMAND_BUILD | COMMAND_COMPARE)
#define SERVING      (COMMAND_SERVE | COMMAND_SERVE_WORKER)
#define JOB          (COMMAND_RUN | COMMAND_BENCH | COMMAND_COMPARE | SERVING)
#define MODELS       (JOB | COMMAND_INSPECT)
#define SEQUENCES    (MODELS & ~(unsigned)COMMAND_COMPARE)
#define COMPARING    (COMMAND_COMPARE | COMMAND_RUN | COMMAND_BENCH)
#define LARGE        1e15
#define CONFIG_LIMIT ((size_t)1 << 20)

const setting settings_table[SETTING_COUNT] = {
    [SETTING_PROMPT] = {"prompt", 'p', SETTING_LIST, COMMAND_RUN, 0, 0, NULL, "TEXT", "Input",
                        "text to continue; may be given several times; - reads stdin", SETTING_MODELS},
    [SETTING_FILE] = {"file", 'f', SETTING_LIST, COMMAND_RUN, 0, 0, NULL, "FILE", "Input",
                      "a file whose text is a prompt", SETTING_MODELS},
    [SETTING_INTERACTIVE] = {"interactive", 'i', SETTING_FLAG, COMMAND_RUN, 0, 0, NULL, NULL, "Input",
                             "read prompts line by line and continue each", SETTING_MODELS},
    [SETTING_ECHO] = {"echo", 0, SETTING_FLAG, COMMAND_RUN, 0, 0, NULL, NULL, "Input",
                      "print each prompt before its continuation", SETTING_MODELS},
    [SETTING_CHAT] = {"chat", 0, SETTING_FLAG, COMMAND_RUN, 0, 0, NULL, NULL, "Chat",
                      "talk with the model: prompts and lines of stdin are messages of one conversation",
                      SETTING_MODELS},
    [SETTING_SYSTEM] = {"system", 0, SETTING_TEXT, COMMAND_RUN, 0, 0, NULL, "TEXT", "Chat",
                        "the conversation's system message", SETTING_MODELS},
    [SETTING_CHAT_TEMPLATE] = {"chat-template", 0, SETTING_TEXT, COMMAND_RUN | COMMAND_SERVE, 0, 0, NULL, "FILE",
                               "Chat", "Jinja template that makes prompts of messages; default: the model's",
                               SETTING_MODELS},
    [SETTING_MAX_TOKENS] = {"max-tokens", 'n', SETTING_INTEGER, COMMAND_RUN, 0, LARGE, "128", "N", "Generation",
                            "tokens to generate for each prompt", SETTING_MODELS},
    [SETTING_STOP] = {"stop", 0, SETTING_LIST, COMMAND_RUN, 0, 0, NULL, "TEXT", "Generation",
                      "end a continuation where this text would appear; may be given several times", SETTING_MODELS},
    [SETTING_IGNORE_EOS] = {"ignore-eos", 0, SETTING_FLAG, COMMAND_RUN, 0, 0, NULL, NULL, "Generation",
                            "do not stop at end-of-sequence tokens", SETTING_MODELS},
    [SETTING_TEMPERATURE] = {"temperature", 't', SETTING_NUMBER, COMMAND_RUN, 0, 1000, "0", "T", "Generation",
                             "0 takes the most likely token; higher values draw more freely", SETTING_MODELS},
    [SETTING_TOP_K] = {"top-k", 0, SETTING_INTEGER, COMMAND_RUN, 0, INT32_MAX, "0", "K", "Generation",
                       "draw among the K most likely tokens only; 0 is off", SETTING_MODELS},
    [SETTING_TOP_P] = {"top-p", 0, SETTING_NUMBER, COMMAND_RUN, 1e-9, 1, "1", "P", "Generation",
                       "draw among the most likely tokens whose probabilities sum to P", SETTING_MODELS},
    [SETTING_MIN_P] = {"min-p", 0, SETTING_NUMBER, COMMAND_RUN, 0, 1, "0", "P", "Generation",
                       "draw among tokens at least P times as likely as the likeliest", SETTING_MODELS},
    [SETTING_REPETITION_PENALTY] = {"repetition-penalty", 0, SETTING_NUMBER, COMMAND_RUN, 1e-9, 1000, "1", "R",
                                    "Generation", "make tokens that have appeared less likely; 1 is off",
                                    SETTING_MODELS},
    [SETTING_SEED] = {"seed", 's', SETTING_INTEGER, COMMAND_RUN | COMMAND_BENCH | COMMAND_COMPARE | COMMAND_BENCH_SERVE,
                      0, 9007199254740992.0, "0", "N", "Generation", "seed of the draws, and of random weights"},
    [SETTING_PROMPT_TOKENS] = {"prompt-tokens", 0, SETTING_INTEGER,
                               COMMAND_BENCH | COMMAND_BENCH_SERVE | COMMAND_COMPARE, 1, INT32_MAX, "128", "N", "Load",
                               "tokens of each prompt", SETTING_MODELS},
    [SETTING_TOKENS] = {"tokens", 'n', SETTING_INTEGER, COMMAND_BENCH | COMMAND_BENCH_SERVE, 1, INT32_MAX, "128", "N",
                        "Load", "tokens to generate for each prompt", SETTING_MODELS},
    [SETTING_BATCH] = {"batch", 'b', SETTING_INTEGER, COMMAND_BENCH, 1, 4096, "1", "N", "Load", "sequences at a time",
                       SETTING_MODELS},
    [SETTING_REPEAT] = {"repeat", 0, SETTING_INTEGER, COMMAND_BENCH, 1, 1000000, "3", "N", "Load",
                        "timed runs, after one that is not", SETTING_MODELS},
    [SETTING_LAYERS] = {"layers", 0, SETTING_INTEGER, COMMAND_BENCH | COMMAND_INSPECT | COMMAND_COMPARE, 0, 100000, "0",
                        "N", "Load", "take only the first N layers of a named shape; 0 is all", SETTING_MODELS},
    [SETTING_PROFILE] = {"profile", 0, SETTING_FLAG, COMMAND_BENCH, 0, 0, NULL, NULL, "Report",
                         "time of every layer of a decode step (with --tokens 1: of a prompt step), kernel by kernel"},
    [SETTING_AFTER] = {"after", 0, SETTING_TEXT, COMMAND_INSPECT, 0, 0, NULL, "STAGE", "Report",
                       "print the network after import, passes, partition or final"},
    [SETTING_RANK] = {"rank", 0, SETTING_INTEGER, COMMAND_INSPECT, 0, TRM_MAX_RANKS - 1, "0", "R", "Report",
                      "whose network and memory to show"},
    [SETTING_RANKS] = {"ranks", 0, SETTING_INTEGERS, COMMAND_INSPECT | COMMAND_BUILD | COMMAND_COMPARE | COMMAND_SERVE,
                       1, TRM_MAX_RANKS, "1", "N", "Report",
                       "how many ranks to plan for, or to start; compare: several, such as 1,2"},
    [SETTING_MEMORY_PLAN] = {"memory-plan", 0, SETTING_FLAG, COMMAND_INSPECT, 0, 0, NULL, NULL, "Report",
                             "what each rank keeps in memory"},
    [SETTING_INPUT] = {"input", 0, SETTING_LIST, COMMAND_RUN | COMMAND_BENCH | COMMAND_COMPARE, 0, 0, NULL, "NAME=FILE",
                       "ONNX", "an input of the network, from a .npy or .pb file; may be given several times",
                       SETTING_NETWORKS},
    [SETTING_INPUTS] = {"inputs", 0, SETTING_TEXT, COMMAND_RUN | COMMAND_BENCH | COMMAND_COMPARE, 0, 0, NULL, "FOLDER",
                        "ONNX", "inputs by their positions, from input_0.pb, input_1.npy, ... in a folder",
                        SETTING_NETWORKS},
    [SETTING_OUTPUT] = {"output", 0, SETTING_LIST, COMMAND_RUN | COMMAND_BENCH, 0, 0, NULL, "NAME=FILE", "ONNX",
                        "write an output to a .npy file; may be given several times", SETTING_NETWORKS},
    [SETTING_OUTPUTS] = {"outputs", 0, SETTING_TEXT, COMMAND_RUN | COMMAND_BENCH, 0, 0, NULL, "FOLDER", "ONNX",
                         "write all outputs to output_0.npy, output_1.npy, ... in a folder", SETTING_NETWORKS},
    [SETTING_SHAPES] = {"shapes", 0, SETTING_LIST, ANY, 0, 0, NULL, "NAME:DIMS", "ONNX",
                        "dims of inputs, such as x:1x3x224x224,y:1x5", SETTING_NETWORKS},
    [SETTING_MIN_SHAPES] = {"min-shapes", 0, SETTING_LIST, COMMAND_BUILD, 0, 0, NULL, "NAME:DIMS", "ONNX",
                            "smallest dims of inputs; --shapes are then the usual ones; again: the next profile"},
    [SETTING_MAX_SHAPES] = {"max-shapes", 0, SETTING_LIST, COMMAND_BUILD, 0, 0, NULL, "NAME:DIMS", "ONNX",
                            "largest dims of inputs; --shapes are then the usual ones; again: the next profile"},
    [SETTING_ELEMENTS] = {"elements", 0, SETTING_LIST, ANY, 0, 0, NULL, "NAME:LIST", "ONNX",
                          "elements of small inputs, such as sizes:1x3x64x64,k:5", SETTING_NETWORKS},
    [SETTING_MIN_ELEMENTS] =
        {"min-elements", 0, SETTING_LIST, COMMAND_BUILD, 0, 0, NULL, "NAME:LIST", "ONNX",
         "for inputs whose elements decide dims: the least of them; --elements are the usual ones"},
    [SETTING_MAX_ELEMENTS] = {"max-elements", 0, SETTING_LIST, COMMAND_BUILD, 0, 0, NULL, "NAME:LIST", "ONNX",
                              "and the most"},
    [SETTING_VALUE] = {"value", 0, SETTING_LIST, ANY, 0, 0, NULL, "NAME=FILE", "ONNX",
                       "make an input a constant of the network, from a .npy or .pb file", SETTING_NETWORKS},
    [SETTING_DIM] = {"dim", 0, SETTING_LIST, ANY, 0, 0, NULL, "NAME=N", "ONNX", "a named dimension, such as batch=4",
                     SETTING_NETWORKS},
    [SETTING_MAX_TRIPS] = {"max-trips", 0, SETTING_INTEGER, ANY, 0, 1e9, "0", "N", "ONNX",
                           "unroll loops whose passes only a run tells, so many times; 0: run them as loops",
                           SETTING_NETWORKS},
    [SETTING_IO_TYPE] = {"io-type", 0, SETTING_LIST, ANY, 0, 0, NULL, "NAME=TYPE", "ONNX",
                         "an input or output in another type, such as x=f16: cast inside", SETTING_NETWORKS},
    [SETTING_MARK] =
        {"mark", 0, SETTING_LIST, ANY, 0, 0, NULL, "NAME", "ONNX",
         "make a tensor inside of the network an output, which no pass fuses away; may be given several times",
         SETTING_NETWORKS},
    [SETTING_OUT] = {"out", 'o', SETTING_TEXT, COMMAND_BUILD | COMMAND_REFIT, 0, 0, NULL, "FILE", "ONNX",
                     "the plan file to write; default: NET.plan for NET.onnx"},
    [SETTING_EMBED_WEIGHTS] = {"embed-weights", 0, SETTING_FLAG, COMMAND_BUILD | COMMAND_REFIT, 0, 0, NULL, NULL,
                               "ONNX", "write the weights into the plan instead of where they are found"},
    [SETTING_STRIP_WEIGHTS] = {"strip-weights", 0, SETTING_FLAG, COMMAND_BUILD, 0, 0, NULL, NULL, "ONNX",
                               "write the names of the weights only; --weights gives them later"},
    [SETTING_REFITTABLE] = {"refittable", 0, SETTING_FLAG, COMMAND_BUILD, 0, 0, NULL, NULL, "ONNX",
                            "let the plan take other weights later"},
    [SETTING_WEIGHTS] =
        {"weights", 0, SETTING_TEXT, COMMAND_REFIT | COMMAND_RUN | COMMAND_BENCH | COMMAND_INSPECT | COMMAND_COMPARE, 0,
         0, NULL, "FILE", "ONNX",
         "weights for a plan, by their names: an ONNX file or a folder of safetensors; of a named shape: "
         "bf16, fp8, fp8-block, int8, int4 or int4-128"},
    [SETTING_ITERATIONS] = {"iterations", 0, SETTING_INTEGER, COMMAND_BENCH, 1, 1e9, "10", "N", "ONNX",
                            "at least so many timed runs", SETTING_NETWORKS},
    [SETTING_DURATION] = {"duration", 0, SETTING_NUMBER, COMMAND_BENCH, -1, 1e6, "3", "SECONDS", "ONNX",
                          "measure for at least so long; SIGINT ends it and reports; -1: until then", SETTING_NETWORKS},
    [SETTING_WARM_UP] = {"warm-up", 0, SETTING_NUMBER, COMMAND_BENCH, 0, 1e6, "0.2", "SECONDS", "ONNX",
                         "run so long before measuring", SETTING_NETWORKS},
    [SETTING_STREAMS] = {"streams", 0, SETTING_INTEGER, COMMAND_BENCH, 1, 64, "1", "N", "ONNX",
                         "runs at a time, each in a context of its own", SETTING_NETWORKS},
    [SETTING_TRANSFERS] = {"transfers", 0, SETTING_FLAG, COMMAND_BENCH, 0, 0, NULL, NULL, "ONNX",
                           "copy the inputs anew in every run, and time copies and layers of each", SETTING_NETWORKS},
    [SETTING_IDLE] = {"idle", 0, SETTING_NUMBER, COMMAND_BENCH, 0, 3600, "0", "SECONDS", "ONNX",
                      "pause before every run", SETTING_NETWORKS},
    [SETTING_STREAM_THREADS] = {"stream-threads", 0, SETTING_FLAG, COMMAND_BENCH, 0, 0, NULL, NULL, "ONNX",
                                "start the runs of each of --streams by a thread of its own", SETTING_NETWORKS},
    [SETTING_PERCENTILES] = {"percentiles", 0, SETTING_TEXT, COMMAND_BENCH, 0, 0, "50,90,95,99", "LIST", "ONNX",
                             "percentiles of the latency to show", SETTING_NETWORKS},
    [SETTING_EXPORT_TIMES] = {"export-times", 0, SETTING_TEXT, COMMAND_BENCH, 0, 0, NULL, "FILE", "ONNX",
                              "write the times of every run as JSON", SETTING_NETWORKS},
    [SETTING_EXPORT_PROFILE] = {"export-profile", 0, SETTING_TEXT, COMMAND_BENCH, 0, 0, NULL, "FILE", "ONNX",
                                "write the times of every layer as JSON", SETTING_NETWORKS},
    [SETTING_EXPORT_LAYERS] = {"export-layers", 0, SETTING_TEXT, COMMAND_BENCH, 0, 0, NULL, "FILE", "ONNX",
                               "write layers, tensors, kernels and tactics as JSON", SETTING_NETWORKS},
    [SETTING_SAVE] = {"save", 0, SETTING_TEXT, COMMAND_COMPARE, 0, 0, NULL, "FOLDER", "Compare",
                      "keep every tensor of a run in this folder, for --against"},
    [SETTING_AGAINST] = {"against", 0, SETTING_TEXT, COMPARING, 0, 0, NULL, "FOLDER", "Compare",
                         "the reference: a folder of --save, or one with output_0.pb, output_1.npy, ...",
                         SETTING_COMPARISONS},
    [SETTING_EXPECT] = {"expect", 0, SETTING_LIST, COMPARING, 0, 0, NULL, "NAME=FILE", "Compare",
                        "the reference of an output (compare: of any tensor), from a .npy or .pb file; may be given "
                        "several times",
                        SETTING_COMPARISONS},
    [SETTING_ATOL] = {"atol", 0, SETTING_NUMBER, COMPARING, 0, 1e300, NULL, "X", "Compare",
                      "how far elements may be off; default: a share, by type, of the tensor's root mean square",
                      SETTING_COMPARISONS},
    [SETTING_RTOL] = {"rtol", 0, SETTING_NUMBER, COMPARING, 0, 1e300, NULL, "X", "Compare",
                      "and how far, as a share of the reference; default: by type, 0.001 for f32, 0 for integers",
                      SETTING_COMPARISONS},
    [SETTING_LIMIT] = {"limit", 0, SETTING_LIST, COMPARING, 0, 0, NULL, "KIND=X", "Compare",
                       "instead: what a whole tensor may have at most, of outside (share of elements that are off by "
                       "more), mean, rms, max (differences), cosine (1 - it); may be given several times",
                       SETTING_COMPARISONS},
    [SETTING_EVERY_LAYER] = {"every-layer", 0, SETTING_FLAG, COMMAND_COMPARE, 0, 0, NULL, NULL, "Compare",
                             "keep the output of every layer, so that none is fused away"},
    [SETTING_REQUESTS] = {"requests", 0, SETTING_INTEGER, COMMAND_BENCH_SERVE, 1, 10000000, "100", "N", "Load",
                          "requests in all"},
    [SETTING_CONCURRENCY] = {"concurrency", 0, SETTING_INTEGER, COMMAND_BENCH_SERVE, 1, 100000, "8", "N", "Load",
                             "requests at a time, at most"},
    [SETTING_RATE] = {"rate", 0, SETTING_NUMBER, COMMAND_BENCH_SERVE, 0, 1e6, "0", "R", "Load",
                      "requests a second, at random times; 0: as soon as one of --concurrency is done"},
    [SETTING_SPREAD] = {"spread", 0, SETTING_FLAG, COMMAND_BENCH_SERVE, 0, 0, NULL, NULL, "Load",
                        "draw lengths like ShareGPT's, about 220 and 200 tokens, instead of fixed ones"},
    [SETTING_IDS_BELOW] = {"ids-below", 0, SETTING_INTEGER, COMMAND_BENCH_SERVE, 8, INT32_MAX, "4000", "N", "Load",
                           "prompts are random token ids below this"},
    [SETTING_GOAL_FIRST] = {"goal-first", 0, SETTING_NUMBER, COMMAND_BENCH_SERVE, 0, 1e9, "0", "MS", "Load",
                            "time to the first token that counts as good; 0: any"},
    [SETTING_GOAL_TOKEN] = {"goal-token", 0, SETTING_NUMBER, COMMAND_BENCH_SERVE, 0, 1e9, "0", "MS", "Load",
                            "time for each token after it that counts as good; 0: any"},
    [SETTING_API_KEY] = {"api-key", 0, SETTING_TEXT, COMMAND_BENCH_SERVE, 0, 0, NULL, "KEY", "Load",
                         "API key to send; TRIREME_API_KEY keeps it off the command line"},
    [SETTING_TLS_AUTHORITIES] = {"tls-authorities", 0, SETTING_TEXT, COMMAND_BENCH_SERVE, 0, 0, NULL, "FILE", "Load",
                                 "certificates that https trusts (PEM); default: the system's"},
    [SETTING_HTML] = {"html", 0, SETTING_TEXT, COMMAND_BENCH_SERVE, 0, 0, NULL, "FILE", "Report",
                      "write a page with figures and plots"},
    [SETTING_HOST] = {"host", 0, SETTING_TEXT, COMMAND_SERVE, 0, 0, "127.0.0.1", "ADDRESS", "Server",
                      "address to listen at; 0.0.0.0 or :: for every one of the machine's"},
    [SETTING_PORT] = {"port", 0, SETTING_INTEGER, COMMAND_SERVE, 0, 65535, "8000", "N", "Server",
                      "port to listen at; 0 takes a free one"},
    [SETTING_SERVED_NAME] = {"served-name", 0, SETTING_TEXT, COMMAND_SERVE | COMMAND_BENCH_SERVE, 0, 0, NULL, "NAME",
                             "Server", "what clients call the model; default: the last part of its path"},
    [SETTING_API_KEYS] = {"api-keys", 0, SETTING_TEXT, COMMAND_SERVE, 0, 0, NULL, "FILE", "Server",
                          "ask clients for one of the keys in this file, one on each line"},
    [SETTING_CORS_ORIGIN] = {"cors-origin", 0, SETTING_LIST, COMMAND_SERVE, 0, 0, NULL, "ORIGIN", "Server",
                             "let browsers' pages of this origin ask (http://localhost:3000, * for any); may be given "
                             "several times"},
    [SETTING_TLS_CERTIFICATE] = {"tls-certificate", 0, SETTING_TEXT, COMMAND_SERVE, 0, 0, NULL, "FILE", "Server",
                                 "serve HTTPS with this certificate chain (PEM)"},
    [SETTING_TLS_KEY] = {"tls-key", 0, SETTING_TEXT, COMMAND_SERVE, 0, 0, NULL, "FILE", "Server",
                         "private key of the certificate (PEM)"},
    [SETTING_MAX_REQUESTS] = {"max-requests", 0, SETTING_INTEGER, SERVING, 1, 60000, "1024", "N", "Server",
                              "continuations that run or wait, for each replica; more are told to come back later"},
    [SETTING_MAX_CONNECTIONS] = {"max-connections", 0, SETTING_INTEGER, COMMAND_SERVE, 1, 100000, "2048", "N", "Server",
                                 "open connections; more are told to come back later"},
    [SETTING_MAX_BODY] = {"max-body", 0, SETTING_INTEGER, COMMAND_SERVE, 1024, 1 << 30, "16777216", "BYTES", "Server",
                          "longest request"},
    [SETTING_BODY_TIMEOUT] = {"body-timeout", 0, SETTING_NUMBER, COMMAND_SERVE, 1, 86400, "60", "SECONDS", "Server",
                              "for a request to arrive, and for idle connections"},
    [SETTING_REQUEST_TIMEOUT] = {"request-timeout", 0, SETTING_NUMBER, COMMAND_SERVE, 0, 1e6, "3600", "SECONDS",
                                 "Server", "for a request to be answered; 0: as long as it takes"},
    [SETTING_KEEP_ALIVE] = {"keep-alive", 0, SETTING_NUMBER, COMMAND_SERVE, 0, 86400, "30", "SECONDS", "Server",
                            "a comment in a stream that has been silent for so long, so that proxies keep it; 0: none"},
    [SETTING_SLEEP_MODE] = {"sleep-mode", 0, SETTING_FLAG, COMMAND_SERVE, 0, 0, NULL, NULL, "Server",
                            "clients may free the devices with POST /sleep and start the ranks again with /wake_up"},
    [SETTING_DRAIN_TIMEOUT] = {"drain-timeout", 0, SETTING_NUMBER, COMMAND_SERVE, 0, 1e6, "60", "SECONDS", "Server",
                               "for requests to finish after SIGTERM; a second one ends at once"},
    [SETTING_REPLICAS] = {"replicas", 0, SETTING_INTEGER, SERVING, 1, ROUTER_MOST_REPLICAS, "1", "N", "Server",
                          "jobs of --ranks ranks, each with the whole model, that share the requests"},
    [SETTING_REPLICA] = {"replica", 0, SETTING_INTEGER, COMMAND_SERVE_WORKER, 0, ROUTER_MOST_REPLICAS - 1, "0", "N",
                         "Server", "which of the replicas this job is"},
    [SETTING_BEAT_TIMEOUT] = {"beat-timeout", 0, SETTING_NUMBER, COMMAND_SERVE, 0.3, 1e6, "0.8", "SECONDS", "Server",
                              "a rank that is silent for longer is lost, and the job started again; ten times as "
                              "long if it waits for a processor or starts"},
    [SETTING_STEP_TIMEOUT] =
        {"step-timeout", 0, SETTING_NUMBER, COMMAND_SERVE, 2, 1e6, "60", "SECONDS", "Server",
         "a step that takes longer hangs, or a rank that looks for none, and the job is started again"},
    [SETTING_HTTP_THREADS] = {"http-threads", 0, SETTING_INTEGER, COMMAND_SERVE, 1, 256, "4", "N", "Server",
                              "threads for connections"},
    [SETTING_NO_PREFIX_CACHE] = {"no-prefix-cache", 0, SETTING_FLAG, SERVING, 0, 0, NULL, NULL, "Server",
                                 "compute every prompt, even where another began alike"},
    [SETTING_PREFILL_CHUNK] = {"prefill-chunk", 0, SETTING_INTEGER, SERVING, 0, INT32_MAX, "0", "N", "Server",
                               "tokens of prompts in a step in which others decode; 0: on cuda 512 for each GPU on tp, "
                               "while weights stream and on the host as many as a step has room for"},
    [SETTING_CACHE_TOKENS] = {"cache-tokens", 0, SETTING_INTEGER, SERVING, 0, LARGE, "0", "N", "Server",
                              "tokens the cache holds in all, at least one context; 0: all sequences at their longest, "
                              "on cuda as far as memory goes"},
    [SETTING_MPIRUN] = {"mpirun", 0, SETTING_TEXT, COMMAND_SERVE | COMMAND_COMPARE, 0, 0, "mpirun", "PROGRAM", "Server",
                        "what starts the ranks where there are several"},
    [SETTING_BACKEND] = {"backend", 0, SETTING_TEXT, ANY | SERVING, 0, 0, "auto", "NAME", "Machine",
                         "cuda, host, or auto: cuda where there is a GPU; compare: several, such as host,cuda"},
    [SETTING_DEVICE] = {"device", 0, SETTING_INTEGER, JOB | COMMAND_BUILD, -1, 1024, "-1", "N", "Machine",
                        "CUDA device; -1 is the rank's number on its machine"},
    [SETTING_MESH] = {"mesh", 0, SETTING_TEXT, ANY | SERVING, 0, 0, NULL, "AXES", "Machine",
                      "how ranks divide the work, such as tp=4 or tp=2,pp=2; default: all on tp"},
    [SETTING_DTYPE] = {"dtype", 0, SETTING_TEXT, MODELS, 0, 0, "auto", "TYPE", "Machine",
                       "f32, f16 or bf16 to compute in; auto: the weights' type on cuda, f32 on the host",
                       SETTING_MODELS},
    [SETTING_KV_CACHE_DTYPE] = {"kv-cache-dtype", 0, SETTING_TEXT, MODELS, 0, 0, "auto", "TYPE", "Machine",
                                "type of cached keys and values: fp8 (e4m3), so that memory holds twice the tokens, "
                                "or auto, the type that is computed in",
                                SETTING_MODELS},
    [SETTING_CONTEXT] = {"context", 'c', SETTING_INTEGER, SEQUENCES, 0, LARGE, "0", "N", "Machine",
                         "tokens per sequence, prompt included; 0: the model's, as far as memory goes", SETTING_MODELS},
    [SETTING_SEQUENCES] = {"sequences", 0, SETTING_INTEGER, COMMAND_RUN | COMMAND_INSPECT | SERVING, 0, 4096, "0", "N",
                           "Machine",
                           "sequences at a time; 0: as many as there are prompts, up to 16; to serve 256 on cuda "
                           "without a draft model, else 16",
                           SETTING_MODELS},
    [SETTING_STEP_TOKENS] = {"step-tokens", 0, SETTING_INTEGER, SEQUENCES, 0, INT32_MAX, "0", "N", "Machine",
                             "tokens in one step; 0: 8192 on cuda (16384 with a weight budget), 512 on the host",
                             SETTING_MODELS},
    [SETTING_SPECULATE] = {"speculate", 0, SETTING_TEXT, JOB, 0, 0, "off", "WAY", "Machine",
                           "verify several tokens in a step, drafted from what followed the same ones before: off, "
                           "lookup[:N] (up to N tokens), or auto (as far as it pays)",
                           SETTING_MODELS},
    [SETTING_DRAFT] = {"draft", 0, SETTING_TEXT, JOB, 0, 0, NULL, "MODEL", "Machine",
                       "a smaller model with the same tokenizer that drafts what is verified; without --speculate as "
                       "far as it pays",
                       SETTING_MODELS},
    [SETTING_BATCH_INVARIANT] = {"batch-invariant", 0, SETTING_FLAG, JOB, 0, 0, NULL, NULL, "Machine",
                                 "the same bits for a sequence whatever else runs beside it; costs time",
                                 SETTING_MODELS},
    [SETTING_WEIGHT_BUDGET] =
        {"weight-budget", 0, SETTING_TEXT, MODELS, 0, 0, "off", "BUDGET", "Machine",
         "weights that stay on the device: off (all), auto (what fits), 25%, or bytes such as 8G; "
         "the others stream from host memory"},
    [SETTING_HOST_MEMORY] =
        {"host-memory", 0, SETTING_TEXT, MODELS, 0, 0, "auto", "BYTES", "Machine",
         "host memory for weights that stream, such as 64G; auto: what is free; what has no room is "
         "read from its files in every step"},
    [SETTING_WEIGHT_COMPRESSION] = {"weight-compression", 0, SETTING_TEXT, MODELS, 0, 0, "auto", "KIND", "Machine",
                                    "pack bf16 weights that stream, without loss, into two thirds of their bytes: off, "
                                    "lossless or auto (on cuda)"},
    [SETTING_WEIGHT_SHARING] = {"weight-sharing", 0, SETTING_TEXT, MODELS, 0, 0, "auto", "KIND", "Machine",
                                "ranks of replicas (dp) fetch weights that stream together, each a part over its own "
                                "link: on, off or auto (on for language models)"},
    [SETTING_HOST_COMPUTE] =
        {"host-compute", 0, SETTING_TEXT, MODELS, 0, 0, "off", "SHARE", "Machine",
         "processors compute so much of what does not stay, where it lies, in steps of few tokens: off, auto "
         "(what is fastest by measure; last bits may differ from run to run), or a percentage such as 50%"},
    [SETTING_NO_TUNE] = {"no-tune", 0, SETTING_FLAG, JOB | COMMAND_BUILD, 0, 0, NULL, NULL, "Machine",
                         "take a likely algorithm for each product instead of timing several"},
    [SETTING_OPT_LEVEL] = {"opt-level", 0, SETTING_INTEGER, JOB | COMMAND_BUILD, 0, 5, "3", "N", "Machine",
                           "how many algorithms to time for each layer: 0 none, 1 those in the timing cache, 5 all"},
    [SETTING_TIMING_CACHE] = {"timing-cache", 0, SETTING_TEXT, JOB | COMMAND_BUILD, 0, 0, "auto", "FILE", "Machine",
                              "keep what was timed in FILE; auto: in XDG_CACHE_HOME/trireme/timing; off"},
    [SETTING_TACTICS] = {"tactics", 0, SETTING_FLAG, COMMAND_BENCH, 0, 0, NULL, NULL, "Report",
                         "what was timed for each layer and which of it is used", SETTING_NETWORKS},
    [SETTING_OPT_PROFILE] = {"opt-profile", 0, SETTING_INTEGER, COMMAND_RUN | COMMAND_BENCH, -1, TRM_MAX_PROFILES - 1,
                             "-1", "N", "ONNX", "hold a plan's runs to its profile N; -1: any", SETTING_NETWORKS},
    [SETTING_ALLOW_OTHER_DEVICE] = {"allow-other-device", 0, SETTING_FLAG,
                                    COMMAND_RUN | COMMAND_BENCH | COMMAND_COMPARE, 0, 0, NULL, NULL, "ONNX",
                                    "run a plan that was tuned on another GPU without its tactics", SETTING_NETWORKS},
    [SETTING_MAX_AUX_STREAMS] = {"max-aux-streams", 0, SETTING_INTEGER, ANY, TRM_AUX_STREAMS_AUTO, TRM_MAX_AUX_STREAMS,
                                 "-1", "N", "ONNX",
                                 "run independent branches on cuda on up to N streams beside the main one; -1: on two, "
                                 "where there are enough",
                                 SETTING_NETWORKS},
    [SETTING_WORKSPACE] = {"workspace", 0, SETTING_INTEGER, ANY, 0, 1 << 20, "0", "MIB", "ONNX",
                           "scratch that convolutions on cuda may take to be faster; 0: as much as they ask for",
                           SETTING_NETWORKS},
    [SETTING_TF32] = {"tf32", 0, SETTING_FLAG, ANY, 0, 0, NULL, NULL, "ONNX",
                      "let f32 products and convolutions on cuda round their factors to TF32", SETTING_NETWORKS},
    [SETTING_NO_CAPTURE] = {"no-capture", 0, SETTING_FLAG, COMMAND_RUN | COMMAND_BENCH, 0, 0, NULL, NULL, "ONNX",
                            "launch layers one by one instead of as one CUDA graph", SETTING_NETWORKS},
    [SETTING_THREADS] = {"threads", 0, SETTING_INTEGER, JOB, 0, 4096, "0", "N", "Machine",
                         "host threads per rank; 0: the rank's share of the CPUs"},
    [SETTING_DEADLINE] = {"deadline", 0, SETTING_NUMBER, JOB, 0, 1e6, "60", "SECONDS", "Machine",
                          "longest wait for another rank before it counts as lost"},
    [SETTING_CONFIG] = {"config", 0, SETTING_TEXT, ALL, 0, 0, NULL, "FILE", "General",
                        "settings file; default: XDG_CONFIG_HOME/trireme/trireme.conf, then /etc/trireme/trireme.conf"},
    [SETTING_JSON] = {"json", 0, SETTING_FLAG, ANY | COMMAND_BENCH_SERVE | COMMAND_REFIT, 0, 0, NULL, NULL, "General",
                      "print the result as JSON"},
    [SETTING_QUIET] = {"quiet", 'q', SETTING_FLAG, ALL, 0, 0, NULL, NULL, "General", "no progress, no timing summary"},
    [SETTING_VERBOSE] = {"verbose", 'v', SETTING_FLAG, ALL, 0, 0, NULL, NULL, "General",
                         "more of what the engine does, on stderr"},
    [SETTING_HELP] = {"help", 'h', SETTING_FLAG, ALL | COMMAND_COMPLETION, 0, 0, NULL, NULL, "General", "this text"},
};

bool settings_is_option(const settings *all, setting_id id)
{
    return all->origins[id] != NULL && strncmp(all->origins[id], "--", 2) == 0;
}

bool settings_has_effect(const settings *all, setting_id id, bool on_network)
{
    setting_operand operand = settings_table[id].operand;
    if (operand == SETTING_COMPARISONS) {
        return on_network || all->command == COMMAND_COMPARE;
    }
    return operand == SETTING_ANY_OPERAND || (operand == SETTING_NETWORKS) == on_network;
}

trm_status settings_check_operand(const settings *all, bool is_network)
{
    for (int32_t id = 0; id < SETTING_COUNT; id++) {
        if (settings_is_option(all, (setting_id)id) && !settings_has_effect(all, (setting_id)id, is_network)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "option %s is for %s, %s is %s", all->origins[id],
                     is_network ? "language models" : "ONNX and plan files", all->operands[0],
                     is_network ? "a network" : "a language model");
        }
    }
    return TRM_OK;
}

struct kept_string {
    kept_string *next;
    char text[];
};

/* "TRIREME_MAX_TOKENS" of "max-tokens". */
static void variable_name(const char *name, char *variable, size_t size)
{
    int used = snprintf(variable, size, "TRIREME_%s", name);
    for (char *c = variable; used > 0 && *c != '\0'; c++) {
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    }
}

/* A copy that lives as long as the settings; NULL when out of memory. */
static char *keep(settings *all, const char *text)
{
    size_t size = strlen(text) + 1;
    kept_string *kept = malloc(sizeof(*kept) + size);
    if (kept == NULL) {
        trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a setting");
        return NULL;
    }
    memcpy(kept->text, text, size);
    kept->next = all->kept;
    all->kept = kept;
    return kept->text;
}

void settings_fini(settings *all)
{
    while (all->kept != NULL) {
        kept_string *kept = all->kept;
        all->kept = kept->next;
        free(kept);
    }
}

static trm_status assign(settings *all, setting_id id, const char *value, const char *origin)
{
    char *kept = keep(all, value);
    if (kept == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (settings_table[id].type == SETTING_LIST) {
        if (all->list_counts[id] >= MAX_LIST) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s is given more than %d times", origin, MAX_LIST);
        }
        all->lists[id][all->list_counts[id]++] = kept;
    }
    all->values[id] = kept;
    all->origins[id] = origin;
    return TRM_OK;
}

int32_t edit_distance(const char *a, const char *b)
{
    int32_t row[128];
    int32_t n = (int32_t)strlen(b);
    if (n >= 127 || strlen(a) >= 127) {
        return INT32_MAX;
    }
    for (int32_t j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (int32_t i = 1; a[i - 1] != '\0'; i++) {
        int32_t diagonal = row[0];
        row[0] = i;
        for (int32_t j = 1; j <= n; j++) {
            int32_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
        }
    }
    return row[n];
}

/* A beginning of a name is as near as it gets; otherwise a third of what was typed may be wrong. */
const char *settings_nearest(const char *typed, unsigned command)
{
    const char *nearest = NULL;
    size_t length = strlen(typed);
    int32_t least = length < 3 ? 1 : length < 6 ? 2 : length < 9 ? 3 : 4;
    for (int32_t i = 0; i < SETTING_COUNT; i++) {
        bool begins = length >= 3 && strncmp(typed, settings_table[i].name, length) == 0;
        int32_t distance = begins ? 0 : edit_distance(typed, settings_table[i].name);
        if ((settings_table[i].commands & command) != 0 && distance < least) {
            least = distance;
            nearest = settings_table[i].name;
        }
    }
    return nearest;
}

static int32_t find_by_name(const char *name, size_t length, unsigned command)
{
    for (int32_t i = 0; i < SETTING_COUNT; i++) {
        const setting *row = &settings_table[i];
        if ((row->commands & command) != 0 && strlen(row->name) == length && memcmp(row->name, name, length) == 0) {
            return i;
        }
    }
    return -1;
}

static int32_t find_by_letter(char letter, unsigned command)
{
    for (int32_t i = 0; i < SETTING_COUNT; i++) {
        if ((settings_table[i].commands & command) != 0 && settings_table[i].letter == letter) {
            return i;
        }
    }
    return -1;
}

static trm_status unknown_option(const char *typed, const char *name, unsigned command)
{
    int32_t elsewhere = find_by_name(name, strlen(name), ALL);
    if (elsewhere >= 0) {
        unsigned owners = settings_table[elsewhere].commands;
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "option %s is not for this command but for%s%s%s%s%s%s%s%s", typed,
                 (owners & COMMAND_RUN) != 0 ? " run" : "", (owners & COMMAND_BENCH) != 0 ? " bench" : "",
                 (owners & COMMAND_INSPECT) != 0 ? " inspect" : "", (owners & COMMAND_BUILD) != 0 ? " build" : "",
                 (owners & COMMAND_COMPARE) != 0 ? " compare" : "", (owners & COMMAND_REFIT) != 0 ? " refit" : "",
                 (owners & COMMAND_SERVE) != 0 ? " serve" : "",
                 (owners & COMMAND_BENCH_SERVE) != 0 ? " bench serve" : "");
    }
    const char *nearest = settings_nearest(name, command);
    if (nearest != NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "unknown option %s, did you mean --%s", typed, nearest);
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "unknown option %s, --help lists them", typed);
}

/* One option at argv[*at]; moves *at past it and its value. */
static trm_status read_option(settings *all, int argc, char **argv, int *at)
{
    const char *typed = argv[*at];
    const char *value = NULL;
    int32_t id;
    if (typed[1] == '-') {
        const char *name = typed + 2;
        size_t length = strcspn(name, "=");
        value = name[length] == '=' ? name + length + 1 : NULL;
        id = find_by_name(name, length, all->command);
        if (id < 0) {
            char only_name[128];
            snprintf(only_name, sizeof(only_name), "%.*s", (int)(length < 100 ? length : 100), name);
            return unknown_option(typed, only_name, all->command);
        }
    } else {
        id = find_by_letter(typed[1], all->command);
        if (id < 0) {
            return unknown_option(typed, typed + 1, all->command);
        }
        value = typed[2] != '\0' ? typed + 2 : NULL;
    }
    const setting *row = &settings_table[id];
    char origin[64];
    snprintf(origin, sizeof(origin), "--%s", row->name);
    char *kept_origin = keep(all, origin);
    if (kept_origin == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (row->type == SETTING_FLAG) {
        if (value != NULL && strcmp(value, "true") != 0 && strcmp(value, "false") != 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--%s takes no value, found \"%s\"", row->name, value);
        }
        (*at)++;
        return assign(all, (setting_id)id, value == NULL ? "true" : value, kept_origin);
    }
    if (value == NULL) {
        if (*at + 1 >= argc) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--%s needs a value: %s", row->name, row->argument);
        }
        value = argv[++*at];
    }
    (*at)++;
    return assign(all, (setting_id)id, value, kept_origin);
}

static trm_status read_arguments(settings *all, int argc, char **argv)
{
    bool options = true;
    for (int at = 0; at < argc;) {
        if (options && strcmp(argv[at], "--") == 0) {
            options = false;
            at++;
        } else if (options && argv[at][0] == '-' && argv[at][1] != '\0') {
            TRM_TRY(read_option(all, argc, argv, &at));
        } else if (all->n_operands < MAX_OPERANDS) {
            all->operands[all->n_operands++] = argv[at++];
        } else {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "too many arguments, \"%s\" is one", argv[at]);
        }
    }
    return TRM_OK;
}

static trm_status read_environment(settings *all)
{
    for (int32_t id = 0; id < SETTING_COUNT; id++) {
        char variable[96];
        variable_name(settings_table[id].name, variable, sizeof(variable));
        const char *value = getenv(variable);
        if (all->values[id] == NULL && value != NULL && (settings_table[id].commands & all->command) != 0) {
            char *origin = keep(all, variable);
            if (origin == NULL) {
                return TRM_ERROR_OUT_OF_MEMORY;
            }
            TRM_TRY(assign(all, (setting_id)id, value, origin));
        }
    }
    return TRM_OK;
}

static char *trim(char *text)
{
    while (isspace((unsigned char)*text)) {
        text++;
    }
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1])) {
        text[--length] = '\0';
    }
    return text;
}

/* One "key = value" line; settings of other commands are allowed and left. */
static trm_status read_config_line(settings *all, const char *path, int32_t number, char *line)
{
    line = trim(line);
    if (*line == '\0' || *line == '#') {
        return TRM_OK;
    }
    char *equals = strchr(line, '=');
    if (equals == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s:%d: \"%s\" is no setting, expected key = value", path, number, line);
    }
    *equals = '\0';
    char *key = trim(line), *value = trim(equals + 1);
    int32_t id = find_by_name(key, strlen(key), ~0u);
    if (id < 0) {
        const char *nearest = settings_nearest(key, ~0u);
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s:%d: unknown setting \"%s\"%s%s", path, number, key,
                 nearest == NULL ? "" : ", did you mean ", nearest == NULL ? "" : nearest);
    }
    if (all->values[id] != NULL || (settings_table[id].commands & all->command) == 0) {
        return TRM_OK;
    }
    char origin[4200];
    snprintf(origin, sizeof(origin), "%s:%d", path, number);
    char *kept = keep(all, origin);
    return kept == NULL ? TRM_ERROR_OUT_OF_MEMORY : assign(all, (setting_id)id, value, kept);
}

static trm_status read_config(settings *all)
{
    char path[4096] = "";
    const char *given = all->values[SETTING_CONFIG];
    if (given != NULL) {
        snprintf(path, sizeof(path), "%s", given);
    } else {
        const char *folder = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
        if (folder != NULL && *folder != '\0') {
            snprintf(path, sizeof(path), "%s/trireme/trireme.conf", folder);
        } else if (home != NULL) {
            snprintf(path, sizeof(path), "%s/.config/trireme/trireme.conf", home);
        }
        if (path[0] == '\0' || !trm_file_exists(path)) {
            snprintf(path, sizeof(path), "/etc/trireme/trireme.conf");
        }
        if (!trm_file_exists(path)) {
            return TRM_OK;
        }
    }
    char *text;
    size_t size;
    TRM_TRY(trm_file_read(path, CONFIG_LIMIT, &text, &size));
    trm_status status = TRM_OK;
    int32_t number = 0;
    for (char *line = text; status == TRM_OK && line != NULL;) {
        char *end = strchr(line, '\n');
        if (end != NULL) {
            *end = '\0';
        }
        status = read_config_line(all, path, ++number, line);
        line = end == NULL ? NULL : end + 1;
    }
    free(text);
    return status;
}

/* "1,2": each of them in the range of the row. */
static trm_status check_integers(const settings *all, setting_id id)
{
    const setting *row = &settings_table[id];
    const char *text = all->values[id];
    bool good = true;
    for (bool more = true; good && more;) {
        char *end;
        long long number = strtoll(text, &end, 10);
        good =
            end != text && (double)number >= row->least && (double)number <= row->most && (*end == '\0' || *end == ',');
        more = *end == ',';
        text = end + 1;
    }
    if (!good) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s is \"%s\", expected integers from %.10g to %.10g, such as 1,2 (%s)",
                 row->name, all->values[id], row->least, row->most, all->origins[id]);
    }
    return TRM_OK;
}

static trm_status check_value(const settings *all, setting_id id)
{
    const setting *row = &settings_table[id];
    const char *value = all->values[id];
    if (value == NULL) {
        return TRM_OK;
    }
    if (row->type == SETTING_FLAG) {
        if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s is \"%s\", expected true or false (%s)", row->name, value,
                     all->origins[id]);
        }
    } else if (row->type == SETTING_INTEGERS && all->command == COMMAND_COMPARE) {
        return check_integers(all, id);
    } else if (row->type == SETTING_INTEGER || row->type == SETTING_INTEGERS || row->type == SETTING_NUMBER) {
        char *end;
        errno = 0;
        double number = strtod(value, &end);
        bool whole = row->type == SETTING_NUMBER || (floor(number) == number && strpbrk(value, ".eExXnN") == NULL);
        if (end == value || *end != '\0' || errno == ERANGE || !whole ||
            !(number >= row->least && number <= row->most)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s is \"%s\", expected %s from %.10g to %.10g (%s)", row->name, value,
                     row->type == SETTING_NUMBER ? "a number" : "an integer", row->least, row->most, all->origins[id]);
        }
    }
    return TRM_OK;
}

trm_status settings_load(settings *all, unsigned command, int argc, char **argv)
{
    *all = (settings){.command = command};
    TRM_TRY(read_arguments(all, argc, argv));
    if (settings_flag(all, SETTING_HELP)) {
        return TRM_OK;
    }
    TRM_TRY(read_environment(all));
    TRM_TRY(read_config(all));
    for (int32_t id = 0; id < SETTING_COUNT; id++) {
        if (all->values[id] == NULL && settings_table[id].otherwise != NULL) {
            all->values[id] = settings_table[id].otherwise;
            all->origins[id] = "default";
        }
        TRM_TRY(check_value(all, (setting_id)id));
    }
    return TRM_OK;
}

bool settings_flag(const settings *all, setting_id id)
{
    return all->values[id] != NULL && strcmp(all->values[id], "true") == 0;
}

int64_t settings_integer(const settings *all, setting_id id)
{
    return all->values[id] == NULL ? 0 : strtoll(all->values[id], NULL, 10);
}

double settings_number(const settings *all, setting_id id)
{
    return all->values[id] == NULL ? 0.0 : strtod(all->values[id], NULL);
}

const char *settings_text(const settings *all, setting_id id)
{
    return all->values[id];
}

static void print_help_line(FILE *out, const setting *row)
{
    char flag[64], letter[8] = "    ";
    if (row->letter != 0) {
        snprintf(letter, sizeof(letter), "-%c, ", row->letter);
    }
    snprintf(flag, sizeof(flag), "--%s%s%s", row->name, row->argument == NULL ? "" : " ",
             row->argument == NULL ? "" : row->argument);
    fprintf(out, "  %s%-26s %s", letter, flag, row->help);
    if (row->otherwise != NULL) {
        fprintf(out, " [%s]", row->otherwise);
    }
    fputc('\n', out);
}

/* Groups in the order in which they come first. */
void settings_print_help(FILE *out, unsigned command)
{
    bool printed[SETTING_COUNT] = {false};
    for (int32_t first = 0; first < SETTING_COUNT; first++) {
        if (printed[first] || (settings_table[first].commands & command) == 0) {
            continue;
        }
        fprintf(out, "\n%s:\n", settings_table[first].group);
        for (int32_t id = first; id < SETTING_COUNT; id++) {
            const setting *row = &settings_table[id];
            if ((row->commands & command) != 0 && strcmp(row->group, settings_table[first].group) == 0) {
                print_help_line(out, row);
                printed[id] = true;
            }
        }
    }
    fprintf(out,
            "\nEvery option can also be set by a variable (--max-tokens by TRIREME_MAX_TOKENS) or in the settings file "
            "(max-tokens = 64).\n");
}

void settings_print_origins(FILE *out, const settings *all, bool json)
{
    report r;
    report_begin(&r, out);
    for (int32_t id = 0; id < SETTING_COUNT; id++) {
        const char *value = all->values[id] == NULL ? "" : all->values[id];
        const char *origin = all->origins[id] == NULL ? "not set" : all->origins[id];
        if (json) {
            report_open(&r, settings_table[id].name, '{');
            report_text(&r, "value", value);
            report_text(&r, "origin", origin);
            report_close(&r);
        } else {
            fprintf(out, "%-20s %-24s %s\n", settings_table[id].name, value, origin);
        }
    }
    if (json) {
        report_end(&r);
    }
}
