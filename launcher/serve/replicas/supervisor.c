/* Starts, polls and kills the processes of a job. */
#include "launcher/serve/replicas/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

#define LAUNCHER_GRACE 1.5 /* seconds from SIGTERM to SIGKILL for the launcher of killed ranks */

extern char **environ;

double supervisor_clock(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int open_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static trm_status listen_for_ranks(supervisor *s)
{
    uint64_t random;
    struct sockaddr_un address;
    socklen_t size;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "cannot get random numbers: %s", strerror(errno));
    }
    snprintf(s->name, sizeof(s->name), "trireme-%d-%016llx", (int)getpid(), (unsigned long long)random);
    TRM_TRY(channel_address(s->name, &address, &size));
    s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->listener < 0 || bind(s->listener, (struct sockaddr *)&address, size) != 0 || listen(s->listener, 64) != 0) {
        TRM_FAIL(TRM_ERROR_IO, "cannot listen on socket %s: %s", s->name, strerror(errno));
    }
    return TRM_OK;
}

/* Open MPI puts shared memory and other files here. A launcher that is killed leaves them, and we remove them. Without
 * this folder they are where Open MPI has them by itself. */
static void make_folder(supervisor *s)
{
    if (s->options.ranks > 1) {
        (void)trm_temporary_create("/dev/shm", "trireme-serve", &s->folder);
    }
}

trm_status supervisor_init(supervisor *s, const supervisor_options *options)
{
    *s = (supervisor){.options = *options,
                      .listener = -1,
                      .folder = TRM_TEMPORARY_NONE,
                      .child_pidfd = -1,
                      .heartbeats = HEARTBEATS_NONE};
    make_folder(s);
    trm_status status = listen_for_ranks(s);
    if (status != TRM_OK) {
        supervisor_fini(s);
    }
    return status;
}

static void fini_link(rank_link *link)
{
    channel_fini(&link->channel);
    if (link->pidfd >= 0) {
        close(link->pidfd);
    }
}

static void drop_links(supervisor *s)
{
    for (int32_t i = 0; i < s->n_links; i++) {
        fini_link(&s->links[i]);
    }
    s->n_links = 0;
    s->leader = NULL;
}

void supervisor_fini(supervisor *s)
{
    if (s->child > 0) {
        supervisor_kill(s);
        kill(-s->child, SIGKILL);
        waitpid(s->child, NULL, 0);
    }
    drop_links(s);
    free(s->links);
    if (s->child_pidfd >= 0) {
        close(s->child_pidfd);
    }
    if (s->listener >= 0) {
        close(s->listener);
    }
    trm_temporary_remove(&s->folder);
    heartbeats_close(&s->heartbeats);
    *s = (supervisor){.listener = -1, .folder = TRM_TEMPORARY_NONE, .child_pidfd = -1, .heartbeats = HEARTBEATS_NONE};
}

/* Variables that a job has beside those of this process. */
typedef struct job_variables {
    char text[8][640];
    size_t n;
} job_variables;

static void add_variable(job_variables *all, const char *name, const char *value)
{
    snprintf(all->text[all->n++], sizeof(all->text[0]), "%s=%s", name, value);
}

/* Unless the user has set it. */
static void add_default(job_variables *all, const char *name, const char *value)
{
    if (getenv(name) == NULL) {
        add_variable(all, name, value);
    }
}

/* The environment of the job: this process's, the socket, and the number of jobs that start. Running mpirun as root,
 * usual in containers, was the user's choice already. Open MPI's launcher waits a second before it kills what it told
 * to end, even if that has ended; here ranks are killed by the supervisor, or have said all they had to. */
