#include "dist/parallel/bandwidth_probe.h"

#include "base/error.h"

trm_status trm_bandwidth_probe_init(trm_bandwidth_probe *probe, trm_device *device)
{
    TRM_TRY(trm_stream_create(device, &probe->stream));
    TRM_TRY(trm_event_create(device, &probe->start));
    return trm_event_create(device, &probe->end);
}

void trm_bandwidth_probe_fini(trm_bandwidth_probe *probe)
{
    trm_event_destroy(probe->end);
    trm_event_destroy(probe->start);
    trm_stream_destroy(probe->stream);
}

trm_status trm_bandwidth_probe_begin(trm_bandwidth_probe *probe)
{
    return trm_event_record(probe->start, probe->stream);
}

trm_status trm_bandwidth_probe_end(trm_bandwidth_probe *probe)
{
    return trm_event_record(probe->end, probe->stream);
}

trm_status trm_bandwidth_probe_rate(const trm_bandwidth_probe *probe, double bytes, double *rate)
{
    float milliseconds;
    TRM_TRY(trm_event_elapsed_ms(probe->start, probe->end, &milliseconds));
    *rate = milliseconds > 0 ? bytes / ((double)milliseconds * 1e-3) : 0;
    return TRM_OK;
}
