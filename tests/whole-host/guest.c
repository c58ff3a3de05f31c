/* The only program in the images of the whole-host tests: what runs in the containers that a real kubelet starts.
 *
 * Its name decides what it is:
 *   virt-launcher-monitor ...   the compute container of a launcher pod. At SIGTERM it leaves the file `sigterm` where virt-handler
 *                               (which is played outside) sees it, and goes on: its guest is shut down or moved by virt-handler. It
 *                               ends when virt-handler leaves the file `end`, with the exit code that stands in it.
 *   workload SECONDS            any other pod: at SIGTERM it goes on for so many seconds and ends with 0.
 *   anything else               (pause, virt-tail) ends at SIGTERM.
 * Every event is a line on standard output, which the kubelet keeps with its time.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A volume of every launcher pod (emptyDir `private`). */
#define SIGTERM_FILE "/var/run/kubevirt-private/sigterm"
#define END_FILE "/var/run/kubevirt-private/end"

static volatile sig_atomic_t terms;

static void on_term(int number) {
    (void)number;
    terms++;
}

static void say(const char *what) {
    struct timespec now;
    char line[128];
    clock_gettime(CLOCK_REALTIME, &now);
    int size = snprintf(line, sizeof line, "%lld.%03ld %s\n", (long long)now.tv_sec, now.tv_nsec / 1000000, what);
    if (write(1, line, (size_t)size) < 0) {
        /* Nobody reads any more: nothing to be done. */
    }
}

static double uptime(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The exit code in the file `end`, or -1 while it is not there. */
static int end_code(void) {
    char text[16] = "";
    int file = open(END_FILE, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    return size > 0 ? atoi(text) : 0;
}

int main(int count, char **words) {
    const char *slash = strrchr(words[0], '/');
    const char *name = slash ? slash + 1 : words[0];
    int launcher = strcmp(name, "virt-launcher-monitor") == 0;
    int workload = strcmp(name, "workload") == 0;
    double seconds = workload && count > 1 ? atof(words[1]) : 0;

    struct sigaction action = {.sa_handler = on_term};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGCHLD, SIG_IGN);
    say("start");

    int told = 0;
    double since = 0;
    for (;;) {
        struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
        if (terms == told) nanosleep(&pause, NULL);
        if (terms != told) {
            told = terms;
            say("SIGTERM");
            if (since == 0) since = uptime();
            if (launcher) {
                int file = open(SIGTERM_FILE, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
                if (file >= 0) close(file);
            }
        }
        if (launcher) {
            int code = end_code();
            if (code >= 0) {
                say("end");
                return code;
            }
        } else if (since > 0 && uptime() - since >= seconds) {
            say("end");
            return 0;
        }
    }
}
