/* The methods of the gRPC server. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/version.h>

#include "base/clock.h"
#include "base/error.h"
#include "launcher/serve/grpc/grpc_internal.h"

#define LONGEST_TEXT SHARED_LONGEST_NAME /* no name is longer */

static void fail_damaged(grpc_call *call)
{
    call->failed = true;
    api_fail(&call->error, 400, NULL, NULL, "the message is not of the method's type");
}

static proto_view message_of(const grpc_call *call)
{
    return proto_view_of(call->message.data + GRPC_PREFIX, call->message.size - GRPC_PREFIX);
}

/* Reads text fields 1 .. n; ignores other fields. */
static bool read_texts(grpc_call *call, char (*texts)[LONGEST_TEXT + 1], uint32_t n)
{
    proto_view view = message_of(call);
    proto_field field;
    proto_step step;
    memset(texts, 0, n * sizeof(*texts));
    while ((step = proto_next(&view, &field)) == PROTO_FIELD) {
        if (field.number <= n && field.type == PROTO_BYTES &&
            !proto_text(field.bytes, texts[field.number - 1], sizeof(*texts))) {
            call->failed = true;
            return api_fail(&call->error, 400, NULL, NULL, "field %u is longer than %d bytes, or has a NUL",
                            field.number, LONGEST_TEXT);
        }
    }
    if (step == PROTO_DAMAGED) {
        fail_damaged(call);
    }
    return step == PROTO_END;
}

static void answer_live(grpc_call *call)
{
    proto_put_varint(&call->reply, 1, 1);
}

static void answer_ready(grpc_call *call)
{
    proto_put_varint(&call->reply, 1, repository_is_ready(grpc_get_options(call->server)->repository));
}

/* grpc.health.v1.Health/Check: SERVING 1, NOT_SERVING 2. */
static void answer_health(grpc_call *call)
{
    proto_put_varint(&call->reply, 1, repository_is_ready(grpc_get_options(call->server)->repository) ? 1 : 2);
}

static void answer_server(grpc_call *call)
{
    const char *extensions[SHARED_EXTENSIONS];
    const size_t n = shared_extensions(grpc_get_options(call->server)->regions, extensions);
    proto_put_text(&call->reply, 1, "trireme");
    proto_put_text(&call->reply, 2, trm_version());
    for (size_t i = 0; i < n; i++) {
        proto_put_text(&call->reply, 3, extensions[i]);
    }
}

/* The network that fields 1 and 2 name; NULL after an error. */
static served_network *find_network(grpc_call *call)
{
    char texts[2][LONGEST_TEXT + 1];
    if (!read_texts(call, texts, 2)) {
        return NULL;
    }
    served_network *n = repository_find(grpc_get_options(call->server)->repository, texts[0], texts[1], &call->error);
    call->failed = n == NULL;
    return n;
}

static void answer_network_ready(grpc_call *call)
{
    char texts[2][LONGEST_TEXT + 1];
    api_error error;
    if (!read_texts(call, texts, 2)) {
        return;
    }
    served_network *n = repository_find(grpc_get_options(call->server)->repository, texts[0], texts[1], &error);
    proto_put_varint(&call->reply, 1, n != NULL && served_is_ready(n));
    served_release(n);
}

static void put_tensor(proto_writer *w, uint32_t number, const served_port *port)
{
    const size_t place = proto_begin(w, number);
    proto_put_text(w, 1, port->name);
    proto_put_text(w, 2, infer_type_name(port->dtype));
    proto_put_packed(w, 3, port->dims.d, (size_t)port->dims.n);
    proto_end(w, place);
}

static void answer_metadata(grpc_call *call)
{
    int64_t versions[64];
    char text[24];
    served_network *n = find_network(call);
    if (n == NULL) {
        return;
    }
    const served_options *o = served_get_options(n);
    const size_t count = repository_versions(grpc_get_options(call->server)->repository, o->name, versions, 64);
    proto_put_text(&call->reply, 1, o->name);
    for (size_t i = count; i > 0; i--) {
        snprintf(text, sizeof(text), "%" PRId64, versions[i - 1]);
        proto_put_text(&call->reply, 2, text);
    }
    proto_put_text(&call->reply, 3, o->platform);
    for (int32_t i = 0; i < served_input_count(n); i++) {
        put_tensor(&call->reply, 4, served_input(n, i));
    }
    for (int32_t i = 0; i < served_output_count(n); i++) {
        put_tensor(&call->reply, 5, served_output(n, i));
    }
    served_release(n);
}

