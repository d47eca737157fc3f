/*
 * The page at /, built from page.html.
 */
#ifndef TRM_LAUNCHER_SERVE_HTTP_PAGE_H
#define TRM_LAUNCHER_SERVE_HTTP_PAGE_H

#include <stddef.h>

extern const unsigned char serve_page[];
extern const size_t serve_page_size;

#endif
