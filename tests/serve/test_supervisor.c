/* Ranks that fall silent: what is stopped or sleeps is lost after the beat timeout, what only waits for a processor or
 * has not beaten yet later; what beats but makes no steps after the step timeout. Which cause is reported
 * when a rank is lost and rank 0 reports one too. */
#include "launcher/serve/replicas/supervisor.h"
#include "support/support.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BEAT            0.2
#define LONGEST_SILENCE 600 /* seconds until a process has fallen silent */

typedef struct silence {
    void (*act)(void);
    char state; /* that such a process is in, as proc(5) has it */
} silence;

static void sleep_on(void)
{
    for (;;) {
        pause();
    }
}

static void stop(void)
{
    raise(SIGSTOP);
}

static void compute(void)
{
    for (volatile unsigned i = 0;; i++) {
    }
}

static const silence sleeps = {sleep_on, 'S'}, is_stopped = {stop, 'T'}, computes = {compute, 'R'};

/* Whether a process has fallen silent in that way: on a busy machine it may wait for a processor before. */
static bool is_in_state(pid_t pid, char state)
{
    char path[32], found = '\0';
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    (void)!fscanf(file, "%*d (%*[^)]) %c", &found);
    fclose(file);
    if (found == 'Z') {
        fail_msg("process %d has ended, expected it in state %c", (int)pid, state);
    }
    return found == state;
}

typedef enum message { NOTHING, GREETING, BEATS } message;

static int connect_to(const char *name)
{
    struct sockaddr_un address;
    socklen_t size;
    assert_ok(channel_address(name, &address, &size));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return connect(fd, (struct sockaddr *)&address, size) == 0 ? fd : -1;
}

static ipc_hello hello_of(int32_t rank, int32_t ranks, pid_t pid)
{
    ipc_hello hello;
    memset(&hello, 0, sizeof(hello));
    hello.version = IPC_VERSION;
    hello.rank = rank;
    hello.ranks = ranks;
    hello.pid = pid;
    return hello;
}

/* What a test starts; its tear-down ends it, also where the test has failed. */
static supervisor s;
static bool supervises;
static pid_t rank_started; /* 0: none */

static void start(int32_t ranks, double heartbeat_seconds, double step_seconds)
{
    char *command[] = {"sleep", "1000", NULL};
    assert_ok(supervisor_init(&s, &(supervisor_options){.command = command,
                                                        .ranks = ranks,
                                                        .heartbeat_seconds = heartbeat_seconds,
                                                        .step_seconds = step_seconds}));
    supervises = true;
    assert_ok(supervisor_start(&s, 1));
}

static int end(void **state)
{
    (void)state;
    if (supervises) {
        supervisor_fini(&s);
        supervises = false;
    }
    if (rank_started > 0) {
        const pid_t pid = rank_started;
        rank_started = 0;
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
    return 0;
}

/* A process that connects, greets as rank 0 and beats once, as far as `last`, and then does something else. Returns
 * once it does. */
static void start_rank(message last, const silence *silent)
{
    int said[2];
    char byte = 0;
    assert_int_equal(pipe(said), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ipc_hello hello = hello_of(0, 1, getpid());
        trm_bytes out = {0};
        if (last == BEATS) { /* into the same memory, which a fork shares */
            atomic_store(&s.heartbeats.ranks[0].thread, gettid());
            atomic_store(&s.heartbeats.ranks[0].heartbeats, 1);
        }
        int fd = connect_to(s.name);
        bool done = fd >= 0 && (last < GREETING || ipc_write(&out, IPC_HELLO, &hello, sizeof(hello)) == TRM_OK) &&
                    send(fd, out.data, out.size, 0) == (ssize_t)out.size && write(said[1], &byte, 1) == 1;
        if (done) {
            silent->act();
        }
        _exit(1);
    }
    rank_started = pid;
    close(said[1]);
    assert_int_equal(read(said[0], &byte, 1), 1);
    close(said[0]);
    const time_t began = time(NULL);
    while (!is_in_state(pid, silent->state)) {
        if (time(NULL) - began >= LONGEST_SILENCE) {
            fail_msg("process %d is not in state %c after %d s", (int)pid, silent->state, LONGEST_SILENCE);
        }
        usleep(1000);
    }
}

static void no_frame(void *user, const ipc_frame *frame)
{
    (void)user;
    (void)frame;
    fail_msg("a frame of no interest");
}

/* The seconds of silence after which such a rank is lost. */
static double seconds_until_lost(message last, const silence *silent)
{
    ipc_ready ready;
    bool became_ready;
    double seconds = 0;
    int rank_told;
    start(1, BEAT, 60);
    start_rank(last, silent);
    trm_status status = TRM_OK;
    while (status == TRM_OK) {
        usleep(10000);
        status = supervisor_poll(&s, no_frame, NULL, &became_ready, &ready);
    }
    assert_int_equal(status, TRM_ERROR_LOST_RANK);
    assert_int_equal(sscanf(trm_last_error(), "no heartbeat of rank %d for %lf s", &rank_told, &seconds), 2);
    assert_int_equal(rank_told, last < GREETING ? -1 : 0);
    end(NULL);
    return seconds;
}

static void silent_ranks_are_lost(void **state)
{
    (void)state;
    const silence *const ranks[] = {&sleeps, &is_stopped};
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        double seconds = seconds_until_lost(BEATS, ranks[i]);
        assert_true(seconds >= BEAT && seconds < SUPERVISOR_PATIENCE * BEAT);
    }
}

