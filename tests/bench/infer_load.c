/*
 * Load on a network that is served over gRPC: N clients on connections of their own, each with one request at a time,
 * inputs and outputs in shared memory of the system or of CUDA, or in the messages. Prints elements per second,
 * percentiles of latency, and where the server spent the time of a request (ModelStatistics).
 *
 * Each client first compares the outputs of a request in shared memory with those of one in messages.
 *
 * usage: bench_infer_load HOST:PORT NETWORK [--batches 1,8] [--clients 1,4] [--memory system,cuda,none] [--seconds S]
 *                         [--json FILE]
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nghttp2/nghttp2.h>
#if TRM_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#include "base/clock.h"
#include "launcher/serve/grpc/proto_view.h"

#define SERVICE     "/inference.GRPCInferenceService/"
#define PREFIX      5
#define MAX_PORTS   8
#define MAX_CLIENTS 256
#define WARM_UP     0.5 /* seconds */

typedef enum memory_kind { MEMORY_NONE, MEMORY_SYSTEM, MEMORY_CUDA } memory_kind;
static const char *const memory_names[] = {"none", "system", "cuda"};

typedef struct port {
    char name[256], type[16];
    int64_t shape[8]; /* the first one is the batch */
    size_t n, element;
} port;

typedef struct server {
    char host[256], port[16], network[256];
    port inputs[MAX_PORTS], outputs[MAX_PORTS];
    int n_inputs, n_outputs;
} server;

/* Memory of one tensor that the server also has. */
typedef struct region {
    char name[64];
    size_t bytes;
    char *data; /* as the CPU sees it, or a copy */
    void *device;
} region;

typedef struct client {
    const server *server;
    pthread_t thread;
    int index, fd;
    nghttp2_session *session;
    const trm_bytes *request;
    size_t sent;
    trm_bytes reply;
    int status;
    char message[512];
    bool closed;
    memory_kind memory;
    int64_t batch;
    region inputs[MAX_PORTS], outputs[MAX_PORTS];
    trm_bytes infer; /* the message that it repeats */
    double *latencies;
    size_t n, capacity;
    double began, until;
} client;

typedef struct durations {
    uint64_t count, requests, runs; /* of success; elements; runs */
    double queue, input, infer, output;
} durations;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_infer_load: %s: %s\n", what, why);
    exit(1);
}

/* ---- gRPC ------------------------------------------------------------------------------------------------ */

static ssize_t read_request(nghttp2_session *session, int32_t id, uint8_t *to, size_t most, uint32_t *flags,
                            nghttp2_data_source *source, void *user)
{
    client *c = user;
    const size_t left = c->request->size - c->sent, n = left < most ? left : most;
    (void)session, (void)id, (void)source;
    memcpy(to, c->request->data + c->sent, n);
    c->sent += n;
    *flags |= c->sent == c->request->size ? NGHTTP2_DATA_FLAG_EOF : 0;
    return (ssize_t)n;
}

static int take_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t size, void *user)
{
    (void)session, (void)flags, (void)id;
    return trm_bytes_append(&((client *)user)->reply, (const char *)data, size) == TRM_OK
               ? 0
               : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int take_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_size,
                       const uint8_t *value, size_t value_size, uint8_t flags, void *user)
{
    client *c = user;
    (void)session, (void)frame, (void)name_size, (void)flags;
    if (strcmp((const char *)name, "grpc-status") == 0) {
        c->status = atoi((const char *)value);
    } else if (strcmp((const char *)name, "grpc-message") == 0) {
        snprintf(c->message, sizeof(c->message), "%.*s", (int)value_size, (const char *)value);
    }
    return 0;
}

static int close_stream(nghttp2_session *session, int32_t id, uint32_t error, void *user)
{
    (void)session, (void)id, (void)error;
    ((client *)user)->closed = true;
    return 0;
}

