/* ModelConfig from its tree of fields. */
#include "launcher/serve/network/model_config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/serve/network/pbtxt.h"

typedef struct reader {
    const char *source;
    model_config *config;
} reader;

typedef trm_status read_fn(reader *r, const pbtxt_field *field);

/* A field of a message; ignored if `read` is NULL. */
typedef struct field_row {
    const char *name;
    read_fn *read;
} field_row;

static trm_status fail(const reader *r, const pbtxt_field *field, const char *expected)
{
    TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s, line %d: field %s is \"%.64s\", expected %s", r->source, field->line,
             field->name, field->text != NULL ? field->text : "a message", expected);
}

static trm_status read_message(reader *r, const pbtxt_field *first, const field_row *rows, size_t n, const char *name)
{
    for (const pbtxt_field *field = first; field != NULL; field = field->next) {
        size_t i = 0;
        while (i < n && strcmp(rows[i].name, field->name) != 0) {
            i++;
        }
        if (i == n) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s, line %d: %s has no field %s", r->source, field->line, name,
                     field->name);
        }
        if (rows[i].read != NULL) {
            TRM_TRY(rows[i].read(r, field));
        }
    }
    return TRM_OK;
}
#define READ_MESSAGE(r, field, rows)                                                                                   \
    ((field)->text != NULL ? fail(r, field, "a message")                                                               \
                           : read_message(r, (field)->first, rows, sizeof(rows) / sizeof((rows)[0]), (field)->name))

static trm_status read_integer(const reader *r, const pbtxt_field *field, int64_t min, int64_t max, int64_t *value)
{
    char *end = NULL, expected[80];
    errno = 0;
    *value = field->text != NULL ? strtoll(field->text, &end, 0) : 0;
    if (end == NULL || end == field->text || *end != '\0' || errno != 0 || *value < min || *value > max) {
        snprintf(expected, sizeof(expected), "an integer from %lld to %lld", (long long)min, (long long)max);
        return fail(r, field, expected);
    }
    return TRM_OK;
}

static trm_status read_text(const reader *r, const pbtxt_field *field, char *to, size_t size)
{
    if (field->text == NULL || strlen(field->text) >= size) {
        return fail(r, field, "a short string");
    }
    strcpy(to, field->text);
    return TRM_OK;
}

static trm_status refuse(reader *r, const pbtxt_field *field)
{
    TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s, line %d: %s is not supported", r->source, field->line, field->name);
}

/* A boolean field that must be false. */
static trm_status refuse_true(reader *r, const pbtxt_field *field)
{
    return field->text != NULL && (strcmp(field->text, "false") == 0 || strcmp(field->text, "0") == 0)
               ? TRM_OK
               : refuse(r, field);
}

/* ---- inputs and outputs ---------------------------------------------------------------------------------- */

static trm_status read_port_name(reader *r, const pbtxt_field *field, config_port *port)
{
    return read_text(r, field, port->name, sizeof(port->name));
}

static trm_status read_port_type(reader *r, const pbtxt_field *field, config_port *port)
{
    if (field->text == NULL || strncmp(field->text, "TYPE_", 5) != 0 || strlen(field->text + 5) >= sizeof(port->type)) {
        return fail(r, field, "TYPE_ and a type");
    }
    strcpy(port->type, field->text + 5);
    return TRM_OK;
}

static trm_status read_port_dim(reader *r, const pbtxt_field *field, config_port *port)
{
    port->dims.n = port->dims.n < 0 ? 0 : port->dims.n;
    if (port->dims.n == TRM_MAX_DIMS) {
        return fail(r, field, "fewer dims");
    }
    return read_integer(r, field, -1, INT64_MAX, &port->dims.d[port->dims.n++]);
}

