/* Tuning for the commands that run networks: timing cache, progress, SIGINT. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "launcher/cli/onnx/job.h"

static volatile sig_atomic_t interrupted;

static void note_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* Shows progress on a terminal. */
static bool show_tuning(void *user, int32_t done, int32_t total, double seconds_left)
{
    const onnx_job *j = user;
    if (j->job.is_leader && !settings_flag(j->all, SETTING_QUIET) && isatty(STDERR_FILENO)) {
        if (done >= total) {
            fputs("\r\033[K", stderr);
        } else {
            fprintf(stderr, "\rtuning layer %d of %d, %.0f s left\033[K", done + 1, total, seconds_left);
        }
        fflush(stderr);
    }
    return interrupted == 0;
}

/* A single run takes less time than tuning would: it uses known tactics, unless a level is given. */
static int32_t choose_level(const settings *all)
{
    int32_t level = (int32_t)settings_integer(all, SETTING_OPT_LEVEL);
    bool default_level = strcmp(all->origins[SETTING_OPT_LEVEL], "default") == 0;
    if (settings_flag(all, SETTING_NO_TUNE)) {
        return 0;
    }
    return default_level && (all->command == COMMAND_RUN || all->command == COMMAND_COMPARE) ? 1 : level;
}

/* What both ways of tuning share. */
typedef struct tuning {
    trm_tune_options options;
    char *cache;
    struct sigaction before;
    bool handled;
    double began;
} tuning;

static void tuning_begin(onnx_job *j, tuning *t)
{
    *t = (tuning){.options = TRM_TUNE_OPTIONS_INIT, .began = wall_seconds()};
    t->cache = job_timing_cache(j->all, j->job.world);
    int32_t level = choose_level(j->all);
    t->options.level = level == 0 ? TRM_TUNE_OFF : level;
    t->options.cache = t->cache;
    t->options.progress = show_tuning;
    t->options.progress_user = j;
    struct sigaction act = {.sa_handler = note_interrupt};
    sigemptyset(&act.sa_mask);
    t->handled = sigaction(SIGINT, &act, &t->before) == 0;
}

static void tuning_end(onnx_job *j, tuning *t)
{
    if (t->handled) {
        sigaction(SIGINT, &t->before, NULL);
    }
    trm_free(t->cache);
    if (interrupted) { /* the caller must see that it was a signal */
        signal(SIGINT, SIG_DFL);
        raise(SIGINT);
    }
    j->tune_seconds = wall_seconds() - t->began;
}

/* The tactics of a plan file are used as they are, unless a level is given. */
static bool is_tuned(const onnx_job *j)
{
    return j->n_tactics > 0 && strcmp(j->all->origins[SETTING_OPT_LEVEL], "default") == 0;
}

trm_status onnx_tune(onnx_job *j)
{
    TRM_TRY(trm_context_set_capture(j->context, !settings_flag(j->all, SETTING_NO_CAPTURE)));
    if (choose_level(j->all) == 0 || is_tuned(j)) {
        return TRM_OK;
    }
    tuning t;
    tuning_begin(j, &t);
    trm_status status = trm_context_tune(j->context, &t.options);
    tuning_end(j, &t);
    return status;
}

trm_status onnx_tune_plans(onnx_job *j, trm_plan *const *plans)
{
    if (choose_level(j->all) == 0) {
        return TRM_OK;
    }
    tuning t;
    trm_status status = TRM_OK;
    tuning_begin(j, &t);
    for (int32_t rank = 0; rank < j->n_ranks && status == TRM_OK; rank++) {
        status = trm_plan_tune(plans[rank], j->job.world, &t.options);
    }
    tuning_end(j, &t);
    return status;
}