static void open_connection(client *c)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    nghttp2_session_callbacks *callbacks;
    const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
                                               {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 64 << 20}};
    const int yes = 1;
    if (getaddrinfo(c->server->host, c->server->port, &hints, &found) != 0) {
        fail(c->server->host, "no such host");
    }
    c->fd = socket(found->ai_family, SOCK_STREAM, 0);
    if (connect(c->fd, found->ai_addr, found->ai_addrlen) != 0) {
        fail("cannot connect", strerror(errno));
    }
    freeaddrinfo(found);
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, take_data);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, take_header);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, close_stream);
    nghttp2_session_client_new(&c->session, callbacks, c);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, 2);
    nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0, 64 << 20);
}

static void send_frames(client *c)
{
    const uint8_t *data;
    for (ssize_t n = nghttp2_session_mem_send(c->session, &data); n > 0;
         n = nghttp2_session_mem_send(c->session, &data)) {
        for (ssize_t done = 0; done < n;) {
            const ssize_t put = send(c->fd, data + done, (size_t)(n - done), MSG_NOSIGNAL);
            if (put <= 0) {
                fail("cannot send", strerror(errno));
            }
            done += put;
        }
    }
}

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name), strlen(value), 0};
}

/* Sends a message and waits for the reply: grpc-status, and the message in c->reply. */
static int call(client *c, const char *method, const trm_bytes *request)
{
    static _Thread_local uint8_t received[1 << 18];
    char path[128];
    snprintf(path, sizeof(path), SERVICE "%s", method);
    const nghttp2_nv headers[] = {header(":method", "POST"),
                                  header(":scheme", "http"),
                                  header(":path", path),
                                  header(":authority", c->server->host),
                                  header("te", "trailers"),
                                  header("content-type", "application/grpc"),
                                  header("grpc-encoding", "identity")};
    const nghttp2_data_provider body = {.read_callback = read_request};
    c->request = request;
    c->sent = 0;
    c->reply.size = 0;
    c->status = -1;
    c->message[0] = '\0';
    c->closed = false;
    if (nghttp2_submit_request(c->session, NULL, headers, 7, &body, NULL) < 0) {
        fail(method, "cannot begin a stream");
    }
    while (!c->closed) {
        send_frames(c);
        const ssize_t n = recv(c->fd, received, sizeof(received), 0);
        if (n <= 0 || nghttp2_session_mem_recv(c->session, received, (size_t)n) < 0) {
            fail(method, "the connection is lost");
        }
    }
    send_frames(c);
    return c->status;
}

static proto_writer begin_message(void)
{
    proto_writer w = {.status = TRM_OK};
    w.status = trm_bytes_append(&w.bytes, "\0\0\0\0\0", PREFIX);
    return w;
}

static trm_bytes end_message(proto_writer *w)
{
    const size_t size = w->bytes.size - PREFIX;
    for (int i = 0; i < 4; i++) {
        w->bytes.data[1 + i] = (char)(size >> (24 - 8 * i));
    }
    return w->bytes;
}

static void expect_ok(client *c, const char *method, proto_writer *w)
{
    trm_bytes request = end_message(w);
    if (call(c, method, &request) != 0) {
        fail(method, c->message);
    }
    trm_bytes_fini(&request);
}

static proto_view reply_of(const client *c)
{
    return proto_view_of(c->reply.data + PREFIX, c->reply.size < PREFIX ? 0 : c->reply.size - PREFIX);
}

/* ---- the network ----------------------------------------------------------------------------------------- */

static size_t element_size(const char *type)
{
    const size_t n = strlen(type);
    return strcmp(type, "BOOL") == 0 || type[n - 1] == '8'                ? 1
           : strcmp(type, "BF16") == 0 || strcmp(type + n - 2, "16") == 0 ? 2
           : strcmp(type + n - 2, "32") == 0                              ? 4
                                                                          : 8;
}

static void read_port(proto_view view, port *p)
{
    proto_field field;
    *p = (port){.n = 0};
    while (proto_next(&view, &field) == PROTO_FIELD) {
        uint64_t size;
        if (field.number == 1) {
            (void)proto_text(field.bytes, p->name, sizeof(p->name));
        } else if (field.number == 2) {
            (void)proto_text(field.bytes, p->type, sizeof(p->type));
        } else if (field.number == 3) {
            while (proto_number(&field, PROTO_VARINT, &size) == PROTO_FIELD && p->n < 8) {
                p->shape[p->n++] = (int64_t)size;
            }
        }
    }
    p->element = element_size(p->type);
    for (size_t i = 1; i < p->n; i++) {
        if (p->shape[i] < 0) {
            fail(p->name, "a dim behind the batch is open");
        }
    }
}

