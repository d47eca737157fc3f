/* The LoRA adapters of a server. */
#include "launcher/serve/replicas/adapters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "launcher/serve/replicas/dispatcher_internal.h"

/* All of these under the lock. */

static served_adapter *find_name(dispatcher *d, const char *name)
{
    for (size_t i = 0; i < d->adapters.n; i++) {
        served_adapter *a = &d->adapters.items[i];
        if (a->state != ADAPTER_LEAVING && strcmp(a->name, name) == 0) {
            return a;
        }
    }
    return NULL;
}

static served_adapter *find_key(dispatcher *d, int32_t key)
{
    for (size_t i = 0; i < d->adapters.n; i++) {
        if (d->adapters.items[i].key == key) {
            return &d->adapters.items[i];
        }
    }
    return NULL;
}

static trm_status add(dispatcher *d, const char *name, size_t size, const char *folder, bool required, int32_t *key)
{
    served_adapters *all = &d->adapters;
    TRM_TRY(trm_array_grow((void **)&all->items, &all->capacity, all->n + 1, sizeof(*all->items)));
    served_adapter a = {.name = strndup(name, size),
                        .folder = strdup(folder),
                        .key = ++all->last_key,
                        .created = (int64_t)time(NULL),
                        .required = required};
    if (a.name == NULL || a.folder == NULL) {
        free(a.name);
        free(a.folder);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate an adapter");
    }
    all->items[all->n++] = a;
    *key = a.key;
    return TRM_OK;
}

static void drop(dispatcher *d, size_t at)
{
    served_adapters *all = &d->adapters;
    free(all->items[at].name);
    free(all->items[at].folder);
    memmove(all->items + at, all->items + at + 1, (all->n - at - 1) * sizeof(*all->items));
    all->n--;
}

/* ---- the dispatcher's thread ---------------------------------------------------------------------------- */

trm_status adapters_require(dispatcher *d, const char *text)
{
    const char *equals = strchr(text, '=');
    int32_t key;
    if (equals == NULL || equals == text || equals[1] == '\0') {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "adapter is %s, expected NAME=FOLDER", text);
    }
    TRM_TRY(add(d, text, (size_t)(equals - text), equals + 1, true, &key));
    for (size_t i = 0; i + 1 < d->adapters.n; i++) {
        if (strcmp(d->adapters.items[i].name, d->adapters.items[d->adapters.n - 1].name) == 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "adapter %s was given twice", d->adapters.items[i].name);
        }
    }
    return TRM_OK;
}

static void tell(replica *r, served_adapter *a)
{
    channel *to = replica_leader(r);
    const uint64_t bit = (uint64_t)1 << r->index;
    const ipc_adapter message = {.key = a->key, .text = a->folder};
    if (to == NULL) {
        return;
    }
    if (a->state == ADAPTER_LEAVING && (a->sent & bit) != 0) {
        (void)ipc_write_adapter(&to->out, IPC_UNLOAD, &message);
    } else if ((a->state == ADAPTER_LOADING || a->state == ADAPTER_LOADED) && (a->sent & bit) == 0 &&
               ipc_write_adapter(&to->out, IPC_LOAD, &message) == TRM_OK) {
        a->sent |= bit;
    }
}

void adapters_tend(dispatcher *d)
{
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->adapters.n;) {
        served_adapter *a = &d->adapters.items[i];
        for (int32_t r = 0; r < d->n_replicas; r++) {
            tell(&d->replicas[r], a);
        }
        if (a->state == ADAPTER_LEAVING) {
            drop(d, i);
        } else {
            i++;
        }
    }
    pthread_mutex_unlock(&d->lock);
}

void adapters_forget(dispatcher *d, int32_t index)
{
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->adapters.n; i++) {
        d->adapters.items[i].sent &= ~((uint64_t)1 << index);
        d->adapters.items[i].loaded &= ~((uint64_t)1 << index);
    }
    pthread_mutex_unlock(&d->lock);
}

/* Whether every replica that serves has it. */
static bool is_everywhere(dispatcher *d, const served_adapter *a)
{
    bool all = true;
    for (int32_t i = 0; i < d->n_replicas; i++) {
        all = all && (replica_leader(&d->replicas[i]) == NULL || (a->loaded >> i & 1) != 0);
    }
    return all;
}

