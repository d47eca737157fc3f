/* TLS sessions over GnuTLS, loaded at run time. Functions and constants of version 3 (soname 30) are declared here as
 * in its manual. */
#include "launcher/serve/tls/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/error.h"
#include "base/library.h"

#define AS_SERVER       (1u << 0)
#define AS_CLIENT       (1u << 1)
#define NEVER_WAITS     (1u << 3)
#define WITHOUT_SIGPIPE (1u << 6)

enum { CREDENTIALS_CERTIFICATE = 1, NAME_DNS = 1, FORMAT_PEM = 1, CERTIFICATE_X509 = 1 };
enum { ALPN_MANDATORY = 1, REQUIRE_CERTIFICATE = 2 };
enum { E_AGAIN = -28, E_INTERRUPTED = -52, E_PREMATURE_END = -110, E_CERTIFICATE = -348 };

typedef struct text_datum { /* gnutls_datum_t */
    unsigned char *data;
    unsigned size;
} text_datum;

static struct {
    int (*certificate_allocate_credentials)(void **credentials);
    void (*certificate_free_credentials)(void *credentials);
    int (*certificate_set_x509_system_trust)(void *credentials);
    int (*certificate_set_x509_trust_file)(void *credentials, const char *file, int format);
    int (*certificate_set_x509_key_file)(void *credentials, const char *certificate, const char *key, int format);
    int (*certificate_verification_status_print)(unsigned status, int kind, text_datum *text, unsigned flags);
    int (*init)(void **session, unsigned flags);
    void (*deinit)(void *session);
    int (*set_default_priority)(void *session);
    int (*alpn_set_protocols)(void *session, const text_datum *protocols, unsigned n, unsigned flags);
    int (*server_name_set)(void *session, int kind, const void *name, size_t size);
    void (*session_set_verify_cert)(void *session, const char *host, unsigned flags);
    unsigned (*session_get_verify_cert_status)(void *session);
    void (*certificate_server_set_request)(void *session, int request);
    int (*certificate_verify_peers2)(void *session, unsigned *status);
    int (*credentials_set)(void *session, int kind, void *credentials);
    void (*transport_set_int2)(void *session, int from, int to);
    int (*handshake)(void *session);
    int (*record_get_direction)(void *session);
    ssize_t (*record_send)(void *session, const void *data, size_t size);
    ssize_t (*record_recv)(void *session, void *data, size_t size);
    int (*error_is_fatal)(int error);
    const char *(*strerror)(int error);
} gnutls;

static struct {
    pthread_once_t once;
    trm_status status;
    void *handle;
    char why[512];
} library = {.once = PTHREAD_ONCE_INIT};

struct tls_trust {
    void *credentials;
    bool checks_clients;
};

struct tls_session {
    void *session;
    char host[256];
    bool begun, open; /* the handshake is done */
};

static void load_library(void)
{
    static const char *const names[] = {"libgnutls.so.30"};
    static const trm_library_symbol symbols[] = {
#define SYMBOL(name) {"gnutls_" #name, &gnutls.name, false}
        SYMBOL(certificate_allocate_credentials),
        SYMBOL(certificate_free_credentials),
        SYMBOL(certificate_set_x509_system_trust),
        SYMBOL(certificate_set_x509_trust_file),
        SYMBOL(certificate_set_x509_key_file),
        SYMBOL(certificate_verification_status_print),
        SYMBOL(init),
        SYMBOL(deinit),
        SYMBOL(set_default_priority),
        SYMBOL(alpn_set_protocols),
        SYMBOL(server_name_set),
        SYMBOL(session_set_verify_cert),
        SYMBOL(session_get_verify_cert_status),
        SYMBOL(certificate_server_set_request),
        SYMBOL(certificate_verify_peers2),
        SYMBOL(credentials_set),
        SYMBOL(transport_set_int2),
        SYMBOL(handshake),
        SYMBOL(record_get_direction),
        SYMBOL(record_send),
        SYMBOL(record_recv),
        SYMBOL(error_is_fatal),
        SYMBOL(strerror),
#undef SYMBOL
    };
    library.status =
        trm_library_open(names, 1, symbols, (int32_t)(sizeof(symbols) / sizeof(symbols[0])), &library.handle);
    if (library.status != TRM_OK) {
        snprintf(library.why, sizeof(library.why), "%s", trm_last_error());
    }
}

