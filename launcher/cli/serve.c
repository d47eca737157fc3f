/* `trireme serve`: the HTTP front end, which starts the ranks as a separate job. `trireme serve-worker`: one of the
 * ranks. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "base/unit.h"
#include "launcher/cli/commands.h"
#include "launcher/cli/job/job.h"
#include "launcher/cli/job/tokenizer_thread.h"
#include "launcher/cli/onnx/job.h"
#include "launcher/cli/serve.h"
#include "launcher/cli/serve_models.h"
#include "launcher/serve/http/server.h"
#include "launcher/serve/log/log_writer.h"
#include "launcher/serve/replicas/model_pool.h"
#include "launcher/serve/worker/worker.h"

#define MAX_RESTARTS       3
#define SEQUENCES          256
#define FEW_SEQUENCES      16
#define UNKNOWN_CONTEXT    4096 /* as the generator has it */
#define LAST_LINES_SECONDS 1    /* for the log to be read when the server has ended */

typedef struct serve_command {
    const settings *all;
    log_writer *log;
    int32_t ranks;
    serve_model *models;                 /* [n_models] */
    served_model served[MAX_OPERANDS];   /* [n_models] */
    dispatcher *jobs[MAX_OPERANDS];      /* [n_models] */
    dispatcher_state seen[MAX_OPERANDS]; /* [n_models] */
    int32_t n_models;
    server *server;
} serve_command;

/* Of all replicas together: one may have to take over all requests. */
static int32_t most_requests(const settings *all)
{
    int64_t most = settings_integer(all, SETTING_MAX_REQUESTS) * settings_integer(all, SETTING_REPLICAS);
    return most < DISPATCHER_MAX_CHOICES ? (int32_t)most : DISPATCHER_MAX_CHOICES;
}

static void log_line(void *user, const char *message)
{
    log_print(user, "%s", message);
}

static void log_message(void *user, trm_log_level level, const char *message)
{
    log_print(user, "%s: %s", log_level_name(level), message);
}

/* Every connection takes a file descriptor. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* A number that Open MPI's launcher sets for its processes; -1 if it is not set. */
static int32_t launched_number(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && *text >= '0' && *text <= '9' ? (int32_t)strtol(text, NULL, 10) : -1;
}

/* Whether this is another process of `mpirun -np N trireme serve` than the first. The first one is the front end and
 * starts N ranks. */
static bool is_spare(void)
{
    return launched_number("OMPI_COMM_WORLD_RANK") > 0 && launched_number("OMPI_COMM_WORLD_SIZE") > 1;
}

/* Removes the variables that begin with one of the names. PMIX_MCA_... of users stay. No other thread runs yet. */
static void forget_variables(const char *const *names, size_t n_names)
{
    char name[128];
    for (size_t i = 0; environ[i] != NULL;) {
        size_t size = strcspn(environ[i], "="), k = 0;
        while (k < n_names && strncmp(environ[i], names[k], strlen(names[k])) != 0) {
            k++;
        }
        const bool theirs = k < n_names && strncmp(environ[i], "PMIX_MCA_", 9) != 0;
        if (theirs && size < sizeof(name) && environ[i][size] == '=') {
            snprintf(name, sizeof(name), "%.*s", (int)size, environ[i]);
            unsetenv(name); /* the next variable moves here */
        } else {
            i++;
        }
    }
}

/* Slurm's variables describe the allocation, in which the ranks' launcher would look for slots and other machines. */
static void forget_allocation(void)
{
    static const char *const names[] = {"SLURM_"};
    forget_variables(names, 1);
}

/* Removes the variables of this process's launcher, which the ranks' own launcher must not see, and the CPU binding,
 * since the ranks share all processors. */
static void forget_launcher(void)
{
    static const char *const names[] = {
        "OMPI_COMM_WORLD_", "OMPI_MCA_orte_",     "OMPI_MCA_ess",     "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir",
        "OMPI_UNIVERSE_",   "OMPI_ARGV",          "OMPI_COMMAND",     "OMPI_APP_CTX_", "OMPI_NUM_APP_CTX",
        "OMPI_FIRST_RANKS", "OMPI_FILE_LOCATION", "OMPI_MCA_shmem_R", "PMIX_",         "PRTE_"};
    forget_variables(names, sizeof(names) / sizeof(names[0]));
    cpu_set_t processors;
    memset(&processors, 0xff, sizeof(processors));
    (void)sched_setaffinity(0, sizeof(processors), &processors);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
}

