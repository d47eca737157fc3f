/*
 * Tokens per second against the share of the weights that stays on the device, beside what the link and the device
 * allow. One process: weights are loaded once, and the budget changes between measurements.
 *
 *   bench_streaming [--shape NAME [--layers N] | --model FOLDER] [--backend host|cuda] [--budgets 0,10,25,50,75,90,100]
 *                   [--tokens N] [--prompt N] [--mesh AXES] [--compression auto|off|lossless]
 *                   [--sharing auto|off|on] [--host-compute off|auto|SHARE] [--host-memory BYTES] [--runs N]
 *                   [--profile 1] [--json FILE]
 *
 * The budgets are percentages, the last must be 100. The bound of a budget is the longer of a step with everything
 * resident and of its bytes at the link's rate, both measured in the same run, and of what the CPU reads at its rate,
 * measured beside the link when the model is loaded. With a prompt, its time is measured too:
 * the best of --runs, and the median of their later half, by when the device is as hot as it gets; with --profile where
 * it goes: layers by their kernels, and what they waited for. A budget may come up again: products are faster on a cool
 * device, so what streams is compared with what stays in turn (--budgets 0,100,0,100).
 * On several ranks (mpirun) every rank streams its own part. What is printed of the tokens of the last budget tells
 * whether two runs gave the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/program.h"

#define MOST_BUDGETS 32
#define MOST_TOKENS  256
#define MOST_RUNS    64

typedef struct row {
    double percent, step, prompt, hot_prompt; /* seconds; median, best, median of the later half */
    trm_streaming_info info;
    int32_t tokens[MOST_TOKENS];
} row;

typedef struct bench {
    const char *shape, *folder, *json, *budgets, *mesh, *compression, *sharing, *host_memory, *host_compute;
    bool host, profile;
    int32_t n_layers, n_tokens, n_prompt, n_runs;
    trm_world *world;
    trm_model *model;
    trm_generator *generator;
    int32_t *prompt;
    double at[MOST_TOKENS];
    int32_t taken;
    row rows[MOST_BUDGETS];
    int32_t n_rows;
} bench;

static bool take(void *user, int32_t request, int32_t token)
{
    bench *b = user;
    (void)request;
    b->rows[b->n_rows].tokens[b->taken] = token;
    b->at[b->taken++] = bench_now();
    return true;
}

