/* Tuning for the commands that run networks: timing cache, progress with the time left, SIGINT. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "launcher/cli/onnx_job.h"

static volatile sig_atomic_t interrupted;

static void note_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* A line on a terminal, nothing elsewhere. */
static bool show_tuning(void *user, int32_t done, int32_t total, double seconds_left)
{
    const onnx_job *j = user;
    if (j->job.talks && !settings_flag(j->all, SETTING_QUIET) && isatty(STDERR_FILENO)) {
        if (done >= total) {
            fputs("\r\033[K", stderr);
        } else {
            fprintf(stderr, "\rtuning layer %d of %d, %.0f s left\033[K", done + 1, total, seconds_left);
        }
        fflush(stderr);
    }
    return interrupted == 0;
}

/* One run is over sooner than algorithms are timed: it takes those that are known, unless it is told otherwise. */
static int32_t choose_level(const settings *all)
{
    int32_t level = (int32_t)settings_integer(all, SETTING_OPT_LEVEL);
    bool default_level = strcmp(all->origins[SETTING_OPT_LEVEL], "default") == 0;
    if (settings_flag(all, SETTING_NO_TUNE)) {
        return 0;
    }
    return default_level && all->command == COMMAND_RUN ? 1 : level;
}

trm_status onnx_tune(onnx_job *j)
{
    double began = wall_seconds();
    TRM_TRY(trm_context_set_capture(j->context, !settings_flag(j->all, SETTING_NO_CAPTURE)));
    trm_tune_options options = TRM_TUNE_OPTIONS_INIT;
    options.level = choose_level(j->all);
    if (options.level == 0 || j->backend == TRM_BACKEND_HOST) {
        return TRM_OK;
    }
    char *cache = job_timing_cache(j->all, j->job.world);
    options.cache = cache;
    options.progress = show_tuning;
    options.progress_user = j;
    struct sigaction act = {.sa_handler = note_interrupt}, before;
    sigemptyset(&act.sa_mask);
    bool handled = sigaction(SIGINT, &act, &before) == 0;
    trm_status status = trm_context_tune(j->context, &options);
    if (handled) {
        sigaction(SIGINT, &before, NULL);
    }
    trm_free(cache);
    if (interrupted) { /* what called us is to see that it was a signal */
        signal(SIGINT, SIG_DFL);
        raise(SIGINT);
    }
    j->tune_seconds = wall_seconds() - began;
    return status;
}
