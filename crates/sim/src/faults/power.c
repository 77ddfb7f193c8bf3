/* Keeps, of each write that is not synced, what it takes to undo it.
 *
 * Preloaded into a broker by the fault harness (power.rs), which compiles it. Files below the folder
 * FAULT_DISK are watched. For each there is a file in the folder FAULT_UNDO, named after its inode and
 * the moment of its birth, with a record for each change that no sync has followed:
 *
 *   at: i64    had: i64    size: i64    bytes[had]
 *
 * the place of the change, the bytes that lay there, the length of the file before it; numbers in the
 * machine's byte order. A sync empties it. Records outlive the process, as what it wrote does. Names
 * (creating, renaming, removing) count as synced; changes through a mapping are not seen.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define LOCKS 64
static pthread_mutex_t locks[LOCKS];
static const char *watched, *undo;
static size_t watched_length;

__attribute__((constructor)) static void begin(void)
{
    for (int i = 0; i < LOCKS; i++)
        pthread_mutex_init(&locks[i], NULL);
    undo = getenv("FAULT_UNDO");
    watched = getenv("FAULT_DISK");
    watched_length = watched ? strlen(watched) : 0;
}

/* What cannot be recorded must not pass for synced. */
static void give_up(const char *what)
{
    dprintf(2, "fault harness: %s: %s\n", what, strerror(errno));
    abort();
}

/* A watched file, locked. */
struct file {
    char name[PATH_MAX];
    pthread_mutex_t *lock;
    long long size;
};

static int is_watched(int fd, struct file *file)
{
    char link[64], path[PATH_MAX];
    if (!undo || !watched_length)
        return 0;
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length < (ssize_t)watched_length || strncmp(path, watched, watched_length))
        return 0;
    struct statx about;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &about))
        give_up("statx");
    if (!S_ISREG(about.stx_mode))
        return 0;
    file->size = (long long)about.stx_size;
    file->lock = &locks[about.stx_ino % LOCKS];
    snprintf(file->name, sizeof file->name, "%s/%llu-%lld-%u", undo,
             (unsigned long long)about.stx_ino, (long long)about.stx_btime.tv_sec,
             about.stx_btime.tv_nsec);
    return 1;
}

static int locked(int fd, struct file *file)
{
    if (!is_watched(fd, file))
        return 0;
    pthread_mutex_lock(file->lock);
    struct stat about;
    if (fstat(fd, &about))
        give_up("fstat");
    file->size = about.st_size;
    return 1;
}

static void record(int fd, struct file *file, long long at, long long length)
{
    long long had = at >= file->size ? 0 : file->size - at;
    if (had > length)
        had = length;
    size_t whole = 24 + (size_t)had;
    char *bytes = malloc(whole);
    if (!bytes)
        give_up("malloc");
    long long head[3] = {at, had, file->size};
    memcpy(bytes, head, 24);
    if (had) {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        int from = open(link, O_RDONLY | O_CLOEXEC);
        if (from < 0)
            give_up("open to read");
        for (long long done = 0; done < had;) {
            ssize_t got = pread(from, bytes + 24 + done, (size_t)(had - done), at + done);
            if (got <= 0)
                give_up("read what is there");
            done += got;
        }
        close(from);
    }
    int to = open(file->name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (to < 0 || syscall(SYS_write, to, bytes, whole) != (ssize_t)whole)
        give_up("record a change");
    close(to);
    free(bytes);
}

static long long place(int fd, struct file *file)
{
    if (fcntl(fd, F_GETFL) & O_APPEND)
        return file->size;
    return lseek(fd, 0, SEEK_CUR);
}

static long long total(const struct iovec *parts, int count)
{
    long long length = 0;
    for (int i = 0; i < count; i++)
        length += (long long)parts[i].iov_len;
    return length;
}

/* A change of a file with its record, under the lock. */
#define CHANGE(type, at, length, call)                                                             \
    struct file file;                                                                              \
    if (!locked(fd, &file))                                                                        \
        return (type)(call);                                                                       \
    record(fd, &file, at, length);                                                                 \
    type answer = (type)(call);                                                                    \
    int why = errno;                                                                               \
    pthread_mutex_unlock(file.lock);                                                               \
    errno = why;                                                                                   \
    return answer

ssize_t write(int fd, const void *bytes, size_t length)
{
    CHANGE(ssize_t, place(fd, &file), (long long)length, syscall(SYS_write, fd, bytes, length));
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    CHANGE(ssize_t, place(fd, &file), total(parts, count), syscall(SYS_writev, fd, parts, count));
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at)
{
    CHANGE(ssize_t, at, (long long)length, syscall(SYS_pwrite64, fd, bytes, length, at));
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at)
{
    return pwrite64(fd, bytes, length, at);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at)
{
    CHANGE(ssize_t, at, total(parts, count), syscall(SYS_pwritev, fd, parts, count, at, 0));
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    return pwritev64(fd, parts, count, at);
}

int ftruncate64(int fd, off64_t length)
{
    CHANGE(int, length, LLONG_MAX, syscall(SYS_ftruncate, fd, length));
}

int ftruncate(int fd, off_t length)
{
    return ftruncate64(fd, length);
}

int fallocate64(int fd, int mode, off64_t at, off64_t length)
{
    CHANGE(int, at, length, syscall(SYS_fallocate, fd, mode, at, length));
}

int fallocate(int fd, int mode, off_t at, off_t length)
{
    return fallocate64(fd, mode, at, length);
}

int posix_fallocate64(int fd, off64_t at, off64_t length)
{
    return fallocate64(fd, 0, at, length) ? errno : 0;
}

int posix_fallocate(int fd, off_t at, off_t length)
{
    return posix_fallocate64(fd, at, length);
}

static int synced(int fd, long call)
{
    struct file file;
    if (!locked(fd, &file))
        return (int)syscall(call, fd);
    int failed = (int)syscall(call, fd);
    int why = errno;
    if (!failed && unlink(file.name) && errno != ENOENT)
        give_up("forget what is synced");
    pthread_mutex_unlock(file.lock);
    errno = why;
    return failed;
}

int fsync(int fd)
{
    return synced(fd, SYS_fsync);
}

int fdatasync(int fd)
{
    return synced(fd, SYS_fdatasync);
}
