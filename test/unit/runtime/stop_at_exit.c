/* Preloaded into ranks: the one that PIPEC_TEST_STOP_AT_EXIT names is stopped
   (SIGSTOP) while it ends, after it has said that it is done. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

__attribute__((destructor)) static void stop(void) {
  const char *who = getenv("PIPEC_TEST_STOP_AT_EXIT");
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (who && rank && strcmp(who, rank) == 0)
    raise(SIGSTOP);
}