static char **job_environment(const supervisor *s, int32_t starting, job_variables *added)
{
    char number[16];
    size_t n = 0;
    snprintf(number, sizeof(number), "%d", starting);
    add_variable(added, "TRIREME_SERVE_SOCKET", s->name);
    add_variable(added, "TRIREME_SERVE_STARTING", number);
    add_variable(added, "OMPI_ALLOW_RUN_AS_ROOT", "1");
    add_variable(added, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    add_default(added, "OMPI_MCA_odls_base_sigkill_timeout", "0");
    if (s->folder.path[0] != '\0') {
        add_default(added, "OMPI_MCA_orte_tmpdir_base", s->folder.path);
        add_default(added, "OMPI_MCA_btl_vader_backing_directory", s->folder.path);
    }
    while (environ[n] != NULL) {
        n++;
    }
    char **environment = calloc(n + added->n + 1, sizeof(char *));
    if (environment != NULL) {
        memcpy(environment, environ, n * sizeof(char *));
        for (size_t i = 0; i < added->n; i++) {
            environment[n + i] = added->text[i];
        }
    }
    return environment;
}

trm_status supervisor_start(supervisor *s, int32_t starting)
{
    job_variables added = {.n = 0};
    heartbeats_close(&s->heartbeats); /* processes of the last job may still write to the old memory */
    TRM_TRY(heartbeats_create(&s->heartbeats, s->options.ranks));
    char **environment = job_environment(s, starting, &added);
    if (environment == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the environment of the job");
    }
    sigset_t none, defaults;
    sigemptyset(&none);
    sigfillset(&defaults);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    int output = s->options.output > 0 ? s->options.output : STDERR_FILENO;
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    pid_t pid = 0;
    int failure = posix_spawnp(&pid, s->options.command[0], &actions, &attributes, s->options.command, environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    free(environment);
    if (failure != 0) {
        TRM_FAIL(TRM_ERROR_IO, "cannot start %s: %s", s->options.command[0], strerror(failure));
    }
    s->child = pid;
    s->child_pidfd = open_pidfd(pid);
    s->phase = JOB_LOADING;
    s->started = s->checked = s->progressed = supervisor_clock();
    s->progress = 0;
    s->failure.status = TRM_OK;
    return TRM_OK;
}

void supervisor_watch(const supervisor *s, supervisor_watch_fn fn, void *user)
{
    if (s->listener >= 0) {
        fn(user, s->listener, false);
    }
    if (s->child_pidfd >= 0) {
        fn(user, s->child_pidfd, false);
    }
    for (int32_t i = 0; i < s->n_links; i++) {
        const rank_link *link = &s->links[i];
        if (link->channel.fd >= 0) {
            fn(user, link->channel.fd, channel_has_output(&link->channel));
        }
        if (link->pidfd >= 0) {
            fn(user, link->pidfd, false);
        }
    }
}

/* Kills the ranks at once and asks their launcher, which has to clean up, to end. */
void supervisor_kill(supervisor *s)
{
    for (int32_t i = 0; i < s->n_links; i++) {
        if (s->links[i].pid > 0 && s->links[i].pid != s->child) {
            if (s->links[i].pidfd >= 0) {
                syscall(SYS_pidfd_send_signal, s->links[i].pidfd, SIGKILL, NULL, 0);
            }
        }
    }
    if (s->child > 0) {
        bool launched = s->options.ranks > 1;
        kill(-s->child, launched ? SIGTERM : SIGKILL);
    }
    drop_links(s);
    s->phase = s->child > 0 ? JOB_ENDING : JOB_NONE;
    s->ended = supervisor_clock();
}

static void accept_links(supervisor *s)
{
    for (;;) {
        int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            return;
        }
        if (s->phase == JOB_ENDING || s->phase == JOB_NONE || s->n_links >= 2 * SUPERVISOR_MAX_RANKS) {
            close(fd); /* a rank of a job that is being killed */
            continue;
        }
        struct ucred peer = {0};
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &(socklen_t){sizeof(peer)}) != 0 || peer.uid != geteuid()) {
            close(fd); /* anybody on this host can find the socket */
            continue;
        }
        size_t capacity = (size_t)s->capacity;
        ptrdiff_t leader = s->leader == NULL ? -1 : (rank_link *)(void *)s->leader - s->links;
        if (trm_array_grow((void **)&s->links, &capacity, (size_t)s->n_links + 1, sizeof(rank_link)) != TRM_OK) {
            close(fd);
            return;
        }
        s->capacity = (int32_t)capacity;
        s->leader = leader < 0 ? NULL : &s->links[leader].channel;
        rank_link *link = &s->links[s->n_links++];
        *link = (rank_link){.rank = -1, .pid = peer.pid, .pidfd = -1, .heard = supervisor_clock()};
        channel_init(&link->channel, fd);
    }
}

