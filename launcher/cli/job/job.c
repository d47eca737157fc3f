/* World, model and generator from the settings; progress; the end of a job. */
#include "launcher/cli/job/job.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/launch.h"
#include "base/unit.h"
#include "launcher/serve/worker/worker.h"

/* After a failure of rank 0, a launcher ends the job well within this time. */
#define SECONDS_FOR_RANK_0 3
#define MAX_SETTINGS_BYTES ((uint64_t)64 << 20)

double wall_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int print_failure(trm_status status)
{
    fprintf(stderr, "trireme: %s: %s\n", trm_status_name(status), trm_last_error());
    return trm_status_exit_code(status);
}

const char *launched_rank(void)
{
    return trm_launcher_rank(trm_environment);
}

bool is_first_rank(void)
{
    const char *rank = launched_rank();
    return rank == NULL || strcmp(rank, "0") == 0;
}

int print_failure_once(trm_status status)
{
    if (is_first_rank()) {
        return print_failure(status);
    }
    sleep(SECONDS_FOR_RANK_0);
    fprintf(stderr, "trireme: %s: rank %s: %s\n", trm_status_name(status), launched_rank(), trm_last_error());
    return trm_status_exit_code(status);
}

#define DRAFT_CONTEXT 8192 /* context of a draft model, unless --context is given */

const char *log_level_name(trm_log_level level)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    return names[level];
}

static void write_log(void *user, trm_log_level level, const char *message)
{
    (void)user;
    fprintf(stderr, "trireme: %s: %s\n", log_level_name(level), message);
}

void send_log_to_stderr(bool verbose)
{
    trm_log_set(write_log, NULL, verbose ? TRM_LOG_DEBUG : TRM_LOG_WARNING);
}

trm_status job_dtype(const settings *all, trm_dtype *dtype)
{
    const char *text = settings_text(all, SETTING_DTYPE);
    static const struct {
        const char *name;
        trm_dtype dtype;
    } types[] = {{"auto", TRM_DTYPE_NONE}, {"f32", TRM_F32},   {"float32", TRM_F32},  {"f16", TRM_F16},
                 {"float16", TRM_F16},     {"bf16", TRM_BF16}, {"bfloat16", TRM_BF16}};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(text, types[i].name) == 0) {
            *dtype = types[i].dtype;
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "dtype is \"%s\", expected auto, f32, f16 or bf16 (%s)", text,
             all->origins[SETTING_DTYPE]);
}

trm_status job_cache_dtype(const settings *all, trm_dtype *dtype)
{
    const char *text = settings_text(all, SETTING_KV_CACHE_DTYPE);
    const bool is_f8 = strcmp(text, "fp8") == 0 || strcmp(text, "fp8_e4m3") == 0 || strcmp(text, "f8e4m3") == 0;
    if (!is_f8 && strcmp(text, "auto") != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "kv cache dtype is \"%s\", expected auto or fp8 (%s)", text,
                 all->origins[SETTING_KV_CACHE_DTYPE]);
    }
    *dtype = is_f8 ? TRM_F8E4M3 : TRM_DTYPE_NONE;
    return TRM_OK;
}

trm_status job_backend(const settings *all, trm_backend *backend)
{
    const char *text = settings_text(all, SETTING_BACKEND);
    if (strcmp(text, "auto") == 0) {
        *backend = trm_system_backend(TRM_BACKEND_AUTO);
    } else if (strcmp(text, "cuda") == 0) {
        *backend = TRM_BACKEND_CUDA;
    } else if (strcmp(text, "host") == 0) {
        *backend = TRM_BACKEND_HOST;
    } else {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "backend is \"%s\", expected auto, cuda or host (%s)", text,
                 all->origins[SETTING_BACKEND]);
    }
    return TRM_OK;
}

