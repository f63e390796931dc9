/* The command of every job of a chaos run: it records what the kernel saw of it, and knows of detent only
   its environment.  `witness FILE LOCKS LANE WIDTH DEED MILLISECONDS [STATUS]`

   It takes a flock: one of WIDTH files of its lane, or of its fire where WIDTH is 0, and holds it for its
   life; its children inherit it.  It appends one line to FILE, by one write, when it starts and when it
   ends by itself (a hook: one):
   WHAT NANOSECONDS PID PLACE STATUS NODE FENCE ATTEMPT RUN-ID KEY; a PLACE of -1: there was none, an overlap.
   The clock is CLOCK_MONOTONIC, asked of the kernel itself: a library that moves clocks is not asked. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int witness, place = -1;
static const char *locks, *lane;

static const char *given(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : "-";
}

static void tell(const char *what, int status)
{
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    char line[1024];
    int length = snprintf(line, sizeof line, "%s %lld %d %d %d %s %s %s %s %s\n", what,
                          now.tv_sec * 1000000000LL + now.tv_nsec, (int)getpid(), place, status,
                          given("DETENT_NODE"), given("DETENT_FENCE"), given("DETENT_ATTEMPT"),
                          given("DETENT_RUN_ID"), given("DETENT_FIRE"));
    if (write(witness, line, length) != length)
        _exit(121);
}

/* A process that was just forked has its parent's descriptors until it executes: that is no overlap. */
static int is_taken(const char *name)
{
    int file = open(name, O_RDWR | O_CREAT, 0666);
    if (file < 0)
        _exit(122);
    if (flock(file, LOCK_EX | LOCK_NB) == 0)
        return 0;
    close(file);
    return 1;
}

static void take_place(int width)
{
    char name[1024];
    for (int turn = 0; turn < 10 && place < 0; turn++) {
        for (int one = 0; one < (width ? width : 1) && place < 0; one++) {
            snprintf(name, sizeof name, "%s/%s.%d", locks, width ? lane : given("DETENT_FIRE"), one);
            for (char *letter = name + strlen(locks) + 1; *letter; letter++)
                if (*letter == '/')
                    *letter = '_';
            if (!is_taken(name))
                place = one;
        }
        if (place < 0)
            usleep(2000);
    }
}

static void pass(long milliseconds)
{
    struct timespec left = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&left, &left))
        ;
}

/* A grandchild in a session of its own, whose parent is gone, which hears nothing but SIGKILL. */
static void leave_family(void)
{
    pid_t child = fork();
    if (child == 0) {
        setsid();
        if (fork() == 0) {
            int null = open("/dev/null", O_RDWR);
            for (int fd = 0; fd < 3; fd++)
                dup2(null, fd);
            signal(SIGTERM, SIG_IGN);
            signal(SIGHUP, SIG_IGN);
            tell("stay", 0);
            pass(120000);
        }
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

int main(int count, char **words)
{
    if (count < 7)
        return 120;
    witness = open(words[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    locks = words[2];
    lane = words[3];
    const char *deed = words[5];
    long milliseconds = atol(words[6]);
    int status = count > 7 ? atoi(words[7]) : 0;
    if (!strcmp(deed, "deaf"))
        signal(SIGTERM, SIG_IGN);
    take_place(atoi(words[4]));
    if (!strcmp(deed, "hook")) {
        tell("hook", 0);
        return 0;
    }
    tell("start", 0);
    if (!strcmp(deed, "family"))
        leave_family();
    pass(milliseconds);
    if (!strcmp(deed, "third"))
        status = atoi(given("DETENT_ATTEMPT")) < 3;
    tell("end", status);
    return status;
}