/* Credentials without anything in them. */
static trm_status create_credentials(const char *what, tls_trust **trust)
{
    pthread_once(&library.once, load_library);
    if (library.status != TRM_OK) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s needs GnuTLS (Debian's package libgnutls30): %s", what, library.why);
    }
    tls_trust *t = calloc(1, sizeof(*t));
    if (t == NULL || gnutls.certificate_allocate_credentials(&t->credentials) < 0) {
        free(t);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate TLS credentials");
    }
    *trust = t;
    return TRM_OK;
}

/* Adds the certificates of a file. */
static trm_status add_authorities(const tls_trust *t, const char *authorities)
{
    if (access(authorities, R_OK) != 0) {
        TRM_FAIL(TRM_ERROR_IO, "cannot open %s: %s", authorities, strerror(errno));
    }
    const int found = gnutls.certificate_set_x509_trust_file(t->credentials, authorities, FORMAT_PEM);
    if (found <= 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has no certificates: %s", authorities,
                 found < 0 ? gnutls.strerror(found) : "it is empty");
    }
    return TRM_OK;
}

trm_status tls_trust_create(const char *authorities, tls_trust **trust)
{
    tls_trust *t = NULL;
    TRM_TRY(create_credentials("https", &t));
    trm_status status = TRM_OK;
    if (authorities != NULL) {
        status = add_authorities(t, authorities);
    } else { /* a system without CA certificates trusts no server; the error comes from the handshake */
        (void)gnutls.certificate_set_x509_system_trust(t->credentials);
    }
    if (status != TRM_OK) {
        tls_trust_destroy(t);
        return status;
    }
    *trust = t;
    return TRM_OK;
}

trm_status tls_check_authorities(const char *authorities)
{
    tls_trust *trust = NULL;
    TRM_TRY(tls_trust_create(authorities, &trust));
    tls_trust_destroy(trust);
    return TRM_OK;
}

bool tls_client_is_trusted(void *session)
{
    unsigned status = 1;
    pthread_once(&library.once, load_library);
    return library.status == TRM_OK && session != NULL && gnutls.certificate_verify_peers2(session, &status) == 0 &&
           status == 0;
}

trm_status tls_identity_create(const char *certificate, const char *key, const char *authorities, tls_trust **identity)
{
    tls_trust *t = NULL;
    TRM_TRY(create_credentials("TLS", &t));
    const int result = gnutls.certificate_set_x509_key_file(t->credentials, certificate, key, FORMAT_PEM);
    if (result < 0) {
        tls_trust_destroy(t);
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot use certificate %s with key %s: %s", certificate, key,
                 gnutls.strerror(result));
    }
    trm_status status = authorities != NULL ? add_authorities(t, authorities) : TRM_OK;
    if (status != TRM_OK) {
        tls_trust_destroy(t);
        return status;
    }
    t->checks_clients = authorities != NULL;
    *identity = t;
    return TRM_OK;
}

void tls_trust_destroy(tls_trust *trust)
{
    if (trust != NULL) {
        gnutls.certificate_free_credentials(trust->credentials);
        free(trust);
    }
}

