/* API keys, origins, hosts. */
#include "launcher/serve/http/server_access.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

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

static size_t find_key(const server *s, const char *key)
{
    size_t found = 0;
    for (size_t i = 0; key != NULL && i < s->n_keys; i++) {
        found = same_key(key, s->key_list[i]) ? i + 1 : found;
    }
    return found;
}

size_t server_find_key(const server *s, const char *authorization)
{
    return find_key(s, strncasecmp(authorization, "Bearer ", 7) == 0 ? authorization + 7 : NULL);
}

size_t access_key(const call *c)
{
    const char *header = MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    if (header != NULL && strncasecmp(header, "Bearer ", 7) == 0) {
        return server_find_key(c->server, header);
    } /* Anthropic's clients send it here */
    return find_key(c->server, MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, "X-Api-Key"));
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
    TRM_TRY(trm_file_read_stream(s->options.key_file, (size_t)1 << 20, &s->keys, &size));
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

/* The name of this machine as others know it, which may be longer than its own. */
static void find_name(server *s)
{
    struct addrinfo hints = {.ai_flags = AI_CANONNAME}, *found = NULL;
    if (gethostname(s->machine[0], SERVER_LONGEST_HOST) == 0 && getaddrinfo(s->machine[0], NULL, &hints, &found) == 0) {
        snprintf(s->machine[1], SERVER_LONGEST_HOST, "%s", found->ai_canonname != NULL ? found->ai_canonname : "");
        freeaddrinfo(found);
    }
}

trm_status access_init(server *s)
{
    TRM_TRY(read_keys(s));
    TRM_TRY(read_origins(s));
    if (s->n_keys == 0) {
        find_name(s);
    }
    return TRM_OK;
}

/* A host without its port and brackets, and with a final dot removed. */
static void host_name(const char *from, char name[SERVER_LONGEST_HOST])
{
    const bool bracket = from[0] == '[';
    size_t size = strcspn(from + bracket, bracket ? "]" : ":");
    size -= size > 0 && from[bracket + size - 1] == '.';
    snprintf(name, SERVER_LONGEST_HOST, "%.*s", (int)size, from + bracket);
}

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcasecmp(name + n - m, end) == 0;
}

/* Whether nobody can make a name server answer our address for this name: an address, or a name outside the public DNS
 * (RFC 6761, RFC 6762, RFC 8375). */
static bool is_private(const char *name)
{
    static const char *const domains[] = {".localhost", ".local", ".internal", ".home.arpa"};
    unsigned char address[sizeof(struct in6_addr)];
    if (strchr(name, '.') == NULL || inet_pton(AF_INET, name, address) == 1 ||
        inet_pton(AF_INET6, name, address) == 1) {
        return true;
    }
    for (size_t i = 0; i < sizeof(domains) / sizeof(domains[0]); i++) {
        if (ends_in(name, domains[i])) {
            return true;
        }
    }
    return false;
}

static bool is_ours(const server *s, const char *name)
{
    const server_options *o = &s->options;
    char other[SERVER_LONGEST_HOST];
    bool ours =
        strcasecmp(name, o->host) == 0 || strcasecmp(name, s->machine[0]) == 0 || strcasecmp(name, s->machine[1]) == 0;
    for (int32_t i = 0; !ours && i < o->n_hosts; i++) {
        ours = strcmp(o->hosts[i], "*") == 0 || strcasecmp(name, o->hosts[i]) == 0;
    }
    for (int32_t i = 0; !ours && i < o->n_origins; i++) {
        const char *host = strstr(o->origins[i], "://");
        host_name(host != NULL ? host + 3 : "", other);
        ours = strcasecmp(name, other) == 0;
    }
    return ours;
}

static const char *header(const call *c, const char *name)
{
    return MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, name);
}

/* Whether a browser sent the request for a page of ours, or for no page. */
static bool is_of_own_page(const call *c, const char *host)
{
    const char *origin = header(c, MHD_HTTP_HEADER_ORIGIN), *site = header(c, "Sec-Fetch-Site");
    const char *from = origin != NULL ? strstr(origin, "://") : NULL;
    return origin == NULL || access_origin(c) != NULL ||
           (site != NULL && (strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0)) ||
           (from != NULL && host != NULL && strcasecmp(from + 3, host) == 0);
}

bool access_check_page(const call *c, api_error *error)
{
    const server *s = c->server;
    const char *host = header(c, MHD_HTTP_HEADER_HOST);
    char name[SERVER_LONGEST_HOST] = "";
    if (s->n_keys > 0 || s->any_origin) {
        return true;
    }
    if (host != NULL) {
        host_name(host, name);
    }
    if (!is_private(name) && !is_ours(s, name)) {
        return api_fail(error, 403, NULL, "host_not_allowed",
                        "the request is for host %.64s, which may be a name that a page has for this server: allow it "
                        "with --allow-host, or require keys with --api-keys",
                        name);
    }
    if (!is_of_own_page(c, host)) {
        return api_fail(error, 403, NULL, "origin_not_allowed",
                        "the request is of a page of %.64s: allow it with --cors-origin, or require keys with "
                        "--api-keys",
                        header(c, MHD_HTTP_HEADER_ORIGIN));
    }
    return true;
}
