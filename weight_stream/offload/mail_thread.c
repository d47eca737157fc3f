/* Polls for 5 ms after a request, then sleeps between looks. */
#include "weight_stream/offload/mail_thread.h"

#include <time.h>

#include "base/clock.h"
#include "base/error.h"

/* The thread polls this long after a request, then looks less often: while steps run, and while none do. */
#define POLL_SECONDS 5e-3
#define LOOKS        64
#define SHORT_SLEEP                                                                                                    \
    (struct timespec)                                                                                                  \
    {                                                                                                                  \
        0, 50000                                                                                                       \
    }
#define LONG_SLEEP                                                                                                     \
    (struct timespec)                                                                                                  \
    {                                                                                                                  \
        0, 1000000                                                                                                     \
    }
#define SLEEPY 1.0 /* seconds without a request */

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void *answer_all(void *user)
{
    trm_mail_thread *mail = user;
    int64_t answered = 0;
    double since = trm_clock_seconds();
    while (!atomic_load(&mail->stop)) {
        int64_t posted = answered;
        for (int32_t i = 0; posted == answered && i < LOOKS; i++) {
            posted = __atomic_load_n(mail->posted, __ATOMIC_ACQUIRE);
            if (posted == answered) {
                relax();
            }
        }
        if (posted != answered) {
            mail->answer(mail->user);
            answered = posted;
            since = trm_clock_seconds();
            continue;
        }
        const double idle = trm_clock_seconds() - since;
        if (idle > POLL_SECONDS) {
            nanosleep(idle > SLEEPY ? &LONG_SLEEP : &SHORT_SLEEP, NULL);
        }
    }
    return NULL;
}

trm_status trm_mail_thread_start(trm_mail_thread *mail, const int64_t *posted, trm_host_task_fn answer, void *user)
{
    mail->posted = posted;
    mail->answer = answer;
    mail->user = user;
    atomic_init(&mail->stop, false);
    const int error = pthread_create(&mail->thread, NULL, answer_all, mail);
    if (error != 0) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "cannot start the thread that answers requests about experts (error %d)", error);
    }
    mail->has_thread = true;
    return TRM_OK;
}

void trm_mail_thread_stop(trm_mail_thread *mail)
{
    if (mail->has_thread) {
        atomic_store(&mail->stop, true);
        pthread_join(mail->thread, NULL);
        mail->has_thread = false;
    }
}