static double generate(bench *b, int32_t n_prompt, int32_t n_tokens)
{
    trm_request request = {.prompt = b->prompt, .n_prompt = n_prompt, .max_tokens = n_tokens, .ignore_eos = true};
    request.sampling = TRM_SAMPLING_INIT;
    b->taken = 0;
    double began = bench_now();
    bench_check(trm_generate(b->generator, &request, 1, take, b, NULL), "generate");
    return bench_now() - began;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

#define MOST_KERNELS 32
#define MOST_WAITS   6

typedef struct profile {
    struct {
        const char *kernel;
        double ms;
    } kernels[MOST_KERNELS];
    struct {
        const char *layer;
        double ms;
    } waits[MOST_WAITS]; /* the longest */
    int32_t n_kernels;
    double waited, computed;
} profile;

static void add_to_profile(void *user, const char *layer, trm_layer_kind kind, const char *kernel, double ms,
                           int64_t runs)
{
    profile *p = user;
    (void)kind;
    (void)runs;
    if (strcmp(kernel, TRM_KERNEL_WAIT) == 0) {
        p->waited += ms;
        for (int32_t i = 0; i < MOST_WAITS; i++) {
            if (ms > p->waits[i].ms) {
                memmove(&p->waits[i + 1], &p->waits[i], sizeof(p->waits[0]) * (size_t)(MOST_WAITS - 1 - i));
                p->waits[i].layer = layer;
                p->waits[i].ms = ms;
                break;
            }
        }
        return;
    }
    p->computed += ms;
    int32_t i = 0;
    while (i < p->n_kernels && strcmp(p->kernels[i].kernel, kernel) != 0) {
        i++;
    }
    if (i < MOST_KERNELS) {
        p->n_kernels += i == p->n_kernels;
        p->kernels[i].kernel = kernel;
        p->kernels[i].ms += ms;
    }
}

static void profile_prompt(bench *b, double percent)
{
    profile p = {0};
    trm_context *context = trm_generator_context(b->generator);
    bench_check(trm_context_set_layer_timing(context, true), "profiling");
    (void)generate(b, b->n_prompt, 1);
    trm_context_layer_times(context, add_to_profile, &p);
    if (trm_world_rank(b->world) == 0) {
        printf("prompt at %g %%: layers %.2f ms, waits %.2f ms:", percent, p.computed, p.waited);
        for (int32_t i = 0; i < MOST_WAITS && p.waits[i].layer != NULL; i++) {
            printf(" %s %.2f", p.waits[i].layer, p.waits[i].ms);
        }
        printf("; kernels:");
        for (int32_t i = 0; i < p.n_kernels; i++) {
            if (p.kernels[i].ms > 0.5) {
                printf(" %s %.2f", p.kernels[i].kernel, p.kernels[i].ms);
            }
        }
        printf("\n");
    }
    bench_check(trm_context_set_layer_timing(context, false), "profiling");
}

static void measure(bench *b, double percent)
{
    row *r = &b->rows[b->n_rows];
    trm_generator_limits limits;
    trm_generator_get_limits(b->generator, &limits);
    r->percent = percent;
    bench_check(
        trm_generator_set_weight_budget(b->generator, (size_t)((double)limits.streaming.streamable * percent / 100)),
        "budget");
    if (b->n_prompt > 16) {
        double runs[MOST_RUNS];
        int32_t half = b->n_runs / 2;
        for (int32_t i = 0; i < b->n_runs; i++) {
            runs[i] = generate(b, b->n_prompt, 1);
            r->prompt = i == 0 || runs[i] < r->prompt ? runs[i] : r->prompt;
        }
        qsort(runs + half, (size_t)(b->n_runs - half), sizeof(runs[0]), compare);
        r->hot_prompt = runs[half + (b->n_runs - half) / 2];
        if (b->profile) {
            profile_prompt(b, percent);
        }
    }
    (void)generate(b, 16, 3);
    (void)generate(b, 16, b->n_tokens);
    for (int32_t i = 0; i + 1 < b->n_tokens; i++) {
        b->at[i] = b->at[i + 1] - b->at[i];
    }
    qsort(b->at, (size_t)b->n_tokens - 1, sizeof(b->at[0]), compare);
    r->step = b->at[(b->n_tokens - 1) / 2];
    trm_generator_get_limits(b->generator, &limits);
    r->info = limits.streaming;
    b->n_rows++;
}

static double bound_of(const bench *b, const row *r)
{
    double link = (double)r->info.streamed / r->info.link_rate, resident = b->rows[b->n_rows - 1].step;
    double host = r->info.host_rate > 0 ? (double)r->info.offloaded / r->info.host_rate : 0;
    double least = link > resident ? link : resident;
    return host > least ? host : least;
}

static void print_table(const bench *b)
{
    printf("%8s %10s %10s %10s %9s %9s %9s %9s %9s %8s %9s %10s %8s %6s\n", "budget %", "stay GiB", "stream GB",
           "copied GB", "hosted GB", "step ms", "tok/s", "GB/s", "of link", "of bound", "plan ms", "prompt ms",
           "hot ms", "same");
    for (int32_t i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i], *last = &b->rows[b->n_rows - 1];
        double rate = (double)r->info.streamed / r->step;
        bool same = memcmp(r->tokens, last->tokens, (size_t)b->n_tokens * sizeof(r->tokens[0])) == 0;
        printf("%8.0f %10.3f %10.3f %10.3f %9.3f %9.3f %9.2f %9.2f %8.1f%% %7.1f%% %9.3f %10.2f %8.2f %6s\n",
               r->percent, (double)r->info.resident / 0x1p30, (double)r->info.unpacked / 1e9,
               (double)r->info.streamed / 1e9, (double)r->info.offloaded / 1e9, r->step * 1e3, 1 / r->step, rate / 1e9,
               rate / r->info.link_rate * 100, bound_of(b, r) / r->step * 100, r->info.run_seconds * 1e3,
               r->prompt * 1e3, r->hot_prompt * 1e3, same ? "yes" : "NO");
    }
    printf("%d ranks fetch together, %.2f GB come from others; ", b->rows[0].info.sharers,
           (double)b->rows[0].info.gathered / 1e9);
    printf("processors %.1f GB/s; ", b->rows[0].info.host_rate / 1e9);
    printf("%.2f GB from files; link %.2f GB/s, %s, unpacking %.1f GB/s; host memory %.2f GB at %g %%; tokens",
           (double)b->rows[0].info.files / 1e9, b->rows[0].info.link_rate / 1e9,
           b->rows[0].info.pinned ? "pinned host memory" : "host memory that is not pinned",
           b->rows[0].info.unpack_rate / 1e9, (double)b->rows[0].info.host / 1e9, b->rows[0].percent);
    for (int32_t i = 0; i < b->n_tokens; i++) {
        printf(" %d", b->rows[b->n_rows - 1].tokens[i]);
    }
    printf("\n");
}