void adapters_take(replica *r, const ipc_adapter *outcome)
{
    dispatcher *d = r->dispatcher;
    char line[1024] = "";
    trm_status end = TRM_OK;
    pthread_mutex_lock(&d->lock);
    served_adapter *a = find_key(d, outcome->key);
    if (a != NULL && outcome->status == TRM_OK) {
        a->loaded |= (uint64_t)1 << r->index;
        a->state = a->state == ADAPTER_LOADING && is_everywhere(d, a) ? ADAPTER_LOADED : a->state;
    } else if (a != NULL) {
        snprintf(line, sizeof(line), "adapter %s cannot be loaded: %s", a->name, outcome->text);
        if (a->state == ADAPTER_LOADING) {
            trm_error_hold(trm_fail(outcome->status, "%s", outcome->text), &a->failure);
            end = a->required ? outcome->status : TRM_OK;
            a->state = a->required && d->options.on_demand ? ADAPTER_LOADING : ADAPTER_FAILED;
        }
    }
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    if (end != TRM_OK && d->options.on_demand) {
        dispatcher_abandon(d, trm_fail(end, "%s", line));
    } else if (end != TRM_OK) {
        dispatcher_end(d, trm_fail(end, "%s", line));
    } else if (line[0] != '\0' && d->options.log != NULL) {
        d->options.log(d->options.log_user, line);
    }
}

void adapters_fini(dispatcher *d)
{
    while (d->adapters.n > 0) {
        drop(d, d->adapters.n - 1);
    }
    free(d->adapters.items);
}

/* ---- other threads --------------------------------------------------------------------------------------- */

int32_t dispatcher_find_adapter(dispatcher *d, const char *name)
{
    pthread_mutex_lock(&d->lock);
    const served_adapter *a = find_name(d, name);
    const bool known = a != NULL && (a->state == ADAPTER_LOADED || (a->state == ADAPTER_LOADING && a->required));
    const int32_t key = known ? a->key : 0;
    pthread_mutex_unlock(&d->lock);
    return key;
}

/* Waits until it is known what became of an adapter. */
static trm_status wait_for(dispatcher *d, int32_t key, double seconds)
{
    const struct timespec until = dispatcher_clock_after(seconds);
    int waited = 0;
    served_adapter *a = find_key(d, key);
    while (a != NULL && a->state == ADAPTER_LOADING && waited == 0) {
        waited = pthread_cond_timedwait(&d->changed, &d->lock, &until);
        a = find_key(d, key);
    }
    if (a == NULL || a->state == ADAPTER_LOADED) {
        return a != NULL ? TRM_OK : trm_fail(TRM_ERROR_CANCELLED, "the adapter was unloaded while it was loaded");
    }
    const trm_status status = a->state == ADAPTER_FAILED
                                  ? trm_error_give_back(&a->failure)
                                  : trm_fail(TRM_ERROR_INTERNAL, "the ranks did not load it within %.0f s", seconds);
    a->state = ADAPTER_LEAVING; /* replicas that have it drop it */
    return status;
}

trm_status dispatcher_load_adapter(dispatcher *d, const char *name, const char *folder, bool replace, double seconds)
{
    int32_t key = 0;
    trm_status status = TRM_OK;
    pthread_mutex_lock(&d->lock);
    served_adapter *old = find_name(d, name);
    if (d->state != DISPATCHER_READY) {
        status = trm_fail(TRM_ERROR_BUSY, "the server is %s, expected it to be ready", dispatcher_state_name(d->state));
    } else if (old != NULL && !replace) {
        status = trm_fail(TRM_ERROR_INVALID_ARGUMENT,
                          "the lora adapter '%s' has already been loaded; load_inplace replaces it", name);
    } else {
        status = add(d, name, strlen(name), folder, false, &key);
        old = find_name(d, name);
    }
    if (status == TRM_OK && old != NULL && old->key != key) {
        old->state = ADAPTER_LEAVING; /* before the new one in the list, so that its place is free for it */
    }
    if (status == TRM_OK) {
        dispatcher_notify(d);
        status = wait_for(d, key, seconds);
    }
    pthread_mutex_unlock(&d->lock);
    return status;
}

bool dispatcher_unload_adapter(dispatcher *d, const char *name)
{
    pthread_mutex_lock(&d->lock);
    served_adapter *a = find_name(d, name);
    if (a != NULL) {
        a->state = ADAPTER_LEAVING;
        dispatcher_notify(d);
    }
    pthread_mutex_unlock(&d->lock);
    return a != NULL;
}

int32_t dispatcher_list_adapters(dispatcher *d, trm_arena *arena, dispatcher_adapter **list)
{
    int32_t n = 0;
    pthread_mutex_lock(&d->lock);
    *list = trm_arena_array(arena, d->adapters.n + 1, sizeof(**list));
    for (size_t i = 0; *list != NULL && i < d->adapters.n; i++) {
        const served_adapter *a = &d->adapters.items[i];
        dispatcher_adapter copy = {.created = a->created};
        if (a->state == ADAPTER_LOADED || (a->state == ADAPTER_LOADING && a->required)) {
            copy.name = trm_arena_strdup(arena, a->name);
            copy.folder = trm_arena_strdup(arena, a->folder);
        }
        if (copy.name != NULL && copy.folder != NULL) {
            (*list)[n++] = copy;
        }
    }
    pthread_mutex_unlock(&d->lock);
    return n;
}
