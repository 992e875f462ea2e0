/* Counts what a process changes below a folder, and makes the N-th change its last one, or one that fails.
 *
 * Preloaded (LD_PRELOAD) by the tests of this folder. Every call that makes, renames, links, removes, shortens or writes
 * a file below the target goes through `point`. It is armed by the environment (for programs that start others, such as
 * Spark) or by `attack_arm` (for a process that was forked and has not begun).
 *
 * ATTACK_TARGET  the folder, an absolute path without symbolic links
 * ATTACK_STATE   file that all processes of one attempt share: how many points they have passed
 * ATTACK_LOG     file that gets a line per point: number, call, path
 * ATTACK_MODE    list: only count; kill: SIGKILL to the group before the N-th point; torn: let half of the N-th point's
 *                bytes through first, where it is a write; full: from the N-th point on the disk is full (ENOSPC for
 *                all that needs room); broken: the N-th point alone fails with EIO
 * ATTACK_AT      N, from 1
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum mode { OFF, LIST, KILL, TORN, FULL, BROKEN };

struct state {
    atomic_long count;
    atomic_int dead;
    atomic_int group;
};

static char target[PATH_MAX];
static size_t target_length;
static enum mode mode = OFF;
static long at;
static int log_fd = -1;
static struct state *state;

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int raw_open(const char *path, int flags) {
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600);
}

static int aside(int fd) {
    /* Programs that close what they inherited, or count on low numbers, shall not meet ours. */
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, 900);
    if (moved < 0) return fd;
    close(fd);
    return moved;
}

/* Arm this process, and all that it forks. Returns 0, or an errno. */
int attack_arm(const char *folder, const char *state_file, const char *log_file, const char *name, long n) {
    static const char *const names[] = {"off", "list", "kill", "torn", "full", "broken"};
    mode = OFF;
    int found = -1;
    for (int k = 0; k < 6; k++)
        if (!strcmp(name, names[k])) found = k;
    if (found < 0) return EINVAL;
    int fd = raw_open(state_file, O_RDWR | O_CREAT);
    if (fd < 0) return errno;
    if (ftruncate(fd, sizeof(struct state))) return errno;
    state = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (state == MAP_FAILED) return errno;
    int none = 0;
    atomic_compare_exchange_strong(&state->group, &none, getpgrp());
    fd = raw_open(log_file, O_WRONLY | O_CREAT | O_APPEND);
    if (fd < 0) return errno;
    log_fd = aside(fd);
    snprintf(target, sizeof target, "%s", folder);
    target_length = strlen(target);
    at = n;
    mode = (enum mode)found;
    return 0;
}

__attribute__((constructor)) static void arm_by_environment(void) {
    const char *folder = getenv("ATTACK_TARGET"), *number = getenv("ATTACK_AT");
    if (!folder) return;
    int error = attack_arm(folder, getenv("ATTACK_STATE"), getenv("ATTACK_LOG"), getenv("ATTACK_MODE"),
                           number ? atol(number) : 0);
    if (error) {
        dprintf(2, "attack: cannot be armed: %s\n", strerror(error));
        _exit(99);
    }
}

static int below(const char *path) {
    return !strncmp(path, target, target_length) && (path[target_length] == '/' || !path[target_length]);
}

/* The absolute name of `path` relative to the folder `dirfd`; 0 where that is not below the target. */
static int named(int dirfd, const char *path, char *name) {
    if (mode == OFF || !path) return 0;
    if (path[0] == '/') return below(path) && snprintf(name, PATH_MAX, "%s", path) > 0;
    char base[PATH_MAX];
    if (dirfd == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return 0;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
        ssize_t length = readlink(link, base, sizeof base - 1);
        if (length < 0) return 0;
        base[length] = 0;
    }
    if (snprintf(name, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return 0;
    return below(name);
}

static int of_file(int fd, char *name) {
    if (mode == OFF || fd < 3 || fd == log_fd) return 0;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, PATH_MAX - 1);
    if (length <= 0) return 0;
    name[length] = 0;
    return below(name);
}

static void die(void) {
    atomic_store(&state->dead, 1);
    kill(-atomic_load(&state->group), SIGKILL);
    kill(0, SIGKILL);
    raise(SIGKILL);
}

/* Pass a point. Returns an errno for the call to fail with, 0 to go on, -1 to write half and die. */
static int point(const char *call, const char *name, const char *other, int grows) {
    if (atomic_load(&state->dead)) {
        raise(SIGKILL);
        return EIO;
    }
    int keep = errno;
    long number = atomic_fetch_add(&state->count, 1) + 1;
    char line[2 * PATH_MAX + 100];
    int length = snprintf(line, sizeof line, "%ld\t%s\t%s\t%s\n", number, call, name, other ? other : "");
    if (length > 0) (void)!syscall(SYS_write, log_fd, line, (size_t)length);
    errno = keep;
    if (number < at || mode == LIST) return 0;
    switch (mode) {
    case KILL:
        if (number == at) die();
        return 0;
    case TORN:
        if (number != at) return 0;
        if (!strncmp(call, "write", 5)) return -1;
        die();
        return 0;
    case FULL: return grows ? ENOSPC : 0;
    case BROKEN: return number == at ? EIO : 0;
    default: return 0;
    }
}

#define PASS(call, name, other, grows) \
    do { \
        int refused_ = point(call, name, other, grows); \
        if (refused_) { errno = refused_; return -1; } \
    } while (0)

/* ---- names ---- */

int mkdirat(int dirfd, const char *path, mode_t bits) {
    REAL(mkdirat);
    char name[PATH_MAX];
    if (named(dirfd, path, name)) PASS("mkdir", name, NULL, 1);
    return real(dirfd, path, bits);
}

int mkdir(const char *path, mode_t bits) { return mkdirat(AT_FDCWD, path, bits); }

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned int flags) {
    char one[PATH_MAX], two[PATH_MAX];
    if (mode != OFF) {
        int a = named(from_fd, from, one), b = named(to_fd, to, two);
        if (a || b) PASS("rename", a ? one : from, b ? two : to, 0);
    }
    return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to) { return renameat2(from_fd, from, to_fd, to, 0); }