trm_status job_budget(const settings *all, trm_weight_budget *budget)
{
    trm_status status = trm_weight_budget_parse(settings_text(all, SETTING_WEIGHT_BUDGET), budget);
    if (status != TRM_OK) {
        return trm_fail(status, "%s (%s)", trm_last_error(), all->origins[SETTING_WEIGHT_BUDGET]);
    }
    trm_weight_budget host;
    const char *text = settings_text(all, SETTING_HOST_MEMORY);
    bool is_size = trm_weight_budget_parse(text, &host) == TRM_OK &&
                   (host.kind == TRM_WEIGHT_BUDGET_AUTO || (host.kind == TRM_WEIGHT_BUDGET_BYTES && host.bytes > 0));
    if (!is_size) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "host memory is \"%s\", expected auto or bytes such as 64G (%s)", text,
                 all->origins[SETTING_HOST_MEMORY]);
    }
    budget->host_bytes = host.bytes;
    status = trm_weight_compression_parse(settings_text(all, SETTING_WEIGHT_COMPRESSION), &budget->compression);
    if (status != TRM_OK) {
        return trm_fail(status, "%s (%s)", trm_last_error(), all->origins[SETTING_WEIGHT_COMPRESSION]);
    }
    status = trm_weight_sharing_parse(settings_text(all, SETTING_WEIGHT_SHARING), &budget->sharing);
    if (status != TRM_OK) {
        return trm_fail(status, "%s (%s)", trm_last_error(), all->origins[SETTING_WEIGHT_SHARING]);
    }
    status = trm_host_compute_parse(settings_text(all, SETTING_HOST_COMPUTE), budget);
    if (status != TRM_OK) {
        return trm_fail(status, "%s (%s)", trm_last_error(), all->origins[SETTING_HOST_COMPUTE]);
    }
    return TRM_OK;
}

const char *job_expert_profile(const settings *all)
{
    const char *profile = settings_text(all, SETTING_EXPERT_PROFILE);
    static char *usual; /* for all jobs of the process */
    usual = usual == NULL ? trm_expert_profile_path() : usual;
    return strcmp(profile, "off") == 0 ? NULL : strcmp(profile, "auto") == 0 ? usual : profile;
}

/* Whether the settings allow weights to stream, whether or not they would fit. */
static bool may_stream(const settings *all)
{
    trm_weight_budget budget;
    const bool is_budget = trm_weight_budget_parse(settings_text(all, SETTING_WEIGHT_BUDGET), &budget) == TRM_OK;
    return !is_budget || budget.kind == TRM_WEIGHT_BUDGET_AUTO || budget.kind == TRM_WEIGHT_BUDGET_BYTES ||
           (budget.kind == TRM_WEIGHT_BUDGET_PERCENT && budget.percent < 100);
}

/* Whether a setting of streamed weights differs from "do nothing". */
static bool asks_something(const settings *all, setting_id id)
{
    const char *value = all->values[id];
    trm_weight_budget budget = {0};
    if (id == SETTING_HOST_COMPUTE && trm_host_compute_parse(value, &budget) == TRM_OK) {
        return budget.host_compute == TRM_HOST_COMPUTE_AUTO || budget.host_percent > 0; /* 0% is off */
    }
    return strcmp(value, "off") != 0 && strcmp(value, settings_table[id].default_value) != 0;
}

bool job_passes_over(const settings *all, setting_id id)
{
    const bool of_streaming = (settings_table[id].traits & SETTING_TRAIT_STREAMING) != 0;
    return of_streaming && asks_something(all, id) && !may_stream(all);
}

trm_status job_check_options(const settings *all)
{
    if (settings_is_option(all, SETTING_DRAFT) && settings_is_option(all, SETTING_SPECULATE) &&
        strcmp(settings_text(all, SETTING_SPECULATE), "off") == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "option --draft needs speculative decoding, but speculate is \"off\" (--speculate)");
    }
    if (settings_text(all, SETTING_DRAFT) != NULL && strncmp(settings_text(all, SETTING_SPECULATE), "mtp", 3) == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "speculate is \"%s\" (%s), which drafts with the model's own MTP layer, but --draft names another "
                 "model to draft with",
                 settings_text(all, SETTING_SPECULATE), all->origins[SETTING_SPECULATE]);
    }
    for (int32_t id = 0; id < SETTING_COUNT; id++) {
        if (settings_is_option(all, (setting_id)id) && job_passes_over(all, (setting_id)id)) {
            TRM_FAIL(
                TRM_ERROR_INVALID_ARGUMENT,
                "option %s is for streamed weights, but weight-budget is \"%s\" (%s): all weights stay on the device",
                all->origins[id], settings_text(all, SETTING_WEIGHT_BUDGET), all->origins[SETTING_WEIGHT_BUDGET]);
        }
    }
    return TRM_OK;
}

