/* The trace context of requests: what the grammar of https://www.w3.org/TR/trace-context/ takes, and what it ignores.
 */
#include <stdio.h>
#include <string.h>

#include "launcher/serve/requests/trace_context.h"
#include "support/support.h"

#define PARENT "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

static trace_context read(const char *parent, const char *first, const char *second)
{
    trace_context trace = {0};
    trace_context_take(&trace, "Host", 4, "x", 1);
    if (parent != NULL) {
        trace_context_take(&trace, "TraceParent", 11, parent, strlen(parent));
    }
    if (first != NULL) {
        trace_context_take(&trace, "tracestate", 10, first, strlen(first));
    }
    if (second != NULL) {
        trace_context_take(&trace, "TRACESTATE", 10, second, strlen(second));
    }
    trace_context_check(&trace);
    return trace;
}

static void parents(void **state)
{
    static const struct {
        const char *given, *taken;
    } cases[] = {
        {PARENT, PARENT},
        {" \t" PARENT " ", PARENT},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
         "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff",
         "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff"},
        /* later versions, of which we pass on what version 00 has */
        {"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", PARENT},
        {"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-fb-what-comes", PARENT},
        {"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02-",
         "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"},
        {"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.what", ""},
        {"", ""},
        {"00", ""},
        {"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""},
        {"0g-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""},
        {"00-00000000000000000000000000000000-b7ad6b7169203331-01", ""},
        {"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", ""},
        {"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", ""},
        {"00-0af7651916cd43dd8448eb211c80319.-b7ad6b7169203331-01", ""},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333x-01", ""},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0", ""},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0G", ""},
        {PARENT "-00", ""},
        {PARENT "0", ""},
        {"00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""},
        {"00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01", ""},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331_01", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        trace_context trace = read(cases[i].given, "a=b", NULL);
        assert_string_equal(trace.parent, cases[i].taken);
        assert_string_equal(trace.state, cases[i].taken[0] != '\0' ? "a=b" : "");
    }
    trace_context trace = read(PARENT, NULL, NULL);
    assert_string_equal(trace.state, "");
    trace_context_take(&trace, "traceparent", 11, PARENT, strlen(PARENT)); /* two */
    assert_string_equal(trace.parent, "");
}

static void states(void **state)
{
    static const struct {
        const char *first, *second, *taken;
    } cases[] = {
        {"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", NULL, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"},
        {"rojo=1", "congo=2", "rojo=1,congo=2"},
        {"a=b", "", "a=b"},
        {"", "a=b", "a=b"},
        {"a=b , c=d,\t,e=f", NULL, "a=b , c=d,\t,e=f"},
        {"fw529a3039@dt=FfIyMDI,0tenant@sys=1", NULL, "fw529a3039@dt=FfIyMDI,0tenant@sys=1"},
        {"a_-*/0=a \"\\ ~!", NULL, "a_-*/0=a \"\\ ~!"},
        {",", NULL, ""},
        {"a", NULL, ""},
        {"a=", NULL, ""},
        {"=b", NULL, ""},
        {"A=b", NULL, ""},
        {"0=b", NULL, ""},
        {"a=b=c", NULL, ""},
        {"a=b,c", NULL, ""},
        {"a@=b", NULL, ""},
        {"@a=b", NULL, ""},
        {"a@0=b", NULL, ""},
        {"a@b@c=d", NULL, ""},
        {"a@system78901234=b", NULL, "a@system78901234=b"},
        {"a@system789012345=b", NULL, ""},
        {"a=\xc3\xa4", NULL, ""},
        {"a=\x01", NULL, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_string_equal(read(PARENT, cases[i].first, cases[i].second).state, cases[i].taken);
    }
    char text[1024] = "", long_key[258] = "";
    memset(long_key, 'a', 257);
    for (int i = 0; i < 2; i++) { /* 257 characters are too many, 256 are not */
        snprintf(text, sizeof(text), "%.*s=b", 257 - i, long_key);
        assert_string_equal(read(PARENT, text, NULL).state, i == 0 ? "" : text);
        snprintf(text, sizeof(text), "a=%.*s", 257 - i, long_key);
        assert_string_equal(read(PARENT, text, NULL).state, i == 0 ? "" : text);
    }
    for (int n = 31; n <= 33; n++) { /* members */
        text[0] = '\0';
        for (int i = 0; i < n; i++) {
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%sk%d=v", i > 0 ? "," : "", i);
        }
        assert_string_equal(read(PARENT, text, NULL).state, n <= 32 ? text : "");
    }
    for (int more = 0; more < 2; more++) { /* 512 characters, in two headers */
        char first[256], second[260];
        snprintf(first, sizeof(first), "a=%.*s", 253, long_key);
        snprintf(second, sizeof(second), "b=%.*s", 254 + more, long_key);
        assert_int_equal(strlen(read(PARENT, first, second).state), more == 0 ? 512 : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parents), cmocka_unit_test(states)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
