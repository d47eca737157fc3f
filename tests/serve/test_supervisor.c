/* Ranks that fall silent: what is stopped or sleeps is lost after the beat timeout, what only waits for a processor
 * later. */
#include "launcher/serve/supervisor.h"
#include "support/support.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define BEAT 0.2

typedef void (*silence)(void);

static void sleeps(void)
{
    for (;;) {
        pause();
    }
}

static void is_stopped(void)
{
    raise(SIGSTOP);
}

static void computes(void)
{
    for (volatile unsigned i = 0;; i++) {
    }
}

/* A process that greets as rank 0, beats once and then does something else. Returns once it has said so. */
static pid_t start_rank(const char *path, silence silent)
{
    int said[2];
    char byte = 0;
    assert_int_equal(pipe(said), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        wire_hello hello;
        wire_beat beat;
        trm_bytes out = {0};
        memset(&hello, 0, sizeof(hello));
        memset(&beat, 0, sizeof(beat));
        hello.version = WIRE_VERSION;
        hello.ranks = 1;
        hello.pid = getpid();
        beat.thread = gettid();
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        bool done = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
                    wire_write(&out, WIRE_HELLO, &hello, sizeof(hello)) == TRM_OK &&
                    wire_write(&out, WIRE_BEAT, &beat, sizeof(beat)) == TRM_OK &&
                    send(fd, out.data, out.size, 0) == (ssize_t)out.size && write(said[1], &byte, 1) == 1;
        if (done) {
            silent();
        }
        _exit(1);
    }
    close(said[1]);
    assert_int_equal(read(said[0], &byte, 1), 1);
    close(said[0]);
    return pid;
}

static void no_frame(void *user, const wire_frame *frame)
{
    (void)user;
    (void)frame;
    fail_msg("a frame of no interest");
}

/* The seconds of silence after which such a rank is lost. */
static double seconds_until_lost(silence silent)
{
    char *command[] = {"sleep", "1000", NULL};
    supervisor s;
    wire_ready ready;
    bool became_ready;
    double seconds = 0;
    assert_ok(supervisor_init(
        &s, &(supervisor_options){.command = command, .ranks = 1, .beat_seconds = BEAT, .step_seconds = 60}));
    assert_ok(supervisor_start(&s));
    pid_t rank = start_rank(s.path, silent);
    trm_status status = TRM_OK;
    while (status == TRM_OK) {
        usleep(10000);
        status = supervisor_poll(&s, no_frame, NULL, &became_ready, &ready);
    }
    assert_int_equal(status, TRM_ERROR_LOST_RANK);
    assert_int_equal(sscanf(trm_last_error(), "rank 0 has not been heard for %lf s", &seconds), 1);
    supervisor_fini(&s);
    kill(rank, SIGKILL);
    assert_int_equal(waitpid(rank, NULL, 0), rank);
    return seconds;
}

static void silent_ranks_are_lost(void **state)
{
    (void)state;
    silence ranks[] = {sleeps, is_stopped};
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        double seconds = seconds_until_lost(ranks[i]);
        assert_true(seconds >= BEAT && seconds < SUPERVISOR_PATIENCE * BEAT);
    }
}

static void ranks_that_wait_for_processors_are_given_time(void **state)
{
    (void)state;
    assert_true(seconds_until_lost(computes) >= SUPERVISOR_PATIENCE * BEAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_ranks_are_lost),
        cmocka_unit_test(ranks_that_wait_for_processors_are_given_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
