/* Preloaded into ranks. The one that PIPEC_TEST_DIE_WHILE_MEETING names is
   killed when it has connected, while the others wait for it in a collective
   call of MPI. PIPEC_TEST_RANKS_OF_A_HOST: so many ranks after one another are
   taken to be on a machine of their own. PIPEC_TEST_LATE_AND_GONE: that rank
   connects 4 seconds late and is killed when all have. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int MPI_Comm_split_type(void *from, int type, int key, void *info, void *to) {
  const char *who = getenv("PIPEC_TEST_DIE_WHILE_MEETING");
  const char *hosts = getenv("PIPEC_TEST_RANKS_OF_A_HOST");
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (who && rank && strcmp(who, rank) == 0)
    raise(SIGKILL);
  if (hosts && rank) {
    int (*split)(void *, int, int, void *) =
        (int (*)(void *, int, int, void *))dlsym(RTLD_NEXT, "MPI_Comm_split");
    return split(from, atoi(rank) / atoi(hosts), key, to);
  }
  int (*real)(void *, int, int, void *, void *) =
      (int (*)(void *, int, int, void *, void *))dlsym(RTLD_NEXT,
                                                       "MPI_Comm_split_type");
  return real(from, type, key, info, to);
}

static int isLate(void) {
  const char *who = getenv("PIPEC_TEST_LATE_AND_GONE");
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  return who && rank && strcmp(who, rank) == 0;
}

int MPI_Init_thread(int *count, char ***words, int wanted, int *got) {
  int (*real)(int *, char ***, int, int *) =
      (int (*)(int *, char ***, int, int *))dlsym(RTLD_NEXT, "MPI_Init_thread");
  if (isLate())
    sleep(4);
  return real(count, words, wanted, got);
}

int MPI_Comm_free(void *communicator) {
  int (*real)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "MPI_Comm_free");
  const int result = real(communicator);
  if (isLate()) {
    usleep(300000); // the others have it, too
    raise(SIGKILL);
  }
  return result;
}