static trm_status take_hello(supervisor *s, rank_link *link, const ipc_frame *frame)
{
    ipc_hello hello;
    TRM_TRY(ipc_read(frame, &hello, sizeof(hello)));
    if (hello.version != IPC_VERSION || hello.ranks != s->options.ranks || hello.rank < 0 ||
        hello.rank >= hello.ranks) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "rank %d of %d has version %u, expected one of %d ranks with version %d",
                 hello.rank, hello.ranks, hello.version, s->options.ranks, IPC_VERSION);
    }
    link->rank = hello.rank;
    link->leads = hello.leads != 0;
    link->pid = (pid_t)hello.pid;
    if (link->leads) {
        s->leader = &link->channel;
    } else {
        link->pidfd = open_pidfd(link->pid);
        TRM_TRY(heartbeats_send(&s->heartbeats, link->channel.fd));
    }
    return TRM_OK;
}

/* Handles a frame of a rank; frames that are not for the supervisor go to `fn`. */
static trm_status take_frame(supervisor *s, rank_link *link, const ipc_frame *frame, supervisor_frame_fn fn, void *user,
                             bool *became_ready, ipc_ready *ready)
{
    if (link->rank < 0 && frame->kind != IPC_HELLO) {
        TRM_FAIL(TRM_ERROR_IO, "the first message of a rank is of kind %d, expected its hello", (int)frame->kind);
    }
    switch (frame->kind) {
    case IPC_HELLO:
        return take_hello(s, link, frame);
    case IPC_READY:
        TRM_TRY(ipc_read(frame, ready, sizeof(*ready)));
        *became_ready = true;
        s->phase = JOB_READY;
        return TRM_OK;
    case IPC_FAILED: {
        ipc_failure failure;
        TRM_TRY(ipc_read_failure(frame, &failure));
        if (s->failure.status == TRM_OK && failure.status != TRM_OK) {
            trm_error_hold(trm_fail(failure.status, "%s", failure.cause), &s->failure);
        }
        return TRM_OK;
    }
    default:
        fn(user, frame);
        return TRM_OK;
    }
}

static trm_status poll_link(supervisor *s, rank_link *link, supervisor_frame_fn fn, void *user, bool *became_ready,
                            ipc_ready *ready)
{
    bool closed, found;
    ipc_frame frame;
    size_t had = link->channel.in.size - link->channel.in_taken;
    TRM_TRY(channel_receive(&link->channel, &closed));
    if (link->channel.in.size - link->channel.in_taken > had) {
        link->heard = supervisor_clock();
    }
    TRM_TRY(channel_next(&link->channel, &found, &frame));
    while (found) {
        TRM_TRY(take_frame(s, link, &frame, fn, user, became_ready, ready));
        TRM_TRY(channel_next(&link->channel, &found, &frame));
    }
    if (closed) {
        if (s->failure.status != TRM_OK) {
            return trm_error_give_back(&s->failure);
        }
        TRM_FAIL(TRM_ERROR_LOST_RANK, "rank %d exited", link->rank);
    }
    return channel_send(&link->channel);
}

static bool is_readable(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    return fd >= 0 && poll(&entry, 1, 0) > 0;
}

/* The state of a thread as in proc(5); '\0' if unknown. */
static char thread_state(pid_t pid, pid_t thread)
{
    char path[64], text[256];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)thread);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0) {
        close(fd);
    }
    text[n > 0 ? n : 0] = '\0';
    const char *name_end = strrchr(text, ')'); /* the name may contain spaces and parentheses */
    return name_end != NULL && name_end[1] == ' ' ? name_end[2] : '\0';
}

/* The rank's counters; NULL before its hello. */
static heartbeat *heartbeat_of(const supervisor *s, const rank_link *link)
{
    return link->rank >= 0 ? &s->heartbeats.ranks[link->rank] : NULL;
}

/* Whether a silent rank would send heartbeats if it could: its heartbeat thread waits for a processor (R), or for
 * memory or a disk (D). Before the first heartbeat that thread is unknown, and the main thread may sleep while MPI or
 * CUDA starts; only a stopped (T, t) or dead (Z) process is silent for good then. The state is read before the counter,
 * which may grow in between. */
