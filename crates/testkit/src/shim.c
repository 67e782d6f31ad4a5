/* Makes a disk full, or its fsync fail, for the files of one folder.
 *
 * Loaded before the C library into the server under test.
 * TRILOGUE_SHIM_DIR names the folder, TRILOGUE_SHIM_FLAGS a folder of flag files:
 *   disk-full    holds the disk's size in bytes: a write that grows the folder beyond it gets ENOSPC
 *   fsync-fails  while it exists, fsync and fdatasync get EIO
 *   fsynced      grows by one byte with every fsync that was made to fail, so that a test can wait for it
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int flag_path(char *path, const char *name) {
    const char *flags = getenv("TRILOGUE_SHIM_FLAGS");
    if (!flags) return 0;
    return snprintf(path, PATH_MAX, "%s/%s", flags, name) < PATH_MAX;
}

/* Whether the descriptor is a file of the watched folder. */
static int watched(int fd) {
    const char *dir = getenv("TRILOGUE_SHIM_DIR");
    char link[64], path[PATH_MAX];
    if (!dir) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    size_t prefix = strlen(dir);
    return strncmp(path, dir, prefix) == 0 && (path[prefix] == '/' || path[prefix] == 0);
}

/* The sum of the sizes of the watched folder's files. */
static long long used(void) {
    long long sum = 0;
    const char *name = getenv("TRILOGUE_SHIM_DIR");
    DIR *dir = name ? opendir(name) : NULL;
    if (!dir) return 0;
    struct dirent *entry;
    struct stat info;
    while ((entry = readdir(dir)))
        if (fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode))
            sum += info.st_size;
    closedir(dir);
    return sum;
}

/* Whether writing up to `end` would grow the folder beyond the disk's size.
 * Room that was taken by a system call of its own, which this library does not see, is found by the next write. */
static int full(int fd, long long end) {
    char path[PATH_MAX], text[32];
    struct stat info;
    int kept = errno, answer = 0;
    if (!flag_path(path, "disk-full")) return 0;
    int flag = open(path, O_RDONLY | O_CLOEXEC);
    if (flag < 0) {
        errno = kept;
        return 0;
    }
    ssize_t length = read(flag, text, sizeof text - 1);
    close(flag);
    if (length > 0 && watched(fd) && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        text[length] = 0;
        long long growth = end > info.st_size ? end - info.st_size : 0;
        answer = used() + growth > atoll(text);
    }
    errno = answer ? ENOSPC : kept;
    return answer;
}

static long long position(int fd) {
    int flags = fcntl(fd, F_GETFL);
    struct stat info;
    if (flags >= 0 && (flags & O_APPEND) && fstat(fd, &info) == 0) return info.st_size;
    int kept = errno;
    off_t at = lseek(fd, 0, SEEK_CUR);
    errno = kept;
    return at < 0 ? 0 : at;
}

static long long total(const struct iovec *parts, int count) {
    long long sum = 0;
    for (int i = 0; i < count; i++) sum += parts[i].iov_len;
    return sum;
}

static int sync_fails(int fd) {
    char path[PATH_MAX];
    if (!flag_path(path, "fsync-fails") || access(path, F_OK) != 0 || !watched(fd)) return 0;
    if (flag_path(path, "fsynced")) {
        int count = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (count >= 0) {
            ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
            if (real(count, "x", 1) < 0) { /* The test waits in vain and says so. */ }
            close(count);
        }
    }
    errno = EIO;
    return 1;
}

#define REAL(result, name, ...)                        \
    static result (*real)(__VA_ARGS__);                \
    if (!real) real = dlsym(RTLD_NEXT, name)

ssize_t write(int fd, const void *bytes, size_t count) {
    REAL(ssize_t, "write", int, const void *, size_t);
    return full(fd, position(fd) + (long long)count) ? -1 : real(fd, bytes, count);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    return full(fd, position(fd) + total(parts, count)) ? -1 : real(fd, parts, count);
}

#define POSITIONED(name)                                                            \
    ssize_t name(int fd, const void *bytes, size_t count, off_t at) {               \
        REAL(ssize_t, #name, int, const void *, size_t, off_t);                     \
        return full(fd, at + (long long)count) ? -1 : real(fd, bytes, count, at);   \
    }
POSITIONED(pwrite)
POSITIONED(pwrite64)

#define POSITIONED_PARTS(name)                                                      \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t at) {          \
        REAL(ssize_t, #name, int, const struct iovec *, int, off_t);                \
        return full(fd, at + total(parts, count)) ? -1 : real(fd, parts, count, at); \
    }
POSITIONED_PARTS(pwritev)
POSITIONED_PARTS(pwritev64)

#define ALLOCATE(name)                                                              \
    int name(int fd, int mode, off_t at, off_t length) {                            \
        REAL(int, #name, int, int, off_t, off_t);                                   \
        return full(fd, at + length) ? -1 : real(fd, mode, at, length);             \
    }
ALLOCATE(fallocate)
ALLOCATE(fallocate64)

#define POSIX_ALLOCATE(name)                                                        \
    int name(int fd, off_t at, off_t length) {                                      \
        REAL(int, #name, int, off_t, off_t);                                        \
        return full(fd, at + length) ? ENOSPC : real(fd, at, length);               \
    }
POSIX_ALLOCATE(posix_fallocate)
POSIX_ALLOCATE(posix_fallocate64)

int fsync(int fd) {
    REAL(int, "fsync", int);
    return sync_fails(fd) ? -1 : real(fd);
}

int fdatasync(int fd) {
    REAL(int, "fdatasync", int);
    return sync_fails(fd) ? -1 : real(fd);
}