/* Numbers of DataType. */
static uint64_t type_number(trm_dtype dtype)
{
    static const uint8_t numbers[TRM_DTYPE_COUNT] = {
        [TRM_BOOL] = 1, [TRM_U8] = 2,  [TRM_U16] = 3,  [TRM_U32] = 4,  [TRM_U64] = 5,  [TRM_I8] = 6,   [TRM_I16] = 7,
        [TRM_I32] = 8,  [TRM_I64] = 9, [TRM_F16] = 10, [TRM_F32] = 11, [TRM_F64] = 12, [TRM_BF16] = 14};
    return numbers[dtype];
}

/* A ModelInput, or a ModelOutput, whose dims are field 3. */
static void put_config_port(proto_writer *w, uint32_t number, uint32_t dims, const served_port *port, int32_t skipped)
{
    const size_t place = proto_begin(w, number);
    proto_put_text(w, 1, port->name);
    proto_put_varint(w, 2, type_number(port->dtype));
    proto_put_packed(w, dims, port->dims.d + skipped, (size_t)(port->dims.n - skipped));
    proto_end(w, place);
}

static void answer_config(grpc_call *call)
{
    served_network *n = find_network(call);
    proto_writer *w = &call->reply;
    if (n == NULL) {
        return;
    }
    const served_options *o = served_get_options(n);
    const int32_t skipped = o->max_batch > 0;
    const size_t config = proto_begin(w, 1);
    proto_put_text(w, 1, o->name);
    proto_put_text(w, 2, o->platform);
    proto_put_varint(w, 4, (uint64_t)o->max_batch);
    for (int32_t i = 0; i < served_input_count(n); i++) {
        put_config_port(w, 5, 4, served_input(n, i), skipped);
    }
    for (int32_t i = 0; i < served_output_count(n); i++) {
        put_config_port(w, 6, 3, served_output(n, i), skipped);
    }
    const size_t group = proto_begin(w, 7);
    proto_put_varint(w, 2, (uint64_t)o->n_contexts);
    proto_end(w, group);
    if (o->joins) {
        int64_t preferred[SERVED_MAX_PREFERRED];
        const size_t batching = proto_begin(w, 11);
        for (int32_t i = 0; i < o->n_preferred; i++) {
            preferred[i] = o->preferred[i];
        }
        proto_put_packed(w, 1, preferred, (size_t)o->n_preferred);
        proto_put_varint(w, 2, (uint64_t)(o->batch_seconds * 1e6 + 0.5));
        proto_end(w, batching);
    }
    proto_end(w, config);
    served_release(n);
}

/* ---- requests -------------------------------------------------------------------------------------------- */

static trm_status write_request(infer_request *request)
{
    const grpc_call *call = request->user;
    return infer_proto_write(request, GRPC_PREFIX, call->streamed);
}

static void finish_request(infer_request *request)
{
    grpc_call_finish(request->user);
}

static bool is_gone(infer_request *request)
{
    return atomic_load(&((grpc_call *)request->user)->gone);
}

static const infer_client grpc_client = {write_request, finish_request, is_gone};

static bool submit(grpc_call *call, served_network *n)
{
    const double left = call->deadline > 0 ? call->deadline - trm_clock_seconds() : 0;
    if (call->deadline > 0 && left <= 0) {
        return api_fail(&call->error, 504, NULL, NULL, "the deadline has passed");
    }
    infer_destroy(call->request);
    call->request = infer_proto_read(n, grpc_get_options(call->server)->regions, message_of(call), &grpc_client, call,
                                     &call->error);
    if (call->request == NULL) {
        return false;
    }
    call->request->trace = *call->trace;
    if (left > 0 && (call->request->queue_seconds <= 0 || left < call->request->queue_seconds)) {
        call->request->queue_seconds = left;
    }
    call->waits = true;
    if (!served_accept(n, call->request, NULL, NULL, &call->error)) {
        call->waits = false;
        return false;
    }
    return true;
}