static bool is_held_up(const supervisor *s, const rank_link *link)
{
    heartbeat *own = heartbeat_of(s, link);
    pid_t thread = own != NULL ? (pid_t)atomic_load(&own->thread) : 0;
    char state = link->pid > 0 ? thread_state(link->pid, thread > 0 ? thread : link->pid) : '\0';
    bool waits = thread > 0 ? state == 'R' || state == 'D' : state != 'T' && state != 't' && state != 'Z';
    return waits || (own != NULL ? atomic_load(&own->heartbeats) != link->heartbeats : is_readable(link->channel.fd));
}

/* Reads the counters of a rank. */
static void look_at(const supervisor *s, rank_link *link, double now)
{
    heartbeat *own = heartbeat_of(s, link);
    if (own == NULL) {
        return;
    }
    unsigned long long count = atomic_load(&own->heartbeats);
    bool busy = atomic_load(&own->busy) != 0;
    link->steps = atomic_load(&own->steps);
    unsigned long long done = busy ? link->steps : atomic_load(&own->turns);
    if (count != link->heartbeats) {
        link->heartbeats = count;
        link->heard = now;
    }
    if (busy != link->busy || done != link->done) {
        link->busy = busy;
        link->done = done;
        link->progressed = now;
    }
}

/* Whether the others wait for this rank rather than for `than` (NULL: none yet). All ranks make the same steps, so it
 * is the one with the fewest; among equals, the one that has not moved for longest. */
static bool holds_up(const rank_link *link, const rank_link *than)
{
    return than == NULL || link->steps < than->steps ||
           (link->steps == than->steps && link->progressed < than->progressed);
}

/* Checks for silent ranks and steps that take too long; on failure, *lost is the rank. If this thread was delayed
 * itself, ranks get that time too. */
static trm_status check_heartbeats(supervisor *s, int32_t *lost)
{
    double now = supervisor_clock(), late = now - s->checked;
    const rank_link *stuck = NULL;
    s->checked = now;
    for (int32_t i = 0; i < s->n_links; i++) {
        rank_link *link = &s->links[i];
        if (link->leads) {
            continue;
        }
        if (late > 0.3) {
            link->heard += late;
            link->progressed += late;
        }
        look_at(s, link, now);
        *lost = link->rank;
        double silent = now - link->heard, allowed = s->options.heartbeat_seconds;
        if (silent > allowed && (silent > SUPERVISOR_PATIENCE * allowed || !is_held_up(s, link))) {
            TRM_FAIL(TRM_ERROR_LOST_RANK, "no heartbeat of rank %d for %.2f s", link->rank, silent);
        }
        if (is_readable(link->pidfd)) {
            TRM_FAIL(TRM_ERROR_LOST_RANK, "rank %d, process %d, has died", link->rank, (int)link->pid);
        }
        bool begun = link->busy || link->done > 0; /* check_start limits loading */
        /* Ranks that wait for another may have waited a little longer than it has hung, so half the time makes it a
         * candidate; it is lost after the whole time. */
        if (begun && now - link->progressed > s->options.step_seconds / 2 && holds_up(link, stuck)) {
            stuck = link;
        }
    }
    if (stuck != NULL && now - stuck->progressed > s->options.step_seconds) {
        *lost = stuck->rank;
        TRM_FAIL(TRM_ERROR_LOST_RANK, "rank %d has not %s for %.1f s", stuck->rank,
                 stuck->busy ? "finished a step" : "polled for a step", now - stuck->progressed);
    }
    return TRM_OK;
}

/* Checks that a job that starts makes progress: ranks connect, weights load. */
static trm_status check_start(supervisor *s)
{
    unsigned long long progress = 0;
    int32_t connected = 0;
    const double now = supervisor_clock();
    if (s->phase != JOB_LOADING || s->options.start_seconds <= 0) {
        return TRM_OK;
    }
    for (int32_t i = 0; i < s->n_links; i++) {
        heartbeat *own = s->links[i].leads ? NULL : heartbeat_of(s, &s->links[i]);
        connected += own != NULL;
        progress += own != NULL ? atomic_load(&own->loaded) + 1 : 0;
    }
    if (progress != s->progress) {
        s->progress = progress;
        s->progressed = now;
    }
    if (now - s->progressed > s->options.start_seconds) {
        TRM_FAIL(TRM_ERROR_LOST_RANK, "the job hangs at its start: no progress for %.1f s, %d of %d ranks connected",
                 now - s->progressed, connected, s->options.ranks);
    }
    return TRM_OK;
}

