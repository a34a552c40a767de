/* What a power failure would leave: written down with each call that forces bytes to the medium.
 *
 * Loaded into a process by LD_PRELOAD. After each fsync or fdatasync that went well a line goes to
 * the file that CHAOS_POWER names: for a file its device, its number and how many bytes are safe;
 * for a folder its device, its number and the names that are safe in it, behind tabs.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void append(const char *line, int length) {
  const char *path = getenv("CHAOS_POWER");
  int log = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (log < 0) return;
  if (write(log, line, length) != length) abort(); /* in one piece, or the record is no record */
  close(log);
}

static int synced(const char *name, int fd) {
  int (*whole)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  struct stat before;
  int known = fstat(fd, &before) == 0; /* what is written meanwhile is not safe yet */
  const int room = 1 << 20;
  char *line = malloc(room);
  int length = 0;
  if (!line) abort();
  if (known && S_ISREG(before.st_mode)) {
    length = snprintf(line, room, "file %lu %lu %lld\n", (unsigned long)before.st_dev,
                      (unsigned long)before.st_ino, (long long)before.st_size);
  } else if (known && S_ISDIR(before.st_mode)) {
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = again < 0 ? NULL : fdopendir(again);
    length = snprintf(line, room, "folder %lu %lu", (unsigned long)before.st_dev,
                      (unsigned long)before.st_ino);
    for (struct dirent *one; folder && (one = readdir(folder));) {
      if ((int)strlen(one->d_name) + 3 > room - length) abort();
      length += snprintf(line + length, room - length, "\t%s", one->d_name);
    }
    if (folder) closedir(folder);
    length += snprintf(line + length, room - length, "\n");
  }
  int result = whole(fd);
  if (result == 0 && length) append(line, length);
  free(line);
  return result;
}

int fsync(int fd) { return synced("fsync", fd); }
int fdatasync(int fd) { return synced("fdatasync", fd); }