static void answer_infer(grpc_call *call)
{
    char name[REPOSITORY_LONGEST_NAME + 1], version[24];
    call->failed = !infer_proto_model(message_of(call), name, sizeof(name), version, &call->error);
    for (int turn = call->failed ? SERVED_TURNS : 0; turn < SERVED_TURNS; turn++) {
        served_network *n = repository_find(grpc_get_options(call->server)->repository, name, version, &call->error);
        call->failed = n == NULL || !submit(call, n);
        if (n == NULL || !call->failed || served_is_ready(n)) {
            turn = SERVED_TURNS;
        }
        served_release(n);
    }
}

static void put_duration(proto_writer *w, uint32_t number, const stats_duration *d)
{
    const size_t place = proto_begin(w, number);
    proto_put_varint(w, 1, d->count);
    proto_put_varint(w, 2, d->ns);
    proto_end(w, place);
}

static void put_stats(proto_writer *w, const named_stats *named)
{
    const network_stats *s = &named->stats;
    const size_t outer = proto_begin(w, 1);
    proto_put_text(w, 1, named->name);
    proto_put_text(w, 2, named->version);
    proto_put_varint(w, 3, (uint64_t)s->last_inference);
    proto_put_varint(w, 4, s->inference_count);
    proto_put_varint(w, 5, s->execution_count);
    const size_t inner = proto_begin(w, 6);
    const stats_duration *const durations[] = {&s->success, &s->fail, &s->queue, &s->input, &s->infer, &s->output};
    for (uint32_t i = 0; i < 6; i++) {
        put_duration(w, i + 1, durations[i]);
    }
    proto_end(w, inner);
    for (int32_t i = 0; i < s->n_batches; i++) {
        const size_t batch = proto_begin(w, 7);
        proto_put_varint(w, 1, (uint64_t)s->batches[i].size);
        put_duration(w, 2, &s->batches[i].input);
        put_duration(w, 3, &s->batches[i].infer);
        put_duration(w, 4, &s->batches[i].output);
        proto_end(w, batch);
    }
    proto_end(w, outer);
}

static void answer_stats(grpc_call *call)
{
    char texts[2][LONGEST_TEXT + 1];
    size_t n;
    if (!read_texts(call, texts, 2)) {
        return;
    }
    named_stats *all = repository_stats(grpc_get_options(call->server)->repository, texts[0], texts[1], &n);
    for (size_t i = 0; i < n; i++) {
        put_stats(&call->reply, &all[i]);
    }
    free(all);
    if (n == 0 && texts[0][0] != '\0') {
        call->failed = true;
        api_fail(&call->error, 404, NULL, NULL, "network %.200s is not loaded", texts[0]);
    }
}

/* ---- the repository -------------------------------------------------------------------------------------- */

static void answer_index(grpc_call *call)
{
    proto_view view = message_of(call);
    proto_field field;
    proto_step step;
    bool ready = false;
    size_t n;
    while ((step = proto_next(&view, &field)) == PROTO_FIELD) {
        ready = field.number == 2 && field.type == PROTO_VARINT ? field.value != 0 : ready;
    }
    if (step == PROTO_DAMAGED) {
        fail_damaged(call);
        return;
    }
    repository_entry *entries = repository_index(grpc_get_options(call->server)->repository, ready, &n);
    for (size_t i = 0; i < n; i++) {
        const size_t place = proto_begin(&call->reply, 1);
        proto_put_text(&call->reply, 1, entries[i].name);
        proto_put_text(&call->reply, 2, entries[i].version);
        proto_put_text(&call->reply, 3, entries[i].state);
        proto_put_text(&call->reply, 4, entries[i].reason);
        proto_end(&call->reply, place);
    }
    free(entries);
}