static void ranks_that_wait_for_processors_are_given_time(void **state)
{
    (void)state;
    assert_true(seconds_until_lost(BEATS, &computes) >= SUPERVISOR_PATIENCE * BEAT);
}

static void ranks_that_start_are_given_time(void **state)
{
    (void)state;
    for (message last = NOTHING; last < BEATS; last++) {
        assert_true(seconds_until_lost(last, &sleeps) >= SUPERVISOR_PATIENCE * BEAT);
        assert_true(seconds_until_lost(last, &is_stopped) < SUPERVISOR_PATIENCE * BEAT);
    }
}

/* One rank's connection is closed; behind it waits what rank 0 says: that it is ready, then why it leaves. */
typedef struct loss {
    int32_t rank; /* whose */
    trm_status told, status;
    const char *words, *cause;
} loss;

static void lose(const loss *row)
{
    ipc_ready ready;
    trm_bytes greets = {0}, leads = {0};
    bool became_ready = true;
    memset(&ready, 0, sizeof(ready));
    start(2, 60, 60);
    ipc_hello hello = hello_of(row->rank, 2, s.child), leader = hello_of(0, 2, s.child);
    leader.leads = 1;
    assert_ok(ipc_write(&greets, IPC_HELLO, &hello, sizeof(hello)));
    assert_ok(ipc_write(&leads, IPC_HELLO, &leader, sizeof(leader)));
    int heartbeat_fd = connect_to(s.name), lead_fd = connect_to(s.name);
    assert_int_equal(send(heartbeat_fd, greets.data, greets.size, 0), greets.size);
    assert_int_equal(send(lead_fd, leads.data, leads.size, 0), leads.size);
    assert_ok(supervisor_poll(&s, no_frame, NULL, &became_ready, &ready));
    assert_int_equal(s.n_links, 2);
    leads.size = 0;
    assert_ok(ipc_write(&leads, IPC_READY, &ready, sizeof(ready)));
    if (row->told != TRM_OK) {
        assert_ok(ipc_write_failure(&leads, row->told, row->words));
    }
    assert_int_equal(send(lead_fd, leads.data, leads.size, 0), leads.size);
    close(heartbeat_fd);
    trm_status status = supervisor_poll(&s, no_frame, NULL, &became_ready, &ready);
    assert_int_equal(status, row->status);
    assert_string_equal(trm_last_error(), row->cause);
    assert_false(became_ready); /* or a first start that failed would be tried again */
    close(lead_fd);
    end(NULL);
    trm_bytes_fini(&greets);
    trm_bytes_fini(&leads);
}

