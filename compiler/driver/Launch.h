//===- Launch.h - start scripts of a plan -----------------------*- C++ -*-===//
//
// A plan says which rank belongs on which server; the scripts carry that to the
// usual launchers. They are samples that work as they are: arguments given to
// them go to pipec-run.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/program/Plan.h"

#include <string>

namespace pipec {

/// Starts all ranks with Open MPI's mpirun; HOSTS names the servers.
std::string mpirunScript(const plan::Plan &plan);
/// A Slurm batch file: an allocation of the plan's size, then mpirun.sh in it.
std::string slurmScript(const plan::Plan &plan);
/// A Kubernetes MPIJob (kubeflow.org/v2beta1).
std::string kubernetesManifest(const plan::Plan &plan);

/// Writes launch/mpirun.sh, slurm.sbatch and kubernetes.yaml into the plan
/// folder. Throws Failure(CannotWrite).
void writeLaunchFiles(const plan::Plan &plan, const std::string &folder);

} // namespace pipec
