/*
 * Status codes, the error record and the logging callback.
 *
 * Every call that can fail returns a trm_status. The first function that knows the cause writes one line about it into
 * the error record of the calling thread; trm_last_error() reads it. The library never prints, exits or aborts on bad
 * input.
 */
#ifndef TRIREME_STATUS_H
#define TRIREME_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TRM_API                                  __attribute__((visibility("default")))
#define TRM_PRINTF(format_index, first_argument) __attribute__((format(printf, format_index, first_argument)))
#else
#define TRM_API
#define TRM_PRINTF(format_index, first_argument)
#endif

/* For the ..._INIT macros: a struct with some fields set and the others zero. */
#ifdef __cplusplus
#define TRM_SET(field, value) trm_made_.field = value;
#define TRM_MAKE(type, fields)                                                                                         \
    ([] {                                                                                                              \
        type trm_made_ = type();                                                                                       \
        fields return trm_made_;                                                                                       \
    }())
#else
#define TRM_SET(field, value)  .field = value,
#define TRM_MAKE(type, fields) ((type){fields})
#endif

typedef enum trm_status {
    TRM_OK = 0,
    TRM_ERROR_INTERNAL = 1,         /* a fault of this library or of the system it runs on */
    TRM_ERROR_INVALID_ARGUMENT = 2, /* the caller's arguments do not fit together */
    TRM_ERROR_INVALID_MODEL = 3,    /* a file, network or configuration is malformed */
    TRM_ERROR_UNSUPPORTED = 4,      /* well formed, but this build or backend cannot run it */
    TRM_ERROR_IO = 5,               /* the operating system refused a file or socket */
    TRM_ERROR_NO_DEVICE = 6,        /* no usable GPU, driver or CUDA library */
    TRM_ERROR_OUT_OF_MEMORY = 7,    /* host or device memory does not suffice */
    TRM_ERROR_LOST_RANK = 8,        /* a peer failed, left, or missed a deadline */
    TRM_ERROR_CANCELLED = 9,        /* the caller's callback asked to stop */
    TRM_ERROR_BUSY = 10             /* a bounded queue is full: try again later */
} trm_status;

/* The name of a status, such as "invalid model". Never NULL. */
TRM_API const char *trm_status_name(trm_status status);

/*
 * The cause of the last failure on the calling thread: one line, lower case, no trailing dot, valid
 * until the next failing call on this thread. Empty string if nothing failed yet.
 */
TRM_API const char *trm_last_error(void);
/* Maximum size of an error message, including the terminating NUL. */
#define TRM_CAUSE_SIZE 2048

/* The process exit code that stands for a status: 0 ok, 1 failure, 2 usage, 3 bad model or
 * configuration, 4 no device or driver, 5 out of memory, 6 lost rank. */
TRM_API int trm_status_exit_code(trm_status status);

typedef enum trm_log_level {
    TRM_LOG_ERROR = 0,
    TRM_LOG_WARNING = 1,
    TRM_LOG_INFO = 2,
    TRM_LOG_DEBUG = 3
} trm_log_level;

/* Receives one message without a trailing newline. Called from any thread of the library; must not
 * call back into it. */
typedef void (*trm_log_fn)(void *user, trm_log_level level, const char *message);

/* Sends messages up to `level` to `fn`; NULL silences the library (the default). Not to be called
 * while other threads are inside the library. */
TRM_API void trm_log_set(trm_log_fn fn, void *user, trm_log_level level);

#ifdef __cplusplus
}
#endif
#endif
