/* libmicrohttpd before 1.0 reads more than RFC 9112 allows, and says nothing of it: a bare LF ends a line, a line that
 * begins with a space continues the last one, and anything before the colon is a name. It leaves the head where it
 * arrived, with NULs for line ends, so the places of names and values show what stood between them. */
#include "launcher/serve/http/server_framing.h"

#include <string.h>
#include <strings.h>

#define LINE_END 2 /* bytes of CR LF, which libmicrohttpd replaces by NULs */

typedef struct fields {
    const char *end;  /* of the line before: where its CR LF must be */
    bool raw;         /* names and values lie where they arrived */
    const char *flaw; /* NULL: none */
    int lengths, codings, hosts;
    const char *coding, *host;
} fields;

static bool is_token(const char *text, size_t size)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < size; i++) {
        const char c = text[i];
        const bool alphanumeric = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!alphanumeric && (c == '\0' || strchr(others, c) == NULL)) {
            return false;
        }
    }
    return size > 0;
}

static bool has_control(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            return true;
        }
    }
    return false;
}

/* Whether a line ends here in CR LF and `next` begins right after it. */
static bool ends_line(const char *end, const char *next)
{
    return end[0] == '\0' && end[1] == '\0' && next == end + LINE_END;
}

/* Whether the last line of the head ends here and an empty one ends the head. For libmicrohttpd a line without a name
 * ends it as well. */
static bool ends_head(struct MHD_Connection *connection, const char *head, const char *end)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return info != NULL && end + 2 * LINE_END == head + info->header_size && ends_line(end, end + LINE_END) &&
           ends_line(end + LINE_END, end + 2 * LINE_END);
}

/* Whether only a colon and blanks are between a name and its value. */
static bool belongs(const char *name, size_t size, const char *value)
{
    const char *between = name + size + 1;
    while (between < value && (*between == ' ' || *between == '\t')) {
        between++;
    }
    return between == value;
}

static enum MHD_Result take_field(void *user, enum MHD_ValueKind kind, const char *name, size_t name_size,
                                  const char *value, size_t value_size)
{
    fields *f = user;
    (void)kind;
    if (!is_token(name, name_size)) {
        f->flaw = "a header whose name is not a token";
    } else if (value == NULL || has_control(value, value_size)) {
        f->flaw = "a control character in a header";
    } else if (f->raw && !(ends_line(f->end, name) && belongs(name, name_size, value))) {
        f->flaw = "a header line that does not end in CR LF or continues another";
    }
    if (f->flaw != NULL) {
        return MHD_NO;
    }
    f->end = value + value_size;
    if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0) {
        f->lengths++;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
        f->codings++;
        f->coding = value;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0) {
        f->hosts++;
        f->host = value;
    }
    return MHD_YES;
}

bool framing_target_is_clean(const char *target)
{
    size_t size = 0;
    while ((unsigned char)target[size] > ' ' && target[size] != 0x7f) {
        size++;
    }
    return size > 0 && target[size] == '\0' && strstr(target, "%00") == NULL; /* it would end the path */
}

bool framing_host_is_valid(const char *host)
{
    static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~%!$&'()*+,;=";
    size_t size = host[0] == '[' ? strspn(host + 1, "0123456789abcdefABCDEF:.") + 1 : strspn(host, name);
    size += host[0] == '[' && host[size] == ']';
    size_t port = host[size] == ':' ? 1 + strspn(host + size + 1, "0123456789") : 0;
    return size > (host[0] == '[' ? 2 : 0) && (host[0] != '[' || host[size - 1] == ']') && host[size + port] == '\0';
}

bool framing_check(struct MHD_Connection *connection, const char *method, const char *target, bool clean,
                   const char *version, bool *chunked, api_error *error)
{
    fields f = {.end = version + strlen(version), .raw = MHD_get_version()[0] == '0'};
    const bool modern = strcmp(version, MHD_HTTP_VERSION_1_0) != 0;
    *chunked = false;
    if (!clean || (f.raw && target != method + strlen(method) + 1)) {
        f.flaw = "a request line with spaces, control characters or %00 in its target";
    } else {
        MHD_get_connection_values_n(connection, MHD_HEADER_KIND, take_field, &f);
        if (f.flaw == NULL && f.raw && !ends_head(connection, method, f.end)) {
            f.flaw = "a head that does not end in an empty line";
        }
    }
    if (f.flaw != NULL) {
        return api_fail(error, 400, NULL, "invalid_framing", "the request has %s", f.flaw);
    }
    if (f.lengths > 1 || f.codings > 1 || (f.lengths > 0 && f.codings > 0)) {
        return api_fail(error, 400, NULL, "invalid_framing",
                        "the request has %d Content-Length and %d Transfer-Encoding headers, expected one of both",
                        f.lengths, f.codings);
    }
    if (f.codings > 0 && (strcasecmp(f.coding, "chunked") != 0 || !modern)) {
        return api_fail(error, 400, NULL, "invalid_framing",
                        "the request has Transfer-Encoding %.32s in %s, expected chunked in HTTP/1.1", f.coding,
                        version);
    }
    if (f.hosts > 1 || (f.hosts == 0 && modern) || (f.hosts == 1 && !framing_host_is_valid(f.host))) {
        return api_fail(error, 400, NULL, "invalid_host", "the request has %d Host headers%s, expected one with a host",
                        f.hosts, f.hosts == 1 ? " without a valid host" : "");
    }
    *chunked = f.codings > 0;
    return true;
}
