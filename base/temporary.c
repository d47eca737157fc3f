/* The lock is flock(2) on the folder itself: it ends with the process, and holds between containers that share a file
 * system. */
#include "base/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

#define DEEPEST 16 /* folders open at a time */

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    (void)remove(path);
    return 0;
}

static int remove_inner_entry(const char *path, const struct stat *info, int type, struct FTW *where)
{
    return where->level == 0 ? 0 : remove_entry(path, info, type, where);
}

/* Opens and locks a folder of this user; -1 if that is not possible, as another process has locked it. */
static int lock_folder(const char *path)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &info) != 0 || info.st_uid != geteuid() || info.st_nlink == 0 ||
                    flock(fd, LOCK_EX | LOCK_NB) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Removes folders that processes which were killed have left. */
static void sweep(const char *parent, const char *name)
{
    DIR *all = opendir(parent);
    const size_t size = strlen(name);
    char path[sizeof(((trm_temporary *)NULL)->path)];
    for (struct dirent *entry; all != NULL && (entry = readdir(all)) != NULL;) {
        if (strncmp(entry->d_name, name, size) != 0 || entry->d_name[size] != '-' ||
            (size_t)snprintf(path, sizeof(path), "%s/%s", parent, entry->d_name) >= sizeof(path)) {
            continue;
        }
        int lock = lock_folder(path);
        if (lock >= 0) {
            (void)nftw(path, remove_entry, DEEPEST, FTW_DEPTH | FTW_PHYS);
            close(lock);
        }
    }
    if (all != NULL) {
        closedir(all);
    }
}

trm_status trm_temporary_create(const char *parent, const char *name, trm_temporary *folder)
{
    trm_temporary made = TRM_TEMPORARY_NONE;
    sweep(parent, name);
    /* Another process may take a folder that is not locked yet for one that was left. */
    for (int tries = 0; made.lock < 0 && tries < 100; tries++) {
        if ((size_t)snprintf(made.path, sizeof(made.path), "%s/%s-XXXXXX", parent, name) >= sizeof(made.path)) {
            TRM_FAIL(TRM_ERROR_IO, "cannot make a folder in %s: the path is too long", parent);
        }
        if (mkdtemp(made.path) == NULL) {
            TRM_FAIL(TRM_ERROR_IO, "cannot make a folder in %s: %s", parent, strerror(errno));
        }
        made.lock = lock_folder(made.path);
        struct stat info;
        if (made.lock >= 0 && (fstat(made.lock, &info) != 0 || info.st_nlink == 0)) {
            close(made.lock);
            made.lock = -1;
        }
    }
    if (made.lock < 0) {
        rmdir(made.path);
        TRM_FAIL(TRM_ERROR_IO, "cannot lock a folder in %s: %s", parent, strerror(errno));
    }
    *folder = made;
    return TRM_OK;
}

void trm_temporary_empty(const trm_temporary *folder)
{
    if (folder->path[0] != '\0') {
        (void)nftw(folder->path, remove_inner_entry, DEEPEST, FTW_DEPTH | FTW_PHYS);
    }
}

void trm_temporary_remove(trm_temporary *folder)
{
    if (folder->path[0] != '\0') {
        (void)nftw(folder->path, remove_entry, DEEPEST, FTW_DEPTH | FTW_PHYS);
    }
    if (folder->lock >= 0) {
        close(folder->lock);
    }
    *folder = TRM_TEMPORARY_NONE;
}