/* The number given by --ranks, or the number of processes that Open MPI's launcher started. */
static trm_status count_ranks(serve_command *c)
{
    int32_t size = launched_number("OMPI_COMM_WORLD_SIZE"), here = launched_number("OMPI_COMM_WORLD_LOCAL_SIZE");
    const char *origin = c->all->origins[SETTING_RANKS];
    c->ranks = (int32_t)settings_integer(c->all, SETTING_RANKS);
    if (launched_rank() == NULL) {
        forget_allocation();
        return TRM_OK;
    }
    if (size < 1 || here != size) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "serve was started as rank %s of a job%s, but it starts its ranks itself, on one machine: run trireme "
                 "serve MODEL --ranks N",
                 launched_rank(), size > 0 ? " on several machines" : "");
    }
    if (strcmp(origin, "default") != 0 && c->ranks != size) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "ranks is %d (%s), but mpirun started %d processes", c->ranks, origin,
                 size);
    }
    c->ranks = size;
    forget_allocation();
    forget_launcher();
    return TRM_OK;
}

static trm_status prepare(serve_command *c)
{
    trm_mesh mesh;
    TRM_TRY(check_operand(c->all));
    TRM_TRY(count_ranks(c));
    TRM_TRY(trm_mesh_parse(settings_text(c->all, SETTING_MESH), c->ranks, &mesh));
    TRM_TRY(job_check_sharing(c->all, &mesh));
    c->models = calloc((size_t)c->all->n_operands, sizeof(*c->models));
    if (c->models == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d models", c->all->n_operands);
    }
    c->n_models = c->all->n_operands;
    TRM_TRY(serve_models_name(c->all, c->models, c->n_models));
    for (int32_t i = 0; i < c->n_models; i++) {
        TRM_TRY(serve_model_open(&c->models[i], c->all, c->ranks, c->log));
    }
    malloc_trim(0); /* the tokenizers' JSON trees were many times as large as what is kept of them */
    return TRM_OK;
}

server_options serve_common_options(const settings *all, log_writer *log)
{
    return (server_options){.host = settings_text(all, SETTING_HOST),
                            .port = (int32_t)settings_integer(all, SETTING_PORT),
                            .threads = (int32_t)settings_integer(all, SETTING_HTTP_THREADS),
                            .max_connections = (int32_t)settings_integer(all, SETTING_MAX_CONNECTIONS),
                            .max_body = (size_t)settings_integer(all, SETTING_MAX_BODY),
                            .body_seconds = settings_number(all, SETTING_BODY_TIMEOUT),
                            .key_file = settings_text(all, SETTING_API_KEYS),
                            .sleeps = settings_flag(all, SETTING_SLEEP_MODE),
                            .origins = (const char *const *)all->lists[SETTING_CORS_ORIGIN],
                            .n_origins = all->list_counts[SETTING_CORS_ORIGIN],
                            .hosts = (const char *const *)all->lists[SETTING_ALLOW_HOST],
                            .n_hosts = all->list_counts[SETTING_ALLOW_HOST],
                            .tls_certificate = settings_text(all, SETTING_TLS_CERTIFICATE),
                            .tls_key = settings_text(all, SETTING_TLS_KEY),
                            .tls_client_authorities = settings_text(all, SETTING_TLS_CLIENT_AUTHORITIES),
                            .log = log,
                            .access_log = !settings_flag(all, SETTING_QUIET)};
}

void serve_log_address(log_writer *log, const server *started, const server_options *options, const char *what)
{
    const char *host = options->host;
    bool bracket = strchr(host, ':') != NULL; /* an IPv6 address */
    log_print(log, "listening on http%s://%s%s%s:%d, %s", options->tls_key != NULL ? "s" : "", bracket ? "[" : "", host,
              bracket ? "]" : "", server_port(started), what);
    if (server_is_public(started)) {
        log_print(log, "warning: no API keys: whoever reaches %s can use the server (--api-keys FILE)", host);
    }
}