trm_status job_check_sharing(const settings *all, const trm_mesh *mesh)
{
    /* the ranks of serve get every setting as an option, and of several compared runs some may have replicas */
    const bool asks = all->command != COMMAND_SERVE_WORKER && all->command != COMMAND_COMPARE &&
                      settings_is_option(all, SETTING_WEIGHT_SHARING) &&
                      strcmp(settings_text(all, SETTING_WEIGHT_SHARING), "on") == 0;
    if (asks && mesh->size[TRM_AXIS_DP] == 1) {
        char text[64];
        trm_mesh_format(mesh, text, sizeof(text));
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "weight-sharing is \"on\" (--weight-sharing), but mesh %s has no replicas (dp)", text);
    }
    return TRM_OK;
}

/* --speculate. */
static trm_status job_speculation(const settings *all, trm_speculation *speculation)
{
    trm_status status = trm_speculation_parse(settings_text(all, SETTING_SPECULATE), speculation);
    if (status != TRM_OK) {
        return trm_fail(status, "%s (%s)", trm_last_error(), all->origins[SETTING_SPECULATE]);
    }
    return TRM_OK;
}

void report_speculation(report *r, const trm_generate_stats *stats)
{
    report_open(r, "speculation", '{');
    report_integer(r, "drafted_tokens", stats->drafted_tokens);
    report_integer(r, "accepted_tokens", stats->accepted_tokens);
    report_close(r);
}

void report_streaming(report *r, const trm_streaming_info *info)
{
    if (!info->on) {
        return;
    }
    report_open(r, "streaming", '{');
    report_integer(r, "streamable", (int64_t)info->streamable);
    report_integer(r, "budget", (int64_t)info->budget);
    report_integer(r, "resident", (int64_t)info->resident);
    report_integer(r, "streamed", (int64_t)info->streamed);
    report_integer(r, "unpacked", (int64_t)info->unpacked);
    report_number(r, "compression_ratio", info->streamed > 0 ? (double)info->unpacked / (double)info->streamed : 1);
    report_integer(r, "staging", (int64_t)info->staging);
    report_integer(r, "host", (int64_t)info->host);
    report_integer(r, "files", (int64_t)info->files);
    report_integer(r, "file_buffers", (int64_t)info->file_buffers);
    report_integer(r, "copies", info->copies);
    report_integer(r, "loop_passes", info->loop_passes);
    report_integer(r, "sharers", info->sharers);
    report_integer(r, "gathered", (int64_t)info->gathered);
    report_integer(r, "hosted", (int64_t)info->offloaded);
    report_integer(r, "hosted_layers", info->offloaded_layers);
    report_number(r, "host_bytes_per_second", info->host_rate);
    report_number(r, "host_seconds", info->host_seconds);
    report_integer(r, "large_streamed", (int64_t)info->large_streamed);
    report_number(r, "least_large_step_seconds", info->large_run_seconds);
    report_number(r, "least_hosted_step_seconds", info->host_run_seconds);
    report_number(r, "link_bytes_per_second", info->link_rate);
    report_bool(r, "link_measured", info->measured);
    report_number(r, "unpacked_bytes_per_second", info->unpack_rate);
    report_number(r, "least_step_seconds", info->run_seconds);
    report_number(r, "link_seconds", info->link_seconds);
    report_number(r, "largest_step_seconds", info->largest_run_seconds);
    if (info->cached_layers > 0) {
        report_integer(r, "expert_cache", (int64_t)info->expert_cache);
        report_integer(r, "cached_layers", info->cached_layers);
        report_integer(r, "experts_cached", info->expert_slots);
        report_integer(r, "experts", info->experts);
        report_number(r, "expected_hit_rate", info->expert_hit_rate);
        report_bool(r, "expert_profile", info->expert_profile);
        report_integer(r, "expert_hits", info->expert_hits);
        report_integer(r, "expert_misses", info->expert_misses);
        report_integer(r, "expert_hosted", info->expert_hosted);
        report_integer(r, "host_experts", info->host_experts);
        report_number(r, "expected_host_hit_rate", info->host_expert_hit_rate);
        report_integer(r, "expert_read", (int64_t)info->expert_read);
        report_integer(r, "expert_reads", info->expert_reads);
        report_number(r, "file_bytes_per_second", info->file_rate);
    }
    report_close(r);
}

