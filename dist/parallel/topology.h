/*
 * Binding of a rank to its share of the cores, or to the cores near its GPU. The only user of hwloc.
 */
#ifndef TRM_DIST_PARALLEL_TOPOLOGY_H
#define TRM_DIST_PARALLEL_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

typedef struct trm_topology trm_topology;

/* Reads the part of the machine that this process may use. */
trm_status trm_topology_open(trm_topology **topology);
void trm_topology_close(trm_topology *topology); /* NULL is ignored */

/* Frees the process from a binding that Open MPI made by default: it may run where the launcher may. Does nothing if no
 * launcher is found. */
trm_status trm_topology_unbind(trm_topology *topology);

/* The processors that this process may run on, as "0-3,8": two ranks of a host with equal texts share them. */
void trm_topology_allowed(const trm_topology *topology, char *text, size_t size);

/* Takes share `index` of `count` of the cores that this process may run on. *threads is its number of cores, at least
 * 1, at most OMP_NUM_THREADS. With `bind`, binds the process to them if every share has a core. Never adds processors.
 */
trm_status trm_topology_take_share(trm_topology *topology, int32_t index, int32_t count, bool bind, int32_t *threads);

/* Binds the process to the allowed cores near a PCI device, "0000:4a:00.0"; does nothing if there are none or they are
 * unknown. */
trm_status trm_topology_bind_near(trm_topology *topology, const char *pci_bus_id);

typedef struct trm_topology_info {
    char processor[128]; /* empty if unknown */
    int32_t packages, cores, hardware_threads;
} trm_topology_info;

typedef struct trm_topology_node {
    int32_t index; /* as the operating system counts */
    int64_t memory_bytes;
    char hardware_threads[256]; /* "0-3,8" */
} trm_topology_node;

/* The whole machine. */
void trm_topology_get_info(const trm_topology *topology, trm_topology_info *info);
/* The NUMA node at a position, from 0. false past the last. */
bool trm_topology_get_node(const trm_topology *topology, int32_t position, trm_topology_node *node);

#endif