int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags) {
    REAL(linkat);
    char name[PATH_MAX];
    if (named(to_fd, to, name)) PASS("link", name, from, 1);
    return real(from_fd, from, to_fd, to, flags);
}

int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int symlinkat(const char *content, int dirfd, const char *path) {
    REAL(symlinkat);
    char name[PATH_MAX];
    if (named(dirfd, path, name)) PASS("symlink", name, content, 1);
    return real(content, dirfd, path);
}

int symlink(const char *content, const char *path) { return symlinkat(content, AT_FDCWD, path); }

int unlinkat(int dirfd, const char *path, int flags) {
    REAL(unlinkat);
    char name[PATH_MAX];
    if (named(dirfd, path, name)) PASS(flags & AT_REMOVEDIR ? "rmdir" : "unlink", name, NULL, 0);
    return real(dirfd, path, flags);
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }

int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int remove(const char *path) {
    int result = unlink(path);
    return result && errno == EISDIR ? rmdir(path) : result;
}

/* ---- opening ---- */

static int opens(int dirfd, const char *path, int flags, mode_t bits, int is_large) {
    char name[PATH_MAX];
    if ((flags & (O_CREAT | O_TRUNC)) && named(dirfd, path, name)) PASS("open", name, NULL, 1);
    return (int)syscall(SYS_openat, dirfd, path, flags | (is_large ? O_LARGEFILE : 0), bits);
}

#define BITS(flags) \
    mode_t bits = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        bits = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) { BITS(flags) return opens(AT_FDCWD, path, flags, bits, 0); }
int open64(const char *path, int flags, ...) { BITS(flags) return opens(AT_FDCWD, path, flags, bits, 1); }
int openat(int dirfd, const char *path, int flags, ...) { BITS(flags) return opens(dirfd, path, flags, bits, 0); }
int openat64(int dirfd, const char *path, int flags, ...) { BITS(flags) return opens(dirfd, path, flags, bits, 1); }
int creat(const char *path, mode_t bits) { return opens(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, bits, 0); }
int creat64(const char *path, mode_t bits) { return opens(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, bits, 1); }

#define STREAM(function) \
    FILE *function(const char *path, const char *how) { \
        REAL(function); \
        char name[PATH_MAX]; \
        if (!(how[0] == 'r') && named(AT_FDCWD, path, name)) { \
            int refused = point("open", name, NULL, 1); \
            if (refused) { errno = refused; return NULL; } \
        } \
        return real(path, how); \
    }
STREAM(fopen)
STREAM(fopen64)

/* ---- content ---- */

#define LENGTH(function, type) \
    int function(int fd, type length) { \
        REAL(function); \
        char name[PATH_MAX]; \
        if (of_file(fd, name)) PASS("ftruncate", name, NULL, 0); \
        return real(fd, length); \
    }
LENGTH(ftruncate, off_t)
LENGTH(ftruncate64, off64_t)

static int syncs(int fd, long number) {
    char name[PATH_MAX];
    if (of_file(fd, name)) PASS("fsync", name, NULL, 1);
    return (int)syscall(number, fd);
}

int fsync(int fd) { return syncs(fd, SYS_fsync); }
int fdatasync(int fd) { return syncs(fd, SYS_fdatasync); }

ssize_t write(int fd, const void *bytes, size_t count) {
    char name[PATH_MAX];
    if (of_file(fd, name)) {
        int refused = point("write", name, NULL, 1);
        if (refused < 0) {
            (void)!syscall(SYS_write, fd, bytes, count / 2);
            die();
        }
        if (refused) { errno = refused; return -1; }
    }
    return syscall(SYS_write, fd, bytes, count);
}

ssize_t writev(int fd, const struct iovec *pieces, int count) {
    char name[PATH_MAX];
    if (of_file(fd, name)) {
        int refused = point("writev", name, NULL, 1);
        if (refused < 0) {
            (void)!syscall(SYS_write, fd, pieces[0].iov_base, pieces[0].iov_len / 2);
            die();
        }
        if (refused) { errno = refused; return -1; }
    }
    return syscall(SYS_writev, fd, pieces, count);
}

#define PWRITE(function) \
    ssize_t function(int fd, const void *bytes, size_t count, off_t offset) { \
        char name[PATH_MAX]; \
        if (of_file(fd, name)) { \
            int refused = point("write", name, NULL, 1); \
            if (refused < 0) { \
                (void)!syscall(SYS_pwrite64, fd, bytes, count / 2, offset); \
                die(); \
            } \
            if (refused) { errno = refused; return -1; } \
        } \
        return syscall(SYS_pwrite64, fd, bytes, count, offset); \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define COPY(function, declared, passed, out) \
    ssize_t function declared { \
        REAL(function); \
        char name[PATH_MAX]; \
        if (of_file(out, name)) { \
            int refused = point("write", name, NULL, 1); \
            if (refused < 0) die(); \
            if (refused) { errno = refused; return -1; } \
        } \
        return real passed; \
    }
#include <sys/sendfile.h>
COPY(sendfile, (int out, int in, off_t *offset, size_t count), (out, in, offset, count), out)
COPY(sendfile64, (int out, int in, off64_t *offset, size_t count), (out, in, offset, count), out)
COPY(copy_file_range, (int in, off64_t *from, int out, off64_t *to, size_t count, unsigned int flags),
     (in, from, out, to, count, flags), out)
