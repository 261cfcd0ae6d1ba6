/* Makes file operations fail, for tests: preloaded into a server.
 *
 * FAULTS names a file. While it exists, each line of it is one fault: the call (sync, write,
 * truncate or lock), the errno it fails with, a text that the path of the file contains (with $ at
 * its end: that the path ends with), and how many times it fails (0: always). The call `slow` is a
 * sync that takes that many milliseconds instead.
 * FAULTS_SYNCED names a file that gets the path of each file or folder that was synced. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/types.h>
#include <unistd.h>

static ssize_t path_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (length >= 0) path[length] = 0;
    return length;
}

static int matches(const char *path, char *part) {
    size_t length = strlen(part), whole = strlen(path);
    if (length == 0 || part[length - 1] != '$') return strstr(path, part) != NULL;
    length--;
    return whole >= length && !strncmp(path + whole - length, part, length);
}

static int fault(const char *call, int fd) {
    const char *name = getenv("FAULTS");
    if (!name) return 0;
    int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    char text[1024];
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0) return 0;
    text[length] = 0;
    char path[4096];
    if (path_of(fd, path, sizeof path) < 0) return 0;
    static int failed[16];
    char *rest = text, *line;
    for (int place = 0; place < 16 && (line = strsep(&rest, "\n")); place++) {
        char which[32], part[256];
        int number, times;
        if (sscanf(line, "%31s %d %255s %d", which, &number, part, &times) != 4) continue;
        if (strcmp(which, call) || !matches(path, part)) continue;
        if (times == 0 || failed[place]++ < times) return number;
    }
    return 0;
}

static void note(int fd) {
    const char *name = getenv("FAULTS_SYNCED");
    if (!name) return;
    char path[4096];
    if (path_of(fd, path, sizeof path - 2) < 0) return;
    strcat(path, "\n");
    int file = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) return;
    ssize_t written = write(file, path, strlen(path));
    (void)written;
    close(file);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL(call, fd)                     \
    do {                                   \
        int kept = errno;                  \
        int number = fault(call, fd);      \
        errno = kept;                      \
        if (number) {                      \
            errno = number;                \
            return -1;                     \
        }                                  \
    } while (0)

static void slow(int fd) {
    int kept = errno;
    int milliseconds = fault("slow", fd);
    if (milliseconds) usleep(milliseconds * 1000);
    errno = kept;
}

int flock(int fd, int operation) {
    FAIL("lock", fd);
    return REAL(flock)(fd, operation);
}

int fsync(int fd) {
    slow(fd);
    FAIL("sync", fd);
    note(fd);
    return REAL(fsync)(fd);
}

int fdatasync(int fd) {
    slow(fd);
    FAIL("sync", fd);
    note(fd);
    return REAL(fdatasync)(fd);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) {
    FAIL("write", fd);
    return REAL(pwrite)(fd, bytes, size, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
    FAIL("write", fd);
    return REAL(pwrite64)(fd, bytes, size, at);
}

ssize_t write(int fd, const void *bytes, size_t size) {
    FAIL("write", fd);
    return REAL(write)(fd, bytes, size);
}

int ftruncate(int fd, off_t size) {
    FAIL("truncate", fd);
    return REAL(ftruncate)(fd, size);
}

int ftruncate64(int fd, off64_t size) {
    FAIL("truncate", fd);
    return REAL(ftruncate64)(fd, size);
}
