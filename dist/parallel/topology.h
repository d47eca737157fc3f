/*
 * Where a rank runs: its share of the cores, or the cores near its GPU. The only user of hwloc.
 */
#ifndef TRM_DIST_PARALLEL_TOPOLOGY_H
#define TRM_DIST_PARALLEL_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

typedef struct trm_topology trm_topology;

/* Looks at the machine as far as this process may use it. */
trm_status trm_topology_open(trm_topology **topology);
void trm_topology_close(trm_topology *topology); /* NULL is ignored */

/* The processors this process may run on, as "0-3,8": equal texts of two ranks of a host mean that they share them. */
void trm_topology_allowed(const trm_topology *topology, char *text, size_t size);

/* Share `index` of `count` of the cores this process may run on. *threads: its cores, at least 1, at most
 * OMP_NUM_THREADS. Binds the process to them if `bind` says so and there is a core for every share. Never widens what
 * is allowed. */
trm_status trm_topology_take_share(trm_topology *topology, int32_t index, int32_t count, bool bind, int32_t *threads);

/* Binds the process to those cores that are near a PCI device, "0000:4a:00.0"; does nothing where they are unknown or
 * none of them is allowed. */
trm_status trm_topology_bind_near(trm_topology *topology, const char *pci_bus_id);

/* The machine in a few lines: packages, cores, memory by NUMA node, and what this process may use of it. */
void trm_topology_describe(const trm_topology *topology, char *text, size_t size);

#endif