static void write_json(const bench *b)
{
    FILE *file = fopen(b->json, "w");
    if (file == NULL) {
        perror(b->json);
        exit(1);
    }
    fprintf(file, "{\"shape\":\"%s\",\"ranks\":%d,\"link_bytes_per_second\":%.0f,\"rows\":[",
            b->folder != NULL ? b->folder : b->shape, trm_world_size(b->world), b->rows[0].info.link_rate);
    for (int32_t i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];
        fprintf(file,
                "%s{\"percent\":%g,\"resident\":%zu,\"streamed\":%zu,\"unpacked\":%zu,\"copies\":%d,\"staging\":%zu,"
                "\"hosted\":%zu,\"hosted_layers\":%d,\"host_bytes_per_second\":%.0f,"
                "\"step_seconds\":%g,"
                "\"bound_seconds\":%g,\"plan_seconds\":%g,\"prompt_tokens\":%d,\"prompt_seconds\":%g,"
                "\"hot_prompt_seconds\":%g}",
                i == 0 ? "" : ",", r->percent, r->info.resident, r->info.streamed, r->info.unpacked, r->info.copies,
                r->info.staging, r->info.offloaded, (int)r->info.offloaded_layers, r->info.host_rate, r->step,
                bound_of(b, r), r->info.run_seconds, b->n_prompt, r->prompt, r->hot_prompt);
    }
    fprintf(file, "]}\n");
    fclose(file);
}

static void read_arguments(bench *b, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--shape") == 0) {
            b->shape = value;
        } else if (strcmp(argv[i], "--model") == 0) {
            b->folder = value;
        } else if (strcmp(argv[i], "--backend") == 0) {
            b->host = strcmp(value, "host") == 0;
        } else if (strcmp(argv[i], "--budgets") == 0) {
            b->budgets = value;
        } else if (strcmp(argv[i], "--mesh") == 0) {
            b->mesh = value;
        } else if (strcmp(argv[i], "--compression") == 0) {
            b->compression = value;
        } else if (strcmp(argv[i], "--sharing") == 0) {
            b->sharing = value;
        } else if (strcmp(argv[i], "--host-compute") == 0) {
            b->host_compute = value;
        } else if (strcmp(argv[i], "--host-memory") == 0) {
            b->host_memory = value;
        } else if (strcmp(argv[i], "--runs") == 0) {
            b->n_runs = atoi(value);
        } else if (strcmp(argv[i], "--profile") == 0) {
            b->profile = strcmp(value, "0") != 0;
        } else if (strcmp(argv[i], "--json") == 0) {
            b->json = value;
        } else if (strcmp(argv[i], "--layers") == 0) {
            b->n_layers = atoi(value);
        } else if (strcmp(argv[i], "--tokens") == 0) {
            b->n_tokens = atoi(value);
        } else if (strcmp(argv[i], "--prompt") == 0) {
            b->n_prompt = atoi(value);
        } else {
            fprintf(stderr, "what is %s?\n", argv[i]);
            exit(2);
        }
    }
    b->n_tokens = b->n_tokens < 3 ? 3 : b->n_tokens > MOST_TOKENS ? MOST_TOKENS : b->n_tokens;
    b->n_prompt = b->n_prompt < 16 ? 16 : b->n_prompt;
    b->n_runs = b->n_runs < 1 ? 1 : b->n_runs > MOST_RUNS ? MOST_RUNS : b->n_runs;
}