static void read_network(server *s)
{
    client c = {.server = s};
    proto_writer w = begin_message();
    proto_field field;
    open_connection(&c);
    proto_put_text(&w, 1, s->network);
    expect_ok(&c, "ModelMetadata", &w);
    proto_view view = reply_of(&c);
    while (proto_next(&view, &field) == PROTO_FIELD) {
        if (field.number == 4 && s->n_inputs < MAX_PORTS) {
            read_port(field.bytes, &s->inputs[s->n_inputs++]);
        } else if (field.number == 5 && s->n_outputs < MAX_PORTS) {
            read_port(field.bytes, &s->outputs[s->n_outputs++]);
        }
    }
    nghttp2_session_del(c.session);
    trm_bytes_fini(&c.reply);
    close(c.fd);
}

static size_t port_bytes(const port *p, int64_t batch)
{
    size_t bytes = p->element * (size_t)batch;
    for (size_t i = 1; i < p->n; i++) {
        bytes *= (size_t)p->shape[i];
    }
    return bytes;
}

static durations read_statistics(client *c)
{
    proto_writer w = begin_message();
    proto_field field;
    durations d = {0};
    proto_put_text(&w, 1, c->server->network);
    expect_ok(c, "ModelStatistics", &w);
    proto_view view = reply_of(c), model = {0}, sums = {0};
    while (proto_next(&view, &field) == PROTO_FIELD) {
        model = field.number == 1 ? field.bytes : model;
    }
    while (proto_next(&model, &field) == PROTO_FIELD) {
        d.requests = field.number == 4 ? field.value : d.requests;
        d.runs = field.number == 5 ? field.value : d.runs;
        sums = field.number == 6 ? field.bytes : sums;
    }
    while (proto_next(&sums, &field) == PROTO_FIELD) {
        proto_view pair = field.bytes;
        proto_field part;
        uint64_t count = 0, ns = 0;
        while (proto_next(&pair, &part) == PROTO_FIELD) {
            count = part.number == 1 ? part.value : count;
            ns = part.number == 2 ? part.value : ns;
        }
        d.count = field.number == 1 ? count : d.count;
        double *const to[] = {&d.queue, &d.input, &d.infer, &d.output};
        if (field.number >= 3 && field.number <= 6) {
            *to[field.number - 3] = (double)ns * 1e-6;
        }
    }
    return d;
}

/* ---- tensors --------------------------------------------------------------------------------------------- */

/* Numbers from 0 to 1, or 0 and 1. */
static void fill(const port *p, char *data, size_t bytes, uint64_t seed)
{
    uint64_t state = seed * 2 + 1;
    for (size_t i = 0; i < bytes / p->element; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        const float x = (float)(state >> 40) / (float)(1 << 24);
        const uint16_t half = (uint16_t)(0x3000 + (state >> 52)); /* 0.125 to 2 */
        const uint64_t bit = state >> 63;
        const double y = x;
        const void *from = strcmp(p->type, "FP32") == 0   ? (const void *)&x
                           : strcmp(p->type, "FP64") == 0 ? (const void *)&y
                           : p->type[0] == 'F'            ? (const void *)&half
                                                          : (const void *)&bit;
        memcpy(data + i * p->element, from, p->element);
    }
}

static void register_system(client *c, region *r)
{
    char key[80];
    snprintf(key, sizeof(key), "/%s", r->name);
    const int fd = shm_open(key, O_CREAT | O_RDWR, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)r->bytes) != 0) {
        fail(key, strerror(errno));
    }
    r->data = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    proto_writer w = begin_message();
    proto_put_text(&w, 1, r->name);
    proto_put_text(&w, 2, key);
    proto_put_varint(&w, 4, r->bytes);
    expect_ok(c, "SystemSharedMemoryRegister", &w);
    shm_unlink(key); /* the server has it open */
}