static void the_first_cause_is_told(void **state)
{
    (void)state;
    const loss rows[] = {
        {1, TRM_OK, TRM_ERROR_LOST_RANK, NULL, "rank 1 exited"},
        {1, TRM_ERROR_LOST_RANK, TRM_ERROR_LOST_RANK, "waited for rank 1", "rank 1 exited"},
        {0, TRM_ERROR_LOST_RANK, TRM_ERROR_LOST_RANK, "waited for rank 1", "waited for rank 1"},
        {1, TRM_ERROR_OUT_OF_MEMORY, TRM_ERROR_OUT_OF_MEMORY, "no memory", "no memory"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        lose(&rows[i]);
    }
}

/* Rank 0 connects to say why it ends, and ends, when the supervisor has looked who is new and not yet who has died. */
static void end_in_between(void *user, const ipc_frame *frame)
{
    int *lead_fd = user;
    trm_bytes out = {0};
    ipc_hello hello = hello_of(0, 1, rank_started);
    hello.leads = 1;
    assert_int_equal(frame->kind, IPC_END);
    assert_ok(ipc_write(&out, IPC_HELLO, &hello, sizeof(hello)));
    assert_ok(ipc_write_failure(&out, TRM_ERROR_INVALID_MODEL, "no such model"));
    *lead_fd = connect_to(s.name);
    assert_int_equal(send(*lead_fd, out.data, out.size, 0), out.size);
    trm_bytes_fini(&out);
    kill(rank_started, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)rank_started, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
}

static void a_cause_told_in_the_last_moment_is_heard(void **state)
{
    (void)state;
    ipc_ready ready;
    trm_bytes out = {0};
    bool became_ready;
    int lead_fd = -1;
    start(1, 60, 60);
    start_rank(NOTHING, &sleeps);
    ipc_hello hello = hello_of(0, 1, rank_started);
    assert_ok(ipc_write(&out, IPC_HELLO, &hello, sizeof(hello)));
    assert_ok(ipc_write(&out, IPC_END, NULL, 0)); /* the supervisor hands it on */
    int heartbeat_fd = connect_to(s.name);
    assert_int_equal(send(heartbeat_fd, out.data, out.size, 0), out.size);
    trm_status status = supervisor_poll(&s, end_in_between, &lead_fd, &became_ready, &ready);
    assert_int_equal(status, TRM_ERROR_INVALID_MODEL);
    assert_string_equal(trm_last_error(), "no such model");
    close(heartbeat_fd);
    close(lead_fd);
    end(NULL);
    trm_bytes_fini(&out);
}

/* Two ranks of which both threads that beat live, so that only what the others do tells; seconds until one is lost. */
typedef struct idling {
    unsigned turns[2]; /* a look of the supervisor */
    bool busy;         /* rank 0 */
    unsigned steps;    /* of rank 0 a look */
    const char *cause; /* NULL: none is lost */
    unsigned made[2];  /* steps before */
    bool hears;        /* rank 1, at the first look, of a step */
} idling;

static void idle(const idling *row)
{
    ipc_ready ready;
    bool became_ready;
    int fds[2];
    double seconds = 0;
    start(2, 60, 0.3);
    for (int32_t i = 0; i < 2; i++) {
        ipc_hello hello = hello_of(i, 2, s.child);
        trm_bytes out = {0};
        assert_ok(ipc_write(&out, IPC_HELLO, &hello, sizeof(hello)));
        fds[i] = connect_to(s.name);
        assert_int_equal(send(fds[i], out.data, out.size, 0), out.size);
        trm_bytes_fini(&out);
    }
    assert_ok(supervisor_poll(&s, no_frame, NULL, &became_ready, &ready));
    heartbeats seen[2];
    for (int32_t i = 0; i < 2; i++) {
        assert_ok(heartbeats_receive(&seen[i], fds[i], 2, 1));
        atomic_store(&seen[i].ranks[i].turns, row->turns[i] > 0); /* else it loads still */
        atomic_store(&seen[i].ranks[i].steps, row->made[i]);
    }
    atomic_store(&seen[0].ranks[0].busy, row->busy);
    trm_status status = TRM_OK;
    const double began = supervisor_clock();
    while (status == TRM_OK && seconds < 1) {
        usleep(10000);
        for (int32_t i = 0; i < 2; i++) {
            atomic_fetch_add(&seen[i].ranks[i].heartbeats, 1);
            atomic_fetch_add(&seen[i].ranks[i].turns, row->turns[i] > 1 ? row->turns[i] : 0);
        }
        atomic_fetch_add(&seen[0].ranks[0].steps, row->steps);
        status = supervisor_poll(&s, no_frame, NULL, &became_ready, &ready);
        if (row->hears && seconds == 0) {
            atomic_fetch_add(&seen[1].ranks[1].turns, 1);
            atomic_store(&seen[1].ranks[1].busy, true);
        }
        seconds = supervisor_clock() - began;
    }
    assert_int_equal(status, row->cause == NULL ? TRM_OK : TRM_ERROR_LOST_RANK);
    if (row->cause != NULL) {
        assert_true(seconds >= 0.25);
        assert_non_null(strstr(trm_last_error(), row->cause));
    }
    for (int32_t i = 0; i < 2; i++) {
        heartbeats_close(&seen[i]);
        close(fds[i]);
    }
    end(NULL);
}

static void ranks_that_make_nothing_are_lost(void **state)
{
    (void)state;
    static const idling rows[] = {
        {{0, 0}, false, 0, NULL, {0, 0}, false}, /* they load */
        {{2, 2}, false, 0, NULL, {0, 0}, false},
        {{2, 2}, true, 1, NULL, {0, 0}, false},
        {{2, 1}, false, 0, "rank 1 has not polled for a step for ", {0, 0}, false},
        {{1, 2}, false, 0, "rank 0 has not polled for a step for ", {0, 0}, false},
        {{2, 2}, true, 0, "rank 0 has not finished a step for ", {0, 0}, false},
        {{1, 1}, true, 0, "rank 1 has not finished a step for ", {9, 8}, true},
        {{1, 1}, true, 0, "rank 0 has not finished a step for ", {8, 8}, true}, /* it stands still for longer */
        {{1, 1}, true, 0, "rank 0 has not finished a step for ", {8, 9}, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        idle(&rows[i]);
    }
}

/* A job that hangs before its ranks connect, or while they load; what loads has time. */
static void starts_without_progress_are_lost(void **state)
{
    (void)state;
    ipc_ready ready;
    bool became_ready;
    trm_bytes out = {0};
    for (int32_t connected = 0; connected < 2; connected++) {
        int fd = -1;
        start(2, 60, 60);
        s.options.start_seconds = 0.5;
        if (connected > 0) {
            ipc_hello hello = hello_of(1, 2, s.child);
            assert_ok(ipc_write(&out, IPC_HELLO, &hello, sizeof(hello)));
            fd = connect_to(s.name);
            assert_int_equal(send(fd, out.data, out.size, 0), out.size);
            for (int32_t i = 0; i < 10; i++) { /* together more than the time for progress */
                assert_ok(supervisor_poll(&s, no_frame, NULL, &became_ready, &ready));
                atomic_store(&s.heartbeats.ranks[1].loaded, (unsigned long long)i);
                s.progressed -= 0.4;
            }
        }
        trm_status status = TRM_OK;
        while (status == TRM_OK) {
            usleep(10000);
            status = supervisor_poll(&s, no_frame, NULL, &became_ready, &ready);
        }
        char cause[96];
        snprintf(cause, sizeof(cause), "%d of 2 ranks connected", connected);
        assert_int_equal(status, TRM_ERROR_LOST_RANK);
        assert_non_null(strstr(trm_last_error(), cause));
        close(fd);
        end(NULL);
    }
    trm_bytes_fini(&out);
}

static void memory_of_other_ranks_is_refused(void **state)
{
    (void)state;
    int ends[2];
    heartbeats made, got;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_ok(heartbeats_create(&made, 3));
    assert_ok(heartbeats_send(&made, ends[0]));
    assert_fails(heartbeats_receive(&got, ends[1], 2, 1), TRM_ERROR_IO, "not for 2 ranks");
    assert_int_not_equal(ftruncate(made.fd, 0), 0); /* or the front end could be killed by a rank */
    assert_int_equal(send(ends[0], "x", 1, 0), 1);
    assert_fails(heartbeats_receive(&got, ends[1], 3, 1), TRM_ERROR_IO, "without heartbeat memory");
    assert_fails(heartbeats_receive(&got, ends[1], 3, 0.01), TRM_ERROR_IO,
                 "has not sent the heartbeat memory within 0.01 s");
    heartbeats_close(&made);
    close(ends[0]);
    close(ends[1]);
}

static int hand_over_fd;
static const heartbeats *handed_over; /* NULL: nothing */

static void hand_over(int signal)
{
    (void)signal;
    if (handed_over != NULL) {
        (void)heartbeats_send(handed_over, hand_over_fd);
        handed_over = NULL;
    }
}

/* A signal comes every 5 ms; with the first one the memory, or never. */
static void signals_do_not_end_the_wait_for_memory(void **state)
{
    (void)state;
    int ends[2];
    heartbeats made, got;
    struct sigaction action = {.sa_handler = hand_over}, before;
    const struct itimerval often = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_ok(heartbeats_create(&made, 3));
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    hand_over_fd = ends[0];
    handed_over = &made;
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    assert_ok(heartbeats_receive(&got, ends[1], 3, 60));
    const double began = supervisor_clock();
    trm_status status = heartbeats_receive(&made, ends[1], 3, 0.1);
    const double seconds = supervisor_clock() - began;
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_int_equal(status, TRM_ERROR_IO);
    assert_non_null(strstr(trm_last_error(), "has not sent the heartbeat memory within 0.1 s"));
    assert_true(seconds >= 0.1);
    heartbeats_close(&made);
    heartbeats_close(&got);
    close(ends[0]);
    close(ends[1]);
}

/* Whether the job that runs was started with a variable of that value. */
static bool job_has(const char *variable)
{
    char path[32], text[65536];
    bool found = false;
    size_t size = 0;
    snprintf(path, sizeof(path), "/proc/%d/environ", (int)s.child);
    for (const time_t began = time(NULL); size == 0 && time(NULL) - began < LONGEST_SILENCE;) {
        FILE *file = fopen(path, "r"); /* empty while the program begins */
        assert_non_null(file);
        size = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
    }
    assert_true(size > 0 && size < sizeof(text) - 1);
    text[size] = '\0';
    for (const char *line = text; line < text + size && !found; line += strlen(line) + 1) {
        found = strcmp(line, variable) == 0;
    }
    return found;
}

/* The time that it takes is time in which nobody is served. */
static void the_launcher_does_not_wait_for_ranks_that_end(void **state)
{
    (void)state;
    assert_int_equal(unsetenv("OMPI_MCA_odls_base_sigkill_timeout"), 0);
    start(2, BEAT, 60);
    assert_true(job_has("OMPI_MCA_odls_base_sigkill_timeout=0"));
    end(NULL);
    assert_int_equal(setenv("OMPI_MCA_odls_base_sigkill_timeout", "3", 1), 0);
    start(2, BEAT, 60);
    assert_true(job_has("OMPI_MCA_odls_base_sigkill_timeout=3"));
    assert_false(job_has("OMPI_MCA_odls_base_sigkill_timeout=0"));
    end(NULL);
    assert_int_equal(unsetenv("OMPI_MCA_odls_base_sigkill_timeout"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_launcher_does_not_wait_for_ranks_that_end, end),
        cmocka_unit_test_teardown(silent_ranks_are_lost, end),
        cmocka_unit_test_teardown(ranks_that_wait_for_processors_are_given_time, end),
        cmocka_unit_test_teardown(ranks_that_start_are_given_time, end),
        cmocka_unit_test_teardown(the_first_cause_is_told, end),
        cmocka_unit_test_teardown(a_cause_told_in_the_last_moment_is_heard, end),
        cmocka_unit_test_teardown(ranks_that_make_nothing_are_lost, end),
        cmocka_unit_test_teardown(starts_without_progress_are_lost, end),
        cmocka_unit_test(memory_of_other_ranks_is_refused),
        cmocka_unit_test(signals_do_not_end_the_wait_for_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