static void finish_job(repository_job *job)
{
    grpc_call_finish(job->user);
}

/* A parameter of a load: an entry of a map of ModelRepositoryParameter. */
static bool read_load_parameter(grpc_call *call, proto_view entry)
{
    proto_field field;
    proto_step step;
    char key[64] = "";
    proto_view value = {0}, text = {0};
    while ((step = proto_next(&entry, &field)) == PROTO_FIELD) {
        if (field.number == 1 && field.type == PROTO_BYTES && !proto_text(field.bytes, key, sizeof(key))) {
            strcpy(key, "?");
        }
        value = field.number == 2 && field.type == PROTO_BYTES ? field.bytes : value;
    }
    while (step == PROTO_END && value.at != value.end && (step = proto_next(&value, &field)) == PROTO_FIELD) {
        text = field.number == 3 && field.type == PROTO_BYTES ? field.bytes : text;
        step = PROTO_END;
    }
    if (step == PROTO_DAMAGED) {
        return api_fail(&call->error, 400, NULL, NULL, "the message is not of the method's type");
    }
    if (strncmp(key, "file:", 5) == 0) {
        return api_fail(&call->error, 400, NULL, NULL, "parameter %s is not supported: put files into the repository",
                        key);
    }
    if (strcmp(key, "config") != 0) {
        return true;
    }
    free(call->job->config);
    call->job->config = malloc(sizeof(*call->job->config));
    if (text.at == NULL || call->job->config == NULL) {
        return api_fail(&call->error, 400, NULL, NULL, "parameter config is not a string of JSON");
    }
    return model_config_parse_json("config", (const char *)text.at, (size_t)(text.end - text.at), call->job->config) ==
               TRM_OK ||
           api_fail(&call->error, 400, NULL, NULL, "%s", trm_last_error());
}

static bool submit_job(grpc_call *call, const char *name, bool unload)
{
    proto_view view = message_of(call);
    proto_field field;
    call->job = repository_job_create(name, unload, &call->error);
    if (call->job == NULL) {
        return false;
    }
    while (!unload && proto_next(&view, &field) == PROTO_FIELD) {
        if (field.number == 3 && field.type == PROTO_BYTES && !read_load_parameter(call, field.bytes)) {
            return false;
        }
    }
    call->job->finish = finish_job;
    call->job->user = call;
    call->waits = true;
    if (!repository_submit(grpc_get_options(call->server)->repository, call->job, NULL, NULL, &call->error)) {
        call->waits = false;
        return false;
    }
    return true;
}

static void start_job(grpc_call *call, bool unload)
{
    char texts[2][LONGEST_TEXT + 1]; /* of the repository and of the network */
    if (read_texts(call, texts, 2) && !submit_job(call, texts[1], unload)) {
        call->failed = true;
    }
}

static void answer_load(grpc_call *call)
{
    start_job(call, false);
}

static void answer_unload(grpc_call *call)
{
    start_job(call, true);
}

/* ---- shared memory --------------------------------------------------------------------------------------- */

static void put_region(proto_writer *w, const shared_info *info)
{
    const size_t entry = proto_begin(w, 1);
    proto_put_text(w, 1, info->name);
    const size_t value = proto_begin(w, 2);
    proto_put_text(w, 1, info->name);
    if (info->kind == SHARED_CUDA) {
        proto_put_varint(w, 2, (uint64_t)info->device);
        proto_put_varint(w, 3, info->size);
    } else {
        proto_put_text(w, 2, info->key);
        proto_put_varint(w, 3, info->offset);
        proto_put_varint(w, 4, info->size);
    }
    proto_end(w, value);
    proto_end(w, entry);
}

static void put_regions(grpc_call *call, shared_kind kind)
{
    char name[1][LONGEST_TEXT + 1];
    size_t n;
    if (!read_texts(call, name, 1)) {
        return;
    }
    shared_info *infos = shared_status(grpc_get_options(call->server)->regions, kind, name[0], &n, &call->error);
    call->failed = infos == NULL;
    for (size_t i = 0; i < n; i++) {
        put_region(&call->reply, &infos[i]);
    }
    free(infos);
}