void describe_streaming(const trm_streaming_info *info, char *text, size_t size)
{
    char packed[64] = "", shared[64] = "", offloaded[112] = "", loops[64] = "", cached[160] = "", read[224] = "";
    const trm_unit unit = trm_unit_of((double)info->streamable);
    text[0] = '\0';
    if (info->on && info->unpack_rate > 0) {
        snprintf(packed, sizeof(packed), ", compressed to %.2f", (double)info->streamed / unit.bytes);
    }
    if (info->on && info->sharers > 1) {
        snprintf(shared, sizeof(shared), ", %.2f of them fetched by others of %d ranks",
                 (double)info->gathered / unit.bytes, info->sharers);
    }
    if (info->on && info->offloaded_layers > 0) {
        snprintf(offloaded, sizeof(offloaded), ", the CPU runs %.2f in %d layers of small steps at %s GB/s",
                 (double)info->offloaded / unit.bytes, (int)info->offloaded_layers,
                 trm_number_text(info->host_rate / 1e9, 1).text);
    }
    if (info->on && info->loop_passes > 0 && info->copies > 0) {
        snprintf(loops, sizeof(loops), " with loops of %d passes", (int)info->loop_passes);
    }
    if (info->on && info->cached_layers > 0) {
        snprintf(cached, sizeof(cached), ", %.2f cache %d of %d experts in %d layers (%s %% of a token's, %s)",
                 (double)info->expert_cache / unit.bytes, (int)info->expert_slots, (int)info->experts,
                 (int)info->cached_layers, trm_number_text(info->expert_hit_rate * 100, 1).text,
                 info->expert_profile ? "as in former runs" : "if all are equally likely");
    }
    if (info->on && info->host_experts > 0) {
        snprintf(
            read, sizeof(read),
            " (%.3f of them from files at %s%s GB/s: %.2f in host memory cache %d experts, %s %% of those that are "
            "fetched)",
            (double)info->expert_read / unit.bytes, info->measured ? "" : "an assumed ",
            trm_number_text(info->file_rate / 1e9, 1).text, (double)info->host / unit.bytes, (int)info->host_experts,
            trm_number_text(info->host_expert_hit_rate * 100, 1).text);
    }
    if (info->on) {
        snprintf(
            text, size,
            "of %.2f %s of weights, %.2f stay on the device%s and %.2f stream in every step%s%s%s%s%s, in %d copies "
            "through %.2f %s of staging at %s%s GB/s: a step takes %s %s ms",
            (double)info->streamable / unit.bytes, unit.name, (double)info->resident / unit.bytes, cached,
            (double)info->unpacked / unit.bytes, read, loops, shared, packed, offloaded, info->copies,
            (double)info->staging / unit.bytes, unit.name, info->measured ? "" : "an assumed ",
            trm_number_text(info->link_rate / 1e9, 1).text, info->cached_layers > 0 ? "about" : "at least",
            trm_number_text(info->run_seconds * 1e3, 2).text);
    }
}

void describe_rates(const trm_streaming_info *info, int32_t step_tokens, char *text, size_t size)
{
    char tokens[32] = "";
    text[0] = '\0';
    if (step_tokens > 0) {
        snprintf(tokens, sizeof(tokens), " (%d tokens)", (int)step_tokens);
    }
    if (info->on) {
        snprintf(text, size,
                 "%s %s tokens/s per sequence; time to first token at least %s ms, for a prompt that fills a "
                 "step%s about %s ms",
                 info->cached_layers > 0 ? "about" : "at most", trm_number_text(1 / info->run_seconds, 1).text,
                 trm_number_text(info->large_run_seconds * 1e3, 0).text, tokens,
                 trm_number_text(info->largest_run_seconds * 1e3, 0).text);
    }
}

void describe_cpu_offload(const trm_streaming_info *info, char *text, size_t size)
{
    text[0] = '\0';
    if (info->host_run_seconds > 0) {
        snprintf(text, size, "--host-compute auto would help: about %s tokens/s per sequence",
                 trm_number_text(1 / info->host_run_seconds, 1).text);
    }
}