/* Records how the child ended. */
static trm_status child_failure(const supervisor *s)
{
    if (s->failure.status != TRM_OK) {
        return trm_error_give_back(&s->failure);
    }
    if (WIFSIGNALED(s->exit_status)) {
        TRM_FAIL(TRM_ERROR_LOST_RANK, "signal %d ended the job", WTERMSIG(s->exit_status));
    }
    int code = WEXITSTATUS(s->exit_status);
    static const trm_status statuses[] = {TRM_ERROR_LOST_RANK,     TRM_ERROR_LOST_RANK, TRM_ERROR_INVALID_ARGUMENT,
                                          TRM_ERROR_INVALID_MODEL, TRM_ERROR_NO_DEVICE, TRM_ERROR_OUT_OF_MEMORY};
    return trm_fail(code < 6 ? statuses[code] : TRM_ERROR_LOST_RANK, "the job exited with code %d", code);
}

/* Rank `lost` is lost. A message of rank 0, even on a connection just made, may give the cause. If rank 0 reports a
 * lost rank as well, and that is not why it ended itself, it is a consequence of this loss. */
static trm_status better_cause(supervisor *s, trm_status status, int32_t lost, supervisor_frame_fn fn, void *user,
                               bool *became_ready, ipc_ready *ready)
{
    trm_held_error held;
    trm_error_hold(status, &held);
    accept_links(s);
    for (int32_t i = 0; i < s->n_links && s->failure.status == TRM_OK; i++) {
        (void)poll_link(s, &s->links[i], fn, user, became_ready, ready);
    }
    bool follows = lost > 0 && status == TRM_ERROR_LOST_RANK && s->failure.status == TRM_ERROR_LOST_RANK;
    return s->failure.status != TRM_OK && !follows ? trm_error_give_back(&s->failure) : trm_error_give_back(&held);
}

/* Whether the child has exited. */
static bool reap(supervisor *s)
{
    if (s->child > 0 && waitpid(s->child, &s->exit_status, WNOHANG) == s->child) {
        kill(-s->child, SIGKILL); /* remaining processes of its group */
        trm_temporary_empty(&s->folder);
        s->child = 0;
        if (s->child_pidfd >= 0) {
            close(s->child_pidfd);
            s->child_pidfd = -1;
        }
        return true;
    }
    return false;
}

trm_status supervisor_poll(supervisor *s, supervisor_frame_fn fn, void *user, bool *became_ready, ipc_ready *ready)
{
    trm_status status = TRM_OK;
    int32_t lost = -1;
    *became_ready = false;
    accept_links(s);
    for (int32_t i = 0; i < s->n_links && status == TRM_OK; i++) {
        status = poll_link(s, &s->links[i], fn, user, became_ready, ready);
        lost = s->links[i].rank;
    }
    if (status == TRM_OK && s->phase != JOB_ENDING) {
        status = check_heartbeats(s, &lost);
    }
    if (status == TRM_OK) {
        lost = -1;
        status = check_start(s);
    }
    if (status != TRM_OK) {
        status = better_cause(s, status, lost, fn, user, became_ready, ready);
    }
    bool ended = reap(s);
    if (s->phase == JOB_ENDING) {
        if (ended) {
            s->phase = JOB_NONE;
        } else if (supervisor_clock() - s->ended > LAUNCHER_GRACE) {
            kill(-s->child, SIGKILL);
        }
    } else if (s->phase != JOB_NONE && (status != TRM_OK || ended)) {
        if (status == TRM_OK) {
            status = child_failure(s);
        }
        *became_ready = false; /* the start failed, whatever the ranks said before */
        supervisor_kill(s);
        return status;
    }
    return TRM_OK;
}
