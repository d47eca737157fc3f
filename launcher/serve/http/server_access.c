/* API keys and origins. */
#include "launcher/serve/http/server_access.h"

#include <string.h>

#include "base/error.h"
#include "base/file.h"

/* Compares in constant time. */
static bool same_key(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    unsigned char differs = n != m;
    for (size_t i = 0; i < n; i++) {
        differs |= (unsigned char)(a[i] ^ b[m == 0 ? 0 : i % m]);
    }
    return differs == 0;
}

size_t access_key(const call *c)
{
    const server *s = c->server;
    const char *header = MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    size_t found = 0;
    if (header != NULL && strncasecmp(header, "Bearer ", 7) == 0) {
        header += 7;
    } else { /* Anthropic's clients send it here */
        header = MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, "X-Api-Key");
    }
    for (size_t i = 0; header != NULL && i < s->n_keys; i++) {
        found = same_key(header, s->key_list[i]) ? i + 1 : found;
    }
    return found;
}

const char *access_origin(const call *c)
{
    const server *s = c->server;
    const char *origin = MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN);
    for (int32_t i = 0; origin != NULL && i < s->options.n_origins; i++) {
        if (s->any_origin || strcasecmp(origin, s->options.origins[i]) == 0) {
            return origin;
        }
    }
    return NULL;
}

static trm_status read_keys(server *s)
{
    size_t size;
    if (s->options.key_file == NULL) {
        return TRM_OK;
    }
    TRM_TRY(trm_file_read(s->options.key_file, (size_t)1 << 20, &s->keys, &size));
    char *rest = s->keys;
    for (char *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n")) {
        line += strspn(line, " \t");
        for (size_t length = strlen(line); length > 0 && strchr(" \t\r", line[length - 1]) != NULL; length--) {
            line[length - 1] = '\0';
        }
        if (*line == '\0' || *line == '#') {
            continue;
        }
        if (s->n_keys == SERVER_MAX_KEYS) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "key file %s has more than %d keys", s->options.key_file,
                     SERVER_MAX_KEYS);
        }
        s->key_list[s->n_keys++] = line;
    }
    if (s->n_keys == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "key file %s has no keys, expected one per line", s->options.key_file);
    }
    return TRM_OK;
}

static trm_status read_origins(server *s)
{
    for (int32_t i = 0; i < s->options.n_origins; i++) {
        const char *origin = s->options.origins[i], *host = strstr(origin, "://");
        bool any = strcmp(origin, "*") == 0;
        if (!any && (host == NULL || host == origin || host[3] == '\0' || strpbrk(host + 3, "/?#,* ") != NULL)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "cors-origin is \"%s\", expected SCHEME://HOST, SCHEME://HOST:PORT or *", origin);
        }
        s->any_origin |= any;
    }
    return TRM_OK;
}

trm_status access_init(server *s)
{
    TRM_TRY(read_keys(s));
    return read_origins(s);
}
