/* The functions of libnghttp2. */
#include "launcher/serve/grpc/http2_library.h"

#include "base/error.h"
#include "base/library.h"

trm_status http2_library_open(const http2_library **result)
{
    static http2_library library;
    static const char *const names[] = {"libnghttp2.so.14", "libnghttp2.so"};
    static const trm_library_symbol symbols[] = {
#define HTTP2_SYMBOL(name) {"nghttp2_" #name, &library.name, false},
        HTTP2_FUNCTIONS(HTTP2_SYMBOL)
#undef HTTP2_SYMBOL
    };
    void *handle;
    if (trm_library_open(names, 2, symbols, (int32_t)(sizeof(symbols) / sizeof(symbols[0])), &handle) != TRM_OK) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "gRPC needs libnghttp2 (Debian's package libnghttp2-14), which was not found");
    }
    *result = &library;
    return TRM_OK;
}