/* Starts the jobs of the only model, or lets those of one among several wait for requests. */
static trm_status start_model(serve_command *c, int32_t index, int output)
{
    const settings *all = c->all;
    serve_model *m = &c->models[index];
    supervisor_options jobs[ROUTER_MAX_REPLICAS];
    for (int32_t i = 0; i < m->n_replicas; i++) {
        jobs[i] = (supervisor_options){.command = m->jobs[i].words,
                                       .ranks = c->ranks,
                                       .output = output,
                                       .heartbeat_seconds = settings_number(all, SETTING_HEARTBEAT_TIMEOUT),
                                       .step_seconds = settings_number(all, SETTING_STEP_TIMEOUT),
                                       .start_seconds = settings_number(all, SETTING_START_TIMEOUT)};
    }
    dispatcher_options options = {.name = c->n_models > 1 ? m->name : NULL,
                                  .on_demand = c->n_models > 1,
                                  .start_seconds = settings_number(all, SETTING_START_TIMEOUT),
                                  .replicas = jobs,
                                  .n_replicas = m->n_replicas,
                                  .prefix_cache = !settings_flag(all, SETTING_NO_PREFIX_CACHE),
                                  .max_requests = most_requests(all),
                                  .request_seconds = settings_number(all, SETTING_REQUEST_TIMEOUT),
                                  .silent_seconds = settings_number(all, SETTING_KEEP_ALIVE),
                                  .adapters = m->adapters,
                                  .n_adapters = m->n_adapters,
                                  .most_restarts = MAX_RESTARTS,
                                  .log = log_line,
                                  .log_user = c->log};
    TRM_TRY(dispatcher_create(&options, &c->jobs[index]));
    c->served[index] = (served_model){.name = m->name,
                                      .folder = m->info.path,
                                      .info = &m->info,
                                      .tokenizer = m->tokenizer,
                                      .chat = m->chat,
                                      .grammars = m->grammars,
                                      .pooling = m->pooling,
                                      .dispatcher = c->jobs[index]};
    return TRM_OK;
}

static trm_status start(serve_command *c)
{
    /* A terminal is read, and shows how far loading is. */
    int output = isatty(STDERR_FILENO) ? STDERR_FILENO : log_writer_pipe(c->log);
    server_options options = serve_common_options(c->all, c->log);
    options.routes = &language_model_routes;
    options.models = c->served;
    options.n_models = c->n_models;
    options.takes_sampling = !settings_flag(c->all, SETTING_NO_GENERATION_CONFIG);
    for (int32_t i = 0; i < c->n_models; i++) {
        TRM_TRY(start_model(c, i, output));
        options.loads = options.loads || serve_model_adapters(&c->models[i], c->all) > 0;
    }
    TRM_TRY(server_create(&options, &c->server));
    char what[SERVER_LONGEST_NAME + 64];
    if (c->n_models > 1) {
        snprintf(what, sizeof(what), "%d models, of which up to %d are loaded at a time", c->n_models,
                 (int)settings_integer(c->all, SETTING_MAX_LOADED_MODELS));
    } else {
        snprintf(what, sizeof(what), "loading %s", c->models[0].name);
    }
    serve_log_address(c->log, c->server, &options, what);
    return TRM_OK;
}

static void log_ready(const serve_command *c, int32_t index)
{
    ipc_ready ready;
    char model[SERVER_LONGEST_NAME + 16] = "", replicas[48] = "";
    dispatcher_get_ready(c->jobs[index], &ready);
    if (c->n_models > 1) {
        snprintf(model, sizeof(model), "model %s: ", c->models[index].name);
    }
    if (c->models[index].n_replicas > 1) {
        snprintf(replicas, sizeof(replicas), "%d replicas, each with ", c->models[index].n_replicas);
    }
    log_print(c->log, "%sready after %.2f s: %sup to %d sequences of %lld tokens, KV cache of %lld tokens", model,
              ready.load_seconds, replicas, ready.max_sequences, (long long)ready.max_context,
              (long long)ready.cache_tokens);
}

/* Waits for a signal or the end of the jobs, and meanwhile chooses the models to load. The first signal drains, the
 * second one ends. */