static void register_cuda(client *c, region *r)
{
#if TRM_HAVE_CUDA
    cudaIpcMemHandle_t handle;
    if (cudaMalloc(&r->device, r->bytes) != cudaSuccess || cudaIpcGetMemHandle(&handle, r->device) != cudaSuccess) {
        fail("memory of CUDA", cudaGetErrorString(cudaGetLastError()));
    }
    r->data = malloc(r->bytes);
    proto_writer w = begin_message();
    proto_put_text(&w, 1, r->name);
    proto_put_bytes(&w, 2, &handle, sizeof(handle));
    proto_put_varint(&w, 4, r->bytes);
    expect_ok(c, "CudaSharedMemoryRegister", &w);
#else
    (void)c, (void)r;
    fail("--memory cuda", "this build has no CUDA");
#endif
}

static void move(region *r, bool to_device)
{
#if TRM_HAVE_CUDA
    if (r->device != NULL && cudaMemcpy(to_device ? r->device : r->data, to_device ? r->data : r->device, r->bytes,
                                        cudaMemcpyDefault) != cudaSuccess) {
        fail("memory of CUDA", cudaGetErrorString(cudaGetLastError()));
    }
#else
    (void)r, (void)to_device;
#endif
}

static void create_region(client *c, const port *p, const char *what, region *r)
{
    snprintf(r->name, sizeof(r->name), "load-%d-%d-%s-%td", (int)getpid(), c->index, what,
             what[0] == 'i' ? p - c->server->inputs : p - c->server->outputs);
    r->bytes = port_bytes(p, c->batch);
    if (c->memory == MEMORY_SYSTEM) {
        register_system(c, r);
    } else if (c->memory == MEMORY_CUDA) {
        register_cuda(c, r);
    } else {
        r->data = malloc(r->bytes);
    }
    if (r->data == NULL || r->data == MAP_FAILED) {
        fail(r->name, "out of memory");
    }
    memset(r->data, 0, r->bytes);
    if (what[0] == 'i') {
        fill(p, r->data, r->bytes, (uint64_t)c->index);
    }
    move(r, true);
}

static void free_region(client *c, region *r)
{
    if (c->memory != MEMORY_NONE) {
        proto_writer w = begin_message();
        proto_put_text(&w, 1, r->name);
        expect_ok(c, c->memory == MEMORY_CUDA ? "CudaSharedMemoryUnregister" : "SystemSharedMemoryUnregister", &w);
    }
    if (c->memory == MEMORY_SYSTEM) {
        munmap(r->data, r->bytes);
    } else {
        free(r->data);
    }
#if TRM_HAVE_CUDA
    if (r->device != NULL) {
        cudaFree(r->device);
    }
#endif
    *r = (region){.bytes = 0};
}

static void put_parameter(proto_writer *w, uint32_t number, const char *key, const char *text, uint64_t value)
{
    const size_t entry = proto_begin(w, number);
    proto_put_text(w, 1, key);
    const size_t inner = proto_begin(w, 2);
    proto_put_text(w, 3, text);
    proto_put_varint(w, 2, value);
    proto_end(w, inner);
    proto_end(w, entry);
}

/* A ModelInferRequest; `shared`: its tensors are in their regions. */
static trm_bytes make_request(const client *c, bool shared)
{
    proto_writer w = begin_message();
    proto_put_text(&w, 1, c->server->network);
    for (int i = 0; i < c->server->n_inputs; i++) {
        const port *p = &c->server->inputs[i];
        int64_t shape[8] = {c->batch};
        memcpy(shape + 1, p->shape + 1, 7 * sizeof(shape[0]));
        const size_t tensor = proto_begin(&w, 5);
        proto_put_text(&w, 1, p->name);
        proto_put_text(&w, 2, p->type);
        proto_put_packed(&w, 3, shape, p->n);
        if (shared) {
            put_parameter(&w, 4, "shared_memory_region", c->inputs[i].name, 0);
            put_parameter(&w, 4, "shared_memory_byte_size", NULL, c->inputs[i].bytes);
        }
        proto_end(&w, tensor);
    }
    for (int i = 0; i < c->server->n_outputs; i++) {
        const size_t tensor = proto_begin(&w, 6);
        proto_put_text(&w, 1, c->server->outputs[i].name);
        if (shared) {
            put_parameter(&w, 2, "shared_memory_region", c->outputs[i].name, 0);
            put_parameter(&w, 2, "shared_memory_byte_size", NULL, c->outputs[i].bytes);
        }
        proto_end(&w, tensor);
    }
    for (int i = 0; i < c->server->n_inputs && !shared; i++) {
        proto_put_bytes(&w, 7, c->inputs[i].data, c->inputs[i].bytes);
    }
    return end_message(&w);
}

