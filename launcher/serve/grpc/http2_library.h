/*
 * libnghttp2, found at run time: HTTP/2's frames, header compression and flow control, without sockets.
 */
#ifndef TRM_LAUNCHER_SERVE_GRPC_HTTP2_LIBRARY_H
#define TRM_LAUNCHER_SERVE_GRPC_HTTP2_LIBRARY_H

#include <nghttp2/nghttp2.h>

#include <trireme/status.h>

#define HTTP2_FUNCTIONS(X)                                                                                             \
    X(session_callbacks_new)                                                                                           \
    X(session_callbacks_del)                                                                                           \
    X(session_callbacks_set_on_begin_headers_callback)                                                                 \
    X(session_callbacks_set_on_header_callback)                                                                        \
    X(session_callbacks_set_on_frame_recv_callback)                                                                    \
    X(session_callbacks_set_on_frame_send_callback)                                                                    \
    X(session_callbacks_set_on_data_chunk_recv_callback)                                                               \
    X(session_callbacks_set_on_stream_close_callback)                                                                  \
    X(option_new)                                                                                                      \
    X(option_del)                                                                                                      \
    X(option_set_no_auto_window_update)                                                                                \
    X(session_server_new2)                                                                                             \
    X(session_del)                                                                                                     \
    X(session_mem_recv)                                                                                                \
    X(session_mem_send)                                                                                                \
    X(session_want_read)                                                                                               \
    X(session_want_write)                                                                                              \
    X(session_consume_connection)                                                                                      \
    X(session_consume_stream)                                                                                          \
    X(session_resume_data)                                                                                             \
    X(session_set_local_window_size)                                                                                   \
    X(session_set_stream_user_data)                                                                                    \
    X(session_get_stream_user_data)                                                                                    \
    X(session_terminate_session)                                                                                       \
    X(submit_settings)                                                                                                 \
    X(submit_response)                                                                                                 \
    X(submit_trailer)                                                                                                  \
    X(submit_rst_stream)                                                                                               \
    X(submit_shutdown_notice)                                                                                          \
    X(submit_goaway)

typedef struct http2_library {
#define HTTP2_MEMBER(name) __typeof__(&nghttp2_##name) name;
    HTTP2_FUNCTIONS(HTTP2_MEMBER)
#undef HTTP2_MEMBER
} http2_library;

/* Error: UNSUPPORTED (the library is not installed). */
trm_status http2_library_open(const http2_library **result);

#endif