static trm_status wait_for_end(serve_command *c, const sigset_t *signals)
{
    int seen = 0;
    for (;;) {
        struct timespec pause = {.tv_nsec = c->n_models > 1 ? 20000000 : 100000000};
        int number = sigtimedwait(signals, NULL, &pause);
        if (number == SIGTERM || number == SIGINT) {
            for (int32_t i = 0; i < c->n_models; i++) {
                dispatcher_drain(c->jobs[i], seen == 0 ? settings_number(c->all, SETTING_DRAIN_TIMEOUT) : 0);
            }
            seen++;
        }
        int32_t ended = 0;
        for (int32_t i = 0; i < c->n_models; i++) {
            const dispatcher_state now = dispatcher_get_state(c->jobs[i]);
            if (now == DISPATCHER_READY && c->seen[i] != DISPATCHER_READY) {
                log_ready(c, i);
            }
            c->seen[i] = now;
            ended += now == DISPATCHER_ENDED;
        }
        if (ended == c->n_models) {
            return dispatcher_failure(c->jobs[0]);
        }
        if (c->n_models > 1) {
            pool_tend(c->jobs, c->n_models, (int32_t)settings_integer(c->all, SETTING_MAX_LOADED_MODELS));
        }
    }
}

/* Afterwards nothing may wait for a standard error that nobody reads. */
static void end_log(serve_command *c)
{
    send_log_to_stderr(settings_flag(c->all, SETTING_VERBOSE));
    int null = log_writer_destroy(c->log, LAST_LINES_SECONDS) ? -1 : open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0) {
        (void)dup2(null, STDERR_FILENO);
        close(null);
    }
}

int command_serve(const settings *all)
{
    serve_command c = {.all = all};
    sigset_t signals;
    if (is_spare()) {
        return 0;
    }
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before any thread is started */
    raise_descriptor_limit();
    mallopt(M_ARENA_MAX, 2); /* requests are allocated on one thread and freed on another: more heaps only grow */
    trm_status status = log_writer_create(STDERR_FILENO, &c.log);
    if (status != TRM_OK) {
        return print_failure(status);
    }
    trm_log_set(log_message, c.log, settings_flag(all, SETTING_VERBOSE) ? TRM_LOG_DEBUG : TRM_LOG_WARNING);
    if (all->n_operands == 1 && (names_network(all->operands[0]) || serve_is_repository(all))) {
        int code = trm_status_exit_code(serve_networks(all, c.log, &signals));
        end_log(&c);
        return code;
    }
    status = prepare(&c);
    if (status == TRM_OK) {
        status = start(&c);
    }
    if (status == TRM_OK) {
        status = wait_for_end(&c, &signals);
    }
    if (status != TRM_OK) {
        log_print(c.log, "%s: %s", trm_status_name(status), trm_last_error());
    }
    int code = trm_status_exit_code(status);
    for (int32_t i = 0; i < c.n_models; i++) {
        dispatcher_stop(c.jobs[i]);
    }
    server_destroy(c.server);
    for (int32_t i = 0; i < c.n_models; i++) {
        dispatcher_destroy(c.jobs[i]);
        serve_model_close(&c.models[i]);
    }
    free(c.models);
    end_log(&c);
    return code;
}

/* A rank of the job. */
typedef struct serve_worker {
    job job;
    tokenizer_thread tokenizer;
    trm_model_info info;
    trm_scheduler *scheduler;
    worker *worker;
} serve_worker;

static void note_loaded(void *user, size_t done, size_t total)
{
    (void)total;
    worker_note_loaded(user, done);
}

static trm_status open_worker(serve_worker *w, const settings *all)
{
    const char *name = getenv(WORKER_SOCKET_VARIABLE);
    if (name == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "serve-worker is started by serve, which sets " WORKER_SOCKET_VARIABLE);
    }
    TRM_TRY(worker_create(name, trm_world_rank(w->job.world), trm_world_size(w->job.world), &w->worker));
    w->job.began = wall_seconds();
    w->job.on_loaded = note_loaded;
    w->job.on_loaded_user = w->worker;
    TRM_TRY(open_model(all, all->operands[0], &w->job.model));
    trm_model_get_info(w->job.model, &w->info);
    tokenizer_thread_start(&w->tokenizer, w->info.path); /* serve has already read and checked it */
    return TRM_OK;
}

/* On a GPU, free memory decides the size of the cache, which sequences share: each may reach the model's context,
 * though not all at once. Host memory is not taken just because it is free. */
