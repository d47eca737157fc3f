/* --timeline: when it begins, and signals that end the process. */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include "base/error.h"
#include "launcher/cli/job/job.h"

static sem_t signalled;
static volatile sig_atomic_t signal_number;

static void note_signal(int number)
{
    signal_number = number;
    sem_post(&signalled);
}

/* Waits for a signal, writes the timeline and lets the signal end the process. A handler may not write files. */
static void *save_main(void *user)
{
    (void)user;
    while (sem_wait(&signalled) != 0) {
    }
    if (trm_timeline_save() != TRM_OK) {
        print_failure(TRM_ERROR_IO);
    }
    signal(signal_number, SIG_DFL);
    kill(getpid(), signal_number);
    return NULL;
}

/* The second signal ends the process at once. serve handles them itself, and its ranks end when it says so. */
static trm_status save_on_signals(void)
{
    const struct sigaction act = {.sa_handler = note_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    pthread_t thread;
    if (sem_init(&signalled, 0, 0) != 0 || pthread_create(&thread, NULL, save_main, NULL) != 0) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "cannot start the thread that writes a timeline after a signal");
    }
    pthread_detach(thread);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    return TRM_OK;
}

trm_status job_begin_timeline(job *j)
{
    const char *path = settings_text(j->all, SETTING_TIMELINE);
    if (path == NULL || (j->all->command & (COMMAND_RUN | COMMAND_BENCH | COMMAND_SERVE | COMMAND_SERVE_WORKER)) == 0) {
        return TRM_OK;
    }
    TRM_TRY(trm_timeline_begin(j->world, path));
    const trm_status status = j->all->command == COMMAND_SERVE ? TRM_OK : save_on_signals();
    return trm_world_all_ok(j->world, status);
}
