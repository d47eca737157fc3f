/*
 * Folders for what only lives as long as a process. The process holds a lock on its folder, so whoever makes the next
 * one can tell which folders were left by processes that were killed, and removes them.
 */
#ifndef TRM_BASE_TEMPORARY_H
#define TRM_BASE_TEMPORARY_H

#include <trireme/status.h>

typedef struct trm_temporary {
    char path[512]; /* "": none */
    int lock;       /* -1: none */
} trm_temporary;

#define TRM_TEMPORARY_NONE ((trm_temporary){.lock = -1})

/* Makes PARENT/NAME-xxxxxx for this user alone, and removes folders of that kind that nobody has locked. IO. */
trm_status trm_temporary_create(const char *parent, const char *name, trm_temporary *folder);
/* Removes the folder and all that is in it. */
void trm_temporary_remove(trm_temporary *folder);
/* Removes what is in it. */
void trm_temporary_empty(const trm_temporary *folder);

#endif
