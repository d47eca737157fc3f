/*
 * Files and folders that only live while a model is quantized. They lie beside the new folder, where models fit.
 */
#ifndef TRM_LAUNCHER_CLI_QUANTIZE_BESIDE_H
#define TRM_LAUNCHER_CLI_QUANTIZE_BESIDE_H

#include <stdio.h>

#include <trireme/status.h>

/* The folder that a path is in. */
void beside_parent(const char *path, char parent[512]);
/* A new file without a name in the folder that the path is in. IO. */
trm_status beside_file(const char *path, FILE **file);

#endif
