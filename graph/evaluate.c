/* Layers on the host's reference kernels, one by one. */
#include "graph/evaluate.h"

#include "base/error.h"
#include "kernels/program.h"

void trm_evaluator_fini(trm_evaluator *self)
{
    if (self->device != NULL) {
        trm_device_free(self->device, self->workspace);
        trm_stream_destroy(self->stream);
        trm_device_close(self->device);
    }
    *self = (trm_evaluator){0};
}

static trm_status open_stream(trm_evaluator *self)
{
    if (self->device == NULL) {
        TRM_TRY(trm_device_open(TRM_BACKEND_HOST, 0, 1, &self->device));
    }
    return self->stream == NULL ? trm_stream_create(self->device, &self->stream) : TRM_OK;
}

static trm_status reserve_workspace(trm_evaluator *self, size_t size)
{
    if (size > self->workspace_size) {
        trm_device_free(self->device, self->workspace);
        self->workspace = NULL;
        self->workspace_size = 0;
        TRM_TRY(trm_device_alloc(self->device, size, &self->workspace));
        self->workspace_size = size;
    }
    return TRM_OK;
}

trm_status trm_evaluator_run(trm_evaluator *self, trm_kernel_call *call, bool *ran)
{
    static const trm_kernel_table *const tables[] = {&trm_host_kernels};
    TRM_TRY(open_stream(self));
    call->stream = self->stream;
    const trm_kernel *kernel = trm_kernel_find(tables, 1, TRM_BACKEND_HOST, call);
    if (kernel == NULL) {
        return TRM_OK;
    }
    TRM_TRY(reserve_workspace(self, kernel->workspace == NULL ? 0 : kernel->workspace(call)));
    call->workspace = self->workspace;
    call->workspace_size = self->workspace_size;
    TRM_TRY(trm_kernel_run(kernel, call));
    TRM_TRY(trm_stream_synchronize(self->stream));
    *ran = true;
    return TRM_OK;
}
