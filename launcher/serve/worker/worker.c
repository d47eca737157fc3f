/* Passes requests from the socket to the scheduler, and events back. */
#include "launcher/serve/worker/worker.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "launcher/serve/ipc/channel.h"
#include "launcher/serve/ipc/heartbeat.h"
#include "launcher/serve/requests/grammar_cache.h"

#define HEARTBEAT_MS   100
#define IDLE_MS        200 /* rank 0 sends to its followers at least this often */
#define GRAMMAR_MS     2   /* between looks at grammars that are being compiled */
#define STATS_SECONDS  0.1
#define ORPHAN_SECONDS 3    /* time for a rank to finish after its front end is gone */
#define FRONT_SECONDS  60.0 /* time for the front end to answer a new connection */

/* The grammar state of a live request. */
typedef struct request_grammar request_grammar;
struct request_grammar {
    request_grammar *next;
    uint64_t id;
    grammar_walk walk;
};

/* A request whose grammar is being compiled. */
typedef struct waiting_request waiting_request;
struct waiting_request {
    waiting_request *next;
    uint64_t id;
    cached_grammar *grammar;
    bool cancelled;  /* as soon as it is submitted, so that its end is reported as any other's */
    ipc_frame frame; /* with a copy of the payload */
    char *payload;
};

/* An adapter of the front end. */
typedef struct known_adapter {
    int32_t key;
    int32_t adapter; /* of the scheduler */
} known_adapter;

struct worker {
    int32_t rank, ranks;
    int heartbeat_fd;
    channel lead; /* of rank 0 */
    pthread_t thread;
    bool thread_runs; /* the heartbeat thread runs */
    atomic_bool stop;
    heartbeats memory;
    heartbeat *own;
    bool ended;              /* the front end has said so, or is gone */
    grammar_cache *grammars; /* NULL until a request has a grammar */
    request_grammar *constrained;
    waiting_request *waiting; /* in the order in which they came */
    known_adapter *adapters;  /* [n_adapters] */
    size_t n_adapters, adapter_capacity;
};

static void drop_grammar_walk(worker *w, uint64_t id);
static void drop_waiting(waiting_request **at);

static trm_status connect_to(const char *name, int *result)
{
    struct sockaddr_un address;
    socklen_t size;
    TRM_TRY(channel_address(name, &address, &size));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, size) != 0) {
        int cause = errno;
        if (fd >= 0) {
            close(fd);
        }
        TRM_FAIL(TRM_ERROR_IO, "cannot connect to the front end at socket %s: %s", name, strerror(cause));
    }
    *result = fd;
    return TRM_OK;
}

/* Sends everything; the front end always reads. */
static bool send_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent <= 0) {
            return false;
        }
        data += sent;
        size -= (size_t)sent;
    }
    return true;
}

static unsigned long long nanoseconds(double seconds)
{
    return (unsigned long long)(seconds * 1e9);
}

void worker_note_step(void *user, const trm_step_times *times)
{
    heartbeat *own = ((worker *)user)->own;
    atomic_store(&own->last_step, nanoseconds(times->seconds));
    atomic_fetch_add(&own->step, nanoseconds(times->seconds));
    atomic_fetch_add(&own->device, nanoseconds(times->device_seconds));
    if (times->layer_seconds > 0) {
        atomic_store(&own->last_collective, nanoseconds(times->collective_seconds));
        atomic_fetch_add(&own->layer, nanoseconds(times->layer_seconds));
        atomic_fetch_add(&own->collective, nanoseconds(times->collective_seconds));
    }
    atomic_fetch_add(&own->steps, 1);
    atomic_fetch_add(&own->turns, 1);
}

void worker_note_loaded(worker *w, size_t bytes)
{
    atomic_store(&w->own->loaded, bytes);
}

void worker_note_heard(void *user, bool has_step)
{
    heartbeat *own = ((worker *)user)->own;
    atomic_fetch_add(&own->turns, 1);
    atomic_store(&own->busy, has_step);
}