static double number_at(const port *p, const char *data, size_t i)
{
    float x;
    double y;
    uint16_t h;
    if (strcmp(p->type, "FP32") == 0) {
        memcpy(&x, data + i * 4, sizeof(x));
        return x;
    }
    if (strcmp(p->type, "FP64") == 0) {
        memcpy(&y, data + i * 8, sizeof(y));
        return y;
    }
    if (strcmp(p->type, "FP16") == 0) {
        memcpy(&h, data + i * 2, sizeof(h));
        const int exponent = h >> 10 & 31;
        const double size = exponent == 31  ? INFINITY
                            : exponent == 0 ? ldexp(h & 1023, -24)
                                            : ldexp(1024 + (h & 1023), exponent - 25);
        return h >> 15 ? -size : size;
    }
    return (unsigned char)data[i * p->element];
}

/* Compares outputs in regions with those that a message brings. Joined requests may differ by rounding. */
static void compare(client *c)
{
    proto_field field;
    trm_bytes plain = make_request(c, false);
    int k = 0;
    if (call(c, "ModelInfer", &plain) != 0) {
        fail("ModelInfer", c->message);
    }
    trm_bytes_fini(&plain);
    trm_bytes expected = c->reply;
    c->reply = (trm_bytes){0};
    if (call(c, "ModelInfer", &c->infer) != 0) {
        fail("ModelInfer", c->message);
    }
    proto_view view = proto_view_of(expected.data + PREFIX, expected.size - PREFIX);
    while (proto_next(&view, &field) == PROTO_FIELD) {
        if (field.number != 6) {
            continue;
        }
        const port *p = &c->server->outputs[k];
        double worst = 0, most = 0;
        move(&c->outputs[k], false);
        if ((size_t)(field.bytes.end - field.bytes.at) != c->outputs[k].bytes) {
            fail(p->name, "the output has another size");
        }
        for (size_t i = 0; i < c->outputs[k].bytes / p->element; i++) {
            const double a = number_at(p, (const char *)field.bytes.at, i), b = number_at(p, c->outputs[k].data, i);
            worst = fabs(a - b) > worst ? fabs(a - b) : worst;
            most = fabs(a) > most ? fabs(a) : most;
        }
        if (!(worst <= 2e-2 * most) || most == 0) {
            fail(p->name, "the output in shared memory differs from that of a message");
        }
        k++;
    }
    trm_bytes_fini(&expected);
}

/* ---- measuring ------------------------------------------------------------------------------------------- */

static pthread_barrier_t barrier;

static void open_client(client *c)
{
    open_connection(c);
    for (int i = 0; i < c->server->n_inputs; i++) {
        create_region(c, &c->server->inputs[i], "in", &c->inputs[i]);
    }
    for (int i = 0; i < c->server->n_outputs; i++) {
        create_region(c, &c->server->outputs[i], "out", &c->outputs[i]);
    }
    c->infer = make_request(c, c->memory != MEMORY_NONE);
    if (c->memory != MEMORY_NONE) {
        compare(c);
    }
}

static void close_client(client *c)
{
    for (int i = 0; i < c->server->n_inputs; i++) {
        free_region(c, &c->inputs[i]);
    }
    for (int i = 0; i < c->server->n_outputs; i++) {
        free_region(c, &c->outputs[i]);
    }
    nghttp2_session_del(c->session);
    trm_bytes_fini(&c->reply);
    trm_bytes_fini(&c->infer);
    close(c->fd);
}