static void answer_system_status(grpc_call *call)
{
    put_regions(call, SHARED_SYSTEM);
}

static void answer_cuda_status(grpc_call *call)
{
    put_regions(call, SHARED_CUDA);
}

/* Reads the fields of a registration behind its name; false after an error. */
static bool read_numbers(grpc_call *call, uint64_t numbers[5], proto_view *handle)
{
    proto_view view = message_of(call);
    proto_field field;
    proto_step step;
    while ((step = proto_next(&view, &field)) == PROTO_FIELD) {
        if (field.number <= 4 && field.type == PROTO_VARINT) {
            numbers[field.number] = field.value;
        } else if (field.number == 2 && field.type == PROTO_BYTES) {
            *handle = field.bytes;
        }
    }
    if (step == PROTO_DAMAGED) {
        fail_damaged(call);
    }
    return step == PROTO_END;
}

static void answer_system_register(grpc_call *call)
{
    char texts[2][LONGEST_TEXT + 1];
    uint64_t numbers[5] = {0};
    proto_view key;
    if (read_texts(call, texts, 2) && read_numbers(call, numbers, &key)) {
        call->failed = !shared_register(grpc_get_options(call->server)->regions, texts[0], texts[1], numbers[3],
                                        numbers[4], &call->error);
    }
}

static void answer_cuda_register(grpc_call *call)
{
    char name[1][LONGEST_TEXT + 1];
    uint64_t numbers[5] = {0};
    proto_view handle = {0};
    if (read_texts(call, name, 1) && read_numbers(call, numbers, &handle)) {
        call->failed =
            !shared_register_cuda(grpc_get_options(call->server)->regions, name[0], handle.at,
                                  (size_t)(handle.end - handle.at), (int64_t)numbers[3], numbers[4], &call->error);
    }
}

static void unregister(grpc_call *call, shared_kind kind)
{
    char name[1][LONGEST_TEXT + 1];
    if (read_texts(call, name, 1)) {
        call->failed = !shared_unregister(grpc_get_options(call->server)->regions, kind, name[0], &call->error);
    }
}

static void answer_system_unregister(grpc_call *call)
{
    unregister(call, SHARED_SYSTEM);
}

static void answer_cuda_unregister(grpc_call *call)
{
    unregister(call, SHARED_CUDA);
}

#define SERVICE "/inference.GRPCInferenceService/"
static const grpc_method methods[] = {
    {SERVICE "ServerLive", answer_live, true, false},
    {SERVICE "ServerReady", answer_ready, true, false},
    {"/grpc.health.v1.Health/Check", answer_health, true, false},
    {SERVICE "ModelReady", answer_network_ready, false, false},
    {SERVICE "ServerMetadata", answer_server, false, false},
    {SERVICE "ModelMetadata", answer_metadata, false, false},
    {SERVICE "ModelConfig", answer_config, false, false},
    {SERVICE "ModelInfer", answer_infer, false, false},
    {SERVICE "ModelStreamInfer", answer_infer, false, true},
    {SERVICE "ModelStatistics", answer_stats, false, false},
    {SERVICE "RepositoryIndex", answer_index, false, false},
    {SERVICE "RepositoryModelLoad", answer_load, false, false},
    {SERVICE "RepositoryModelUnload", answer_unload, false, false},
    {SERVICE "SystemSharedMemoryStatus", answer_system_status, false, false},
    {SERVICE "SystemSharedMemoryRegister", answer_system_register, false, false},
    {SERVICE "SystemSharedMemoryUnregister", answer_system_unregister, false, false},
    {SERVICE "CudaSharedMemoryStatus", answer_cuda_status, false, false},
    {SERVICE "CudaSharedMemoryRegister", answer_cuda_register, false, false},
    {SERVICE "CudaSharedMemoryUnregister", answer_cuda_unregister, false, false},
};

const grpc_method *grpc_find_method(const char *path)
{
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (strcmp(methods[i].path, path) == 0) {
            return &methods[i];
        }
    }
    return NULL;
}
