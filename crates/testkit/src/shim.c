/* Fills a disk, or makes its fsync fail, for the files of one folder; or writes a journal of the folder's changes, and ends the process at one of them.
 *
 * Loaded before the C library into the server under test.
 * TRILOGUE_SHIM_DIR names the folder, TRILOGUE_SHIM_FLAGS a folder of flag files:
 *   disk-full    holds the disk's size in bytes: a write that grows the folder beyond it gets ENOSPC
 *   fsync-fails  while it exists, fsync and fdatasync get EIO
 *   read-fails   holds an offset: reading that byte of a database gets EIO
 *   fsynced      grows by one byte with every fsync that was made to fail, so that a test can wait for it
 *   journal      while it exists when the process makes its first change, every change is appended to it before it is made;
 *                fsync then only adds its record, because the test builds the disk from the journal
 *   stop-at      holds a number N: SIGKILL ends the process at its N-th change, which is in the journal
 *
 * A journal's record: struct record, then `first` bytes of a name, `second` bytes of another, and `length` bytes of data for WRITE.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
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
 * The next write accounts for space that a raw system call took, which this library does not see. */
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

/* Whether these bytes of a database must fail to be read. */
static int read_fails(int fd, size_t count, long long at) {
    char path[PATH_MAX], text[32], link[64];
    int kept = errno, answer = 0;
    if (!flag_path(path, "read-fails")) return 0;
    int flag = open(path, O_RDONLY | O_CLOEXEC);
    if (flag >= 0) {
        ssize_t (*real)(int, void *, size_t) = dlsym(RTLD_NEXT, "read");
        ssize_t length = real(flag, text, sizeof text - 1);
        close(flag);
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t name = length > 0 && watched(fd) ? readlink(link, path, sizeof path) : 0;
        if (name > 3 && memcmp(path + name - 3, ".db", 3) == 0) {
            text[length] = 0;
            long long bad = atoll(text);
            answer = at <= bad && bad < at + (long long)count;
        }
    }
    errno = answer ? EIO : kept;
    return answer;
}

#define REAL(result, name, ...)                        \
    static result (*real)(__VA_ARGS__);                \
    if (!real) real = dlsym(RTLD_NEXT, name)

enum kind { CREATE = 1, WRITE, TRUNCATE, RENAME, UNLINK, SYNC, SYNC_FOLDER };

struct record {
    uint32_t kind, first, second, unused;
    uint64_t file, at, length;
};

/* Held while a change is recorded and made, so that the journal has the order of the changes. */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static int journal = -1;
static long long changes, stop_at;

static void find_journal(void) {
    char path[PATH_MAX], text[32];
    if (flag_path(path, "journal")) journal = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (journal < 0 || !flag_path(path, "stop-at")) return;
    int flag = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = flag < 0 ? 0 : read(flag, text, sizeof text - 1);
    if (length > 0) {
        text[length] = 0;
        stop_at = atoll(text);
    }
    if (flag >= 0) close(flag);
}

static int journaling(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int kept = errno;
    pthread_once(&once, find_journal);
    errno = kept;
    return journal >= 0;
}

/* The path below the watched folder; NULL if the file is in another folder. */
static const char *inside(const char *path, char *whole) {
    const char *dir = getenv("TRILOGUE_SHIM_DIR");
    if (!dir || !path) return NULL;
    if (path[0] == '/') {
        if (snprintf(whole, PATH_MAX, "%s", path) >= PATH_MAX) return NULL;
    } else {
        char here[PATH_MAX];
        if (!getcwd(here, sizeof here) || snprintf(whole, PATH_MAX, "%s/%s", here, path) >= PATH_MAX) return NULL;
    }
    size_t prefix = strlen(dir);
    return strncmp(whole, dir, prefix) == 0 && whole[prefix] == '/' ? whole + prefix + 1 : NULL;
}

static void record(struct record head, const char *first, const char *second, const struct iovec *parts, int count) {
    static ssize_t (*real)(int, const struct iovec *, int);
    if (!real) real = dlsym(RTLD_NEXT, "writev");
    struct iovec all[count + 3];
    head.first = first ? strlen(first) : 0;
    head.second = second ? strlen(second) : 0;
    all[0] = (struct iovec){&head, sizeof head};
    all[1] = (struct iovec){(void *)first, head.first};
    all[2] = (struct iovec){(void *)second, head.second};
    for (int i = 0; i < count; i++) all[i + 3] = parts[i];
    if (real(journal, all, count + 3) < 0) abort();
    if (++changes == stop_at) {
        kill(getpid(), SIGKILL);
        for (;;) pause();
    }
}

/* Begins a change of a watched file, which `finish` ends. Returns its number, or 0 if no journal is written. */
static uint64_t begin(int fd, int *is_folder) {
    struct stat info;
    int kept = errno;
    uint64_t file = 0;
    if (journaling() && watched(fd) && fstat(fd, &info) == 0 && (S_ISREG(info.st_mode) || (is_folder && S_ISDIR(info.st_mode)))) {
        if (is_folder) *is_folder = S_ISDIR(info.st_mode);
        file = info.st_ino;
        pthread_mutex_lock(&order);
    }
    errno = kept;
    return file;
}

static void finish(uint64_t file) {
    if (file) pthread_mutex_unlock(&order);
}

