/* Status and bytes on their way from the dispatcher to a connection. */
#include "launcher/serve/responses/http_exchange.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

trm_status http_exchange_create(void (*wake)(void *connection), void *connection, http_exchange **result)
{
    http_exchange *x = calloc(1, sizeof(*x));
    if (x == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a request");
    }
    atomic_init(&x->references, 1);
    atomic_init(&x->gone, false);
    atomic_init(&x->left, false);
    pthread_mutex_init(&x->lock, NULL);
    x->wake = wake;
    x->connection = connection;
    *result = x;
    return TRM_OK;
}

http_exchange *http_exchange_retain(http_exchange *x)
{
    atomic_fetch_add(&x->references, 1);
    return x;
}

void http_exchange_release(http_exchange *x)
{
    if (x != NULL && atomic_fetch_sub(&x->references, 1) == 1) {
        pthread_mutex_destroy(&x->lock);
        trm_bytes_fini(&x->out);
        free(x);
    }
}

/* Call with the lock held: once `gone` is set, which happens under this lock too, `connection` is invalid. */
static void wake(http_exchange *x)
{
    if (x->sleeping && !atomic_load(&x->gone)) {
        x->sleeping = false;
        x->wake(x->connection);
    }
}

void http_exchange_wake(http_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    wake(x);
    pthread_mutex_unlock(&x->lock);
}

void http_exchange_reply(http_exchange *x, int status, const char *body, size_t size)
{
    pthread_mutex_lock(&x->lock);
    if (x->status == 0) {
        bool kept = trm_bytes_append(&x->out, body, size) == TRM_OK;
        x->status = kept ? status : 500;
        x->ended = true;
    }
    wake(x);
    pthread_mutex_unlock(&x->lock);
}

void api_error_write(const api_error *error, json_text *json)
{
    json_object(json, NULL);
    json_string(json, "type", "error");
    json_object(json, "error");
    json_string(json, "message", error->message);
    json_string(json, "type", error->type);
    json_string(json, "param", error->param);
    json_string(json, "code", error->code);
    json_end_object(json);
    json_end_object(json);
}

void http_exchange_reply_error(http_exchange *x, const api_error *error)
{
    json_text json = {0};
    api_error_write(error, &json);
    pthread_mutex_lock(&x->lock);
    x->retry_after = error->status == 429 || error->status == 503 ? 1 : 0;
    pthread_mutex_unlock(&x->lock);
    http_exchange_reply(x, error->status, json.bytes.data, json.status == TRM_OK ? json.bytes.size : 0);
    json_text_fini(&json);
}

void http_exchange_begin_stream(http_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->status = 200;
    x->streams = true;
    wake(x);
    pthread_mutex_unlock(&x->lock);
}

bool http_exchange_stream(http_exchange *x, const char *bytes, size_t size)
{
    pthread_mutex_lock(&x->lock);
    bool taken = !x->ended && !atomic_load(&x->gone) && x->out.size - x->taken <= HTTP_EXCHANGE_MAX_UNREAD &&
                 trm_bytes_append(&x->out, bytes, size) == TRM_OK;
    if (!taken) {
        x->ended = x->broken = true;
    }
    wake(x);
    pthread_mutex_unlock(&x->lock);
    return taken;
}

void http_exchange_end_stream(http_exchange *x, bool broken)
{
    pthread_mutex_lock(&x->lock);
    x->ended = true;
    x->broken = x->broken || broken;
    wake(x);
    pthread_mutex_unlock(&x->lock);
}

void http_exchange_abandon(http_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->ended = x->broken = true;
    x->status = x->status == 0 ? 499 : x->status;
    wake(x);
    pthread_mutex_unlock(&x->lock);
}