static bool is_address(const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

trm_status tls_open(tls_trust *trust, const char *host, int fd, tls_session **session)
{
    tls_session *s = calloc(1, sizeof(*s));
    if (s == NULL || gnutls.init(&s->session, AS_CLIENT | NEVER_WAITS | WITHOUT_SIGPIPE) < 0) {
        free(s);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a TLS session");
    }
    snprintf(s->host, sizeof(s->host), "%s", host);
    int result = gnutls.set_default_priority(s->session);
    if (result >= 0) {
        result = gnutls.credentials_set(s->session, CREDENTIALS_CERTIFICATE, trust->credentials);
    }
    if (result >= 0 && !is_address(host)) { /* addresses are not sent as names (RFC 6066, 3) */
        result = gnutls.server_name_set(s->session, NAME_DNS, host, strlen(host));
    }
    if (result < 0) {
        tls_close(s);
        TRM_FAIL(TRM_ERROR_INTERNAL, "cannot create a TLS session: %s", gnutls.strerror(result));
    }
    gnutls.session_set_verify_cert(s->session, s->host, 0);
    gnutls.transport_set_int2(s->session, fd, fd);
    *session = s;
    return TRM_OK;
}

trm_status tls_accept(tls_trust *identity, int fd, const char *protocol, tls_session **session)
{
    tls_session *s = calloc(1, sizeof(*s));
    const text_datum name = {(unsigned char *)(uintptr_t)protocol, (unsigned)strlen(protocol)};
    if (s == NULL || gnutls.init(&s->session, AS_SERVER | NEVER_WAITS | WITHOUT_SIGPIPE) < 0) {
        free(s);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a TLS session");
    }
    snprintf(s->host, sizeof(s->host), "a client");
    s->begun = true; /* by the client */
    int result = gnutls.set_default_priority(s->session);
    if (result >= 0) {
        result = gnutls.credentials_set(s->session, CREDENTIALS_CERTIFICATE, identity->credentials);
    }
    if (result >= 0) {
        result = gnutls.alpn_set_protocols(s->session, &name, 1, ALPN_MANDATORY);
    }
    if (result < 0) {
        tls_close(s);
        TRM_FAIL(TRM_ERROR_INTERNAL, "cannot create a TLS session: %s", gnutls.strerror(result));
    }
    if (identity->checks_clients) {
        gnutls.certificate_server_set_request(s->session, REQUIRE_CERTIFICATE);
        gnutls.session_set_verify_cert(s->session, NULL, 0);
    }
    gnutls.transport_set_int2(s->session, fd, fd);
    *session = s;
    return TRM_OK;
}

void tls_close(tls_session *session)
{
    if (session != NULL) {
        gnutls.deinit(session->session);
        free(session);
    }
}

bool tls_wants_write(const tls_session *session, bool writes)
{
    return session->open ? writes : !session->begun || gnutls.record_get_direction(session->session) == 1;
}

static bool is_passing(ssize_t result)
{
    return result == E_AGAIN || result == E_INTERRUPTED || (result < 0 && gnutls.error_is_fatal((int)result) == 0);
}

/* Fails because a certificate is not trusted, with the reasons. */
static trm_status fail_certificate(const tls_session *s)
{
    text_datum text = {0};
    unsigned status = gnutls.session_get_verify_cert_status(s->session);
    bool printed = gnutls.certificate_verification_status_print(status, CERTIFICATE_X509, &text, 0) >= 0;
    (void)trm_fail(TRM_ERROR_IO, "the certificate of %s is not trusted: %s", s->host,
                   printed ? (const char *)text.data : "it cannot be verified");
    free(text.data); /* GnuTLS allocates with malloc by default */
    return TRM_ERROR_IO;
}

static trm_status shake_hands(tls_session *s)
{
    s->begun = true;
    int result = s->open ? 0 : gnutls.handshake(s->session);
    s->open = s->open || result == 0;
    if (s->open || is_passing(result)) {
        return TRM_OK;
    }
    if (result == E_CERTIFICATE) {
        return fail_certificate(s);
    }
    TRM_FAIL(TRM_ERROR_IO, "TLS handshake with %s failed: %s", s->host, gnutls.strerror(result));
}

trm_status tls_send(tls_session *s, const void *data, size_t size, size_t *moved)
{
    *moved = 0;
    TRM_TRY(shake_hands(s));
    ssize_t sent = s->open ? gnutls.record_send(s->session, data, size) : E_AGAIN;
    if (sent < 0 && !is_passing(sent)) {
        TRM_FAIL(TRM_ERROR_IO, "cannot send: %s", gnutls.strerror((int)sent));
    }
    *moved = sent > 0 ? (size_t)sent : 0;
    return TRM_OK;
}

trm_status tls_receive(tls_session *s, void *data, size_t size, size_t *moved, bool *ended)
{
    *moved = 0;
    *ended = false;
    TRM_TRY(shake_hands(s));
    ssize_t got = s->open ? gnutls.record_recv(s->session, data, size) : E_AGAIN;
    *ended = got == 0 || got == E_PREMATURE_END; /* many servers close without a notification */
    if (got < 0 && !*ended && !is_passing(got)) {
        TRM_FAIL(TRM_ERROR_IO, "cannot receive: %s", gnutls.strerror((int)got));
    }
    *moved = got > 0 ? (size_t)got : 0;
    return TRM_OK;
}
