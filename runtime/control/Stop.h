//===- Stop.h - a wish to stop after this step ------------------*- C++ -*-===//
#pragma once

namespace pipec {

/// SIGTERM, SIGINT, SIGUSR1 and SIGHUP (unless it is ignored, as by nohup) from
/// now on ask for a stop; a second one ends the process at once. SIGXFSZ and
/// SIGPIPE are errors of the write they interrupt.
void catchSignals();

bool stopRequested();
void requestStop();

} // namespace pipec