void layer_pattern(const char *layer, char *pattern, size_t size)
{
    size_t at = 0;
    for (const char *from = layer; *from != '\0' && at + 1 < size;) {
        size_t digits = strspn(from, "0123456789");
        bool bounded = from == layer || from[-1] == '.';
        if (digits > 0 && bounded && (from[digits] == '.' || from[digits] == '\0')) {
            pattern[at++] = '*';
            from += digits;
        } else {
            pattern[at++] = *from++;
        }
    }
    pattern[at] = '\0';
}

trm_status report_stage(const char *stage, int64_t rank, int64_t ranks, const char *text, trm_plan *plan)
{
    if (strcmp(stage, "final") == 0) {
        char *json = trm_plan_to_json(plan);
        if (json == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the text of a plan");
        }
        fputs(json, stdout);
        trm_free(json);
        return TRM_OK;
    }
    report r;
    report_begin(&r, stdout);
    report_text(&r, "stage", stage);
    report_integer(&r, "ranks", ranks);
    report_integer(&r, "rank", rank);
    report_text(&r, "network", text);
    report_end(&r);
    return TRM_OK;
}

static bool may_differ(int32_t id)
{
    const setting *row = &settings_table[id];
    return (row->traits & SETTING_TRAIT_PER_RANK) != 0 ||
           (row->commands & (COMMAND_RUN | COMMAND_BENCH | COMMAND_COMPARE)) == 0;
}

/* The settings that must be the same on every rank, as lines "name = value"; NULL when out of memory. */
static char *common_settings(const settings *all)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    for (int32_t id = 0; out != NULL && id < SETTING_COUNT; id++) {
        if (!may_differ(id) && all->list_counts[id] == 0) {
            fprintf(out, "%s = %s\n", settings_table[id].name, all->values[id] == NULL ? "" : all->values[id]);
        }
        for (int32_t i = 0; !may_differ(id) && i < all->list_counts[id]; i++) {
            fprintf(out, "%s = %s\n", settings_table[id].name, all->lists[id][i]);
        }
    }
    if (out == NULL || fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* Fails with the first line that differs. */
static trm_status compare_lines(const char *mine, const char *theirs)
{
    while (*mine != '\0' || *theirs != '\0') {
        size_t my_length = strcspn(mine, "\n"), their_length = strcspn(theirs, "\n");
        if (my_length != their_length || memcmp(mine, theirs, my_length) != 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "setting \"%.*s\", expected \"%.*s\" as on rank 0", (int)my_length,
                     mine, (int)their_length, theirs);
        }
        mine += my_length + (mine[my_length] == '\n');
        theirs += their_length + (theirs[their_length] == '\n');
    }
    return TRM_OK;
}

