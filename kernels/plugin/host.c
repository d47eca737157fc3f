/* PLUGIN on the host: the plugin's own function. */
#include "base/error.h"
#include "kernels/host/host.h"
#include "kernels/plugin/plugin.h"
#include "kernels/program.h"

bool trm_host_plugin_accepts(const trm_kernel_call *call)
{
    const trm_plugin_layer *layer = trm_plugin_layer_of(call->layer);
    return layer != NULL && trm_plugin_has_kernel(layer->plugin, TRM_BACKEND_HOST);
}

size_t trm_host_plugin_workspace(const trm_kernel_call *call)
{
    return trm_plugin_asked(call, TRM_BACKEND_HOST);
}

static trm_status run(void *args, trm_stream *stream)
{
    trm_plugin_run *self = args;
    (void)stream;
    return trm_plugin_do(self, self->layer->plugin->table.run, "run");
}

trm_status trm_host_plugin_prepare(const trm_kernel_call *call, trm_program *program)
{
    trm_plugin_run *self;
    TRM_TRY(trm_plugin_prepare(call, TRM_BACKEND_HOST, program, &self));
    return self == NULL ? TRM_OK : trm_program_append(program, self->layer->plugin->label, run, self);
}
