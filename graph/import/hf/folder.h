/*
 * A new model folder: written beside its place under another name, and renamed when it is complete.
 */
#ifndef TRM_GRAPH_IMPORT_HF_FOLDER_H
#define TRM_GRAPH_IMPORT_HF_FOLDER_H

#include <stdio.h>

#include <trireme/status.h>

#include "base/temporary.h"

/* Opens a new file in a folder; `path` becomes its path. IO. */
trm_status trm_hf_folder_create(const char *folder, const char *name, char path[4096], FILE **file);
/* Closes it: `status`, or IO if not all was written. */
trm_status trm_hf_folder_close(FILE *file, const char *path, trm_status status);
/* Copies the file `from` to folder/name. */
trm_status trm_hf_folder_copy_file(const char *from, const char *folder, const char *name);
/* Copies all files of folder `from` but weights, config.json and hidden ones. */
trm_status trm_hf_folder_copy_files(const char *from, const char *folder);
/* The folder that a new one is made in. INVALID_ARGUMENT if its path is too long. */
trm_status trm_hf_folder_parent(const char *folder, char parent[512]);
/* Gives the folder its name and the rights that others have. */
trm_status trm_hf_folder_publish(const trm_temporary *made, const char *folder);

#endif