/* Ranks with different settings would run different steps. */
static trm_status agree_on_settings(job *j)
{
    char *mine = common_settings(j->all), *theirs = NULL;
    uint64_t size = mine == NULL ? 0 : strlen(mine);
    trm_status status = trm_world_broadcast(j->world, &size, sizeof(size), 0);
    if (status == TRM_OK) {
        theirs = size <= MAX_SETTINGS_BYTES ? calloc(1, (size_t)size + 1) : NULL;
        bool ready = mine != NULL && theirs != NULL;
        status = trm_world_all_ok(
            j->world, ready ? TRM_OK : trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the text of the settings"));
    }
    if (status == TRM_OK) {
        memcpy(theirs, mine, j->is_leader ? (size_t)size : 0);
        status = trm_world_broadcast(j->world, theirs, (size_t)size, 0);
    }
    if (status == TRM_OK) {
        status = trm_world_all_ok(j->world, compare_lines(mine, theirs));
    }
    free(mine);
    free(theirs);
    return status;
}

/* A device that is asked for must exist. */
static trm_status check_device(const settings *all, trm_backend backend, int32_t device)
{
    const bool is_chosen = strcmp(settings_text(all, SETTING_BACKEND), "host") == 0;
    if (device >= 0 && backend == TRM_BACKEND_HOST) {
        TRM_FAIL(is_chosen ? TRM_ERROR_INVALID_ARGUMENT : TRM_ERROR_NO_DEVICE, "device is %d (%s), but %s", (int)device,
                 all->origins[SETTING_DEVICE],
                 is_chosen ? "the host backend has no devices" : "there is no usable GPU");
    }
    return TRM_OK;
}

trm_status job_open_world(job *j, const settings *all)
{
    *j = (job){.all = all, .is_leader = true, .process_seconds = trm_process_seconds()};
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    double began = wall_seconds();
    TRM_TRY(job_backend(all, &options.backend));
    j->driver_seconds = wall_seconds() - began;
    options.gpu = (int32_t)settings_integer(all, SETTING_DEVICE) + 1;
    TRM_TRY(check_device(all, options.backend, options.gpu - 1));
    options.threads = (int32_t)settings_integer(all, SETTING_THREADS);
    options.deadline_seconds = settings_number(all, SETTING_DEADLINE);
    options.replicas = (int32_t)settings_integer(all, SETTING_REPLICAS);
    options.replica = (int32_t)settings_integer(all, SETTING_REPLICA);
    const char *starting = getenv(WORKER_STARTING_VARIABLE);
    options.starting = starting != NULL && options.replicas > 1 ? atoi(starting) : 0;
    TRM_TRY(trm_world_open(&options, &j->world));
    j->is_leader = trm_world_rank(j->world) == 0;
    TRM_TRY(trm_world_size(j->world) == 1 ? TRM_OK : agree_on_settings(j));
    return job_begin_timeline(j);
}

bool names_shape(const char *name)
{
    struct stat file;
    bool found = false;
    for (int32_t i = 0; !found && trm_model_preset_name(i) != NULL; i++) {
        found = strcmp(name, trm_model_preset_name(i)) == 0;
    }
    return found && stat(name, &file) != 0;
}

trm_status open_model(const settings *all, const char *name, trm_model **model)
{
    if (names_shape(name)) {
        return trm_model_open_preset_quantized(name, settings_text(all, SETTING_WEIGHTS),
                                               (int32_t)settings_integer(all, SETTING_LAYERS),
                                               (uint64_t)settings_integer(all, SETTING_SEED), model);
    }
    const char *draft = settings_text(all, SETTING_DRAFT); /* to which options do not apply */
    bool is_operand = draft == NULL || strcmp(name, draft) != 0 || strcmp(name, all->operands[0]) == 0;
    if (is_operand && settings_is_option(all, SETTING_LAYERS)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "option --layers is for named shapes, %s is a model folder", name);
    }
    const char *weights = is_operand ? settings_text(all, SETTING_WEIGHTS) : NULL;
    trm_status status = trm_model_open_quantized(name, weights, model);
    const bool talks = is_first_rank() && all->command != COMMAND_SERVE_WORKER && !settings_flag(all, SETTING_QUIET);
    if (status == TRM_OK && weights != NULL && talks) {
        fprintf(stderr, "trireme: weights of %s become %s as they are read\n", name, weights);
    }
    const bool takes_files = all->command == COMMAND_RUN || all->command == COMMAND_BENCH ||
                             all->command == COMMAND_INSPECT || all->command == COMMAND_COMPARE;
    struct stat file;
    if (status == TRM_ERROR_IO && is_operand && takes_files && (stat(name, &file) != 0 || !S_ISDIR(file.st_mode))) {
        return trm_fail(TRM_ERROR_INVALID_MODEL, "%s (network files have names that end in .onnx or .plan)",
                        trm_last_error());
    }
    return status == TRM_ERROR_IO ? TRM_ERROR_INVALID_MODEL : status;
}

/* Passes progress on, and draws a bar if stderr is a terminal. */
static void show_progress(void *user, size_t done, size_t total)
{
    const job *j = user;
    if (j->on_loaded != NULL) {
        j->on_loaded(j->on_loaded_user, done, total);
    }
    if (!j->is_leader || settings_flag(j->all, SETTING_QUIET) || !isatty(STDERR_FILENO) || total == 0) {
        return;
    }
    enum { WIDTH = 40 };
    int32_t filled = (int32_t)(WIDTH * (double)done / (double)total);
    char bar[WIDTH + 1];
    memset(bar, '.', WIDTH);
    memset(bar, '#', (size_t)(filled > WIDTH ? WIDTH : filled));
    bar[WIDTH] = '\0';
    const trm_unit unit = trm_unit_of((double)total);
    fprintf(stderr, "\rloading [%s] %6.2f of %.2f %s", bar, (double)done / unit.bytes, (double)total / unit.bytes,
            unit.name);
    if (done >= total) {
        fputs("\r\033[K", stderr);
    }
    fflush(stderr);
}