/* Sends heartbeats until told to stop. Ends this process if the front end is gone, in case nothing else does. */
static void *heartbeat_main(void *user)
{
    worker *w = user;
    bool alive = true;
    int64_t orphan_count = 0;
    atomic_store(&w->own->thread, gettid());
    while (!atomic_load(&w->stop)) {
        char byte;
        atomic_fetch_add(&w->own->heartbeats, 1);
        alive = alive && recv(w->heartbeat_fd, &byte, 1, MSG_DONTWAIT) != 0;
        if (!alive && ++orphan_count > ORPHAN_SECONDS * 1000 / HEARTBEAT_MS) {
            _exit(trm_status_exit_code(TRM_ERROR_LOST_RANK));
        }
        struct timespec pause = {.tv_nsec = HEARTBEAT_MS * 1000000};
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static trm_status greet(const worker *w, int fd, bool leads)
{
    trm_bytes frame = {0};
    ipc_hello hello;
    memset(&hello, 0, sizeof(hello));
    hello.version = IPC_VERSION;
    hello.rank = w->rank;
    hello.ranks = w->ranks;
    hello.pid = getpid();
    hello.leads = leads;
    TRM_TRY(ipc_write(&frame, IPC_HELLO, &hello, sizeof(hello)));
    bool sent = send_all(fd, frame.data, frame.size);
    trm_bytes_fini(&frame);
    return sent ? TRM_OK : trm_fail(TRM_ERROR_IO, "cannot send a hello to the front end");
}

trm_status worker_create(const char *name, int32_t rank, int32_t ranks, worker **result)
{
    worker *w = calloc(1, sizeof(*w));
    trm_status status;
    if (w == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the connection of a rank");
    }
    w->rank = rank;
    w->ranks = ranks;
    w->heartbeat_fd = -1;
    w->lead.fd = -1;
    w->memory = HEARTBEATS_NONE;
    TRM_TRY_GOTO(status, connect_to(name, &w->heartbeat_fd), destroy);
    TRM_TRY_GOTO(status, greet(w, w->heartbeat_fd, false), destroy);
    TRM_TRY_GOTO(status, heartbeats_receive(&w->memory, w->heartbeat_fd, ranks, FRONT_SECONDS), destroy);
    w->own = &w->memory.ranks[rank];
    if (rank == 0) {
        int fd;
        TRM_TRY_GOTO(status, connect_to(name, &fd), destroy);
        channel_init(&w->lead, fd);
        TRM_TRY_GOTO(status, greet(w, fd, true), destroy);
    }
    if (pthread_create(&w->thread, NULL, heartbeat_main, w) != 0) {
        status = trm_fail(TRM_ERROR_INTERNAL, "cannot start the heartbeat thread");
        goto destroy;
    }
    w->thread_runs = true;
    *result = w;
    return TRM_OK;
destroy:
    worker_destroy(w);
    return status;
}

bool worker_tell_failure(worker *w, trm_status failure)
{
    trm_bytes frame = {0};
    bool reported = w != NULL && w->lead.fd >= 0 && ipc_write_failure(&frame, failure, trm_last_error()) == TRM_OK &&
                    send_all(w->lead.fd, frame.data, frame.size);
    trm_bytes_fini(&frame);
    return reported;
}

void worker_destroy(worker *w)
{
    if (w == NULL) {
        return;
    }
    if (w->thread_runs) {
        atomic_store(&w->stop, true);
        pthread_join(w->thread, NULL);
    }
    if (w->heartbeat_fd >= 0) {
        close(w->heartbeat_fd);
    }
    while (w->constrained != NULL) {
        drop_grammar_walk(w, w->constrained->id);
    }
    while (w->waiting != NULL) {
        grammar_cache_release(w->grammars, w->waiting->grammar);
        drop_waiting(&w->waiting);
    }
    grammar_cache_destroy(w->grammars);
    free(w->adapters);
    channel_fini(&w->lead);
    heartbeats_close(&w->memory);
    free(w);
}

static void drop_grammar_walk(worker *w, uint64_t id)
{
    for (request_grammar **at = &w->constrained; *at != NULL; at = &(*at)->next) {
        request_grammar *g = *at;
        if (g->id == id) {
            cached_grammar *used = g->walk.grammar;
            *at = g->next;
            grammar_walk_fini(&g->walk);
            grammar_cache_release(w->grammars, used);
            free(g);
            return;
        }
    }
}

static trm_status mask_tokens(void *user, uint64_t id, const int32_t *tokens, int64_t n_tokens, uint32_t *mask)
{
    request_grammar *g = user;
    (void)id;
    return grammar_walk_mask(&g->walk, tokens, n_tokens, mask);
}

/* Begins the grammar of a request; takes the reference to `used`. */
static trm_status add_grammar_walk(worker *w, ipc_submission *submission, cached_grammar *used)
{
    request_grammar *g = calloc(1, sizeof(*g));
    trm_status status =
        g == NULL ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the state of a grammar") : TRM_OK;
    status = status == TRM_OK ? grammar_cache_outcome(used) : status;
    status = status == TRM_OK ? grammar_walk_init(used, &g->walk) : status;
    if (status != TRM_OK) {
        grammar_cache_release(w->grammars, used);
        free(g);
        return status;
    }
    g->id = submission->request.id;
    g->next = w->constrained;
    w->constrained = g;
    submission->request.mask = mask_tokens;
    submission->request.mask_user = g;
    return TRM_OK;
}

/* The scheduler's number of an adapter; -1, which it refuses, of one that is not loaded. */
static int32_t find_adapter(const worker *w, int32_t key)
{
    for (size_t i = 0; i < w->n_adapters; i++) {
        if (w->adapters[i].key == key) {
            return w->adapters[i].adapter;
        }
    }
    return key == 0 ? 0 : -1;
}

/* A failure is the answer, unless ranks are lost. */
static trm_status load_adapter(worker *w, const worker_engine *engine, const ipc_adapter *asked)
{
    known_adapter made = {.key = asked->key};
    ipc_adapter outcome = {.key = asked->key, .text = ""};
    outcome.status = trm_array_grow((void **)&w->adapters, &w->adapter_capacity, w->n_adapters + 1, sizeof(made));
    if (outcome.status == TRM_OK) {
        outcome.status = trm_scheduler_load_adapter(engine->scheduler, asked->text, &made.adapter);
    }
    if (outcome.status == TRM_ERROR_LOST_RANK) {
        return outcome.status;
    }
    if (outcome.status == TRM_OK) {
        w->adapters[w->n_adapters++] = made;
    } else {
        outcome.text = trm_last_error();
    }
    return ipc_write_adapter(&w->lead.out, IPC_ADAPTER, &outcome);
}

static void unload_adapter(worker *w, const worker_engine *engine, int32_t key)
{
    for (size_t i = 0; i < w->n_adapters; i++) {
        if (w->adapters[i].key == key) {
            (void)trm_scheduler_unload_adapter(engine->scheduler, w->adapters[i].adapter); /* it is loaded */
            w->adapters[i] = w->adapters[--w->n_adapters];
            return;
        }
    }
}

/* Submits a request with its grammar; NULL: it has none. */
static trm_status submit(worker *w, const worker_engine *engine, const ipc_frame *frame, cached_grammar *used)
{
    ipc_submission submission;
    trm_status status = ipc_read_submission(frame, &submission);
    if (status != TRM_OK) {
        grammar_cache_release(w->grammars, used);
        return status;
    }
    submission.request.adapter = find_adapter(w, submission.request.adapter);
    status = used == NULL ? TRM_OK : add_grammar_walk(w, &submission, used);
    if (status == TRM_OK) {
        status = trm_scheduler_submit(engine->scheduler, &submission.request);
        if (status != TRM_OK) {
            drop_grammar_walk(w, submission.request.id);
        }
    }
    return status == TRM_OK ? TRM_OK : ipc_write_refusal(&w->lead.out, submission.request.id, status, trm_last_error());
}

static void drop_waiting(waiting_request **at)
{
    waiting_request *dropped = *at;
    *at = dropped->next;
    free(dropped->payload);
    free(dropped);
}

/* Keeps a request until its grammar is compiled. */
static trm_status wait_for_grammar(worker *w, const ipc_frame *frame, uint64_t id, cached_grammar *used)
{
    waiting_request *made = calloc(1, sizeof(*made)), **last = &w->waiting;
    char *copy = malloc(frame->size + 1);
    if (made == NULL || copy == NULL) {
        free(made);
        free(copy);
        grammar_cache_release(w->grammars, used);
        trm_status status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a request");
        return ipc_write_refusal(&w->lead.out, id, status, trm_last_error());
    }
    memcpy(copy, frame->payload, frame->size);
    *made = (waiting_request){.id = id, .grammar = used, .frame = *frame, .payload = copy};
    made->frame.payload = copy;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = made;
    return TRM_OK;
}

/* Submits the requests whose grammars have been compiled meanwhile. */
static trm_status submit_waiting(worker *w, const worker_engine *engine)
{
    for (waiting_request **at = &w->waiting; *at != NULL;) {
        if (grammar_cache_is_ready(w->grammars, (*at)->grammar)) {
            const bool cancelled = (*at)->cancelled;
            const uint64_t id = (*at)->id;
            trm_status status = submit(w, engine, &(*at)->frame, (*at)->grammar);
            drop_waiting(at);
            TRM_TRY(status);
            if (cancelled) {
                trm_scheduler_cancel(engine->scheduler, id);
            }
        } else {
            at = &(*at)->next;
        }
    }
    return TRM_OK;
}

static trm_status take_submission(worker *w, const worker_engine *engine, const ipc_frame *frame)
{
    ipc_submission submission;
    cached_grammar *used = NULL;
    TRM_TRY(ipc_read_submission(frame, &submission));
    const api_format format = (api_format)submission.grammar_kind;
    trm_status status = TRM_OK;
    if (format == API_FORMAT_TEXT) {
        return submit(w, engine, frame, NULL);
    }
    if (w->grammars == NULL) {
        status = grammar_cache_create(engine->tokenizer, engine->info->eos_tokens, engine->info->n_eos_tokens,
                                      engine->info->vocab, &w->grammars);
    }
    status = status == TRM_OK ? grammar_cache_ask(w->grammars, format, submission.grammar, &used) : status;
    if (status != TRM_OK) {
        return ipc_write_refusal(&w->lead.out, submission.request.id, status, trm_last_error());
    }
    return grammar_cache_is_ready(w->grammars, used) ? submit(w, engine, frame, used)
                                                     : wait_for_grammar(w, frame, submission.request.id, used);
}

static void cancel(worker *w, const worker_engine *engine, uint64_t id)
{
    for (waiting_request *waiting = w->waiting; waiting != NULL; waiting = waiting->next) {
        if (waiting->id == id) {
            waiting->cancelled = true;
            return;
        }
    }
    trm_scheduler_cancel(engine->scheduler, id);
}

static trm_status take_frame(worker *w, const worker_engine *engine, const ipc_frame *frame)
{
    uint64_t id;
    ipc_adapter adapter;
    switch (frame->kind) {
    case IPC_SUBMIT:
        return take_submission(w, engine, frame);
    case IPC_CANCEL:
        TRM_TRY(ipc_read(frame, &id, sizeof(id)));
        cancel(w, engine, id);
        return TRM_OK;
    case IPC_LOAD:
        TRM_TRY(ipc_read_adapter(frame, &adapter));
        return load_adapter(w, engine, &adapter);
    case IPC_UNLOAD:
        TRM_TRY(ipc_read_adapter(frame, &adapter));
        unload_adapter(w, engine, adapter.key);
        return TRM_OK;
    case IPC_END:
        w->ended = true;
        return TRM_OK;
    default:
        TRM_FAIL(TRM_ERROR_IO, "message of kind %d is not for ranks", (int)frame->kind);
    }
}

/* Handles what has arrived; waits briefly if there is nothing to do. */
static trm_status take_requests(worker *w, const worker_engine *engine)
{
    bool closed, found, work = trm_scheduler_has_work(engine->scheduler);
    struct pollfd entry = {.fd = w->lead.fd, .events = (short)(POLLIN | (channel_has_output(&w->lead) ? POLLOUT : 0))};
    ipc_frame frame;
    if (poll(&entry, 1, work ? 0 : w->waiting != NULL ? GRAMMAR_MS : IDLE_MS) <= 0) {
        return TRM_OK;
    }
    TRM_TRY(channel_receive(&w->lead, &closed));
    TRM_TRY(channel_next(&w->lead, &found, &frame));
    while (found) {
        TRM_TRY(take_frame(w, engine, &frame));
        TRM_TRY(channel_next(&w->lead, &found, &frame));
    }
    w->ended = w->ended || closed;
    return TRM_OK;
}

static double clock_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

typedef struct stall_lines {
    trm_bytes text;
    trm_status status;
} stall_lines;

static void add_stall(void *user, const char *layer, double seconds)
{
    stall_lines *lines = user;
    char line[512];
    int size = snprintf(line, sizeof(line), "%.9f %s\n", seconds, layer);
    lines->status = lines->status == TRM_OK && size < (int)sizeof(line)
                        ? trm_bytes_append(&lines->text, line, (size_t)size)
                        : lines->status;
}

/* With streamed weights, sends the waits of layers after each profiled step. */
static trm_status report_stalls(worker *w, const worker_engine *engine, int64_t *reported_steps)
{
    stall_lines lines = {0};
    ipc_stalls stalls = {.steps = trm_scheduler_stalls(engine->scheduler, NULL, NULL)};
    if (stalls.steps == *reported_steps) {
        return TRM_OK;
    }
    *reported_steps = trm_scheduler_stalls(engine->scheduler, add_stall, &lines);
    trm_status status = lines.status == TRM_OK ? trm_bytes_append(&lines.text, "", 1) : lines.status;
    stalls.layers = lines.text.data;
    status = status == TRM_OK ? ipc_write_stalls(&w->lead.out, &stalls) : status;
    trm_bytes_fini(&lines.text);
    return status;
}

static trm_status lead(worker *w, const worker_engine *engine)
{
    double last_stats = 0;
    int64_t reported_steps = 0;
    ipc_ready ready = {.max_context = engine->max_context,
                       .cache_tokens = engine->cache_tokens,
                       .max_sequences = engine->max_sequences,
                       .block_tokens = TRM_KV_BLOCK_SIZE,
                       .load_seconds = engine->load_seconds};
    TRM_TRY(ipc_write(&w->lead.out, IPC_READY, &ready, sizeof(ready)));
    TRM_TRY(channel_send(&w->lead));
    while (!w->ended) {
        const trm_serving_event *events;
        int32_t n_events;
        atomic_fetch_add(&w->own->turns, 1);
        TRM_TRY(take_requests(w, engine));
        TRM_TRY(submit_waiting(w, engine));
        atomic_store(&w->own->busy, trm_scheduler_has_work(engine->scheduler));
        TRM_TRY(trm_scheduler_step(engine->scheduler, &events, &n_events));
        for (int32_t i = 0; i < n_events; i++) {
            TRM_TRY(ipc_write_event(&w->lead.out, &events[i]));
            if (events[i].kind == TRM_EVENT_FINISHED && w->constrained != NULL) {
                drop_grammar_walk(w, events[i].id);
            }
        }
        trm_scheduler_stats stats;
        trm_scheduler_get_stats(engine->scheduler, &stats);
        atomic_store(&w->own->busy, trm_scheduler_has_work(engine->scheduler));
        if (clock_seconds() - last_stats > STATS_SECONDS) {
            last_stats = clock_seconds();
            TRM_TRY(ipc_write(&w->lead.out, IPC_STATS, &stats, sizeof(stats)));
            TRM_TRY(report_stalls(w, engine, &reported_steps));
        }
        if (channel_send(&w->lead) != TRM_OK) {
            break; /* the front end is gone */
        }
    }
    return trm_scheduler_end(engine->scheduler);
}

trm_status worker_run(worker *w, const worker_engine *engine)
{
    return w->rank == 0 ? lead(w, engine) : trm_scheduler_follow(engine->scheduler);
}