static void *run_client(void *user)
{
    client *c = user;
    open_client(c);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* began and until are set */
    for (double now = trm_clock_seconds(); now < c->until;) {
        const double sent = now;
        if (call(c, "ModelInfer", &c->infer) != 0) {
            fail("ModelInfer", c->message);
        }
        now = trm_clock_seconds();
        if (sent >= c->began && now < c->until) {
            if (c->n == c->capacity) {
                c->capacity = c->capacity * 2 + 1024;
                c->latencies = realloc(c->latencies, c->capacity * sizeof(double));
            }
            c->latencies[c->n++] = now - sent;
        }
    }
    pthread_barrier_wait(&barrier);
    close_client(c);
    return NULL;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void wait_until(double time)
{
    for (double left = time - trm_clock_seconds(); left > 0; left = time - trm_clock_seconds()) {
        usleep((useconds_t)(left * 1e6) + 1);
    }
}

static void report(const client *first, int n_clients, double seconds, const durations *before, const durations *after,
                   FILE *json)
{
    static bool begun;
    size_t n = 0, at = 0;
    for (int i = 0; i < n_clients; i++) {
        n += first[i].n;
    }
    double *all = calloc(n + 1, sizeof(*all)), mean = 0;
    for (int i = 0; i < n_clients; i++) {
        for (size_t k = 0; k < first[i].n; k++) {
            all[at++] = first[i].latencies[k];
            mean += first[i].latencies[k] / (double)n;
        }
    }
    qsort(all, n, sizeof(*all), compare_doubles);
    const double rate = (double)n * (double)first->batch / seconds, count = (double)(after->count - before->count);
    const double joined = (double)(after->requests - before->requests) / (double)(after->runs - before->runs);
    double p[4];
    static const double percents[4] = {0.5, 0.9, 0.95, 0.99};
    for (int i = 0; i < 4; i++) {
        p[i] = n > 0 ? 1e3 * all[(size_t)(percents[i] * (double)(n - 1))] : 0;
    }
    if (!begun) {
        printf("memory  batch  clients  elements/s   mean ms     p50     p90     p95     p99 | server ms: queue   input"
               "     run  output  batch of a run\n");
    }
    printf("%-6s %6lld %8d %11.0f %9.3f %7.3f %7.3f %7.3f %7.3f |           %7.3f %7.3f %7.3f %7.3f %8.1f\n",
           memory_names[first->memory], (long long)first->batch, n_clients, rate, 1e3 * mean, p[0], p[1], p[2], p[3],
           (after->queue - before->queue) / count, (after->input - before->input) / count,
           (after->infer - before->infer) / count, (after->output - before->output) / count, joined);
    fflush(stdout);
    if (json != NULL) {
        fprintf(
            json,
            "%s\n  {\"memory\": \"%s\", \"batch\": %lld, \"clients\": %d, \"requests\": %zu, \"elements_per_second\": "
            "%.1f, \"mean_ms\": %.4f, \"p50_ms\": %.4f, \"p90_ms\": %.4f, \"p95_ms\": %.4f, \"p99_ms\": %.4f, "
            "\"server_queue_ms\": %.4f, \"server_input_ms\": %.4f, \"server_infer_ms\": %.4f, \"server_output_ms\": "
            "%.4f, \"run_batch\": %.2f}",
            begun ? "," : "", memory_names[first->memory], (long long)first->batch, n_clients, n, rate, 1e3 * mean,
            p[0], p[1], p[2], p[3], (after->queue - before->queue) / count, (after->input - before->input) / count,
            (after->infer - before->infer) / count, (after->output - before->output) / count, joined);
    }
    begun = true;
    free(all);
}

static void measure(const server *s, memory_kind memory, int64_t batch, int n_clients, double seconds, FILE *json)
{
    client *clients = calloc((size_t)n_clients, sizeof(*clients)), watcher = {.server = s};
    open_connection(&watcher);
    pthread_barrier_init(&barrier, NULL, (unsigned)n_clients + 1);
    for (int i = 0; i < n_clients; i++) {
        clients[i] = (client){.server = s, .index = i, .memory = memory, .batch = batch};
        if (pthread_create(&clients[i].thread, NULL, run_client, &clients[i]) != 0) {
            fail("a client", "cannot start its thread");
        }
    }
    pthread_barrier_wait(&barrier);
    const double began = trm_clock_seconds() + WARM_UP;
    for (int i = 0; i < n_clients; i++) {
        clients[i].began = began;
        clients[i].until = began + seconds;
    }
    pthread_barrier_wait(&barrier);
    wait_until(began);
    const durations before = read_statistics(&watcher);
    wait_until(began + seconds);
    const durations after = read_statistics(&watcher);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < n_clients; i++) {
        pthread_join(clients[i].thread, NULL);
    }
    report(clients, n_clients, seconds, &before, &after, json);
    for (int i = 0; i < n_clients; i++) {
        free(clients[i].latencies);
    }
    pthread_barrier_destroy(&barrier);
    nghttp2_session_del(watcher.session);
    trm_bytes_fini(&watcher.reply);
    close(watcher.fd);
    free(clients);
}