char *job_timing_cache(const settings *all, trm_world *world)
{
    const char *text = settings_text(all, SETTING_TIMING_CACHE);
    return strcmp(text, "off") == 0 ? NULL : strcmp(text, "auto") == 0 ? trm_timing_cache_path(world) : strdup(text);
}

trm_status job_open_draft_model(job *j)
{
    const char *name = settings_text(j->all, SETTING_DRAFT);
    return name == NULL || j->draft_model != NULL
               ? TRM_OK
               : trm_world_all_ok(j->world, open_model(j->all, name, &j->draft_model));
}

/* Creates the generator of a draft model with the same mesh and number of sequences. It is created first, so that the
 * cache of the main model takes the memory that is left. A draft head is the main generator's own. */
static trm_status open_draft(job *j, trm_generator_options *main, int64_t context)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_model_info info;
    TRM_TRY(job_open_draft_model(j));
    if (trm_model_is_draft_head(j->draft_model)) {
        main->draft_head = j->draft_model;
        return TRM_OK;
    }
    trm_model_get_info(j->draft_model, &info);
    context = context > 0 ? context : DRAFT_CONTEXT;
    options.max_context = info.context_length > 0 && info.context_length < context ? info.context_length : context;
    options.max_sequences = main->max_sequences;
    options.dtype = main->dtype;
    options.cache_dtype = main->cache_dtype;
    options.mesh = main->mesh;
    options.no_tune = main->no_tune;
    options.timing_cache = main->timing_cache;
    options.progress = main->progress;
    options.progress_user = main->progress_user;
    return trm_generator_create(j->draft_model, j->world, &options, &j->draft);
}

trm_status job_open_generator(job *j, int64_t context, int32_t sequences)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_status status = job_dtype(j->all, &options.dtype);
    if (status == TRM_OK) {
        status = job_cache_dtype(j->all, &options.cache_dtype);
    }
    if (status == TRM_OK) {
        status = trm_mesh_parse(settings_text(j->all, SETTING_MESH), trm_world_size(j->world), &options.mesh);
    }
    if (status == TRM_OK) {
        status = job_check_sharing(j->all, &options.mesh);
    }
    if (status == TRM_OK) {
        status = job_budget(j->all, &options.weight_budget);
    }
    if (status == TRM_OK) {
        status = job_speculation(j->all, &options.speculation);
    }
    TRM_TRY(trm_world_all_ok(j->world, status));
    options.expert_profile = job_expert_profile(j->all);
    options.max_context = context;
    options.max_sequences = sequences;
    options.max_step_tokens = (int32_t)settings_integer(j->all, SETTING_STEP_TOKENS);
    options.no_tune = settings_flag(j->all, SETTING_NO_TUNE) || settings_integer(j->all, SETTING_OPT_LEVEL) == 0;
    char *cache = job_timing_cache(j->all, j->world);
    options.timing_cache = cache;
    options.embeddings = j->embeddings;
    options.batch_invariant = settings_flag(j->all, SETTING_BATCH_INVARIANT);
    options.cache_tokens = j->cache_tokens;
    options.max_adapters =
        (int32_t)settings_integer(j->all, SETTING_MAX_ADAPTERS) + j->all->list_counts[SETTING_ADAPTER];
    options.max_adapter_rank = (int32_t)settings_integer(j->all, SETTING_MAX_ADAPTER_RANK);
    options.progress = show_progress;
    options.progress_user = j;
    if (settings_text(j->all, SETTING_DRAFT) != NULL) {
        options.speculation.kind =
            options.speculation.kind == TRM_SPECULATION_OFF ? TRM_SPECULATION_AUTO : options.speculation.kind;
        status = open_draft(j, &options, context);
    }
    if (status == TRM_OK) {
        status = trm_generator_create(j->model, j->world, &options, &j->generator);
    }
    trm_free(cache);
    TRM_TRY(status);
    if (j->draft != NULL) {
        TRM_TRY(trm_generator_set_draft(j->generator, j->draft));
    }
    j->load_seconds = wall_seconds() - j->began;
    trm_generator_limits limits;
    trm_generator_get_limits(j->generator, &limits);
    if (limits.streaming.on && j->is_leader && !settings_flag(j->all, SETTING_QUIET)) {
        char text[768], rates[256];
        describe_streaming(&limits.streaming, text, sizeof(text));
        describe_rates(&limits.streaming, limits.max_step_tokens, rates, sizeof(rates));
        fprintf(stderr, "trireme: %s, %s; the KV cache holds %lld tokens\n", text, rates,
                (long long)limits.cache_tokens);
        describe_cpu_offload(&limits.streaming, text, sizeof(text));
        if (text[0] != '\0') {
            fprintf(stderr, "trireme: %s\n", text);
        }
    }
    return TRM_OK;
}

