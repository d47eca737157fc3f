#include "support/device.h"

#include <stdio.h>

#include "support/support.h"

trm_device *test_device;
trm_stream *test_stream, *test_pool_stream;

static trm_device *pool_device;

static int open_device(trm_backend backend, int32_t threads)
{
    assert_ok(trm_device_open(backend, 0, threads, &test_device));
    assert_ok(trm_stream_create(test_device, &test_stream));
    return 0;
}

int test_open_host(void **state)
{
    (void)state;
    return open_device(TRM_BACKEND_HOST, 1);
}

int test_open_host_pool(void **state)
{
    (void)state;
    return open_device(TRM_BACKEND_HOST, 3);
}

int test_open_both_hosts(void **state)
{
    assert_ok(trm_device_open(TRM_BACKEND_HOST, 0, 3, &pool_device));
    assert_ok(trm_stream_create(pool_device, &test_pool_stream));
    return test_open_host(state);
}

int test_open_cuda(void **state)
{
    (void)state;
    return open_device(TRM_BACKEND_CUDA, 0);
}

int test_close_device(void **state)
{
    (void)state;
    trm_stream_destroy(test_stream);
    trm_device_close(test_device);
    trm_stream_destroy(test_pool_stream);
    trm_device_close(pool_device);
    test_pool_stream = NULL;
    pool_device = NULL;
    return 0;
}

bool test_lacks_cuda(void)
{
    char why[256] = "";
    if (trm_device_cuda_count(why, sizeof(why)) > 0) {
        return false;
    }
    fprintf(stderr, "skipped: %s\n", why);
    return true;
}