/* ---- the command ----------------------------------------------------------------------------------------- */

static int read_numbers(const char *text, int64_t most, int64_t numbers[16])
{
    int n = 0;
    for (char *end; text != NULL && n < 16; text = *end == ',' ? end + 1 : NULL) {
        numbers[n] = strtoll(text, &end, 10);
        if (end == text || numbers[n] < 1 || numbers[n] > most || (*end != ',' && *end != '\0')) {
            fail(text, "expected numbers with commas between them");
        }
        n++;
    }
    return n;
}

static int read_memories(const char *text, memory_kind kinds[3])
{
    int n = 0;
    for (int k = MEMORY_NONE; k <= MEMORY_CUDA; k++) {
        if (strstr(text, memory_names[k]) != NULL) {
            kinds[n++] = (memory_kind)k;
        }
    }
    return n;
}

int main(int argc, char **argv)
{
    server s = {.n_inputs = 0};
    const char *values[5] = {"1", "1", "system", "3", NULL};
    static const char *const options[5] = {"--batches", "--clients", "--memory", "--seconds", "--json"};
    int64_t batches[16], clients[16];
    memory_kind kinds[3];
    if (argc < 3 || argc % 2 == 0 || strrchr(argv[1], ':') == NULL) {
        fprintf(stderr, "usage: bench_infer_load HOST:PORT NETWORK [--batches 1,8] [--clients 1,4] "
                        "[--memory system,cuda,none] [--seconds S] [--json FILE]\n");
        return 2;
    }
    for (int i = 3; i < argc; i += 2) {
        int k = 0;
        while (k < 5 && strcmp(options[k], argv[i]) != 0) {
            k++;
        }
        if (k == 5) {
            fail(argv[i], "no such option");
        }
        values[k] = argv[i + 1];
    }
    const char *colon = strrchr(argv[1], ':');
    snprintf(s.host, sizeof(s.host), "%.*s", (int)(colon - argv[1]), argv[1]);
    snprintf(s.port, sizeof(s.port), "%s", colon + 1);
    snprintf(s.network, sizeof(s.network), "%s", argv[2]);
    const int n_batches = read_numbers(values[0], 1 << 20, batches), n_kinds = read_memories(values[2], kinds);
    const int n_clients = read_numbers(values[1], MAX_CLIENTS, clients);
    FILE *json = values[4] != NULL ? fopen(values[4], "w") : NULL;
    if (values[4] != NULL && json == NULL) {
        fail(values[4], strerror(errno));
    }
    read_network(&s);
    if (json != NULL) {
        fprintf(json, "[");
    }
    for (int k = 0; k < n_kinds; k++) {
        for (int b = 0; b < n_batches; b++) {
            for (int c = 0; c < n_clients; c++) {
                measure(&s, kinds[k], batches[b], (int)clients[c], atof(values[3]), json);
            }
        }
    }
    if (json != NULL) {
        fprintf(json, "\n]\n");
        fclose(json);
    }
    return 0;
}
