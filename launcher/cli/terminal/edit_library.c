/* The functions of libedit. */
#include "launcher/cli/terminal/edit_library.h"

#include "base/error.h"
#include "base/library.h"

trm_status edit_library_open(const edit_library **result)
{
    static edit_library library;
    static const char *const names[] = {"libedit.so.2", "libedit.so.0"};
    static const trm_library_symbol symbols[] = {
        {"el_init", &library.el_init, false},
        {"el_end", &library.el_end, false},
        {"el_set", &library.el_set, false},
        {"el_source", &library.el_source, false},
        {"el_resize", &library.el_resize, false},
        {"el_gets", &library.el_gets, false},
        {"history_init", &library.history_init, false},
        {"history_end", &library.history_end, false},
        {"history", &library.history, false},
    };
    void *handle;
    if (trm_library_open(names, 2, symbols, (int32_t)(sizeof(symbols) / sizeof(symbols[0])), &handle) != TRM_OK) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "line editing needs libedit (Debian's package libedit2), which was not found");
    }
    *result = &library;
    return TRM_OK;
}