static void open_generator(bench *b)
{
    trm_world_options world = TRM_WORLD_OPTIONS_INIT;
    world.backend = b->host ? TRM_BACKEND_HOST : TRM_BACKEND_CUDA;
    bench_check(trm_world_open(&world, &b->world), "world");
    bench_check(b->folder != NULL ? trm_model_open(b->folder, &b->model)
                                  : trm_model_open_preset(b->shape, b->n_layers, 1, &b->model),
                "model");
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    bench_check(trm_mesh_parse(b->mesh, trm_world_size(b->world), &options.mesh), "mesh");
    options.max_context = b->n_prompt + b->n_tokens + 16;
    options.max_step_tokens = b->n_prompt > 2048 ? b->n_prompt : 2048;
    options.weight_budget = (trm_weight_budget){.kind = TRM_WEIGHT_BUDGET_PERCENT, .percent = atof(b->budgets)};
    trm_weight_budget host;
    bench_check(trm_weight_budget_parse(b->host_memory, &host), "host memory");
    options.weight_budget.host_bytes = host.bytes;
    bench_check(trm_weight_compression_parse(b->compression, &options.weight_budget.compression), "compression");
    bench_check(trm_weight_sharing_parse(b->sharing, &options.weight_budget.sharing), "sharing");
    bench_check(trm_host_compute_parse(b->host_compute, &options.weight_budget), "host compute");
    double began = bench_now();
    bench_check(trm_generator_create(b->model, b->world, &options, &b->generator), "generator");
    if (trm_world_rank(b->world) == 0) {
        printf("loaded in %.2f s\n", bench_now() - began);
    }
    trm_model_info info;
    trm_model_get_info(b->model, &info);
    b->prompt = calloc((size_t)b->n_prompt, sizeof(*b->prompt));
    for (int32_t i = 0; b->prompt != NULL && i < b->n_prompt; i++) {
        b->prompt[i] = (int32_t)((uint32_t)(i + 1) * 2654435761u % (uint32_t)info.vocab);
    }
}

int main(int argc, char **argv)
{
    static bench b = {.shape = "llama-3-8b",
                      .budgets = "0,10,25,50,75,90,100",
                      .compression = "auto",
                      .sharing = "auto",
                      .host_memory = "auto",
                      .host_compute = "off",
                      .n_tokens = 12,
                      .n_runs = 3};
    read_arguments(&b, argc, argv);
    open_generator(&b);
    for (const char *at = b.budgets; b.n_rows < MOST_BUDGETS;) {
        double began = bench_now();
        measure(&b, atof(at));
        if (trm_world_rank(b.world) == 0) {
            fprintf(stderr, "%g %%: %.1f s\n", atof(at), bench_now() - began);
        }
        at = strchr(at, ',');
        if (at++ == NULL) {
            break;
        }
    }
    if (trm_world_rank(b.world) == 0) {
        print_table(&b);
        if (b.json != NULL) {
            write_json(&b);
        }
    }
    trm_generator_destroy(b.generator);
    trm_model_close(b.model);
    trm_world_close(b.world);
    free(b.prompt);
    return 0;
}