static trm_status open_generator(serve_worker *w, const settings *all)
{
    trm_backend backend;
    TRM_TRY(job_backend(all, &backend));
    bool cuda = backend == TRM_BACKEND_CUDA;
    int64_t sequences = settings_integer(all, SETTING_SEQUENCES), context = settings_integer(all, SETTING_CONTEXT);
    int64_t longest = context > 0 ? context : w->info.context_length > 0 ? w->info.context_length : UNKNOWN_CONTEXT;
    TRM_TRY(job_open_draft_model(&w->job));
    /* a draft model's cache has room for every sequence at its longest */
    bool few = !cuda || (w->job.draft_model != NULL && !trm_model_is_draft_head(w->job.draft_model));
    sequences = sequences > 0 ? sequences : few ? FEW_SEQUENCES : SEQUENCES;
    w->job.embeddings = true;
    w->job.cache_tokens = settings_integer(all, SETTING_CACHE_TOKENS);
    if (w->job.cache_tokens == 0 && cuda) {
        w->job.cache_tokens = longest > INT64_MAX / sequences ? INT64_MAX : longest * sequences;
    }
    return job_open_generator(&w->job, context, (int32_t)sequences);
}

/* Logs what is allocated for good before the first request. */
static void print_memory(const char *whose, const trm_generator *generator)
{
    trm_generator_limits limits;
    trm_generator_get_limits(generator, &limits);
    const trm_memory_plan *m = &limits.memory;
    const trm_unit unit = trm_unit_of((double)m->total);
    fprintf(stderr,
            "trireme: memory of %s is %.3f %s: weights %.3f, staging %.3f, cache of %lld tokens %.3f, activations "
            "%.3f, workspace %.3f\n",
            whose, (double)m->total / unit.bytes, unit.name, (double)m->weights / unit.bytes,
            (double)m->staging / unit.bytes, (long long)limits.cache_tokens, (double)m->state / unit.bytes,
            (double)m->activations / unit.bytes, (double)m->workspace / unit.bytes);
}

static trm_status run_worker(serve_worker *w, const settings *all, bool *alike)
{
    *alike = true;
    TRM_TRY(trm_world_all_ok(w->job.world, open_worker(w, all)));
    TRM_TRY(open_generator(w, all));
    TRM_TRY(trm_world_all_ok(w->job.world, tokenizer_thread_wait(&w->tokenizer)));
    malloc_trim(0);
    trm_scheduler_options options = TRM_SCHEDULER_OPTIONS_INIT;
    options.no_prefix_cache = settings_flag(all, SETTING_NO_PREFIX_CACHE);
    options.step_tokens = (int32_t)settings_integer(all, SETTING_STEP_TOKENS);
    options.prefill_chunk = (int32_t)settings_integer(all, SETTING_PREFILL_CHUNK);
    options.max_waiting = 2 * most_requests(all); /* a preempted request that returns counts twice for a step */
    options.on_step = worker_note_step;
    options.on_heard = worker_note_heard;
    options.user = w->worker;
    TRM_TRY(trm_scheduler_create(w->job.generator, &options, &w->scheduler));
    trm_generator_limits limits;
    trm_generator_get_limits(w->job.generator, &limits);
    if (w->job.is_leader && !settings_flag(all, SETTING_QUIET) && settings_integer(all, SETTING_REPLICA) == 0) {
        print_memory("rank 0", w->job.generator);
        if (w->job.draft != NULL) {
            print_memory("its draft model", w->job.draft);
        }
    }
    worker_engine engine = {.scheduler = w->scheduler,
                            .tokenizer = w->tokenizer.tokenizer,
                            .info = &w->info,
                            .max_context = limits.max_context,
                            .cache_tokens = limits.cache_tokens,
                            .max_sequences = limits.max_sequences,
                            .load_seconds = w->job.load_seconds};
    *alike = false;
    return worker_run(w->worker, &engine);
}

int command_serve_worker(const settings *all)
{
    serve_worker w = {0};
    bool alike = true;
    trm_status status = job_open_world(&w.job, all);
    if (status == TRM_OK) {
        status = run_worker(&w, all, &alike);
    }
    if (status != TRM_OK && worker_tell_failure(w.worker, status)) {
        w.job.is_leader = false; /* the front end prints it */
    }
    trm_scheduler_destroy(w.scheduler);
    int code = job_close(&w.job, status, alike);
    worker_destroy(w.worker);
    tokenizer_thread_fini(&w.tokenizer);
    return code;
}