static trm_status read_port(reader *r, const pbtxt_field *field, config_port *ports, int32_t *count)
{
    static const char *const passed[] = {"format", "label_filename"};
    static const char *const refused[] = {"reshape", "is_shape_tensor", "allow_ragged_batch", "optional",
                                          "is_non_linear_format_io"};
    if (field->text != NULL || *count == CONFIG_MAX_PORTS) {
        return fail(r, field, "at most 64 messages");
    }
    config_port *port = &ports[(*count)++];
    port->dims.n = -1;
    for (const pbtxt_field *f = field->first; f != NULL; f = f->next) {
        bool known = false;
        for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
            if (strcmp(f->name, refused[i]) == 0) {
                TRM_TRY(refuse_true(r, f));
                known = true;
            }
        }
        for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++) {
            known = known || strcmp(f->name, passed[i]) == 0;
        }
        if (!known) {
            trm_status (*read)(reader *, const pbtxt_field *, config_port *) =
                strcmp(f->name, "name") == 0        ? read_port_name
                : strcmp(f->name, "data_type") == 0 ? read_port_type
                : strcmp(f->name, "dims") == 0      ? read_port_dim
                                                    : NULL;
            if (read == NULL) {
                TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s, line %d: %s has no field %s", r->source, f->line, field->name,
                         f->name);
            }
            TRM_TRY(read(r, f, port));
        }
    }
    return TRM_OK;
}

static trm_status read_input(reader *r, const pbtxt_field *field)
{
    return read_port(r, field, r->config->inputs, &r->config->n_inputs);
}

static trm_status read_output(reader *r, const pbtxt_field *field)
{
    return read_port(r, field, r->config->outputs, &r->config->n_outputs);
}

/* ---- batching -------------------------------------------------------------------------------------------- */

static trm_status read_preferred(reader *r, const pbtxt_field *field)
{
    int64_t size;
    if (r->config->n_preferred == SERVED_MAX_PREFERRED) {
        return fail(r, field, "at most 16 sizes");
    }
    TRM_TRY(read_integer(r, field, 1, 1 << 20, &size));
    r->config->preferred[r->config->n_preferred++] = (int32_t)size;
    return TRM_OK;
}

static trm_status read_delay(reader *r, const pbtxt_field *field)
{
    int64_t value;
    TRM_TRY(read_integer(r, field, 0, 1000000000, &value));
    r->config->delay_us = (uint64_t)value;
    return TRM_OK;
}

static trm_status read_action(reader *r, const pbtxt_field *field)
{
    return field->text != NULL && strcmp(field->text, "REJECT") == 0 ? TRM_OK : fail(r, field, "REJECT");
}

static trm_status read_queue_time(reader *r, const pbtxt_field *field)
{
    int64_t value;
    TRM_TRY(read_integer(r, field, 0, INT64_MAX / 1000, &value));
    r->config->queue_us = (uint64_t)value;
    return TRM_OK;
}

static trm_status read_queue_size(reader *r, const pbtxt_field *field)
{
    int64_t value;
    TRM_TRY(read_integer(r, field, 0, 1 << 20, &value));
    r->config->max_queue = (int32_t)value;
    return TRM_OK;
}

static trm_status read_queue_policy(reader *r, const pbtxt_field *field)
{
    static const field_row rows[] = {{"timeout_action", read_action},
                                     {"default_timeout_microseconds", read_queue_time},
                                     {"allow_timeout_override", NULL}, /* it is always allowed */
                                     {"max_queue_size", read_queue_size}};
    return READ_MESSAGE(r, field, rows);
}

static trm_status read_batching(reader *r, const pbtxt_field *field)
{
    static const field_row rows[] = {{"preferred_batch_size", read_preferred},
                                     {"max_queue_delay_microseconds", read_delay},
                                     {"preserve_ordering", NULL}, /* replies are those of their requests anyway */
                                     {"priority_levels", refuse_true},
                                     {"default_priority_level", refuse_true},
                                     {"default_queue_policy", read_queue_policy},
                                     {"priority_queue_policy", refuse}};
    r->config->joins = true;
    return READ_MESSAGE(r, field, rows);
}

/* ---- the rest -------------------------------------------------------------------------------------------- */

