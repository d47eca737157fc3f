/* World, model and generator from the settings; progress; the end of a job. */
#include "launcher/cli/job.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

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

int print_failure_once(trm_status status)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const char *rank = getenv(variables[i]);
        if (rank != NULL) {
            return strcmp(rank, "0") == 0 ? print_failure(status) : trm_status_exit_code(status);
        }
    }
    return print_failure(status);
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

trm_status job_backend(const settings *all, trm_backend *backend)
{
    const char *text = settings_text(all, SETTING_BACKEND);
    if (strcmp(text, "auto") == 0) {
        *backend = trm_system_gpu_count() > 0 ? TRM_BACKEND_CUDA : TRM_BACKEND_HOST;
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

trm_status job_open_world(job *j, const settings *all)
{
    *j = (job){.all = all, .talks = true};
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    TRM_TRY(job_backend(all, &options.backend));
    options.device = (int32_t)settings_integer(all, SETTING_DEVICE);
    options.threads = (int32_t)settings_integer(all, SETTING_THREADS);
    options.deadline_seconds = settings_number(all, SETTING_DEADLINE);
    TRM_TRY(trm_world_open(&options, &j->world));
    j->talks = trm_world_rank(j->world) == 0;
    return TRM_OK;
}

trm_status job_open_model(const settings *all, const char *name, trm_model **model)
{
    struct stat file;
    if (stat(name, &file) != 0) {
        for (int32_t i = 0; trm_model_preset_name(i) != NULL; i++) {
            if (strcmp(name, trm_model_preset_name(i)) == 0) {
                return trm_model_open_preset(name, (int32_t)settings_integer(all, SETTING_LAYERS),
                                             (uint64_t)settings_integer(all, SETTING_SEED), model);
            }
        }
    }
    return trm_model_open(name, model);
}

/* A bar on a terminal, nothing elsewhere. */
static void show_progress(void *user, size_t done, size_t total)
{
    const job *j = user;
    if (!j->talks || settings_flag(j->all, SETTING_QUIET) || !isatty(STDERR_FILENO) || total == 0) {
        return;
    }
    enum { WIDTH = 40 };
    int32_t filled = (int32_t)(WIDTH * (double)done / (double)total);
    char bar[WIDTH + 1];
    memset(bar, '.', WIDTH);
    memset(bar, '#', (size_t)(filled > WIDTH ? WIDTH : filled));
    bar[WIDTH] = '\0';
    fprintf(stderr, "\rloading [%s] %6.2f of %.2f GiB", bar, (double)done / 0x1p30, (double)total / 0x1p30);
    if (done >= total) {
        fputs("\r\033[K", stderr);
    }
    fflush(stderr);
}

static trm_status open_generator(job *j, int32_t sequences)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_status status = job_dtype(j->all, &options.dtype);
    if (status == TRM_OK) {
        status = trm_mesh_parse(settings_text(j->all, SETTING_MESH), trm_world_size(j->world), &options.mesh);
    }
    TRM_TRY(trm_world_all_ok(j->world, status));
    options.max_context = settings_integer(j->all, SETTING_CONTEXT);
    options.max_sequences = sequences;
    options.max_step_tokens = (int32_t)settings_integer(j->all, SETTING_STEP_TOKENS);
    options.progress = show_progress;
    options.progress_user = j;
    return trm_generator_create(j->model, j->world, &options, &j->generator);
}

trm_status job_open_generator(job *j, const char *name, int32_t sequences)
{
    double began = wall_seconds();
    TRM_TRY(trm_world_all_ok(j->world, job_open_model(j->all, name, &j->model)));
    TRM_TRY(open_generator(j, sequences));
    j->load_seconds = wall_seconds() - began;
    return TRM_OK;
}

int job_close(job *j, trm_status status, bool alike)
{
    int code = trm_status_exit_code(status);
    if (status != TRM_OK && j->world != NULL && trm_world_size(j->world) > 1 && !alike) {
        trm_world_abort(j->world, status); /* does not return */
    }
    if (status != TRM_OK && j->talks) {
        print_failure(status);
    }
    trm_generator_destroy(j->generator);
    trm_model_close(j->model);
    trm_world_close(j->world);
    return code;
}