void job_take_token(job *j)
{
    if (j->first_token_seconds == 0) {
        j->first_token_seconds = trm_process_seconds();
    }
}

/* The phases of startup, in order. */
typedef struct startup_part {
    const char *name;
    double seconds;
} startup_part;
#define STARTUP_PARTS 12

static void list_startup(const job *j, const trm_startup *s, startup_part parts[STARTUP_PARTS])
{
    const startup_part all[STARTUP_PARTS] = {
        {"process", j->process_seconds},
        {"driver", j->driver_seconds},
        {"join", s->join_seconds},
        {"device", s->device_seconds},
        {"communicator", s->communicator_seconds},
        {"model", j->model_seconds},
        {"plan", s->plan_seconds},
        {"engine", s->engine_seconds},
        {"context", s->context_seconds},
        {"tune", s->tune_seconds},
        {"capture", s->capture_seconds},
        {"wait", s->wait_seconds},
    };
    memcpy(parts, all, sizeof(all));
}

void report_startup(report *r, const job *j)
{
    trm_startup s;
    startup_part parts[STARTUP_PARTS];
    char key[48];
    trm_generator_get_startup(j->generator, &s);
    list_startup(j, &s, parts);
    report_open(r, "startup", '{');
    for (int32_t i = 0; i < STARTUP_PARTS; i++) {
        snprintf(key, sizeof(key), "%s_seconds", parts[i].name);
        report_number(r, key, parts[i].seconds);
    }
    report_number(r, "weights_seconds", s.weights_seconds); /* these two overlap the phases above */
    report_number(r, "tokenizer_seconds", j->tokenizer_seconds);
    report_integer(r, "weight_bytes", s.weight_bytes);
    report_number(r, "first_token_after_start_seconds", j->first_token_seconds);
    report_close(r);
}

void print_startup(const job *j)
{
    trm_startup s;
    startup_part parts[STARTUP_PARTS];
    trm_generator_get_startup(j->generator, &s);
    list_startup(j, &s, parts);
    fputs("startup:", stderr);
    for (int32_t i = 0; i < STARTUP_PARTS; i++) {
        fprintf(stderr, "%s %s %.3f", i > 0 ? "," : "", parts[i].name, parts[i].seconds);
    }
    fprintf(stderr,
            " s; in parallel: tokenizer %.3f s, weights of %s GB %.3f s (%s GB/s); first token %.2f s after the start "
            "of the process\n",
            j->tokenizer_seconds, trm_number_text((double)s.weight_bytes * 1e-9, 2).text, s.weights_seconds,
            trm_number_text(s.weights_seconds > 0 ? (double)s.weight_bytes * 1e-9 / s.weights_seconds : 0.0, 1).text,
            j->first_token_seconds);
}

int job_close(job *j, trm_status status, bool alike)
{
    if (j->world == NULL) {
        return print_failure_once(status);
    }
    int code = trm_status_exit_code(status);
    /* What a peer told while ranks exchanged their results is not alike: it ends this rank with the code of the peer.
     */
    if (status != TRM_OK && trm_world_size(j->world) > 1 && (!alike || status == TRM_ERROR_LOST_RANK)) {
        (void)trm_timeline_save();
        trm_world_abort(j->world, status); /* does not return */
    }
    if (status != TRM_OK && j->is_leader) {
        print_failure(status);
    }
    const trm_status ended = trm_timeline_end(j->world);
    if (ended != TRM_OK && j->is_leader) {
        print_failure(ended);
    }
    code = status == TRM_OK ? trm_status_exit_code(ended) : code;
    trm_generator_destroy(j->generator);
    trm_generator_destroy(j->draft);
    trm_model_close(j->draft_model);
    trm_model_close(j->model);
    trm_world_close(j->world);
    return code;
}