static trm_status read_count(reader *r, const pbtxt_field *field)
{
    int64_t count;
    TRM_TRY(read_integer(r, field, 1, SERVED_MAX_INSTANCES, &count));
    r->config->instances += (int32_t)count;
    return r->config->instances <= SERVED_MAX_INSTANCES ? TRM_OK : fail(r, field, "at most 64 instances in all");
}

static trm_status read_group(reader *r, const pbtxt_field *field)
{
    static const field_row rows[] = {{"name", NULL},
                                     {"count", read_count},
                                     {"kind", NULL},
                                     {"gpus", NULL},
                                     {"profile", refuse},
                                     {"passive", refuse_true},
                                     {"secondary_devices", refuse},
                                     {"host_policy", NULL},
                                     {"rate_limiter", NULL}};
    return READ_MESSAGE(r, field, rows);
}

static trm_status read_n_latest(reader *r, const pbtxt_field *field)
{
    int64_t count;
    TRM_TRY(read_integer(r, field, 1, CONFIG_MAX_VERSIONS, &count));
    r->config->n_latest = (int32_t)count;
    return TRM_OK;
}

static trm_status read_latest(reader *r, const pbtxt_field *field)
{
    static const field_row rows[] = {{"num_versions", read_n_latest}};
    r->config->policy = VERSIONS_LATEST;
    return READ_MESSAGE(r, field, rows);
}

static trm_status read_all(reader *r, const pbtxt_field *field)
{
    r->config->policy = VERSIONS_ALL;
    return field->text == NULL ? TRM_OK : fail(r, field, "a message");
}

static trm_status read_version(reader *r, const pbtxt_field *field)
{
    if (r->config->n_versions == CONFIG_MAX_VERSIONS) {
        return fail(r, field, "at most 64 versions");
    }
    return read_integer(r, field, 1, INT64_MAX, &r->config->versions[r->config->n_versions++]);
}

static trm_status read_specific(reader *r, const pbtxt_field *field)
{
    static const field_row rows[] = {{"versions", read_version}};
    r->config->policy = VERSIONS_SPECIFIC;
    return READ_MESSAGE(r, field, rows);
}

static trm_status read_policy(reader *r, const pbtxt_field *field)
{
    static const field_row rows[] = {{"latest", read_latest}, {"all", read_all}, {"specific", read_specific}};
    return READ_MESSAGE(r, field, rows);
}

/* A parameter is a map's entry: key and value { string_value }; in JSON an object by keys. */
static trm_status take_parameter(reader *r, const pbtxt_field *field, const char *key, const pbtxt_field *value)
{
    static const char *const names[] = {"shapes", "min_shapes", "max_shapes"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(key, names[i]) == 0) {
            return value != NULL ? read_text(r, value, r->config->shapes[i], sizeof(r->config->shapes[i]))
                                 : fail(r, field, "a value { string_value }");
        }
    }
    return TRM_OK; /* of other servers */
}

static const pbtxt_field *find(const pbtxt_field *first, const char *name)
{
    while (first != NULL && strcmp(first->name, name) != 0) {
        first = first->next;
    }
    return first;
}

static trm_status read_parameter(reader *r, const pbtxt_field *field)
{
    const pbtxt_field *key = find(field->first, "key"), *value = find(field->first, "value");
    if (field->text != NULL) {
        return fail(r, field, "a message");
    }
    if (key != NULL && key->text != NULL) {
        return take_parameter(r, field, key->text, value != NULL ? find(value->first, "string_value") : NULL);
    }
    for (const pbtxt_field *f = field->first; f != NULL; f = f->next) {
        TRM_TRY(take_parameter(r, field, f->name, find(f->first, "string_value")));
    }
    return TRM_OK;
}

static trm_status read_transaction(reader *r, const pbtxt_field *field)
{
    static const field_row rows[] = {{"decoupled", refuse_true}};
    return READ_MESSAGE(r, field, rows);
}