static uint64_t begin_write(int fd, long long at, const struct iovec *parts, int count) {
    uint64_t file = begin(fd, NULL);
    if (!file) return 0;
    if (at < 0) at = position(fd);
    struct record head = {WRITE, 0, 0, 0, file, at, total(parts, count)};
    record(head, NULL, NULL, parts, count);
    return file;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (full(fd, position(fd) + (long long)count)) return -1;
    struct iovec part = {(void *)bytes, count};
    uint64_t file = begin_write(fd, -1, &part, 1);
    ssize_t result = real(fd, bytes, count);
    finish(file);
    return result;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (full(fd, position(fd) + total(parts, count))) return -1;
    uint64_t file = begin_write(fd, -1, parts, count);
    ssize_t result = real(fd, parts, count);
    finish(file);
    return result;
}

#define POSITIONED(name)                                                            \
    ssize_t name(int fd, const void *bytes, size_t count, off_t at) {               \
        REAL(ssize_t, #name, int, const void *, size_t, off_t);                     \
        if (full(fd, at + (long long)count)) return -1;                             \
        struct iovec part = {(void *)bytes, count};                                 \
        uint64_t file = begin_write(fd, at, &part, 1);                              \
        ssize_t result = real(fd, bytes, count, at);                                \
        finish(file);                                                               \
        return result;                                                              \
    }
POSITIONED(pwrite)
POSITIONED(pwrite64)

#define POSITIONED_READ(name)                                                       \
    ssize_t name(int fd, void *bytes, size_t count, off_t at) {                     \
        REAL(ssize_t, #name, int, void *, size_t, off_t);                           \
        return read_fails(fd, count, at) ? -1 : real(fd, bytes, count, at);         \
    }
POSITIONED_READ(pread)
POSITIONED_READ(pread64)

ssize_t read(int fd, void *bytes, size_t count) {
    REAL(ssize_t, "read", int, void *, size_t);
    return read_fails(fd, count, position(fd)) ? -1 : real(fd, bytes, count);
}

#define POSITIONED_PARTS(name)                                                      \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t at) {          \
        REAL(ssize_t, #name, int, const struct iovec *, int, off_t);                \
        if (full(fd, at + total(parts, count))) return -1;                          \
        uint64_t file = begin_write(fd, at, parts, count);                          \
        ssize_t result = real(fd, parts, count, at);                                \
        finish(file);                                                               \
        return result;                                                              \
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

#define RESIZE(name)                                                                \
    int name(int fd, off_t length) {                                                \
        REAL(int, #name, int, off_t);                                               \
        uint64_t file = begin(fd, NULL);                                            \
        if (file) record((struct record){TRUNCATE, 0, 0, 0, file, length, 0}, NULL, NULL, NULL, 0); \
        int result = real(fd, length);                                              \
        finish(file);                                                               \
        return result;                                                              \
    }
RESIZE(ftruncate)
RESIZE(ftruncate64)

static int synchronise(int fd, int (*real)(int)) {
    int is_folder = 0;
    if (sync_fails(fd)) return -1;
    uint64_t file = begin(fd, &is_folder);
    if (!file) return real(fd);
    record((struct record){is_folder ? SYNC_FOLDER : SYNC, 0, 0, 0, file, 0, 0}, NULL, NULL, NULL, 0);
    finish(file);
    return 0;
}

int fsync(int fd) {
    REAL(int, "fsync", int);
    return synchronise(fd, real);
}

int fdatasync(int fd) {
    REAL(int, "fdatasync", int);
    return synchronise(fd, real);
}

int rename(const char *from, const char *to) {
    char old_path[PATH_MAX], new_path[PATH_MAX];
    REAL(int, "rename", const char *, const char *);
    const char *old = inside(from, old_path), *new = inside(to, new_path);
    if ((!old && !new) || !journaling()) return real(from, to);
    /* The empty name shows the test that a file came from another folder, or moved there. */
    pthread_mutex_lock(&order);
    if (access(from, F_OK) == 0) record((struct record){.kind = RENAME}, old, new, NULL, 0);
    int result = real(from, to);
    pthread_mutex_unlock(&order);
    return result;
}

int unlink(const char *path) {
    char whole[PATH_MAX];
    REAL(int, "unlink", const char *);
    const char *name = inside(path, whole);
    if (!name || !journaling()) return real(path);
    pthread_mutex_lock(&order);
    if (access(path, F_OK) == 0) record((struct record){.kind = UNLINK}, name, NULL, NULL, 0);
    int result = real(path);
    pthread_mutex_unlock(&order);
    return result;
}

static int opened(int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode) {
    char whole[PATH_MAX];
    const char *name = flags & (O_CREAT | O_TRUNC) ? inside(path, whole) : NULL;
    struct stat before, after;
    if (!name || !journaling()) return real(path, flags, mode);
    pthread_mutex_lock(&order);
    int existed = stat(path, &before) == 0;
    int fd = real(path, flags, mode);
    if (fd >= 0 && fstat(fd, &after) == 0 && S_ISREG(after.st_mode)) {
        struct record head = {.kind = existed ? TRUNCATE : CREATE, .file = after.st_ino};
        if (!existed || (flags & O_TRUNC && before.st_size > 0)) record(head, existed ? NULL : name, NULL, NULL, 0);
    }
    pthread_mutex_unlock(&order);
    return fd;
}

#define OPEN(name)                                                                  \
    int name(const char *path, int flags, ...) {                                    \
        static int (*real)(const char *, int, ...);                                 \
        if (!real) real = dlsym(RTLD_NEXT, #name);                                  \
        va_list rest;                                                               \
        va_start(rest, flags);                                                      \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;     \
        va_end(rest);                                                               \
        return opened(real, path, flags, mode);                                     \
    }
OPEN(open)
OPEN(open64)