static trm_status read_cache(reader *r, const pbtxt_field *field)
{
    static const field_row rows[] = {{"enable", refuse_true}};
    return READ_MESSAGE(r, field, rows);
}

static trm_status read_name(reader *r, const pbtxt_field *field)
{
    return read_text(r, field, r->config->name, sizeof(r->config->name));
}

static trm_status read_file(reader *r, const pbtxt_field *field)
{
    TRM_TRY(read_text(r, field, r->config->file, sizeof(r->config->file)));
    return strchr(r->config->file, '/') == NULL ? TRM_OK : fail(r, field, "the name of a file in the version's folder");
}

static trm_status read_max_batch(reader *r, const pbtxt_field *field)
{
    int64_t value;
    TRM_TRY(read_integer(r, field, 0, 1 << 20, &value));
    r->config->max_batch = (int32_t)value;
    return TRM_OK;
}

static trm_status read_platform(reader *r, const pbtxt_field *field)
{
    return field->text != NULL && strcmp(field->text, "ensemble") == 0 ? fail(r, field,
                                                                              "an ONNX network: ensembles are "
                                                                              "not supported")
                                                                       : TRM_OK;
}

static trm_status check(const reader *r)
{
    const model_config *c = r->config;
    if (c->joins && c->max_batch == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s has dynamic_batching, but max_batch_size is 0", r->source);
    }
    for (int32_t i = 0; i < c->n_preferred; i++) {
        if (c->preferred[i] > c->max_batch) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s has a preferred_batch_size of %d above max_batch_size %d", r->source,
                     c->preferred[i], c->max_batch);
        }
    }
    return TRM_OK;
}

static trm_status read_config(reader *r, const pbtxt_field *first)
{
    static const field_row rows[] = {{"name", read_name},
                                     {"platform", read_platform},
                                     {"backend", NULL},
                                     {"runtime", NULL},
                                     {"version_policy", read_policy},
                                     {"max_batch_size", read_max_batch},
                                     {"input", read_input},
                                     {"output", read_output},
                                     {"batch_input", refuse},
                                     {"batch_output", refuse},
                                     {"optimization", NULL},
                                     {"dynamic_batching", read_batching},
                                     {"sequence_batching", refuse},
                                     {"ensemble_scheduling", refuse},
                                     {"instance_group", read_group},
                                     {"default_model_filename", read_file},
                                     {"cc_model_filenames", NULL},
                                     {"metric_tags", NULL},
                                     {"parameters", read_parameter},
                                     {"model_warmup", NULL},
                                     {"model_operations", refuse},
                                     {"model_transaction_policy", read_transaction},
                                     {"model_repository_agents", refuse},
                                     {"response_cache", read_cache},
                                     {"model_metrics", NULL}};
    TRM_TRY(read_message(r, first, rows, sizeof(rows) / sizeof(rows[0]), "ModelConfig"));
    r->config->given = true;
    return check(r);
}

void model_config_init(model_config *config)
{
    *config = (model_config){.n_latest = 1};
}

trm_status model_config_parse(const char *source, const char *text, size_t size, model_config *config)
{
    reader r = {source, config};
    pbtxt_field *first;
    model_config_init(config);
    TRM_TRY(pbtxt_parse(source, text, size, &first));
    trm_status status = read_config(&r, first);
    pbtxt_free(first);
    return status;
}

trm_status model_config_parse_json(const char *source, const char *text, size_t size, model_config *config)
{
    reader r = {source, config};
    trm_json_document *document;
    pbtxt_field *first = NULL;
    model_config_init(config);
    TRM_TRY(trm_json_parse(source, text, size, &document));
    trm_status status = trm_json_is_object(trm_json_root(document))
                            ? pbtxt_from_json(source, trm_json_root(document), &first)
                            : trm_fail(TRM_ERROR_INVALID_MODEL, "%s is not an object", source);
    if (status == TRM_OK) {
        status = read_config(&r, first);
    }
    pbtxt_free(first);
    trm_json_close(document);
    return status;
}
